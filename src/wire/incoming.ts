import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  kindOf,
  META_CLAIM,
  type MessageKind,
  type RequestId,
} from './json-rpc.ts';
import { elementSpans, memberSpans, rootSpan, spanAt } from './json-text.ts';
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

/** Whether the message is still to be forwarded. */
export function isLeft(incoming: Incoming): boolean {
  return incoming.answer === undefined && incoming.dropped !== true;
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
      ...bad(
        null,
        `Invalid Request: a batch holds at most ${maxBatch} messages, this one ${value.length}`,
      ),
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
  if (kind === 'invalid' || !isObject(value))
    return bad(id, 'Invalid Request: not a JSON-RPC 2.0 message');
  const ambiguous = ambiguousMember(value, text);
  if (ambiguous !== undefined) return bad(id, `Invalid Request: the member ${ambiguous}`);
  return {
    kind,
    message: new Message(value, text),
    id: id ?? undefined,
    method: typeof value.method === 'string' ? value.method : undefined,
  };
}

const ENVELOPE = ['jsonrpc', 'id', 'method', 'params', 'result', 'error'];
const CALL_PARAMS = ['name', 'arguments', '_meta'];

/** A member of the message, of its params or of their `_meta` that another parser might take for another one than we do, and why. */
function ambiguousMember(value: JsonObject, text: string | undefined): string | undefined {
  const inEnvelope = ambiguousKey(keysAt(value, text, []), ENVELOPE);
  if (inEnvelope !== undefined || !isObject(value.params)) return inEnvelope;
  const { params } = value;
  const inParams = ambiguousKey(
    keysAt(params, text, ['params']),
    value.method === 'tools/call' ? CALL_PARAMS : [],
  );
  // The era is told by one member of it.
  if (inParams !== undefined || !isObject(params._meta)) return inParams;
  const claims = keysAt(params._meta, text, ['params', '_meta']).filter(
    (key) => foldCase(key) === foldCase(META_CLAIM),
  );
  return claims.length > 1 ? ambiguousKey(claims, []) : undefined;
}

/** Whether a member of the object at `path` may be taken for another one: it stands twice, or in another letter case than its own. */
export function isAmbiguous({ message }: Incoming, path: readonly string[], key: string): boolean {
  const value = message.at(...path);
  if (!isObject(value)) return false;
  const written = keysAt(value, message.text, path).filter(
    (each) => foldCase(each) === foldCase(key),
  );
  return written.length > 1 || written.some((each) => each !== key);
}

/** The keys of an object as they came, doubled ones included where there is text. */
function keysAt(value: JsonObject, text: string | undefined, path: readonly string[]): string[] {
  const span = text === undefined ? undefined : spanAt(text, path);
  if (text === undefined || span === undefined) return Object.keys(value);
  return memberSpans(text, span.start).map(({ key }) => key);
}

/**
 * Of keys that stand twice, letter case aside, parsers disagree about which counts: the first, the last, or (in Go) one of another case. So
 * such a request is ambiguous, and so is a known key in another case than its own.
 */
function ambiguousKey(keys: readonly string[], known: readonly string[]): string | undefined {
  const seen = new Set<string>();
  for (const key of keys) {
    const folded = foldCase(key);
    if (seen.has(folded)) return `${JSON.stringify(key)} stands twice`;
    seen.add(folded);
    if (known.includes(folded) && folded !== key) {
      return `${JSON.stringify(key)} must be spelled ${JSON.stringify(folded)}`;
    }
  }
  return undefined;
}

/** Both ways, as Unicode folds: the long s has an s for its capital, and the Kelvin sign a k for its small letter. */
function foldCase(key: string): string {
  return key.toUpperCase().toLowerCase();
}

function bad(id: RequestId | null, message: string): BadRequest {
  return { status: 400, body: errorResponse(id, JSON_RPC.INVALID_REQUEST, message) };
}
