import { nearestName } from '../nearest.ts';
import type { Uncertain } from '../stores/store.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** Never more names than this are remembered of an upstream that keeps making up new ones. */
const MAX_NAMES = 10_000;

/** What the upstream's lists have taught this process about its tools. */
export class ListedTools {
  readonly #workflow: Workflow;
  readonly #onWarning: (warning: string) => void;
  readonly #names = new Set<string>();
  readonly #repeatable = new Map<string, boolean>();
  #checked = false;

  constructor(workflow: Workflow, onWarning: (warning: string) => void) {
    this.#workflow = workflow;
    this.#onWarning = onWarning;
  }

  /** Takes note of one page, as the upstream sent it. */
  note(tools: readonly unknown[], isLastPage: boolean): void {
    for (const tool of tools) {
      if (!isObject(tool) || typeof tool.name !== 'string' || this.#names.size >= MAX_NAMES) continue;
      this.#names.add(tool.name);
      const hints = isObject(tool.annotations) ? tool.annotations : {};
      this.#repeatable.set(tool.name, hints.idempotentHint === true || hints.readOnlyHint === true);
    }
    if (isLastPage && !this.#checked) this.#warnOfUnlisted();
  }

  /** What may happen after an unknown outcome, by the tool's annotations. Not to be repeated, until a list has said otherwise. */
  uncertainOf(tool: string): Uncertain {
    return this.#repeatable.get(tool) === true ? 'retry' : 'hold';
  }

  #warnOfUnlisted(): void {
    this.#checked = true;
    for (const bound of this.#workflow.toolNames) {
      if (this.#names.has(bound)) continue;
      const nearest = nearestName(bound, [...this.#names]);
      this.#onWarning(
        `the gate "${this.#workflow.id}" binds "${bound}", which the upstream does not list, so nothing is gated by it` +
          (nearest === undefined ? '.' : `. Did you mean "${nearest}"?`),
      );
    }
  }
}
