import { InterlockError } from '../basics/errors.ts';
import { globFault } from '../basics/glob.ts';
import { showValue } from '../basics/options.ts';
import type { SyncPolicy } from '../policy/engine.ts';
import type { Json } from '../stores/store.ts';
import {
  type Binding,
  type BindingOptions,
  parseBinding,
  parseToolName,
} from '../workflow/binding.ts';
import type { BoundState, StateTag } from '../workflow/position.ts';

/** The names and tags in an expression, at any depth. */
type AtomOf<B> = BoundState extends B
  ? string | StateTag
  : B extends string | StateTag
    ? B
    : B extends { readonly not: infer Inner }
      ? AtomOf<Inner>
      : B extends { readonly all: readonly (infer Inner)[] }
        ? AtomOf<Inner>
        : B extends { readonly any: readonly (infer Inner)[] }
          ? AtomOf<Inner>
          : never;
type NameIn<A> = A extends string ? Exclude<A, '*'> : never;
type TagIn<A> = A extends StateTag<infer T> ? T : never;
type NameOf<B> = NameIn<AtomOf<B>>;
type TagOf<B> = TagIn<AtomOf<B>>;

/**
 * One tool, declared in one place for `gate.bind()` and `stateSync()`. It never changes: each
 * method returns a new declaration. Their order does not matter.
 */
export class ToolDeclaration<
  S extends string = never,
  E extends string = never,
  T extends string = never,
  X = Json | undefined,
> {
  /** The tool's name on the wire. */
  readonly name: string;
  readonly bindings: readonly Binding<S, E, T, X>[];
  /** For `stateSync()`. `undefined`: the declaration says nothing about the tool's data. */
  readonly policy: SyncPolicy | undefined;

  /** Use {@link tool}. */
  constructor(
    name: string,
    bindings: readonly Binding<S, E, T, X>[],
    policy: SyncPolicy | undefined,
  ) {
    this.name = name;
    this.bindings = Object.freeze([...bindings]);
    this.policy = policy;
    Object.freeze(this);
  }

  /**
   * Makes the tool available in `states`, or where an expression of them is true (`{ tag }`, `{ all
   * }`, `{ any }`, `{ not }`). A successful call of it sends `event`. A second call of this adds to
   * the first. The gate that takes the declaration checks the names, and so does TypeScript.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_EVENT`, `ERR_INTERLOCK_CONFIG`
   */
  bindState<const B extends BoundState, E2 extends string = never>(
    states: B | readonly B[],
    event?: E2,
  ): ToolDeclaration<S | NameOf<B>, E | E2, T | TagOf<B>, X>;
  bindState<const B extends BoundState, E2 extends string = never>(
    states: B | readonly B[],
    options: BindingOptions<E2, X>,
  ): ToolDeclaration<S | NameOf<B>, E | E2, T | TagOf<B>, X>;
  bindState(states: unknown, event?: unknown): ToolDeclaration<string, string, string, X> {
    const bindings: readonly Binding<string, string, string, X>[] = this.bindings;
    const added = parseBinding(this.name, states, event) as Binding<string, string, string, X>;
    return new ToolDeclaration(this.name, [...bindings, added], this.policy);
  }

  /**
   * A successful call makes the data of each tool stale that matches one of `patterns`. A second
   * call of this adds to the first.
   *
   * @throws InterlockError `ERR_INTERLOCK_POLICY` where there is no pattern, or one is malformed
   */
  invalidates(...patterns: readonly string[]): ToolDeclaration<S, E, T, X> {
    if (patterns.length === 0)
      throw this.#policyError('invalidates() expects at least one glob, got none');
    for (const pattern of patterns) this.#checkGlob(pattern);
    const invalidates = Object.freeze([...(this.policy?.invalidates ?? []), ...patterns]);
    return this.#withPolicy({ invalidates });
  }

  /** Its data never changes: `[Cache-Control: immutable]`. Undoes `stale()`. */
  cached(): ToolDeclaration<S, E, T, X> {
    return this.#withPolicy({ cacheControl: 'immutable' });
  }

  /**
   * Its data must be fetched again before each use: `[Cache-Control: no-store]`. Undoes `cached()`.
   */
  stale(): ToolDeclaration<S, E, T, X> {
    return this.#withPolicy({ cacheControl: 'no-store' });
  }

  #withPolicy(change: Omit<SyncPolicy, 'match'>): ToolDeclaration<S, E, T, X> {
    this.#checkGlob(this.name);
    if (this.name.includes('*'))
      throw this.#policyError('a policy takes a name with a star for the names of many tools');
    const policy = Object.freeze({ ...this.policy, ...change, match: this.name });
    return new ToolDeclaration(this.name, this.bindings, policy);
  }

  #checkGlob(glob: unknown): void {
    const fault = typeof glob === 'string' ? globFault(glob) : 'expected a glob';
    if (fault !== undefined) throw this.#policyError(`${fault}, got ${showValue(glob)}`);
  }

  #policyError(fault: string): InterlockError {
    return new InterlockError('ERR_INTERLOCK_POLICY', `tool ${showValue(this.name)}: ${fault}`);
  }
}

/**
 * Begins the declaration of one tool: `tool('tasks.update').bindState('open',
 * 'UPDATE').invalidates('tasks.*')`.
 *
 * `X` is the context that the functions of its bindings are given. Only a gate with that context
 * takes the declaration. Say it for a statechart: `tool<XStateContext<typeof machine>>('pay')`.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` unless the name is a non-empty string
 */
export function tool<X = Json | undefined>(name: string): ToolDeclaration<never, never, never, X> {
  return new ToolDeclaration<never, never, never, X>(parseToolName(name), [], undefined);
}
