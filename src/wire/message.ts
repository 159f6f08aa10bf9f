import type { MessagePart } from './json-outline.ts';
import { isObject, type JsonObject, type ListKind } from './json-rpc.ts';
import {
  elementSpans,
  isEmptyObject,
  rootSpan,
  type Span,
  spanAt,
  splice,
  withElementAt,
  withMember,
  withoutMember,
  withoutMemberAt,
  withValueAt,
} from './json-text.ts';

/** What becomes of an array's element. The members of an object are set on it, if it is one. */
export type ElementEdit = 'keep' | 'drop' | JsonObject;

type Places = Partial<Record<MessagePart, Span>>;

/** A message's text, cut at the elements of the array whose path is `name`. */
interface CutArray {
  readonly name: string;
  readonly before: string;
  readonly texts: readonly string[];
  readonly behind: string;
}

function joined({ before, texts, behind }: CutArray): string {
  return `${before}[${texts.join(',')}]${behind}`;
}

/**
 * One JSON-RPC message, as text and as value. Both get every edit, and no edit touches any other
 * character of the text.
 *
 * Where the places of its parts are known, the text is edited there. Otherwise, where
 * `JSON.stringify` writes the value exactly as the text, only the value is edited: that is cheaper.
 */
export class Message {
  #text: string | undefined;
  #value: JsonObject | undefined;
  #plain: boolean | undefined;
  #places: Places | undefined;
  #array: CutArray | undefined;
  #edits = 0;
  #pages: Partial<Record<ListKind, readonly unknown[]>> | undefined;
  /** Set it to leave the message out of its stream. */
  dropped = false;
  /** Stands in place of an answer of the upstream's that had a result and an error. */
  isContradictory = false;
  /** Messages that go out on the same stream right before this one; a JSON answer has none. */
  readonly before: JsonObject[] = [];

  /**
   * @param text as it came, where it is known; otherwise the value is written when it is needed
   * @param places of all the parts that the message has. Then the text must have no space around it
   */
  constructor(value: JsonObject, text?: string, places?: Readonly<Places>) {
    this.#text = text;
    this.#value = value;
    this.#places = places && { ...places };
  }

  get text(): string {
    this.#text ??= this.#array === undefined ? jsonTextOf(this.#value) : joined(this.#array);
    return this.#text;
  }

  /** As the text is now. Read it only: the methods below edit, and never change this object. */
  get value(): JsonObject {
    // Only an edit of the text alone lets the value go, so the text is there.
    this.#value ??= JSON.parse(this.#text as string) as JsonObject;
    return this.#value;
  }

  get changed(): boolean {
    return this.#edits > 0;
  }

  /** How often it was edited. The exchange writes the body again when this has changed. */
  get edits(): number {
    return this.#edits;
  }

  at(...path: readonly string[]): unknown {
    return memberAt(this.value, path);
  }

