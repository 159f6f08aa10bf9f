import { createHash, type Hash } from 'node:crypto';

/**
 * One digest for one set of arguments, whatever order their members came in: of their JSON with
 * sorted members. Linear, and without recursion: a client decides how long and how deep they are.
 *
 * The value must never change. A retry during a rolling deployment would get another key.
 */
export function digestOf(args: unknown): string {
  const text = new CanonicalText();
  if (!isContainer(args)) {
    text.scalar(args);
    return text.digest();
  }
  // Of each container around the present one: itself, an object's keys, and which value comes next.
  const around: unknown[] = [];
  let container: Container = args as unknown as Container;
  let keys = text.begin(container);
  let next = 0;
  for (;;) {
    const { length } = keys ?? container;
    let inner: unknown;
    while (next < length && inner === undefined) {
      if (keys === undefined) next = text.scalars(container as unknown as unknown[], next);
      if (next === length) break;
      if (next > 0) text.byte(COMMA);
      const key = keys?.[next];
      if (key !== undefined) text.key(key);
      const value = container[key ?? next];
      next++;
      if (isContainer(value)) inner = value;
      else text.scalar(value);
    }
    if (inner !== undefined) {
      around.push(container, keys, next);
      container = inner as Container;
      keys = text.begin(container);
      next = 0;
    } else {
      text.byte(keys === undefined ? CLOSE_ARRAY : CLOSE_OBJECT);
      if (around.length === 0) return text.digest();
      next = around.pop() as number;
      keys = around.pop() as typeof keys;
      container = around.pop() as Container;
    }
  }
}

type Container = { readonly [key: string | number]: unknown; readonly length: number };

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

const QUOTE = 34;
const COMMA = 44;
const ZERO = 48;
const COLON = 58;
const OPEN_ARRAY = 91;
const BACKSLASH = 92;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Few keys are sorted by hand, which costs less, and most lists of many are in order. */
function sortedKeys(object: object): readonly string[] {
  const keys = Object.keys(object);
  const { length } = keys;
  for (let i = 1; i < length; i++) {
    const key = keys[i] ?? '';
    if ((keys[i - 1] ?? '') < key) continue;
    if (length > FEW) return keys.sort();
    let at = i;
    for (; at > 0 && (keys[at - 1] ?? '') > key; at--) keys[at] = keys[at - 1] ?? '';
    keys[at] = key;
  }
  return keys;
}

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');

function put(word: Buffer, at: number): number {
  for (let i = 0; i < word.length; i++) page[at + i] = word[i] ?? 0;
  return at + word.length;
}

/** What most numbers are: written by hand they cost a fraction. */
function isCount(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value === (value | 0);
}

function putCount(count: number, at: number): number {
  let end = at + 1;
  for (let most = 10; most <= count; most *= 10) end++;
  const past = end;
  let rest = count;
  while (rest > 9) {
    const tenth = (rest / 10) | 0;
    page[--end] = ZERO + rest - 10 * tenth;
    rest = tenth;
  }
  page[--end] = ZERO + rest;
  return past;
}

/** A comma and any number. */
const LONGEST_NUMBER = 32;
const FEW = 16;
/** Strings up to this length are written by hand, which costs less than to have them written. */
const SHORT = 64;
/**
 * What a string must not have in it to stand in JSON as it is: controls and half characters too.
 */
const ODD = /["\\\p{Cc}\p{Cs}]/u;

/** Gathers the text before it is hashed. One digest at a time uses it, since none waits. */
const page = Buffer.allocUnsafeSlow(64 * 1024);

/** JSON text that is hashed piece by piece. */
class CanonicalText {
  readonly #hash: Hash = createHash('sha256');
  #at = 0;

  digest(): string {
    this.#flush();
    return this.#hash.digest('base64url');
  }

  byte(byte: number): void {
    if (this.#at === page.length) this.#flush();
    page[this.#at++] = byte;
  }

  /** Opens a container. Gives the keys of an object in their order, and none of an array. */
  begin(container: object): readonly string[] | undefined {
    if (Array.isArray(container)) {
      this.byte(OPEN_ARRAY);
      return undefined;
    }
    this.byte(OPEN_OBJECT);
    return sortedKeys(container);
  }

  key(key: string): void {
    this.string(key);
    this.byte(COLON);
  }

  /** The elements of an array from one on, up to the next container, whose index is given. */
  scalars(list: readonly unknown[], from: number): number {
    let at = this.#at;
    let next = from;
    for (; next < list.length; next++) {
      const value = list[next];
      if (isContainer(value)) break;
      if (at + LONGEST_NUMBER > page.length) {
        this.#at = at;
        this.#flush();
        at = 0;
      }
      if (next > 0) page[at++] = COMMA;
      if (isCount(value)) at = putCount(value, at);
      else if (value === true) at = put(TRUE, at);
      else if (value === false) at = put(FALSE, at);
      else {
        this.#at = at;
        if (typeof value === 'number') next = this.#numbers(list, next) - 1;
        else this.scalar(value);
        at = this.#at;
      }
    }
    this.#at = at;
    return next;
  }

  /** As many elements as are numbers, since many at once cost less. Gives the index behind them. */
  #numbers(list: readonly unknown[], from: number): number {
    let next = from;
    while (next < list.length && typeof list[next] === 'number') next++;
    if (next - from > FEW) {
      this.#long(JSON.stringify(list.slice(from, next)).slice(1, -1));
      return next;
    }
    this.#plain(JSON.stringify(list[from]));
    return from + 1;
  }

  /** A value without members; what JSON does not know is null. */
  scalar(value: unknown): void {
    if (typeof value === 'string') this.string(value);
    else if (isCount(value)) this.#at = putCount(value, this.#room(LONGEST_NUMBER));
    else this.#plain(JSON.stringify(value) ?? 'null');
  }

  string(value: string): void {
    const { length } = value;
    if (length > SHORT) {
      if (ODD.test(value)) this.#long(JSON.stringify(value));
      else {
        this.byte(QUOTE);
        this.#long(value);
        this.byte(QUOTE);
      }
      return;
    }
    const start = this.#room(3 * SHORT);
    let at = start;
    page[at++] = QUOTE;
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      if (code < 0x20 || code === QUOTE || code === BACKSLASH || (code & 0xf800) === 0xd800) {
        this.#long(JSON.stringify(value));
        return;
      }
      if (code < 0x80) page[at++] = code;
      else if (code < 0x800) {
        page[at++] = 0xc0 | (code >> 6);
        page[at++] = 0x80 | (code & 0x3f);
      } else {
        page[at++] = 0xe0 | (code >> 12);
        page[at++] = 0x80 | ((code >> 6) & 0x3f);
        page[at++] = 0x80 | (code & 0x3f);
      }
    }
    page[at++] = QUOTE;
    this.#at = at;
  }

  /** ASCII, and short. */
  #plain(text: string): void {
    let at = this.#room(text.length);
    for (let i = 0; i < text.length; i++) page[at++] = text.charCodeAt(i);
    this.#at = at;
  }

  #long(text: string): void {
    if (text.length > page.length / 3) {
      this.#flush();
      this.#hash.update(text);
    } else {
      const at = this.#room(3 * text.length);
      this.#at = at + page.write(text, at);
    }
  }

  /** Where as many bytes fit in. */
  #room(bytes: number): number {
    if (this.#at + bytes + 2 > page.length) this.#flush();
    return this.#at;
  }

  #flush(): void {
    if (this.#at > 0) this.#hash.update(page.subarray(0, this.#at));
    this.#at = 0;
  }
}
