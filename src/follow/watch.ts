/**
 * Watches the requests of a route whose gates enforce nothing. Hides how a call is joined to its
 * answer, and that nothing of it happens before the client has what it asked for.
 */

import { newSessionId, SESSION_HEADER } from '../basics/names.ts';
import { outcomeOf } from '../gate/claimed-call.ts';
import type { GateConfig } from '../gate/config.ts';
import { isBoundBy } from '../gate/gates.ts';
import { ReportedRequests } from '../gate/reported-requests.ts';
import { showObserved } from '../session/current-step.ts';
import type { Admission, Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import type { Sessions } from '../session/sessions.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { exposing, requestHeader } from '../wire/headers.ts';
import { isObject, type JsonObject } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { ResponseWatcher, SeenHead, SeenRequest } from '../wire/witness.ts';
import { type ObservedEnd, Observer } from './observer.ts';

const observers = new WeakMap<GateConfig, Observer>();

function observerOf(config: GateConfig): Observer {
  const known = observers.get(config) ?? new Observer(config);
  observers.set(config, known);
  return known;
}

/** Requests whose answers report sessions and tools to a gate. */
const REVEALING: ReadonlySet<unknown> = new Set(['initialize', 'tools/list']);

/** What the middlewares of a route keep with a request that passes as it is. */
export interface WatchNotes {
  /** Those of the `sessionStore()` in front. */
  sessions?: Sessions | undefined;
  watched?: WatchedRequest;
}

/** One request that passes as it is, and its response. */
export class WatchedRequest implements ResponseWatcher {
  readonly #sessions: Sessions;
  readonly #seen: SeenRequest;
  readonly #configs: GateConfig[] = [];
  readonly #admission: MaybePromise<Admission>;
  readonly #open = new Map<Call, readonly ObservedEnd[]>();
  #last: MaybePromise<void>;
  /** Handlers find their steps until the response is over. */
  readonly #hide: (() => void)[] = [];
  /** Publishes the events of its requests. */
  #reported: ReportedRequests | undefined;
  #minted: string | undefined;
  #adopted: string | undefined;
  /** Watches the response; `undefined` once it is watched. Many answers say nothing to a gate. */
  #watch: ((watcher: ResponseWatcher) => void) | undefined;

  constructor(sessions: Sessions, seen: SeenRequest, watch: (watcher: ResponseWatcher) => void) {
    this.#sessions = sessions;
    this.#seen = seen;
    this.#watch = watch;
    this.#admission = sessions.watch(seen);
    // Those that need it get its failure. Where none does, it must not end the process.
    if (isPromise(this.#admission)) this.#admission.catch(() => {});
    this.#last = undefined;
    const isRevealing = seen.messages.some(({ method }) => REVEALING.has(method));
    if (isRevealing || seen.req.method === 'DELETE') this.#needResponse();
  }

  #needResponse(): void {
    const watch = this.#watch;
    this.#watch = undefined;
    watch?.(this);
  }

  /** Another gate of the route observes it too. */
  add(config: GateConfig): void {
    if (this.#configs.includes(config)) return;
    this.#configs.push(config);
    const observer = observerOf(config);
    if (this.#seen.isUnread) observer.seen.passed('unread');
    if (config.events.isOn && this.#configs.length === 1) {
      this.#needResponse();
      this.#then((admission) => {
        const requests = this.#seen.messages.filter(({ kind }) => kind === 'request');
        this.#reported = ReportedRequests.of(config, { req: this.#seen.req, requests }, admission);
      });
    }
    const { req, source } = this.#seen;
    const session = requestHeader(req, SESSION_HEADER);
    for (const call of this.#calls) {
      const run = isPromise(this.#admission) ? session : runKeyOf(this.#admission.runOf(call));
      // Now: its handler may ask for it before the run is found.
      const step = observer.stepOf(call, run ?? '');
      if (step === undefined) continue;
      this.#needResponse();
      if (step.isShown) this.#hide.push(showObserved(call, step, source, session));
      this.#then((admission) => {
        const observed = observer.started(call, admission.runOf(call), step);
        if (observed !== undefined)
          this.#open.set(call, [...(this.#open.get(call) ?? []), observed]);
      });
    }
  }

  get #calls(): readonly Call[] {
    return this.#seen.messages.filter(
      ({ kind, method }) => kind === 'request' && method === 'tools/call',
    );
  }

  get #isHandshake(): boolean {
    return this.#seen.messages[0]?.method === 'initialize';
  }

  onHead(head: SeenHead): void {
    if (!this.#isHandshake || head.status >= 300) return;
    this.#adopted = head.get(SESSION_HEADER);
    if (this.#adopted !== undefined || !this.#sessions.needsIds) return;
    this.#minted = newSessionId();
    head.add(SESSION_HEADER, this.#minted);
    exposeSession(head);
  }

  onMessage(message: Message): void {
    const { id, result, method } = message.value;
    if (method !== undefined) return;
    this.#then(() => this.#reported?.onMessage(message));
    if (isObject(result)) {
      this.#noteHandshake(id);
      if (Array.isArray(result.tools)) this.#noteTools(result);
    }
    const call = this.#calls.find((each) => each.id === id);
    if (call === undefined) return;
    this.#then(() => {
      for (const each of this.#open.get(call) ?? []) void each.ended(outcomeOf(message));
      this.#open.delete(call);
    });
  }

  onEnd(): void {
    if (this.#seen.req.method === 'DELETE')
      this.#then((admission) => this.#sessions.watchEnded(admission));
    this.#then(() => {
      for (const observed of this.#open.values())
        for (const each of observed) void each.ended(undefined);
      this.#open.clear();
      for (const hide of this.#hide) hide();
      this.#reported?.onClose();
    });
  }

  #noteHandshake(id: unknown): void {
    const opened = this.#adopted ?? this.#minted;
    if (!this.#isHandshake || id !== this.#seen.messages[0]?.id || opened === undefined) return;
    this.#sessions.watchOpened(opened, this.#adopted === undefined, this.#seen);
  }

  /** What the server's own list says of its tools: which may be repeated, and which are missing. */
  #noteTools({ tools, nextCursor }: JsonObject): void {
    if (!Array.isArray(tools)) return;
    for (const { listed, warnOnce } of this.#configs)
      listed.note(tools, undefined, nextCursor === undefined, warnOnce);
  }

  /** Behind all that was to be done before. */
  #then(task: (admission: Admission) => void): void {
    const next = after(this.#last, () => after(this.#admission, task));
    this.#last = isPromise(next)
      ? next.catch((error: unknown) => this.#configs[0]?.onError(error))
      : undefined;
  }
}

/** A call of a request that gates of its route may answer or change. */
class ObservedAnswer implements Filter {
  readonly stage = 'gate';
  readonly #call: Call;
  readonly #observed: ObservedEnd;
  readonly #isAwaited: boolean;
  readonly #hide: () => void;
  #isOver = false;

  constructor(call: Call, observed: ObservedEnd, isAwaited: boolean, hide: () => void) {
    this.#call = call;
    this.#observed = observed;
    this.#isAwaited = isAwaited;
    this.#hide = hide;
  }

  wants(): boolean {
    return !this.#isOver;
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method } = message.value;
    if (method !== undefined || id !== this.#call.id) return;
    const saved = this.#observed.ended(outcomeOf(message));
    this.#end();
    return this.#isAwaited ? saved : undefined;
  }

  onEnd(): JsonObject[] {
    this.onClose();
    return [];
  }

  onUnreadable(): void {
    this.onClose();
  }

  async onNotForwarded(): Promise<void> {
    this.#observed.dropped();
    this.#end();
  }

  onClose(): void {
    if (this.#isOver) return;
    if (this.#call.isForwardable) void this.#observed.ended(undefined);
    else this.#observed.dropped();
    this.#end();
  }

  #end(): void {
    this.#isOver = true;
    this.#hide();
  }
}

/** Judges a call that a gate lets through as it is, in a request that others may change. */
export const observeCall: GateConfig['observe'] = (config, exchange, incoming, run, isAwaited) => {
  const observed = observerOf(config).started(incoming, run);
  if (observed === undefined) return;
  const { req } = exchange;
  const { step } = observed;
  const session = requestHeader(req, SESSION_HEADER);
  const hide = step.isShown ? showObserved(incoming, step, req, session) : () => {};
  exchange.join(new ObservedAnswer(incoming, observed, isAwaited, hide));
};

/** Judges all bound calls of a request that passes a gate as it is. */
export function observeAll(config: GateConfig, exchange: Exchange, admission: Admission): void {
  if (config.events.isOn) ReportedRequests.join(config, exchange, admission);
  for (const call of exchange.forwardable) {
    if (call.method !== 'tools/call' || call.kind !== 'request') continue;
    const tool = call.named;
    if (typeof tool === 'string' && isBoundBy(config, tool, exchange, admission))
      observeCall(config, exchange, call, admission.runOf(call), false);
  }
}

function runKeyOf(run: Run | NoRun): string | undefined {
  return 'run' in run ? run.run : undefined;
}

/** A page reads our header of another origin's answer only where that one says so. */
function exposeSession(head: SeenHead): void {
  if (head.get('access-control-allow-origin') === undefined) return;
  const exposed = head.get('access-control-expose-headers') ?? '';
  const all = exposing(exposed, 'Mcp-Session-Id');
  if (all !== undefined) head.add('access-control-expose-headers', all);
}
