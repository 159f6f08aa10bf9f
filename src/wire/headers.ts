import { isUtf8 } from 'node:buffer';
import {
  type IncomingHttpHeaders,
  type OutgoingHttpHeader,
  type OutgoingHttpHeaders,
  STATUS_CODES,
} from 'node:http';
import { type Call, someValue } from './call.ts';
import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  META_CLAIM,
} from './json-rpc.ts';

/** What we read of a request. Node's `IncomingMessage` is one. */
export interface RequestPort {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** By lower-case names. */
  readonly headers: IncomingHttpHeaders;
  /** Set by the authentication that is mounted in front. */
  readonly auth?: unknown;
  /** Names and values in turn, where the host keeps its headers in this form too. */
  readonly rawHeaders?: string[];
}

/** A response's status and headers, until they are sent. Node's `ServerResponse` is one. */
export interface HeadPort {
  readonly req: { readonly method?: string | undefined };
  statusCode: number;
  getHeader(name: string): number | string | readonly string[] | undefined;
  setHeader(name: string, value: number | string): unknown;
  hasHeader(name: string): boolean;
  getHeaderNames(): readonly string[];
  removeHeader(name: string): void;
}

/** The headers of `writeHead`: an object, a flat list of names and values, or a list of pairs. */
export type HeaderList =
  | OutgoingHttpHeaders
  | OutgoingHttpHeader[]
  | (readonly [string, OutgoingHttpHeader])[];

type Header = readonly [name: string, value: OutgoingHttpHeader];

/** The same as pairs, without those that have no value. */
export function pairsOf(headers: HeaderList): readonly Header[] {
  const isFlat = Array.isArray(headers) && !Array.isArray(headers[0]);
  const pairs = isFlat
    ? headers.flatMap((name, i) => (i % 2 === 0 ? [[String(name), headers[i + 1]]] : []))
    : Array.isArray(headers)
      ? headers
      : Object.entries(headers);
  return (pairs as Header[]).filter(([, value]) => value !== undefined);
}

// --- A request's headers -----------------------------------------------------------------------

/**
 * Sets a request header, or removes it for `undefined`. Node keeps the headers twice, and adapters
 * to the Fetch API read `rawHeaders`: they would see the old value if we changed only `headers`.
 */
export function setRequestHeader(req: RequestPort, name: string, value: string | undefined): void {
  const raw = req.rawHeaders ?? [];
  let isSet = value === undefined;
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length !== name.length || raw[i]?.toLowerCase() !== name) continue;
    // In its place: to move the headers behind it would cost more.
    if (!isSet) raw[i + 1] = value as string;
    else {
      raw.splice(i, 2);
      i -= 2;
    }
    isSet = true;
  }
  if (value === undefined) delete req.headers[name];
  else {
    req.headers[name] = value;
    if (!isSet) raw.push(name, value);
  }
}

