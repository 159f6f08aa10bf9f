import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { claimOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import {
  InterlockError,
  type InterlockEvent,
  memoryStore,
  principalKey,
  StateMachineGate,
} from '../../src/index.ts';
import { type HealthReport, runsOf, workflowHealth } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { plainStore } from '../helpers/operations.ts';
import { callOf, send } from '../helpers/raw.ts';
import { begins, pass, passUntil, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { startRedis } from '../services/redis.ts';

const NIGHT = { actor: 'night shift', note: 'the provider charges twice' };
const KNOWN_MS = 500;

const shopGate = () => checkoutGate().bindTool('cart.view', '*');

/** Two processes of one app, and a checkout in `payment` that the first one serves. */
async function twoProcesses(options: SceneOptions = {}) {
  const here = await scene({ workflow: shopGate(), ...options });
  const there = await scene({ workflow: shopGate(), beside: here });
  const session = await here.sessionAt('payment');
  return { here, there, session };
}

const done = (tool: string) => ({ content: [{ text: `${tool} done` }] });

const refusal = (reason: string, more: object = {}) => ({
  _meta: { 'mcp-interlock/refusal': { reason, ...more } },
});

describe('a workflow that operators have stopped', () => {
  it('refuses each bound call in words, in each process within half a second', async () => {
    const { here, there, session } = await twoProcesses();
    expect(await there.runs.freezeAll(NIGHT)).toEqual({ frozen: true });
    here.clock.advance(KNOWN_MS);
    const refused = await session.call('cart.pay');
    expect(refused.result).toMatchObject({
      isError: true,
      content: [
        {
          text:
            '[System: cart.pay was not run, because the operator has stopped all runs of ' +
            'checkout. Only the operator can let it go on. Do not try checkout again until then.]',
        },
      ],
      ...refusal('frozen', { state: 'payment', available: [] }),
    });
    // One that needs no claim, too.
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    expect(here.ledger.calls).toEqual([]);
    expect(await there.runs.unfreezeAll(NIGHT)).toEqual({ unfrozen: true });
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.pay')).result).toMatchObject({
      content: [{ text: 'cart.pay done' }],
    });
  });

  it('is stopped at once in the process that was told', async () => {
    const { here, session } = await twoProcesses();
    await session.call('cart.view');
    await here.runs.freezeAll(NIGHT);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
  });

  it('says so before its state, its claim and its guards', async () => {
    const { here, session } = await twoProcesses();
    await here.runs.freezeAll(NIGHT);
    // The state does not allow it.
    expect((await session.call('cart.checkout')).result).toMatchObject(refusal('frozen'));
    const step = { tool: 'cart.pay', digest: '', uncertain: 'hold' as const };
    await here.data.claim(claimOf(session.id, { step, token: 'other' }));
    expect((await session.call('cart.pay')).result).toMatchObject(refusal('frozen'));
  });

  it('says so where the answer came only beside the refused claim', async () => {
    const { here, there, session } = await twoProcesses();
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.checkout')).result).toMatchObject(refusal('frozen'));
  });

  it('leaves lists, prompts and resources as they are, and tells no client', async () => {
    const workflow = shopGate().bindPrompt('order.summary', ['has_items', 'payment']);
    const here = await scene({ workflow });
    const client = await here.client();
    await client.calls('cart.add_item');
    await client.isTold(1);
    await here.runs.freezeAll(NIGHT);
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await client.isRefused('cart.add_item', 'frozen');
    // The server has no prompts: it has answered this itself.
    const prompt = client.raw.client.getPrompt({ name: 'order.summary' });
    await expect(prompt).rejects.toThrow('Method not found');
    await client.isTold(1);
  });

  it('is moved by no event, no change, no beginning and no restart, but resolved', async () => {
    const { here, session } = await twoProcesses();
    await here.runs.freezeAll(NIGHT);
    const { id } = session;
    expect(await here.runs.send(id, 'CANCEL')).toEqual({ sent: false, reason: 'frozen' });
    expect(await here.runs.update(id, () => 1)).toEqual({ updated: false, reason: 'frozen' });
    expect(await here.runs.restart(id)).toEqual({ restarted: false, reason: 'frozen' });
    const other = await here.session();
    expect(await here.runs.begin(other.id)).toEqual({ begun: false, reason: 'frozen' });
    const step = { tool: 'cart.pay', digest: '', uncertain: 'hold' as const };
    await here.data.claim(claimOf(id, { step, leaseMs: 1, token: crypto.randomUUID() }));
    here.clock.advance(1);
    expect(await here.runs.resolve(id, 'succeeded')).toEqual({
      resolved: true,
      state: 'confirmed',
    });
  });

  it('lets deadlines pass, which a sweep saves', async () => {
    const timed = new StateMachineGate({
      id: 'timed',
      initial: 'open',
      states: { open: { after: { 60000: 'late' } }, late: {} },
    }).bindTool('cart.add_item', 'open');
    const app = await scene({ workflow: timed });
    const { id } = await app.session();
    await app.runs.begin(id);
    await app.runs.freezeAll(NIGHT);
    app.clock.advance(60_000);
    expect(await app.runs.sweep([id])).toBe(1);
    expect(await app.runs.read(id)).toMatchObject({ state: 'late' });
  });

  it('saves what a step comes to that was forwarded before', async () => {
    const { here, there, session } = await twoProcesses();
    const paying = await begins(here, 'cart.pay', () => session.call('cart.pay'));
    await there.runs.freezeAll(NIGHT);
    paying.finish();
    expect((await paying.answer).result).toMatchObject({ content: [{ text: 'cart.pay done' }] });
    expect(await here.runs.read(session.id)).toMatchObject({ state: 'confirmed', status: 'idle' });
  });

  it('forwards no call that waited for its turn meanwhile', async () => {
    const { here, there } = await twoProcesses();
    const session = await here.sessionAt('has_items');
    const adding = await begins(here, 'cart.add_item', () => session.call('cart.add_item'));
    const waiting = session.call('cart.checkout');
    await here.isServing(2);
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    adding.finish();
    expect((await waiting).result).toMatchObject(refusal('frozen'));
    expect(here.ledger.calls).toEqual(['cart.add_item']);
    // Its claim is free again.
    expect(await here.runs.read(session.id)).toMatchObject({ status: 'idle' });
  });

  it('forwards no call whose guard was asked meanwhile', async () => {
    const asked = latch();
    const answer = latch();
    const guard = async () => {
      asked.open();
      await answer.opened;
      return true;
    };
    const workflow = shopGate()
      .bindTool('cart.guarded', '*', { guard })
      .bindTool('cart.clear', 'has_items', { success: 'CLEAR', guard });
    const here = await scene({ workflow });
    const there = await scene({ workflow: shopGate(), beside: here });
    const session = await here.sessionAt('has_items');
    const calls = [session.call('cart.guarded'), session.call('cart.clear')];
    await asked.opened;
    await settle();
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    answer.open();
    for (const each of calls) expect((await each).result).toMatchObject(refusal('frozen'));
    expect(here.ledger.calls).toEqual([]);
  });

  it('forwards no call beside one of its batch, or before a second gate, that waited', async () => {
    const second = new StateMachineGate({ id: 'second', initial: 'on', states: { on: {} } });
    const machine = second.bindTool('cart.view', 'on', { guard: () => guard() });
    const asked = latch();
    const answer = latch();
    const guard = async () => {
      asked.open();
      await answer.opened;
      return true;
    };
    const workflow = shopGate().bindTool('cart.guarded', '*', { guard });
    const options = { workflow, shape: { answers: 'json' } } as const;
    const here = await scene(options);
    const there = await scene({ workflow: shopGate(), beside: here });
    const session = await here.session();
    const body = [callOf('v', 'cart.view'), callOf('g', 'cart.guarded')];
    const headers = { ...session.headers, 'mcp-protocol-version': '2025-03-26' };
    const batch = send(here.url, { headers, body });
    await asked.opened;
    const both = await scene({ workflow: [shopGate(), machine], beside: here });
    const viewing = (await both.session()).call('cart.view');
    await both.isServing(1);
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    answer.open();
    for (const { result } of (await batch).messages)
      expect(result).toMatchObject(refusal('frozen', { workflow: 'checkout' }));
    expect((await viewing).result).toMatchObject(refusal('frozen', { workflow: 'checkout' }));
    expect([...here.ledger.calls, ...both.ledger.calls]).toEqual([]);
  });

  it('is begun anew by no call that is refused', async () => {
    const session = { key: principalKey(), principal: () => 'ann' };
    const { here, there, session: client } = await twoProcesses({ session });
    await client.call('cart.pay');
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    expect((await client.call('cart.add_item')).result).toMatchObject(refusal('frozen'));
    expect(await here.runs.read(principalKey().runKey('ann'))).toMatchObject({
      state: 'confirmed',
      status: 'idle',
    });
  });

  it('is moved by no loop of calls that are refused', async () => {
    const workflow = new StateMachineGate(
      { id: 'support', initial: 'diagnosis', states: { diagnosis: {}, escalation: {} } },
      { loopShield: { max: 1, fallback: { state: 'escalation' } } },
    ).bindTool('cart.view', 'diagnosis');
    const here = await scene({ workflow });
    const there = await scene({ workflow, beside: here });
    const session = await here.session();
    await session.call('cart.view');
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    expect(await here.runs.read(session.id)).toMatchObject({ state: 'diagnosis', status: 'idle' });
  });

  it('is moved by no event that waited for a step', async () => {
    const { here, there, session } = await twoProcesses();
    const paying = await begins(here, 'cart.pay', () => session.call('cart.pay'));
    const sending = here.runs.send(session.id, 'CANCEL');
    await settle();
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    paying.finish();
    await paying.answer;
    expect(await passUntil(here.clock, sending)).toEqual({ sent: false, reason: 'frozen' });
    expect(await here.runs.read(session.id)).toMatchObject({ state: 'confirmed', status: 'idle' });
  });

  it('forwards no step without its claim, where operators let it go on meanwhile', async () => {
    const session = { key: principalKey(), principal: () => 'ann' };
    const { here, there, session: client } = await twoProcesses({ session });
    await here.runs.freezeAll(NIGHT);
    here.store.fail('read', 1, 'late');
    const paying = client.call('cart.pay');
    await expect.poll(() => here.store.late).toHaveLength(1);
    await there.runs.unfreezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    here.store.late.splice(0)[0]?.();
    expect((await paying).result).toMatchObject(refusal('frozen'));
    expect(here.ledger.calls).toEqual([]);
  });

  it('forwards no call that waited for the claim of a second workflow', async () => {
    const machine = new StateMachineGate({
      id: 'second',
      initial: 'on',
      states: { on: { on: { DONE: 'on' } } },
    }).bindTool('cart.pay', 'on', { success: 'DONE', uncertain: 'hold' });
    const here = await scene({ workflow: [shopGate(), machine] });
    const there = await scene({ workflow: shopGate(), beside: here });
    const session = await here.sessionAt('payment');
    const step = { tool: 'cart.pay', digest: 'd', uncertain: 'retry' as const };
    const claim = { ...claimOf(session.id, { step, leaseMs: 2_000, token: 'other' }) };
    await here.data.claim({
      ...claim,
      workflow: 'second',
      initial: { state: 'on', updatedAt: 0 },
      states: undefined,
    });
    const paying = session.call('cart.pay');
    await expect.poll(() => here.store.asked.filter((each) => each === 'claim').length).toBe(4);
    await there.runs.freezeAll(NIGHT);
    await pass(here.clock, 4_000);
    expect((await paying).result).toMatchObject(refusal('frozen', { workflow: 'checkout' }));
    expect(here.ledger.calls).toEqual([]);
    expect(await here.runs.read(session.id)).toMatchObject({ status: 'idle' });
  });
});

