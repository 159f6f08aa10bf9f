import { completable, type McpServer, ResourceTemplate } from '@modelcontextprotocol/server';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { type FsmGateOptions, principalKey, StateMachineGate } from '../../src/index.ts';
import { type RawStream, stream, type WireMessage } from '../helpers/raw.ts';
import { sceneOfBothEras, settle } from '../helpers/scene.ts';
import { AUTO, ask, callStateless, connectV2, stateless } from '../helpers/two-eras.ts';

const ALICE = { user: 'alice' };
const RECEIPT = 'docs://receipts/7';
const TERMS = 'docs://terms';
const UPDATED = 'notifications/resources/updated';
const ASKED = {
  ref: { type: 'ref/prompt', name: 'order.summary' },
  argument: { name: 'order', value: '' },
} as const;
const NOTHING = { values: [], total: 0, hasMore: false };

function register(server: McpServer, completed: string[]): void {
  const complete = (what: string) => () => {
    completed.push(what);
    return ['secret-1'];
  };
  const argsSchema = z.object({ order: completable(z.string(), complete('prompt')) });
  server.registerPrompt('order.summary', { argsSchema }, () => ({ messages: [] }));
  const template = new ResourceTemplate('docs://receipts/{id}', {
    list: undefined,
    complete: { id: complete('template') },
  });
  server.registerResource('receipt', template, {}, (uri) => ({
    contents: [{ uri: uri.href, text: 'text' }],
  }));
}

/** `cart.view` opens the receipts and the prompt, and closes them again. */
const gate = () =>
  new StateMachineGate({
    id: 'steps',
    initial: 'closed',
    states: { closed: { on: { NEXT: 'open' } }, open: { on: { NEXT: 'closed' } } },
  })
    .bindTool('cart.view', ['closed', 'open'], 'NEXT')
    .bindPrompt('order.summary', 'open')
    .bindResource('docs://receipts/**', 'open')
    .bindResource('docs://guarded/**', 'closed', { guard: () => 'Not for you.' });

async function serve(gateOptions: FsmGateOptions = {}) {
  /** What the upstream was asked to complete. */
  const completed: string[] = [];
  const app = await sceneOfBothEras({
    workflow: gate(),
    session: { key: principalKey() },
    gate: gateOptions,
    register: (server) => register(server, completed),
    serverOptions: { capabilities: { resources: { subscribe: true } } },
  });
  const move = () => callStateless(app.url, 'cart.view', {}, ALICE);
  return { ...app, completed, move };
}

type App = Awaited<ReturnType<typeof serve>>;

async function complete({ url }: App, user = 'alice') {
  const options = user === '' ? {} : { user };
  const { messages } = await ask(url, 'completion/complete', ASKED, options);
  return messages[0] ?? {};
}

async function listen({ url }: App, uris: unknown, user = 'alice'): Promise<RawStream> {
  const params = { notifications: { resourceSubscriptions: uris } };
  const opened = await stream(url, stateless('subscriptions/listen', params, { user }));
  onTestFinished(() => opened.cut());
  await expect.poll(() => opened.messages.length).toBeGreaterThan(0);
  return opened;
}

const honoured = ({ messages }: RawStream): unknown =>
  messages[0]?.params?.notifications?.resourceSubscriptions;
const updates = ({ messages }: { messages: readonly WireMessage[] }): unknown[] =>
  messages.filter(({ method }) => method === UPDATED).map(({ params }) => params.uri);

describe.each(['hide', 'stable'] as const)('completion, where lists %s', (visibility) => {
  it('is empty for what the state hides, in the shape of its era', async () => {
    const app = await serve({ visibility });
    const { result } = await complete(app);
    expect(result).toEqual({ completion: NOTHING, resultType: 'complete' });
    const nobody = await complete(app, '');
    expect(nobody.result.completion).toEqual(NOTHING);
    expect(app.completed).toEqual([]);
    await app.move();
    expect((await complete(app)).result.completion.values).toEqual(['secret-1']);
  });
});

describe('the client of SDK v2', () => {
  it('is given an empty completion where it is hidden, and no error', async () => {
    const app = await serve();
    const client = await connectV2(app.url, 'alice', AUTO);
    expect((await client.complete(ASKED)).completion).toMatchObject({ values: [] });
    await app.move();
    expect((await client.complete(ASKED)).completion.values).toEqual(['secret-1']);
    await client.close();
  });
});

describe('the URIs of a subscription', () => {
  it('are honoured where the state and the guards allow them now', async () => {
    const app = await serve();
    const wanted = [TERMS, RECEIPT, 'docs://guarded/1', 'docs://receipts/../receipts/7'];
    expect(honoured(await listen(app, wanted))).toEqual([TERMS]);
    await app.move();
    expect(honoured(await listen(app, wanted))).toEqual([TERMS, RECEIPT]);
    expect(honoured(await listen(app, wanted, 'bob'))).toEqual([TERMS]);
  });

  it('are all honoured where none is bound, and none where all are hidden', async () => {
    const app = await serve();
    expect(honoured(await listen(app, [TERMS, 'other://x']))).toEqual([TERMS, 'other://x']);
    expect(honoured(await listen(app, [RECEIPT]))).toBeUndefined();
  });

  it.each([
    ['no array', RECEIPT],
    ['one that is no text', [[RECEIPT]]],
    ['more than 256', Array.from({ length: 257 }, (_, index) => `docs://receipts/${index}`)],
  ])('are refused in front of the upstream: %s', async (_, uris) => {
    const app = await serve();
    const params = { notifications: { resourceSubscriptions: uris } };
    const { messages } = await ask(app.url, 'subscriptions/listen', params, ALICE);
    expect(messages[0]).toMatchObject({ error: { code: -32602 } });
  });

  it('are refused in other letters, which a lenient server would take', async () => {
    const app = await serve();
    const params = { notifications: { ResourceSubscriptions: [RECEIPT] } };
    const { messages } = await ask(app.url, 'subscriptions/listen', params, ALICE);
    expect(messages[0]).toMatchObject({ error: { code: -32602 } });
  });

  it('look honoured if they are secret', async () => {
    const app = await serve({ visibility: 'hide', refusal: 'unknown-tool' });
    const [hidden, absent] = [
      await listen(app, [RECEIPT]),
      await listen(app, ['docs://absence/7']),
    ];
    expect(honoured(hidden)).toEqual([RECEIPT]);
    expect(honoured(absent)).toEqual(['docs://absence/7']);
    for (const uri of [RECEIPT, 'docs://absence/7']) app.handler.notify.resourceUpdated(uri);
    await expect.poll(() => updates(absent)).toHaveLength(1);
    expect(updates(hidden)).toEqual([]);
  });
});

describe('an update on a subscription', () => {
  it('comes while the state shows the resource, and not once it hides it again', async () => {
    const app = await serve();
    await app.move();
    const opened = await listen(app, [RECEIPT, TERMS]);
    const update = async (): Promise<void> => {
      for (const uri of [RECEIPT, TERMS]) app.handler.notify.resourceUpdated(uri);
      await settle();
    };
    await update();
    await expect.poll(() => updates(opened)).toEqual([RECEIPT, TERMS]);
    await app.move();
    await update();
    await expect.poll(() => updates(opened)).toEqual([RECEIPT, TERMS, TERMS]);
    await app.move();
    app.store.fail('read');
    await update();
    await expect.poll(() => updates(opened)).toEqual([RECEIPT, TERMS, TERMS, TERMS]);
    app.store.heal();
    await update();
    await expect.poll(() => updates(opened).slice(4)).toEqual([RECEIPT, TERMS]);
  });
});
