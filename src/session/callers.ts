/**
 * Who calls, and how many sessions each caller may have. Hides where authentication leaves a user's
 * name, how a weak one is noticed, and which session makes way for a new one.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Placed, Reported, UseOrder } from '../basics/clock.ts';
import { ownText } from '../basics/names.ts';
import { wrongAnswer } from '../basics/options.ts';
import type { ClientInfo } from '../stores/store.ts';
import type { Filter } from '../wire/filter.ts';
import { isObject, type JsonObject } from '../wire/json-rpc.ts';

/**
 * The request that `principal()` is given: Node's own, or these members of `gateFetch()`'s
 * `Request`.
 */
export interface CallerRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** By name, in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** What authentication left: `req.auth` in Node, or what `gateFetch({ auth })` gave. */
  readonly auth?: unknown;
}

interface NamesCallers {
  // A method, so that it may be a function of a richer request, such as Express's.
  principal(req: CallerRequest): string | undefined;
}

/** Names the principal of a request. `undefined`: the request has none. */
export type PrincipalOf = NamesCallers['principal'];

/** Names what a request came from, such as its address. `undefined`: no limit holds for it. */
export type ClientOf = NamesCallers['principal'];

/** Who sent a request. */
export interface Identity {
  /** Issuer and subject. Never a client id alone, which all users of one app share. */
  readonly principal: string | undefined;
  /**
   * What its session is bound to: the principal or, where it has none, its client id and subject.
   */
  readonly binding: string | undefined;
  /** What the app claims of who sent this very request, for rules. Absent: nothing. */
  readonly claims?: Claims | undefined;
}

/** What is known of a caller, such as `{ role: 'admin' }`. */
export interface Claims {
  readonly [name: string]: unknown;
}

interface ClaimsCallers {
  // A method, so that it may be a function of a richer request, such as Express's.
  claims(req: CallerRequest): Claims | undefined;
}

/** Says what is known of who sent a request. `undefined`: nothing. */
export type ClaimsOf = ClaimsCallers['claims'];

export const ANONYMOUS: Identity = { principal: undefined, binding: undefined };

/**
 * Reads the claims `iss` and `sub` (RFC 7519) where authentication leaves them in `req.auth`: the
 * SDK in `extra`, other middlewares in `payload` or `auth` itself. Never the token's bytes, which
 * change with every refresh.
 */
export function identityOf(req: CallerRequest): Identity {
  const auth = authOf(req);
  if (auth === undefined) return ANONYMOUS;
  const places = [auth.extra, auth.payload, auth].filter(isObject);
  const named = places.find(({ iss, sub }) => isName(iss) && isName(sub));
  if (named !== undefined) {
    const principal = JSON.stringify([named.iss, named.sub]);
    return { principal, binding: principal };
  }
  const subject = places.find(({ sub }) => isName(sub))?.sub;
  if (!isName(auth.clientId) && subject === undefined) return ANONYMOUS;
  return { principal: undefined, binding: JSON.stringify({ client: auth.clientId, subject }) };
}

const MOST_NAME = 100;

/** What a client calls itself (MCP, `Implementation`); `undefined` where it says nothing. */
export function clientInfoIn(said: unknown): ClientInfo | undefined {
  if (!isObject(said)) return undefined;
  const { name, version } = said;
  const text = (value: unknown) => (typeof value === 'string' ? ownText(value, MOST_NAME) : '');
  return { name: text(name), version: text(version) };
}

const REMEDY = 'Give sessionStore({ principal }) what names the user.';
const MISSING =
  'req.auth carries no issuer and subject (extra.iss, extra.sub), so sessions are bound to';
const SHARED = 'the client id, which all users of one app share';
const UNPROTECTED =
  'so a run is bound to no user, and another user who learns the session id can move it';
const PAGE = 'see docs/operate/authentication.md of mcp-interlock';

/** A request, with the members that authentication often leaves on it. */
interface MarkedRequest extends CallerRequest {
  readonly user?: unknown;
  readonly session?: unknown;
}

/** What suggests that a user is logged in, the strongest sign first. */
function markOf({ auth, user, headers, session }: MarkedRequest): string | undefined {
  if (isThere(auth)) return 'req.auth';
  if (isThere(user)) return 'req.user';
  if (isThere(headers.authorization)) return 'an Authorization header';
  if (isThere(session)) return 'req.session';
  return isThere(headers.cookie) ? 'a Cookie header' : undefined;
}

/**
 * What a request came from, where the app says so.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where `clientOf()` returns no name; what it throws
 */
