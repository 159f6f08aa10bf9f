import { describe, expect, it } from 'vitest';
import { replayTrail } from '../../packages/check/src/index.ts';
import { claimOf } from '../../packages/testing/src/fixtures.ts';
import { InterlockError, principalKey, StateMachineGate } from '../../src/index.ts';
import { explain, runsOf, whatIf, workflowHealth } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { begins, passUntil, type SceneOptions, scene, settle } from '../helpers/scene.ts';

const NIGHT = { actor: 'night shift', note: 'the provider charges twice' };
const WORDS =
  '[System: cart.pay was not run, because the operator has stopped this run of checkout. Only the ' +
  'operator can let it go on. Do not try checkout again until then.]';

const shopGate = () =>
  checkoutGate().bindPrompt('order.summary', ['has_items', 'payment']).bindTool('cart.view', '*');

/** A checkout that a person has stopped in `payment`. */
async function stopped(options: SceneOptions = {}) {
  const app = await scene({ workflow: shopGate(), ...options });
  const session = await app.sessionAt('payment');
  const frozen = await app.runs.freeze(session.id, NIGHT);
  expect(frozen).toEqual({ frozen: true, state: 'payment' });
  return { app, session };
}

describe('a frozen run', () => {
  it('refuses each bound call in words, and no handler runs', async () => {
    const { app, session } = await stopped();
    const refused = await session.call('cart.pay');
    expect(refused.result).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: WORDS }],
      _meta: {
        'mcp-interlock/refusal': { reason: 'frozen', state: 'payment', available: [] },
      },
    });
    // One that moves nothing, and is available in any state.
    const view = await session.call('cart.view');
    expect(view.result?._meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'frozen', tool: 'cart.view' },
    });
    expect(app.ledger.calls).toEqual([]);
  });

  it('leaves all bound tools out of the list, and its client is told, both ways', async () => {
    const app = await scene({ workflow: shopGate() });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.isTold(1);
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await app.runs.freeze(client.run, NIGHT);
    await client.isTold(2);
    await client.sees([]);
    await app.runs.unfreeze(client.run, NIGHT);
    await client.isTold(3);
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await client.calls('cart.checkout');
  });

  it('gives no prompt, and says why', async () => {
    const { session } = await stopped();
    const asked = await session.ask('prompts/get', { name: 'order.summary' });
    expect(asked.error).toMatchObject({
      message:
        '[System: The prompt order.summary was not given, because the operator has stopped this ' +
        'run of checkout. Only the operator can let it go on. Do not try checkout again until ' +
        'then.]',
      data: { 'mcp-interlock/refusal': { reason: 'frozen', prompt: 'order.summary' } },
    });
  });

  it('answers the status tool with what the model has to know', async () => {
    const { session } = await stopped({ gate: { statusTool: 'status' } });
    const { result } = await session.call('status');
    expect(result?.structuredContent).toMatchObject({
      workflows: [
        {
          status: 'frozen',
          state: 'payment',
          next: [],
          waitsFor: { what: 'operator' },
          says:
            'checkout is in "payment". The operator has stopped this run. Only the operator can ' +
            'let it go on. Do not try checkout again until then.',
        },
      ],
    });
  });

  it('is moved by nothing from outside: no event, no restart, no change, no deadline', async () => {
    const timed = new StateMachineGate({
      id: 'timed',
      initial: 'open',
      states: {
        open: { on: { GO: 'done' }, after: { 60000: 'late' } },
        done: {},
        late: {},
      },
    }).bindTool('cart.add_item', 'open', 'GO');
    const app = await scene({ workflow: timed });
    const { id } = await app.session();
    await app.runs.begin(id);
    await app.runs.freeze(id, NIGHT);
    app.clock.advance(120_000);
    expect(await app.runs.send(id, 'GO')).toEqual({ sent: false, reason: 'frozen' });
    expect(await app.runs.restart(id)).toEqual({ restarted: false, reason: 'frozen' });
    expect(await app.runs.update(id, () => 1)).toEqual({ updated: false, reason: 'frozen' });
    expect(await app.runs.freeze(id, NIGHT)).toEqual({ frozen: false, reason: 'frozen' });
    expect(await app.runs.sweep([id])).toBe(0);
    expect((await app.runs.history(id)).map(({ event }) => event)).toEqual(['begin', 'freeze']);
    // What has passed meanwhile takes effect once it goes on.
    expect(await app.runs.unfreeze(id, NIGHT)).toEqual({ unfrozen: true, state: 'late' });
    expect((await app.runs.history(id)).map(({ event }) => event)).toEqual([
      ...['begin', 'freeze', 'unfreeze', 'after'],
    ]);
  });

  it('stays in the state where it was stopped, for each door, past its deadline', async () => {
    const timed = new StateMachineGate({
      id: 'timed',
      initial: 'open',
      states: { open: { on: { GO: 'late' }, after: { 60000: 'late' } }, late: {} },
    })
      .bindTool('cart.add_item', 'open', 'GO')
      .bindTool('cart.view', 'late');
    const app = await scene({ workflow: timed, gate: { statusTool: 'status' } });
    const session = await app.session();
    await app.runs.begin(session.id);
    await app.runs.freeze(session.id, NIGHT);
    for (const ms of [0, 120_000]) {
      app.clock.advance(ms);
      const refused = await session.call('cart.view');
      expect(refused.result?._meta).toMatchObject({
        'mcp-interlock/refusal': { reason: 'frozen', state: 'open' },
      });
      const { result } = await session.call('status');
      const told = result?.structuredContent;
      expect(told).toMatchObject({ workflows: [{ status: 'frozen', state: 'open' }] });
      expect(told).not.toHaveProperty('workflows.0.leavesAt');
      const view = await app.runs.read(session.id);
      expect(view).toMatchObject({ state: 'open', frozen: NIGHT });
      expect(explain(timed, view)).not.toHaveProperty('leavesAt');
      // As `sweep()` and `send()` do.
      for (const move of [{ deadline: true }, { event: 'GO' }] as const)
        expect(whatIf(timed, view, move)).toMatchObject({
          result: 'refused',
          snapshot: { state: 'open' },
        });
    }
    await app.runs.unfreeze(session.id, NIGHT);
    expect(await app.runs.read(session.id)).toMatchObject({ state: 'late' });
  });

  it('says who stopped it, and why: in views, trail, events, health and explanations', async () => {
    const told: unknown[] = [];
    const { app, session } = await stopped({
      session: { onEvent: (event) => void told.push(event) },
      gate: { trail: { refusals: true } },
    });
    await session.call('cart.pay');
    const view = await app.runs.read(session.id);
    expect(view).toMatchObject({ state: 'payment', status: 'idle', available: [], frozen: NIGHT });
    const gate = app.runs.gate;
    const { tools } = explain(gate, view);
    expect(tools.map(({ tool, shown, refusal }) => [tool, shown, refusal?.reason])).toEqual(
      [...tools].map(({ tool }) => [tool, false, 'frozen']),
    );
    expect(tools.find(({ tool }) => tool === 'cart.pay')?.says).toBe(WORDS);
    // Also where the view went through JSON.
    expect(explain(gate, JSON.parse(JSON.stringify(view))).tools[0]?.refusal?.reason).toBe(
      'frozen',
    );
    const move = { tool: 'cart.pay', outcome: 'succeeded' } as const;
    expect(whatIf(gate, view, move)).toMatchObject({ result: 'refused' });
    const trail = await app.runs.history(session.id);
    expect(trail.slice(-2)).toMatchObject([
      { event: 'freeze', from: 'payment', attempt: 0, ...NIGHT },
      { outcome: 'refused', kind: 'frozen', tool: 'cart.pay' },
    ]);
    expect(replayTrail(gate, trail).faults).toEqual([]);
    expect(told).toContainEqual(
      expect.objectContaining({ type: 'run.frozen', state: 'payment', ...NIGHT }),
    );
    expect(told).toContainEqual(
      expect.objectContaining({ type: 'call.refused', reason: 'frozen', tool: 'cart.pay' }),
    );
    const health = workflowHealth({
      runs: [app.runs],
      stuckAfterMs: 1,
      authorize: () => true,
    });
    app.clock.advance(1_000);
    const answer = await health.fetch(new Request('http://127.0.0.1/health'));
    expect(await answer.json()).toMatchObject({ workflows: [{ stuckRuns: [{ frozen: NIGHT }] }] });
    await app.runs.unfreeze(session.id, NIGHT);
    expect(told).toContainEqual(expect.objectContaining({ type: 'run.unfrozen', ...NIGHT }));
    expect(await app.runs.unfreeze(session.id, NIGHT)).toEqual({
      unfrozen: false,
      reason: 'not-frozen',
    });
  });

  it('is shown to no one under "unknown-tool": the tool is one that does not exist', async () => {
    const told: unknown[] = [];
    const { app, session } = await stopped({
      session: { onEvent: (event) => void told.push(event) },
      gate: { refusal: 'unknown-tool' },
    });
    const answer = await session.call('cart.pay');
    // Only the operator reads why.
    expect(told).toContainEqual(
      expect.objectContaining({ type: 'call.refused', reason: 'frozen', tool: 'cart.pay' }),
    );
    expect(answer.result).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: 'MCP error -32602: Tool cart.pay not found' }],
    });
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('freezing', () => {
  it('waits for the step that is running, which is saved', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const freezing = app.runs.freeze(session.id, NIGHT);
    paying.finish();
    expect((await paying.answer).result).toMatchObject({ content: [{ text: 'cart.pay done' }] });
    expect(await passUntil(app.clock, freezing)).toEqual({ frozen: true, state: 'confirmed' });
  });

  it('stops a call that waits for its turn', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('has_items');
    const adding = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const freezing = app.runs.freeze(session.id, NIGHT);
    await app.isServing(1);
    const late = session.call('cart.checkout');
    await app.isServing(2);
    adding.finish();
    await passUntil(app.clock, Promise.all([freezing, late]));
    expect((await late).result?._meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'frozen' },
    });
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('comes before each call that waits, however many do', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('has_items');
    const adding = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const waiting = Array.from({ length: 12 }, () => session.call('cart.add_item'));
    await app.isServing(13);
    const freezing = app.runs.freeze(session.id, NIGHT);
    await settle();
    adding.finish();
    expect(await passUntil(app.clock, freezing)).toEqual({ frozen: true, state: 'has_items' });
    for (const each of await Promise.all(waiting))
      expect(each.result?._meta).toMatchObject({ 'mcp-interlock/refusal': { reason: 'frozen' } });
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('takes effect in every process, while a step is running that takes long', async () => {
    const app = await scene({ workflow: shopGate() });
    const beside = await scene({ workflow: shopGate(), beside: app });
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const freezing = beside.runs.freeze(session.id, NIGHT);
    expect(await passUntil(app.clock, freezing)).toEqual({ frozen: true, state: 'payment' });
    expect(await app.runs.read(session.id)).toMatchObject({ status: 'running', frozen: NIGHT });
    paying.finish();
    expect((await paying.answer).result).toMatchObject({ content: [{ text: 'cart.pay done' }] });
    const view = await app.runs.read(session.id);
    expect(view).toMatchObject({ state: 'confirmed', status: 'idle', frozen: NIGHT });
    const trail = await app.runs.history(session.id, 2);
    expect(trail).toMatchObject([
      { event: 'freeze', from: 'payment' },
      { tool: 'cart.pay', from: 'payment', to: 'confirmed' },
    ]);
  });

  it('waits for what was about to move the run from outside, which is saved', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('has_items');
    app.store.fail('commit', 1, 'late');
    const sending = app.runs.send(session.id, 'CHECKOUT');
    await expect.poll(async () => (await app.runs.read(session.id))?.status).toBe('running');
    const freezing = app.runs.freeze(session.id, NIGHT);
    await expect.poll(async () => (await app.runs.read(session.id))?.frozen).toEqual(NIGHT);
    app.store.late[0]?.();
    expect(await passUntil(app.clock, sending)).toMatchObject({ sent: true, state: 'payment' });
    expect(await passUntil(app.clock, freezing)).toEqual({ frozen: true, state: 'payment' });
    expect(await app.runs.read(session.id)).toMatchObject({ state: 'payment', frozen: NIGHT });
  });

  it('lets the time of a state go on, and leaves no state whose time was over before', async () => {
    const timed = new StateMachineGate({
      id: 'timed',
      initial: 'open',
      states: { open: { after: { 60000: 'late' } }, late: { after: { 60000: 'end' } }, end: {} },
    }).bindTool('cart.add_item', 'open');
    const app = await scene({ workflow: timed });
    const { id } = await app.session();
    await app.runs.begin(id);
    app.clock.advance(40_000);
    await app.runs.freeze(id, NIGHT);
    await app.runs.unfreeze(id, NIGHT);
    app.clock.advance(20_000);
    expect(await app.runs.read(id)).toMatchObject({ state: 'late' });
    expect(await app.runs.freeze(id, NIGHT)).toEqual({ frozen: true, state: 'late' });
    const events = (await app.runs.history(id)).map(({ event }) => event);
    expect(events).toEqual(['begin', 'freeze', 'unfreeze', 'after', 'freeze']);
  });

  it('stops a run whose deadline cannot take effect, and lets it go on', async () => {
    const workflow = new StateMachineGate({
      id: 'timed',
      initial: 'open',
      states: { open: { after: { 60000: 'late' } }, late: {} },
    }).bindTool('cart.add_item', 'open');
    const begin = (): never => {
      throw new Error('the shop is away');
    };
    const app = await scene({ workflow, gate: { begin } });
    const { id } = await app.session();
    // A call of it has claimed it, and has moved nothing.
    const claim = { ...claimOf(id), workflow: 'timed', initial: { state: 'open', updatedAt: 0 } };
    await app.data.claim(claim);
    await app.data.release(claim, claim.token);
    app.clock.advance(60_000);
    expect(await app.runs.freeze(id, NIGHT)).toEqual({ frozen: true, state: 'open' });
    expect(await app.runs.unfreeze(id, NIGHT)).toEqual({ unfrozen: true, state: 'open' });
    expect(app.errors.map(String)).toEqual(['Error: the shop is away', 'Error: the shop is away']);
  });

  it('stops a run though the store fails once at each step of it', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('payment');
    app.store.fail('read', 2);
    const frozen = app.runs.freeze(session.id, NIGHT);
    expect(await passUntil(app.clock, frozen)).toEqual({ frozen: true, state: 'payment' });
  });

  it('stops a held run too, which a person may resolve and which stays frozen', async () => {
    const app = await scene({ workflow: shopGate() });
    const session = await app.sessionAt('payment');
    const step = { tool: 'cart.pay', digest: '', uncertain: 'hold' as const };
    await app.data.claim(claimOf(session.id, { step, leaseMs: 1, token: crypto.randomUUID() }));
    app.clock.advance(1);
    expect(await app.runs.freeze(session.id, NIGHT)).toEqual({ frozen: true, state: 'payment' });
    await app.runs.unfreeze(session.id, NIGHT);
    expect(await app.runs.read(session.id)).toMatchObject({ status: 'held', state: 'payment' });
    expect(await app.runs.freeze(session.id, NIGHT)).toMatchObject({ frozen: true });
    const resolved = await app.runs.resolve(session.id, 'succeeded');
    expect(resolved).toEqual({ resolved: true, state: 'confirmed' });
    expect(await app.runs.read(session.id)).toMatchObject({ status: 'idle', frozen: NIGHT });
    expect(await app.runs.unfreeze(session.id, NIGHT)).toMatchObject({ unfrozen: true });
  });

  it('stops a principal before the first call', async () => {
    const app = await scene({ workflow: shopGate(), session: { key: principalKey() } });
    const runs = runsOf(app.runs.gate, { store: app.data });
    const run = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });
    expect(await runs.freeze(run, NIGHT)).toEqual({ frozen: true, state: 'empty' });
    const client = await app.client('ann');
    await client.isRefused('cart.add_item', 'frozen');
  });

  it('wants to know who and why', async () => {
    const app = await scene();
    for (const options of [{}, { actor: 'ann' }, { ...NIGHT, note: '' }, undefined]) {
      const frozen = app.runs.freeze('run', options as typeof NIGHT);
      await expect(frozen).rejects.toThrow(InterlockError);
      await expect(frozen).rejects.toMatchObject({ code: 'ERR_INTERLOCK_CONFIG' });
    }
    expect(await app.runs.freeze('run', NIGHT)).toEqual({ frozen: false, reason: 'unknown-run' });
  });
});

