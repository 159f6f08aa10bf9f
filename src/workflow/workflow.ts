import { InterlockError } from '../errors.ts';
import { rightNames } from '../names.ts';
import { showValue } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import {
  type AnyBinding,
  type AnyEventSource,
  eventNamed,
  type FailedCall,
  isChosen,
  type Oddity,
  type RunFacts,
  type SucceededCall,
} from './binding.ts';
import {
  bindingsOfCall,
  type CallBinding,
  combine,
  combineUnconditional,
  eventFrom,
  type SentEvent,
  ToolViews,
} from './bound-tools.ts';
import { type ChartTree, covers } from './chart.ts';
import {
  type ActionContext,
  type Definition,
  type ErrorListener,
  emit,
  type Listener,
} from './definition.ts';
import type { LoopShield } from './loop-shield.ts';
import { OrderWays } from './order-ways.ts';
import {
  ANY_STATE,
  type BoundState,
  type FsmAction,
  type Model,
  type Move,
  type Next,
  type Position,
  stateFault,
} from './position.ts';
import type { BoundReads } from './reads.ts';
import {
  adopt,
  arrived,
  leavesAt,
  openContext,
  overdue,
  parseSnapshot,
  stamped,
  whenEntered,
  withData,
} from './stored.ts';
import { factsOf, Sight, type VeiledTools, type Viewer, veiledTools } from './visible.ts';
import { type Leads, type Way, Ways, type Whereabouts, whereaboutsOf } from './ways.ts';

/** What a `Workflow` is made of. */
interface WorkflowParts {
  readonly definition: Definition;
  /** By tool, in binding order; no list is empty. */
  readonly tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly oddities: readonly Oddity[];
  readonly listeners: ReadonlySet<Listener>;
  readonly reads: BoundReads;
}

/** What a stored snapshot comes to, by {@link Workflow.understand}. */
export interface Understood {
  readonly position: Position;
  /** The move that time has made since, which nothing has saved yet. */
  readonly left: Next | undefined;
}

/**
 * A gate as the middleware uses it for every request of every run: unchanging, without a current
 * state of its own, and quick, since what depends on the machine alone is worked out once.
 */
export class Workflow {
  readonly id: string;
  readonly initial: string;
  /**
   * What a binding may name: each state of a flat machine, each path of a statechart, in the order
   * of the definition.
   */
  readonly states: readonly string[];
  /** Every bound tool's name, in binding order. */
  readonly toolNames: readonly string[];
  /** The bound prompts and resources. */
  readonly reads: BoundReads;
  /** What is odd about the bindings without being wrong. */
  readonly oddities: readonly Oddity[];
  /** Where every run begins. */
  readonly start: Position;
  /** What is bound to final states and to nothing else, by name. */
  readonly onlyAtEnd: readonly string[];
  /**
   * Whether every way is known, as far as states go: not where guards of a machine, payloads or
   * functions of bindings have a say.
   */
  readonly foresees: boolean;
  /** Whether some binding says who sees what it is about. */
  readonly hides: boolean;
  /** Stops models that go round in circles, where the gate has been told to. */
  readonly shield: LoopShield | undefined;

  readonly #definition: Definition;
  readonly #listeners: ReadonlySet<Listener>;
  readonly #model: Model;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly #unconditional: ReadonlyMap<string, CallBinding>;
  readonly #views: ToolViews;
  readonly #veiled: VeiledTools;
  readonly #ways: Ways;
  readonly #orderWays: OrderWays | undefined;
  /** Of a flat machine. */
  readonly #finals: readonly string[];

