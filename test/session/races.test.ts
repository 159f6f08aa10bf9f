import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { callOf, RawSession, reasonOf, sendAndHold, type WireMessage } from '../helpers/raw.ts';
import { begins, pass, type Scene, scene, settle, staysQuiet } from '../helpers/scene.ts';

const SHAPES = [
  { mode: 'stateful', answers: 'sse' },
  { mode: 'stateful', answers: 'json' },
  { mode: 'stateless', answers: 'sse' },
  { mode: 'stateless', answers: 'json' },
] as const;
const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;
const outcomeOf = (message: WireMessage): unknown => reasonOf(message) ?? textOf(message);
const cancel = (requestId: unknown): WireMessage => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId },
});

describe.each(SHAPES)('calls that come at the same time, $mode $answers', (shape) => {
  it('of cart.pay: one runs, the other is refused with the state that it left', async () => {
    const app = await scene({ shape });
    const session = await app.sessionAt('payment');
    const answers = await Promise.all([session.call('cart.pay'), session.call('cart.pay')]);
    expect(answers.map(textOf)).toContain('cart.pay done');
    const refused = answers.find((answer) => reasonOf(answer) !== undefined);
    expect(refused?.result._meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'state',
      state: 'confirmed',
      available: [],
    });
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  it('of cart.add_item: each runs, one after the other', async () => {
    const app = await scene({ shape });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const rest = ['cart.add_item', 'cart.add_item'].map((tool) => session.call(tool));
    await app.isServing(3);
    expect(app.ledger.calls).toEqual(['cart.add_item']);
    first.finish();
    for (const answer of [await first.answer, ...(await Promise.all(rest))]) {
      expect(textOf(answer)).toBe('cart.add_item done');
    }
    expect(app.ledger.calls).toEqual(['cart.add_item', 'cart.add_item', 'cart.add_item']);
  });

  it('run in the order in which they came, each tested against the state before it', async () => {
    const app = await scene({ shape });
    const session = await app.session();
    const adding = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const answers: Promise<WireMessage>[] = [];
    for (const tool of ['cart.checkout', 'cart.pay', 'cart.add_item', 'cart.pay']) {
      answers.push(session.call(tool));
      await app.isServing(1 + answers.length);
    }
    adding.finish();
    expect((await Promise.all(answers)).map(outcomeOf)).toEqual([
      'cart.checkout done',
      'cart.pay done',
      'state',
      'state',
    ]);
    expect(app.ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
  });

  it('in one run hold back neither another run nor what is not gated', async () => {
    const app = await scene({ shape });
    const [ann, bob] = [await app.sessionAt('payment'), await app.sessionAt('payment')];
    const paying = await begins(app, 'cart.pay', () => ann.call('cart.pay'));
    expect(textOf(await bob.call('cart.pay'))).toBe('cart.pay done');
    expect(textOf(await ann.call('cart.view'))).toBe('cart.view done');
    expect(await ann.tools()).toEqual(['cart.pay', 'cart.view']);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
  });
});

describe.each(SHAPES)('a call that waits for its turn, $mode $answers', (shape) => {
  it('and is cancelled, is never forwarded and never answered', async () => {
    const app = await scene({ shape });
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const waiting = session.post(callOf('w', 'cart.pay'));
    await app.isServing(2);
    expect((await session.post(cancel('another'))).status).toBe(202);
    await app.isServing(2);
    expect((await session.post(cancel('w'))).status).toBe(202);
    const { status, text } = await waiting;
    expect([status, text]).toEqual([202, '']);
    paying.finish();
    await paying.answer;
    expect(app.ledger.calls).toEqual(['cart.pay']);
    await staysQuiet(app);
  });

  it('and whose client goes away, is never forwarded', async () => {
    const app = await scene({ shape });
    const session = await app.sessionAt('has_items');
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const gone = sendAndHold(app.url, { headers: session.headers, body: callOf('w', 'cart.pay') });
    await app.isServing(2);
    gone.cut();
    await app.isServing(1);
    checking.finish();
    await checking.answer;
    await settle();
    expect(app.ledger.calls).toEqual(['cart.checkout']);
    expect(textOf(await session.call('cart.pay'))).toBe('cart.pay done');
  });

  it('until waitMs is over, is refused as busy, and the running call is not harmed', async () => {
    const app = await scene({ shape });
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    let answer: WireMessage | undefined;
    const waiting = session.call('cart.pay').then((message) => {
      answer = message;
    });
    await app.isServing(2);
    await pass(app.clock, 39_999);
    expect(answer).toBeUndefined();
    await pass(app.clock, 1);
    await waiting;
    expect(reasonOf(answer)).toBe('busy');
    expect(textOf(answer)).toContain('Wait for its result, then try again.');
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });
});

describe('calls that wait for one run', () => {
  /**
   * Sends `count` calls of cart.pay while one runs, and gives the answers that come before it ends.
   */
  async function crowd(app: Scene, calls: number, sku: string) {
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const early: unknown[] = [];
    const answers = Array.from({ length: calls }, async (_, id) => {
      const { messages } = await session.post(callOf(`c${id}`, 'cart.pay', { sku }));
      early.push(reasonOf(messages[0]));
      return reasonOf(messages[0]);
    });
    return { session, paying, early, answers };
  }

  it('of 2 MB each take at most 8 MiB together: others are refused at once as busy', {
    timeout: 120_000,
  }, async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const { paying, early, answers } = await crowd(app, 40, 'x'.repeat(2_000_000));
    await expect.poll(() => early.length, { timeout: 60_000 }).toBe(36);
    expect(new Set(early)).toEqual(new Set(['busy']));
    await app.isServing(1 + 4);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
    const late = (await Promise.all(answers)).filter((reason) => reason !== 'busy');
    expect(late).toEqual(['state', 'state', 'state', 'state']);
  });

  it('free their bodies when they are refused, though their connections stay open', async () => {
    const requests: IncomingMessage[] = [];
    const app = await scene({
      shape: { mode: 'stateless' },
      before: [
        (req, _res, next) => {
          requests.push(req);
          next();
        },
      ],
    });
    const session = await app.session();
    requests.length = 0;
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    const body = JSON.stringify(callOf(1, 'cart.pay', { sku: 'x'.repeat(100_000) }));
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    };
    const sent = request(app.url, {
      agent,
      method: 'POST',
      headers: { ...session.headers, ...headers },
    });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    await once(response, 'end');
    await expect.poll(() => requests.map(({ readableLength }) => readableLength)).toEqual([0]);
    expect(requests[0]?.socket.destroyed).toBe(false);
  });

  it('are a hundred at most, in each run', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const { paying, early, answers } = await crowd(app, 102, 'x');
    await expect.poll(() => early).toEqual(['busy', 'busy']);
    const other = await app.sessionAt('payment');
    expect(textOf(await other.call('cart.pay'))).toBe('cart.pay done');
    paying.finish();
    await Promise.all(answers);
  });

  it.each(['as it came', 'in chunks', 'packed'])(
    'are counted by their size behind a body parser too, %s',
    async (how) => {
      const app = await scene({
        shape: { mode: 'stateless', parser: true },
        gate: { maxWaitingBytes: 50_000 },
      });
      const session = await app.sessionAt('payment');
      const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
      const answers: unknown[] = [];
      const post = async (id: string) => {
        const text = JSON.stringify(callOf(id, 'cart.pay', { sku: 'x'.repeat(30_000) }));
        const headers = { ...session.headers, accept: 'application/json, text/event-stream' };
        const request = { ...headers, 'content-type': 'application/json' };
        const packing: Record<string, string> =
          how === 'packed' ? { 'content-encoding': 'gzip' } : {};
        const body =
          how === 'as it came'
            ? text
            : new Blob([how === 'packed' ? new Uint8Array(gzipSync(text)) : text]).stream();
        const init = { method: 'POST', headers: { ...request, ...packing }, body };
        const answer = await fetch(app.url, { ...init, duplex: 'half' } as RequestInit);
        answers.push(/"reason":"(\w+)"/.exec(await answer.text())?.[1]);
      };
      const first = post('a');
      await app.isServing(2);
      await post('b');
      expect(answers).toEqual(['busy']);
      paying.finish();
      await first;
      expect(answers).toEqual(['busy', 'state']);
    },
  );
});

