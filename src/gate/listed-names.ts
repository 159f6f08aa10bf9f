import { nearestName } from '../nearest.ts';

/** Never more names than this are remembered of an upstream that keeps making up new ones. */
const MAX_NAMES = 10_000;

/** What an upstream lists of one kind, to warn of bindings that gate nothing. */
export class ListedNames {
  readonly #gate: string;
  readonly #bound: readonly string[];
  readonly #onWarning: (warning: string) => void;
  readonly #names = new Set<string>();
  #checked = false;

  constructor(gate: string, bound: readonly string[], onWarning: (warning: string) => void) {
    this.#gate = gate;
    this.#bound = bound;
    this.#onWarning = onWarning;
  }

  /** Takes note of one page, as the upstream sent it. */
  note(names: Iterable<string>, isLastPage: boolean): void {
    for (const name of names) if (this.#names.size < MAX_NAMES) this.#names.add(name);
    if (!isLastPage || this.#checked) return;
    this.#checked = true;
    for (const bound of this.#bound) if (!this.#names.has(bound)) this.#warnOf(bound);
  }

  #warnOf(bound: string): void {
    const nearest = nearestName(bound, this.#names);
    this.#onWarning(
      `the gate "${this.#gate}" binds "${bound}", which the upstream does not list, so nothing is gated by it` +
        (nearest === undefined ? '.' : `. Did you mean "${nearest}"?`),
    );
  }
}
