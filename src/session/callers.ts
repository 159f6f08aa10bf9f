import type { IncomingHttpHeaders } from 'node:http';
import { InterlockError } from '../errors.ts';
import { showValue } from '../options.ts';
import { type Placed, UseOrder } from '../use-order.ts';
import type { Filter } from '../wire/filter.ts';
import { isObject, type JsonObject } from '../wire/json-rpc.ts';

/**
 * A request as `principal()` is given it: Node's own (Express's), and by `gateFetch()` this much of
 * a `Request`.
 */
export interface CallerRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** By lower-case names. */
  readonly headers: IncomingHttpHeaders;
  /** What authentication left: `req.auth` in Node, what `gateFetch({ auth })` gave otherwise. */
  readonly auth?: unknown;
}

interface NamesCallers {
  // A method, so that functions which ask for more of a request are taken too: for Express's own,
  // say.
  principal(req: CallerRequest): string | undefined;
}

/**
 * The principal of a request, however the app authenticates. `undefined` means nobody in
 * particular.
 */
export type PrincipalOf = NamesCallers['principal'];

/** What a request came from, such as its address. `undefined` limits nothing. */
export type ClientOf = NamesCallers['principal'];

/** Whom a run is bound to. */
export interface Identity {
  /** Issuer and subject. A client id is not one: it names the app, and all its users share it. */
  readonly principal: string | undefined;
  /**
   * What a session is bound to: the principal, or the nearest thing to it that the request carries.
   */
  readonly binding: string | undefined;
}

export const NOBODY: Identity = { principal: undefined, binding: undefined };

/**
 * The caller, as authentication in front of the middleware left it in `req.auth`: the claims of RFC
 * 7519 (`iss`, `sub`) where the SDK's `AuthInfo` carries them in `extra`, and where the usual
 * Express middlewares put them. Never the token's bytes: they change at every refresh.
 */
export function identityOf(req: CallerRequest): Identity {
  const auth = authOf(req);
  if (auth === undefined) return NOBODY;
  const places = [auth.extra, auth.payload, auth].filter(isObject);
  const named = places.find(({ iss, sub }) => isName(iss) && isName(sub));
  if (named !== undefined) {
    const principal = JSON.stringify([named.iss, named.sub]);
    return { principal, binding: principal };
  }
  const subject = places.find(({ sub }) => isName(sub))?.sub;
  if (!isName(auth.clientId) && subject === undefined) return NOBODY;
  return { principal: undefined, binding: JSON.stringify({ client: auth.clientId, subject }) };
}

const REMEDY = 'Give sessionStore({ principal }) what names the user.';
const MISSING =
  'req.auth carries no issuer and subject (extra.iss, extra.sub), so sessions are bound to';
const UNPROTECTED =
  'so a run is bound to nobody, and another user who learns the session id can move it';
const PAGE = 'see docs/operate/authentication.md of mcp-interlock';

/** A request, with all that authentication is used to leave on it. */
interface MarkedRequest extends CallerRequest {
  readonly user?: unknown;
  readonly session?: unknown;
}

/** What suggests that somebody in particular calls, the strongest first. */
const MARKS: readonly (readonly [what: string, isThere: (req: MarkedRequest) => boolean])[] = [
  ['req.auth', ({ auth }) => isThere(auth)],
  ['req.user', ({ user }) => isThere(user)],
  ['an Authorization header', ({ headers }) => isThere(headers.authorization)],
  ['req.session', ({ session }) => isThere(session)],
  ['a Cookie header', ({ headers }) => isThere(headers.cookie)],
];

/**
 * What a request came from, where the app says so.
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the app's `clientOf()` names it badly; and
 * what that throws.
 */
export function clientNamed(
  clientOf: ClientOf | undefined,
  req: CallerRequest,
): string | undefined {
  return clientOf && checkedName('clientOf()', clientOf(req));
}

/**
 * Names the callers of one mounted middleware, and warns once where what names them is weaker than
 * it looks, or where somebody seems to call whom nothing names.
 */
export class Callers {
  readonly #principal: PrincipalOf | undefined;
  readonly #onWarning: (warning: string) => void;
  readonly #given = new Set<string>();
  #isUnfoundTold = false;
  #isLateTold = false;

  constructor(principal: PrincipalOf | undefined, onWarning: (warning: string) => void) {
    this.#principal = principal;
    this.#onWarning = onWarning;
  }

  /**
   * Who calls.
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the app's own `principal()` names nobody
   * properly; and what that throws.
   */
  identify(req: CallerRequest): Identity {
    const identity = this.#identityOf(req);
    if (identity.principal !== undefined) return identity;
    if (this.#principal === undefined && authOf(req) !== undefined) {
      const { binding } = identity;
      this.#warnOnce(
        `${MISSING} ${binding === undefined ? 'nobody' : 'the client id, which all users of one app share'}. ${REMEDY}`,
      );
    } else if (!this.#isUnfoundTold) this.#warnOfUnfound(req);
    return identity;
  }

