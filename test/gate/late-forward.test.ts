import { describe, expect, it } from 'vitest';
import { type FsmGateOptions, StateMachineGate } from '../../src/index.ts';
import { type Latch, latch } from '../helpers/latch.ts';
import { callOf, RawSession, reasonOf } from '../helpers/raw.ts';
import { pass, type Scene, scene } from '../helpers/scene.ts';

/** Shorter than a guard may take. */
const LEASE = 3_000;
const TIMES = { leaseMs: LEASE };
const STATELESS = { mode: 'stateless' } as const;

type Uncertain = 'hold' | 'retry';

function order(uncertain: Uncertain, guard: () => boolean | Promise<boolean>, id = 'order') {
  return new StateMachineGate<string, string>({
    id,
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: {} },
  }).bindTool('cart.pay', 'open', { success: 'PAY', guard, uncertain });
}

interface SlowProcess extends Scene {
  readonly caller: RawSession;
  /** Opens once a call has claimed its run. */
  readonly claimed: Latch;
  /** Lets that call go on. */
  readonly rest: Latch;
}

/** A process in which a call has claimed its run, and waits for its guard. */
async function slowProcess(
  uncertain: Uncertain,
  gates = 1,
  times: FsmGateOptions = {},
): Promise<SlowProcess> {
  const [claimed, rest] = [latch(), latch()];
  const guard = async (): Promise<boolean> => {
    claimed.open();
    await rest.opened;
    return true;
  };
  const inFront = gates === 1 ? [] : [order(uncertain, () => true)];
  const last = order(uncertain, guard, gates === 1 ? 'order' : 'stock');
  const workflow = [...inFront, last];
  const app = await scene({ workflow, shape: STATELESS, gate: { ...TIMES, ...times } });
  return { ...app, caller: await app.session(), claimed, rest };
}

/** Another process of the same app. */
async function besides(app: SlowProcess, uncertain: Uncertain) {
  const workflow = order(uncertain, () => true);
  const other = await scene({ workflow, shape: STATELESS, gate: TIMES, beside: app });
  return { ...other, caller: RawSession.resume(other.url, app.caller.id) };
}

/** Nothing renews the lease until it is over, as in a stopped process. */
async function standStill({ store, clock }: Scene): Promise<void> {
  store.fail('renew');
  await pass(clock, LEASE + 1_000);
  store.heal();
}

const textOf = (message: Awaited<ReturnType<RawSession['call']>>): unknown =>
  message.result.content[0].text;

describe('a call whose lease ends before it is forwarded', () => {
  it('is not forwarded once another process has made the step', async () => {
    const app = await slowProcess('retry');
    const other = await besides(app, 'retry');
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    await standStill(app);
    expect((await other.caller.call('cart.pay')).result.isError).not.toBe(true);
    app.rest.open();
    const answer = await late;
    expect(app.ledger.calls).toEqual([]);
    expect(reasonOf(answer)).toBe('unavailable');
    expect(textOf(answer)).toContain('its turn ended before it began');
    expect(await app.run(app.caller.id).moves()).toEqual(['cart.pay']);
  });

  it('is not forwarded once a person has resolved the run', async () => {
    const app = await slowProcess('hold');
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    await standStill(app);
    const run = app.run(app.caller.id);
    await run.is('held');
    expect(await app.runs.resolve(app.caller.id, 'failed')).toMatchObject({ resolved: true });
    app.rest.open();
    expect(reasonOf(await late)).toBe('unavailable');
    expect(app.ledger.calls).toEqual([]);
    await run.is('idle');
    // The handler never ran, so the tool may be called again.
    expect((await app.caller.call('cart.pay')).result.isError).not.toBe(true);
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  it('is forwarded with a whole new lease if the claim still waits for it', async () => {
    for (const uncertain of ['hold', 'retry'] as const) {
      const app = await slowProcess(uncertain);
      const other = await besides(app, uncertain);
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const late = app.caller.call('cart.pay');
      await app.claimed.opened;
      await standStill(app);
      app.rest.open();
      await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
      await app.run(app.caller.id).is('running');
      handler.open();
      expect((await late).result.isError).not.toBe(true);
      expect(reasonOf(await other.caller.call('cart.pay'))).toBe('state');
      expect(app.ledger.calls).toEqual(['cart.pay']);
    }
  });

  it('is not forwarded while the store cannot confirm its claim', async () => {
    const app = await slowProcess('hold');
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    app.store.fail('renew');
    await pass(app.clock, LEASE + 1_000);
    app.rest.open();
    expect(reasonOf(await late)).toBe('unavailable');
    expect(app.ledger.calls).toEqual([]);
    app.store.heal();
    // The claim was let go, because nothing ran.
    await app.run(app.caller.id).is('idle');
  });

  it('is not forwarded if it waited at another gate, which lets its own claim go', async () => {
    const app = await slowProcess('retry', 2);
    const other = await besides(app, 'retry');
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    await standStill(app);
    await other.caller.call('cart.pay');
    app.rest.open();
    expect(reasonOf(await late)).toBe('unavailable');
    expect(app.ledger.calls).toEqual([]);
    const stock = (await app.data.read(app.caller.id, LEASE))?.workflows.stock;
    expect(stock?.snapshot.state).toBe('open');
    expect(stock?.claim).toBeUndefined();
  });

  it('is not forwarded after the gate gave it up as too long', async () => {
    const app = await slowProcess('hold', 2, { maxStepMs: 1_000 });
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    await pass(app.clock, 2_000);
    app.rest.open();
    expect((await late).result._meta['mcp-interlock/outcome']).toBeDefined();
    await app.isServing(0);
    expect(app.ledger.calls).toEqual([]);
    await app.run(app.caller.id).is('idle');
  });

  it('leaves its batch, and the other calls are forwarded', async () => {
    const app = await slowProcess('hold');
    const late = app.caller.post([callOf(1, 'cart.pay'), callOf(2, 'cart.add_item')]);
    await app.claimed.opened;
    await standStill(app);
    await app.runs.resolve(app.caller.id, 'failed');
    app.rest.open();
    const { messages } = await late;
    const byId = new Map(messages.map((message) => [message.id, message]));
    expect(reasonOf(byId.get(1))).toBe('unavailable');
    expect(byId.get(2)?.result.isError).not.toBe(true);
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });
});

describe('the store', () => {
  it('is asked before a call is forwarded only where its lease may have ended', async () => {
    const app = await slowProcess('retry');
    const late = app.caller.call('cart.pay');
    await app.claimed.opened;
    await pass(app.clock, LEASE + 1_000);
    app.store.take();
    app.rest.open();
    await late;
    expect(app.store.take()).toEqual(['commit']);
  });
});
