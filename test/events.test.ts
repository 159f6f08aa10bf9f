import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import type { RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Events } from '../src/basics/events.ts';
import {
  EVENT_CHANNEL,
  type InterlockEvent,
  type InterlockEventType,
  memoryStore,
  principalKey,
  runDigest,
  StateMachineGate,
} from '../src/index.ts';
import type { AtomicStateStore } from '../src/stores/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { Page } from './helpers/markdown.ts';
import { plainStore } from './helpers/operations.ts';
import { callOf, RawSession } from './helpers/raw.ts';
import {
  begins,
  passUntil,
  type Scene,
  type SceneOptions,
  scene,
  settle,
} from './helpers/scene.ts';

const RUN = ['workflow', 'run', 'runKey'];
const CALL = ['tool', 'requestId', 'call'];
const REQUEST = ['request', 'method', 'requestId'];
const STEP = [...RUN, ...CALL, 'state', 'actor'];
const END = [...STEP, 'durationMs', 'storeMs', 'isLate'];
const FAILURE = ['message', 'code', 'causedBy', 'error'];

/** Each event's members beside `type` and `at`. The compiler asks for each type. */
const EVENTS: Readonly<Record<InterlockEventType, readonly string[]>> = {
  'call.started': [...CALL, 'run', 'runKey', 'client', 'protocolVersion', 'inSession', 'trace'],
  'call.ended': [...CALL, 'run', 'runKey', 'outcome', 'code', 'reason', 'left', 'durationMs'],
  'request.started': [...REQUEST, 'protocolVersion', 'inSession', 'trace'],
  'request.ended': [...REQUEST, 'outcome', 'code', 'shown', 'protocolVersion', 'durationMs'],
  'call.refused': [...STEP, 'reason', 'enforced', 'way'],
  'call.waited': [...STEP, 'waitedMs', 'granted'],
  'call.unrecorded': STEP,
  'read.refused': [...RUN, 'method', 'name', 'reason', 'state', 'actor', 'requestId'],
  'step.started': [...STEP, 'waitedMs'],
  'step.committed': [...END, 'outcome', 'event', 'to'],
  'step.failed': [...END, 'kind'],
  'step.released': [...END, 'why'],
  'step.unknown': [...END, 'why', 'isHeld', 'idempotencyKey'],
  'step.unrecorded': [...END, 'why', 'answered', 'isHeld', 'idempotencyKey'],
  'step.held': [...RUN, 'tool', 'requestId', 'state', 'actor', 'idempotencyKey', 'sinceMs', 'kind'],
  'run.begun': [...RUN, 'state', 'actor'],
  'run.moved': [...RUN, 'from', 'to', 'event', 'tool', 'actor'],
  'run.ended': [...RUN, 'cause', 'state'],
  'session.unknown': ['requests', 'lost', 'sinceMs'],
  'workflow.frozen': ['workflow', 'tool', 'actor', 'note'],
  'workflow.unfrozen': ['workflow', 'tool', 'actor', 'note'],
  'workflow.observed': ['workflow', 'actor', 'note'],
  'workflow.enforced': ['workflow', 'living', 'actor', 'note'],
  'workflow.restored': ['workflow', 'found'],
  'run.frozen': [...RUN, 'state', 'actor', 'note'],
  'run.unfrozen': [...RUN, 'state', 'actor', 'note'],
  'run.resolved': [...RUN, 'tool', 'outcome', 'state', 'actor', 'note'],
  'run.restarted': [...RUN, 'from', 'state', 'actor'],
  invalidated: ['tool', 'patterns', 'requestId'],
  'store.slow': ['operation', 'durationMs'],
  'store.failed': ['operation', 'durationMs', ...FAILURE],
  'list.changed': ['run', 'runKey', 'lists'],
  error: FAILURE,
};

const ENDS = [
  ...['step.committed', 'step.failed', 'step.released', 'step.unknown', 'step.unrecorded'],
];
/** By event, the members that had a value in some test of this file. */
const seen = new Map<string, Set<string>>();

/** An app whose `onEvent` and channel must hear the same. */
async function heard(options: SceneOptions = {}) {
  const told: InterlockEvent[] = [];
  const onChannel: unknown[] = [];
  const hear = (event: unknown): void => void onChannel.push(event);
  subscribe(EVENT_CHANNEL, hear);
  onTestFinished(() => {
    unsubscribe(EVENT_CHANNEL, hear);
    // The channel also hears the other apps of the test.
    const own = onChannel.filter((event) => told.includes(event as InterlockEvent));
    expect(own).toHaveLength(told.length);
    expect(own.every((event, index) => event === told[index])).toBe(true);
    for (const event of told) look(event);
  });
  const onEvent = (event: InterlockEvent): void => void told.push(event);
  const app = await scene({ ...options, session: { ...options.session, onEvent } });
  // The handshake of each client comes first, and is told by tests of its own.
  const take = () => told.filter(({ type }) => !type.startsWith('request.'));
  return { ...app, told, take, types: (): string[] => take().map(({ type }) => type) };
}

