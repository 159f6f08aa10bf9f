/**
 * A gate's machine and options. It hides how options are read, which kind of machine they come to,
 * and how the app's callbacks are called.
 */
import * as z from 'zod/mini';
import { configError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import {
  clockOption,
  functionOption,
  integerOption,
  isTable,
  lazyOptions,
  optionalFunction,
  type ParsedBy,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import type { AnyBinding } from './binding.ts';
import { flatModel, workflowId } from './flat-machine.ts';
import { type CheckedLimit, earningOf, parseSharedLimits, type SharedLimit } from './limits.ts';
import { LoopShield, type LoopShieldOptions } from './loop-shield.ts';
import { Order } from './order.ts';
import type { FsmAction, Model, Move } from './position.ts';
import type { OutsideFact } from './rule-parts.ts';
import { NO_DEMANDS, type OrderRequirement } from './rules.ts';
import { statechartModel } from './statechart.ts';
import type { Deployment, Migrate } from './stored.ts';
import { isXStateMachine } from './xstate.ts';

/** Called with each change of state. What it throws, or rejects with, only `onError` gets. */
export type TransitionListener<S extends string = string> = (move: Move<S>) => void;

/** Called with what a callback threw, or rejected with. */
export type ErrorListener = (error: unknown) => void;

/** Where an action comes from. */
export interface ActionContext {
  /** The run's key; absent where a standalone gate moved. */
  readonly run?: string | undefined;
  /** The gate's id. */
  readonly workflow: string;
  /** The event that led to it, or `null` where a call sent none. */
  readonly event: string | null;
  /** The state before and after; they may be the same. */
  readonly from: string;
  readonly to: string;
  /** The statechart's context after the move. */
  readonly context?: Json | undefined;
}

/** Does what a statechart names, once the move that names it is saved. */
export type ActionListener = (action: FsmAction, context: ActionContext) => void | Promise<void>;

/** Options of `new StateMachineGate()`. */
export interface GateOptions {
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Called with what a callback throws. Default: the error is dropped. */
  readonly onError?: ErrorListener | undefined;
  /**
   * Does what a statechart's actions name, after the move was saved. Without it the gate refuses a
   * machine that names any.
   */
  readonly onAction?: ActionListener | undefined;
  /**
   * Which deployment of the workflow this is: 1, 2, 3 … Runs of an older one are migrated. Default:
   * none, which counts as 0.
   */
  readonly version?: number | undefined;
  /**
   * Says where a run of an older version, or in a state that no longer exists, stands now. Default:
   * the gate refuses such a run.
   */
  readonly migrate?: Migrate | undefined;
  /**
   * Stops a model that calls bound tools again and again without a move. Default: no calls are
   * counted.
   */
  readonly loopShield?: LoopShieldOptions | undefined;
  /**
   * The states in which a run may begin, beside the initial one. `begin` chooses one of them by
   * `beginIn()`. Give names of a flat machine's states, or paths or texts of a statechart's. None
   * may be final. Proofs and checks start from each. Default: none.
   */
  readonly starts?: readonly string[] | undefined;
  /** Limits that the calls of several tools share. They make each call of these tools a step. */
  readonly limits?: readonly SharedLimit[] | undefined;
}

const gateOptionsSchema = lazyOptions(() => ({
  now: clockOption(),
  onError: z._default(functionOption<ErrorListener>(), () => () => {}),
  onAction: optionalFunction<ActionListener>(),
  version: z.optional(integerOption(1)),
  migrate: optionalFunction<Migrate>(),
  loopShield: z.optional(z.custom<LoopShieldOptions>(isTable, 'expected an object')),
  starts: z._default(z.array(z.string()), () => []),
  limits: uncheckedOption(),
}));

/** Options of `StateMachineGate.fromOrder()`. */
export interface OrderOptions<
  N extends string = string,
  D extends string = string,
  O extends string = string,
> extends Omit<GateOptions, 'onAction' | 'starts' | 'version' | 'migrate'> {
  /**
   * Names the workflow to stores, models and logs: 1 to 64 letters, digits, `_`, `.` or `-`.
   * Default `'workflow'`.
   */
  readonly id?: string | undefined;
  /**
   * Requirements by name, for `{ need }`. They may name each other. What they say of arguments is
   * about those of the calling tool. Default: none.
   */
  readonly needs?:
    | {
        readonly [name in D]: OrderRequirement<N, D, O> | readonly OrderRequirement<N, D, O>[];
      }
    | undefined;
  /**
   * What comes from outside by `runs.send()`, for `{ outside }`, such as a person's approval. No
   * call makes it: a call of such a name is refused. Default: nothing.
   */
  readonly outside?: { readonly [name in O]: OutsideFact } | undefined;
  /** What conditions read of results, unless a rule says otherwise. Default `'structured'`. */
  readonly results?: 'structured' | 'text' | undefined;
}

const orderOptionsSchema = lazyOptions(() => {
  const { now, onError, loopShield, limits } = gateOptionsSchema().shape;
  return {
    ...{ now, onError, loopShield, limits },
    id: z._default(workflowId(), 'workflow'),
    needs: uncheckedOption(),
    outside: uncheckedOption(),
    results: z.optional(z.enum(['structured', 'text'])),
  };
});

/** A gate's machine and options. It never changes, so clones share it. */
export class Definition {
  readonly model: Model;
  /** The rules that it was made of; none where it was made of a machine. */
  readonly order: Order | undefined;
  readonly now: () => number;
  readonly deployment: Deployment;
  readonly shield: LoopShield | undefined;
  /** Where a run may begin beside the initial state, as stores name these states. */
  readonly starts: readonly string[];
  readonly onError: ErrorListener;
  /** The machine, or the rules with what they name, as the app gave them. */
  readonly given: unknown;
  /** Of a machine: the limits over several tools. Rules have them among their own. */
  readonly limits: ReadonlyMap<string, readonly CheckedLimit[]>;

  readonly #options: ParsedBy<typeof gateOptionsSchema>;

  /** Whether the app has given an id. Stores keep runs under it. */
  readonly isNamed: boolean;

  private constructor(
    isNamed: boolean,
    model: Model,
    order: Order | undefined,
    options: ParsedBy<typeof gateOptionsSchema>,
    given: unknown,
  ) {
    this.isNamed = isNamed;
    this.given = given;
    const { loopShield, now, onError, onAction: _, starts, limits, ...deployment } = options;
    const what = `workflow "${model.id}": limits`;
    this.limits = parseSharedLimits(what, order === undefined ? limits : undefined);
    this.model = model;
    this.order = order;
    this.shield = loopShield === undefined ? undefined : new LoopShield(model, loopShield);
    this.starts = Object.freeze(starts.map((asked) => startOf(model, asked)));
    this.now = now;
    this.deployment = deployment;
    this.onError = onError;
    this.#options = options;
  }

  static ofMachine(machine: unknown, given: GateOptions | undefined): Definition {
    const options = parseOptions('StateMachineGate()', gateOptionsSchema, given);
    const model = isXStateMachine(machine)
      ? statechartModel(machine, options.onAction !== undefined)
      : flatModel(machine);
    const { id } = (isXStateMachine(machine) ? machine.config : machine) as { id?: unknown };
    return new Definition(id !== undefined, model, undefined, options, machine);
  }

  static ofOrder(rules: unknown, given: unknown): Definition {
    const parsed = parseOptions('fromOrder()', orderOptionsSchema, given);
    const { id, needs, outside, results, ...options } = parsed;
    const said = { rules, needs, outside, results, limits: options.limits };
    const order = Order.parse(id, said);
    const isNamed = (given as OrderOptions | undefined)?.id !== undefined;
    return new Definition(isNamed, order.model, order, { ...options, starts: [] }, said);
  }

  /** The definition with further tools for a run to remember; itself where it has them already. */
  remembering(names: readonly string[]): Definition {
    const order = this.order?.remembering(names);
    if (order === undefined || order === this.order) return this;
    return new Definition(this.isNamed, order.model, order, this.#options, this.given);
  }

  /** Of a machine: the limits over several tools, as the app gave them. */
  get givenLimits(): unknown {
    return this.order === undefined ? this.#options.limits : undefined;
  }

  /**
   * The bindings of a machine's tools, with the limits over several.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for one of a tool that is not bound, or in part
   */
  limiting(
    tools: ReadonlyMap<string, readonly AnyBinding[]>,
  ): ReadonlyMap<string, readonly AnyBinding[]> {
    if (this.order !== undefined) return tools;
    const limited = new Map(tools);
    const add = (tool: string, limits: readonly CheckedLimit[]): void => {
      const bound = limited.get(tool) ?? [];
      const what = `workflow "${this.model.id}": limits: ${showValue(tool)}`;
      if (bound.length === 0) throw configError(`${what} is not bound: a limit is of bound tools`);
      if (bound.some(({ when, whileHeld }) => when !== undefined || whileHeld === true))
        throw configError(`${what} has a binding with "when" or "whileHeld"; leave them out`);
      const all = bound.map((each) => {
        const { demands = NO_DEMANDS } = each;
        return { ...each, demands: { ...demands, tool, limits: [...demands.limits, ...limits] } };
      });
      limited.set(tool, all);
    };
    for (const [tool, limits] of this.limits) add(tool, limits);
    // What bounds a sum must be known, so its calls are steps, too.
    for (const bindings of [...limited.values()])
      for (const { demands } of bindings)
        for (const { tool } of (demands?.limits ?? []).flatMap(earningOf)) add(tool, []);
    return limited;
  }

  /**
   * Hands actions to `onAction`, in their order. Never throws: `onError` gets what it throws, or
   * rejects with.
   */
  act(
    actions: readonly FsmAction[],
    context: ActionContext,
    onError: ErrorListener = this.onError,
  ): void {
    const { onAction } = this.#options;
    if (onAction === undefined) return;
    for (const action of actions) callSafely(() => onAction(action, context), onError);
  }
}

/**
 * The text of a state in which runs may begin.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where there is no such state, or runs end there
 */
function startOf(model: Model, asked: string): string {
  const what = `workflow "${model.id}": starts: ${showValue(asked)}`;
  const state = model.has(asked) ? asked : model.entered?.(asked);
  if (state === undefined)
    throw configError(`${what} does not exist, ${rightNames(asked, model.names)}`);
  if (!model.isFinal(state)) return state;
  const open = model.names.filter((name) => !model.isFinal(name));
  throw configError(
    `${what} is final, so a run that begins there could do nothing; ` +
      `states that are not are ${open.map(showValue).join(', ')}`,
  );
}

/** An `onTransition` callback as a gate keeps it: one that is added twice is called twice. */
export interface Listener {
  readonly callback: TransitionListener;
}

/** Calls each callback that was there when it began and still is. */
export function emit(listeners: ReadonlySet<Listener>, move: Move, onError: ErrorListener): void {
  const frozen = Object.freeze({ ...move });
  for (const each of [...listeners]) {
    if (listeners.has(each)) callSafely(() => each.callback(frozen), onError);
  }
}

/** The app's own code must not break ours, whether it throws or rejects. */
function callSafely(callback: () => unknown, onError: ErrorListener): void {
  const report = (error: unknown): void => {
    try {
      onError(error);
    } catch {
      // No listener is left to call.
    }
  };
  try {
    Promise.resolve(callback()).catch(report);
  } catch (error) {
    report(error);
  }
}
