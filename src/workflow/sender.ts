import { InterlockError } from '../errors.ts';
import { isTable, showValue } from '../options.ts';
import type { Json } from '../stores/store.ts';
import { jsonOf } from './json.ts';

/** A tool's result as it is on the wire. */
export interface ToolResult {
  readonly content?: readonly unknown[] | undefined;
  readonly structuredContent?: Readonly<Record<string, unknown>> | undefined;
  readonly isError?: boolean | undefined;
  readonly [property: string]: unknown;
}

/** A call that ended well. */
export interface SucceededCall {
  readonly args: Readonly<Record<string, unknown>>;
  readonly result: ToolResult;
}

/**
 * A call that failed: the tool said so in its result, or there is a JSON-RPC error in its place.
 */
export interface FailedCall {
  readonly args: Readonly<Record<string, unknown>>;
  readonly result?: ToolResult | undefined;
  readonly error?: unknown;
}

/** An event with what comes along: for a statechart's guards and its context, and for the trail. */
export interface EventWithPayload<E extends string = string> {
  readonly type: E;
  /** The properties of an object become the event's own; anything else is its `payload`. */
  readonly payload?: Json | undefined;
}

/**
 * An event, or a function of the call that says which. Must be synchronous and free of effects.
 * `undefined` sends none.
 */
export type EventSource<E extends string, Call> =
  | E
  | ((call: Call) => E | EventWithPayload<E> | undefined);

/** The same for either outcome, where nobody asks any more what the names are. */
export type AnyEventSource = string | ((call: never) => unknown);

function isThenable(value: unknown): boolean {
  return isTable(value) && typeof value.then === 'function';
}

/** @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string. */
export function parseEvent(what: string, event: unknown): string {
  if (typeof event === 'string' && event !== '') return event;
  const message = `${what}: expected the name of an event, got ${showValue(event)}`;
  throw new InterlockError('ERR_INTERLOCK_EVENT', message);
}

/** As {@link parseEvent}, and a function is as good. */
export function parseSource(what: string, source: unknown): AnyEventSource {
  return typeof source === 'function' ? (source as AnyEventSource) : parseEvent(what, source);
}

/**
 * The event that a call sends.
 *
 * @throws InterlockError `ERR_INTERLOCK_EVENT` where a function returns no event, or a promise of
 * one; whatever it throws, and an Error where its payload is not JSON
 */
export function eventFrom(
  source: AnyEventSource,
  call: SucceededCall | FailedCall,
): EventWithPayload | undefined {
  if (typeof source === 'string') return { type: source };
  const sent: unknown = source(call as never);
  if (sent === undefined) return undefined;
  if (isThenable(sent)) {
    // One that nothing waits for would end the process if it were rejected.
    Promise.resolve(sent).catch(() => {});
    const message = 'a function of a binding: expected the name of an event, got a promise';
    throw new InterlockError('ERR_INTERLOCK_EVENT', `${message}: it must not be asynchronous`);
  }
  const { type, payload } = isTable(sent) ? sent : { type: sent, payload: undefined };
  const event = parseEvent('a function of a binding', type);
  return payload === undefined
    ? { type: event }
    : { type: event, payload: jsonOf(payload, `the payload of "${event}"`) };
}
