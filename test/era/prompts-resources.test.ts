import type { McpServer, ServerOptions } from '@modelcontextprotocol/server';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  type FsmGateOptions,
  localBus,
  principalKey,
  type SessionStoreOptions,
  StateMachineGate,
} from '../../src/index.ts';
import { INITIALIZE, type RawStream, send, stream, type WireMessage } from '../helpers/raw.ts';
import { type Stage, sceneOfBothEras } from '../helpers/scene.ts';
import { ask, callStateless, stateless, type TwoErasApp } from '../helpers/two-eras.ts';

const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';
const ALICE = { user: 'alice' };
/**
 * Each step changes one list: `a` hides the prompt and the receipts, `b` shows the prompt, `c`
 * both.
 */
function stepsGate() {
  return new StateMachineGate({
    id: 'steps',
    initial: 'a',
    states: { a: { on: { NEXT: 'b' } }, b: { on: { NEXT: 'c' } }, c: {} },
  }).bindTool('cart.view', ['a', 'b', 'c'], 'NEXT');
}

function shopGate() {
  return stepsGate()
    .bindPrompt('order.summary', ['b', 'c'])
    .bindResource('docs://receipts/**', 'c');
}

function register(server: McpServer, asked: string[]): void {
  for (const name of ['order.summary', 'help']) {
    server.registerPrompt(name, { description: name }, () => {
      asked.push(name);
      return { messages: [{ role: 'user', content: { type: 'text', text: name } }] };
    });
  }
  for (const uri of ['docs://terms', 'docs://receipts/7', 'docs://receipts/caf%C3%A9']) {
    server.registerResource(uri, uri, {}, () => {
      asked.push(uri);
      return { contents: [{ uri, text: uri }] };
    });
  }
}

interface Serving {
  readonly gates?: readonly StateMachineGate<string, string>[];
  readonly options?: FsmGateOptions;
  readonly serverOptions?: ServerOptions;
  readonly session?: SessionStoreOptions;
  readonly beside?: Stage | undefined;
}

async function serve(serving: Serving = {}) {
  const { gates = [shopGate()], options, serverOptions, session, beside } = serving;
  /** What the upstream was asked to give. */
  const asked: string[] = [];
  const app = await sceneOfBothEras({
    workflow: gates,
    session: { key: principalKey(), ...session },
    gate: { visibility: 'hide', ...options },
    register: (server) => register(server, asked),
    beside,
    ...(serverOptions && { serverOptions }),
  });
  return { ...app, asked };
}

const move = ({ url }: TwoErasApp): Promise<unknown> => callStateless(url, 'cart.view', {}, ALICE);

async function resultOf({ url }: TwoErasApp, method: string, params = {}): Promise<WireMessage> {
  const { messages } = await ask(url, method, params, ALICE);
  return messages.at(-1)?.result ?? messages.at(-1)?.error;
}

