/**
 * Every position that a run can come to: hides which moves exist, and what is not known of them.
 * Guards, the data they read, a `when` and an event function may each answer anything.
 */
import {
  type AnyBinding,
  type CheckedLimit,
  covers,
  eventNamed,
  eventsSent,
  type GivenFact,
  isChosen,
  kindOfCalls,
  type Position,
  type Workflow,
} from '../../../src/internal.ts';
import { EitherWayChart, positionKey } from './either-way.ts';
import { isBeyond, isNever, limitTurns, OrderMoves } from './order-moves.ts';
import type { CallOutcome, ProofStep, ProofTurn } from './proof-step.ts';

/** More would take seconds, and a machine with more usually has millions. */
export const MAX_POSITIONS = 5000;

/** How a call ends that was forwarded. */
type Ending = Exclude<CallOutcome, 'refused'>;

/** The moves that a search takes. */
export interface SearchMoves {
  /** The events that `runs.send()` may send; `true` for all that the machine handles. */
  readonly outside: readonly string[] | boolean;
  /** Whether to take a call's move. Default: yes. */
  readonly counts?: (tool: string, outcome: Ending, event: string) => boolean;
  /** Whether to take only moves that need no guard, argument, function or data to be right. */
  readonly unguarded?: boolean;
  /** Whether to take only moves that turn on no values, windows, counts and limits. */
  readonly settled?: boolean;
  /** How many positions to visit, unless they are just the states of a flat machine. */
  readonly maxPositions: number;
}

interface Arrival {
  readonly position: Position;
  readonly last: { readonly step: ProofStep; readonly from: string } | undefined;
}

/** All the positions that runs can come to. */
export interface Reached {
  readonly positions: readonly Position[];
  readonly gap: string | undefined;
}

/** The result of a search. */
export interface Found {
  /** The shortest way to the goal; `undefined` where none was found. */
  readonly steps: readonly ProofStep[] | undefined;
  /** Where it ends. */
  readonly at: Position | undefined;
  /** Why the search may have missed positions; `undefined` where it missed none. */
  readonly gap: string | undefined;
  /** Whether the search left out moves because `unguarded` or `settled` asked for it. */
  readonly isPartial: boolean;
}

/** The positions that the runs of one workflow can come to. */
export class Exploration {
  readonly workflow: Workflow;
  readonly #chart: EitherWayChart | undefined;
  readonly #order: OrderMoves | undefined;
  readonly #start: Position;
  readonly #known = new Map<string, readonly Lead[]>();
  #skipped = false;

