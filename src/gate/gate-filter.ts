import type { Admission } from '../session/run.ts';
import type { StepMove } from '../step/outcome.ts';
import { turnKey } from '../step/step.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { idKey, isObject, isRequestId, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { PageMemory } from '../wire/pages.ts';
import type { Tap } from '../wire/tap.ts';
import { after, inOrder, type MaybePromise } from '../wire/task-line.ts';
import type { GateConfig } from './config.ts';
import { Gates } from './gates.ts';
import {
  AS_IT_CAME,
  announcing,
  createdTask,
  type HeldCall,
  holdersOf,
  IDEMPOTENCY_KEY,
  saveOutcome,
  type Transform,
  unknownReply,
} from './held-call.ts';
import { Judge } from './judge.ts';
import { CachedLists } from './list-cache.ts';
import { declareListChanged, declaresChanges, ListenFilter, tellMoved } from './list-changes.ts';
import { ShownTools } from './lists.ts';
import { ReadFilter } from './reads.ts';
import { keepsSecrets } from './stands.ts';
import { carryOn, TaskFilter } from './tasks.ts';
import { ToldCalls } from './told-calls.ts';

const TOOLS = Buffer.from('"tools"');
const ESCAPED_ASCII = Buffer.from('\\u00');
const CHANGED = 'notifications/tools/list_changed';
const CHANGED_MARK = Buffer.from('list_changed');

/**
 * Has one gate join an exchange that was let in, and judges what it asks for: `false` where nothing
 * of it goes on.
 */
export function enterGate(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): MaybePromise<boolean> {
  if (config.events.isOn) ToldCalls.join(config, exchange, admission);
  const { bindsPrompts, bindsResources } = config.workflow.reads;
  if (!bindsPrompts && !bindsResources) return joinGate(config, exchange, admission);
  const reads = new ReadFilter(config, exchange, admission);
  exchange.join(reads);
  return after(reads.enter(), (goesOn) => goesOn && joinGate(config, exchange, admission));
}

function joinGate(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): MaybePromise<boolean> {
  const { lists, onError } = config;
  const gate = new GateFilter(config, exchange, admission);
  exchange.join(gate);
  if (lists !== undefined && (lists.isAsked || exchange.page !== undefined))
    exchange.join(new CachedLists(lists, exchange, admission, onError));
  const isListening = exchange.messages.some(({ method }) => method === 'subscriptions/listen');
  const listening = isListening && ListenFilter.of(config, exchange, admission);
  if (listening) exchange.join(listening);
  if (isListening || mayTellOfTasks(exchange))
    exchange.join(new TaskFilter(config, exchange, admission));
  return gate.enter();
}

/** Tasks are asked for, or told of on the stream that a client of a session listens to. */
function mayTellOfTasks({ req, messages }: Exchange): boolean {
  return req.method === 'GET' || messages.some(({ method }) => method?.startsWith('tasks/'));
}

/**
 * One gate's part in one exchange: it refuses or claims on the way in, filters and commits on the
 * way out.
 */
