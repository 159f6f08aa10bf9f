import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import type { Ledger } from './upstream.ts';

/** What a tool answers beside its text; nothing where it has nothing to add. */
type Handler = (args: Record<string, unknown>) => Record<string, unknown> | undefined;

/** An MCP server whose tools take anything, note that they ran, and say that they are done. */
export function toolServer(
  names: readonly string[],
  handlers: Readonly<Record<string, Handler>> = {},
) {
  return (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'tools', version: '1.0.0' });
    for (const name of names) {
      server.registerTool(name, { inputSchema: z.looseObject({}) }, async (args) => {
        ledger.calls.push(name);
        const structuredContent = handlers[name]?.(args);
        return {
          content: [{ type: 'text', text: `${name} done` }],
          ...(structuredContent && { structuredContent }),
        };
      });
    }
    return server;
  };
}
