import { isTable, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import { type AnyBinding, type CallTest, eventIn, type Guard } from './binding.ts';
import type { BoundState, Model } from './position.ts';
import type { AnyEventSource } from './sender.ts';

/** How one call of a bound tool is gated: all the bindings that are about it, added up. */
export interface CallBinding {
  /** The states in which the call is allowed. */
  readonly states: readonly BoundState[];
  /** Whether its outcome can move the run. */
  readonly moves: boolean;
  /**
   * What its outcome sends in `state`, if anything: an event, or a function that says which.
   * Default: that of a success.
   */
  eventIn(state: string, outcome?: 'success' | 'failure'): AnyEventSource | undefined;
  /** The functions among what its outcomes may send. */
  readonly sources: readonly Exclude<AnyEventSource, string>[];
  /** Each of them must let the call through. */
  readonly guards: readonly Guard[];
  /**
   * What the bindings say about an outcome that nobody saw: `'hold'` where one of them does,
   * `'retry'` where all of them do, else `undefined`.
   */
  readonly uncertain: Uncertain | undefined;
}

/** Adds bindings up. There must be at least one. */
export function combine(model: Model, bindings: readonly AnyBinding[]): CallBinding {
  return Object.freeze({
    states: Object.freeze([...new Set(bindings.flatMap(({ states }) => states))]),
    moves: bindings.some(({ success, failure }) => success !== undefined || failure !== undefined),
    eventIn: (state: string, outcome: 'success' | 'failure' = 'success') =>
      eventIn(model, bindings, state, outcome),
    sources: Object.freeze(
      bindings
        .flatMap(({ success, failure }) => [success, failure])
        .filter((source) => typeof source === 'function'),
    ),
    guards: Object.freeze(bindings.flatMap(({ guard }) => guard ?? [])),
    uncertain: strictest(bindings),
  });
}

/**
 * The bindings that are about a call with these arguments. No arguments are taken as `{}`.
 *
 * @throws Error where that cannot be told: the arguments are no object, or a `when` throws or
 * returns no boolean. The call must be refused then.
 */
export function bindingsOfCall(
  bindings: readonly AnyBinding[],
  args: unknown,
): readonly AnyBinding[] {
  return bindings.filter(({ tool, when }) => when === undefined || passes(tool, when, args ?? {}));
}

function passes(tool: string, when: CallTest, args: unknown): boolean {
  if (!isTable(args))
    throw new Error(
      `the arguments of tool ${showValue(tool)} are ${showValue(args)}, not an object`,
    );
  const answer: unknown = when(args);
  if (typeof answer === 'boolean') return answer;
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(answer).catch(() => {});
  throw new Error(
    `a "when" of tool ${showValue(tool)} returned ${showValue(answer)}, not a boolean`,
  );
}

function strictest(bindings: readonly AnyBinding[]): Uncertain | undefined {
  if (bindings.some(({ uncertain }) => uncertain === 'hold')) return 'hold';
  return bindings.every(({ uncertain }) => uncertain === 'retry') ? 'retry' : undefined;
}

/** The tools that are gated in one and the same way whatever their arguments. */
export function combineUnconditional(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): Map<string, CallBinding> {
  const always = [...tools].filter(([, bindings]) =>
    bindings.every(({ when }) => when === undefined),
  );
  return new Map(always.map(([tool, bindings]) => [tool, combine(model, bindings)]));
}
