/**
 * Records calls, as lines of JSON. Hides that nothing of it is done while a call waits, and that a
 * file has values only as HMACs.
 */
import { createHmac } from 'node:crypto';
import * as z from 'zod/mini';
import { digestOf } from '../basics/digest.ts';
import { type EventListener, type InterlockEvent, SENT, type SentValue } from '../basics/events.ts';
import { isPrincipalRun, newToken, ownText } from '../basics/names.ts';
import { ExactNumber } from '../basics/numbers.ts';
import {
  functionOption,
  integerOption,
  isTable,
  lazyOptions,
  optionalFunction,
  type ParsedBy,
  parseOptions,
} from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import { keysOfPointer, MISSING, pointerTo, readerOf } from '../workflow/condition.ts';
import { DIGEST_LENGTH, type Digest, membersOf } from '../workflow/values.ts';
import {
  CALLS_FORMAT,
  CALLS_VERSION,
  HIDDEN_NAME,
  type RecordedLine,
  type RecordedValues,
} from './calls.ts';

/** A value that may be let through in clear. */
export interface RecordedValue {
  readonly tool: string;
  readonly part: 'args' | 'result';
  /** A JSON Pointer (RFC 6901), such as `/amount`. */
  readonly pointer: string;
  /** `null` also for an object, a list with one, or a number that JavaScript rounds. */
  readonly value: Json;
}

/** Options of {@link recordCalls}. */
export interface RecordCallsOptions {
  /**
   * Is given one line or more, each with a line break at its end. It is not called again before its
   * promise settles. What it throws goes to `onError`, and those lines are lost.
   */
  write: (lines: string) => unknown;
  /** The key of the HMACs, of at least 16 bytes. Keep it apart from the file. */
  key: string | Uint8Array;
  /**
   * What is recorded in clear: `true` lets a value through with its name, and `'name'` its name
   * alone. Names that the tool's listed schema has always stand in clear. Where it throws, neither
   * does. Default: no value.
   */
  clear?: ((value: RecordedValue) => boolean | 'name') | undefined;
  /** How many lines may wait to be written. Beyond that they are dropped. Default 10,000. */
  maxQueued?: number | undefined;
  /** How many bytes of lines may wait, likewise. Default 16 MiB. */
  maxQueuedBytes?: number | undefined;
  /**
   * Is given the promise of what is being written, so that a serverless host lets it end. Default:
   * that of Vercel, where it is there.
   */
  waitUntil?: ((writing: Promise<unknown>) => void) | undefined;
  /** Called with what `write` throws. Default: `console.error`. */
  onError?: ((error: unknown) => void) | undefined;
}

/** What {@link recordCalls} returns: give it as `onEvent`. */
export interface CallRecorder extends EventListener {
  /** Resolves once all lines so far are written. Never rejects. */
  flush(): Promise<void>;
  /** How many lines were dropped. */
  readonly dropped: number;
}

const SHORTEST_KEY = 16;
const LINES_AT_ONCE = 500;
const MOST_POINTERS = 64;
const DEEPEST = 5;
/** In characters: of a tool's name, and of what a line has of values and their names. */
const LONGEST_TOOL = 256;
const LONGEST_VALUES = 32_768;
/** How much of a tool's schema is read. */
const MOST_NODES = 10_000;

const optionsSchema = lazyOptions(() => ({
  write: functionOption<RecordCallsOptions['write']>(),
  key: z.custom<string | Uint8Array>(
    (key) =>
      (typeof key === 'string' || key instanceof Uint8Array) &&
      Buffer.byteLength(key) >= SHORTEST_KEY,
    `expected a text or bytes, at least ${SHORTEST_KEY} of them`,
  ),
  clear: optionalFunction<NonNullable<RecordCallsOptions['clear']>>(),
  maxQueued: z._default(integerOption(1), 10_000),
  maxQueuedBytes: z._default(integerOption(1), 16 * 1024 * 1024),
  waitUntil: optionalFunction<NonNullable<RecordCallsOptions['waitUntil']>>(),
  onError: optionalFunction<(error: unknown) => void>(),
}));

/**
 * Records each call that the middlewares see, bound or not: for `mcp-interlock replay` and
 * `suggest`. Give what it returns to `sessionStore({ onEvent })`.
 *
 * A file has no value in clear that `clear` does not let through, and no key of a run. Equal values
 * have equal HMACs, so what has few values can be guessed by how often each one comes.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function recordCalls(options: RecordCallsOptions): CallRecorder {
  const recorder = new Recorder(parseOptions('recordCalls()', optionsSchema, options));
  const listener = (event: InterlockEvent): void => recorder.take(event);
  return Object.defineProperty(
    Object.assign(listener, { flush: () => recorder.flush() }),
    'dropped',
    { get: () => recorder.dropped },
  ) as CallRecorder;
}

type LineBody = RecordedLine extends infer Each
  ? Each extends RecordedLine
    ? Omit<Each, 'instance' | 'seq'>
    : never
  : never;

/** A line that is not written as JSON yet, and what is to be added to it. */
interface Fresh {
  readonly line: LineBody;
  readonly tool: string;
  readonly part: 'args' | 'result';
  readonly sent: SentValue | undefined;
}

