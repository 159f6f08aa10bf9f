/**
 * The quick start of each door, as its page prints it: the code, the packages that its install line
 * names, and the command. What a page calls "the tools that you have already" is added here.
 */
import { deepStrictEqual as expectEqual, match } from 'node:assert/strict';
import { freePort } from '../services/ports.ts';
import { connect, type TestClient } from './client.ts';
import type { Consumer } from './consumer.ts';
import { Page } from './markdown.ts';

export interface QuickStart {
  readonly page: string;
  /** What npm is told to install beside mcp-interlock. */
  readonly packages: readonly string[];
  /** What the page has the reader save, and what the reader has already, by path. */
  readonly files: Readonly<Record<string, string>>;
  /** What runs before the command. */
  readonly build?: string;
  /** As printed, but for the ports. */
  command(port: number, target: string): string;
  /** The command of the MCP server behind the gate, where it is another one. */
  readonly upstream?: string;
  /** The client lists, is refused, and takes the steps. Returns what the refusal said. */
  play(client: TestClient): Promise<string>;
  /** Commands of the shell that the page prints, for the server at this address. */
  recipe?(url: URL): string;
  /** What these commands print. */
  readonly prints?: RegExp;
}

const readme = new Page('README.md');
const express = new Page('docs/start/express.md');
const fetch = new Page('docs/start/fetch.md');
const anyServer = new Page('docs/start/any-server.md');

const toolsOf = (...names: string[]): string => `
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';

export function makeServer(): McpServer {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  for (const name of ${JSON.stringify(names)})
    server.registerTool(name, {}, () => ({ content: [{ type: 'text', text: name }] }));
  return server;
}
`;

const MCP_HANDLER = `
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Request, Response } from 'express';
import { makeServer } from './tools.ts';

export async function mcpHandler(req: Request, res: Response): Promise<void> {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await makeServer().connect(transport);
  await transport.handleRequest(req, res, req.body);
}
`;

const NEXT_TOOLS = `
import type { McpServer } from '@modelcontextprotocol/server';

export function registerTools(server: McpServer): void {
  for (const name of ['add_item', 'checkout', 'pay'])
    server.registerTool(name, {}, () => ({ content: [{ type: 'text', text: name }] }));
}
`;

/** Calls the route's functions by their names, as Next.js does. */
const NEXT_HOST = `
import { serve } from '@hono/node-server';
import * as route from './app/mcp/route';

type Method = keyof typeof route;
const fetch = (request: Request) => route[request.method as Method](request);
serve({ fetch, port: Number(process.env.PORT) });
`;

/** npm installs the first by itself, as mcp-handler's peer. */
const NEXT_HOST_PACKAGES = ['@modelcontextprotocol/server', '@hono/node-server', 'tsx'];

const SHOP = ['add_item', 'checkout', 'pay'] as const;
const CART = ['cart_add', 'cart_pay', 'cart_view', 'receipt'] as const;

/** A server that knows nothing of the gate. */
const CART_SERVER = {
  'tools.ts': toolsOf(...CART),
  'mcp-handler.ts': MCP_HANDLER,
  'upstream.ts': `
import express from 'express';
import { mcpHandler } from './mcp-handler.ts';

express().all('/mcp', express.json(), mcpHandler).listen(Number(process.env.PORT));
`,
};
const CART_PACKAGES = ['express', '@modelcontextprotocol/sdk', 'zod', 'tsx'];

function gateCommand(file: string): QuickStart['command'] {
  const [printed = ''] = anyServer.blocks('sh');
  return (port, target) =>
    `${printed
      .trim()
      .replace('./gate.json', file)
      .replace(/http:\S+/, target)} --port ${port}`;
}

