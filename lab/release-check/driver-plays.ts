/**
 * Runs in a user's project with one driver installed: `play.ts DRIVER ADDRESS TOKEN`. A store must
 * keep its whole contract there, and a bus carry a message. A chart and telemetry must work.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { StateMachineGate } from 'mcp-interlock';
import { describeStateStore, testGate } from 'mcp-interlock-testing';
import { DRIVERS, type Opened } from './driver-stores.ts';

const [driver = '', address = '', token = ''] = process.argv.slice(2);

function playStore(open: () => Promise<Opened>): void {
  const makeStore = async () => {
    const opened: Opened[] = [];
    const reopen = async () => {
      const another = await open();
      opened.push(another);
      return another.store;
    };
    const close = async () => {
      for (const each of opened) await each.close();
    };
    return { store: await reopen(), reopen, close };
  };
  describeStateStore(driver, makeStore, {
    describe: (name: string, body: () => void) => void describe(name, { concurrency: 3 }, body),
    it: (name: string, body: () => Promise<void>, timeout: number) =>
      void it(name, { timeout }, body),
  });
}

function playStoreAndBus(open: () => Promise<Opened>): void {
  playStore(open);
  it('carries a message from one instance to another', { timeout: 20_000 }, async () => {
    const [here, there] = [await open(), await open()];
    assert(here.bus && there.bus);
    const leaving = new AbortController();
    let hear: (message: string) => void = assert.fail;
    const heard = new Promise<string>((resolve) => {
      hear = resolve;
    });
    const stop = await there.bus.subscribe(hear, leaving.signal);
    await here.bus.publish('"hello"');
    assert.equal(await heard, '"hello"');
    leaving.abort();
    await stop();
    await here.close();
    await there.close();
  });
}

function playLibsql(): void {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-libsql-'));
  process.once('exit', () => rmSync(folder, { recursive: true }));
  const file = join(folder, `${randomUUID()}.db`);
  playStore(() => DRIVERS.libsql(file));
}

function playXState(): void {
  it('gates by a chart with regions, guards and data', async () => {
    const { assign, setup } = await import('xstate');
    const chart = setup({
      types: {
        context: {} as { total: number },
        events: {} as { type: 'ADD' } | { type: 'ORDER' },
      },
      guards: { isFilled: ({ context }) => context.total > 0 },
      actions: { add: assign({ total: ({ context }) => context.total + 1 }) },
    }).createMachine({
      id: 'order',
      context: { total: 0 },
      initial: 'cart',
      states: {
        cart: { on: { ADD: { actions: 'add' }, ORDER: { target: 'ordered', guard: 'isFilled' } } },
        ordered: { type: 'parallel', states: { billing: {}, packing: {} } },
      },
    });
    const gate = new StateMachineGate(chart)
      .bindTool('add', 'cart', 'ADD')
      .bindTool('order', 'cart', 'ORDER');
    const game = testGate(gate);
    assert.deepEqual(await game.list(), ['add', 'order']);
    await game.call('order');
    assert.equal(await game.state(), 'cart');
    await game.call('add');
    await game.call('order');
    assert.deepEqual(await game.list(), []);
  });
}

function playTelemetry(): void {
  it('names a span after the tool that it calls', async () => {
    const { INVALID_SPAN_CONTEXT, trace } = await import('@opentelemetry/api');
    const { instrument } = await import('mcp-interlock/otel');
    const names: string[] = [];
    const span = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
    span.updateName = (name) => {
      names.push(name);
      return span;
    };
    const startSpan = () => span;
    trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan }) as never });
    const telemetry = instrument();
    const gate = new StateMachineGate({
      initial: 'open',
      states: { open: { on: { CLOSE: 'closed' } }, closed: { type: 'final' } },
    }).bindTool('close', 'open', 'CLOSE');
    await testGate(gate).call('close');
    telemetry.disable();
    assert.deepEqual(names, ['tools/call close']);
  });
}

const PLAYS: Readonly<Record<string, () => void>> = {
  ioredis: () => playStoreAndBus(() => DRIVERS.ioredis(address)),
  redis: () => playStoreAndBus(() => DRIVERS.redis(address)),
  pg: () => playStoreAndBus(() => DRIVERS.pg(address)),
  '@upstash/redis': () => playStore(() => DRIVERS['@upstash/redis'](address, token)),
  libsql: playLibsql,
  xstate: playXState,
  '@opentelemetry/api': playTelemetry,
};

const play = PLAYS[driver];
if (play === undefined) throw new Error(`no play for ${driver}`);
play();
