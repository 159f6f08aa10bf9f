import { fromJsonSchema, inputRequired, type McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { type Schema, text } from './tools.ts';

/** How a handler of the stateless era says that a list changed. */
export interface Changes {
  toolsChanged(): void;
  promptsChanged(): void;
}

const nothing = z.object({});

/**
 * The tools by which the suite looks into headers, capabilities, logging and subscriptions of the
 * stateless era.
 */
export function registerStatelessTools(server: McpServer, changes: Changes): void {
  const schema: Schema = {
    type: 'object',
    properties: {
      region: { type: 'string', 'x-mcp-header': 'Region' },
      level: { type: 'integer' },
    },
  };
  const inputSchema = fromJsonSchema<{ region?: string }>(schema);
  server.registerTool(
    'test_x_mcp_header',
    { description: 'Takes an argument that is mirrored in a header.', inputSchema },
    ({ region }) => ({
      content: text(`region=${region}`),
    }),
  );

  server.registerTool(
    'test_missing_capability',
    { description: 'Needs a client that samples.', inputSchema: nothing },
    (_args, { mcpReq }) => {
      if (mcpReq.inputResponses?.llm_answer !== undefined) return { content: text('Sampled.') };
      const messages = [
        { role: 'user' as const, content: { type: 'text' as const, text: 'Say pong.' } },
      ];
      const llm_answer = inputRequired.createMessage({ messages, maxTokens: 16 });
      return inputRequired({ inputRequests: { llm_answer } });
    },
  );

  // The suite looks for requests on the answer's stream, and declares no elicitation: there must be
  // none.
  server.registerTool(
    'test_streaming_elicitation',
    { description: 'Answers on a stream of its own.', inputSchema: nothing },
    () => ({
      content: text('Nothing to ask.'),
    }),
  );

  server.registerTool(
    'test_logging_tool',
    { description: 'Logs to those who asked for it.', inputSchema: nothing },
    async (_args, { mcpReq }) => {
      await mcpReq.log('info', 'only for those who asked for logs');
      return { content: text('Logged.') };
    },
  );

  server.registerTool(
    'test_trigger_tool_change',
    { description: 'Tells that the tools changed.', inputSchema: nothing },
    () => {
      changes.toolsChanged();
      return { content: text('Told.') };
    },
  );

  server.registerTool(
    'test_trigger_prompt_change',
    { description: 'Tells that the prompts changed.', inputSchema: nothing },
    () => {
      changes.promptsChanged();
      return { content: text('Told.') };
    },
  );
}
