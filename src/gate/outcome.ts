import { isObject, JSON_RPC } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';

/** What a forwarded call came to, read off its response. */
export type Outcome = 'succeeded' | 'failed' | 'input_required' | 'unknown';

/**
 * Only a result that is complete, and says so or says nothing, is a success (MCP 2026-07-28, "Results": `resultType`). A task that was only
 * created has come to nothing yet, and what nobody knows is never guessed.
 */
export function outcomeOf(message: Message): Outcome {
  const { result, error } = message.value;
  // It asks for something that the client cannot give: an input, by another name.
  if (isObject(error) && error.code === JSON_RPC.MISSING_CAPABILITY) return 'input_required';
  if (error !== undefined) return 'failed';
  if (!isObject(result)) return 'unknown';
  if (result.resultType === 'input_required') return 'input_required';
  if (result.resultType !== undefined && result.resultType !== 'complete') return 'unknown';
  if (result.task !== undefined) return 'unknown';
  return result.isError === true ? 'failed' : 'succeeded';
}
