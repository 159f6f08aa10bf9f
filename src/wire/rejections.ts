/**
 * What proves that nothing of a forwarded call ran: the answers that the official transports give
 * before they hand a request to a handler. Hides their words.
 */
import { type HeadPort, isJsonType } from './headers.ts';
import { isObject, JSON_RPC, type JsonObject, type RequestId } from './json-rpc.ts';
import { isPromise } from './task-line.ts';

/** The JSON-RPC error in the body of an {@link ErrorAnswer}. */
export interface AnsweredError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** An answer of HTTP 300 to 498 to a forwarded call, as the app's own `neverRan` is shown it. */
export interface ErrorAnswer {
  /** The HTTP status. */
  readonly status: number;
  /** By lower-case names. Several values of one header are joined by commas. */
  readonly headers: Readonly<Record<string, string>>;
  /** The whole body as text, at most 64 KiB of UTF-8. */
  readonly body: string;
  /** Set where the body is one JSON-RPC error and nothing else. */
  readonly error: AnsweredError | undefined;
}

/**
 * One kind of rejection, from the transports' sources: TypeScript SDK 1.32 and 2.4, Python SDK 1.29
 * and 2.0, `@hono/mcp` 0.3.
 *
 * As the id they write `null`, the request's `own`, or Python's `server-error`. Only an error with
 * the request's own id has `data`.
 */
interface Rejection {
  readonly status: number;
  readonly code: number;
  readonly ids: readonly (null | 'own' | 'server-error')[];
  /** The beginnings of their messages. A server's own error could have the same code. */
  readonly messages: readonly string[];
}

const { PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, SERVER_ERROR } = JSON_RPC;
const NO_ID = [null] as const;
const OWN = ['own'] as const;
/** Python 1 has no null, and Python 2 writes it. */
const PYTHON = [null, 'server-error'] as const;

/**
 * HTTP 404 with -32601 is not here, nor is an error of Python's with the request's own id. Python 2
 * gives a handler's own errors the same status, code and id.
 */
export const REJECTIONS: readonly Rejection[] = [
  {
    status: 400,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: [
      'Bad Request: Server not initialized',
      'Bad Request: Mcp-Session-Id header ',
      'Bad Request: Unsupported protocol version',
      // The routes of the SDK's own examples, which most servers begin with.
      'Bad Request: No valid session ID',
      'Bad Request: Session ID required',
    ],
  },
  {
    status: 403,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: ['Missing Host header', 'Invalid Host', 'Invalid Origin'],
  },
  {
    status: 404,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: ['Bad Request: Unsupported protocol version (supported versions: '],
  },
  {
    status: 406,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: ['Not Acceptable: Client must accept '],
  },
  {
    status: 413,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: ['Payload Too Large: Request body must not exceed '],
  },
  {
    status: 415,
    code: SERVER_ERROR,
    ids: NO_ID,
    messages: ['Unsupported Media Type: Content-Type must be application/json'],
  },
  {
    status: 404,
    code: JSON_RPC.SESSION_NOT_FOUND,
    ids: NO_ID,
    messages: ['Session not found'],
  },
  {
    status: 400,
    code: PARSE_ERROR,
    ids: PYTHON,
    messages: ['Parse error'],
  },
  {
    status: 400,
    code: INVALID_REQUEST,
    ids: NO_ID,
    messages: [
      'Invalid Request: Batch must not exceed ',
      'Bad Request: JSON-RPC batch',
      'Body must be a single JSON-RPC request or notification object',
    ],
  },
  {
    status: 400,
    code: INVALID_REQUEST,
    ids: OWN,
    messages: ['Bad Request: the request body is not a valid JSON-RPC message'],
  },
  {
    status: 400,
    code: JSON_RPC.HEADER_MISMATCH,
    ids: OWN,
    messages: ['Bad Request: the request headers and body disagree: '],
  },
  {
    status: 400,
    code: JSON_RPC.UNSUPPORTED_VERSION,
    ids: OWN,
    messages: ['Unsupported protocol version: '],
  },
  {
    status: 400,
    code: INVALID_PARAMS,
    ids: OWN,
    messages: [
      'Invalid _meta envelope for protocol revision ',
      'Invalid params: the MCP-Protocol-Version header names protocol revision ',
    ],
  },
  {
    status: 400,
    code: INVALID_REQUEST,
    ids: PYTHON,
    messages: ['Bad Request: Missing session ID', 'Bad Request: Unsupported protocol version: '],
  },
  {
    status: 400,
    code: INVALID_PARAMS,
    ids: PYTHON,
    messages: ['Validation error: '],
  },
  {
    status: 404,
    code: INVALID_REQUEST,
    ids: PYTHON,
    messages: [
      'Session not found',
      'Not Found: Session has been terminated',
      'Not Found: Invalid or expired session ID',
    ],
  },
  {
    status: 406,
    code: INVALID_REQUEST,
    ids: PYTHON,
    messages: ['Not Acceptable: Client must accept '],
  },
  {
    status: 415,
    code: INVALID_REQUEST,
    ids: PYTHON,
    messages: ['Unsupported Media Type: Content-Type must be application/json'],
  },
];

