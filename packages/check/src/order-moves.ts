/**
 * The moves of runs under rules, as proofs know them: what turns on values, windows, counts and
 * limits may be so or not. Hides which of them a call turns on, where it may lead, and how a way is
 * tried out.
 */
import {
  atomsOf,
  type Changes,
  type CheckedLimit,
  callWith,
  type Decided,
  isLeaf,
  type Leaf,
  NOTHING,
  type Order,
  type Position,
  type Requirement,
  readerOf,
  usedBy,
  type Workflow,
} from '../../../src/internal.ts';
import type { ProofStep, ProofTurn } from './proof-step.ts';

/** Where a call may lead, and what that turns on. */
export interface OrderMove {
  readonly to: Position;
  readonly turnsOn: readonly ProofTurn[];
}

/** So many names that may hold or not are looked at both ways. */
const MOST_OPEN = 6;

const FOR_EVER = Number.POSITIVE_INFINITY;

export class OrderMoves {
  readonly #workflow: Workflow;
  readonly #order: Order;
  /** The names that may go by themselves, with time, and may open something then. */
  readonly #going: ReadonlyMap<string, ProofTurn>;
  readonly #start: { readonly at: Position; readonly now: number };
  #gap: string | undefined;

  /**
   * @param asked the names that a question is about
   * @param start where runs begin, and when. Default: at their start
   */
  constructor(
    workflow: Workflow,
    order: Order,
    asked: readonly string[],
    start: { readonly at: Position; readonly now: number } = { at: workflow.start, now: 0 },
  ) {
    this.#workflow = workflow;
    this.#start = start;
    this.#order = order;
    const further = workflow.toolNames.filter((tool) => order.ruleOf(tool) === undefined);
    const states = further.flatMap((tool) => workflow.bindingsOf(tool)).flatMap((b) => b.states);
    const named = new Set<unknown>([...states.flatMap(atomsOf), ...asked]);
    const going = new Map<string, ProofTurn>();
    for (const { name, kind, leaf } of order.names.flatMap((tool) => order.model.marksOf(tool))) {
      // What is only needed opens nothing when it goes.
      if (kind === 'after' && !named.has(name)) continue;
      if (leaf.withinMs !== FOR_EVER) going.set(name, 'a window');
      else if (leaf.outcome === 'any') going.set(name, 'an unknown outcome');
    }
    this.#going = going;
  }

  /** Why it may miss some moves; `undefined` where it misses none. */
  get gap(): string | undefined {
    return this.#gap;
  }

  /**
   * Where a success leads, the usual case first.
   *
   * @param isOwn whether the tool itself was called, else a call of another tool counts as it
   */
  succeeded(state: string, tool: string, isOwn: boolean): readonly OrderMove[] {
    return this.#cases(state, this.#order.model.changesOf(tool, isOwn ? 'succeeded' : 'sent'));
  }

  /** Where a failure leads, beside any event that it sends. */
  failed(state: string, tool: string): readonly OrderMove[] {
    const { model } = this.#order;
    const cases = this.#cases(state, model.changesOf(tool, 'failed'));
    // While its outcome is unknown, the call is made, and has not failed.
    const { adds } = model.changesOf(tool, 'failed');
    const called = model
      .marksOf(tool)
      .filter(
        ({ name, leaf, kind }) => leaf.outcome === 'any' && kind === 'after' && adds.includes(name),
      );
    if (called.length === 0) return cases;
    const unknown = new Set([...(model.doneIn(state) ?? []), ...called.map(({ name }) => name)]);
    const to = { state: model.stateOf(unknown) };
    return [...cases, { to, turnsOn: ['an unknown outcome'] }];
  }

  /** Where time alone leads, or the end of a call that did not run. */
  passed(state: string): readonly OrderMove[] {
    const { model } = this.#order;
    const done = model.doneIn(state) ?? [];
    return done.flatMap((name): OrderMove[] => {
      const turn = this.#going.get(name);
      if (turn === undefined) return [];
      const left = new Set(done.filter((each) => each !== name));
      return [{ to: { state: model.stateOf(left) }, turnsOn: [turn] }];
    });
  }

