import { describe, expect, it } from 'vitest';
import { handleKey, principalKey, StateMachineGate, sessionKey } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { ClaimRequest } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, reasonOf } from '../helpers/raw.ts';
import { begins, pass, type Scene, scene } from '../helpers/scene.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const LEASE = 8_000;

/** A payment of a killed process: only its claim is left. */
async function leavePayment(
  app: Scene,
  run: string,
  changes: Partial<ClaimRequest> = {},
): Promise<string> {
  const result = await app.data.claim({
    run,
    workflow: 'checkout',
    token: `dead ${run}`,
    step: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
    states: undefined,
    initial: { state: 'payment', updatedAt: 0 },
    leaseMs: LEASE,
    ttlMs: DAY,
    ...changes,
  });
  expect(result.status).toBe('claimed');
  return result.status === 'claimed' ? result.idempotencyKey : '';
}

describe('a held run', () => {
  it('outlives its session, which is over for its client', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const idempotencyKey = await leavePayment(app, session.id);
    app.clock.advance(3 * DAY);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
    expect((await session.post({ jsonrpc: '2.0', id: 2, method: 'tools/list' })).status).toBe(404);
    const { runs: held } = await app.runs.held();
    expect(held).toMatchObject([
      { run: session.id, sessionEnded: true, status: 'held', claim: { idempotencyKey } },
    ]);
    expect(await app.runs.count()).toMatchObject({ held: 1 });

    const resolved = await app.runs.resolve(session.id, 'succeeded', { actor: 'ann' });
    expect(resolved).toEqual({ resolved: true, state: 'confirmed' });
    expect((await app.runs.held()).runs).toEqual([]);
    app.clock.advance(DAY - 1);
    expect((await app.runs.history(session.id)).at(-1)).toMatchObject({ actor: 'ann' });
    expect((await session.post(callOf(3, 'cart.view'))).status).toBe(404);
    app.clock.advance(1);
    expect(await app.runs.read(session.id)).toBeUndefined();
  });

  it('outlives the DELETE of its client', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const session = await app.sessionAt('payment');
    await leavePayment(app, session.id);
    app.clock.advance(LEASE);
    expect((await session.end()).status).toBe(200);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
    expect((await session.end()).status).toBe(404);
    expect((await app.runs.held()).runs).toMatchObject([{ run: session.id, sessionEnded: true }]);
    const another = await app.session();
    expect(await another.tools()).toEqual(['cart.add_item', 'cart.view']);
  });

  it('says in another process too that its session has ended', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    await leavePayment(app, session.id);
    await session.end();
    app.clock.advance(LEASE);
    const elsewhere = runsOf(checkoutGate(), { store: app.data });
    expect(await elsewhere.read(session.id)).toMatchObject({ status: 'held', sessionEnded: true });
    expect(await elsewhere.send(session.id, 'PAY')).toEqual({ sent: false, reason: 'unknown-run' });
  });

  it('of a principal is met again by its next call, however late', async () => {
    const app = await scene({
      session: { key: [principalKey()], principal: () => 'ann', serveStreams: false },
    });
    const run = principalKey().runKey('ann');
    const client = await app.session();
    await client.call('cart.add_item');
    await leavePayment(app, run);
    app.clock.advance(40 * DAY);
    const back = await app.session();
    expect(reasonOf(await back.call('cart.add_item'))).toBe('held');
    await app.runs.resolve(run, 'failed');
    expect((await back.call('cart.add_item')).result.isError).not.toBe(true);
    await app.run(run).isIn('has_items');
  });

  it('of a handle is unknown to its callers once it was idle for too long', async () => {
    const app = await scene({ session: { key: [handleKey('order', { createdBy: 'begin' })] } });
    const run = handleKey('order', { createdBy: 'begin' }).runKey('7', undefined);
    await leavePayment(app, run, { create: {} });
    const session = await app.session();
    const call = callOf(1, 'cart.add_item', { order: '7' });
    app.clock.advance(LEASE);
    expect(reasonOf((await session.post(call)).messages[0])).toBe('held');
    app.clock.advance(2 * DAY);
    const later = await app.session();
    expect(reasonOf((await later.post({ ...call, id: 2 })).messages[0])).toBe('no-run');
    expect((await app.runs.held()).runs).toMatchObject([{ run, sessionEnded: true }]);
  });
});

