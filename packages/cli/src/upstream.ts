/**
 * The server behind the gate, outside of any request. Hides how it is found out whether it can be
 * reached, the era of MCP that it speaks, and the pages of its tools.
 */
import { connect } from 'node:net';
import type { Tool } from '@modelcontextprotocol/client';
import manifest from '../package.json' with { type: 'json' };
import { Failure } from './command-line.ts';

const CONNECT_MS = 10_000;

/** Why the server cannot be reached, such as `ECONNREFUSED`; `undefined` where it can. */
export function connectionFault(url: URL): Promise<string | undefined> {
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const probe = connect(port, url.hostname.replace(/^\[|\]$/g, ''));
  return new Promise<string | undefined>((resolve) => {
    probe.once('connect', () => resolve(undefined));
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    probe.setTimeout(CONNECT_MS, () => resolve('ETIMEDOUT'));
  }).finally(() => probe.destroy());
}

/**
 * Asks a server for its tools, as a client of its own: in the session era or in the stateless one.
 *
 * @throws Failure where the server cannot be reached, or does not list them
 */
export async function toolsAt(url: URL): Promise<readonly Tool[]> {
  const address = `${url.origin}${url.pathname}`;
  const code = await connectionFault(url);
  if (code !== undefined) throw new Failure(`${address} cannot be reached: ${code}`);
  try {
    return await listTools(url);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Failure(`${address} does not list its tools: ${why}`, { cause });
  }
}

async function listTools(url: URL): Promise<readonly Tool[]> {
  // Most of the code of the command: nothing else needs it.
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
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
