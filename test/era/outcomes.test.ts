import { acceptedContent, inputRequired, type McpServer } from '@modelcontextprotocol/server';
import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { principalKey, StateMachineGate } from '../../src/index.ts';
import { latch } from '../helpers/latch.ts';
import { type RawResponse, reasonOf, send, sendAndHold } from '../helpers/raw.ts';
import { pass, sceneOfBothEras, settle } from '../helpers/scene.ts';
import { AUTO, ask, callStateless, connectV2, stateless } from '../helpers/two-eras.ts';

const confirmation = z.object({ confirm: z.boolean() });
const ELICITATION = { elicitation: {} };
const alice = { user: 'alice', capabilities: ELICITATION };
const KEY = 'mcp-interlock/idempotencyKey';
const RUN = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'alice' });

/**
 * `order.open` leads to `order.pay`, which asks before it pays; `cart.add_item` may be tried again.
 */
const orderGate = () =>
  new StateMachineGate({
    id: 'order',
    initial: 'closed',
    states: {
      closed: { on: { OPEN: 'draft', ADD: 'closed' } },
      draft: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('order.open', 'closed', 'OPEN')
    .bindTool('order.pay', 'draft', 'PAY')
    .bindTool('cart.add_item', 'closed', 'ADD')
    .bindTool('cart.checkout', 'closed', { success: 'OPEN', uncertain: 'retry' });

function registerOrders(server: McpServer, paid: number[]): void {
  server.registerTool('order.open', {}, () => ({ content: [{ type: 'text', text: 'opened' }] }));
  const inputSchema = z.object({ amount: z.number() });
  server.registerTool('order.pay', { inputSchema }, ({ amount }, { mcpReq }) => {
    if (acceptedContent(mcpReq.inputResponses, 'confirm', confirmation)?.confirm !== true) {
      const confirm = inputRequired.elicit({
        message: `Pay ${amount}?`,
        requestedSchema: confirmation,
      });
      return inputRequired({ inputRequests: { confirm } });
    }
    paid.push(amount);
    return { content: [{ type: 'text', text: `paid ${amount}` }] };
  });
}

/** The order's shop, with Alice's run and what was paid. */
async function shop(workflow: Workflows = orderGate(), behind: readonly RequestHandler[] = []) {
  const paid: number[] = [];
  const app = await sceneOfBothEras({
    workflow,
    behind,
    session: { key: principalKey() },
    register: (server) => registerOrders(server, paid),
  });
  return { ...app, paid, run: app.run(RUN) };
}

type Workflows = NonNullable<Parameters<typeof sceneOfBothEras>[0]>['workflow'];

const pay = (url: URL, amount: number, more: Record<string, unknown> = {}, options = alice) =>
  ask(url, 'tools/call', { name: 'order.pay', arguments: { amount }, ...more }, options);

const CONFIRMED = { inputResponses: { confirm: { action: 'accept', content: { confirm: true } } } };
const resultOf = ({ messages }: RawResponse) => messages.at(-1)?.result;

describe('a call that asks its client for something', () => {
  it('moves nothing, and lets the run go before the client hears of it', async () => {
    const { url, run, store } = await shop();
    await callStateless(url, 'order.open', {}, alice);
    store.fail('release', 1, 'late');
    let answer: RawResponse | undefined;
    const asking = pay(url, 5).then((response) => {
      answer = response;
    });
    await expect.poll(() => store.late).toHaveLength(1);
    await settle();
    await run.is('running');
    expect(answer).toBeUndefined();
    store.late[0]?.();
    await asking;
    expect(resultOf(answer as RawResponse)).toMatchObject({ resultType: 'input_required' });
    await run.isIn('draft');
    await run.is('idle');
    expect(resultOf(answer as RawResponse)).not.toHaveProperty('ttlMs');
  });

  it('is carried out by its retry, as the retry says', async () => {
    const { url, run, paid } = await shop();
    await callStateless(url, 'order.open', {}, alice);
    const { inputRequests } = resultOf(await pay(url, 5));
    expect(Object.keys(inputRequests)).toEqual(['confirm']);
    expect(resultOf(await pay(url, 7, CONFIRMED)).content[0].text).toBe('paid 7');
    await run.isIn('paid');
    expect(reasonOf((await pay(url, 7, CONFIRMED)).messages[0])).toBe('state');
    expect(paid).toEqual([7]);
  });

  it('is refused at its retry if the run has moved on', async () => {
    const { url, paid } = await shop();
    await callStateless(url, 'order.open', {}, alice);
    await pay(url, 5);
    await pay(url, 1, CONFIRMED);
    expect(reasonOf((await pay(url, 5, CONFIRMED)).messages[0])).toBe('state');
    expect(reasonOf((await pay(url, 5, CONFIRMED, { ...alice, user: 'bob' })).messages[0])).toBe(
      'state',
    );
    expect(paid).toEqual([1]);
  });

  it('is not opened by forged answers: out of order they are refused', async () => {
    const { url, run, paid } = await shop();
    const forged = await pay(url, 9, { ...CONFIRMED, requestState: 'forged' });
    expect(reasonOf(forged.messages[0])).toBe('state');
    expect(paid).toEqual([]);
    expect(await run.moves()).toEqual([]);
  });

  it('is carried through by the client of SDK v2', async () => {
    const { url, run } = await shop();
    const client = await connectV2(url, 'alice', { ...AUTO, capabilities: ELICITATION });
    onTestFinished(() => client.close());
    client.setRequestHandler('elicitation/create', async () => ({
      action: 'accept',
      content: { confirm: true },
    }));
    await client.callTool({ name: 'order.open', arguments: {} });
    const { content } = await client.callTool({ name: 'order.pay', arguments: { amount: 3 } });
    expect(content).toEqual([{ type: 'text', text: 'paid 3' }]);
    await run.isIn('paid');
  });

  it('has not failed if the client cannot be asked, and can be tried again', async () => {
    const { url, run } = await shop();
    await callStateless(url, 'order.open', {}, alice);
    const { status, messages } = await pay(
      url,
      5,
      {},
      { ...alice, capabilities: {} as typeof ELICITATION },
    );
    expect([status, messages[0]?.error.code]).toEqual([400, -32021]);
    await run.isIn('draft');
    await run.is('idle');
    expect(resultOf(await pay(url, 5, CONFIRMED)).content[0].text).toBe('paid 5');
  });
});

describe('a client that goes away', () => {
  it('cancels: the handler is told, the outcome is unknown, and the run is held', async () => {
    const { url, run, clock, calls, gates, aborted } = await shop();
    const working = latch();
    gates.set('cart.add_item', working.opened);
    const left = sendAndHold(
      url,
      stateless('tools/call', { name: 'cart.add_item', arguments: {} }, alice),
    );
    await expect.poll(() => calls.length).toBe(1);
    left.cut();
    await expect.poll(() => aborted).toEqual(['cart.add_item']);
    // The upstream has said 499 after the client left: that is no rejection.
    working.open();
    await settle();
    await run.is('running');
    clock.advance(8_001);
    await run.is('held');
    const next = await callStateless(url, 'cart.add_item', {}, alice);
    expect(next.result._meta['mcp-interlock/refusal'].reason).toBe('held');
    expect(calls).toHaveLength(1);
  });

  it('may try again what the binding says may be, by the same key', async () => {
    const keys: unknown[] = [];
    const note: RequestHandler = (req, _res, next) => {
      keys.push(JSON.parse(String((req as { rawBody?: Buffer }).rawBody)).params._meta[KEY]);
      next();
    };
    const app = await shop(orderGate(), [note]);
    const working = latch();
    app.gates.set('cart.checkout', working.opened);
    const left = sendAndHold(
      app.url,
      stateless('tools/call', { name: 'cart.checkout', arguments: {} }, alice),
    );
    await expect.poll(() => app.calls.length).toBe(1);
    left.cut();
    await expect.poll(() => app.aborted).toEqual(['cart.checkout']);
    app.clock.advance(8_001);
    working.open();
    expect((await callStateless(app.url, 'cart.checkout', {}, alice)).text).toBe(
      'cart.checkout done',
    );
    expect(keys).toEqual([expect.any(String), keys[0]]);
    await app.run.isIn('draft');
  });

  it('is not forwarded where its call waits for its turn', async () => {
    const { url, calls, gates, isServing } = await shop();
    const working = latch();
    gates.set('cart.add_item', working.opened);
    const add = (sku: string) =>
      stateless('tools/call', { name: 'cart.add_item', arguments: { sku } }, alice);
    const first = send(url, add('first'));
    await expect.poll(() => calls.length).toBe(1);
    const second = sendAndHold(url, add('second'));
    await isServing(2);
    second.cut();
    await isServing(1);
    working.open();
    expect(resultOf(await first)).not.toHaveProperty('isError', true);
    await send(url, add('third'));
    expect(calls.map(({ args }) => args.sku)).toEqual(['first', 'third']);
  });

  it('holds no run if its call passed one gate and waits for another', async () => {
    const first = new StateMachineGate({
      id: 'first',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    });
    const second = new StateMachineGate({
      id: 'second',
      initial: 'x',
      states: { x: { on: { GO: 'x' } } },
    });
    first.bindTool('cart.pay', 'a', 'GO');
    second.bindTool('cart.pay', 'x', 'GO').bindTool('cart.view', 'x', 'GO');
    const app = await shop([first, second]);
    const { opened, open } = latch();
    app.gates.set('cart.view', opened);
    const viewing = callStateless(app.url, 'cart.view', {}, alice);
    await expect.poll(() => app.calls).toHaveLength(1);
    const gone = sendAndHold(
      app.url,
      stateless('tools/call', { name: 'cart.pay', arguments: {} }, alice),
    );
    await app.isServing(2);
    await app.run.is('running');
    gone.cut();
    await app.isServing(1);
    await app.run.is('idle');
    open();
    await viewing;
    await pass(app.clock, 10_000);
    expect((await callStateless(app.url, 'cart.pay', {}, alice)).text).toBe('cart.pay done');
    expect(app.calls.map(({ tool }) => tool)).toEqual(['cart.view', 'cart.pay']);
  });

  it('is not cancelled by a notification, which names no caller', async () => {
    const { url, clock, calls, gates, aborted } = await shop();
    const working = latch();
    gates.set('cart.add_item', working.opened);
    const request = stateless('tools/call', { name: 'cart.add_item', arguments: {} }, alice);
    const answer = send(url, request);
    await expect.poll(() => calls.length).toBe(1);
    const { headers, body } = stateless(
      'notifications/cancelled',
      { requestId: request.body.id },
      alice,
    );
    const { id: _, ...note } = body;
    expect((await send(url, { headers, body: note })).status).toBe(202);
    await pass(clock, 6_000);
    expect(aborted).toEqual([]);
    working.open();
    expect(resultOf(await answer).content[0].text).toBe('cart.add_item done');
  });
});

describe('requests of one principal with one id', () => {
  it('are both served, side by side, or in turn if both claim the run', async () => {
    const { url, run, calls, gates } = await shop();
    const twice = (name: string) =>
      ['a', 'b'].map((sku) => {
        const { headers, body } = stateless('tools/call', { name, arguments: { sku } }, alice);
        return send(url, { headers, body: { ...body, id: 1 } });
      });
    const viewing = latch();
    gates.set('cart.view', viewing.opened);
    const views = twice('cart.view');
    await expect.poll(() => calls.length).toBe(2);
    viewing.open();
    const adding = latch();
    gates.set('cart.add_item', adding.opened);
    const adds = twice('cart.add_item');
    await expect.poll(() => calls.length).toBe(3);
    adding.open();
    for (const { status, messages } of await Promise.all([...views, ...adds])) {
      expect([status, messages[0]?.id, messages[0]?.result.isError]).toEqual([200, 1, false]);
    }
    expect(calls).toHaveLength(4);
    expect(await run.moves()).toEqual(['cart.add_item', 'cart.add_item']);
  });
});
