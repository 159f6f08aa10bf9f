/**
 * JSON as it was written: an object keeps each of its members, in order, however often a key stands
 * in it.
 */
export type Loose =
  | { readonly kind: 'object'; readonly members: readonly (readonly [key: string, value: Loose])[] }
  | { readonly kind: 'array'; readonly items: readonly Loose[] }
  | { readonly kind: 'plain'; readonly value: string | number | boolean | null };

/**
 * A parser that takes more than JSON: comments, single quotes, trailing commas, bare keys, broken
 * escapes, and anything behind a value. Returns every value that follows another one. Written for
 * this folder, since no reader here may share a mistake with the gate.
 */
export function looseValues(text: string): Loose[] {
  const reader = new LooseReader(text);
  const values: Loose[] = [];
  for (let value = reader.next(); value !== undefined; value = reader.next()) values.push(value);
  return values;
}

const BARE = /[^\s,:[\]{}"']+/y;
const DEEPEST = 200;

class LooseReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  next(): Loose | undefined {
    this.#space();
    return this.#at >= this.#text.length ? undefined : this.#value(0);
  }

  #value(depth: number): Loose | undefined {
    this.#space();
    const char = this.#text[this.#at];
    if (char === undefined || depth > DEEPEST) return undefined;
    if (char === '{') return this.#object(depth);
    if (char === '[') return this.#array(depth);
    if (char === '"' || char === "'") return { kind: 'plain', value: this.#string(char) };
    return this.#bare();
  }

  #object(depth: number): Loose {
    const members: [string, Loose][] = [];
    this.#at++;
    while (!this.#ends('}')) {
      const key = this.#value(depth + 1);
      if (key === undefined) break;
      if (!this.#skips(':')) continue;
      const value = this.#value(depth + 1);
      if (value === undefined) break;
      members.push([key.kind === 'plain' ? String(key.value) : '', value]);
    }
    return { kind: 'object', members };
  }

  #array(depth: number): Loose {
    const items: Loose[] = [];
    this.#at++;
    while (!this.#ends(']')) {
      const item = this.#value(depth + 1);
      if (item === undefined) break;
      items.push(item);
    }
    return { kind: 'array', items };
  }

  /** Whether the container is over, which it also is where the text is. */
  #ends(bracket: string): boolean {
    this.#space();
    while (this.#text[this.#at] === ',') {
      this.#at++;
      this.#space();
    }
    if (this.#at >= this.#text.length) return true;
    if (this.#text[this.#at] !== bracket) return false;
    this.#at++;
    return true;
  }

  #skips(char: string): boolean {
    this.#space();
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #string(quote: string): string {
    let text = '';
    for (this.#at++; this.#at < this.#text.length; this.#at++) {
      const char = this.#text[this.#at];
      if (char === quote) {
        this.#at++;
        return text;
      }
      text += char === '\\' ? this.#escape() : char;
    }
    return text;
  }

  #escape(): string {
    this.#at++;
    const char = this.#text[this.#at] ?? '';
    const hex = /^[0-9a-f]{4}/i.exec(this.#text.slice(this.#at + 1, this.#at + 5));
    if (char === 'u' && hex !== null) {
      this.#at += 4;
      return String.fromCharCode(Number.parseInt(hex[0], 16));
    }
    return { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }[char] ?? char;
  }

  #bare(): Loose {
    BARE.lastIndex = this.#at;
    const word = BARE.exec(this.#text)?.[0];
    if (word === undefined) {
      this.#at++;
      return { kind: 'plain', value: null };
    }
    this.#at += word.length;
    if (word === 'true' || word === 'false') return { kind: 'plain', value: word === 'true' };
    if (word === 'null') return { kind: 'plain', value: null };
    const number = Number(word);
    return { kind: 'plain', value: Number.isNaN(number) ? word : number };
  }

  /** White space, NUL and record separators, byte order marks, and comments. */
  #space(): void {
    for (;;) {
      const rest = this.#text.slice(this.#at, this.#at + 2);
      if (rest === '//') this.#at = this.#find('\n');
      else if (rest === '/*') this.#at = this.#find('*/');
      else if (rest === '' || !/[\s\p{Cc}\ufeff]/u.test(rest[0] ?? '')) return;
      else this.#at++;
    }
  }

  #find(end: string): number {
    const at = this.#text.indexOf(end, this.#at);
    return at === -1 ? this.#text.length : at + end.length;
  }
}

/** Any JSON value as the same kind of tree, for what a body parser has made of the bytes. */
export function looseOf(value: unknown): Loose {
  if (Array.isArray(value)) return { kind: 'array', items: value.map(looseOf) };
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([key, each]) => [key, looseOf(each)] as const);
    return { kind: 'object', members };
  }
  return { kind: 'plain', value: value as string | number | boolean | null };
}
