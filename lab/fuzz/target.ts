import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { IAsyncProperty, IProperty } from 'fast-check';
import * as fc from 'fast-check';
import { mix } from '../checker/random.ts';

/** Something that is fuzzed. */
export interface Target {
  readonly name: string;
  /** What holds for each input. */
  readonly what: string;
  /** How many inputs one run tries; a run takes about a second. */
  readonly inputs: number;
  open(): Promise<OpenTarget>;
}

export interface OpenTarget {
  // biome-ignore lint/suspicious/noExplicitAny: each target has inputs of its own
  readonly property: IProperty<any> | IAsyncProperty<any>;
  /** The smallest input that broke it, for a developer to send by hand. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  describe?(input: any): string;
  close(): Promise<void>;
}

export interface Finding {
  readonly target: string;
  readonly seed: number;
  readonly run: number;
  /** The smallest input, and what it broke. */
  readonly text: string;
}

/**
 * What one input may cost: CPU time of the whole process, and how far memory grows that stays. An
 * input of most targets takes up to 120 ms, a whole session 200, and 60 requests under coverage
 * 720, measured beside other work. None left more than 16 MB behind.
 */
export const MOST: Readonly<Costs> = { cpuMs: 5_000, megabytes: 64 };

/** What inputs cost: one of them, or the dearest of them. */
export interface Costs {
  cpuMs: number;
  megabytes: number;
}

/**
 * One run of a target: the same seed and number try the same inputs. Breaks also where an input
 * costs more than it may. @param worst is raised to what the dearest input has cost
 */
export async function runOnce(
  { name, inputs }: Target,
  { property, describe }: OpenTarget,
  seed: number,
  run: number,
  worst: Costs = { cpuMs: 0, megabytes: 0 },
  most: Readonly<Costs> = MOST,
): Promise<Finding | undefined> {
  // What earlier inputs left to be collected would hide what one of these leaves.
  await collect();
  const details = await fc.check(measured(property, worst, most), {
    seed: mix(seed, `${name} ${run}`),
    numRuns: inputs,
    // Shrinking a finding may take long, and each step of it is a request.
    interruptAfterTimeLimit: 120_000,
    markInterruptAsFailure: false,
  });
  if (!details.failed) return undefined;
  const [input] = (details.counterexample ?? []) as unknown[];
  const { errorInstance: error } = details;
  const reason = error instanceof Error ? error.message : String(error);
  return {
    target: name,
    seed,
    run,
    text: `${reason}\n${describe?.(input) ?? fc.stringify(input)}`,
  };
}

/** The same property, which also fails where an input costs too much. */
function measured(
  property: OpenTarget['property'],
  worst: Costs,
  most: Readonly<Costs>,
): fc.IRawProperty<unknown, true> {
  const whole = property as fc.IRawProperty<unknown, true>;
  return {
    generate: whole.generate.bind(whole),
    shrink: whole.shrink.bind(whole),
    runBeforeEach: whole.runBeforeEach.bind(whole),
    runAfterEach: whole.runAfterEach.bind(whole),
    isAsync: () => true,
    run: async (input: unknown) => {
      const before = process.cpuUsage();
      const bytes = bytesInUse();
      const failure = await whole.run(input);
      const { user, system } = process.cpuUsage(before);
      const cpuMs = (user + system) / 1_000;
      let megabytes = (bytesInUse() - bytes) / 2 ** 20;
      if (megabytes > most.megabytes) {
        // Most of it is garbage that V8 had no need to collect yet.
        await collect();
        megabytes = (bytesInUse() - bytes) / 2 ** 20;
      }
      worst.cpuMs = Math.max(worst.cpuMs, cpuMs);
      worst.megabytes = Math.max(worst.megabytes, megabytes);
      if (failure !== null) return failure;
      if (cpuMs > most.cpuMs) return { error: tooDear('CPU time', cpuMs, 'ms') };
      if (megabytes > most.megabytes) return { error: tooDear('memory', megabytes, 'MB') };
      return null;
    },
  };
}

function tooDear(what: string, took: number, unit: string): Error {
  return new Error(`an input takes too much ${what}\n  ${took.toFixed(1)} ${unit}`);
}

function bytesInUse(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** V8 frees the memory of buffers a turn after it has found that they are garbage. */
async function collect(): Promise<void> {
  setFlagsFromString('--expose-gc');
  const gc: () => void = runInNewContext('gc');
  for (let turn = 0; turn < 2; turn++) {
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/**
 * Fails the property. What is the same each time comes first: findings that begin alike are told
 * once.
 */
export function broken(what: string, details = ''): never {
  throw new Error(details === '' ? what : `${what}\n  ${details}`);
}

/** How a finding is played again. */
export function replayOf({ target, seed, run }: Finding): string {
  return `npm run fuzz -- --seed ${seed} --target ${target} --run ${run}`;
}
