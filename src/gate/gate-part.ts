import { turnKey } from '../session/claim.ts';
import type { Admission } from '../session/run-context.ts';
import { UNBEGUN } from '../session/unbegun.ts';
import type { Exchange, Part } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { idKey, isObject, isRequestId, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { PageMemory } from '../wire/pages.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import { after, inOrder, type MaybePromise } from '../wire/task-line.ts';
import { hold, holdersOf, type PendingCall, type Transform } from './call.ts';
import { declareListChanged, declaresChanges } from './changed-lists.ts';
import type { GateConfig } from './gate-config.ts';
import { Gates } from './gates.ts';
import { Judge } from './judge.ts';
import { tellListChanged } from './list-changed.ts';
import { ShownTools } from './lists.ts';
import { createdTask } from './outcome.ts';
import { unknownOutcomeReply } from './replies.ts';
import { announcing, settle } from './settle.ts';
import { isCancelledStep, keepsClaims, stepsNote } from './step-note.ts';
import { carryOn } from './tasks.ts';
import { keepsSecrets } from './tool-list.ts';
import { giveUpStep, tellUnknown } from './unknown-outcome.ts';

const TOOLS = Buffer.from('"tools"');
const ESCAPED_ASCII = Buffer.from('\\u00');

/**
 * One gate's part in one exchange: it refuses or claims on the way in, filters and commits on the
 * way out.
 */
export class GatePart implements Part {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #judge: Judge;
  readonly #tools: ShownTools;
  /** Whether answers may be about what is hidden. */
  readonly #rewrites: boolean;
  readonly #calls = new Map<string, PendingCall>();
  /** Called when no client waits any more. */
  #answered: (() => void) | undefined;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#rewrites = keepsSecrets(config, admission) && mayAskForHidden(exchange);
    this.#tools = new ShownTools(config, exchange, admission);
    this.#judge = new Judge(config, exchange, admission, (id, isOver) => this.#giveUp(id, isOver));
  }

  /** Judges each call of the request. `false` where the request was answered as a whole. */
  async enter(): Promise<boolean> {
    // A call without an id has no answer, so it cannot be refused. An upstream that would run it
    // must not see it.
    for (const incoming of this.#exchange.messages) {
      if (incoming.kind === 'notification' && incoming.method === 'tools/call')
        this.#exchange.drop(incoming);
    }
    for (const incoming of this.#exchange.forwardable) {
      if (incoming.method !== 'tools/call') continue;
      const verdict = await this.#judge.judge(incoming);
      if (verdict === 'ended') return false;
      if (typeof verdict !== 'object') continue;
      this.#calls.set(idKey(verdict.id), verdict);
      if (this.#config.announce || !this.#gates.isAlone)
        hold(this.#exchange, { call: verdict, config: this.#config });
      this.#answered ??= verdict.context.turns.answering();
      // In the session era a disconnect "SHOULD NOT be interpreted as the client cancelling its
      // request"; in the stateless era it is that.
      if (this.#admission.era === 'session') this.#exchange.tap.withholdClose();
    }
    // Nothing was forwarded yet, and judging took time: a lease may have ended, or the client gone.
    for (const incoming of this.#exchange.forwardable) {
      const steps = stepsNote.of(incoming);
      if (steps === undefined) continue;
      const kept = keepsClaims(steps);
      const isKept = kept === true || (await kept);
      if (isCancelledStep(incoming, this.#exchange, this.#admission))
        await this.#exchange.drop(incoming);
      else if (!isKept) await this.#judge.refuseLate(incoming);
    }
    return true;
  }

  wants(bytes: Buffer): boolean {
    return (
      this.#calls.size > 0 ||
      this.#rewrites ||
      this.#declares ||
      bytes.includes(TOOLS) ||
      bytes.includes(ESCAPED_ASCII)
    );
  }

  onMessage(message: Message): MaybePromise<void> {
    if (this.#rewrites) {
      this.#config.aliases.takeOut(message);
      // An answer about what does not exist would keep its length, its tag and its line ends.
      message.rewrite();
    }
    const { id, method, result } = message.value;
    if (method !== undefined) return this.#noteQuestion(id);
    const call = isRequestId(id) ? this.#calls.get(idKey(id)) : undefined;
    if (call !== undefined) return this.#deliver(call, message);
    if (!isObject(result)) return;
    // By its shape and not by who asked: a replay, or two requests of one id, must not leak a list.
    if (Array.isArray(result.tools)) return this.#tools.show(message);
    if (this.#declares) declareListChanged(message, ['tools']);
  }

  get pages(): PageMemory {
    return this.#config.pages;
  }

  pageKey(): MaybePromise<string | undefined> {
    return this.#rewrites ? undefined : this.#tools.key();
  }

  /**
   * No response came. Where the stream can be resumed it comes there; else nobody knows the
   * outcome.
   */
  onEnd(): MaybePromise<JsonObject[]> {
    const open = this.#unanswered;
    if (open.length === 0) return [];
    if (isRejection(this.#exchange.tap)) {
      return after(
        inOrder(open, ({ step }) => step.release(UNBEGUN)),
        () => [],
      );
    }
    if (this.#isResumable) {
      for (const call of open) this.#expectLate(call);
      return [];
    }
    for (const { step } of open) giveUpStep(step, this.#config);
    return open.map((call) => this.#unknownReply(call));
  }

  /** Answered by somebody else after it was claimed here: nothing happened. */
  onAnswered({ id }: Incoming): MaybePromise<void> {
    const call = id === undefined ? undefined : this.#calls.get(idKey(id));
    if (call === undefined) return;
    this.#calls.delete(idKey(call.id));
    delete call.context.step;
    return call.step.release(UNBEGUN);
  }

  /**
   * The upstream should not answer then. A result that comes all the same is shown to no client.
   */
  onNotForwarded(): Promise<unknown> {
    const releasing = this.#unanswered.map((call) => {
      call.transform = (message) => {
        if (message.value.result === undefined) return;
        tellUnknown(call.step, 'it was answered after notForwarded()', this.#config, false);
        message.replace(this.#unknownReply(call));
      };
      return call.step.release(UNBEGUN);
    });
    return Promise.all(releasing);
  }

  onUnreadable(): void {
    for (const { step } of this.#unanswered) giveUpStep(step, this.#config);
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
      if (!this.#isResumable) giveUpStep(call.step, this.#config);
      else if (!tap.ended) this.#expectLate(call);
    }
  }

  /** Whether this asks what the server can do, and its list can change. */
  get #declares(): boolean {
    return declaresChanges(this.#config, this.#exchange, this.#admission);
  }

  /** There is no resumption in the stateless era, whatever ids an upstream's events have. */
  get #isResumable(): boolean {
    return this.#exchange.tap.resumable && this.#admission.era === 'session';
  }

  /** Calls that the upstream has not answered; their clients may have been answered by the gate. */
  get #unanswered(): PendingCall[] {
    return [...this.#calls.values()].filter((call) => call.transform === undefined);
  }

  #expectLate(call: PendingCall): void {
    this.#admission.session.late.expect(call.id, this.#config.workflow.id, (message) =>
      this.#deliver(call, message),
    );
  }

  /** Settles the outcome at the first response, and changes each replay of it in the same way. */
  #deliver(call: PendingCall, message: Message): MaybePromise<void> {
    if (call.transform === undefined) {
      call.transform = this.#announced(call, this.#settle(call, message));
      if (this.#isResumable) expectReplays(call, this.#config.workflow.id, this.#admission.session);
    }
    return after(call.transform, (transform) => transform(message));
  }

  #settle(call: PendingCall, message: Message): MaybePromise<Transform> {
    if (message.value.error !== undefined && isRejection(this.#exchange.tap))
      return after(call.step.release(UNBEGUN), () => () => {});
    const task = createdTask(message);
    if (task !== undefined) return carryOn(call, task, this.#config, this.#admission);
    const { context } = call;
    return settle(call, message, this.#config, (lists, isLate) => {
      const change = { message: isLate ? undefined : message, context, lists };
      tellListChanged(this.#config, this.#exchange, this.#admission, change);
    });
  }

  /**
   * Where several gates announce where one call led, the last one speaks for all: only then it is
   * known what all allow.
   */
  #announced(call: PendingCall, transform: MaybePromise<Transform>): MaybePromise<Transform> {
    const holders = holdersOf(this.#exchange, call.id);
    if (holders.at(-1)?.call !== call) return transform;
    return announcing(transform, holders, (config) => Gates.of(config, this.#exchange));
  }

  get #gates(): Gates {
    return Gates.of(this.#config, this.#exchange);
  }

  /**
   * A question of the upstream's to its client, in the middle of a step. Whoever waits for the step
   * would wait for the client, which may in turn wait for them.
   */
  #noteQuestion(id: unknown): void {
    if (!isRequestId(id)) return;
    const { session } = this.#admission;
    for (const { context, step } of this.#unanswered) {
      if (step.state !== 'claimed') continue;
      session.onAnswer(id, context.turns.refuseOthers(turnKey(context, this.#config.workflow.id)));
    }
  }

  /**
   * The step was cancelled and did not stop, or took too long: the client is told that its outcome
   * is unknown. The upstream goes on, and what it says late is saved. `isOver`: it took too long.
   */
  #giveUp(id: RequestId, isOver: boolean): void {
    const call = this.#calls.get(idKey(id));
    if (call === undefined || call.transform !== undefined) return;
    const { tap } = this.#exchange;
    if (call.step.state === 'claimed') tap.abandon([this.#unknownReply(call)]);
    giveUpStep(call.step, this.#config, !isOver);
    if (isOver) tap.releaseClose();
  }

  #unknownReply({ id, step, era }: PendingCall): JsonObject {
    return unknownOutcomeReply(id, step.tool, this.#config.workflow.id, { ran: false, era });
  }
}

/**
 * Has each replay changed as the first answer was. It keeps what it takes to do that, and no
 * request.
 */
function expectReplays(
  { id, transform }: Pick<PendingCall, 'id' | 'transform'>,
  workflow: string,
  { late }: Admission['session'],
): void {
  let known = transform;
  late.expect(id, workflow, (message) => after(known, (change) => change?.(message)));
  // A promise keeps the context that it was made in, and with it the whole step.
  const settle = (change: Transform | undefined): void => {
    known = change;
  };
  Promise.resolve(transform).then(settle, () => {});
}

/**
 * nginx's "client closed request", which SDK v2 says when the client has left: the handler may have
 * run.
 */
const CLIENT_LEFT = 499;

/** The upstream's transport turned the request away (RFC 9110, section 15.5): nothing ran. */
function isRejection({ res: { statusCode }, departed }: ResponseTap): boolean {
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
