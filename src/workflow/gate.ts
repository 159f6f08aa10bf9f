/**
 * The gate that an app makes, binds and mounts. It hides how machine and bindings become what the
 * middlewares run on.
 */

import { atCaller, configError, InterlockError } from '../basics/errors.ts';
import { Globs, type matchGlob } from '../basics/glob.ts';
import { isGate, isRequest, isTable, showValue } from '../basics/options.ts';
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
import { bareContext, openContext } from './envelope.ts';
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
import { adopt, arrived, parseSnapshot, stamped } from './stored.ts';
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
 * Its type parameters:
 * - `S`: the states that a binding may name;
 * - `E`: the events;
 * - `T`: the tags;
 * - `C`: what `currentState` can be;
 * - `X`: the machine's context, as guards see it.
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
  /** The actions of entering the first states, which the first move brings along. */
  #due: readonly FsmAction[];
  #workflow: Workflow | undefined;
  #position: Position;
  #updatedAt: number;
  #disposed = false;

  /** @internal */
  constructor(machine: FsmConfig<S, E> | XStateMachine | Definition, options?: GateOptions) {
    const definition =
      machine instanceof Definition
        ? machine
        : atCaller(new.target, () => Definition.ofMachine(machine, options));
    this.#definition = definition;
    this.#position = stamped(definition.model.start, definition.deployment);
    this.#due = definition.model.startActions;
    this.#updatedAt = definition.now();
  }

  /** See {@link StateMachineGateConstructor.fromOrder}. */
  static fromOrder<
    K extends string,
    M extends string,
    D extends string,
    N extends string,
    O extends string,
  >(
    rules: OrderRules<K, M, D, O>,
    options?: OrderOptions<N, D, O>,
  ): Gate<K | M | N | O, K | M | N | O, never, string> {
    const definition = atCaller(Gate.fromOrder, () => Definition.ofOrder(rules, options));
    const gate = new Gate<K | M | N | O, K | M | N | O, never, string>(definition);
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

  /** What is odd about the bindings, though allowed: an event that no bound state handles. */
  get warnings(): readonly string[] {
    return Object.freeze(this.#oddities.map(({ message }) => message));
  }

  /**
   * Makes a tool available in `states` only; a successful call of it sends `event`. Binding a tool
   * again adds a binding and replaces none; without `when`, {@link warnings} reports it. A tool
   * that was never bound is always available.
   *
   * @param name of a tool, or a glob as {@link matchGlob} has them. A glob binds each tool that it
   * matches and that no name binds.
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for an unknown state or tag, or once the
   * gate is mounted, `ERR_INTERLOCK_EVENT`
   */
  bindTool(name: string, states: BoundStates<S, T>, event?: E | BindingOptions<E, X, S, T>): this {
    return atCaller(this.bindTool, () => this.#add([[parseBinding(name, states, event)]]));
  }

  /**
   * Adds the bindings of tools that `tool()` declared. Throws as `bindTool` does, and then adds
   * none.
   */
  bind(...tools: readonly (BindableTool<S, E, T, X> | BindableTool<S, E, T>)[]): this {
    return atCaller(this.bind, () => this.#add(tools.map(parseDeclaration)));
  }

  /**
   * Makes a prompt available in `states` only, as `bindTool` does for a tool. Getting it moves no
   * run.
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
   * Makes the resources whose URI a glob matches available in `states` only. `*` is one segment
   * between slashes, `**` any number, as in `docs://receipts/**`. Each glob that matches a resource
   * must allow it.
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
   * Whether the tool is visible in the current state. A tool that is not bound always is. A
   * binding's `visible` is asked without a run and without a principal.
   */
  isToolAllowed(name: string): boolean {
    const bindings = this.#bindingsOf(name);
    if (bindings.length === 0) return true;
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
   * The event that a success of the tool sends in the current state; where the tool is not
   * available, that of its first binding. `undefined` where a function of the call chooses the
   * event.
   */
  getTransitionEvent(name: string): E | undefined {
    const bindings = this.#bindingsOf(name);
    const { state } = this.#position;
    const available = bindings.some(({ states }) => this.#definition.model.isIn(state, states));
    const source = available
      ? senderIn(this.#definition.model, bindings, state, 'success')?.success
      : bindings[0]?.success;
    return eventNamed(source) as E | undefined;
  }

  /**
   * Sends an event. An event that the current state does not handle changes nothing, without error.
   *
   * @param payload for a statechart: the properties of an object become the event's own
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string,
   * `ERR_INTERLOCK_DISPOSED`; Error where a statechart's own code throws one
   */
  async transition(event: E, payload?: Json): Promise<TransitionResult<C>> {
    this.#assertUsable('transition');
    const name = parseEvent('transition()', event);
    const { state: from } = this.#position;
    const next = arrived(this.#definition.model.next(this.#position, name, payload));
    const { position, changed, reentered = false, actions } = next;
    const result = { changed, previousState: from, currentState: position.state };
    if (position !== this.#position || reentered)
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
      throw configError(message);
    }
    const listener = { callback: callback as TransitionListener };
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** The current position, to be kept anywhere that keeps JSON. */
  snapshot(): FsmSnapshot {
    const { state, context } = this.#position;
    return { state, ...bareContext(context), updatedAt: this.#updatedAt };
  }

  /**
   * Goes back to a kept position. @throws InterlockError `ERR_INTERLOCK_SNAPSHOT`,
   * `ERR_INTERLOCK_DISPOSED`
   */
  restore(snapshot: FsmSnapshot): void {
    this.#assertUsable('restore');
    const { updatedAt, version: _, ...stored } = parseSnapshot(this.id, snapshot);
    const { model, deployment } = this.#definition;
    const adopted = adopt(model, deployment, stored);
    // What holds under rules follows from the facts in the snapshot, and not from its text.
    this.#position = model.standAt?.(adopted, updatedAt) ?? adopted;
    this.#updatedAt = updatedAt;
    this.#due = [];
  }

  /**
   * Another gate of the same machine, bindings and options, at the same position. It moves and
   * takes bindings on its own, and has no callbacks. The middlewares need no clones, since a
   * mounted gate is a template for every run.
   */
  clone(): StateMachineGate<S, E, T, C, X> {
    this.#assertUsable('clone');
    const copy = new Gate<S, E, T, C, X>(this.#definition);
    for (const [tool, bindings] of this.#tools) copy.#tools.set(tool, bindings);
    copy.#reads.addAll(this.#reads);
    copy.#oddities.push(...this.#oddities);
    [copy.#position, copy.#updatedAt, copy.#due] = [this.#position, this.#updatedAt, this.#due];
    return copy;
  }

  /**
   * Does nothing, since a gate is ready once it is made. It is here for code that was written for
   * gates that load XState.
   *
   * @returns whether the machine is one of XState
   */
  async init(): Promise<boolean> {
    return !this.#definition.model.isFlat && this.#definition.order === undefined;
  }

  /** Drops the callbacks. The gate can still be read, but no longer moved, bound or mounted. */
  dispose(): void {
    this.#disposed = true;
    this.#listeners.clear();
  }

  /**
   * What the middlewares run on: the same object from every call. After the first call, the gate
   * takes no more bindings.
   *
   * @internal
   */
  compile(): Workflow {
    this.#assertUsable('compile');
    this.#workflow ??= new Workflow(
      this.#definition,
      this.#definition.limiting(this.#tools),
      this.#reads,
      this.#oddities,
      this.#listeners,
    );
    return this.#workflow;
  }

  /**
   * A copy whose rules of order remember what the names or expressions name, as for a binding.
   *
   * @internal
   */
  remembering(states: unknown): Gate<S, E, T, C, X> {
    const copy = this.clone();
    copy.#remember(states);
    return copy;
  }

  /** Its own, or else those of the first glob that matches it. */
  #bindingsOf(tool: string): readonly AnyBinding[] {
    const bound = this.#tools.get(tool);
    if (bound !== undefined) return bound;
    // An old name is a name: no glob comes before it.
    for (const bindings of this.#tools.values())
      if (bindings.some(({ renamed }) => renamed?.includes(tool))) return bindings;
    const [glob = tool] = new Globs(this.#tools.keys()).matching(tool);
    return this.#tools.get(glob) ?? [];
  }

  #add(declarations: readonly (readonly AnyBinding[])[]): this {
    this.#assertBindable('bindTool');
    for (const each of declarations.flat()) {
      this.#assertFurther(each.tool);
      this.#assertNoLimit(each);
    }
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
   * Makes rules of order remember the tools that a binding names. They forget the success of a tool
   * that no rule depends on, so that its calls need no claim.
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

  /** A tool of the rules takes no binding: a second one would open what the rule closes. */
  #assertFurther(tool: string): void {
    if (this.#definition.order?.names.includes(tool) !== true) return;
    const message = `tool ${showValue(tool)} is one of the rules of workflow "${this.id}"`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', `${message}: say there when it is available`);
  }

  /** Rules keep the facts of their own tools alone. */
  #assertNoLimit({ tool, demands }: AnyBinding): void {
    if (demands === undefined || this.#definition.order === undefined) return;
    throw new InterlockError(
      'ERR_INTERLOCK_BINDING',
      `binding of tool ${showValue(tool)}: "limit" of a tool beside rules is a rule of its own; ` +
        `give fromOrder({ ${showValue(tool)}: { limit } })`,
    );
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

/** A gate; see {@link StateMachineGate}. An interface, since declarations of an app can name it. */
export interface StateMachineGate<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  C extends string = S,
  X = Json | undefined,
> extends Gate<S, E, T, C, X> {}

/** The ways to make a gate. Each infers the names of its own kind of machine. */
export interface StateMachineGateConstructor {
  /**
   * A gate of a machine made by XState 5: hierarchy, parallel regions, guards, context, history.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what pure transitions cannot run, such as
   * invoked actors and delays
   */
  new <M extends XStateMachine>(
    machine: M,
    options?: GateOptions,
  ): StateMachineGate<
    XStatePaths<M>,
    XStateEvents<M>,
    XStateTags<M>,
    XStateTexts<M>,
    XStateContext<M>
  >;
  /**
   * A gate of a flat machine whose names TypeScript has widened to strings, as in `const config = {
   * … }` or with `satisfies FsmConfig`.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string, E extends string, N extends string>(
    config: WidenedConfig<S, E, N> & (string extends N ? unknown : never),
    options?: GateOptions,
  ): StateMachineGate<S, E>;
  /**
   * A gate of a flat machine, which the built-in engine runs.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string = string, E extends string = string>(
    config: FsmConfig<S, E>,
    options?: GateOptions,
  ): StateMachineGate<S, E>;
  /**
   * A gate of rules, without a machine: this tool after that one, within two minutes and with the
   * same account. Or five times an hour, or up to an amount. What counts are the calls before. A
   * tool that rules only name is always available. A run's state is the set of what holds now, as
   * text: `{checkout, verify_identity}`. Further bindings name these tools in place of states:
   * `bindPrompt('receipt', 'pay')`.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for rules of the wrong shape, and for rules by
   * which some tool could never be called
   */
  fromOrder<
    const K extends string,
    const M extends string = never,
    const D extends string = never,
    const N extends string = never,
    const P extends string = never,
    const O extends string = never,
  >(
    rules: OrderRules<K, M, D, O>,
    options?: OrderOptions<N, D | P, O>,
  ): StateMachineGate<K | M | N | O, K | M | N | O, never, string>;
  readonly prototype: Gate;
}

/**
 * A workflow: a state machine, and the tools bound to its states.
 *
 * Mounted with `fsmGate()` it is a template: every run has its own position, and the gate's own
 * never moves. Without `fsmGate()` it is one run, which `transition()` moves.
 */
export const StateMachineGate: StateMachineGateConstructor = Gate;

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is no gate, with how to make one of it */
export function assertGate(what: string, value: unknown): asserts value is StateMachineGate {
  if (value instanceof Gate) return;
  const got = gotInstead(value, (gate) => `; write ${what.replace('()', `(${gate})`)}`);
  throw configError(`${what}: the first argument must be a StateMachineGate, got ${got}`);
}

function gotInstead(value: unknown, write: (gate: string) => string): string {
  if (value === Gate) return `the class itself${write('new StateMachineGate(machine)')}`;
  const shown = showValue(value);
  if (isGate(value))
    return `${shown} of another copy of mcp-interlock: the app must have one version alone`;
  if (isRequest(value)) return `a request${write('gate')}`;
  if (!isTable(value)) return shown;
  if ('initial' in value || 'states' in value)
    return `a machine${write('new StateMachineGate(machine)')}`;
  const isPlain = Object.getPrototypeOf(value) === Object.prototype;
  return isPlain ? `${shown}; of rules of order make StateMachineGate.fromOrder(rules)` : shown;
}