  /**
   * @param asked for rules: the names in states that a question is about
   * @param facts for rules: the calls with which runs begin
   */
  constructor(workflow: Workflow, asked: readonly string[] = [], facts: readonly GivenFact[] = []) {
    this.workflow = workflow;
    const now = Math.max(0, ...facts.map(({ at = 0 }) => at));
    const calls = workflow.rules.givenFacts(facts, '', now);
    const begun = workflow.begunWith(workflow.start, { calls });
    this.#start = calls.length === 0 ? begun : workflow.rules.standAt(begun, now);
    this.#order =
      workflow.order && new OrderMoves(workflow, workflow.order, asked, { at: this.#start, now });
    this.#chart = workflow.model.chart && new EitherWayChart(workflow.model.chart);
  }

  /** The nearest position for which `isGoal` says yes. */
  find(moves: SearchMoves, isGoal: (position: Position) => boolean): Found {
    const { starts } = this.workflow;
    // A machine without a chart moves by its state alone, so no move leads back to an equal start.
    const start = this.#chart ? this.#start : withoutTime(this.#start);
    const reached = new Map<string, Arrival>([
      [this.#keyOf(start, true), { position: start, last: undefined }],
    ]);
    // Such a run is saved as it begins, so a deadline of its state runs at once.
    for (const state of starts) {
      const placed = this.#chart?.next({ ...start, state }, undefined).positions ?? [{ state }];
      for (const position of placed)
        reached.set(positionKey(position), { position, last: undefined });
    }
    // A map also iterates over what is added meanwhile, so it serves as the queue.
    this.#skipped = false;
    for (const [key, { position }] of reached) {
      if (isGoal(position)) return this.#found({ steps: stepsTo(reached, key), at: position });
      if (!this.workflow.model.isFlat && reached.size > moves.maxPositions)
        return this.#found({
          gap: `it has more than ${moves.maxPositions} positions, which are not all looked at`,
        });
      for (const { step, to } of this.#movesAt(position, moves, key.startsWith(UNSAVED))) {
        const next = this.#keyOf(to, step.by === 'deadline');
        if (!reached.has(next)) reached.set(next, { position: to, last: { step, from: key } });
      }
    }
    return this.#found({ gap: this.#chart?.gap ?? this.#order?.gap });
  }

  /** Whether rules or limits may make a move turn on more than the order of calls. */
  get turns(): boolean {
    const { workflow } = this;
    return workflow.isOrder || workflow.toolNames.some((tool) => this.#limitsOf(tool).length > 0);
  }

  /**
   * What keeps a way of settled moves from being gone just so; `undefined` where nothing does.
   *
   * @param last a call at its end that must be let through
   * @param isGoal asked of where it ends
   */
  tryOut(
    steps: readonly ProofStep[],
    last: ProofStep | undefined,
    isGoal: (position: Position) => boolean,
  ): ProofTurn | undefined {
    if (this.#order !== undefined) return this.#order.tryOut(steps, last, isGoal);
    const all = last === undefined ? steps : [...steps, last];
    const isOver = this.workflow.toolNames.some((tool) =>
      isBeyond(this.#limitsOf(tool), tool, all),
    );
    return isOver ? 'a limit' : undefined;
  }

  #limitsOf(tool: string): readonly CheckedLimit[] {
    return this.workflow.bindingsOf(tool).flatMap(({ demands }) => demands?.limits ?? []);
  }

  /** What a call that the state allows turns on; `undefined` where a limit lets none through. */
  #turnsOf(tool: string, state: string): readonly ProofTurn[] | undefined {
    const limits = this.#limitsOf(tool);
    if (limits.some(isNever)) return undefined;
    return this.#order?.turnsOf(tool, state) ?? limitTurns(limits);
  }

  /** Every position there is. */
  all(moves: SearchMoves): Reached {
    const positions: Position[] = [];
    const { gap } = this.find(moves, (position) => {
      positions.push(position);
      return false;
    });
    return { positions, gap };
  }

  #found({ steps, at, gap }: Partial<Omit<Found, 'isPartial'>>): Found {
    return { steps, at, gap, isPartial: this.#skipped };
  }

  /** Whether the search leaves such a move out. It remembers that it did. */
  #isLeftOut(
    { unguarded = false, settled = false }: SearchMoves,
    { isGuarded, turnsOn = [] }: Pick<ProofStep, 'isGuarded' | 'turnsOn'>,
  ): boolean {
    const isLeftOut = (unguarded && isGuarded) || (settled && turnsOn.length > 0);
    this.#skipped ||= isLeftOut;
    return isLeftOut;
  }

  /** @param isUnsaved whether nothing was saved in the position: only its deadline asks for that */
  #keyOf(position: Position, isUnsaved: boolean): string {
    const isTimed = this.workflow.leavesAt({ ...position, updatedAt: 0 }) !== undefined;
    return `${isUnsaved && isTimed ? UNSAVED : ''}${positionKey(position)}`;
  }

