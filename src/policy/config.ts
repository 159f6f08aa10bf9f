import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { parseOptions, showValue } from '../options.ts';
import { globFault } from './glob.ts';

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
