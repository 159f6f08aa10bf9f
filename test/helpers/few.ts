/**
 * How many random cases a test plays. `MORE_CASES=4` plays four times as many, with another seed at
 * each run, as the nightly run does.
 */
const MORE = Number(process.env.MORE_CASES ?? 0);

export const cases = (count: number): number => count * (MORE || 1);

/**
 * For `fc.assert`. Without `MORE_CASES` the cases are the same at each run.
 *
 * @param round another one has other cases
 */
export const few = (count: number, round = 0): { numRuns: number; seed: number } => ({
  numRuns: cases(count),
  seed: firstSeed() + round,
});

/** The first seed of a test that draws its own cases. */
export const firstSeed = (): number => (MORE === 0 ? 1 : Math.floor(Math.random() * 1e9));
