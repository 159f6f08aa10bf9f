/**
 * Records calls, as lines of JSON. Hides that nothing of it is done while a call waits, and that a
 * file has values only as HMACs.
 */
import { createHmac } from 'node:crypto';
import * as z from 'zod/mini';
import { digestOf } from '../digest.ts';
import { type EventListener, type InterlockEvent, SENT } from '../events.ts';
import { isPrincipalRun, newToken } from '../names.ts';
import { ExactNumber } from '../numbers.ts';
import { functionOption, isTable, lazyOptions, type ParsedBy, parseOptions } from '../options.ts';
import type { Json } from '../stores/store.ts';
import { pointerTo } from '../workflow/condition.ts';
import { DIGEST_LENGTH, type Digest, membersOf } from '../workflow/values.ts';
import { CALLS_FORMAT, CALLS_VERSION, type CallLine, type RecordedValues } from './calls.ts';

/** A value that may be let through in clear. */
export interface RecordedValue {
  readonly tool: string;
  readonly part: 'args' | 'result';
  /** A JSON Pointer (RFC 6901), such as `/amount`. */
  readonly pointer: string;
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
  /** Whether a value is recorded in clear. Where it throws, it is not. Default: none is. */
  clear?: ((value: RecordedValue) => boolean) | undefined;
  /** How many lines may wait to be written. Beyond that they are dropped. Default 10,000. */
  maxQueued?: number | undefined;
  /**
   * Is given the promise of what is being written, so that a serverless host lets it end. Default:
   * that of Vercel, where it is there.
   */
  waitUntil?: ((writing: Promise<unknown>) => void) | undefined;
  /** Told what `write` throws. Default: `console.error`. */
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

const optionsSchema = lazyOptions(() => ({
  write: functionOption<RecordCallsOptions['write']>(),
  key: z.custom<string | Uint8Array>(
    (key) =>
      (typeof key === 'string' || key instanceof Uint8Array) &&
      Buffer.byteLength(key) >= SHORTEST_KEY,
    `expected a text or bytes, at least ${SHORTEST_KEY} of them`,
  ),
  clear: z.optional(functionOption<NonNullable<RecordCallsOptions['clear']>>()),
  maxQueued: z._default(z.int().check(z.minimum(1)), 10_000),
  waitUntil: z.optional(functionOption<NonNullable<RecordCallsOptions['waitUntil']>>()),
  onError: z.optional(functionOption<(error: unknown) => void>()),
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

type LineBody = CallLine extends infer Each
  ? Each extends CallLine
    ? Omit<Each, 'instance' | 'seq'>
    : never
  : never;

/** A line that waits, and what is to be added to it. */
interface Waiting {
  readonly line: LineBody & { readonly seq: number };
  readonly tool: string;
  readonly part: 'args' | 'result';
  readonly sent: (() => unknown) | undefined;
}

class Recorder {
  dropped = 0;
  readonly #options: ParsedBy<typeof optionsSchema>;
  readonly #instance = newToken().slice(0, 8);
  readonly #digest: Digest;
  readonly #print: string;
  #waiting: Waiting[] = [];
  #seq = 0;
  #droppedSince = 0;
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
      const { at, call, tool, run, client } = event;
      const isPrincipal = event.runKey !== undefined && isPrincipalRun(event.runKey);
      this.#add(
        {
          ...{ type: 'start', at, call, tool },
          ...(run !== undefined && { run }),
          ...(isPrincipal && { isPrincipal }),
          ...(client !== undefined && { client }),
        },
        { tool, part: 'args', sent: event[SENT] },
      );
    } else if (event.type === 'call.ended') {
      const { at, call, tool, outcome, reason, code, left } = event;
      this.#add(
        {
          ...{ type: 'end', at, call, outcome },
          ...(reason !== undefined && { reason }),
          ...(code !== undefined && { code }),
          ...(left !== undefined && { left }),
        },
        { tool, part: 'result', sent: outcome === 'refused' ? undefined : event[SENT] },
      );
    }
  }