describe('a tool that operators have stopped', () => {
  it('is refused alone, and other tools of its workflow go on', async () => {
    const { here, there, session } = await twoProcesses();
    await there.runs.freezeAll({ tool: 'cart.pay', ...NIGHT });
    here.clock.advance(KNOWN_MS);
    const { result } = await session.call('cart.pay');
    expect(result).toMatchObject({
      content: [
        {
          text:
            '[System: cart.pay was not run, because the operator has stopped all calls of it. ' +
            'Only the operator can let them go on. Do not call it again until then.]',
        },
      ],
      ...refusal('frozen', { available: ['cart.view'] }),
    });
    expect((await session.call('cart.view')).result).toMatchObject(done('cart.view'));
    expect(await here.runs.send(session.id, 'CANCEL')).toMatchObject({ sent: true });
  });

  it('may be bound by a glob: then the name alone is stopped, or the glob', async () => {
    const app = await scene({ workflow: checkoutGate().bindTool('cart.*', '*') });
    const session = await app.session();
    await app.runs.freezeAll({ tool: 'cart.view', ...NIGHT });
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    expect((await session.call('cart.price')).result?._meta).toBeUndefined();
    await app.runs.freezeAll({ tool: 'cart.*', ...NIGHT });
    expect((await session.call('cart.price')).result).toMatchObject(refusal('frozen'));
    // A binding of its own name is none of the glob's.
    expect((await session.call('cart.add_item')).result).toMatchObject(done('cart.add_item'));
  });

  it('stays stopped when another one goes on, and all go on with one word', async () => {
    const { here } = await twoProcesses();
    const { runs } = here;
    await Promise.all([
      runs.freezeAll({ tool: 'cart.pay', ...NIGHT }),
      runs.freezeAll({ tool: 'cart.checkout', actor: 'ann', note: 'a test' }),
    ]);
    expect(await runs.freezeAll({ tool: 'cart.pay', ...NIGHT })).toEqual({
      frozen: false,
      reason: 'frozen',
    });
    const at = here.clock.now();
    const pay = { tool: 'cart.pay', ...NIGHT, at };
    const checkout = { tool: 'cart.checkout', actor: 'ann', note: 'a test', at };
    expect(await runs.frozen()).toEqual(expect.arrayContaining([pay, checkout]));
    await runs.unfreezeAll({ tool: 'cart.checkout', ...NIGHT });
    expect(await runs.frozen()).toEqual([pay]);
    await runs.freezeAll(NIGHT);
    expect(await runs.frozen()).toEqual([{ ...NIGHT, at }, pay]);
    await runs.unfreezeAll(NIGHT);
    expect(await runs.frozen()).toEqual([]);
    expect(await runs.unfreezeAll(NIGHT)).toEqual({ unfrozen: false, reason: 'not-frozen' });
  });

  it('goes on though no binding has it any more, and where the answer to its stop was lost', async () => {
    const before = await scene({ workflow: checkoutGate().bindTool('cart.view', '*') });
    before.store.fail('swapSwitch', 1, 'done');
    const stop = { tool: 'cart.view', ...NIGHT };
    expect(await before.runs.freezeAll(stop)).toEqual({ frozen: true });
    const after = await scene({ workflow: checkoutGate(), beside: before });
    expect(await after.runs.frozen()).toMatchObject([stop]);
    expect(await after.runs.unfreezeAll(stop)).toEqual({ unfrozen: true });
    expect(await after.runs.frozen()).toEqual([]);
  });

  it('must be bound, and its operator must say who and why', async () => {
    const { runs } = await scene();
    const wrong = [{ ...NIGHT, tool: 'cart.pya' }, { actor: 'ann' }, { ...NIGHT, note: '' }, {}];
    for (const options of wrong) {
      const frozen = runs.freezeAll(options as typeof NIGHT);
      await expect(frozen).rejects.toThrow(InterlockError);
      await expect(frozen).rejects.toMatchObject({ code: 'ERR_INTERLOCK_CONFIG' });
    }
    await expect(runs.freezeAll({ ...NIGHT, tool: 'cart.pya' })).rejects.toThrow(
      'freezeAll(): checkout binds no tool "cart.pya"; it binds "cart.add_item", ' +
        '"cart.checkout", "cart.pay"',
    );
  });

  it('is refused in words under "unknown-tool" where its list shows it, and hidden where not', async () => {
    const { here, session } = await twoProcesses({ gate: { refusal: 'unknown-tool' } });
    await here.runs.freezeAll({ tool: 'cart.pay', ...NIGHT });
    expect((await session.call('cart.pay')).result).toMatchObject(refusal('frozen'));
    await here.runs.freezeAll({ tool: 'cart.checkout', ...NIGHT });
    expect((await session.call('cart.checkout')).result).toMatchObject({
      content: [{ text: 'MCP error -32602: Tool cart.checkout not found' }],
    });
  });
});

