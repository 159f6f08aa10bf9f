import type { Json } from '../stores/store.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import { begunWith } from './begin.ts';
import { isAtEnd, ownMove } from './ends.ts';
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
  /** Gives the data that the run begins with; without it, they are the machine's own. */
  readonly begin?: (() => Promise<Json | undefined>) | undefined;
}

/** Why a run did not begin: what the app's `begin` threw, which nobody was told of yet. */
export interface NotBegun extends NotClaimed {
  readonly fault: unknown;
}

/**
 * Claims a run where it stands now. First a state is left whose time is over, and a run begins anew
 * that has ended, each by a move of its own that `onMoved` is told of: such a move spends its
 * claim, and the run is claimed again. A run that begins, or begins anew, gets its first data, which
 * are saved with its next commit.
 */
export async function claimRun(
  rules: StepRules,
  wanted: Wanted,
  onMoved: (move: StepMove) => void,
): Promise<Step | NotClaimed | NotBegun> {
  for (let moves = 0; moves <= MOST_MOVES; moves++) {
    const step = new Step(rules, wanted.run, wanted);
    const refused = await step.claim(wanted.states);
    if (refused !== undefined) {
      const { snapshot, held, now } = refused;
      if (snapshot !== undefined) tellIfHeld({ key: step.key, snapshot, claim: held, now }, rules);
      return refused;
    }
    // A run that this deployment does not understand is left alone, and refused by the caller.
    if (step.understood === undefined) return step;
    let data: Json | undefined;
    if (wanted.begin !== undefined) {
      try {
        data = await beginWith(rules.workflow, wanted, wanted.begin, step, step.understood);
      } catch (fault) {
        await step.withdraw();
        return { reason: 'unavailable', fault };
      }
    }
    const own = ownMove(rules.workflow, step.understood, wanted.restarts, data);
    if (own === undefined) return step;
    if ((await step.save(own.move, own.options)) !== 'committed') return { reason: 'unavailable' };
    onMoved(own.move);
  }
  return { reason: 'busy' };
}

/** Gives the data to a run that begins. Resolves to those of one that is to begin anew. */
async function beginWith(
  workflow: Workflow,
  { restarts }: Wanted,
  begin: NonNullable<Wanted['begin']>,
  step: Step,
  known: Understood,
): Promise<Json | undefined> {
  if (step.isFirst) {
    const { updatedAt } = step.snapshot;
    const position = begunWith(workflow, known.position, await begin());
    const left = workflow.overdue({ ...position, updatedAt }, step.now);
    step.understood = { position, left };
  }
  return restarts !== undefined && isAtEnd(workflow, known) ? begin() : undefined;
}
