import type { FsmSnapshot } from '../stores/store.ts';
import { type Binding, isVisibleIn } from './binding.ts';
import { bindingsOfCall, type CallBinding, combine } from './call.ts';
import type { ErrorListener, Listeners } from './listeners.ts';
import { type Reach, reachFrom, shortestPath } from './reach.ts';
import { parseSnapshot } from './snapshot.ts';
import { type Machine, type Move, nextState } from './transition.ts';

/** What a {@link Workflow} is made of. */
export interface WorkflowParts {
  readonly machine: Machine;
  /** By tool, in binding order; no list is empty. */
  readonly tools: ReadonlyMap<string, readonly Binding[]>;
  readonly warnings: readonly string[];
  readonly listeners: Listeners;
}

/** The bound tools that are shown in a state. States that show the same tools share one. */
interface View {
  readonly list: readonly string[];
  readonly set: ReadonlySet<string>;
}

const NOTHING: View = { list: Object.freeze([]), set: new Set() };

/**
 * A gate as the middleware uses it for every request of every run: unchanging, without a current state of its own, and
 * quick, since what depends on the machine alone is worked out once.
 */
export class Workflow {
  readonly id: string;
  readonly initial: string;
  /** Every state's name, in the order of the definition. */
  readonly states: readonly string[];
  /** Every bound tool's name, in binding order. */
  readonly toolNames: readonly string[];
  readonly warnings: readonly string[];

  readonly #machine: Machine;
  readonly #tools: ReadonlyMap<string, readonly Binding[]>;
  readonly #listeners: Listeners;
  readonly #unconditional: ReadonlyMap<string, CallBinding>;
  readonly #views = new Map<string, View>();
  readonly #viewsByTools = new Map<string, View>([['[]', NOTHING]]);
  readonly #reach = new Map<string, Reach>();

  constructor({ machine, tools, warnings, listeners }: WorkflowParts) {
    this.id = machine.id;
    this.initial = machine.initial;
    this.states = Object.freeze([...machine.states.keys()]);
    this.#tools = new Map([...tools].map(([tool, bindings]) => [tool, [...bindings]]));
    this.toolNames = Object.freeze([...this.#tools.keys()]);
    this.warnings = Object.freeze([...warnings]);
    this.#machine = machine;
    this.#listeners = listeners;
    this.#unconditional = combineUnconditional(this.#tools);
    Object.freeze(this);
  }

  hasState(name: string): boolean {
    return this.#machine.states.has(name);
  }

  /** The state after `event`; the same one where it is not handled. */
  next(state: string, event: string): string {
    return nextState(this.#machine, state, event);
  }

  isBound(tool: string): boolean {
    return this.#tools.has(tool);
  }

  /** The states that some binding of the tool names, in the order of the bindings. */
  statesOf(tool: string): readonly string[] {
    return [...new Set((this.#tools.get(tool) ?? []).flatMap(({ states }) => states))];
  }

  /** Whether every binding of the tool is about some of its calls only. */
  isGrouped(tool: string): boolean {
    return (this.#tools.get(tool) ?? []).every(({ when }) => when !== undefined);
  }

  /** Whether the tool is shown in `state`. A tool that is not bound always is; a bound one never is in an unknown state. */
  isVisible(tool: string, state: string): boolean {
    return !this.#tools.has(tool) || this.#view(state).set.has(tool);
  }

  /** The bound tools that are shown in `state`, in binding order. */
  available(state: string): readonly string[] {
    return this.#view(state).list;
  }

  /** Whether two states show the same tools, so that nobody need list them anew. */
  sameTools(a: string, b: string): boolean {
    return this.#view(a) === this.#view(b);
  }

  /**
   * How a call is gated; `undefined` where it is not: the tool is not bound, or no binding is about these arguments.
   *
   * @throws Error where that cannot be told. The call must be refused then.
   */
  match(tool: string, args: unknown): CallBinding | undefined {
    const bindings = this.#tools.get(tool);
    if (bindings === undefined) return undefined;
    const unconditional = this.#unconditional.get(tool);
    if (unconditional !== undefined) return unconditional;
    const matching = bindingsOfCall(bindings, args);
    return matching.length === 0 ? undefined : combine(matching);
  }

  /**
   * The tools to call, in order, to get from one state to the nearest of `states`: as few as possible, none where it is
   * there already. `undefined` where calling tools does not lead there.
   */
  pathTo(states: readonly string[], from: string): readonly string[] | undefined {
    if (!this.hasState(from)) return undefined;
    let reach = this.#reach.get(from);
    if (reach === undefined) {
      reach = reachFrom(this.#machine, this.#tools, from);
      this.#reach.set(from, reach);
    }
    return shortestPath(reach, states);
  }

  /** A checked copy of a snapshot that a store gave. @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` */
  parseSnapshot(value: unknown): FsmSnapshot {
    return parseSnapshot(this.#machine, value);
  }

  /** Calls the gate's `onTransition` callbacks if the state changed. Never throws: `onError` is told what they throw. */
  emit(move: Move, onError?: ErrorListener): void {
    if (move.changed) this.#listeners.emit(move, onError);
  }

  #view(state: string): View {
    if (!this.hasState(state)) return NOTHING;
    let view = this.#views.get(state);
    if (view === undefined) {
      view = this.#shared(this.toolNames.filter((tool) => isVisibleIn(this.#tools.get(tool) ?? [], state)));
      this.#views.set(state, view);
    }
    return view;
  }

  #shared(list: readonly string[]): View {
    const key = JSON.stringify(list);
    const view = this.#viewsByTools.get(key) ?? { list: Object.freeze(list), set: new Set(list) };
    this.#viewsByTools.set(key, view);
    return view;
  }
}

/** The tools that are gated in one and the same way whatever their arguments. */
function combineUnconditional(tools: ReadonlyMap<string, readonly Binding[]>): Map<string, CallBinding> {
  const always = [...tools].filter(([, bindings]) => bindings.every(({ when }) => when === undefined));
  return new Map(always.map(([tool, bindings]) => [tool, combine(bindings)]));
}