  #cases(state: string, changes: Changes): readonly OrderMove[] {
    const { model } = this.#order;
    const done = new Set(model.doneIn(state));
    for (const name of changes.removes) done.delete(name);
    const open = [
      ...changes.mayRemove.filter(({ name }) => done.has(name)),
      ...changes.mayAdd.filter(({ name }) => !done.has(name)),
    ];
    for (const name of changes.adds) done.add(name);
    // A name may be there twice: used up, and added again.
    const tried = open.filter(
      ({ name }, i) =>
        !changes.adds.includes(name) && open.findIndex((each) => each.name === name) === i,
    );
    if (tried.length > MOST_OPEN)
      this.#gap ??= `a call has more than ${MOST_OPEN} effects that turn on values or counts`;
    const looked = tried.slice(0, MOST_OPEN);
    return Array.from({ length: 2 ** looked.length }, (_, combination): OrderMove => {
      const reached = new Set(done);
      const turnsOn = new Set<ProofTurn>();
      for (const [i, { name, isUsual, turn }] of looked.entries()) {
        const isOther = (combination >> i) % 2 === 1;
        if (isOther) turnsOn.add(turn);
        if (isOther === isUsual) reached.delete(name);
        else reached.add(name);
      }
      return { to: { state: model.stateOf(reached) }, turnsOn: [...turnsOn] };
    });
  }

  /** What it turns on whether a call of the tool is allowed in a state that lists it. */
  turnsOf(tool: string, state: string): readonly ProofTurn[] {
    const done = new Set(this.#order.model.doneIn(state));
    const rule = this.#order.ruleOf(tool);
    if (rule === undefined) {
      const bindings = this.#workflow.bindingsOf(tool);
      const names = bindings.flatMap(({ states }) => states.flatMap(atomsOf));
      return names.some((name) => this.#isWindow(name)) ? ['a window'] : [];
    }
    const { after, notAfter, limits } = rule;
    const turns = new Set<ProofTurn>(limitTurns(limits));
    const isAsked = after !== undefined && hasWhen(after);
    const isBarred = notAfter.some(({ when, same }) => when !== undefined || same.length > 0);
    if (isAsked || isBarred) turns.add('values');
    for (const turn of (after && this.#turnsOfNeed(after, done)) ?? []) turns.add(turn);
    return [...turns];
  }

  #isWindow(name: unknown): boolean {
    const { leaf } = (typeof name === 'string' && this.#order.model.markOf(name)) || {};
    return leaf !== undefined && leaf.withinMs !== FOR_EVER;
  }

  /** The fewest that it takes; `undefined` where it does not hold. */
  #turnsOfNeed(need: Requirement, done: ReadonlySet<string>): ReadonlySet<ProofTurn> | undefined {
    if (isLeaf(need))
      return done.has(this.#order.markOf(need, 'after')) ? turnsOfLeaf(need) : undefined;
    if ('all' in need) {
      const all = need.all.map((each) => this.#turnsOfNeed(each, done));
      const met = all.filter((each) => each !== undefined);
      return met.length < all.length ? undefined : new Set(met.flatMap((each) => [...each]));
    }
    const met = need.any.flatMap((each) => this.#turnsOfNeed(each, done) ?? []);
    return met.sort((a, b) => a.size - b.size)[0];
  }

  /**
   * Makes the calls of a way one after the other, all at one time, without arguments and results.
   * Gives what keeps it from being gone; `undefined` where it can be gone just so.
   *
   * @param isGoal asked of where it ends
   */
  tryOut(
    steps: readonly ProofStep[],
    last: ProofStep | undefined,
    isGoal: (position: Position) => boolean,
  ): ProofTurn | undefined {
    let position = this.#start.at;
    for (const step of steps) {
      const { by, tool = '', outcome, event, times = 1 } = step;
      if (by !== 'call' || outcome === 'refused') {
        if (event !== undefined) position = this.#workflow.next(position, event).position;
        continue;
      }
      for (let made = 1; made <= times; made++) {
        const call = this.#called(position, tool, outcome === 'success');
        if (typeof call === 'string') return call;
        const isSent = event !== undefined && made === times;
        const isOwn = isSent && outcome === 'success' && event === tool;
        if (!isOwn) position = this.#workflow.rules.decided(position, call);
        if (isSent)
          position = this.#workflow.next(
            position,
            event,
            undefined,
            isOwn ? call : undefined,
          ).position;
      }
    }
    if (!isGoal(position)) return 'a count';
    const made = last?.tool === undefined ? undefined : this.#called(position, last.tool, true);
    return typeof made === 'string' ? made : undefined;
  }

  /** A call as rules see it, or why they refuse it. */
  #called(position: Position, tool: string, isSuccess: boolean): Decided | ProofTurn {
    const workflow = this.#workflow;
    const { now } = this.#start;
    const bindings = workflow.bindingsOf(tool);
    if (!bindings.some((each) => workflow.allows(position.state, each))) return 'a count';
    const read = readerOf({});
    const own = callWith(read, '');
    const past = workflow.rules.pastOf(position, now);
    const demands = workflow.rules.demandsOf(tool);
    const verdict = demands && workflow.rules.judge({ demands: [demands] }, past, own);
    if (verdict?.allows === false) {
      if (verdict.reason === 'arguments') return 'values';
      return verdict.reason === 'limit' ? 'a limit' : 'a count';
    }
    const noted = workflow.rules.ledger?.note(tool, 'args', read, '') ?? NOTHING;
    const outcome = isSuccess ? 'succeeded' : 'failed';
    const uses = usedBy(outcome, verdict?.uses ?? []);
    return { tool, outcome, claimedAt: now, decidedAt: now, noted, uses };
  }
}

/** What limits make a call turn on, but for how many calls a way has. */
export function limitTurns(limits: readonly CheckedLimit[]): readonly ProofTurn[] {
  const isSum = limits.some(({ sum }) => sum !== undefined);
  const isValue = limits.some(({ when, same }) => when !== undefined || same.length > 0);
  return [...(isSum ? (['a limit'] as const) : []), ...(isValue ? (['values'] as const) : [])];
}

/** Whether a limit refuses each call of its tool. */
export function isNever({ times, when }: CheckedLimit): boolean {
  return times === 0 && when === undefined;
}

/** Whether a way has a call of a tool that its limits refuse in any case. */
export function isBeyond(
  limits: readonly CheckedLimit[],
  tool: string,
  steps: readonly ProofStep[],
): boolean {
  return limits.some(({ times = FOR_EVER, outcome: asked }) => {
    let counted = 0;
    for (const { tool: called, outcome, times: made = 1 } of steps) {
      if (called !== tool || outcome === 'refused') continue;
      const isCounted = asked === 'any' || (asked === 'failed') === (outcome === 'failure');
      if (counted + (isCounted ? made : 1) > times) return true;
      if (isCounted) counted += made;
    }
    return false;
  });
}

function turnsOfLeaf({ withinMs, same }: Leaf): ReadonlySet<ProofTurn> {
  const turns = new Set<ProofTurn>();
  if (withinMs !== FOR_EVER) turns.add('a window');
  if (same.length > 0) turns.add('values');
  return turns;
}

function hasWhen(need: Requirement): boolean {
  if (need.when !== undefined) return true;
  return !isLeaf(need) && ('all' in need ? need.all : need.any).some(hasWhen);
}
