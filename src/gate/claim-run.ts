import { type ClaimOptions, claimStep, type NotClaimed } from '../session/claim.ts';
import { Step } from '../session/step.ts';
import { expire } from './expire.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';

/** Deadlines that are shorter than a look at the store would go round for ever. */
const MOST_EXPIRIES = 16;

/** Claims a run where it stands now: a state whose time is over is left first, by a move of its own that `onMoved` is told of. */
export async function claimRun(
  config: Pick<GateConfig, 'workflow' | 'clock' | 'onError'>,
  wanted: Omit<ClaimOptions, 'workflow' | 'initial' | 'clock' | 'onError'>,
  onMoved: (move: Move) => void,
): Promise<Step | NotClaimed> {
  const { workflow, clock, onError } = config;
  const options = { ...wanted, workflow: workflow.id, initial: workflow.start, clock, onError };
  for (let expiries = 0; expiries <= MOST_EXPIRIES; expiries++) {
    const step = await claimStep(options);
    if (!(step instanceof Step)) return step;
    const expired = await expire(config, step);
    if (expired === undefined) return step;
    if (expired === 'failed') return { reason: 'unavailable' };
    onMoved(expired);
  }
  return { reason: 'busy' };
}
