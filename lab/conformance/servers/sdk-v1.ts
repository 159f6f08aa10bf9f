import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js';
import {
  CallToolRequestSchema,
  type CallToolResult,
  CompleteRequestSchema,
  ErrorCode,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  ResultSchema,
  type ServerNotification,
  type ServerRequest,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import type { RequestHandler } from 'express';
import {
  contentsOf,
  PROMPTS,
  RESOURCES,
  rendered,
  TEMPLATE,
  templateContents,
} from './catalogue.ts';
import { sessionRoute } from './sessions.ts';
import { type CallContext, TOOLS, text } from './tools.ts';

/** Serves the session era with SDK v1. */
export function routeOfV1(): RequestHandler {
  return sessionRoute(async (options) => {
    const transport = new StreamableHTTPServerTransport(options);
    // Its optional members are `| undefined`, which is not what its own interface says.
    await makeServer().connect(transport as never);
    return transport;
  });
}

/** Of the lower of the SDK's two APIs, which lists a JSON schema as it is. */
function makeServer(): Server {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const server = new Server({ name: 'conformance-v1', version: '1.0.0' }, { capabilities });
  serveTools(server);
  serveResources(server);
  servePrompts(server);
  server.setRequestHandler(SetLevelRequestSchema, () => ({}));
  server.setRequestHandler(CompleteRequestSchema, () => ({ completion: { values: [], total: 0 } }));
  return server;
}

function serveTools(server: Server): void {
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: TOOLS.map(({ name, inputSchema }) => ({
      name,
      description: `Does ${name}.`,
      inputSchema,
    })),
  }));
  server.setRequestHandler(
    CallToolRequestSchema,
    async ({ params }, extra): Promise<CallToolResult> => {
      const tool = TOOLS.find(({ name }) => name === params.name);
      if (tool === undefined)
        throw new McpError(ErrorCode.InvalidParams, `Tool ${params.name} not found`);
      try {
        return { content: await tool.run(params.arguments ?? {}, contextOf(extra)) };
      } catch (error) {
        return { content: text(String(error)), isError: true };
      }
    },
  );
}

function contextOf(extra: RequestHandlerExtra<ServerRequest, ServerNotification>): CallContext {
  return {
    progressToken: extra._meta?.progressToken,
    notify: (method, params) => extra.sendNotification({ method, params } as ServerNotification),
    ask: (method, params) => extra.sendRequest({ method, params } as ServerRequest, ResultSchema),
    closeStream: () => extra.closeSSEStream?.(),
  };
}

function serveResources(server: Server): void {
  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: RESOURCES.map(({ name, uri, mimeType }) => ({ name, uri, mimeType })),
  }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [TEMPLATE],
  }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
    const resource = RESOURCES.find((each) => each.uri === uri);
    if (resource !== undefined) return { contents: [contentsOf(resource)] };
    const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
    if (id !== undefined) return { contents: [templateContents(uri, id)] };
    throw new McpError(ErrorCode.InvalidParams, `Resource ${uri} not found`);
  });
  server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
}

function servePrompts(server: Server): void {
  server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: PROMPTS.map((prompt) => ({
      name: prompt.name,
      description: `Says ${prompt.name}.`,
      arguments: prompt.arguments.map((name) => ({
        name,
        description: `The ${name}`,
        required: true,
      })),
    })),
  }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => {
    const prompt = PROMPTS.find(({ name }) => name === params.name);
    if (prompt === undefined)
      throw new McpError(ErrorCode.InvalidParams, `Prompt ${params.name} not found`);
    return rendered(prompt, params.arguments);
  });
}
