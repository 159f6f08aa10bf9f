import { isObject, type JsonObject } from './json-rpc.ts';
import {
  elementSpans,
  rootSpan,
  spanAt,
  splice,
  withMember,
  withoutMember,
  withValueAt,
} from './json-text.ts';

/** What becomes of one element of an array: kept as it is, dropped, or, where it is an object, some of its members set. */
export type ElementEdit = 'keep' | 'drop' | JsonObject;

/** The value at `path`, or `undefined`. Own members only: `constructor` is no member. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let current = value;
  for (const key of path) {
    if (!isObject(current) || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
}

/**
 * One JSON-RPC message as text and as value, edited in step. The text keeps every character that no edit touches.
 */
export class Message {
  #text: string | undefined;
  #value: JsonObject | undefined;
  #edits = 0;
  /** Whether it is left out of the stream that it came on. */
  dropped = false;
  /** Messages that go out on the same stream right before this one. A JSON answer has no room for them. */
  readonly before: JsonObject[] = [];

  /** Give the text as it came; without one it is made from the value when it is first needed. */
  constructor(value: JsonObject, text?: string) {
    this.#text = text;
    this.#value = value;
  }

  get text(): string {
    this.#text ??= JSON.stringify(this.#value);
    return this.#text;
  }

  /** Parsed from the text as it is now. Read it; the methods below write. */
  get value(): JsonObject {
    this.#value ??= JSON.parse(this.text) as JsonObject;
    return this.#value;
  }

  get changed(): boolean {
    return this.#edits > 0;
  }

  /** How often it was edited: tells whether an amended body has been handed on already. */
  get edits(): number {
    return this.#edits;
  }

  at(...path: string[]): unknown {
    return valueAt(this.value, path);
  }

  replace(value: JsonObject): void {
    this.#write(JSON.stringify(value));
  }

  /** @param value anything that JSON can hold; `undefined` is written as null. */
  set(path: readonly string[], value: unknown): void {
    this.#write(withValueAt(this.text, path, jsonOf(value)));
  }

  /** The characters of the value at `path`. */
  textAt(path: readonly string[]): string | undefined {
    const span = spanAt(this.text, path);
    return span && this.text.slice(span.start, span.end);
  }

  /** The same as {@link set} for JSON text, of which no character is lost. */
  setText(path: readonly string[], text: string): void {
    this.#write(withValueAt(this.text, path, text));
  }

  remove(path: readonly string[], key: string): void {
    const span = spanAt(this.text, path);
    if (span === undefined || this.text[span.start] !== '{') return;
    this.#write(splice(this.text, span, withoutMember(this.text.slice(span.start, span.end), key)));
  }

  /** Replaces a name wherever it stands in the text, inside of strings too. */
  rename(from: string, to: string): void {
    const inString = JSON.stringify(to).slice(1, -1);
    if (this.text.includes(from)) this.#write(this.text.replaceAll(from, () => inString));
  }

  /** Adds an element to the array at `path`; without such an array nothing happens. */
  insert(path: readonly string[], element: unknown, where: 'start' | 'end'): void {
    const span = spanAt(this.text, path);
    if (span === undefined || this.text[span.start] !== '[') return;
    const empty = elementSpans(this.text, span.start).length === 0;
    const at = where === 'start' ? span.start + 1 : span.end - 1;
    const text = jsonOf(element);
    const separated = empty ? text : where === 'start' ? `${text},` : `,${text}`;
    this.#write(splice(this.text, { start: at, end: at }, separated));
  }

  /** Drops or amends elements of the array at `path`; the others keep their order and their characters. */
  editElements(path: readonly string[], edit: (element: unknown) => ElementEdit): void {
    const elements = this.at(...path);
    if (!Array.isArray(elements)) return;
    const edits = elements.map(edit);
    if (edits.every((each) => each === 'keep')) return;
    const span = spanAt(this.text, path) ?? rootSpan(this.text);
    const texts: string[] = [];
    elementSpans(this.text, span.start).forEach(({ start, end }, index) => {
      const each = edits[index] ?? 'drop';
      if (each !== 'drop') texts.push(amended(this.text.slice(start, end), each));
    });
    this.#write(splice(this.text, span, `[${texts.join(',')}]`));
  }

  #write(text: string): void {
    this.#text = text;
    this.#value = undefined;
    this.#edits++;
  }
}

function amended(elementText: string, edit: 'keep' | JsonObject): string {
  if (edit === 'keep' || !elementText.startsWith('{')) return elementText;
  return Object.entries(edit).reduce(
    (text, [key, value]) => withMember(text, key, jsonOf(value)),
    elementText,
  );
}

function jsonOf(value: unknown): string {
  return JSON.stringify(value) ?? 'null';
}