class Recorder {
  dropped = 0;
  readonly #options: ParsedBy<typeof optionsSchema>;
  readonly #instance = newToken().slice(0, 8);
  readonly #digest: Digest;
  readonly #print: string;
  /** What came in this turn of the event loop, with the values as they came. */
  #fresh: Fresh[] = [];
  /** What waits to be written, without the values, and how long it is. */
  #lines: string[] = [];
  #length = 0;
  #seq = 0;
  #droppedSince = 0;
  #digesting: Promise<void> | undefined;
  #writing: Promise<void> | undefined;

  constructor(options: ParsedBy<typeof optionsSchema>) {
    this.#options = options;
    const { key } = options;
    const hmac = (text: string): string =>
      createHmac('sha256', key).update(text).digest('base64url').slice(0, DIGEST_LENGTH);
    this.#digest = (value) => hmac(digestOf(value));
    // Of a text that is no digest.
    this.#print = hmac('mcp-interlock/calls key');
  }

  take(event: InterlockEvent): void {
    if (event.type === 'call.started') {
      const { at, call, run, client } = event;
      const tool = ownText(event.tool, LONGEST_TOOL);
      const isPrincipal = event.runKey !== undefined && isPrincipalRun(event.runKey);
      const line = {
        ...({ type: 'start', at, call, tool } as const),
        ...(run !== undefined && { run }),
        ...(isPrincipal && { isPrincipal }),
        ...(client !== undefined && { client }),
      };
      this.#add({ line, tool, part: 'args', sent: event[SENT] });
    } else if (event.type === 'call.ended') {
      const { at, call, outcome, reason, code, left } = event;
      const tool = ownText(event.tool, LONGEST_TOOL);
      const line = {
        ...({ type: 'end', at, call, outcome } as const),
        ...(reason !== undefined && { reason }),
        ...(code !== undefined && { code }),
        ...(left !== undefined && { left }),
      };
      const sent = outcome === 'refused' ? undefined : event[SENT];
      this.#add({ line, tool, part: 'result', sent });
    }
  }

  async flush(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  #add(fresh: Fresh): void {
    if (this.#fresh.length + this.#lines.length >= this.#options.maxQueued) {
      this.#drop(1);
      return;
    }
    this.#fresh.push(fresh);
    this.#digesting ??= this.#digestLater();
    if (this.#writing !== undefined) return;
    this.#writing = this.#write();
    (this.#options.waitUntil ?? waitUntilOfHost())?.(this.#writing);
  }

  #drop(lines: number): void {
    this.dropped += lines;
    this.#droppedSince += lines;
  }

  /** Behind the calls of this turn, and never behind `write`: so no call's values wait for it. */
  async #digestLater(): Promise<void> {
    await new Promise<void>((resolve) => void setImmediate(resolve));
    this.#digesting = undefined;
    for (const fresh of this.#fresh.splice(0)) this.#digestOne(fresh);
  }

  #digestOne(fresh: Fresh): void {
    const { at } = fresh.line;
    try {
      if (this.#seq === 0) {
        const of = { format: CALLS_FORMAT, version: CALLS_VERSION, clock: 'process' } as const;
        this.#push({ type: 'recording', ...of, key: this.#print, at });
      }
      if (this.#length >= this.#options.maxQueuedBytes) {
        this.#drop(1);
        return;
      }
      if (this.#droppedSince > 0) this.#push({ type: 'dropped', at, lines: this.#droppedSince });
      this.#droppedSince = 0;
      this.#push(fresh.line, fresh);
    } catch (error) {
      this.#drop(1);
      this.#report(error);
    }
  }

  #report(error: unknown): void {
    const { onError = console.error } = this.#options;
    try {
      onError(error);
    } catch {}
  }

  #push({ type, at, ...rest }: LineBody, fresh?: Fresh): void {
    const value = fresh?.sent?.value();
    const values =
      value === undefined || fresh === undefined ? undefined : this.#valuesOf(value, fresh);
    const text = JSON.stringify({
      ...{ type, instance: this.#instance, seq: ++this.#seq, at },
      ...rest,
      ...(values !== undefined && fresh !== undefined && { [fresh.part]: values }),
    });
    this.#lines.push(`${text}\n`);
    this.#length += text.length;
  }

