import * as z from 'zod';
import { InterlockError } from '../errors.ts';
import { functionOption, isTable, parseOptions, showValue } from '../options.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import {
  type BindableTool,
  type Binding,
  type BindingOptions,
  bindingWarning,
  checkStates,
  eventIn,
  isVisibleIn,
  parseBinding,
  parseEvent,
} from './binding.ts';
import { type FsmConfig, parseConfig } from './config.ts';
import { type ErrorListener, Listeners, type TransitionListener } from './listeners.ts';
import { parseSnapshot } from './snapshot.ts';
import { type Machine, nextState, type TransitionResult } from './transition.ts';
import { Workflow } from './workflow.ts';

/** Options of {@link StateMachineGate}. */
export interface GateOptions {
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Told what an `onTransition` callback throws. Default: nobody is. */
  readonly onError?: ErrorListener | undefined;
}

const optionsSchema = z.strictObject({
  now: functionOption<() => number>().default(() => Date.now),
  onError: functionOption<ErrorListener>().default(() => () => {}),
});

/**
 * A workflow: a state machine, and the tools bound to its states.
 *
 * Mounted with `fsmGate()` it is a template: every run has its own position, and this object's never moves. On its own
 * it is one run, which `transition()` moves.
 */
export class StateMachineGate<S extends string = string, E extends string = string> {
  readonly #machine: Machine;
  readonly #now: () => number;
  readonly #listeners: Listeners;
  readonly #tools = new Map<string, Binding[]>();
  readonly #warnings: string[] = [];
  #workflow: Workflow | undefined;
  #state: string;
  #updatedAt: number;
  #disposed = false;

  /** @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or `ERR_INTERLOCK_TARGET` */
  constructor(config: FsmConfig<S, E>, options?: GateOptions) {
    this.#machine = parseConfig(config);
    const { now, onError } = parseOptions('StateMachineGate()', optionsSchema, options);
    this.#now = now;
    this.#listeners = new Listeners(onError);
    this.#state = this.#machine.initial;
    this.#updatedAt = now();
  }

  /** The workflow's name, `'workflow'` unless the configuration says otherwise. */
  get id(): string {
    return this.#machine.id;
  }

  get currentState(): S {
    return this.#state as S;
  }

  get hasBindings(): boolean {
    return this.#tools.size > 0;
  }

  /** What is odd about the bindings without being wrong, such as an event that no bound state handles. */
  get warnings(): readonly string[] {
    return Object.freeze([...this.#warnings]);
  }

  /**
   * Makes a tool available in `states`, and there only; a successful call of it sends `event`. Bindings of one
   * tool add up. A tool that was never bound is always available.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for an unknown state or once the gate is mounted, `ERR_INTERLOCK_EVENT`
   */
  bindTool(name: string, states: S | readonly S[], event?: E | BindingOptions<E>): this {
    return this.#add([parseBinding(name, states, event)]);
  }

  /** Adds the bindings of tools that were declared with `tool()`; all of them, or none if it throws as `bindTool` does. */
  bind(...tools: readonly BindableTool<S, E>[]): this {
    return this.#add(tools.flatMap(parseTool));
  }

  /** Whether the tool is visible in the current state. A tool that is not bound always is. */
  isToolAllowed(name: string): boolean {
    const bindings = this.#tools.get(name);
    return bindings === undefined || isVisibleIn(bindings, this.#state);
  }

  /** Those of `allTools` that are visible in the current state, in their order. */
  getVisibleToolNames(allTools: readonly string[]): string[] {
    return allTools.filter((name) => this.isToolAllowed(name));
  }

  /** The event that the tool sends in the current state; where it is not available, the one that it is first bound to. */
  getTransitionEvent(name: string): E | undefined {
    const bindings = this.#tools.get(name) ?? [];
    const available = bindings.some(({ states }) => states.includes(this.#state));
    return (available ? eventIn(bindings, this.#state) : bindings[0]?.success) as E | undefined;
  }

  /**
   * Sends an event. One that the current state does not handle changes nothing and is no error.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string, `ERR_INTERLOCK_DISPOSED`
   */
  async transition(event: E): Promise<TransitionResult<S>> {
    this.#assertUsable('transition');
    const name = parseEvent('transition()', event);
    const previousState = this.#state;
    const currentState = nextState(this.#machine, previousState, name);
    const result = { changed: currentState !== previousState, previousState, currentState };
    if (result.changed) {
      this.#moveTo(currentState, this.#now());
      this.#listeners.emit({ ...result, event: name });
    }
    return result as TransitionResult<S>;
  }

  /**
   * Calls back after each change of state, with the run's key where the gate is mounted.
   *
   * @returns a function that stops it
   */
  onTransition(callback: TransitionListener<S>): () => void {
    this.#assertUsable('onTransition');
    if (typeof callback !== 'function') {
      const message = `onTransition(): expected a function, got ${showValue(callback)}`;
      throw new InterlockError('ERR_INTERLOCK_CONFIG', message);
    }
    return this.#listeners.add(callback as TransitionListener);
  }

  /** The current position, to be kept anywhere that keeps JSON. */
  snapshot(): FsmSnapshot {
    return { state: this.#state, updatedAt: this.#updatedAt };
  }

  /** Goes back to a kept position. @throws InterlockError `ERR_INTERLOCK_SNAPSHOT`, `ERR_INTERLOCK_DISPOSED` */
  restore(snapshot: FsmSnapshot): void {
    this.#assertUsable('restore');
    const { state, updatedAt } = parseSnapshot(this.#machine, snapshot);
    this.#moveTo(state, updatedAt);
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
      machine: this.#machine,
      tools: this.#tools,
      warnings: this.#warnings,
      listeners: this.#listeners,
    });
    return this.#workflow;
  }

  #add(bindings: readonly Binding[]): this {
    this.#assertUsable('bindTool');
    if (this.#workflow !== undefined) {
      const message = `workflow "${this.id}" is already mounted: bind its tools before`;
      throw new InterlockError('ERR_INTERLOCK_BINDING', message);
    }
    for (const binding of bindings) checkStates(this.#machine, binding);
    for (const binding of bindings) {
      this.#tools.set(binding.tool, [...(this.#tools.get(binding.tool) ?? []), binding]);
      const warning = bindingWarning(this.#machine, binding);
      if (warning !== undefined) this.#warnings.push(warning);
    }
    return this;
  }

  #moveTo(state: string, updatedAt: number): void {
    this.#state = state;
    this.#updatedAt = updatedAt;
  }

  #assertUsable(method: string): void {
    if (!this.#disposed) return;
    const message = `${method}() of workflow "${this.id}" was called after dispose()`;
    throw new InterlockError('ERR_INTERLOCK_DISPOSED', message);
  }
}

function parseTool(tool: BindableTool): Binding[] {
  if (!isTable(tool) || !Array.isArray(tool.bindings) || !tool.bindings.every(isTable)) {
    const message = `bind(): expected a declaration made by tool(), got ${showValue(tool)}`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', message);
  }
  return tool.bindings.map(({ tool: _, states, ...options }) => parseBinding(tool.name, states, options));
}
