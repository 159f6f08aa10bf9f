/**
 * One gate's part in one exchange, from its requests to the end of its response. Hides which answer
 * belongs to which claimed call, and what becomes of the calls whose answers do not come.
 */
import type { Admission } from '../session/run.ts';
import type { StepMove } from '../step/outcome.ts';
import { turnKey } from '../step/turns.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { ESCAPED_ASCII, type Filter, TOOLS_MARK } from '../wire/filter.ts';
import {
  IDEMPOTENCY_KEY,
  isObject,
  isRequestId,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { PageMemory } from '../wire/pages.ts';
import { provesNothingRan } from '../wire/rejections.ts';
import { after, inOrder, isPromise, type MaybePromise, resume } from '../wire/task-line.ts';
import {
  AnswerHolder,
  AS_IT_CAME,
  announcing,
  ClaimedCall,
  createdTask,
  holdersOf,
  outcomeOf,
  replacing,
  saveOutcome,
  type Transform,
  unknownReply,
} from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { type RefusedAt, stopNow } from './decide.ts';
import { Gates } from './gates.ts';
import { Judge } from './judge.ts';
import { CachedLists } from './list-cache.ts';
import {
  declareListChanged,
  declaresChanges,
  ListenFilter,
  notifyLists,
  notifyMoved,
  notifyTurned,
} from './list-changes.ts';
import { ShownTools } from './lists.ts';
import { modeNow } from './mode.ts';
import type { Course } from './play.ts';
import { ReadFilter } from './reads.ts';
import { type AwaitedAnswer, type PassedLookup, RecordedLookup } from './recorded-call.ts';
import { ReportedRequests } from './reported-requests.ts';
import { carryOn, recordLater, TaskFilter } from './tasks.ts';
import { keepsSecrets, REVEALING_CALLS, visibilityFor } from './visibility.ts';

/** What one gate has made of a call that it lets through. */
type Gated = AwaitedAnswer | PassedLookup;

/** Why a call that was let through is not forwarded, and the gate whose reason it is. */
interface LateStop {
  readonly config: GateConfig;
  readonly why: RefusedAt;
}

const TURN_ENDED: RefusedAt = {
  reason: 'unavailable',
  cause: 'its turn ended before it began',
};

/** How often a call that is to be forwarded may wait for the renewal of a lease. */
const MOST_WAITS = 2;

const NONE: readonly AwaitedAnswer[] = [];
const OF_TOOLS = ['tools'] as const;
const CHANGED = 'notifications/tools/list_changed';
const CHANGED_MARK = Buffer.from('list_changed');

/**
 * Adds one gate to an exchange, and judges its requests. `false` where the gate answered all of
 * them, so that nothing is forwarded.
 */
export function enterGate(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): MaybePromise<boolean> {
  if (config.events.isOn) ReportedRequests.join(config, exchange, admission);
  if (admission.isTurn) notifyTurned(config, admission);
  const { bindsPrompts, bindsResources } = config.workflow.reads;
  const isOpen = modeNow(config, admission.store) === false;
  if ((!bindsPrompts && !bindsResources) || isOpen) return joinGate(config, exchange, admission);
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
  let isListening = false;
  // The client asks for a task, or opens the stream on which its session is notified of tasks.
  let isAboutTasks = exchange.req.method === 'GET';
  for (const { method } of exchange.messages) {
    isListening ||= method === 'subscriptions/listen';
    isAboutTasks ||= method?.startsWith('tasks/') === true;
  }
  const listening = isListening && ListenFilter.of(config, exchange, admission);
  if (listening) exchange.join(listening);
  if (isListening || isAboutTasks) exchange.join(new TaskFilter(config, exchange, admission));
  return gate.enter();
}

/**
 * On the way in it refuses calls or claims their runs; on the way out it filters lists and commits
 * what calls came to.
 */
class GateFilter implements Filter {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  #shown: ShownTools | undefined;
  /** Whether an answer may name a tool, prompt or resource that is hidden. */
  readonly #rewrites: boolean;
  /** Whether the client asks for the server's capabilities, and its lists can change. */
  readonly #declares: boolean;
  #calls: readonly AwaitedAnswer[] = NONE;
  /** Known once an error answer is whole: the app is asked once. */
  #isProven: boolean | undefined;
  /** Called once no client waits for an answer of this exchange any more. */
  #onAnswered: (() => void) | undefined;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#rewrites =
      config.refusal === 'unknown-tool' &&
      // A GET may replay the answers to earlier requests.
      (exchange.req.method === 'GET' || exchange.requests.some(namesSomething)) &&
      (config.unbound === 'refuse' ||
        config.workflow.outside.size > 0 ||
        keepsSecrets(config, admission));
    this.#declares =
      exchange.messages[0]?.method !== 'tools/call' && declaresChanges(config, exchange, admission);
  }

  /**
   * Judges each call of the request; `false` where the gate answered the whole request. Gives no
   * promise where none of the calls is gated.
   */
  enter(): MaybePromise<boolean> {
    const config = this.#config;
    const { callsSinceNotified } = this.#admission.session;
    // Once for each session: a batch that counts past it leaves this to the next session.
    const isRevealing = callsSinceNotified === REVEALING_CALLS;
    if (isRevealing && this.#exchange.messages[0]?.method === 'tools/call') this.#reportOldList();
    let isGated = false;
    for (const incoming of this.#exchange.messages) {
      if (incoming.method !== 'tools/call') continue;
      // A call without an id gets no answer, so a refusal would be lost. An upstream might run it.
      if (incoming.kind === 'notification') void incoming.drop();
      else if (incoming.kind === 'request') {
        removeClientsKey(incoming);
        isGated ||= needsJudge(incoming, config);
      }
    }
    return !isGated || this.#judgeAll(new Judge(config, this.#exchange, this.#admission));
  }

  /** Not where tools are secret: a list of all tools would give them away. */
  #reportOldList(): void {
    const config = this.#config;
    const isHiding = visibilityFor(config, this.#admission) === 'hide';
    if (isHiding && config.refusal === 'explain')
      config.clients.warnOf(this.#admission.session, config, 'calls');
  }

  /** Judges the calls one after another, from `at` on. */
  #judgeAll(
    judge: Judge,
    calls: readonly Call[] = this.#exchange.forwardable,
    at = 0,
  ): MaybePromise<boolean> {
    for (let next = at; next < calls.length; next++) {
      const incoming = calls[next];
      if (incoming?.method !== 'tools/call') continue;
      const verdict = judge.judge(incoming, (id, isTooLong) => this.#giveUp(id, isTooLong));
      if (isPromise(verdict))
        return verdict.then(
          (said) => this.#goesOn(incoming, said) && this.#judgeAll(judge, calls, next + 1),
        );
      if (!this.#goesOn(incoming, verdict)) return false;
    }
    return this.#confirmAll(judge);
  }

  /** `false` where the gate answered the whole request. */
  #goesOn(incoming: Call, verdict: Course): boolean {
    if (typeof verdict === 'object') {
      this.#calls = [...this.#calls, verdict];
      incoming.holders = [...incoming.holders, verdict];
      this.#onAnswered ??= verdict.run.turns.answering();
      // In the session era a disconnect "SHOULD NOT be interpreted as the client cancelling its
      // request". In the stateless era it is a cancellation.
      if (verdict instanceof ClaimedCall && verdict.era === 'session')
        this.#exchange.tap.withholdClose();
    }
    return verdict !== 'ended';
  }

  /** Judging took time: meanwhile a lease may have ended, or the client may have left. */
  #confirmAll(judge: Judge): MaybePromise<boolean> {
    const held = this.#exchange.messages.filter(hasHolders);
    if (held.length === 0) return true;
    const confirmed = inOrder(held, (incoming) =>
      resume(this.#stopOf(incoming), this, this.#confirm, incoming, judge),
    );
    return confirmed === undefined || confirmed.then(() => true);
  }

  /**
   * What operators have stopped of a call's workflows. The gate asks last, since a call may have
   * waited for another gate's claim, for guards, or for another call of its request.
   */
  #stopOf(incoming: Call, from = 0): MaybePromise<LateStop | undefined> {
    const holders = gatedOf(incoming);
    const asked = { tool: String(incoming.named) };
    for (let next = from; next < holders.length; next++) {
      const { config, standing } = holders[next] as Gated;
      const why = standing && stopNow(standing, asked);
      if (isPromise(why))
        return why.then((stop) =>
          stop === undefined ? this.#stopOf(incoming, next + 1) : { config, why: stop },
        );
      if (why !== undefined) return { config, why };
    }
    return undefined;
  }

  /** @param waits how often it has waited for a lease */
  #confirm(
    stop: LateStop | undefined,
    incoming: Call,
    judge: Judge,
    waits = 0,
  ): MaybePromise<void> {
    const isAwaited = incoming.holders.some((each) => each instanceof AnswerHolder);
    if (stop !== undefined && !(isAwaited && this.#isCancelled(incoming)))
      return new Judge(stop.config, this.#exchange, this.#admission).refuseLate(incoming, stop.why);
    if (!isAwaited) return undefined;
    const kept = keepsClaims(holdersOf(incoming));
    if (!isPromise(kept)) return this.#sendOn(kept, incoming, judge);
    return kept.then((isKept) =>
      // Operators may have stopped it meanwhile.
      isKept && waits < MOST_WAITS
        ? after(this.#stopOf(incoming), (late) => this.#confirm(late, incoming, judge, waits + 1))
        : this.#sendOn(isKept, incoming, judge),
    );
  }

  /** Lets the steps of a call go on, if its client still waits and its claims still hold. */
  #sendOn(isKept: boolean, incoming: Call, judge: Judge): MaybePromise<void> {
    if (this.#isCancelled(incoming)) {
      // Of a response that was over before, this filter gets no end any more.
      if (this.#exchange.tap.closed) this.#onAnswered?.();
      return incoming.drop();
    }
    if (!isKept) return judge.refuseLate(incoming, TURN_ENDED);
    for (const { step } of holdersOf(incoming)) step.forward();
  }

  /** Whether the client cancelled the call, left, or has its answer from the app. */
  #isCancelled({ id }: Call): boolean {
    if (id === undefined) return false;
    const { isGone, tap } = this.#exchange;
    return isGone || tap.closed || this.#admission.session.inFlight(id)?.cancelled === true;
  }

  wants(bytes: Buffer): boolean {
    return (
      this.#calls.length > 0 ||
      this.#rewrites ||
      this.#declares ||
      bytes.includes(TOOLS_MARK) ||
      bytes.includes(ESCAPED_ASCII) ||
      // Also while no list is kept: one may be on its way that has changed since.
      (this.#config.lists?.isUsed === true && bytes.includes(CHANGED_MARK))
    );
  }

  onMessage(message: Message): MaybePromise<void> {
    if (this.#rewrites) {
      this.#config.aliases.takeOut(message);
      // Else the upstream's length, tag and line ends would distinguish hidden tools from absent
      // ones.
      message.rewrite();
    }
    const { id, method, result } = message.value;
    // Only the upstream's messages come here: what gates themselves announce keeps the cache.
    if (method === CHANGED) this.#config.lists?.drop();
    if (method !== undefined) return this.#noteQuestion(id);
    const call = this.#calls.find((each) => each.id === id);
    if (call?.isWithdrawn === false) return this.#saveAndChange(call, message);
    if (!isObject(result)) return;
    // Filter every list, also where none was asked for: a replay, or two requests of one id, must
    // not leak one.
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

  /** The stream ended. Missing answers come where it is resumed; else their outcome is unknown. */
  onEnd(): MaybePromise<JsonObject[]> {
    if (this.#isResumable) this.#expectRecorded();
    const open = this.#unanswered;
    if (open.length === 0) return [];
    if (this.#neverRan) {
      return after(
        inOrder(open, ({ step }) => step.withdraw('rejected')),
        () => [],
      );
    }
    if (this.#isResumable) {
      for (const call of open) this.#expectLate(call);
      return [];
    }
    return open.map((call) => this.#lose(call));
  }

  holdsErrors(): boolean {
    return this.#unanswered.length > 0;
  }

  /** Whether the answer is an error that proves that nothing of the request ran. */
  get #neverRan(): boolean {
    const { tap, requests } = this.#exchange;
    const { res, heldError: body, departed } = tap;
    if (body === undefined || departed) return false;
    this.#isProven ??= provesNothingRan(
      { res, body, ids: requests.map(({ id }) => id) },
      this.#config,
    );
    return this.#isProven;
  }

  /** The answer says nothing of the outcome. Gives what the client reads in its place. */
  #lose(call: ClaimedCall): JsonObject {
    const { tap } = this.#exchange;
    const { statusCode: status } = tap.res;
    const isError = status >= 300;
    call.step.giveUp(false, isError ? `the upstream answered with HTTP ${status}` : undefined);
    if (isError) tap.showBody();
    return unknownReply(call, false);
  }

  /** The upstream should not answer after that. If it does, the client does not see the result. */
  onNotForwarded(): Promise<unknown> {
    const releasing = this.#unanswered.map((call) => {
      call.transform = (message) => {
        if (message.value.result === undefined) return;
        const why = 'it was answered after notForwarded()';
        call.step.reportUnknown(why, { ran: true, waits: false });
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
    this.#onAnswered?.();
    this.#admission.session.departed.add(this.#exchange.tap);
  }

  onClose(): void {
    const { tap } = this.#exchange;
    this.#onAnswered?.();
    for (const call of this.#calls) if (call instanceof RecordedLookup) call.over();
    this.#admission.session.departed.delete(tap);
    if (this.#isResumable && !tap.ended) this.#expectRecorded();
    for (const call of this.#unanswered) {
      if (!this.#isResumable) this.#abandon(call);
      else if (!tap.ended) this.#expectLate(call);
    }
  }

  /** No answer will come. A call that a later gate still judges has not reached the upstream. */
  #abandon({ step }: ClaimedCall): void {
    if (this.#exchange.isJudged) void step.withdraw();
    else step.giveUp();
  }

  /** The stateless era has no resumption, even where the upstream's events have ids. */
  get #isResumable(): boolean {
    return this.#exchange.tap.resumable && this.#admission.era === 'session';
  }

  /** Calls that the upstream has not answered. The gate itself may have answered their clients. */
  get #unanswered(): ClaimedCall[] {
    const open: ClaimedCall[] = [];
    for (const call of this.#calls)
      if (call instanceof ClaimedCall && call.transform === undefined && !call.isWithdrawn)
        open.push(call);
    return open;
  }

  /** The answers come where the stream is resumed, and are recorded before the client has them. */
  #expectRecorded(): void {
    for (const call of this.#calls)
      if (call instanceof RecordedLookup && call.transform === undefined && !call.isWithdrawn)
        this.#expectLate(call);
  }

  #expectLate(call: AwaitedAnswer): void {
    const { late } = this.#admission.session;
    const apply = (message: Message): MaybePromise<void> => this.#saveAndChange(call, message);
    late.expect(call.id, this.#config.workflow.id, apply, () => call.stake);
  }

  /**
   * Saves what the call came to at its first answer, and changes each replay of it in the same way.
   * The client's answer waits here until the move is saved.
   */
  #saveAndChange(call: AwaitedAnswer, message: Message): MaybePromise<void> {
    if (call.transform === undefined) {
      call.transform = this.#announced(call, this.#changeFor(call, message));
      if (this.#isResumable) expectReplays(call, this.#admission.session);
    }
    return after(call.transform, (transform) => transform(message));
  }

  /** Saves what the first answer says, and gives its change. */
  #changeFor(call: AwaitedAnswer, message: Message): MaybePromise<Transform> {
    const on = { exchange: this.#exchange, message };
    // Lists leave a held run's steps out: an outcome that comes late brings them back.
    const lists = call instanceof ClaimedCall && call.step.isUnknown ? OF_TOOLS : undefined;
    const onMoved = (move: StepMove, isLate = false): void => {
      const reported = lists === undefined ? move : { ...move, lists };
      notifyMoved(this.#config, this.#admission, call.run, reported, isLate ? undefined : on);
    };
    if (call instanceof RecordedLookup) {
      const task = createdTask(message);
      const incoming = this.#exchange.messages.find(({ id }) => id === call.id);
      call.isStepElsewhere = incoming !== undefined && holdersOf(incoming).length > 0;
      return task ? recordLater(call, task, this.#admission) : call.record(message, onMoved);
    }
    const isDoubted = call.step.doubt !== undefined;
    const isError = message.value.error !== undefined;
    if (isError && !isDoubted && this.#exchange.tap.res.statusCode >= 300) {
      if (this.#neverRan) return after(call.step.withdraw('rejected'), () => AS_IT_CAME);
      // A handler may have run before its server saw which capability the client lacks.
      if (outcomeOf(message).kind !== 'input_required') return replacing(this.#lose(call));
    }
    const task = isDoubted ? undefined : createdTask(message);
    if (task !== undefined) return carryOn(call, task, this.#admission);
    const saved = saveOutcome(call, message, onMoved, true);
    if (lists === undefined) return saved;
    return after(saved, (transform) => {
      if (call.step.state === 'released')
        notifyLists(this.#config, this.#admission, call.run, lists);
      return transform;
    });
  }

  /**
   * Several gates may announce one call's moves. The last gate does it for all of them, since only
   * then all moves are saved.
   */
  #announced(call: AwaitedAnswer, transform: MaybePromise<Transform>): MaybePromise<Transform> {
    const incoming = this.#exchange.messages.find(({ id }) => id === call.id);
    const held = incoming?.holders.filter((each) => each instanceof AnswerHolder) ?? [];
    if (held.at(-1) !== call) return transform;
    return announcing(transform, held, this.#admission, (config) =>
      Gates.of(config, this.#exchange),
    );
  }

  /**
   * The upstream asks the client something in the middle of a step. Calls that wait for the step
   * are refused until the client answers: it may be waiting for one of them.
   */
  #noteQuestion(id: unknown): void {
    if (!isRequestId(id)) return;
    const { session } = this.#admission;
    for (const { run, step } of this.#unanswered) {
      if (step.hasClaim) session.onAnswer(id, run.turns.refuseOthers(turnKey(step.key)));
    }
  }

  /**
   * Answers the client that the outcome is unknown: its step was cancelled and did not stop, or,
   * with `isTooLong`, took too long. The upstream goes on, and a late outcome is saved.
   */
  #giveUp(id: RequestId, isTooLong: boolean): void {
    const call = this.#unanswered.find((each) => each.id === id);
    if (call === undefined) return;
    const { tap } = this.#exchange;
    if (this.#exchange.isJudged && !isTooLong) {
      this.#abandon(call);
      return;
    }
    if (call.step.state === 'forwarded') tap.abandon([unknownReply(call, false)]);
    call.step.giveUp(!isTooLong);
    if (isTooLong) tap.releaseClose();
  }
}

/**
 * A handler must be able to trust the idempotency key. Where a gate in front has claimed the call,
 * the key is that gate's.
 */
function removeClientsKey(incoming: Call): void {
  const { message } = incoming;
  if (
    message.at('params', '_meta', IDEMPOTENCY_KEY) !== undefined &&
    holdersOf(incoming).length === 0
  )
    message.remove(['params', '_meta'], IDEMPOTENCY_KEY);
}

/** Whether the call needs a judge: its tool is bound, the status tool, none, or may be refused. */
function needsJudge({ named: tool }: Call, { workflow, status, unbound }: GateConfig): boolean {
  if (typeof tool !== 'string' || unbound === 'refuse') return true;
  const isCounted = workflow.shield?.unboundCalls !== undefined;
  return isCounted || workflow.isBound(tool) || workflow.outside.has(tool) || tool === status?.name;
}

/** Whether a gate has let the call through that binds it. */
function hasHolders({ holders }: Call): boolean {
  return holders.length > 0;
}

/** Whether the claims of all gates so far still hold. */
function keepsClaims(claimed: readonly ClaimedCall[]): MaybePromise<boolean> {
  const kept = claimed.map(({ step }) => step.confirm());
  for (const each of kept)
    if (each !== true) return Promise.all(kept).then((all) => !all.includes(false));
  return true;
}

/** Changes each replay as the first answer was changed. Keeps the change alone, not the request. */
function expectReplays(
  { id, transform, config }: Pick<ClaimedCall, 'id' | 'transform' | 'config'>,
  { late }: Admission['session'],
): void {
  let known = transform;
  late.expect(id, config.workflow.id, (message) => after(known, (change) => change?.(message)));
  // Once the promise is done, keep its value alone: the promise holds on to the whole step.
  const learn = (change: Transform | undefined): void => {
    known = change;
  };
  Promise.resolve(transform).then(learn, () => {});
}

/** What each gate so far has made of a call that it lets through. */
function gatedOf({ holders }: Call): readonly Gated[] {
  // Only gates hold calls.
  return holders as readonly Gated[];
}

/** Methods whose params name a tool, a prompt or a resource. */
const NAMING = new Set([
  'tools/call',
  'prompts/get',
  'resources/read',
  'resources/subscribe',
  'resources/directory/read',
  'skills/get',
  'completion/complete',
  'subscriptions/listen',
]);

function namesSomething({ method = '' }: Call): boolean {
  return NAMING.has(method);
}
