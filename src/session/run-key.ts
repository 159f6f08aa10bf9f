/**
 * What names the run of a call: its session, its principal, its conversation, or a handle in its
 * arguments. Hides how a run's key is written, and what a model reads about handles.
 */
import * as z from 'zod/mini';
import { digestOf } from '../basics/digest.ts';
import { configError } from '../basics/errors.ts';
import {
  type IssuedPrincipal,
  isNamedRun,
  isPrincipalRun,
  NAMED_RUN,
  PRINCIPAL_RUN,
  principalText,
} from '../basics/names.ts';
import {
  flagOption,
  functionOption,
  lazily,
  lazyOptions,
  parseOptions,
  showValue,
} from '../basics/options.ts';
import type { SessionRecord } from '../stores/store.ts';
import type { CallerRequest } from './callers.ts';

/**
 * What names the run of a call: made by {@link sessionKey}, {@link principalKey},
 * {@link conversationKey}, {@link runKey}, {@link handleKey} or {@link managedHandle}. Give
 * `sessionStore({ key })` one, or a list in order of preference.
 */
export type RunKeyStrategy = SessionKey | PrincipalKey | RequestKey | HandleKey | ManagedHandle;

/** Why a call has no run. */
export interface NoRun {
  /** What to do about it, for the model. */
  readonly advice: string;
  /** For the developer, where every such call is refused and not this one alone. */
  readonly warning: string | undefined;
}

/** Runs by session. Made by {@link sessionKey}. */
export class SessionKey {
  readonly kind = 'session';

  /** The run's key, for `runsOf()`: the session's id itself. */
  runKey(sessionId: string): string {
    return sessionId;
  }
}

/** Runs by principal. Made by {@link principalKey}. */
export class PrincipalKey {
  readonly kind = 'principal';

  /**
   * The run's key, for `runsOf()`. Give what your `sessionStore({ principal })` returns; without
   * one, give issuer and subject.
   */
  runKey(principal: string | IssuedPrincipal): string {
    return `${PRINCIPAL_RUN}${principalText(principal)}`;
  }
}

/** What `runKey({ of })` is given: one JSON-RPC request, and the HTTP request that it came in. */
export interface RunKeyRequest {
  /** The HTTP request. */
  readonly http: CallerRequest;
  readonly principal: string | undefined;
  /** The JSON-RPC method, such as `tools/call` or `tools/list`. */
  readonly method: string;
  /** The tool that is called. `undefined` where the request calls none. */
  readonly tool: string | undefined;
  /** The request's `params._meta`; empty where it has none. Read it only. */
  readonly meta: Readonly<Record<string, unknown>>;
}

/** Gives the id that names a request's run. `undefined`: the request has none. */
export type RunIdOf = (request: RunKeyRequest) => string | undefined;

/** Options of {@link conversationKey}. */
export interface ConversationKeyOptions {
  /**
   * More keys of `_meta` that name a conversation. They come before `openai/session` and
   * `sessionID`. Default: none.
   */
  names?: readonly string[] | undefined;
  /** As {@link RunKeyOptions.anonymous}. Default `false`. */
  anonymous?: boolean | undefined;
}

/** Options of {@link runKey}. */
export interface RunKeyOptions {
  /**
   * Distinguishes the runs of this strategy from those of others, so it must not change: letters,
   * digits and `_ . -`, at most 64. `conversation` is that of {@link conversationKey}.
   */
  name: string;
  /**
   * Gives the id of a request's run, at once and not as a promise. It is called for each request of
   * a caller that may have such runs, lists and reads among them. `onError` gets what it throws;
   * what is gated is refused then.
   */
  of: RunIdOf;
  /**
   * Whether callers without a principal have such runs too. Then the id is a bearer secret: each
   * caller that knows it has the run. Default `false`.
   */
  anonymous?: boolean | undefined;
}

/**
 * Runs by an id in the request, within the caller's principal. Made by {@link conversationKey} and
 * {@link runKey}.
 */
export class RequestKey {
  readonly kind = 'request';
  readonly name: string;
  readonly anonymous: boolean;
  /** The keys of `_meta` that have the id, in order. Empty where the app's `of` gives it. */
  readonly names: readonly string[];
  readonly of: RunIdOf | undefined;

  constructor(
    name: string,
    anonymous: boolean,
    where: { readonly names: readonly string[] } | { readonly of: RunIdOf },
  ) {
    this.name = name;
    this.anonymous = anonymous;
    this.names = 'names' in where ? where.names : [];
    this.of = 'of' in where ? where.of : undefined;
  }

