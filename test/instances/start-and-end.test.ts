import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { RestProcess } from '../../lab/torture/rest-process.ts';
import { Consumer } from '../helpers/consumer.ts';
import { Page } from '../helpers/markdown.ts';
import { ADDRESS, type Program, startProgram } from '../helpers/program.ts';
import { reasonOf, type WireMessage } from '../helpers/raw.ts';
import { ask } from '../helpers/two-eras.ts';
import { startPostgres } from '../services/postgres.ts';
import { startRedis } from '../services/redis.ts';
import type { Service } from '../services/server-process.ts';
import { sharedRedis } from '../services/shared.ts';

/** What both apps share: SDK v2 behind the middlewares, in a project with the built package. */
const SHOP = `
  import { toNodeHandler } from '@modelcontextprotocol/node';
  import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
  import express from 'express';
  import { fsmGate, principalKey, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf, workflowHealth } from 'mcp-interlock/runs';

  const checkout = new StateMachineGate({
    id: 'checkout',
    initial: 'shopping',
    states: { shopping: { on: { ADD: 'shopping' } } },
  })
    .bindTool('add', ['shopping'], 'ADD')
    .bindTool('slow', ['shopping'], 'ADD');
  let release = () => {};
  const released = new Promise((resolve) => { release = resolve; });
  const mcp = toNodeHandler(createMcpHandler(() => {
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    for (const name of ['add', 'slow', 'look'])
      server.registerTool(name, {}, async () => {
        if (name === 'slow') {
          console.log('slow runs');
          await released;
        }
        return { content: [{ type: 'text', text: name + ' done' }] };
      });
    return server;
  }));
  const app = express();
  app.use((req, res, next) => {
    if (req.path === '/release') release();
    const extra = { iss: 'https://issuer.example', sub: req.headers['x-user'] };
    Object.assign(req, { auth: { token: 'secret', clientId: 'app', scopes: [], extra } });
    next();
  });
  const serve = (store) => {
    const sessions = sessionStore({ store, key: principalKey(), onError: () => {} });
    app.all('/mcp', sessions, fsmGate(checkout), (req, res) => mcp(req, res, req.body));
    return sessions;
  };
  const listen = () => {
    const server = app.listen(0, '127.0.0.1', () =>
      console.log('http://127.0.0.1:' + server.address().port + '/mcp'));
    return server;
  };`;

const project = new Consumer();
beforeAll(() => {
  project.linkInterlock();
  project.link('@modelcontextprotocol/node', '@modelcontextprotocol/server', 'express');
  project.link('@upstash/redis', 'ioredis', 'pg', 'redis', 'tsx');
  project.write('package.json', '{ "type": "module" }');
});
afterAll(() => project.remove());

/** The block of the page that has that code. */
function blockOf(page: string, code: string): string {
  const block = new Page(page).blocks('ts').find((each) => each.includes(code));
  if (block === undefined) throw new Error(`${page} has no ${code}`);
  return block;
}

async function start(file: string, args: readonly string[], env = {}): Promise<[URL, Program]> {
  const program = await startProgram(join(project.folder, file), { args, env, ready: ADDRESS });
  onTestFinished(() => program.kill9());
  return [new URL(program.match), program];
}

const call = async (url: URL, name: string, user = 'ann'): Promise<WireMessage> => {
  const { messages } = await ask(url, 'tools/call', { name, arguments: {} }, { user });
  return messages.at(-1) ?? {};
};
const textOf = ({ result }: WireMessage): unknown => result?.content?.[0]?.text;

describe('an app whose store is down at its start', { timeout: 120_000 }, () => {
  beforeAll(() => {
    const lines = blockOf('docs/operate/stores.md', 'function throughPg');
    project.write(
      'late-store.ts',
      `${SHOP}
      import { Redis } from '@upstash/redis';
      import { upstashStore } from 'mcp-interlock/stores/upstash';
      import { postgresStore } from 'mcp-interlock/stores/postgres';
      import { redisStore } from 'mcp-interlock/stores/redis';
      import { Pool } from 'pg';
      import { createClient } from 'redis';
      ${lines}
      const made = { throughNodeRedis, throughIoredis, throughPg, throughUpstash };
      const [, , driver, ...address] = process.argv;
      serve(made[driver](...address));
      listen();`,
    );
  });

  /** A server that is down, and how an app reaches it. */
  const DOWN: Readonly<Record<string, () => Promise<[readonly string[], () => Promise<void>]>>> = {
    throughNodeRedis: () => downAt(startRedis()),
    throughIoredis: () => downAt(startRedis()),
    throughPg: () => downAt(startPostgres()),
    throughUpstash: async () => {
      const rest = await RestProcess.start(await sharedRedis());
      onTestFinished(() => rest.kill9());
      await rest.kill9();
      return [[rest.url, rest.token], () => rest.restart()];
    },
  };

  async function downAt(
    starting: Promise<Service>,
  ): Promise<[readonly string[], () => Promise<void>]> {
    const server = await starting;
    onTestFinished(() => server.stop());
    await server.kill9();
    return [[server.url], () => server.restart()];
  }

  it.each(Object.keys(DOWN))(
    'listens, refuses what needs the store, and recovers by itself: %s',
    async (driver) => {
      const [address, bringUp] = (await DOWN[driver]?.()) ?? [[], async () => {}];
      const [url] = await start('late-store.ts', [driver, ...address]);
      expect(reasonOf(await call(url, 'add'))).toBe('unavailable');
      expect(textOf(await call(url, 'look'))).toBe('look done');
      await bringUp();
      await expect
        .poll(async () => textOf(await call(url, 'add')), { timeout: 60_000 })
        .toBe('add done');
      expect(reasonOf(await call(url, 'add', 'bob'))).toBeUndefined();
    },
  );
});

describe('a process that SIGTERM ends as the runbook says', { timeout: 60_000 }, () => {
  it('fails readiness first and serves on, then drains, and ends in order', async () => {
    const health =
      'const health = workflowHealth({ runs: [runsOf(checkout, { sessions })], stuckAfterMs: 60_000 });';
    project.write(
      'leaving.ts',
      `${SHOP}
      import { memoryStore } from 'mcp-interlock';
      const sessions = serve(memoryStore());
      ${health}
      const server = listen();
      ${blockOf('docs/operate/operations.md', 'isLeaving')}`,
    );
    const [url, program] = await start('leaving.ts', [], { NOTICE_MS: '3000' });
    const ready = async () => (await fetch(new URL('/ready', url))).status;
    expect(await ready()).toBe(200);
    const slow = call(url, 'slow');
    await expect.poll(() => program.output()).toContain('slow runs');
    const ended = once(program.child, 'exit');
    program.child.kill('SIGTERM');
    await expect.poll(ready).toBe(503);
    expect(textOf(await call(url, 'add', 'bob'))).toBe('add done');
    await expect
      .poll(async () => reasonOf(await call(url, 'add', 'bob')), { timeout: 10_000 })
      .toBe('unavailable');
    expect(await ready()).toBe(503);
    await fetch(new URL('/release', url));
    expect(textOf(await slow)).toBe('slow done');
    expect(await ended).toEqual([0, null]);
  });
});
