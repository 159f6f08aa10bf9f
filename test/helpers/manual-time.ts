/** A clock that moves when a test says so. */
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