describe('what a run does not show yet', () => {
  it('is listed and given as its principal moves on', async () => {
    const app = await serve();
    const prompts = async () =>
      (await resultOf(app, 'prompts/list')).prompts.map((each: WireMessage) => each.name);
    const resources = async () => (await resultOf(app, 'resources/list')).resources.length;
    expect([await prompts(), await resources()]).toEqual([['help'], 1]);
    expect(await resultOf(app, 'prompts/get', { name: 'order.summary' })).toMatchObject({
      code: -32602,
      data: {
        'mcp-interlock/refusal': { state: 'a', prompt: 'order.summary', path: ['cart.view'] },
      },
    });
    expect(app.asked).toEqual([]);
    await move(app);
    await move(app);
    expect([await prompts(), await resources()]).toEqual([['order.summary', 'help'], 3]);
    expect((await resultOf(app, 'prompts/get', { name: 'order.summary' })).messages).toHaveLength(
      1,
    );
    expect(
      (await resultOf(app, 'resources/read', { uri: 'docs://receipts/7' })).contents,
    ).toHaveLength(1);
    const bobs = await ask(
      app.url,
      'resources/read',
      { uri: 'docs://receipts/7' },
      { user: 'bob' },
    );
    expect(bobs.messages[0]?.error.code).toBe(-32602);
    const nobodys = await ask(app.url, 'resources/read', { uri: 'docs://receipts/7' });
    expect(nobodys.messages[0]?.error.data['mcp-interlock/refusal'].reason).toBe('no-run');
  });

  it('is refused before the upstream sees it only where the headers say the same', async () => {
    const app = await serve();
    const { url } = app;
    for (const [method, params] of [
      ['prompts/get', { name: 'order.summary' }],
      ['resources/read', { uri: 'docs://receipts/7' }],
    ] as const) {
      const changes = { 'mcp-name': 'other' };
      const contradicted = await ask(url, method, params, { ...ALICE, changes });
      expect([contradicted.status, contradicted.messages[0]?.error.code]).toEqual([400, -32020]);
      const missing = await ask(url, method, params, { ...ALICE, changes: { 'mcp-name': '' } });
      expect([missing.status, missing.messages[0]?.error.code]).toEqual([400, -32020]);
      const encoded = Buffer.from(Object.values(params)[0] ?? '').toString('base64');
      const same = await ask(url, method, params, {
        ...ALICE,
        changes: { 'mcp-name': `=?base64?${encoded}?=` },
      });
      expect([same.status, same.messages[0]?.error.code]).toEqual([200, -32602]);
    }
    expect(app.asked).toEqual([]);
  });

  it('is answered as what does not exist, if it is secret', async () => {
    const app = await serve({ options: { refusal: 'unknown-tool' } });
    const told = async (method: string, params: Record<string, string>): Promise<unknown> => {
      const { status, messages } = await ask(app.url, method, params, ALICE);
      const [name = ''] = Object.values(params);
      return [status, JSON.parse(JSON.stringify(messages[0]?.error).replaceAll(name, 'X'))];
    };
    expect(await told('prompts/get', { name: 'order.summary' })).toEqual(
      await told('prompts/get', { name: 'none' }),
    );
    const unknown = await told('resources/read', { uri: 'docs://none' });
    expect(await told('resources/read', { uri: 'docs://receipts/7' })).toEqual(unknown);
    expect(await told('resources/read', { uri: 'docs://receipts/caf%C3%A9' })).toEqual(unknown);
    expect(app.asked).toEqual([]);
  });
});

describe('what may be kept', () => {
  const hint = { ttlMs: 60_000, cacheScope: 'public' } as const;
  const methods = [
    'tools/list',
    'prompts/list',
    'resources/list',
    'resources/templates/list',
    'resources/read',
  ] as const;
  const serverOptions: ServerOptions = {
    cacheHints: Object.fromEntries(methods.map((method) => [method, hint])),
  };
  const kept = async (app: TwoErasApp, method: string, params = {}): Promise<unknown> => {
    const { ttlMs, cacheScope } = await resultOf(app, method, params);
    return { ttlMs, cacheScope };
  };
  const NOT = { ttlMs: 0, cacheScope: 'private' };

  it('is no list of a kind of which something is hidden, and every other one', async () => {
    const app = await serve({
      gates: [stepsGate().bindPrompt('order.summary', 'b')],
      serverOptions,
    });
    expect(await kept(app, 'prompts/list')).toEqual(NOT);
    expect(await kept(app, 'resources/list')).toEqual(hint);
    const other = await serve({
      gates: [stepsGate().bindResource('docs://nothing-like-it', 'b')],
      serverOptions,
    });
    expect(await kept(other, 'prompts/list')).toEqual(hint);
    expect(await kept(other, 'resources/list')).toEqual(NOT);
    expect(await kept(other, 'resources/templates/list')).toEqual(NOT);
  });

  it('is no resource that may be read only now, and every other one', async () => {
    for (const visibility of ['hide', 'stable'] as const) {
      const gates = [stepsGate().bindResource('docs://receipts/**', 'a')];
      const app = await serve({ gates, serverOptions, options: { visibility } });
      expect(await kept(app, 'resources/read', { uri: 'docs://receipts/7' })).toEqual(NOT);
      expect(await kept(app, 'resources/read', { uri: 'docs://terms' })).toEqual(hint);
    }
  });

  it('is a stable list, which is the same for all callers', async () => {
    const app = await serve({ serverOptions, options: { visibility: 'stable' } });
    expect(await kept(app, 'prompts/list')).toEqual(hint);
    expect(await kept(app, 'resources/list')).toEqual(hint);
    const [before] = [await resultOf(app, 'resources/list')];
    await move(app);
    expect(await resultOf(app, 'resources/list')).toEqual(before);
    expect(before?.resources[1].description).toContain('Available only while steps is in "c".');
  });
});

const SILENT: ServerOptions = {
  capabilities: {
    tools: { listChanged: false },
    prompts: { listChanged: false },
    resources: { listChanged: false },
  },
};

