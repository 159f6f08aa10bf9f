import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  conversationKey,
  handleKey,
  memoryStore,
  principalKey,
  type SessionStoreOptions,
} from '../../src/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { scene, sceneOfBothEras } from '../helpers/scene.ts';
import { startTasks } from '../helpers/task-server.ts';
import { AUTO, ask, callStateless, connectV2, PINNED } from '../helpers/two-eras.ts';
import { sharedRedis } from '../services/shared.ts';

const A = 'ses_4f1c8d77aa10';
const B = 'ses_99d0c1e2bb31';
const ALICE = JSON.stringify(['https://issuer.example', 'alice']);
const keyOf = (id: string) => conversationKey().runKey(id, ALICE);

async function inRedis() {
  const client = createClient({ url: await sharedRedis() });
  await client.connect();
  onTestFinished(() => client.destroy());
  return redisStore({ client, prefix: `conversations:${randomUUID()}:` });
}

const serve = (session: SessionStoreOptions = {}) => sceneOfBothEras({ session });

describe.each([
  ['memory', async () => memoryStore()],
  ['redis', inRedis],
] as const)('a conversation of a client that SDK v2 makes, in %s', (_name, makeData) => {
  it.each([
    ['negotiates its version', AUTO],
    ['speaks 2026-07-28 only', PINNED],
    ['speaks the session era only', {}],
  ])('has one run across its connections, where it %s', async (_what, options) => {
    const data = await makeData();
    const app = await sceneOfBothEras({ data });
    const call = async (name: string, sessionID: string, user = 'alice') => {
      const client = await connectV2(app.url, user, options);
      const result = await client.callTool({ name, arguments: {}, _meta: { sessionID } });
      await client.close();
      return reasonOf({ result } as WireMessage);
    };
    expect(await call('cart.add_item', A)).toBeUndefined();
    expect(await call('cart.pay', A)).toBe('state');
    expect(await call('cart.checkout', B)).toBe('state');
    expect(await call('cart.checkout', A, 'bob')).toBe('state');
    expect(await call('cart.checkout', A)).toBeUndefined();
    expect(await call('cart.pay', A)).toBeUndefined();
    await app.run(keyOf(A)).isIn('confirmed');
    expect(app.calls.map(({ tool }) => tool)).toEqual([
      ...['cart.add_item', 'cart.checkout', 'cart.pay'],
    ]);
  });

  it('is the same run in both eras', async () => {
    const data = await makeData();
    const app = await sceneOfBothEras({ data });
    const old = await connectV2(app.url, 'alice');
    const pinned = await connectV2(app.url, 'alice', PINNED);
    onTestFinished(() => old.close());
    onTestFinished(() => pinned.close());
    const params = (name: string) => ({ name, arguments: {}, _meta: { sessionID: A } });
    await old.callTool(params('cart.add_item'));
    expect((await pinned.callTool(params('cart.checkout'))).isError).not.toBe(true);
    expect((await old.callTool(params('cart.pay'))).isError).not.toBe(true);
    await app.run(keyOf(A)).isIn('confirmed');
  });
});

describe('conversations since 2026-07-28', () => {
  const call = (url: URL, name: string, sessionID: unknown, user?: string) =>
    ask(
      url,
      'tools/call',
      { name, arguments: {}, _meta: { sessionID } },
      user === undefined ? {} : { user },
    ).then(({ messages }) => reasonOf(messages.at(-1)));

  it('have a run by default where a principal is known, and otherwise none', async () => {
    const { url, warnings } = await serve();
    expect(await call(url, 'cart.add_item', A, 'alice')).toBeUndefined();
    expect(await call(url, 'cart.add_item', A)).toBe('no-run');
    expect(await call(url, 'cart.add_item', 'short', 'alice')).toBe('no-run');
    expect(warnings).toHaveLength(2);
  });

  it('stand before the run of the principal, which calls without an id have', async () => {
    const { url, run } = await serve({ key: [conversationKey(), principalKey()] });
    await call(url, 'cart.add_item', A, 'alice');
    expect((await callStateless(url, 'cart.checkout', {}, { user: 'alice' })).isError).toBe(true);
    await callStateless(url, 'cart.add_item', {}, { user: 'alice' });
    await call(url, 'cart.checkout', A, 'alice');
    await run(keyOf(A)).isIn('payment');
    await run(principalKey().runKey(ALICE)).isIn('has_items');
  });

  it('give way to a handle in front of them', async () => {
    const key = [handleKey('sku', { createdBy: 'cart.view' }), conversationKey()];
    const { url, run } = await serve({ key });
    const params = { name: 'cart.add_item', arguments: { sku: 'basket' }, _meta: { sessionID: A } };
    const { messages } = await ask(url, 'tools/call', params, { user: 'alice' });
    expect(reasonOf(messages.at(-1))).toBe('no-run');
    await call(url, 'cart.add_item', A, 'alice');
    await run(keyOf(A)).isIn('has_items');
  });

  it('stay ended, as a session does: a new conversation begins a new run', async () => {
    const app = await sceneOfBothEras({ gate: { statusTool: 'status' } });
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
      await call(app.url, tool, A, 'alice');
    expect(await call(app.url, 'cart.add_item', A, 'alice')).toBe('state');
    const params = { name: 'status', arguments: {}, _meta: { sessionID: A } };
    const { text } = await ask(app.url, 'tools/call', params, { user: 'alice' });
    expect(text).toContain('A new conversation begins a new one');
    expect(await call(app.url, 'cart.add_item', B, 'alice')).toBeUndefined();
  });
});

describe('a task that a call of a conversation made', () => {
  const augmented = (session: RawSession, name: string, sessionID: string) =>
    session.ask('tools/call', { name, arguments: {}, task: {}, _meta: { sessionID } });

  it('moves its run where another session of the principal asks for it, in any process', async () => {
    const tasks = startTasks();
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const { makeServer } = tasks;
    const workflow = checkoutGate();
    const app = await scene({ shape, makeServer, workflow });
    const other = await scene({ shape, makeServer, workflow, beside: app });
    const first = await app.session({ 'x-user': 'alice' });
    const { result } = await augmented(first, 'cart.add_item', A);
    await first.end();
    await app.run(keyOf(A)).is('running');
    await tasks.finish(result.task.taskId, 'added');
    const bob = await other.session({ 'x-user': 'bob' });
    await bob.ask('tasks/get', { taskId: result.task.taskId });
    await app.run(keyOf(A)).is('running');
    const second = await other.session({ 'x-user': 'alice' });
    const got = await second.ask('tasks/get', { taskId: result.task.taskId });
    expect(got.result.status).toBe('completed');
    await app.run(keyOf(A)).isIn('has_items', 'idle');
  });
});
