import { type AnyBinding, isVisibleIn } from './binding.ts';
import type { Model } from './position.ts';

/** The bound tools that are shown in a state. States that show the same tools share one. */
export interface ToolView {
  readonly list: readonly string[];
  readonly set: ReadonlySet<string>;
}

const NOTHING: ToolView = { list: Object.freeze([]), set: new Set() };

/** A statechart's states are combinations: a process remembers no more of them than this. */
const MOST_VIEWS = 10_000;

/** What each state shows, worked out once. */
export class ToolViews {
  readonly #model: Model;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly #byState = new Map<string, ToolView>();
  readonly #byTools = new Map<string, ToolView>([['[]', NOTHING]]);

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    this.#tools = tools;
  }

  /** An unknown state shows nothing. */
  of(state: string): ToolView {
    const known = this.#byState.get(state);
    if (known !== undefined) return known;
    if (!this.#model.has(state)) return NOTHING;
    const shown = [...this.#tools].filter(([, bindings]) =>
      isVisibleIn(this.#model, bindings, state),
    );
    const view = this.#shared(shown.map(([tool]) => tool));
    if (this.#byState.size >= MOST_VIEWS) this.#byState.clear();
    this.#byState.set(state, view);
    return view;
  }

  #shared(list: readonly string[]): ToolView {
    const key = JSON.stringify(list);
    const view = this.#byTools.get(key) ?? { list: Object.freeze(list), set: new Set(list) };
    this.#byTools.set(key, view);
    return view;
  }
}
