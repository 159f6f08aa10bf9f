import { randomUUID } from 'node:crypto';
import { Redis } from '@upstash/redis';
import { runsOf } from 'mcp-interlock/runs';
import { upstashStore } from 'mcp-interlock/stores/upstash';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { checkout } from '../../examples/vercel/lib/checkout.ts';
import { HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { connect } from '../helpers/client.ts';
import { type FunctionHost, startFunctionHost } from '../helpers/function-host.ts';
import { latch } from '../helpers/latch.ts';
import { expectQuoted } from '../helpers/markdown.ts';
import { type PaymentProvider, startPaymentProvider } from '../helpers/payment-provider.ts';
import { callOf, RawSession, reasonOf, send, type WireMessage } from '../helpers/raw.ts';
import { makeVercelProject } from '../helpers/vercel-project.ts';
import { fetchVercelRuntime, startVercelRuntime } from '../helpers/vercel-runtime.ts';
import { sharedRedis } from '../services/shared.ts';
import { startUpstashRest } from '../services/upstash-rest.ts';

/** The two ways in which Vercel starts an app, and the path of each. */
const ENTRIES = [
  { entry: 'app', path: '/mcp', what: 'an exported app' },
  { entry: 'api/mcp', path: '/api/mcp', what: 'a function, its body read by the host' },
] as const;

const upstash = await startUpstashRest(await sharedRedis());
const project = await makeVercelProject();
afterAll(async () => {
  await upstash.stop();
  project.remove();
});

/** A payment provider of the test's own, and what the app is told of it and of its store. */
async function surroundings() {
  const payments = await startPaymentProvider();
  onTestFinished(() => payments.stop());
  const environment = {
    UPSTASH_REDIS_REST_URL: upstash.url,
    UPSTASH_REDIS_REST_TOKEN: upstash.token,
    PAYMENTS_URL: payments.url,
  };
  return { payments, environment };
}

async function startHost(
  { entry, path }: Pick<(typeof ENTRIES)[number], 'entry' | 'path'> = ENTRIES[0],
  env: NodeJS.ProcessEnv = {},
): Promise<{ host: FunctionHost; payments: PaymentProvider }> {
  const { payments, environment } = await surroundings();
  const host = await startFunctionHost({
    program: await project.program(entry),
    path,
    env: { ...environment, ...env },
  });
  onTestFinished(host.stop);
  return { host, payments };
}

const textOf = (answer: WireMessage): unknown => answer.result?.content?.[0]?.text;

/** What a client is told of a body that is no JSON, also where another parser read it first. */
const NOT_JSON = {
  jsonrpc: '2.0',
  id: null,
  error: { code: -32700, message: 'Parse error: the request body is not valid JSON' },
};

async function expectAllEnded(host: FunctionHost): Promise<void> {
  const ended = await Promise.all(host.instances.map((instance) => instance.ended));
  expect(host.errors).toBe('');
  expect(ended.map(({ code }) => code)).toEqual(ended.map(() => 0));
  expect(Math.max(...ended.map(({ lingeredMs }) => lingeredMs))).toBeLessThan(2_500);
}

describe('every request in a process of its own', { timeout: 60_000 }, () => {
  it('walks the checkout, runs parallel duplicates once, and leaves no process behind', async () => {
    const { host, payments } = await startHost();
    const session = await RawSession.begin(host.url);
    expect(textOf(await session.call('cart_pay'))).toContain(
      'To reach cart_pay, call cart_add_item, then',
    );
    const { messages } = await session.post(callOf('add', 'cart_add_item', { sku: 'tea' }));
    expect(messages.map(({ method, id }) => method ?? id)).toEqual([
      'notifications/tools/list_changed',
      'add',
    ]);
    expect(textOf(await session.call('cart_checkout'))).toBe('To pay: 10 euros.');
    const answers = await Promise.all(Array.from({ length: 3 }, () => session.call('cart_pay')));
    expect(answers.filter((answer) => textOf(answer) === 'Paid.')).toHaveLength(1);
    expect(answers.filter((answer) => reasonOf(answer) === 'state')).toHaveLength(2);
    expect(payments.charges).toHaveLength(1);
    expect(await session.tools()).toEqual(['cart_view']);
    expect((await session.listen()).status).toBe(405);

    expect(host.instances).toHaveLength(10);
    await expectAllEnded(host);
  });

  it('serves as a function that finds the body read already, and refuses one that is no JSON', async () => {
    const { host } = await startHost(ENTRIES[1]);
    const headers = { 'content-type': 'application/json' };
    const refused = await send(host.url, { headers, body: '{"jsonrpc":"2.0","id":1,' });
    expect([refused.status, refused.messages]).toEqual([400, [NOT_JSON]]);
    const session = await RawSession.begin(host.url);
    expect(textOf(await session.call('cart_add_item', { sku: 'tea' }))).toBe('tea is in the cart.');
    await expectAllEnded(host);
  });
});

describe('a process that is frozen in the middle of a step, for longer than its lease', () => {
  /** A payment that was charged, in a process that stands still since. `thaw` lets it go on. */
  async function freeze() {
    const store = upstashStore({ redis: new Redis({ url: upstash.url, token: upstash.token }) });
    const runs = runsOf(checkout, { store });
    const run = randomUUID();
    await store.open(run, { minted: true }, HOUR);
    await step(store, run, {}, { snapshot: { state: 'payment' } });
    const { host, payments } = await startHost(ENTRIES[0], { LEASE_MS: '600' });
    const session = RawSession.resume(host.url, run);
    const charged = latch();
    payments.answerAfter(charged.opened);
    const answer = session.call('cart_pay');
    await expect.poll(() => payments.charges.length, { timeout: 10_000 }).toBe(1);
    const pid = host.instances[0]?.pid ?? 0;
    process.kill(pid, 'SIGSTOP');
    charged.open();
    await expect.poll(async () => (await runs.read(run))?.status, { timeout: 10_000 }).toBe('held');
    const thaw = () => {
      process.kill(pid, 'SIGCONT');
      return answer;
    };
    return { host, payments, session, runs, run, thaw };
  }

  it('keeps others from doing it again, and commits late', { timeout: 30_000 }, async () => {
    const { payments, session, runs, run, thaw } = await freeze();
    expect(reasonOf(await session.call('cart_pay'))).toBe('held');
    expect(textOf(await thaw())).toBe('Paid.');
    expect(await runs.read(run)).toMatchObject({
      status: 'idle',
      snapshot: { state: 'confirmed' },
    });
    expect(payments.charges).toHaveLength(1);
  });

  it('learns that it came too late where a person has resolved the run', {
    timeout: 30_000,
  }, async () => {
    const { host, runs, run, thaw } = await freeze();
    expect(await runs.resolve(run, 'failed')).toEqual({ resolved: true, state: 'payment' });
    expect(textOf(await thaw())).toContain('cart_pay ran, but its outcome could not be recorded.');
    expect(await runs.read(run)).toMatchObject({ status: 'idle', snapshot: { state: 'payment' } });
    await expect
      .poll(() => host.errors)
      .toContain('a call of "cart_pay" ran, and its outcome is not recorded (lost)');
  });
});

describe("Vercel's own Node runtime", { timeout: 60_000 }, () => {
  // Fetched once for both tests: the fetching takes longer than the rest.
  const fetched: { runtime?: string } = {};
  beforeAll(async () => {
    fetched.runtime = await fetchVercelRuntime();
  }, 180_000);

  it.each(ENTRIES)('serves the checkout by $what', async ({ entry, path }) => {
    const { payments, environment } = await surroundings();
    const { origin, stop } = await startVercelRuntime(
      String(fetched.runtime),
      project.folder,
      `${entry}.ts`,
      environment,
    );
    onTestFinished(stop);
    const url = new URL(path, origin);
    const headers = { 'x-forwarded-host': url.host };
    const client = await connect(url, headers);
    onTestFinished(client.close);
    expect((await client.call('cart_pay')).isError).toBe(true);
    expect((await client.call('cart_add_item', { sku: 'tea' })).text).toBe('tea is in the cart.');
    await client.call('cart_checkout');
    expect(await client.tools()).toEqual(['cart_view', 'cart_pay']);

    const json = { ...headers, 'content-type': 'application/json' };
    const refused = await send(url, { headers: json, body: '{"jsonrpc":"2.0","id":1,' });
    expect([refused.status, refused.messages]).toEqual([400, [NOT_JSON]]);

    expect((await client.call('cart_pay')).text).toBe('Paid.');
    expect(await client.tools()).toEqual(['cart_view']);
    expect(payments.charges).toHaveLength(1);
    expect(client.log.filter((each) => each === 'list_changed')).toHaveLength(3);
  });
});

it('is what its page of the documentation shows', () => {
  expectQuoted('docs/start/serverless.md', [
    'examples/vercel/app.ts',
    'examples/vercel/api/mcp.ts',
  ]);
});
