/**
 * What a gate is made of: hides how its options are read, and which kind of machine it comes to.
 */
import * as z from 'zod/mini';
import { functionOption, isTable, parseOptions } from '../options.ts';
import type { ActionListener, ErrorListener } from './callbacks.ts';
import { flatModel, parseConfig, WORKFLOW_ID } from './flat-machine.ts';
import { LoopShield, type LoopShieldOptions } from './loop-shield.ts';
import { Order } from './order.ts';
import { orderModel } from './order-model.ts';
import type { Model } from './position.ts';
import { statechartModel } from './statechart.ts';
import type { Deployment, Migrate } from './stored.ts';
import { isXStateMachine } from './xstate.ts';

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

const gateOptionsSchema = z.strictObject({
  now: z._default(functionOption<() => number>(), () => Date.now),
  onError: z._default(functionOption<ErrorListener>(), () => () => {}),
  onAction: z.optional(functionOption<ActionListener>()),
  version: z.optional(z.int().check(z.minimum(1))),
  migrate: z.optional(functionOption<Migrate>()),
  loopShield: z.optional(z.custom<LoopShieldOptions>(isTable, 'expected an object')),
});

/** Options of `StateMachineGate.fromOrder()`. */
export interface OrderOptions extends Omit<GateOptions, 'onAction'> {
  /**
   * Names the workflow to stores, models and logs: 1 to 64 letters, digits, `_`, `.` or `-`.
   * Default `'workflow'`.
   */
  readonly id?: string | undefined;
}

const { onAction: _, ...orderOptions } = gateOptionsSchema.shape;
const orderOptionsSchema = z.strictObject({
  ...orderOptions,
  id: z._default(WORKFLOW_ID, 'workflow'),
});

/** What a gate is made of, which never changes: its clones share it. */
export class Made {
  readonly model: Model;
  /** The rules that it was made of; none where it was made of a machine. */
  readonly order: Order | undefined;
  readonly now: () => number;
  readonly deployment: Deployment;
  readonly shield: LoopShield | undefined;
  readonly onAction: ActionListener | undefined;
  readonly onError: ErrorListener;

  readonly #options: z.output<typeof gateOptionsSchema>;

  private constructor(
    model: Model,
    order: Order | undefined,
    options: z.output<typeof gateOptionsSchema>,
  ) {
    const { loopShield, now, onError, onAction, ...deployment } = options;
    this.model = model;
    this.order = order;
    this.shield = loopShield === undefined ? undefined : new LoopShield(model, loopShield);
    this.now = now;
    this.deployment = deployment;
    this.onAction = onAction;
    this.onError = onError;
    this.#options = options;
  }

  static ofMachine(machine: unknown, given: GateOptions | undefined): Made {
    const options = parseOptions('StateMachineGate()', gateOptionsSchema, given);
    const model = isXStateMachine(machine)
      ? statechartModel(machine, options.onAction !== undefined)
      : flatModel(parseConfig(machine));
    return new Made(model, undefined, options);
  }

  static ofOrder(rules: unknown, given: unknown): Made {
    const { id, ...options } = parseOptions('fromOrder()', orderOptionsSchema, given);
    const order = Order.parse(id, rules);
    return new Made(orderModel(order), order, options);
  }

  /** The same, where a run remembers these tools too. Itself where it does, or has no rules. */
  remembering(names: readonly string[]): Made {
    const order = this.order?.remembering(names);
    if (order === undefined || order === this.order) return this;
    return new Made(orderModel(order), order, this.#options);
  }
}
