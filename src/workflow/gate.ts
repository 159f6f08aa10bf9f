import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { functionOption, isTable, parseOptions, showValue } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import {
  type AnyBinding,
  type BindableTool,
  type BindingOptions,
  isVisibleIn,
  parseBinding,
  parseDeclaration,
  parseEvent,
  senderIn,
} from './binding.ts';
import { bindingWarnings, checkBinding, rebindingWarnings } from './bound-tools.ts';
import {
  type ActionListener,
  actOn,
  type ErrorListener,
  Listeners,
  type TransitionListener,
} from './callbacks.ts';
import { type FsmConfig, flatModel, parseConfig, type WidenedConfig } from './flat-machine.ts';
import { LoopShield, type LoopShieldOptions } from './loop-shield.ts';
import type { BoundStates, FsmAction, Model, Position, TransitionResult } from './position.ts';
import { BoundReads, type ReadOptions } from './reads.ts';
import { statechartModel } from './statechart.ts';
import {
  adopt,
  type Deployment,
  type Migrate,
  openContext,
  parseSnapshot,
  stamped,
} from './stored.ts';
import { isVeiled, Sight } from './visible.ts';
import { Workflow } from './workflow.ts';
import {
  isXStateMachine,
  type XStateContext,
  type XStateEvents,
  type XStateMachine,
  type XStatePaths,
  type XStateTags,
  type XStateTexts,
} from './xstate.ts';

/** Options of `new StateMachineGate()`. */
export interface GateOptions {
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Told what a callback throws. Default: nobody is. */
  readonly onError?: ErrorListener | undefined;
  /**
   * Does what a statechart's actions name, after the move was saved. Without it a machine that
   * names any is refused.
   */
  readonly onAction?: ActionListener | undefined;
  /**
   * Which deployment of the workflow this is: 1, 2, 3 … Runs of an older one are migrated. Default:
   * none, which counts as 0.
   */
  readonly version?: number | undefined;
  /**
   * Says where a run of an older version, or in a state that is no more, stands now. Default: such
   * a run is refused.
   */
  readonly migrate?: Migrate | undefined;
  /**
   * Stops a model that calls bound tools again and again without a move. Default: nothing does, and
   * nothing is counted.
   */
  readonly loopShield?: LoopShieldOptions | undefined;
}

const gateOptionsSchema = z.strictObject({
  now: z._default(functionOption<() => number>(), () => Date.now),
  onError: z._default(functionOption<ErrorListener>(), () => () => {}),
  onAction: z.optional(functionOption<ActionListener>()),
  version: z.optional(z.int().check(z.minimum(1))),
  migrate: z.optional(functionOption<Migrate>()),
  loopShield: z.optional(z.custom<LoopShieldOptions>(isTable, 'expected an object')),
});

/** What a gate is made of, which never changes: its clones share it. */
class Made {
  readonly model: Model;
  readonly now: () => number;
  readonly deployment: Deployment;
  readonly shield: LoopShield | undefined;
  readonly onAction: ActionListener | undefined;
  readonly onError: ErrorListener;

  constructor(machine: unknown, options: GateOptions | undefined) {
    const what = 'StateMachineGate()';
    const { loopShield, ...rest } = parseOptions(what, gateOptionsSchema, options);
    const { now, onError, onAction, ...deployment } = rest;
    this.model = isXStateMachine(machine)
      ? statechartModel(machine, onAction !== undefined)
      : flatModel(parseConfig(machine));
    this.shield = loopShield === undefined ? undefined : new LoopShield(this.model, loopShield);
    this.now = now;
    this.deployment = deployment;
    this.onAction = onAction;
    this.onError = onError;
  }
}

/**
 * `S` are the names that a binding may give, `E` the events, `T` the tags, `C` what the current
 * state can be, `X` what guards are given of the machine's context.
 */
class Gate<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  C extends string = S,
  X = Json | undefined,
