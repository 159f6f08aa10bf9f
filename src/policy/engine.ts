/**
 * Which policy holds for a tool. Hides how policies are checked and made ready, and the memory of
 * names that were asked for.
 */
import * as z from 'zod/mini';
import { memoise } from '../basics/collections.ts';
import { configError } from '../basics/errors.ts';
import { globFault, matchSegments, splitName } from '../basics/glob.ts';
import { lazily, lazyOptions, parseOptions, showValue } from '../basics/options.ts';

/**
 * Whether the model may use an earlier answer of a tool. `no-store`: it must call the tool again
 * before use. `immutable`: the answer never changes.
 */
export type CacheDirective = 'no-store' | 'immutable';

/**
 * What holds for each tool whose name matches. Of several policies that match, the first one
 * counts. `D` is `string` where TypeScript has widened the directives of a configuration.
 */
export interface SyncPolicy<D extends string = CacheDirective> {
  /** A glob for tool names, as `matchGlob()` reads it: `sprints.get`, `sprints.*`, `sprints.**`. */
  readonly match: string;
  /** Shown in the tool's description. Default: that of `defaults`. */
  readonly cacheControl?: D | undefined;
  /** Globs for the tools whose answers a successful call of this one makes stale. Default: none. */
  readonly invalidates?: readonly string[] | undefined;
}

/** What holds for a tool that has no policy, or whose policy leaves it out. */
export interface PolicyDefaults<D extends string = CacheDirective> {
  /** Default: no directive, and so no decoration. */
  readonly cacheControl?: D | undefined;
}

/** The policies, and who is notified that data went stale. */
export interface StateSyncConfig<D extends string = CacheDirective> {
  readonly policies: readonly SyncPolicy<D>[];
  readonly defaults?: PolicyDefaults<D> | undefined;
  /** Called after each invalidation, for logs and metrics. What it throws is ignored. */
  readonly onInvalidation?: ((event: InvalidationEvent) => void) | undefined;
  /** Given one notification for each invalidated pattern. Never awaited; a rejection is ignored. */
  readonly notificationSink?:
    | ((notification: ResourceNotification) => void | Promise<void>)
    | undefined;
}

/** A successful call that made data stale. */
export interface InvalidationEvent {
  /** The tool's name, as the client sent it: escape it before you print it. */
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
 * What holds for one tool. Frozen. A key without a value is absent, and `invalidates` is never
 * empty.
 */
export interface ResolvedPolicy {
  readonly cacheControl?: CacheDirective;
  readonly invalidates?: readonly string[];
}

/** A policy that can never apply. */
export interface OverlapWarning {
  /** The earlier policy that takes its names, or the first of several that do so together. */
  readonly shadowingIndex: number;
  /** The policy that never applies, counted from 0. */
  readonly shadowedIndex: number;
  /** Names the patterns, and says what to do. */
  readonly message: string;
}

const directive = lazily(() => z.enum(['no-store', 'immutable']));

const glob = lazily(() =>
  z.string().check(({ value, issues }) => {
    const fault = globFault(value);
    if (fault !== undefined) issues.push({ code: 'custom', message: fault, input: value });
  }),
);

const policySchema = lazyOptions(() => ({
  match: glob(),
  cacheControl: z.optional(directive()),
  invalidates: z.optional(z.array(glob())),
}));

const defaultsSchema = lazyOptions(() => ({ cacheControl: z.optional(directive()) }));

/** Checked copies of the policies. Later changes to the originals have no effect. */
export function parsePolicies(policies: unknown): SyncPolicy[] {
  if (!Array.isArray(policies)) {
    throw configError(`policies: expected array, got ${showValue(policies)}`);
  }
  // `Array.from` sees the holes of a sparse array, which `map` would let through.
  return Array.from(policies, (policy: unknown, index) =>
    parseOptions(`policies[${index}]`, policySchema, policy, 'ERR_INTERLOCK_POLICY'),
  );
}

/** Twice the 128 characters that MCP advises for a tool's name. */
const LONGEST_KEPT_NAME = 256;
const KEPT_NAMES = 2048;

/** A policy with its pattern split, and the one frozen object that all its tools share. */
interface Rule {
  readonly match: string;
  readonly pattern: readonly string[];
  readonly resolved: ResolvedPolicy;
}

/**
 * Answers which policy holds for a tool.
 *
 * Only the first policy that matches counts. A directive that it leaves out is that of `defaults`,
 * which hold alone where no policy matches. The first question for a name tries each policy in
 * turn; the answers for 2,048 names are remembered.
 *
 * Throws `ERR_INTERLOCK_POLICY` for a malformed policy and `ERR_INTERLOCK_CONFIG` for malformed
 * defaults. Later changes to the policies that it was given have no effect.
 */
export class PolicyEngine {
  readonly #find: (name: string) => Rule | undefined;
  readonly #unmatched: ResolvedPolicy | undefined;

  constructor(policies: readonly SyncPolicy<string>[], defaults?: PolicyDefaults<string>) {
    const { cacheControl: fallback } = parseOptions('defaults', defaultsSchema, defaults);
    const rules = parsePolicies(policies).map(
      ({ match, cacheControl, invalidates = [] }): Rule => ({
        match,
        pattern: match.split('.'),
        resolved: resolved(cacheControl ?? fallback, invalidates),
      }),
    );
    this.#unmatched = fallback && resolved(fallback, []);
    const search = (name: string) => {
      const segments = splitName(name);
      return rules.find((rule) => matchSegments(rule.pattern, segments));
    };
    this.#find = memoise(search, { most: KEPT_NAMES, nameLength: LONGEST_KEPT_NAME });
  }

  /**
   * What holds for a tool, by its name on the wire. `undefined` where no policy matches and there
   * are no defaults. One policy always gives the same frozen object, which may be empty.
   */
  resolve(name: string): ResolvedPolicy | undefined {
    return this.#find(name)?.resolved ?? this.#unmatched;
  }

  /** The `match` of the policy that counts for a tool; `undefined` where none matches. */
  matchOf(name: string): string | undefined {
    return this.#find(name)?.match;
  }
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
