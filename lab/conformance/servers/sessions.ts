import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import { ListEventStore } from '../../../test/helpers/event-store.ts';

/** As much of a session-era transport as those of both SDKs have in common. */
export interface SessionTransport {
  handleRequest(req: IncomingMessage, res: ServerResponse, body?: unknown): Promise<void>;
}

/**
 * The options of a transport whose streams can be resumed, and which is known as long as its
 * session lasts.
 */
export type SessionOptions = ReturnType<typeof optionsOf>;

/** A route of the session era: a transport for each session, and 404 where there is none. */
export function sessionRoute(
  open: (options: SessionOptions) => Promise<SessionTransport>,
): RequestHandler {
  const sessions = new Map<string, SessionTransport>();

  async function openTransport(): Promise<SessionTransport> {
    const transport = await open(
      optionsOf(
        (id) => void sessions.set(id, transport),
        (id) => void sessions.delete(id),
      ),
    );
    return transport;
  }

  return async (req, res) => {
    const id = req.get('mcp-session-id');
    // Without an id it can only be `initialize`: a new transport refuses everything else by itself.
    const transport = id === undefined ? await openTransport() : sessions.get(id);
    if (transport !== undefined) return transport.handleRequest(req, res, req.body);
    const error = { code: -32001, message: 'Session not found' };
    res.status(404).json({ jsonrpc: '2.0', id: null, error });
  };
}

function optionsOf(
  onsessioninitialized: (id: string) => void,
  onsessionclosed: (id: string) => void,
) {
  return {
    sessionIdGenerator: () => randomUUID(),
    eventStore: new ListEventStore(),
    /** What a client waits before it comes back to a stream that was closed, in milliseconds. */
    retryInterval: 500,
    onsessioninitialized,
    onsessionclosed,
  };
}
