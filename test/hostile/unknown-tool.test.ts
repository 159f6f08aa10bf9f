import { type McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  fsmGate,
  memoryStore,
  principalKey,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { callOf, type RawResponse, RawSession, reasonOf, send } from '../helpers/raw.ts';
import { begins, type Scene, scene } from '../helpers/scene.ts';
import {
  CLAIM,
  callStateless,
  STATELESS,
  startTwoEras,
  stateless,
  type TwoErasOptions,
} from '../helpers/two-eras.ts';
import { cartServer, type UpstreamShape } from '../helpers/upstream.ts';

/** The names have one length, so that the answers must have one too. */
const HIDDEN = 'cart.pay';
const ABSENT = 'cart.nay';

/** All that a client sees of an answer, without the tool's name and without what always differs. */
function seen({ status, headers, text }: RawResponse, name: string): unknown {
  const { date, ...others } = headers;
  const told = JSON.stringify([status, Object.entries(others), text]);
  return told.replaceAll(name, 'NAME').replace(/[\da-f]{8}-[\da-f-]{27}_\d+/g, 'EVENT');
}

interface Probe {
  readonly body: unknown;
  readonly headers?: Record<string, string>;
}

const params = (name: string, more: object = {}) => ({ name, arguments: {}, ...more });
const call = (name: string, more: object = {}) => ({
  jsonrpc: '2.0',
  id: 7,
  method: 'tools/call',
  params: params(name, more),
});
const base64 = (name: string) => `=?base64?${Buffer.from(name).toString('base64')}?=`;

/** The requests by which a client may try to find out whether a tool exists. */
const PROBES: Readonly<Record<string, (name: string) => Probe>> = {
  'a call': (name) => ({ body: call(name) }),
  'a call with an id that is text': (name) => ({ body: { ...call(name), id: 'seven' } }),
  'space in the body': (name) => ({ body: JSON.stringify(call(name), undefined, 2) }),
  'a name in escapes': (name) => ({
    body: JSON.stringify(call(name)).replace('cart.', String.raw`\u0063art\u002e`),
  }),
  'no arguments': (name) => ({
    body: { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name } },
  }),
  'arguments that are text': (name) => ({ body: call(name, { arguments: 'x' }) }),
  'a progress token': (name) => ({ body: call(name, { _meta: { progressToken: 1 } }) }),
  'an idempotency key': (name) => ({
    body: call(name, { _meta: { 'mcp-interlock/idempotencyKey': 'k' } }),
  }),
  'a task': (name) => ({ body: call(name, { task: { ttl: 1000 } }) }),
  'a notification': (name) => ({
    body: { jsonrpc: '2.0', method: 'tools/call', params: params(name) },
  }),
  'the header of the other era': (name) => ({
    body: call(name),
    headers: { 'mcp-protocol-version': STATELESS },
  }),
  'the header of the other era, and all of its others': (name) => ({
    body: call(name),
    headers: {
      'mcp-protocol-version': STATELESS,
      'mcp-method': 'tools/call',
      'mcp-name': name,
    },
  }),
  'the claim of the other era': (name) => ({ body: call(name, { _meta: { [CLAIM]: STATELESS } }) }),
  'a claim that is no text': (name) => ({
    body: call(name, { _meta: { [CLAIM]: 1 } }),
    headers: { 'mcp-protocol-version': STATELESS },
  }),
  'a header that names it': (name) => ({ body: call(name), headers: { 'mcp-name': name } }),
  'a header that names it in base64': (name) => ({
    body: call(name),
    headers: { 'mcp-name': base64(name) },
  }),
  'a header that names another': (name) => ({ body: call(name), headers: { 'mcp-name': 'x' } }),
  'a header that names it, and a body that does not': (name) => ({
    body: call('cart.view'),
    headers: { 'mcp-name': name },
  }),
  'a header that says another method': (name) => ({
    body: call(name),
    headers: { 'mcp-method': 'tools/list' },
  }),
  'a header for an argument': (name) => ({
    body: call(name),
    headers: { 'mcp-param-sku': 'other' },
  }),
  'a key of an argument in two spellings': (name) => ({
    body: call(name, { arguments: { sku: '1', SKU: '2' } }),
  }),
  'a batch of one': (name) => ({ body: [call(name)] }),
  'a batch with an ungated call': (name) => ({
    body: [callOf('v', 'cart.view'), call(name)],
  }),
  'a batch with a step': (name) => ({ body: [callOf('a', 'cart.add_item'), call(name)] }),
  'a batch behind which a step comes': (name) => ({
    body: [call(name), callOf('a', 'cart.add_item')],
  }),
  'a batch of two of it': (name) => ({ body: [call(name), { ...call(name), id: 8 }] }),
  'one that takes JSON alone': (name) => ({
    body: call(name),
    headers: { accept: 'application/json' },
  }),
  'one that names no version': (name) => ({
    body: call(name),
    headers: { 'mcp-protocol-version': '' },
  }),
};

