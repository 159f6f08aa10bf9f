import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import { currentStep, memoryStore, type OrderRules, StateMachineGate } from '../../src/index.ts';
import { explain } from '../../src/runs/index.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { latch } from '../helpers/latch.ts';
import { type Caller, type RulesApp, refusalOf, rulesApp } from '../helpers/rules-app.ts';
import { type HeldCall, pass, passUntil, scene } from '../helpers/scene.ts';
import { startTasks } from '../helpers/task-server.ts';

const MINUTE = 60_000;
const SHORT = { gate: { maxStepMs: 10_000 } };

const order = (rules: OrderRules, options: object = {}) =>
  StateMachineGate.fromOrder(rules, { id: 'w', ...options });

/** A call whose outcome is never known: its step takes too long. */
async function lose(app: RulesApp, caller: Caller, tool: string, args = {}) {
  const call = await caller.begins(tool, args);
  await pass(app.clock, 10_000, 1_000);
  await call.answer;
  await pass(app.clock, 10_000, 1_000);
  return call;
}

describe('a call of unknown outcome', () => {
  const once = () => order({ pay: { limit: { times: 1 } } });
  const approved = () => order({ pay: { after: { tool: 'approve', consumes: true } } });

  it.each([
    ['a limit', once, 'limit'],
    ['what is consumed', approved, 'state'],
  ] as const)('counts for %s until a person resolves it', async (_, gate, reason) => {
    const app = await rulesApp(gate(), SHORT);
    const callers = [await app.begin(), await app.begin()];
    const late: HeldCall<unknown>[] = [];
    for (const caller of callers) {
      if (reason === 'state') await caller.may('approve');
      late.push(await lose(app, caller, 'pay', { id: 1 }));
      await app.run(caller.run).is('held');
      await caller.mayNot('pay', 'held');
      expect(await caller.tools()).not.toContain('pay');
    }
    const [succeeded, failed] = callers as [Caller, Caller];
    await app.runs.resolve(succeeded.run, 'succeeded');
    await succeeded.mayNot('pay', reason);
    await app.runs.resolve(failed.run, 'failed');
    for (const each of late) each.finish();
    await failed.may('pay');
    await failed.mayNot('pay', reason);
  });

  it('that succeeded has its values, which later rules compare', async () => {
    const gate = order({
      pay: { limit: { sum: 'amount', max: 10 } },
      refund: { after: { tool: 'pay', same: ['id'] } },
    });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    const lost = await lose(app, caller, 'pay', { id: 7, amount: 8 });
    await app.runs.resolve(caller.run, 'succeeded');
    lost.finish();
    await caller.mayNot('refund', 'guard', { id: 8 });
    await caller.may('refund', { id: 7 });
    await caller.mayNot('pay', 'limit', { id: 1, amount: 3 });
    await caller.may('pay', { id: 1, amount: 2 });
  });

  it('of a step that may be tried again counts for others, and its retry is the same use', async () => {
    const gate = order({ pay: { limit: { times: 1 }, uncertain: 'retry' } });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    const lost = await lose(app, caller, 'pay', { id: 1 });
    await app.run(caller.run).is('idle');
    expect(await caller.tools()).toEqual(['pay']);
    await caller.mayNot('pay', 'limit', { id: 2 });
    expect(await caller.tools()).toEqual(['pay']);
    await caller.may('pay', { id: 1 });
    expect(await caller.tools()).toEqual([]);
    await caller.mayNot('pay', 'limit', { id: 1 });
    lost.finish();
    expect(app.ran('pay')).toBe(2);
    expect(await caller.moves()).toEqual(['pay']);
  });

  it('is known to lists, reads and operators as to calls, after another call too', async () => {
    const gate = order({
      pay: { limit: { times: 1, within: '1h' }, uncertain: 'retry' },
      refund: { after: 'pay' },
      calm: { notAfter: 'pay' },
      other: { limit: { times: 99 } },
    });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    const lost = await lose(app, caller, 'pay', { id: 'A' });
    const before = await caller.tools();
    expect(before).not.toContain('calm');
    await caller.may('other');
    expect(await caller.tools()).toEqual(before);
    await caller.mayNot('calm', 'state');
    await caller.mayNot('pay', 'limit', { id: 'B' });

    const view = await app.runs.read(caller.run);
    expect(view).toMatchObject({ status: 'idle', unsettled: [{ tool: 'pay' }] });
    expect(view?.available).not.toContain('calm');
    const says = explain(gate, view).tools.find(({ tool }) => tool === 'calm');
    expect(says).toMatchObject({ shown: false, refusal: { reason: 'state' } });
    const [listed, ...more] = (await app.runs.unsettled()).runs;
    expect([listed?.run, more]).toEqual([caller.run, []]);
    expect(await app.runs.count()).toMatchObject({ held: 0, unsettled: 1 });

    const [{ idempotencyKey = '' } = {}] = view?.unsettled ?? [];
    const by = { actor: 'ann', note: 'asked the bank' };
    expect(await app.runs.resolve({ idempotencyKey }, 'succeeded', by)).toMatchObject({
      resolved: true,
    });
    expect(await app.runs.unsettled()).toEqual({ runs: [] });
    expect(await app.runs.resolve({ idempotencyKey }, 'failed', by)).toMatchObject({
      resolved: false,
      reason: 'not-held',
    });
    expect((await app.runs.history(caller.run)).at(-1)).toMatchObject({
      tool: 'pay',
      outcome: 'succeeded',
      kind: 'resolved',
      ...by,
    });
    await caller.may('refund');
    await caller.mayNot('pay', 'limit', { id: 'B' });
    lost.finish();
  });

  it('frees what it would use once a person says by the run alone that it failed', async () => {
    const app = await rulesApp(
      order({ pay: { limit: { times: 1 }, uncertain: 'retry' }, other: { limit: { times: 9 } } }),
      SHORT,
    );
    const caller = await app.begin();
    const lost = await lose(app, caller, 'pay', { id: 'A' });
    await caller.may('other');
    await caller.mayNot('pay', 'limit', { id: 'B' });
    expect(await app.runs.resolve(caller.run, 'failed')).toMatchObject({ resolved: true });
    expect(await app.runs.resolve(caller.run, 'failed')).toMatchObject({ reason: 'not-held' });
    await caller.may('pay', { id: 'B' });
    lost.finish();
  });

  it('of a process that died counts in another one', async () => {
    const gate = () =>
      order({
        pay: {
          after: { tool: 'approve', same: ['id'], consumes: true },
          limit: { sum: 'amount', max: 10 },
          uncertain: 'retry',
        },
      });
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const died = await rulesApp(gate(), { ...SHORT, shape });
    const app = await rulesApp(gate(), { shape, beside: died });
    const { run } = await died.begin();
    const there = died.resume(run);
    await there.may('approve', { id: 1 });
    await there.may('approve', { id: 2 });
    died.store.fail('commit');
    died.store.fail('renew');
    const lost = await there.begins('pay', { id: 1, amount: 6 });
    await pass(died.clock, 30_000);
    const caller = app.resume(run);
    // The run is taken over: what the call would use is kept.
    await caller.mayNot('pay', 'limit', { id: 2, amount: 5 });
    await caller.may('pay', { id: 2, amount: 4 });
    await caller.may('pay', { id: 1, amount: 6 });
    await caller.mayNot('pay', 'state', { id: 1, amount: 0 });
    await caller.may('approve', { id: 3 });
    await caller.mayNot('pay', 'limit', { id: 3, amount: 1 });
    lost.finish();
    await passUntil(died.clock, lost.answer);
  });

  it.each(['1', '2', '3'])(
    'keeps the approval that it was granted, beside %s others',
    async (n) => {
      const approve = { tool: 'approve', consumes: true };
      const gate = order({ transfer: { after: approve, uncertain: 'retry' } });
      const app = await rulesApp(gate, SHORT);
      const caller = await app.begin();
      const ids = Array.from({ length: Number(n) + 1 }, (_, id) => id);
      for (const id of ids) await caller.may('approve', { id });
      const lost: HeldCall<unknown>[] = [];
      for (const id of ids) lost.push(await lose(app, caller, 'transfer', { id }));
      await caller.mayNot('transfer', 'state', { id: 99 });
      // A retry is the same use.
      for (const id of ids) await caller.may('transfer', { id });
      await caller.mayNot('transfer', 'state', { id: 99 });
      await caller.may('approve', { id: 99 });
      await caller.may('transfer', { id: 99 });
      for (const each of lost) each.finish();
    },
  );

  it('keeps no other approval once the one that it was granted is forgotten', async () => {
    const gate = order({
      transfer: {
        after: { tool: 'approve', within: '10m', consumes: true },
        uncertain: 'retry',
      },
      other: { once: true },
    });
    const app = await rulesApp(gate, { ...SHORT, session: { idleMs: 60 * MINUTE } });
    const caller = await app.begin();
    await caller.may('approve', { id: 1 });
    await pass(app.clock, 5 * MINUTE, MINUTE);
    await caller.may('approve', { id: 2 });
    await pass(app.clock, MINUTE, MINUTE);
    const lost = await lose(app, caller, 'transfer', { id: 1 });
    await pass(app.clock, 5 * MINUTE, MINUTE);
    await caller.may('other');
    await caller.may('transfer', { id: 2 });
    await caller.mayNot('transfer', 'state', { id: 3 });
    await caller.may('approve', { id: 3 });
    await caller.may('transfer', { id: 3 });
    lost.finish();
  });

  it('uses up what it was granted where a person says that it succeeded, also much later', async () => {
    const gate = order({
      transfer: { after: { tool: 'approve', within: '10m', consumes: true } },
      see: { after: 'find' },
    });
    const app = await rulesApp(gate, { ...SHORT, session: { idleMs: 60 * MINUTE } });
    const caller = await app.begin();
    await caller.may('approve', { id: 1 });
    await pass(app.clock, 5 * MINUTE, MINUTE);
    await caller.may('approve', { id: 2 });
    await pass(app.clock, MINUTE, MINUTE);
    const lost = await lose(app, caller, 'transfer', { id: 1 });
    await pass(app.clock, 5 * MINUTE, MINUTE);
    // A lookup is recorded beside the held step, and what no window has any more is forgotten.
    await caller.may('find');
    await app.runs.resolve(caller.run, 'succeeded');
    await caller.may('transfer', { id: 2 });
    await caller.mayNot('transfer', 'state', { id: 3 });
    lost.finish();
  });

  it('is claimed again where another call took the approval that it was to have', async () => {
    const gate = order({ transfer: { after: { tool: 'approve', consumes: true } } });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    for (const id of [1, 2, 3]) await caller.may('approve', { id });
    app.store.take();
    const calls = [1, 2, 3, 4].map((id) => caller.call('transfer', { id }));
    const answers = await Promise.all(calls);
    expect(answers.filter(({ result }) => result.isError !== true)).toHaveLength(3);
    const claims = app.store.take().filter((each) => each === 'claim');
    expect(claims.length).toBeLessThanOrEqual(8);
    expect(app.errors).toEqual([]);
  });

  it('counts as one that happened for `notAfter`, and as none for `after`', async () => {
    const gate = order({
      pay: { uncertain: 'retry', limit: { times: 9 } },
      calm: { notAfter: 'pay' },
      refund: { after: 'pay' },
      audit: { after: { tool: 'pay', outcome: 'any' } },
    });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    const lost = await lose(app, caller, 'pay');
    await caller.mayNot('calm', 'state');
    await caller.mayNot('refund', 'state');
    await caller.may('audit');
    lost.finish();
  });

  it('is known again where the answer comes late', async () => {
    const app = await rulesApp(order({ pay: { limit: { times: 1 } } }), SHORT);
    const caller = await app.begin();
    const late = await caller.begins('pay', {});
    await pass(app.clock, 10_000, 1_000);
    await late.answer;
    late.finish();
    await app.run(caller.run).becomes('idle');
    await caller.mayNot('pay', 'limit');
  });
});

