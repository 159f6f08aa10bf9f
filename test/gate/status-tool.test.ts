import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Server } from '@modelcontextprotocol/server';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import {
  type FsmGateOptions,
  fsmGate,
  handleKey,
  InterlockError,
  managedHandle,
  principalKey,
  StateMachineGate,
  type StatusToolOptions,
  sessionKey,
  UnknownOutcome,
} from '../../src/index.ts';
import type { ManagedHandleOptions } from '../../src/session/run-key.ts';
import type { ClaimRequest } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { FOUR_UPSTREAMS } from '../helpers/four-upstreams.ts';
import { ORDER_APP, orderGate } from '../helpers/order-app.ts';
import { callOf, type RawSession, type WireMessage } from '../helpers/raw.ts';
import {
  begins,
  makeStage,
  SceneClient,
  type SceneOptions,
  scene,
  sceneOfBothEras,
} from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import {
  ask,
  callStateless,
  connectV2,
  PINNED,
  type StatelessOptions,
} from '../helpers/two-eras.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

const STATUS = 'workflow_status';
const gate: FsmGateOptions = { statusTool: STATUS };
const START = 'checkout.start';
const managed = (options: Partial<ManagedHandleOptions> = {}) =>
  managedHandle({ start: START, argument: 'workflow_run', ...options });
const alice = { user: 'alice' };

/** The client must show an identity before it pays, and loses it by viewing the cart. */
const identity = () =>
  new StateMachineGate({
    id: 'identity',
    initial: 'unknown',
    states: { unknown: { on: { SHOW: 'known' } }, known: { on: { HIDE: 'unknown' } } },
  })
    .bindTool('id.show', 'unknown', 'SHOW')
    .bindTool('cart.pay', 'known')
    .bindTool('cart.view', ['unknown', 'known'], 'HIDE');

const shop = (ledger: Ledger): McpServer => {
  const server = cartServer(ledger);
  server.registerTool('id.show', {}, () => {
    ledger.calls.push('id.show');
    return { content: [{ type: 'text', text: 'shown' }] };
  });
  return server;
};

/** A client of a scene whose gate has the tool, and its answers. */
async function visit(options: SceneOptions = {}, user?: string) {
  const app = await scene({ gate, ...options });
  const client = await app.client(user);
  return { ...app, client, ask: () => statusOf(client), part: () => partOf(client) };
}

/** The answer to a client of SDK v1, which checks it by the listed schema. */
async function statusOf({ raw }: SceneClient, args: Record<string, unknown> = {}) {
  await raw.client.listTools();
  return raw.client.callTool({ name: STATUS, arguments: args });
}

async function partOf(client: SceneClient): Promise<WireMessage> {
  const { structuredContent } = await statusOf(client);
  const [part] = (structuredContent as { workflows: WireMessage[] }).workflows;
  return part ?? {};
}

const textOf = (answer: object) =>
  (answer as { content: { text: string }[] }).content.map(({ text }) => text).join('\n');

interface Chosen {
  readonly tool: string;
  readonly args: Record<string, unknown>;
}

/** What a model chooses by the answer alone: the first call that leads on. */
function chosenFrom({ workflows }: { workflows: WireMessage[] }): Chosen | undefined {
  if (workflows.some(({ status }) => status === 'ended')) return undefined;
  for (const { state, next, waitsFor, pass = {} } of workflows) {
    const on = next.find(({ leadsTo }: WireMessage) => leadsTo.some((to: string) => to !== state));
    const [only] = state === undefined ? next : [];
    const tool = on?.tool ?? waitsFor?.path?.[0] ?? only?.tool;
    if (tool !== undefined) return { tool, args: pass };
  }
  throw new Error(`nothing leads on: ${JSON.stringify(workflows)}`);
}

