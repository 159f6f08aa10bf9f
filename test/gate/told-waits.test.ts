import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { principalKey, StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { latch } from '../helpers/latch.ts';
import type { ManualClock } from '../helpers/manual-clock.ts';
import {
  callOf,
  RawSession,
  type RawStream,
  reasonOf,
  send,
  stream,
  type WireMessage,
} from '../helpers/raw.ts';
import {
  begins,
  pass,
  type Scene,
  type SceneOptions,
  scene,
  sceneOfBothEras,
} from '../helpers/scene.ts';
import { AUTO, ask, connectV2, PINNED, stateless } from '../helpers/two-eras.ts';
import { HOSTS } from '../helpers/upstream.ts';

/*
 * A call that waits for another one of its run tells its client so, where the client asked for
 * progress. SDK clients give a silent call up after a minute.
 */

const WORDS = 'Waiting for another call of this run';
const PROGRESS = 'notifications/progress';

/** A call whose client asks for progress by this token. */
function telling(tool: string, token: unknown = 'p', id: unknown = 'waits'): WireMessage {
  const params = { name: tool, arguments: {}, _meta: { progressToken: token } };
  return { ...callOf(id, tool), params };
}

const progressIn = (messages: readonly WireMessage[]): WireMessage[] =>
  messages.filter(({ method }) => method === PROGRESS).map(({ params }) => params);
const ours = (progress: number, progressToken: unknown = 'p') => ({
  progressToken,
  progress,
  message: WORDS,
});
const answerIn = ({ messages }: Pick<RawStream, 'messages'>): WireMessage | undefined =>
  messages.find(({ id }) => id === 'waits');
const textIn = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

/** `cart.pay` needs no claim, and waits for `cart.checkout`. */
const paid = () =>
  new StateMachineGate({
    id: 'w',
    initial: 'open',
    states: { open: { on: { GO: 'ready' } }, ready: {} },
  })
    .bindTool('cart.checkout', 'open', 'GO')
    .bindTool('cart.pay', 'ready');

/** A run with a step at work, and a call that waits behind it. */
async function waiting(
  options: SceneOptions = {},
  call: WireMessage = telling('cart.checkout'),
  headers: Record<string, string> = {},
) {
  const app = await scene(options);
  const session = await app.session(headers);
  const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
  const opening = session.stream(call);
  opening.catch(() => {});
  await app.isServing(2);
  return { app, session, first, opening };
}

describe('a call that waits for its turn', () => {
  it('is silent for 5 s, and then told every 5 s, by its token', async () => {
    const { app, first, opening } = await waiting({ shape: { answers: 'json' } });
    let isOpen = false;
    void opening.then(() => {
      isOpen = true;
    });
    await pass(app.clock, 4_999);
    expect(isOpen).toBe(false);
    await pass(app.clock, 1);
    const reading = await opening;
    await expect.poll(() => reading.messages).toHaveLength(1);
    await pass(app.clock, 4_999);
    expect(progressIn(reading.messages)).toEqual([ours(1)]);
    await pass(app.clock, 1);
    await expect.poll(() => progressIn(reading.messages)).toEqual([ours(1), ours(2)]);
    first.finish();
    await expect.poll(() => reading.ended).toBe(true);
    expect(textIn(answerIn(reading))).toBe('cart.checkout done');
    expect([reading.status, reading.headers['content-type']]).toEqual([200, 'text/event-stream']);
    expect(reading.text).not.toMatch(/^(id|retry):/m);
    await pass(app.clock, 60_000);
    expect(app.errors).toEqual([]);
  });

  it('is told until it is refused after waitMs, and the refusal says why', async () => {
    const { app, first, opening } = await waiting();
    await pass(app.clock, 40_000);
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    expect(progressIn(reading.messages).map(({ progress }) => progress)).toEqual([
      1, 2, 3, 4, 5, 6, 7,
    ]);
    expect([reasonOf(answerIn(reading)), reading.messages.at(-1)?.id]).toEqual(['busy', 'waits']);
    first.finish();
    await first.answer;
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('gets nothing more once its client cancels it, and is never forwarded', async () => {
    const { app, session, first, opening } = await waiting();
    await pass(app.clock, 5_000);
    const reading = await opening;
    const params = { requestId: 'waits' };
    await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    await expect.poll(() => reading.ended).toBe(true);
    expect(reading.messages).toHaveLength(1);
    first.finish();
    await first.answer;
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('is never forwarded where its client leaves after it was told', async () => {
    const { app, first, opening } = await waiting();
    await pass(app.clock, 5_000);
    (await opening).cut();
    await app.isServing(1);
    await pass(app.clock, 10_000);
    first.finish();
    await first.answer;
    await app.isServing(0);
    expect([app.ledger.calls, app.errors]).toEqual([['cart.add_item'], []]);
  });

  it('is told that the server restarts, where it does', async () => {
    const { app, first, opening } = await waiting();
    await pass(app.clock, 5_000);
    const reading = await opening;
    const closed = app.sessions.close({ drainMs: 60_000 });
    await expect.poll(() => reading.ended).toBe(true);
    expect(textIn(answerIn(reading))).toContain('the server is being restarted');
    first.finish();
    await closed;
  });

  it('is told while another process has the run', async () => {
    const shape = { mode: 'stateless' } as const;
    const elsewhere = await scene({ shape });
    const app = await scene({ shape, beside: elsewhere });
    const { id } = await elsewhere.session();
    const other = RawSession.resume(elsewhere.url, id);
    const first = await begins(elsewhere, 'cart.add_item', () => other.call('cart.add_item'));
    const opening = RawSession.resume(app.url, id).stream(telling('cart.checkout'));
    await app.isServing(1);
    await pass(app.clock, 10_000, 100);
    const reading = await opening;
    await expect.poll(() => progressIn(reading.messages)).toEqual([ours(1), ours(2)]);
    first.finish();
    await first.answer;
    await pass(app.clock, 500, 50);
    await expect.poll(() => textIn(answerIn(reading))).toBe('cart.checkout done');
  });

  it('is told once for each 5 s, though two gates make it wait', async () => {
    const second = new StateMachineGate({
      id: 'second',
      initial: 'o',
      states: { o: { on: { GO: 'o' } } },
    }).bindTool('cart.checkout', 'o', 'GO');
    second.bindTool('cart.view', 'o', 'GO');
    const workflow = [checkoutGate(), second] as unknown as StateMachineGate<string, string>[];
    const { app, session, first, opening } = await waiting({ workflow });
    const viewing = await begins(app, 'cart.view', () => session.call('cart.view'));
    await pass(app.clock, 8_000);
    const reading = await opening;
    first.finish();
    await first.answer;
    await pass(app.clock, 7_000);
    await expect.poll(() => progressIn(reading.messages)).toEqual([1, 2, 3].map((n) => ours(n)));
    viewing.finish();
    await expect.poll(() => textIn(answerIn(reading))).toBe('cart.checkout done');
  });
});

describe('a call that waits for the call before it', () => {
  async function dependent(options: SceneOptions = {}) {
    const app = await scene({ workflow: paid(), ...options });
    const session = await app.session();
    const first = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const opening = session.stream(telling('cart.pay'));
    await app.isServing(2);
    return { app, first, opening };
  }

  it('is told, in this process', async () => {
    const { app, first, opening } = await dependent();
    await pass(app.clock, 5_000);
    const reading = await opening;
    first.finish();
    await expect.poll(() => textIn(answerIn(reading))).toBe('cart.pay done');
    expect(progressIn(reading.messages)[0]).toEqual(ours(1));
  });

  /** The call before it is in another process: it asks the store again and again. */
  async function dependentElsewhere() {
    const shape = { mode: 'stateless' } as const;
    const elsewhere = await scene({ workflow: paid(), shape });
    const app = await scene({ workflow: paid(), shape, beside: elsewhere });
    const { id } = await elsewhere.session();
    const other = RawSession.resume(elsewhere.url, id);
    const first = await begins(elsewhere, 'cart.checkout', () => other.call('cart.checkout'));
    const opening = RawSession.resume(app.url, id).stream(telling('cart.pay'));
    await app.isServing(1);
    return { app, first, opening };
  }

  it('is told, where that one is in another process', async () => {
    const { app, first, opening } = await dependentElsewhere();
    await pass(app.clock, 10_200, 50);
    const reading = await opening;
    await expect.poll(() => progressIn(reading.messages)).toEqual([ours(1), ours(2)]);
    first.finish();
    await first.answer;
    await pass(app.clock, 500, 50);
    await expect.poll(() => textIn(answerIn(reading))).toBe('cart.pay done');
  });

  it('is told after another 5 s at most, where the clock is set back meanwhile', async () => {
    const { app, first, opening } = await dependentElsewhere();
    await pass(app.clock, 1_000, 50);
    app.clock.jump(-10_000);
    await pass(app.clock, 5_300, 50);
    const reading = await opening;
    await expect.poll(() => progressIn(reading.messages)).toEqual([ours(1)]);
    first.finish();
    await first.answer;
    await pass(app.clock, 500, 50);
  });

  it('is told in words of an error of the server’s, whose status it cannot see', async () => {
    const failing: RequestHandler = (req, res, next) => {
      if (req.headers['x-fails'] === undefined) next();
      else res.status(503).send('<h1>Gone</h1>');
    };
    const app = await scene({ workflow: paid(), behind: [failing] });
    const session = await app.session();
    const first = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const headers = { ...session.headers, 'x-fails': 'yes' };
    const opening = stream(app.url, { headers, body: telling('cart.pay') });
    await app.isServing(2);
    await pass(app.clock, 5_000);
    first.finish();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    expect([reading.status, answerIn(reading)?.error]).toEqual([
      200,
      { code: -32000, message: 'The server answered with HTTP 503 Service Unavailable' },
    ]);
  });
});

describe('the outcome of a step whose client was told that it waited', () => {
  const answering =
    (status: number, body: unknown): RequestHandler =>
    (req, res, next) => {
      if (req.headers['x-fails'] === undefined) next();
      else res.status(status).json(body);
    };

  async function failing(status: number, body: unknown) {
    const app = await scene({ behind: [answering(status, body)] });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const headers = { ...session.headers, 'x-fails': 'yes' };
    const opening = stream(app.url, { headers, body: telling('cart.checkout') });
    await app.isServing(2);
    await pass(app.clock, 5_000);
    first.finish();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    return { app, session, answer: answerIn(reading), messages: reading.messages };
  }

  it('is unknown after an error that proves nothing, and the client reads so', async () => {
    const { app, session, answer } = await failing(500, { error: 'broken' });
    expect(textIn(answer)).toContain('cart.checkout may have run');
    await pass(app.clock, 10_000);
    await app.run(session.id).isIn('has_items', 'held');
  });

  it('is none where a transport turned the call away, in words of its own', async () => {
    const error = { code: -32001, message: 'Session not found' };
    const { app, session, answer } = await failing(404, { jsonrpc: '2.0', id: null, error });
    expect(answer?.error).toEqual({
      code: -32001,
      message: 'The server answered with HTTP 404 Not Found: Session not found',
    });
    await app.run(session.id).isIn('has_items', 'idle');
  });

  /** The step is at work, and its client has left the stream on which it was told. */
  async function left(options: SceneOptions = {}) {
    const gone = latch();
    const door: RequestHandler = (req, _res, next) => {
      if (req.headers['x-leaves'] !== undefined) req.socket.once('close', gone.open);
      next();
    };
    const app = await scene({ ...options, before: [door] });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const headers = { ...session.headers, 'x-leaves': 'yes' };
    const opening = stream(app.url, { headers, body: telling('cart.checkout') });
    await app.isServing(2);
    await pass(app.clock, 5_000);
    const reading = await opening;
    await expect.poll(() => reading.messages).toHaveLength(1);
    expect(reading.lastEventId).toBeUndefined();
    const second = latch();
    app.ledger.gates.set('cart.checkout', second.opened);
    first.finish();
    await expect.poll(() => app.ledger.calls).toContain('cart.checkout');
    if (options.eventStore) await expect.poll(() => reading.lastEventId).toBeDefined();
    reading.cut();
    await gone.opened;
    return { app, session, reading, finish: second.open };
  }

  it('is saved where its client leaves in the middle of the step', async () => {
    const { app, session, finish } = await left();
    finish();
    await app.run(session.id).becomes('idle');
    await app.run(session.id).isIn('payment');
  });

  it('comes on a resumed stream, where the server’s events have ids', async () => {
    const { app, session, reading, finish } = await left({
      eventStore: () => new ListEventStore(),
    });
    let resumed = await session.listen(reading.lastEventId);
    await expect
      .poll(async () => {
        if (resumed.status !== 200) resumed = await session.listen(reading.lastEventId);
        return resumed.status;
      })
      .toBe(200);
    finish();
    await expect.poll(() => textIn(answerIn(resumed))).toBe('cart.checkout done');
    await app.run(session.id).isIn('payment', 'idle');
  });

  it('follows the app’s own answer, where a timer of the app gives up before', async () => {
    const timeouts: (() => void)[] = [];
    const { app, session, first, opening } = await waiting({
      before: [
        (req, res, next) => {
          if (req.method === 'POST') timeouts.push(() => res.status(503).end('Too slow'));
          next();
        },
      ],
    });
    await pass(app.clock, 5_000);
    timeouts.at(-1)?.();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    expect(answerIn(reading)?.error?.message).toContain('HTTP 503');
    first.finish();
    await first.answer;
    await app.isServing(0);
    expect(app.ledger.calls).toEqual(['cart.add_item']);
    await app.run(session.id).isIn('has_items', 'idle');
  });
});

describe('the server’s own progress, behind ours', () => {
  it.each(HOSTS)('goes on from there: $host, $mode, $answers', async (shape) => {
    const { app, first, opening } = await waiting({ shape: { ...shape, express: 5 } });
    await pass(app.clock, 10_000);
    first.finish();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    // The server says 1 of 2. In JSON it says nothing.
    const theirs = shape.answers === 'sse' ? [{ progressToken: 'p', progress: 4, total: 5 }] : [];
    expect(progressIn(reading.messages)).toEqual([ours(1), ours(2), ...theirs]);
    expect(textIn(answerIn(reading))).toBe('cart.checkout done');
    expect(app.errors).toEqual([]);
  });

  it('rises from any number, and keeps what no token of this call names', async () => {
    const say = (params: Record<string, unknown>): string =>
      `data: ${JSON.stringify({ jsonrpc: '2.0', method: PROGRESS, params })}\n\n`;
    const reports: RequestHandler = (req, res, next) => {
      if (req.headers['x-reports'] === undefined) return next();
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.write(say({ progressToken: 7, progress: -3 }));
      res.write(say({ progressToken: 7, progress: -2.5, total: 10 }));
      res.write(say({ progressToken: '7', progress: 0 }));
      res.write(say({ progressToken: 7, progress: 'half' }));
      res.end('data: {"jsonrpc":"2.0","id":"waits","result":{"content":[]}}\n\n');
    };
    const app = await scene({ behind: [reports] });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const headers = { ...session.headers, 'x-reports': 'yes' };
    const opening = stream(app.url, { headers, body: telling('cart.checkout', 7) });
    await app.isServing(2);
    await pass(app.clock, 5_000);
    first.finish();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    expect(progressIn(reading.messages)).toEqual([
      ours(1, 7),
      { progressToken: 7, progress: 2 },
      { progressToken: 7, progress: 2.5, total: 15 },
      { progressToken: '7', progress: 0 },
      { progressToken: 7, progress: 'half' },
    ]);
  });

  it('is as it came where the call did not wait for long', async () => {
    const { app, first, opening } = await waiting();
    await pass(app.clock, 4_000);
    first.finish();
    const reading = await opening;
    await expect.poll(() => reading.ended).toBe(true);
    expect(progressIn(reading.messages)).toEqual([{ progressToken: 'p', progress: 1, total: 2 }]);
  });
});

describe('a call that waits in silence', () => {
  const CALLS: Readonly<Record<string, WireMessage>> = {
    'has no token': callOf('waits', 'cart.checkout'),
    'has a fraction as its token': telling('cart.checkout', 1.5),
    'has an object as its token': telling('cart.checkout', {}),
    'has a token of 257 bytes': telling('cart.checkout', 'x'.repeat(257)),
  };
  it.each(Object.entries(CALLS))('%s', async (_, call) => {
    const { app, first, opening } = await waiting({ shape: { answers: 'json' } }, call);
    await pass(app.clock, 20_000);
    first.finish();
    const { headers } = await opening;
    expect(headers['content-type']).toBe('application/json');
  });

  it('comes from a client that accepts no stream', async () => {
    const app = await scene({ shape: { answers: 'json' }, gate: { waitMs: 6_000 } });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const headers = { ...session.headers, accept: 'application/json' };
    const answering = send(app.url, { headers, body: telling('cart.checkout') });
    await app.isServing(2);
    await pass(app.clock, 6_000);
    const { headers: answered, messages } = await answering;
    expect([answered['content-type'], reasonOf(messages[0])]).toEqual(['application/json', 'busy']);
    first.finish();
    await first.answer;
  });

  it('stands in a batch, whose answers one event could not carry', async () => {
    const app = await scene({ shape: { answers: 'json' } });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const answering = session.post([telling('cart.checkout'), callOf('other', 'cart.view')]);
    await app.isServing(2);
    await pass(app.clock, 10_000);
    first.finish();
    const { headers, messages } = await answering;
    expect([headers['content-type'], messages.length]).toEqual(['application/json', 2]);
  });

  const cors: RequestHandler = (_req, res, next) => {
    res.setHeader('access-control-allow-origin', 'https://app.example');
    next();
  };
  const ORIGIN = { origin: 'https://app.example' };

  it('comes from a web page whose CORS headers the handler may be about to set', async () => {
    const options = { shape: { answers: 'json' }, behind: [cors] } as const;
    const { app, first, opening } = await waiting(options, telling('cart.checkout'), ORIGIN);
    await pass(app.clock, 10_000);
    first.finish();
    const { headers } = await opening;
    expect([headers['content-type'], headers['access-control-allow-origin']]).toEqual([
      'application/json',
      'https://app.example',
    ]);
  });

  it('is told all the same where the CORS headers are set in front', async () => {
    const { app, first, opening } = await waiting(
      { before: [cors] },
      telling('cart.checkout'),
      ORIGIN,
    );
    await pass(app.clock, 5_000);
    const { headers } = await opening;
    expect([headers['content-type'], headers['access-control-allow-origin']]).toEqual([
      'text/event-stream',
      'https://app.example',
    ]);
    first.finish();
    await first.answer;
  });
});

/** Puts the timers of the SDK's clients, which time requests out, into the test's hands. */
function holdClients(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
}

/** Lets 30 s pass for the gate and for the client, whose timeout is shorter. */
async function pass30s(clock: ManualClock, heard: readonly unknown[]): Promise<void> {
  for (let told = 1; told <= 6; told++) {
    await pass(clock, 5_000);
    await expect.poll(() => heard.length).toBe(told);
    vi.advanceTimersByTime(5_000);
  }
}

const PATIENT = { timeout: 8_000, resetTimeoutOnProgress: true };

describe('a client that gives up after 8 s of silence, of SDK v1,', () => {
  async function behindAnother(app: Scene) {
    const { raw } = await app.client();
    const first = await begins(app, 'cart.add_item', () => raw.call('cart.add_item'));
    holdClients();
    const heard: unknown[] = [];
    const onprogress = (progress: unknown) => void heard.push(progress);
    return { raw, first, heard, onprogress };
  }

  it.each(HOSTS)('waits for 30 s: $host, $mode, $answers', async (shape) => {
    const app = await scene({ shape: { ...shape, express: 5 } });
    const { raw, first, heard, onprogress } = await behindAnother(app);
    const params = { name: 'cart.checkout', arguments: {} };
    const answer = raw.client.callTool(params, undefined, { ...PATIENT, onprogress });
    answer.catch(() => {});
    await app.isServing(shape.mode === 'stateful' ? 3 : 2);
    await pass30s(app.clock, heard);
    first.finish();
    expect((await answer).content).toEqual([{ type: 'text', text: 'cart.checkout done' }]);
    const counts = [1, 2, 3, 4, 5, 6, ...(shape.answers === 'sse' ? [8] : [])];
    expect(heard.map((each) => (each as WireMessage).progress)).toEqual(counts);
  });

  it('gives up, where it asks for no progress', async () => {
    const app = await scene();
    const { raw, first } = await behindAnother(app);
    const params = { name: 'cart.checkout', arguments: {} };
    const answer = raw.client.callTool(params, undefined, PATIENT);
    answer.catch(() => {});
    await app.isServing(3);
    await pass(app.clock, 10_000);
    vi.advanceTimersByTime(8_000);
    await expect(answer).rejects.toThrow('timed out');
    first.finish();
    await first.answer;
  });
});

describe.each([
  ['the session era', undefined],
  ['MCP 2026-07-28', PINNED],
  ['the era that it finds', AUTO],
])('a client that gives up after 8 s of silence, of SDK v2, in %s,', (_, options) => {
  it('waits for 30 s, and hears the server’s own progress go on from ours', async () => {
    const gate = new StateMachineGate({
      id: 'w',
      initial: 'open',
      states: { open: { on: { GO: 'ready' } }, ready: {} },
    })
      .bindTool('cart.checkout', 'open', 'GO')
      .bindTool('cart.report', 'ready');
    const app = await sceneOfBothEras({
      workflow: gate as unknown as StateMachineGate<string, string>,
      session: { key: principalKey() },
      register: (server) =>
        server.registerTool('cart.report', {}, async ({ mcpReq }) => {
          const progressToken = mcpReq._meta?.progressToken ?? '';
          for (const progress of [0, 1]) {
            const params = { progressToken, progress, total: 1 };
            await mcpReq.notify({ method: 'notifications/progress', params });
          }
          return { content: [{ type: 'text', text: 'reported' }] };
        }),
    });
    const client = await connectV2(app.url, 'ann', options);
    onTestFinished(() => client.close());
    const finish = latch();
    app.gates.set('cart.checkout', finish.opened);
    const first = client.callTool({ name: 'cart.checkout', arguments: {} });
    await expect.poll(() => app.calls.length).toBe(1);
    holdClients();
    const heard: WireMessage[] = [];
    const answer = client.callTool(
      { name: 'cart.report', arguments: {} },
      { ...PATIENT, onprogress: (progress) => void heard.push(progress) },
    );
    answer.catch(() => {});
    await app.isServing(2);
    await pass30s(app.clock, heard);
    finish.open();
    await first;
    expect((await answer).content).toEqual([{ type: 'text', text: 'reported' }]);
    expect(heard.map(({ progress, total }) => [progress, total])).toEqual([
      ...[1, 2, 3, 4, 5, 6].map((progress) => [progress, undefined]),
      [7, 8],
      [8, 8],
    ]);
    expect(app.errors).toEqual([]);
  });
});

describe('a call of the stateless era', () => {
  const options = { session: { key: principalKey() } };
  const asAnn = { user: 'ann' };

  it('is cancelled where its client closes the stream on which it was told', async () => {
    const app = await sceneOfBothEras(options);
    const finish = latch();
    app.gates.set('cart.add_item', finish.opened);
    const first = ask(app.url, 'tools/call', { name: 'cart.add_item', arguments: {} }, asAnn);
    await expect.poll(() => app.calls.length).toBe(1);
    const _meta = { progressToken: 'p' };
    const params = { name: 'cart.checkout', arguments: {}, _meta };
    const opening = stream(app.url, stateless('tools/call', params, asAnn));
    await app.isServing(2);
    await pass(app.clock, 5_000);
    const reading = await opening;
    await expect.poll(() => progressIn(reading.messages)).toEqual([ours(1)]);
    reading.cut();
    await app.isServing(1);
    finish.open();
    expect((await first).status).toBe(200);
    await app.isServing(0);
    expect(app.calls.map(({ tool }) => tool)).toEqual(['cart.add_item']);
  });

  it('is refused on the stream, with the server’s state in words', async () => {
    const app = await sceneOfBothEras({ ...options, gate: { waitMs: 7_000 } });
    const finish = latch();
    app.gates.set('cart.add_item', finish.opened);
    const first = ask(app.url, 'tools/call', { name: 'cart.add_item', arguments: {} }, asAnn);
    await expect.poll(() => app.calls.length).toBe(1);
    const _meta = { progressToken: 3 };
    const params = { name: 'cart.checkout', arguments: {}, _meta };
    const answering = send(app.url, stateless('tools/call', params, asAnn));
    await app.isServing(2);
    await pass(app.clock, 7_000);
    const { messages, headers } = await answering;
    expect(headers['content-type']).toBe('text/event-stream');
    expect(progressIn(messages)).toEqual([ours(1, 3)]);
    expect(reasonOf(messages.at(-1))).toBe('busy');
    expect(messages.at(-1)?.result?.resultType).toBe('complete');
    finish.open();
    await first;
  });
});
