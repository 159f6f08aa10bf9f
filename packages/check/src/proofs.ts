/**
 * What always holds in a workflow. It hides how a proof visits every position that runs can come
 * to, and how it finds a counter-example.
 */

import * as z from 'zod/mini';
import { InterlockError, type StateMachineGate } from '../../../src/index.ts';
import {
  atomsOf,
  type BoundState,
  type BoundStates,
  type GivenFact,
  givenFactsOption,
  lazyOptions,
  type Position,
  parseOptions,
  rightNames,
  showValue,
  type Workflow,
} from '../../../src/internal.ts';
import { Exploration, MAX_POSITIONS, type SearchMoves } from './exploration.ts';
import type { ProofStep, ProofTurn } from './proof-step.ts';

/** A tool; or, for a tool that does several things, only those of its calls that send an event. */
export type ProofTool<E extends string = string> =
  | string
  | { readonly tool: string; readonly event: E };

/** Options of a proof. */
export interface ProofOptions<E extends string = string> {
  /**
   * The events that `runs.send()` sends; `true` for all that the machine handles. Default: none, so
   * that runs move by calls and deadlines only.
   */
  readonly outside?: boolean | readonly E[] | undefined;
  /**
   * How many positions to visit before giving up: combinations of a statechart's states, or sets of
   * done tools. Default 5,000.
   */
  readonly maxPositions?: number | undefined;
  /**
   * Under rules: the calls that were made before, with which each run begins. It is as late as the
   * latest of them, and the proof is about what comes then. Default: none.
   */
  readonly facts?: readonly GivenFact[] | undefined;
}

/** It holds for all guards, arguments, results and data, and for all times. */
export interface Proven {
  readonly holds: true;
}

/** It does not hold: a run can take this way. */
export interface Disproven {
  readonly holds: false;
  /**
   * The shortest way from the start of a run to a call that breaks it. A way without guards is
   * preferred to a shorter one.
   */
  readonly counterExample: readonly ProofStep[];
  /**
   * Whether the calls alone suffice. Else some guard, argument, result or data must be right, too.
   */
  readonly isCertain: boolean;
}

/** The proof gave up, or it turns on what only a run knows. */
export interface Undecided {
  readonly holds: undefined;
  /** Why, in words. */
  readonly reason: string;
  /**
   * Under rules and limits: a way that decides it if all that its steps turn on is so. For example,
   * values agree, a window is still open, or an amount is small enough.
   */
  readonly way?: readonly ProofStep[];
}

export type Proof = Proven | Disproven | Undecided;

/** The result of {@link reaches}. */
export type Reachability =
  | {
      readonly holds: true;
      /** The shortest way. A way without guards is preferred to a shorter one. */
      readonly example: readonly ProofStep[];
      /** Whether some guard, argument, result or data must be right for it. */
      readonly ifGuardsAllow: boolean;
    }
  | { readonly holds: false }
  | Undecided;

const optionsSchema = lazyOptions(() => ({
  outside: z._default(z.union([z.boolean(), z.array(z.string())]), false),
  maxPositions: z._default(z.int().check(z.minimum(1)), MAX_POSITIONS),
  facts: givenFactsOption(),
}));

/**
 * Proves that in no run the gate lets a call of `later` through before a call of `earlier` has
 * succeeded. The proof trusts no guard: each may answer anything.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a tool that is not bound,
 * `ERR_INTERLOCK_EVENT` for an event that the machine does not have, `ERR_INTERLOCK_CONFIG`
 */
export function precedes<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  earlier: ProofTool<NoInfer<E>>,
  later: ProofTool<NoInfer<E>>,
  options?: ProofOptions<NoInfer<E>>,
): Proof {
  const asked = new Question(gate, [earlier, later].map(nameOf), 'precedes()', options);
  const first = asked.tool(earlier);
  const then = asked.tool(later);
  return asked.refute(then, {
    counts: (tool, outcome, event) =>
      tool !== first.tool ||
      outcome !== 'success' ||
      (first.event !== undefined && first.event !== event),
  });
}