  /** The run's key, for `runsOf()`. It has the principal and a digest of the id in it. */
  runKey(id: string, principal?: string | IssuedPrincipal): string {
    const owner = principal === undefined ? null : principalText(principal);
    return `${NAMED_RUN}${JSON.stringify([this.name, owner, digestOf(id)])}`;
  }
}

/** Options of {@link handleKey}: where the upstream's handles come from. */
export interface HandleKeyOptions {
  /** The tools whose results carry new handles. */
  createdBy: string | readonly string[];
  /**
   * The member of their `structuredContent` that holds the handle. Default: the argument's name.
   */
  field?: string | undefined;
}

/** Runs by a handle that the upstream makes. Made by {@link handleKey}. */
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

  /** The run's key, for `runsOf()`. It has the principal in it: no other caller finds the run. */
  runKey(handle: string | number, principal?: string | IssuedPrincipal): string {
    return handleRun(this.argument, String(handle), principal);
  }
}

/** Options of {@link managedHandle}: what it adds to the upstream's tools. */
export interface ManagedHandleOptions {
  /**
   * The name of the tool that begins a run, such as `checkout.start`. The middleware serves it, so
   * the upstream must have no tool of that name.
   */
  start: string;
  /** The argument that each gated tool gets. No gated tool may have one of that name. */
  argument: string;
  /** Says to the model what the start tool is for. Default: that it begins a run. */
  description?: string | undefined;
}

/** Runs by a handle that the middleware makes. Made by {@link managedHandle}. */
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

  /** The run's key, for `runsOf()`. It has the principal in it: no other caller finds the run. */
  runKey(handle: string, principal?: string | IssuedPrincipal): string {
    return handleRun(this.argument, handle, principal);
  }
}

/** The `Mcp-Session-Id` names the run. MCP 2026-07-28 has no sessions. */
export function sessionKey(): SessionKey {
  return new SessionKey();
}

/**
 * The principal names the run: each has one run of a workflow, across all sessions. For clients
 * that open a session for each call, and for MCP 2026-07-28. Callers without a principal have no
 * run: a client id is none, since all users of an app share it.
 */
export function principalKey(): PrincipalKey {
  return new PrincipalKey();
}

const CONVERSATION = 'conversation';

/**
 * The keys of `_meta` by which clients name their conversations: ChatGPT (OpenAI Apps SDK,
 * "Reference", `_meta` fields that the client provides), and opencode (its pull request 46008).
 */
export const KNOWN_NAMES = ['openai/session', 'sessionID'] as const;

/**
 * The client's conversation names the run, across its sessions: `_meta["openai/session"]`,
 * `_meta.sessionID`, or another key of `_meta`. The id is a string of 16 to 256 bytes without
 * control characters. Any other value names nothing. With `sessionKey()` behind it, this is the
 * default.
 *
 * The id gives no authority: it names a run among those of its principal. Callers without one have
 * such runs only with `anonymous: true`; then the id is a bearer secret.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function conversationKey(options?: ConversationKeyOptions): RequestKey {
  const { names, anonymous } = parseOptions('conversationKey()', conversationSchema, options);
  const all = Object.freeze([...new Set([...names, ...KNOWN_NAMES])]);
  return new RequestKey(CONVERSATION, anonymous, { names: all });
}

/**
 * An id that the app finds in the request names the run, such as a header of the app's own clients.
 * The same rules hold for it as for {@link conversationKey}: 16 to 256 bytes, kept as a digest,
 * within the principal.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function runKey(options: RunKeyOptions): RequestKey {
  const { name, of, anonymous } = parseOptions('runKey()', runKeySchema, options);
  return new RequestKey(name, anonymous, { of });
}

/** What names runs where the app does not say. */
export function defaultKeys(): readonly RunKeyStrategy[] {
  return [conversationKey(), sessionKey()];
}

/**
 * A handle of the upstream's names the run: an id that one tool returns and others take as an
 * argument, such as a basket's. MCP 2026-07-28 recommends this way ("Stateful Tools"). A run begins
 * when a creating tool's result carries a new handle. Only the principal who got it can use it.
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
 * A handle of the middleware's own names the run, for upstreams without handles. The middleware
 * adds a tool that begins a run, and to each gated tool an argument that names one; the upstream
 * sees neither. A handle is 192 random bits, and expires with its run.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function managedHandle(options: ManagedHandleOptions): ManagedHandle {
  const { start, argument, description } = parseOptions('managedHandle()', managedSchema, options);
  return new ManagedHandle({
    start,
    argument,
    description: description ?? 'Begins a new run of the workflow.',
  });
}

/**
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` unless it is a strategy, or a list of different
 * ones.
 */
