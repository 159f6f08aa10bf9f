import type { RunRecord, SessionRecord } from '../stores/store.ts';
import type { Era } from '../wire/era.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import type { JsonObject, ListKind } from '../wire/json-rpc.ts';
import { Note } from '../wire/note.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import type { GuardedStore } from './guarded-store.ts';
import type { LiveSession } from './live-session.ts';
import type { ManagedHandle } from './run-key.ts';
import type { Turns } from './turns.ts';

/** One run, as a request has to do with it, and how to reach what is kept of it. */
export interface RunContext {
  readonly run: string;
  readonly store: GuardedStore;
  readonly ttlMs: number;
  /** What this process knows of the client's other requests. */
  readonly session: LiveSession;
  readonly turns: Turns;
  /** The caller, for the trail. */
  readonly actor: string | undefined;
  /**
   * Makes a run that does not exist yet; `undefined` where only a handshake, or a tool that hands
   * handles out, may.
   */
  readonly create: SessionRecord | undefined;
  /**
   * What a call is told whose run turns out to be unknown; `undefined` where the session itself is
   * over then.
   */
  readonly gone: string | undefined;
  /** What begins another run, in words for the model; `undefined` where no tool does. */
  readonly anew: string | undefined;
  /** The run as it was read for this very request, if it had to be, and has not moved since. */
  fresh(): RunRecord | undefined;
  /**
   * Some of the run's lists are others now. `toldHere`: the client hears of it on the stream of its
   * own call.
   */
  listChanged(lists: readonly ListKind[], toldHere: boolean): void;
  /** Has a stream told of each such change, until the returned function is called. */
  listen(tell: (lists: readonly ListKind[]) => void): () => void;
  /** The one message of this request that runs as a step; a batch forwards no second one. */
  step?: Incoming;
}

/** A call that has no run, and what can be done about it, for the model. */
export interface NoRun {
  readonly advice: string;
  /**
   * Why every such call is refused, where that is likely a mistake of the developer's and not of
   * the call's.
   */
  readonly warning: string | undefined;
}

/** An exchange that was looked at. */
export interface Admission {
  /** Who let it in: a second one would decide differently. */
  readonly owner: object;
  readonly era: Era;
  /**
   * What this process knows of the client's other requests; of this one alone where nothing joins
   * them.
   */
  readonly session: LiveSession;
  /** The run that is named without a call: what lists are filtered by. */
  readonly listed: RunContext | undefined;
  /** Whether calls name their runs in their arguments, so that a list cannot be filtered. */
  readonly byArgument: boolean;
  /** The handles that the gated tools' schemas must ask for. */
  readonly managed: ManagedHandle | undefined;
  /**
   * Whose tasks are meant by their ids: the session's, or the principal's, or nobody's in
   * particular.
   */
  readonly taskOwner: readonly [kind: 'session' | 'principal', name: string | null];
  runOf(call: Incoming): RunContext | NoRun;
  /**
   * A run by its key, whatever this request names. It is the caller's business that it is the
   * client's.
   */
  runNamed(run: string): RunContext;
  /**
   * Such lists go out without what the run's state shows, because the store cannot be asked: once
   * it can, the client is told that they changed.
   */
  listMissed(lists: readonly ListKind[]): void;
  /**
   * Keeps a stream of the middleware's own from looking dead, and ends it with `last` at the
   * shutdown, until the returned function is called.
   */
  holdOpen(tap: ResponseTap, last: JsonObject): () => void;
}

const admissions = new Note<Exchange, Admission>();

export function admissionOf(exchange: Exchange): Admission | undefined {
  return admissions.of(exchange);
}

export function admit(exchange: Exchange, admission: Admission): Admission {
  admissions.put(exchange, admission);
  return admission;
}