/** Notes an event's members, and tests that no logger would write a run's key. */
function look(event: InterlockEvent): void {
  if ('runKey' in event) {
    expect(JSON.stringify(event)).not.toContain(JSON.stringify(event.runKey).slice(1, -1));
    expect(event.run).toBe(runDigest(String(event.runKey)));
  }
  const known = seen.get(event.type) ?? new Set<string>();
  seen.set(event.type, known);
  for (const key of Reflect.ownKeys(event).map(String))
    if (Reflect.get(event, key) !== undefined) known.add(key);
}

type Told<T extends InterlockEventType> = Extract<InterlockEvent, { type: T }>;

function only<T extends InterlockEventType>(told: readonly InterlockEvent[], type: T): Told<T>[] {
  return told.filter((event): event is Told<T> => event.type === type);
}

/** An upstream that refuses, breaks off or fails a call, as its `sku` says. */
const misbehaves: RequestHandler = (req, res, next) => {
  const { id, params } = (req.body ?? {}) as { id?: unknown; params?: Record<string, unknown> };
  const { sku } = (params?.arguments ?? {}) as { sku?: unknown };
  const turnedAway = {
    jsonrpc: '2.0',
    error: { code: -32_000, message: 'Invalid Host' },
    id: null,
  };
  if (sku === 'turned-away') res.status(403).json(turnedAway);
  else if (sku === 'broken-off') res.destroy();
  else if (sku === 'rpc-error')
    res.json({ jsonrpc: '2.0', id, error: { code: -32_050, message: 'sold out' } });
  else next();
};

const FAILING = { shape: { parser: true, answers: 'json' }, behind: [misbehaves] } as const;

/** A process was killed in the middle of a call, and only its claim is left. */
async function leaveClaim({ data }: Scene, run: string): Promise<void> {
  const claimed = await data.claim({
    run,
    workflow: 'checkout',
    token: `dead ${run}`,
    step: { tool: 'cart.add_item', digest: '', uncertain: 'hold' },
    entry: { tool: 'cart.add_item', actor: 'alice', requestId: 7 },
    states: undefined,
    initial: { state: 'empty', updatedAt: 0 },
    leaseMs: 8_000,
    ttlMs: 3_600_000,
  });
  expect(claimed.status).toBe('claimed');
  await data.renew({ run, workflow: 'checkout' }, `dead ${run}`, 8_000, { hold: 'unknown' });
}

const written: string[] = [];
const logged = (level: string) => (said: object, text: string) =>
  void written.push(`${level} ${text} ${JSON.stringify(said)}`);
const log = { error: logged('error'), info: logged('info') };

const loud: readonly InterlockEventType[] = [
  ...(['step.unknown', 'step.unrecorded', 'step.held', 'store.failed', 'error'] as const),
];

function logEvent({ type, ...said }: InterlockEvent): void {
  if (loud.includes(type)) log.error(said, type);
  else log.info(said, type);
}