  /** A run whose position is not saved leaves it by no deadline: its time has not begun. */
  *#movesAt(
    from: Position,
    moves: SearchMoves,
    isUnsaved: boolean,
  ): Generator<{ step: ProofStep; to: Position }> {
    if (isUnsaved) yield* this.#beginnings(from, moves);
    for (const move of this.movesFrom(from, moves)) {
      if (!isUnsaved || move.step.by !== 'deadline') yield move;
    }
  }

  /**
   * How a run is saved where it stands: at its beginning, or where a deadline has taken it. Each
   * claim saves it, also that of a call which is refused then, or ends without a move. So does the
   * app, with `runs.begin()`, `runs.update()` or `runs.freeze()`.
   */
  *#beginnings(from: Position, moves: SearchMoves): Generator<{ step: ProofStep; to: Position }> {
    const { workflow } = this;
    const ends = { from: from.state, to: from.state };
    for (const tool of workflow.claiming) {
      const bindings = workflow.bindingsOf(tool);
      if (!bindings.some((each) => this.#isClaimed(each)) || bindings.some(isVeiled)) continue;
      if (this.#limitsOf(tool).some(isNever)) continue;
      const open = bindings.filter((each) => workflow.allows(from.state, each));
      const outcome = open.length === 0 ? 'refused' : this.#staying(from, tool, open, moves, 1);
      if (outcome === undefined) continue;
      const isGuarded = open.length > 0 && bindings.some(isSaid);
      const step: ProofStep = { by: 'call', tool, outcome, ...ends, isGuarded };
      if (!this.#isLeftOut(moves, step)) yield { step, to: from };
    }
    const step: ProofStep = { by: 'outside', ...ends, isGuarded: moves.outside === false };
    if (!this.#isLeftOut(moves, step)) yield { step, to: from };
  }
  /** Whether each call of the tool takes the claim because of this binding. */
  #isClaimed(binding: AnyBinding): boolean {
    const { shield } = this.workflow;
    return binding.when === undefined && (shield !== undefined || kindOfCalls(binding) === 'step');
  }

  /**
   * How so many calls that these bindings let through end without a move; `undefined`: not for
   * sure.
   */
  #staying(
    from: Position,
    tool: string,
    open: readonly AnyBinding[],
    { counts }: SearchMoves,
    calls: number,
  ): Ending | undefined {
    if (open.every(({ failure, retries = 0 }) => failure === undefined || retries >= calls))
      return 'failure';
    const isStill = open.every(({ success }) => {
      const event = eventNamed(success);
      if (event === undefined) return success === undefined;
      return (
        counts?.(tool, 'success', event) !== false && this.#leads(from, event, false).length === 0
      );
    });
    return isStill ? 'success' : undefined;
  }

  /** The moves to other positions. A call that leads back to where it began is none. */
  *movesFrom(from: Position, moves: SearchMoves): Generator<{ step: ProofStep; to: Position }> {
    const { workflow } = this;
    yield* this.#fallsFrom(from, moves);
    if (workflow.hasEnded(from.state)) return;
    for (const tool of workflow.toolNames) {
      for (const outcome of OUTCOMES) yield* this.#callsOf(tool, outcome, from, moves);
    }
    const left = workflow.overdue({ ...from, updatedAt: 0 }, Number.POSITIVE_INFINITY);
    if (left !== undefined) {
      const to = left.position;
      const step = { by: 'deadline', from: from.state, to: to.state, isGuarded: false } as const;
      yield { step, to: withoutTime(to) };
    }
    for (const event of this.#eventsFrom(moves.outside, from)) {
      for (const lead of this.#leads(from, event, false)) {
        if (this.#isLeftOut(moves, lead)) continue;
        const { to, ...says } = lead;
        yield { step: { by: 'outside', event, from: from.state, to: to.state, ...says }, to };
      }
    }
    for (const { to, turnsOn } of this.#order?.passed(from.state) ?? []) {
      const says = { isGuarded: false, turnsOn };
      if (this.#isLeftOut(moves, says)) continue;
      yield { step: { by: 'deadline', from: from.state, to: to.state, ...says }, to };
    }
  }

  /** Where the loop shield takes a run whose client repeats a call too often: also an ended one. */
  *#fallsFrom(from: Position, moves: SearchMoves): Generator<{ step: ProofStep; to: Position }> {
    const { workflow } = this;
    const { shield } = workflow;
    if (shield === undefined) return;
    const event = shield.fallbackEvent;
    const fallen = { to: withoutTime(shield.fallBack(from, 0).position), isGuarded: false };
    const leads: readonly Lead[] = event === undefined ? [fallen] : this.#leads(from, event, false);
    for (const { to, ...says } of leads) {
      if (to.state === from.state) continue;
      for (const tool of workflow.toolNames) {
        const bindings = workflow.bindingsOf(tool);
        const open = bindings.filter((each) => workflow.allows(from.state, each));
        if (open.length === 0) continue;
        const stays = !bindings.some(isSaid) && this.#staying(from, tool, open, moves, shield.max);
        const isSure = stays !== false && stays !== undefined && this.#limitsOf(tool).length === 0;
        const step: ProofStep = {
          by: 'call',
          tool,
          outcome: 'refused',
          times: shield.max + 1,
          ...(event !== undefined && { event }),
          from: from.state,
          to: to.state,
          ...says,
          isGuarded: says.isGuarded || !isSure,
        };
        if (!this.#isLeftOut(moves, step)) yield { step, to };
      }
    }
  }

  /**
   * A call of the tool that the gate lets through at a position, preferably an unguarded one;
   * `undefined` where it lets none through.
   *
   * @param event the event that the call must send; `undefined` for any
   */
  callAt(
    tool: string,
    from: Position,
    {
      event,
      ...only
    }: { readonly event: string | undefined } & Pick<SearchMoves, 'unguarded' | 'settled'>,
  ): ProofStep | undefined {
    const moves = { ...only, outside: false, maxPositions: 0 };
    const calls = [...this.#endingsOf(tool, from)].filter(
      (call) => (event === undefined || call.event === event) && !this.#isLeftOut(moves, call),
    );
    return calls.find(({ isGuarded }) => !isGuarded) ?? calls[0];
  }

  /** The ways in which a call can end that the gate lets through, even those that move nothing. */
  *#endingsOf(tool: string, from: Position): Generator<ProofStep> {
    const { state } = from;
    const turns = this.#turnsOf(tool, state);
    if (turns === undefined) return;
    const turnsOn = turns.length === 0 ? {} : { turnsOn: turns };
    let isSure = false;
    for (const outcome of OUTCOMES) {
      for (const { events, times, isGuarded } of this.#sendersOf(tool, outcome, state)) {
        for (const event of events) {
          isSure ||= !isGuarded;
          const [lead] = event === undefined ? [] : this.#leads(from, event, event === tool);
          const to = lead?.to.state ?? state;
          const sent = event === undefined ? {} : { event };
          const isOpen = isGuarded || lead?.isGuarded === true;
          yield {
            by: 'call',
            tool,
            outcome,
            ...times,
            ...sent,
            from: state,
            to,
            isGuarded: isOpen,
            ...turnsOn,
          };
        }
      }
    }
    const bindings = this.workflow.bindingsOf(tool);
    if (isSure || !this.workflow.isVisible(tool, state)) return;
    const isGuarded = bindings.some(isSaid);
    yield { by: 'call', tool, outcome: 'success', from: state, to: state, isGuarded, ...turnsOn };
  }

  *#callsOf(
    tool: string,
    outcome: Ending,
    from: Position,
    moves: SearchMoves,
  ): Generator<{ step: ProofStep; to: Position }> {
    const turns = this.#turnsOf(tool, from.state);
    if (turns === undefined) return;
    for (const { events, times, isGuarded } of this.#sendersOf(tool, outcome, from.state)) {
      for (const event of events) {
        if (event === undefined || moves.counts?.(tool, outcome, event) === false) continue;
        for (const lead of this.#callLeads(from, { tool, outcome, event })) {
          const step: ProofStep = {
            by: 'call',
            tool,
            outcome,
            ...times,
            event,
            from: from.state,
            to: lead.to.state,
            isGuarded: isGuarded || lead.isGuarded,
            ...turnsOf(turns, lead.turnsOn),
          };
          if (!this.#isLeftOut(moves, step)) yield { step, to: lead.to };
        }
      }
    }
    if (outcome === 'success' || this.#order === undefined) return;
    // A failure that sends nothing, or not yet, may count for a rule.
    if (!this.workflow.bindingsOf(tool).some((each) => this.workflow.allows(from.state, each)))
      return;
    const isGuarded = this.workflow.bindingsOf(tool).some(isSaid);
    for (const { to, turnsOn } of this.#order.failed(from.state, tool)) {
      if (to.state === from.state) continue;
      const ends = { from: from.state, to: to.state, isGuarded, ...turnsOf(turns, turnsOn) };
      const step: ProofStep = { by: 'call', tool, outcome, ...ends };
      if (!this.#isLeftOut(moves, step)) yield { step, to };
    }
  }

  /** Where a call that sends the event leads. By rules, a failure counts beside its event. */
  *#callLeads(
    from: Position,
    { tool, outcome, event }: { tool: string; outcome: Ending; event: string },
  ): Generator<Lead> {
    if (this.#order === undefined || outcome === 'success') {
      yield* this.#leads(from, event, event === tool);
      return;
    }
    for (const failed of this.#order.failed(from.state, tool)) {
      for (const lead of this.#leads(failed.to, event, false, from))
        yield { ...lead, ...turnsOf(failed.turnsOn, lead.turnsOn) };
    }
  }

  /**
   * What a call may send in a state. The first binding that is about the call decides, so those
   * after one without a `when` are not looked at.
   */
  #sendersOf(tool: string, outcome: Ending, state: string): Sender[] {
    const { workflow } = this;
    const found: Sender[] = [];
    const bindings = workflow.bindingsOf(tool);
    // The gate asks the guards of every binding that is about a call, not only of the one that
    // decides.
    const isGuarded = bindings.some(isAsked);
    for (const binding of bindings) {
      const source = binding[outcome];
      if (source === undefined || !workflow.allows(state, binding)) continue;
      // A function may choose any of these events, or none.
      const named = eventsSent(binding, outcome);
      const events: readonly (string | undefined)[] = isChosen(source)
        ? [...(named ?? this.#named(this.#takenIn(state))), undefined]
        : (named ?? []);
      const tries = outcome === 'failure' ? (binding.retries ?? 0) + 1 : 1;
      found.push({
        events,
        times: tries === 1 ? {} : { times: tries },
        isGuarded:
          isGuarded ||
          isChosen(source) ||
          isSaid(binding) ||
          found.length > 0 ||
          // Only with other arguments, or in time, the loop shield lets so many through.
          tries > (workflow.shield?.max ?? tries),
      });
      if (binding.when === undefined) break;
    }
    return found;
  }

  /** Where a transition waits for no event, one that no state handles wakes it too. */
  #eventsFrom(outside: SearchMoves['outside'], { state }: Position): readonly string[] {
    if (outside === false) return [];
    const isRestive = this.#chart?.isRestive === true;
    const taken = isRestive ? [...this.#takenIn(state), '*'] : this.#takenIn(state);
    if (outside === true) return this.#named(taken);
    return outside.filter((event) => taken.some((each) => covers(each, event)));
  }

  /** The events that may move a run: any event, where a transition waits for none. */
  #takenIn(state: string): readonly string[] {
    return this.#chart?.isRestive === true
      ? this.workflow.model.events
      : this.workflow.model.eventsIn(state);
  }

  /**
   * The events by name. A pattern means all that it covers, and one more that only it covers.
   */
  #named(events: readonly string[]): readonly string[] {
    const { workflow } = this;
    const all = events.flatMap((event) => {
      if (event !== '*' && !event.endsWith('.*')) return [event];
      const known = workflow.model.events.filter(
        (each) => covers(event, each) && !each.endsWith('*'),
      );
      return [...known, event === '*' ? 'any event' : `${event.slice(0, -1)}event`];
    });
    return [...new Set(all)];
  }

  /**
   * @param isOwn for rules: whether the tool of this name was called, and no other counts as it
   * @param origin where the run was before: what leads back there is no move
   */
  #leads(from: Position, event: string, isOwn: boolean, origin = from): readonly Lead[] {
    const key = JSON.stringify([event, isOwn, positionKey(from), positionKey(origin)]);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const found = this.#leadsOf(from, event, isOwn).filter(
      ({ to }) => positionKey(to) !== positionKey(origin),
    );
    this.#known.set(key, found);
    return found;
  }

  #leadsOf(from: Position, event: string, isOwn: boolean): readonly Lead[] {
    const { workflow } = this;
    if (this.#order !== undefined) {
      const moves = this.#order.succeeded(from.state, event, isOwn);
      return moves.map(({ to, turnsOn }) => ({ to, isGuarded: false, ...turnsOf(turnsOn) }));
    }
    if (this.#chart === undefined)
      return [{ to: withoutTime(workflow.next(from, event).position), isGuarded: false }];
    const isTaken = this.#takenIn(from.state).some((each) => covers(each, event));
    if (!isTaken && !this.#chart.isRestive) return [];
    const { positions, isGuarded } = this.#chart.next(from, event);
    return positions.map((to) => ({ to, isGuarded }));
  }
}

/** What a call may send. */
interface Sender {
  /** `undefined`: none. */
  readonly events: readonly (string | undefined)[];
  readonly times: Pick<ProofStep, 'times'>;
  readonly isGuarded: boolean;
}

interface Lead {
  readonly to: Position;
  readonly isGuarded: boolean;
  readonly turnsOn?: readonly ProofTurn[];
}

function turnsOf(...all: readonly (readonly ProofTurn[] | undefined)[]): Pick<Lead, 'turnsOn'> {
  const turnsOn = [...new Set(all.flatMap((each) => each ?? []))];
  return turnsOn.length === 0 ? {} : { turnsOn };
}

/** Before the key of a position that is not saved yet. */
const UNSAVED = 'unsaved ';

const OUTCOMES = ['success', 'failure'] as const;

function isVeiled({ visible }: AnyBinding): boolean {
  return visible !== undefined;
}

/** Whether a function of the binding may refuse a call. */
function isAsked(binding: AnyBinding): boolean {
  return binding.guard !== undefined || isVeiled(binding);
}

/** Whether the binding may refuse a call, or be about other calls. */
function isSaid(binding: AnyBinding): boolean {
  return isAsked(binding) || binding.when !== undefined;
}

/** Drops when the run entered its state, which may be at any time. */
function withoutTime({ state }: Position): Position {
  return { state };
}

function stepsTo(reached: ReadonlyMap<string, Arrival>, goal: string): readonly ProofStep[] {
  const steps: ProofStep[] = [];
  for (let last = reached.get(goal)?.last; last !== undefined; last = reached.get(last.from)?.last)
    steps.push(last.step);
  return steps.reverse();
}
