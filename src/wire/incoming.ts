import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  kindOf,
  type MessageKind,
  type RequestId,
} from './json-rpc.ts';
import { ambiguousKey, elementSpans, rootSpan, spanAt } from './json-text.ts';
import { Message } from './message.ts';

/** One message of a POST, and the middleware's answer to it once it has one: it is not forwarded then. */
export interface Incoming {
  readonly kind: Exclude<MessageKind, 'invalid'>;
  readonly message: Message;
  readonly id: RequestId | undefined;
  readonly method: string | undefined;
  answer?: JsonObject;
  /** Nobody waits for an answer any more: it is neither forwarded nor answered. */
  dropped?: boolean;
}

export interface IncomingBody {
  readonly isBatch: boolean;
  readonly messages: readonly Incoming[];
}

/** A body that is refused as a whole: the HTTP status, and what the client is told. */
export interface BadRequest {
  readonly status: number;
  readonly body: JsonObject;
}

/** Reads a POST's body as the messages it holds, or says what is wrong with it. */
export function readIncoming(
  value: unknown,
  text: string | undefined,
  maxBatch: number,
): IncomingBody | BadRequest {
  if (!Array.isArray(value)) {
    const message = read(value, text);
    return 'status' in message ? message : { isBatch: false, messages: [message] };
  }
  if (value.length === 0) return bad(null, 'Invalid Request: a batch must not be empty');
  if (value.length > maxBatch) {
    return {
      ...bad(null, `Invalid Request: a batch holds at most ${maxBatch} messages, this one ${value.length}`),
      status: 413,
    };
  }
  const spans = text === undefined ? [] : elementSpans(text, rootSpan(text).start);
  const messages: Incoming[] = [];
  for (const [index, element] of value.entries()) {
    const message = read(element, text?.slice(spans[index]?.start, spans[index]?.end));
    if ('status' in message) return message;
    messages.push(message);
  }
  return { isBatch: true, messages };
}

function read(value: unknown, text: string | undefined): Incoming | BadRequest {
  const kind = kindOf(value);
  const id = isObject(value) && isRequestId(value.id) ? value.id : null;
  if (kind === 'invalid' || !isObject(value)) return bad(id, 'Invalid Request: not a JSON-RPC 2.0 message');
  const twice = text === undefined ? undefined : doubledKey(text);
  if (twice !== undefined)
    return bad(id, `Invalid Request: the member ${JSON.stringify(twice)} stands twice`);
  return {
    kind,
    message: new Message(value, text),
    id: id ?? undefined,
    method: typeof value.method === 'string' ? value.method : undefined,
  };
}

function doubledKey(text: string): string | undefined {
  const params = spanAt(text, ['params']);
  const inParams =
    params !== undefined && text[params.start] === '{' ? ambiguousKey(text, params.start) : undefined;
  return inParams ?? ambiguousKey(text, rootSpan(text).start);
}

function bad(id: RequestId | null, message: string): BadRequest {
  return { status: 400, body: errorResponse(id, JSON_RPC.INVALID_REQUEST, message) };
}
