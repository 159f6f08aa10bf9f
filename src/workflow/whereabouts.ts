import type { AnyBinding } from './binding.ts';
import type { BoundState } from './position.ts';

/** What is known of the ways to a place. */
export interface Way {
  /** The tools to call, in order; `undefined` where no way is known. */
  readonly path: readonly string[] | undefined;
  /** Whether no path means no way. */
  readonly foreseen: boolean;
}

/** Where a tool is to be found, and what it takes to get there from the start of a run. */
export interface Whereabouts extends Way {
  readonly workflow: string;
  readonly states: readonly BoundState[];
  /** Whether only some calls of the tool are gated. */
  readonly isGrouped: boolean;
}

/** `wayTo` says how such states are reached from the start of a run. */
export function whereaboutsOf(
  workflow: string,
  bindings: readonly Pick<AnyBinding, 'states' | 'when'>[],
  wayTo: (states: readonly BoundState[]) => Way,
): Whereabouts {
  const named = bindings.flatMap((binding) => binding.states);
  const states = named.filter(
    (state, index) => named.findIndex((each) => isSame(each, state)) === index,
  );
  return {
    workflow,
    states,
    ...wayTo(states),
    isGrouped: bindings.every(({ when }) => when !== undefined),
  };
}

function isSame(a: BoundState, b: BoundState): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
