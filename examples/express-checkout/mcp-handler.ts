import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Request, Response } from 'express';
import { currentStep } from 'mcp-interlock';
import * as z from 'zod';
import { Shop } from './shop.ts';

const shop = new Shop(process.env.SHOP_DB ?? ':memory:');

/** A shop's tools as they are without a gate. The client's session names its cart. */
function makeServer(cart: string): McpServer {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });

  server.registerTool(
    'cart_add_item',
    { description: 'Puts an item into the cart.', inputSchema: { sku: z.string() } },
    async ({ sku }) => {
      shop.add(cart, sku);
      return say(`Added ${sku}.`);
    },
  );
  server.registerTool('cart_checkout', { description: 'Goes to the till.' }, async () => {
    return say(`To pay: ${shop.total(cart)} EUR.`);
  });
  server.registerTool('cart_pay', { description: 'Pays what is in the cart.' }, async (extra) => {
    await shop.pay(cart, currentStep(extra)?.idempotencyKey ?? crypto.randomUUID());
    return say('Paid. Thank you.');
  });
  server.registerTool('cart_view', { description: 'Shows the cart.' }, async () => {
    return say(
      `Items: ${shop.items(cart).join(', ') || 'none'}. Payments: ${shop.payments(cart)}.`,
    );
  });
  return server;
}

function say(text: string) {
  return { content: [{ type: 'text' as const, text }] };
}

/** The official SDK's stateless way: a server and a transport for each request. */
export async function mcpHandler(req: Request, res: Response): Promise<void> {
  if (req.method !== 'POST') {
    res.status(405).set('Allow', 'POST').end();
    return;
  }
  const server = makeServer(req.get('mcp-session-id') ?? '');
  const transport = new StreamableHTTPServerTransport();
  res.on('close', () => {
    transport.close();
    server.close();
  });
  await server.connect(transport as never);
  await transport.handleRequest(req, res, req.body);
}
