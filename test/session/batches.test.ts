import { describe, expect, it } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import {
  callOf,
  type RawResponse,
  reasonOf,
  sendAndHold,
  type WireMessage,
} from '../helpers/raw.ts';
import { pass, scene } from '../helpers/scene.ts';
import { FETCH_SHAPES, SHAPES, shapeName, type UpstreamShape } from '../helpers/upstream.ts';

const NOTICE = {
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 1, progress: 1 },
};
const LIST = { jsonrpc: '2.0', id: 'list', method: 'tools/list' };

/** The outcome of each request of the batch, by its id: a reason, a text, or listed names. */
function outcomes({ messages }: RawResponse): Record<string, unknown> {
  const answered = messages.filter((message) => message.id !== undefined);
  return Object.fromEntries(answered.map((message) => [String(message.id), outcomeOf(message)]));
}

function outcomeOf(message: WireMessage): unknown {
  const { result } = message;
  if (Array.isArray(result?.tools)) return result.tools.map((tool: WireMessage) => tool.name);
  return reasonOf(message) ?? result?.content?.[0]?.text ?? message.error?.code;
}

const EACH_BODY: readonly UpstreamShape[] = SHAPES.filter(
  ({ express, parser }) => (express === 5) !== parser,
);

/**
 * `@hono/mcp` keeps JSON answers by request id while their session lives. These tests use an id
 * more than once.
 */
const FETCH = FETCH_SHAPES.filter(({ host, answers }) => host !== 'hono' || answers === 'sse');

describe.each([...EACH_BODY, ...FETCH])(
  'a batch, $mode $answers $host Express $express',
  (shape) => {
    it(`with a hidden tool has only that one refused (${shapeName(shape)})`, async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const answer = await session.post([
        callOf(1, 'cart.view'),
        callOf(2, 'cart.pay'),
        callOf(3, 'cart.view'),
        LIST,
      ]);
      expect(answer.status).toBe(200);
      expect(outcomes(answer)).toEqual({
        1: 'cart.view done',
        2: 'state',
        3: 'cart.view done',
        list: ['cart.add_item', 'cart.view'],
      });
      expect(answer.messages).toHaveLength(4);
      expect(app.ledger.calls).toEqual(['cart.view', 'cart.view']);
    });

    it('of two steps forwards one, and answers the other in the same response', async () => {
      const app = await scene({ shape });
      const session = await app.sessionAt('has_items');
      const answer = await session.post([
        callOf(1, 'cart.checkout'),
        callOf(2, 'cart.add_item'),
        callOf(3, 'cart.view'),
      ]);
      expect(outcomes(answer)).toEqual({ 1: 'cart.checkout done', 2: 'busy', 3: 'cart.view done' });
      expect([...app.ledger.calls].sort()).toEqual(['cart.checkout', 'cart.view']);
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    });

    it('forwards the first step that is allowed, not merely the first one', async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const answer = await session.post([
        callOf(1, 'cart.pay'),
        callOf(2, 'cart.add_item'),
        callOf(3, 'cart.pay'),
      ]);
      expect(outcomes(answer)).toEqual({ 1: 'state', 2: 'cart.add_item done', 3: 'busy' });
      expect(app.ledger.calls).toEqual(['cart.add_item']);
    });

    it('is answered by the gate, as a batch, where each request is refused', async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const answer = await session.post([callOf(1, 'cart.pay'), callOf('1', 'cart.checkout')]);
      expect([answer.status, answer.headers['content-type']]).toEqual([200, 'application/json']);
      const messages = JSON.parse(answer.text) as WireMessage[];
      expect(messages.map((message) => [message.id, reasonOf(message)])).toEqual([
        [1, 'state'],
        ['1', 'state'],
      ]);
      expect(app.ledger.calls).toEqual([]);
    });

    it('of one refused call is answered as a batch of one', async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const { text } = await session.post([callOf(1, 'cart.pay')]);
      expect(JSON.parse(text)).toEqual([expect.objectContaining({ id: 1 })]);
    });

    const { host = 'express' } = shape;
    // A middleware of Express hears what is forwarded; behind a handler of the Fetch API is none.
    if (host === 'express')
      it('of a refused call and a notification has the notification forwarded', async () => {
        const heard: string[] = [];
        const app = await scene({
          shape,
          behind: [
            (req, _res, next) => {
              req.on('data', (chunk: Buffer) => void heard.push(chunk.toString()));
              if (req.body !== undefined) heard.push(JSON.stringify(req.body));
              next();
            },
          ],
        });
        const session = await app.session();
        heard.length = 0;
        const answer = await session.post([callOf(1, 'cart.pay'), NOTICE]);
        expect([answer.status, outcomes(answer)]).toEqual([200, { 1: 'state' }]);
        expect(JSON.parse(answer.text)).toBeInstanceOf(Array);
        expect(heard.join('')).toContain('notifications/progress');
        expect(heard.join('')).not.toContain('cart.pay');
      });

    it('of notifications alone has nothing to answer', async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const { status, text } = await session.post([NOTICE, NOTICE]);
      // `@hono/mcp` answers with JSON.
      expect([status, text]).toEqual([202, host === 'hono' ? 'null' : '']);
    });

    it('with a call that it cancels itself, forwards the others', async () => {
      const app = await scene({ shape });
      const session = await app.session();
      const cancelled = {
        jsonrpc: '2.0',
        method: 'notifications/cancelled',
        params: { requestId: 1 },
      };
      const answer = await session.post([
        callOf(1, 'cart.add_item'),
        cancelled,
        callOf(2, 'cart.view'),
      ]);
      expect(outcomes(answer)).toEqual({ 2: 'cart.view done' });
      expect(app.ledger.calls).toEqual(['cart.view']);
      expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
    });

    it('with a step that fails leaves the run where it was', async () => {
      const app = await scene({ shape });
      const session = await app.sessionAt('payment');
      const answer = await session.post([
        callOf(1, 'cart.view'),
        callOf(2, 'cart.pay', { fail: true }),
      ]);
      expect(outcomes(answer)).toEqual({ 1: 'cart.view done', 2: 'cart.pay failed' });
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    });
  },
);

