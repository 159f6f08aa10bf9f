import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { parseOptions, showValue } from '../options.ts';
import { globFault, matchSegments, splitName } from './glob.ts';

/**
 * What an earlier answer of a tool is worth: `no-store` is to be fetched anew before use,
 * `immutable` never changes.
 */
export type CacheDirective = 'no-store' | 'immutable';

/**
 * What is true of every tool whose name matches. Of several policies that match, the first one
 * counts. `D` is what TypeScript knows of the directives: `string` where it has widened them.
 */
export interface SyncPolicy<D extends string = CacheDirective> {
  /**
   * A glob over the tool's name on the wire, as `matchGlob()` reads it: `sprints.get`, `sprints.*`,
   * `sprints.**`.
   */
  readonly match: string;
  /** Shown in the tool's description. Default: that of the configuration's `defaults`. */
  readonly cacheControl?: D | undefined;
  /**
   * Globs over the tools whose answers are stale once a call of this one has succeeded. Default:
   * none.
   */
  readonly invalidates?: readonly string[] | undefined;
}

/** What holds for a tool where its policy, if it has one, says nothing. */
export interface PolicyDefaults<D extends string = CacheDirective> {
  /** Default: no directive, and so no decoration. */
  readonly cacheControl?: D | undefined;
}

/** How `stateSync()` tells the model which data went stale. */
export interface StateSyncConfig<D extends string = CacheDirective> {
  readonly policies: readonly SyncPolicy<D>[];
  readonly defaults?: PolicyDefaults<D> | undefined;
  /** Called after each invalidation, for logs and metrics. What it throws is swallowed. */
  readonly onInvalidation?: ((event: InvalidationEvent) => void) | undefined;
  /**
   * Given one notification for each invalidated pattern. Never awaited; a rejection is swallowed.
   */
  readonly notificationSink?:
    | ((notification: ResourceNotification) => void | Promise<void>)
    | undefined;
}

/** One successful call that made data stale. */
export interface InvalidationEvent {
  /** The tool's name on the wire, as it came: escape it before you print it. */
  readonly causedBy: string;
  /** The policy's `invalidates`, in its order. */
  readonly patterns: readonly string[];
  /** ISO 8601, in UTC, with milliseconds. */
  readonly timestamp: string;
}

/** The MCP notification that a resource has changed, without its `jsonrpc` envelope. */
export interface ResourceNotification {
  readonly method: 'notifications/resources/updated';
  readonly params: { readonly uri: string };
}

/**
 * What a tool's name comes to. Frozen; a key that has no value is absent, and `invalidates` is
 * never empty.
 */
export interface ResolvedPolicy {
  readonly cacheControl?: CacheDirective;
  readonly invalidates?: readonly string[];
}

/** A policy that can never apply. Indices count from 0 in the list that was given. */
export interface OverlapWarning {
  /** The earlier policy that takes the names; the first one where it takes several together. */
  readonly shadowingIndex: number;
  /** The policy that never applies. */
  readonly shadowedIndex: number;
  /** Says so in words, with both patterns and what to do. */
  readonly message: string;
}

const directive = z.enum(['no-store', 'immutable']);

const glob = z.string().check(({ value, issues }) => {
  const fault = globFault(value);
  if (fault !== undefined) issues.push({ code: 'custom', message: fault, input: value });
});

const policySchema = z.strictObject({
  match: glob,
  cacheControl: z.optional(directive),
  invalidates: z.optional(z.array(glob)),
});

const defaultsSchema = z.strictObject({ cacheControl: z.optional(directive) });

/** Checked copies of the policies, which later changes to the originals do not reach. */
export function parsePolicies(policies: unknown): SyncPolicy[] {
  if (!Array.isArray(policies)) {
    throw new InterlockError(
      'ERR_INTERLOCK_CONFIG',
      `policies: expected array, got ${showValue(policies)}`,
    );
  }
  // `Array.from` sees the holes of a sparse array, which `map` would let through.
  return Array.from(policies, (policy: unknown, index) =>
    parseOptions(`policies[${index}]`, policySchema, policy, 'ERR_INTERLOCK_POLICY'),
  );
}

