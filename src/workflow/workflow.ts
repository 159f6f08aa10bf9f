/**
 * A gate as the middlewares use it. It hides what is worked out once, from machine and bindings, so
 * that a request needs little more than its run's state.
 */
import { configError, InterlockError } from '../basics/errors.ts';
import { Globs, isGlob } from '../basics/glob.ts';
import { rightNames } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import {
  type AnyBinding,
  type AnyEventSource,
  type BindingKind,
  type EventWithPayload,
  eventNamed,
  eventsSent,
  type FailedCall,
  type Oddity,
  type RunFacts,
  type SucceededCall,
} from './binding.ts';
import {
  type BoundTool,
  bindAlike,
  bindingsOfCall,
  combine,
  combineUnconditional,
  eventFrom,
  strictestKind,
  toolViews,
} from './bound-tools.ts';
import { type GivenBeginning, ToolRules } from './call-rules.ts';
import { covers } from './chart.ts';
import {
  type ActionContext,
  type Definition,
  type ErrorListener,
  emit,
  type Listener,
} from './definition.ts';
import { openContext } from './envelope.ts';
import type { Decided } from './facts.ts';
import type { LoopShield } from './loop-shield.ts';
import type { Order } from './order.ts';
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
import { Renamings } from './renamings.ts';
import type { OutsideFact } from './rule-parts.ts';
import {
  adopt,
  arrived,
  leavesAt,
  overdue,
  parseSnapshot,
  stamped,
  whenEntered,
  withData,
} from './stored.ts';
import { factsOf, isVeiled, Sight, type VeiledTools, type Viewer } from './visible.ts';
import { type Leads, type Way, Ways, type Whereabouts, whereaboutsOf } from './ways.ts';

/** A stored snapshot as {@link Workflow.understand} reads it. */
export interface Understood {
  readonly position: Position;
  /** The move of a deadline that has passed since, which the store does not have yet. */
  readonly expiry: Next | undefined;
}

/** How a run begins, as the app says it. */
export interface Beginning {
  /** Where, as stores name the state. Default: in the initial state. */
  readonly state?: string | undefined;
  /** Its shared data; for a statechart its context. Default: the machine's own. */
  readonly data?: Json | undefined;
  /** Of a run of rules: the calls that were made before, the oldest first. */
  readonly calls?: readonly Decided[] | undefined;
}

/** A gate for every request of every run. It never changes, and has no current state of its own. */
export class Workflow {
  readonly id: string;
  /** What it is made of, without its bindings. */
  readonly model: Model;
  readonly isNamed: boolean;
  readonly initial: string;
  /** Of a flat machine, or the paths of a statechart's, in the definition's order. */
  readonly states: readonly string[];
  /** Every bound tool's name or glob, in binding order. */
  readonly toolNames: readonly string[];
  readonly reads: BoundReads;
  /** What is odd about the bindings, though allowed. */
  readonly oddities: readonly Oddity[];
  /** Where a run begins, unless the app gives one of {@link starts}. */
  readonly start: Position;
  /** The other states in which a run may begin, as stores name them. */
  readonly starts: readonly string[];
  /** What is bound to final states only. */
  readonly onlyAtEnd: readonly string[];
  /**
   * Whether every way between states is known. Not where a way may depend on a machine's guards, on
   * payloads, or on a binding's `visible` or event function.
   */
  readonly foresees: boolean;
  /** The tools whose calls may take the run's claim, and so wait while a step is running. */
  readonly claiming: ReadonlySet<string>;
  /** Those of {@link claiming} that some binding lets go on while the run is held. */
  readonly #whileHeld: ReadonlySet<string>;
  /** Whether some binding has a `visible`. */
  readonly hides: boolean;
  readonly shield: LoopShield | undefined;
  readonly rules: ToolRules;
  /** What comes from outside, by name. Each call of such a name is refused. */
  readonly outside: ReadonlyMap<string, OutsideFact>;
  /** The names that its tools had before. */
  readonly renamings: Renamings;
  readonly #definition: Definition;
  readonly #listeners: ReadonlySet<Listener>;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  /** Those of {@link toolNames} that are globs, in binding order. */
  readonly globs: readonly string[];
  readonly #globs: Globs;
  readonly #unconditional: ReadonlyMap<string, BoundTool>;
  readonly #viewOf: ReturnType<typeof toolViews>;
  readonly #veiled: VeiledTools;
  readonly #ways: Ways;
  readonly #orderWays: OrderWays | undefined;
  /** The final states of a flat machine. */
  readonly #finals: readonly string[];