/** A server without an SDK: Express makes an ETag of each answer. */
const byHand: RequestHandler = (req, res, next) => {
  const { id, method, params: asked } = req.body ?? {};
  if (method !== 'tools/call') return next();
  if (asked.name === 'cart.view' || asked.name === 'cart.add_item')
    return void res.json({ jsonrpc: '2.0', id, result: { content: [] } });
  const error = { code: -32601, message: `There is no "${asked.name}" here` };
  res.json({ error, id, jsonrpc: '2.0' });
};

const UPSTREAMS: Readonly<Record<string, Partial<UpstreamShape> & { behind?: RequestHandler[] }>> =
  {
    'SDK v1, stateful, SSE': { mode: 'stateful', answers: 'sse' },
    'SDK v1, stateful, JSON': { mode: 'stateful', answers: 'json', parser: true },
    'SDK v1, stateless, SSE': { mode: 'stateless', answers: 'sse', express: 4, parser: true },
    'SDK v1, stateless, JSON': { mode: 'stateless', answers: 'json' },
    'one written by hand': { mode: 'stateless', answers: 'json', parser: true, behind: [byHand] },
    'the Fetch API, SSE': { mode: 'stateful', answers: 'sse', host: 'sdk' },
  };

async function start(name: string): Promise<Scene> {
  const { behind, ...shape } = UPSTREAMS[name] ?? {};
  return scene({
    shape,
    gate: { refusal: 'unknown-tool' },
    ...(behind && { behind }),
  });
}

async function expectAlike(session: RawSession, probe: (name: string) => Probe): Promise<void> {
  const ask = async (name: string): Promise<unknown> => {
    const { body, headers } = probe(name);
    return seen(await session.post(body, headers), name);
  };
  const hidden = await ask(HIDDEN);
  expect(hidden).toBe(await ask(ABSENT));
}

describe.each(Object.keys(UPSTREAMS))('a hidden tool of %s cannot be told from none', (name) => {
  it('by any request', async () => {
    const app = await start(name);
    const session = await app.sessionAt('has_items');
    for (const [what, probe] of Object.entries(PROBES))
      await expectAlike(session, probe).catch((error: unknown) => {
        throw new Error(what, { cause: error });
      });
    expect(app.ledger.calls).not.toContain(HIDDEN);
  });
});

const BY_SDKS = Object.keys(UPSTREAMS).filter((name) => name !== 'one written by hand');

describe.each(BY_SDKS)('a hidden tool of %s cannot be told from none', (name) => {
  it('while other calls wait for a step of its run', async () => {
    const app = await start(name);
    const session = await app.sessionAt('has_items');
    const step = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    for (const probe of [PROBES['a call'], PROBES['a batch with an ungated call']])
      if (probe !== undefined) await expectAlike(session, probe);
    step.finish();
    expect((await step.answer).result.isError).not.toBe(true);
    expect(app.ledger.calls).not.toContain(HIDDEN);
  });
});

