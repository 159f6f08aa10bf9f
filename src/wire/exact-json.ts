import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  ExactNumber,
  LONGEST_LITERAL,
  mayRound,
  NINE,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
} from '../numbers.ts';
import type { JsonObject } from './json-rpc.ts';
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
 */
export function exactJson(text: string): ExactJson | undefined {
  return mayRound(codesOf(text)) ? new Reader(text).read() : undefined;
}

class Reader {
  readonly #text: string;
  /** The containers around the next value, and the key that it gets in the innermost one. */
  readonly #open: (JsonObject | unknown[])[] = [];
  #key: string | undefined;
  #root: unknown;
  #isExact = false;
  #hasLongLiteral = false;

  constructor(text: string) {
    this.#text = text;
  }

  read(): ExactJson | undefined {
    const text = this.#text;
    for (let at = 0; at < text.length; ) {
      const code = text.charCodeAt(at);
      if (code <= 32 || code === COMMA || code === COLON) at++;
      else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        const container = code === OPEN_ARRAY ? [] : {};
        this.#put(container);
        this.#open.push(container);
        at++;
      } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
        this.#open.pop();
        at++;
      } else {
        const end = skipValue(text, at);
        this.#take(text.slice(at, end), code === QUOTE);
        at = end;
      }
    }
    return this.#isExact
      ? { text, value: this.#root, hasLongLiteral: this.#hasLongLiteral }
      : undefined;
  }

  /** Takes a key, or a value without members. */
  #take(text: string, isString: boolean): void {
    const around = this.#open.at(-1);
    if (isString) {
      const read = text.includes('\\') ? String(JSON.parse(text)) : text.slice(1, -1);
      const isKey = around !== undefined && !Array.isArray(around) && this.#key === undefined;
      if (isKey) this.#key = read;
      else this.#put(read);
      return;
    }
    const exact = isNumber(text) ? ExactNumber.of(text) : undefined;
    if (exact !== undefined) this.#isExact = true;
    if (text.length > LONGEST_LITERAL) this.#hasLongLiteral = true;
    this.#put(exact ?? JSON.parse(text));
  }

  #put(value: unknown): void {
    const around = this.#open.at(-1);
    const key = this.#key;
    this.#key = undefined;
    if (around === undefined) this.#root = value;
    else if (Array.isArray(around)) around.push(value);
    else if (key === '__proto__')
      Object.defineProperty(around, key, {
        ...{ value, enumerable: true, configurable: true, writable: true },
      });
    else if (key !== undefined) around[key] = value;
  }
}

/** Whether a value that is no string and no container is a number. */
function isNumber(text: string): boolean {
  return text.charCodeAt(0) <= NINE;
}
