import type { Outcome } from '../step/move.ts';
import { isObject, JSON_RPC } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';

/** A task that a call has created, in place of its result. */
export interface CreatedTask {
  readonly taskId: string;
  /**
   * How long the task is kept from its creation on, in milliseconds; `undefined` where nobody says.
   */
  readonly ttlMs: number | undefined;
}

/**
 * Flat under the tasks extension of MCP 2026-07-28, nested in MCP 2025-11-25. What else is there
 * counts for nothing: an SDK may add an empty `content`.
 */
export function createdTask(message: Message): CreatedTask | undefined {
  const { result } = message.value;
  if (!isObject(result)) return undefined;
  if (result.resultType === 'task') return taskOf(result.taskId, result.ttlMs);
  const isNested = result.resultType === undefined && isObject(result.task);
  return isNested
    ? taskOf(message.at('result', 'task', 'taskId'), message.at('result', 'task', 'ttl'))
    : undefined;
}

function taskOf(taskId: unknown, ttl: unknown): CreatedTask | undefined {
  if (typeof taskId !== 'string') return undefined;
  return { taskId, ttlMs: typeof ttl === 'number' && ttl > 0 ? ttl : undefined };
}

/**
 * Only a result that is complete, and says so or says nothing, is a success (MCP 2026-07-28,
 * "Results": `resultType`). A task that cannot be told by its id is carried to no end, and what
 * nobody knows is never guessed.
 */
export function outcomeOf(message: Message): Outcome['kind'] {
  const { result, error } = message.value;
  if (message.isContradictory) return 'unknown';
  // It asks for something that the client cannot give: an input, by another name.
  if (isObject(error) && error.code === JSON_RPC.MISSING_CAPABILITY) return 'input_required';
  if (error !== undefined) return 'failed';
  if (!isObject(result)) return 'unknown';
  if (result.resultType === 'input_required') return 'input_required';
  if (result.resultType !== undefined && result.resultType !== 'complete') return 'unknown';
  if (result.task !== undefined) return 'unknown';
  return result.isError === true ? 'failed' : 'succeeded';
}
