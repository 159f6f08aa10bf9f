import type { Request, Response } from 'express';
import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type CurrentStep,
  currentStep,
  fsmGate,
  memoryStore,
  principalKey,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type Latch, latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import {
  callOf,
  INITIALIZE,
  PROTOCOL,
  type RawResponse,
  type RawSession,
  reasonOf,
  sendAndHold,
  type WireMessage,
} from '../helpers/raw.ts';
import {
  pass,
  type Scene,
  type SceneOptions,
  scene,
  settle,
  staysQuiet,
} from '../helpers/scene.ts';
import { stateless } from '../helpers/two-eras.ts';

const GRACE = 5_000;
const LEASE = 8_000;
const CHANGED = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };
const cancel = (requestId: unknown): WireMessage => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId },
});

/** How the upstream answers: when it sends the head, and in which format. */
const ANSWERS = ['sse', 'late sse', 'json', 'late json'] as const;
type Answers = (typeof ANSWERS)[number];

type Body = { readonly result: WireMessage } | { readonly error: WireMessage };
const PAID: Body = { result: { content: [{ type: 'text', text: 'paid' }] } };
const BROKE: Body = { result: { content: [{ type: 'text', text: 'broke' }], isError: true } };

type Workflow = StateMachineGate<string, string>;

interface App extends Scene {
  /** Calls cart.pay, and resolves once its handler has begun. */
  pay(session: RawSession, id?: unknown): Promise<{ readonly answer: Promise<RawResponse> }>;
  /** Lets the handler of the latest call answer. */
  answer(body?: Body, status?: number): Promise<void>;
  /** What the upstream saw of its response. */
  readonly seen: unknown[];
  readonly moves: string[];
  /** The handler's step. */
  readonly step: CurrentStep | undefined;
  /** Lets it write a message that is no answer. */
  write(message: WireMessage): void;
}

/** The checkout, whose cart.pay ignores a cancellation, as a server's own code may. */
async function start(
  answers: Answers = 'json',
  options: SceneOptions & { readonly workflow?: Workflow | readonly Workflow[] } = {},
): Promise<App> {
  const workflow = [options.workflow ?? checkoutGate()].flat() as Workflow[];
  const moves: string[] = [];
  for (const each of workflow)
    each.onTransition(({ currentState }) => void moves.push(currentState));
  const seen: unknown[] = [];
  let handler: { req: Request; res: Response; begun: Latch } | undefined;
  let begun = latch();
  let step: CurrentStep | undefined;
  const app = await scene({
    shape: { mode: 'stateless', parser: true },
    ...options,
    workflow,
    behind: [
      (req, res, next) => {
        if (req.body?.method === 'notifications/cancelled') return void res.sendStatus(202);
        if (req.body?.params?.name !== 'cart.pay') return next();
        app.ledger.calls.push('cart.pay');
        res.once('close', () => seen.push('close'));
        if (answers === 'sse') {
          res.writeHead(200, { 'content-type': 'text/event-stream' });
          res.flushHeaders();
        }
        if (answers === 'json') res.setHeader('content-type', 'application/json');
        handler = { req, res, begun };
        step = currentStep(req);
        begun.open();
      },
    ],
  });
  return {
    ...app,
    seen,
    moves,
    get step() {
      return step;
    },
    write: (message) => void handler?.res.write(`data: ${JSON.stringify(message)}\n\n`),
    async pay(session, id = 'p') {
      begun = latch();
      const answer = session.post(callOf(id, 'cart.pay'));
      answer.catch(() => {});
      await begun.opened;
      return { answer };
    },
    async answer(body = PAID, status = 200) {
      const { req, res } = handler as NonNullable<typeof handler>;
      seen.push(res.destroyed, res.writableEnded);
      const message = { jsonrpc: '2.0', id: req.body.id, ...body };
      if (answers.endsWith('sse')) {
        if (!res.headersSent) res.writeHead(status, { 'content-type': 'text/event-stream' });
        res.write(`data: ${JSON.stringify(message)}\n\n`);
        res.end();
      } else if (answers === 'late json') res.status(status).json(message);
      else res.status(status).end(JSON.stringify(message));
      await settle();
    },
  };
}

/** A session whose cart.pay was cancelled at a time-out, and answered by the gate. */
async function cancelled(app: App, id: unknown = 'p') {
  const session = await app.sessionAt('payment');
  app.moves.length = 0;
  const { answer } = await app.pay(session, id);
  expect((await session.post(cancel(id))).status).toBe(202);
  await pass(app.clock, GRACE);
  const { messages } = await answer;
  return { session, messages, runs: runsOf(checkoutGate(), { store: app.data }) };
}