describe('a hidden tool cannot be told from none', () => {
  const plain = PROBES['a call'] ?? (() => ({ body: {} }));

  it('while its run is held', async () => {
    const app = await start('SDK v1, stateless, JSON');
    const session = await app.sessionAt('has_items');
    const step = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    app.store.fail('commit', Number.POSITIVE_INFINITY);
    step.finish();
    const clock = setInterval(() => app.clock.advance(500), 1);
    await step.answer;
    clearInterval(clock);
    app.clock.advance(10_000);
    // No list has its steps now, so a call of one must not tell that it exists.
    const answer = await session.call('cart.add_item');
    expect(reasonOf(answer)).toBeUndefined();
    expect(answer.result?.content).toMatchObject([
      { text: 'MCP error -32602: Tool cart.add_item not found' },
    ]);
    expect(await session.tools()).not.toContain('cart.add_item');
    await expectAlike(session, plain);
  });

  it('while the store is away', async () => {
    const app = await start('SDK v1, stateful, SSE');
    const session = await app.sessionAt('has_items');
    for (const operation of ['read', 'claim'] as const)
      app.store.fail(operation, Number.POSITIVE_INFINITY);
    await expectAlike(session, plain);
  });

  it('once its session has ended in another process', async () => {
    const app = await start('SDK v1, stateless, JSON');
    const session = await app.sessionAt('has_items');
    await app.data.delete(session.id);
    await expectAlike(session, plain);
  });

  it('by a caller without a run', async () => {
    const key = principalKey();
    const app = await scene({
      shape: { mode: 'stateless', answers: 'json' },
      session: { key },
      gate: { refusal: 'unknown-tool', visibility: 'hide' },
    });
    const ask = async (name: string) => seen(await send(app.url, { body: call(name) }), name);
    expect(await ask(HIDDEN)).toBe(await ask(ABSENT));
    expect(app.warnings.join()).toContain('a request names no principal');
  });

  it('on a resumed stream', async () => {
    const app = await scene({
      gate: { refusal: 'unknown-tool' },
      eventStore: () => new ListEventStore(),
    });
    const session = await app.sessionAt('has_items');
    const replay = async (name: string) => {
      const { text } = await session.post(call(name));
      const [, first = ''] = /^id: (.*)$/m.exec(text) ?? [];
      const resumed = await session.listen(first);
      await expect.poll(() => resumed.text).toContain('"id":7');
      const { status, headers, text: again } = resumed;
      resumed.cut();
      return seen({ status, headers, text: again, messages: [] }, name);
    };
    const hidden = await replay(HIDDEN);
    expect(hidden).toContain('NAME not found');
    expect(hidden).toBe(await replay(ABSENT));
  });

  it('by a call that another gate lets through', async () => {
    const open = new StateMachineGate({
      id: 'open',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    }).bindTool(HIDDEN, ['a', 'b'], 'GO');
    for (const workflow of [
      [open, checkoutGate()],
      [checkoutGate(), open],
    ]) {
      const app = await scene({ workflow, gate: { refusal: 'unknown-tool' } });
      const session = await app.sessionAt('has_items');
      await expectAlike(session, plain);
      expect((await app.data.read(session.id, 1_000))?.workflows.open?.snapshot.state).not.toBe(
        'b',
      );
    }
  });

  it('and a shown tool is refused in words, also as a batch’s second step', async () => {
    const app = await start('SDK v1, stateful, JSON');
    const session = await app.sessionAt('has_items');
    const { messages } = await session.post([
      callOf(1, 'cart.add_item'),
      callOf(2, 'cart.checkout'),
    ]);
    expect(reasonOf(messages.find(({ id }) => id === 2))).toBe('busy');
  });
});

/** A shop with a prompt and receipts that the first state hides. */
function shopServer(ledger: Parameters<typeof cartServer>[0]): McpServer {
  const server = cartServer(ledger);
  const prompt = {
    messages: [{ role: 'user' as const, content: { type: 'text' as const, text: '' } }],
  };
  for (const name of ['order.summary', 'help']) {
    server.registerPrompt(name, {}, () => {
      ledger.calls.push(name);
      return prompt;
    });
  }
  const read = (uri: URL) => {
    ledger.calls.push(uri.href);
    return { contents: [{ uri: uri.href, text: '' }] };
  };
  const receipts = new ResourceTemplate('docs://receipts/{id}', { list: undefined });
  server.registerResource('receipt', receipts, {}, read);
  return server;
}

