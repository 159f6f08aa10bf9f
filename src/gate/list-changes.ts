/**
 * Which lists a move changes, and how clients are notified of that: on the stream of their call, of
 * their session, or of a subscription.
 */
import { putNewest } from '../basics/clock.ts';
import type { Admission, Run } from '../session/run.ts';
import { beginsAnew, type StepMove } from '../step/outcome.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import {
  isObject,
  type JsonObject,
  type ListKind,
  listChanged,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './config.ts';
import type { Standing } from './standing.ts';
import { visibilityFor } from './visibility.ts';

/** The kinds of lists of which the caller says so. */
function listsIf(tools: boolean, prompts: boolean, resources: boolean): ListKind[] {
  const lists: ListKind[] = tools ? ['tools'] : [];
  if (prompts) lists.push('prompts');
  if (resources) lists.push('resources');
  return lists;
}

/** The lists that differ between two states, for every client. */
function changedLists(workflow: Workflow, before: string, after: string): ListKind[] {
  if (before === after) return [];
  const { reads } = workflow;
  const isSame = (bound: BoundRead): boolean =>
    workflow.allows(before, bound) === workflow.allows(after, bound);
  return listsIf(
    !workflow.sameTools(before, after),
    reads.bindsPrompts && !reads.prompts.every(isSame),
    reads.bindsResources && !reads.resources.every(isSame),
  );
}

/** The lists that a move may change for a client of this gate. */
export function listsChangedBy(
  rule: Pick<GateConfig, 'workflow' | 'whenEnded'>,
  run: string,
  { trail, changesData, lists = [] }: StepMove,
): ListKind[] {
  const { workflow } = rule;
  if (trail.from === trail.to && !changesData) return [...lists];
  const isAnew = beginsAnew(rule, run);
  const isEnd = workflow.hasEnded(trail.from) || workflow.hasEnded(trail.to);
  // Where such a run is shown to begin anew, only `begin` can say.
  if (isAnew && isEnd && workflow.starts.length > 0)
    return [...new Set([...lists, ...boundLists(workflow)])];
  const from = isAnew && workflow.hasEnded(trail.from) ? workflow.initial : trail.from;
  const to = isAnew && workflow.hasEnded(trail.to) ? workflow.initial : trail.to;
  const changed = [...new Set([...lists, ...changedLists(workflow, from, to)])];
  if (!workflow.hides) return changed;
  const { toolNames, reads } = workflow;
  const veilsTools = toolNames.some((each) => workflow.isVeiled(each));
  // `visible` may show a client more of these after any move, or less.
  const veiled = listsIf(veilsTools, reads.veilsPrompts, reads.veilsResources);
  return [...new Set([...changed, ...veiled])];
}

/** An answer on whose stream a client can be notified of something, in front of the answer. */
interface OnAnswer {
  readonly exchange: Exchange;
  readonly message: Message;
}

/**
 * Notifies the run's clients that a move changed their lists. If the move comes with an answer on a
 * stream, the caller is notified there.
 */
export function notifyMoved(
  config: GateConfig,
  admission: Admission,
  run: Run,
  move: StepMove,
  answer?: OnAnswer,
): void {
  notifyLists(config, admission, run, listsChangedBy(config, run.run, move), answer);
}

/** How many runs to remember at most whose clients were notified of a window. */
const MOST_REPORTED = 10_000;

/**
 * By gate and run: the lists that were reported to the clients, since time alone has changed them.
 */
const notifiedOfTime = new WeakMap<Workflow, Map<string, string>>();

/**
 * Notifies the run's clients, once, that a window has opened or closed since the run was saved. No
 * timer watches for it: a call of the run does.
 */
