import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import {
  type CurrentStep,
  currentStep,
  handleKey,
  principalKey,
  StateMachineGate,
  type StepSource,
  sessionKey,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { type HandlersStep, Try } from '../../src/session/current-step.ts';
import { callOf, type WireMessage } from '../helpers/raw.ts';
import { begins, passUntil, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { ask, callStateless, connectV2 } from '../helpers/two-eras.ts';
import type { Ledger } from '../helpers/upstream.ts';

const TRY = 'mcp-interlock/try';
const STEP_ERROR = expect.objectContaining({ code: 'ERR_INTERLOCK_STEP' });

const order = (id = 'order') =>
  new StateMachineGate({
    id,
    initial: 'open',
    states: { open: { on: { PAY: 'paid', NOTE: 'open' } }, paid: {} },
  })
    .bindTool('pay', 'open', 'PAY')
    .bindTool('note', 'open', 'NOTE');

/** What a handler got from `currentStep()`. */
interface Found {
  readonly tool: string;
  readonly args: Record<string, unknown>;
  readonly meta: Record<string, unknown>;
  readonly step: CurrentStep | undefined;
  readonly extra: StepSource;
}

/** An app whose tools note their step, and answer with the `_meta` that they got. */
async function open(options: SceneOptions = {}) {
  const found: Found[] = [];
  const note = (tool: string) => (args: object, meta: object, extra: StepSource) => {
    found.push({ tool, args: { ...args }, meta: { ...meta }, step: currentStep(extra), extra });
    return { meta, ...args };
  };
  const tools = ['pay', 'note', 'look'];
  const handlers = Object.fromEntries(tools.map((name) => [name, note(name)]));
  const server = toolServer(tools, handlers);
  const makeServer = (ledger: Ledger): McpServer => {
    const made = server(ledger);
    const see = (tool: string, extra: StepSource & { _meta?: object | undefined }) => {
      const meta = { ...extra._meta };
      found.push({ tool, args: {}, meta, step: currentStep(extra), extra });
    };
    made.registerPrompt('hello', {}, (extra) => {
      see('prompt', extra as never);
      return { messages: [] };
    });
    made.registerResource('file', 'test://file', {}, (_uri, extra) => {
      see('resource', extra);
      return { contents: [] };
    });
    return made;
  };
  const app = await scene({ workflow: order(), makeServer, ...options });
  return { ...app, found, session: await app.session(), sessionOf: app.session };
}

describe('currentStep(extra)', () => {
  it.each(
    (['stateful', 'stateless'] as const).flatMap((mode) =>
      (['sse', 'json'] as const).flatMap((answers) =>
        ([true, false, 'hono', 'sdk'] as const).map((by) => ({ mode, answers, by })),
      ),
    ),
  )('gives the step of this very call: $mode, $answers, $by', async ({ by, ...rest }) => {
    const shape = { ...rest, ...(typeof by === 'string' ? { host: by } : { parser: by }) };
    const { session, found } = await open({ shape });
    await session.call('note');
    await session.call('look');
    await session.call('pay');
    const [noted, looked, paid] = found;
    const about = { run: session.id, workflow: 'order', state: 'open', context: undefined };
    expect(noted?.step).toMatchObject({ ...about, tool: 'note' });
    expect(paid?.step).toMatchObject({ ...about, tool: 'pay' });
    expect(paid?.step?.idempotencyKey).toBe(paid?.meta['mcp-interlock/idempotencyKey']);
    expect(looked).toMatchObject({ step: undefined, meta: {} });
    expect(noted?.meta[TRY]).toMatch(/^[\w-]{24}$/);
    expect(noted?.meta[TRY]).not.toBe(paid?.meta[TRY]);
    expect(Object.values(paid?.step ?? {})).not.toContain(paid?.meta[TRY]);
  });

  it('needs no inputSchema: then `extra` is the first argument', async () => {
    const steps: (CurrentStep | undefined)[] = [];
    const makeServer = () => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool('pay', {}, (extra) => {
        steps.push(currentStep(extra));
        return { content: [] };
      });
      return server;
    };
    const { session } = await scene({ workflow: order(), makeServer });
    await (await session()).call('pay');
    expect(steps).toMatchObject([{ tool: 'pay' }]);
  });

  it('gives the same object each time, also for a copy of what the handler got', async () => {
    const { session, found } = await open();
    await session.call('pay');
    const [{ step, extra } = {}] = found;
    expect(currentStep(extra as StepSource)).toBe(step);
    expect(currentStep({ ...extra } as StepSource)).toBe(step);
  });

  it('takes `ctx` of SDK v2, in both eras', async () => {
    const steps: (CurrentStep | undefined)[] = [];
    const app = await sceneOfBothEras({
      workflow: order(),
      session: { key: [principalKey(), sessionKey()] },
      register: (server) => {
        for (const name of ['note', 'look'])
          server.registerTool(name, { inputSchema: z.looseObject({}) }, (_args, ctx) => {
            steps.push(currentStep(ctx));
            return { content: [] };
          });
        server.registerTool('pay', {}, (ctx) => {
          steps.push(currentStep(ctx));
          return { content: [] };
        });
      },
    });
    const client = await connectV2(app.url, 'ann');
    onTestFinished(() => client.close());
    await client.callTool({ name: 'note', arguments: {} });
    await callStateless(app.url, 'look', {}, { user: 'ann' });
    const forged = { _meta: { [TRY]: 'forged' }, name: 'pay', arguments: {} };
    await ask(app.url, 'tools/call', forged, { user: 'ann' });
    const run = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });
    expect(steps).toMatchObject([{ tool: 'note' }, undefined, { tool: 'pay', state: 'open' }]);
    expect(new Set(steps.flatMap((step) => step?.run ?? []))).toEqual(new Set([run]));
  });

  it('tells the calls of a batch apart, which the request does not', async () => {
    const byRequest: unknown[] = [];
    const { session, found } = await open({
      session: { key: [handleKey('basket', { createdBy: 'look' }), sessionKey()] },
      behind: [(req, _res, next) => next(void byRequest.push(currentStep(req)?.tool))],
    });
    await session.call('look', { basket: 'a' });
    await session.call('look', { basket: 'b' });
    await session.call('note', { basket: 'a' });
    expect(byRequest.at(-1)).toBe('note');
    const { messages } = await session.post([
      callOf(1, 'pay', { basket: 'a' }),
      callOf(2, 'pay', { basket: 'b' }),
    ]);
    expect(messages.map(({ result }) => result?.isError)).toEqual([undefined, undefined]);
    const paid = found.filter(({ tool }) => tool === 'pay');
    const runs = paid.map(({ args, step }) => [args.basket, step?.run]);
    const runOf = (basket: string) => handleKey('basket', { createdBy: 'look' }).runKey(basket);
    expect(new Map(runs as [])).toEqual(new Map(['a', 'b'].map((each) => [each, runOf(each)])));
    expect(byRequest.at(-1)).toBeUndefined();
  });

  it('gives the step of the last mounted gate, or of the gate that is named', async () => {
    const gates = [order('first'), order('second'), order('third')] as const;
    const [first, second, third] = gates;
    const { session, found } = await open({ workflow: [first, second] });
    await session.call('pay');
    const [{ step, extra } = {}] = found;
    const of = (gate: StateMachineGate<'open' | 'paid', 'PAY' | 'NOTE'>) =>
      currentStep(extra as StepSource, { gate })?.workflow;
    expect(step?.workflow).toBe('second');
    expect([of(first), of(second), of(third)]).toEqual(['first', 'second', undefined]);
    expect(currentStep(extra as StepSource, {})?.workflow).toBe('second');
  });

  it('still describes a step that is over, and can change nothing any more', async () => {
    const { session, found, ...app } = await open();
    const paying = await begins(app, 'pay', () => session.call('pay'));
    const [{ step, extra } = {}] = found;
    expect(step?.update(() => ({ sum: 5 }))).toEqual({ sum: 5 });
    paying.finish();
    await paying.answer;
    const later = currentStep(extra as StepSource);
    expect(later).toBe(step);
    expect(later).toMatchObject({ tool: 'pay', state: 'open', context: { sum: 5 } });
    expect(() => later?.update(() => 1)).toThrow('the step is over');
    await expect(later?.commitIn({})).rejects.toThrow('roll back');
    expect((await app.runs.read(session.id))?.context).toEqual({ sum: 5 });
  });

  it('finds the step of a handler that goes on after its outcome was called unknown', async () => {
    const { session, found, clock, ...app } = await open({ gate: { cancelGraceMs: 500 } });
    const paying = await begins(app, 'pay', () => session.post(callOf('p', 'pay')));
    const params = { requestId: 'p' };
    await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    await passUntil(clock, paying.answer);
    const step = currentStep(found[0]?.extra as StepSource);
    // The change is saved with the outcome, if one comes.
    expect(step?.update(() => 'late')).toBe('late');
    paying.finish();
    await expect
      .poll(async () => (await app.runs.read(session.id))?.snapshot)
      .toMatchObject({ state: 'paid', version: 1 });
    expect((await app.runs.read(session.id))?.context).toBe('late');
  });

  it('remembers each open try, and the last thousand that are over', () => {
    const begin = (): [Try, end: () => void] => {
      const held = Try.begin({} as never);
      const step = { key: { run: 'r', workflow: 'w' }, facade: {}, hasEnded: false, isOver: false };
      held.add(step as HandlersStep & { facade: CurrentStep });
      const end = () => {
        Object.assign(step, { hasEnded: true, isOver: true });
        held.rest();
      };
      return [held, end];
    };
    const knows = ({ id }: Try) =>
      currentStep({ requestId: 1, _meta: { [TRY]: id } }) !== undefined;
    const [running] = begin();
    const ended = Array.from({ length: 1_200 }, () => {
      const [held, end] = begin();
      expect(knows(held)).toBe(true);
      end();
      return held;
    });
    expect(ended.map(knows).lastIndexOf(false)).toBe(199);
    expect(ended.filter(knows)).toHaveLength(1_000);
    expect(knows(running)).toBe(true);
  });
});

