import { createHash, randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../clock.ts';
import type { JsonObject, ListKind } from '../wire/json-rpc.ts';
import type { Tap } from '../wire/tap.ts';
import type { NotificationBus } from './bus.ts';

/** What instances tell each other about a session. Each is a hint: the state is in the store. */
type Hint =
  /** The client should hear this, on whichever instance holds its stream. */
  | { readonly kind: 'notify'; readonly method: string }
  /**
   * This instance holds a stream of the session, opened at that time: it is the one to speak on, if
   * it is the newest.
   */
  | { readonly kind: 'stream'; readonly openedAt: number }
  /** It does not hold one any more. */
  | { readonly kind: 'silence' }
  /** The client cancelled this request, which some other instance may have waiting. */
  | { readonly kind: 'cancelled'; readonly id: string | number }
  /**
   * Lists of a run that several connections share are others now; of its tools where it does not
   * say which. One session, `but`, is told by itself.
   */
  | { readonly kind: 'changed'; readonly lists?: readonly ListKind[]; readonly but?: string }
  /** The session has ended. */
  | { readonly kind: 'ended' };

const LISTS = ['tools', 'prompts', 'resources'] as const satisfies readonly ListKind[];

const envelope = z.intersection(
  z.object({ v: z.literal(1), to: z.string(), from: z.string() }),
  z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('notify'), method: z.string() }),
    z.object({ kind: z.literal('stream'), openedAt: z.number() }),
    z.object({ kind: z.literal('silence') }),
    z.object({ kind: z.literal('cancelled'), id: z.union([z.string(), z.number()]) }),
    z.object({
      kind: z.literal('changed'),
      lists: z.optional(z.array(z.enum(LISTS))),
      but: z.optional(z.string()),
    }),
    z.object({ kind: z.literal('ended') }),
  ]),
);

/**
 * A hint with its address: `to` names the session without giving its id away, `from` the instance
 * that sent it.
 */
type AddressedHint = z.output<typeof envelope>;

/**
 * Reads what came over the bus; `undefined` for what another app, or another version, may have
 * sent.
 */
