import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { isPrincipalRun, PRINCIPAL_RUN } from '../ids.ts';
import { parseOptions, showValue } from '../options.ts';
import type { SessionRecord } from '../stores/store.ts';

/**
 * What names the run that a call belongs to. Made by {@link sessionKey}, {@link principalKey},
 * {@link handleKey} and {@link managedHandle}, and given to `sessionStore({ key })`, alone or as a
 * list in order of preference.
 */
export type RunKeyStrategy = SessionKey | PrincipalKey | HandleKey | ManagedHandle;

/** A principal, as a token of RFC 7519 names it. */
export interface IssuedPrincipal {
  readonly issuer: string;
  readonly subject: string;
}

/** Runs by session. Made by {@link sessionKey}. */
export class SessionKey {
  readonly kind = 'session';

  /** The run's key, for `runsOf()`: the session's id as it is. */
  runKey(sessionId: string): string {
    return sessionId;
  }
}

/** Runs by principal. Made by {@link principalKey}. */
export class PrincipalKey {
  readonly kind = 'principal';

  /**
   * The run's key, for `runsOf()`. Give what `sessionStore({ principal })` returns, or issuer and
   * subject where it is not used.
   */
  runKey(principal: string | IssuedPrincipal): string {
    return `${PRINCIPAL_RUN}${principalText(principal)}`;
  }
}

/** What {@link handleKey} is told of the upstream's handles. */
export interface HandleKeyOptions {
  /** The tools that hand new handles out. */
  createdBy: string | readonly string[];
  /**
   * The member of their `structuredContent` that holds the handle. Default: the argument's name.
   */
  field?: string | undefined;
}

/** Runs by a handle of the upstream's. Made by {@link handleKey}. */
export class HandleKey {
  readonly kind = 'handle';
  /** The argument that carries the handle. */
  readonly argument: string;
  readonly createdBy: readonly string[];
  readonly field: string;

  constructor(argument: string, createdBy: readonly string[], field: string) {
    this.argument = argument;
    this.createdBy = createdBy;
    this.field = field;
  }

  /**
   * The run's key, for `runsOf()`. The principal is part of it: nobody else's calls find the run.
   */
  runKey(handle: string | number, principal?: string | IssuedPrincipal): string {
    return handleRun(this.argument, String(handle), principal);
  }
}

/** What {@link managedHandle} adds to the upstream's tools. */
export interface ManagedHandleOptions {
  /**
   * The name of the tool that begins a run, such as `checkout.start`. The middleware serves it; the
   * upstream must have none of that name.
   */
  start: string;
  /**
   * The name of the argument that each gated tool gets. No gated tool may have one of that name.
   */
  argument: string;
  /** What the start tool is for, in words for the model. Default: that it begins a run. */
  description?: string | undefined;
}

/** Runs by a handle of the middleware's own. Made by {@link managedHandle}. */
export class ManagedHandle {
  readonly kind = 'managed';
  readonly start: string;
  readonly argument: string;
  readonly description: string;

  constructor({
    start,
    argument,
    description,
  }: { start: string; argument: string; description: string }) {
    this.start = start;
    this.argument = argument;
    this.description = description;
  }

  /**
   * The run's key, for `runsOf()`. The principal is part of it: nobody else's calls find the run.
   */
  runKey(handle: string, principal?: string | IssuedPrincipal): string {
    return handleRun(this.argument, handle, principal);
  }
}

/**
 * Runs are named by the `Mcp-Session-Id`. The default; there are no sessions since MCP 2026-07-28.
 */
export function sessionKey(): SessionKey {
  return new SessionKey();
}

/**
 * Runs are named by who calls: one run of a workflow for each principal, whatever the session. For
 * clients that open a new session for each call, and for MCP 2026-07-28. Issuer and subject count,
 * never a client id, which all users of an app share; callers without a principal have no run.
 */
export function principalKey(): PrincipalKey {
  return new PrincipalKey();
}

