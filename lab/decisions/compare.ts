/**
 * Plays cases on both sides, and finds the first thing in which they differ. Hides how a case that
 * differs is made smaller.
 */
import { createHash } from 'node:crypto';
import { type Case, drawCase } from './cases.ts';
import { play } from './play.ts';
import type { Side } from './side.ts';
import { type Difference, wantedFor } from './wanted.ts';

/** Which cases are played: each seed from the first one on. */
export interface Range {
  readonly from: number;
  readonly count: number;
}

/** A case in which the sides differ, and the fewest operations that still show it. */
export interface Found {
  readonly seed: number;
  readonly kept: readonly number[];
  readonly text: string;
}

/** What a range of cases came to. */
export interface Compared {
  readonly range: Range;
  /** How often each reason was met, as `call state`. */
  readonly reasons: readonly (readonly [reason: string, times: number])[];
  /** In how many cases the sides differ, and it is not wanted. */
  readonly differences: number;
  /** The first of them. */
  readonly found: readonly Found[];
  /** How often each wanted difference was met, by its reason. */
  readonly wanted: readonly (readonly [reason: string, times: number])[];
  /** A digest of all that was seen on the newer side. */
  readonly digest: string;
}

/** More findings of one range are not made smaller, since that takes long. */
const MOST_FOUND = 2;

/** @param older without it, the range is played on the newer side alone */
export async function comparing(
  newer: Side,
  older: Side | undefined,
  range: Range,
): Promise<Compared> {
  const reasons = new Map<string, number>();
  const wanted = new Map<string, number>();
  const found: Found[] = [];
  let differences = 0;
  const digest = createHash('sha256');
  for (let seed = range.from; seed < range.from + range.count; seed++) {
    const drawn = drawCase(seed);
    const played = await play(newer, drawn);
    for (const line of played.lines) digest.update(`${line}\n`);
    for (const [reason, times] of played.reasons) addTo(reasons, reason, times);
    if (older === undefined) continue;
    const { lines } = await play(older, drawn);
    const difference = differenceOf(drawn, lines, played.lines);
    if (difference === undefined) continue;
    const why = wantedFor(difference);
    if (why !== undefined) {
      addTo(wanted, why, 1);
      continue;
    }
    differences++;
    if (found.length < MOST_FOUND) found.push(await smallest(newer, older, drawn));
  }
  return {
    range,
    differences,
    reasons: [...reasons],
    found,
    wanted: [...wanted],
    digest: digest.digest('hex').slice(0, 16),
  };
}

function addTo(counts: Map<string, number>, key: string, times: number): void {
  counts.set(key, (counts.get(key) ?? 0) + times);
}

/** The case with these of its operations. */
export function keeping(drawn: Case, kept: readonly number[]): Case {
  return { ...drawn, operations: drawn.operations.filter((_, i) => kept.includes(i)) };
}

/** The first difference, if there is one. */
export async function differing(
  newer: Side,
  older: Side,
  drawn: Case,
): Promise<Difference | undefined> {
  const { lines } = await play(older, drawn);
  return differenceOf(drawn, lines, (await play(newer, drawn)).lines);
}

function differenceOf(
  played: Case,
  older: readonly string[],
  newer: readonly string[],
): Difference | undefined {
  let operation = '';
  for (let i = 0; i < Math.max(older.length, newer.length); i++) {
    const [one, other] = [older[i], newer[i]];
    if (one !== other) return { played, operation, older: one, newer: other };
    if (one?.startsWith('# ')) operation = one.slice(2);
  }
  return undefined;
}

/** Leaves out each operation without which the sides still differ in an unwanted way. */
async function smallest(newer: Side, older: Side, drawn: Case): Promise<Found> {
  const shows = async (kept: readonly number[]): Promise<Difference | undefined> => {
    const difference = await differing(newer, older, keeping(drawn, kept));
    return difference && wantedFor(difference) === undefined ? difference : undefined;
  };
  let kept = drawn.operations.map((_, i) => i);
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : size >> 1) {
    for (let at = 0; at < kept.length; ) {
      const fewer = [...kept.slice(0, at), ...kept.slice(at + size)];
      if ((await shows(fewer)) === undefined) at += size;
      else kept = fewer;
    }
  }
  const difference = await shows(kept);
  const text =
    difference === undefined
      ? 'the difference does not come again: something outside of the case decides'
      : textOf(keeping(drawn, kept), difference);
  return { seed: drawn.seed, kept, text };
}

/** The case and where the two differ, for a person. */
export function textOf(
  { route, operations }: Case,
  { operation, older, newer }: Difference,
): string {
  const says = (line: string | undefined): string => line ?? '(nothing more)';
  return [
    `route ${JSON.stringify({ ...route, tools: undefined })}`,
    ...operations.map((each, i) => `  ${i} ${JSON.stringify(each).slice(0, 300)}`),
    `after ${operation}`,
    `  older: ${says(older)}`,
    `  newer: ${says(newer)}`,
  ].join('\n');
}
