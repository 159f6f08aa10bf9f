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
  const id = incoming.id ?? null;
  const text = refusalFor(refusal, details);
  // Who asked for a task would not parse a plain result.
  if (incoming.message.at('params', 'task') !== undefined) {
    return errorResponse(id, JSON_RPC.INVALID_PARAMS, text, { [`${META_PREFIX}refusal`]: refusal });
  }
  return toolError(id, text, { [`${META_PREFIX}refusal`]: refusal }, era);
}

/**
 * What the client is told of a step that ran, or may have run, and whose outcome is not recorded.
 */
export function unknownOutcomeReply(
  id: RequestId,
  tool: string,
  workflow: string,
  { ran, era }: { readonly ran: boolean; readonly era: Era },
): JsonObject {
  const fact = ran
    ? `${tool} ran, but its outcome could not be recorded.`
    : `${tool} may have run: its outcome is unknown.`;
  const text = `[System: ${fact} Do not call it again; the operator must check what happened.]`;
  const facts = { workflow, tool, outcome: 'unknown', ran };
  return toolError(id, text, { [`${META_PREFIX}outcome`]: facts }, era);
}

export function badToolName(incoming: Call): JsonObject {
  return errorResponse(
    incoming.id ?? null,
    JSON_RPC.INVALID_PARAMS,
    'Invalid params: name must be a string',
  );
}

/** Says that there is nothing to complete, as of an argument without completions. */
export function nothingToComplete({ id }: Call, era: Era): JsonObject {
  return resultOf(id ?? null, { completion: { values: [], total: 0, hasMore: false } }, era);
}

function toolError(id: RequestId | null, text: string, meta: JsonObject, era: Era): JsonObject {
  return resultOf(id, { content: [{ type: 'text', text }], isError: true, _meta: meta }, era);
}

/**
 * A result of the middleware's own. `resultType` is required since MCP 2026-07-28 ("Results").
 */
export function resultOf(id: RequestId | null, result: JsonObject, era: Era): JsonObject {
  return {
    jsonrpc: '2.0',
    id,
    result: era === 'stateless' ? { ...result, resultType: 'complete' } : result,
  };
}

const NAME_HEADER = 'mcp-name';

/**
 * Made-up names under which the upstream is asked for what is hidden: it surely does not have them,
 * so that its answer has its own shape. A made-up name says which name it stands for, so that
 * that one can be put back on any stream of this process on which the answer comes.
 */
export class Aliases {
  /** Lower-case, since an upstream may write a URI's scheme and host that way. */
  readonly #mark = randomBytes(12).toString('hex');
  readonly #names: string[] = [];
  readonly #pattern = new RegExp(`t${this.#mark}(\\d+)z|(urn):${this.#mark}:([\\w-]*):`, 'gi');

  /** For a tool or a prompt that a gate binds, of which there are few. */
  ofName(name: string): string {
    const known = this.#names.indexOf(name);
    const index = known === -1 ? this.#names.push(name) - 1 : known;
    return `t${this.#mark}${index}z`;
  }

  /**
   * For any URI, or template of URIs: no template of the upstream's makes such a URN. A capital
   * scheme tells an upstream that repeats it as it came from one that repeats it in its normal
   * form.
   */
  ofUri(uri: string): string {
    return `URN:${this.#mark}:${Buffer.from(uri).toString('base64url')}:`;
  }

  /** Whether a made-up name may stand in these bytes. */
  areIn(bytes: Buffer): boolean {
    return bytes.includes(this.#mark);
  }

  /** Puts the names back that the client knows. */
  takeOut(message: Message): void {
    if (!message.text.includes(this.#mark)) return;
    message.rename(this.#pattern, (alias, index?: string, scheme?: string, uri = '') => {
      if (index !== undefined) return this.#names[Number(index)] ?? alias;
      const written = Buffer.from(uri, 'base64url').toString();
      return scheme === 'URN' ? written : normalForm(written);
    });
  }
}

/** Asks the upstream for what it does not have, in place of what `path` names. */
export function askForAlias(
  req: RequestPort,
  { message }: Call,
  path: readonly string[],
  alias: string,
): void {
  // Where the header contradicts the body, the upstream must find that it does.
  const header = requestHeader(req, NAME_HEADER);
  const isRepeated = header !== undefined && decodedHeader(header) === message.at(...path);
  message.set(path, alias);
  if (isRepeated) setRequestHeader(req, NAME_HEADER, alias);
}

/** What is odd has no normal form that all agree about. */
function normalForm(uri: string): string {
  return readUri(uri) === undefined ? uri : new URL(uri).href;
}