export const QUICK_STARTS: readonly QuickStart[] = [
  {
    page: 'README.md',
    packages: readme.installed(),
    files: { 'server.ts': readme.blocks('ts')[0] ?? '' },
    command: () => 'npx tsx server.ts',
    play: playOrder,
  },
  {
    page: 'docs/start/express.md',
    packages: express.installed(),
    files: express.saved('server.ts'),
    command: () => 'npx tsx server.ts',
    play: playOrder,
    recipe: (url) =>
      (express.blocks('sh')[0] ?? '').replaceAll('http://127.0.0.1:3000/mcp', url.href),
    prints: /"tools":\[{"name":"add_item"((?!"name").)*"id":2.*pay is not available yet/s,
  },
  {
    page: 'docs/start/fetch.md, Next.js',
    packages: [...fetch.installed(0), ...NEXT_HOST_PACKAGES],
    files: {
      ...fetch.saved('gate.ts', 'app/mcp/route.ts'),
      'tools.ts': NEXT_TOOLS,
      'host.ts': NEXT_HOST,
    },
    command: () => 'npx tsx host.ts',
    play: playOrder,
  },
  {
    page: 'docs/start/fetch.md, Hono',
    packages: fetch.installed(1),
    files: { ...fetch.saved('gate.ts', 'server.ts'), 'tools.ts': toolsOf(...SHOP) },
    command: () => 'npx tsx server.ts',
    play: playOrder,
  },
  {
    page: 'docs/start/any-server.md, in JSON',
    packages: CART_PACKAGES,
    files: { ...anyServer.saved('gate.json'), ...CART_SERVER },
    command: gateCommand('./gate.json'),
    upstream: 'npx tsx upstream.ts',
    play: (client) => playCart(client, ['cart_add', 'cart_view'], ['cart_view', 'receipt']),
  },
  {
    page: 'docs/start/any-server.md, in TypeScript',
    packages: CART_PACKAGES,
    files: { ...anyServer.saved('gate.ts'), ...CART_SERVER },
    command: gateCommand('./gate.ts'),
    upstream: 'npx tsx upstream.ts',
    play: (client) =>
      playCart(client, ['cart_add', 'cart_view', 'receipt'], ['cart_view', 'receipt']),
  },
];

const NEXT_LAYOUT = `
export default function Layout({ children }: { children: React.ReactNode }) {
  return <html><body>{children}</body></html>;
}
`;

/**
 * The page's route in a Next.js project of its own, which these build and serve. They take minutes
 * and 400 MB of packages, so `npm test` has only other bundlers.
 */
export const NEXT_BUILDS: readonly QuickStart[] = ['--turbopack', '--webpack'].map((bundler) => ({
  page: `docs/start/fetch.md, built by next build ${bundler}`,
  packages: [
    ...fetch.installed(0),
    ...['@modelcontextprotocol/server', 'next', 'react', 'react-dom'],
    ...['typescript@5', '@types/node', '@types/react', '@types/express'],
  ],
  files: {
    ...fetch.saved('gate.ts', 'app/mcp/route.ts'),
    'tools.ts': NEXT_TOOLS,
    'app/layout.tsx': NEXT_LAYOUT,
  },
  build: `NEXT_TELEMETRY_DISABLED=1 npx next build ${bundler}`,
  command: (port) => `npx next start --port ${port}`,
  play: playOrder,
}));

/** Saves the files, runs the command, and plays it with a client of the SDK. */
export async function tryOut(quickStart: QuickStart, project: Consumer): Promise<string> {
  for (const [path, text] of Object.entries(quickStart.files)) project.write(path, text);
  if (quickStart.build !== undefined) await project.run('bash', '-c', quickStart.build);
  const behind =
    quickStart.upstream === undefined
      ? undefined
      : await project.serve(await freePort(), quickStart.upstream);
  try {
    const port = await freePort();
    const app = await project.serve(port, quickStart.command(port, String(behind?.url)));
    try {
      const client = await connect(app.url);
      const refusal = await quickStart.play(client);
      await client.close();
      const { recipe, prints = /./ } = quickStart;
      if (recipe !== undefined) match(await project.run('bash', '-c', recipe(app.url)), prints);
      return refusal;
    } finally {
      await app.stop();
    }
  } finally {
    await behind?.stop();
  }
}

/** The order of a shop: `add_item`, then `checkout`, which `pay` uses up. */
async function playOrder(client: TestClient): Promise<string> {
  expectEqual(await client.tools(), ['add_item']);
  const { text, meta } = await client.call('pay');
  const { path } = meta['mcp-interlock/refusal'] as { path: string[] };
  expectEqual(path, ['add_item', 'checkout']);
  const seen: string[][] = [];
  for (const tool of SHOP) {
    expectEqual((await client.call(tool)).isError, false);
    seen.push(await client.tools());
  }
  expectEqual(seen, [
    ['add_item', 'checkout'],
    ['add_item', 'checkout', 'pay'],
    // What was bought is no longer in the cart.
    ['add_item'],
  ]);
  return text;
}

async function playCart(client: TestClient, first: string[], last: string[]): Promise<string> {
  expectEqual(await client.tools(), first);
  const { text, meta } = await client.call('cart_pay');
  const { path } = meta['mcp-interlock/refusal'] as { path: string[] };
  expectEqual(path, ['cart_add']);
  for (const tool of ['cart_add', 'cart_pay']) {
    expectEqual((await client.call(tool)).isError, false);
    expectEqual((await client.tools()).includes('cart_pay'), tool === 'cart_add');
  }
  expectEqual(await client.tools(), last);
  return text;
}