describe('two processes on one store', () => {
  async function startTwo(workflow?: () => StateMachineGate<string, string>) {
    const of = () => (workflow === undefined ? {} : { workflow: workflow() });
    const here = await scene({ shape: { mode: 'stateless' }, ...of() });
    const there = await scene({ shape: { mode: 'stateless' }, beside: here, ...of() });
    return { here, there };
  }
  const elsewhere = ({ id }: RawSession, url: URL) => RawSession.resume(url, id);

  it('take turns: a call waits for the other process, and meets the state after it', async () => {
    const { here, there } = await startTwo();
    const session = await here.sessionAt('has_items');
    const checking = await begins(here, 'cart.checkout', () => session.call('cart.checkout'));
    const paying = elsewhere(session, there.url).call('cart.pay');
    await expect.poll(() => there.store.asked).toContain('claim');
    checking.finish();
    await checking.answer;
    await pass(here.clock, 1_000);
    expect(textOf(await paying)).toBe('cart.pay done');
    expect([here.ledger.calls, there.ledger.calls]).toEqual([['cart.checkout'], ['cart.pay']]);
  });

  it('test calls behind one that had to wait against the state after it', async () => {
    const shop = () =>
      new StateMachineGate<string, string>({
        id: 'shop',
        initial: 'open',
        states: { open: { on: { CLOSE: 'closed' } }, closed: {} },
      })
        .bindTool('cart.checkout', 'open', 'CLOSE')
        .bindTool('cart.add_item', ['open', 'closed'], 'CLOSE')
        .bindTool('cart.view', 'open');
    const { here, there } = await startTwo(shop);
    const session = await here.session();
    const closing = await begins(here, 'cart.checkout', () => session.call('cart.checkout'));
    const batch = elsewhere(session, there.url).post([
      callOf(1, 'cart.add_item'),
      callOf(2, 'cart.view'),
    ]);
    await expect.poll(() => there.store.asked).toContain('claim');
    closing.finish();
    await closing.answer;
    await pass(here.clock, 1_000);
    const { messages } = await batch;
    const answer = (id: number) => outcomeOf(messages.find((each) => each.id === id) ?? {});
    expect([answer(1), answer(2)]).toEqual(['cart.add_item done', 'state']);
    expect(there.ledger.calls).toEqual(['cart.add_item']);
  });

  it.each(['cancelled', 'cut off'])(
    'never forward a call that was %s while it waited for the other',
    async (how) => {
      const { here, there } = await startTwo();
      const session = await here.sessionAt('has_items');
      const checking = await begins(here, 'cart.checkout', () => session.call('cart.checkout'));
      const other = elsewhere(session, there.url);
      const waiting = sendAndHold(there.url, {
        headers: other.headers,
        body: callOf('w', 'cart.pay'),
      });
      await expect.poll(() => there.store.asked).toContain('claim');
      if (how === 'cut off') waiting.cut();
      else await other.post(cancel('w'));
      await there.isServing(0);
      checking.finish();
      await checking.answer;
      await pass(here.clock, 1_000);
      await settle();
      expect(there.ledger.calls).toEqual([]);
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
      expect(textOf(await session.call('cart.pay'))).toBe('cart.pay done');
    },
  );

  it('refuse as busy a call that waited too long for the other', async () => {
    const { here, there } = await startTwo();
    const session = await here.sessionAt('payment');
    const paying = await begins(here, 'cart.pay', () => session.call('cart.pay'));
    let answer: WireMessage | undefined;
    void elsewhere(session, there.url)
      .call('cart.pay')
      .then((message) => {
        answer = message;
      });
    await expect.poll(() => there.store.asked).toContain('claim');
    await pass(here.clock, 39_500);
    expect(answer).toBeUndefined();
    await pass(here.clock, 1_000);
    await expect.poll(() => reasonOf(answer)).toBe('busy');
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
    expect(there.ledger.calls).toEqual([]);
  });

  it('never let a slow one overwrite a newer state, and tell its client so', async () => {
    const { here, there } = await startTwo(() =>
      new StateMachineGate<string, string>({
        id: 'order',
        initial: 'open',
        states: { open: { on: { PAY: 'paid', CLOSE: 'closed' } }, paid: {}, closed: {} },
      })
        .bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' })
        .bindTool('cart.checkout', 'open', { success: 'CLOSE', uncertain: 'retry' }),
    );
    const session = await here.session();
    const slow = await begins(here, 'cart.pay', () => session.call('cart.pay'));
    here.store.fail('renew');
    await pass(here.clock, 8_500);
    expect(textOf(await elsewhere(session, there.url).call('cart.checkout'))).toBe(
      'cart.checkout done',
    );
    slow.finish();
    const late = await slow.answer;
    expect(late.result.isError).toBe(true);
    expect(late.result._meta['mcp-interlock/outcome']).toMatchObject({
      outcome: 'unknown',
      ran: true,
    });
    const stored = (await here.data.read(session.id, 1_000))?.workflows.order;
    expect(stored?.snapshot).toMatchObject({ state: 'closed', version: 1 });
  });
});

