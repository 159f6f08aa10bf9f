/**
 * XState as far as a gate needs it: hides how its machines are typed, recognised, and run without
 * an actor.
 */
import { isTable } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';

/**
 * A state machine of XState 5, as `createMachine()` and `setup().createMachine()` make it. The type
 * is structural, so that an app without XState need not install it.
 */
export interface XStateMachine {
  readonly id: string;
  readonly config: object;
  readonly root: object;
  readonly implementations: object;
  getInitialSnapshot(scope: never, input?: never): object;
  getTransitionData(snapshot: never, event: never): unknown;
  resolveState(config: never): object;
  transition(snapshot: never, event: never, scope: never): object;
}

/** The events that a machine is typed with; `string` where it is not. */
export type XStateEvents<M> = M extends {
  getTransitionData(snapshot: never, event: infer Event): unknown;
}
  ? [Event] extends [never]
    ? string
    : Event extends { readonly type: infer Type extends string }
      ? Type
      : never
  : string;

/**
 * The paths of the states of a machine from `setup().createMachine()`; `string` for other machines.
 */
export type XStatePaths<M> = PathsOf<ValueOf<M>>;

/**
 * What a gate's `currentState` can be: a path, and any text behind it where regions are parallel.
 */
export type XStateTexts<M> = TextsOf<ValueOf<M>>;

/** The tags that a machine is typed with; `string` where it is not. */
export type XStateTags<M> = M extends {
  getInitialSnapshot(
    scope: never,
    input?: never,
  ): { hasTag(tag: infer Tag extends string): boolean };
}
  ? Tag
  : string;

/** The type of a machine's context as guards read it: as it comes back from JSON. */
export type XStateContext<M> = M extends {
  getInitialSnapshot(scope: never, input?: never): { readonly context: infer Context };
}
  ? AsJson<Context>
  : Json | undefined;

/** What `T` becomes when it is written as JSON and read again. Functions and the like are gone. */
type AsJson<T> = unknown extends T
  ? Json
  : T extends string | number | boolean | null
    ? T
    : T extends bigint | symbol | undefined | ((...args: never) => unknown)
      ? never
      : T extends readonly unknown[]
        ? { -readonly [I in keyof T]: AsJson<T[I]> }
        : string extends keyof T
          ? { [key: string]: AsJson<T[keyof T]> }
          : { -readonly [K in keyof T as undefined extends T[K] ? never : K]: AsJson<T[K]> } & {
              -readonly [K in keyof T as undefined extends T[K] ? K : never]?: AsJson<T[K]>;
            };

type ValueOf<M> = M extends {
  getInitialSnapshot(scope: never, input?: never): { readonly value: infer Value };
}
  ? Value
  : string;

/** Going through a type that only says "a string or a table" would never end. */
type IsVague<V> = string extends V ? true : false;

type PathsOf<V> = IsVague<V> extends true ? string : V extends string ? V : PathsIn<V>;
type PathsIn<V> = { [K in keyof V & string]: K | `${K}.${PathsOf<V[K]>}` }[keyof V & string];

type TextsOf<V> =
  IsVague<V> extends true ? string : V extends string ? V : TextsIn<V, keyof V & string>;
type TextsIn<V, K extends keyof V & string, All = K> = [K] extends [never]
  ? string
  : K extends K
    ? [All] extends [K]
      ? `${K}.${TextsOf<V[K]>}`
      : string
    : never;

/** A state as the machine has it. It is public in XState 5. */
export interface XNode {
  readonly key: string;
  readonly id: string;
  readonly type: 'atomic' | 'compound' | 'parallel' | 'final' | 'history';
  readonly states: Readonly<Record<string, XNode>>;
  readonly parent?: XNode;
  readonly tags: readonly string[];
  readonly entry: readonly unknown[];
  readonly exit: readonly unknown[];
  readonly initial?: XTransition;
  readonly transitions: ReadonlyMap<string, readonly XTransition[]>;
  readonly always?: readonly XTransition[];
  readonly config: { readonly invoke?: unknown; readonly after?: unknown };
}

export interface XTransition {
  readonly target?: readonly XNode[] | undefined;
  readonly actions: readonly unknown[];
  readonly guard?: unknown;
}

/** A snapshot as `resolveState()` and `transition()` return it. */
export interface XSnapshot {
  readonly value: unknown;
  readonly context: unknown;
  readonly status: string;
  readonly error?: unknown;
  readonly children: object;
  readonly historyValue: Readonly<Record<string, readonly { readonly id: string }[]>>;
}

export interface XEvent {
  readonly type: string;
  readonly [property: string]: unknown;
}

/** A machine as our code calls it: its pure methods only. */
export interface XMachine {
  readonly id: string;
  readonly config: { readonly id?: string };
  readonly root: XNode;
  readonly implementations: {
    readonly actions: Readonly<Record<string, unknown>>;
    readonly guards: Readonly<Record<string, unknown>>;
  };
  getInitialSnapshot(scope: object): XSnapshot;
  getTransitionData(snapshot: XSnapshot, event: XEvent): readonly XTransition[];
  resolveState(config: { value: unknown; context: unknown; historyValue: object }): XSnapshot;
  transition(snapshot: XSnapshot, event: XEvent, scope: object): XSnapshot;
}

/** Whether it is a machine of XState 5, from any copy of that module. */
export function isXStateMachine(value: unknown): value is XStateMachine {
  if (!isTable(value) || !isTable(value.root) || !isTable(value.implementations)) return false;
  const methods = ['getInitialSnapshot', 'getTransitionData', 'resolveState', 'transition'];
  return methods.every((name) => typeof value[name] === 'function');
}

/** An action as XState hands it to the code that runs actions. */
export interface FoundAction {
  readonly type: string;
  readonly params?: unknown;
}

/** More steps than this for one event mean that the machine never settles. */
const MOST_STEPS = 1000;

/** Thrown where an event would keep a machine busy for ever. */
export class Restless extends Error {
  override readonly name = 'Restless';
}

/**
 * What XState needs for a transition (its `ActorScope`), without an actor. `found` gets each
 * action, and none is run. What needs an actor throws.
 */
export function inertScope(found: (action: FoundAction) => void): object {
  const nothing = (): void => {};
  let steps = 0;
  const system = {
    _sendInspectionEvent() {
      steps++;
      if (steps > MOST_STEPS) throw new Restless(`it did not come to rest in ${MOST_STEPS} steps`);
    },
  };
  return {
    self: NOBODY,
    system,
    id: '',
    sessionId: '',
    logger: nothing,
    defer: nothing,
    emit: nothing,
    stopChild: nothing,
    actionExecutor: found,
  };
}

/** Stands in place of an actor. */
const NOBODY: object = new Proxy(Object.freeze({}), {
  get() {
    throw new Error('no actor runs here, so nothing can be spawned, and nothing sent to one');
  },
});

let engine: Promise<boolean> | undefined;

/**
 * Loads the optional peer `xstate`, to know whether an app can make machines with it. No gate needs
 * that, since a machine brings all the code that runs it. In a bundle it says whether XState was
 * installed when the bundle was made.
 *
 * @returns `false` where it is not installed, or too old to have `transition()` as a pure function
 */
export function initFsmEngine(): Promise<boolean> {
  engine ??= (async () => {
    // Bundlers take an import for optional where it is written out, and within `try`.
    try {
      return hasPureTransitions(await import('xstate'));
    } catch {
      return false;
    }
  })();
  return engine;
}

/** Whether it is a version of XState that a gate's machines can come from. */
export function hasPureTransitions(module: object): boolean {
  return 'transition' in module && 'initialTransition' in module;
}
