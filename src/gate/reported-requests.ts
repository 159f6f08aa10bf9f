/**
 * The events of a whole request: that it came, and what its client was answered. Hides the many
 * ways in which a request may end, so that each ends once.
 */
import {
  type Events,
  type InterlockEvent,
  type ReportedMethod,
  SENT,
  type TraceContext,
} from '../basics/events.ts';
import type { RefusalReason } from '../basics/reasons.ts';
import type { Admission } from '../session/run.ts';
import { valueOfAnswer } from '../step/outcome.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { type RequestPort, versionOf } from '../wire/headers.ts';
import {
  isObject,
  isRequestId,
  type JsonObject,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { KnownPage } from '../wire/pages.ts';
import type { BoundReads } from '../workflow/reads.ts';
import { holdersOf } from './claimed-call.ts';
import type { GateConfig } from './config.ts';

type Ended<Type> = Extract<InterlockEvent, { readonly type: Type }>;
type ToolEnd = Pick<Ended<'call.ended'>, 'outcome' | 'code' | 'reason' | 'left'>;
type OtherEnd = Pick<Ended<'request.ended'>, 'outcome' | 'code' | 'shown' | 'protocolVersion'>;

/** What both events of a request say of it. */
type Named =
  | {
      readonly call: number;
      readonly tool: string;
      readonly requestId: RequestId;
      readonly runKey?: string;
    }
  | { readonly request: number; readonly method: ReportedMethod; readonly requestId: RequestId };

/** A request whose start was published, but not its end. */
interface OpenRequest {
  readonly named: Named;
  readonly incoming: Call;
  readonly startedAt: number;
}

/** The member of each list's result that has the list. An `initialize` has none. */
const LISTS: Readonly<Record<ReportedMethod, string | undefined>> = {
  initialize: undefined,
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
};

/** Publishes the events of one exchange's requests. Joins it only if something listens. */
export class ReportedRequests implements Filter {
  /** After the gates, so it sees what the client sees. */
  readonly stage = 'sync';
  readonly #events: Events;
  readonly #now: () => number;
  readonly #listed: GateConfig['listed'];
  readonly #open = new Map<RequestId, OpenRequest>();

  private constructor({ events, clock, listed }: GateConfig) {
    this.#events = events;
    this.#listed = listed;
    this.#now = () => clock.now();
  }

  /** Publishes the start of each request with an id, at the first gate of the route. */
  static join(config: GateConfig, exchange: Exchange, admission: Admission): void {
    const reported = ReportedRequests.of(config, exchange, admission);
    if (reported !== undefined) exchange.join(reported);
  }

  /** The same for requests that pass as they are; `undefined` where there is nothing to report. */
  static of(
    config: GateConfig,
    { req, requests }: Pick<Exchange, 'req' | 'requests'>,
    admission: Admission,
  ): ReportedRequests | undefined {
    const reported = new ReportedRequests(config);
    for (const incoming of requests)
      if (incoming.number === undefined && incoming.isForwardable)
        reported.#start(incoming, config, req, admission);
    return reported.#open.size > 0 ? reported : undefined;
  }

  #start(incoming: Call, config: GateConfig, req: RequestPort, admission: Admission): void {
    const { message, method, id: requestId } = incoming;
    if (requestId === undefined) return;
    const tool = method === 'tools/call' ? message.at('params', 'name') : undefined;
    const isListed = isReported(method, config.workflow.reads);
    if (!isListed && typeof tool !== 'string') return;
    const number = this.#events.nextNumber();
    const named: Named = isListed
      ? { request: number, method, requestId }
      : { call: number, tool: String(tool), requestId };
    incoming.number = number;
    incoming.onSettled = () => {
      const { answer } = incoming;
      // If the whole HTTP request was rejected, its own answer has no members.
      const isRejected = answer !== undefined && !('result' in answer || 'error' in answer);
      this.#end(requestId, isRejected ? { error: {} } : answer);
    };
    const startedAt = this.#now();
    const protocolVersion = versionOf(req, incoming);
    const trace = traceOf(message.at('params', '_meta'));
    const { session } = admission;
    const started = { protocolVersion, inSession: session.run !== '', trace };
    if ('call' in named) {
      const run = admission.runOf(incoming);
      const runKey = 'run' in run ? run.run : undefined;
      const own = runKey === undefined ? named : { ...named, runKey };
      this.#open.set(requestId, { named: own, incoming, startedAt });
      this.#events.publish({
        ...{ type: 'call.started', ...own, ...started },
        client: session.record.clientInfo?.name,
        [SENT]: {
          value: () => incoming.sentArguments,
          schema: () => config.listed.schemasOf(String(tool))?.args,
        },
      });
    } else {
      this.#open.set(requestId, { named, incoming, startedAt });
      this.#events.publish({ type: 'request.started', ...named, ...started });
    }
  }

  wants(): boolean {
    return this.#open.size > 0;
  }

  onMessage(message: Message): void {
    const { value } = message;
    const { id, method } = value;
    if (method !== undefined || !isRequestId(id)) return;
    this.#end(id, value, undefined, () => message.text);
  }

  /** This filter changes no page of tools. */
  pageKey(): string {
    return 'reported';
  }

  onRecall({ tools }: KnownPage): void {
    // Such a page answers the only request of its exchange.
    for (const id of this.#open.keys()) this.#end(id, { result: {} }, tools);
  }

  onEnd(): JsonObject[] {
    this.onClose();
    return [];
  }

  onUnreadable(): void {
    this.onClose();
  }

  onClose(): void {
    for (const id of this.#open.keys()) this.#end(id, undefined);
  }

  /**
   * @param answer what the client sees, or `undefined` where none passed
   * @param shown how many tools the page shows, where it was made before
   * @param text the answer in JSON
   */
  #end(
    id: RequestId,
    answer: JsonObject | undefined,
    shown?: number,
    text: () => string = () => JSON.stringify(answer),
  ): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    this.#open.delete(id);
    const { named, incoming, startedAt } = open;
    const durationMs = this.#now() - startedAt;
    if ('call' in named) {
      const end = callEnd(incoming, answer);
      const result = answer?.result;
      this.#events.publish({
        ...{ type: 'call.ended', ...named, ...end, durationMs },
        ...(isObject(result) && {
          [SENT]: {
            value: () => valueOfAnswer(result, text),
            schema: () => this.#listed.schemasOf(named.tool)?.result,
          },
        }),
      });
    } else {
      const end = { ...otherEnd(named.method, answer), ...(shown !== undefined && { shown }) };
      this.#events.publish({ type: 'request.ended', ...named, ...end, durationMs });
    }
  }
}

