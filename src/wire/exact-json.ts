import { Ints } from '../basics/collections.ts';
import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  MINUS,
  NINE,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipScalar,
  skipSpace,
  skipString,
} from '../basics/json-scan.ts';
import { ExactNumber, LiteralReader, LONGEST_LITERAL, mayRound } from '../basics/numbers.ts';
import { isObject, type JsonObject } from './json-rpc.ts';

/** JSON with numbers that JavaScript would round. */
export interface ExactJson {
  readonly text: string;
  /** Has an {@link ExactNumber} in place of each number that is not its double. */
  readonly value: unknown;
  /** Whether it has a literal beyond {@link LONGEST_LITERAL}. */
  readonly hasLongLiteral: boolean;
}

/**
 * Reads JSON text whose numbers JavaScript would round; `undefined` where it would round none. A
 * client decides how deep the text is, so this does not recurse.
 *
 * @param text as `JSON.parse` has accepted it
 * @param parsed what that made of it: what has no such number is shared with it
 */
export function exactJson(text: string, parsed?: unknown): ExactJson | undefined {
  if (!mayRound(text)) return undefined;
  const value = parsed === undefined ? JSON.parse(text) : parsed;
  const reader = new Reader(text, value, false);
  const exact = reader.read();
  return reader.isDoubled ? new Reader(text, value, true).read() : exact;
}

type Container = JsonObject | unknown[];

/** An open container that has such a number in it. */
interface Copied {
  /** What `JSON.parse` made of it; `undefined` where an equal key came later, and won. */
  readonly own: Container | undefined;
  readonly copy: Container | undefined;
  /** How many keys it has, if it is an object. */
  readonly size: number;
  /** Of a list, how much of it is copied: the rest when it ends, for there may be no double. */
  filled: number;
}

class Reader {
  readonly #text: string;
  readonly #parsed: unknown;
  /** Whether an object may have a key twice. */
  readonly #mayDouble: boolean;
  /** Where each open container is: of an object the place of its key, of a list `-1 - index`. */
  readonly #places = new Ints();
  /** How many keys of each open container came so far. */
  readonly #counts = new Ints();
  /** The open containers that have such a number in them, from the outermost on. */
  readonly #copied: Copied[] = [];
  #root: unknown;
  #isExact = false;
  #hasLongLiteral = false;
  /** Whether an object with such a number in it has a key twice. */
  isDoubled = false;

  constructor(text: string, parsed: unknown, mayDouble: boolean) {
    this.#text = text;
    this.#parsed = parsed;
    this.#mayDouble = mayDouble;
  }

  read(): ExactJson | undefined {
    const text = this.#text;
    const places = this.#places;
    const number = new LiteralReader();
    for (let at = 0; at < text.length; ) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) {
        const end = skipString(text, at);
        if (places.last >= 0 && text.charCodeAt(skipSpace(text, end)) === COLON) this.#passKey(at);
        at = end;
      } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        places.push(code === OPEN_ARRAY ? -1 : 0);
        this.#counts.push(0);
        at++;
      } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
        this.#leave();
        at++;
      } else if (code === COMMA || code === COLON || code <= 32) {
        if (code === COMMA && places.last < 0) places.last--;
        at++;
      } else if (code === MINUS || code <= NINE) {
        number.read(text, at);
        if (!number.standsForDouble) {
          if (number.end - at > LONGEST_LITERAL) this.#hasLongLiteral = true;
          this.#put(new ExactNumber(text, at));
        }
        at = number.end;
      } else at = skipScalar(text, at);
    }
    if (!this.#isExact) return undefined;
    return { text, value: this.#root, hasLongLiteral: this.#hasLongLiteral };
  }

  #passKey(at: number): void {
    this.#places.last = at;
    this.#counts.last++;
    const last = this.#copied.at(-1);
    if (!this.#mayDouble || this.#copied.length < this.#places.length) return;
    // An equal key may have come before it.
    if (last?.own !== undefined) this.#set(last, at, memberAt(last.own, this.#keyAt(at)));
  }

  #leave(): void {
    if (this.#copied.length === this.#places.length) {
      const left = this.#copied.pop();
      if (left !== undefined && Array.isArray(left.own)) fill(left, left.own.length);
      if (this.#counts.last !== left?.size) this.isDoubled = true;
    }
    this.#places.length--;
    this.#counts.length--;
  }

  /** Sets the present value in the copy of its container. */
  #put(exact: ExactNumber): void {
    this.#isExact = true;
    const depth = this.#places.length;
    for (let level = this.#copied.length; level < depth; level++) {
      const outer = this.#copied[level - 1];
      const place = this.#places.at(level - 1);
      const own = outer === undefined ? this.#parsed : this.#ownAt(outer, place);
      const copied = copyOf(own, this.#places.at(level) < 0);
      this.#copied.push(copied);
      if (outer === undefined) this.#root = copied.copy;
      else this.#set(outer, place, copied.copy);
    }
    const last = this.#copied[depth - 1];
    if (last === undefined) this.#root = exact;
    else this.#set(last, this.#places.last, exact);
  }

  /** @param place as in `#places` */
  #set(copied: Copied, place: number, value: unknown): void {
    const { copy } = copied;
    if (copy === undefined || value === undefined) return;
    if (place < 0) {
      fill(copied, -1 - place);
      (copy as unknown[])[-1 - place] = value;
      copied.filled = -place;
    } else setMember(copy as JsonObject, this.#keyAt(place), value);
  }

  #ownAt({ own }: Copied, place: number): unknown {
    if (own === undefined) return undefined;
    return place < 0 ? (own as unknown[])[-1 - place] : memberAt(own, this.#keyAt(place));
  }

  #keyAt(place: number): string {
    const key = this.#text.slice(place + 1, skipString(this.#text, place) - 1);
    return key.includes('\\') ? String(JSON.parse(`"${key}"`)) : key;
  }
}

function copyOf(own: unknown, isList: boolean): Copied {
  if (isList && Array.isArray(own)) return { own, copy: new Array(own.length), size: 0, filled: 0 };
  if (isList || !isObject(own)) return { own: undefined, copy: undefined, size: -1, filled: 0 };
  // A spread takes three times as long for an object of many keys.
  const copy: JsonObject = {};
  const keys = Object.keys(own);
  for (const key of keys) setMember(copy, key, own[key]);
  return { own, copy, size: keys.length, filled: 0 };
}

/** To set a number that is no double in a list of doubles would make an object of each. */
function fill(copied: Copied, to: number): void {
  const { own, copy } = copied as { own: unknown[]; copy: unknown[] };
  for (; copied.filled < to; copied.filled++) copy[copied.filled] = own[copied.filled];
}

function memberAt(own: Container, key: string): unknown {
  return Object.hasOwn(own, key) ? (own as JsonObject)[key] : undefined;
}

function setMember(object: JsonObject, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(object, key, {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  else object[key] = value;
}