/**
 * Proves that the gate lets no call of a tool through while a run is in one of these states.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a tool that is not bound and a state that does
 * not exist, `ERR_INTERLOCK_EVENT`, `ERR_INTERLOCK_CONFIG`
 */
export function never<S extends string, E extends string, T extends string>(
  gate: StateMachineGate<S, E, T>,
  tool: ProofTool<NoInfer<E>>,
  {
    in: states,
    ...options
  }: ProofOptions<NoInfer<E>> & { readonly in: BoundStates<NoInfer<S>, NoInfer<T>> },
): Proof {
  const asked = new Question(gate, [nameOf(tool), ...listOf(states)], 'never()', options);
  return asked.refute(asked.tool(tool), {}, asked.states(states));
}

/**
 * Proves that a run can come to one of these states, if guards allow it.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a state that does not exist,
 * `ERR_INTERLOCK_CONFIG`
 */
export function reaches<S extends string, E extends string, T extends string>(
  gate: StateMachineGate<S, E, T>,
  states: BoundStates<NoInfer<S>, NoInfer<T>>,
  options?: ProofOptions<NoInfer<E>>,
): Reachability {
  const asked = new Question(gate, listOf(states), 'reaches()', options);
  return asked.reach(asked.states(states));
}

/** What one search leaves out. */
type Pass = Required<Pick<SearchMoves, 'unguarded' | 'settled'>>;

const PASSES: readonly Pass[] = [
  { unguarded: true, settled: true },
  { unguarded: false, settled: true },
  { unguarded: false, settled: false },
];

interface AskedTool {
  readonly tool: string;
  readonly event: string | undefined;
}

class Question {
  /** The gate's own workflow, as it is mounted. */
  readonly #mounted: Workflow;
  /** The same, where rules of order remember each tool that the question names. */
  readonly #workflow: Workflow;
  readonly #what: string;
  readonly #options: Pick<SearchMoves, 'outside' | 'maxPositions'>;
  readonly #exploration: Exploration;

