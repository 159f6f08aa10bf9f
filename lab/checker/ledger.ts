import { appendFileSync, closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { CALL, type LedgerLine, now } from './evidence.ts';

/** Where handlers write down what they do. */
export type Append = (line: LedgerLine) => void;

/**
 * Appends with O_APPEND, in one write. So lines of many processes do not mix, stand in the order in
 * which they were written, and survive a `kill -9`. One that comes in mid-write may cut its own line
 * off at a page's edge, so each line begins anew.
 */
export function appendTo(file: string): Append {
  return (line) => appendFileSync(file, `\n${JSON.stringify(line)}\n`);
}

/** The arguments that the handlers understand. */
export interface HandlerArguments {
  /** The client's number for the step: duplicates and repetitions of one step share it. */
  readonly step: number;
  /** How long the handler takes. */
  readonly ms: number;
  readonly fail?: boolean | undefined;
  /** For bindings that ask for it. */
  readonly action?: string | undefined;
}

export interface HandlerCall {
  readonly tool: string;
  readonly args: HandlerArguments;
  /** The run as the handler knows it: from the session's header, or the caller's name. */
  readonly run: string;
  /** The call's `_meta`, as it came to the server. */
  readonly meta: object | undefined;
}

export type Handler = (
  call: HandlerCall,
) => Promise<{ content: { type: 'text'; text: string }[]; isError: boolean }>;

/**
 * A handler that notes that it began, takes its time, and notes its effect. It knows nothing of the
 * gate but the key in `_meta`.
 */
export function makeHandler(server: string, append: Append): Handler {
  let executions = 0;
  return async ({ tool, args, run, meta = {} }: HandlerCall) => {
    const attempt = `${server}.${++executions}`;
    const key = Reflect.get(meta, 'mcp-interlock/idempotencyKey') ?? '';
    const call = Reflect.get(meta, CALL) ?? '';
    const line = { attempt, server, run, tool, args, call: String(call), key: String(key) };
    append({ phase: 'start', at: now(), ...line });
    await delay(args.ms);
    const outcome = args.fail === true ? 'failed' : 'succeeded';
    append({ phase: 'end', at: now(), ...line, outcome });
    return { content: [{ type: 'text' as const, text: attempt }], isError: args.fail === true };
  };
}

/** The ledger's file as it is read: each look goes on where the last one ended. */
export class Ledger {
  readonly file: string;
  readonly lines: LedgerLine[] = [];
  readonly #open = new Map<string, LedgerLine>();
  readonly #endedKeys = new Set<string>();
  #offset = 0;
  #rest = '';

  constructor(file: string) {
    this.file = file;
    appendFileSync(file, '');
  }

  /** The executions, in the order in which they began. */
  get begun(): LedgerLine[] {
    return this.refresh().lines.filter(({ phase }) => phase === 'start');
  }

  /** Whether a handler that was given this key has had its effect. */
  hasEffect(key: string): boolean {
    this.refresh();
    return this.#endedKeys.has(key);
  }

  /** The executions that have begun and not ended. */
  get open(): LedgerLine[] {
    this.refresh();
    return [...this.#open.values()];
  }

  refresh(): this {
    const lines = (this.#rest + this.#readOn()).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const read = lineOf(line);
      if (read !== undefined) this.#note(read);
    }
    return this;
  }

  #readOn(): string {
    const file = openSync(this.file, 'r');
    try {
      const bytes = Buffer.alloc(fstatSync(file).size - this.#offset);
      const count = readSync(file, bytes, 0, bytes.length, this.#offset);
      this.#offset += count;
      return bytes.toString('utf8', 0, count);
    } finally {
      closeSync(file);
    }
  }

  #note(line: LedgerLine): void {
    this.lines.push(line);
    if (line.phase === 'start') this.#open.set(line.attempt, line);
    else {
      this.#open.delete(line.attempt);
      this.#endedKeys.add(line.key);
    }
  }
}

/** `undefined` for one that was cut off: its handler was killed before that was written down. */
function lineOf(text: string): LedgerLine | undefined {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