/** A checked copy of the defaults; leaving them out is giving none. */
export function parseDefaults(defaults: unknown): PolicyDefaults {
  return parseOptions('defaults', defaultsSchema, defaults);
}

/** Twice the 128 characters that MCP advises for a tool's name. */
const LONGEST_KEPT_NAME = 256;
const KEPT_NAMES = 2048;

/** A policy made ready: its pattern split, and the one frozen object that all its tools share. */
interface Rule {
  readonly match: string;
  readonly pattern: readonly string[];
  readonly resolved: ResolvedPolicy;
}

/**
 * Answers which policy holds for a tool.
 *
 * The first policy that matches counts, and no other one adds to it; a directive that it leaves out
 * is that of `defaults`. Where none matches, `defaults` alone hold. The first question for a name
 * goes through the policies in turn; the answer is kept in a memory of 2,048 names, which is
 * emptied when it is full.
 *
 * Throws `ERR_INTERLOCK_POLICY` for a malformed policy and `ERR_INTERLOCK_CONFIG` for malformed
 * defaults. Later changes to the objects that were given have no effect.
 */
export class PolicyEngine {
  readonly #find: (name: string) => Rule | undefined;
  readonly #unmatched: ResolvedPolicy | undefined;

  constructor(policies: readonly SyncPolicy<string>[], defaults?: PolicyDefaults<string>) {
    const fallback = parseDefaults(defaults).cacheControl;
    const rules = parsePolicies(policies).map((policy) => toRule(policy, fallback));
    this.#unmatched = fallback && resolved(fallback, []);
    const search = (name: string) => {
      const segments = splitName(name);
      return rules.find((rule) => matchSegments(rule.pattern, segments));
    };
    this.#find = memoise(search, { entries: KEPT_NAMES, nameLength: LONGEST_KEPT_NAME });
  }

  /**
   * What holds for a tool, by its name on the wire; `undefined` where no policy matches and there
   * are no defaults. One policy always answers with the same frozen object, which is empty where
   * the policy says nothing.
   */
  resolve(name: string): ResolvedPolicy | undefined {
    return this.#find(name)?.resolved ?? this.#unmatched;
  }

  /**
   * The `match` of the policy that counts for a tool, as it was given; `undefined` where none
   * matches.
   */
  matchOf(name: string): string | undefined {
    return this.#find(name)?.match;
  }
}

function toRule(policy: SyncPolicy, fallback: CacheDirective | undefined): Rule {
  return {
    match: policy.match,
    pattern: policy.match.split('.'),
    resolved: resolved(policy.cacheControl ?? fallback, policy.invalidates ?? []),
  };
}

function resolved(
  cacheControl: CacheDirective | undefined,
  invalidates: readonly string[],
): ResolvedPolicy {
  return Object.freeze({
    ...(cacheControl !== undefined && { cacheControl }),
    ...(invalidates.length > 0 && { invalidates: Object.freeze([...invalidates]) }),
  });
}

interface MemoLimits {
  /**
   * How many names are kept. One more empties the memory, which is cheaper than tracking which was
   * used last.
   */
  readonly entries: number;
  /**
   * Longer names are computed each time, so that what a stranger sends is not kept. In UTF-16
   * units.
   */
  readonly nameLength: number;
}

/** Remembers what a pure function of a name came to. */
export function memoise<Value>(
  compute: (name: string) => Value,
  limits: MemoLimits,
): (name: string) => Value {
  const known = new Map<string, { readonly value: Value }>();
  return (name) => {
    const hit = known.get(name);
    if (hit !== undefined) return hit.value;
    const value = compute(name);
    if (name.length > limits.nameLength) return value;
    if (known.size >= limits.entries) known.clear();
    known.set(name, { value });
    return value;
  };
}