  constructor(parts: WorkflowParts) {
    const { definition, tools, oddities, listeners, reads } = parts;
    const { model, deployment, shield } = definition;
    this.id = model.id;
    this.initial = model.start.state;
    this.start = Object.freeze(stamped(model.start, deployment));
    this.states = model.names;
    this.#finals = model.isFlat ? model.names.filter((name) => model.isFinal(name)) : [];
    this.#definition = definition;
    this.#listeners = listeners;
    this.shield = shield;
    this.#model = model;
    this.#tools = new Map([...tools].map(([tool, bindings]) => [tool, [...bindings]]));
    this.toolNames = Object.freeze([...this.#tools.keys()]);
    this.#views = new ToolViews(model, this.#tools);
    this.#ways = new Ways(model, this.#tools);
    this.#orderWays = model.effectOf && new OrderWays(model, this.#tools);
    this.reads = reads;
    this.#veiled = veiledTools(this.#tools);
    this.hides = this.#veiled.size > 0 || reads.veilsPrompts || reads.veilsResources;
    const boundTo = [...this.#tools].map(([name, bindings]) => {
      return { name, states: bindings.flatMap(({ states }) => states) };
    });
    const isEnd = (state: BoundState): boolean => typeof state === 'string' && model.isFinal(state);
    const atEnd = [...boundTo, ...reads.all].filter(({ states }) => states.every(isEnd));
    this.onlyAtEnd = Object.freeze(atEnd.map(({ name }) => name));
    this.oddities = Object.freeze([...oddities]);
    this.foresees =
      (model.isFlat || model.effectOf !== undefined) &&
      this.#veiled.size === 0 &&
      ![...this.#tools.values()].flat().some(({ success }) => isChosen(success));
    this.#unconditional = combineUnconditional(model, this.#tools);
    Object.freeze(this);
  }

  /** The same in words. */
  get warnings(): readonly string[] {
    return this.oddities.map(({ message }) => message);
  }

  /** Which deployment of the workflow this is, where the gate says so. */
  get version(): number | undefined {
    return this.#definition.deployment.version;
  }

  /** Whether a run can be in this state. */
  hasState(name: string): boolean {
    return this.#model.has(name);
  }

  /**
   * Whether a run in this state has come to its end: a final state, of a statechart one of the
   * machine itself.
   */
  hasEnded(state: string): boolean {
    return this.#model.isFinal(state);
  }

  /**
   * Whether a run that is stored in `stored` stands where a person asks for: in a state, in a state
   * around it, in one with a tag, or in what a store calls it.
   */
  standsIn(stored: string, asked: BoundState): boolean {
    return stored === asked || this.#model.isIn(stored, [asked]);
  }

  /** What the functions of bindings are told of a run that stands there, for that caller. */
  factsOf(position: Position, principal: string | undefined): RunFacts {
    return factsOf(this.#model, position, principal);
  }

  /**
   * What a client sees of a run that stands there; `undefined` where no binding says who sees its
   * tool, so that all clients see the same.
   */
  sight(position: Position, viewer: Viewer): Sight | undefined {
    if (!this.hides) return undefined;
    return new Sight(this.#model, this.#veiled, viewer, position);
  }

  /** Whether some client may not see the tool. */
  isVeiled(tool: string): boolean {
    return this.#veiled.has(tool);
  }

  /** What is wrong with asking for that, in words; `undefined` where nothing is. */
  faultOfAsking(asked: BoundState): string | undefined {
    const isStored = typeof asked === 'string' && this.hasState(asked);
    return isStored ? undefined : stateFault(this.#model, asked);
  }

  /** Whether a run may stand elsewhere than its store says: an older deployment saved it. */
  get migrates(): boolean {
    return this.#definition.deployment.migrate !== undefined;
  }

  /**
   * What the event does to the position; nothing where it is not handled.
   *
   * @param memory as {@link eventFrom} gave it
   * @throws Error where a statechart's own code throws, or asks for what has no pure form. A flat
   * machine never throws.
   */
  next(position: Position, event: string, payload?: Json, memory?: unknown): Next {
    return arrived(this.#model.next(position, event, payload, memory));
  }

  /** Whether a run in this state can handle the event, as far as the state alone can tell. */
  handles(state: string, event: string): boolean {
    return this.#model.eventsIn(state).some((each) => covers(each, event));
  }

  /** Whether any state handles the event. */
  handlesSomewhere(event: string): boolean {
    return this.#model.handlers(event).length > 0;
  }

  /**
   * What entering the first states asks to be done. Nothing is committed when a run begins, so it
   * is due with the first commit.
   */
  dueActions(isFirst: boolean): readonly FsmAction[] {
    return isFirst ? this.#model.startActions : [];
  }

  /**
   * Where a run is by itself by now, if the time of its state is over. `now` is on the clock that
   * stamped the snapshot.
   */
  overdue(snapshot: FsmSnapshot, now: number): Next | undefined {
    return overdue(this.#model, snapshot, now);
  }

  /** When a run leaves its state by itself, on the clock that stamped the snapshot. */
  leavesAt(snapshot: FsmSnapshot): number | undefined {
    return leavesAt(this.#model, snapshot);
  }

  /** The events that a state can handle, as far as the state alone can tell. */
  eventsIn(state: string): readonly string[] {
    return this.#model.eventsIn(state);
  }

  /** Every event that is handled somewhere. Of a statechart it may end in a wildcard. */
  get events(): readonly string[] {
    return this.#model.events;
  }

  /** The states that are left by themselves, and after how many milliseconds. */
  get deadlines(): readonly (readonly [state: string, ms: number])[] {
    return this.#model.deadlines.map(
      (state) => [state, this.#model.deadline(state)?.ms ?? 0] as const,
    );
  }

  /**
   * The event that a call sends, its payload included.
   *
   * @throws Error whatever the binding's function throws; InterlockError `ERR_INTERLOCK_EVENT`
   * where it returns no event of this workflow
   */
  eventFrom(source: AnyEventSource, call: SucceededCall | FailedCall): SentEvent | undefined {
    const sent = eventFrom(source, call);
    if (
      sent === undefined ||
      typeof source === 'string' ||
      this.#model.handlers(sent.type).length > 0
    )
      return sent;
    const message = `workflow "${this.id}": a function of a binding returned ${showValue(sent.type)}, which no state handles`;
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `${message}; ${rightNames(sent.type, this.#model.events)}`,
    );
  }

  isBound(tool: string): boolean {
    return this.#tools.has(tool);
  }

  /** What a tool is bound to, in binding order; nothing where it is not bound. */
  bindingsOf(tool: string): readonly AnyBinding[] {
    return this.#tools.get(tool) ?? [];
  }

  /** The states of a statechart, one inside the other; of no other machine. */
  get chart(): ChartTree | undefined {
    return this.#model.chart;
  }

  /** Whether a run that is in one of `bound` can be in one of `names` as well. */
  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean {
    return this.#model.canBeIn(bound, names);
  }

  /**
   * Where the tool is to be found, by this workflow alone unless told otherwise; `undefined` where
   * it is not bound, or available in any state.
   */
  whereabouts(
    tool: string,
    wayTo: (states: readonly BoundState[]) => Way = (states) => this.#wayFromStart(states),
  ): Whereabouts | undefined {
    const bindings = this.#tools.get(tool);
    const isEverywhere = bindings?.some(({ states }) => states.includes(ANY_STATE)) === true;
    if (bindings === undefined || isEverywhere) return undefined;
    return whereaboutsOf(this, bindings, wayTo);
  }

  /**
   * Whether the tool is shown in `state`. A tool that is not bound always is; a bound one never is
   * in an unknown state.
   */
  isVisible(tool: string, state: string): boolean {
    return !this.#tools.has(tool) || this.#views.of(state).set.has(tool);
  }

  /** The bound tools that are shown in `state`, in binding order. */
  available(state: string): readonly string[] {
    return this.#views.of(state).list;
  }

  /** Whether two states show the same tools, so that nobody need list them anew. */
  sameTools(a: string, b: string): boolean {
    return this.#views.of(a) === this.#views.of(b);
  }

  /** How each call of a tool is gated, where that is the same whatever its arguments. */
  matchAlways(tool: string): CallBinding | undefined {
    return this.#unconditional.get(tool);
  }

  /**
   * How a call is gated; `undefined` where it is not: the tool is not bound, or no binding is about
   * these arguments.
   *
   * @throws Error where that cannot be told. The call must be refused then.
   */
  match(tool: string, args: unknown): CallBinding | undefined {
    const bindings = this.#tools.get(tool);
    if (bindings === undefined) return undefined;
    const unconditional = this.#unconditional.get(tool);
    if (unconditional !== undefined) return unconditional;
    const matching = bindingsOfCall(bindings, args);
    return matching.length === 0 ? undefined : combine(this.#model, matching);
  }

  /** Whether a call that is gated in this way is allowed in `state`. */
  allows(state: string, binding: Pick<CallBinding, 'states'>): boolean {
    return this.#model.isIn(state, binding.states);
  }

  /**
   * Whether a success of such a call would be stopped by the machine's own guards. Not where only
   * its result tells which event it sends: those guards are asked once it is there.
   *
   * @throws Error where a guard throws. The call must be refused then.
   */
  isStopped(position: Position, { eventIn }: Pick<CallBinding, 'eventIn'>): boolean {
    // A flat machine has no guards of its own.
    if (this.#model.isFlat) return false;
    const event = eventNamed(eventIn(position.state));
    return event !== undefined && this.#model.isStopped(position, event);
  }

  /**
   * The stored states in which a store may grant the claim of such a call. `undefined` where they
   * cannot be listed: the claim is taken in any state then, and {@link allows} says whether to keep
   * it. Where a run that has ended begins anew, it may be claimed at its end for what is allowed at
   * its start, and for nothing else.
   */
  claimable(
    { states }: Pick<CallBinding, 'states'>,
    beginsAnew = false,
  ): readonly string[] | undefined {
    const { version, migrate } = this.#definition.deployment;
    if (!this.#model.isFlat || version !== undefined || migrate !== undefined) return undefined;
    // A run may be in another state than the stored one by now.
    if (this.#model.deadlines.length > 0) return undefined;
    const names = states as readonly string[];
    if (!beginsAnew || this.#finals.length === 0) return names;
    const kept = names.filter((name) => !this.hasEnded(name));
    return names.includes(this.initial) ? [...kept, ...this.#finals] : kept;
  }

  /**
   * The tools to call, in order, to get from one position to the nearest of `states`: as few as
   * possible, none where it is there already. `undefined` where no way is known; where the workflow
   * {@link foresees}, there is none.
   */
  pathTo(states: readonly BoundState[], from: Position): readonly string[] | undefined {
    return this.wayTo(states, from).path;
  }

  /** The same, and whether no path means that there is no way. */
  wayTo(states: readonly BoundState[], from: Position): Way {
    const foreseen = this.foresees;
    if (!this.hasState(from.state)) return { path: undefined, foreseen };
    return (
      this.#orderWays?.wayTo(states, from) ?? { path: this.#ways.pathTo(states, from), foreseen }
    );
  }

  /** Of rules of order: what is done in a state. */
  doneIn(state: string): readonly string[] | undefined {
    return this.#model.doneIn?.(state);
  }

  get isOrder(): boolean {
    return this.#model.doneIn !== undefined;
  }

  /**
   * Where a successful call of each bound tool may lead that is allowed in a position, in binding
   * order.
   */
  leads(from: Position): ReadonlyMap<string, Leads> {
    return this.#ways.leads(from);
  }

  /** Whether what a call of this tool needs depends on its arguments. */
  isGrouped(tool: string): boolean {
    return this.#tools.get(tool)?.some(({ when }) => when !== undefined) === true;
  }

  /** Whether ways depend on nothing but the state, so that they can be kept. */
  get isFlat(): boolean {
    return this.#model.isFlat;
  }

  /**
   * A stored position as this deployment understands it: itself, or what `migrate` makes of it.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it does not understand it. The call must
   * be refused then.
   */
  adopt(stored: Position): Position {
    return adopt(this.#model, this.#definition.deployment, stored);
  }

  /**
   * All that a stored snapshot says at `now`, on the clock that stamped it: where the run stands,
   * to be read or saved over, and where it is by itself if the time of its state is over.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` as {@link adopt}
   */
  understand(stored: FsmSnapshot, now: number): Understood {
    const { updatedAt } = stored;
    const position = whenEntered(this.#model, this.adopt(stored), updatedAt);
    return { position, left: overdue(this.#model, { ...position, updatedAt }, now) };
  }

  /**
   * The same for a position that something is to be saved over, and that may stay in its state: it
   * knows when that was entered.
   */
  stand(stored: FsmSnapshot): Position {
    return whenEntered(this.#model, this.adopt(stored), stored.updatedAt);
  }

  /**
   * A checked copy of a snapshot that a store gave, adopted. @throws InterlockError
   * `ERR_INTERLOCK_SNAPSHOT`
   */
  parseSnapshot(value: unknown): FsmSnapshot {
    const snapshot = parseSnapshot(this.id, value);
    const { context: _, ...kept } = snapshot;
    return { ...kept, ...this.adopt(snapshot) };
  }

  /** The run's shared data, as guards and listeners see it; for a statechart its context. */
  dataOf({ context }: Position): Json | undefined {
    return openContext(context).data;
  }

  /** The same position with other shared data. @throws Error where it is no JSON */
  withData(position: Position, data: Json | undefined): Position {
    return withData(position, data);
  }

  /**
   * Calls the gate's `onTransition` callbacks if the state changed. Never throws: `onError` is told
   * what they throw.
   */
  emit(move: Move, onError: ErrorListener = this.#definition.onError): void {
    if (move.changed && this.#listeners.size > 0) emit(this.#listeners, move, onError);
  }

  /**
   * Hands actions to the gate's `onAction`, after the move that named them was saved. Never throws.
   */
  act(
    actions: readonly FsmAction[],
    context: Omit<ActionContext, 'workflow'>,
    onError?: ErrorListener,
  ): void {
    this.#definition.act(actions, { ...context, workflow: this.id }, onError);
  }

  #wayFromStart(states: readonly BoundState[]): Way {
    const way = this.wayTo(states, this.start);
    // It is said to everybody, so it names nothing that somebody may not see.
    const isTold = way.path?.some((tool) => this.isVeiled(tool)) !== true;
    return isTold ? way : { path: undefined, foreseen: this.foresees };
  }
}
