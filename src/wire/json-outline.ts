import { randomInt } from 'node:crypto';
import { grown } from '../basics/collections.ts';
import {
  BACKSLASH,
  COLON,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipSpace,
  skipString,
  skipToMark,
  skipValue,
} from '../basics/json-scan.ts';
import { mayRound, SHORTEST_ODD } from '../basics/numbers.ts';
import { MOST_DEPTH } from './json-rpc.ts';
import type { Span } from './json-text.ts';

/**
 * The places of a message and its parts in the text of a body, and what is odd about its keys and
 * numbers.
 */
export interface Outline extends Span {
  /** Counted from the message's start. A part that is missing has no place. */
  readonly places: Readonly<Partial<Record<MessagePart, Span>>>;
  /** The last key that an object has twice, at any depth. */
  readonly doubled: string | undefined;
  /** Whether `__proto__` is a key in the arguments, at any depth. */
  readonly namesPrototype: boolean;
  /** Whether JavaScript may round a number in the arguments. `true` when in doubt. */
  readonly mayRound: boolean;
  /** Whether the arguments are nested deeper than {@link MOST_DEPTH}. */
  readonly isDeep: boolean;
}

/** The parts of a message that we read or write, as paths. */
export type MessagePart = 'params' | 'params._meta' | 'params.arguments';

type Draft = { -readonly [K in keyof Outline]: Outline[K] } & {
  readonly places: Partial<Record<MessagePart, Span>>;
};

/**
 * Outlines each message of a body in one pass. A client decides how deep a body is and how many
 * keys it has, so the pass does not recurse and makes no objects.
 *
 * @param text as `parseJson()` gives it, of an object or an array
 */
export function outlinesOf(text: string): readonly Outline[] {
  return new Scan(text).run();
}

/** The kinds of containers. Of `OTHER` ones, only the keys are compared. */
const OTHER = 0;
const BATCH = 1;
const MESSAGE = 2;
const IN_PARAMS = 3;
const IN_ARGUMENTS = 4;

/**
 * How an object's keys are compared. `IN_ORDER`: each sorts behind the one before, so all differ.
 * `MIXED`: by their hashes, one by one. `TABLED`: there are many, so in a table.
 */
const IN_ORDER = 0;
const MIXED = 1;
const TABLED = 2;

/** So many keys of one object are compared one by one. For more, a table is faster. */
const FEW = 32;

class Scan {
  readonly #text: string;
  readonly #outlines: Draft[] = [];
  #message: Draft | undefined;
  /** The part that the next value holds. */
  #named: MessagePart | undefined;
  /** The parts that are open containers. */
  readonly #open: { readonly part: MessagePart; readonly start: number; readonly depth: number }[] =
    [];
  /** Of the innermost container: its kind, the index of its first key, and how its keys compare. */
  #zone = OTHER;
  #first = 0;
  #order = IN_ORDER;
  /** The same three of each container around it. */
  #stack = new Int32Array(3 * 8);
  #depth = 0;
  /** How many containers are around the arguments. */
  #outermost = 0;
  /** The places of all open objects' keys, the innermost object's last; hashes of `MIXED` ones. */
  #keys = new Int32Array(32);
  #hashes = new Int32Array(32);
  #count = 0;
  /** The tables of the open objects that have one, the innermost object's last. */
  readonly #tables: KeyTable[] = [];

  constructor(text: string) {
    this.#text = text;
  }

  run(): readonly Outline[] {
    const text = this.#text;
    for (let from = 0; ; ) {
      const at = skipToMark(text, from);
      // Most texts between two marks are too short to be looked at.
      if (at - from >= SHORTEST_ODD) this.#lookAtNumbers(from, at);
      if (at === text.length) return this.#outlines;
      const code = text.charCodeAt(at);
      if (code === QUOTE) from = this.#passString(at);
      else {
        if (code === OPEN_OBJECT || code === OPEN_ARRAY) this.#enter(at, code === OPEN_ARRAY);
        else this.#leave(at + 1);
        from = at + 1;
      }
    }
  }

