import {
  type CacheDirective,
  type PolicyDefaults,
  parseDefaults,
  parsePolicies,
  type ResolvedPolicy,
  type SyncPolicy,
} from './config.ts';
import { matchSegments, splitName } from './glob.ts';

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
