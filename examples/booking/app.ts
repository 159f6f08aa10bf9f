import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express } from 'express';
import { fsmGate, sessionStore } from 'mcp-interlock';
import type { StateStore } from 'mcp-interlock/stores';
import { bookingGate } from './booking.ts';
import type { Slots } from './slots.ts';
import { makeServer } from './tools.ts';

/** `slots` is the app's own database, `store` keeps the runs. */
export function bookingApp(slots: Slots, store?: StateStore): Express {
  const app = express();
  app.all('/mcp', sessionStore({ store }), fsmGate(bookingGate(slots)), async (req, res) => {
    if (req.method !== 'POST') return void res.writeHead(405, { allow: 'POST' }).end();
    const server = makeServer(slots);
    const transport = new StreamableHTTPServerTransport();
    res.on('close', () => void server.close());
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(req, res, req.body);
  });
  return app;
}