describe.each(ANSWERS)('a call that its client has cancelled, answered late with %s', (answers) => {
  it('is answered after the grace, once, and is saved when its success comes', async () => {
    const app = await start(answers);
    const { session, messages } = await cancelled(app);
    expect(messages).toHaveLength(1);
    expect(messages[0]?.result._meta['mcp-interlock/outcome']).not.toHaveProperty('ran');
    const listening = await session.listen();
    listening.messages.length = 0;
    await pass(app.clock, 200);
    await app.answer();
    expect(await session.tools()).toEqual(['cart.view']);
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect([app.moves, app.ledger.calls]).toEqual([['confirmed'], ['cart.pay']]);
    await expect.poll(() => listening.messages).toEqual([CHANGED]);
    expect(app.errors.map(String)).toEqual([expect.stringContaining('no result came')]);
    listening.cut();
    await app.isServing(0);
    await staysQuiet(app);
  });

  it('is not told to its upstream, which goes on until it is done', async () => {
    const app = await start(answers);
    await cancelled(app);
    await pass(app.clock, 60_000);
    expect(app.seen).toEqual([]);
    await app.answer();
    await expect.poll(() => app.seen).toEqual([false, false, 'close']);
  });

  it('holds the run after its lease, and frees it as soon as its outcome comes', async () => {
    const app = await start(answers);
    const { session, runs } = await cancelled(app);
    await pass(app.clock, LEASE + 500);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    await app.answer(BROKE);
    expect(await runs.read(session.id)).toMatchObject({
      status: 'idle',
      snapshot: { state: 'payment' },
    });
    expect(app.moves).toEqual([]);
  });

  it('is not saved over what a person has resolved', async () => {
    const app = await start(answers);
    const { session, runs } = await cancelled(app);
    await pass(app.clock, LEASE);
    expect(await runs.resolve(session.id, 'succeeded')).toMatchObject({ state: 'confirmed' });
    await app.answer();
    expect(await runs.history(session.id)).toHaveLength(3);
    expect(app.moves).toEqual([]);
    expect(app.errors.map(String)).toEqual([
      expect.stringContaining('no result came'),
      expect.stringContaining('its result came late: lost'),
    ]);
  });

  it('that exceeds maxStepMs is told to its upstream, whose late answer is saved too', async () => {
    const app = await start(answers, { gate: { maxStepMs: 60_000 } });
    const { session } = await cancelled(app);
    await pass(app.clock, 60_000);
    expect(app.seen).toEqual(['close']);
    await app.answer();
    expect(await session.tools()).toEqual(['cart.view']);
    expect(app.moves).toEqual(['confirmed']);
  });
});