describe('a try that a client names', () => {
  /** The id of a running step, as an upstream that echoes `_meta` gives it away. */
  async function leaked() {
    const bodies: string[] = [];
    const note: RequestHandler = (req, _res, next) =>
      next(void bodies.push(JSON.stringify(req.body ?? null)));
    const app = await open({ shape: { parser: true }, behind: [note] });
    const other = await app.sessionOf();
    const echoed = await other.call('note');
    const over = echoed.result.structuredContent.meta[TRY];
    expect(over).toMatch(/^[\w-]{24}$/);
    const held = await begins(app, 'pay', () => other.call('pay'));
    const open_ = String(app.found.at(-1)?.meta[TRY]);
    expect(open_).not.toBe(over);
    app.found.length = 0;
    bodies.length = 0;
    return { ...app, bodies, ids: [over, open_], held };
  }
  const spellings = [TRY, 'Mcp-Interlock/Try', 'mcp-interloc\u212a/try', 'mcp-interlock/try\0x'];

  it.each([
    ['a call that is no step', 'tools/call', { name: 'look', arguments: {} }],
    ['a prompt', 'prompts/get', { name: 'hello' }],
    ['a resource', 'resources/read', { uri: 'test://file' }],
  ])('finds nothing in %s', async (_, method, params) => {
    const { session, found, bodies, ids, held } = await leaked();
    for (const id of ids)
      for (const key of spellings)
        await session.ask(method, { ...params, _meta: { [key]: id, kept: 1 } });
    const calls = ids.length * spellings.length;
    expect(found.map(({ step, meta }) => [step, meta])).toEqual(
      Array.from({ length: calls }, () => [undefined, { kept: 1 }]),
    );
    for (const id of ids) expect(bodies.join()).not.toContain(id);
    held.finish();
    await held.answer;
  });

  it('is not forwarded in notifications, in other requests, or in a batch', async () => {
    const { session, found, bodies, ids, held } = await leaked();
    const [, id = ''] = ids;
    const _meta = { [TRY]: id, 'MCP-INTERLOCK/TRY': id };
    const message = (method: string, params: object, more = {}): WireMessage => {
      return { jsonrpc: '2.0', method, params: { ...params, _meta }, ...more };
    };
    await session.post(message('notifications/cancelled', { requestId: 'none' }));
    await session.post(message('tools/list', {}, { id: 'list' }));
    await session.post(message('completion/complete', {}, { id: 'complete' }));
    await session.post([
      message('tools/call', { name: 'look', arguments: {} }, { id: 'look' }),
      message('notifications/progress', { progressToken: 1, progress: 1 }),
      message('ping', {}, { id: 'ping' }),
    ]);
    expect(bodies).toHaveLength(4);
    expect(bodies.join()).not.toMatch(/interlock/i);
    expect(bodies.join()).not.toContain(id);
    expect(found).toMatchObject([{ tool: 'look', step: undefined, meta: {} }]);
    held.finish();
    await held.answer;
  });

  it("is replaced in a step by the gate's own, also in a body that no parser read", async () => {
    const { session, found } = await open();
    for (const key of spellings) {
      found.length = 0;
      const call = { name: 'note', arguments: {}, _meta: { big: 1, [key]: 'forged' } };
      await session.ask('tools/call', call);
      expect(found).toMatchObject([{ step: { tool: 'note' }, meta: { big: 1 } }]);
      expect(JSON.stringify(found[0]?.meta)).not.toContain('forged');
      expect(Object.keys(found[0]?.meta ?? {}).filter((each) => /try/i.test(each))).toEqual([TRY]);
    }
  });
});

