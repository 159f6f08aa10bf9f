import type { Admission, RunContext } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Message } from '../wire/message.ts';
import type { GateConfig } from './gate-config.ts';

/** Tells whoever sees the run's list that it changed; the client itself in front of `message`, where that comes on a stream. */
export function tellListChanged(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  message: Message,
  context: RunContext,
): void {
  const { era, listed, byArgument } = admission;
  // A list that is stable in this era may hide in the other one, for whoever else the run is shared with.
  if (config.visibility === 'stable' || byArgument) return;
  const isOwn = era === 'session' && context === listed;
  context.listChanged(isOwn && exchange.announceListChange(message));
}
