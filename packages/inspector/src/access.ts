/**
 * Who may look, and who may act. Hides what is allowed where the app sets nothing up. Distinguishes
 * the page's own requests from those that another site sends in a person's name.
 */
import type { IncomingMessage } from 'node:http';
import type { Abilities, SessionInfo } from './api.ts';
import { HttpFailure } from './http.ts';
import type { Seal } from './seal.ts';

/** What {@link Authorizes.authorize} answers of a request that may come in. */
export interface Authorization {
  /** See workflows and runs. */
  readonly read: true;
  /** Resolve, send events, restart, delete, stop calls and runs. Default `false`. */
  readonly write?: boolean | undefined;
  /** See the keys of runs, which may be the credentials of sessions. Default `false`. */
  readonly keys?: boolean | undefined;
  /** Who it is, for the trail of what they do. Default `'inspector'`. */
  readonly actor?: string | undefined;
}

export interface Authorizes {
  // A method, so that functions which ask for more of a request are taken too: Express's own, say.
  authorize(req: IncomingMessage): Authorization | false | Promise<Authorization | false>;
}

/** Who sent a request. */
export interface Visitor {
  readonly can: Abilities;
  readonly actor: string;
  readonly development: boolean;
}

const DEVELOPER: Visitor = {
  can: { read: true, write: true, keys: false },
  actor: 'developer',
  development: true,
};

const NOT_SET_UP =
  'The inspector is not set up: give inspector({ authorize }), which says who may see it. ' +
  'Without it, it answers only where NODE_ENV is "development", and only requests of this ' +
  'itself to localhost, 127.0.0.1 or [::1], with no proxy in between.';
const NOT_ALLOWED = 'You may not see the inspector. Sign in to the app, then load this page again.';

/** A token is good for twice as long. */
const RENEW_AFTER_MS = 30 * 60_000;

/** Lets requests in, or throws an {@link HttpFailure}. */
export class Access {
  readonly #authorize: Authorizes['authorize'] | undefined;
  readonly #seal: Seal;
  readonly #now: () => number;
  readonly #onError: (error: unknown) => void;

  constructor(
    authorize: Authorizes['authorize'] | undefined,
    { seal, now, onError }: { seal: Seal; now: () => number; onError: (error: unknown) => void },
  ) {
    this.#authorize = authorize;
    this.#seal = seal;
    this.#now = now;
    this.#onError = onError;
  }

  /** Who sent the request. @throws HttpFailure `unauthorized` */
  async visitorOf(req: IncomingMessage): Promise<Visitor> {
    if (this.#authorize === undefined) {
      if (process.env.NODE_ENV === 'development' && isFromHere(req)) return DEVELOPER;
      throw new HttpFailure('unauthorized', NOT_SET_UP);
    }
    let given: unknown;
    try {
      given = await this.#authorize(req);
    } catch (error) {
      this.#onError(error);
    }
    if (typeof given !== 'object' || given === null || !('read' in given) || given.read !== true)
      throw new HttpFailure('unauthorized', NOT_ALLOWED);
    const { write, keys, actor } = given as Authorization;
    return {
      can: { read: true, write: write === true, keys: keys === true },
      actor: typeof actor === 'string' && actor !== '' ? actor : 'inspector',
      development: false,
    };
  }

  sessionOf(visitor: Visitor): SessionInfo {
    const expires = (this.#now() + 2 * RENEW_AFTER_MS).toString(36);
    const token = `${expires}.${this.#seal.sign(`${expires} ${visitor.actor}`)}`;
    return { ...visitor, token, renewAfterMs: RENEW_AFTER_MS };
  }

  /** @throws HttpFailure `token`, unless the page was given it, for the same person, and lately */
  assertToken(req: IncomingMessage, { actor }: Visitor): void {
    const given = req.headers['x-interlock-token'];
    const [expires = '', signature = ''] = typeof given === 'string' ? given.split('.', 2) : [];
    const isLate = !(Number.parseInt(expires, 36) > this.#now());
    if (isLate || !this.#seal.isSigned(`${expires} ${actor}`, signature))
      throw new HttpFailure('token', 'The token is missing or too old. Load the page again.');
  }
}

/**
 * A browser says where a request comes from, and no page can make it say otherwise. Any other
 * client says nothing, and has no cookies that a page could misuse.
 *
 * @throws HttpFailure `cross-site`
 */
export function assertSameSite(req: IncomingMessage): void {
  const { origin, host, 'sec-fetch-site': site } = req.headers;
  const isOurs =
    site === undefined
      ? origin === undefined || originHost(origin) === host?.toLowerCase()
      : site === 'same-origin' || site === 'none';
  if (!isOurs) throw new HttpFailure('cross-site', 'The request came from another site.');
}

function originHost(origin: string): string | undefined {
  return /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]?.toLowerCase();
}

/** What a proxy adds: then the address of the socket is the proxy's, and the host may be too. */
const PROXY_HEADERS = ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip'];

/**
 * Whether it comes from this machine, to a name of this machine. A page that points its own name
 * here (DNS rebinding) sends that name.
 */
function isFromHere({ socket, headers }: IncomingMessage): boolean {
  if (PROXY_HEADERS.some((name) => headers[name] !== undefined)) return false;
  const address = socket.remoteAddress?.replace(/^::ffff:/, '') ?? '';
  if (!isLoopback(address)) return false;
  const name = /^(\[[^\]]+\]|[^:]+)(?::\d+)?$/.exec(headers.host ?? '')?.[1]?.toLowerCase() ?? '';
  return name === 'localhost' || isLoopback(name.replace(/^\[|\]$/g, ''));
}

function isLoopback(address: string): boolean {
  return address === '::1' || /^127(?:\.\d{1,3}){3}$/.test(address);
}
