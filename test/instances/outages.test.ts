import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Pool } from 'pg';
import { afterAll, beforeAll, describe, it, type TestContext } from 'vitest';
import { postgresStore } from '../../src/stores/postgres.ts';
import { ADDRESS, type Program, startProgram } from '../helpers/program.ts';
import { INITIALIZE, RawSession, send } from '../helpers/raw.ts';
import { startFlakyProxy } from '../services/flaky-proxy.ts';
import { startPostgres } from '../services/postgres.ts';
import { startRedis } from '../services/redis.ts';
import type { Service } from '../services/server-process.ts';

const APP = fileURLToPath(new URL('./outage-app.ts', import.meta.url));
const REDIS_DRIVERS = ['ioredis 6', 'ioredis 5', 'node-redis 6', 'node-redis 5'];

/** Concurrent tests have their own `expect`. */
type Test = Pick<TestContext, 'expect' | 'onTestFinished'>;

interface App {
  readonly url: URL;
  readonly program: Program;
  /** Ends it in order. Resolves to its exit status, which is 1 after an uncaught rejection. */
  end(): Promise<unknown>;
}

async function startApp({ onTestFinished }: Test, driver: string, address: string): Promise<App> {
  const program = await startProgram(APP, { args: [driver, address], ready: ADDRESS });
  onTestFinished(() => program.kill9());
  const { child } = program;
  const gone = once(child, 'exit');
  return {
    url: new URL(program.match),
    program,
    async end() {
      child.kill('SIGTERM');
      return (await gone)[0];
    },
  };
}

const comesUp = ({ expect }: Test, url: URL) =>
  expect
    .poll(async () => (await send(url, { body: INITIALIZE })).status, { timeout: 30_000 })
    .toBe(200);
const takesAStep = ({ expect }: Test, session: RawSession) =>
  expect
    .poll(() => session.call('cart.add_item'), { timeout: 30_000 })
    .toMatchObject({ result: { content: [{ text: 'cart.add_item done' }] } });
/** By the gate's refusal, or by 503 where the gate cannot know whether the session exists. */
async function refusesAStep({ expect }: Test, session: RawSession): Promise<void> {
  const call = { id: 'away', method: 'tools/call', params: { name: 'cart.add_item' } };
  const { status, text } = await session.post({ jsonrpc: '2.0', ...call });
  expect([status, text]).toSatisfy(
    () => status === 503 || (status === 200 && text.includes('"isError":true')),
  );
}

// Concurrent, since they mostly wait. The tests of one driver share its server.
describe.concurrent.each([
  ...REDIS_DRIVERS.map((driver) => [driver, startRedis] as const),
  ['pg', startPostgres] as const,
])(
  'the process of an app whose store and bus go through %s',
  { timeout: 120_000 },
  (driver, start) => {
    let server: Service;
    beforeAll(async () => {
      server = await start();
      if (driver !== 'pg') return;
      const pool = new Pool({ connectionString: server.url });
      pool.on('error', () => {});
      await postgresStore({ pool }).migrate();
      await pool.end();
    });
    afterAll(() => server?.stop());

    it.sequential('lives through outages of the server, and ends in order', async (test) => {
      const { expect } = test;
      await server.kill9();
      const app = await startApp(test, driver, server.url);
      expect((await send(app.url, { body: INITIALIZE })).status).toBe(503);
      await server.restart();
      await comesUp(test, app.url);
      for (let outage = 1; outage <= 2; outage += 1) {
        const session = await RawSession.begin(app.url);
        await takesAStep(test, session);
        const stream = await session.listen();
        await server.kill9();
        await refusesAStep(test, session);
        // Then the app tells the other instances that the stream has ended.
        stream.cut();
        if (outage === 2) break;
        await server.restart();
        await comesUp(test, app.url);
      }
      expect(await app.end()).toBe(0);
      await server.restart();
    });

    it.sequential('ends in order where the server was never there', async (test) => {
      const { expect } = test;
      await server.kill9();
      const app = await startApp(test, driver, server.url);
      expect((await send(app.url, { body: INITIALIZE })).status).toBe(503);
      expect(await app.end()).toBe(0);
      await server.restart();
    });

    it.sequential('lives and ends in order without an answer to its subscription', async (test) => {
      const { expect } = test;
      const proxy = await startFlakyProxy(Number(new URL(server.url).port));
      test.onTestFinished(() => proxy.stop());
      const address = new URL(server.url);
      address.port = String(proxy.port);
      const app = await startApp(test, driver, address.href);
      await comesUp(test, app.url);
      for (let times = 1; times <= 3; times += 1) {
        const swallowed = proxy.swallow(/\bsubscribe\b|\bLISTEN\b/i);
        proxy.cut();
        await swallowed;
      }
      expect(await app.end()).toBe(0);
    });
  },
);

describe('the process of an app whose store goes through libsql', { timeout: 60_000 }, () => {
  it('lives after its database was closed, and ends in order', async (test) => {
    const { expect } = test;
    const folder = await mkdtemp(join(tmpdir(), 'interlock-outage-'));
    const app = await startApp(test, 'libsql', join(folder, 'runs.db'));
    const session = await RawSession.begin(app.url);
    await takesAStep(test, session);
    app.program.child.kill('SIGUSR2');
    await expect.poll(() => refusesAStep(test, session).then(() => true)).toBe(true);
    expect((await send(app.url, { body: INITIALIZE })).status).toBe(503);
    expect(await app.end()).toBe(0);
    await rm(folder, { recursive: true });
  });
});
