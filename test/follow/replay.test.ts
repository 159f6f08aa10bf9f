import { expect, it } from 'vitest';
import { judge, type RulesHistory } from '../../lab/checker/rules.ts';
import { type RulesCase, randomCases } from '../../lab/checker/rules-random.ts';
import { replayCalls } from '../../packages/check/src/index.ts';
import { SENT, type SentValue } from '../../src/basics/events.ts';
import { type InterlockEvent, recordCalls, StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { cases } from '../helpers/few.ts';
import { gateOf, isSound } from '../workflow/rules-gate.ts';

const sentOf = (value: unknown): SentValue => ({ value: () => value, schema: () => undefined });

/** A recording as an app makes it, of calls that the test makes up. */
class Tape {
  #text = '';
  #call = 0;
  readonly #recorder;

  constructor(isClear = false) {
    this.#recorder = recordCalls({
      write: (lines) => {
        this.#text += lines;
      },
      key: 'a key of sixteen bytes',
      clear: () => isClear || 'name',
    });
  }

  start(run: string, tool: string, args: unknown = {}, at = 0): number {
    const call = ++this.#call;
    this.#take({ type: 'call.started', at, call, tool, run, [SENT]: sentOf(args) });
    return call;
  }

  end(call: number, outcome = 'ok', result?: unknown, at = 0): void {
    this.#take({ type: 'call.ended', at, call, tool: '', outcome, [SENT]: sentOf(result) });
  }

  /** One call after another. */
  async play(run: string, ...tools: readonly string[]): Promise<void> {
    for (const tool of tools) this.end(this.start(run, tool));
  }

  #take(event: object): void {
    this.#recorder({
      requestId: 1,
      inSession: true,
      durationMs: 0,
      ...event,
    } as unknown as InterlockEvent);
  }

  async lines(): Promise<readonly string[]> {
    await this.#recorder.flush();
    return this.#text.split('\n').filter((each) => each !== '');
  }
}

it('counts runs by their first refusal, with the ways there', async () => {
  const tape = new Tape();
  await tape.play('a', 'cart.add_item', 'cart.checkout', 'cart.pay');
  await tape.play('b', 'cart.add_item', 'cart.add_item', 'cart.pay', 'cart.pay');
  await tape.play('c', 'cart.add_item', 'cart.add_item', 'cart.pay');
  await tape.play('d', 'cart.view');
  const lines = await tape.lines();
  const found = await replayCalls(checkoutGate(), { lines: () => lines });
  expect(found).toMatchObject({
    ...{ workflow: 'checkout', calls: 11, runs: 4, refused: 2, waited: 0, unknown: 0, ended: 1 },
    refusals: [
      {
        ...{ tool: 'cart.pay', reason: 'state', state: 'has_items', runs: 2 },
        histories: [{ calls: ['cart.add_item ×2'], runs: 2, run: 'b' }],
      },
    ],
    neverRefused: ['cart.add_item', 'cart.checkout'],
    neverCalled: [],
    differences: [],
  });
});

it('says of parallel calls that they would have waited, and goes on behind them', async () => {
  const tape = new Tape();
  const first = tape.start('a', 'cart.add_item');
  const second = tape.start('a', 'cart.checkout');
  tape.end(first);
  tape.end(second);
  await tape.play('a', 'cart.pay');
  const lines = await tape.lines();
  const found = await replayCalls(checkoutGate(), { lines: () => lines });
  expect(found).toMatchObject({ refused: 0, waited: 1, waits: 1, ended: 1 });
});

it('holds a run after an unknown outcome, as the gate would', async () => {
  const tape = new Tape();
  tape.end(tape.start('a', 'cart.add_item'), 'unanswered');
  await tape.play('a', 'cart.add_item');
  const lines = await tape.lines();
  const { refusals } = await replayCalls(checkoutGate(), { lines: () => lines });
  expect(refusals).toMatchObject([{ tool: 'cart.add_item', reason: 'held' }]);
});

it('tells what the recording leaves open apart', async () => {
  const gate = new StateMachineGate({
    id: 'bank',
    initial: 'a',
    states: { a: { on: { GO: 'a' } } },
  })
    .bindTool('guarded', 'a', { success: 'GO', guard: () => true })
    .bindTool('chosen', 'a', { success: ({ args }) => (args.big ? 'GO' : 'GO') })
    .bindTool('after', 'a', 'GO');
  const tape = new Tape();
  await tape.play('a', 'guarded');
  tape.end(tape.start('b', 'chosen', { big: true }));
  await tape.play('b', 'after');
  const lines = await tape.lines();
  const found = await replayCalls(gate, { lines: () => lines });
  expect(found).toMatchObject({ runs: 2, refused: 0, unknown: 2 });
  expect(found.doubts.map(({ tool, why }) => [tool, why])).toEqual([
    ['guarded', 'guard'],
    ['after', 'outcome'],
  ]);
});