describe('a held run', () => {
  it('has its steps in no list until a person resolves it, and its client is told then', async () => {
    const app = await scene({ workflow: shopGate() });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.calls('cart.checkout');
    await client.isTold(2);
    const step = { tool: 'cart.pay', digest: '', uncertain: 'hold' as const };
    const claim = {
      run: client.run,
      workflow: 'checkout',
      token: crypto.randomUUID(),
      step,
      states: undefined,
    };
    const times = { leaseMs: 8_000, ttlMs: 3_600_000 };
    const initial = { state: 'empty', updatedAt: 0 };
    await app.data.claim({ ...claim, ...times, initial });
    app.clock.advance(8_000);
    await client.sees(['cart.view']);
    await client.isRefused('cart.pay', 'held');
    expect((await app.runs.read(client.run))?.available).toEqual(['cart.view']);
    await app.runs.resolve(client.run, 'failed', { event: null });
    await client.isTold(3);
    await client.sees(['cart.pay', 'cart.view']);
  });
});

describe('a move from outside that a crash has left in the store', () => {
  it('is no tool: its client reads no name of it, and the trail says of no tool that it ran', async () => {
    const app = await scene({ workflow: shopGate(), gate: { statusTool: 'status' } });
    const session = await app.sessionAt('payment');
    const step = { tool: 'send SECRET', digest: 'outside-1', uncertain: 'hold' as const };
    await app.data.claim(claimOf(session.id, { step, leaseMs: 1_000, token: crypto.randomUUID() }));
    const answers = [await session.call('status')];
    app.clock.advance(1_000);
    answers.push(await session.call('status'), await session.call('cart.pay'));
    expect(answers[2]?.result?._meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'held' },
    });
    expect(await app.runs.resolve(session.id, 'failed', NIGHT)).toMatchObject({ resolved: true });
    answers.push(await session.call('status'));
    expect(JSON.stringify(answers)).not.toContain('SECRET');
    const [resolved] = await app.runs.history(session.id, 1);
    expect(resolved).toMatchObject({ kind: 'resolved', outcome: 'failed', ...NIGHT });
    expect(resolved).not.toHaveProperty('tool');
  });
});