  replace(value: JsonObject): void {
    this.#edit(
      () => value,
      () => jsonTextOf(value),
    );
  }

  /** @param value anything that JSON can hold; `undefined` is written as null. */
  set(path: readonly string[], value: unknown): void {
    this.#edit(
      (object) => withEntry(object, path, asRead(value)),
      (text) => withValueAt(text, path, jsonTextOf(value)),
      () => this.#setAt(path, jsonTextOf(value)),
    );
  }

  /**
   * Sets members of the object at `path`, in one edit. Makes the object where it is missing.
   *
   * @param members best new ones: where one exists already, each costs an edit of its own
   */
  assign(path: readonly string[], members: Readonly<Record<string, string>>): void {
    this.#edit(
      (object) => {
        const old = memberAt(object, path);
        return withEntry(object, path, isObject(old) ? { ...old, ...members } : { ...members });
      },
      (text) =>
        Object.entries(members).reduce(
          (made, [key, each]) => withValueAt(made, [...path, key], jsonTextOf(each)),
          text,
        ),
      () => this.#assignAt(path, members),
    );
  }

  /**
   * The page of a list as the upstream sent it, including what other gates have taken out since.
   * Each gate asks before it changes the page.
   */
  pageAsSent(kind: ListKind): readonly unknown[] {
    const known = this.#pages?.[kind];
    if (known !== undefined) return known;
    const now = this.at('result', kind);
    const page: readonly unknown[] = Array.isArray(now) ? now : [];
    this.#pages = { ...this.#pages, [kind]: page };
    return page;
  }

  /** The characters of the value at `path`. */
  textAt(path: readonly string[]): string | undefined {
    const span = this.#spanOf(path);
    return span && this.text.slice(span.start, span.end);
  }

  /** Like {@link set}, for JSON text, which is kept to the letter. */
  setText(path: readonly string[], text: string): void {
    this.#setText(withValueAt(this.text, path, text));
  }

  remove(path: readonly string[], key: string): void {
    const parent = this.at(...path);
    if (!isObject(parent)) return;
    this.#edit(
      (object) => withEntry(object, path, withoutEntry(parent, key)),
      (text) => withoutMemberAt(text, path, key),
      () => this.#cut(path, (object) => withoutMember(object, key)),
    );
  }

  /** Replaces a name everywhere in the text, also inside of strings. A pattern must be global. */
  rename(from: string | RegExp, to: string | ((...found: string[]) => string)): void {
    const name = typeof to === 'string' ? () => to : to;
    const text = this.text.replaceAll(from, (...found: string[]) =>
      JSON.stringify(name(...found)).slice(1, -1),
    );
    if (text !== this.text) this.#setText(text);
  }

  /** Has it written anew, although unchanged: else the frame would show the client an edit. */
  rewrite(): void {
    this.#edits++;
  }

  /** Adds an element to the array at `path`, where there is one. */
  insert(path: readonly string[], element: unknown, where: 'start' | 'end'): void {
    const elements = this.at(...path);
    if (!Array.isArray(elements)) return;
    const more = [asRead(element)];
    this.#edit(
      (object) =>
        withEntry(
          object,
          path,
          where === 'start' ? [...more, ...elements] : [...elements, ...more],
        ),
      (text) => withElementAt(text, path, jsonTextOf(element), where),
    );
  }

  /** Drops or amends elements of the array at `path`. The others keep their order and text. */
  editElements(path: readonly string[], edit: (element: unknown) => ElementEdit): void {
    const elements = this.at(...path);
    if (!Array.isArray(elements)) return;
    const edits = elements.map(edit);
    if (edits.every((each) => each === 'keep')) return;
    if (this.#text === undefined && this.#array === undefined) {
      this.#setValue(withEntry(this.value, path, editedValues(elements, edits)));
      return;
    }
    const array = this.#arrayAt(path);
    const values: unknown[] = [];
    const texts: string[] = [];
    for (const [index, each] of edits.entries()) {
      const [value, text = ''] = [elements[index], array.texts[index]];
      if (each === 'drop') continue;
      const isAmended = each !== 'keep' && isObject(value);
      texts.push(isAmended ? withMembers(text, each) : text);
      values.push(isAmended ? JSON.parse(texts.at(-1) ?? '') : value);
    }
    const value = withEntry(this.value, path, values);
    this.#setText(undefined);
    this.#value = value;
    this.#array = { ...array, texts };
  }

  /** The array at `path`, cut into its elements. Several edits one after another share one cut. */
  #arrayAt(path: readonly string[]): CutArray {
    const name = path.join('.');
    if (this.#array?.name === name) return this.#array;
    const { text } = this;
    const { start, end } = spanAt(text, path) ?? rootSpan(text);
    const texts = elementSpans(text, start).map((each) => text.slice(each.start, each.end));
    return { name, before: text.slice(0, start), texts, behind: text.slice(end) };
  }

  /** Makes one edit in one of three ways, or in two, which all must come to the same. */
  #edit(
    inValue: (value: JsonObject) => JsonObject,
    inText: (text: string) => string,
    inPlace?: () => void,
  ): void {
    if (this.#places !== undefined && inPlace !== undefined) {
      this.#value = inValue(this.value);
      inPlace();
      this.#edits++;
    } else if (this.#isPlain) this.#setValue(inValue(this.value));
    else this.#setText(inText(this.text));
  }

  /** Writes the value at `path`, and makes the objects that are missing on the way. */
  #setAt(path: readonly string[], json: string): void {
    const known = this.#spanOf(path);
    // The places of its new members are not known.
    if (path.length === 1 && path[0] === 'params') this.#places = undefined;
    if (known !== undefined) {
      this.#replaceAt(known, json);
      return;
    }
    const around = path.slice(0, -1);
    const member = `${JSON.stringify(path.at(-1))}:${json}`;
    const parent = this.#spanOf(around);
    if (parent === undefined || this.text[parent.start] !== '{') {
      this.#setAt(around, `{${member}}`);
      return;
    }
    const at = parent.end - 1;
    const comma = isEmptyObject(this.text, parent) ? '' : ',';
    this.#replaceAt({ start: at, end: at }, comma + member);
    const start = at + comma.length + member.length - json.length;
    if (this.#places !== undefined && path.length === 2 && path[0] === 'params')
      this.#places[path.join('.') as MessagePart] = { start, end: start + json.length };
  }

  #assignAt(path: readonly string[], members: Readonly<Record<string, string>>): void {
    const span = this.#spanOf(path);
    const keys = Object.keys(members);
    if (span === undefined || this.text[span.start] !== '{') {
      this.#setAt(path, jsonTextOf(members));
    } else if (keys.some((key) => this.#spanIn(span, [key]) !== undefined)) {
      for (const [key, value] of Object.entries(members))
        this.#setAt([...path, key], jsonTextOf(value));
    } else {
      const at = span.end - 1;
      const comma = isEmptyObject(this.text, span) ? '' : ',';
      this.#replaceAt({ start: at, end: at }, comma + jsonTextOf(members).slice(1, -1));
    }
  }

  #cut(path: readonly string[], edit: (object: string) => string): void {
    const span = this.#spanOf(path);
    if (span !== undefined) this.#replaceAt(span, edit(this.text.slice(span.start, span.end)));
  }

  /** The place of the value at `path`. Where that is in a known part, only the part is searched. */
  #spanOf(path: readonly string[]): Span | undefined {
    const whole = { start: 0, end: this.text.length };
    const inParams = path[0] === 'params';
    if (!inParams || this.#places === undefined) return this.#spanIn(whole, path);
    const { params } = this.#places;
    if (params === undefined || path.length === 1) return params;
    const isPart = path[1] === '_meta' || path[1] === 'arguments';
    if (!isPart) return this.#spanIn(params, path.slice(1));
    const part = this.#places[`params.${path[1]}` as MessagePart];
    return part && this.#spanIn(part, path.slice(2));
  }

  #spanIn(around: Span, path: readonly string[]): Span | undefined {
    if (path.length === 0) return around;
    const span = spanAt(this.text.slice(around.start, around.end), path);
    return span && { start: around.start + span.start, end: around.start + span.end };
  }

  #replaceAt(span: Span, json: string): void {
    this.#text = splice(this.text, span, json);
    this.#array = undefined;
    const grows = json.length - (span.end - span.start);
    for (const [part, { start, end }] of Object.entries(this.#places ?? {})) {
      if (end <= span.start) continue;
      const isAround = start <= span.start && end >= span.end;
      // This part was inside of what was replaced.
      if (!isAround && start < span.end) this.#places = undefined;
      if (this.#places === undefined) return;
      const moved = isAround ? start : start + grows;
      this.#places[part as MessagePart] = { start: moved, end: end + grows };
    }
  }

  /** Whether the value alone gives back the text. */
  get #isPlain(): boolean {
    const isValue = this.#text === undefined && this.#array === undefined;
    this.#plain ??= isValue || givesBack(this.value, this.text);
    return this.#plain;
  }

  #setValue(value: JsonObject): void {
    this.#value = value;
    this.#text = undefined;
    this.#array = undefined;
    this.#places = undefined;
    this.#plain = true;
    this.#edits++;
  }

  #setText(text: string | undefined): void {
    this.#value = undefined;
    this.#text = text;
    this.#array = undefined;
    this.#places = undefined;
    // A text that was not plain rarely becomes plain, and to treat it as not plain is always safe.
    if (this.#plain) this.#plain = undefined;
    this.#edits++;
  }
}

