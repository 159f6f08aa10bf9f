import type { Call } from '../wire/call.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import { Message } from '../wire/message.ts';

/** A request whose answer may show a task's end. */
export interface TaskQuestion {
  readonly id: RequestId;
  readonly method: 'tasks/get' | 'tasks/result' | 'tasks/cancel';
  readonly taskId: string;
}

/** A task's end, as a message to the client shows it. */
export interface TaskEnd {
  readonly taskId: string;
  /** What the call would have got without a task; `undefined` where the task was cancelled. */
  readonly reply: Message | undefined;
  /** Writes a changed reply back into the message, as far as the message has room for it. */
  tell(reply: Message): void;
  /** Hides the end from the client, who may ask again. */
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

/** The end in a notification: SDK v1's has the status alone, the extension's has the result. */
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

/** The end in the answer to a question. */
export function endInAnswer(message: Message, question: TaskQuestion): TaskEnd | undefined {
  const { result } = message.value;
  const postpone = (): void =>
    message.replace(errorResponse(question.id, JSON_RPC.INTERNAL_ERROR, LATER));
  if (question.method === 'tasks/result') return endInResult(message, question, postpone);
  if (!isObject(result) || result.taskId !== question.taskId) return undefined;
  // The stateless era's results have a `resultType`, and its tasks contain their results.
  return endOf(message, 'result', result, {
    hasStatusOnly: result.resultType === undefined,
    postpone,
  });
}

/**
 * `tasks/result` returns what the call would have returned, errors included (MCP 2025-11-25,
 * "Tasks"). An error of a reserved code (JSON-RPC 2.0, section 5.1) may be about the question
 * itself, such as an unknown task. So it is no end: `tasks/get` will show the end.
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
  /** Whether the status alone tells the end, as in SDK v1. */
  readonly hasStatusOnly: boolean;
  readonly postpone: () => void;
}

/** The end of the task at `at`. A status of `input_required` or `working` is no end. */
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

/** The reply in the message, character by character as the call would have got it. */
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
 * A status says success or failure, and no more. An outcome that could not be saved is written as a
 * failure: `tasks/result` will show the same.
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
