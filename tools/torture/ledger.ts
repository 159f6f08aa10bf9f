import { appendFileSync, closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** What a handler writes down when it starts, and when it has had its effect. */
export interface LedgerLine {
  readonly phase: 'start' | 'end';
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** Names one execution of a handler. */
  readonly attempt: string;
  /** The server process. */
  readonly server: string;
  readonly run: string;
  readonly tool: string;
  /** The state that the call was let through in. */
  readonly state: string;
  /** The client's number for the step: duplicates and repetitions of one step share it. */
  readonly step: number;
  /** The idempotency key as `currentStep()` gives it. */
  readonly key: string;
  /** The idempotency key as it came in the call's `_meta`. */
  readonly metaKey: string;
}

/**
 * Appends with O_APPEND, in one write: lines of many processes do not mix, their order is the order in which they were
 * written, and they are there after a `kill -9`.
 */
export function appendLine(file: string, line: LedgerLine): void {
  appendFileSync(file, `${JSON.stringify(line)}\n`);
}

/** What has become of one execution of a handler. */
export interface Attempt extends Omit<LedgerLine, 'phase' | 'at' | 'metaKey'> {
  readonly startedAt: number;
  /** Its place among all lines of the ledger. */
  readonly started: number;
  /** The same for its end; `undefined` where it did not come to that. */
  ended?: number;
  readonly metaKey: string;
}

/** The ledger as it is read: each look goes on where the last one ended. */
export class Ledger {
  readonly file: string;
  readonly attempts: Attempt[] = [];
  readonly #byName = new Map<string, Attempt>();
  readonly #endedKeys = new Set<string>();
  #offset = 0;
  #lines = 0;
  #rest = '';

  constructor(file: string) {
    this.file = file;
    appendFileSync(file, '');
  }

  /** Whether a handler that was given this key has had its effect. */
  hasEffect(key: string): boolean {
    this.refresh();
    return this.#endedKeys.has(key);
  }

  /** The servers in which a handler that was given this key has begun and not ended. */
  openedBy(key: string): string[] {
    const open = this.refresh().attempts.filter(
      (each) => each.key === key && each.ended === undefined,
    );
    return open.map(({ server }) => server);
  }

  refresh(): this {
    const lines = (this.#rest + this.#readOn()).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#note(JSON.parse(line));
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

  #note({ phase, at, ...line }: LedgerLine): void {
    const place = this.#lines++;
    if (phase === 'start') {
      const attempt: Attempt = { ...line, startedAt: at, started: place };
      this.#byName.set(line.attempt, attempt);
      this.attempts.push(attempt);
      return;
    }
    const attempt = this.#byName.get(line.attempt);
    if (attempt !== undefined) attempt.ended = place;
    this.#endedKeys.add(line.key);
  }
}
