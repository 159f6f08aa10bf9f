import { foldCase, foldKey } from '../names.ts';
import type { SucceededCall } from './binding.ts';
import type { CallBinding } from './bound-tools.ts';

/**
 * A call's arguments as the app's functions are given them. Which keys they ask for is watched,
 * since some servers (those in Go) do not heed letter case: for a key that is there in another
 * case, they would run the call with another argument than was judged.
 */
export class AskedArguments {
  readonly #args: unknown;
  #views: WeakMap<object, object> | undefined;
  #ambiguous: string | undefined;

  constructor(args: unknown) {
    this.#args = args;
  }

  /** What the functions read; no object where the arguments are none. */
  get view(): unknown {
    return this.#shown(this.#args);
  }

  /** A key that was asked for, and is there in another letter case: beside it or in its place. */
  get ambiguous(): string | undefined {
    return this.#ambiguous;
  }

  /** The same for functions, of which an object is all that they need to take. */
  get members(): Readonly<Record<string, unknown>> {
    const { view } = this;
    return isContainer(view) && !Array.isArray(view) ? (view as Record<string, unknown>) : {};
  }

  /**
   * Finds out what the functions of a binding will ask for that say what an outcome sends: after
   * the call it is too late to refuse it. Where a key is written in their source in another letter
   * case than it came in, they are called with an empty result; those of our own always are, since
   * their source names no key. They are free of effects, and what they say here is not heeded.
   *
   * @param told what they are told beside the arguments: without it they would stop too early
   */
  foresee(
    { sources }: Pick<CallBinding, 'sources'>,
    told: Omit<SucceededCall, 'args' | 'result'>,
  ): void {
    const keys = keysIn(this.#args);
    for (const source of sources) {
      const text = source.toString();
      const isOwn = source.sends !== undefined;
      if (!isOwn && keys !== 'many' && !keys.some((key) => isSpeltOtherwise(text, key))) continue;
      try {
        const said: unknown = source({ ...told, args: this.members, result: {} } as never);
        // A promise that nobody waits for would end the process if it were rejected.
        Promise.resolve(said).catch(() => {});
      } catch {}
    }
  }

  #shown(value: unknown): unknown {
    if (!isContainer(value)) return value;
    // Where nothing has a key, nothing need be watched.
    if (Array.isArray(value) && !value.some(isContainer)) return value;
    this.#views ??= new WeakMap();
    const known = this.#views.get(value);
    if (known !== undefined) return known;
    const view = Array.isArray(value) ? this.#watchList(value) : this.#watch(value);
    this.#views.set(value, view);
    return view;
  }

  #watchList(list: unknown[]): object {
    return new Proxy(unlocked(list), {
      get: (target, key, receiver) => this.#shown(Reflect.get(target, key, receiver)),
      getOwnPropertyDescriptor: (target, key) => this.#described(target, key),
    });
  }

  #watch(object: object): object {
    let spellings: Map<string, string> | undefined;
    const ask = (target: object, key: string | symbol): void => {
      if (typeof key !== 'string') return;
      spellings ??= spellingsIn(target);
      const spelt = spellings.get(foldKey(key));
      if (spelt !== undefined && spelt !== key) this.#ambiguous ??= key;
    };
    return new Proxy(unlocked(object), {
      get: (target, key, receiver) => {
        ask(target, key);
        return this.#shown(Reflect.get(target, key, receiver));
      },
      has: (target, key) => {
        ask(target, key);
        return Reflect.has(target, key);
      },
      getOwnPropertyDescriptor: (target, key) => {
        ask(target, key);
        return this.#described(target, key);
      },
      // A function that goes through the keys asks for each of them.
      ownKeys: (target) => {
        const keys = Reflect.ownKeys(target);
        for (const key of keys) ask(target, key);
        return keys;
      },
    });
  }

  #described(target: object, key: string | symbol): PropertyDescriptor | undefined {
    const described = Reflect.getOwnPropertyDescriptor(target, key);
    if (described !== undefined && 'value' in described && described.configurable === true)
      described.value = this.#shown(described.value);
    return described;
  }
}

/**
 * By their folded form; of those that differ in nothing but case, one that is no spelling of any of
 * them.
 */
function spellingsIn(object: object): Map<string, string> {
  const spellings = new Map<string, string>();
  for (const key of Object.keys(object)) {
    const folded = foldKey(key);
    spellings.set(folded, spellings.has(folded) ? `${folded}, doubled` : key);
  }
  return spellings;
}

/** More keys than these are not compared with the source of a function. */
const MOST_KEYS = 100;

/** The keys at every depth. */
function keysIn(args: unknown): readonly string[] | 'many' {
  const keys = new Set<string>();
  const rest = [args];
  for (let seen = 0; rest.length > 0; seen++) {
    if (seen > MOST_KEYS || keys.size > MOST_KEYS) return 'many';
    const each = rest.pop();
    if (!isContainer(each)) continue;
    if (!Array.isArray(each)) for (const key of Object.keys(each)) keys.add(key);
    for (const inner of Object.values(each)) if (isContainer(inner)) rest.push(inner);
  }
  return [...keys];
}

/**
 * Whether a text has the key in it, or a part of a word that is like it, in another letter case.
 */
function isSpeltOtherwise(text: string, key: string): boolean {
  const folded = foldKey(key);
  const within = foldCase(text);
  if (folded === '') return false;
  for (let at = within.indexOf(folded); at !== -1; at = within.indexOf(folded, at + 1)) {
    // Where folding has moved the letters, it is in doubt, and so it is looked into.
    if (text.slice(at, at + key.length) !== key) return true;
  }
  return false;
}

/** What is frozen cannot be shown otherwise than it is, so a copy is shown. */
function unlocked<T extends object>(object: T): T {
  if (Object.isExtensible(object)) return object;
  return (Array.isArray(object) ? [...object] : { ...object }) as T;
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
