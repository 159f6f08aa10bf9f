/**
 * Clients that open a session for each call, where each call begins a new run. Hides how such
 * clients are noticed, and which line serves them.
 */
import { asciiText } from '../names.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { LiveSession } from './live-session.ts';
import { isRunId, KNOWN_NAMES, type RunKeyStrategy } from './run-key.ts';

/** So many of a caller's last sessions with a single call tell of such a client. */
const TELLING = 3;
const LAST = 5;
/** How many callers to remember at most. The least recently seen is forgotten. */
const MOST_CALLERS = 1_000;

/** Who opens a session, as far as counting needs it. */
export interface OpeningCaller {
  /** Its principal, else its network address and the client's name. */
  readonly key: string;
  /** What the client calls itself. */
  readonly name: string;
  readonly hasPrincipal: boolean;
}

interface LoneCallsConfig {
  readonly keys: readonly RunKeyStrategy[];
  readonly onWarning: (warning: string) => void;
}

/** Counts the sessions of each caller that had a single call when the next one began. */
export class LoneCalls {
  readonly #config: LoneCallsConfig;
  /** The last sessions of each caller, the least recently seen caller first. */
  readonly #sessions = new Map<string, readonly LiveSession[]>();
  /** Each cure is told once: clients choose their names, and could fill a log. */
  readonly #told = new Set<string>();

  private constructor(config: LoneCallsConfig) {
    this.#config = config;
  }

  /** `undefined` where calls have runs that need no session, or may have. */
  static of(config: LoneCallsConfig): LoneCalls | undefined {
    const { keys } = config;
    const hasOwn = keys.some(({ kind }) => kind === 'session');
    const isAlone = keys.every(({ kind }) => kind === 'session' || kind === 'request');
    return hasOwn && isAlone ? new LoneCalls(config) : undefined;
  }

  /**
   * @param client as the app names the caller's client
   * @param name what the client calls itself
   */
  callerOf(
    { req }: Exchange,
    principal: string | undefined,
    client: string | undefined,
    name: string,
  ): OpeningCaller {
    const address = client ?? addressOf(req);
    const key = principal === undefined ? ['client', address, name] : ['principal', principal];
    return { key: JSON.stringify(key), name, hasPrincipal: principal !== undefined };
  }

  /** A session was opened: what the earlier ones of the caller came to is known better now. */
  opened(session: LiveSession, { key, name, hasPrincipal }: OpeningCaller): void {
    const last = this.#sessions.get(key) ?? [];
    this.#sessions.delete(key);
    this.#sessions.set(key, [...last, session].slice(-LAST));
    const [oldest] = this.#sessions.keys();
    if (this.#sessions.size > MOST_CALLERS && oldest !== undefined) this.#sessions.delete(oldest);
    // One that listens, or that has a call under way, may go on.
    const lone = last.filter(({ calls, isServed, idle }) => calls === 1 && !isServed && idle);
    if (lone.length < TELLING) return;
    const cure = this.#cure(
      hasPrincipal,
      lone.some(({ hasId }) => hasId),
    );
    if (this.#told.has(cure)) return;
    this.#told.add(cure);
    this.#config.onWarning(
      `the client ${asciiText(name)} opened ${TELLING} sessions with a single call in each, so ` +
        `each of its calls begins a new run. ${cure}; ` +
        'see mcp-interlock/docs/build/eras.md#clients-that-open-a-session-for-each-call',
    );
  }

  #cure(hasPrincipal: boolean, hasId: boolean): string {
    const handles = "sessionStore({ key: managedHandle({ start: 'begin', argument: 'run' }) })";
    const named = 'It names its conversations';
    const byUser = 'give sessionStore({ key: [conversationKey(), principalKey()] })';
    if (hasPrincipal)
      return hasId
        ? `${named}: give sessionStore({ key: [conversationKey(), sessionKey()] })`
        : `For one run of each user ${byUser}; for any number ${handles}`;
    const authenticate = 'Mount authentication in front that gives a principal';
    return hasId
      ? `${named}. ${authenticate}; or, where the id is a secret that suffices, give ` +
          'sessionStore({ key: [conversationKey({ anonymous: true }), sessionKey()] })'
      : `${authenticate}, and ${byUser}; or give ${handles}`;
  }
}

/** Whether a call has an id by which clients are known to name conversations. */
export function hasKnownId(call: Message): boolean {
  const meta = call.at('params', '_meta');
  return isObject(meta) && KNOWN_NAMES.some((name) => isRunId(meta[name]));
}

/** Where the request came from; empty where the host does not say. */
function addressOf(req: object): string {
  const { ip, socket } = req as { readonly ip?: unknown; readonly socket?: unknown };
  const address = ip ?? (isObject(socket) ? socket.remoteAddress : undefined);
  return typeof address === 'string' ? address : '';
}