/** Whether the request is reported beside calls. The gate reads only lists that it filters. */
function isReported(
  method: string | undefined,
  { bindsPrompts, bindsResources }: BoundReads,
): method is ReportedMethod {
  if (method === undefined || !Object.hasOwn(LISTS, method)) return false;
  if (method.startsWith('prompts/')) return bindsPrompts;
  return !method.startsWith('resources/') || bindsResources;
}

function callEnd(incoming: Call, answer: JsonObject | undefined): ToolEnd {
  if (answer === undefined) {
    // The gate's own answer, that the outcome is unknown, passed no filter.
    const isLost = holdersOf(incoming).some(({ step }) => step.isUnknown);
    return { outcome: isLost ? 'unknown' : 'unanswered' };
  }
  if (incoming.fate === 'alias') return { outcome: 'refused' };
  const { result, error } = answer;
  const facts = isObject(error) ? error.data : isObject(result) ? result._meta : undefined;
  const refusal = isObject(facts) ? facts[`${META_PREFIX}refusal`] : undefined;
  if (isObject(refusal)) return { outcome: 'refused', reason: refusal.reason as RefusalReason };
  if (isObject(error)) return failedWith(error);
  if (!isObject(result) || (isObject(facts) && `${META_PREFIX}outcome` in facts))
    return { outcome: 'unknown' };
  if (result.isError === true) return { outcome: 'tool_error' };
  const left = result.resultType === 'input_required' ? 'input' : leftTo(result);
  return left === undefined ? { outcome: 'ok' } : { outcome: 'ok', left };
}

function leftTo({ resultType, task }: JsonObject): 'task' | undefined {
  const isTask = resultType === 'task' || (resultType === undefined && isObject(task));
  return isTask ? 'task' : undefined;
}

function otherEnd(method: ReportedMethod, answer: JsonObject | undefined): OtherEnd {
  const { result, error } = answer ?? {};
  if (isObject(error)) return failedWith(error);
  if (!isObject(result)) return { outcome: 'unanswered' };
  const list = result[LISTS[method] ?? ''];
  const { protocolVersion } = method === 'initialize' ? result : {};
  return {
    outcome: 'ok',
    ...(Array.isArray(list) && { shown: list.length }),
    ...(typeof protocolVersion === 'string' && { protocolVersion }),
  };
}

function failedWith({ code }: JsonObject): { outcome: 'rpc_error'; code?: number } {
  return { outcome: 'rpc_error', ...(typeof code === 'number' && { code }) };
}

/** The client's trace context (MCP, SEP-414). */
function traceOf(meta: unknown): TraceContext | undefined {
  if (!isObject(meta)) return undefined;
  const { traceparent, tracestate, baggage } = meta;
  if (typeof traceparent !== 'string' && typeof baggage !== 'string') return undefined;
  return {
    ...(typeof traceparent === 'string' && { traceparent }),
    ...(typeof tracestate === 'string' && { tracestate }),
    ...(typeof baggage === 'string' && { baggage }),
  };
}