describe('a model that is given the answers and nothing else', () => {
  it('brings the checkout to its end in a session', async () => {
    const { client, ledger } = await visit();
    for (;;) {
      const { structuredContent } = await statusOf(client);
      const chosen = chosenFrom(structuredContent as never);
      if (chosen === undefined) break;
      await client.calls(chosen.tool, chosen.args);
    }
    expect(ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
  });

  it('brings two workflows that share the tool to the end of one of them', async () => {
    const { client, ledger } = await visit({
      workflow: [checkoutGate(), identity()],
      makeServer: shop,
    });
    for (;;) {
      const { structuredContent } = await statusOf(client);
      const chosen = chosenFrom(structuredContent as never);
      if (chosen === undefined) break;
      await client.calls(chosen.tool, chosen.args);
    }
    expect(ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'id.show', 'cart.pay']);
  });

  it.each([
    ['of a principal', principalKey(), alice],
    ['that a handle of the middleware names', managed(), {}],
  ])('brings a run to its end in the stateless era, %s', async (_, key, caller) => {
    const app = await sceneOfBothEras({ session: { key }, gate });
    let handle: Record<string, unknown> = {};
    const calls: string[] = [];
    for (;;) {
      const { result } = await callStateless(app.url, STATUS, handle, caller);
      expect(result.resultType).toBe('complete');
      const { workflows } = result.structuredContent;
      const chosen = chosenFrom({ workflows });
      if (chosen === undefined) break;
      const called = await callStateless(app.url, chosen.tool, chosen.args, caller);
      expect(called.isError, chosen.tool).toBe(false);
      calls.push(chosen.tool);
      handle = called.result.structuredContent ?? handle;
    }
    expect(calls.filter((tool) => tool !== START)).toEqual([
      'cart.add_item',
      'cart.checkout',
      'cart.pay',
    ]);
    expect(app.calls.map(({ tool }) => tool)).toEqual(calls.filter((tool) => tool !== START));
    expect(app.errors).toEqual([]);
  });

  it('reads the same in the text, one line for each tool', async () => {
    const { client } = await visit();
    await client.calls('cart.add_item');
    const answer = await statusOf(client);
    expect(textOf(answer).split('\n').slice(0, 3)).toEqual([
      'checkout is in "has_items". Available now: cart.add_item, cart.checkout. ' +
        'CLEAR may also come from outside.',
      '- cart.add_item leaves checkout in "has_items".',
      '- cart.checkout leads to "payment".',
    ]);
    expect(textOf(answer)).toContain('cart.add_item');
  });
});

describe.each(FOUR_UPSTREAMS)('in front of $name', (kind) => {
  it('serves the SDKs’ clients, and the upstream sees no call', async () => {
    const { middlewares } = makeStage({ session: { key: [sessionKey(), principalKey()] }, gate });
    const upstream = await kind.start(middlewares);
    onTestFinished(() => upstream.close());
    const client = await SceneClient.connect(upstream.url, 'alice');
    expect(await statusOf(client)).toMatchObject({
      structuredContent: { workflows: [{ workflow: 'checkout', status: 'idle', state: 'empty' }] },
    });
    if (kind.isStateless) {
      const modern = await connectV2(upstream.url, 'alice', PINNED);
      onTestFinished(() => modern.close());
      await modern.listTools();
      const answer = await modern.callTool({ name: STATUS, arguments: {} });
      expect(answer.structuredContent).toMatchObject({ workflows: [{ state: 'empty' }] });
    }
    expect(upstream.calls()).toEqual([]);
  });
});

/** The listed tools of a page, with their names. */
async function listed(session: RawSession, params: unknown = {}): Promise<WireMessage[]> {
  return (await session.ask('tools/list', params)).result.tools;
}

