import { isTable, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import { type Binding, type CallTest, eventIn } from './binding.ts';

/** How one call of a bound tool is gated: all the bindings that are about it, added up. */
export interface CallBinding {
  /** The states in which the call is allowed. */
  readonly states: readonly string[];
  /** Whether its success can move the run. */
  readonly moves: boolean;
  /** The event that its success sends in `state`, if any. */
  eventIn(state: string): string | undefined;
  /**
   * What the bindings say about an outcome that nobody saw: `'hold'` where one of them does, `'retry'` where all of
   * them do, else `undefined`.
   */
  readonly uncertain: Uncertain | undefined;
}

/** Adds bindings up. There must be at least one. */
export function combine(bindings: readonly Binding[]): CallBinding {
  return Object.freeze({
    states: Object.freeze([...new Set(bindings.flatMap(({ states }) => states))]),
    moves: bindings.some(({ success }) => success !== undefined),
    eventIn: (state: string) => eventIn(bindings, state),
    uncertain: strictest(bindings),
  });
}

/**
 * The bindings that are about a call with these arguments. No arguments are taken as `{}`.
 *
 * @throws Error where that cannot be told: the arguments are no object, or a `when` throws or returns no boolean.
 * The call must be refused then.
 */
export function bindingsOfCall(bindings: readonly Binding[], args: unknown): readonly Binding[] {
  return bindings.filter(({ tool, when }) => when === undefined || passes(tool, when, args ?? {}));
}

function passes(tool: string, when: CallTest, args: unknown): boolean {
  if (!isTable(args))
    throw new Error(`the arguments of tool ${showValue(tool)} are ${showValue(args)}, not an object`);
  const answer: unknown = when(args);
  if (typeof answer === 'boolean') return answer;
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(answer).catch(() => {});
  throw new Error(`a "when" of tool ${showValue(tool)} returned ${showValue(answer)}, not a boolean`);
}

function strictest(bindings: readonly Binding[]): Uncertain | undefined {
  if (bindings.some(({ uncertain }) => uncertain === 'hold')) return 'hold';
  return bindings.every(({ uncertain }) => uncertain === 'retry') ? 'retry' : undefined;
}
