import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ToolAnnotations } from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import type { StepSource } from '../../src/index.ts';
import type { Ledger } from './upstream.ts';

/** What a tool does. It returns what its result has beside the text. */
type Handler = (
  args: Record<string, unknown>,
  meta: Record<string, unknown>,
  extra: StepSource,
) => Record<string, unknown> | undefined;

/**
 * An MCP server whose tools take any arguments, write to the ledger, wait for the test, and
 * succeed. With the argument `fail` they fail.
 */
export function toolServer(
  names: readonly string[],
  handlers: Readonly<Record<string, Handler>> = {},
  annotations: Readonly<Record<string, ToolAnnotations>> = {},
) {
  return (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'tools', version: '1.0.0' });
    for (const name of names) {
      const config = { inputSchema: z.looseObject({}), annotations: annotations[name] ?? {} };
      server.registerTool(name, config, async (args, extra) => {
        ledger.calls.push(name);
        const structuredContent = handlers[name]?.(args, extra._meta ?? {}, extra);
        await ledger.gates.get(name);
        return {
          content: [{ type: 'text', text: `${name} done` }],
          ...(args.fail === true && { isError: true }),
          ...(structuredContent && { structuredContent }),
        };
      });
    }
    return server;
  };
}
