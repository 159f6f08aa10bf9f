/**
 * A machine of XState as a gate's model: hides how runs go to and from the snapshots of XState, and
 * what of them is kept.
 */

import { memoise } from '../basics/collections.ts';
import { configError, InterlockError } from '../basics/errors.ts';
import { showValue } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import {
  actionFault,
  type ChartNode,
  ChartTree,
  chartEvent,
  chartFault,
  covers,
  eventsOfNode,
  guardedEvents,
  isEmpty,
  isReserved,
} from './chart.ts';
import { type Envelope, openContext, sealContext } from './envelope.ts';
import {
  ANY_STATE,
  atomsOf,
  type BoundState,
  type FsmAction,
  holds,
  type Model,
  type Next,
  type Position,
  type StateTag,
} from './position.ts';
import { jsonOf } from './stored.ts';
import {
  type FoundAction,
  inertScope,
  type XEvent,
  type XMachine,
  type XNode,
  type XSnapshot,
  type XStateMachine,
} from './xstate.ts';

/**
 * How many texts are kept: a machine may have countless combinations of states, but runs are in
 * few.
 */
const MOST_TEXTS_KEPT = 1000;

/**
 * With more combinations of the asked names than this, the code does not work out which can be true
 * together.
 */
const MOST_COMBINATIONS = 4096;

const ID = /^[\w.-]{1,64}$/;

/**
 * A statechart, which the machine's own pure functions run: no actor is made, and XState itself is
 * never loaded.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what pure transitions cannot run
 */
export function statechartModel(machine: XStateMachine, hasListener: boolean): Model {
  return new Statechart(machine as unknown as XMachine, hasListener);
}

class Statechart implements Model {
  readonly id: string;
  readonly start: Position;
  readonly startActions: readonly FsmAction[];
  readonly names: readonly string[];
  readonly tags: readonly string[];
  readonly events: readonly string[];
  readonly isFlat = false;
  /** The constructor refuses delayed transitions. */
  readonly deadlines = [];
  readonly chart: ChartTree;
  readonly #machine: XMachine;
  readonly #hasListener: boolean;
  /** The path of each state, by the identifier that XState's history has for it. */
  readonly #paths: ReadonlyMap<string, string>;
  /** What the text of a state means; `undefined` for a text that is none. */
  readonly #active = memoise((state) => this.chart.read(state), { most: MOST_TEXTS_KEPT });
  readonly isFinal = memoise(
    (state) => this.has(state) && this.#revive({ state }).status === 'done',
    { most: MOST_TEXTS_KEPT },
  );
  /** The events that some transition with a guard takes. */
  readonly #guarded: readonly string[];