export function notifyOfTime(
  config: GateConfig,
  admission: Admission,
  run: Run,
  standing: Standing | undefined,
): void {
  const { workflow } = config;
  if (standing === undefined || workflow.rules.ledger?.hasWindows !== true) return;
  const { position, parts } = standing;
  const { updatedAt, now: at } = parts;
  if (parts.version === 0 || !workflow.rules.hasTimeChanged(position, updatedAt, at)) return;
  const saved = workflow.rules.shownAt(position, updatedAt);
  const now = workflow.rules.shownAt(position, at);
  if (saved === now) return;
  const notified = notifiedOfTime.get(workflow) ?? new Map<string, string>();
  notifiedOfTime.set(workflow, notified);
  const key = `${parts.version} ${now}`;
  if (notified.get(run.run) === key) return;
  putNewest(notified, run.run, key, MOST_REPORTED);
  notifyLists(config, admission, run, boundLists(workflow));
}

/** Notifies the run's clients that these lists changed. */
export function notifyLists(
  config: GateConfig,
  admission: Admission,
  run: Run,
  lists: readonly ListKind[],
  answer?: OnAnswer,
): void {
  // The caller's own era does not count: a client of the other era may share the run.
  if (config.visibility === 'stable' || admission.byArgument || lists.length === 0) return;
  const { era, session } = admission;
  const isOwn = era === 'session' && run === admission.listed;
  // Only others may be shown this run's list.
  const isSettled = era === 'session' && visibilityFor(config, admission) === 'stable';
  const isOnAnswer =
    !isSettled && isOwn && answer?.exchange.announceListChange(answer.message, lists) === true;
  if (isOnAnswer && lists.includes('tools')) session.callsSinceNotified ??= 0;
  run.listChanged(lists, isSettled || isOnAnswer);
  // Not where tools are secret: a list of all tools would give them away.
  const isOpen = !isSettled && isOwn && config.refusal === 'explain';
  if (isOpen && session.callsSinceNotified !== undefined)
    config.clients.noteNotified(session, config);
}

/** Notifies a session's client that its lists show another run from now on, or none. */
export function notifyTurned(config: GateConfig, admission: Admission): void {
  // Where the client is known not to list again, its lists are the same for all conversations.
  if (config.clients.chosenFor(config, admission) !== 'stable')
    admission.session.notifyChanged(boundLists(config.workflow));
}

/** Whether the client asks for the server's capabilities, and its lists can change. */
export function declaresChanges(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): boolean {
  const method = exchange.messages[0]?.method;
  if (method !== (admission.era === 'session' ? 'initialize' : 'server/discover')) return false;
  return visibilityFor(config, admission) === 'hide';
}

/**
 * Declares `listChanged` in an answer with capabilities. Without it clients ignore `list_changed`
 * (MCP, Tools, "Capabilities").
 */
export function declareListChanged(message: Message, lists: readonly ListKind[]): void {
  for (const kind of lists) {
    const capability = message.at('result', 'capabilities', kind);
    if (isObject(capability) && capability.listChanged !== true) {
      message.set(['result', 'capabilities', kind, 'listChanged'], true);
    }
  }
}

/** Which lists change where a whole run is stopped, or goes on. */
export function boundLists({ toolNames, reads }: Workflow): ListKind[] {
  return listsIf(toolNames.length > 0, reads.bindsPrompts, reads.bindsResources);
}

/** Which lists of prompts and resources this workflow's moves may change. */
export function readLists({ reads }: Workflow): ListKind[] {
  return listsIf(false, reads.bindsPrompts, reads.bindsResources);
}

const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';

/** What all gates of a route know of one subscription. */
interface Subscription {
  /** The lists that a gate reports on this stream: the others must not report them again. */
  readonly reported: Set<ListKind>;
  /** Whether the upstream honoured nothing: the gates hold the stream open when it ends it. */
  isOurs: boolean;
  isHeldOpen: boolean;
}

/** Which lists of a run a client asks to be notified of, and with which request. */
interface AskedChanges {
  readonly run: Run;
  readonly id: RequestId;
  readonly lists: readonly ListKind[];
}