  /**
   * Looks, once the response to such a request begins, whether authentication came behind the
   * middleware. `undefined` where there is nothing to look for: it was there already, or was warned
   * of.
   */
  lookout(req: MarkedRequest): Filter | undefined {
    if (this.#isLateTold || isThere(req.auth) || isThere(req.user)) return undefined;
    return {
      stage: 'session',
      onHead: () => {
        const late = ['auth', 'user'].find((name) => isThere(Reflect.get(req, name)));
        if (late === undefined || this.#isLateTold) return;
        this.#isLateTold = true;
        this.#onWarning(
          `req.${late} was set behind sessionStore(), which had looked for it already, ${UNPROTECTED}. ` +
            `Mount authentication in front; ${PAGE}`,
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
    const [mark] = MARKS.find(([, isMarked]) => isMarked(req)) ?? [];
    if (mark === undefined) return;
    this.#isUnfoundTold = true;
    const remedy =
      this.#principal === undefined
        ? 'Mount authentication in front that leaves issuer and subject in req.auth, or give sessionStore({ principal })'
        : 'sessionStore({ principal }) returned undefined for it';
    this.#onWarning(
      `a request has ${mark}, and no principal came of it, ${UNPROTECTED}. ${remedy}; ${PAGE}`,
    );
  }

  #warnOnce(warning: string): void {
    if (this.#given.has(warning)) return;
    this.#given.add(warning);
    this.#onWarning(warning);
  }
}

function isThere(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false && value !== '';
}

function authOf(req: CallerRequest): JsonObject | undefined {
  return isObject(req.auth) ? req.auth : undefined;
}

const UNDEFINED = { 'principal()': 'nobody in particular', 'clientOf()': 'no limit' } as const;

/** What a store gives back must equal what it was given, so only names are taken. */
function checkedName(what: keyof typeof UNDEFINED, name: unknown): string | undefined {
  if (name === undefined || isName(name)) return name;
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(name).catch(() => {});
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `sessionStore(): ${what} must return a non-empty string, or undefined for ${UNDEFINED[what]}; it returned ${showValue(name)}`,
  );
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/**
 * Whose session it is, as far as sessions are counted. Those of a principal count as his, wherever
 * they come from; others as their client's. What has neither is not limited.
 */
export interface Owner {
  readonly principal: string | undefined;
  /** What the app says that the request came from, such as an address. */
  readonly client: string | undefined;
}

export interface QuotaLimits {
  readonly maxSessionsPerPrincipal: number;
  readonly maxSessionsPerClient: number;
  readonly onWarning: (warning: string) => void;
}

const MANY_SESSIONS =
  'a caller has more sessions than maxSessionsPerPrincipal or maxSessionsPerClient: each new one ends the least recently used. ' +
  'Clients that open one for each call need another key than sessionKey()';

/** The sessions of one caller, and those of them that nothing is under way in. */
class Group<S> {
  readonly limit: number;
  count = 0;
  readonly free = new UseOrder<Seat<S>>();

  constructor(limit: number) {
    this.limit = limit;
  }
}

/** One session among those that are counted. */
export class Seat<S> implements Placed<Seat<S>> {
  /** Its neighbours among those that may make way. */
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

  /** Whether the session may make way for another one. */
  get isFree(): boolean {
    return this.#isFree;
  }

  /** The session was opened. */
  take(holder: S): void {
    this.#holder = holder;
    this.offer();
  }

  /** Nothing is under way in the session: of those that may make way it was used last. */
  offer(): void {
    if (this.#left) return;
    this.#isFree = true;
    this.#group?.free.touch(this);
  }

  /** Something is under way in the session, or may be: it does not make way. */
  withdraw(): void {
    this.#isFree = false;
    this.#group?.free.remove(this);
  }

  /** The session counts no more. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.withdraw();
    this.#onLeave();
  }
}

/**
 * How many sessions each caller has in this process. Where there are too many, a caller's new
 * session takes the place of one of his own, so no caller can end or bar another's sessions.
 * Nothing here takes longer where there are more of them.
 */
export class Quotas<S> {
  readonly #groups = new Map<string, Group<S>>();
  readonly #limits: QuotaLimits;
  #hasWarned = false;

  constructor(limits: QuotaLimits) {
    this.#limits = limits;
  }

  /** Whether the owner has as many as he may have, and none of them can make way. */
  isBarred(owner: Owner): boolean {
    const full = this.#full(owner);
    return full !== undefined && full.free.oldest === undefined;
  }

  /**
   * A seat for one more session of the owner, for which one of his own makes way where he has too
   * many: `end` ends it, or leaves it if it is in use. `undefined` where none can make way.
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

  /** A seat for one more session of the owner, unless that is one too many. */
  reserve(owner: Owner): Seat<S> | undefined {
    return this.#full(owner) === undefined ? this.seat(owner) : undefined;
  }

  /** A seat for a session that exists already, whether it is one too many or not. */
  seat(owner: Owner): Seat<S> {
    const key = keyOf(owner);
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

  /** The owner's group, where it is as large as it may be. */
  #full(owner: Owner): Group<S> | undefined {
    const key = keyOf(owner);
    const group = key === undefined ? undefined : this.#groups.get(key);
    return group !== undefined && group.count >= group.limit ? group : undefined;
  }
}

function keyOf({ principal, client }: Owner): string | undefined {
  if (principal !== undefined) return `principal ${principal}`;
  return client === undefined ? undefined : `client ${client}`;
}