describe('the stream of events', () => {
  it('tells a step from its call to its answer, in order and with all that is known', async () => {
    const app = await heard();
    const client = await app.client('alice');
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const _meta = { traceparent, tracestate: 'a=b', baggage: 'user=1' };
    await client.raw.client.callTool({ name: 'cart.add_item', arguments: {}, _meta });
    const at = expect.any(Number);
    const run = { workflow: 'checkout', run: runDigest(client.run) };
    const actor = expect.stringContaining('alice');
    const call = { tool: 'cart.add_item', requestId: expect.any(Number), call: expect.any(Number) };
    const step = { at, ...run, ...call, state: 'empty', actor };
    const ended = { durationMs: 0, storeMs: 0, isLate: false };
    const move = { ...run, at, actor };
    expect(app.take().map((event) => JSON.parse(JSON.stringify(event)))).toEqual([
      {
        ...{ type: 'call.started', at, ...call, run: run.run, client: 'test', inSession: true },
        protocolVersion: '2025-11-25',
        trace: _meta,
      },
      { type: 'step.started', ...step, waitedMs: 0 },
      {
        type: 'step.committed',
        ...{ ...step, ...ended, outcome: 'succeeded', event: 'ADD_ITEM', to: 'has_items' },
      },
      { type: 'run.begun', ...move, state: 'empty' },
      {
        type: 'run.moved',
        ...{ ...move, from: 'empty', to: 'has_items', event: 'ADD_ITEM', tool: 'cart.add_item' },
      },
      { type: 'list.changed', at, run: run.run, lists: ['tools'] },
      { type: 'call.ended', at, ...call, run: run.run, outcome: 'ok', durationMs: 0 },
    ]);
    expect(new Set(app.take().flatMap((event) => ('call' in event ? [event.call] : []))).size).toBe(
      1,
    );
    expect(only(app.take(), 'run.moved')[0]?.runKey).toBe(client.run);
  });

  it('tells what a gate that observes would have refused, and who has said that it does', async () => {
    const app = await heard();
    const client = await app.client();
    const by = { actor: 'ann', note: 'too many refusals' };
    await app.runs.observe(by);
    await client.calls('cart.pay');
    await expect.poll(() => only(app.told, 'call.refused').length).toBe(1);
    await app.runs.enforce({ ...by, living: true });
    const at = expect.any(Number);
    expect(only(app.told, 'workflow.observed')).toEqual([
      { type: 'workflow.observed', at, workflow: 'checkout', ...by },
    ]);
    expect(only(app.told, 'workflow.enforced')).toEqual([
      { type: 'workflow.enforced', at, workflow: 'checkout', living: true, ...by },
    ]);
    expect(only(app.told, 'call.refused')[0]).toMatchObject({
      ...{ enforced: false, reason: 'state', way: ['cart.add_item', 'cart.checkout'] },
    });
  });

  it('tells of an answer that leaves a call open: it asks for an input, or is a task', async () => {
    const answers = [
      { resultType: 'input_required', inputRequests: {} },
      { task: { taskId: 'a task' } },
    ];
    const answer: RequestHandler = (req, res, next) => {
      if (req.body?.method !== 'tools/call') next();
      else res.json({ jsonrpc: '2.0', id: req.body.id, result: answers.shift() });
    };
    const app = await heard({ shape: { parser: true }, behind: [answer] });
    const opened = await app.session();
    await opened.call('cart.view');
    await opened.call('cart.view');
    expect(only(app.told, 'call.ended').map(({ left }) => left)).toEqual(['input', 'task']);
  });

  it('tells of a handshake which version it agreed on, and of a list how much it showed', async () => {
    const app = await heard();
    const client = await app.client();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    await client.raw.client.listTools({ _meta: { traceparent } });
    await client.calls('cart.add_item');
    await client.raw.tools();
    const at = expect.any(Number);
    const told = app.told.filter(({ type }) => type.startsWith('request.'));
    const [first, listed, again] = only(app.told, 'request.started');
    const shaken = { at, request: first?.request, method: 'initialize', requestId: 0 };
    const list = { at, request: listed?.request, method: 'tools/list', requestId: 1 };
    const protocolVersion = '2025-11-25';
    expect(told.slice(0, 4)).toEqual([
      { type: 'request.started', ...shaken, inSession: false },
      { type: 'request.ended', ...shaken, outcome: 'ok', protocolVersion, durationMs: 0 },
      {
        type: 'request.started',
        ...{ ...list, inSession: true, protocolVersion, trace: { traceparent } },
      },
      { type: 'request.ended', ...list, outcome: 'ok', shown: 2, durationMs: 0 },
    ]);
    const { request } = again ?? {};
    expect(only(app.told, 'request.ended').at(-1)).toMatchObject({ request, shown: 3 });
    const numbers = app.told.flatMap((event) =>
      event.type === 'call.started'
        ? event.call
        : event.type === 'request.started'
          ? event.request
          : [],
    );
    expect(new Set(numbers).size).toBe(4);
  });

  it('tells how much a list showed that no upstream was asked for', async () => {
    let asked = 0;
    const count: RequestHandler = (req, _res, next) => {
      if (req.body?.method === 'tools/list') asked += 1;
      next();
    };
    const shape = { parser: true, answers: 'json' } as const;
    const app = await heard({ gate: { listCache: true }, shape, behind: [count] });
    const client = await app.client();
    for (let times = 0; times < 3; times++) await client.raw.tools();
    await client.calls('cart.add_item');
    await client.raw.tools();
    expect(asked).toBe(1);
    const lists = only(app.told, 'request.ended').slice(1);
    expect(lists.map(({ shown }) => shown)).toEqual([2, 2, 2, 3]);
  });

  it('tells of lists of prompts and resources where the gate filters them alone', async () => {
    const listed = async (workflow: StateMachineGate<string, string>) => {
      const prompts: RequestHandler = (req, res, next) => {
        const { id, method } = req.body ?? {};
        if (method !== 'prompts/list') return next();
        const named = ['order.summary', 'help'].map((name) => ({ name }));
        res.json({ jsonrpc: '2.0', id, result: { prompts: named } });
      };
      const shape = { parser: true, answers: 'json' } as const;
      const app = await heard({ workflow, shape, behind: [prompts] });
      const session = await app.session();
      for (const of of ['prompts', 'resources', 'resources/templates'])
        await session.ask(`${of}/list`);
      const told = only(app.told, 'request.ended').slice(1);
      return told.map(({ method, shown }) => [method, shown]);
    };
    expect(await listed(checkoutGate())).toEqual([]);
    const shows = ['prompts/list', 1];
    expect(await listed(checkoutGate().bindPrompt('order.summary', 'payment'))).toEqual([shows]);
    const both = checkoutGate()
      .bindPrompt('order.summary', 'payment')
      .bindResource('order://**', 'payment');
    expect((await listed(both)).map(([method]) => method)).toEqual([
      ...['prompts/list', 'resources/list', 'resources/templates/list'],
    ]);
  });

  it('tells of a list that failed, or that no answer came', async () => {
    let answer: 'error' | 'nothing' = 'error';
    const fails: RequestHandler = (req, res, next) => {
      const { id, method } = req.body ?? {};
      if (method !== 'tools/list') return next();
      if (answer === 'nothing') res.destroy();
      else res.json({ jsonrpc: '2.0', id, error: { code: -32_603, message: 'Internal error' } });
    };
    const app = await heard({ shape: { parser: true, answers: 'json' }, behind: [fails] });
    const client = await app.client();
    await expect(client.raw.tools()).rejects.toThrow('Internal error');
    answer = 'nothing';
    await expect(client.raw.tools()).rejects.toThrow();
    const [, failed, lost] = only(app.told, 'request.ended');
    expect(failed).toMatchObject({ outcome: 'rpc_error', code: -32_603 });
    expect(lost).toMatchObject({ outcome: 'unanswered' });
  });

  it('tells that a run begins once, of each move, and of its end', async () => {
    const app = await heard();
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.calls('cart.checkout');
    await client.calls('cart.pay');
    const moves = app.take().filter(({ type }) => type.startsWith('run.'));
    expect(moves.map(({ type }) => type)).toEqual([
      'run.begun',
      ...['run.moved', 'run.moved', 'run.moved'],
      'run.ended',
    ]);
    expect(moves.at(-1)).toMatchObject({ state: 'confirmed', cause: 'final' });
  });

  it('tells of a run that its client, an operator or a quota ends, and why', async () => {
    const app = await heard({
      shape: { mode: 'stateless' },
      session: { maxSessionsPerPrincipal: 1, principal: (req) => String(req.headers['x-user']) },
    });
    const ended = () => only(app.take(), 'run.ended').map(({ cause, runKey }) => [cause, runKey]);
    const ann = await app.session({ 'x-user': 'ann' });
    await ann.end();
    const bob = await app.session({ 'x-user': 'bob' });
    await app.session({ 'x-user': 'bob' });
    const cat = await app.session({ 'x-user': 'cat' });
    await app.runs.delete(cat.id);
    await app.runs.delete(cat.id);
    expect(ended()).toEqual([
      ['session', ann.id],
      ['quota', bob.id],
      ['deleted', cat.id],
    ]);
  });

  it('tells of sessions that the store has lost, with a rate', async () => {
    const app = await heard();
    const known = await Promise.all([app.session(), app.session(), app.session()]);
    app.clock.advance(60_000);
    for (const { id } of known) await app.data.delete(id);
    for (const session of known)
      expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
    const made = RawSession.resume(app.url, 'made-up', known[0]?.headers ?? {});
    for (let times = 0; times < 4; times++) await made.post(callOf(times, 'cart.view'));
    app.clock.advance(10_000);
    expect(only(app.take(), 'run.ended').map(({ cause }) => cause)).toEqual(
      Array(3).fill('unknown'),
    );
    expect(only(app.take(), 'session.unknown')).toMatchObject([
      { requests: 1, lost: 1, sinceMs: 60_000 },
      { requests: 6, lost: 2, sinceMs: 10_000 },
    ]);
  });

  it('tells of a call that no gate binds by its start and its end alone', async () => {
    const app = await heard();
    const client = await app.client();
    await client.calls('cart.view');
    expect(app.types()).toEqual(['call.started', 'call.ended']);
  });

  it.each([{}, { refusal: 'unknown-tool' }] as const)(
    'tells of a refused call why, whether or not its client is told: %o',
    async (gate) => {
      const app = await heard({ gate });
      const client = await app.client('alice');
      await client.raw.call('cart.pay').catch(() => {});
      const [started, refused, ended] = app.take();
      expect(started?.type).toBe('call.started');
      expect(refused).toMatchObject({ type: 'call.refused', tool: 'cart.pay', reason: 'state' });
      expect(ended).toMatchObject({ type: 'call.ended', outcome: 'refused' });
      if (!('refusal' in gate)) expect(ended).toMatchObject({ reason: 'state' });
    },
  );

  it('tells of a refused prompt', async () => {
    const workflow = checkoutGate().bindPrompt('order.summary', 'payment');
    const app = await heard({ workflow });
    const client = await app.client('alice');
    await expect(client.raw.client.getPrompt({ name: 'order.summary' })).rejects.toThrow();
    expect(app.take()).toEqual([
      expect.objectContaining({
        type: 'read.refused',
        method: 'prompts/get',
        name: 'order.summary',
        reason: 'state',
        state: 'empty',
      }),
    ]);
  });

  it('tells the kind of a failure', async () => {
    const app = await heard(FAILING);
    const client = await app.client('alice');
    await client.raw.call('cart.add_item', { fail: true });
    await expect(client.raw.call('cart.add_item', { sku: 'rpc-error' })).rejects.toThrow(
      'sold out',
    );
    expect(only(app.take(), 'step.failed').map(({ kind }) => kind)).toEqual([
      'tool_error',
      'rpc_error',
    ]);
    expect(only(app.take(), 'call.ended')).toMatchObject([
      { outcome: 'tool_error' },
      { outcome: 'rpc_error', code: -32_050 },
    ]);
  });

  it('tells of a call that waited for another one, and for how long', async () => {
    const app = await heard();
    const client = await app.client('alice');
    const first = await begins(app, 'cart.add_item', () => client.calls('cart.add_item'));
    const second = client.calls('cart.add_item');
    await expect.poll(() => only(app.take(), 'call.started').length).toBe(2);
    await settle();
    app.clock.advance(700);
    first.finish();
    await Promise.all([first.answer, second]);
    expect(only(app.take(), 'call.waited')).toMatchObject([
      { waitedMs: 700, granted: true, state: 'has_items' },
    ]);
    expect(only(app.take(), 'step.started')).toMatchObject([{ waitedMs: 0 }, { waitedMs: 700 }]);
    expect(only(app.take(), 'step.committed')[0]).toMatchObject({ durationMs: 700 });
  });

  it('tells that a run is released, because the upstream refused the call', async () => {
    const app = await heard(FAILING);
    const client = await app.client('alice');
    await expect(client.raw.call('cart.add_item', { sku: 'turned-away' })).rejects.toThrow();
    expect(app.types()).toEqual(['call.started', 'step.started', 'step.released', 'call.ended']);
  });

  it('tells that a run is released, because another gate refused the call', async () => {
    const other = new StateMachineGate({
      id: 'other',
      initial: 'shut',
      states: { shut: {}, open: {} },
    });
    const workflow = [checkoutGate(), other.bindTool('cart.add_item', ['open'])];
    const app = await heard({ workflow });
    const client = await app.client('alice');
    await client.isRefused('cart.add_item', 'state');
    expect(app.take().map(({ type }) => type)).toEqual([
      ...['call.started', 'step.started', 'call.refused', 'step.released', 'call.ended'],
    ]);
    expect(only(app.take(), 'step.released')).toMatchObject([{ why: 'withdrawn' }]);
  });

  it('tells of an unknown outcome, and of the same when it comes late', async () => {
    const app = await heard({ gate: { cancelGraceMs: 1_000 } });
    const client = await app.client('alice');
    const abort = new AbortController();
    const held = await begins(app, 'cart.add_item', () =>
      client.raw.client.callTool({ name: 'cart.add_item', arguments: {} }, undefined, {
        signal: abort.signal,
      }),
    );
    abort.abort();
    await expect(held.answer).rejects.toThrow();
    await expect
      .poll(() => {
        app.clock.advance(500);
        return only(app.take(), 'step.unknown');
      })
      .toMatchObject([{ why: 'no result came', isHeld: true, isLate: false }]);
    held.finish();
    await expect
      .poll(() => only(app.take(), 'step.committed'))
      .toMatchObject([{ outcome: 'succeeded', isLate: true }]);
    await expect.poll(() => only(app.take(), 'call.ended').length).toBe(1);
    expect(app.errors.map((error) => (error as Error).name)).toEqual(['UnknownOutcome']);
  });

  it('tells a call that ran, and is not recorded, from one that may be repeated', async () => {
    const app = await heard();
    const client = await app.client('alice');
    const held = await begins(app, 'cart.add_item', () => client.raw.call('cart.add_item'));
    const { workflows = {} } = (await app.data.read(client.run, 60_000)) ?? {};
    const key = { run: client.run, workflow: 'checkout' };
    await app.data.release(key, workflows.checkout?.claim?.token ?? '');
    held.finish();
    await held.answer;
    expect(only(app.take(), 'step.unknown')).toEqual([]);
    const told = only(app.take(), 'step.unrecorded');
    expect(told).toMatchObject([
      {
        why: 'lost',
        answered: 'succeeded',
        isHeld: false,
        isLate: false,
        tool: 'cart.add_item',
        requestId: expect.anything(),
      },
    ]);
    // An operator who listens to no event asks later.
    expect(app.runs.answered(told[0]?.idempotencyKey ?? '')).toBe('succeeded');
    expect(app.runs.answered('another')).toBeUndefined();
    expect(only(app.take(), 'call.ended')).toMatchObject([{ outcome: 'unknown' }]);
  });

  it('tells once of a run that a killed process left held, and of its resolution', async () => {
    const app = await heard();
    const client = await app.client('alice');
    await leaveClaim(app, client.run);
    app.clock.advance(10_000);
    await client.isRefused('cart.add_item', 'held');
    await app.run(client.run).is('held');
    await client.raw.tools();
    expect(only(app.take(), 'step.held')).toMatchObject([
      { tool: 'cart.add_item', state: 'empty', actor: 'alice', requestId: 7, sinceMs: 2_000 },
    ]);
    const beside = await heard({ beside: app });
    await beside.run(client.run).is('held');
    expect(app.errors).toHaveLength(1);
    const said = { actor: 'bob', note: 'the shop has it' };
    await app.runs.resolve(client.run, 'succeeded', said);
    expect(only(app.take(), 'run.resolved')).toMatchObject([
      { tool: 'cart.add_item', outcome: 'succeeded', state: 'has_items', ...said },
    ]);
    expect(only(app.take(), 'run.moved')).toHaveLength(1);
  });

  it('tells of a run that begins again', async () => {
    const app = await heard({ session: { key: principalKey() } });
    const client = await app.client('alice');
    for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.add_item'])
      await client.calls(name);
    const [first] = only(app.take(), 'run.restarted');
    expect(first).toMatchObject({ from: 'confirmed', state: 'empty' });
    await app.runs.restart(String(first?.runKey), { actor: 'bob' });
    expect(only(app.take(), 'run.restarted').at(-1)).toMatchObject({
      from: 'has_items',
      actor: 'bob',
    });
    expect(only(app.take(), 'run.begun')).toHaveLength(1);
    expect(only(app.take(), 'run.ended')).toHaveLength(1);
  });

  it('tells who stopped a run, and who let it go on', async () => {
    const app = await heard();
    const client = await app.client();
    await client.calls('cart.add_item');
    const stop = { tool: 'cart.pay', actor: 'bob', note: 'look at it' };
    await app.runs.freezeAll(stop);
    await app.runs.unfreezeAll({ ...stop, actor: 'eve' });
    await app.runs.freeze(client.run, { actor: 'bob', note: 'look at it' });
    await app.runs.unfreeze(client.run, { actor: 'eve', note: 'it is well' });
    const told = app.take();
    expect(only(told, 'run.frozen')).toMatchObject([
      { runKey: client.run, state: 'has_items', actor: 'bob', note: 'look at it' },
    ]);
    expect(only(told, 'run.unfrozen')).toMatchObject([{ actor: 'eve', note: 'it is well' }]);
  });

  it('tells that this process wrote back a switch, which the store had lost', async () => {
    let switches = memoryStore() as Required<AtomicStateStore>;
    const app = await heard({
      data: {
        ...plainStore(memoryStore()),
        readSwitch: (...args) => switches.readSwitch(...args),
        swapSwitch: (...args) => switches.swapSwitch(...args),
      },
    });
    await app.runs.freezeAll({ actor: 'bob', note: 'look at it' });
    switches = memoryStore() as Required<AtomicStateStore>;
    expect(await app.runs.frozen()).toMatchObject([{ actor: 'bob' }]);
    expect(only(app.take(), 'workflow.restored')).toMatchObject([
      { workflow: 'checkout', found: 'none' },
    ]);
  });

  it('tells what a call made stale', async () => {
    const policies = [{ match: 'cart.add_item', invalidates: ['cart.view'] }];
    const app = await heard({ sync: { policies } });
    const client = await app.client();
    await client.calls('cart.add_item');
    expect(only(app.take(), 'invalidated')).toMatchObject([
      { tool: 'cart.add_item', patterns: ['cart.view'], requestId: expect.any(Number) },
    ]);
  });

  it('tells of a slow store and of a failing one, once for each call of it', async () => {
    const app = await heard();
    const client = await app.client();
    app.store.fail('claim', 1, 'late');
    const call = client.calls('cart.add_item');
    await expect.poll(() => app.store.late.length).toBe(1);
    app.clock.advance(1_500);
    for (const goOn of app.store.late.splice(0)) goOn();
    await call;
    expect(only(app.take(), 'store.slow')).toMatchObject([
      { operation: 'claim', durationMs: 1_500 },
    ]);
    app.store.fail('claim', 1);
    await client.isRefused('cart.add_item', 'unavailable');
    const [failed, ...more] = only(app.take(), 'store.failed');
    expect(more).toEqual([]);
    expect(failed).toMatchObject({ operation: 'claim', message: 'the store failed to claim' });
    expect(failed?.error).toBe(app.errors[0]);
    expect(JSON.stringify(failed)).not.toContain('hunter2');
    expect(only(app.take(), 'error')).toEqual([]);
    app.store.claim = async () => {
      throw Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    };
    await client.isRefused('cart.add_item', 'unavailable');
    expect(only(app.take(), 'store.failed').at(-1)).toMatchObject({ code: 'ECONNREFUSED' });
  });

  it.each(causes())(
    'names the code and class of a failure, and no secret: %s',
    (_, told, cause) => {
      const heard: InterlockEvent[] = [];
      const events = new Events({ onEvent: (event) => heard.push(event) });
      events.onError(new Error('the store failed to claim', { cause }));
      expect(heard).toMatchObject([{ message: 'the store failed to claim', ...told }]);
      expect(heard).toHaveLength(1);
      expect(Object.keys(told)).toEqual(
        Object.keys(heard[0] ?? {}).filter((key) => key in { code: 0, causedBy: 0 }),
      );
      expect(JSON.stringify(heard)).not.toMatch(/hunter2|sess-1|redis:/);
    },
  );

  it('tells that a lookup could not be recorded', async () => {
    const workflow = StateMachineGate.fromOrder({ 'cart.pay': { after: 'cart.view' } });
    const app = await heard({ workflow });
    const client = await app.client('alice');
    app.store.fail('record');
    const answer = await passUntil(app.clock, client.raw.call('cart.view'));
    expect(answer).toMatchObject({ isError: true });
    expect(only(app.take(), 'call.unrecorded')).toMatchObject([{ tool: 'cart.view', state: '{}' }]);
    expect(only(app.take(), 'call.ended')).toMatchObject([{ outcome: 'unknown' }]);
  });

  it('tells of each other error that onError is told', async () => {
    const guard = (): never => {
      const cause = new TypeError('hunter2');
      throw Object.assign(new Error('the guard is broken', { cause }), { code: 'E_GUARD' });
    };
    const workflow = checkoutGate().bindTool('cart.view', ['empty'], {
      success: 'ADD_ITEM',
      guard,
    });
    const app = await heard({ workflow });
    const client = await app.client();
    await client.isRefused('cart.view', 'guard');
    expect(only(app.take(), 'error')).toMatchObject([
      { message: 'the guard is broken', code: 'E_GUARD', causedBy: 'TypeError' },
    ]);
    expect(only(app.take(), 'error')[0]?.error).toBe(app.errors[0]);
    expect(only(app.take(), 'step.started')).toEqual([]);
  });

  it('gives each step one end, and each call one, in any order of calls', {
    timeout: 60_000,
  }, async () => {
    const TOOLS = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'] as const;
    const args = fc.constantFrom({}, { fail: true }, { sku: 'turned-away' }, { sku: 'rpc-error' });
    const calls = fc.array(fc.tuple(fc.constantFrom(...TOOLS), args, fc.boolean()), {
      maxLength: 12,
    });
    const app = await heard(FAILING);
    await fc.assert(
      fc.asyncProperty(calls, async (plan) => {
        const before = app.told.length;
        const client = await app.client();
        const open: Promise<unknown>[] = [];
        for (const [name, given, isAwaited] of plan) {
          open.push(client.raw.call(name, given).catch(() => {}));
          if (isAwaited) await Promise.all(open);
        }
        await Promise.all(open);
        await client.raw.close();
        const numbers = (types: readonly string[]): number[] =>
          app.told
            .slice(before)
            .flatMap((each) =>
              types.includes(each.type) && 'call' in each && each.call !== undefined
                ? [each.call]
                : [],
            );
        const sorted = (list: number[]): number[] => list.sort((a, b) => a - b);
        await expect
          .poll(() => numbers(['call.ended']).length)
          .toBe(numbers(['call.started']).length);
        expect(sorted(numbers(ENDS))).toEqual(sorted(numbers(['step.started'])));
        expect(sorted(numbers(['call.ended']))).toEqual(sorted(numbers(['call.started'])));
        expect(numbers(['call.started'])).toHaveLength(plan.length);
      }),
      { numRuns: 15 },
    );
  });
});