describe('a call that asks for input', () => {
  it('gives back what it would use, and is judged anew', async () => {
    let asks = true;
    const gate = order({
      pay: {
        after: [
          { tool: 'approve', consumes: 'calls' },
          { tool: 'look', within: '1m' },
        ],
        limit: { times: 1 },
      },
    });
    const app = await rulesApp(gate, {
      answers: { pay: () => (asks ? { resultType: 'input_required', content: [] } : {}) },
    });
    const caller = await app.begin();
    await caller.may('approve');
    await caller.may('look');
    await caller.may('pay');
    expect(await caller.moves()).toEqual(['approve', 'look']);
    app.clock.advance(MINUTE);
    await caller.mayNot('pay', 'state');
    await caller.may('look');
    asks = false;
    await caller.may('pay');
    await caller.may('approve');
    await caller.mayNot('pay', 'limit');
  });
});

describe('an outcome', () => {
  it('that fails counts where a rule asks for failures, and nowhere else', async () => {
    const gate = order({
      login: {
        notAfter: { tool: 'login', outcome: 'failed', times: 3, within: '5m' },
        limit: { times: 1 },
      },
      help: { after: { tool: 'login', outcome: 'failed' } },
      any: { after: { tool: 'login', outcome: 'any', times: 4 } },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.mayNot('help', 'state');
    for (let i = 0; i < 3; i++) await caller.fails('login');
    const refused = await caller.mayNot('login', 'state');
    expect(refused.text).toContain('login failed 3 times less than 5 minutes ago: again in 5 min');
    await caller.may('help');
    await caller.mayNot('any', 'state');
    app.clock.advance(5 * MINUTE);
    await caller.may('login');
    await caller.mayNot('login', 'limit');
    await caller.may('any');
  });

  it('that fails uses calls up only with `consumes: "calls"`', async () => {
    for (const consumes of [true, 'calls'] as const) {
      const gate = order({ pay: { after: { tool: 'approve', consumes } } });
      const app = await rulesApp(gate);
      const caller = await app.begin();
      await caller.may('approve');
      await caller.fails('pay');
      if (consumes === true) await caller.may('pay');
      await caller.mayNot('pay', 'state');
    }
  });

  it('is what `ok` says of the result', async () => {
    const gate = order({
      find: { step: false, ok: { found: true } },
      cancel: { after: { tool: 'find', same: ['id'] } },
      pay: { ok: ({ structuredContent }) => structuredContent?.paid === true, limit: { times: 1 } },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('find', { id: 1, found: false });
    await caller.mayNot('cancel', 'state', { id: 1 });
    expect(app.errors).toEqual([]);
    // A lookup that leaves it open counts for nothing.
    await caller.may('find', { id: 1 });
    await caller.mayNot('cancel', 'state', { id: 1 });
    expect(String(app.errors)).toContain('the binding of "find" in "{}" does not say');
    await caller.may('find', { id: 1, found: true });
    await caller.may('cancel', { id: 1 });
    await caller.may('pay', { paid: false });
    await caller.may('pay', { paid: true });
    await caller.mayNot('pay', 'limit', { paid: true });
  });

  it('of a step that `ok` leaves open is held', async () => {
    const app = await rulesApp(order({ pay: { ok: { paid: true }, limit: { times: 1 } } }), SHORT);
    const caller = await app.begin();
    await caller.call('pay');
    await pass(app.clock, 20_000);
    await app.run(caller.run).is('held');
    await app.runs.resolve(caller.run, 'failed');
    await caller.may('pay', { paid: true });
  });

  it('that `errors` calls unknown is held', async () => {
    const gate = order({ pay: { errors: 'unknown', limit: { times: 1 } } });
    const app = await rulesApp(gate, SHORT);
    const caller = await app.begin();
    await caller.call('pay', { fail: true });
    await pass(app.clock, 20_000);
    await app.run(caller.run).is('held');
    await app.runs.resolve(caller.run, 'succeeded');
    await caller.mayNot('pay', 'limit');
  });

  it('that fails counts as the success of `failure` after its `retries`, from then on', async () => {
    const gate = order({
      pay: { failure: 'pay_failed', retries: 1 },
      help: { after: { tool: 'pay_failed', within: '5m' } },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.fails('pay');
    await caller.mayNot('help', 'state');
    await caller.fails('pay');
    app.clock.advance(5 * MINUTE - 1);
    await caller.may('help');
    app.clock.advance(1);
    await caller.mayNot('help', 'state');
  });

  it('that a loop shield falls back to counts from then on', async () => {
    const loopShield = { max: 2, fallback: { event: 'help' } };
    const gate = order(
      { pay: { after: { tool: 'help', within: '5m' } }, ask: { guard: () => false } },
      { loopShield },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    for (const reason of ['guard', 'guard', 'loop']) await caller.mayNot('ask', reason);
    app.clock.advance(5 * MINUTE - 1);
    await caller.may('pay');
    app.clock.advance(1);
    await caller.mayNot('pay', 'state');
  });

  it('is read of JSON in a text where the gate says so', async () => {
    const rules = {
      pay: {
        after: { tool: 'look', same: { to: { result: 'accountId' } }, result: { open: true } },
      },
    } as const;
    const textOf = ({ text }: { readonly text?: unknown }) => ({
      structuredContent: undefined,
      content: [{ type: 'text', text }],
    });
    for (const results of ['text', 'structured'] as const) {
      const app = await rulesApp(order(rules, { results }), { answers: { look: textOf } });
      const caller = await app.begin();
      await caller.may('look', { text: 'A is open' });
      await caller.may('look', { text: '{"accountId":"B","open":false}' });
      await caller.mayNot('pay', 'state', { to: 'B' });
      await caller.may('look', { text: '{"accountId":"A","open":true}' });
      if (results === 'text') await caller.may('pay', { to: 'A' });
      else await caller.mayNot('pay', 'state', { to: 'A' });
    }
  });
});

describe('a guard and a `visible` of a rule', () => {
  it('the guard is asked once all that the rule needs is there', async () => {
    const asked: unknown[] = [];
    const gate = order({
      pay: {
        after: { tool: 'look', same: ['id'] },
        limit: { times: 1 },
        guard: ({ args }) => {
          asked.push(args.id);
          return args.id === 2 || 'not this one';
        },
      },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.mayNot('pay', 'state', { id: 1 });
    await caller.may('look', { id: 1 });
    await caller.may('look', { id: 2 });
    await caller.mayNot('pay', 'guard', { id: 3 });
    expect(asked).toEqual([]);
    const refused = await caller.mayNot('pay', 'guard', { id: 1 });
    expect(refused.text).toContain('not this one');
    await caller.may('pay', { id: 2 });
    await caller.mayNot('pay', 'limit', { id: 2 });
    expect(asked).toEqual([1, 2]);
  });

  it('a tool that a client does not see is not named to it by a rule', async () => {
    const gate = order({
      pay: {
        after: [{ tool: 'secret_approve', within: '1h' }],
        notAfter: { tool: 'secret_reject', within: '1h' },
      },
      secret_approve: { visible: ({ principal }) => principal === 'boss' },
      secret_reject: { visible: ({ principal }) => principal === 'boss' },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin({ 'x-user': 'clerk' });
    expect(await caller.tools()).toEqual([]);
    const refused = await caller.mayNot('pay', 'state');
    expect(JSON.stringify(refused)).not.toContain('secret');
    await app.runs.send(caller.run, 'secret_approve');
    expect(await caller.tools()).toEqual(['pay']);
    await app.runs.send(caller.run, 'secret_reject');
    const barred = await caller.mayNot('pay', 'state');
    expect(JSON.stringify({ ...barred, state: '' })).not.toContain('secret');
  });
});

describe('what the app tells of', () => {
  it('a call that it made itself has the arguments and the result that it says', async () => {
    const gate = order({
      pay: { after: { tool: 'otp', same: ['id'], result: { code: 'ok' }, consumes: true } },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const { run } = caller;
    await app.runs.send(run, 'otp');
    await app.runs.send(run, 'otp', { arguments: { id: 1 }, result: { code: 'bad' } });
    await caller.mayNot('pay', 'state', { id: 1 });
    await app.runs.send(run, 'otp', { arguments: { id: 1 }, result: { code: 'ok' } });
    await caller.mayNot('pay', 'guard', { id: 2 });
    await caller.may('pay', { id: 1 });
    await caller.mayNot('pay', 'state', { id: 1 });
  });
});

describe('requirements', () => {
  it('`distinct` counts different values, and `times` how many', async () => {
    const gate = order({
      pay: {
        after: { tool: 'approve', same: ['id'], times: 2, distinct: 'by', consumes: true },
      },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('approve', { id: 1, by: 'ann' });
    await caller.may('approve', { id: 1, by: 'ann' });
    await caller.may('approve', { id: 2, by: 'bob' });
    await caller.may('approve', { id: 1 });
    const refused = await caller.mayNot('pay', 'guard', { id: 1 });
    expect(refused.text).toContain('call approve with the same id first 2 times with different by');
    await caller.may('approve', { id: 1, by: 'bob' });
    await caller.may('pay', { id: 1 });
    // One approval of Ann's is left.
    await caller.mayNot('pay', 'guard', { id: 1 });
    await caller.may('approve', { id: 1, by: 'cid' });
    await caller.may('pay', { id: 1 });
  });

  it('of two tools that bar each other, one of two calls at once runs', async () => {
    const gate = order({
      approve: { notAfter: { tool: 'reject', within: '5m' } },
      reject: { notAfter: { tool: 'approve', within: '5m' } },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const answers = await Promise.all(['approve', 'reject'].map((tool) => caller.call(tool)));
    expect(app.ledger.calls).toHaveLength(1);
    expect(answers.map((each) => refusalOf(each).reason).sort()).toEqual(['state', undefined]);
    app.clock.advance(5 * MINUTE);
    await caller.may('reject');
    await caller.mayNot('approve', 'state');
  });

  it('`needs` are named once, and read the arguments of the tool that calls', async () => {
    const needs = {
      signed_in: { any: ['pin', 'face'] },
      looked_up: { tool: 'find', same: ['id'], when: { id: { exists: true } } },
      both: [{ need: 'signed_in' }, { need: 'looked_up' }],
    };
    const gate = order(
      { pay: { after: { need: 'both' } }, see: { after: { need: 'signed_in' } } },
      {
        needs,
      },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.mayNot('see', 'state');
    await caller.may('face');
    await caller.may('see');
    await caller.mayNot('pay', 'guard', { id: 1 });
    await caller.may('pay');
    await caller.may('find', { id: 1 });
    await caller.may('pay', { id: 1 });
    const circle = { a: { need: 'b' }, b: { any: ['x', { need: 'a' }] } };
    expect(() => order({ pay: { after: { need: 'a' } } }, { needs: circle })).toThrow(
      /a need cannot need itself: "a" needs "b" needs "a"/,
    );
  });

  it('a call with `same` waits for the lookup in flight, and is refused where that is another', async () => {
    const gate = order({ cancel: { after: { tool: 'find', same: { id: { result: 'id' } } } } });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const find = await caller.begins('find', { id: 1 });
    const both = [1, 2].map((id) => caller.call('cancel', { id }));
    await app.isServing(3);
    expect(app.ran('cancel')).toBe(0);
    find.finish();
    const [same, other] = await Promise.all(both);
    expect(refusalOf(same ?? {}).reason).toBeUndefined();
    expect(refusalOf(other ?? {}).reason).toBe('guard');
    expect(app.ran('cancel')).toBe(1);
  });
});

describe('a limit of a binding', () => {
  const flat = (limit: object) =>
    new StateMachineGate({
      id: 'w',
      initial: 'open',
      states: { open: { on: { PAY: 'open', SHUT: 'shut' } }, shut: {} },
    })
      .bindTool('pay', 'open', { success: 'PAY', limit } as never)
      .bindTool('shut', 'open', 'SHUT');
  const chart = (limit: object) =>
    new StateMachineGate(
      createMachine({
        id: 'w',
        type: 'parallel',
        states: {
          a: { initial: 'open', states: { open: { on: { PAY: 'open', SHUT: 'shut' } }, shut: {} } },
          b: { initial: 'idle', states: { idle: {} } },
        },
      }),
    )
      .bindTool('pay', 'a.open', { success: 'PAY', limit } as never)
      .bindTool('shut', 'a.open', 'SHUT');

  it.each([
    ['a flat machine', flat],
    ['a statechart', chart],
  ])('of %s counts its successes, and hides the tool at the limit', async (_, make) => {
    const app = await rulesApp(make({ times: 2, within: '5m' }) as never, SHORT);
    const caller = await app.begin();
    await caller.may('pay');
    await caller.fails('pay');
    await caller.may('pay');
    const refused = await caller.mayNot('pay', 'limit');
    expect(refused.text).toContain('at most 2 in 5 minutes: again in 5 min');
    expect(await caller.tools()).toEqual(['shut']);
    app.clock.advance(5 * MINUTE);
    expect(await caller.tools()).toEqual(['pay', 'shut']);
    const lost = await lose(app, caller, 'pay');
    await app.runs.resolve(caller.run, 'succeeded');
    lost.finish();
    await caller.may('pay');
    await caller.mayNot('pay', 'limit');
    await caller.may('shut');
    await caller.mayNot('pay', 'state');
  });

  it('with `ok` counts what that says', async () => {
    const gate = new StateMachineGate({
      id: 'w',
      initial: 'open',
      states: { open: { on: { PAID: 'paid' } }, paid: {} },
    }).bindTool('pay', 'open', {
      success: 'PAID',
      ok: { status: 'paid' },
      limit: { times: 3, outcome: 'any' },
    });
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('pay', { status: 'declined' });
    await caller.fails('pay');
    await app.run(caller.run).isIn('open');
    await caller.may('pay', { status: 'paid' });
    await app.run(caller.run).isIn('paid');
    expect((await app.runs.history(caller.run)).map(({ kind }) => kind)).toEqual([
      'not_ok',
      'tool_error',
      undefined,
    ]);
  });

  it('of one call at most lets one of 50 calls at once run', async () => {
    const app = await rulesApp(flat({ times: 1 }));
    const caller = await app.begin();
    await Promise.all(Array.from({ length: 50 }, () => caller.call('pay')));
    expect(app.ran('pay')).toBe(1);
  });
});

describe('a call that goes on as a task', () => {
  it('makes its fact when the task ends', async () => {
    const tasks = startTasks();
    const gate = order({
      'cart.pay': {
        after: { tool: 'cart.checkout', same: ['sku'], within: '1m' },
        limit: { times: 1 },
      },
    });
    const app = await scene({
      workflow: gate as never,
      makeServer: tasks.makeServer,
      shape: { answers: 'json' },
    });
    const session = await app.session();
    const begin = async (name: string) => {
      const asked = { name, arguments: { sku: 'a' }, task: { ttl: 10 * MINUTE } };
      const { result } = await session.ask('tools/call', asked);
      return String(result.task.taskId);
    };
    const refused = async (reason: string, sku = 'a') =>
      expect(refusalOf(await session.call('cart.pay', { sku })).reason).toBe(reason);
    const checkout = await begin('cart.checkout');
    app.clock.advance(2_000);
    await tasks.finish(checkout, 'checked out');
    await session.ask('tasks/get', { taskId: checkout });
    await refused('guard', 'b');
    app.clock.advance(MINUTE - 1);
    const pay = await begin('cart.pay');
    await app.run(session.id).is('running');
    app.clock.advance(2_000);
    await tasks.finish(pay, 'paid');
    await session.ask('tasks/get', { taskId: pay });
    await app.run(session.id).is('idle');
    await refused('state');
    const again = await begin('cart.checkout');
    await tasks.finish(again, 'checked out');
    await session.ask('tasks/get', { taskId: again });
    await refused('limit');
  });
});

describe('commitIn(client)', () => {
  const RULES = {
    pay: {
      after: { tool: 'approve', same: ['id'], consumes: true },
      limit: { sum: 'amount', max: 10 },
    },
    refund: { after: { tool: 'pay', same: ['id'] } },
    see: { after: { tool: 'look', same: ['id'] } },
  } as const;

  /** A store whose transactions are committed at once. */
  function transactional() {
    const store = new FaultyStore(memoryStore());
    return Object.assign(store, {
      commitIn: (_client: unknown, request: Parameters<FaultyStore['commit']>[0]) =>
        store.commit(request),
    });
  }

  it('commits the fact and what it uses, beside what was recorded meanwhile', async () => {
    const done = latch();
    const gates: Promise<unknown>[] = [];
    const app = await rulesApp(order(RULES), {
      session: { store: transactional() },
      answers: {
        pay: (_args, extra) => {
          gates.push(done.opened.then(() => currentStep(extra)?.commitIn({})));
          return {};
        },
      },
    });
    const caller = await app.begin();
    await caller.may('approve', { id: 1 });
    await caller.may('approve', { id: 2 });
    const slow = latch();
    app.ledger.gates.set('pay', slow.opened);
    const pay = caller.call('pay', { id: 1, amount: 6 });
    await expect.poll(() => app.ran('pay')).toBe(1);
    await caller.may('look', { id: 5 });
    slow.open();
    done.open();
    expect((await pay).result.isError).not.toBe(true);
    await Promise.all(gates);
    await caller.may('see', { id: 5 });
    await caller.may('refund', { id: 1 });
    await caller.mayNot('pay', 'guard', { id: 1, amount: 1 });
    await caller.mayNot('pay', 'limit', { id: 2, amount: 5 });
    expect(app.errors).toEqual([]);
  });

  it('throws where a rule reads the result, which is not there yet', async () => {
    const thrown: unknown[] = [];
    const gate = order({ refund: { after: { tool: 'pay', result: { paid: true } } }, pay: {} });
    const store = transactional();
    const app = await rulesApp(gate, {
      session: { store },
      answers: {
        pay: (_args, extra) => {
          currentStep(extra)
            ?.commitIn({})
            .catch((error: unknown) => thrown.push(error));
          return { structuredContent: { paid: true } };
        },
      },
    });
    const caller = await app.begin();
    await caller.may('pay');
    expect(String(thrown)).toContain('what a success of "pay" is depends on its result');
    await caller.may('refund');
  });
});