describe('what names no call', () => {
  it.each<[unknown, string]>([
    ['text', '"text"'],
    [undefined, 'undefined'],
    [null, 'null'],
    [{}, 'an object'],
    [[], 'an empty array'],
    [7, '7'],
  ])('is refused, with what to do: %j', (source, shown) => {
    const asked = () => currentStep(source as StepSource);
    expect(asked).toThrow(STEP_ERROR);
    expect(asked).toThrow('extra (SDK 1), ctx (SDK 2), or the request');
    expect(asked).toThrow(`got ${shown}`);
    expect(asked).toThrow('first argument where the tool has no inputSchema');
  });

  it('throws where nothing is given and ambient is not imported', () => {
    expect(() => currentStep()).toThrow(STEP_ERROR);
    expect(() => currentStep()).toThrow("currentStep(extra), or import 'mcp-interlock/ambient'");
  });

  it('throws where `gate` is no gate', () => {
    const asked = () => currentStep({ requestId: 1 }, { gate: 'order' as never });
    expect(asked).toThrow(STEP_ERROR);
    expect(asked).toThrow('the gate must be a StateMachineGate, got "order"');
  });

  it('has no step, where no gate marked the call', () => {
    expect(currentStep({ requestId: 1 })).toBeUndefined();
    expect(currentStep({ requestId: 1, _meta: {} })).toBeUndefined();
    expect(currentStep({ requestId: 1, _meta: { [TRY]: 7 } })).toBeUndefined();
    expect(currentStep({ requestId: 1, _meta: { [TRY]: 'forged' } })).toBeUndefined();
    expect(currentStep({ mcpReq: {} })).toBeUndefined();
    expect(currentStep(new Request('http://localhost/'))).toBeUndefined();
  });
});