describe('the listeners', () => {
  it('harm no request by what they throw or reject with, which onError is told', async () => {
    const failures = [
      () => {
        throw new Error('the listener is broken');
      },
      () => Promise.reject(new Error('the listener is broken')),
    ];
    for (const onEvent of failures) {
      const app = await scene({ session: { onEvent } });
      const client = await app.client();
      await client.calls('cart.add_item');
      await settle();
      const messages = new Set(app.errors.map((error) => (error as Error).message));
      expect([...messages]).toEqual(['the listener is broken']);
    }
  });

  it('cost nothing where there are none: no event is made', async () => {
    const published = vi.spyOn(Events.prototype, 'publish');
    const numbered = vi.spyOn(Events.prototype, 'nextNumber');
    const app = await scene({ sync: { policies: [{ match: 'cart.*', invalidates: ['a'] }] } });
    const client = await app.client();
    await client.raw.tools();
    await client.isRefused('cart.pay', 'state');
    await client.calls('cart.add_item');
    app.store.fail('claim', 1);
    await client.isRefused('cart.checkout', 'unavailable');
    expect(app.errors).toHaveLength(1);
    expect(published).not.toHaveBeenCalled();
    expect(numbered).not.toHaveBeenCalled();
  });

  it('of a gate that has its own are those alone', async () => {
    const ofSessions: string[] = [];
    const ofGate: string[] = [];
    const app = await scene({
      session: { onEvent: ({ type }) => void ofSessions.push(type) },
      gate: { onEvent: ({ type }) => void ofGate.push(type) },
    });
    const client = await app.client();
    await client.calls('cart.add_item');
    expect(ofGate).toContain('step.committed');
    expect(ofSessions).toEqual(['list.changed']);
  });
});