/** Whether the value is written exactly as the text. `1.0`, spaces and repeated keys are not. */
function givesBack(value: JsonObject, text: string): boolean {
  try {
    return JSON.stringify(value) === text;
  } catch {
    // It nests too deeply to be written.
    return false;
  }
}

function editedValues(elements: readonly unknown[], edits: readonly ElementEdit[]): unknown[] {
  return elements.flatMap((element, index) => {
    const edit = edits[index] ?? 'drop';
    if (edit === 'drop') return [];
    return [edit === 'keep' || !isObject(element) ? element : withEntries(element, edit)];
  });
}

function withMembers(objectText: string, members: JsonObject): string {
  return Object.entries(members).reduce(
    (text, [key, value]) => withMember(text, key, jsonTextOf(value)),
    objectText,
  );
}

/** The message or batch of messages in a body, or in the data of an event. */
export class Payload {
  readonly messages: readonly Message[];
  readonly #text: string;
  readonly isBatch: boolean;

  private constructor(text: string, messages: readonly Message[], isBatch: boolean) {
    this.#text = text;
    this.messages = messages;
    this.isBatch = isBatch;
  }

  /**
   * `undefined` where the text is neither a message nor a batch.
   *
   * @param emptyIsBatch whether an empty text counts as a batch, to which messages may be added
   */
  static parse(text: string, emptyIsBatch = false): Payload | undefined {
    if (text === '') return new Payload(text, [], emptyIsBatch);
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return undefined;
    }
    if (isObject(value)) return new Payload(text, [new Message(value, text)], false);
    if (!Array.isArray(value) || !value.every(isObject)) return undefined;
    const spans = elementSpans(text, rootSpan(text).start);
    const messages = value.map(
      (each, index) => new Message(each, text.slice(spans[index]?.start, spans[index]?.end)),
    );
    return new Payload(text, messages, true);
  }

  get changed(): boolean {
    return this.messages.some(({ changed, dropped }) => changed || dropped);
  }

  /** The text without the dropped messages, with `more` at the end. It changes nothing else. */
  textWith(more: readonly JsonObject[] = []): string {
    if (!this.changed && more.length === 0) return this.#text;
    const texts = [
      ...this.messages.filter(({ dropped }) => !dropped).map(({ text }) => text),
      ...more.map((each) => JSON.stringify(each)),
    ];
    return this.isBatch || texts.length > 1 ? `[${texts.join(',')}]` : (texts[0] ?? '');
  }
}

