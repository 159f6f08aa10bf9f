/**
 * The events about the whole of a `tools/call`: that it came, and what its client was answered.
 * Hides by how many ways a call may end, so that each one ends once.
 */
import type { CallOutcome, Events, RefusalReason, TraceContext } from '../events.ts';
import type { Admission } from '../session/run.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { versionOf } from '../wire/headers.ts';
import {
  idKey,
  isObject,
  isRequestId,
  type JsonObject,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { GateConfig } from './config.ts';
import { holdersOf } from './held-call.ts';

/** A call that was told of, and whose end was not. */
interface OpenCall {
  readonly call: number;
  readonly tool: string;
  readonly requestId: RequestId;
  readonly incoming: Call;
  readonly startedAt: number;
}

/** How a call ended. */
interface CallEnd {
  readonly outcome: CallOutcome;
  readonly code?: number | undefined;
  readonly reason?: RefusalReason | undefined;
}

const UNANSWERED: CallEnd = { outcome: 'unanswered' };

/** Tells of the calls of one exchange. It is there only where something listens. */
export class ToldCalls implements Filter {
  /** Behind the gates, so that it sees what clients see. */
  readonly stage = 'sync';
  readonly #events: Events;
  readonly #now: () => number;
  readonly #open = new Map<string, OpenCall>();

  private constructor({ events, clock }: Pick<GateConfig, 'events' | 'clock'>) {
    this.#events = events;
    this.#now = clock.now;
  }

  /** Has the first gate on the route tell of each call with an id. */
  static join(config: GateConfig, exchange: Exchange, { session }: Admission): void {
    const calls = exchange.requests.filter(
      ({ method, number, isLeft }) => method === 'tools/call' && number === undefined && isLeft,
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
    this.#open.set(idKey(requestId), { call, tool, requestId, incoming, startedAt });
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
    const isHidden = this.#open.get(idKey(id))?.incoming.fate === 'alias';
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
      // What a gate says of such a step in the upstream's place passes no filter.
      const isLost = holdersOf(incoming).some(({ step }) => step.state === 'unsettled');
      this.#end(requestId, isLost ? { outcome: 'unknown' } : UNANSWERED);
    }
  }

  #end(id: RequestId, end: CallEnd): void {
    const open = this.#open.get(idKey(id));
    if (open === undefined) return;
    this.#open.delete(idKey(id));
    const { call, tool, requestId, startedAt } = open;
    const durationMs = this.#now() - startedAt;
    this.#events.publish({ type: 'call.ended', call, tool, requestId, ...end, durationMs });
  }
}

/** A call that was answered here, or dropped. */
function endHere({ answer }: Call): CallEnd {
  // One that was turned away with its whole request has an answer without members.
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

/** As the client sent it (MCP, SEP-414); what is no text is none. */
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
