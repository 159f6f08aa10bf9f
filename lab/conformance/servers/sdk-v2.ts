import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import {
  classifyInboundRequest,
  createMcpHandler,
  fromJsonSchema,
  McpServer,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server';
import type { Request, RequestHandler } from 'express';
import * as z from 'zod';
import {
  contentsOf,
  PROMPTS,
  RESOURCES,
  rendered,
  TEMPLATE,
  templateContents,
} from './catalogue.ts';
import { registerRounds, requestStates } from './rounds.ts';
import { sessionRoute } from './sessions.ts';
import { type Changes, registerStatelessTools } from './stateless-tools.ts';
import { type CallContext, TOOLS } from './tools.ts';

/**
 * Serves both eras with SDK v2: what claims the stateless one without sessions, and everything else
 * in them.
 */
export function routeOfV2(): RequestHandler {
  const handler = createMcpHandler(() => makeServer(handler.notify));
  const stateless = toNodeHandler(handler);
  const inSession = sessionRoute(async (options) => {
    const transport = new NodeStreamableHTTPServerTransport(options);
    await makeServer(handler.notify).connect(transport);
    return transport;
  });

  return (req, res, next) => {
    return isOfSession(req) ? inSession(req, res, next) : stateless(req, res, req.body);
  };
}

/** A claim to the other era that is malformed is a claim, and is refused as such. */
function isOfSession(req: Request): boolean {
  const protocolVersionHeader = req.get('mcp-protocol-version');
  const inbound = {
    httpMethod: req.method,
    body: req.body as unknown,
    ...(protocolVersionHeader !== undefined && { protocolVersionHeader }),
  };
  return classifyInboundRequest(inbound).kind === 'legacy';
}

function makeServer(changes: Changes): McpServer {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const requestState = { verify: requestStates.verify };
  const server = new McpServer(
    { name: 'conformance-v2', version: '1.0.0' },
    { capabilities, requestState },
  );
  registerTools(server);
  registerResources(server);
  registerPrompts(server);
  registerRounds(server);
  registerStatelessTools(server, changes);
  server.server.setRequestHandler('logging/setLevel', () => ({}));
  server.server.setRequestHandler('completion/complete', () => ({
    completion: { values: [], total: 0 },
  }));
  return server;
}

function registerTools(server: McpServer): void {
  for (const { name, inputSchema: schema, run } of TOOLS) {
    const inputSchema = fromJsonSchema<Record<string, unknown>>(schema);
    server.registerTool(
      name,
      { description: `Does ${name}.`, inputSchema },
      async (args, context) => ({
        content: await run(args, contextOf(context)),
      }),
    );
  }
}

function contextOf({ mcpReq, http }: ServerContext): CallContext {
  return {
    progressToken: mcpReq._meta?.progressToken,
    notify: (method, params) => mcpReq.notify({ method, params }),
    ask: (method, params) => mcpReq.send({ method, params }),
    closeStream: () => http?.closeSSE?.(),
  };
}

function registerResources(server: McpServer): void {
  for (const resource of RESOURCES) {
    const { name, uri, mimeType } = resource;
    server.registerResource(name, uri, { mimeType }, () => ({ contents: [contentsOf(resource)] }));
  }
  const template = new ResourceTemplate(TEMPLATE.uriTemplate, { list: undefined });
  server.registerResource(TEMPLATE.name, template, {}, (uri, { id }) => ({
    contents: [templateContents(String(uri), id)],
  }));
  server.server.setRequestHandler('resources/subscribe', () => ({}));
  server.server.setRequestHandler('resources/unsubscribe', () => ({}));
}

function registerPrompts(server: McpServer): void {
  for (const prompt of PROMPTS) {
    const { name } = prompt;
    const description = `Says ${name}.`;
    const required = prompt.arguments.map((each) => [each, z.string().describe(`The ${each}`)]);
    if (required.length === 0) server.registerPrompt(name, { description }, () => rendered(prompt));
    else {
      const argsSchema = z.object(Object.fromEntries(required) as Record<string, z.ZodString>);
      server.registerPrompt(name, { description, argsSchema }, (args) => rendered(prompt, args));
    }
  }
}