describe('subscriptions to lists of prompts and resources', () => {
  async function listen({ url }: TwoErasApp, ...kinds: readonly string[]): Promise<RawStream> {
    const notifications = Object.fromEntries(kinds.map((kind) => [`${kind}ListChanged`, true]));
    const { headers, body } = stateless('subscriptions/listen', { notifications }, ALICE);
    const opened = await stream(url, { headers, body: { ...body, id: kinds.join() } });
    onTestFinished(() => opened.cut());
    await vi.waitFor(() => expect(opened.messages.length).toBeGreaterThan(0));
    expect(opened.messages[0]).toMatchObject({
      method: 'notifications/subscriptions/acknowledged',
      params: { notifications, _meta: { [SUBSCRIPTION_ID]: kinds.join() } },
    });
    return opened;
  }

  const told = (opened: RawStream): unknown[] =>
    opened.messages.slice(1).map(({ method, params }) => [method, params._meta[SUBSCRIPTION_ID]]);

  it.each([
    ['honours none', SILENT],
    ['honours all', {}],
  ])('hear of their own kinds only, from an upstream that %s', async (_, serverOptions) => {
    const app = await serve({ serverOptions });
    const prompts = await listen(app, 'prompts');
    const resources = await listen(app, 'resources');
    const both = await listen(app, 'prompts', 'resources');
    await move(app);
    await move(app);
    await vi.waitFor(() => {
      expect(told(prompts)).toEqual([['notifications/prompts/list_changed', 'prompts']]);
      expect(told(resources)).toEqual([['notifications/resources/list_changed', 'resources']]);
      expect(told(both)).toEqual([
        ['notifications/prompts/list_changed', 'prompts,resources'],
        ['notifications/resources/list_changed', 'prompts,resources'],
      ]);
    });
    expect([prompts.ended, resources.ended, both.ended]).toEqual([false, false, false]);
  });

  it('are served by as many gates as hide something', async () => {
    const other = new StateMachineGate({
      id: 'other',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    })
      .bindTool('cart.add_item', ['a', 'b'], 'GO')
      .bindResource('docs://terms', 'b');
    const gates = [stepsGate().bindPrompt('order.summary', 'b'), other];
    const app = await serve({ gates, serverOptions: SILENT });
    const opened = await listen(app, 'tools', 'prompts', 'resources');
    await move(app);
    await callStateless(app.url, 'cart.add_item', {}, ALICE);
    await vi.waitFor(() =>
      expect(told(opened).map((each) => (each as string[])[0])).toEqual([
        'notifications/prompts/list_changed',
        'notifications/resources/list_changed',
      ]),
    );
    expect(opened.ended).toBe(false);
  });

  it('hear of what changes in another process', async () => {
    const shared = { session: { bus: localBus() }, serverOptions: SILENT };
    const here = await serve(shared);
    const there = await serve({ ...shared, beside: here });
    const opened = await listen(here, 'tools', 'prompts', 'resources');
    await move(there);
    await move(there);
    await vi.waitFor(() =>
      expect(told(opened).map((each) => (each as string[])[0])).toEqual([
        'notifications/prompts/list_changed',
        'notifications/resources/list_changed',
      ]),
    );
  });
});

describe('the capability to change lists', () => {
  const declared = async (
    gate: StateMachineGate<string, string>,
    options: FsmGateOptions = {},
  ): Promise<unknown[]> => {
    const app = await serve({ gates: [gate], serverOptions: SILENT, options });
    const { capabilities } = await resultOf(app, 'server/discover');
    const { messages } = await send(app.url, { headers: { 'x-user': 'alice' }, body: INITIALIZE });
    const older = messages[0]?.result.capabilities;
    return [capabilities, older].map(({ prompts, resources }) => [
      prompts.listChanged,
      resources.listChanged,
    ]);
  };

  it('is declared of each kind of which something is hidden, in both eras', async () => {
    expect(await declared(shopGate())).toEqual([
      [true, true],
      [true, true],
    ]);
    expect(await declared(stepsGate().bindPrompt('order.summary', 'b'))).toEqual([
      [true, false],
      [true, false],
    ]);
    expect(await declared(stepsGate())).toEqual([
      [false, false],
      [false, false],
    ]);
    expect(await declared(shopGate(), { visibility: 'stable' })).toEqual([
      [false, false],
      [false, false],
    ]);
  });
});
