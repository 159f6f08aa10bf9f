import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Redis } from '@upstash/redis';
import { currentStep } from 'mcp-interlock';
import * as z from 'zod';

/**
 * An MCP server for one request. What must outlive it is in Redis or at the payment provider.
 */
export function cartServer(redis: Redis, session: string): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  const cart = `cart:${session}`;
  const items = () => redis.lrange<string>(cart, 0, -1);

  server.registerTool(
    'cart_add_item',
    { description: 'Puts an item into the cart.', inputSchema: { sku: z.string() } },
    async ({ sku }) => {
      await redis.rpush(cart, sku);
      return say(`${sku} is in the cart.`);
    },
  );
  server.registerTool('cart_view', { description: 'Shows the cart.' }, async () => {
    return say(`In the cart: ${(await items()).join(', ') || 'nothing'}.`);
  });
  server.registerTool('cart_checkout', { description: 'Fixes the price.' }, async () => {
    return say(`To pay: ${(await items()).length * 10} euros.`);
  });
  server.registerTool('cart_pay', { description: 'Charges the card.' }, async (extra) => {
    await charge((await items()).length * 10, currentStep(extra)?.idempotencyKey ?? '');
    return say('Paid.');
  });
  return server;
}

function say(text: string) {
  return { content: [{ type: 'text' as const, text }] };
}

/** Payment providers charge once for one key, however often they are asked. */
async function charge(euros: number, key: string): Promise<void> {
  const response = await fetch(process.env.PAYMENTS_URL ?? 'http://127.0.0.1:4000/charges', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify({ euros }),
  });
  if (!response.ok) throw new Error(`The payment was refused: ${response.status}`);
}
