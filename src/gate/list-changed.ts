import type { Admission, RunContext } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { GateConfig } from './gate-config.ts';

/** Lists of a run that show other things now, and the message that says so to whoever moved it. */
export interface ListChange {
  /** None where it has gone already. */
  readonly message: Message | undefined;
  readonly context: RunContext;
  readonly lists: readonly ListKind[];
}

/**
 * Tells whoever sees the run's list that it changed; the client itself in front of `message`, where
 * that comes on a stream.
 */
export function tellListChanged(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  { message, context, lists }: ListChange,
): void {
  const { era, listed, byArgument } = admission;
  // A list that is stable in this era may hide in the other one, for whoever else the run is shared
  // with.
  if (config.visibility === 'stable' || byArgument) return;
  const isOwn = era === 'session' && context === listed;
  const isTold = isOwn && message !== undefined && exchange.announceListChange(message, lists);
  context.listChanged(lists, isTold);
}