  /** Writes all that waits. Never rejects. */
  async #write(): Promise<void> {
    const { write } = this.#options;
    while (this.#digesting !== undefined || this.#lines.length > 0) {
      await this.#digesting;
      const lines = this.#lines.splice(0, LINES_AT_ONCE);
      const text = lines.join('');
      try {
        if (text !== '') await write(text);
      } catch (error) {
        this.#drop(lines.length);
        this.#report(error);
      }
      this.#length -= text.length - lines.length;
    }
    this.#writing = undefined;
  }

  #valuesOf(whole: unknown, { tool, part, sent }: Fresh): RecordedValues | undefined {
    const named = namesIn(sent?.schema());
    const hmacs: Record<string, string | readonly string[]> = Object.create(null);
    const clear: Record<string, Json> = Object.create(null);
    let isCut = false;
    let count = 0;
    let length = 0;
    const rest: Member[] = [{ own: '', shown: '', name: undefined, value: whole, depth: 0 }];
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
      const { own, name, value, depth } = next;
      let { shown } = next;
      const isObject = isTable(value) && !(value instanceof ExactNumber);
      if (own !== '' || !isObject) {
        const open = this.#isClear(tool, part, own, value);
        if (name !== undefined)
          shown +=
            open === false && !named.has(own)
              ? `/${HIDDEN_NAME}${this.#digest(name)}`
              : pointerTo([name]);
        const members = membersOf(value, this.#digest);
        const isEmpty = Array.isArray(value) && value.length === 0;
        const said = isObject && Array.isArray(members) ? (members[0] ?? '') : members;
        length += shown.length + String(said).length;
        if (++count > MOST_POINTERS || length > LONGEST_VALUES) {
          isCut = true;
          break;
        }
        if (said !== undefined || isEmpty) hmacs[shown] = said ?? [];
        else isCut = true;
        if (open === true) {
          length += JSON.stringify(value).length;
          if (length <= LONGEST_VALUES) clear[shown] = value as Json;
        }
      }
      if (!isObject) continue;
      const keys = Object.keys(value);
      if (depth >= DEEPEST) isCut ||= keys.length > 0;
      // One more than are recorded shows that it has more.
      else
        for (const key of keys.slice(0, MOST_POINTERS + 1))
          rest.push({
            ...{ own: `${own}${pointerTo([key])}`, shown, name: key },
            ...{ value: value[key], depth: depth + 1 },
          });
    }
    if (count === 0 && !isCut) return undefined;
    return {
      hmacs,
      ...(Object.keys(clear).length > 0 && { clear }),
      ...(isCut && { isCut }),
    };
  }

  /** What the app lets through: the value with its name, the name alone, or neither. */
  #isClear(
    tool: string,
    part: 'args' | 'result',
    pointer: string,
    value: unknown,
  ): boolean | 'name' {
    const members: readonly unknown[] = Array.isArray(value) ? value : [value];
    // A number that JavaScript rounds cannot be written as it came.
    const isPlain = members.every((each) => typeof each !== 'object' || each === null);
    try {
      const given = isPlain ? (value as Json) : null;
      const said = this.#options.clear?.({ tool, part, pointer, value: given });
      if (said === true) return isPlain || 'name';
      return said === 'name' ? said : false;
    } catch {
      return false;
    }
  }
}

/** A member whose name is not shown yet. */
interface Member {
  /** Its own pointer, and what stands in the line for that of what it is in. */
  readonly own: string;
  readonly shown: string;
  readonly name: string | undefined;
  readonly value: unknown;
  readonly depth: number;
}

/** Keywords whose schemas are about the same value. */
const BESIDE = ['allOf', 'anyOf', 'oneOf'] as const;

/** By schema, the pointers of the members that it names. */
const namesOf = new WeakMap<object, ReadonlySet<string>>();

function namesIn(schema: unknown): ReadonlySet<string> {
  if (!isTable(schema)) return new Set();
  const known = namesOf.get(schema);
  if (known !== undefined) return known;
  const names = new Set<string>();
  const rest: [node: unknown, pointer: string, depth: number][] = [[schema, '', 0]];
  for (let seen = 0; rest.length > 0 && seen < MOST_NODES; seen++) {
    const [node, pointer, depth] = rest.pop() as (typeof rest)[0];
    if (!isTable(node)) continue;
    for (const keyword of BESIDE)
      if (Array.isArray(node[keyword]))
        for (const each of node[keyword]) rest.push([each, pointer, depth]);
    if (typeof node.$ref === 'string' && node.$ref.startsWith('#/')) {
      const found = readerOf(schema)(keysOfPointer(node.$ref.slice(1)));
      if (found !== MISSING) rest.push([found, pointer, depth]);
    }
    if (!isTable(node.properties) || depth >= DEEPEST) continue;
    for (const [key, inner] of Object.entries(node.properties)) {
      const own = `${pointer}${pointerTo([key])}`;
      names.add(own);
      rest.push([inner, own, depth + 1]);
    }
  }
  namesOf.set(schema, names);
  return names;
}

/** As `@vercel/functions` finds it. */
function waitUntilOfHost(): ((writing: Promise<unknown>) => void) | undefined {
  const host = Reflect.get(globalThis, Symbol.for('@vercel/request-context')) as
    | { get?: () => { waitUntil?: (writing: Promise<unknown>) => void } | undefined }
    | undefined;
  return host?.get?.()?.waitUntil;
}