describe('the listed tool', () => {
  it('comes last, is annotated as read-only, and asks for nothing in a session', async () => {
    const { session } = await scene({ gate });
    const tools = await listed(await session());
    expect(tools.map(({ name }) => name)).toEqual(['cart.add_item', 'cart.view', STATUS]);
    expect(tools.at(-1)).toMatchObject({
      description: expect.stringMatching(/^Says where checkout stands/),
      inputSchema: { type: 'object', properties: {} },
      outputSchema: { type: 'object', required: ['workflows'] },
      annotations: { readOnlyHint: true },
    });
    expect(tools.at(-1)?.inputSchema).not.toHaveProperty('required');
  });

  it('has a description of the app', async () => {
    const statusTool = { name: 'where', description: 'Where am I?' };
    const { session } = await scene({ gate: { statusTool } });
    expect((await listed(await session())).at(-1)).toMatchObject(statusTool);
  });

  it.each([
    ['of the middleware', managed(), 'workflow_run'],
    ['of the upstream', handleKey('basket_id', { createdBy: 'create_basket' }), 'basket_id'],
  ])('requires the handle %s', async (_, key, argument) => {
    const { url } = await sceneOfBothEras({ session: { key }, gate });
    const { messages } = await ask(url, 'tools/list', {}, alice);
    expect(messages[0]?.result.tools.at(-1)).toMatchObject({
      name: STATUS,
      inputSchema: { properties: { [argument]: { type: 'string' } }, required: [argument] },
    });
  });

  it('offers each of several handles, and requires none', async () => {
    const key = ['basket_id', 'order_id'].map((each) => handleKey(each, { createdBy: 'create' }));
    const { url } = await sceneOfBothEras({ session: { key }, gate });
    const { messages } = await ask(url, 'tools/list', {}, alice);
    const { inputSchema } = messages[0]?.result.tools.at(-1) ?? {};
    expect(Object.keys(inputSchema.properties)).toEqual(['basket_id', 'order_id']);
    expect(inputSchema).not.toHaveProperty('required');
  });

  it('is on the last page of a list alone', async () => {
    const { url } = await sceneOfBothEras({
      session: { key: principalKey() },
      gate,
      register(server) {
        const low: Server = server.server;
        low.setRequestHandler('tools/list', async ({ params }) => {
          const isFirst = params?.cursor === undefined;
          const inputSchema = { type: 'object' as const };
          return isFirst
            ? { tools: [{ name: 'cart.pay', inputSchema }], nextCursor: 'more' }
            : { tools: [{ name: 'other', inputSchema }] };
        });
      },
    });
    const names = async (params: Record<string, unknown>) =>
      (await ask(url, 'tools/list', params, alice)).messages[0]?.result.tools.map(
        ({ name }: WireMessage) => name,
      );
    for (const _ of ['as it comes', 'remembered']) {
      expect(await names({})).toEqual(['cart.pay']);
      expect(await names({ cursor: 'more' })).toEqual(['other', STATUS]);
    }
  });

  it('is listed in each state, from remembered pages and from lists that are kept', async () => {
    for (const listCache of [false, true]) {
      const { session } = await scene({
        gate: { ...gate, listCache },
        shape: { parser: true, answers: 'json' },
      });
      const client = await session();
      for (const tool of [undefined, 'cart.add_item', 'cart.checkout', 'cart.pay']) {
        if (tool !== undefined) await client.call(tool);
        for (const _ of ['as it comes', 'again'])
          expect((await client.tools()).filter((name) => name === STATUS)).toHaveLength(1);
      }
    }
  });

  it('does not lend its schema to a request that other keys serve', async () => {
    const { url } = await sceneOfBothEras({ session: { key: [principalKey(), managed()] }, gate });
    const schema = async (options: StatelessOptions) =>
      (await ask(url, 'tools/list', {}, options)).messages[0]?.result.tools.at(-1).inputSchema;
    for (const _ of ['as it comes', 'remembered']) {
      expect(await schema(alice)).not.toHaveProperty('required');
      expect(await schema({})).toMatchObject({ required: ['workflow_run'] });
    }
  });

  it('wins over a tool of the upstream, which a warning names once', async () => {
    const { client, warnings, ledger, ask } = await visit({
      makeServer: toolServer(['cart.add_item', 'cart.checkout', 'cart.pay', STATUS]),
    });
    await client.sees(['cart.add_item', STATUS]);
    await client.sees(['cart.add_item', STATUS]);
    expect(textOf(await ask())).toContain('checkout is in "empty"');
    expect(ledger.calls).toEqual([]);
    expect(warnings).toEqual([expect.stringContaining(`the upstream has a tool "${STATUS}"`)]);
  });

  it('is refused at the first list if it is the tool that begins runs', async () => {
    const key = managed({ start: STATUS });
    const { url, errors } = await sceneOfBothEras({ session: { key }, gate });
    const { messages } = await ask(url, 'tools/list');
    expect(messages[0]?.error).toEqual({ code: -32603, message: 'Internal error' });
    expect(errors).toEqual([
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining('is the start of managedHandle(); choose another name'),
      }),
    ]);
  });
});

