import type { Json } from '../stores/store.ts';
import type { XEvent, XNode } from './xstate.ts';

/** Whether an event's name is one that machines send themselves, or a pattern. */
export function isReserved(event: string): boolean {
  return event.startsWith('xstate.') || event === '*' || event.endsWith('.*');
}

/** Whether a transition's event, which may be `*` or end in `.*`, takes this one. */
export function covers(descriptor: string, event: string): boolean {
  if (descriptor === '*' || descriptor === event) return true;
  return descriptor.endsWith('.*') && `${event}.`.startsWith(descriptor.slice(0, -1));
}

/**
 * An object is the event's own properties, as machines read them; anything else is its `payload`.
 */
export function eventOf(type: string, payload: Json | undefined): XEvent {
  if (payload === undefined) return { type };
  const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
  return isObject ? { ...payload, type } : { type, payload };
}

/**
 * The events that a state handles itself, patterns included, and without those that XState sends to
 * it.
 */
export function eventsOfNode({ transitions }: XNode): string[] {
  return [...transitions.keys()].filter((event) => !event.startsWith('xstate.'));
}

/** Those of them that a transition with a guard takes. */
export function guardedEvents(node: XNode): string[] {
  const isGuarded = (event: string): boolean =>
    node.transitions.get(event)?.some(({ guard }) => guard !== undefined) === true;
  return eventsOfNode(node).filter(isGuarded);
}