it('compares two gates, and prints only runs on which they differ', async () => {
  const tape = new Tape();
  await tape.play('a', 'cart.pay');
  await tape.play('b', 'cart.add_item', 'cart.checkout');
  const lines = await tape.lines();
  const open = new StateMachineGate({
    id: 'checkout',
    initial: 'any',
    states: { any: { on: { PAY: 'any' } } },
  }).bindTool('cart.pay', 'any', 'PAY');
  const { differences } = await replayCalls(checkoutGate(), {
    lines: () => lines,
    compareTo: open as never,
  });
  expect(differences).toEqual([
    {
      before: undefined,
      after: { tool: 'cart.pay', reason: 'state', state: 'empty' },
      runs: 1,
      run: 'a',
    },
  ]);
});

it('takes lines of several processes in the order of their times, and counts what is none', async () => {
  const [one, other] = [new Tape(), new Tape()];
  one.end(one.start('a', 'cart.add_item', {}, 1), 'ok', undefined, 2);
  other.end(other.start('a', 'cart.checkout', {}, 3), 'ok', undefined, 4);
  one.end(one.start('a', 'cart.pay', {}, 5), 'ok', undefined, 6);
  const lines = [...(await other.lines()), ...(await one.lines()), '{"type":"start","inst'];
  const found = await replayCalls(checkoutGate(), { lines: () => lines });
  expect(found).toMatchObject({ runs: 1, refused: 0, ended: 1, unreadable: 1 });
});

/** Records a history of rules; what a run is sent from outside is in no recording. */
function recorded(history: RulesHistory, call: RulesCase['call'], isClear: boolean): Tape {
  const tape = new Tape(isClear);
  const numbers = new Map<number, number>();
  for (let index = 0; index <= history.length; index++) {
    history.forEach((each, number) => {
      if ('send' in each || (each.seen ?? number) !== index) return;
      numbers.set(number, tape.start('run', each.tool, each.args, each.claimedAt));
    });
    const each = history[index];
    if (each === undefined || 'send' in each) continue;
    const { outcome, claimedAt, decidedAt = claimedAt, result } = each;
    const said = outcome === 'succeeded' ? 'ok' : outcome === 'failed' ? 'tool_error' : 'unknown';
    tape.end(numbers.get(index) ?? 0, said, result, Math.max(claimedAt, decidedAt));
  }
  tape.start('run', call.tool, call.args, call.at);
  return tape;
}

it('compares values of calls by an old name, whose arguments had other paths', async () => {
  const gate = StateMachineGate.fromOrder({
    settle: {
      renamed: ['pay'],
      args: { id: 'order.number' },
      after: { tool: 'find', same: ['id'] },
    },
  });
  const tape = new Tape();
  const played = (run: string, tool: string, args: object) => {
    tape.end(tape.start(run, 'find', { id: 7 }));
    tape.end(tape.start(run, tool, args));
  };
  played('a', 'pay', { order: { number: 7 } });
  played('b', 'settle', { id: 7 });
  played('c', 'pay', { order: { number: 8 } });
  const lines = await tape.lines();
  const found = await replayCalls(gate, { lines: () => lines });
  expect(found).toMatchObject({ runs: 3, refused: 1, unknown: 0, doubts: [] });
  expect(found.refusals).toMatchObject([{ reason: 'guard', histories: [{ run: 'c' }] }]);
});

it('never says more than rules that read the whole history, and all of it in clear', async () => {
  const said = { clear: 0, open: 0, all: 0 };
  for (let seed = 1; seed <= cases(6); seed++) {
    let number = 0;
    for (const { rules, history, call } of randomCases(seed)) {
      if (++number > 40) break;
      const isPlain = history.every((each) => !('send' in each) && each.outcome !== 'unknown');
      if (!isPlain) continue;
      if (!isSound(rules)) continue;
      const gate = gateOf(rules);
      const later = history.map((each) =>
        'send' in each
          ? each
          : { ...each, decidedAt: Math.max(each.decidedAt ?? 0, each.claimedAt) },
      );
      const { verdict } = judge(rules, later, call);
      for (const isClear of [true, false]) {
        const lines = await recorded(later, call, isClear).lines();
        const found = await replayCalls(gate, { lines: () => lines });
        if (found.unknown > 0 || found.doubts.length > 0) {
          said.open += 1;
          continue;
        }
        said[isClear ? 'clear' : 'all'] += 1;
        expect([JSON.stringify({ rules, later, call }), found.refused > 0]).toEqual([
          JSON.stringify({ rules, later, call }),
          verdict !== 'allowed',
        ]);
      }
    }
  }
  expect(said.clear).toBeGreaterThan(10);
  expect(said.all).toBeGreaterThan(5);
});
