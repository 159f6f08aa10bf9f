import { randomBytes } from 'node:crypto';
import type { Call } from '../wire/call.ts';
import {
  decodedHeader,
  type Era,
  type RequestPort,
  requestHeader,
  setRequestHeader,
} from '../wire/headers.ts';
import {
  errorResponse,
  JSON_RPC,
  type JsonObject,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { type Refusal, type RefusalDetails, refusalFor } from '../workflow/advice.ts';
import { readUri } from '../workflow/resource-pattern.ts';

/** A tool result that says "no" in words for the model and in facts for programs. */
export function refusalReply(
  incoming: Call,
  refusal: Refusal,
  details: RefusalDetails | undefined,
  era: Era,
): JsonObject {
  const text = refusalFor(refusal, details);
  const data = { [`${META_PREFIX}refusal`]: refusal };
  // A client that asked for a task would not parse a plain result.
  return incoming.message.at('params', 'task') === undefined
    ? toolError(incoming.id ?? null, text, data, era)
    : invalidParams(incoming, text, data);
}

/**
 * What the client reads of a step that ran, or may have run, without a recorded outcome.
 *
 * @param said `mayRepeat`: the same call gets the same idempotency key. `words`: the handler's own
 */
export function unknownOutcomeReply(
  id: RequestId,
  tool: string,
  workflow: string,
  {
    ran,
    era,
    words,
    mayRepeat = false,
  }: {
    readonly ran: boolean;
    readonly era: Era;
    readonly words?: string | undefined;
    readonly mayRepeat?: boolean;
  },
): JsonObject {
  const why = words === undefined ? '' : ` (${words})`;
  const fact = ran
    ? `${tool} ran, but its outcome could not be recorded.`
    : `${tool} may have run: its outcome is unknown${why}.`;
  const advice = mayRepeat
    ? 'To find out, call it again with exactly the same arguments, and no others.'
    : 'Do not call it again; the operator must check what happened.';
  const text = `[System: ${fact} ${advice}]`;
  // Whether it ran is left out where it is unknown: `false` would read as a promise.
  const facts = { workflow, tool, outcome: 'unknown', ...(ran && { ran }) };
  return toolError(id, text, { [`${META_PREFIX}outcome`]: facts }, era);
}

/** What the client reads of a lookup that ran, and that its run could not record. */
export function unrecordedReply(
  id: RequestId,
  tool: string,
  workflow: string,
  era: Era,
): JsonObject {
  const text =
    `[System: ${tool} ran, but its success could not be recorded, so it does not count yet. ` +
    'Call it again before the tools that need it.]';
  const facts = { workflow, tool, outcome: 'unrecorded', ran: true };
  return toolError(id, text, { [`${META_PREFIX}outcome`]: facts }, era);
}

/** The answer to a request whose params are not taken, or not now. */
export function invalidParams({ id }: Call, words: string, data?: unknown): JsonObject {
  return errorResponse(id ?? null, JSON_RPC.INVALID_PARAMS, words, data);
}

function toolError(id: RequestId | null, text: string, meta: JsonObject, era: Era): JsonObject {
  return resultOf(id, { content: [{ type: 'text', text }], isError: true, _meta: meta }, era);
}

/** The gate's own result. MCP 2026-07-28 requires a `resultType` ("Results"). */
export function resultOf(id: RequestId | null, result: JsonObject, era: Era): JsonObject {
  return {
    jsonrpc: '2.0',
    id,
    result: era === 'stateless' ? { ...result, resultType: 'complete' } : result,
  };
}

const NAME_HEADER = 'mcp-name';
/** How many names a gate remembers. */
const MOST_NAMES = 1_000;
/** In characters. A tool's name has at most 128 ("SHOULD": MCP 2026-07-28, "Tool Names"). */
export const LONGEST_NAME = 256;

/**
 * Made-up names for what is hidden. The gate forwards a request under such a name, so the client
 * gets the upstream's own error for something that does not exist. The name says which one it
 * replaces: any stream of this process can put that one back.
 */
export class Aliases {
  /** In lower case, because an upstream may write a URI's scheme and host that way. */
  readonly #mark = randomBytes(12).toString('hex');
  readonly #names: string[] = [];
  readonly #pattern = new RegExp(
    `t${this.#mark}(?:(\\d+)|x([\\da-f]*))z|(urn):${this.#mark}:([\\w-]*):`,
    'gi',
  );

  /**
   * For a tool or a prompt. An alias is short, as names are, so that no upstream takes it for too
   * long. Clients make up names that a glob binds, or no gate. So a gate remembers a few names, and
   * the alias of any other one has all of it.
   */
  ofName(name: string): string {
    const known = this.#names.indexOf(name);
    const hasRoom = this.#names.length < MOST_NAMES && name.length <= LONGEST_NAME;
    if (known === -1 && !hasRoom)
      return `t${this.#mark}x${Buffer.from(name, 'utf16le').toString('hex')}z`;
    const index = known === -1 ? this.#names.push(name) - 1 : known;
    return `t${this.#mark}${index}z`;
  }

  /**
   * For any URI or URI template; no template of the upstream's matches such a URN. The capital
   * scheme shows whether the upstream repeats the URI as it came, or in its normal form.
   */
  ofUri(uri: string): string {
    return `URN:${this.#mark}:${Buffer.from(uri).toString('base64url')}:`;
  }

  /** Puts back the names that the client asked for. */
  takeOut(message: Message): void {
    if (!message.text.includes(this.#mark)) return;
    message.rename(
      this.#pattern,
      (alias, index?: string, whole?: string, scheme?: string, uri = '') => {
        if (index !== undefined) return this.#names[Number(index)] ?? alias;
        if (whole !== undefined) return Buffer.from(whole, 'hex').toString('utf16le');
        const written = Buffer.from(uri, 'base64url').toString();
        return scheme === 'URN' ? written : normalForm(written);
      },
    );
  }
}

/** Changes a request to ask for the alias, in place of the name at `path`. */
export function askForAlias(
  req: RequestPort,
  { message }: Call,
  path: readonly string[],
  alias: string,
): void {
  // A header that contradicts the body stays: the upstream must see the contradiction.
  const header = requestHeader(req, NAME_HEADER);
  const isRepeated = header !== undefined && decodedHeader(header) === message.at(...path);
  message.set(path, alias);
  if (isRepeated) setRequestHeader(req, NAME_HEADER, alias);
}

/** An unclear URI has no normal form that all parsers agree on: it stays as it is. */
function normalForm(uri: string): string {
  return readUri(uri) === undefined ? uri : new URL(uri).href;
}
