/**
 * What one client sees of a run. It hides how the `visible` of several bindings add up, and what
 * such a function may answer or throw.
 */

import { InterlockError } from '../basics/errors.ts';
import { dropRejection, showValue } from '../basics/options.ts';
import type { AnyBinding, RunFacts, ViewedRun, VisibleTest } from './binding.ts';
import { readerBy, readerOf } from './condition.ts';
import { openContext } from './envelope.ts';
import {
  type BoundState,
  type Model,
  type Position,
  parseExpression,
  stateFault,
} from './position.ts';
import type { Test } from './rule-tests.ts';

/** Who looks at a run. */
export interface Viewer {
  /** The run key; `undefined` where a list or a gate is about no run. */
  readonly run: string | undefined;
  readonly principal: string | undefined;
  /** Whose claims are read, where a binding asks for them. Absent where nothing is known. */
  readonly identity?: { readonly claims?: unknown } | undefined;
  /** Called for a `visible` that throws, or answers no boolean. What it is about stays hidden. */
  readonly onError: (error: unknown) => void;
}

/** The part of a binding that says where something is available, and who sees it. */
export interface Veil {
  readonly states: readonly BoundState[];
  readonly visible?: VisibleTest | undefined;
  /** Who sees it, by what is claimed of them. */
  readonly caller?: Test | undefined;
}

/** The bindings of each tool that some client may not see. */
export type VeiledTools = ReadonlyMap<string, readonly AnyBinding[]>;

/** Whether some client may not see one of these bindings. */
export function isVeiled(veils: readonly Veil[]): boolean {
  return veils.some(({ visible, caller }) => visible !== undefined || caller !== undefined);
}

/** What the functions of bindings get about a run at this position, for this caller. */
export function factsOf(
  model: Model,
  { state, context }: Position,
  principal: string | undefined,
): RunFacts {
  return {
    state,
    context: openContext(context).data,
    principal,
    matches(asked) {
      const expression = parseExpression('matches()', asked);
      const isStored = typeof expression === 'string' && model.has(expression);
      const fault = isStored ? undefined : stateFault(model, expression);
      if (fault === undefined) return expression === state || model.isIn(state, [expression]);
      throw new InterlockError('ERR_INTERLOCK_BINDING', `matches(): got ${fault}`);
    },
  };
}

/** What one client sees of a run at one position. Each `visible` is asked once. */
export class Sight {
  readonly #model: Model;
  readonly #tools: VeiledTools;
  readonly #viewer: Viewer;
  readonly #position: Position;
  readonly #run: ViewedRun;
  readonly #said = new Map<Veil, boolean>();
  #hidden: ReadonlySet<string> | undefined;

  constructor(model: Model, tools: VeiledTools, viewer: Viewer, position: Position) {
    this.#model = model;
    this.#tools = tools;
    this.#viewer = viewer;
    this.#position = position;
    const { run, principal } = viewer;
    const facts = factsOf(model, position, principal);
    this.#run = Object.freeze({ ...facts, ...(run !== undefined && { run }) });
  }

  /** The tools that the run's state shows, but not to this client. */
  get hidden(): ReadonlySet<string> {
    this.#hidden ??= this.#without((tool, bindings) => this.opens(tool, bindings));
    return this.#hidden;
  }

  /** The tools that this client does not see even in a list of the tools of all states. */
  get unlisted(): ReadonlySet<string> {
    return this.#without((name, veils) => this.lists({ name, veils }));
  }

  /** Whether one of the bindings lets the client see it, in any state. */
  lists({ name, veils }: { readonly name: string; readonly veils: readonly Veil[] }): boolean {
    return veils.some((each) => this.#says(name, each));
  }

  /**
   * Whether the client may use what these bindings are about: one of them is available in the run's
   * state, and lets the client see it.
   */
  opens(name: string, veils: readonly Veil[]): boolean {
    const { state } = this.#position;
    return veils.some((each) => this.#model.isIn(state, each.states) && this.#says(name, each));
  }

  /** What the same client would see of the run at another position. */
  at(position: Position): Sight {
    // A way through a flat machine names states only: the run keeps its data.
    const { context } = this.#position;
    const there =
      this.#model.isFlat && context !== undefined ? { state: position.state, context } : position;
    return new Sight(this.#model, this.#tools, this.#viewer, there);
  }

  #without(isSeen: (tool: string, bindings: readonly AnyBinding[]) => boolean): Set<string> {
    // A call that no binding is about is valid, so a tool with such calls is always shown.
    const hidden = [...this.#tools].filter(
      ([tool, bindings]) =>
        !bindings.every(({ when }) => when !== undefined) && !isSeen(tool, bindings),
    );
    return new Set(hidden.map(([tool]) => tool));
  }

  #says(name: string, veil: Veil): boolean {
    const { visible, caller } = veil;
    if (caller !== undefined) {
      const own = readerBy(readerOf({}), this.#viewer.identity?.claims);
      if (caller.test(own) !== true) return false;
    }
    if (visible === undefined) return true;
    const known = this.#said.get(veil);
    if (known !== undefined) return known;
    const said = this.#ask(name, visible);
    this.#said.set(veil, said);
    return said;
  }

  #ask(name: string, visible: VisibleTest): boolean {
    try {
      const said: unknown = visible(this.#run);
      if (typeof said === 'boolean') return said;
      dropRejection(said);
      throw new Error(`a "visible" of ${showValue(name)} returned ${showValue(said)}, no boolean`);
    } catch (error) {
      this.#viewer.onError(error);
      return false;
    }
  }
}
