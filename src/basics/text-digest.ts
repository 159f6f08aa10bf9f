/**
 * The digest of a JSON text, straight from its characters. Hides how the members of each object get
 * into order without an object for any of them. A client decides how long and how deep a text is,
 * so it does not recurse, and sorts in `n log n` steps.
 */

import { Ints } from './collections.ts';
import { CanonicalText } from './digest.ts';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  LOWER_E,
  LOWER_F,
  lengthOfUnit,
  MINUS,
  NINE,
  OPEN_ARRAY,
  OPEN_OBJECT,
  POINT,
  QUOTE,
  skipDigits,
  skipSpace,
  skipString,
  skipToMark,
  UPPER_E,
  unitAt,
} from './json-scan.ts';
import { LiteralReader, SURE_DIGITS } from './numbers.ts';

/**
 * What `digestOf()` makes of the text's value, with an `ExactNumber` for each number that is not
 * its double. Of equal keys the last one counts, as in `JSON.parse`.
 *
 * @param text as `JSON.parse` has accepted it, with no half of a surrogate pair
 */
export function digestOfText(text: string): string {
  const canonical = new CanonicalText();
  const number = new LiteralReader();
  let at = skipSpace(text, 0);
  const { objects, sorted } = new MemberOrder(text, at);
  // What stands from here on is copied as it is.
  let copied = at;
  const hasEscapes = text.includes('\\');
  // The objects around the present value whose members are not in order in the text. Of each, the
  // next member, and how many containers are open inside of it.
  const around: number[] = [];
  let next = 0;
  let depth = 0;
  let object = 0;
  for (;;) {
    const code = text.charCodeAt(at);
    let isFirst = false;
    if (code === QUOTE) {
      const end = skipString(text, at);
      if (hasEscapes && isEscaped(text, at, end)) {
        canonical.copy(text, copied, at);
        canonical.stringIn(text, at);
        copied = end;
      }
      at = end;
    } else if (code === MINUS || (code <= NINE && code > COMMA)) {
      const past = skipDigits(text, code === MINUS ? at + 1 : at);
      const mark = text.charCodeAt(past);
      const isWhole = mark !== POINT && mark !== LOWER_E && mark !== UPPER_E;
      // Most numbers are such counts, which JavaScript writes so.
      if (isWhole && code !== MINUS && past - at <= SURE_DIGITS) at = past;
      else {
        number.read(text, at, past);
        const needed = number.neededDigits;
        if (needed !== number.digits || !number.isAsWritten) {
          canonical.copy(text, copied, at);
          canonical.number(number, needed);
          copied = number.end;
        }
        at = number.end;
      }
    } else if (code === COMMA || code === COLON || code === OPEN_ARRAY) {
      if (code === OPEN_ARRAY) depth++;
      at++;
      continue;
    } else if (code <= 32) {
      canonical.copy(text, copied, at);
      at = skipSpace(text, at);
      copied = at;
      continue;
    } else if (code === OPEN_OBJECT) {
      at++;
      const first = objects.at(object++);
      if (first === 0) {
        depth++;
        continue;
      }
      canonical.copy(text, copied, at);
      around.push(next, depth);
      next = first;
      depth = 0;
      isFirst = true;
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      depth--;
      at++;
    } else at += code === LOWER_F ? 5 : 4;
    while (depth === 0) {
      if (!isFirst) canonical.copy(text, copied, at);
      if (around.length === 0) return canonical.digest();
      const key = sorted.at(next);
      at = sorted.at(next + 1);
      object = sorted.at(next + 2);
      copied = at;
      if (key !== END) {
        if (!isFirst) canonical.byte(COMMA);
        canonical.stringIn(text, key);
        canonical.byte(COLON);
        next += MEMBER;
        break;
      }
      canonical.byte(CLOSE_OBJECT);
      depth = around.pop() ?? 0;
      next = around.pop() ?? 0;
      isFirst = false;
    }
  }
}

/** Whether a string has an escape in it. */
function isEscaped(text: string, from: number, end: number): boolean {
  if (end - from > FAR) return text.slice(from, end).includes('\\');
  for (let at = from; at < end; at++) if (text.charCodeAt(at) === BACKSLASH) return true;
  return false;
}

/** A search takes longer for fewer characters. */
const FAR = 64;

/**
 * The entries for a member: the place of its key, the place of its value, and how many objects
 * begin before that. Behind an object's last member stands {@link END}, the place behind the
 * object, and how many objects begin before that.
 */
const MEMBER = 3;
/** No key stands at the beginning of a text. */
const END = 0;