describe('what a process knows of the switch', () => {
  it('is asked beside the claim, twice a second at most, and only while there are calls', async () => {
    const { here, session } = await twoProcesses();
    await settle();
    here.clock.advance(KNOWN_MS);
    here.store.take();
    here.store.fail('readSwitch', 1, 'late');
    const viewing = session.call('cart.pay');
    await expect.poll(() => here.store.asked).toContain('claim');
    here.store.late.splice(0)[0]?.();
    await viewing;
    for (let call = 0; call < 10; call++) await session.call('cart.view');
    expect(here.store.times('readSwitch')).toBe(1);
    await pass(here.clock, 60_000);
    expect(here.store.times('readSwitch')).toBe(1);
    await session.call('cart.view');
    expect(here.store.times('readSwitch')).toBe(2);
  });

  it('holds as the store said it last, where that does not answer', async () => {
    const { here, there, session } = await twoProcesses();
    await session.call('cart.view');
    here.store.fail('readSwitch');
    await there.runs.freezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(done('cart.view'));
    here.store.heal();
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    here.store.fail('readSwitch');
    await there.runs.unfreezeAll(NIGHT);
    here.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
  });

  it('refuses bound calls, where the store has never told this process', async () => {
    const app = await scene({ workflow: shopGate() });
    app.store.fail('readSwitch');
    const session = await app.session();
    for (const tool of ['cart.view', 'cart.add_item'])
      expect((await session.call(tool)).result).toMatchObject(refusal('unavailable'));
    await expect(app.runs.send(session.id, 'ADD_ITEM')).rejects.toThrow('could not be asked');
    expect(app.ledger.calls).toEqual([]);
    expect(await app.runs.read(session.id)).toMatchObject({ status: 'idle' });
    app.store.heal();
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.add_item')).result).toMatchObject(done('cart.add_item'));
  });

  it('is asked again where an answer took so long that it may be from before', async () => {
    const clock = new ManualClock();
    const inner = memoryStore({ now: clock.now });
    const late = latch();
    let asked = 0;
    const data: AtomicStateStore = {
      ...plainStore(inner),
      swapSwitch: async (...args) => (await inner.swapSwitch?.(...args)) ?? false,
      async readSwitch(name) {
        const found = await inner.readSwitch?.(name);
        if (++asked === 2) await late.opened;
        return found;
      },
    };
    const app = await scene({ workflow: shopGate(), beside: { clock, data } });
    const session = await app.session();
    await session.call('cart.view');
    clock.advance(KNOWN_MS);
    const viewing = session.call('cart.view');
    await expect.poll(() => asked).toBe(2);
    await runsOf(shopGate(), { store: inner }).freezeAll(NIGHT);
    clock.advance(KNOWN_MS);
    late.open();
    expect((await viewing).result).toMatchObject(refusal('frozen'));
  });

  it('is asked again where its own write was answered late, and others have written since', async () => {
    const clock = new ManualClock();
    const inner = memoryStore({ now: clock.now });
    const late = latch();
    const written = latch();
    const data: AtomicStateStore = {
      ...plainStore(inner),
      readSwitch: async (name) => inner.readSwitch?.(name),
      async swapSwitch(...args) {
        const isSwapped = (await inner.swapSwitch?.(...args)) ?? false;
        written.open();
        await late.opened;
        return isSwapped;
      },
    };
    const app = await scene({ workflow: shopGate(), beside: { clock, data } });
    const session = await app.session();
    await session.call('cart.view');
    const freezing = app.runs.freezeAll({ tool: 'cart.checkout', ...NIGHT });
    await written.opened;
    await runsOf(shopGate(), { store: inner }).freezeAll(NIGHT);
    clock.advance(2 * KNOWN_MS);
    late.open();
    await freezing;
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
  });

  it('is none where a store keeps no switches: its calls go on, and an operator reads why', async () => {
    const app = await scene({ workflow: shopGate(), data: plainStore(memoryStore()) });
    const session = await app.session();
    expect((await session.call('cart.add_item')).result).toMatchObject({ content: [{}] });
    await expect(app.runs.freezeAll(NIGHT)).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringContaining('this store keeps no switches'),
    });
  });
});

