/**
 * Hides how names are compared, with near ones and with globs, and how ids, tokens and the keys of
 * runs look.
 */
import { randomBytes } from 'node:crypto';
import { quoteNames } from './errors.ts';

/** Longer names are not compared: the cost grows with the square of the length. */
const LONGEST = 128;

/** The share of the longer name that may differ: enough for a typo, too little for another word. */
const TOLERANCE = 0.4;

/**
 * The candidate that `name` was probably meant to be, or `undefined` where none is near. It goes by
 * edit distance, regardless of case. The first of equally near candidates wins.
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
 * The name without its letter case. Both directions are needed: the capital of the long s is an S,
 * and the small letter of the Kelvin sign is a k.
 */
export function foldCase(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/** A stranger's text, quoted for a log: no character of it can end a line or the quotation. */
export function asciiText(text: string): string {
  return JSON.stringify(text).replace(
    /[^\x20-\x7e]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** V8 copies a shorter part of a text anyway. */
const SHORTEST_VIEW = 13;

/**
 * A copy of a text or of its beginning, to keep beyond the request that it came with. V8 makes most
 * parts of a text views of it, as `slice()` or a match: to keep one keeps the whole body in memory.
 */
export function ownText(text: string, most = text.length): string {
  const part = text.slice(0, most);
  return part.length < SHORTEST_VIEW ? part : Buffer.from(part, 'utf16le').toString('utf16le');
}

/** A key as a careless parser reads it: regardless of case, and cut at a NUL, as in C. */
export function foldKey(key: string): string {
  const end = key.indexOf('\0');
  return foldCase(end === -1 ? key : key.slice(0, end));
}

/** How many insertions, deletions, substitutions and swaps of neighbours turn `a` into `b`. */
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
 * Whether a glob of one segment covers a segment; a star matches any text.
 *
 * Each piece between two stars is placed as early as it fits, which leaves the most for the rest.
 * So no text that an attacker chooses can cause backtracking.
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

/** Carries a session's id, in requests and in the answer to `initialize`. */
export const SESSION_HEADER = 'mcp-session-id';

/**
 * A session id: 192 random bits in visible ASCII (MCP 2025-11-25, Transports, "Session
 * Management").
 */
export function newSessionId(): string {
  return randomBytes(24).toString('base64url');
}

/** A new random token for a claim, or an idempotency key for its step. */
export function newToken(): string {
  if (used === drawn.length) {
    drawn = randomBytes(100 * TOKEN_BYTES);
    used = 0;
  }
  const from = used;
  used += TOKEN_BYTES;
  return drawn.toString('base64url', from, used);
}

const TOKEN_BYTES = 18;

/** Random bytes for the next tokens: to draw a few costs as much as to draw many. */
let drawn = Buffer.alloc(0);
/** How many of them are in tokens already: no byte is ever in two. */
let used = 0;

/**
 * Begins the key of a principal's run. No session id contains a space (MCP 2025-11-25: visible
 * ASCII), so no client can name such a run by the session header.
 */
export const PRINCIPAL_RUN = 'principal ';

/** Begins the key of a run that an id in the request names, within its principal. */
export const NAMED_RUN = 'named ';

/** Whether the key is that of a conversation, or of an id that the app reads. */
export function isNamedRun(run: string): boolean {
  return run.startsWith(NAMED_RUN);
}

/** Begins the key of a run without an owner. It has a space, so no client can name it. */
export const ANONYMOUS_RUN = 'anonymous ';

/** A new key for a run without an owner. */
export function anonymousKey(): string {
  return `${ANONYMOUS_RUN}${newToken()}`;
}

/** Whether the key is that of a principal's run. */
export function isPrincipalRun(run: string): boolean {
  return run.startsWith(PRINCIPAL_RUN);
}

/** Whether the key is that of a session's run: all other keys contain a space. */
export function isSession(run: string): boolean {
  return !run.includes(' ');
}

/** A principal as a token's claims `iss` and `sub` name it (RFC 7519). */
export interface IssuedPrincipal {
  readonly issuer: string;
  readonly subject: string;
}

/** A principal as runs are bound to it. */
export function principalText(principal: string | IssuedPrincipal): string {
  return typeof principal === 'string'
    ? principal
    : JSON.stringify([principal.issuer, principal.subject]);
}

/** Whether such a text is of an issuer and a subject, and not a name that the app gives. */
export function isIssued(principal: string): boolean {
  if (!principal.startsWith('["')) return false;
  try {
    const parts: unknown = JSON.parse(principal);
    return (
      Array.isArray(parts) && parts.length === 2 && parts.every((each) => typeof each === 'string')
    );
  } catch {
    return false;
  }
}
