/**
 * Recorded calls, played through a gate. Hides that two gates are played at once where they are
 * compared.
 */

import type { StateMachineGate } from '../../../src/index.ts';
import { assertGate } from '../../../src/internal.ts';
import { type Replay, type ReplayDifference, type ReplayOptions, replay } from './replay.ts';

/** Options of {@link replayCalls}. */
export interface ReplayCallsOptions extends ReplayOptions {
  /** A gate to compare with, such as that of the deployment before. Default: none. */
  readonly compareTo?: StateMachineGate<string, string> | undefined;
}

/** What {@link replayCalls} found. */
export interface ReplayedCalls extends Replay {
  /** The runs on which the two gates differ, the commonest first. Empty without `compareTo`. */
  readonly differences: readonly ReplayDifference[];
}

/**
 * Plays calls that `recordCalls()` has recorded through a gate, by the same decision as a request,
 * and says what the gate would have refused. It starts no server, and asks no guard.
 *
 * A run that began before the recording has no earlier calls in it, so its first ones may look out
 * of order.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is no gate; what `lines` throws
 */
export async function replayCalls<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  { compareTo, ...options }: ReplayCallsOptions,
): Promise<ReplayedCalls> {
  assertGate('replayCalls()', gate);
  const other = compareTo?.compile();
  const { replay: found, differences } = await replay(gate.compile(), options, other);
  return { ...found, differences };
}
