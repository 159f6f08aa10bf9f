/**
 * Hides how a name is compared with others, near ones and globs, and what the names look like that
 * are made here: ids of sessions, tokens, and the keys of runs.
 */
import { randomBytes } from 'node:crypto';
import { quoteNames } from './errors.ts';

/** Longer names are not compared: the cost grows with the square, and nobody mistypes one. */
const LONGEST = 128;

/** Two fifths of the longer name may differ: enough for a typo, too little for another word. */
const TOLERANCE = 0.4;

/**
 * The candidate that `name` was probably meant to be, by edit distance and regardless of case, or
 * `undefined` where none is near. The first of equally near ones wins.
 */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  if (name.length > LONGEST) return undefined;
  let nearest: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    if (candidate === name) return candidate;
    if (candidate.length > LONGEST) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    const tolerated = Math.floor(Math.max(name.length, candidate.length) * TOLERANCE);
    if (distance <= tolerated && distance < least) [nearest, least] = [candidate, distance];
  }
  return nearest;
}

/**
 * The end of a message about a wrong name: `did you mean "empty"? Known are "empty", "payment"`.
 */
export function rightNames(name: string, known: Iterable<string>): string {
  const all = [...known];
  const nearest = nearestName(name, all);
  const list = `known are ${quoteNames(all)}`;
  return nearest === undefined
    ? list
    : `did you mean ${JSON.stringify(nearest)}? K${list.slice(1)}`;
}

/**
 * Without its letter case, both ways, as Unicode folds: the long s has an s for its capital, and
 * the Kelvin sign a k for its small letter.
 */
export function foldCase(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/**
 * A key as a careless reader has it: without its letter case, and over at a NUL, as strings of C
 * are.
 */
export function foldKey(key: string): string {
  const end = key.indexOf('\0');
  return foldCase(end === -1 ? key : key.slice(0, end));
}

/** Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = at(last, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = swapped ? at(beforeLast, j - 2) + 1 : Number.POSITIVE_INFINITY;
      row.push(Math.min(at(last, j) + 1, at(row, j - 1) + 1, substitution, swap));
    }
    [beforeLast, last] = [last, row];
  }
  return at(last, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}

/**
 * Whether a glob of one segment, in which a star stands for any text, covers a segment. What is
 * between the stars is placed from left to right, each as early as it can be, to leave the most for
 * the rest: no backtracking, whoever chose the texts.
 */
export function starsCover(glob: string, segment: string): boolean {
  const [head = '', ...pieces] = glob.split('*');
  const tail = pieces.pop();
  if (tail === undefined) return glob === segment;
  const end = segment.length - tail.length;
  if (end < head.length || !segment.startsWith(head) || !segment.endsWith(tail)) return false;
  let from = head.length;
  for (const piece of pieces) {
    const at = segment.indexOf(piece, from);
    if (at === -1 || at + piece.length > end) return false;
    from = at + piece.length;
  }
  return true;
}

/** Where a session's id travels, in both directions. */
export const SESSION_HEADER = 'mcp-session-id';

/**
 * A session id: 192 random bits in visible ASCII (MCP 2025-11-25, Transports, "Session
 * Management").
 */
export function newSessionId(): string {
  return randomBytes(24).toString('base64url');
}

/** A claim's token, and the idempotency key of the step that it is for. */
export function newToken(): string {
  if (drawn.length < TOKEN_BYTES) drawn = randomBytes(100 * TOKEN_BYTES);
  const token = drawn.toString('base64url', 0, TOKEN_BYTES);
  drawn = drawn.subarray(TOKEN_BYTES);
  return token;
}

const TOKEN_BYTES = 18;

/** Random bytes for the next tokens: drawing few of them costs as much as drawing many. */
let drawn = Buffer.alloc(0);

/**
 * Begins the key of a principal's run. With a space in it, which no session id contains (MCP
 * 2025-11-25: visible ASCII), so that no client can name it by that header.
 */
export const PRINCIPAL_RUN = 'principal ';

/** Whether a run is a principal's, as its key says. */
export function isPrincipalRun(run: string): boolean {
  return run.startsWith(PRINCIPAL_RUN);
}

/** Whether a run is a session's: the keys of all others have a space in them. */
export function isSession(run: string): boolean {
  return !run.includes(' ');
}
