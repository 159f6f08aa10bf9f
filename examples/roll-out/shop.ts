/** A shop's MCP server, as it is without a gate. */
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Request, RequestHandler, Response } from 'express';
import * as z from 'zod';

const cart = z.string();

function makeServer(): McpServer {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const done = (text: string) => () => ({ content: [{ type: 'text' as const, text }] });
  const readOnly = { annotations: { readOnlyHint: true } };
  server.registerTool('search', { description: 'Finds articles', ...readOnly }, done('tea, cups'));
  server.registerTool(
    'add_item',
    { description: 'Puts an article into a cart', inputSchema: { sku: z.string() } },
    done('Added.'),
  );
  server.registerTool(
    'checkout',
    { description: 'Fixes what a cart costs', inputSchema: { cart } },
    done('To pay: 10 EUR.'),
  );
  server.registerTool(
    'pay',
    { description: 'Pays a cart', inputSchema: { cart, amount: z.number() } },
    done('Paid.'),
  );
  return server;
}

/** The MCP route of the shop, with a transport for each session. */
export function shop(): RequestHandler {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  return async (req: Request, res: Response) => {
    let transport = transports.get(req.get('mcp-session-id') ?? '');
    if (transport === undefined) {
      const made: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => void transports.set(id, made),
      });
      await makeServer().connect(made);
      transport = made;
    }
    await transport.handleRequest(req, res, req.body);
  };
}