describe('an answer', () => {
  it('says where a run stands, where each call leads, and what happened last', async () => {
    const { client, part } = await visit();
    for (const tool of ['cart.add_item', 'cart.checkout']) await client.calls(tool, { sku: 'tea' });
    expect(await part()).toMatchObject({
      workflow: 'checkout',
      status: 'idle',
      state: 'payment',
      says: 'checkout is in "payment". Available now: cart.pay. CANCEL may also come from outside.',
      next: [
        {
          tool: 'cart.pay',
          leadsTo: ['confirmed'],
          says: 'cart.pay leads to "confirmed", where checkout ends.',
        },
      ],
      recent: [
        { tool: 'cart.add_item', from: 'empty', to: 'has_items' },
        { tool: 'cart.checkout', from: 'has_items', to: 'payment' },
      ],
    });
  });

  it('has the last five entries of the trail, without arguments', async () => {
    const { client, runs, ask } = await visit();
    for (let i = 0; i < 6; i++) await client.calls('cart.add_item', { sku: 'secret-sku' });
    await runs.send(client.run, 'CLEAR', {
      actor: 'secret-actor',
      payload: { note: 'secret-note' },
    });
    const answer = await ask();
    const [part] = (answer.structuredContent as { workflows: WireMessage[] }).workflows;
    expect(part?.recent).toHaveLength(5);
    expect(part?.recent.at(-1)).toEqual({ event: 'CLEAR', from: 'has_items', to: 'empty' });
    expect(JSON.stringify(answer)).not.toContain('secret');
  });

  it("tells none of a run's data, except for the app's summary", async () => {
    const told: unknown[] = [];
    const summary: StatusToolOptions['summary'] = (run) => {
      told.push(run);
      return { items: (run.context as { items: string[] }).items.length };
    };
    const { client, runs, ask } = await visit(
      { gate: { statusTool: { name: STATUS, summary } }, session: { key: sessionKey() } },
      'ann',
    );
    await runs.update(client.run, () => ({ items: ['tea', 'cups'], card: '4111' }));
    const answer = await ask();
    expect(answer.structuredContent).toMatchObject({ workflows: [{ summary: { items: 2 } }] });
    expect(textOf(answer)).toContain('Summary: {"items":2}');
    expect(JSON.stringify(answer)).not.toContain('4111');
    expect(told).toEqual([
      {
        state: 'empty',
        context: { items: ['tea', 'cups'], card: '4111' },
        principal: expect.stringContaining('ann'),
      },
    ]);
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('no');
      },
    ],
    ['gives a promise', () => Promise.reject(new Error('no')) as never],
    ['gives a function', () => (() => {}) as never],
  ])('has no summary where the app %s, which onError is told of', async (_, summary) => {
    const { part, errors } = await visit({ gate: { statusTool: { name: STATUS, summary } } });
    expect(await part()).not.toHaveProperty('summary');
    expect(errors).toHaveLength(1);
  });

  it('costs one read of the store and one of the trail, and takes no claim', async () => {
    const { client, store } = await visit();
    await client.calls('cart.add_item');
    await client.raw.tools();
    store.take();
    await client.raw.client.callTool({ name: STATUS, arguments: {} });
    expect(store.take()).toEqual(['read', 'history']);
  });

  it('is an error if the store fails, and leaks nothing of it', async () => {
    const { client, store } = await visit();
    await client.raw.client.listTools();
    store.fail('read');
    const answer = await client.raw.client.callTool({ name: STATUS, arguments: {} });
    expect(answer.isError).toBe(true);
    expect(textOf(answer)).toBe('The state of checkout cannot be read now. Try again later.');
  });

  it('leaves out the trail if that cannot be read', async () => {
    const { client, store, part, errors } = await visit();
    await client.calls('cart.add_item');
    store.fail('history');
    expect(await part()).toMatchObject({ state: 'has_items' });
    expect(await part()).not.toHaveProperty('recent');
    expect(errors).toHaveLength(2);
  });

  it('is a JSON-RPC error where the call asked for a task', async () => {
    const { client } = await visit();
    const params = { name: STATUS, arguments: {}, task: { ttl: 1_000 } };
    const call = client.raw.client.request({ method: 'tools/call', params }, z.any());
    await expect(call).rejects.toMatchObject({ code: -32602 });
  });

  it('comes in a batch beside a step, which is forwarded', async () => {
    const { session, ledger } = await scene({ gate, shape: { mode: 'stateless' } });
    const client = await session();
    const { messages } = await client.post([callOf(1, STATUS), callOf(2, 'cart.add_item')]);
    const byId = new Map(messages.map((message) => [message.id, message.result]));
    expect(byId.get(1)?.structuredContent.workflows[0].state).toBe('empty');
    expect(byId.get(2)?.isError).toBeUndefined();
    expect(ledger.calls).toEqual(['cart.add_item']);
  });

  it.each([
    ['another name', { 'mcp-name': 'cart.view' }],
    ['no name', { 'mcp-name': '' }],
    ['another method', { 'mcp-method': 'tools/list' }],
    ['no method', { 'mcp-method': '' }],
    ['an argument that is not there', { 'mcp-param-sku': 'tea' }],
  ])('is refused where the headers have %s', async (_, changes: Record<string, string>) => {
    const { url } = await sceneOfBothEras({ session: { key: principalKey() }, gate });
    const options = { ...alice, changes };
    const { status, messages } = await ask(url, 'tools/call', { name: STATUS }, options);
    expect([status, messages[0]?.error.code]).toEqual([400, -32020]);
  });
});

