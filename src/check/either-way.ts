/**
 * A statechart without its data: hides how a machine of XState is made whose guards answer either
 * way, so that what holds of it holds whatever a run's data are. XState's own graph utilities do
 * not do: they follow the guards of one context, and handlers change a run's data behind them.
 */
import type { ChartTree } from '../workflow/chart.ts';
import type { Model, Position } from '../workflow/position.ts';
import { statechartModel } from '../workflow/statechart.ts';
import type { XMachine, XNode, XSnapshot, XTransition } from '../workflow/xstate.ts';

/** So many ways of answering are tried for one event. */
const MOST_ANSWERS = 512;

/** An event's results, whatever the guards of the machine say. */
export interface EitherWay {
  readonly positions: readonly Position[];
  /** Whether a guard was asked at all. */
  readonly isGuarded: boolean;
}

/** A statechart whose guards may say yes or no, and whose actions do nothing but raise events. */
export class EitherWayChart {
  /** Why there may be moves that it does not know; `undefined` where there are none. */
  #gap: string | undefined;
  readonly #model: Model;
  /** The answers to give, in the order of the questions; and how many were asked. */
  #script: boolean[] = [];
  #asked = new Map<string, boolean>();
  readonly #names = new Map<unknown, number>();
  /** Whether a circle of transitions could come to another end each time round. */
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

  /** Whether transitions wait for no event: any event may take them, once the data are right. */
  get isRestive(): boolean {
    return this.#isRestive;
  }

  /** Where the event may lead. */
  next(position: Position, event: string): EitherWay {
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
      if (next !== undefined) found.set(keyOf(next), next);
      isGuarded ||= this.#asked.size > 0;
      const answers = [...this.#asked.values()];
      const last = answers.lastIndexOf(false);
      if (last === -1) break;
      this.#script = [...answers.slice(0, last), true];
    }
    return { positions: [...found.values()], isGuarded };
  }

  #try(position: Position, event: string): Position | undefined {
    try {
      return this.#model.next(position, event).position;
    } catch {
      // A circle that never comes to rest moves no run: its call is refused. Without a memory, what
      // comes to rest after some rounds does so after none as well.
      if (this.#remembers || this.#asked.size === 0)
        this.#gap ??= 'a circle of transitions may come to rest in ways that are not looked at';
      return undefined;
    }
  }

  /** One that is asked for an answer, in place of one that reads data. */
  #guard(guard: unknown): unknown {
    if (typeof guard !== 'function') return guard;
    const parts: unknown = Reflect.get(guard, 'guards');
    const check: unknown = Reflect.get(guard, 'check');
    if (Array.isArray(parts)) {
      return Object.assign(() => false, { check, guards: parts.map((part) => this.#guard(part)) });
    }
    // stateIn() looks at the states alone.
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

  /** With parameters it is a question of its own. */
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
      this.#gap ??= 'its enqueueActions() may raise events, which only a run can tell';
    if (type !== 'xstate.raise') return false;
    this.#remembers = true;
    if (typeof Reflect.get(built, 'event') === 'function')
      this.#gap ??= 'it raises an event that a function makes, which only a run can tell';
    return typeof Reflect.get(built, 'event') !== 'function';
  }
}

/** What tells positions apart. */
export function keyOf({ state, context }: Position): string {
  return context === undefined ? state : `${state} ${JSON.stringify(context)}`;
}
