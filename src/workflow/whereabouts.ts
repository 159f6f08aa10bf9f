import type { AnyBinding } from './binding.ts';
import type { BoundState, Position } from './position.ts';

/** Where a tool is to be found, and what it takes to get there. */
export interface Whereabouts {
  readonly workflow: string;
  readonly states: readonly BoundState[];
  /** The tools to call from the start of a run; `undefined` where none are known to lead there. */
  readonly path: readonly string[] | undefined;
  /** Whether no other way can lead there. */
  readonly foreseen: boolean;
  /** Whether only some calls of the tool are gated. */
  readonly isGrouped: boolean;
}

/** As much of a workflow as tells the way. */
interface Chart {
  readonly id: string;
  readonly start: Position;
  readonly foresees: boolean;
  pathTo(states: readonly BoundState[], from: Position): readonly string[] | undefined;
}

export function whereaboutsOf(
  workflow: Chart,
  bindings: readonly Pick<AnyBinding, 'states' | 'when'>[],
): Whereabouts {
  const { id, start, foresees } = workflow;
  const named = bindings.flatMap((binding) => binding.states);
  const states = named.filter(
    (state, index) => named.findIndex((each) => isSame(each, state)) === index,
  );
  return {
    workflow: id,
    states,
    path: workflow.pathTo(states, start),
    foreseen: foresees,
    isGrouped: bindings.every(({ when }) => when !== undefined),
  };
}

function isSame(a: BoundState, b: BoundState): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