/**
 * Runs are named by a handle that the upstream hands out and takes as an argument, such as a
 * basket's id: the way that MCP 2026-07-28 recommends ("Stateful Tools"). A run begins when a
 * creating tool's result carries a new handle, and answers only to the principal that it was given
 * to.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function handleKey(argument: string, options: HandleKeyOptions): HandleKey {
  const what = 'handleKey()';
  const { createdBy, field } = parseOptions(what, handleSchema, options);
  const tools = typeof createdBy === 'string' ? [createdBy] : createdBy;
  return new HandleKey(parseName(what, argument), Object.freeze([...tools]), field ?? argument);
}

/**
 * Runs are named by handles of the middleware's own, for upstreams that know nothing of handles: it
 * adds a tool that begins a run, and to each gated tool an argument that names one. The upstream
 * sees neither. A handle is 192 random bits, and lives as long as its run is used.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function managedHandle(options: ManagedHandleOptions): ManagedHandle {
  const { start, argument, description } = parseOptions('managedHandle()', managedSchema, options);
  return new ManagedHandle({
    start,
    argument,
    description: description ?? `Begins a new run of the workflow.`,
  });
}

/**
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` unless it is a strategy, or a list of different
 * ones.
 */
export function parseKeys(value: unknown): readonly RunKeyStrategy[] {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  const keys = list.filter(isStrategy);
  const kinds = keys.filter(({ kind }) => kind !== 'handle').map(({ kind }) => kind);
  const handles = keys.flatMap((key) => ('argument' in key ? [key.argument] : []));
  const isOneOfEach = [kinds, handles].every((each) => new Set(each).size === each.length);
  if (keys.length > 0 && keys.length === list.length && isOneOfEach) return keys;
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `sessionStore(): key: expected sessionKey(), principalKey(), handleKey() or managedHandle(), or a list of different ones, got ${showValue(value)}`,
  );
}

const name = z.string().check(z.minLength(1), z.maxLength(128));
const handleSchema = z.strictObject({
  createdBy: z.union([name, z.array(name).check(z.minLength(1))]),
  field: z.optional(name),
});
const managedSchema = z.strictObject({
  start: name,
  argument: name,
  description: z.optional(name.check(z.maxLength(2_000))),
});

function parseName(what: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `${what}: expected the name of an argument, got ${showValue(value)}`,
  );
}

function isStrategy(value: unknown): value is RunKeyStrategy {
  return (
    value instanceof SessionKey ||
    value instanceof PrincipalKey ||
    value instanceof HandleKey ||
    value instanceof ManagedHandle
  );
}

/** Begins the key of a handle's run: with a space in it, as a principal's. */
const HANDLE_RUN = 'handle ';

function handleRun(argument: string, handle: string, principal?: string | IssuedPrincipal): string {
  const owner = principal === undefined ? null : principalText(principal);
  return `${HANDLE_RUN}${JSON.stringify([argument, owner, handle])}`;
}

/**
 * Whose run it is, as its key says; `undefined` of a session's run, and of what is no key. Nobody
 * in particular may own a handle.
 */
export function ownerOf(run: string): SessionRecord | undefined {
  if (isPrincipalRun(run)) return { principal: run.slice(PRINCIPAL_RUN.length) };
  if (!run.startsWith(HANDLE_RUN)) return undefined;
  try {
    const parts: unknown = JSON.parse(run.slice(HANDLE_RUN.length));
    const owner: unknown = Array.isArray(parts) && parts.length === 3 ? parts[1] : undefined;
    if (owner === null) return {};
    return typeof owner === 'string' ? { principal: owner } : undefined;
  } catch {
    return undefined;
  }
}

/** A principal, as runs are bound to it. */
export function principalText(principal: string | IssuedPrincipal): string {
  return typeof principal === 'string'
    ? principal
    : JSON.stringify([principal.issuer, principal.subject]);
}

const LONGEST_HANDLE = 1_024;

export function isHandle(value: unknown): value is string | number {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_HANDLE;
}

/** The tools that hand handles out. */
export function startersOf(key: HandleKey | ManagedHandle): readonly string[] {
  return key.kind === 'managed' ? [key.start] : key.createdBy;
}

/** What makes a new run, in words for the model. */
export function startingAdvice(key: HandleKey | ManagedHandle): string {
  return `Call ${startersOf(key).join(' or ')} to begin a new one, and pass the "${key.argument}" that it returns.`;
}

/** What a call is told whose handle names no run, in words for the model. */
export function goneAdvice(key: HandleKey | ManagedHandle): string {
  return `Its "${key.argument}" names no run that is known: it has expired, or never was. ${startingAdvice(key)}`;
}
