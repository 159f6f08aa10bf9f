import type { RunContext } from '../session/run-context.ts';
import type { Step } from '../session/step.ts';
import type { Era } from '../wire/era.ts';
import type { RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Moves } from './move.ts';

/** What is done to a response once its outcome is known; the same for each replay of it. */
export type Transform = (message: Message) => void;

/** A call that was forwarded as a step, until its outcome is settled. */
export interface PendingCall {
  readonly id: RequestId;
  readonly step: Step;
  readonly context: RunContext;
  readonly era: Era;
  /** What brings the outcome: a client asks for a task again. Default: the call's response. */
  readonly carrier?: 'task';
  /** What its outcomes save. */
  moves: Moves;
  /** Whether its handler changed the run's data, which is saved whatever the outcome. */
  isUpdated?: boolean;
  /** Set once the handler has saved the success itself, in a transaction that it may still have rolled back. */
  savedByHandler?: boolean;
  /** Set by the first response that arrives: it settles the outcome, whatever comes later only repeats it. */
  transform?: MaybePromise<Transform>;
}
