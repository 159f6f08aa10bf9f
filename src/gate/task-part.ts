import type { Admission } from '../session/run.ts';
import type { MoveListener } from '../step/step.ts';
import type { Exchange, Part } from '../wire/exchange.ts';
import { idKey, isRequestId, type JsonObject } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { tellMoved } from './changed-lists.ts';
import type { GateConfig } from './config.ts';
import { Gates } from './gates.ts';
import {
  endInAnswer,
  endInNotice,
  questionOf,
  type TaskEnd,
  type TaskQuestion,
} from './task-end.ts';
import { findTask, type GatedTask } from './tasks.ts';

const TASKS = Buffer.from('tasks');
const ESCAPED_ASCII = Buffer.from('\\u00');

/**
 * One gate's part in an exchange that may show how tasks ended: it saves what their steps came to
 * before the client hears of it.
 */
export class TaskPart implements Part {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** But for those whose answers showed no end. */
  readonly #questions: Map<string, TaskQuestion>;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    const asked = exchange.requests.map(questionOf).filter((each) => each !== undefined);
    this.#questions = new Map(asked.map((each) => [idKey(each.id), each]));
  }

  /**
   * Whether it has anything to do there: tasks are asked for, or told of on the streams that
   * clients listen to.
   */
  static concerns({ messages, req }: Exchange): boolean {
    return (
      req.method === 'GET' ||
      messages.some(
        ({ method }) => method?.startsWith('tasks/') || method === 'subscriptions/listen',
      )
    );
  }

  wants(bytes: Buffer): boolean {
    return this.#questions.size > 0 || bytes.includes(TASKS) || bytes.includes(ESCAPED_ASCII);
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method } = message.value;
    const question =
      method === undefined && isRequestId(id) ? this.#questions.get(idKey(id)) : undefined;
    const end = question === undefined ? endInNotice(message) : endInAnswer(message, question);
    if (end !== undefined) return this.#settle(end, message);
    if (question !== undefined) this.#questions.delete(idKey(question.id));
  }

  onEnd(): JsonObject[] {
    this.#expectLate();
    return [];
  }

  onClose(): void {
    this.#expectLate();
  }

  async #settle(end: TaskEnd, message: Message): Promise<void> {
    let task: GatedTask | undefined;
    try {
      task = await findTask(this.#config, this.#admission, end.taskId);
    } catch (error) {
      this.#config.onError(error);
      // Whether it is a step's is not known, and a success must not be seen that is not saved.
      end.postpone();
      return;
    }
    if (task === undefined) return;
    const { reply } = end;
    const { era } = this.#admission;
    const run = this.#admission.runNamed(task.ticket.run);
    const about = { exchange: this.#exchange, admission: this.#admission };
    const onMoved: MoveListener = (move, isLate) =>
      tellMoved(this.#config, about, run, move, isLate ? undefined : message);
    const gates = Gates.of(this.#config, this.#exchange);
    const transform = await task.settle(reply, { era, run, gates, onMoved });
    if (reply === undefined) return;
    transform(reply);
    if (reply.changed) end.tell(reply);
  }

  /** A stream that can be resumed brings the answer elsewhere. */
  #expectLate(): void {
    const { era, session } = this.#admission;
    if (era !== 'session' || !this.#exchange.tap.resumable) return;
    for (const { id } of this.#questions.values()) {
      session.late.expect(id, `tasks of ${this.#config.workflow.id}`, (message) =>
        this.onMessage(message),
      );
    }
  }
}