/** The value of a request header. Several values are joined, so that they match no single one. */
export function requestHeader(req: RequestPort, name: string): string | undefined {
  const value = req.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Whether a request of HTTP/1.1 has a body (RFC 9112, section 6). */
export function hasBody(req: RequestPort): boolean {
  return (
    requestHeader(req, 'transfer-encoding') !== undefined ||
    Number(requestHeader(req, 'content-length') ?? 0) !== 0
  );
}

/** Whether a content type names another charset than UTF-8. JSON is UTF-8 (RFC 8259, 8.1). */
export function namesOtherCharset(contentType: string): boolean {
  if (!/charset/i.test(contentType)) return false;
  const charsets = contentType.matchAll(/charset\s*=\s*["']?([^\s"';,]*)/gi);
  return [...charsets].some(([, charset]) => !/^utf-?8$/i.test(charset ?? ''));
}

/** Whether the client asks for an event stream by name, as a GET of MCP must. */
export function acceptsEventStream(req: RequestPort): boolean {
  return /text\/event-stream/i.test(requestHeader(req, 'accept') ?? '');
}

// --- A response's headers ----------------------------------------------------------------------

function isEventStreamType(contentType: unknown): boolean {
  return /^\s*text\/event-stream\b/i.test(String(contentType));
}

export function isJsonType(contentType: unknown): boolean {
  return /^\s*application\/(\S+\+)?json\b/i.test(String(contentType));
}

/**
 * How a response's body is read: `sse` event by event, `json` as a whole, `raw` not at all. With
 * `stream` and `empty` we answer instead of the upstream. An `unreadable` body should be inspected,
 * and cannot be.
 */
export type BodyMode = 'pending' | 'sse' | 'json' | 'raw' | 'stream' | 'empty' | 'unreadable';

/**
 * How to read a body, by its status and headers. A body that should be inspected and cannot be is
 * never let through.
 *
 * @param owesResponses whether the upstream got requests
 * @param owesAnswers whether the response must carry answers of our own
 */
export function bodyModeOf(
  res: HeadPort,
  owesResponses: boolean,
  owesAnswers: boolean,
): 'sse' | 'json' | 'raw' | 'unreadable' {
  if (res.req.method === 'HEAD') return 'raw';
  const { statusCode } = res;
  const type = String(res.getHeader('content-type') ?? '');
  const kind = isEventStreamType(type) ? 'sse' : isJsonType(type) ? 'json' : undefined;
  if (kind !== undefined && isReadable(res, kind, type)) return kind;
  // No client reads a message from an error's body. But it may need the status: 401 begins a login.
  if (!succeeded(statusCode)) return 'raw';
  if (kind !== undefined) return 'unreadable';
  if (statusCode === 202 || statusCode === 204)
    return owesResponses || owesAnswers ? 'json' : 'raw';
  return owesResponses ? 'unreadable' : 'raw';
}

/** For the developer, whose client reads that the response cannot be read. */
export const RESPONSE_FAULTS = {
  noMessage:
    'the upstream answered with what is not JSON-RPC: mount the middlewares on the MCP route alone',
  noEvent: 'an event of the upstream is not JSON-RPC, and was left out',
  both: 'an answer of the upstream has both a result and an error: send one of them',
};

/** A response, or an event of one, has more bytes than the middlewares read. */
export class ResponseTooLarge extends Error {
  /** The same for the client, which knows of no option. */
  readonly said: string;

  /** @param bytes how many have come, or are announced */
  constructor(what: string, bytes: number, limit: number) {
    super(
      `${what} has ${bytes} bytes or more, and "maxMessageBytes" is ${limit}: send less, or give ` +
        'the middleware that is mounted first a higher { maxMessageBytes }',
    );
    this.name = 'ResponseTooLarge';
    this.said = `the server's response has ${bytes} bytes or more, and may have ${limit}`;
  }
}

/** For the developer: why a body is `unreadable`. */
export function whyUnreadable(res: HeadPort): string {
  const said = ['content-type', 'content-encoding'].map((name) => {
    const value = res.getHeader(name);
    return value === undefined ? `no ${name}` : `${name} ${JSON.stringify(value)}`;
  });
  return (
    `the upstream's answer cannot be inspected: status ${res.statusCode}, ${said.join(', ')}. ` +
    'Answer with application/json or text/event-stream, in UTF-8 and uncompressed'
  );
}

/**
 * The error for a request that the upstream did not answer, where its HTTP status comes too late.
 *
 * @param said the upstream's own JSON-RPC error, unchecked
 */
export function errorOfStatus(id: unknown, status: number, said: unknown): JsonObject {
  const { code, message } = isObject(said) ? said : {};
  const words = `The server answered with HTTP ${status} ${STATUS_CODES[status] ?? ''}`.trimEnd();
  return errorResponse(
    isRequestId(id) ? id : null,
    typeof code === 'number' ? code : JSON_RPC.SERVER_ERROR,
    typeof message === 'string' ? `${words}: ${message}` : words,
  );
}

export function succeeded(status: number): boolean {
  return status >= 200 && status < 300;
}

/** An event stream is always UTF-8, also where its type names another charset. */
function isReadable(res: HeadPort, kind: 'sse' | 'json', type: string): boolean {
  const encoding = res.getHeader('content-encoding');
  if (encoding !== undefined && String(encoding).trim().toLowerCase() !== 'identity') return false;
  return kind === 'sse' || !namesOtherCharset(type);
}

/** Headers that describe a body's exact bytes. */
const OF_BYTES = [
  'content-length',
  'content-encoding',
  'etag',
  'content-digest',
  'repr-digest',
  'digest',
];

/** Headers that describe how a body's bytes are framed. */
const OF_FRAMES = ['transfer-encoding', 'trailer'];

/** The upstream set these headers for its own body, and another one goes out. */
export function dropBodyHeaders(res: HeadPort, names: readonly string[] = OF_BYTES): void {
  for (const name of names) if (res.hasHeader(name)) res.removeHeader(name);
}

/** Prepares status and headers for an event stream of our own. */
export function announceStream(res: HeadPort): void {
  res.statusCode = 200;
  dropBodyHeaders(res);
  res.setHeader('content-type', 'text/event-stream');
  // `no-transform`: a compressing middleware in front would hold events back.
  res.setHeader('cache-control', 'no-cache, no-transform');
  res.setHeader('x-accel-buffering', 'no');
}

/** Prepares the headers for a body of our own: JSON, or none. */
export function announceBody(res: HeadPort, isJson: boolean): void {
  dropBodyHeaders(res, [...OF_BYTES, ...OF_FRAMES]);
  const type = res.getHeader('content-type');
  if (!isJson) res.removeHeader('content-type');
  else if (!isJsonType(type) || namesOtherCharset(String(type)))
    res.setHeader('content-type', 'application/json');
}

/** States the body's length where Node would. */
export function stateLength(res: HeadPort, length: number): void {
  if (res.hasHeader('content-length') || res.hasHeader('transfer-encoding')) return;
  const { statusCode: status } = res;
  if (res.req.method === 'HEAD' || status === 204 || status === 304 || status < 200) return;
  res.setHeader('content-length', length);
}

// --- The era of a request, and the headers that repeat its body --------------------------------

/** MCP up to 2025-11-25 has sessions; since 2026-07-28 each request stands alone. */
export type Era = 'session' | 'stateless';

export const STATELESS_SINCE = '2026-07-28';
const VERSION_HEADER = 'mcp-protocol-version';
/** The fault of a request whose header and body name two versions. */
const DIFFERENT = 'the MCP-Protocol-Version header and the body name different versions';

/**
 * The error for a request whose headers and body disagree. It must be refused: some upstreams go by
 * the headers, others by the body.
 */
export interface Contradiction {
  readonly code: number;
  readonly message: string;
}

/** The part of an exchange that names its era. */
interface EraSource {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
}

/**
 * The era of a request, which its body names: "A request carrying modern per-request `_meta` is
 * served statelessly" (MCP 2026-07-28, "Versioning"). The header may only repeat it (Streamable
 * HTTP, "Server Validation"). Upstreams of the session era do not check that. They would run a
 * stateless call in the session that the header names.
 */
export function eraOf({ req, messages, isBatch }: EraSource): Era | Contradiction {
  let claim: unknown;
  for (const each of messages) if (claim === undefined) claim = claimedVersion(each);
  if (isBatch && claim !== undefined) {
    return {
      code: JSON_RPC.INVALID_REQUEST,
      message: 'Invalid Request: a message of a batch names no protocol version of its own',
    };
  }
  if (!isStateless(claim)) return 'session';
  const header = requestHeader(req, VERSION_HEADER);
  if (header === claim) return 'stateless';
  const fault =
    header === undefined
      ? `there is no MCP-Protocol-Version header, and the body names ${claim}`
      : DIFFERENT;
  return { code: JSON_RPC.HEADER_MISMATCH, message: `Bad Request: ${fault}` };
}

/** Whether the header says that the request is stateless. Without a body, only the header can. */
export function headerSaysStateless(req: RequestPort): boolean {
  return isStateless(requestHeader(req, VERSION_HEADER));
}

/** Versions are dates, so they sort as text. */
function isStateless(version: unknown): version is string {
  return typeof version === 'string' && version >= STATELESS_SINCE;
}

/** The protocol version that a message names, or else its request's header. */
export function versionOf(req: RequestPort, call: Call): string | undefined {
  const claim = claimedVersion(call);
  return typeof claim === 'string' ? claim : requestHeader(req, VERSION_HEADER);
}

/** The protocol version in a message's `_meta`, unchecked. */
function claimedVersion({ message }: Call): unknown {
  return message.at('params', '_meta', META_CLAIM);
}

/*
 * Headers that repeat parts of the body, so that a gateway need not parse it (MCP 2026-07-28,
 * Streamable HTTP, "Request Metadata"). Where they differ from the body, a gateway would route
 * another call than we judged.
 */

const METHOD = 'mcp-method';
const NAME = 'mcp-name';
const PARAM = 'mcp-param-';

/**
 * The member of `params` that the name header repeats ("Standard Request Headers"; for tasks,
 * SEP-2663).
 */
const NAMED_BY: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};

/** The members that the name header may repeat for any other method. */
const NAMES = [['name'], ['uri'], ['taskId'], ['ref', 'name'], ['ref', 'uri']];

const DIFFERS: Contradiction = {
  code: JSON_RPC.HEADER_MISMATCH,
  message: 'Bad Request: the headers do not repeat what the body says',
};

/**
 * What is wrong with the headers that name a method and its object. In both eras they must say what
 * the body says. In a batch they must fit every message: the gate may take any of them out, and the
 * headers would still name it.
 */
export function namesFault(req: RequestPort, messages: readonly Call[]): Contradiction | undefined {
  const method = requestHeader(req, METHOD);
  const name = requestHeader(req, NAME);
  if (method === undefined && name === undefined) return undefined;
  const repeats = messages.every(
    (each) =>
      (method === undefined || each.method === method) &&
      (name === undefined || mayBeNamed(each, decodedHeader(name))),
  );
  return repeats ? undefined : DIFFERS;
}

/** The member of its params that a message repeats in the name header, where it must. */
function memberOf({ method = '' }: Call): string | undefined {
  return Object.hasOwn(NAMED_BY, method) ? NAMED_BY[method] : undefined;
}

function mayBeNamed(incoming: Call, name: string | undefined): boolean {
  if (name === undefined) return false;
  const { message } = incoming;
  const member = memberOf(incoming);
  if (member !== undefined) return message.at('params', member) === name;
  return NAMES.some((path) => message.at('params', ...path) === name);
}

/**
 * What is wrong with the headers of a request that a gate judges. In the stateless era they must be
 * there. The upstream would check that, but a call that the gate answers never gets there.
 */
export function headerFault(req: RequestPort, call: Call, era: Era): Contradiction | undefined {
  if (era === 'session') return headerSaysStateless(req) ? missingClaim(call) : undefined;
  const isNamed = requestHeader(req, NAME) !== undefined || memberOf(call) === undefined;
  return isNamed && requestHeader(req, METHOD) !== undefined ? undefined : DIFFERS;
}

/** The header says that the request is stateless, and the body does not. */
function missingClaim(call: Call): Contradiction {
  return typeof claimedVersion(call) === 'string'
    ? { code: JSON_RPC.HEADER_MISMATCH, message: `Bad Request: ${DIFFERENT}` }
    : {
        code: JSON_RPC.INVALID_PARAMS,
        message: `Invalid params: _meta must name the protocol version, as ${META_CLAIM}`,
      };
}

/** The paths of the arguments that a tool's schema mirrors, by header name without the prefix. */
export type MirroredArguments = ReadonlyMap<string, readonly string[]>;

/**
 * What is wrong with the headers of a call that mirror arguments ("Custom Headers from Tool
 * Parameters"). Where we do not know which argument a header mirrors, it is the one of its name. If
 * there is none, any equal argument will do.
 */
export function argumentsFault(
  req: RequestPort,
  { message }: Call,
  mirrored: MirroredArguments | undefined,
): Contradiction | undefined {
  for (const header of Object.keys(req.headers)) {
    if (!header.startsWith(PARAM)) continue;
    const said = decodedHeader(requestHeader(req, header) ?? '');
    const name = header.slice(PARAM.length);
    const args = message.at('params', 'arguments');
    const path = mirrored?.get(name) ?? namesLike(name, args);
    const isSaid = (value: unknown): boolean => said !== undefined && says(said, value);
    const repeats =
      path === undefined
        ? someValue(args, isSaid)
        : isSaid(message.at('params', 'arguments', ...path));
    if (!repeats) return DIFFERS;
  }
  return undefined;
}

/** The path of the argument that has a header's name, which comes in lower case. */
function namesLike(header: string, args: unknown): readonly string[] | undefined {
  if (!isObject(args)) return undefined;
  const name = Object.keys(args).find((key) => key.toLowerCase() === header);
  return name === undefined ? undefined : [name];
}

/** Whether a header has this value. Numbers are compared as numbers: `42.0` is 42. */
function says(text: string, value: unknown): boolean {
  if (typeof value === 'number') return /^-?\d+(\.\d+)?$/.test(text) && Number(text) === value;
  return value === text || (typeof value === 'boolean' && String(value) === text);
}

/**
 * A header's decoded value ("Value Encoding"). `undefined` where it has forbidden characters, or an
 * encoding that two readers may decode differently.
 */
export function decodedHeader(value: string): string | undefined {
  const [, base64] = /^=\?base64\?(.*)\?=$/.exec(value) ?? [];
  if (base64 === undefined) return /^[\t\x20-\x7e]*$/.test(value) ? value : undefined;
  const bytes = Buffer.from(base64, 'base64');
  return bytes.toString('base64') === base64 && isUtf8(bytes) ? bytes.toString() : undefined;
}

/**
 * What `Access-Control-Expose-Headers` must say, so that a page of another origin can read a
 * header; `undefined` where it says so already.
 */
export function exposing(exposed: string, header: string): string | undefined {
  const names = exposed.toLowerCase().split(/\s*,\s*/);
  if (exposed === '*' || names.includes(header.toLowerCase())) return undefined;
  return exposed === '' ? header : `${exposed}, ${header}`;
}
