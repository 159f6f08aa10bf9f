import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Latch, latch } from '../helpers/latch.ts';
import {
  callOf,
  type RawSession,
  type RawStream,
  reasonOf,
  sendAndHold,
  type WireMessage,
} from '../helpers/raw.ts';
import { pass, type Scene, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { FETCH_SHAPES } from '../helpers/upstream.ts';

const CHANGED = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };
/** The stateless upstream tears its transport down when the response closes. */
const SHAPES = [
  { mode: 'stateful', answers: 'sse' },
  { mode: 'stateful', answers: 'json' },
  { mode: 'stateless', answers: 'sse' },
  { mode: 'stateless', answers: 'json' },
  ...FETCH_SHAPES,
] as const;
const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

interface App extends Scene {
  /**
   * Sends the messages, hangs up while the first call's handler runs, and resolves once the server
   * knows.
   */
  leave(session: RawSession, body: WireMessage | WireMessage[]): Promise<Latch>;
}

async function start(options: SceneOptions = {}): Promise<App> {
  let closed = 0;
  const app = await scene({
    ...options,
    before: [
      (req, _res, next) => {
        if (req.headers['x-leaves'] !== undefined) req.socket.once('close', () => void closed++);
        next();
      },
    ],
  });
  return {
    ...app,
    async leave(session, body) {
      const handler = latch();
      const [calls, closes] = [app.ledger.calls.length, closed];
      app.ledger.gates.set([body].flat()[0]?.params.name, handler.opened);
      const gone = sendAndHold(app.url, { headers: { ...session.headers, 'x-leaves': '1' }, body });
      await expect.poll(() => app.ledger.calls.length).toBeGreaterThan(calls);
      gone.cut();
      await expect.poll(() => closed).toBeGreaterThan(closes);
      app.ledger.gates.clear();
      return handler;
    },
  };
}

/** Opens a stream, and takes the notices of earlier moves, which JSON answers have no room for. */
async function listenAt(session: RawSession, answers: 'sse' | 'json'): Promise<RawStream> {
  const listening = await session.listen();
  if (answers === 'json') await expect.poll(() => listening.messages.splice(0)).toEqual([CHANGED]);
  return listening;
}

describe.each(SHAPES)(
  'a client that goes away in the middle of cart.pay, $host $mode $answers',
  (shape) => {
    it('finds the run in its next state, and hears on its stream of the list', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const listening = await listenAt(session, shape.answers);
      const paying = await app.leave(session, callOf(1, 'cart.pay'));
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
      expect(listening.messages).toEqual([]);
      paying.open();
      await expect.poll(() => listening.messages).toEqual([CHANGED]);
      expect(await session.tools()).toEqual(['cart.view']);
      expect(app.ledger.calls).toEqual(['cart.pay']);
      expect(app.errors).toEqual([]);
    });

    it('and has no stream then, is told when it listens again', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      (await app.leave(session, callOf(1, 'cart.pay'))).open();
      await expect.poll(() => session.tools()).toEqual(['cart.view']);
      const listening = await session.listen();
      await expect.poll(() => listening.messages).toEqual([CHANGED]);
    });

    it('finds the run where it was, if the handler failed, and may call it again', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const listening = await listenAt(session, shape.answers);
      const failing = await app.leave(session, callOf(1, 'cart.pay', { fail: true }));
      failing.open();
      await app.run(session.id).becomes('idle');
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
      expect(listening.messages).toEqual([]);
      expect(textOf(await session.call('cart.pay'))).toBe('cart.pay done');
    });

    it('and calls again at once, waits for its first call, and does not pay twice', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const paying = await app.leave(session, callOf(1, 'cart.pay'));
      const again = session.call('cart.pay');
      await app.isServing(1);
      paying.open();
      expect(reasonOf(await again)).toBe('state');
      expect(app.ledger.calls).toEqual(['cart.pay']);
    });

    it('with a batch, has its step saved, and the rest of the batch run to its end', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const paying = await app.leave(session, [callOf(1, 'cart.pay'), callOf(2, 'cart.view')]);
      paying.open();
      await expect.poll(() => session.tools()).toEqual(['cart.view']);
      expect([...app.ledger.calls].sort()).toEqual(['cart.pay', 'cart.view']);
    });

    it('and whose handler outlasts the lease, still has its step saved', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const paying = await app.leave(session, callOf(1, 'cart.pay'));
      await pass(app.clock, 60_000);
      paying.open();
      await expect.poll(() => session.tools()).toEqual(['cart.view']);
      expect(app.errors).toEqual([]);
    });

    it('and whose handler never ends, leaves a run that is held after maxStepMs', async () => {
      const app = await start({ shape, gate: { maxStepMs: 30_000 } });
      const session = await app.sessionAt('payment');
      const paying = await app.leave(session, callOf(1, 'cart.pay'));
      await pass(app.clock, 30_000);
      await pass(app.clock, 8_000);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
      expect(app.errors.map(String)).toEqual([
        expect.stringContaining('outcome of a call of "cart.pay" is unknown'),
      ]);
      paying.open();
      await settle();
      // Once told that its client left, the SDK answers only in JSON. That answer is saved.
      const isAnswered =
        shape.mode === 'stateful' && shape.answers === 'json' && !('host' in shape);
      expect(reasonOf(await session.call('cart.pay'))).toBe(isAnswered ? 'state' : 'held');
    });

    it('and then cancels, is told nothing; the grace waits for the outcome', async () => {
      const app = await start({ shape });
      const session = await app.sessionAt('payment');
      const paying = await app.leave(session, callOf(1, 'cart.pay'));
      await session.post({
        jsonrpc: '2.0',
        method: 'notifications/cancelled',
        params: { requestId: 1 },
      });
      await pass(app.clock, 4_000);
      expect(app.errors).toEqual([]);
      await pass(app.clock, 1_000);
      expect(app.errors).toHaveLength(1);
      await pass(app.clock, 8_000);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
      paying.open();
      await settle();
      expect(app.ledger.calls).toEqual(['cart.pay']);
    });
  },
);

