import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { type CurrentStep, currentStep, type StepSource } from 'mcp-interlock';
import type { Runs } from 'mcp-interlock/runs';
import * as z from 'zod';
import type { Orders } from './orders.ts';

/** What costs more than this waits for a manager, in euros. */
const LIMIT = 1000;
const PRICE = 100;

/** The tools of an agent whose order is the run with this key. */
export function makeServer(orders: Orders, runs: Runs, run: string): McpServer {
  const server = new McpServer({ name: 'orders', version: '1.0.0' });

  server.registerTool(
    'get_order_workflow',
    { description: 'Says where the order stands, and what moved it.' },
    async () => {
      const view = await runs.read(run);
      const recent = await runs.history(run, 5);
      const summary = {
        current_state: view?.snapshot.state,
        order: view?.context,
        recent_events: recent.map(({ event, to }) => `${event} -> ${to}`),
      };
      return { ...say(JSON.stringify(summary)), structuredContent: summary };
    },
  );
  server.registerTool(
    'reserve_inventory',
    { description: 'Reserves what is ordered.', inputSchema: { quantity: z.int().positive() } },
    async ({ quantity }, extra) => {
      const { run, update } = stepOf(extra);
      const { id, total } = await orders.create(run, quantity * PRICE);
      update(() => ({ order: id, total }));
      return say(`Order ${id} is reserved: ${total} EUR.`);
    },
  );
  server.registerTool(
    'authorize_payment',
    { description: 'Has the payment authorized.' },
    async (extra) => {
      const { total } = stepOf(extra).context as { total: number };
      const needsApproval = total > LIMIT;
      const text = needsApproval
        ? 'A manager has to approve it first.'
        : 'The payment is authorized.';
      return { ...say(text), structuredContent: { needsApproval } };
    },
  );
  server.registerTool('capture_payment', { description: 'Takes the money.' }, async (extra) => {
    const { run, idempotencyKey, commitIn } = stepOf(extra);
    // With a payment provider: charge first, with this key, so that a repetition does not charge
    // twice.
    await orders.charge(run, idempotencyKey, (client) => commitIn(client));
    return say('The payment is captured.');
  });
  server.registerTool('trigger_fulfillment', { description: 'Calls the warehouse.' }, async () => {
    return say('The warehouse knows.');
  });
  server.registerTool('cancel_order', { description: 'Cancels the order.' }, async () =>
    say('Cancelled.'),
  );
  return server;
}

/** Each of these tools is bound, and sends an event, so its handler always runs in a step. */
function stepOf(extra: StepSource): CurrentStep {
  const current = currentStep(extra);
  if (current === undefined) throw new Error('this tool needs its gate in the same process');
  return current;
}

function say(text: string) {
  return { content: [{ type: 'text' as const, text }] };
}
