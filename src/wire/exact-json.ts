import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  ExactNumber,
  LONGEST_LITERAL,
  MINUS,
  mayRound,
  NINE,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  SHORTEST_ODD,
} from '../basics/numbers.ts';
import { isObject, type JsonObject } from './json-rpc.ts';
import { codesOf, skipValue } from './json-text.ts';

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
  const codes = codesOf(text);
  if (!mayRound(codes)) return undefined;
  return new Reader(text, codes).read(parsed === undefined ? JSON.parse(text) : parsed);
}

/** Arrays of fewer numbers are read one by one. */
const FEW = 16;

type Container = JsonObject | unknown[];

/** An object or a list that is open in the text. */
interface Frame {
  /** What `JSON.parse` made of it; `undefined` where an equal key came later, and won. */
  readonly own: Container | undefined;
  readonly isArray: boolean;
  /** Made for the first number in it that is not its double. */
  copy: Container | undefined;
  /** Of a list, the place of the next element. */
  index: number;
  /** Of an object, the place of the last key; whether a key is next. */
  keyFrom: number;
  keyEnd: number;
  isAtKey: boolean;
}

class Reader {
  readonly #text: string;
  readonly #codes: Uint16Array;
  readonly #around: Frame[] = [];
  #frame: Frame | undefined;
  #root: unknown;
  #isExact = false;
  #hasLongLiteral = false;

  constructor(text: string, codes: Uint16Array) {
    this.#text = text;
    this.#codes = codes;
  }

  read(parsed: unknown): ExactJson | undefined {
    const text = this.#text;
    const codes = this.#codes;
    this.#root = parsed;
    for (let at = 0; at < codes.length; ) {
      const code = codes[at] ?? 0;
      if (code <= 32 || code === COMMA || code === COLON) at++;
      else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        this.#enter(code === OPEN_ARRAY);
        const plain = this.#plainNumbers(at);
        if (plain > 0) this.#leave();
        at += Math.max(1, plain);
      } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
        this.#leave();
        at++;
      } else if (code === QUOTE) {
        const end = skipValue(text, at);
        this.#passString(at, end);
        at = end;
      } else {
        const end = this.#endOfScalar(at);
        this.#passScalar(code, at, end);
        at = end;
      }
    }
    if (!this.#isExact) return undefined;
    return { text, value: this.#root, hasLongLiteral: this.#hasLongLiteral };
  }

  #enter(isArray: boolean): void {
    const outer = this.#frame;
    const value = outer === undefined ? this.#root : this.#parsedHere(outer);
    const isSame = isArray ? Array.isArray(value) : isObject(value);
    if (outer !== undefined) this.#around.push(outer);
    const own = isSame ? (value as Container) : undefined;
    this.#frame = {
      ...{ own, isArray, copy: undefined, index: 0, keyFrom: 0, keyEnd: 0, isAtKey: !isArray },
    };
  }

  /** The length of an array at this place, if all in it are numbers as JavaScript writes them. */
  #plainNumbers(at: number): number {
    const { own } = this.#frame ?? {};
    // The first number mostly tells: to write all of them at once takes half the time.
    if (!Array.isArray(own) || own.length < FEW || typeof own[0] !== 'number') return 0;
    if (!this.#text.startsWith(`${own[0]},`, at + 1)) return 0;
    if (!own.every((each) => typeof each === 'number')) return 0;
    const written = JSON.stringify(own);
    return this.#text.startsWith(written, at) ? written.length : 0;
  }

  #leave(): void {
    const left = this.#frame;
    this.#frame = this.#around.pop();
    if (left?.copy !== undefined) this.#put(left.copy);
    else this.#keep();
  }

  #passString(at: number, end: number): void {
    const frame = this.#frame;
    if (frame?.isAtKey !== true) {
      this.#keep();
      return;
    }
    frame.keyFrom = at + 1;
    frame.keyEnd = end - 1;
    frame.isAtKey = false;
  }

  #passScalar(code: number, at: number, end: number): void {
    const isOdd =
      (code === MINUS || code <= NINE) &&
      end - at >= SHORTEST_ODD &&
      mayRound(this.#codes, at, end);
    const exact = isOdd ? ExactNumber.of(this.#text.slice(at, end), this.#doubleHere()) : undefined;
    if (exact === undefined) {
      this.#keep();
      return;
    }
    this.#isExact = true;
    if (end - at > LONGEST_LITERAL) this.#hasLongLiteral = true;
    this.#put(exact);
  }

  /** Of an array's element only: an equal key may have come later. */
  #doubleHere(): number | undefined {
    const { own, index } = this.#frame ?? {};
    const read = Array.isArray(own) ? own[index ?? 0] : undefined;
    return typeof read === 'number' ? read : undefined;
  }

  #endOfScalar(at: number): number {
    const codes = this.#codes;
    let i = at + 1;
    for (; i < codes.length; i++) {
      const code = codes[i] ?? 0;
      if (code === COMMA || code === CLOSE_OBJECT || code === CLOSE_ARRAY || code <= 32) break;
    }
    return i;
  }

  /** The next value is as `JSON.parse` has it. An equal key may have come before it. */
  #keep(): void {
    const frame = this.#frame;
    if (frame === undefined) return;
    if (frame.copy !== undefined && !frame.isArray)
      setOwn(frame.copy, this.#keyOf(frame), this.#parsedHere(frame));
    this.#goOn(frame);
  }

  #put(value: unknown): void {
    const frame = this.#frame;
    if (frame === undefined) {
      this.#root = value;
      return;
    }
    if (frame.own !== undefined) {
      frame.copy ??= frame.isArray ? [...(frame.own as unknown[])] : { ...frame.own };
      if (frame.isArray) (frame.copy as unknown[])[frame.index] = value;
      else setOwn(frame.copy, this.#keyOf(frame), value);
    }
    this.#goOn(frame);
  }

  #goOn(frame: Frame): void {
    if (frame.isArray) frame.index++;
    else frame.isAtKey = true;
  }

  #parsedHere(frame: Frame): unknown {
    const { own, index } = frame;
    if (own === undefined) return undefined;
    if (Array.isArray(own)) return own[index];
    const key = this.#keyOf(frame);
    return Object.hasOwn(own, key) ? own[key] : undefined;
  }

  #keyOf({ keyFrom, keyEnd }: Frame): string {
    const key = this.#text.slice(keyFrom, keyEnd);
    return key.includes('\\') ? String(JSON.parse(`"${key}"`)) : key;
  }
}

function setOwn(container: Container, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(container, key, {
      ...{ value, enumerable: true, configurable: true, writable: true },
    });
  else (container as JsonObject)[key] = value;
}
