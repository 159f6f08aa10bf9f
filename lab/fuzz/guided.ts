import { Session } from 'node:inspector/promises';
import * as fc from 'fast-check';
import { type Random, seeded } from '../checker/random.ts';
import { judge } from './differential.ts';
import { type Host, startBare } from './hosts.ts';
import { cook, type Recipe, recipe, showRequest } from './raw-request.ts';
import type { OpenTarget, Target } from './target.ts';

/** How many requests one corpus grows by. */
const TRIES = 60;

/**
 * Guided by coverage: it keeps a request that reaches a new part of the package, and makes later
 * ones of those that it kept. V8 itself counts what a request reached, so the code stays as it is.
 */
export const guided: Target = {
  name: 'guided',
  what: 'as differential, with requests that are bred for what they reach',
  inputs: 1,
  async open(): Promise<OpenTarget> {
    const host = await startBare();
    return {
      property: fc.asyncProperty(
        fc.nat(),
        fc.array(recipe, { minLength: 8, maxLength: 8, size: 'max' }),
        (seed, first) => breed(host, seeded(seed, 'guided'), first),
      ),
      close: () => host.close(),
    };
  },
};

async function breed(host: Host, random: Random, first: readonly Recipe[]): Promise<void> {
  const corpus = [...first];
  const seen = new Set<string>();
  const reached = await Reached.start();
  try {
    for (let turn = 0; turn < TRIES; turn++) {
      const next = first[turn] ?? crossed(random.pick(corpus), random.pick(corpus), random);
      await judgeSmallest(host, next);
      const before = seen.size;
      for (const part of await reached.take()) seen.add(part);
      if (seen.size > before) corpus.push(next);
    }
  } finally {
    // Counting makes everything else in the process slow.
    await reached.stop();
  }
}

/** Judges the recipe; where it is a finding, the smallest part of it that still is one. */
async function judgeSmallest(host: Host, whole: Recipe): Promise<void> {
  const fails = async (each: Recipe): Promise<Error | undefined> =>
    judge(host, cook(each)).then(
      () => undefined,
      (error: Error) => error,
    );
  let error = await fails(whole);
  if (error === undefined) return;
  let smallest = whole;
  for (const part of partsOf(whole)) {
    const less = { ...smallest, ...part(smallest) };
    const still = await fails(less);
    if (still !== undefined) [smallest, error] = [less, still];
  }
  throw new Error(`${error.message}\n${showRequest(cook(smallest))}`);
}

/** Each takes something away. */
function partsOf({ changes, extras }: Recipe): ((recipe: Recipe) => Partial<Recipe>)[] {
  const without = <T>(items: readonly T[], item: T) => items.filter((each) => each !== item);
  return [
    ...changes.map((change) => (recipe: Recipe) => ({ changes: without(recipe.changes, change) })),
    ...extras.map((extra) => (recipe: Recipe) => ({ extras: without(recipe.extras, extra) })),
    () => ({ wrap: 0 }),
    () => ({ encoding: 0 }),
    () => ({ type: 0 }),
    () => ({ cuts: [] }),
    () => ({ isStateless: false }),
    () => ({ method: 'POST' }),
  ];
}

/** A child of both, with the changes of both. */
function crossed(one: Recipe, other: Recipe, random: Random): Recipe {
  const child = Object.fromEntries(
    Object.entries(one).map(([key, value]) => [
      key,
      random.chance(0.5) ? value : Reflect.get(other, key),
    ]),
  ) as unknown as Recipe;
  const changes = random.shuffled([...one.changes, ...other.changes]).slice(0, 6);
  return { ...child, changes, extras: child.extras.slice(0, 3) };
}

/** Which parts of the package ran. */
class Reached {
  readonly #session: Session;

  private constructor(session: Session) {
    this.#session = session;
  }

  static async start(): Promise<Reached> {
    const session = new Session();
    session.connect();
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
    return new Reached(session);
  }

  /** Those that ran since the last look, each with how often in powers of two. */
  async take(): Promise<string[]> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const ours = result.filter(
      ({ url }) => /\/(?:src|dist)\/(?!.*node_modules)/.test(url) && !url.includes('node_modules'),
    );
    return ours.flatMap(({ scriptId, functions }) =>
      functions.flatMap(({ ranges }) =>
        ranges
          .filter(({ count }) => count > 0)
          .map(
            ({ startOffset, count }) =>
              `${scriptId} ${startOffset} ${Math.floor(Math.log2(count))}`,
          ),
      ),
    );
  }

  async stop(): Promise<void> {
    await this.#session.post('Profiler.stopPreciseCoverage');
    this.#session.disconnect();
  }
}
