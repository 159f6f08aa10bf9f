/** The tools of a server, as it lists them. Hides the era of MCP that it speaks, and its pages. */
import { Client, StreamableHTTPClientTransport, type Tool } from '@modelcontextprotocol/client';
import manifest from '../package.json' with { type: 'json' };

/**
 * Asks a server for its tools, as a client of its own: in the session era or in the stateless one.
 *
 * @throws Error where the server cannot be asked
 */
export async function listTools(url: URL): Promise<readonly Tool[]> {
  const client = new Client(
    { name: manifest.name, version: manifest.version },
    { versionNegotiation: { mode: 'auto' } },
  );
  const transport = new StreamableHTTPClientTransport(url);
  try {
    await client.connect(transport);
    const tools: Tool[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.listTools(cursor === undefined ? {} : { cursor });
      tools.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    await transport.terminateSession();
    return tools;
  } finally {
    await client.close();
  }
}
