import { ownMove } from './ends.ts';
import type { StepMove } from './move.ts';
import { type NotClaimed, Step, type StepCall, type StepRules, type StepRun } from './step.ts';
import { tellIfHeld } from './unknown-outcome.ts';

/** Deadlines that are shorter than a look at the store would go round for ever. */
const MOST_MOVES = 16;

/** What a run is claimed for. */
export interface Wanted extends StepCall {
  readonly run: StepRun;
  /** The states in which the store may grant the claim; `undefined`: in each. */
  readonly states: readonly string[] | undefined;
  /** Who begins it anew where it has ended; without it, it stays as it is. */
  readonly restarts?: { readonly actor: string | undefined } | undefined;
}

/**
 * Claims a run where it stands now. First a state is left whose time is over, and a run begins anew
 * that has ended, each by a move of its own that `onMoved` is told of: such a move spends its
 * claim, and the run is claimed again.
 */
export async function claimRun(
  rules: StepRules,
  wanted: Wanted,
  onMoved: (move: StepMove) => void,
): Promise<Step | NotClaimed> {
  for (let moves = 0; moves <= MOST_MOVES; moves++) {
    const step = new Step(rules, wanted.run, wanted);
    const refused = await step.claim(wanted.states);
    if (refused !== undefined) {
      const { snapshot, held, now } = refused;
      if (snapshot !== undefined) tellIfHeld({ key: step.key, snapshot, claim: held, now }, rules);
      return refused;
    }
    const { understood } = step;
    // A run that this deployment does not understand is left alone, and refused by the caller.
    const own = understood && ownMove(rules.workflow, understood, wanted.restarts);
    if (own === undefined) return step;
    if ((await step.save(own.move, own.options)) !== 'committed') return { reason: 'unavailable' };
    onMoved(own.move);
  }
  return { reason: 'busy' };
}