  async flush(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  #add(body: LineBody, about: Omit<Waiting, 'line'>): void {
    const { at } = body;
    if (this.#seq === 0) {
      const of = { format: CALLS_FORMAT, version: CALLS_VERSION, clock: 'process' } as const;
      this.#push({ type: 'recording', ...of, key: this.#print, at }, { ...about, sent: undefined });
    }
    if (this.#waiting.length >= this.#options.maxQueued) {
      this.dropped += 1;
      this.#droppedSince += 1;
      return;
    }
    if (this.#droppedSince > 0) {
      this.#push({ type: 'dropped', at, lines: this.#droppedSince }, { ...about, sent: undefined });
      this.#droppedSince = 0;
    }
    this.#push(body, about);
    if (this.#writing !== undefined) return;
    this.#writing = this.#write();
    (this.#options.waitUntil ?? waitUntilOfHost())?.(this.#writing);
  }

  #push(body: LineBody, about: Omit<Waiting, 'line'>): void {
    this.#waiting.push({ ...about, line: { ...body, seq: ++this.#seq } });
  }

  /** Writes all that waits, behind the calls. Never rejects. */
  async #write(): Promise<void> {
    const { write, onError = console.error } = this.#options;
    while (this.#waiting.length > 0) {
      await new Promise<void>((resolve) => void setImmediate(resolve));
      const lines = this.#waiting.splice(0, LINES_AT_ONCE);
      try {
        await write(lines.map((each) => `${this.#textOf(each)}\n`).join(''));
      } catch (error) {
        this.dropped += lines.length;
        this.#droppedSince += lines.length;
        try {
          onError(error);
        } catch {}
      }
    }
    this.#writing = undefined;
  }

  #textOf({ line, tool, part, sent }: Waiting): string {
    const { seq, type, at, ...rest } = line;
    const value = sent?.();
    const values = value === undefined ? undefined : this.#valuesOf(value, tool, part);
    return JSON.stringify({
      ...{ type, instance: this.#instance, seq, at },
      ...rest,
      ...(values !== undefined && { [part]: values }),
    });
  }

  #valuesOf(whole: unknown, tool: string, part: 'args' | 'result'): RecordedValues | undefined {
    const hmacs: Record<string, string | readonly string[]> = Object.create(null);
    const clear: Record<string, Json> = Object.create(null);
    let isCut = false;
    let count = 0;
    const rest: [pointer: string, value: unknown, depth: number][] = [['', whole, 0]];
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
      const [pointer, value, depth] = next;
      const isObject = isTable(value) && !(value instanceof ExactNumber);
      if (pointer !== '' || !isObject) {
        if (++count > MOST_POINTERS) {
          isCut = true;
          break;
        }
        const members = membersOf(value, this.#digest);
        if (members !== undefined)
          hmacs[pointer] = isObject && Array.isArray(members) ? (members[0] ?? '') : members;
        else if (Array.isArray(value) && value.length === 0) hmacs[pointer] = [];
        else isCut = true;
        if (!isObject && this.#isClear({ tool, part, pointer, value: value as Json }))
          clear[pointer] = value as Json;
      }
      if (!isObject) continue;
      if (depth >= DEEPEST) isCut ||= Object.keys(value).length > 0;
      else
        for (const [key, inner] of Object.entries(value))
          rest.push([`${pointer}${pointerTo([key])}`, inner, depth + 1]);
    }
    if (count === 0 && !isCut) return undefined;
    return {
      hmacs,
      ...(Object.keys(clear).length > 0 && { clear }),
      ...(isCut && { isCut }),
    };
  }

  #isClear(value: RecordedValue): boolean {
    // A number that JavaScript rounds cannot be written as it came.
    const members: readonly unknown[] = Array.isArray(value.value) ? value.value : [value.value];
    if (members.some((each) => typeof each === 'object' && each !== null)) return false;
    try {
      return this.#options.clear?.(value) === true;
    } catch {
      return false;
    }
  }
}

/** As `@vercel/functions` finds it. */
function waitUntilOfHost(): ((writing: Promise<unknown>) => void) | undefined {
  const host = Reflect.get(globalThis, Symbol.for('@vercel/request-context')) as
    | { get?: () => { waitUntil?: (writing: Promise<unknown>) => void } | undefined }
    | undefined;
  return host?.get?.()?.waitUntil;
}
