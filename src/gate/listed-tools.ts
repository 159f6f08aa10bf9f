import type { Uncertain } from '../stores/store.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { ListedNames } from './listed-names.ts';

/** Never more tools than this are remembered of an upstream that keeps making up new ones. */
const MAX_TOOLS = 10_000;

/** What the upstream's lists have taught this process about its tools. */
export class ListedTools {
  readonly #names: ListedNames;
  readonly #repeatable = new Map<string, boolean>();

  constructor({ id, toolNames }: Workflow, onWarning: (warning: string) => void) {
    this.#names = new ListedNames(id, toolNames, onWarning);
  }

  /** Takes note of one page, as the upstream sent it. */
  note(tools: readonly unknown[], isLastPage: boolean): void {
    const names: string[] = [];
    for (const tool of tools) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue;
      names.push(tool.name);
      if (this.#repeatable.size >= MAX_TOOLS) continue;
      const hints = isObject(tool.annotations) ? tool.annotations : {};
      this.#repeatable.set(tool.name, hints.idempotentHint === true || hints.readOnlyHint === true);
    }
    this.#names.note(names, isLastPage);
  }

  /** What may happen after an unknown outcome, by the tool's annotations. Not to be repeated, until a list has said otherwise. */
  uncertainOf(tool: string): Uncertain {
    return this.#repeatable.get(tool) === true ? 'retry' : 'hold';
  }
}