/** The challenges of the SDKs' bearer authentication, by HTTP status (RFC 6750, section 3.1). */
export const CHALLENGES: Readonly<Record<number, string>> = {
  401: 'invalid_token',
  403: 'insufficient_scope',
};

/**
 * Codes that no answer has before a handler ran: an internal error, and a capability that the
 * handler asked for. The app's own `neverRan` is not asked about them either.
 */
const AFTER_DISPATCH: readonly number[] = [JSON_RPC.INTERNAL_ERROR, JSON_RPC.MISSING_CAPABILITY];

/** nginx's "client closed request". SDK v2 sends it after the client has left. */
const CLIENT_LEFT = 499;

/** A larger body proves nothing: the answers of transports are short. */
const MOST_BYTES = 64 * 1024;

/** The error answer of the upstream's, whole, and what it answers. */
export interface WholeAnswer {
  readonly res: HeadPort;
  readonly body: Buffer;
  /** The ids of the requests that it answers. */
  readonly ids: readonly (RequestId | undefined)[];
}

/** The app's own judgement of an answer, and who gets the error where it throws. */
interface OwnJudgement {
  readonly neverRan: ((answer: ErrorAnswer) => boolean) | undefined;
  readonly onError: (error: unknown) => void;
}

/**
 * Whether nothing of a request ran, by its answer: that of an official transport, or one that the
 * app knows. An answer to several requests proves nothing of each.
 */
export function provesNothingRan(
  { res, body, ids }: WholeAnswer,
  { neverRan, onError }: OwnJudgement,
): boolean {
  const { statusCode: status } = res;
  if (status < 300 || status >= CLIENT_LEFT) return false;
  const [own] = ids;
  if (own === undefined || ids.length > 1 || body.length > MOST_BYTES) return false;
  const text = body.toString();
  const json = isJsonType(res.getHeader('content-type')) ? objectIn(text) : undefined;
  const error = json && errorIn(json);
  if (error !== undefined && isAfterDispatch(error)) return false;
  if (json !== undefined && isChallenge(res, json)) return true;
  if (error !== undefined && json !== undefined && isInTable(status, json.id, error, own))
    return true;
  if (neverRan === undefined) return false;
  try {
    const said: unknown = neverRan({ status, headers: headersOf(res), body: text, error });
    if (isPromise(said)) said.catch(onError);
    return said === true;
  } catch (thrown) {
    onError(thrown);
    return false;
  }
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const MEMBERS = ['jsonrpc', 'id', 'error'];
const ERROR_MEMBERS = ['code', 'message', 'data'];

/** The error, where the body is nothing but that. */
function errorIn(body: JsonObject): AnsweredError | undefined {
  const { jsonrpc, error } = body;
  if (jsonrpc !== '2.0' || !hasOnly(body, MEMBERS)) return undefined;
  if (!isObject(error) || !hasOnly(error, ERROR_MEMBERS)) return undefined;
  const { code, message, data } = error;
  if (typeof code !== 'number' || typeof message !== 'string') return undefined;
  return Object.hasOwn(error, 'data') ? { code, message, data } : { code, message };
}

function hasOnly(object: JsonObject, members: readonly string[]): boolean {
  return Object.keys(object).every((key) => members.includes(key));
}

/** With `data`, a parse error is the transports' answer to anything that was thrown. */
function isAfterDispatch(error: AnsweredError): boolean {
  const isCaught = error.code === PARSE_ERROR && Object.hasOwn(error, 'data');
  return isCaught || AFTER_DISPATCH.includes(error.code);
}

function isInTable(status: number, id: unknown, error: AnsweredError, own: RequestId): boolean {
  return REJECTIONS.some(
    (row) =>
      row.status === status &&
      row.code === error.code &&
      row.ids.some((each) => id === (each === 'own' ? own : each)) &&
      (row.ids.includes('own') || !Object.hasOwn(error, 'data')) &&
      row.messages.some((beginning) => error.message.startsWith(beginning)),
  );
}

/** A challenge of OAuth, with the same error in its header and in its body. */
function isChallenge(res: HeadPort, body: JsonObject): boolean {
  const wanted = CHALLENGES[res.statusCode];
  if (wanted === undefined || body.error !== wanted) return false;
  if (!hasOnly(body, ['error', 'error_description', 'error_uri'])) return false;
  return String(res.getHeader('www-authenticate')).startsWith(`Bearer error="${wanted}"`);
}

function headersOf(res: HeadPort): Record<string, string> {
  return Object.fromEntries(
    res.getHeaderNames().map((name) => [name.toLowerCase(), String(res.getHeader(name))]),
  );
}