> {
  readonly #made: Made;
  readonly #listeners: Listeners;
  readonly #tools = new Map<string, readonly AnyBinding[]>();
  readonly #reads = new BoundReads();
  readonly #warnings: string[] = [];
  /** What is due with the first move. */
  #due: readonly FsmAction[];
  #workflow: Workflow | undefined;
  #position: Position;
  #updatedAt: number;
  #disposed = false;

  constructor(machine: FsmConfig<S, E> | XStateMachine | Made, options?: GateOptions) {
    const made = machine instanceof Made ? machine : new Made(machine, options);
    this.#made = made;
    this.#listeners = new Listeners(made.onError);
    this.#position = stamped(made.model.start, made.deployment);
    this.#due = made.model.startActions;
    this.#updatedAt = made.now();
  }

  /** The workflow's name, `'workflow'` unless the configuration says otherwise. */
  get id(): string {
    return this.#made.model.id;
  }

  get currentState(): C {
    return this.#position.state as C;
  }

  get hasBindings(): boolean {
    return this.#tools.size > 0 || !this.#reads.isEmpty;
  }

  /**
   * What is odd about the bindings without being wrong, such as an event that no bound state
   * handles.
   */
  get warnings(): readonly string[] {
    return Object.freeze([...this.#warnings]);
  }

  /**
   * Makes a tool available in `states`, and there only; a successful call of it sends `event`.
   * Binding a tool again adds to its bindings and replaces none; without `when` that is warned of.
   * A tool that was never bound is always available.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for an unknown state or tag, or once the gate is
   * mounted, `ERR_INTERLOCK_EVENT`
   */
  bindTool(name: string, states: BoundStates<S, T>, event?: E | BindingOptions<E, X, S, T>): this {
    return this.#add([[parseBinding(name, states, event)]]);
  }

  /**
   * Adds the bindings of tools that were declared with `tool()`; all of them, or none if it throws
   * as `bindTool` does.
   */
  bind(...tools: readonly (BindableTool<S, E, T, X> | BindableTool<S, E, T>)[]): this {
    return this.#add(tools.map(parseDeclaration));
  }

  /**
   * Makes a prompt available in `states`, and there only, as `bindTool` does for a tool; getting it
   * moves nothing.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG`
   */
  bindPrompt(name: string, states: BoundStates<S, T>, options?: ReadOptions<X, S, T>): this {
    this.#assertBindable('bindPrompt');
    this.#reads.addPrompt(this.#made.model, name, states, options);
    return this;
  }

  /**
   * The same for the resources whose URI a glob matches: `*` is one segment between slashes, `**`
   * any number, as in `docs://receipts/**`. A resource that several globs match must be allowed by
   * each.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG`
   */
  bindResource(
    uriPattern: string,
    states: BoundStates<S, T>,
    options?: ReadOptions<X, S, T>,
  ): this {
    this.#assertBindable('bindResource');
    this.#reads.addResource(this.#made.model, uriPattern, states, options);
    return this;
  }

  /**
   * Whether the tool is visible in the current state. A tool that is not bound always is. The
   * `visible` of a binding is asked about no run, and no principal.
   */
  isToolAllowed(name: string): boolean {
    const bindings = this.#tools.get(name);
    if (bindings === undefined) return true;
    const { model, onError } = this.#made;
    if (!isVisibleIn(model, bindings, this.#position.state)) return false;
    if (!isVeiled(bindings)) return true;
    const viewer = { run: undefined, principal: undefined, onError };
    const sight = new Sight(model, new Map([[name, bindings]]), viewer, this.#position);
    return !sight.hidden.has(name);
  }

  /** Those of `allTools` that are visible in the current state, in their order. */
  getVisibleToolNames(allTools: readonly string[]): string[] {
    return allTools.filter((name) => this.isToolAllowed(name));
  }

  /**
   * The event that the tool sends in the current state; where it is not available, the one that it
   * is first bound to. `undefined` also where a function of the call's result says which.
   */
  getTransitionEvent(name: string): E | undefined {
    const bindings = this.#tools.get(name) ?? [];
    const { state } = this.#position;
    const available = bindings.some(({ states }) => this.#made.model.isIn(state, states));
    const source = available
      ? senderIn(this.#made.model, bindings, state, 'success')?.success
      : bindings[0]?.success;
    return typeof source === 'string' ? (source as E) : undefined;
  }

  /**
   * Sends an event. One that the current state does not handle changes nothing and is no error.
   *
   * @param payload for a statechart: the properties of an object become the event's own
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string,
   * `ERR_INTERLOCK_DISPOSED`; and whatever a statechart's own code throws
   */
  async transition(event: E, payload?: Json): Promise<TransitionResult<C>> {
    this.#assertUsable('transition');
    const name = parseEvent('transition()', event);
    const { state: from } = this.#position;
    const { position, changed, actions } = this.#made.model.next(this.#position, name, payload);
    const result = { changed, previousState: from, currentState: position.state };
    if (position !== this.#position)
      [this.#position, this.#updatedAt] = [position, this.#made.now()];
    if (changed) this.#listeners.emit({ ...result, event: name });
    const due = [...this.#due, ...actions];
    this.#due = [];
    const { data: context } = openContext(position.context);
    const about = { workflow: this.id, event: name, from, to: position.state, context };
    actOn(due, about, this.#made.onAction, this.#made.onError);
    return result as TransitionResult<C>;
  }

  /**
   * Calls back after each change of state, with the run's key where the gate is mounted.
   *
   * @returns a function that stops it
   */
  onTransition(callback: TransitionListener<C>): () => void {
    this.#assertUsable('onTransition');
    if (typeof callback !== 'function') {
      const message = `onTransition(): expected a function, got ${showValue(callback)}`;
      throw new InterlockError('ERR_INTERLOCK_CONFIG', message);
    }
    return this.#listeners.add(callback as TransitionListener);
  }

  /** The current position, to be kept anywhere that keeps JSON. */
  snapshot(): FsmSnapshot {
    return { ...this.#position, updatedAt: this.#updatedAt };
  }

  /**
   * Goes back to a kept position. @throws InterlockError `ERR_INTERLOCK_SNAPSHOT`,
   * `ERR_INTERLOCK_DISPOSED`
   */
  restore(snapshot: FsmSnapshot): void {
    this.#assertUsable('restore');
    const { updatedAt, version: _, ...stored } = parseSnapshot(this.id, snapshot);
    [this.#position, this.#updatedAt] = [
      adopt(this.#made.model, this.#made.deployment, stored),
      updatedAt,
    ];
    this.#due = [];
  }

  /**
   * Another gate of the same machine, bindings and options, at the same position. It moves and is
   * bound on its own, and has none of the callbacks. The middlewares need none: a gate that is
   * mounted is a template for every run.
   */
  clone(): Gate<S, E, T, C, X> {
    this.#assertUsable('clone');
    const copy = new Gate<S, E, T, C, X>(this.#made);
    for (const [tool, bindings] of this.#tools) copy.#tools.set(tool, bindings);
    copy.#reads.addAll(this.#reads);
    copy.#warnings.push(...this.#warnings);
    [copy.#position, copy.#updatedAt, copy.#due] = [this.#position, this.#updatedAt, this.#due];
    return copy;
  }

  /**
   * Does nothing: a gate is ready once it is made. It is here for code that was written for gates
   * that load XState.
   *
   * @returns whether the machine is one of XState
   */
  async init(): Promise<boolean> {
    return !this.#made.model.isFlat;
  }

  /** Lets go of the callbacks. The gate can still be read, and no longer be used. */
  dispose(): void {
    this.#disposed = true;
    this.#listeners.clear();
  }

  /**
   * What the middleware runs on. From the first call on, no tool can be bound any more; every call
   * returns the same object.
   */
  compile(): Workflow {
    this.#assertUsable('compile');
    this.#workflow ??= new Workflow({
      model: this.#made.model,
      tools: this.#tools,
      warnings: this.#warnings,
      reads: this.#reads,
      listeners: this.#listeners,
      deployment: this.#made.deployment,
      onAction: this.#made.onAction,
      shield: this.#made.shield,
      onError: this.#made.onError,
    });
    return this.#workflow;
  }

  #add(declarations: readonly (readonly AnyBinding[])[]): this {
    this.#assertBindable('bindTool');
    const checked = declarations.map((bindings) =>
      bindings.map((binding) => checkBinding(this.#made.model, binding)),
    );
    for (const bindings of checked) {
      const tool = bindings[0]?.tool;
      if (tool === undefined) continue;
      const known = this.#tools.get(tool) ?? [];
      this.#tools.set(tool, [...known, ...bindings]);
      this.#warnings.push(
        ...rebindingWarnings(this.#made.model, known, bindings),
        ...bindings.flatMap((binding) => bindingWarnings(this.#made.model, binding)),
      );
    }
    return this;
  }

  #assertBindable(method: string): void {
    this.#assertUsable(method);
    if (this.#workflow === undefined) return;
    const message = `workflow "${this.id}" is already mounted: bind its tools before`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', message);
  }

  #assertUsable(method: string): void {
    if (!this.#disposed) return;
    const what = `${method}() of workflow "${this.id}"`;
    throw new InterlockError('ERR_INTERLOCK_DISPOSED', `${what} was called after dispose()`);
  }
}

/** A gate; see {@link StateMachineGate}. */
export type StateMachineGate<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  C extends string = S,
  X = Json | undefined,
> = Gate<S, E, T, C, X>;

/** The two ways to make a gate, so that each infers its names. */
export interface StateMachineGateConstructor {
  /**
   * Of a machine made by XState 5: hierarchy, parallel regions, guards, context, history.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what pure transitions cannot run, such as
   * invoked actors and delays
   */
  new <M extends XStateMachine>(
    machine: M,
    options?: GateOptions,
  ): Gate<XStatePaths<M>, XStateEvents<M>, XStateTags<M>, XStateTexts<M>, XStateContext<M>>;
  /**
   * Of a flat machine whose names TypeScript has widened to strings, as in `const config = { … }`
   * or with `satisfies FsmConfig`: they are checked here.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string, E extends string, N extends string>(
    config: WidenedConfig<S, E, N> & (string extends N ? unknown : never),
    options?: GateOptions,
  ): Gate<S, E>;
  /**
   * Of a flat machine, run by the built-in engine.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string = string, E extends string = string>(
    config: FsmConfig<S, E>,
    options?: GateOptions,
  ): Gate<S, E>;
  readonly prototype: Gate;
}

/**
 * A workflow: a state machine, and the tools bound to its states.
 *
 * Mounted with `fsmGate()` it is a template: every run has its own position, and the gate's own
 * never moves. On its own it is one run, which `transition()` moves.
 */
export const StateMachineGate: StateMachineGateConstructor = Gate;