export function clientNamed(
  clientOf: ClientOf | undefined,
  req: CallerRequest,
): string | undefined {
  return clientOf && checkedName('clientOf()', clientOf(req));
}

/**
 * Names the callers of one mounted middleware. Warns once of each weakness: a name that many users
 * share, or a user who seems to be logged in and has no name.
 */
export class Callers {
  readonly #principal: PrincipalOf | undefined;
  readonly #onWarning: (warning: string) => void;
  readonly #claims: ClaimsOf | undefined;
  readonly #reported = new Reported();
  #isUnfoundReported = false;
  #isLateReported = false;

  constructor(
    principal: PrincipalOf | undefined,
    onWarning: (warning: string) => void,
    claims?: ClaimsOf,
  ) {
    this.#principal = principal;
    this.#claims = claims;
    this.#onWarning = onWarning;
  }

  /**
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where `principal()` returns no name, or `claims()`
   * no object; what they throw
   */
  identify(req: CallerRequest): Identity {
    const known = this.#identityOf(req);
    const identity = this.#claims ? { ...known, claims: checkedClaims(this.#claims(req)) } : known;
    if (identity.principal !== undefined) return identity;
    if (this.#principal === undefined && authOf(req) !== undefined) {
      const { binding } = identity;
      this.#warnOnce(`${MISSING} ${binding === undefined ? 'no user' : SHARED}. ${REMEDY}`);
    } else if (!this.#isUnfoundReported) this.#warnOfUnfound(req);
    return identity;
  }

  /**
   * Looks, when the response begins, whether authentication ran behind the middleware. `undefined`
   * where it ran in front, or where that was warned of before.
   */
  lookout(req: MarkedRequest): Filter | undefined {
    if (this.#isLateReported || isThere(req.auth) || isThere(req.user)) return undefined;
    return {
      stage: 'session',
      onHead: () => {
        const late = ['auth', 'user'].find((name) => isThere(Reflect.get(req, name)));
        if (late === undefined || this.#isLateReported) return;
        this.#isLateReported = true;
        this.#onWarning(
          `req.${late} was set behind sessionStore(), which had looked for it already, ` +
            `${UNPROTECTED}. Mount authentication in front; ${PAGE}`,
        );
      },
    };
  }

  #identityOf(req: CallerRequest): Identity {
    if (this.#principal === undefined) return identityOf(req);
    const principal = checkedName('principal()', this.#principal(req));
    return { principal, binding: principal };
  }

  #warnOfUnfound(req: MarkedRequest): void {
    const mark = markOf(req);
    if (mark === undefined) return;
    this.#isUnfoundReported = true;
    const remedy =
      this.#principal === undefined
        ? 'Mount authentication in front that leaves issuer and subject in req.auth, ' +
          'or give sessionStore({ principal })'
        : 'sessionStore({ principal }) returned undefined for it';
    this.#onWarning(
      `a request has ${mark}, and no principal came of it, ${UNPROTECTED}. ${remedy}; ${PAGE}`,
    );
  }

  #warnOnce(warning: string): void {
    if (this.#reported.isNew(warning)) this.#onWarning(warning);
  }
}

function isThere(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false && value !== '';
}

function authOf(req: CallerRequest): JsonObject | undefined {
  return isObject(req.auth) ? req.auth : undefined;
}

function checkedClaims(claims: unknown): Claims | undefined {
  const isPromise = isObject(claims) && typeof claims.then === 'function';
  if (claims === undefined || (isObject(claims) && !isPromise)) return claims;
  const right = 'an object such as { role }, or undefined where nothing is known';
  throw wrongAnswer(`sessionStore(): claims() must return ${right}`, claims);
}

const UNDEFINED = { 'principal()': 'no principal', 'clientOf()': 'no limit' } as const;

/** Takes only strings: a store must give back an equal name. */
function checkedName(what: keyof typeof UNDEFINED, name: unknown): string | undefined {
  if (name === undefined || isName(name)) return name;
  const right = `a non-empty string, or undefined for ${UNDEFINED[what]}`;
  throw wrongAnswer(`sessionStore(): ${what} must return ${right}`, name);
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/**
 * By whom a session is counted: by its principal or, without one, by its client. A session with
 * neither is not limited.
 */
export interface Owner {
  readonly principal: string | undefined;
  /** As {@link ClientOf} names it. */
  readonly client: string | undefined;
}

export interface QuotaLimits {
  readonly maxSessionsPerPrincipal: number;
  readonly maxSessionsPerClient: number;
  readonly onWarning: (warning: string) => void;
}

const MANY_SESSIONS =
  'a caller has more sessions than maxSessionsPerPrincipal or maxSessionsPerClient: ' +
  'each new one ends the least recently used. ' +
  'Clients that open one for each call need another key than sessionKey()';

/** The sessions of one caller, and which of them are free. */
class Group<S> {
  readonly limit: number;
  count = 0;
  readonly free = new UseOrder<Seat<S>>();

  constructor(limit: number) {
    this.limit = limit;
  }
}

/** A session's place among those of its caller. */
export class Seat<S> implements Placed<Seat<S>> {
  /** Its neighbours among the free ones. */
  older: Seat<S> | undefined;
  newer: Seat<S> | undefined;
  readonly #group: Group<S> | undefined;
  readonly #onLeave: () => void;
  #holder: S | undefined;
  #isFree = false;
  #left = false;

  constructor(group: Group<S> | undefined, onLeave: () => void) {
    this.#group = group;
    this.#onLeave = onLeave;
  }

  get holder(): S | undefined {
    return this.#holder;
  }

  /** Whether the session may make way for another: no request of it is in flight. */
  get isFree(): boolean {
    return this.#isFree;
  }

  /** The session was opened. */
  take(holder: S): void {
    this.#holder = holder;
    this.offer();
  }

  /** The session is free: of the free ones, it was used last. */
  offer(): void {
    if (this.#left) return;
    this.#isFree = true;
    this.#group?.free.touch(this);
  }

  /** A request of the session is in flight, or may be: it does not make way. */
  withdraw(): void {
    this.#isFree = false;
    this.#group?.free.remove(this);
  }

  /** The session is over, and counts no more. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.withdraw();
    this.#onLeave();
  }
}

/**
 * How many sessions each caller has in this process. One too many takes the place of another of the
 * same caller, so no caller can end or bar another's sessions. Each operation takes constant time.
 */
export class Quotas<S> {
  readonly #groups = new Map<string, Group<S>>();
  readonly #limits: QuotaLimits;
  #hasWarned = false;

  constructor(limits: QuotaLimits) {
    this.#limits = limits;
  }

  /** Whether the owner may open no session: none is left, and none can make way. */
  isBarred(owner: Owner): boolean {
    const full = this.#full(owner);
    return full !== undefined && full.free.oldest === undefined;
  }

  /**
   * A seat for one more session of the owner. Where there are too many, `end` is given the least
   * recently used free one, and ends it unless it is in use. `undefined` where none can make way.
   */
  async makeRoom(owner: Owner, end: (holder: S) => Promise<void>): Promise<Seat<S> | undefined> {
    for (;;) {
      const seat = this.reserve(owner);
      if (seat !== undefined) return seat;
      const oldest = this.#full(owner)?.free.oldest;
      if (oldest?.holder === undefined) return undefined;
      oldest.withdraw();
      await end(oldest.holder).catch((error: unknown) => {
        oldest.offer();
        throw error;
      });
      if (!this.#hasWarned) this.#limits.onWarning(MANY_SESSIONS);
      this.#hasWarned = true;
    }
  }

  /** A seat for one more session of the owner, if one is left. */
  reserve(owner: Owner): Seat<S> | undefined {
    return this.#full(owner) === undefined ? this.seat(owner) : undefined;
  }

  /** A seat for a session that exists already, even if it is one too many. */
  seat(owner: Owner): Seat<S> {
    const key = ownerKey(owner);
    if (key === undefined) return new Seat<S>(undefined, () => {});
    const { maxSessionsPerPrincipal, maxSessionsPerClient } = this.#limits;
    const limit = owner.principal === undefined ? maxSessionsPerClient : maxSessionsPerPrincipal;
    const group = this.#groups.get(key) ?? new Group<S>(limit);
    this.#groups.set(key, group);
    group.count++;
    return new Seat(group, () => {
      if (--group.count === 0) this.#groups.delete(key);
    });
  }

  /** The owner's group, where no seat of it is left. */
  #full(owner: Owner): Group<S> | undefined {
    const key = ownerKey(owner);
    const group = key === undefined ? undefined : this.#groups.get(key);
    return group !== undefined && group.count >= group.limit ? group : undefined;
  }
}

/** The name under which an owner is counted; `undefined` where nothing distinguishes it. */
export function ownerKey({ principal, client }: Owner): string | undefined {
  if (principal !== undefined) return `principal ${principal}`;
  return client === undefined ? undefined : `client ${client}`;
}
