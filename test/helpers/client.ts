import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { latch } from './latch.ts';

/** The SDK's real client, with a record of all that it received. */
export interface TestClient {
  readonly client: Client;
  readonly transport: StreamableHTTPClientTransport;
  /** What it received, in order: `list_changed`, `progress`, `result:<tool>`. */
  readonly log: string[];
  /** Resolves once the client's GET stream is open, which it opens beside the handshake. */
  readonly streaming: Promise<void>;
  tools(): Promise<string[]>;
  call(name: string, args?: Record<string, unknown>): Promise<ToolResult>;
  close(): Promise<void>;
}

export interface ToolResult {
  readonly text: string;
  readonly texts: string[];
  readonly isError: boolean;
  readonly meta: Record<string, unknown>;
}

export async function connect(
  url: URL,
  headers: Record<string, string> = {},
  info = { name: 'test', version: '1.0.0' },
): Promise<TestClient> {
  const client = new Client(info);
  const stream = latch();
  const transport = new StreamableHTTPClientTransport(url, {
    requestInit: { headers },
    async fetch(input, init) {
      const response = await fetch(input, init);
      if (init?.method === 'GET' && response.ok) stream.open();
      return response;
    },
  });
  const log: string[] = [];
  client.setNotificationHandler(
    ToolListChangedNotificationSchema,
    () => void log.push('list_changed'),
  );
  await client.connect(transport as never);
  return {
    client,
    transport,
    log,
    streaming: stream.opened,
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    async call(name, args = {}) {
      const result = await client.callTool({ name, arguments: args }, undefined, {
        onprogress: () => void log.push('progress'),
      });
      log.push(`result:${name}`);
      const texts = (result.content as { type: string; text: string }[]).map((each) => each.text);
      return {
        text: texts.join('\n'),
        texts,
        isError: result.isError === true,
        meta: result._meta ?? {},
      };
    },
    close: () => client.close(),
  };
}
