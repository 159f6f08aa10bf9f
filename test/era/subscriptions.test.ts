import { randomUUID } from 'node:crypto';
import express, { type RequestHandler } from 'express';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  localBus,
  principalKey,
  type SessionStoreOptions,
  StateMachineGate,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { type RawStream, sendAndHold, stream, type WireMessage } from '../helpers/raw.ts';
import { type Stage, sceneOfBothEras, settle, staysQuiet } from '../helpers/scene.ts';
import { ask, callStateless, stateless, type TwoErasApp } from '../helpers/two-eras.ts';

const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';
const SILENT = { capabilities: { tools: { listChanged: false } } };
interface Serving {
  readonly visibility?: 'hide' | 'stable';
  readonly serverOptions?: typeof SILENT;
  readonly session?: SessionStoreOptions;
  readonly more?: readonly StateMachineGate[];
  readonly beside?: Stage;
  readonly before?: readonly RequestHandler[];
  readonly behind?: readonly RequestHandler[];
}

function serve({
  visibility = 'hide',
  serverOptions = SILENT,
  session = {},
  more = [],
  ...rest
}: Serving = {}) {
  return sceneOfBothEras({
    workflow: [checkoutGate(), ...(more as readonly StateMachineGate<string, string>[])],
    session: { key: principalKey(), ...session },
    gate: { visibility },
    serverOptions,
    ...rest,
  });
}

/** A subscription whose id is a string, as in SDK v2, or a number. */
async function listen(
  { url }: Pick<TwoErasApp, 'url'>,
  notifications: Record<string, unknown>,
  user = 'alice',
  id: string | number = `listen:${randomUUID()}`,
): Promise<RawStream & { id: string | number }> {
  const { headers, body } = stateless('subscriptions/listen', { notifications }, { user });
  const opened = await stream(url, { headers, body: { ...body, id } });
  onTestFinished(() => opened.cut());
  await vi.waitFor(() => expect(opened.messages.length).toBeGreaterThan(0));
  return Object.defineProperties({ id } as never, Object.getOwnPropertyDescriptors(opened));
}

const changed = (id: string | number): WireMessage => ({
  jsonrpc: '2.0',
  method: 'notifications/tools/list_changed',
  params: { _meta: { [SUBSCRIPTION_ID]: id } },
});

