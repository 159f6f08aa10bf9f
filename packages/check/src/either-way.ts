/**
 * A statechart without its data. It hides how a copy of an XState machine is made whose guards
 * answer either way, so that proofs hold for any data. XState's own graph utilities do not suffice:
 * they follow the guards of one context, and handlers may change a run's data.
 */
import {
  type ChartTree,
  type Model,
  type Position,
  statechartModel,
  type XMachine,
  type XNode,
  type XSnapshot,
  type XTransition,
} from '../../../src/internal.ts';

/** How many ways of answering are tried for one event. */
const MOST_ANSWERS = 512;

/** Where an event may lead, over all answers of the machine's guards. */
export interface EitherWay {
  readonly positions: readonly Position[];
  /** Whether a guard was asked at all. */
  readonly isGuarded: boolean;
}

/** A statechart whose guards may say yes or no, and whose actions do nothing but raise events. */
export class EitherWayChart {
  /** Why it may miss some moves; `undefined` where it misses none. */
  #gap: string | undefined;
  readonly #model: Model;
  /** The answers to give, in the order of the questions. */
  #script: boolean[] = [];
  #asked = new Map<string, boolean>();
  readonly #names = new Map<unknown, number>();
  /** Whether a circle of transitions may end elsewhere after each round. */
  #remembers = false;
  #isRestive = false;

  constructor({ machine }: ChartTree) {
    const Machine = machine.constructor as new (
      config: object,
      implementations: object,
    ) => XMachine;
    const { guards } = machine.implementations;
    const copy = new Machine(machine.config, {
      ...machine.implementations,
      guards: Object.fromEntries(
        Object.entries(guards).map(([name, guard]) => [name, this.#guard(guard)]),
      ),
    });
    this.#strip(copy, copy.root);
    this.#model = statechartModel(copy, true);
  }

  get gap(): string | undefined {
    return this.#gap;
  }

  /**
   * Whether some transitions wait for no event. Any event may take them, once the data are right.
   */
  get isRestive(): boolean {
    return this.#isRestive;
  }

  /** Where the event may lead; `undefined`: where transitions without an event may lead. */
  next(position: Position, event: string | undefined): EitherWay {
    const found = new Map<string, Position>();
    let isGuarded = false;
    this.#script = [];
    for (let tries = 0; ; tries++) {
      if (tries === MOST_ANSWERS) {
        this.#gap ??= `an event asks more guards than there are ways of answering looked at`;
        break;
      }
      this.#asked = new Map();
      const next = this.#try(position, event);
      if (next !== undefined) found.set(positionKey(next), next);
      isGuarded ||= this.#asked.size > 0;
      const answers = [...this.#asked.values()];
      const last = answers.lastIndexOf(false);
      if (last === -1) break;
      this.#script = [...answers.slice(0, last), true];
    }
    return { positions: [...found.values()], isGuarded };
  }

  #try(position: Position, event: string | undefined): Position | undefined {
    try {
      if (event === undefined) return this.#model.settle?.(position).position;
      return this.#model.next(position, event).position;
    } catch {
      // A circle that never settles moves no run, since the gate refuses its call. Without a
      // memory, a circle that settles after some rounds also does so after none.
      if (this.#remembers || this.#asked.size === 0)
        this.#gap ??= 'a circle of transitions may come to rest in ways that are not looked at';
      return undefined;
    }
  }

  /** A guard that takes its answer from the script, in place of one that reads data. */
  #guard(guard: unknown): unknown {
    if (typeof guard !== 'function') return guard;
    const parts: unknown = Reflect.get(guard, 'guards');
    const check: unknown = Reflect.get(guard, 'check');
    if (Array.isArray(parts)) {
      return Object.assign(() => false, { check, guards: parts.map((part) => this.#guard(part)) });
    }
    // stateIn() reads the states only, so it stays as it is.
    if (check !== undefined) return guard;
    const name = this.#names.get(guard) ?? this.#names.size;
    this.#names.set(guard, name);
    return Object.assign(() => false, {
      check: ({ value }: XSnapshot, { event }: { event: { type: string } }): boolean => {
        const question = JSON.stringify([name, event.type, value]);
        const answer = this.#asked.get(question) ?? this.#script[this.#asked.size] ?? false;
        this.#asked.set(question, answer);
        return answer;
      },
    });
  }

  #strip(machine: XMachine, node: XNode): void {
    if (node.type === 'history') this.#remembers = true;
    const always = node.always ?? [];
    if (always.length > 0) this.#isRestive = true;
    const transitions = [...node.transitions.values(), always].flat();
    for (const transition of transitions) {
      if (transition.guard !== undefined)
        Reflect.set(transition, 'guard', this.#named(machine, transition));
      this.#keepRaises(machine, transition, 'actions');
    }
    this.#keepRaises(machine, node, 'entry');
    this.#keepRaises(machine, node, 'exit');
    if (node.initial !== undefined) this.#keepRaises(machine, node.initial, 'actions');
    for (const child of Object.values(node.states)) this.#strip(machine, child);
  }

  /** A guard with parameters is a question of its own. */
  #named(machine: XMachine, { guard }: XTransition): unknown {
    if (typeof guard === 'function') return this.#guard(guard);
    const params = guard instanceof Object ? Reflect.get(guard, 'params') : undefined;
    if (params === undefined || !(guard instanceof Object)) return guard;
    const named: unknown = machine.implementations.guards[String(Reflect.get(guard, 'type'))];
    if (typeof named === 'function' && Array.isArray(Reflect.get(named, 'guards'))) return named;
    return this.#guard(() => guard);
  }

  #keepRaises(machine: XMachine, owner: object, key: 'actions' | 'entry' | 'exit'): void {
    const actions: unknown = Reflect.get(owner, key);
    if (!Array.isArray(actions) || actions.length === 0) return;
    const kept = actions.filter((action) => this.#isRaise(machine, action));
    Reflect.set(owner, key, kept);
  }

  #isRaise(machine: XMachine, action: unknown): boolean {
    const name = action instanceof Object ? Reflect.get(action, 'type') : action;
    const isOwn = typeof action === 'function';
    const { actions } = machine.implementations;
    const named = typeof name === 'string' && Object.hasOwn(actions, name) ? actions[name] : action;
    const built: unknown = isOwn ? action : named;
    if (typeof built !== 'function') return false;
    const type: unknown = Reflect.get(built, 'type');
    if (type === 'xstate.enqueueActions')
      this.#gap ??= 'its enqueueActions() may raise events, which only a run knows';
    if (type !== 'xstate.raise') return false;
    this.#remembers = true;
    if (typeof Reflect.get(built, 'event') === 'function')
      this.#gap ??= 'it raises an event that a function makes, which only a run knows';
    return typeof Reflect.get(built, 'event') !== 'function';
  }
}

/** A position as one text, to look up by. */
export function positionKey({ state, context }: Position): string {
  return context === undefined ? state : `${state} ${JSON.stringify(context)}`;
}
