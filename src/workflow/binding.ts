import * as z from 'zod';
import { InterlockError } from '../errors.ts';
import { rightNames } from '../nearest.ts';
import { functionOption, isTable, parseOptions, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import { eventsOf, type Machine, statesHandling } from './transition.ts';

/** Chooses, by a call's arguments, the calls that a binding is about. Must be quick, synchronous and free of effects. */
export type CallTest = (args: Record<string, unknown>) => boolean;

/** What a binding may say beside its states. */
export interface BindingOptions<E extends string = string> {
  /** The event that a successful call sends. Default: none, so the call moves nothing. */
  readonly success?: E | undefined;
  /**
   * Binds one action of a tool that does several things: only calls whose arguments it accepts are gated by this
   * binding. If it throws, or returns anything but a boolean, the call is refused. Default: every call.
   */
  readonly when?: CallTest | undefined;
  /**
   * What happens after a call whose outcome nobody saw: `'hold'` stops the run until somebody resolves it, `'retry'` lets
   * the same call through again with the same idempotency key. Default: as the tool's annotations allow, else `'hold'`.
   */
  readonly uncertain?: Uncertain | undefined;
}

/** A tool, the states in which it is available, and what its outcome does. */
export interface Binding<S extends string = string, E extends string = string> extends BindingOptions<E> {
  /** The tool's name on the wire. */
  readonly tool: string;
  readonly states: readonly S[];
}

/** What `gate.bind()` takes: anything with a name and bindings, such as `tool('cart.pay').bindState('payment', 'PAY')`. */
export interface BindableTool<S extends string = string, E extends string = string> {
  readonly name: string;
  readonly bindings: readonly Binding<S, E>[];
}

const optionsSchema = z.strictObject({
  success: z.unknown().optional(),
  when: functionOption<CallTest>().optional(),
  uncertain: z.enum(['hold', 'retry']).optional(),
});

/**
 * Checks the shape of a binding; {@link checkStates} checks it against a workflow.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for the name and the states, `ERR_INTERLOCK_EVENT` for the event,
 * `ERR_INTERLOCK_CONFIG` for the other options.
 */
export function parseBinding(name: unknown, states: unknown, event: unknown): Binding {
  const tool = parseToolName(name);
  const { success, ...rest } = parseEventOrOptions(tool, event);
  const moves = success === undefined ? {} : { success: parseEvent(`tool ${showValue(tool)}`, success) };
  return Object.freeze({ tool, states: parseStates(tool, states), ...moves, ...rest });
}

/** @throws InterlockError `ERR_INTERLOCK_BINDING` unless it is a non-empty string. */
export function parseToolName(name: unknown): string {
  if (typeof name === 'string' && name !== '') return name;
  throw new InterlockError('ERR_INTERLOCK_BINDING', `expected the name of a tool, got ${showValue(name)}`);
}

/** @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string. */
export function parseEvent(what: string, event: unknown): string {
  if (typeof event === 'string' && event !== '') return event;
  const message = `${what}: expected the name of an event, got ${showValue(event)}`;
  throw new InterlockError('ERR_INTERLOCK_EVENT', message);
}

/** @throws InterlockError `ERR_INTERLOCK_BINDING` where the binding names a state that the workflow does not have. */
export function checkStates(machine: Machine, { tool, states }: Binding): void {
  const unknown = states.find((state) => !machine.states.has(state));
  if (unknown === undefined) return;
  const fault = `${showValue(unknown)}, which is no state of workflow "${machine.id}"`;
  const message = `tool ${showValue(tool)} is bound to ${fault}, ${rightNames(unknown, machine.states.keys())}`;
  throw new InterlockError('ERR_INTERLOCK_BINDING', message);
}

/** What is odd about a binding without being wrong: an event that none of its states handles moves nothing. */
export function bindingWarning(machine: Machine, { tool, states, success }: Binding): string | undefined {
  if (success === undefined) return undefined;
  const handling = statesHandling(machine, success);
  if (handling.some((state) => states.includes(state))) return undefined;
  const message = `workflow "${machine.id}": tool ${showValue(tool)} sends ${showValue(success)}, which`;
  return handling.length === 0
    ? `${message} no state handles; ${rightNames(success, eventsOf(machine))}`
    : `${message} none of its states handles; states that do are ${handling.map(showValue).join(', ')}`;
}

/**
 * Whether a tool with these bindings is shown in `state`. One whose every binding is about some of its calls only is
 * always shown, since its other calls may be valid; those that a binding is about are gated all the same.
 */
export function isVisibleIn(bindings: readonly Binding[], state: string): boolean {
  return (
    bindings.every(({ when }) => when !== undefined) || bindings.some(({ states }) => states.includes(state))
  );
}

/** The event that a successful call sends in `state`: that of the first binding which is available there and has one. */
export function eventIn(bindings: readonly Binding[], state: string): string | undefined {
  return bindings.find(({ states, success }) => success !== undefined && states.includes(state))?.success;
}

function parseEventOrOptions(tool: string, event: unknown): z.output<typeof optionsSchema> {
  if (isTable(event)) return parseOptions(`binding of tool ${showValue(tool)}`, optionsSchema, event);
  return { success: event };
}

function parseStates(tool: string, states: unknown): readonly string[] {
  const list: readonly unknown[] = Array.isArray(states) ? states : [states];
  const names = list.filter((state) => typeof state === 'string');
  if (names.length > 0 && names.length === list.length) return Object.freeze([...new Set(names)]);
  const got = list.length === 0 ? states : list.find((state) => typeof state !== 'string');
  const message = `tool ${showValue(tool)}: expected one state or more, got ${showValue(got)}`;
  throw new InterlockError('ERR_INTERLOCK_BINDING', message);
}
