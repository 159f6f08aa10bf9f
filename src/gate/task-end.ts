import type { Call } from '../wire/call.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import { Message } from '../wire/message.ts';

/** A request whose answer may show how a task ended. */
export interface TaskQuestion {
  readonly id: RequestId;
  readonly method: 'tasks/get' | 'tasks/result' | 'tasks/cancel';
  readonly taskId: string;
}

/** The end of a task, as a message on its way to the client shows it. */
export interface TaskEnd {
  readonly taskId: string;
  /**
   * What the call would have been answered without a task; `undefined` where the task was
   * cancelled.
   */
  readonly reply: Message | undefined;
  /** Writes a reply that was changed back to where it came from, as far as that has room for it. */
  tell(reply: Message): void;
  /** Keeps the end from the client, who may ask again. */
  postpone(): void;
}

const LATER = 'The outcome of the task could not be recorded; try again later';
const STATUS_NOTE = 'notifications/tasks/status';

export function questionOf({ id, method, message }: Call): TaskQuestion | undefined {
  if (method !== 'tasks/get' && method !== 'tasks/result' && method !== 'tasks/cancel')
    return undefined;
  const taskId = message.at('params', 'taskId');
  return id === undefined || typeof taskId !== 'string' ? undefined : { id, method, taskId };
}

/**
 * The end that a notification tells of: SDK v1's with the status alone, the extension's with the
 * result.
 */
export function endInNotice(message: Message): TaskEnd | undefined {
  const { method, params } = message.value;
  if (method !== STATUS_NOTE && method !== 'notifications/tasks') return undefined;
  if (!isObject(params)) return undefined;
  const postpone = (): void => {
    message.set(['params', 'status'], 'working');
    for (const key of ['result', 'error']) message.remove(['params'], key);
  };
  return endOf(message, 'params', params, { hasStatusOnly: method === STATUS_NOTE, postpone });
}

/** The end that an answer shows, if it answers the question. */
export function endInAnswer(message: Message, question: TaskQuestion): TaskEnd | undefined {
  const { result } = message.value;
  const postpone = (): void =>
    message.replace(errorResponse(question.id, JSON_RPC.INTERNAL_ERROR, LATER));
  if (question.method === 'tasks/result') return endInResult(message, question, postpone);
  if (!isObject(result) || result.taskId !== question.taskId) return undefined;
  // All results of the stateless era have a `resultType`, and its tasks their results in them.
  return endOf(message, 'result', result, {
    hasStatusOnly: result.resultType === undefined,
    postpone,
  });
}

/**
 * `tasks/result` returns what the call would have returned, errors included (MCP 2025-11-25,
 * "Tasks"). But an error of a reserved code (JSON-RPC 2.0, section 5.1) may just as well be about
 * the question: no such task, a task store that is away. `tasks/get` tells the one from the other.
 */
function endInResult(
  message: Message,
  { taskId }: TaskQuestion,
  postpone: () => void,
): TaskEnd | undefined {
  const { result, error } = message.value;
  if (isObject(error) && isReserved(error.code)) return undefined;
  const member = error === undefined ? 'result' : 'error';
  if (!isObject(error ?? result)) return undefined;
  return { taskId, ...replyAt(message, [], member), postpone };
}

function isReserved(code: unknown): boolean {
  return typeof code !== 'number' || (code >= -32768 && code <= -32000);
}

interface Shape {
  /** Whether the status is all that there is to know, as in SDK v1. */
  readonly hasStatusOnly: boolean;
  readonly postpone: () => void;
}

/** The end of a task that stands at `at`; `input_required` and `working` are none. */
function endOf(
  message: Message,
  at: 'params' | 'result',
  { taskId, status, result, error }: JsonObject,
  { hasStatusOnly, postpone }: Shape,
): TaskEnd | undefined {
  if (typeof taskId !== 'string') return undefined;
  if (status === 'cancelled') return { taskId, reply: undefined, tell() {}, postpone };
  if (status === 'completed' && isObject(result))
    return { taskId, ...replyAt(message, [at], 'result'), postpone };
  if (status === 'failed' && isObject(error))
    return { taskId, ...replyAt(message, [at], 'error'), postpone };
  if (status !== 'failed' && !(status === 'completed' && hasStatusOnly)) return undefined;
  return { taskId, ...replyByStatus(message, at, status === 'failed'), postpone };
}

/** The reply that stands in the message as it would have come, to the character. */
function replyAt(
  message: Message,
  path: readonly string[],
  member: 'result' | 'error',
): Pick<TaskEnd, 'reply' | 'tell'> {
  const place = [...path, member];
  const text = `{"jsonrpc":"2.0","id":0,"${member}":${message.textAt(place) ?? '{}'}}`;
  return {
    reply: new Message(JSON.parse(text) as JsonObject, text),
    tell(reply) {
      const changed = reply.textAt([member]);
      if (changed !== undefined) message.setText(place, changed);
    },
  };
}

/**
 * A status says whether it went well, and no more. That the outcome was lost fits in as a failure,
 * which is what `tasks/result` will show.
 */
function replyByStatus(
  message: Message,
  at: 'params' | 'result',
  isError: boolean,
): Pick<TaskEnd, 'reply' | 'tell'> {
  return {
    reply: new Message({ jsonrpc: '2.0', id: 0, result: { content: [], isError } }),
    tell(reply) {
      if (isError || reply.at('result', 'isError') !== true) return;
      const content = reply.at('result', 'content');
      const words = Array.isArray(content) && isObject(content[0]) ? content[0].text : undefined;
      message.set([at, 'status'], 'failed');
      message.set([at, 'statusMessage'], words ?? LATER);
    },
  };
}