export function parseKeys(value: unknown): readonly RunKeyStrategy[] {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  const keys = list.filter(isStrategy);
  const kinds = keys
    .filter(({ kind }) => kind !== 'handle')
    .map((key) => (key.kind === 'request' ? `request ${key.name}` : key.kind));
  const handles = keys.flatMap((key) => ('argument' in key ? [key.argument] : []));
  const isOneOfEach = [kinds, handles].every((each) => new Set(each).size === each.length);
  if (keys.length > 0 && keys.length === list.length && isOneOfEach) return keys;
  throw configError(
    'sessionStore(): key: expected sessionKey(), principalKey(), conversationKey(), runKey(), ' +
      `handleKey() or managedHandle(), or a list of different ones, got ${showValue(value)}`,
  );
}

const name = lazily(() => z.string().check(z.minLength(1), z.maxLength(128)));
const conversationSchema = lazyOptions(() => ({
  names: z._default(z.array(name()).check(z.maxLength(16)), []),
  anonymous: flagOption(),
}));
const runKeySchema = lazyOptions(() => ({
  name: z.string().check(
    z.regex(/^[\w.-]{1,64}$/, 'expected letters, digits and _ . -, at most 64'),
    z.refine((given) => given !== CONVERSATION, `"${CONVERSATION}" is that of conversationKey()`),
  ),
  of: functionOption<RunIdOf>(),
  anonymous: flagOption(),
}));
const handleSchema = lazyOptions(() => ({
  createdBy: z.union([name(), z.array(name()).check(z.minLength(1))]),
  field: z.optional(name()),
}));
const managedSchema = lazyOptions(() => ({
  start: name(),
  argument: name(),
  description: z.optional(name().check(z.maxLength(2_000))),
}));

function parseName(what: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw configError(`${what}: expected the name of an argument, got ${showValue(value)}`);
}

function isStrategy(value: unknown): value is RunKeyStrategy {
  return (
    value instanceof SessionKey ||
    value instanceof PrincipalKey ||
    value instanceof RequestKey ||
    value instanceof HandleKey ||
    value instanceof ManagedHandle
  );
}

/** Begins the key of a handle's run. No session's id has a space in it. */
const HANDLE_RUN = 'handle ';

function handleRun(argument: string, handle: string, principal?: string | IssuedPrincipal): string {
  const owner = principal === undefined ? null : principalText(principal);
  return `${HANDLE_RUN}${JSON.stringify([argument, owner, handle])}`;
}

/**
 * Whose run a key names, with no principal where the handle has none. `undefined` for a session's
 * run, and for what is no key.
 */
export function ownerOf(run: string): SessionRecord | undefined {
  if (isPrincipalRun(run)) return { principal: run.slice(PRINCIPAL_RUN.length) };
  const prefix = isNamedRun(run) ? NAMED_RUN : HANDLE_RUN;
  if (!run.startsWith(prefix)) return undefined;
  try {
    const parts: unknown = JSON.parse(run.slice(prefix.length));
    const owner: unknown = Array.isArray(parts) && parts.length === 3 ? parts[1] : undefined;
    if (owner === null) return {};
    return typeof owner === 'string' ? { principal: owner } : undefined;
  } catch {
    return undefined;
  }
}

const LONGEST_HANDLE = 1_024;

/** The bytes of an id that names a run: fewer could be guessed. */
const ID_BYTES = { least: 16, most: 256 } as const;

/** Whether the value can name a run in a {@link RequestKey}. */
export function isRunId(value: unknown): value is string {
  // A longer string has more bytes too, and is not measured.
  if (typeof value !== 'string' || value.length > ID_BYTES.most) return false;
  const bytes = Buffer.byteLength(value);
  return (
    bytes >= ID_BYTES.least &&
    bytes <= ID_BYTES.most &&
    !/\p{Cc}/u.test(value) &&
    value.isWellFormed()
  );
}

export function isHandle(value: unknown): value is string | number {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_HANDLE;
}

/** The tools that make handles. */
export function startersOf(key: HandleKey | ManagedHandle): readonly string[] {
  return key.kind === 'managed' ? [key.start] : key.createdBy;
}

/** Says to the model what makes a new run. */
export function startingAdvice(key: HandleKey | ManagedHandle): string {
  const starters = startersOf(key).join(' or ');
  return `Call ${starters} to begin a new one, and pass the "${key.argument}" that it returns.`;
}

/** Says to the model that its handle names no run. */
export function goneAdvice(key: HandleKey | ManagedHandle): string {
  return (
    `Its "${key.argument}" names no run that is known: it has expired, or never was. ` +
    startingAdvice(key)
  );
}
