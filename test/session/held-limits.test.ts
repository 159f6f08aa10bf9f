import { describe, expect, it } from 'vitest';
import type { SessionStoreOptions } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, type RawSession, reasonOf } from '../helpers/raw.ts';
import { begins, type Scene, scene } from '../helpers/scene.ts';

const byUser: SessionStoreOptions = {
  principal: ({ headers }) => headers['x-user'] as string | undefined,
  clientOf: ({ headers }) => headers['x-address'] as string | undefined,
  maxHeldPerCaller: 2,
  maxHeld: 6,
};
const ann = { 'x-user': 'ann' };

/** A session whose caller hung up while its payment was at work: its handler never ends. */
async function hangUp(app: Scene, headers: Record<string, string> = {}): Promise<RawSession> {
  const session = await app.sessionAt('payment', headers);
  const before = app.ledger.calls.length;
  app.ledger.gates.set('cart.pay', new Promise(() => {}));
  const stream = await session.stream(callOf(7, 'cart.pay'));
  await expect.poll(() => app.ledger.calls.slice(before)).toContain('cart.pay');
  stream.cut();
  app.ledger.gates.delete('cart.pay');
  return session;
}

/** What a further session's first call of a step is answered with. */
async function tries(app: Scene, headers: Record<string, string> = {}): Promise<unknown> {
  const session = await app.session(headers);
  const answer = await session.call('cart.add_item');
  return reasonOf(answer) ?? 'ran';
}

describe('runs that a caller leaves with an unknown outcome', () => {
  it('are so many at most, and then its steps are refused, and no other caller’s', async () => {
    const app = await scene({ session: byUser });
    await hangUp(app, ann);
    expect(await tries(app, ann)).toBe('ran');
    await hangUp(app, ann);
    await expect.poll(() => tries(app, ann)).toBe('too-many-held');
    expect(await tries(app, { 'x-user': 'bob' })).toBe('ran');
    expect(await tries(app)).toBe('ran');
  });

  it('are counted for a client where no principal is known', async () => {
    const app = await scene({ session: byUser });
    const here = { 'x-address': '192.0.2.1' };
    await hangUp(app, here);
    await hangUp(app, here);
    await expect.poll(() => tries(app, here)).toBe('too-many-held');
    expect(await tries(app, { 'x-address': '192.0.2.2' })).toBe('ran');
  });

  it('are half of all where nothing tells the callers apart', async () => {
    const app = await scene({ session: byUser });
    for (let times = 0; times < 3; times++) await hangUp(app);
    await expect.poll(() => tries(app)).toBe('too-many-held');
    expect(await tries(app, { 'x-address': '192.0.2.1' })).toBe('ran');
  });

  it('bar only callers without a principal where they are too many of all', async () => {
    const app = await scene({ session: { ...byUser, maxHeldPerCaller: 9, maxHeld: 2 } });
    await hangUp(app, ann);
    await hangUp(app, ann);
    await expect.poll(() => tries(app, { 'x-address': '192.0.2.1' })).toBe('too-many-held');
    expect(await tries(app, ann)).toBe('ran');
    expect(await tries(app, { 'x-user': 'bob' })).toBe('ran');
  });

  it('count no more once they are settled, here or in another process', async () => {
    const app = await scene({ session: byUser });
    const sessions = [await hangUp(app, ann), await hangUp(app, ann)];
    await expect.poll(() => tries(app, ann)).toBe('too-many-held');
    const [first] = sessions as [RawSession];
    const held = (await app.data.read(first.id, 3_600_000))?.workflows.checkout?.claim;
    const elsewhere = runsOf(checkoutGate(), { store: app.data });
    expect((await elsewhere.read(first.id))?.claim?.token).toBe(held?.token);
    await app.data.release({ run: first.id, workflow: 'checkout' }, held?.token ?? '');
    expect(await tries(app, ann)).toBe('ran');
  });

  it('count no more once they are settled, also behind one that stays', async () => {
    const app = await scene({ session: { ...byUser, maxHeldPerCaller: 6, maxHeld: 100 } });
    const sessions: RawSession[] = [];
    for (let times = 0; times < 6; times++) sessions.push(await hangUp(app, ann));
    await expect.poll(() => tries(app, ann)).toBe('too-many-held');
    for (const { id: run } of sessions.slice(1)) {
      const claim = (await app.data.read(run, 3_600_000))?.workflows.checkout?.claim;
      await app.data.release({ run, workflow: 'checkout' }, claim?.token ?? '');
    }
    expect(await tries(app, ann)).toBe('ran');
  });

  it('are no steps at work, however many', async () => {
    const app = await scene({ session: byUser });
    const sessions = await Promise.all([1, 2, 3, 4].map(() => app.session(ann)));
    const atWork = [];
    for (const session of sessions)
      atWork.push(await begins(app, 'cart.add_item', () => session.call('cart.add_item')));
    expect(await tries(app, ann)).toBe('ran');
    for (const { answer, finish } of atWork) {
      finish();
      await answer;
    }
  });

  it('are also those that the caller meets', async () => {
    const app = await scene({ session: byUser });
    const LEASE = 8_000;
    for (const run of [1, 2]) {
      const session = await app.sessionAt('payment', ann);
      await app.data.claim({
        run: session.id,
        workflow: 'checkout',
        token: `dead ${run}`,
        step: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
        states: undefined,
        initial: { state: 'payment', updatedAt: 0 },
        leaseMs: LEASE,
        ttlMs: 3_600_000,
      });
      app.clock.advance(LEASE);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    }
    expect(await tries(app, ann)).toBe('too-many-held');
  });
});