// --- JSON values. Text is written without recursion: a client decides how deep they are ---------

/** The value as JSON text, at any depth. A value that JSON cannot hold becomes `null`. */
export function jsonTextOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch (error) {
    // `JSON.stringify` recurses. How deep it gets differs between versions of V8.
    if (!(error instanceof RangeError)) throw error;
    return deepTextOf(value);
  }
}

/** An array or an object that is not fully written yet. */
interface Unwritten {
  readonly keys: readonly string[] | undefined;
  readonly values: readonly unknown[];
  at: number;
}

function deepTextOf(root: unknown): string {
  const texts: string[] = [];
  const open: Unwritten[] = [];
  for (let next = root; ; ) {
    const container = containerOf(next);
    if (container === undefined) texts.push(JSON.stringify(next) ?? 'null');
    else {
      texts.push(container.keys ? '{' : '[');
      open.push(container);
    }
    let last = open.at(-1);
    while (last !== undefined && last.at === last.values.length) {
      texts.push(last.keys ? '}' : ']');
      open.pop();
      last = open.at(-1);
    }
    if (last === undefined) return texts.join('');
    if (last.at > 0) texts.push(',');
    if (last.keys) texts.push(JSON.stringify(last.keys[last.at]), ':');
    next = last.values[last.at++];
  }
}

function containerOf(value: unknown): Unwritten | undefined {
  if (Array.isArray(value)) return { keys: undefined, values: value, at: 0 };
  // A date, for example, makes its own JSON.
  if (!isObject(value) || typeof value.toJSON === 'function') return undefined;
  const keys = Object.keys(value).filter((key) => !LEFT_OUT.has(typeof value[key]));
  return { keys, values: keys.map((key) => value[key]), at: 0 };
}

/** Members of these types are left out of JSON. */
const LEFT_OUT: ReadonlySet<string> = new Set(['undefined', 'function', 'symbol']);

/**
 * A copy of the object with the value at `path` set. A new member goes to the end, and objects that
 * are missing on the way are made.
 */
function withEntry(
  object: JsonObject,
  path: readonly string[],
  value: unknown,
  at = 0,
): JsonObject {
  const key = path[at];
  if (key === undefined) return isObject(value) ? value : object;
  if (at === path.length - 1) return { ...object, [key]: value };
  const child = Object.hasOwn(object, key) ? object[key] : undefined;
  return { ...object, [key]: withEntry(isObject(child) ? child : {}, path, value, at + 1) };
}

function withoutEntry(object: JsonObject, key: string): JsonObject {
  const { [key]: _, ...rest } = object;
  return rest;
}

/** The value at `path`, or `undefined`. Only own members count, so `constructor` is none. */
export function memberAt(value: unknown, path: readonly string[]): unknown {
  let current = value;
  for (const key of path) {
    if (!isObject(current) || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
}

/** A copy of the object with some members set. */
function withEntries(object: JsonObject, entries: JsonObject): JsonObject {
  return Object.entries(entries).reduce(
    (edited, [key, value]) => withEntry(edited, [key], asRead(value)),
    object,
  );
}

/** The value as it would be after writing it as JSON and reading that. */
function asRead(value: unknown): unknown {
  if (typeof value === 'string') return value;
  return isFlat(value) ? { ...value } : JSON.parse(jsonTextOf(value));
}

/** Whether the value is a plain object of strings, which JSON keeps as it is. */
function isFlat(value: unknown): value is JsonObject {
  if (!isObject(value) || Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key of Object.keys(value)) if (typeof value[key] !== 'string') return false;
  return !Object.hasOwn(value, '__proto__');
}