describe('the docs on events', () => {
  const page = new Page('docs/operate/operations.md');

  it('names each event with its members', () => {
    const groups: Record<string, readonly string[]> = {
      request: REQUEST,
      run: RUN,
      call: CALL,
      step: STEP,
      end: END,
    };
    const rows = new Page('docs/reference/events.md')
      .tableAfter('<!-- events -->')
      .map(([type = '', , members = '']) => {
        const named = members.split(', ').flatMap((each) => {
          const group = groups[each.replaceAll('*', '')];
          return group ?? [each.replaceAll('`', '')];
        });
        return [type, named.sort()];
      });
    const known = Object.entries(EVENTS).map(([type, members]) => [type, [...members].sort()]);
    expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(known));
  });

  it('shows code that is run here', () => {
    const [, section = ''] = page.text.split('\n## Events\n');
    const blocks = [...(section.split('\n## ')[0]?.matchAll(/^```ts\n(.*?)^```$/gms) ?? [])];
    expect(blocks).toHaveLength(2);
    const source = readFileSync(new URL(import.meta.url), 'utf8');
    const lines = blocks.flatMap(([, code = '']) => code.split('\n').map((each) => each.trim()));
    const isSurrounding = /^(import|app\.all|subscribe)|^}\);$/;
    const missing = lines.filter((line) => !isSurrounding.test(line) && !source.includes(line));
    expect(missing).toEqual([]);
  });

  it('logs without a key, and wakes a person', async () => {
    const paged: string[] = [];
    const page = (words: string): void => void paged.push(words);
    const onMessage = (message: unknown): void => {
      const event = message as InterlockEvent;
      if (event.type === 'step.held') page(`${event.tool} of run ${event.run} is to be resolved`);
    };
    subscribe('mcp-interlock', onMessage);
    onTestFinished(() => void unsubscribe('mcp-interlock', onMessage));
    const app = await scene({ session: { onEvent: logEvent } });
    const client = await app.client();
    await leaveClaim(app, client.run);
    app.clock.advance(10_000);
    await client.isRefused('cart.add_item', 'held');
    expect(paged).toEqual([`cart.add_item of run ${runDigest(client.run)} is to be resolved`]);
    expect(written.filter((line) => line.startsWith('error step.held'))).toHaveLength(1);
    expect(written.join('\n')).not.toContain(client.run);
  });
});

