import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express } from 'express';
import { fsmGate, StateMachineGate, sessionStore } from 'mcp-interlock';
import type { StateStore } from 'mcp-interlock/stores';

export const approval = new StateMachineGate({
  id: 'approval',
  initial: 'draft',
  states: {
    draft: { on: { SUBMIT: 'review' } },
    review: { on: { APPROVE: 'approved', REJECT: 'draft' } },
    approved: { type: 'final' },
  },
})
  .bindTool('doc_submit', ['draft'], 'SUBMIT')
  .bindTool('doc_approve', ['review'], 'APPROVE')
  .bindTool('doc_reject', ['review'], 'REJECT');

/** An app that keeps its runs in the given store. `work` is what each tool does. */
export function approvalApp(
  store: StateStore,
  work = async (_tool: string): Promise<void> => {},
): Express {
  const app = express();
  app.all('/mcp', sessionStore({ store }), fsmGate(approval), async (req, res) => {
    if (req.method !== 'POST') return void res.writeHead(405, { allow: 'POST' }).end();
    const server = new McpServer({ name: 'approval', version: '1.0.0' });
    for (const name of ['doc_submit', 'doc_approve', 'doc_reject', 'doc_show']) {
      server.registerTool(name, { description: `Does ${name}.` }, async () => {
        await work(name);
        return { content: [{ type: 'text', text: `${name} done` }] };
      });
    }
    const transport = new StreamableHTTPServerTransport();
    res.on('close', () => void server.close());
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(req, res, req.body);
  });
  return app;
}
