import { createHash, randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../basics/clock.ts';
import { lazily, type ParsedBy } from '../basics/options.ts';
import type { JsonObject, ListKind } from '../wire/json-rpc.ts';
import type { Tap } from '../wire/tap.ts';
import type { NotificationBus } from './bus.ts';

const LISTS = ['tools', 'prompts', 'resources'] as const satisfies readonly ListKind[];

/** What an instance reports to others about a session. Only a hint: the store has the state. */
const hints = lazily(() => [
  /** The instance that holds the client's stream should send this. */
  z.object({ kind: z.literal('notify'), method: z.string() }),
  /** The sender holds a stream of the session. The instance with the newest one speaks on it. */
  z.object({ kind: z.literal('stream'), openedAt: z.number() }),
  /** The sender does not hold a stream any more. */
  z.object({ kind: z.literal('silence') }),
  /** The client cancelled this request, which may wait on another instance. */
  z.object({ kind: z.literal('cancelled'), id: z.union([z.string(), z.number()]) }),
  /**
   * Lists of a run changed that several connections share. Without `lists`, that is the list of
   * tools. The sender itself notifies the session `but`.
   */
  z.object({
    kind: z.literal('changed'),
    lists: z.optional(z.array(z.enum(LISTS))),
    but: z.optional(z.string()),
  }),
  /** The client called a tool on the sender, or listed them. Sent for the first two of each. */
  z.object({ kind: z.literal('called'), hasId: z.boolean() }),
  z.object({ kind: z.literal('listed') }),
  /** The session has ended. */
  z.object({ kind: z.literal('ended') }),
]);
type Hint = z.output<ReturnType<typeof hints>[number]>;

/** A hint with its address: `to` is the topic of a session, `from` the instance that sent it. */
const envelope = lazily(() =>
  z.intersection(z.object({ v: z.literal(1), to: z.string(), from: z.string() }), z.union(hints())),
);

/** The part of a session that other instances may act on. */
interface RelayedSession {
  readonly run: string;
  readonly streams: Streams;
  /** `false` where no such request is in flight here. */
  cancel(id: string | number): boolean;
  /** The client called a tool. `hasId`: the call had an id of a conversation. */
  noteCall(hasId: boolean): void;
  /** The client listed the tools. */
  noteList(): void;
}

/** What this instance does for the hint of another one. */
interface RelayListener {
  /** The session of this topic, where this process knows it. */
  find(topic: string): RelayedSession | undefined;
  ended(session: RelayedSession): void;
  /** Lists of a run changed that several connections share. The sender notifies session `but`. */
  changed(topic: string, lists: readonly ListKind[], but?: string): void;
  onError(error: unknown): void;
}

/**
 * How often an instance reports again that it holds a stream. After three times without, the others
 * take it for gone.
 */
const HEARTBEAT_MS = 15_000;

/** Names a session on the bus. A digest: a listener there must not learn session ids. */
export function topicOf(run: string): string {
  return createHash('sha256').update(run).digest('base64url');
}

/**
 * Joins the instances of an app. A client gets each message once: from the instance that holds its
 * newest stream and has reported that to the others.
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
      .subscribe((text) => this.#receive(text), this.#leaving.signal)
      .then((leave) => {
        this.#hasJoined = true;
        return leave;
      })
      .catch((error: unknown) => {
        listener.onError(error);
        return undefined;
      });
  }

  /** Whether this instance receives from the others at the moment, as far as the bus knows. */
  get hears(): boolean {
    return this.#hasJoined && (this.#bus.hears?.() ?? true);
  }

  /** Sends a message on the newest stream of a session, here or on another instance. */
  notify(session: RelayedSession, message: JsonObject): void {
    if (session.streams.audible(this.#clock.now())) session.streams.send(message);
    else this.sendHint(session.run, { kind: 'notify', method: String(message.method) });
  }

  /** A stream was opened here: from now on this instance speaks to the client. */
  opened(session: RelayedSession): void {
    // Hosts' clocks differ: a stream is never older than one that this instance knows.
    session.streams.openedAt = Math.max(this.#clock.now(), session.streams.newestAt + 1);
    session.streams.newestAt = session.streams.openedAt;
    session.streams.mutedUntil = 0;
    const isFirst = this.#speaking.size === 0;
    this.#speaking.add(session);
    this.#announce(session);
    // A further stream of the only session that speaks must not start a second heartbeat.
    if (isFirst) this.#beat();
  }

  /** The last stream of a session closed here. */
  closed(session: RelayedSession): void {
    if (!this.#speaking.delete(session)) return;
    this.sendHint(session.run, { kind: 'silence' });
    if (this.#speaking.size === 0) this.#stopHeartbeat();
  }

  /**
   * Reports to every instance that lists of a run have changed, for all sessions that listen to it.
   *
   * @param session the one that the caller notifies itself
   */
  changed(run: string, lists: readonly ListKind[], session?: string): void {
    const onlyTools = lists.length === 1 && lists[0] === 'tools';
    const but = session === undefined ? {} : { but: topicOf(session) };
    this.sendHint(run, { kind: 'changed', ...(onlyTools ? {} : { lists: [...lists] }), ...but });
  }

  /** Stops listening, or the attempt to listen. */
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
    this.sendHint(run, { kind: 'stream', openedAt: streams.openedAt });
  }

  /** Sends the other instances a hint. A bus that is down, or throws, only loses it. */
  sendHint(run: string, hint: Hint): void {
    const sent = { v: 1, ...hint, to: topicOf(run), from: this.#self };
    const publish = async (): Promise<void> => this.#bus.publish(JSON.stringify(sent));
    publish().catch((error: unknown) => this.#listener.onError(error));
  }

  #receive(text: string): void {
    let hint: ParsedBy<typeof envelope> | undefined;
    try {
      // Another app, or another version, may have sent anything.
      hint = envelope().safeParse(JSON.parse(text)).data;
    } catch {}
    if (hint === undefined || hint.from === this.#self) return;
    const session = this.#listener.find(hint.to);
    if (hint.kind === 'changed') this.#listener.changed(hint.to, hint.lists ?? ['tools'], hint.but);
    else if (session !== undefined) this.#obey(session, hint);
  }

  #obey(session: RelayedSession, hint: ParsedBy<typeof envelope>): void {
    const { streams } = session;
    switch (hint.kind) {
      case 'notify':
        if (streams.audible(this.#clock.now()))
          streams.send({ jsonrpc: '2.0', method: hint.method });
        return;
      case 'stream':
        streams.newestAt = Math.max(streams.newestAt, hint.openedAt);
        // All instances agree on the order, even of two that were opened at the same time.
        if (
          hint.openedAt > streams.openedAt ||
          (hint.openedAt === streams.openedAt && hint.from > this.#self)
        ) {
          streams.mutedBy = hint.from;
          streams.mutedUntil = this.#clock.now() + 3 * HEARTBEAT_MS;
        }
        return;
      case 'silence':
        if (streams.mutedBy === hint.from) streams.mutedUntil = 0;
        return;
      case 'cancelled':
        session.cancel(hint.id);
        return;
      case 'called':
        session.noteCall(hint.hasId);
        return;
      case 'listed':
        session.noteList();
        return;
      case 'ended':
        this.#listener.ended(session);
    }
  }
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
  /** When the newest one that this instance knows of was opened, here or on another instance. */
  newestAt = 0;
  /** Until this time another instance, which has a newer stream, speaks to the client. */
  mutedUntil = 0;
  mutedBy = '';
  /** Messages that found no stream, the last one of each method, for the client's next stream. */
  readonly #undelivered = new Map<unknown, JsonObject>();

  get size(): number {
    return this.#open.length;
  }

  add(tap: Tap): void {
    if (this.#open.includes(tap)) return;
    this.#open.push(tap);
    for (const message of this.#undelivered.values()) tap.inject(message);
    this.#undelivered.clear();
  }

  remove(tap: Tap): void {
    const at = this.#open.indexOf(tap);
    if (at !== -1) this.#open.splice(at, 1);
  }

  /**
   * Sends on the newest stream: a client that reconnected may have left the older ones. `false`
   * where there is none, and the message waits for the next stream.
   */
  send(message: JsonObject): boolean {
    const newest = this.#open.at(-1);
    if (newest === undefined) this.#undelivered.set(message.method, message);
    else newest.inject(message);
    return newest !== undefined;
  }

  /** Whether this instance speaks to the client. */
  audible(now: number): boolean {
    return this.#open.length > 0 && now >= this.mutedUntil;
  }

  /** Ends all streams, for example when the session ends. */
  endAll(): void {
    for (const tap of this.#open.splice(0)) tap.abandon([]);
  }
}

/** The streams that stay open although their upstream is done. */
export class HeldStreams {
  readonly #clock: Clock;
  readonly #keepAliveMs: number;
  readonly #ends = new Set<() => void>();

  constructor({ clock, keepAliveMs }: { readonly clock: Clock; readonly keepAliveMs: number }) {
    this.#clock = clock;
    this.#keepAliveMs = keepAliveMs;
  }

  /**
   * Sends comments on a stream, and ends it with `last` when all are ended. The returned function
   * stops both.
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

/** Sends a comment on a stream at every interval, until the returned function is called. */
export function keepAlive(tap: Tap, clock: Clock, everyMs: number): () => void {
  let stop: () => void;
  const beat = (): void => {
    tap.keepAlive();
    stop = clock.after(everyMs, beat);
  };
  stop = clock.after(everyMs, beat);
  return () => stop();
}
