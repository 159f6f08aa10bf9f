import type { RunRecord, SessionRecord } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import type { GuardedStore } from './guarded-store.ts';
import type { LiveSession } from './live-session.ts';
import type { Turns } from './turns.ts';

/** Which run a request belongs to, and how to reach what is kept of it. */
export interface RunContext {
  readonly run: string;
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly session: LiveSession;
  readonly turns: Turns;
  /** The caller, for the trail. */
  readonly actor: string | undefined;
  /** Makes a run that does not exist yet; `undefined` where only a session's handshake may. */
  readonly create: SessionRecord | undefined;
  /** The run as it was read for this very request, if it had to be, and has not moved since. */
  fresh(): RunRecord | undefined;
  /** The one message of this request that runs as a step; a batch forwards no second one. */
  step?: Incoming;
}

/** An exchange that was looked at: it has a run, or it is one of those that have none (`initialize`, `server/discover`). */
export interface Admission {
  readonly context: RunContext | undefined;
  /** Who let it in: a second one would decide differently. */
  readonly owner: object;
}

const admissions = new WeakMap<Exchange, Admission>();

export function admissionOf(exchange: Exchange): Admission | undefined {
  return admissions.get(exchange);
}

export function admit(exchange: Exchange, owner: object, context: RunContext | undefined): Admission {
  const admission = { context, owner };
  admissions.set(exchange, admission);
  return admission;
}