  constructor(machine: XMachine, hasListener: boolean) {
    this.id = machine.config.id ?? 'workflow';
    if (!ID.test(this.id))
      throw this.#error(
        `its id must be 1 to 64 letters, digits, "_", "." or "-", got ${showValue(this.id)}`,
      );
    this.#machine = machine;
    this.#hasListener = hasListener;
    if (!runsPurely(machine))
      throw this.#error('its XState is older than 5.19, which has no pure transitions');
    this.chart = new ChartTree(machine);
    if (this.chart.nodes.has(ANY_STATE))
      throw this.#error('a state is called "*", which names any state in bindings; rename it');
    const fault = chartFault(machine, this.chart, hasListener);
    if (fault !== undefined) throw this.#error(fault);
    const nodes = [...this.chart.nodes.values()];
    this.names = Object.freeze(nodes.map(({ path }) => path));
    this.tags = Object.freeze([
      ...new Set([this.chart.root, ...nodes].flatMap(({ source }) => source.tags)),
    ]);
    this.events = Object.freeze([
      ...new Set([this.chart.root, ...nodes].flatMap(({ source }) => eventsOfNode(source))),
    ]);
    this.#guarded = [this.chart.root, ...nodes].flatMap(({ source }) => guardedEvents(source));
    this.#paths = new Map(
      historyNodes(machine.root).concat(nodes.map(({ source, path }) => [source.id, path])),
    );
    const { position, actions } = this.#begin();
    this.start = Object.freeze(position);
    this.startActions = Object.freeze(actions);
  }

  deadline(): undefined {}

  has(state: string): boolean {
    return this.#active(state) !== undefined;
  }

  entered(path: string): string | undefined {
    let value: unknown = {};
    for (let node = this.chart.nodes.get(path); node?.parent !== undefined; node = node.parent)
      value = { [node.source.key]: value };
    if (!this.chart.nodes.has(path)) return undefined;
    const { context } = this.#machine.getInitialSnapshot(inertScope(() => {}));
    const whole = this.#machine.resolveState({ value, context, historyValue: {} });
    return this.chart.textOf(whole.value);
  }

  isIn(state: string, bound: readonly BoundState[]): boolean {
    const active = this.#active(state);
    const isActive = (atom: string | StateTag): boolean =>
      active?.nodes.some((node) => isAt(node, atom)) === true;
    return active !== undefined && bound.some((each) => holds(each, isActive));
  }

  eventsIn(state: string): readonly string[] {
    return [
      ...new Set((this.#active(state)?.nodes ?? []).flatMap(({ source }) => eventsOfNode(source))),
    ];
  }

  handlers(event: string): readonly string[] {
    const nodes = [this.chart.root, ...this.chart.nodes.values()];
    return nodes
      .filter((node) => eventsOfNode(node.source).some((each) => covers(each, event)))
      .map(({ path }) => path);
  }

  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean {
    const atoms = new Map(
      [...bound, ...names].flatMap(atomsOf).map((atom) => [JSON.stringify(atom), atom]),
    );
    const keys = [...atoms.keys()];
    const tests = [...atoms.values()].map((atom) => (node: ChartNode) => isAt(node, atom));
    const combinations = this.chart.combinations(tests, MOST_COMBINATIONS);
    if (combinations === undefined) return true;
    return [...combinations].some((bits) => {
      const isTrue = (atom: string | StateTag): boolean =>
        ((bits >> BigInt(keys.indexOf(JSON.stringify(atom)))) & 1n) === 1n;
      const isOne = (each: BoundState): boolean => holds(each, isTrue);
      return bound.some(isOne) && names.some(isOne);
    });
  }

  isStopped(position: Position, event: string): boolean {
    if (!this.#guarded.some((each) => covers(each, event))) return false;
    const isHandled = this.eventsIn(position.state).some((each) => covers(each, event));
    if (!isHandled) return false;
    const snapshot = this.#revive(position);
    if (snapshot.status !== 'active') return false;
    // XState takes the first transition whose guard says yes, or that has no guard.
    return this.#machine.getTransitionData(snapshot, chartEvent(event, undefined)).length === 0;
  }

  next(position: Position, event: string, payload?: Json): Next {
    if (isReserved(event)) {
      const message = `workflow "${this.id}": ${showValue(event)} is a name of XState's own`;
      throw new InterlockError('ERR_INTERLOCK_EVENT', message);
    }
    const snapshot = this.#revive(position);
    if (snapshot.status !== 'active')
      return { position, changed: false, handled: false, actions: [] };
    return this.#send(position, snapshot, chartEvent(event, payload));
  }

  /** No transition takes this event of XState's own, after which it asks each `always` again. */
  settle(position: Position): Next {
    const snapshot = this.#revive(position);
    if (snapshot.status !== 'active')
      return { position, changed: false, handled: false, actions: [] };
    return this.#send(position, snapshot, { type: 'xstate.init' });
  }

  #send(position: Position, snapshot: XSnapshot, sent: XEvent): Next {
    const found: FoundAction[] = [];
    const next = this.#machine.transition(
      snapshot,
      sent,
      inertScope((action) => found.push(action)),
    );
    const actions = this.#actionsOf(found);
    const reached =
      next === snapshot ? position : this.#positionOf(next, openContext(position.context));
    const handled = this.#machine
      .getTransitionData(snapshot, sent)
      .some(({ target, actions }) => target !== undefined || actions.length > 0);
    return { position: reached, changed: reached.state !== position.state, handled, actions };
  }

  #begin(): { position: Position; actions: FsmAction[] } {
    const found: FoundAction[] = [];
    try {
      const snapshot = this.#machine.getInitialSnapshot(inertScope((action) => found.push(action)));
      return { position: this.#positionOf(snapshot, {}), actions: this.#actionsOf(found) };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw this.#error(`where it begins cannot be worked out: ${why}`, { cause: error });
    }
  }

  #revive({ state, context }: Position): XSnapshot {
    const active = this.#active(state);
    if (active === undefined)
      throw new Error(`${showValue(state)} is no state of workflow "${this.id}"`);
    const { data = {}, history = {} } = openContext(context);
    const remembered = Object.entries(history).map(([path, states]) => [
      [...this.#paths].find(([, each]) => each === path)?.[0] ?? path,
      states.flatMap((each) => this.chart.nodes.get(each)?.source ?? []),
    ]);
    const historyValue = Object.fromEntries(remembered);
    return this.#machine.resolveState({ value: active.value, context: data, historyValue });
  }

  #positionOf(snapshot: XSnapshot, { data: _, history: __, ...rest }: Envelope): Position {
    if (snapshot.status === 'error') throw snapshot.error;
    if (Object.values(snapshot.children).some((child) => child !== undefined))
      throw new Error('it spawned an actor, and none runs here');
    const data = jsonOf(snapshot.context ?? {}, 'the context');
    const history = this.#historyOf(snapshot);
    return {
      state: this.#textOf(snapshot.value),
      ...sealContext({
        ...(isEmpty(data) ? {} : { data }),
        ...(isEmpty(history) ? {} : { history }),
        ...rest,
      }),
    };
  }

  /**
   * A transition into the history of parallel states can leave regions out. Restoring the value
   * fills them in, as XState does for its own snapshots.
   */
  #textOf(value: unknown): string {
    const text = this.chart.textOf(value);
    if (this.has(text)) return text;
    const restored = this.#machine.resolveState({ value, context: {}, historyValue: {} });
    const whole = this.chart.textOf(restored.value);
    if (this.has(whole)) return whole;
    throw new Error(`it came to ${showValue(whole)}, which is no whole state of it`);
  }

  #historyOf({ historyValue }: XSnapshot): Record<string, string[]> {
    const entries = Object.entries(historyValue).map(([id, states]) => [
      this.#paths.get(id) ?? id,
      states.map((each) => this.#paths.get(each.id) ?? each.id),
    ]);
    return Object.fromEntries(entries);
  }

  #actionsOf(found: readonly FoundAction[]): FsmAction[] {
    return found.flatMap(({ type, params }): FsmAction[] => {
      const fault = actionFault(type, this.#hasListener);
      if (fault !== undefined) throw new Error(fault);
      if (PASSING.includes(type)) return [];
      const given =
        params === undefined
          ? {}
          : { params: jsonOf(params, `the parameters of action "${type}"`) };
      return [Object.freeze({ type, ...given })];
    });
  }

  #error(fault: string, options?: ErrorOptions): InterlockError {
    return configError(`statechart "${this.id}": ${fault}`, options);
  }
}

/** Built-in actions that XState reports although the transition has already done them. */
const PASSING = ['xstate.raise'];

function isAt({ path, source }: ChartNode, atom: string | StateTag): boolean {
  return typeof atom === 'string' ? path === atom : source.tags.includes(atom.tag);
}

function historyNodes(node: XNode, path = ''): [string, string][] {
  return Object.entries(node.states).flatMap(([key, child]) => {
    const own = path === '' ? key : `${path}.${key}`;
    const inner = historyNodes(child, own);
    return child.type === 'history' ? [[child.id, own] as [string, string], ...inner] : inner;
  });
}

/**
 * Whether this copy of XState reports actions instead of running them. A machine of one state shows
 * it. Before 5.19 the actions would be lost.
 */
function runsPurely(machine: XMachine): boolean {
  const Machine = machine.constructor as new (config: object, implementations: object) => XMachine;
  let reported = false;
  const scope = inertScope(() => {
    reported = true;
  });
  try {
    new Machine({ entry: 'probe' }, {}).getInitialSnapshot(scope);
  } catch {
    return false;
  }
  return reported;
}
