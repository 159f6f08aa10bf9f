/**
 * Runs in a user's project as one release of the package: `shop.ts DRIVER ADDRESS TOKEN` serves a
 * shop on `PORT`, whose runs are kept behind that driver. A header names the run.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Request, type Response } from 'express';
import { fsmGate, runKey, StateMachineGate, sessionStore } from 'mcp-interlock';
import { DRIVERS } from './driver-stores.ts';

const [driver = '', address = '', token = ''] = process.argv.slice(2);

async function serveShop(req: Request, res: Response): Promise<void> {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const done = () => ({ content: [{ type: 'text' as const, text: 'Done.' }] });
  for (const tool of ['add_item', 'checkout', 'pay']) server.registerTool(tool, {}, done);
  const transport = new StreamableHTTPServerTransport({});
  await server.connect(transport);
  await transport.handleRequest(req, res, req.body);
}

const gate = StateMachineGate.fromOrder(
  { add_item: {}, checkout: { after: 'add_item' }, pay: { after: 'checkout' } },
  { id: 'shop' },
);
const { store } = await DRIVERS[driver as keyof typeof DRIVERS](address, token);
const key = runKey({
  name: 'order',
  of: ({ http }) => String(http.headers['x-order']),
  anonymous: true,
});
const app = express();
app.use(express.json());
app.all('/mcp', sessionStore({ store, key }), fsmGate(gate), serveShop);
app.listen(Number(process.env.PORT), '127.0.0.1');
