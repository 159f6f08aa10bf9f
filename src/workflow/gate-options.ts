import * as z from 'zod';
import { functionOption, isTable } from '../options.ts';
import type { ActionListener } from './actions.ts';
import type { Migrate } from './deployment.ts';
import type { ErrorListener } from './listeners.ts';
import type { LoopShieldOptions } from './loop-shield.ts';

/** Options of `new StateMachineGate()`. */
export interface GateOptions {
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Told what a callback throws. Default: nobody is. */
  readonly onError?: ErrorListener | undefined;
  /**
   * Does what a statechart's actions name, after the move was saved. Without it a machine that
   * names any is refused.
   */
  readonly onAction?: ActionListener | undefined;
  /**
   * Which deployment of the workflow this is: 1, 2, 3 … Runs of an older one are migrated. Default:
   * none, which counts as 0.
   */
  readonly version?: number | undefined;
  /**
   * Says where a run of an older version, or in a state that is no more, stands now. Default: such
   * a run is refused.
   */
  readonly migrate?: Migrate | undefined;
  /**
   * Stops a model that calls bound tools again and again without a move. Default: nothing does, and
   * nothing is counted.
   */
  readonly loopShield?: LoopShieldOptions | undefined;
}

export const gateOptionsSchema = z.strictObject({
  now: functionOption<() => number>().default(() => Date.now),
  onError: functionOption<ErrorListener>().default(() => () => {}),
  onAction: functionOption<ActionListener>().optional(),
  version: z.int().min(1).optional(),
  migrate: functionOption<Migrate>().optional(),
  loopShield: z.custom<LoopShieldOptions>(isTable, 'expected an object').optional(),
});