describe('what a run waits for', () => {
  it('is the call that is running', async () => {
    const app = await visit();
    const adding = await begins(app, 'cart.add_item', () => app.client.calls('cart.add_item'));
    expect(await app.part()).toMatchObject({
      status: 'running',
      state: 'empty',
      next: [],
      waitsFor: { what: 'step', tool: 'cart.add_item' },
      says:
        'checkout is in "empty". A call of cart.add_item is running. Wait for its ' +
        'result, then ask again.',
    });
    adding.finish();
    await adding.answer;
    expect(await app.part()).toMatchObject({ status: 'idle', state: 'has_items' });
  });

  it('is the operator after an unknown outcome; onError is told of the claim', async () => {
    const app = await visit();
    const claim: ClaimRequest = {
      run: app.client.run,
      workflow: 'checkout',
      token: crypto.randomUUID(),
      step: { tool: 'cart.add_item', digest: '', uncertain: 'hold' },
      states: undefined,
      initial: { state: 'empty', updatedAt: 0 },
      leaseMs: 1_000,
      ttlMs: 3_600_000,
    };
    await app.data.claim(claim);
    app.clock.advance(1_000);
    expect(await app.part()).toMatchObject({
      status: 'held',
      next: [],
      waitsFor: { what: 'operator', tool: 'cart.add_item' },
      says: expect.stringContaining('The operator must resolve it before checkout goes on.'),
    });
    expect(app.errors).toEqual([expect.any(UnknownOutcome)]);
  });

  const approval = () =>
    new StateMachineGate({
      id: 'order',
      initial: 'cart',
      states: {
        cart: { on: { SUBMIT: 'waiting' } },
        waiting: { on: { APPROVE: 'approved', REJECT: 'cart' }, after: { 900000: 'cart' } },
        approved: { after: { 60000: 'cart' } },
      },
    }).bindTool('cart.add_item', 'cart', 'SUBMIT');

  it('is an event from outside, or the time at which the state is left', async () => {
    const { client, clock, runs, part } = await visit({ workflow: approval() });
    await client.calls('cart.add_item');
    clock.advance(180_000);
    expect(await part()).toMatchObject({
      status: 'idle',
      state: 'waiting',
      next: [],
      waitsFor: { what: 'event', events: ['APPROVE', 'REJECT'] },
      leavesInMs: 720_000,
      leavesAt: new Date(clock.now() + 720_000).toISOString(),
      says:
        'order is in "waiting". No tool of order is available now. No call leads on from here: ' +
        'it waits for APPROVE or REJECT, from outside. It leaves this state by itself in 12 ' +
        'minutes.',
    });
    // A call that needs another state is told the same, and not that nothing can lead there.
    const { texts, meta } = await client.isRefused('cart.add_item', 'state');
    expect(texts[0]).toBe(
      '[System: cart.add_item is not available while order is in "waiting". No tool of order is ' +
        'available now. No call leads to cart.add_item from here. order waits for APPROVE or ' +
        'REJECT, from outside. It leaves this state by itself in 12 minutes.]',
    );
    expect(meta['mcp-interlock/refusal']).toMatchObject({
      events: ['APPROVE', 'REJECT'],
      leavesInMs: 720_000,
    });
    await runs.send(client.run, 'APPROVE');
    expect(await part()).toMatchObject({
      state: 'approved',
      waitsFor: { what: 'deadline' },
      leavesInMs: 60_000,
    });
    clock.advance(60_000);
    expect(await part()).toMatchObject({ state: 'cart', next: [{ tool: 'cart.add_item' }] });
  });

  it('is a condition of the machine, where its guards stop a call', async () => {
    const { client, part } = await visit({
      ...ORDER_APP,
      gate,
      workflow: orderGate() as never,
    });
    expect(await part()).toMatchObject({
      state: 'cart',
      next: [{ tool: 'add', leadsTo: ['cart'] }],
      waitsFor: { what: 'condition', tool: 'place' },
    });
    await client.calls('add', { sum: 5 });
    await client.calls('place');
    const { next } = await part();
    expect(next.map(({ tool }: WireMessage) => tool)).toEqual(['pay', 'pack', 'pause']);
  });
});