/** The objects of a JSON text whose members are not in order. */
class MemberOrder {
  /** For each object of the text its first member in {@link sorted}; 0 where they are in order. */
  readonly objects = new Ints();
  readonly sorted = new Ints();
  readonly #text: string;
  /** The members of all open objects, as they come, the innermost object's last. */
  readonly #members = new Ints();
  #from = new Int32Array(64);
  #to = new Int32Array(64);
  readonly #runs = new Ints();

  constructor(text: string, start: number) {
    this.#text = text;
    this.sorted.push(END);
    const members = this.#members;
    const { objects } = this;
    // Of each object around: its number, its first member, whether its members are in order so far.
    const around: number[] = [];
    let own = 0;
    let first = 0;
    let inOrder = 1;
    let depth = 0;
    let at = start;
    do {
      at = skipToMark(text, at);
      const code = text.charCodeAt(at);
      if (code === QUOTE) {
        const key = at;
        at = skipString(text, key);
        const colon = skipSpace(text, at);
        if (text.charCodeAt(colon) !== COLON) continue;
        at = skipSpace(text, colon + 1);
        const { length } = members;
        if (
          inOrder === 1 &&
          length > first &&
          compareKeys(text, members.at(length - MEMBER), key) >= 0
        )
          inOrder = 0;
        members.push(key);
        members.push(at);
        members.push(objects.length);
        continue;
      }
      at++;
      if (code === OPEN_ARRAY) depth++;
      else if (code === CLOSE_ARRAY) depth--;
      else if (code === OPEN_OBJECT) {
        depth++;
        around.push(own, first, inOrder);
        own = objects.length;
        first = members.length;
        inOrder = 1;
        objects.push(0);
      } else if (code === CLOSE_OBJECT) {
        depth--;
        if (inOrder === 0) this.#sort(own, first, at);
        members.length = first;
        inOrder = around.pop() ?? 1;
        first = around.pop() ?? 0;
        own = around.pop() ?? 0;
      }
    } while (depth > 0);
  }

  #sort(object: number, first: number, end: number): void {
    const { sorted, objects } = this;
    const text = this.#text;
    const members = this.#members;
    objects.set(object, sorted.length);
    const order = this.#ordered(first);
    const count = (members.length - first) / MEMBER;
    for (let i = 0; i < count; i++) {
      const member = order[i] ?? 0;
      const next = order[i + 1] ?? 0;
      if (i + 1 < count && compareKeys(text, members.at(member), members.at(next)) === 0) continue;
      for (let entry = member; entry < member + MEMBER; entry++) sorted.push(members.at(entry));
    }
    sorted.push(END);
    sorted.push(end);
    sorted.push(objects.length);
  }

  #isBehind(one: number, other: number): boolean {
    return compareKeys(this.#text, this.#members.at(one), this.#members.at(other)) > 0;
  }

  /** The members of the innermost object by their keys. Equal keys stay as they come. */
  #ordered(first: number): Int32Array {
    const members = this.#members;
    const count = (members.length - first) / MEMBER;
    if (count > this.#from.length) {
      this.#from = new Int32Array(2 * count);
      this.#to = new Int32Array(2 * count);
    }
    let from = this.#from;
    let to = this.#to;
    // Most keys are in order for long stretches, which are merged two by two.
    const runs = this.#runs;
    runs.length = 0;
    for (let i = 0; i < count; i++) {
      const member = first + MEMBER * i;
      from[i] = member;
      if (i === 0 || this.#isBehind(member - MEMBER, member)) runs.push(i);
    }
    while (runs.length > 1) {
      let merged = 0;
      for (let run = 0; run < runs.length; run += 2) {
        let one = runs.at(run);
        const middle = run + 1 < runs.length ? runs.at(run + 1) : count;
        const end = run + 2 < runs.length ? runs.at(run + 2) : count;
        runs.set(merged++, one);
        for (let at = one, other = middle; at < end; at++) {
          const isOther =
            one === middle || (other < end && this.#isBehind(from[one] ?? 0, from[other] ?? 0));
          to[at] = from[isOther ? other++ : one++] ?? 0;
        }
      }
      runs.length = merged;
      [from, to] = [to, from];
    }
    return from;
  }
}

/** Below zero where the first key sorts before the other one, by the units of UTF-16. */
function compareKeys(text: string, one: number, other: number): number {
  for (let [i, j] = [one + 1, other + 1]; ; ) {
    let a = text.charCodeAt(i);
    let b = text.charCodeAt(j);
    // A key that ends sorts before those that go on.
    if (a === QUOTE || b === QUOTE) return a === b ? 0 : a === QUOTE ? -1 : 1;
    if (a === BACKSLASH) a = unitAt(text, i);
    if (b === BACKSLASH) b = unitAt(text, j);
    if (a !== b) return a - b;
    i += lengthOfUnit(text, i);
    j += lengthOfUnit(text, j);
  }
}