describe('a call that was given up on', () => {
  it('keeps its id in flight until its answer comes, or maxStepMs is over', async () => {
    const app = await start('json', { gate: { maxStepMs: 60_000 } });
    const { session } = await cancelled(app, 'one');
    const again = () => session.post(callOf('one', 'cart.view'));
    expect((await again()).status).toBe(400);
    await app.answer();
    await expect.poll(async () => (await again()).status).toBe(200);
    const other = await cancelled(app, 'two');
    expect((await other.session.post(callOf('two', 'cart.view'))).status).toBe(400);
    await pass(app.clock, 60_000);
    expect((await other.session.post(callOf('two', 'cart.view'))).status).toBe(200);
  });

  it('frees its id where its answer has no outcome that the gate knows', async () => {
    const app = await start('sse');
    const { session } = await cancelled(app);
    await app.answer({ result: { resultType: 'who knows' } });
    await expect.poll(async () => (await session.post(callOf('p', 'cart.view'))).status).toBe(200);
    expect(app.errors).toHaveLength(1);
  });

  it('is saved where it is answered only after maxStepMs', async () => {
    const app = await start('late json', { gate: { maxStepMs: 30_000 } });
    const session = await app.sessionAt('payment');
    const { answer } = await app.pay(session);
    await pass(app.clock, 30_000);
    expect((await answer).messages[0]?.result.isError).toBe(true);
    await app.answer();
    expect(await session.tools()).toEqual(['cart.view']);
  });

  it('is saved where its client left before it cancelled', async () => {
    const app = await start('late sse');
    const session = await app.sessionAt('payment');
    const body = callOf('p', 'cart.pay');
    const gone = sendAndHold(app.url, { headers: session.headers, body });
    await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
    gone.cut();
    await session.post(cancel('p'));
    await pass(app.clock, GRACE + LEASE);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    expect(app.seen).toEqual([]);
    await app.answer();
    expect(await session.tools()).toEqual(['cart.view']);
    await expect.poll(() => app.seen.at(-1)).toBe('close');
  });

  it('does not overwrite the next try, under `retry`', async () => {
    const workflow = new StateMachineGate<string, string>({
      id: 'order',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' });
    const app = await start('json', { workflow });
    const session = await app.session();
    const { answer } = await app.pay(session, 1);
    await session.post(cancel(1));
    await pass(app.clock, GRACE + LEASE);
    await answer;
    const late = app.answer;
    const first = await app.pay(session, 2);
    await late();
    expect((await first.answer).messages[0]?.result.content[0].text).toBe('paid');
    expect(app.moves).toEqual(['paid']);
  });

  it('saves its outcome together with what its handler changed meanwhile', async () => {
    const app = await start();
    const { session, runs } = await cancelled(app);
    expect(app.step?.update(() => ({ receipt: 7 }))).toEqual({ receipt: 7 });
    expect((await runs.read(session.id))?.context).toBeUndefined();
    await app.answer();
    expect(await runs.read(session.id)).toMatchObject({
      snapshot: { state: 'confirmed' },
      context: { receipt: 7 },
    });
    expect(() => app.step?.update(() => 1)).toThrow('the step is over');
  });

  it('is saved in each gate that it passed', async () => {
    const second = new StateMachineGate<string, string>({
      id: 'shipping',
      initial: 'waiting',
      states: { waiting: { on: { PAY: 'ready' } }, ready: {} },
    }).bindTool('cart.pay', 'waiting', 'PAY');
    const app = await start('late json', { workflow: [checkoutGate(), second] });
    const { session, messages, runs } = await cancelled(app);
    expect(messages).toHaveLength(1);
    await app.answer();
    expect((await runs.read(session.id))?.snapshot.state).toBe('confirmed');
    const shipped = await runsOf(second, { store: app.data }).read(session.id);
    expect([shipped?.snapshot.state, app.errors]).toEqual([
      'ready',
      [expect.any(Error), expect.any(Error)],
    ]);
  });

  it('keeps later calls waiting during its lease, then tested against its outcome', async () => {
    const app = await start();
    const { session } = await cancelled(app);
    const waiting = session.call('cart.pay');
    await app.isServing(1);
    await pass(app.clock, LEASE / 2);
    await app.answer();
    await pass(app.clock, 1_000);
    expect(reasonOf(await waiting)).toBe('state');
  });

  it('no longer has other calls refused by a question to its client', async () => {
    const app = await start('sse');
    const { session } = await cancelled(app);
    app.write({ jsonrpc: '2.0', id: 'q', method: 'elicitation/create', params: {} });
    const waiting = session.call('cart.pay');
    await app.isServing(1);
    await app.answer();
    await pass(app.clock, 1_000);
    expect(reasonOf(await waiting)).toBe('state');
  });

  it('does not keep close() waiting', async () => {
    const app = await start();
    await cancelled(app);
    await app.sessions.close({ drainMs: 60_000 });
    expect(app.errors).toHaveLength(1);
  });
});

describe('a client of the stateless era that leaves', () => {
  it('cancels by that: its upstream is told, and a late answer is saved too', async () => {
    const workflow = new StateMachineGate<string, string>({
      id: 'order',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pay', 'open', 'PAY');
    const key = principalKey();
    const session = { key, principal: () => 'alice' };
    const app = await start('late json', { workflow, session });
    const call = stateless('tools/call', { name: 'cart.pay', arguments: {} });
    const gone = sendAndHold(app.url, call);
    await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
    gone.cut();
    await expect.poll(() => app.seen).toEqual(['close']);
    expect(app.errors).toHaveLength(1);
    await pass(app.clock, LEASE);
    await app.answer();
    expect(app.moves).toEqual(['paid']);
  });
});

describe('a handler of the Fetch API whose call was given up on', () => {
  it.each(['sse', 'json'])('is not aborted, and its late answer is saved, %s', async (type) => {
    const clock = new ManualClock();
    const store = memoryStore({ now: clock.now });
    const [begun, late] = [latch(), latch()];
    let aborted = 0;
    const handler = async (request: globalThis.Request): Promise<globalThis.Response> => {
      const { id, method, params } = (await request.json()) as WireMessage;
      const message = { jsonrpc: '2.0', id, result: { content: [], capabilities: {} } };
      if (method?.startsWith('notifications/'))
        return new globalThis.Response(null, { status: 202 });
      if (params?.name === 'cart.pay') {
        request.signal.addEventListener('abort', () => aborted++);
        begun.open();
        await late.opened;
      }
      return type === 'json'
        ? globalThis.Response.json(message)
        : new globalThis.Response(`data: ${JSON.stringify(message)}\n\n`, {
            headers: { 'content-type': 'text/event-stream' },
          });
    };
    const observers = { clock, onError: () => {}, onWarning: () => {} };
    const fetch = gateFetch(handler, [
      sessionStore({ store, ...observers }),
      fsmGate(checkoutGate(), observers),
    ]);
    const post = async (body: WireMessage, headers = {}) => {
      const accept = 'application/json, text/event-stream';
      const all = { 'content-type': 'application/json', accept, ...headers };
      const init = { method: 'POST', headers: all, body: JSON.stringify(body) };
      return fetch(new globalThis.Request('http://shop.example/mcp', init));
    };
    const id = (await post(INITIALIZE)).headers.get('mcp-session-id') ?? '';
    const headers = { 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL };
    for (const tool of ['cart.add_item', 'cart.checkout'])
      await (await post(callOf(tool, tool), headers)).text();
    const paying = post(callOf('p', 'cart.pay'), headers);
    await begun.opened;
    await post(cancel('p'), headers);
    await pass(clock, GRACE);
    expect(await (await paying).text()).toContain('its outcome is unknown');
    late.open();
    const runs = runsOf(checkoutGate(), { store });
    await expect.poll(async () => (await runs.read(id))?.snapshot.state).toBe('confirmed');
    expect(aborted).toBe(0);
  });
});