describe('a run that has ended', () => {
  const paid = async (client: SceneClient) => {
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await client.calls(tool);
  };

  it('of a session says so, and that another session begins a new one', async () => {
    const { client, part } = await visit();
    await paid(client);
    expect(await part()).toMatchObject({
      status: 'ended',
      state: 'confirmed',
      next: [],
      says: 'This run of checkout has ended, in "confirmed". A new session begins a new one.',
    });
  });

  it('of a principal names the calls that begin it anew, unless it is kept', async () => {
    const session = { key: principalKey() };
    const { client, part } = await visit({ session }, 'ann');
    await paid(client);
    expect(await part()).toMatchObject({
      status: 'ended',
      state: 'confirmed',
      next: [{ tool: 'cart.add_item', leadsTo: ['has_items'] }],
      says: expect.stringContaining('The next call that is available begins a new one.'),
    });
    await client.calls('cart.add_item');
    expect(await part()).toMatchObject({ status: 'idle', state: 'has_items' });

    const kept = await visit({ session, gate: { ...gate, whenEnded: 'keep' } }, 'ann');
    await paid(kept.client);
    expect(await kept.part()).toMatchObject({
      status: 'ended',
      next: [],
      says: expect.stringContaining('Only the operator can begin a new one.'),
    });
  });

  it('of a handle names the tool that begins another', async () => {
    const { client } = await visit({ session: { key: managed() } });
    const begun = await client.raw.client.callTool({ name: START, arguments: {} });
    const handle = begun.structuredContent as Record<string, unknown>;
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
      await client.calls(tool, handle);
    expect((await statusOf(client, handle)).structuredContent).toMatchObject({
      workflows: [{ status: 'ended', pass: handle, next: [{ tool: START, leadsTo: [] }] }],
    });
  });
});

describe('a run that is not there', () => {
  it('is one that a handle names no more: the answer says what begins another', async () => {
    const { url } = await sceneOfBothEras({ session: { key: managed() }, gate });
    for (const args of [{}, { workflow_run: 'nonsense' }]) {
      const { result, text, isError } = await callStateless(url, STATUS, args);
      expect(isError).toBe(false);
      expect(result.structuredContent.workflows).toEqual([
        expect.objectContaining({
          workflow: 'checkout',
          status: 'no-run',
          next: [expect.objectContaining({ tool: START })],
        }),
      ]);
      expect(text).toContain(`Call ${START} to begin a new one`);
    }
  });

  it('is that of a caller without a name: the developer is warned once', async () => {
    const { url, warnings } = await sceneOfBothEras({ session: { key: principalKey() }, gate });
    for (const _ of ['once', 'again']) {
      const { result } = await callStateless(url, STATUS);
      expect(result.structuredContent.workflows[0]).toMatchObject({ status: 'no-run', next: [] });
    }
    expect(warnings).toEqual([expect.stringContaining('a request names no principal')]);
  });

  it('is that of a session which ended elsewhere: the session is over', async () => {
    const app = await scene({ gate });
    const session = await app.session();
    await app.data.delete(session.id);
    const { status, messages } = await session.post(callOf(1, STATUS));
    expect([status, messages[0]?.error.message]).toEqual([404, 'Session not found']);
  });
});