class GateFilter implements Filter {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  #shown: ShownTools | undefined;
  /** Whether answers may be about what is hidden. */
  readonly #rewrites: boolean;
  /** Whether this asks what the server can do, and its list can change. */
  readonly #declares: boolean;
  #calls: Map<string, HeldCall> | undefined;
  /** Called when no client waits any more. */
  #answered: (() => void) | undefined;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#rewrites =
      config.refusal === 'unknown-tool' &&
      mayAskForHidden(exchange) &&
      keepsSecrets(config, admission);
    this.#declares =
      exchange.messages[0]?.method !== 'tools/call' && declaresChanges(config, exchange, admission);
  }

  /**
   * Judges each call of the request; `false` where the request was answered as a whole. In the same
   * turn, where none of the calls is gated.
   */
  enter(): MaybePromise<boolean> {
    let isGated = false;
    for (const incoming of this.#exchange.messages) {
      if (incoming.method !== 'tools/call') continue;
      // A call without an id has no answer, so it cannot be refused. An upstream that would run it
      // must not see it.
      if (incoming.kind === 'notification') void incoming.drop();
      else if (incoming.kind === 'request' && !isPassing(incoming, this.#config)) isGated = true;
    }
    return !isGated || this.#judgeAll();
  }

  #judgeAll(): MaybePromise<boolean> {
    const judge = new Judge(this.#config, this.#exchange, this.#admission);
    let hasEnded = false;
    const judged = inOrder(this.#exchange.forwardable, (incoming) => {
      if (hasEnded || incoming.method !== 'tools/call') return undefined;
      const verdict = judge.judge(incoming, (id, isOver) => this.#giveUp(id, isOver));
      return after(verdict, (said) => {
        if (said === 'ended') hasEnded = true;
        else if (typeof said === 'object') this.#begin(incoming, said);
      });
    });
    return after(judged, () => {
      if (hasEnded) return false;
      // Judging took time: a lease may have ended, or the client gone.
      const steps = this.#exchange.forwardable.filter((each) => holdersOf(each).length > 0);
      const forwarded = inOrder(steps, (incoming) => this.#forward(incoming, judge));
      return after(forwarded, () => true);
    });
  }

  /** Nothing was forwarded yet: from here on a call's steps may have their effect. */
  #forward(incoming: Call, judge: Judge): MaybePromise<void> {
    const held = holdersOf(incoming);
    return after(keepsClaims(held), (isKept) => {
      if (this.#isCancelled(incoming)) return incoming.drop();
      if (!isKept) return judge.refuseLate(incoming);
      for (const { step } of held) step.forward();
    });
  }

  #begin(incoming: Call, call: HeldCall): void {
    this.#calls ??= new Map();
    this.#calls.set(idKey(call.id), call);
    incoming.holders = [...incoming.holders, call];
    this.#answered ??= call.run.turns.answering();
    // In the session era a disconnect "SHOULD NOT be interpreted as the client cancelling its
    // request"; in the stateless era it is that.
    if (call.era === 'session') this.#exchange.tap.withholdClose();
  }

  /** Whether a call that holds a claim was cancelled since, or its client is gone. */
  #isCancelled({ id }: Call): boolean {
    if (id === undefined) return false;
    return this.#exchange.isGone || this.#admission.session.inFlight(id)?.cancelled === true;
  }

  wants(bytes: Buffer): boolean {
    return (
      this.#calls !== undefined ||
      this.#rewrites ||
      this.#declares ||
      bytes.includes(TOOLS) ||
      bytes.includes(ESCAPED_ASCII) ||
      // Also while no list is kept: one may be on its way that has changed since.
      (this.#config.lists?.isUsed === true && bytes.includes(CHANGED_MARK))
    );
  }

  onMessage(message: Message): MaybePromise<void> {
    if (this.#rewrites) {
      this.#config.aliases.takeOut(message);
      // An answer about what does not exist would keep its length, its tag and its line ends.
      message.rewrite();
    }
    const { id, method, result } = message.value;
    // The upstream's own: what the gates put on its streams does not come here.
    if (method === CHANGED) this.#config.lists?.drop();
    if (method !== undefined) return this.#noteQuestion(id);
    const call = isRequestId(id) ? this.#calls?.get(idKey(id)) : undefined;
    if (call?.isWithdrawn === false) return this.#deliver(call, message);
    if (!isObject(result)) return;
    // By its shape and not by who asked: a replay, or two requests of one id, must not leak a list.
    if (Array.isArray(result.tools)) return this.#tools.show(message);
    if (this.#declares) declareListChanged(message, ['tools']);
  }

  get #tools(): ShownTools {
    this.#shown ??= new ShownTools(this.#config, this.#exchange, this.#admission);
    return this.#shown;
  }

  get pages(): PageMemory {
    return this.#config.pages;
  }

  pageKey(): MaybePromise<string | undefined> {
    return this.#rewrites ? undefined : this.#tools.key();
  }

  forgetKey(): void {
    this.#shown?.forget();
  }

  /**
   * No response came. Where the stream can be resumed it comes there; else the outcome is unknown.
   */
  onEnd(): MaybePromise<JsonObject[]> {
    const open = this.#unanswered;
    if (open.length === 0) return [];
    if (isRejection(this.#exchange.tap)) {
      return after(
        inOrder(open, ({ step }) => step.withdraw('rejected')),
        () => [],
      );
    }
    if (this.#isResumable) {
      for (const call of open) this.#expectLate(call);
      return [];
    }
    for (const { step } of open) step.giveUp();
    return open.map((call) => unknownReply(call, false));
  }

  /**
   * The upstream should not answer then. A result that comes all the same is shown to no client.
   */
  onNotForwarded(): Promise<unknown> {
    const releasing = this.#unanswered.map((call) => {
      call.transform = (message) => {
        if (message.value.result === undefined) return;
        call.step.tellUnknown('it was answered after notForwarded()', false);
        message.replace(unknownReply(call, false));
      };
      return call.step.withdraw('not_forwarded');
    });
    return Promise.all(releasing);
  }

  onUnreadable(): void {
    for (const call of this.#unanswered) this.#abandon(call);
  }

  onDepart(): void {
    this.#answered?.();
    this.#admission.session.departed.add(this.#exchange.tap);
  }

  onClose(): void {
    const { tap } = this.#exchange;
    this.#answered?.();
    this.#admission.session.departed.delete(tap);
    for (const call of this.#unanswered) {
      if (!this.#isResumable) this.#abandon(call);
      else if (!tap.ended) this.#expectLate(call);
    }
  }

  /** No answer will come. While a gate behind judges the call, it has not reached the upstream. */
  #abandon({ step }: HeldCall): void {
    if (this.#exchange.isJudged) void step.withdraw();
    else step.giveUp();
  }

  /** There is no resumption in the stateless era, whatever ids an upstream's events have. */
  get #isResumable(): boolean {
    return this.#exchange.tap.resumable && this.#admission.era === 'session';
  }

  /** Calls that the upstream has not answered; their clients may have been answered by the gate. */
  get #unanswered(): HeldCall[] {
    if (this.#calls === undefined) return [];
    return [...this.#calls.values()].filter(
      ({ transform, isWithdrawn }) => transform === undefined && !isWithdrawn,
    );
  }

  #expectLate(call: HeldCall): void {
    this.#admission.session.late.expect(call.id, this.#config.workflow.id, (message) =>
      this.#deliver(call, message),
    );
  }

  /**
   * Settles the outcome at the first response, and changes each replay of it in the same way. Here
   * the client's answer waits until its move is saved.
   */
  #deliver(call: HeldCall, message: Message): MaybePromise<void> {
    if (call.transform === undefined) {
      call.transform = this.#announced(call, this.#changeFor(call, message));
      if (this.#isResumable) expectReplays(call, this.#admission.session);
    }
    return after(call.transform, (transform) => transform(message));
  }

  #changeFor(call: HeldCall, message: Message): MaybePromise<Transform> {
    if (message.value.error !== undefined && isRejection(this.#exchange.tap))
      return after(call.step.withdraw('rejected'), () => AS_IT_CAME);
    const task = createdTask(message);
    if (task !== undefined) return carryOn(call, task, this.#admission);
    const on = { exchange: this.#exchange, message };
    const onMoved = (move: StepMove, isLate: boolean): void =>
      tellMoved(this.#config, this.#admission, call.run, move, isLate ? undefined : on);
    return saveOutcome(call, message, onMoved, true);
  }

  /**
   * Where several gates announce where one call led, the last one speaks for all: only then it is
   * known what all allow.
   */
  #announced(call: HeldCall, transform: MaybePromise<Transform>): MaybePromise<Transform> {
    const incoming = this.#exchange.messages.find(({ id }) => id === call.id);
    const held = incoming === undefined ? [] : holdersOf(incoming);
    if (held.at(-1) !== call) return transform;
    return announcing(transform, held, (config) => Gates.of(config, this.#exchange));
  }

  /**
   * A question of the upstream's to its client, in the middle of a step. A call that waits for the
   * step would wait for the client, which may in turn wait for that call.
   */
  #noteQuestion(id: unknown): void {
    if (!isRequestId(id)) return;
    const { session } = this.#admission;
    for (const { run, step } of this.#unanswered) {
      if (step.hasClaim) session.onAnswer(id, run.turns.refuseOthers(turnKey(step.key)));
    }
  }

  /**
   * The step was cancelled and did not stop, or took too long: the client is told that its outcome
   * is unknown. The upstream goes on, and what it says late is saved. `isOver`: it took too long.
   */
  #giveUp(id: RequestId, isOver: boolean): void {
    const call = this.#calls?.get(idKey(id));
    if (call === undefined || call.isWithdrawn || call.transform !== undefined) return;
    const { tap } = this.#exchange;
    if (this.#exchange.isJudged && !isOver) {
      this.#abandon(call);
      return;
    }
    if (call.step.state === 'forwarded') tap.abandon([unknownReply(call, false)]);
    call.step.giveUp(!isOver);
    if (isOver) tap.releaseClose();
  }
}

/**
 * Whether a gate has nothing to say of a call, by its tool alone. Takes out of it what only a gate
 * may set: a handler must be able to trust the key.
 */
function isPassing(incoming: Call, { workflow, status }: GateConfig): boolean {
  const { message } = incoming;
  if (
    message.at('params', '_meta', IDEMPOTENCY_KEY) !== undefined &&
    holdersOf(incoming).length === 0
  )
    message.remove(['params', '_meta'], IDEMPOTENCY_KEY);
  const tool = message.at('params', 'name');
  return typeof tool === 'string' && !workflow.isBound(tool) && tool !== status?.name;
}

/** Whether a call still has the claims that it is to be forwarded with, of all gates so far. */
function keepsClaims(held: readonly HeldCall[]): MaybePromise<boolean> {
  const kept = held.map(({ step }) => step.confirm());
  return (
    kept.every((each) => each === true) || Promise.all(kept).then((all) => !all.includes(false))
  );
}

/**
 * Has each replay changed as the first answer was. It keeps what it takes to do that, and no
 * request.
 */
function expectReplays(
  { id, transform, config }: Pick<HeldCall, 'id' | 'transform' | 'config'>,
  { late }: Admission['session'],
): void {
  let known = transform;
  late.expect(id, config.workflow.id, (message) => after(known, (change) => change?.(message)));
  // A promise keeps the context that it was made in, and with it the whole step.
  const learn = (change: Transform | undefined): void => {
    known = change;
  };
  Promise.resolve(transform).then(learn, () => {});
}

/**
 * nginx's "client closed request", which SDK v2 says when the client has left: the handler may have
 * run.
 */
const CLIENT_LEFT = 499;

/** The upstream's transport turned the request away (RFC 9110, section 15.5): nothing ran. */
function isRejection({ res: { statusCode }, departed }: Tap): boolean {
  return statusCode >= 400 && statusCode < 500 && statusCode !== CLIENT_LEFT && !departed;
}

const ASKING = new Set([
  'tools/call',
  'prompts/get',
  'resources/read',
  'resources/subscribe',
  'completion/complete',
  'subscriptions/listen',
]);

/** On a GET, answers to earlier requests come again. */
function mayAskForHidden({ req, requests }: Exchange): boolean {
  return req.method === 'GET' || requests.some(({ method }) => ASKING.has(method ?? ''));
}
