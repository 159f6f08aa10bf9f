import { isUtf8 } from 'node:buffer';
import type { Call } from './call.ts';
import { requestHeader } from './headers.ts';
import { JSON_RPC, META_CLAIM } from './json-rpc.ts';
import { someValue } from './json-value.ts';
import type { RequestPort } from './ports.ts';

/** MCP up to 2025-11-25 has sessions; since 2026-07-28 each request stands alone. */
export type Era = 'session' | 'stateless';

const STATELESS_SINCE = '2026-07-28';
const VERSION_HEADER = 'mcp-protocol-version';
/** What is said of two versions. */
export const DIFFERENT = 'the MCP-Protocol-Version header and the body name different versions';

/**
 * What makes a request belong to no era: it must be refused, since upstreams disagree about which
 * part of it counts.
 */
export interface Contradiction {
  readonly code: number;
  readonly message: string;
}

/** As much of an exchange as tells its era. */
export interface EraSource {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
}

/**
 * The era of a request, which its body says: "A request carrying modern per-request `_meta` is
 * served statelessly" (MCP 2026-07-28, "Versioning"). The header may only repeat it (Streamable
 * HTTP, "Server Validation"). Upstreams of the session era do not check that: they would run a call
 * that claims to be stateless in whatever session the header names.
 */
export function eraOf({ req, messages, isBatch }: EraSource): Era | Contradiction {
  const claims = messages.map(claimOf).filter((each) => each !== undefined);
  if (isBatch && claims.length > 0) {
    return {
      code: JSON_RPC.INVALID_REQUEST,
      message: 'Invalid Request: a message of a batch names no protocol version of its own',
    };
  }
  const [claim] = claims;
  if (!isStateless(claim)) return 'session';
  const header = requestHeader(req, VERSION_HEADER);
  if (header === claim) return 'stateless';
  const fault =
    header === undefined
      ? `there is no MCP-Protocol-Version header, and the body names ${claim}`
      : DIFFERENT;
  return { code: JSON_RPC.HEADER_MISMATCH, message: `Bad Request: ${fault}` };
}

/** Whether the header alone says that the request is stateless, as for one without a body. */
export function headerSaysStateless(req: RequestPort): boolean {
  return isStateless(requestHeader(req, VERSION_HEADER));
}

/** Versions are dates, so their order is that of their text. */
function isStateless(version: unknown): version is string {
  return typeof version === 'string' && version >= STATELESS_SINCE;
}

/** The version that a request says it speaks: in its message, or else in its header. */
export function versionOf(req: RequestPort, call: Call): string | undefined {
  const claim = claimOf(call);
  return typeof claim === 'string' ? claim : requestHeader(req, VERSION_HEADER);
}

/** What a message says of its version, whatever that is. */
export function claimOf({ message }: Call): unknown {
  return message.at('params', '_meta', META_CLAIM);
}

/**
 * Headers that mirror parts of the body, so that a gateway need not parse it (MCP 2026-07-28,
 * Streamable HTTP, "Request Metadata"). What goes by them would route, or run, another call than
 * was judged where they say something else.
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

/** What any other message may be about, where somebody names it in the header all the same. */
const NAMES = [['name'], ['uri'], ['taskId'], ['ref', 'name'], ['ref', 'uri']];

const DIFFERS: Contradiction = {
  code: JSON_RPC.HEADER_MISMATCH,
  message: 'Bad Request: the headers do not repeat what the body says',
};

/**
 * What is wrong with the headers that name a method, or what it is about: where they are there,
 * they must say what the body says, whatever that is and in whichever era. Of a batch every
 * message must be what they name: what is refused of it would stay named.
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

/** What of its params a message repeats in the name header, where it must. */
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
 * What is wrong with the headers of a request for a tool, a prompt or a resource that a gate
 * judges: in the stateless era they must be there. An upstream checks it of what it is asked; of
 * what is answered in front of it nobody else does.
 */
export function headerFault(req: RequestPort, call: Call, era: Era): Contradiction | undefined {
  if (era === 'session') return headerSaysStateless(req) ? missingClaim(call) : undefined;
  const isNamed = requestHeader(req, NAME) !== undefined || memberOf(call) === undefined;
  return isNamed && requestHeader(req, METHOD) !== undefined ? undefined : DIFFERS;
}

/** The header says that a request is stateless, and its body does not. */
function missingClaim(call: Call): Contradiction {
  return typeof claimOf(call) === 'string'
    ? { code: JSON_RPC.HEADER_MISMATCH, message: `Bad Request: ${DIFFERENT}` }
    : {
        code: JSON_RPC.INVALID_PARAMS,
        message: `Invalid params: _meta must name the protocol version, as ${META_CLAIM}`,
      };
}

/**
 * Where a tool's schema says that arguments are mirrored: their paths, by the header's name behind
 * the prefix.
 */
export type MirroredArguments = ReadonlyMap<string, readonly string[]>;

/**
 * What is wrong with the headers of a call that mirror arguments ("Custom Headers from Tool
 * Parameters"). Where it is not known which argument a header is about, one at least must say the
 * same.
 */
export function argumentsFault(
  req: RequestPort,
  { message }: Call,
  mirrored: MirroredArguments | undefined,
): Contradiction | undefined {
  for (const header of Object.keys(req.headers)) {
    if (!header.startsWith(PARAM)) continue;
    const said = decodedHeader(requestHeader(req, header) ?? '');
    const path = mirrored?.get(header.slice(PARAM.length));
    const isSaid = (value: unknown): boolean => said !== undefined && says(said, value);
    const repeats =
      path === undefined
        ? someValue(message.at('params', 'arguments'), isSaid)
        : isSaid(message.at('params', 'arguments', ...path));
    if (!repeats) return DIFFERS;
  }
  return undefined;
}

/** Whether a header stands for this value. Integers are compared as numbers: `42.0` is 42. */
function says(text: string, value: unknown): boolean {
  if (typeof value === 'number') return /^-?\d+(\.\d+)?$/.test(text) && Number(text) === value;
  return value === text || (typeof value === 'boolean' && String(value) === text);
}

/**
 * "Value Encoding"; `undefined` where the value has characters that it must not have, or is encoded
 * in a way that may be read differently.
 */
export function decodedHeader(value: string): string | undefined {
  const [, base64] = /^=\?base64\?(.*)\?=$/.exec(value) ?? [];
  if (base64 === undefined) return /^[\t\x20-\x7e]*$/.test(value) ? value : undefined;
  const bytes = Buffer.from(base64, 'base64');
  return bytes.toString('base64') === base64 && isUtf8(bytes) ? bytes.toString() : undefined;
}