describe('several gates on a route', () => {
  const both = (options: SceneOptions = {}) =>
    visit({ workflow: [checkoutGate(), identity()], makeServer: shop, ...options });

  it('share a tool of one name: one is listed, and it has a part for each workflow', async () => {
    const { client, ask } = await both();
    const { tools } = await client.raw.client.listTools();
    const own = tools.filter(({ name }) => name === STATUS);
    expect(own.map(({ description }) => description)).toEqual([
      expect.stringContaining('checkout and identity'),
    ]);
    expect((await ask()).structuredContent).toMatchObject({
      workflows: [
        { workflow: 'checkout', state: 'empty', next: [{ tool: 'cart.add_item' }] },
        {
          workflow: 'identity',
          state: 'unknown',
          next: [{ tool: 'id.show' }, { tool: 'cart.view' }],
        },
      ],
    });
  });

  it('offer what all of them allow, and the way to what another one refuses', async () => {
    const { client, part } = await both();
    for (const tool of ['cart.add_item', 'cart.checkout']) await client.calls(tool);
    expect(await part()).toMatchObject({
      state: 'payment',
      next: [],
      waitsFor: { what: 'workflow', tool: 'cart.pay', path: ['id.show'] },
      says: expect.stringContaining('To reach cart.pay, call id.show first.'),
    });
  });

  it('cost one read together', async () => {
    const { client, store } = await both();
    await client.calls('cart.add_item');
    await client.calls('id.show');
    await client.raw.client.listTools();
    store.take();
    await client.raw.client.callTool({ name: STATUS, arguments: {} });
    expect(store.take()).toEqual(['read', 'history', 'history']);
  });

  it('have a tool each where they name two', async () => {
    const { client } = await both({
      gate: {},
      workflow: [
        [checkoutGate(), { statusTool: 'one' }],
        [identity(), { statusTool: 'two' }],
      ],
    });
    const { tools } = await client.raw.client.listTools();
    expect(tools.map(({ name }) => name).slice(-2)).toEqual(['one', 'two']);
    for (const [name, workflow] of [
      ['one', 'checkout'],
      ['two', 'identity'],
    ] as const) {
      const answer = await client.raw.client.callTool({ name, arguments: {} });
      const { workflows } = answer.structuredContent as { workflows: WireMessage[] };
      expect(workflows.map((each) => each.workflow)).toEqual([workflow]);
    }
  });

  it('never name what another one keeps secret', async () => {
    const hiding = { refusal: 'unknown-tool', statusTool: undefined } as const;
    const { client, ask } = await both({
      workflow: [[checkoutGate(), hiding], identity()],
    });
    await client.sees(['cart.add_item', 'cart.view', 'id.show', STATUS]);
    expect(JSON.stringify(await ask())).not.toMatch(/cart\.pay|cart\.checkout/);
  });

  it('are refused where one binds the tool of another', async () => {
    const gates = [checkoutGate(), identity().bindTool(STATUS, 'known')];
    const { url, errors } = await scene({
      workflow: [gates[0] as never, [gates[1] as never, { statusTool: undefined }]],
      gate,
    });
    await expect(SceneClient.connect(url)).rejects.toThrow('Internal error');
    expect(errors).toContainEqual(expect.objectContaining({ code: 'ERR_INTERLOCK_MOUNT' }));
  });
});

describe('the option', () => {
  it.each<[string, FsmGateOptions['statusTool'], FsmGateOptions, RegExp]>([
    ['a name that is bound', 'cart.pay', {}, /the gate binds a tool "cart\.pay"/],
    ['an empty name', '', {}, /expected the name of a tool/],
    ['a name with a space', 'where am i', {}, /expected the name of a tool.+"where am i"/],
    ['a name that is too long', 'x'.repeat(129), {}, /expected the name of a tool/],
    ['refusals that tell nothing', STATUS, { refusal: 'unknown-tool' }, /keeps secret/],
    ['an unknown key', { name: STATUS, sumary: () => 1 } as never, {}, /"sumary".+"summary"/],
  ])('is refused at construction with %s', (_, statusTool, options, message) => {
    const make = () => fsmGate(checkoutGate(), { ...options, statusTool });
    expect(make).toThrow(InterlockError);
    expect(make).toThrow(message);
  });

  it("costs nothing where it is not given: the tool is the upstream's", async () => {
    const { client, ledger } = await visit({ gate: {}, makeServer: toolServer([STATUS]) });
    await client.calls(STATUS);
    expect(ledger.calls).toEqual([STATUS]);
  });
});
