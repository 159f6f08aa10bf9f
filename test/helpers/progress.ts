/**
 * How far a long program is, and how long it will still take. Hides how that is shown: a terminal
 * has one line that is written again and again, a log has a line for each finished part. All of it
 * goes to standard error, so that standard output has the results alone.
 */
import { type Clock, systemClock, waitWords } from '../../src/basics/clock.ts';

export interface Part {
  readonly name: string;
  /** How long it is planned to take. Else finished parts tell. */
  readonly ms?: number;
  /** Parts of one kind take about as long as each other, and say nothing of other kinds. */
  readonly kind?: string;
}

/** As a `WriteStream` of Node. */
interface Stream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface ProgressOptions {
  readonly to?: Stream;
  readonly results?: Stream;
  readonly clock?: Clock;
}

const REWRITTEN_EACH_MS = 1_000;
/** In a log, a part that goes on for longer is named again. */
const LOGGED_EACH_MS = 30_000;
const ERASED = '\r\u001b[K';

/** The first part begins when it is made. */
export class Progress {
  readonly #parts: readonly Part[];
  readonly #to: Stream;
  readonly #results: Stream;
  readonly #clock: Clock;
  readonly #isRewritten: boolean;
  readonly #began: number;
  /** How long each finished part took; `undefined` where there was nothing to do. */
  readonly #took: (number | undefined)[] = [];
  #partBegan: number;
  #cancelTick = (): void => {};

  constructor(
    parts: readonly Part[],
    { to = process.stderr, results = process.stdout, clock = systemClock }: ProgressOptions = {},
  ) {
    this.#parts = parts;
    this.#to = to;
    this.#results = results;
    this.#clock = clock;
    // A dumb terminal cannot erase a line.
    this.#isRewritten = to.isTTY === true && process.env.TERM !== 'dumb';
    this.#began = this.#partBegan = clock.now();
    if (this.#isRewritten) this.#show();
    this.#tickLater();
  }

  /** The part is over, and the next one begins. Where it had nothing to do, no estimate uses it. */
  done({ hadNothingToDo = false } = {}): void {
    const now = this.#clock.now();
    this.#took.push(hadNothingToDo ? undefined : now - this.#partBegan);
    this.#partBegan = now;
    if (!this.#isRewritten) this.#show(' done', this.#took.length - 1);
    else if (this.#took.length < this.#parts.length) this.#show();
    this.#tickLater();
  }

  /** Prints a result. It stands above the line of the terminal. */
  print(text: string): void {
    this.#erase();
    this.#results.write(`${text}\n`);
    if (this.#isRewritten) this.#show();
  }

  /** Nothing is shown from now on. */
  end(): void {
    this.#cancelTick();
    this.#erase();
  }

  #tickLater(): void {
    this.#cancelTick();
    if (this.#took.length === this.#parts.length) return;
    const ms = this.#isRewritten ? REWRITTEN_EACH_MS : LOGGED_EACH_MS;
    this.#cancelTick = this.#clock.after(ms, () => {
      this.#show();
      this.#tickLater();
    });
  }

  #show(state = '', at = this.#took.length): void {
    const part = this.#parts[at];
    if (part === undefined) return;
    const left = this.#left();
    const line =
      `${at + 1} of ${this.#parts.length}${state}  ${part.name}  ` +
      waitWords(this.#clock.now() - this.#began) +
      (left > 0 ? `, about ${leftWords(left)} left` : '');
    // A line that wraps could not be erased. What others write then begins where the line does.
    const fitting = line.slice(0, (this.#to.columns || 80) - 1);
    this.#to.write(this.#isRewritten ? `${ERASED}${fitting}\r` : `${line}\n`);
  }

  #erase(): void {
    if (this.#isRewritten) this.#to.write(ERASED);
  }

  /** Not a number where it is not known of one of the parts. */
  #left(): number {
    const [current, ...later] = this.#parts.slice(this.#took.length);
    if (current === undefined) return 0;
    const spent = this.#clock.now() - this.#partBegan;
    const expected = this.#expected(current);
    // Then what finished parts took says nothing of this one.
    if (current.ms === undefined && spent > 2 * expected) return Number.NaN;
    return later.reduce((sum, part) => sum + this.#expected(part), Math.max(0, expected - spent));
  }

  /** What the plan says, or the mean of the finished parts of the same kind. */
  #expected({ ms, kind }: Part): number {
    if (ms !== undefined) return ms;
    const alike = this.#took.filter((_, at) => this.#parts[at]?.kind === kind);
    const lasted = alike.filter((took) => took !== undefined);
    if (kind !== undefined && alike.length > 0 && lasted.length === 0) return 0;
    return lasted.reduce((sum, took) => sum + took, 0) / lasted.length;
  }
}

/** Whole minutes, or tens of seconds: it is only about right. */
function leftWords(ms: number): string {
  const step = ms > 60_000 ? 60_000 : 10_000;
  return waitWords(Math.ceil(ms / step) * step);
}