describe('a batch whose client goes away while one of its calls is judged', () => {
  it('has none of its steps forwarded, and no run held', async () => {
    const answer = latch();
    let asked = 0;
    const guard = async (): Promise<boolean> => {
      asked++;
      await answer.opened;
      return true;
    };
    const workflow = new StateMachineGate<string, string>({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { ADD: 'open' } } },
    })
      .bindTool('cart.add_item', 'open', 'ADD')
      .bindTool('cart.view', 'open', { guard });
    const left = latch();
    let isWatched = false;
    const app = await scene({
      workflow,
      before: [
        (req, _res, next) => {
          if (isWatched) req.socket.once('close', left.open);
          next();
        },
      ],
    });
    const session = await app.session();
    isWatched = true;
    const body = [callOf(1, 'cart.add_item'), callOf(2, 'cart.view')];
    const gone = sendAndHold(app.url, { headers: session.headers, body });
    await expect.poll(() => asked).toBe(1);
    gone.cut();
    await left.opened;
    answer.open();
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view']);
    expect((await session.call('cart.add_item')).result.content[0].text).toBe('cart.add_item done');
    expect(app.ledger.calls).toEqual(['cart.view', 'cart.add_item']);
    expect(app.errors).toEqual([]);
  });
});

describe('a batch of which one step is given up on', () => {
  it('still has the answers that had come', async () => {
    const app = await scene({ shape: { answers: 'json' }, gate: { maxStepMs: 2_000 } });
    const session = await app.session();
    const never = latch();
    app.ledger.gates.set('cart.add_item', never.opened);
    const answer = session.post([callOf(1, 'cart.add_item'), callOf(2, 'cart.pay')]);
    await expect.poll(() => app.ledger.calls).toEqual(['cart.add_item']);
    await pass(app.clock, 3_000);
    const { messages } = await answer;
    expect(messages.map(({ id, result }) => [id, result.isError])).toEqual([
      [2, true],
      [1, true],
    ]);
    never.open();
  });
});

describe('a batch under two workflows', () => {
  const shipping = () =>
    new StateMachineGate<string, string>({
      id: 'shipping',
      initial: 'waiting',
      states: { waiting: { on: { VIEW: 'seen', PAY: 'seen' } }, seen: {} },
    })
      .bindTool('cart.view', 'waiting', 'VIEW')
      .bindTool('cart.pay', 'waiting', 'PAY');

  it('forwards only one step of both workflows', async () => {
    const app = await scene({ workflow: [checkoutGate(), shipping()] });
    const session = await app.session();
    const answer = await session.post([callOf(1, 'cart.add_item'), callOf(2, 'cart.view')]);
    expect(outcomes(answer)).toEqual({ 1: 'cart.add_item done', 2: 'busy' });
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('releases a claim of the first where the second refuses; another step runs', async () => {
    const app = await scene({ workflow: [checkoutGate(), shipping()] });
    const session = await app.sessionAt('payment');
    expect(outcomes(await session.post(callOf(1, 'cart.view')))).toEqual({ 1: 'cart.view done' });
    const answer = await session.post([callOf(1, 'cart.pay'), callOf(2, 'cart.view')]);
    expect(outcomes(answer)).toEqual({ 1: 'state', 2: 'state' });
    expect(app.ledger.calls).toEqual(['cart.view']);
    const stored = (await app.data.read(session.id, 60_000))?.workflows.checkout;
    expect(stored).toMatchObject({ snapshot: { state: 'payment' } });
    expect(stored).not.toHaveProperty('claim');
  });
});
