import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import '../src/doors/ambient.ts';
import {
  currentStep,
  fsmGate,
  handleKey,
  memoryStore,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../src/index.ts';
import { runsOf } from '../src/runs/index.ts';
import { latch } from './helpers/latch.ts';
import { callOf, RawSession } from './helpers/raw.ts';
import { startUpstream } from './helpers/upstream.ts';

const order = (id: string) =>
  new StateMachineGate({
    id,
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: { on: { CLOSE: 'closed' } }, closed: {} },
  }).bindTool('pay', 'open', 'PAY');

type Handler = (args: Record<string, unknown>) => Promise<void> | void;

async function serve(
  gates: StateMachineGate<string, string>[],
  handler: Handler,
  byBasket = false,
) {
  const store = memoryStore();
  const key = byBasket
    ? [handleKey('basket', { createdBy: 'create' }), sessionKey()]
    : sessionKey();
  const sessions = sessionStore({ store, key, onWarning: () => {} });
  const upstream = await startUpstream({
    middlewares: [sessions, ...gates.map((gate) => fsmGate(gate, { onWarning: () => {} }))],
    makeServer: () => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool('pay', { inputSchema: z.looseObject({}) }, async (args) => {
        await handler(args);
        return { content: [] };
      });
      server.registerTool('create', { inputSchema: z.looseObject({}) }, ({ basket }) => ({
        content: [],
        structuredContent: { basket },
      }));
      return server;
    },
  });
  onTestFinished(() => upstream.close());
  return { store, sessions, session: await RawSession.begin(upstream.url) };
}

describe('currentStep(), with mcp-interlock/ambient', () => {
  it('is never the step of another call of the same batch', async () => {
    const seen: unknown[][] = [];
    const note: Handler = ({ basket }) => void seen.push([basket, currentStep()?.run]);
    const { session } = await serve([order('order')], note, true);
    await session.call('create', { basket: 'a' });
    await session.call('create', { basket: 'b' });
    const { messages } = await session.post([
      callOf(1, 'pay', { basket: 'a' }),
      callOf(2, 'pay', { basket: 'b' }),
    ]);
    expect(messages.map(({ result }) => result?.isError)).toEqual([undefined, undefined]);
    expect(seen.map(([basket]) => basket).sort()).toEqual(['a', 'b']);
    const runs = seen.map(([, run]) => run).filter((run) => run !== undefined);
    expect(new Set(runs).size).toBe(runs.length);
  });
});

describe('runs, inside a step, with mcp-interlock/ambient', () => {
  it('take part in the step of each gate that the call passed', async () => {
    const [first, second] = [order('first'), order('second')];
    const updated: unknown[] = [];
    const app = await serve([first, second], async () => {
      const run = currentStep()?.run ?? '';
      for (const gate of [first, second])
        updated.push(
          await runsOf(gate, { sessions: app.sessions }).update(run, () => ({ by: 'handler' })),
        );
    });
    await app.session.call('pay');
    const done = { updated: true, context: { by: 'handler' } };
    expect(updated).toEqual([done, done]);
    for (const gate of [first, second]) {
      const view = await runsOf(gate, { store: app.store }).read(app.session.id);
      expect(view).toMatchObject({ snapshot: { state: 'paid' }, context: { by: 'handler' } });
    }
  });

  it('refuse a send() by the handler of their own step, however deep it calls', async () => {
    const gate = order('order');
    const failures: unknown[] = [];
    const sends = async (): Promise<void> => {
      const run = currentStep()?.run ?? '';
      await new Promise(setImmediate);
      const runs = runsOf(gate, { sessions: app.sessions });
      await runs.send(run, 'CLOSE').catch((error: unknown) => failures.push(error));
    };
    const app = await serve([gate], sends);
    await app.session.call('pay');
    expect(failures.map(String)).toEqual([
      expect.stringContaining('inside a step of the same run'),
    ]);
  });

  it('find the step of a call that the handler of another step makes', async () => {
    const [outer, inner] = [order('outer'), order('inner')];
    const seen: unknown[] = [];
    const other = await serve([inner], async () => {
      seen.push(currentStep()?.workflow);
    });
    const app = await serve([outer], async () => {
      await other.session.call('pay');
      seen.push(currentStep()?.workflow);
    });
    await app.session.call('pay');
    expect(seen).toEqual(['inner', 'outer']);
  });

  it('know that the step is over, in work that its handler left running', async () => {
    const gate = order('order');
    const answered = latch();
    let later: Promise<unknown> | undefined;
    let lateStep: ReturnType<typeof currentStep>;
    const app = await serve([gate], () => {
      const run = currentStep()?.run ?? '';
      lateStep = currentStep();
      later = answered.opened.then(async () => {
        const runs = runsOf(gate, { sessions: app.sessions });
        return [await runs.update(run, () => ({ late: true })), await runs.send(run, 'CLOSE')];
      });
    });
    await app.session.call('pay');
    answered.open();
    expect(await later).toEqual([
      { updated: true, context: { late: true } },
      { sent: true, changed: true, state: 'closed' },
    ]);
    const view = await runsOf(gate, { store: app.store }).read(app.session.id);
    expect(view).toMatchObject({ snapshot: { state: 'closed' }, context: { late: true } });
    expect(() => lateStep?.update(() => 1)).toThrow('the step is over');
  });
});