  #lookAtNumbers(from: number, to: number): void {
    const message = this.#message;
    if (this.#zone !== IN_ARGUMENTS || message === undefined || message.mayRound) return;
    message.mayRound = mayRound(this.#text, from, to);
  }

  /** The place behind a string; behind a key's colon; behind a part that is no container. */
  #passString(at: number): number {
    const end = skipString(this.#text, at);
    const colon = skipSpace(this.#text, end);
    if (this.#text.charCodeAt(colon) !== COLON) return end;
    const from = at + 1;
    const length = end - 1 - from;
    const message = this.#message;
    if (message === undefined) return colon + 1;
    if (this.#isDoubled(from, length)) message.doubled = this.#text.slice(from, end - 1);
    if (this.#zone === IN_ARGUMENTS) {
      if (length === 9 && this.#text.startsWith('__proto__', from)) message.namesPrototype = true;
      return colon + 1;
    }
    const part = partOf(this.#zone, this.#text, from, length);
    if (part === undefined) return colon + 1;
    const start = skipSpace(this.#text, colon + 1);
    this.#named = part;
    if (this.#text.charCodeAt(start) === OPEN_OBJECT || this.#text.charCodeAt(start) === OPEN_ARRAY)
      return start;
    const past = skipValue(this.#text, start);
    // Such arguments are no object, so this is rare.
    if (part === 'params.arguments' && this.#text.charCodeAt(start) !== QUOTE)
      message.mayRound = mayRound(this.#text, start, past);
    this.#note(part, start, past);
    return past;
  }

  #enter(at: number, isArray: boolean): void {
    const frame = 3 * this.#depth;
    if (frame === this.#stack.length) this.#stack = grown(this.#stack);
    this.#stack[frame] = this.#zone;
    this.#stack[frame + 1] = this.#first;
    this.#stack[frame + 2] = this.#order;
    this.#zone = this.#zoneInside(isArray);
    if (this.#zone === IN_ARGUMENTS) this.#lookAtDepth();
    this.#first = this.#count;
    this.#order = IN_ORDER;
    if (this.#zone === MESSAGE) {
      this.#message = {
        start: at,
        end: at,
        places: {},
        doubled: undefined,
        namesPrototype: false,
        mayRound: false,
        isDeep: false,
      };
      this.#outlines.push(this.#message);
    } else if (this.#named !== undefined) {
      this.#open.push({ part: this.#named, start: at, depth: this.#depth });
      this.#named = undefined;
    }
    this.#depth++;
  }

  /** The next value is an object or a list in the arguments, or is the arguments. */
  #lookAtDepth(): void {
    if (this.#named === 'params.arguments') this.#outermost = this.#depth;
    const isDeep = this.#depth - this.#outermost >= MOST_DEPTH;
    if (isDeep && this.#message !== undefined) this.#message.isDeep = true;
  }

  /** The kind of a container that opens inside of the present one. */
  #zoneInside(isArray: boolean): number {
    if (this.#depth === 0) return isArray ? BATCH : MESSAGE;
    if (this.#zone === IN_ARGUMENTS || this.#named === 'params.arguments') return IN_ARGUMENTS;
    if (isArray) return OTHER;
    if (this.#zone === BATCH) return MESSAGE;
    return this.#named === 'params' ? IN_PARAMS : OTHER;
  }

  #leave(end: number): void {
    if (this.#zone === MESSAGE && this.#message !== undefined) this.#message.end = end;
    if (this.#order === TABLED) this.#tables.pop();
    this.#count = this.#first;
    const frame = 3 * --this.#depth;
    this.#zone = this.#stack[frame] ?? OTHER;
    this.#first = this.#stack[frame + 1] ?? 0;
    this.#order = this.#stack[frame + 2] ?? IN_ORDER;
    const last = this.#open.at(-1);
    if (last?.depth !== this.#depth) return;
    this.#open.pop();
    this.#note(last.part, last.start, end);
  }

  #note(part: MessagePart, start: number, end: number): void {
    this.#named = undefined;
    if (this.#message === undefined) return;
    const { places, start: origin } = this.#message;
    places[part] = { start: start - origin, end: end - origin };
  }

  /** Whether the innermost object has this key already. Adds the key. */
  #isDoubled(from: number, length: number): boolean {
    const text = this.#text;
    const at = this.#count++;
    if (at === this.#keys.length) {
      this.#keys = grown(this.#keys);
      this.#hashes = grown(this.#hashes);
    }
    this.#keys[at] = from;
    if (this.#order === IN_ORDER) {
      // Sorted keys all differ, so they need no hashes.
      if (at === this.#first || isBehind(text, from, length, this.#keys[at - 1] ?? 0)) return false;
      this.#order = MIXED;
      for (let i = this.#first; i < at; i++) this.#hashes[i] = this.#hashAgain(this.#keys[i] ?? 0);
    }
    const hash = hashOf(text, from, length);
    this.#hashes[at] = hash;
    if (this.#order === MIXED) {
      if (at - this.#first < FEW) return this.#hasAmongFew(at, hash, from, length);
      this.#order = TABLED;
      const table = new KeyTable(text);
      for (let i = this.#first; i < at; i++) table.insert(this.#hashes[i] ?? 0, this.#keys[i] ?? 0);
      this.#tables.push(table);
    }
    return this.#tables.at(-1)?.add(hash, from, length) === true;
  }

  #hasAmongFew(at: number, hash: number, from: number, length: number): boolean {
    for (let i = this.#first; i < at; i++) {
      if (this.#hashes[i] === hash && isSame(this.#text, this.#keys[i] ?? 0, from, length))
        return true;
    }
    return false;
  }

  #hashAgain(from: number): number {
    return hashOf(this.#text, from, skipString(this.#text, from - 1) - 1 - from);
  }
}

function partOf(zone: number, text: string, from: number, length: number): MessagePart | undefined {
  if (zone === MESSAGE && length === 6 && text.startsWith('params', from)) return 'params';
  if (zone !== IN_PARAMS) return undefined;
  if (length === 5 && text.startsWith('_meta', from)) return 'params._meta';
  return length === 9 && text.startsWith('arguments', from) ? 'params.arguments' : undefined;
}

/** Whether a key is longer than another, or as long and sorts behind. `false` when in doubt. */
function isBehind(text: string, key: number, length: number, other: number): boolean {
  let order = 0;
  for (let i = 0; i < length; i++) {
    const code = text.charCodeAt(other + i);
    if (code === QUOTE) return true;
    if (code === BACKSLASH) return false;
    if (order === 0) order = text.charCodeAt(key + i) - code;
  }
  return order > 0 && text.charCodeAt(other + length) === QUOTE;
}

/** Whether two keys are equal, of which one has this length. The closing quote counts, too. */
function isSame(text: string, one: number, other: number, length: number): boolean {
  for (let i = 0; i <= length; i++)
    if (text.charCodeAt(one + i) !== text.charCodeAt(other + i)) return false;
  return true;
}

/** Random for each process, so that a client cannot make keys that all fall into one slot. */
const SEED = randomInt(2 ** 31);
const FACTOR = 2 * randomInt(2 ** 30) + 1;

function hashOf(text: string, key: number, length: number): number {
  let hash = SEED;
  for (let i = key; i < key + length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), FACTOR);
    hash ^= hash >>> 15;
  }
  return hash;
}

/** The keys of an object with many: an open hash table of their places. */
class KeyTable {
  readonly #text: string;
  /** Two numbers for each slot: the key's place, or 0 where the slot is free; and its hash. */
  #slots = new Int32Array(2 * 128);
  #size = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** `true` where the key was there already. */
  add(hash: number, key: number, length: number): boolean {
    const slots = this.#slots;
    for (let at = slotOf(slots, hash); slots[at] !== 0; at = (at + 2) % slots.length) {
      if (slots[at + 1] === hash && isSame(this.#text, slots[at] ?? 0, key, length)) return true;
    }
    this.insert(hash, key);
    return false;
  }

  /** Adds a new key. */
  insert(hash: number, key: number): void {
    put(this.#slots, hash, key);
    // Half of the slots stay free.
    if (4 * ++this.#size <= this.#slots.length) return;
    const old = this.#slots;
    this.#slots = new Int32Array(2 * old.length);
    for (let at = 0; at < old.length; at += 2) {
      if (old[at] !== 0) put(this.#slots, old[at + 1] ?? 0, old[at] ?? 0);
    }
  }
}

function slotOf(slots: Int32Array, hash: number): number {
  return 2 * (hash & (slots.length / 2 - 1));
}

function put(slots: Int32Array, hash: number, key: number): void {
  let at = slotOf(slots, hash);
  while (slots[at] !== 0) at = (at + 2) % slots.length;
  slots[at] = key;
  slots[at + 1] = hash;
}
