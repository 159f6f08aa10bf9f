import type { FsmSnapshot } from '../stores/store.ts';
import type { Move } from './move.ts';

/** Why a call may not go on although its run could be claimed, or asked where it stands. */
export interface NotAdmitted {
  readonly reason: 'state' | 'arguments' | 'guard' | 'loop' | 'cancelled' | 'unavailable';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The guard's own; for `'arguments'`, what is wrong with them. */
  readonly words?: string | undefined;
  /** What was saved all the same. */
  readonly moved?: Move;
}
