import { describe, expect, it } from 'vitest';
import { digestOf } from '../../src/basics/digest.ts';
import { fsmGate, memoryStore, notForwarded, StateMachineGate } from '../../src/index.ts';
import { type Json, verifyTrail } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { plainStore } from '../helpers/operations.ts';
import { begins, type Scene, scene } from '../helpers/scene.ts';

const LEASE = 8_000;

/** The principal of `x-user: ann`. */
const ANN = JSON.stringify(['https://issuer.example', 'ann']);

/** The checkout in its third deployment, with an event for a payment that fails. */
const thirdDeployment = () =>
  new StateMachineGate(
    {
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { CHECKOUT: 'payment', DECLINE: 'has_items' } },
        payment: { on: { PAY: 'confirmed', DECLINED: 'has_items' } },
        confirmed: { type: 'final' },
      },
    },
    { version: 3 },
  )
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['payment'], { success: 'PAY', failure: 'DECLINED' });

const outcomes = async (app: Scene, run: string) =>
  (await app.runs.history(run)).map(({ seq, version, attempt, outcome, kind, from, to }) => ({
    ...{ seq, version, attempt, outcome, from },
    ...(kind !== undefined && { kind }),
    ...(to !== undefined && { to }),
  }));

describe('the trail of a run', () => {
  it('has an entry of each forwarded call, with every outcome', async () => {
    const app = await scene();
    const client = await app.client();
    await client.raw.call('cart.add_item', { fail: true });
    await client.raw.call('cart.add_item', { fail: true });
    await client.calls('cart.add_item');
    await client.calls('cart.checkout');
    await client.raw.call('cart.pay', { fail: true });
    await client.calls('cart.pay');
    const failed = { outcome: 'failed', kind: 'tool_error' };
    expect(await outcomes(app, client.run)).toEqual([
      { seq: 1, version: 0, attempt: 1, from: 'empty', ...failed },
      { seq: 2, version: 0, attempt: 2, from: 'empty', ...failed },
      { seq: 3, version: 1, attempt: 3, outcome: 'succeeded', from: 'empty', to: 'has_items' },
      { seq: 4, version: 2, attempt: 1, outcome: 'succeeded', from: 'has_items', to: 'payment' },
      { seq: 5, version: 2, attempt: 1, from: 'payment', ...failed },
      { seq: 6, version: 3, attempt: 2, outcome: 'succeeded', from: 'payment', to: 'confirmed' },
    ]);
  });

  it('says which deployment, and who called what with which arguments and id', async () => {
    const app = await scene({ workflow: thirdDeployment() });
    const ann = await app.session({ 'x-user': 'ann' });
    await ann.post({
      jsonrpc: '2.0',
      id: 'first',
      method: 'tools/call',
      params: { name: 'cart.add_item', arguments: { sku: 'a' } },
    });
    const [entry] = await app.runs.history(ann.id);
    expect(entry).toEqual({
      seq: 1,
      version: 1,
      attempt: 1,
      at: expect.any(Number),
      from: 'empty',
      to: 'has_items',
      event: 'ADD_ITEM',
      outcome: 'succeeded',
      tool: 'cart.add_item',
      digest: digestOf({ sku: 'a' }),
      actor: ANN,
      requestId: 'first',
      workflowVersion: 3,
    });
  });

  it('says of a failure that moves the run where it led', async () => {
    const app = await scene({ workflow: thirdDeployment() });
    const session = await app.sessionAt('payment');
    await session.call('cart.pay', { fail: true });
    expect((await app.runs.history(session.id)).at(-1)).toMatchObject({
      event: 'DECLINED',
      outcome: 'failed',
      kind: 'tool_error',
      from: 'payment',
      to: 'has_items',
    });
  });

  it('tells an error of the protocol from one of the tool', async () => {
    const app = await scene();
    const session = await app.session();
    await session.call('cart.add_item', { sku: 7 });
    const [entry] = await app.runs.history(session.id);
    expect(entry).toMatchObject({ outcome: 'failed' });
    expect(['rpc_error', 'tool_error']).toContain(entry?.kind);
    expect(entry).not.toHaveProperty('to');
  });

  it('says that nothing ran if the host did not forward the call', async () => {
    const app = await scene({
      shape: { parser: true },
      behind: [
        (req, res, next) => {
          if (!JSON.stringify(req.body ?? {}).includes('tools/call')) return next();
          void notForwarded(req);
          res.status(504).end();
        },
      ],
    });
    const session = await app.session();
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'cart.add_item' } };
    await session.post(call).catch(() => {});
    await expect
      .poll(() => outcomes(app, session.id))
      .toEqual([
        {
          seq: 1,
          version: 0,
          attempt: 1,
          outcome: 'not_run',
          kind: 'not_forwarded',
          from: 'empty',
        },
      ]);
  });

  it('has nothing of a call that was refused, unless that is asked for', async () => {
    const silent = await scene();
    const client = await silent.client();
    await client.isRefused('cart.pay', 'state');
    expect(await silent.runs.history(client.run)).toEqual([]);
    const app = await scene({ gate: { trail: { refusals: true } } });
    const session = await app.session({ 'x-user': 'ann' });
    await session.call('cart.add_item');
    await session.call('cart.pay', { sku: 'a' });
    await session.call('cart.checkout');
    expect(await outcomes(app, session.id)).toEqual([
      { seq: 1, version: 1, attempt: 1, outcome: 'succeeded', from: 'empty', to: 'has_items' },
      { seq: 2, version: 1, attempt: 0, outcome: 'refused', kind: 'state', from: 'has_items' },
      { seq: 3, version: 2, attempt: 1, outcome: 'succeeded', from: 'has_items', to: 'payment' },
    ]);
    const [, refused] = await app.runs.history(session.id);
    expect(refused).toMatchObject({
      tool: 'cart.pay',
      actor: ANN,
      digest: digestOf({ sku: 'a' }),
    });
  });

  it('refuses even if the store fails to keep the refusal', async () => {
    const app = await scene({ gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    app.store.fail('append');
    await client.isRefused('cart.pay', 'state');
    expect(app.errors).toHaveLength(1);
  });

  it('keeps no arguments, unless a function of the app lets them through', async () => {
    const redact = (args: Json): Json => ({ ...(args as object), card: '…' });
    const app = await scene({ gate: { trail: { args: redact } } });
    const client = await app.client();
    await client.calls('cart.add_item', { sku: 'a' });
    const [entry] = await app.runs.history(client.run);
    expect(entry?.args).toEqual({ sku: 'a', card: '…' });
  });

  it('gives the redaction a copy, and keeps no arguments where it throws', async () => {
    const failing = (args: Json): Json => {
      (args as { sku: string }).sku = 'changed';
      throw new Error('the redaction failed');
    };
    const seen: unknown[] = [];
    const app = await scene({
      shape: { parser: true },
      gate: { trail: { args: failing } },
      behind: [
        (req, _res, next) => {
          seen.push((req.body as { params?: { arguments?: unknown } }).params?.arguments);
          next();
        },
      ],
    });
    const client = await app.client();
    await client.calls('cart.add_item', { sku: 'a' });
    expect(seen).toContainEqual({ sku: 'a' });
    const [entry] = await app.runs.history(client.run);
    expect(entry).not.toHaveProperty('args');
    expect(app.errors).toEqual([expect.objectContaining({ message: 'the redaction failed' })]);
  });

  it('has the attempt of a killed process once another call takes the step over', async () => {
    const app = await scene({ gate: { whenEnded: 'keep' } });
    const session = await app.session({ 'x-user': 'ann' });
    const note = { tool: 'cart.add_item', digest: 'd', actor: 'ann', requestId: 4 };
    const claimed = await app.data.claim({
      run: session.id,
      workflow: 'checkout',
      token: `dead ${session.id}`,
      step: { tool: 'cart.add_item', digest: 'd', uncertain: 'retry' },
      entry: note,
      states: undefined,
      initial: { state: 'empty', updatedAt: 0 },
      leaseMs: LEASE,
      ttlMs: 24 * 3_600_000,
    });
    expect(claimed.status).toBe('claimed');
    app.clock.advance(LEASE);
    await session.call('cart.add_item');
    expect(await outcomes(app, session.id)).toEqual([
      { seq: 1, version: 0, attempt: 1, outcome: 'unknown', kind: 'taken_over', from: 'empty' },
      { seq: 2, version: 1, attempt: 2, outcome: 'succeeded', from: 'empty', to: 'has_items' },
    ]);
    expect((await app.runs.history(session.id))[0]).toMatchObject(note);
  });

  it.each([
    ['succeeded', { event: 'PAY', to: 'confirmed', version: 3 }],
    ['failed', { event: null, version: 2 }],
  ] as const)('keeps what a person said who resolved a held run as %s', async (outcome, said) => {
    const app = await scene({
      behind: [
        (req, res, next) =>
          req.method === 'POST' && req.headers['x-cut'] === 'yes' ? void res.destroy() : next(),
      ],
    });
    const session = await app.sessionAt('payment', { 'x-user': 'ann' });
    const call = { jsonrpc: '2.0', id: 9, method: 'tools/call', params: { name: 'cart.pay' } };
    await session.post(call, { 'x-cut': 'yes' }).catch(() => {});
    await expect.poll(() => app.errors.length).toBe(1);
    app.clock.advance(LEASE);
    await app.run(session.id).is('held');
    const note = 'looked up at the bank: ch_7';
    await app.runs.resolve(session.id, outcome, { actor: 'support', note });
    const entry = (await app.runs.history(session.id)).at(-1);
    expect(entry).toMatchObject({
      ...said,
      seq: 3,
      attempt: 1,
      from: 'payment',
      outcome,
      kind: 'resolved',
      tool: 'cart.pay',
      requestId: 9,
      actor: 'support',
      calledBy: ANN,
      note,
    });
    if (outcome === 'failed') expect(entry).not.toHaveProperty('to');
  });

  it('has the late outcome alone', async () => {
    const app = await scene({ gate: { cancelGraceMs: 1 } });
    const session = await app.session();
    const body = { jsonrpc: '2.0', id: 9, method: 'tools/call', params: { name: 'cart.add_item' } };
    const call = await begins(app, 'cart.add_item', () => session.post(body));
    const cancelled = { method: 'notifications/cancelled', params: { requestId: 9 } };
    await session.post({ jsonrpc: '2.0', ...cancelled });
    app.clock.advance(10);
    call.finish();
    await call.answer;
    await expect
      .poll(() => outcomes(app, session.id))
      .toEqual([
        { seq: 1, version: 1, attempt: 1, outcome: 'succeeded', from: 'empty', to: 'has_items' },
      ]);
  });

  it('is chained by hashes if the store does that', async () => {
    const data = memoryStore({ chainTrail: true });
    const app = await scene({ data, gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.isRefused('cart.pay', 'state');
    await client.raw.call('cart.add_item', { fail: true });
    await client.calls('cart.add_item');
    await client.isRefused('cart.pay', 'state');
    await app.runs.send(client.run, 'CHECKOUT', { actor: 'ann', payload: { from: 'a page' } });
    const trail = await app.runs.history(client.run);
    expect(trail.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
    const from = { run: client.run, workflow: 'checkout' };
    expect(verifyTrail(trail, { from })).toEqual([]);
    const altered = trail.map((each) => (each.seq === 2 ? { ...each, actor: 'bob' } : each));
    expect(verifyTrail(altered, { from })).toEqual([{ index: 1, seq: 2, fault: 'altered' }]);
  });
});

describe('fsmGate({ trail })', () => {
  it('refuses unknown options', () => {
    expect(() => fsmGate(checkoutGate(), { trail: { refusal: true } as never })).toThrow(
      /ERR_INTERLOCK_CONFIG|unknown|refusal/,
    );
    expect(() => fsmGate(checkoutGate(), { trail: { args: true } as never })).toThrow(/args/);
  });

  it('warns once if the store cannot keep refused calls', async () => {
    const store = plainStore(memoryStore());
    const app = await scene({ session: { store }, gate: { trail: { refusals: true } } });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.isRefused('cart.pay', 'state');
    await client.isRefused('cart.pay', 'state');
    expect(app.warnings).toEqual([expect.stringContaining('cannot keep refused calls')]);
  });
});