  /** @param named the tools and states that the question is about */
  constructor(
    gate: StateMachineGate<string, string, string>,
    named: readonly BoundState[],
    what: string,
    options: ProofOptions | undefined,
  ) {
    this.#mounted = gate.clone().compile();
    this.#workflow = gate.remembering(named).compile();
    this.#what = what;
    const { outside, maxPositions, facts = [] } = parseOptions(what, optionsSchema, options);
    if (typeof outside !== 'boolean')
      for (const event of outside) this.#event(event, this.#mounted);
    // What only the question remembers is no event that runs.send() could send.
    const isAll = outside === true && this.#mounted.isOrder;
    this.#options = { outside: isAll ? this.#mounted.model.events : outside, maxPositions };
    const asked = named.flatMap((each) => [...atomsOf(each), ...(this.#storedAs(each) ?? [])]);
    this.#exploration = new Exploration(
      this.#workflow,
      asked.filter((each) => typeof each === 'string'),
      facts,
    );
  }

  tool(asked: ProofTool): AskedTool {
    const { tool, event } = typeof asked === 'string' ? { tool: asked, event: undefined } : asked;
    if (!this.#workflow.isBound(tool)) {
      const { id, toolNames } = this.#workflow;
      const message = `${this.#what}: ${showValue(tool)} is no bound tool of workflow "${id}"`;
      throw new InterlockError(
        'ERR_INTERLOCK_BINDING',
        `${message}, ${rightNames(tool, toolNames)}`,
      );
    }
    return { tool, event: event === undefined ? undefined : this.#event(event) };
  }

  /** Tests whether a position is in one of the states. */
  states(asked: BoundState | readonly BoundState[]): (position: Position) => boolean {
    const list = listOf(asked);
    for (const state of list) {
      if (this.#storedAs(state) !== undefined) continue;
      const fault = this.#workflow.faultOfAsking(state);
      if (fault !== undefined)
        throw new InterlockError('ERR_INTERLOCK_BINDING', `${this.#what}: ${fault}`);
    }
    return ({ state }) => list.some((each) => this.#standsIn(state, each));
  }

  #standsIn(state: string, asked: BoundState): boolean {
    const stored = this.#storedAs(asked);
    if (stored === undefined) return this.#workflow.standsIn(state, asked);
    // The text of a stored state has only what runs remember.
    const { model } = this.#mounted.order ?? {};
    const done = this.#workflow.model.doneIn?.(state)?.filter((each) => model?.markOf(each));
    return done?.length === stored.length && stored.every((each) => done.includes(each));
  }

  /** For rules of order: what is done in the stored state of this text. */
  #storedAs(asked: BoundState): readonly string[] | undefined {
    return typeof asked === 'string' ? this.#mounted.model.doneIn?.(asked) : undefined;
  }

  /** Looks for a call that the gate lets through where it must not. */
  refute(
    { tool, event }: AskedTool,
    moves: Pick<SearchMoves, 'counts'>,
    isPlace: (position: Position) => boolean = () => true,
  ): Proof {
    let inTheWay: ProofTurn | undefined;
    const passes = this.#passes();
    for (const pass of passes) {
      const callAt = (position: Position): ProofStep | undefined =>
        isPlace(position)
          ? this.#exploration.callAt(tool, position, { event, ...pass })
          : undefined;
      const all = { ...moves, ...this.#options, ...pass };
      const found = this.#exploration.find(all, (each) => callAt(each) !== undefined);
      const call = found.at && callAt(found.at);
      if (found.steps !== undefined && call !== undefined) {
        const way = [...found.steps, call];
        if (!pass.settled) return this.#open(way, inTheWay);
        const fault = this.#exploration.tryOut(found.steps, call, isPlace);
        if (fault === undefined)
          return { holds: false, counterExample: way, isCertain: pass.unguarded };
        inTheWay = fault;
      }
      if (found.gap !== undefined && pass === passes.at(-1))
        return { holds: undefined, reason: this.#because(found.gap) };
    }
    return { holds: true };
  }

  reach(isGoal: (position: Position) => boolean): Reachability {
    let inTheWay: ProofTurn | undefined;
    const passes = this.#passes();
    for (const pass of passes) {
      const { steps, gap, isPartial } = this.#exploration.find(
        { ...this.#options, ...pass },
        isGoal,
      );
      if (steps !== undefined) {
        if (!pass.settled) return this.#open(steps, inTheWay);
        const fault = this.#exploration.tryOut(steps, undefined, isGoal);
        if (fault === undefined)
          return { holds: true, example: steps, ifGuardsAllow: !pass.unguarded };
        inTheWay = fault;
        continue;
      }
      if (isPartial && pass !== passes.at(-1)) continue;
      return gap === undefined
        ? { holds: false }
        : { holds: undefined, reason: this.#because(gap) };
    }
    return { holds: false };
  }

  /** Where nothing turns on values, the last pass would find what the one before it found. */
  #passes(): readonly Pass[] {
    return this.#exploration.turns ? PASSES : PASSES.slice(0, 2);
  }

  /** @param inTheWay what a way turned on that seemed to turn on nothing */
  #open(way: readonly ProofStep[], inTheWay: ProofTurn | undefined): Undecided {
    const turns = [...way.flatMap(({ turnsOn = [] }) => turnsOn), ...(inTheWay ? [inTheWay] : [])];
    const named = [...new Set(turns)];
    const reason = this.#because(`it turns on ${named.join(' and ')}`);
    return { holds: undefined, reason, way };
  }

  #because(gap: string): string {
    return `${this.#what}: it cannot be known of workflow "${this.#workflow.id}": ${gap}`;
  }

  #event(event: string, workflow = this.#workflow): string {
    const { events } = workflow.model;
    if (workflow.handlesSomewhere(event)) return event;
    const message = `${this.#what}: no state of workflow "${workflow.id}" handles ${showValue(event)}`;
    throw new InterlockError('ERR_INTERLOCK_EVENT', `${message}, ${rightNames(event, events)}`);
  }
}

function nameOf(asked: ProofTool): string {
  return typeof asked === 'string' ? asked : asked.tool;
}

function listOf(states: BoundState | readonly BoundState[]): readonly BoundState[] {
  return isList(states) ? states : [states];
}

function isList(states: BoundState | readonly BoundState[]): states is readonly BoundState[] {
  return Array.isArray(states);
}
