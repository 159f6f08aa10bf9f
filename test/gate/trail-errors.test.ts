import type { RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { errorsWithin, MOST_ERROR_BYTES } from '../../src/gate/try-errors.ts';
import { fsmGate, memoryStore, StateMachineGate, type TrailOptions } from '../../src/index.ts';
import { type Json, verifyTrail } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession } from '../helpers/raw.ts';
import { type Scene, scene } from '../helpers/scene.ts';
import { createTask, startTasks } from '../helpers/task-server.ts';
import { toolServer } from '../helpers/tool-server.ts';

type Errors = NonNullable<TrailOptions['errors']>;

const words: Errors = ({ content, message }) => content?.map(({ text = '' }) => text) ?? message;

const errorsIn = async (app: Scene, run: string) =>
  (await app.runs.history(run)).map(({ errors }) => errors);

/** An upstream that answers each call with a JSON-RPC error. */
const answersError =
  (error: unknown): RequestHandler =>
  (req, res, next) =>
    req.body?.method === 'tools/call'
      ? void res.json({ jsonrpc: '2.0', id: req.body.id, error })
      : next();

describe('fsmGate({ trail: { errors } })', () => {
  it('keeps nothing of why a step failed, unless a function of the app lets it through', async () => {
    const silent = await scene();
    const quiet = await silent.client();
    await quiet.raw.call('cart.add_item', { fail: true });
    expect((await silent.runs.history(quiet.run))[0]).not.toHaveProperty('errors');
    const app = await scene({ gate: { trail: { errors: words } } });
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    await client.calls('cart.add_item');
    expect(await errorsIn(app, client.run)).toEqual([['cart.add_item failed'], undefined]);
  });

  it('gives the function the tool and the kind with each failure, and no success', async () => {
    const asked: unknown[] = [];
    const errors: Errors = (answer, call) => {
      asked.push([answer, call]);
      return undefined;
    };
    const app = await scene({ gate: { trail: { errors } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.raw.call('cart.checkout', { fail: true });
    await client.isRefused('cart.pay', 'state');
    const failed = { isError: true, content: [{ type: 'text', text: 'cart.checkout failed' }] };
    expect(asked).toEqual([[failed, { tool: 'cart.checkout', kind: 'tool_error' }]]);
    expect((await app.runs.history(client.run)).at(-1)).not.toHaveProperty('errors');
  });

  it('gives it the error of a call that was answered with a JSON-RPC error', async () => {
    const error = { code: -31_999, message: 'no stock', data: { sku: 'a' } };
    const errors: Errors = ({ code = 0, message = '', data = null }, { kind }) => [
      ...[code, message, kind],
      data,
    ];
    const app = await scene({
      shape: { parser: true },
      gate: { trail: { errors } },
      behind: [answersError(error)],
    });
    const session = await app.session();
    await session.call('cart.add_item');
    expect((await app.runs.history(session.id))[0]).toMatchObject({
      kind: 'rpc_error',
      errors: [-31_999, 'no stock', 'rpc_error', { sku: 'a' }],
    });
  });

  it.each<[string, unknown, Json | undefined]>([
    ['a single text', 'sold out', ['sold out']],
    ['a single value', { code: 7 }, [{ code: 7 }]],
    ['an empty list', [], undefined],
    ['null', null, [null]],
  ])('takes %s', async (_, said, kept) => {
    const app = await scene({ gate: { trail: { errors: () => said as Json } } });
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    expect(await errorsIn(app, client.run)).toEqual([kept]);
    expect(app.errors).toEqual([]);
  });

  it.each<[string, Errors, string]>([
    [
      'throws',
      () => {
        throw new Error('no idea');
      },
      'no idea',
    ],
    ['returns a date', () => [new Date(0)] as never, 'which is not JSON'],
    ['returns a promise', () => Promise.reject(new Error('late')) as never, 'which is not JSON'],
  ])('tells onError and keeps none where the function %s', async (_, errors, told) => {
    const app = await scene({ gate: { trail: { errors } } });
    const client = await app.client();
    const { isError, text } = await client.raw.call('cart.add_item', { fail: true });
    expect({ isError, text }).toEqual({ isError: true, text: 'cart.add_item failed' });
    const [entry] = await app.runs.history(client.run);
    expect(entry).toMatchObject({ outcome: 'failed', kind: 'tool_error' });
    expect(entry).not.toHaveProperty('errors');
    expect(app.errors.map(String)).toEqual([expect.stringContaining(told)]);
  });

  it('gives the function a copy: the client gets the answer as the tool gave it', async () => {
    const errors: Errors = (answer) => {
      const [first] = answer.content as { text: string }[];
      if (first) first.text = 'changed';
      return 'kept';
    };
    const app = await scene({ gate: { trail: { errors } } });
    const client = await app.client();
    const { text } = await client.raw.call('cart.add_item', { fail: true });
    expect(text).toBe('cart.add_item failed');
    expect(await errorsIn(app, client.run)).toEqual([['kept']]);
  });

  it('keeps them with a failure that moves the run, and with one that is only counted', async () => {
    let asked = 0;
    const errors: Errors = (answer, call) => {
      asked++;
      return words(answer, call);
    };
    const workflow = new StateMachineGate({
      initial: 'open',
      states: { open: { on: { PAY: 'paid', DECLINED: 'closed' } }, paid: {}, closed: {} },
    }).bindTool('pay', 'open', { success: 'PAY', failure: 'DECLINED', retries: 1 });
    const app = await scene({
      workflow,
      makeServer: toolServer(['pay']),
      gate: { trail: { errors } },
    });
    const session = await app.session();
    for (let time = 0; time < 2; time++) await session.call('pay', { fail: true });
    const said = (await app.runs.history(session.id)).map(({ to, event, errors: kept }) => ({
      ...{ to, event, kept },
    }));
    const kept = ['pay done'];
    expect(said).toEqual([
      { to: 'open', event: null, kept },
      { to: 'closed', event: 'DECLINED', kept },
    ]);
    expect(asked).toBe(2);
  });

  it('asks the function of each gate of the route, for its own trail', async () => {
    const stock = new StateMachineGate({
      id: 'stock',
      initial: 'full',
      states: { full: { on: { TAKE: 'full' } } },
    }).bindTool('cart.add_item', 'full', 'TAKE');
    const app = await scene({
      workflow: [
        [checkoutGate(), { trail: { errors: () => 'first' } }],
        [stock, { trail: { errors: () => 'second' } }],
      ],
    });
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    const read = async (workflow: string) =>
      (await app.data.history({ run: client.run, workflow })).map(({ errors }) => errors);
    expect(await read('checkout')).toEqual([['first']]);
    expect(await read('stock')).toEqual([['second']]);
  });

  it('does not ask the function where the binding says that the outcome is unknown', async () => {
    let asked = 0;
    const workflow = new StateMachineGate({
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('pay', 'open', { success: 'PAY', errors: 'unknown' });
    const errors: Errors = () => ++asked;
    const makeServer = toolServer(['pay']);
    const app = await scene({ workflow, makeServer, gate: { trail: { errors } } });
    const session = await app.session();
    await session.call('pay', { fail: true });
    await app.run(session.id).is('held');
    expect(asked).toBe(0);
  });

  it('keeps them of a failed task whose end another process sees', async () => {
    const tasks = startTasks();
    const gate = { trail: { errors: words } };
    const shape = { mode: 'stateless' } as const;
    const app = await scene({ makeServer: tasks.makeServer, shape });
    const beside = await scene({ makeServer: tasks.makeServer, shape, gate, beside: app });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await tasks.finish(taskId, 'sold out', 'failed');
    await RawSession.resume(beside.url, session.id).ask('tasks/result', { taskId });
    expect(await errorsIn(app, session.id)).toEqual([['sold out']]);
  });

  it('keeps them in the chain of hashes', async () => {
    const data = memoryStore({ chainTrail: true });
    const app = await scene({ data, gate: { trail: { errors: words } } });
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    const trail = await app.runs.history(client.run);
    const from = { run: client.run, workflow: 'checkout' };
    expect(verifyTrail(trail, { from })).toEqual([]);
    const altered = trail.map((entry) => ({ ...entry, errors: ['another'] }));
    expect(verifyTrail(altered, { from })).toMatchObject([{ fault: 'altered' }]);
  });

  it('is erased with the run', async () => {
    const app = await scene({ gate: { trail: { errors: words } } });
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    expect(await errorsIn(app, client.run)).toHaveLength(1);
    await app.runs.delete(client.run);
    expect(await app.runs.history(client.run)).toEqual([]);
  });

  it('must be a function', () => {
    const trail = { errors: true } as never;
    expect(() => fsmGate(checkoutGate(), { trail })).toThrow(/trail\.errors/);
  });
});

describe('the errors of a refused call', () => {
  it("are the guard's own words", async () => {
    const workflow = checkoutGate().bindTool('cart.view', 'has_items', {
      guard: ({ args }) => args.sku === 'a' || 'Only "a" is on show',
    });
    const app = await scene({ workflow, gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.isRefused('cart.view', 'guard', { sku: 'b' });
    expect((await app.runs.history(client.run)).at(-1)).toMatchObject({
      ...{ outcome: 'refused', kind: 'guard', errors: ['Only "a" is on show'] },
    });
  });

  it('are the words that the model read, for any other reason', async () => {
    const workflow = checkoutGate().bindTool('cart.view', 'has_items', { guard: () => false });
    const app = await scene({ workflow, gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    const read = [
      await client.isRefused('cart.pay', 'state'),
      await client.isRefused('cart.view', 'guard'),
    ];
    const kept = (await errorsIn(app, client.run)).slice(1);
    expect(kept.map((errors) => `[System: ${errors}]`)).toEqual(read.map(({ text }) => text));
    expect(kept[0]).toEqual([expect.stringContaining('call cart.checkout first')]);
  });

  it('are bounded as any others are', async () => {
    const workflow = checkoutGate().bindTool('cart.view', 'has_items', {
      guard: () => 'no '.repeat(3_000),
    });
    const app = await scene({ workflow, gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.isRefused('cart.view', 'guard');
    const [, kept] = await errorsIn(app, client.run);
    expect(kept).toEqual([
      expect.stringMatching(/^(no )+n?o?…$/),
      expect.stringContaining('1 of 1 cut'),
    ]);
  });
});

describe('the bounds of errors', () => {
  const bytesOf = (errors: unknown) => Buffer.byteLength(JSON.stringify(errors));

  it('keep any list in at most 4,096 bytes of JSON, and say what is cut or left out', () => {
    const text = fc.string({ unit: 'binary', maxLength: 6_000, size: 'max' });
    const value = fc.oneof(text, fc.jsonValue() as fc.Arbitrary<Json>);
    fc.assert(
      fc.property(fc.array(value, { minLength: 1, maxLength: 6 }), (said) => {
        const kept = errorsWithin(said as Json[]) ?? [];
        expect(bytesOf(kept)).toBeLessThanOrEqual(MOST_ERROR_BYTES);
        if (bytesOf(said) <= MOST_ERROR_BYTES) expect(kept).toEqual(said);
        else expect(kept.at(-1)).toMatch(/^\[\d of \d cut or left out: at most 4096 bytes/);
      }),
      { numRuns: 200 },
    );
  });

  it('cut a text between two code points, and go on with what still fits', () => {
    const [cut, last] = errorsWithin('𝄞'.repeat(3_000)) ?? [];
    expect(cut).toMatch(/^(𝄞)+…$/u);
    expect(last).toBe('[1 of 1 cut or left out: at most 4096 bytes, 128 levels deep]');
    const big = { text: 'x'.repeat(5_000) };
    expect(errorsWithin(['first', big, 'last'])).toEqual([
      'first',
      'last',
      '[1 of 3 cut or left out: at most 4096 bytes, 128 levels deep]',
    ]);
    const many = errorsWithin(Array.from({ length: 10_000 }, () => 1)) ?? [];
    expect(many.at(-1)).toMatch(/^\[\d+ of 10000 cut or left out/);
    expect(bytesOf(many)).toBeLessThanOrEqual(MOST_ERROR_BYTES);
  });

  it('leave out what is nested deeper than 128 levels', () => {
    const nested = (levels: number): Json => JSON.parse('['.repeat(levels) + ']'.repeat(levels));
    expect(errorsWithin(['why', nested(128)])).toEqual(['why', nested(128)]);
    expect(errorsWithin(['why', nested(129)])).toEqual([
      'why',
      expect.stringContaining('1 of 2 cut or left out'),
    ]);
  });
});