describe('runs, inside of a step and without mcp-interlock/ambient', () => {
  it('take { step } of each gate: update() joins the step, and send() throws', async () => {
    const [first, second] = [order('first'), order('second')];
    const { session, found, ...app } = await open({ workflow: [first, second] });
    const paying = await begins(app, 'pay', () => session.call('pay'));
    const step = found[0]?.step;
    for (const gate of [first, second]) {
      const runs = runsOf(gate, { sessions: app.sessions });
      const change = () => ({ by: 'handler' });
      const done = { updated: true, context: { by: 'handler' } };
      expect(await runs.update(session.id, change, { step })).toEqual(done);
      const sent = runs.send(session.id, 'NOTE', { step });
      await expect(sent).rejects.toThrow('inside a step of the same run');
    }
    paying.finish();
    await paying.answer;
    for (const gate of [first, second])
      expect(await runsOf(gate, { sessions: app.sessions }).read(session.id)).toMatchObject({
        snapshot: { state: 'paid', version: 1 },
        context: { by: 'handler' },
      });
    expect(app.warnings).toEqual([]);
  });

  it('move another run, and the same run once the step is over', async () => {
    const { session, found, ...app } = await open();
    const other = await app.sessionOf();
    await other.call('note');
    await session.call('note');
    const step = found.at(-1)?.step;
    const sent = { sent: true, changed: true, state: 'paid' };
    expect(await app.runs.send(other.id, 'PAY', { step })).toEqual(sent);
    expect(await app.runs.send(session.id, 'PAY', { step })).toEqual(sent);
  });

  it('wait for a step that they are not given, and warn once of that', async () => {
    const { session, found, ...app } = await open();
    const paying = await begins(app, 'pay', () => session.call('pay'));
    const run = found[0]?.step?.run ?? '';
    const updating = app.runs.update(run, () => ({ late: true }));
    const again = app.runs.update(run, () => ({ late: true }));
    const told = runsOf(order(), {
      store: app.store,
      onWarning: (text) => app.warnings.push(text),
    });
    expect(app.warnings).toHaveLength(1);
    expect(app.warnings[0]).toContain('runs.update() waits for a step of the same run');
    expect(app.warnings[0]).toContain('{ step: currentStep(extra) }');
    expect(app.warnings[0]).toContain('mcp-interlock/ambient');
    // Another gate warns once more.
    const sending = told.send(run, 'NOTE');
    expect(app.warnings).toHaveLength(2);
    paying.finish();
    await paying.answer;
    const done = { updated: true, context: { late: true } };
    const updated = Promise.all([updating, again]);
    expect(await passUntil(app.clock, updated)).toEqual([done, done]);
    expect(await passUntil(app.clock, sending)).toEqual({ sent: false, reason: 'unhandled' });
    expect((await app.runs.read(run))?.snapshot.state).toBe('paid');
  });

  it('warn of nothing where no step is open, also in a worker with the same store', async () => {
    const { session, ...app } = await open();
    await session.call('note');
    await app.runs.update(session.id, () => 1);
    const onWarning = (text: string) => void app.warnings.push(text);
    const worker = runsOf(order(), { store: app.store, onWarning });
    expect(await worker.send(session.id, 'PAY')).toMatchObject({ sent: true, state: 'paid' });
    expect(app.warnings).toEqual([]);
  });

  it.each([
    ['a copy', { run: 'r' }],
    ['text', 'step'],
  ])('refuse what is no step: %s', async (_, step) => {
    const { runs } = await scene();
    const wrong = expect.objectContaining({
      code: 'ERR_INTERLOCK_CONFIG',
      message: expect.stringContaining('expected what currentStep() returned'),
    });
    await expect(runs.send('r', 'X', { step: step as never })).rejects.toEqual(wrong);
    await expect(runs.update('r', () => 1, { step: step as never })).rejects.toEqual(wrong);
  });
});
