import { InterlockError } from '../errors.ts';
import { parseOptions, showValue } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { type ActionListener, actOn } from './actions.ts';
import {
  type AnyBinding,
  type BindableTool,
  type BindingOptions,
  eventIn,
  isVisibleIn,
  parseBinding,
  parseDeclaration,
} from './binding.ts';
import { bindingWarnings, checkBinding } from './binding-checks.ts';
import { type FsmConfig, parseConfig } from './config.ts';
import { adopt, type Deployment, stamped } from './deployment.ts';
import { openContext } from './envelope.ts';
import { flatModel } from './flat-model.ts';
import { type GateOptions, gateOptionsSchema } from './gate-options.ts';
import { type ErrorListener, Listeners, type TransitionListener } from './listeners.ts';
import { LoopShield } from './loop-shield.ts';
import type { BoundStates, FsmAction, Model, Position } from './position.ts';
import { BoundReads, type ReadOptions } from './reads.ts';
import { parseEvent } from './sender.ts';
import { parseSnapshot } from './snapshot.ts';
import { statechartModel } from './statechart.ts';
import type { TransitionResult } from './transition.ts';
import { Workflow } from './workflow.ts';
import { isXStateMachine, type XStateMachine } from './xstate.ts';

/** `S` are the names that a binding may give, `E` the events, `T` the tags, `C` what the current state can be. */
export class Gate<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  C extends string = S,
> {
  readonly #model: Model;
  readonly #now: () => number;
  readonly #listeners: Listeners;
  readonly #deployment: Deployment;
  readonly #shield: LoopShield | undefined;
  readonly #onAction: ActionListener | undefined;
  readonly #onError: ErrorListener;
  readonly #tools = new Map<string, AnyBinding[]>();
  readonly #reads = new BoundReads();
  readonly #warnings: string[] = [];
  /** What is due with the first move. */
  #due: readonly FsmAction[];
  #workflow: Workflow | undefined;
  #position: Position;
  #updatedAt: number;
  #disposed = false;

  constructor(machine: FsmConfig<S, E> | XStateMachine, options?: GateOptions) {
    const { now, onError, onAction, loopShield, ...deployment } = parseOptions(
      'StateMachineGate()',
      gateOptionsSchema,
      options,
    );
    this.#model = isXStateMachine(machine)
      ? statechartModel(machine, onAction !== undefined)
      : flatModel(parseConfig(machine));
    this.#shield = loopShield === undefined ? undefined : new LoopShield(this.#model, loopShield);
    this.#now = now;
    this.#onError = onError;
    this.#onAction = onAction;
    this.#deployment = deployment;
    this.#listeners = new Listeners(onError);
    this.#position = stamped(this.#model.start, deployment);
    this.#due = this.#model.startActions;
    this.#updatedAt = now();
  }

  /** The workflow's name, `'workflow'` unless the configuration says otherwise. */
  get id(): string {
    return this.#model.id;
  }

  get currentState(): C {
    return this.#position.state as C;
  }

  get hasBindings(): boolean {
    return this.#tools.size > 0 || !this.#reads.isEmpty;
  }

  /** What is odd about the bindings without being wrong, such as an event that no bound state handles. */
  get warnings(): readonly string[] {
    return Object.freeze([...this.#warnings]);
  }

  /**
   * Makes a tool available in `states`, and there only; a successful call of it sends `event`. Bindings of one
   * tool add up. A tool that was never bound is always available.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for an unknown state or tag, or once the gate is mounted, `ERR_INTERLOCK_EVENT`
   */
  bindTool(name: string, states: BoundStates<S, T>, event?: E | BindingOptions<E>): this {
    return this.#add([parseBinding(name, states, event)]);
  }

  /** Adds the bindings of tools that were declared with `tool()`; all of them, or none if it throws as `bindTool` does. */
  bind(...tools: readonly BindableTool<S, E, T>[]): this {
    return this.#add(tools.flatMap(parseDeclaration));
  }

  /**
   * Makes a prompt available in `states`, and there only, as `bindTool` does for a tool; getting it moves nothing.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG`
   */
  bindPrompt(name: string, states: BoundStates<S, T>, options?: ReadOptions): this {
    this.#assertBindable('bindPrompt');
    this.#reads.addPrompt(this.#model, name, states, options);
    return this;
  }

  /**
   * The same for the resources whose URI a glob matches: `*` is one segment between slashes, `**` any number, as in
   * `docs://receipts/**`. A resource that several globs match must be allowed by each.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG`
   */
  bindResource(uriPattern: string, states: BoundStates<S, T>, options?: ReadOptions): this {
    this.#assertBindable('bindResource');
    this.#reads.addResource(this.#model, uriPattern, states, options);
    return this;
  }

  /** Whether the tool is visible in the current state. A tool that is not bound always is. */
  isToolAllowed(name: string): boolean {
    const bindings = this.#tools.get(name);
    return bindings === undefined || isVisibleIn(this.#model, bindings, this.#position.state);
  }

  /** Those of `allTools` that are visible in the current state, in their order. */
  getVisibleToolNames(allTools: readonly string[]): string[] {
    return allTools.filter((name) => this.isToolAllowed(name));
  }

  /**
   * The event that the tool sends in the current state; where it is not available, the one that it is first bound to.
   * `undefined` also where a function of the call's result says which.
   */
  getTransitionEvent(name: string): E | undefined {
    const bindings = this.#tools.get(name) ?? [];
    const { state } = this.#position;
    const available = bindings.some(({ states }) => this.#model.isIn(state, states));
    const source = available
      ? eventIn(this.#model, bindings, state, 'success')
      : bindings[0]?.success;
    return typeof source === 'string' ? (source as E) : undefined;
  }

  /**
   * Sends an event. One that the current state does not handle changes nothing and is no error.
   *
   * @param payload for a statechart: the properties of an object become the event's own
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string, `ERR_INTERLOCK_DISPOSED`; and whatever a
   * statechart's own code throws
   */
  async transition(event: E, payload?: Json): Promise<TransitionResult<C>> {
    this.#assertUsable('transition');
    const name = parseEvent('transition()', event);
    const { state: from } = this.#position;
    const { position, changed, actions } = this.#model.next(this.#position, name, payload);
    const result = { changed, previousState: from, currentState: position.state };
    if (position !== this.#position) [this.#position, this.#updatedAt] = [position, this.#now()];
    if (changed) this.#listeners.emit({ ...result, event: name });
    const due = [...this.#due, ...actions];
    this.#due = [];
    const { data: context } = openContext(position.context);
    const about = { workflow: this.id, event: name, from, to: position.state, context };
    actOn(due, about, this.#onAction, this.#onError);
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

  /** Goes back to a kept position. @throws InterlockError `ERR_INTERLOCK_SNAPSHOT`, `ERR_INTERLOCK_DISPOSED` */
  restore(snapshot: FsmSnapshot): void {
    this.#assertUsable('restore');
    const { updatedAt, version: _, ...stored } = parseSnapshot(this.id, snapshot);
    [this.#position, this.#updatedAt] = [adopt(this.#model, this.#deployment, stored), updatedAt];
    this.#due = [];
  }

  /** Lets go of the callbacks. The gate can still be read, and no longer be used. */
  dispose(): void {
    this.#disposed = true;
    this.#listeners.clear();
  }

  /** What the middleware runs on. From the first call on, no tool can be bound any more; every call returns the same object. */
  compile(): Workflow {
    this.#assertUsable('compile');
    this.#workflow ??= new Workflow({
      model: this.#model,
      tools: this.#tools,
      warnings: this.#warnings,
      reads: this.#reads,
      listeners: this.#listeners,
      deployment: this.#deployment,
      onAction: this.#onAction,
      shield: this.#shield,
      onError: this.#onError,
    });
    return this.#workflow;
  }

  #add(bindings: readonly AnyBinding[]): this {
    this.#assertBindable('bindTool');
    for (const binding of bindings) checkBinding(this.#model, binding);
    for (const binding of bindings) {
      this.#tools.set(binding.tool, [...(this.#tools.get(binding.tool) ?? []), binding]);
      this.#warnings.push(...bindingWarnings(this.#model, binding));
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
