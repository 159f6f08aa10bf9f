/** A clock without timers that stands still until a test moves it. */
export class ManualTime {
  #now: number;

  constructor(start = 1_700_000_000_000) {
    this.#now = start;
  }

  readonly now = (): number => this.#now;

  readonly advance = (ms: number): void => {
    this.#now += ms;
  };
}
