/**
 * The events of a whole `tools/call`: that it came, and what its client was answered. Hides the
 * many ways in which a call may end, so that each call ends once.
 */
import type { CallOutcome, Events, RefusalReason, TraceContext } from '../events.ts';
import type { Admission } from '../session/run.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { versionOf } from '../wire/headers.ts';
import {
  isObject,
  isRequestId,
  type JsonObject,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { holdersOf } from './claimed-call.ts';
import type { GateConfig } from './config.ts';

/** A call whose start was published, but not its end. */
interface OpenCall {
  readonly call: number;
  readonly tool: string;
  readonly requestId: RequestId;
  readonly incoming: Call;
  readonly startedAt: number;
}

interface CallEnd {
  readonly outcome: CallOutcome;
  readonly code?: number | undefined;
  readonly reason?: RefusalReason | undefined;
}

const UNANSWERED: CallEnd = { outcome: 'unanswered' };

/** Publishes the events of one exchange's calls. Joins it only if something listens. */
export class ToldCalls implements Filter {
  /** After the gates, so it sees what the client sees. */
  readonly stage = 'sync';
  readonly #events: Events;
  readonly #now: () => number;
  readonly #open = new Map<RequestId, OpenCall>();

  private constructor({ events, clock }: Pick<GateConfig, 'events' | 'clock'>) {
    this.#events = events;
    this.#now = () => clock.now();
  }

  /** Publishes the start of each call with an id, at the first gate of the route. */
  static join(config: GateConfig, exchange: Exchange, { session }: Admission): void {
    const calls = exchange.requests.filter(
      ({ method, number, isForwardable }) =>
        method === 'tools/call' && number === undefined && isForwardable,
    );
    if (calls.length === 0) return;
    const told = new ToldCalls(config);
    for (const incoming of calls) told.#start(incoming, exchange, session.run !== '');
    exchange.join(told);
  }

  #start(incoming: Call, { req }: Exchange, inSession: boolean): void {
    const { message, id: requestId } = incoming;
    const tool = message.at('params', 'name');
    if (requestId === undefined || typeof tool !== 'string') return;
    const call = this.#events.nextCall();
    incoming.number = call;
    incoming.onSettled = () => this.#end(requestId, endHere(incoming));
    const startedAt = this.#now();
    this.#open.set(requestId, { call, tool, requestId, incoming, startedAt });
    const protocolVersion = versionOf(req, incoming);
    const trace = traceOf(message.at('params', '_meta'));
    const started = { type: 'call.started', call, tool, requestId } as const;
    this.#events.publish({ ...started, protocolVersion, inSession, trace });
  }

  wants(): boolean {
    return this.#open.size > 0;
  }

  onMessage({ value }: Message): void {
    const { id, method } = value;
    if (method !== undefined || !isRequestId(id)) return;
    const isHidden = this.#open.get(id)?.incoming.fate === 'alias';
    this.#end(id, isHidden ? { outcome: 'refused' } : answeredEnd(value));
  }

  onEnd(): JsonObject[] {
    this.#endAll();
    return [];
  }

  onUnreadable(): void {
    this.#endAll();
  }

  onClose(): void {
    this.#endAll();
  }

  #endAll(): void {
    for (const { requestId, incoming } of this.#open.values()) {
      // The gate's own answer, that the outcome is unknown, passed no filter.
      const isLost = holdersOf(incoming).some(({ step }) => step.isUnknown);
      this.#end(requestId, isLost ? { outcome: 'unknown' } : UNANSWERED);
    }
  }

  #end(id: RequestId, end: CallEnd): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    this.#open.delete(id);
    const { call, tool, requestId, startedAt } = open;
    const durationMs = this.#now() - startedAt;
    this.#events.publish({ type: 'call.ended', call, tool, requestId, ...end, durationMs });
  }
}

/** The end of a call that a middleware answered, or dropped. */
function endHere({ answer }: Call): CallEnd {
  // If the whole HTTP request was rejected, the call's own answer has no members.
  if (answer === undefined) return UNANSWERED;
  return 'result' in answer || 'error' in answer ? answeredEnd(answer) : { outcome: 'rpc_error' };
}

function answeredEnd({ result, error }: JsonObject): CallEnd {
  const facts = isObject(error) ? error.data : isObject(result) ? result._meta : undefined;
  const refusal = isObject(facts) ? facts[`${META_PREFIX}refusal`] : undefined;
  if (isObject(refusal)) return { outcome: 'refused', reason: refusal.reason as RefusalReason };
  if (isObject(error)) {
    const { code } = error;
    return { outcome: 'rpc_error', ...(typeof code === 'number' && { code }) };
  }
  if (!isObject(result) || (isObject(facts) && `${META_PREFIX}outcome` in facts))
    return { outcome: 'unknown' };
  return { outcome: result.isError === true ? 'tool_error' : 'ok' };
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