describe('what operators see of it', () => {
  it('is told in events, in the status tool, in the trail and in health', async () => {
    const told: unknown[] = [];
    const { here, session } = await twoProcesses({
      session: { onEvent: (event) => void told.push(event) },
      gate: { statusTool: 'status', trail: { refusals: true } },
    });
    const at = here.clock.now();
    await here.runs.freezeAll({ tool: 'cart.pay', ...NIGHT });
    await session.call('cart.pay');
    const status = async () => {
      const { result } = await session.call('status');
      const told = result?.structuredContent as { workflows: object[] } | undefined;
      return told?.workflows[0];
    };
    expect(await status()).toMatchObject({
      status: 'idle',
      next: [expect.objectContaining({ tool: 'cart.view' })],
      waitsFor: { what: 'operator', tool: 'cart.pay' },
    });
    const [last] = await here.runs.history(session.id, 1);
    expect(last).toMatchObject({ outcome: 'refused', kind: 'frozen', tool: 'cart.pay' });
    await here.runs.freezeAll(NIGHT);
    expect(await status()).toMatchObject({
      status: 'frozen',
      next: [],
      waitsFor: { what: 'operator' },
      says:
        'checkout is in "payment". The operator has stopped all runs of checkout. Only the ' +
        'operator can let it go on. Do not try checkout again until then.',
    });
    const health = async (isOperator: boolean) => {
      const options = { runs: [here.runs], stuckAfterMs: 1, authorize: () => isOperator };
      const answer = await workflowHealth(options).fetch(new Request('http://127.0.0.1/health'));
      return (await answer.json()) as { workflows: object[] };
    };
    const stopped = [
      { ...NIGHT, at },
      { tool: 'cart.pay', ...NIGHT, at },
    ];
    expect(await health(true)).toMatchObject({
      status: 'ok',
      workflows: [{ frozen: 'workflow', stopped }],
    });
    expect((await health(false)).workflows[0]).toMatchObject({ frozen: 'workflow' });
    expect((await health(false)).workflows[0]).not.toHaveProperty('stopped');
    await here.runs.unfreezeAll({ actor: 'ann', note: 'mended' });
    expect((await health(true)).workflows[0]).not.toHaveProperty('frozen');
    const ofWorkflow = (event: unknown): boolean =>
      String((event as { type: string }).type).startsWith('workflow');
    expect(told.filter(ofWorkflow)).toMatchObject([
      { type: 'workflow.frozen', workflow: 'checkout', tool: 'cart.pay', ...NIGHT },
      { type: 'workflow.frozen', workflow: 'checkout', ...NIGHT },
      { type: 'workflow.unfrozen', workflow: 'checkout', actor: 'ann', note: 'mended' },
    ]);
  });
});

