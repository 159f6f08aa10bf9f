import { isTable } from '../options.ts';
import type { Json } from '../stores/store.ts';
import type { CallMemory, Effect, Order } from './order.ts';
import { RememberedCalls, readText, textOf } from './order-position.ts';
import {
  atomsOf,
  type BoundState,
  holds,
  type Model,
  type Next,
  type Position,
} from './position.ts';

/** So many names are tried out in all their combinations, to find out what can be true. */
const MOST_NAMES_TRIED = 10;

/**
 * Rules of order as a machine: its state is the set of what is done. There is no product of
 * states, since none is listed: an event adds its tool to the set, and takes others out.
 */
export function orderModel(order: Order): Model {
  return new OrderModel(order);
}

class OrderModel implements Model {
  readonly id: string;
  readonly start: Position = Object.freeze({ state: textOf([]) });
  readonly startActions = [];
  readonly names: readonly string[];
  readonly tags = [];
  readonly isFlat = false;
  readonly events: readonly string[];
  readonly deadlines = [];
  readonly #order: Order;
  readonly #remembered: ReadonlySet<string>;

  constructor(order: Order) {
    this.id = order.id;
    this.names = order.names;
    this.events = Object.freeze([...order.effects.keys()]);
    this.#order = order;
    this.#remembered = new Set(order.remembered);
  }

  deadline(): undefined {}

  has(state: string): boolean {
    return this.#doneIn(state) !== undefined;
  }

  isFinal(): boolean {
    return false;
  }

  doneIn(state: string): readonly string[] | undefined {
    const done = this.#doneIn(state);
    return done && [...done];
  }

  #doneIn(state: string): ReadonlySet<string> | undefined {
    const done = readText(state);
    if (done === undefined) return undefined;
    for (const name of done) if (!this.#remembered.has(name)) return undefined;
    return done;
  }

  isIn(state: string, bound: readonly BoundState[]): boolean {
    const done = this.#doneIn(state);
    return done !== undefined && isTrue(bound, done);
  }

  /** Those that would change anything. */
  eventsIn(state: string): readonly string[] {
    const done = this.#doneIn(state);
    if (done === undefined) return [];
    const changes = (event: string): boolean => {
      const { adds, removes } = this.effectOf(event);
      const isNew = adds !== undefined && !done.has(adds);
      return (
        isNew || this.#effect(event).kinds.length > 0 || removes.some((each) => done.has(each))
      );
    };
    return this.events.filter(changes);
  }

  handlers(event: string): readonly string[] {
    return this.#order.effects.has(event) ? ['*'] : [];
  }

  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean {
    const atoms = [...bound, ...names].flatMap(atomsOf).filter((each) => typeof each === 'string');
    const tried = [...new Set(atoms)];
    if (tried.length > MOST_NAMES_TRIED) return true;
    for (let combination = 0; combination < 2 ** tried.length; combination++) {
      const done = new Set(tried.filter((_, i) => (combination >> i) % 2 === 1));
      if (isTrue(bound, done) && isTrue(names, done)) return true;
    }
    return false;
  }

  isStopped(): boolean {
    return false;
  }

  effectOf(event: string): {
    readonly adds: string | undefined;
    readonly removes: readonly string[];
  } {
    const { isRemembered, undoes, uses } = this.#effect(event);
    return {
      adds: isRemembered ? event : undefined,
      removes: [...undoes, ...uses.map(({ tool }) => tool)],
    };
  }

  /** Without a memory of the call, the payload of an event from outside is its arguments. */
  next(position: Position, event: string, payload?: Json, memory?: unknown): Next {
    const before = this.#doneIn(position.state);
    const unchanged = { position, changed: false, handled: false, actions: [] };
    if (before === undefined || !this.#order.effects.has(event)) return unchanged;
    const effect = this.#effect(event);
    const call = this.#memoryOf(effect, payload, memory);
    const done = new Set(before);
    const calls = new RememberedCalls(position);
    for (const tool of effect.undoes) {
      done.delete(tool);
      calls.forget(tool);
    }
    for (const [i, { tool, own, earlier }] of effect.uses.entries()) {
      const isLeft = own.length > 0 && calls.use(tool, earlier, call?.uses[i]);
      if (isLeft) continue;
      done.delete(tool);
      calls.forget(tool);
    }
    if (effect.isRemembered) done.add(event);
    if (effect.isRemembered && effect.kinds.length > 0)
      calls.add(event, effect.kinds, call?.own ?? effect.kinds.map(() => null));
    const state = textOf(this.#order.remembered.filter((name) => done.has(name)));
    return {
      position: calls.in({ ...position, state }),
      changed: state !== position.state,
      handled: true,
      actions: [],
    };
  }

  #effect(event: string): Effect {
    return this.#order.effects.get(event) ?? NO_EFFECT;
  }

  #memoryOf(effect: Effect, payload: Json | undefined, memory: unknown): CallMemory | undefined {
    if (isMemory(memory)) return memory;
    return isTable(payload) ? this.#order.memoryOf(effect, payload) : undefined;
  }
}

const NO_EFFECT: Effect = { isRemembered: false, undoes: [], uses: [], kinds: [] };

function isMemory(value: unknown): value is CallMemory {
  return isTable(value) && Array.isArray(value.own) && Array.isArray(value.uses);
}

function isTrue(bound: readonly BoundState[], done: ReadonlySet<string>): boolean {
  return bound.some((each) => holds(each, (atom) => typeof atom === 'string' && done.has(atom)));
}