  /** @param tools by tool, in binding order; no list is empty */
  constructor(
    definition: Definition,
    tools: ReadonlyMap<string, readonly AnyBinding[]>,
    reads: BoundReads,
    oddities: readonly Oddity[],
    listeners: ReadonlySet<Listener>,
  ) {
    const { model, deployment, shield } = definition;
    this.id = model.id;
    this.isNamed = definition.isNamed;
    this.outside = definition.order?.outside ?? new Map();
    this.initial = model.start.state;
    this.start = Object.freeze(stamped(model.start, deployment));
    this.starts = definition.starts;
    this.states = model.names;
    this.#finals = model.isFlat ? model.names.filter((name) => model.isFinal(name)) : [];
    this.#definition = definition;
    this.#listeners = listeners;
    this.shield = shield;
    this.model = model;
    this.#tools = new Map([...tools].map(([tool, bindings]) => [tool, [...bindings]]));
    const bound = [...tools.values()].flat().map((each) => [each.tool, each] as const);
    this.renamings = Renamings.of(`workflow "${model.id}"`, bound, (tool) => tools.has(tool));
    this.toolNames = Object.freeze([...this.#tools.keys()]);
    this.#globs = new Globs(this.toolNames);
    this.globs = this.#globs.texts;
    this.#viewOf = toolViews(model, this.#tools);
    this.#ways = new Ways(model, this.#tools);
    this.#orderWays = model.changesOf && new OrderWays(model, this.#tools);
    this.reads = reads;
    this.#veiled = new Map([...this.#tools].filter(([, bindings]) => isVeiled(bindings)));
    this.hides = this.#veiled.size > 0 || reads.veilsPrompts || reads.veilsResources;
    const boundTo = [...this.#tools].map(([name, bindings]) => {
      return { name, states: bindings.flatMap(({ states }) => states) };
    });
    const isEnd = (state: BoundState): boolean => typeof state === 'string' && model.isFinal(state);
    const atEnd = [...boundTo, ...reads.all].filter(({ states }) => states.every(isEnd));
    this.onlyAtEnd = Object.freeze(atEnd.map(({ name }) => name));
    this.oddities = Object.freeze([...oddities]);
    this.foresees =
      (model.isFlat || model.changesOf !== undefined) &&
      this.#veiled.size === 0 &&
      [...this.#tools.values()].flat().every((each) => eventsSent(each, 'success') !== undefined);
    this.#unconditional = combineUnconditional(model, this.#tools);
    this.rules = new ToolRules(model, this.#tools, (tool) => this.keyOf(tool), this.renamings);
    // A loop shield counts each call, so each of them takes the claim.
    const claims = (tool: string): boolean =>
      shield !== undefined || this.callKind(tool) === 'step';
    this.claiming = new Set(this.toolNames.filter(claims));
    const goesOn = (tool: string): boolean =>
      this.bindingsOf(tool).some(({ whileHeld }) => whileHeld === true);
    this.#whileHeld = new Set([...this.claiming].filter(goesOn));
    Object.freeze(this);
  }

  /** The oddities in words. */
  get warnings(): readonly string[] {
    return this.oddities.map(({ message }) => message);
  }

  /** The gate's `version` option. */
  get version(): number | undefined {
    return this.#definition.deployment.version;
  }

  /** The machine, or the rules with what they name, as the app gave them. */
  get given(): unknown {
    return this.#definition.given;
  }

  /** Of a machine: the limits over several tools, as the app gave them. */
  get givenLimits(): unknown {
    return this.#definition.givenLimits;
  }

  /** Whether a run ends in this state: a final state, at the top level of a statechart. */
  hasEnded(state: string): boolean {
    return this.model.isFinal(state);
  }

  /** Whether a stored state is `asked`: that very text, or one where `asked` is true. */
  standsIn(stored: string, asked: BoundState): boolean {
    return stored === asked || this.model.isIn(stored, [asked]);
  }

  /** What the functions of bindings get about a run at this position. */
  factsOf(position: Position, principal: string | undefined): RunFacts {
    return factsOf(this.model, position, principal);
  }

  /** What one client sees of a run at this position; `undefined` where all clients see the same. */
  sight(position: Position, viewer: Viewer): Sight | undefined {
    if (!this.hides) return undefined;
    return new Sight(this.model, this.#veiled, viewer, position);
  }

  /** Whether some client may not see the tool. */
  isVeiled(tool: string): boolean {
    return this.#veiled.has(this.keyOf(tool));
  }

  /** Why no run can be in `asked`, in words; `undefined` where one can. */
  faultOfAsking(asked: BoundState): string | undefined {
    const isStored = typeof asked === 'string' && this.model.has(asked);
    return isStored ? undefined : stateFault(this.model, asked);
  }

  /** Whether `migrate` may take a stored run to another state. */
  get migrates(): boolean {
    return this.#definition.deployment.migrate !== undefined;
  }

  /**
   * What the event does to the position: nothing where the state does not handle it.
   *
   * @param call the call that sends it, where rules ask for such calls
   * @throws Error where a statechart's own code throws, or needs an actor. A flat machine never
   * throws.
   */
  next(position: Position, event: string, payload?: Json, call?: Decided): Next {
    const next = arrived(this.model.next(position, event, payload, call));
    if (call === undefined || this.isOrder) return next;
    return { ...next, position: this.rules.decided(next.position, call) };
  }

  /** Whether the state may handle the event; a guard may still stop it. */
  handles(state: string, event: string): boolean {
    return this.model.eventsIn(state).some((each) => covers(each, event));
  }

  /** Whether any state handles the event. */
  handlesSomewhere(event: string): boolean {
    return this.model.handlers(event).length > 0;
  }

  /**
   * The actions of entering the first states. A run is not saved when it begins, so its first
   * commit brings them along.
   */
  dueActions(isFirst: boolean): readonly FsmAction[] {
    return isFirst ? this.model.startActions : [];
  }

  /**
   * Where a deadline has taken the run by `now`, on the clock that stamped the snapshot;
   * `undefined` where none has passed.
   */
  overdue(snapshot: FsmSnapshot, now: number): Next | undefined {
    return overdue(this.model, snapshot, now);
  }

  /** When a run leaves its state by itself, on the clock that stamped the snapshot. */
  leavesAt(snapshot: FsmSnapshot): number | undefined {
    return leavesAt(this.model, snapshot);
  }

  /**
   * The events of a state that no call of a bound tool sends there. Empty where a function of a
   * binding chooses the event, since it may choose any.
   */
  outsideEvents(state: string): readonly string[] {
    const sent: string[] = [];
    for (const each of [...this.#tools.values()].flat()) {
      if (!this.isOrder && !this.allows(state, each)) continue; // Rules take it in any state.
      const [success, failure] = [eventsSent(each, 'success'), eventsSent(each, 'failure')];
      if (success === undefined || failure === undefined) return [];
      sent.push(...success, ...failure);
    }
    return this.model.eventsIn(state).filter((event) => !sent.some((each) => covers(event, each)));
  }

  /** The states with a deadline, and its milliseconds. */
  get deadlines(): readonly (readonly [state: string, ms: number])[] {
    return this.model.deadlines.map(
      (state) => [state, this.model.deadline(state)?.ms ?? 0] as const,
    );
  }

  /**
   * The event that a call sends, its payload included.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` where the binding's function returns no event of
   * this workflow; Error where that function throws one
   */
  eventFrom(
    source: AnyEventSource,
    call: SucceededCall | FailedCall,
    sends?: readonly string[],
  ): EventWithPayload | undefined {
    const sent = eventFrom(source, call, sends);
    if (
      sent === undefined ||
      typeof source === 'string' ||
      this.model.handlers(sent.type).length > 0
    )
      return sent;
    const fault = `a function of a binding returned ${showValue(sent.type)}, which no state handles`;
    const right = rightNames(sent.type, this.model.events);
    throw new InterlockError('ERR_INTERLOCK_EVENT', `workflow "${this.id}": ${fault}; ${right}`);
  }

  isBound(tool: string): boolean {
    if (this.#tools.has(tool)) return true;
    return (this.renamings.renames || this.globs.length > 0) && this.#tools.has(this.keyOf(tool));
  }

  /** Whether a binding is of that very name, and not of a glob. */
  names(tool: string): boolean {
    return this.#tools.has(tool);
  }

  /** Under which of {@link toolNames} a tool is bound: its name today, or the first glob's. */
  keyOf(tool: string): string {
    if ((this.globs.length === 0 && !this.renamings.renames) || this.#tools.has(tool)) return tool;
    const current = this.renamings.currentOf(tool);
    // No glob binds what comes from outside.
    if (current !== tool || this.outside.has(tool)) return current;
    return this.#globs.matching(tool)[0] ?? tool;
  }

  /** Under rules an event is a tool, by the name of today. */
  eventOf(event: string): string {
    return this.isOrder ? this.keyOf(event) : event;
  }

  /** Why a tool's calls are refused: globs bind it in different ways. `what`: it in words. */
  clashOf(tool: string, what = showValue(tool)): string | undefined {
    if (this.globs.length < 2 || this.#tools.has(this.renamings.currentOf(tool))) return undefined;
    const [first, ...others] = this.#globs.matching(tool);
    const other = others.find(
      (glob) => !bindAlike(this.bindingsOf(first ?? ''), this.bindingsOf(glob)),
    );
    if (other === undefined) return undefined;
    return (
      `workflow "${this.id}" binds ${what} in different ways, by the globs ` +
      `${showValue(first)} and ${showValue(other)}: no list has it, and each call of it is ` +
      'refused. Bind it by its name'
    );
  }

  /** A tool's bindings, in binding order; none where the tool is not bound. */
  bindingsOf(tool: string): readonly AnyBinding[] {
    return this.#tools.get(this.keyOf(tool)) ?? [];
  }

  /** How the calls of a tool run; where that depends on their arguments, the strictest way. */
  callKind(tool: string): BindingKind {
    return strictestKind(this.bindingsOf(tool));
  }

  /** The tools of which each call is refused in `state` while the run is held. */
  closedWhileHeld(state: string): ReadonlySet<string> {
    if (this.#whileHeld.size === 0) return this.claiming;
    const isOpen = (tool: string): boolean => {
      const open = this.bindingsOf(tool).filter((binding) => this.allows(state, binding));
      const reads = open.filter(({ whileHeld }) => whileHeld === true);
      // Another binding that is about each call makes each call of the state wait.
      return reads.length > 0 && open.every((each) => reads.includes(each) || each.when);
    };
    return new Set(
      [...this.claiming].filter((tool) => !(this.#whileHeld.has(tool) && isOpen(tool))),
    );
  }

  /** For rules of order: whether runs remember that the tool is done. */
  remembers(tool: string): boolean {
    return this.model.changesOf?.(tool, 'succeeded').adds.includes(tool) === true;
  }

  /**
   * Where the tool is available, and the way there; `undefined` where it is not bound, or available
   * in any state.
   *
   * @param wayTo finds the way, where other workflows have a say in it
   */
  whereabouts(
    tool: string,
    wayTo: (states: readonly BoundState[]) => Way = (states) => this.#wayFromStart(states),
  ): Whereabouts | undefined {
    const bindings = this.#tools.get(this.keyOf(tool));
    const isEverywhere = bindings?.some(({ states }) => states.includes(ANY_STATE)) === true;
    if (bindings === undefined || isEverywhere) return undefined;
    return whereaboutsOf(this, bindings, wayTo);
  }

  /** Whether lists show the tool in `state`. A tool that is not bound is always shown. */
  isVisible(tool: string, state: string): boolean {
    if ((this.globs.length === 0 && !this.renamings.renames) || this.#tools.has(tool))
      return !this.#tools.has(tool) || this.#viewOf(state).set.has(tool);
    const key = this.keyOf(tool);
    if (!this.#tools.has(key)) return true;
    return this.#viewOf(state).set.has(key) && this.clashOf(tool) === undefined;
  }

  /** The bound tools that lists show in `state`, in binding order. */
  available(state: string): readonly string[] {
    return this.#viewOf(state).list;
  }

  /** Whether two states show the same tools, so that clients need not list them again. */
  sameTools(a: string, b: string): boolean {
    return this.#viewOf(a) === this.#viewOf(b);
  }

  /** How every call of a tool is gated; `undefined` where that depends on its arguments. */
  matchAlways(tool: string): BoundTool | undefined {
    const known = this.#unconditional.get(tool);
    if (known !== undefined || (this.globs.length === 0 && !this.renamings.renames)) return known;
    return this.clashOf(tool) === undefined ? this.#unconditional.get(this.keyOf(tool)) : undefined;
  }

  /**
   * How a call is gated; `undefined` where it is not, because no binding is about it.
   *
   * @throws Error where a `when` fails, so that the gate cannot know; InterlockError
   * `ERR_INTERLOCK_BINDING` as {@link clashOf} says. The gate must refuse the call then.
   */
  match(tool: string, args: unknown): BoundTool | undefined {
    const key = this.keyOf(tool);
    const bindings = this.#tools.get(key);
    if (bindings === undefined) return undefined;
    const clash = this.clashOf(tool);
    if (clash !== undefined) throw new InterlockError('ERR_INTERLOCK_BINDING', clash);
    const unconditional = this.#unconditional.get(key);
    if (unconditional !== undefined) return unconditional;
    const matching = bindingsOfCall(bindings, args);
    return matching.length === 0 ? undefined : combine(this.model, matching);
  }

  /**
   * As {@link match}, with bindings that are available in every state: what follows from a call
   * that ran though its state did not allow it.
   */
  matchAnywhere(tool: string, args: () => unknown): BoundTool | undefined {
    const bound = this.bindingsOf(tool);
    const matching = this.isGrouped(tool) ? bindingsOfCall(bound, args()) : bound;
    return matching.length === 0 ? undefined : combine({ isIn: () => true }, matching);
  }

  /** Whether a call that is gated in this way is allowed in `state`. */
  allows(state: string, binding: Pick<BoundTool, 'states'>): boolean {
    return this.model.isIn(state, binding.states);
  }

  /**
   * Whether the machine's own guards would stop the event of a success. Where only the result says
   * which event that is, the guards are asked after the call.
   *
   * @throws Error where a guard throws. The gate must refuse the call then.
   */
  isStopped(position: Position, { eventIn }: Pick<BoundTool, 'eventIn'>): boolean {
    // A flat machine has no guards of its own.
    if (this.model.isFlat) return false;
    const event = eventNamed(eventIn(position.state));
    return event !== undefined && this.model.isStopped(position, event);
  }

  /**
   * The stored states in which a store may grant the claim of such a call. `undefined` where they
   * cannot be listed: then the store grants it in any state, and {@link allows} says whether to
   * keep it.
   *
   * @param beginsAnew whether an ended run starts again. A store may then grant a claim at the
   * run's end, for what is allowed at its start and for nothing else.
   */
  claimable(
    { states }: Pick<BoundTool, 'states'>,
    beginsAnew = false,
  ): readonly string[] | undefined {
    const { version, migrate } = this.#definition.deployment;
    if (!this.model.isFlat || version !== undefined || migrate !== undefined) return undefined;
    // A deadline may have taken the run out of its stored state. A run that has not begun may
    // begin in another state than the one that is stored for it.
    if (this.model.deadlines.length > 0 || this.starts.length > 0) return undefined;
    const names = states as readonly string[];
    if (!beginsAnew || this.#finals.length === 0) return names;
    const kept = names.filter((name) => !this.hasEnded(name));
    return names.includes(this.initial) ? [...kept, ...this.#finals] : kept;
  }

  /**
   * The fewest tools to call, in order, to get from a position to the nearest of `states`; none
   * where it is there already.
   */
  wayTo(states: readonly BoundState[], from: Position): Way {
    const foreseen = this.foresees;
    if (!this.model.has(from.state)) return { path: undefined, foreseen };
    return (
      this.#orderWays?.wayTo(states, from) ?? { path: this.#ways.pathTo(states, from), foreseen }
    );
  }

  /** The rules of order that it was made of; none where it was made of a machine. */
  get order(): Order | undefined {
    return this.#definition.order;
  }

  get isOrder(): boolean {
    return this.model.doneIn !== undefined;
  }

  /** For each bound tool that a position allows, where a success may lead; in binding order. */
  leads(from: Position): ReadonlyMap<string, Leads> {
    return this.#ways.leads(from);
  }

  /** As {@link Ways.mayLead}. */
  mayLead(from: Position, tools: readonly string[], states: readonly BoundState[]): boolean {
    const keys = this.globs.length === 0 ? tools : tools.map((tool) => this.keyOf(tool));
    return this.#ways.mayLead(from, keys, states);
  }

  /** Whether the arguments of a call choose among this tool's bindings. */
  isGrouped(tool: string): boolean {
    return this.bindingsOf(tool).some(({ when }) => when !== undefined);
  }

  /**
   * A stored position in the terms of this deployment: as it is, or as `migrate` returns it.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where this deployment does not understand it.
   * The gate must refuse the call then.
   */
  adopt(stored: Position): Position {
    return adopt(this.model, this.#definition.deployment, stored);
  }

  /**
   * Where a stored run stands, and where a deadline has taken it by `now`, on the clock that
   * stamped the snapshot.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` as {@link adopt}
   */
  understand(stored: FsmSnapshot, now: number): Understood {
    const position = this.stand(stored, now);
    const { updatedAt } = stored;
    return { position, expiry: overdue(this.model, { ...position, updatedAt }, now) };
  }

  /**
   * The position to save something over. It may stay in its state, so it carries the time at which
   * the run entered that state.
   */
  stand(stored: FsmSnapshot, now = stored.updatedAt): Position {
    const adopted = this.rules.standAt(this.adopt(stored), now);
    return whenEntered(this.model, adopted, stored.updatedAt);
  }

  /**
   * A checked copy of a snapshot from a store, in the terms of this deployment.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it is malformed, and as {@link adopt}
   */
  parseSnapshot(value: unknown): FsmSnapshot {
    const snapshot = parseSnapshot(this.id, value);
    const { context: _, ...kept } = snapshot;
    return { ...kept, ...this.adopt(snapshot) };
  }

  /** The run's shared data, as guards and callbacks see them; for a statechart its context. */
  dataOf({ context }: Position): Json | undefined {
    return openContext(context).data;
  }

  /** The same position with other shared data. @throws Error where it is no JSON */
  withData(position: Position, data: Json | undefined): Position {
    return withData(position, data);
  }

  /**
   * A state in which the app lets a run begin, as stores name it; `undefined` for the initial one.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the gate's `starts` do not have it
   */
  startNamed(asked: string): string | undefined {
    const whole = this.model.has(asked) ? asked : this.model.entered?.(asked);
    if (whole === this.initial) return undefined;
    if (whole !== undefined && this.starts.includes(whole)) return whole;
    const right =
      whole === undefined || this.starts.length > 0
        ? rightNames(asked, [this.initial, ...this.starts])
        : `give the gate { starts: [${showValue(asked)}] }`;
    throw configError(`no run of workflow "${this.id}" begins in ${showValue(asked)}; ${right}`);
  }

  /**
   * How an app begins a run; `undefined` where it says nothing of that.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` as {@link startNamed} and `givenFacts()`
   */
  beginningFrom(
    { data, state, facts = [] }: GivenBeginning,
    run: string,
    now: number,
  ): Beginning | undefined {
    if (data === undefined && state === undefined && facts.length === 0) return undefined;
    const placed = state === undefined ? undefined : this.startNamed(state);
    return { data, state: placed, calls: this.rules.givenFacts(facts, run, now) };
  }

  /** Where a run begins anew, after one that stood at `before`. */
  startAfter(before: Position): Position {
    return this.rules.startAfter(this.start, before);
  }

  /**
   * Where a run begins that the app begins so. A statechart asks its `always` transitions again, as
   * XState does with an input.
   *
   * @throws Error where the data are no JSON; InterlockError `ERR_INTERLOCK_CONFIG` where such a
   * transition has actions, since no move is saved for them
   */
  begunWith(position: Position, { state, data, calls = [] }: Beginning): Position {
    if (state === undefined && data === undefined && calls.length === 0) return position;
    let placed = state === undefined ? position : { ...position, state };
    for (const each of calls) placed = this.rules.decided(placed, each);
    const begun = data === undefined ? placed : withData(placed, data);
    const next = this.model.settle?.(begun);
    if (next === undefined) return begun;
    const { position: settled, actions } = next;
    const [action] = actions;
    if (action === undefined) return settled;
    throw configError(
      `workflow "${this.id}": as "begin" begins a run, an "always" transition leads from ` +
        `${showValue(begun.state)} to ${showValue(settled.state)} by the action ` +
        `${showValue(action.type)}, and no move is saved for it: name the action in a transition ` +
        'that an event takes',
    );
  }

  /**
   * Calls the `onTransition` callbacks if the state changed. Never throws: `onError` gets what they
   * throw.
   */
  emit(move: Move, onError: ErrorListener = this.#definition.onError): void {
    if (move.changed && this.#listeners.size > 0) emit(this.#listeners, move, onError);
  }

  /** Hands actions to `onAction`, once the move that named them is saved. Never throws. */
  act(
    actions: readonly FsmAction[],
    context: Omit<ActionContext, 'workflow'>,
    onError?: ErrorListener,
  ): void {
    this.#definition.act(actions, { ...context, workflow: this.id }, onError);
  }

  #wayFromStart(states: readonly BoundState[]): Way {
    const way = this.wayTo(states, this.start);
    // Every client reads it, so it must not name a tool that only some may see.
    const isShown = way.path?.some((tool) => this.isVeiled(tool) || isGlob(tool)) !== true;
    return isShown && way.waits === undefined ? way : { path: undefined, foreseen: this.foresees };
  }
}
