import { type ClaimOptions, claimStep, type NotClaimed } from '../session/claim.ts';
import { Step } from '../session/step.ts';
import { expire, restart } from './expire.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';
import { tellIfHeld } from './unknown-outcome.ts';

/** Deadlines that are shorter than a look at the store would go round for ever. */
const MOST_MOVES = 16;

/** What a run is claimed for. */
interface WantedRun extends Omit<ClaimOptions, 'workflow' | 'initial' | 'clock' | 'onError'> {
  /** Who begins it anew where it has ended; without it, it stays as it is. */
  readonly restarts?: { readonly actor: string | undefined } | undefined;
}

/**
 * Claims a run where it stands now. First a state is left whose time is over, and a run begins anew
 * that has ended, each by a move of its own that `onMoved` is told of.
 */
export async function claimRun(
  config: Pick<GateConfig, 'workflow' | 'clock' | 'onError'>,
  { restarts, ...wanted }: WantedRun,
  onMoved: (move: Move) => void,
): Promise<Step | NotClaimed> {
  const { workflow, clock, onError } = config;
  const options = { ...wanted, workflow: workflow.id, initial: workflow.start, clock, onError };
  for (let moves = 0; moves <= MOST_MOVES; moves++) {
    const step = await claimStep(options);
    if (!(step instanceof Step)) {
      tellIfHeld({ run: wanted.context.run, workflow: workflow.id }, step.held, config);
      return step;
    }
    const expired = await expire(config, step);
    const moved = expired ?? (restarts && (await restart(config, step, restarts.actor)));
    if (moved === undefined) return step;
    if (moved === 'failed') return { reason: 'unavailable' };
    onMoved(moved);
  }
  return { reason: 'busy' };
}