describe('a switch that the store has lost', () => {
  it('is written back by a process that knew it, with an event and an alarm', async () => {
    const { flush, app, told, health } = await onRedis();
    await app.runs.freezeAll({ tool: 'cart.pay', ...NIGHT });
    await flush();
    const session = await app.session();
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.pay')).result).toMatchObject(refusal('frozen'));
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.pay')).result).toMatchObject(refusal('frozen'));
    expect(app.ledger.calls).toEqual([]);
    expect(told.filter(({ type }) => type === 'workflow.restored')).toMatchObject([
      { workflow: 'checkout', found: 'none' },
    ]);
    expect(app.errors.map(String)).toEqual([
      'Error: the store had lost the switch of "checkout", and this process wrote its own back: ' +
        'the store may have lost runs too',
    ]);
    expect(await health()).toMatchObject({
      status: 'degraded',
      degraded: ['switch'],
      workflows: [{ frozen: 'tools', switch: 'restored' }],
    });
    app.clock.advance(60 * 60_000);
    expect(await health()).toMatchObject({ status: 'ok' });
    expect((await health()).workflows[0]).not.toHaveProperty('switch');
    const fresh = await scene({ workflow: shopGate(), beside: app });
    expect(await fresh.runs.frozen()).toMatchObject([{ tool: 'cart.pay', ...NIGHT }]);
  });

  it('is written back where an older one was restored, stopped or not', async () => {
    const { saved, restore, app, told } = await onRedis();
    await app.runs.freezeAll({ tool: 'cart.view', ...NIGHT });
    await app.runs.unfreezeAll(NIGHT);
    const open = await saved();
    await app.runs.freezeAll(NIGHT);
    const stopped = await saved();
    const session = await app.session();
    await restore(open);
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    await app.runs.unfreezeAll(NIGHT);
    await restore(stopped);
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(done('cart.view'));
    expect(await app.runs.frozen()).toEqual([]);
    expect(told.filter(({ type }) => type === 'workflow.restored')).toMatchObject([
      { found: 'older' },
      { found: 'older' },
    ]);
  });

  it('is outranked by what an operator says after the loss, also where that changes nothing', async () => {
    const { flush, saved, restore, app } = await onRedis();
    await app.runs.freezeAll(NIGHT);
    const stopped = await saved();
    await flush();
    // The operator's process has never read a switch.
    const operator = await scene({ workflow: shopGate(), beside: app });
    app.clock.advance(1);
    expect(await operator.runs.unfreezeAll(NIGHT)).toEqual({
      unfrozen: false,
      reason: 'not-frozen',
    });
    app.clock.advance(KNOWN_MS);
    const other = await app.session();
    expect((await other.call('cart.view')).result).toMatchObject(done('cart.view'));
    await restore(stopped);
    const second = await scene({ workflow: shopGate(), beside: app });
    expect(await second.runs.freezeAll(NIGHT)).toEqual({ frozen: false, reason: 'frozen' });
    app.clock.advance(KNOWN_MS);
    expect((await other.call('cart.view')).result).toMatchObject(refusal('frozen'));
  });

  it('is written back once, by whichever process is first, and a later word is not undone', async () => {
    const { flush, app, session, told } = await onRedis();
    const there = await scene({ workflow: shopGate(), beside: app, session });
    await app.runs.freezeAll({ tool: 'cart.pay', ...NIGHT });
    expect(await there.runs.frozen()).toHaveLength(1);
    await flush();
    await Promise.all([app.runs.frozen(), there.runs.freezeAll(NIGHT), app.runs.frozen()]);
    expect(await app.runs.frozen()).toMatchObject([NIGHT, { tool: 'cart.pay', ...NIGHT }]);
    expect(told.filter(({ type }) => type === 'workflow.restored')).toHaveLength(1);
  });

  it('is known on where the store refuses to take it back', async () => {
    const { flush, app, told } = await onRedis();
    await app.runs.freezeAll(NIGHT);
    await flush();
    const session = await app.session();
    app.clock.advance(KNOWN_MS);
    app.store.fail('swapSwitch');
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    expect(told.filter(({ type }) => type === 'workflow.restored')).toEqual([]);
    app.store.heal();
    app.clock.advance(KNOWN_MS);
    expect((await session.call('cart.view')).result).toMatchObject(refusal('frozen'));
    expect(told.filter(({ type }) => type === 'workflow.restored')).toHaveLength(1);
  });
});

/** A process whose store is a Redis that the test empties, or restores to an earlier switch. */
async function onRedis() {
  const server = await startRedis();
  onTestFinished(() => server.stop());
  const client = new Redis(server.url);
  onTestFinished(() => client.disconnect());
  const told: InterlockEvent[] = [];
  const session = { onEvent: (event: InterlockEvent) => void told.push(event) };
  const app = await scene({ workflow: shopGate(), data: redisStore({ client }), session });
  const key = async () => String((await client.keys('*:switch:*'))[0]);
  const handler = workflowHealth({ runs: [app.runs], stuckAfterMs: HOUR, maxAgeMs: 0 });
  return {
    app,
    session,
    told,
    flush: () => client.flushall(),
    async saved() {
      const dumped = await client.dumpBuffer(await key());
      if (dumped === null) throw new Error('there is no switch');
      return dumped;
    },
    restore: async (dumped: Buffer) => client.restore(await key(), 0, dumped, 'REPLACE'),
    async health() {
      const answer = await handler.fetch(new Request('http://127.0.0.1/health'));
      return (await answer.json()) as HealthReport;
    },
  };
}
