import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { ERROR_CODES, InterlockError, type InterlockErrorCode } from '../src/errors.ts';
import { unknownOutcomeReply } from '../src/gate/replies.ts';
import { fsmGate, memoryStore, StateMachineGate, sessionStore, stateSync } from '../src/index.ts';
import { commonShape } from '../src/middleware.ts';
import { parseOptions } from '../src/options.ts';
import { postgresStore } from '../src/stores/postgres.ts';
import { redisStore } from '../src/stores/redis.ts';
import { sqliteStore } from '../src/stores/sqlite.ts';
import { upstashStore } from '../src/stores/upstash.ts';
import { connect, type TestClient } from './helpers/client.ts';
import { Consumer, ROOT } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { freePort } from './services/ports.ts';

// Watched and not replaced: it is given the schema of every function's options.
vi.mock('../src/options.ts', { spy: true });

const PAGES = ['README.md', 'docs/steps.md', 'docs/stores.md'];
const readme = new Page('README.md');
const stores = new Page('docs/stores.md');

describe('the first code of the README', () => {
  const consumer = new Consumer();
  let app: ChildProcess;
  let client: TestClient;

  beforeAll(async () => {
    consumer.linkInterlock();
    consumer.link('@modelcontextprotocol/sdk', '@types/express', '@types/node', 'express', 'libsql', 'tsx', 'zod');
    for (const file of ['mcp-handler.ts', 'shop.ts']) {
      copyFileSync(join(ROOT, 'examples/express-checkout', file), join(consumer.folder, file));
    }
    consumer.write('package.json', '{ "type": "module" }');
    consumer.write('server.ts', readme.blocks('ts')[0] ?? '');
    const port = await freePort();
    const env = { ...process.env, PORT: String(port) };
    app = spawn(process.execPath, ['--import', 'tsx', 'server.ts'], { cwd: consumer.folder, env, stdio: 'inherit' });
    client = await vi.waitFor(() => connect(new URL(`http://127.0.0.1:${port}/mcp`)), { timeout: 20_000, interval: 100 });
  }, 30_000);

  afterAll(async () => {
    await client?.close();
    const exited = once(app, 'exit');
    app.kill('SIGKILL');
    await exited;
    consumer.remove();
  });

  it('comes before line 25, with the two commands above it', () => {
    const start = readme.lines.indexOf('```ts') + 1;
    expect(start).toBeLessThan(25);
    const above = readme.lines.slice(0, start).join('\n');
    expect(above).toContain('npm ci && npm run demo');
    expect(above).toContain('npm ci && npm test');
  });

  it('compiles', async () => {
    expect(await consumer.typeCheck(['server.ts'], { skipLibCheck: true })).toBe('');
  }, 20_000);

  it('runs, and shows in each state the tools that the README says', async () => {
    const shown: string[][] = [];
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay', undefined]) {
      const { meta } = await client.call(shown.length === 3 ? 'cart.add_item' : 'cart.pay');
      const tools = (await client.tools()).map((name) => `\`${name}\``);
      shown.push([stateOf(meta), tools.join(', ').slice(1, -1)]);
      if (tool !== undefined) await client.call(tool, { sku: 'tea' });
    }
    expect(shown).toEqual(readme.tableAfter('A client of this server sees'));
  });
});

function stateOf(meta: Record<string, unknown>): string {
  return (meta['mcp-interlock/refusal'] as { state: string } | undefined)?.state ?? 'payment';
}
