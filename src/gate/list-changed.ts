import type { Admission, RunContext } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Message } from '../wire/message.ts';
import type { GateConfig } from './gate-config.ts';
import { visibilityFor } from './tool-list.ts';

/** Tells whoever sees the run's list that it changed; the client itself in front of `message`, where that comes on a stream. */
export function tellListChanged(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  message: Message,
  context: RunContext,
): void {
  if (visibilityFor(config, admission) === 'stable') return;
  const isOwn = admission.era === 'session' && context === admission.listed;
  context.listChanged(isOwn && exchange.announceListChange(message));
}