describe('a subscription to a list that hides tools', () => {
  it('hears of its principal’s changes after the acknowledgement, with its id', async () => {
    const app = await serve();
    const streams = [
      await listen(app, { toolsListChanged: true }, 'alice'),
      await listen(app, { toolsListChanged: true }, 'alice', 7),
    ];
    const bobs = await listen(app, { toolsListChanged: true }, 'bob');
    const moved = await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    expect(moved.text).toBe('cart.add_item done');
    for (const each of streams) {
      await vi.waitFor(() => expect(each.messages).toHaveLength(2));
      expect(each.messages[0]).toMatchObject({
        method: 'notifications/subscriptions/acknowledged',
        params: {
          notifications: { toolsListChanged: true },
          _meta: { [SUBSCRIPTION_ID]: each.id },
        },
      });
      expect(each.messages[1]).toEqual(changed(each.id));
    }
    await callStateless(app.url, 'cart.add_item', {}, { user: 'bob' });
    await vi.waitFor(() => expect(bobs.messages).toHaveLength(2));
    expect(streams.map(({ messages, ended }) => [messages.length, ended])).toEqual([
      [2, false],
      [2, false],
    ]);
  });

  it('is told on no other stream than that: not on the stream of the call', async () => {
    const { url } = await serve();
    const call = await ask(
      url,
      'tools/call',
      { name: 'cart.add_item', arguments: {} },
      { user: 'alice' },
    );
    expect(call.messages.filter(({ method }) => method !== undefined)).toEqual([]);
  });

  it.each([
    ['that the upstream honours itself', { toolsListChanged: true }, {}],
    ['beside another one', { toolsListChanged: true, promptsListChanged: true }, SILENT],
  ])('is served where it is one %s', async (_, notifications, serverOptions) => {
    const app = await serve({ serverOptions: serverOptions as typeof SILENT });
    const opened = await listen(app, notifications);
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    await vi.waitFor(() => expect(opened.messages.at(-1)).toEqual(changed(opened.id)));
    expect(opened.messages[0]?.params.notifications.toolsListChanged).toBe(true);
  });

  it('hears nothing that it did not ask for', async () => {
    const app = await serve();
    const opened = await listen(app, { promptsListChanged: true });
    const listening = await listen(app, { toolsListChanged: true });
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    await vi.waitFor(() => expect(listening.messages).toHaveLength(2));
    expect(opened.messages[0]?.params.notifications).toEqual({});
    expect(
      opened.messages.filter(({ method }) => method === 'notifications/tools/list_changed'),
    ).toEqual([]);
  });

  it('is told once of a move, though two gates hide tools', async () => {
    const other = new StateMachineGate({
      id: 'other',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    });
    const app = await serve({ more: [other.bindTool('cart.view', 'a', 'GO') as StateMachineGate] });
    const opened = await listen(app, { toolsListChanged: true });
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    await callStateless(app.url, 'cart.view', {}, { user: 'alice' });
    await vi.waitFor(() => expect(opened.messages).toHaveLength(3));
  });

  it('ends with its result when the middleware shuts down', async () => {
    const app = await serve();
    const opened = await listen(app, { toolsListChanged: true }, 'alice', 'mine');
    await app.sessions.close();
    await vi.waitFor(() => expect(opened.ended).toBe(true));
    expect(opened.messages.at(-1)).toEqual({
      jsonrpc: '2.0',
      id: 'mine',
      result: { resultType: 'complete', _meta: { [SUBSCRIPTION_ID]: 'mine' } },
    });
  });

  it('gets a comment now and then while it is quiet, as often as `keepAliveMs` says', async () => {
    const app = await serve({ session: { keepAliveMs: 40 } });
    const opened = await listen(app, { toolsListChanged: true });
    const comments = () => opened.text.split(': keep-alive').length - 1;
    app.clock.advance(39);
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    await vi.waitFor(() => expect(opened.messages).toHaveLength(2));
    expect(comments()).toBe(0);
    app.clock.advance(1);
    await vi.waitFor(() => expect(comments()).toBe(1));
  });

  it('hears of moves that are made in another process', async () => {
    const session = { bus: localBus() };
    const here = await serve({ session });
    const there = await serve({ session, beside: here });
    const opened = await listen(here, { toolsListChanged: true });
    await callStateless(there.url, 'cart.add_item', {}, { user: 'alice' });
    await vi.waitFor(() => expect(opened.messages.at(-1)).toEqual(changed(opened.id)));
  });
});

it('begins nothing for a client that left before its subscription was honoured', async () => {
  const asked: string[] = [];
  const [left, answer] = [latch(), latch()];
  const upstream: RequestHandler = async (req, res) => {
    const { id } = req.body;
    asked.push(id);
    req.socket.on('close', () => left.open());
    await answer.opened;
    const _meta = { [SUBSCRIPTION_ID]: id };
    const method = 'notifications/subscriptions/acknowledged';
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const message of [
      { jsonrpc: '2.0', method, params: { notifications: {}, _meta } },
      { jsonrpc: '2.0', id, result: { resultType: 'complete', _meta } },
    ])
      res.write(`data: ${JSON.stringify(message)}\n\n`);
    res.end();
    asked.pop();
  };
  const app = await serve({ before: [express.json()], behind: [upstream] });
  const { headers, body } = stateless(
    'subscriptions/listen',
    { notifications: { toolsListChanged: true } },
    { user: 'alice' },
  );
  const gone = sendAndHold(app.url, { headers, body });
  await vi.waitFor(() => expect(asked).toHaveLength(1));
  gone.cut();
  await left.opened;
  answer.open();
  await vi.waitFor(() => expect(asked).toEqual([]));
  await settle();
  // A stream that is held open would get a comment now and then.
  await staysQuiet(app);
});

describe('a list that is stable', () => {
  it('has no subscription made up for it, and no capability', async () => {
    const app = await serve({ visibility: 'stable' });
    const opened = await listen(app, { toolsListChanged: true });
    await vi.waitFor(() => expect(opened.ended).toBe(true));
    expect(opened.messages[0]?.params.notifications).toEqual({});
    const { messages } = await ask(app.url, 'server/discover');
    expect(messages[0]?.result.capabilities.tools.listChanged).not.toBe(true);
  });
});

it('declares that a list can change where it can', async () => {
  const app = await serve();
  const { messages } = await ask(app.url, 'server/discover');
  expect(messages[0]?.result.capabilities.tools.listChanged).toBe(true);
});
