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
function connectionFault(url: URL): Promise<string | undefined> {
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const probe = connect(port, url.hostname.replace(/^\[|\]$/g, ''));
  return new Promise<string | undefined>((resolve) => {
    probe.once('connect', () => resolve(undefined));
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    probe.setTimeout(CONNECT_MS, () => resolve('ETIMEDOUT'));
  }).finally(() => probe.destroy());
}

/**
 * What is wrong with an address, in words; `undefined` where a server answers there as MCP over
 * Streamable HTTP does. Begins no session.
 */
export async function targetFault(url: URL): Promise<string | undefined> {
  const code = await connectionFault(url);
  if (code !== undefined) return `cannot be reached yet: ${code}. Until it can, clients get 502`;
  try {
    const answer = await ping(url);
    if (answer.isMcp) return undefined;
    if (await isOldTransport(url))
      return 'serves HTTP with SSE, the transport of 2024. The gate needs Streamable HTTP';
    const usual = new URL('/mcp', url);
    const advice =
      usual.pathname !== url.pathname && (await ping(usual)).isMcp
        ? `. Did you mean --target ${usual.href}?`
        : '. Is that the path of its MCP endpoint?';
    return `answers ${answer.status}, and not as an MCP server${advice}`;
  } catch (error) {
    return `does not answer: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** A server that wants a token or a session says so, in JSON-RPC or by its status. */
async function ping(url: URL): Promise<{ readonly status: number; readonly isMcp: boolean }> {
  const answer = await fetch(url, {
    method: 'POST',
    redirect: 'manual',
    signal: AbortSignal.timeout(CONNECT_MS),
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
  });
  const { status } = answer;
  const isKnown = status === 401 || status === 403;
  return { status, isMcp: isKnown || (await answer.text()).includes('"jsonrpc"') };
}

/** Its stream begins with the address for messages. */
async function isOldTransport(url: URL): Promise<boolean> {
  const ended = new AbortController();
  const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(CONNECT_MS)]);
  const answer = await fetch(url, { headers: { accept: 'text/event-stream' }, signal });
  try {
    const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream');
    if (isStream !== true || answer.body === null) return false;
    const { value = new Uint8Array() } = await answer.body.getReader().read();
    return /^event: *endpoint/m.test(Buffer.from(value).toString());
  } finally {
    ended.abort();
  }
}

/**
 * Asks a server for its tools, as a client of its own: in the session era or in the stateless one.
 *
 * @throws Failure where the server cannot be reached, or does not list them
 */
export async function toolsAt(
  url: URL,
  headers: Readonly<Record<string, string>> = {},
): Promise<readonly Tool[]> {
  const address = `${url.origin}${url.pathname}`;
  const code = await connectionFault(url);
  if (code !== undefined) throw new Failure(`${address} cannot be reached: ${code}`);
  try {
    return await listTools(url, headers);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Failure(`${address} does not list its tools: ${why}`, { cause });
  }
}

async function listTools(
  url: URL,
  headers: Readonly<Record<string, string>>,
): Promise<readonly Tool[]> {
  // Most of the code of the command: nothing else needs it.
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const client = new Client(
    { name: manifest.name, version: manifest.version },
    { versionNegotiation: { mode: 'auto' } },
  );
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
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