describe('a hidden prompt or resource cannot be told from none', () => {
  const workflow = () =>
    checkoutGate()
      .bindPrompt('order.summary', 'confirmed')
      .bindResource('docs://receipts/**', 'confirmed');
  const read = (method: string, asked: object) => ({
    jsonrpc: '2.0',
    id: 7,
    method,
    params: asked,
  });

  it.each(BY_SDKS)('by any request, of %s', async (name) => {
    const { behind: _, ...shape } = UPSTREAMS[name] ?? {};
    const app = await scene({
      shape,
      workflow: workflow(),
      gate: { refusal: 'unknown-tool' },
      makeServer: shopServer,
    });
    const session = await app.session();
    const ofPrompt = { 'prompts/get': 'name', 'completion/complete': 'ref' } as const;
    const asked = (method: string, name: string): object => {
      const argument = { name: 'x', value: '' };
      if (method === 'prompts/get') return read(method, { name });
      if (method === 'resources/read') return read(method, { uri: name });
      const type = name.includes(':') ? 'ref/resource' : 'ref/prompt';
      return read(method, { ref: { type, name, uri: name }, argument });
    };
    const pairs: (readonly [method: string, hidden: string, absent: string])[] = [
      ...Object.keys(ofPrompt).map((method) => [method, 'order.summary', 'order.absence'] as const),
      ['resources/read', 'docs://receipts/7', 'docs://absences/7'],
      // Some upstreams parse a URI and answer with its normal form.
      ['resources/read', 'DOCS://receipts/a b', 'DOCS://absences/a b'],
      ['resources/read', 'docs://receipts/caf\u00e9', 'docs://absences/caf\u00e9'],
      ['completion/complete', 'docs://receipts/{id}', 'docs://absences/{id}'],
    ];
    for (const [method, hidden, absent] of pairs) {
      for (const headers of [{}, { 'mcp-protocol-version': STATELESS }, { 'mcp-name': hidden }]) {
        const ask = async (name: string): Promise<unknown> => {
          const named = 'mcp-name' in headers ? { 'mcp-name': encodeURI(name) } : headers;
          const response = await session.post(asked(method, name), named);
          return JSON.parse(
            JSON.stringify(seen(response, name)).replaceAll(/absence|receipt|summary/g, 'KIND'),
          );
        };
        expect([method, await ask(hidden)]).toEqual([method, await ask(absent)]);
      }
    }
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('an upstream of SDK v2', () => {
  async function serve(options: TwoErasOptions & { principal?: boolean }) {
    const key = options.principal === true ? principalKey() : sessionKey();
    const onWarning = (): void => {};
    const store = memoryStore();
    const sessions = sessionStore({ key, store, onWarning });
    const app = await startTwoEras({
      middlewares: [
        sessions,
        fsmGate(checkoutGate(), { refusal: 'unknown-tool', visibility: 'hide', onWarning }),
      ],
    });
    onTestFinished(async () => {
      await sessions.close();
      await app.close();
    });
    return app;
  }

  it('tells a hidden tool from none by no request of the session era', async () => {
    const { url, calls } = await serve({});
    const session = await RawSession.begin(url);
    await session.call('cart.add_item');
    for (const [what, probe] of Object.entries(PROBES))
      await expectAlike(session, probe).catch((error: unknown) => {
        throw new Error(what, { cause: error });
      });
    expect(calls.map(({ tool }) => tool)).not.toContain(HIDDEN);
  });

  it.each<[string, Record<string, string>, object]>([
    ['as it should be', {}, {}],
    ['without its version in the header', { 'mcp-protocol-version': '' }, {}],
    ['without its name in the header', { 'mcp-name': '' }, {}],
    ['without its method in the header', { 'mcp-method': '' }, {}],
    ['with another name in the header', { 'mcp-name': 'other' }, {}],
    ['with another method in the header', { 'mcp-method': 'tools/list' }, {}],
    ['with a broken name in the header', { 'mcp-name': '=?base64?%?=' }, {}],
    ['with an argument in the header', { 'mcp-param-sku': '9' }, { arguments: { sku: '1' } }],
    ['that names another version', { 'mcp-protocol-version': '2027-01-01' }, {}],
    ['that wants a task', {}, { task: { ttl: 1000 } }],
    ['with arguments that are text', {}, { arguments: 'x' }],
  ])('tells it from none by no request of 2026-07-28 %s', async (_, changes, more) => {
    const { url, calls } = await serve({ principal: true });
    for (const user of ['alice', undefined]) {
      const ask = async (name: string): Promise<unknown> => {
        const options = { changes, ...(user !== undefined && { user }) };
        const { headers, body } = stateless('tools/call', params(name, more), options);
        return seen(await send(url, { headers, body: { ...body, id: 7 } }), name);
      };
      expect(await ask(HIDDEN)).toBe(await ask(ABSENT));
    }
    expect(calls).toEqual([]);
  });

  it('is not asked for it during a step of the same principal', async () => {
    const app = await serve({ principal: true });
    const alice = { user: 'alice' };
    await callStateless(app.url, 'cart.add_item', {}, alice);
    let finish = (): void => {};
    app.gates.set('cart.add_item', new Promise((resolve) => (finish = resolve)));
    const step = callStateless(app.url, 'cart.add_item', {}, alice);
    await expect.poll(() => app.calls.length).toBe(2);
    const told = await callStateless(app.url, HIDDEN, {}, alice);
    expect(told.result).toEqual({});
    finish();
    expect((await step).isError).toBe(false);
    expect(app.calls.map(({ tool }) => tool)).not.toContain(HIDDEN);
  });
});