/**
 * A client's subscription to changes of its lists (MCP 2026-07-28, "Subscriptions"), on the
 * upstream's stream. An upstream whose lists never change honours nothing, and ends the stream. So
 * the gate corrects the acknowledgement, and holds the stream open.
 */
export class ListenFilter implements Filter {
  readonly stage = 'gate';
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #asked: AskedChanges;
  readonly #ends: (() => void)[] = [];
  readonly #shared: Subscription;
  #staysOpen = false;
  #closed = false;

  private constructor(exchange: Exchange, admission: Admission, asked: AskedChanges) {
    this.#exchange = exchange;
    this.#admission = admission;
    this.#asked = asked;
    this.#shared = (exchange.subscription as Subscription | undefined) ?? {
      reported: new Set(),
      isOurs: false,
      isHeldOpen: false,
    };
    exchange.subscription = this.#shared;
  }

  /** `undefined` unless the client asks for changes of a list that this gate changes. */
  static of(
    config: GateConfig,
    exchange: Exchange,
    admission: Admission,
  ): ListenFilter | undefined {
    const [request] = exchange.requests;
    const { listed, era } = admission;
    if (
      era !== 'stateless' ||
      request?.method !== 'subscriptions/listen' ||
      request.id === undefined
    )
      return undefined;
    const changing: readonly ListKind[] = ['tools', ...readLists(config.workflow)];
    const lists = changing.filter(
      (kind) => request.message.at('params', 'notifications', subscriptionTo(kind)) === true,
    );
    if (lists.length === 0) return undefined;
    if (listed === undefined || visibilityFor(config, admission) !== 'hide') return undefined;
    return new ListenFilter(exchange, admission, { run: listed, id: request.id, lists });
  }

  wants(): boolean {
    return true;
  }

  onMessage(message: Message): void {
    // An upstream may go on writing after its client has left: what began now would never end.
    if (this.#closed) return;
    const { method, id, result } = message.value;
    if (method === ACKNOWLEDGED) this.#acknowledge(message);
    else if (
      this.#shared.isOurs &&
      method === undefined &&
      id === this.#asked.id &&
      isObject(result)
    ) {
      message.dropped = true;
      this.#holdOpen();
    }
  }

  staysOpen(): boolean {
    return this.#staysOpen;
  }

  onEnd(): JsonObject[] {
    if (!this.#staysOpen) this.onClose();
    return [];
  }

  onClose(): void {
    this.#closed = true;
    for (const end of this.#ends.splice(0)) end();
  }

  #acknowledge(message: Message): void {
    const honoured = message.at('params', 'notifications');
    if (!isObject(honoured)) return;
    for (const subscription of this.#asked.lists.map(subscriptionTo)) {
      if (honoured[subscription] === true) continue;
      if (Object.keys(honoured).length === 0) this.#shared.isOurs = true;
      message.set(['params', 'notifications', subscription], true);
    }
    const { reported } = this.#shared;
    const mine = this.#asked.lists.filter((kind) => !reported.has(kind));
    for (const kind of mine) reported.add(kind);
    const { tap } = this.#exchange;
    const _meta = { [SUBSCRIPTION_ID]: this.#asked.id };
    // What the gate writes from now on comes after the acknowledgement.
    const stop = this.#asked.run.listen((lists) => {
      for (const kind of mine) if (lists.includes(kind)) tap.inject(listChanged(kind, { _meta }));
    });
    this.#ends.push(stop);
  }

  #holdOpen(): void {
    const { tap } = this.#exchange;
    this.#staysOpen = true;
    if (this.#shared.isHeldOpen) return;
    this.#shared.isHeldOpen = true;
    const meta = { [SUBSCRIPTION_ID]: this.#asked.id };
    const last = {
      jsonrpc: '2.0',
      id: this.#asked.id,
      result: { resultType: 'complete', _meta: meta },
    };
    this.#ends.push(this.#admission.holdOpen(tap, last));
  }
}

function subscriptionTo(kind: ListKind): string {
  return `${kind}ListChanged`;
}
