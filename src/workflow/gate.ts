import { isGate } from '../drivers.ts';
import { InterlockError } from '../errors.ts';
import { isTable, showValue } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import {
  type AnyBinding,
  type BindableTool,
  type BindingOptions,
  bindingWarnings,
  checkBinding,
  eventNamed,
  type Oddity,
  parseBinding,
  parseDeclaration,
  parseEvent,
  rebindingWarnings,
} from './binding.ts';
import { isVisibleIn, senderIn } from './bound-tools.ts';
import {
  Definition,
  emit,
  type GateOptions,
  type Listener,
  type OrderOptions,
  type TransitionListener,
} from './definition.ts';
import type { FsmConfig, WidenedConfig } from './flat-machine.ts';
import type { OrderRules } from './order.ts';
import {
  type BoundStates,
  type FsmAction,
  namesIn,
  type Position,
  type TransitionResult,
} from './position.ts';
import { BoundReads, type ReadOptions } from './reads.ts';
import { adopt, openContext, parseSnapshot, stamped } from './stored.ts';
import { isVeiled, Sight } from './visible.ts';
import { Workflow } from './workflow.ts';
import type {
  XStateContext,
  XStateEvents,
  XStateMachine,
  XStatePaths,
  XStateTags,
  XStateTexts,
} from './xstate.ts';

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
  #definition: Definition;
  readonly #listeners = new Set<Listener>();
  readonly #tools = new Map<string, readonly AnyBinding[]>();
  readonly #reads = new BoundReads();
  readonly #oddities: Oddity[] = [];
  /** What is due with the first move. */
  #due: readonly FsmAction[];
  #workflow: Workflow | undefined;
  #position: Position;
  #updatedAt: number;
  #disposed = false;

  constructor(machine: FsmConfig<S, E> | XStateMachine | Definition, options?: GateOptions) {
    const definition =
      machine instanceof Definition ? machine : Definition.ofMachine(machine, options);
    this.#definition = definition;
    this.#position = stamped(definition.model.start, definition.deployment);
    this.#due = definition.model.startActions;
    this.#updatedAt = definition.now();
  }

  /** See {@link StateMachineGateConstructor.fromOrder}. */
  static fromOrder<K extends string, M extends string>(
    rules: OrderRules<K, M>,
    options?: OrderOptions,
  ): Gate<K | M, K | M, never, string> {
    const definition = Definition.ofOrder(rules, options);
    const gate = new Gate<K | M, K | M, never, string>(definition);
    for (const binding of definition.order?.bindings ?? [])
      gate.#tools.set(binding.tool, [checkBinding(definition.model, binding)]);
    return gate;
  }

  /** The workflow's name, `'workflow'` unless the configuration says otherwise. */
  get id(): string {
    return this.#definition.model.id;
  }

  get currentState(): C {
    return this.#position.state as C;
  }

  get hasBindings(): boolean {
    const { bindsPrompts, bindsResources } = this.#reads;
    return this.#tools.size > 0 || bindsPrompts || bindsResources;
  }

  /**
   * What is odd about the bindings without being wrong, such as an event that no bound state
   * handles.
   */
  get warnings(): readonly string[] {
    return Object.freeze(this.#oddities.map(({ message }) => message));
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
    this.#remember(states);
    this.#reads.addPrompt(this.#definition.model, name, states, options);
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
    this.#remember(states);
    this.#reads.addResource(this.#definition.model, uriPattern, states, options);
    return this;
  }

  /**
   * Whether the tool is visible in the current state. A tool that is not bound always is. The
   * `visible` of a binding is asked about no run, and no principal.
   */
  isToolAllowed(name: string): boolean {
    const bindings = this.#tools.get(name);
    if (bindings === undefined) return true;
    const { model, onError } = this.#definition;
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
    const available = bindings.some(({ states }) => this.#definition.model.isIn(state, states));
    const source = available
      ? senderIn(this.#definition.model, bindings, state, 'success')?.success
      : bindings[0]?.success;
    return eventNamed(source) as E | undefined;
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
    const { position, changed, actions } = this.#definition.model.next(
      this.#position,
      name,
      payload,
    );
    const result = { changed, previousState: from, currentState: position.state };
    if (position !== this.#position)
      [this.#position, this.#updatedAt] = [position, this.#definition.now()];
    if (changed) emit(this.#listeners, { ...result, event: name }, this.#definition.onError);
    const due = [...this.#due, ...actions];
    this.#due = [];
    const { data: context } = openContext(position.context);
    const about = { workflow: this.id, event: name, from, to: position.state, context };
    this.#definition.act(due, about);
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
    const listener = { callback: callback as TransitionListener };
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
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
      adopt(this.#definition.model, this.#definition.deployment, stored),
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
    const copy = new Gate<S, E, T, C, X>(this.#definition);
    for (const [tool, bindings] of this.#tools) copy.#tools.set(tool, bindings);
    copy.#reads.addAll(this.#reads);
    copy.#oddities.push(...this.#oddities);
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
    return !this.#definition.model.isFlat && this.#definition.order === undefined;
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
      definition: this.#definition,
      tools: this.#tools,
      oddities: this.#oddities,
      reads: this.#reads,
      listeners: this.#listeners,
    });
    return this.#workflow;
  }

  #add(declarations: readonly (readonly AnyBinding[])[]): this {
    this.#assertBindable('bindTool');
    for (const { tool } of declarations.flat()) this.#assertFurther(tool);
    this.#remember(declarations.flatMap((each) => each.flatMap(({ states }) => states)));
    const checked = declarations.map((bindings) =>
      bindings.map((binding) => checkBinding(this.#definition.model, binding)),
    );
    for (const bindings of checked) {
      const tool = bindings[0]?.tool;
      if (tool === undefined) continue;
      const known = this.#tools.get(tool) ?? [];
      this.#tools.set(tool, [...known, ...bindings]);
      this.#oddities.push(
        ...rebindingWarnings(this.#definition.model, known, bindings),
        ...bindings.flatMap((binding) => bindingWarnings(this.#definition.model, binding)),
      );
    }
    return this;
  }

  /**
   * What a binding names must be remembered. Of rules of order that is not all they name: where
   * nothing depends on a success, its call needs no claim.
   */
  #remember(states: unknown): void {
    const before = this.#definition.order;
    const named: readonly unknown[] = Array.isArray(states) ? states : [states];
    this.#definition = this.#definition.remembering(named.flatMap(namesIn));
    const { order } = this.#definition;
    if (before === undefined || order === undefined || order === before) return;
    for (const binding of order.bindings) {
      const { tool } = binding;
      const old = before.bindings.find((each) => each.tool === tool);
      const known = this.#tools.get(tool) ?? [];
      const others = known.filter((each) => each !== old);
      this.#tools.set(tool, [binding, ...others]);
    }
  }

  /** A binding adds to the others of its tool: it would open what a rule closes. */
  #assertFurther(tool: string): void {
    if (this.#definition.order?.names.includes(tool) !== true) return;
    const message = `tool ${showValue(tool)} is one of the rules of workflow "${this.id}"`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', `${message}: say there when it is available`);
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

/** The ways to make a gate, so that each infers its names. */
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
  /**
   * Of rules of the kind "this tool after that one", without a machine: what counts is which tools
   * have succeeded. A tool that is only named is always available. A run's state is the set of what
   * is done, as text: `{checkout, verify_identity}`. Bindings on top name the tools: `bindPrompt(
   * 'receipt', 'pay')`.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for rules of the wrong shape, and for those by
   * which a tool could never be called
   */
  fromOrder<const K extends string, const M extends string = never>(
    rules: OrderRules<K, M>,
    options?: OrderOptions,
  ): Gate<K | M, K | M, never, string>;
  readonly prototype: Gate;
}

/**
 * A workflow: a state machine, and the tools bound to its states.
 *
 * Mounted with `fsmGate()` it is a template: every run has its own position, and the gate's own
 * never moves. On its own it is one run, which `transition()` moves.
 */
export const StateMachineGate: StateMachineGateConstructor = Gate;

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is no gate, with how to make one of it */
export function assertGate(what: string, value: unknown): asserts value is StateMachineGate {
  if (value instanceof Gate) return;
  const isMachine = isTable(value) && ('initial' in value || 'states' in value);
  const hint =
    value === Gate || isMachine
      ? `; write ${what.replace('()', '(new StateMachineGate(machine))')}`
      : isGate(value)
        ? ' of another copy of mcp-interlock, of which the app must have one version alone'
        : '';
  const given = value === Gate ? 'the class itself' : isMachine ? 'a machine' : showValue(value);
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `${what}: the first argument must be a StateMachineGate, got ${given}${hint}`,
  );
}
