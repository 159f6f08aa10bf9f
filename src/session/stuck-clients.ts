/**
 * Clients that sessions do not serve: those that open one for each call, and those that keep the id
 * of one that is over. Hides how each is noticed, and which line serves it.
 */
import { type Clock, putNewest, Reported } from '../basics/clock.ts';
import { asciiText, ownText } from '../basics/names.ts';
import type { NotificationBus } from '../notify/bus.ts';
import type { Exchange } from '../wire/exchange.ts';
import { requestHeader } from '../wire/headers.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { LiveSession } from './live-session.ts';
import { isRunId, KNOWN_NAMES, type RunKeyStrategy } from './run-key.ts';

/** So many of a caller's last sessions with a single call reveal such a client. */
const REVEALING = 3;
const LAST = 5;
/** So many calls with the id of a session that is over reveal a client that keeps it. */
const REVEALING_KEPT = 3;
/** Calls that come closer to each other, in milliseconds, were sent before the first 404 came. */
const APART_MS = 250;
/** How many sessions that are over to remember at most. The one that ended first is forgotten. */
const MOST_OVER = 1_000;
/** Longer ids are not remembered: a client that makes them up could fill the memory. */
const MOST_ID = 256;
/** So much of a user agent's name is remembered. */
const MOST_NAME = 100;
/** So many names are reported. Clients choose them, and could fill a log. */
const MOST_REPORTED = 100;
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

interface StuckClientsConfig {
  readonly keys: readonly RunKeyStrategy[];
  readonly bus: NotificationBus | undefined;
  readonly store: { readonly isMemory: boolean };
  readonly clock: Clock;
  readonly onWarning: (warning: string) => void;
}

/** Counts the sessions of each caller that had a single call when the next one began. */
export class LoneSessions {
  readonly #config: StuckClientsConfig;
  /** The last sessions of each caller, the least recently seen caller first. */
  readonly #sessions = new Map<string, readonly LiveSession[]>();
  /** Each cure is reported once: clients choose their names, and could fill a log. */
  readonly #reported = new Reported();

  private constructor(config: StuckClientsConfig) {
    this.#config = config;
  }

  /**
   * `undefined` where calls have runs that need no session, or may have. Also where another
   * instance may serve a session's calls without a word: stores do not keep each call.
   */
  static of(config: StuckClientsConfig): LoneSessions | undefined {
    const { keys, bus, store } = config;
    if (bus === undefined && !store.isMemory) return undefined;
    const hasOwn = keys.some(({ kind }) => kind === 'session');
    const isAlone = keys.every(({ kind }) => kind === 'session' || kind === 'request');
    return hasOwn && isAlone ? new LoneSessions(config) : undefined;
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
    putNewest(this.#sessions, key, [...last, session].slice(-LAST), MOST_CALLERS);
    // One that listens, here or on another instance, or that has a call under way, may go on.
    const now = this.#config.clock.now();
    const lone = last.filter(
      ({ calls, isServed, idle, streams }) =>
        calls === 1 && !isServed && idle && now >= streams.mutedUntil,
    );
    if (lone.length < REVEALING) return;
    const cure = this.#cure(
      hasPrincipal,
      lone.some(({ hasId }) => hasId),
    );
    if (!this.#reported.isNew(cure)) return;
    this.#config.onWarning(
      `the client ${asciiText(name)} opened ${REVEALING} sessions with a single call in each, so ` +
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

/** What is known of a session that is over. */
interface OverSession {
  /** What its client calls itself, or the user agent of a call where that is not known. */
  readonly name: string | undefined;
  /** How many calls came with its id, one after the other. */
  readonly calls: number;
  /** When the last one of these came, in milliseconds since the epoch. */
  readonly calledAt: number;
}

/** Counts the calls that come with the id of a session that is over. */
export class KeptIds {
  readonly #config: StuckClientsConfig;
  /** By the session's id, the one that ended first in front. */
  readonly #over = new Map<string, OverSession>();
  readonly #reported = new Reported(MOST_REPORTED);

  private constructor(config: StuckClientsConfig) {
    this.#config = config;
  }

  /** `undefined` where no run needs a session. */
  static of(config: StuckClientsConfig): KeptIds | undefined {
    return config.keys.some(({ kind }) => kind === 'session') ? new KeptIds(config) : undefined;
  }

  /** A session is over: calls that still name it are its client's. */
  ended(run: string, name: string | undefined): void {
    if (run.length > MOST_ID || this.#over.has(run)) return;
    const kept = name && ownText(name, MOST_NAME);
    const over = { name: kept, calls: 0, calledAt: Number.NEGATIVE_INFINITY };
    putNewest(this.#over, run, over, MOST_OVER);
  }

  /** A call is answered 404. Calls that a client sends side by side count once. */
  called(run: string, { req }: Exchange, hasPrincipal: boolean): void {
    this.ended(run, requestHeader(req, 'user-agent'));
    const over = this.#over.get(run);
    const now = this.#config.clock.now();
    if (over === undefined || Math.abs(now - over.calledAt) < APART_MS) return;
    const { name } = over;
    const calls = over.calls + 1;
    this.#over.set(run, { name, calls, calledAt: now });
    if (calls !== REVEALING_KEPT) return;
    const quoted = asciiText(name ?? '');
    if (!this.#reported.isNew(quoted)) return;
    const cure = 'sessionStore({ key: principalKey() })';
    this.#config.onWarning(
      `the client ${quoted} called ${REVEALING_KEPT} times with the id of a session that is over. ` +
        'It keeps the id after 404, so its calls fail until its user connects it again. If your ' +
        'server makes no sessions of its own, ' +
        `${hasPrincipal ? 'give' : 'mount authentication in front, and give'} ${cure}: no call ` +
        'needs a session then. Else let idleMs be long, and keep runs in a store that outlives a ' +
        'restart; ' +
        'see mcp-interlock/docs/start/clients.md#after-400-and-404',
    );
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
