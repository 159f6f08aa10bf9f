/** The states of a step, and which of them follow which. */

/**
 * Where a step is in its life. docs/build/step-details.md says of each change what the store
 * is asked, and what the client sees.
 *
 * - `waiting`: for its run's turn, and for the store to grant the claim.
 * - `claimed`: it holds the run and renews its lease; its call is not forwarded yet.
 * - `forwarded`: it holds the run, and its call may have its effect.
 * - `settling`: it asks the store to save the outcome, or to let the run go.
 * - `unsettled`: its outcome is unknown, and its lease runs out. An outcome that comes late is
 *   saved, unless a person has resolved the run or another call has taken it over.
 * - `refused`, `released`, `saved`, `left`, `lost`: it is over. `left`: its outcome stays unknown,
 *   and its claim stays in the store. `lost`: another process or a person has settled it, or taken
 *   the run over.
 */
export type StepState =
  | 'waiting'
  | 'claimed'
  | 'forwarded'
  | 'settling'
  | 'unsettled'
  | 'refused'
  | 'released'
  | 'saved'
  | 'left'
  | 'lost';

/** Which states may follow each state. */
export const STEP_LIFE: Readonly<Record<StepState, readonly StepState[]>> = {
  waiting: ['claimed', 'refused', 'released'],
  claimed: ['forwarded', 'settling'],
  forwarded: ['settling', 'unsettled', 'lost'],
  unsettled: ['settling'],
  settling: ['saved', 'released', 'left', 'unsettled', 'lost'],
  refused: [],
  released: [],
  saved: [],
  left: [],
  lost: [],
};
