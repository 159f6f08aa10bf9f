import type { Call } from '../wire/call.ts';
import type { Era } from '../wire/era.ts';
import {
  errorResponse,
  JSON_RPC,
  type JsonObject,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import { type Refusal, type RefusalDetails, refusalFor } from '../workflow/advice.ts';

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

/** `resultType` is required since MCP 2026-07-28 ("Results"). */
function resultOf(id: RequestId | null, result: JsonObject, era: Era): JsonObject {
  return {
    jsonrpc: '2.0',
    id,
    result: era === 'stateless' ? { ...result, resultType: 'complete' } : result,
  };
}
