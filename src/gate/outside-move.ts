import type { Clock } from '../session/clock.ts';
import { digestOf } from '../session/digest.ts';
import { type GuardedStore, StoreUnavailable } from '../session/guarded-store.ts';
import { InFlight } from '../session/in-flight.ts';
import { Step } from '../session/step.ts';
import type { Turns } from '../session/turns.ts';
import { UNBEGUN } from '../session/unbegun.ts';
import type { CommitRequest } from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { changedLists } from './changed-lists.ts';
import { claimRun } from './claim-run.ts';
import { shownState } from './ends.ts';
import { isStableEverywhere } from './mounts.ts';
import type { Move } from './move.ts';
import { takeEffect } from './take-effect.ts';

/** What runs are moved with that no request is about. */
export interface OutsideMover {
  readonly workflow: Workflow;
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly turns: Turns;
  readonly onError: (error: unknown) => void;
  /** Tells the clients of a run that lists of it changed. */
  tell(run: string, lists: readonly ListKind[]): void;
}

/** Why a run was not moved. */
export type NotMoved = 'unknown-run' | 'busy' | 'held';

/** How a move from outside is told from others, and what is particular about it. */
interface OutsideCall extends Pick<CommitRequest, 'settles'> {
  readonly name: string;
  readonly payload?: unknown;
  /** How long it waits for the step that is under way. */
  readonly waitMs?: number;
}

/** As for a step of a call whose gate has no options. */
const TIMES = { waitMs: 10_000, leaseMs: 8_000, maxStepMs: 60_000, cancelGraceMs: 0 } as const;

/**
 * Moves a run with the same claim, commit and trail as a step. `change` says where to, from where
 * the run stands; `undefined` leaves it alone.
 *
 * @throws StoreUnavailable; and whatever `change` throws, which leaves the run as it is
 */
export async function moveFromOutside(
  mover: OutsideMover,
  run: string,
  { name, payload = null, settles, waitMs = TIMES.waitMs }: OutsideCall,
  change: (from: Position, isFirst: boolean) => Move | undefined,
): Promise<Move | NotMoved | 'unchanged'> {
  const { workflow, store, ttlMs, turns, onError } = mover;
  const wanted = {
    context: { run, store, ttlMs, turns, create: undefined },
    // Nobody but this move's own commit does anything, so it may be repeated.
    description: {
      tool: name,
      digest: digestOf(payload),
      uncertain: 'retry' as const,
    },
    states: undefined,
    times: { ...TIMES, waitMs },
    request: new InFlight(),
    onTooLong: () => {},
  };
  const step = await claimRun(mover, wanted, (expired) => tellMoved(mover, run, expired));
  if (!(step instanceof Step)) {
    if (step.reason === 'busy' || step.reason === 'held') return step.reason;
    if (step.reason === 'unknown') return 'unknown-run';
    throw new StoreUnavailable('the store could not be asked');
  }
  let move: Move | undefined;
  try {
    move = change(workflow.stand(step.snapshot), step.isFirst);
  } catch (error) {
    await step.release(UNBEGUN);
    throw error;
  }
  if (move === undefined) {
    await step.release(UNBEGUN);
    return 'unchanged';
  }
  const { actions: _, ...saved } = move;
  const status = await step.commit(saved, { settles });
  if (status !== 'committed') return status === 'unknown' ? 'unknown-run' : 'busy';
  takeEffect(workflow, move, run, onError);
  tellMoved(mover, run, move);
  return move;
}

/**
 * Tells the clients of a run that moved, if they see other things now, whichever way the gate takes
 * runs that have ended.
 */
export function tellMoved({ workflow, tell }: OutsideMover, run: string, { trail }: Move): void {
  if (isStableEverywhere(workflow)) return;
  const lists = (['keep', 'restart'] as const).flatMap((whenEnded) => {
    const [from, to] = [trail.from, trail.to].map((state) =>
      shownState({ workflow, whenEnded }, run, state),
    );
    return from === undefined || to === undefined ? [] : changedLists(workflow, from, to);
  });
  if (lists.length > 0) tell(run, [...new Set(lists)]);
}
