import { describe, expect, it } from 'vitest';
import { InterlockError } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import {
  callOf,
  INITIALIZE,
  RawSession,
  reasonOf,
  send,
  type WireMessage,
} from '../helpers/raw.ts';
import { begins, pass, type Scene, scene, settle, staysQuiet } from '../helpers/scene.ts';
import { createTask, startTasks } from '../helpers/task-server.ts';

const CHANGED = 'notifications/tools/list_changed';
const RESTART =
  '[System: cart.pay was not run, because the server is being restarted. Try again later.]';
const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

/** Begins to close, and tells whether it has closed. */
function close({ sessions }: Scene, drainMs?: number) {
  const closing = { isOver: false, over: sessions.close({ drainMs }) };
  void closing.over.then(() => {
    closing.isOver = true;
  });
  return closing;
}

describe.each(['stateful', 'stateless'] as const)('close(), %s', (mode) => {
  const start = () => scene({ shape: { mode, answers: 'json' } });

  it('waits for the step that runs: its client gets the result, and it is saved', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const listening = await session.listen();
    listening.messages.length = 0;
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const closing = close(app, 60_000);
    await pass(app.clock, 30_000);
    expect([closing.isOver, listening.ended]).toEqual([false, false]);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
    await closing.over;
    await expect.poll(() => listening.ended).toBe(true);
    expect(listening.messages.map(({ method }) => method)).toContain(CHANGED);
    expect(await session.tools()).toEqual(['cart.view']);
    await staysQuiet(app);
    expect(app.errors).toEqual([]);
  });

  it('refuses new steps, and goes on serving what is no step', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const other = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => other.call('cart.pay'));
    const closing = close(app, 60_000);
    const refused = await session.call('cart.pay');
    expect([reasonOf(refused), textOf(refused)]).toEqual(['unavailable', RESTART]);
    const { messages } = await session.post([callOf(1, 'cart.pay'), callOf(2, 'cart.view')]);
    const byId = (id: number) => messages.find((message) => message.id === id);
    expect([reasonOf(byId(1)), textOf(byId(2))]).toEqual(['unavailable', 'cart.view done']);
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    paying.finish();
    await closing.over;
    expect(app.ledger.calls.filter((tool) => tool === 'cart.pay')).toHaveLength(1);
  });

  it('lets no session begin, and says so as a transport does', async () => {
    const app = await start();
    await app.sessions.close();
    const { status, headers, messages } = await send(app.url, { body: INITIALIZE });
    expect([status, headers['retry-after'], headers['mcp-session-id']]).toEqual([
      503,
      '1',
      undefined,
    ]);
    expect(messages).toEqual([
      {
        jsonrpc: '2.0',
        id: 'init',
        error: { code: -32000, message: 'The server is being restarted' },
      },
    ]);
  });

  it('refuses at once the calls that wait for their turn', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const waiting = [session.call('cart.pay'), session.call('cart.pay')];
    await app.isServing(3);
    const closing = close(app, 60_000);
    for (const answer of await Promise.all(waiting)) expect(textOf(answer)).toBe(RESTART);
    expect(closing.isOver).toBe(false);
    paying.finish();
    await closing.over;
  });

  it('ends after drainMs, and names the steps that still run and may be saved', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const listening = await session.listen();
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const closing = close(app, 20_000);
    await pass(app.clock, 19_500);
    expect(closing.isOver).toBe(false);
    await pass(app.clock, 500);
    await closing.over;
    await expect.poll(() => listening.ended).toBe(true);
    expect(app.errors.map(String)).toEqual([
      'Error: close(): still running after 20000 ms: "cart.pay" of "checkout". ' +
        'Their outcomes are unknown if the process ends before they do',
    ]);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
  });
});

describe('close()', () => {
  it('without a time does not wait, and names the steps that still run', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    await app.sessions.close();
    expect(app.errors.map(String)).toEqual([expect.stringContaining('after 0 ms: "cart.pay"')]);
    paying.finish();
    await paying.answer;
  });

  it('refuses at once a call that waits for another process', async () => {
    const here = await scene({ shape: { mode: 'stateless' } });
    const there = await scene({ shape: { mode: 'stateless' }, beside: here });
    const session = await here.sessionAt('payment');
    const paying = await begins(here, 'cart.pay', () => session.call('cart.pay'));
    const waiting = RawSession.resume(there.url, session.id).call('cart.pay');
    await expect.poll(() => there.store.asked).toContain('claim');
    await settle();
    await there.sessions.close({ drainMs: 60_000 });
    expect(textOf(await waiting)).toBe(RESTART);
    expect(there.errors).toEqual([]);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
  });

  it('releases a claim that is granted meanwhile', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.store.fail('claim', 1, 'late');
    const calling = session.call('cart.pay');
    await expect.poll(() => app.store.late).toHaveLength(1);
    const closing = close(app, 60_000);
    app.store.late.pop()?.();
    expect(textOf(await calling)).toBe(RESTART);
    await closing.over;
    const view = await runsOf(checkoutGate(), { store: app.data }).read(session.id);
    expect([view?.status, app.ledger.calls]).toEqual(['idle', []]);
  });

  it('does not wait for a step that goes on as a task, which another process may end', async () => {
    const tasks = startTasks();
    const options = { shape: { mode: 'stateless' }, makeServer: tasks.makeServer } as const;
    const app = await scene(options);
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.sessions.close({ drainMs: 60_000 });
    expect(app.errors).toEqual([]);
    const there = await scene({ ...options, beside: app });
    await tasks.finish(taskId, 'added');
    await RawSession.resume(there.url, session.id).ask('tasks/result', { taskId });
    const view = await runsOf(checkoutGate(), { store: app.data }).read(session.id);
    expect(view).toMatchObject({ status: 'idle', snapshot: { state: 'has_items' } });
  });

  it('waits no longer for a step that becomes a task meanwhile', async () => {
    const creating = latch();
    const app = await scene({
      makeServer: startTasks().makeServer,
      shape: { mode: 'stateless', parser: true },
      behind: [
        (req, _res, next) => {
          if (req.body?.params?.task === undefined) return next();
          app.ledger.calls.push('a task');
          void creating.opened.then(() => next());
        },
      ],
    });
    const task = createTask(await app.session(), 'cart.add_item');
    await expect.poll(() => app.ledger.calls).toEqual(['a task']);
    const closing = close(app, 60_000);
    await settle();
    expect(closing.isOver).toBe(false);
    creating.open();
    await closing.over;
    expect([typeof (await task), app.errors]).toEqual(['string', []]);
  });

  it('saves moves from outside that come meanwhile, such as an approval', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const closing = close(app, 60_000);
    const sending = runsOf(checkoutGate(), { sessions: app.sessions }).send(session.id, 'CANCEL');
    paying.finish();
    await paying.answer;
    expect(await sending).toEqual({ sent: false, reason: 'unhandled' });
    await closing.over;
  });

  it('can be called again with a shorter time', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const patient = close(app, 60_000);
    await app.sessions.close();
    expect(patient.isOver).toBe(false);
    paying.finish();
    await patient.over;
    expect(app.errors).toHaveLength(1);
  });

  it('rejects unknown options', async () => {
    const { sessions } = await scene();
    const drain = { drain: 1_000 } as never;
    await expect(sessions.close(drain)).rejects.toThrow(InterlockError);
    await expect(sessions.close(drain)).rejects.toThrow('drainMs');
  });
});