it('was told of each event with each of its members by the tests above', () => {
  const members = (type: string): string[] =>
    [...(seen.get(type) ?? [])].filter((key) => key !== 'type' && key !== 'at').sort();
  const told = Object.keys(EVENTS).map((type) => [type, members(type)]);
  const known = Object.entries(EVENTS).map(([type, all]) => [type, [...all].sort()]);
  expect(Object.fromEntries(told)).toEqual(Object.fromEntries(known));
});

/** What drivers reject with, and what an event may say of it. */
function causes(): [string, Record<string, string>, unknown][] {
  class DatabaseError extends Error {}
  class ErrorReply extends Error {}
  const refused = Object.assign(new Error('connect redis://u:hunter2@db'), {
    code: 'ECONNREFUSED',
  });
  const Odd = class extends Error {};
  Object.defineProperty(Odd, 'name', { value: 'redis://u:hunter2@db' });
  const round = new TypeError('sess-1');
  round.cause = round;
  return [
    [
      'of PostgreSQL',
      { code: '42501', causedBy: 'DatabaseError' },
      Object.assign(new DatabaseError('Key (run)=(sess-1)'), { code: '42501' }),
    ],
    [
      'of Redis',
      { code: 'NOPERM', causedBy: 'ErrorReply' },
      new ErrorReply('NOPERM No permissions to access key sess-1'),
    ],
    [
      'of several addresses',
      { code: 'ECONNREFUSED', causedBy: 'Error' },
      new AggregateError([refused, refused]),
    ],
    [
      'behind another',
      { code: 'ECONNREFUSED', causedBy: 'Error' },
      new Error('hunter2', { cause: refused }),
    ],
    [
      'whose code is no code',
      { causedBy: 'Error' },
      Object.assign(new Error('hunter2'), { code: 'redis://u:hunter2@db' }),
    ],
    ['whose words are no driver’s', { causedBy: 'Error' }, new Error('HUNTER sess-1')],
    ['whose class has no such name', {}, new Odd('sess-1')],
    ['in a circle', { causedBy: 'TypeError' }, round],
  ];
}