describe('a DELETE', () => {
  it("ends its own session's run, and not that of the principal", async () => {
    const app = await scene({
      session: { key: [principalKey(), sessionKey()], principal: () => 'ann' },
    });
    const run = principalKey().runKey('ann');
    const session = await app.session();
    await session.call('cart.add_item');
    expect((await session.end()).status).toBe(200);
    await app.run(run).isIn('has_items');
    expect(await app.runs.read(run)).not.toHaveProperty('sessionEnded');
    expect(await app.data.read(session.id, DAY)).toBeUndefined();
  });

  it.each(['hold', 'retry'] as const)('saves what a running `%s` step comes to', async (kind) => {
    const workflow = checkoutGate(kind);
    const app = await scene({ workflow, shape: { mode: 'stateless' } });
    const session = await app.sessionAt('payment');
    const pay = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    expect((await session.end()).status).toBe(200);
    pay.finish();
    expect((await pay.answer).result.isError).not.toBe(true);
    expect(await app.runs.read(session.id)).toMatchObject({
      state: 'confirmed',
      sessionEnded: true,
    });
    expect((await session.post(callOf(9, 'cart.view'))).status).toBe(404);
  });
});

describe('the idempotency key of a `retry` step of unknown outcome', () => {
  const workflow = () =>
    new StateMachineGate({
      id: 'checkout',
      initial: 'payment',
      states: { payment: { on: { PAY: 'payment' } } },
    }).bindTool('cart.pay', 'payment', { success: 'PAY', uncertain: 'retry' });

  /** Begins a call that is given up, and gives its key. */
  async function tried(app: Scene, run: string): Promise<string | undefined> {
    const session = await app.session();
    const pay = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const { claim } = (await app.data.read(run, DAY))?.workflows.checkout ?? {};
    await pass(app.clock, 3_000);
    await pay.answer;
    pay.finish();
    await pass(app.clock, LEASE + 1_000);
    return claim?.idempotencyKey;
  }

  it('waits 30 days for the next call of a principal', async () => {
    const app = await scene({
      workflow: workflow(),
      gate: { maxStepMs: 2_000 },
      session: { key: [principalKey()], principal: () => 'ann' },
    });
    const run = principalKey().runKey('ann');
    const key = await tried(app, run);
    expect(key).toBeDefined();
    app.clock.advance(30 * DAY - 60_000);
    expect(await tried(app, run)).toBe(key);
    app.clock.advance(30 * DAY);
    expect(await app.data.history({ run, workflow: 'checkout' })).toEqual([]);
    expect(await tried(app, run)).not.toBe(key);
  });

  it('waits as long as its session, and no longer', async () => {
    const app = await scene({ workflow: workflow(), gate: { maxStepMs: 2_000 } });
    const session = await app.session();
    const pay = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    await pass(app.clock, 3_000);
    await pay.answer;
    pay.finish();
    app.clock.advance(DAY - 60_000);
    expect((await session.post(callOf(8, 'cart.view'))).status).toBe(200);
    const claim = (await app.data.read(session.id, DAY))?.workflows.checkout?.claim;
    expect(claim?.idempotencyKey).toBeDefined();
    app.clock.advance(DAY);
    expect((await session.post(callOf(9, 'cart.view'))).status).toBe(404);
    expect(await app.data.read(session.id, DAY)).toBeUndefined();
  });

  it('is not dropped for a seventeenth, which is refused', async () => {
    const app = await scene({ workflow: workflow() });
    const session = await app.session();
    const step = { tool: 'cart.pay', uncertain: 'retry' } as const;
    for (let index = 0; index < 16; index++) {
      await leavePayment(app, session.id, {
        token: `dead ${index}`,
        step: { ...step, digest: `digest ${index}` },
      });
      app.clock.advance(LEASE);
    }
    const answer = await session.call('cart.pay');
    expect(reasonOf(answer)).toBe('too-many-held');
    expect(answer.result.content[0].text).toContain('too many earlier calls ended');
  });
});
