import type { Relay } from '../notify/relay.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isRequestId } from '../wire/json-rpc.ts';
import type { LiveSession } from './live-session.ts';

/** What the client tells the session beside its requests: a request is cancelled, a question of the upstream's is answered. */
export function noteNotices(
  exchange: Exchange,
  session: LiveSession,
  relay: Relay | undefined,
): void {
  for (const { kind, id, method, message } of exchange.messages) {
    if (kind === 'response' && id !== undefined) session.answered(id);
    if (method !== 'notifications/cancelled') continue;
    const cancelled = message.at('params', 'requestId');
    if (isRequestId(cancelled) && !session.cancel(cancelled))
      relay?.cancelled(session.run, cancelled);
  }
}
