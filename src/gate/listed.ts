import { nearestName } from '../nearest.ts';
import type { Uncertain } from '../stores/store.ts';
import { isObject } from '../wire/json-rpc.ts';
import { ToolHints } from '../wire/upstream-list.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** Never more names than this are remembered of an upstream that keeps making up new ones. */
const MAX_NAMES = 10_000;

type Warn = (warning: string) => void;

/** What an upstream lists of one kind, to warn of bindings that gate nothing. */
export class ListedNames {
  readonly #gate: string;
  readonly #bound: readonly string[];
  readonly #names = new Set<string>();
  #checked = false;

  constructor(gate: string, bound: readonly string[]) {
    this.#gate = gate;
    this.#bound = bound;
  }

  /** Takes note of one page, as the upstream sent it. `warn` is told once, at the last one, of what is bound and not listed. */
  note(page: readonly unknown[], isLastPage: boolean, warn: Warn): void {
    for (const element of page) {
      const name = isObject(element) ? element.name : undefined;
      if (typeof name === 'string' && this.#names.size < MAX_NAMES) this.#names.add(name);
    }
    if (!isLastPage || this.#checked) return;
    this.#checked = true;
    for (const bound of this.#bound) if (!this.#names.has(bound)) warn(this.#missing(bound));
  }

  #missing(bound: string): string {
    const nearest = nearestName(bound, this.#names);
    return (
      `the gate "${this.#gate}" binds "${bound}", which the upstream does not list, so nothing is gated by it` +
      (nearest === undefined ? '.' : `. Did you mean "${nearest}"?`)
    );
  }
}

/** What the upstream's lists have taught this process about its tools. */
export class ListedTools {
  readonly #names: ListedNames;
  readonly #hints = new ToolHints();

  constructor({ id, toolNames }: Workflow) {
    this.#names = new ListedNames(id, toolNames);
  }

  /** As {@link ListedNames.note}. */
  note(page: readonly unknown[], isLastPage: boolean, warn: Warn): void {
    this.#hints.note(page);
    this.#names.note(page, isLastPage, warn);
  }

  /** What may happen after an unknown outcome, by the tool's annotations. Not to be repeated, until a list has said otherwise. */
  uncertainOf(tool: string): Uncertain {
    return this.#hints.isRepeatable(tool) ? 'retry' : 'hold';
  }
}
