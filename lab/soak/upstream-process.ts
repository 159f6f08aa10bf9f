/** The shop in a process of its own, for both eras; its handlers write to the ledger's file. */
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import express from 'express';
import * as z from 'zod';
import { appendTo, makeHandler } from '../checker/ledger.ts';
import { SHOP_TOOLS } from '../checker/machines.ts';

const [name = '', port, file = ''] = process.argv.slice(2);
const handle = makeHandler(name, appendTo(file));
const handler = createMcpHandler(
  ({ requestInfo }) => {
    const headers = requestInfo?.headers;
    const run = headers?.get('x-user') ?? headers?.get('mcp-session-id') ?? '';
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    const inputSchema = z.object({
      step: z.number(),
      ms: z.number(),
      fail: z.boolean().optional(),
    });
    for (const tool of SHOP_TOOLS) {
      server.registerTool(tool, { inputSchema }, (args, { mcpReq }) =>
        handle({ tool, args, run, meta: mcpReq._meta }),
      );
    }
    return server;
  },
  { keepAliveMs: 0 },
);
const served = toNodeHandler(handler);
const app = express();
app.all('/mcp', (req, res) => served(req, res, req.body));
app.listen(Number(port), '127.0.0.1', () => process.send?.('listening'));
process.on('disconnect', () => process.exit());
