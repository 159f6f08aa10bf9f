import type { Relay } from '../notify/relay.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isRequestId } from '../wire/json-rpc.ts';
import type { LiveSession } from './live-session.ts';

/**
 * What the client tells the session beside its requests: a request is cancelled, a question of the
 * upstream's is answered. A server "SHOULD NOT" answer what was cancelled (MCP, "Cancellation"),
 * and the SDKs do not. So the upstream is not told of a step whose outcome nobody could find out
 * then.
 */
export function noteNotices(
  exchange: Exchange,
  session: LiveSession,
  relay: Relay | undefined,
): void {
  for (const incoming of exchange.messages) {
    const { kind, id, method, message } = incoming;
    if (kind === 'response' && id !== undefined) session.answered(id);
    if (method !== 'notifications/cancelled') continue;
    const cancelled = message.at('params', 'requestId');
    if (!isRequestId(cancelled)) continue;
    if (!session.cancel(cancelled)) relay?.cancelled(session.run, cancelled);
    else if (session.inFlight(cancelled)?.mustEnd) exchange.drop(incoming);
  }
}