describe('a client that goes away in the middle of a call that is not gated', () => {
  it('cuts the upstream off, as without the middlewares', async () => {
    let closes = 0;
    const app = await start({
      shape: { mode: 'stateless' },
      behind: [
        (_req, res, next) => {
          res.on('close', () => void closes++);
          next();
        },
      ],
    });
    const session = await app.session();
    closes = 0;
    const viewing = await app.leave(session, callOf(1, 'cart.view'));
    await expect.poll(() => closes).toBe(1);
    viewing.open();
    expect(textOf(await session.call('cart.view'))).toBe('cart.view done');
  });
});

/** The ways in which a handler can leave its client without an answer. */
const CUTS = {
  'res.destroy()': (_req, res) => res.destroy(),
  'req.socket.destroy()': (req) => req.socket.destroy(),
  'res.socket.destroy(error)': (_req, res) => res.socket?.destroy(new Error('its own')),
  'socket.resetAndDestroy()': (req) => req.socket.resetAndDestroy(),
  'socket.destroySoon()': (req) => req.socket.destroySoon(),
} satisfies Record<string, (req: IncomingMessage, res: ServerResponse) => unknown>;

describe.each(Object.entries(CUTS))('a handler that calls %s', (_name, cut) => {
  it.each(['before it writes', 'in the midst of its answer'])(
    'has its step given up on at once, %s',
    async (when) => {
      const app = await start({
        shape: { parser: true },
        behind: [
          (req, res, next) => {
            if (req.body?.params?.name !== 'cart.pay') return next();
            app.ledger.calls.push('cart.pay');
            if (when === 'before it writes') return void cut(req, res);
            res.writeHead(200, { 'content-type': 'text/event-stream' });
            res.write(': working\n\n', () => void cut(req, res));
          },
        ],
      });
      const session = await app.sessionAt('payment');
      await expect(session.post(callOf(1, 'cart.pay'))).rejects.toThrow();
      await expect
        .poll(() => app.errors.map(String))
        .toEqual([expect.stringContaining('outcome of a call of "cart.pay" is unknown')]);
      await pass(app.clock, 8_000);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    },
  );
});

describe('a client that breaks its connection', () => {
  it.each(['a reset', 'bytes that are no HTTP'])(
    'by %s, does not cut its step off',
    async (how) => {
      const app = await start({ shape: { mode: 'stateless' } });
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const body = JSON.stringify(callOf(1, 'cart.pay'));
      const headers = Object.entries({
        ...session.headers,
        host: app.url.host,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      }).map(([name, value]) => `${name}: ${value}\r\n`);
      const socket = connect(Number(app.url.port), app.url.hostname);
      socket.on('error', () => {});
      socket.write(`POST /mcp HTTP/1.1\r\n${headers.join('')}\r\n${body}`);
      await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
      if (how === 'a reset') socket.resetAndDestroy();
      else socket.resume().write('no HTTP at all\r\n\r\n');
      await once(socket, 'close');
      await settle();
      handler.open();
      await expect.poll(() => session.tools()).toEqual(['cart.view']);
      expect(app.errors).toEqual([]);
    },
  );
});

describe('a step that was given up on', () => {
  it.each(['setHeader', 'writeHead', 'json'] as const)(
    'may be answered late: that neither reaches the client nor ends the process (%s)',
    async (way) => {
      const failures: unknown[] = [];
      const note = (error: unknown): void => void failures.push(error);
      process.on('uncaughtException', note).on('unhandledRejection', note);
      onTestFinished(
        () => void process.off('uncaughtException', note).off('unhandledRejection', note),
      );
      const late = latch();
      let answered = false;
      const app = await start({
        shape: { mode: 'stateless', parser: true },
        gate: { maxStepMs: 1_000 },
        behind: [
          (req, res, next) => {
            if (req.body?.params?.name !== 'cart.pay') return next();
            app.ledger.calls.push('cart.pay');
            void late.opened.then(() =>
              setImmediate(() => {
                const answer = { jsonrpc: '2.0', id: req.body.id, result: { content: [] } };
                answered = true;
                if (way === 'setHeader') res.setHeader('x-late', '1');
                if (way === 'writeHead') res.writeHead(200, { 'content-type': 'application/json' });
                if (way === 'json') res.json(answer);
                else res.end(JSON.stringify(answer));
              }),
            );
          },
        ],
      });
      const session = await app.sessionAt('payment');
      const calling = session.post(callOf(1, 'cart.pay'));
      await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
      await pass(app.clock, 1_000);
      const { status, messages } = await calling;
      expect([status, messages.length, messages[0]?.id]).toEqual([200, 1, 1]);
      expect(textOf(messages[0])).toContain('cart.pay may have run: its outcome is unknown.');
      late.open();
      await expect.poll(() => answered).toBe(true);
      await settle();
      expect(failures).toEqual([]);
      expect(textOf(await session.call('cart.view'))).toBe('cart.view done');
    },
  );
});
