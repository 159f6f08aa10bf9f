import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

/** What a call came to, as the client got it. */
export interface Answer {
  readonly texts: readonly string[];
  readonly isError: boolean;
  /** From the middleware's `_meta`, where the call was refused. */
  readonly state: string | undefined;
  /** The notifications that arrived between the call and its result. */
  readonly notified: readonly string[];
}

/** The SDK's real client. */
export class Shopper {
  readonly #client = new Client({ name: 'demo', version: '1.0.0' });
  readonly #transport: StreamableHTTPClientTransport;
  readonly #notified: string[] = [];

  private constructor(url: URL) {
    this.#transport = new StreamableHTTPClientTransport(url);
    this.#client.setNotificationHandler(ToolListChangedNotificationSchema, ({ method }) => {
      this.#notified.push(method);
    });
  }

  static async connect(url: URL): Promise<Shopper> {
    const shopper = new Shopper(url);
    await shopper.#client.connect(shopper.#transport as never);
    return shopper;
  }

  async tools(): Promise<Map<string, string>> {
    const { tools } = await this.#client.listTools();
    return new Map(tools.map(({ name, description = '' }) => [name, description]));
  }

  async call(name: string, args: Record<string, unknown> = {}): Promise<Answer> {
    const before = this.#notified.length;
    const { content, isError, _meta } = await this.#client.callTool({ name, arguments: args });
    const refusal = _meta?.['mcp-interlock/refusal'] as { state: string } | undefined;
    return {
      texts: (content as { text: string }[]).map(({ text }) => text),
      isError: isError === true,
      state: refusal?.state,
      notified: this.#notified.slice(before),
    };
  }

  /** Ends the session at the server. */
  async endSession(): Promise<string | undefined> {
    const { sessionId } = this.#transport;
    await this.#transport.terminateSession();
    return sessionId;
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
