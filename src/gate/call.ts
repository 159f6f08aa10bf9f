import type { RunContext } from '../session/run-context.ts';
import type { Step } from '../session/step.ts';
import type { Era } from '../wire/era.ts';
import type { Exchange } from '../wire/exchange.ts';
import { idKey, type RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { Note } from '../wire/note.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './gate-config.ts';
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
  /**
   * Set once the handler has saved the success itself, in a transaction that it may still have
   * rolled back.
   */
  savedByHandler?: boolean;
  /** Where it left the run, for its clients; set once that is known. */
  leaves?: Position;
  /** The state that it moved the run to, if it did. */
  movedTo?: string;
  /**
   * Set by the first response that arrives: it settles the outcome, whatever comes later only
   * repeats it.
   */
  transform?: MaybePromise<Transform>;
}

/** A call, and one of the gates that it is a step of. */
export interface HeldCall {
  readonly call: PendingCall;
  readonly config: GateConfig;
}

/** By the call's id, in the order of mounting. */
const held = new Note<Exchange, Map<string, readonly HeldCall[]>>();

/** Notes which steps a call is, for {@link holdersOf}. */
export function hold(exchange: Exchange, holder: HeldCall): void {
  const calls = held.of(exchange) ?? new Map<string, readonly HeldCall[]>();
  held.put(exchange, calls);
  const key = idKey(holder.call.id);
  calls.set(key, [...(calls.get(key) ?? []), holder]);
}

/** The steps that a call is, where that was noted. */
export function holdersOf(exchange: Exchange, id: RequestId): readonly HeldCall[] {
  return held.of(exchange)?.get(idKey(id)) ?? [];
}
