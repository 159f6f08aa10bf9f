/**
 * A stop for models that go round in circles. It hides how calls since the last move are
 * distinguished, counted, and kept with the run.
 */

import * as z from 'zod/mini';
import { configError, InterlockError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import {
  flagOption,
  integerOption,
  lazyOptions,
  optionalFunction,
  type ParsedBy,
  parseOptions,
  showValue,
} from '../basics/options.ts';
import type { UnsettledStep } from '../stores/store.ts';
import { type BoundTool, combine } from './bound-tools.ts';
import { openContext, sealContext } from './envelope.ts';
import { bareCall } from './facts.ts';
import type { Model, Next, Position } from './position.ts';
import { arrived } from './stored.ts';

/** A loop as `onLoop` gets it: a model called again and again without progress. */
export interface Loop {
  /** The run's key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  /** The tool whose call was one too many. */
  readonly tool: string;
  /** The run's state before it fell back. */
  readonly state: string;
  /** How many calls counted together, this one included. */
  readonly calls: number;
  readonly max: number;
}

/** Called for each loop. What it throws, or rejects with, only `onError` gets. */
export type LoopListener = (loop: Loop) => void;

/** Options of a gate's `loopShield`. */
export interface LoopShieldOptions {
  /** How many calls the gate lets through without a move. At the next one the run falls back. */
  readonly max: number;
  /**
   * Which calls count together. `'repeated'`: those of one tool, even with others between them.
   * `'consecutive'`: those of all tools. Default `'repeated'`.
   */
  readonly mode?: 'repeated' | 'consecutive' | undefined;
  /**
   * With `'repeated'`: whether only calls with the same arguments count together. Default `false`.
   */
  readonly sameArguments?: boolean | undefined;
  /**
   * Whether calls of tools that the gate does not bind count too, once a list has shown the tool.
   * Each of them is a step then, and is refused for a loop alone. Default `false`.
   */
  readonly unbound?: boolean | undefined;
  /** How long a call counts, in milliseconds. Default: until the next move. */
  readonly window?: number | undefined;
  /**
   * Where the run falls back to: a state of a flat machine, or where an event leads. The machine's
   * own guards may stop the event.
   */
  readonly fallback: { readonly state: string } | { readonly event: string };
  readonly onLoop?: LoopListener | undefined;
}

/** The count with one more call. */
export interface Count {
  /** The position to save, the count included. */
  readonly position: Position;
  readonly calls: number;
  /** Whether this call is one too many. */
  readonly isLoop: boolean;
}

/** How many kinds of calls are counted at once. Beyond that the oldest kind is forgotten. */
const MOST_KINDS = 32;

const optionsSchema = lazyOptions(() => ({
  max: integerOption(1, 1000),
  mode: z._default(z.enum(['repeated', 'consecutive']), 'repeated'),
  sameArguments: flagOption(),
  unbound: flagOption(),
  window: z.optional(z.number().check(z.positive())),
  fallback: z
    .strictObject({ state: z.optional(z.string()), event: z.optional(z.string()) })
    .check(
      z.refine(
        ({ state, event }) => (state === undefined) !== (event === undefined),
        'expected either { state } or { event }',
      ),
    ),
  onLoop: optionalFunction<LoopListener>(),
}));

/**
 * Counts the calls of a run between two moves. The count is a part of the run's context, so that it
 * lives as long as the run.
 */
export class LoopShield {
  readonly max: number;
  /** What the gate asks of calls that are only counted; absent where none are. */
  readonly unboundCalls: BoundTool | undefined;
  readonly onLoop: LoopListener | undefined;
  readonly #options: ParsedBy<typeof optionsSchema>;
  readonly #model: Model;

  /**
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, for the fall-back also `ERR_INTERLOCK_TARGET`
   * and `ERR_INTERLOCK_EVENT`
   */
  constructor(model: Model, options: unknown) {
    this.#options = parseOptions('loopShield', optionsSchema, options);
    this.#model = model;
    this.max = this.#options.max;
    if (this.#options.unbound) this.unboundCalls = unboundCalls(model);
    this.onLoop = this.#options.onLoop;
    if (this.#options.mode === 'consecutive' && this.#options.sameArguments)
      throw configError('loopShield: "sameArguments" goes with the mode "repeated" only');
    checkFallback(model, this.#options.fallback);
  }

  /** Counts one more call, made at `now`. */
  count(position: Position, call: Pick<UnsettledStep, 'tool' | 'digest'>, now: number): Count {
    const { max, window = Number.POSITIVE_INFINITY } = this.#options;
    const kind = this.#groupOf(call);
    const kinds = countsOf(position).map(
      ([each, times]) => [each, times.filter((at) => now - at < window)] as const,
    );
    const before = kinds.find(([each]) => each === kind)?.[1] ?? [];
    const times = [...before, now].slice(-(max + 1));
    const others = kinds.filter(([each, rest]) => each !== kind && rest.length > 0);
    const kept = [...others, [kind, times] as const].slice(-MOST_KINDS);
    return {
      position: {
        state: position.state,
        ...sealContext({
          ...openContext(position.context),
          loop: kept.map(([each, rest]) => [each, [...rest]]),
        }),
      },
      calls: times.length,
      isLoop: times.length > max,
    };
  }

  /** The event of the fall-back; `undefined` where it names a state. */
  get fallbackEvent(): string | undefined {
    return this.#options.fallback.event;
  }

  /** Where a looping run goes, by the store's clock. Its count starts anew there. */
  fallBack(position: Position, at: number): Next {
    const from = uncounted(position);
    const { event, state = from.state } = this.#options.fallback;
    if (event !== undefined)
      return arrived(this.#model.next(from, event, undefined, bareCall(event, at)));
    return arrived({
      position: { ...from, state },
      changed: state !== from.state,
      handled: true,
      actions: [],
    });
  }

  #groupOf({ tool, digest }: Pick<UnsettledStep, 'tool' | 'digest'>): string {
    const { mode, sameArguments } = this.#options;
    if (mode === 'consecutive') return '';
    return sameArguments ? JSON.stringify([tool, digest]) : tool;
  }
}

/** Any call, in each state but a run's end. */
function unboundCalls(model: Model): BoundTool {
  const ends = model.names.filter((name) => model.isFinal(name));
  const states = model.isFlat
    ? model.names.filter((name) => !ends.includes(name))
    : [{ not: { any: ends } }];
  return { ...combine(model, []), states };
}

/** The position without a count, as after a move. */
export function uncounted(position: Position): Position {
  const { loop, ...rest } = openContext(position.context);
  return loop === undefined ? position : { state: position.state, ...sealContext(rest) };
}

/** A store may return anything: what is no count is skipped. */
function countsOf({ context }: Position): [string, number[]][] {
  const { loop } = openContext(context);
  if (!Array.isArray(loop)) return [];
  return loop.flatMap((entry): [string, number[]][] => {
    const [kind, times] = Array.isArray(entry) ? entry : [];
    if (typeof kind !== 'string' || !Array.isArray(times)) return [];
    return [[kind, times.filter((at) => typeof at === 'number')]];
  });
}

function checkFallback(
  model: Model,
  { event, state = '' }: ParsedBy<typeof optionsSchema>['fallback'],
): void {
  const what = `loopShield of workflow "${model.id}"`;
  if (event !== undefined) {
    if (model.handlers(event).length > 0) return;
    const message = `${what}: no state handles ${showValue(event)}`;
    const right = rightNames(event, model.events);
    throw new InterlockError('ERR_INTERLOCK_EVENT', `${message}, ${right}`);
  }
  if (!model.isFlat) {
    const message = `${what}: only a flat machine falls back to a state`;
    const remedy = "name an event, which a statechart's actions belong to";
    throw configError(`${message}; ${remedy}`);
  }
  if (model.has(state)) return;
  const message = `${what}: ${showValue(state)} does not exist, ${rightNames(state, model.names)}`;
  throw new InterlockError('ERR_INTERLOCK_TARGET', message);
}