describe('a call that two workflows gate', () => {
  const shipping = () =>
    new StateMachineGate<string, string>({
      id: 'shipping',
      initial: 'waiting',
      states: { waiting: { on: { PAY: 'ready', VIEW: 'waiting' } }, ready: {} },
    })
      .bindTool('cart.pay', 'waiting', 'PAY')
      .bindTool('cart.view', 'waiting', 'VIEW');

  it('and whose client leaves while the second waits, holds up neither', async () => {
    const app = await scene({ workflow: [checkoutGate(), shipping()] });
    const session = await app.sessionAt('payment');
    const viewing = await begins(app, 'cart.view', () => session.call('cart.view'));
    const gone = sendAndHold(app.url, { headers: session.headers, body: callOf('w', 'cart.pay') });
    await app.isServing(2);
    gone.cut();
    await app.isServing(1);
    viewing.finish();
    await viewing.answer;
    await settle();
    expect(app.ledger.calls).toEqual(['cart.view']);
    expect(app.errors).toEqual([]);
    expect(textOf(await session.call('cart.pay'))).toBe('cart.pay done');
  });

  it('and that is cancelled while the second waits, holds up neither', async () => {
    const app = await scene({ workflow: [checkoutGate(), shipping()] });
    const session = await app.sessionAt('payment');
    const viewing = await begins(app, 'cart.view', () => session.call('cart.view'));
    const waiting = session.post(callOf('w', 'cart.pay'));
    await app.isServing(2);
    await session.post(cancel('w'));
    expect((await waiting).status).toBe(202);
    viewing.finish();
    await viewing.answer;
    expect(app.ledger.calls).toEqual(['cart.view']);
    expect(textOf(await session.call('cart.pay'))).toBe('cart.pay done');
  });
});

describe('a list', () => {
  it.each(SHAPES)(
    'that was asked for before a move and comes after it, shows the new state ($mode $answers)',
    async (shape) => {
      const listing = { asked: false, ...latch() };
      const app = await scene({
        shape: { ...shape, parser: true },
        behind: [
          (req, _res, next) => {
            if (req.body?.method !== 'tools/list') return next();
            listing.asked = true;
            void listing.opened.then(() => next());
          },
        ],
      });
      const session = await app.session();
      app.clock.advance(60_000);
      const tools = session.tools();
      await expect.poll(() => listing.asked).toBe(true);
      await session.call('cart.add_item');
      listing.open();
      expect(await tools).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    },
  );
});