function readHint(text: string): AddressedHint | undefined {
  try {
    return envelope.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/**
 * Rejects where the bus cannot send it, also one that throws instead: a hint is sent in the midst
 * of other things, and from timers.
 */
async function sendHint(
  bus: NotificationBus,
  hint: Hint & { to: string; from: string },
): Promise<void> {
  await bus.publish(JSON.stringify({ v: 1, ...hint }));
}

/** A session as far as other instances are concerned. */
interface RelayedSession {
  readonly run: string;
  readonly streams: Streams;
  /** `false` where no such request is in flight here. */
  cancel(id: string | number): boolean;
}

/** What this instance does on the word of another one. */
interface RelayListener {
  /** The session of this topic, if this process knows it. */
  find(topic: string): RelayedSession | undefined;
  ended(session: RelayedSession): void;
  /**
   * Lists of a run that several connections share are others now. The session of the topic `but` is
   * told by itself.
   */
  changed(topic: string, lists: readonly ListKind[], but?: string): void;
  onError(error: unknown): void;
}

/**
 * How often an instance says again that it holds a stream; after three times of silence it is taken
 * to be gone.
 */
const HEARTBEAT_MS = 15_000;

/**
 * Names a session on the bus. A digest, since whoever can listen there must not learn session ids.
 */
export function topicOf(run: string): string {
  return createHash('sha256').update(run).digest('base64url');
}

/**
 * Joins the instances of an app. A client's message goes out once: on the instance that opened its
 * newest stream, which the others know of because it said so.
 */
export class Relay {
  readonly #bus: NotificationBus;
  readonly #clock: Clock;
  readonly #listener: RelayListener;
  readonly #self = randomUUID();
  readonly #speaking = new Set<RelayedSession>();
  readonly #unsubscribe: Promise<(() => Promise<void>) | undefined>;
  readonly #leaving = new AbortController();
  #stopHeartbeat: () => void = () => {};
  #hasJoined = false;

  constructor(bus: NotificationBus, clock: Clock, listener: RelayListener) {
    this.#bus = bus;
    this.#clock = clock;
    this.#listener = listener;
    this.#unsubscribe = bus
      .subscribe((text) => this.#hear(text), this.#leaving.signal)
      .then((leave) => {
        this.#hasJoined = true;
        return leave;
      })
      .catch((error: unknown) => {
        listener.onError(error);
        return undefined;
      });
  }

  /** Whether this instance hears the others at the moment, as far as the bus can tell. */
  get hears(): boolean {
    return this.#hasJoined && (this.#bus.hears?.() ?? true);
  }

  /** Tells a session's client something on its newest stream, here or elsewhere. */
  notify(session: RelayedSession, message: JsonObject): void {
    if (session.streams.audible(this.#clock.now())) session.streams.send(message);
    else this.#send(session.run, { kind: 'notify', method: String(message.method) });
  }

  /** A stream was opened here: from now on this instance speaks. */
  opened(session: RelayedSession): void {
    session.streams.openedAt = this.#clock.now();
    session.streams.mutedUntil = 0;
    this.#speaking.add(session);
    this.#announce(session);
    if (this.#speaking.size === 1) this.#beat();
  }

  /** The last stream of a session closed here. */
  closed(session: RelayedSession): void {
    if (!this.#speaking.delete(session)) return;
    this.#send(session.run, { kind: 'silence' });
    if (this.#speaking.size === 0) this.#stopHeartbeat();
  }

  cancelled(run: string, id: string | number): void {
    this.#send(run, { kind: 'cancelled', id });
  }

  ended(run: string): void {
    this.#send(run, { kind: 'ended' });
  }

  /**
   * Tells every instance that lists of a run are others now, whoever listens to it there, but for
   * one session that is told by itself.
   */
  changed(run: string, lists: readonly ListKind[], session?: string): void {
    const onlyTools = lists.length === 1 && lists[0] === 'tools';
    const but = session === undefined ? {} : { but: topicOf(session) };
    this.#send(run, { kind: 'changed', ...(onlyTools ? {} : { lists }), ...but });
  }

  /** Stops listening, or trying to. */
  async close(): Promise<void> {
    this.#stopHeartbeat();
    this.#speaking.clear();
    this.#leaving.abort();
    await (await this.#unsubscribe)?.();
  }

  #beat(): void {
    this.#stopHeartbeat = this.#clock.after(HEARTBEAT_MS, () => {
      for (const session of this.#speaking) this.#announce(session);
      this.#beat();
    });
  }

  #announce({ run, streams }: RelayedSession): void {
    this.#send(run, { kind: 'stream', openedAt: streams.openedAt });
  }

  /** A bus that is down loses the hint, and nothing else. */
  #send(run: string, hint: Hint): void {
    sendHint(this.#bus, { ...hint, to: topicOf(run), from: this.#self }).catch((error: unknown) =>
      this.#listener.onError(error),
    );
  }

  #hear(text: string): void {
    const hint = readHint(text);
    if (hint === undefined || hint.from === this.#self) return;
    const session = this.#listener.find(hint.to);
    if (hint.kind === 'changed') this.#listener.changed(hint.to, hint.lists ?? ['tools'], hint.but);
    else if (session !== undefined) this.#obey(session, hint);
  }

  #obey(session: RelayedSession, hint: AddressedHint): void {
    const { streams } = session;
    switch (hint.kind) {
      case 'notify':
        if (streams.audible(this.#clock.now()))
          streams.send({ jsonrpc: '2.0', method: hint.method });
        return;
      case 'stream':
        if (isNewer(hint, { openedAt: streams.openedAt, from: this.#self })) {
          streams.mute(hint.from, this.#clock.now() + 3 * HEARTBEAT_MS);
        }
        return;
      case 'silence':
        streams.unmute(hint.from);
        return;
      case 'cancelled':
        session.cancel(hint.id);
        return;
      case 'ended':
        this.#listener.ended(session);
    }
  }
}

/** One order for all instances, whatever their clocks say: of any two exactly one is the newer. */
function isNewer(
  a: { openedAt: number; from: string },
  b: { openedAt: number; from: string },
): boolean {
  return a.openedAt === b.openedAt ? a.from > b.from : a.openedAt > b.openedAt;
}

/**
 * The GET streams of one session in this process. A message goes out on one of them only: "The
 * server MUST send each of its JSON-RPC messages on only one of the connected streams" (MCP
 * 2025-11-25, Transports, "Multiple Connections").
 */
export class Streams {
  readonly #open: Tap[] = [];
  /** When the newest one was opened, in milliseconds since the epoch. */
  openedAt = 0;
  /** Until then another instance speaks to the client. */
  mutedUntil = 0;
  #mutedBy = '';
  /**
   * What nobody was there to hear, one of a kind: a client whose connections broke learns it when
   * it is back.
   */
  readonly #unheard = new Map<unknown, JsonObject>();

  get size(): number {
    return this.#open.length;
  }

  add(tap: Tap): void {
    if (this.#open.includes(tap)) return;
    this.#open.push(tap);
    for (const message of this.#unheard.values()) tap.inject(message);
    this.#unheard.clear();
  }

  remove(tap: Tap): void {
    const at = this.#open.indexOf(tap);
    if (at !== -1) this.#open.splice(at, 1);
  }

  /**
   * Sends on the newest stream: an older one may be what a reconnecting client left behind. `false`
   * where there is none; then the message waits for the next one.
   */
  send(message: JsonObject): boolean {
    const newest = this.#open.at(-1);
    if (newest === undefined) this.#unheard.set(message.method, message);
    else newest.inject(message);
    return newest !== undefined;
  }

  /** Whether this instance is the one to speak on. */
  audible(now: number): boolean {
    return this.#open.length > 0 && now >= this.mutedUntil;
  }

  /** Another instance has a newer stream. */
  mute(by: string, until: number): void {
    this.#mutedBy = by;
    this.mutedUntil = until;
  }

  unmute(by: string): void {
    if (this.#mutedBy === by) this.mutedUntil = 0;
  }

  /** Ends the streams that the middleware serves, when the session ends. */
  endAll(): void {
    for (const tap of this.#open.splice(0)) tap.abandon([]);
  }
}

/** Streams that stay open although their upstream is done with them. */
export class HeldStreams {
  readonly #clock: Clock;
  readonly #keepAliveMs: number;
  readonly #ends = new Set<() => void>();

  constructor({ clock, keepAliveMs }: { readonly clock: Clock; readonly keepAliveMs: number }) {
    this.#clock = clock;
    this.#keepAliveMs = keepAliveMs;
  }

  /**
   * Keeps one from looking dead, and ends it with `last` where all are ended, until the returned
   * function is called.
   */
  hold(tap: Tap, last: JsonObject): () => void {
    const end = (): void => tap.abandon([last]);
    const stopBeating = keepAlive(tap, this.#clock, this.#keepAliveMs);
    this.#ends.add(end);
    return () => {
      stopBeating();
      this.#ends.delete(end);
    };
  }

  endAll(): void {
    for (const end of [...this.#ends]) end();
  }
}

/**
 * Puts a comment on a stream of the middleware's own now and then, until the returned function is
 * called.
 */
export function keepAlive(tap: Tap, clock: Clock, everyMs: number): () => void {
  let stop: () => void;
  const beat = (): void => {
    tap.keepAlive();
    stop = clock.after(everyMs, beat);
  };
  stop = clock.after(everyMs, beat);
  return () => stop();
}
