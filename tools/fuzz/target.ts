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

/** One run of a target: the same seed and number try the same inputs. */
export async function runOnce(
  { name, inputs }: Target,
  { property, describe }: OpenTarget,
  seed: number,
  run: number,
): Promise<Finding | undefined> {
  const details = await fc.check(property as IAsyncProperty<unknown>, {
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
