import { beforeEach, describe, expect, it } from 'vitest';
import { memoryStore } from '../../src/index.ts';
import { type ClaimOptions, claimStep, type NotClaimed } from '../../src/session/claim.ts';
import { guardStore } from '../../src/session/guarded-store.ts';
import { InFlight } from '../../src/session/in-flight.ts';
import { LiveSession } from '../../src/session/live-session.ts';
import type { RunContext } from '../../src/session/run-context.ts';
import { Step } from '../../src/session/step.ts';
import { Turns } from '../../src/session/turns.ts';
import { pass, settle } from '../helpers/checkout-app.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { ManualClock } from '../helpers/manual-clock.ts';

const HOUR = 3_600_000;
const TIMES = { waitMs: 10_000, leaseMs: 9_000, maxStepMs: 60_000, cancelGraceMs: 5_000 };
const MOVE = { snapshot: { state: 'paid' }, trail: { from: 'open', to: 'paid', event: 'PAY' } };
/** The timers of a running step: one renews its lease, one gives up on it. */
const STEP = 2;

let clock: ManualClock;
let store: FaultyStore;
let errors: unknown[];
let tooLong: number;

beforeEach(async () => {
  clock = new ManualClock();
  store = new FaultyStore(memoryStore({ now: clock.now }));
  errors = [];
  tooLong = 0;
  await store.open('run', {}, HOUR);
  store.take();
});

/** What a process has of the run; another one has its own. */
function processOf(): RunContext {
  return {
    run: 'run',
    store: guardStore(store, 2_000, clock),
    ttlMs: HOUR,
    session: new LiveSession('run', {}, clock.now()),
    turns: new Turns(clock),
    actor: undefined,
    create: undefined,
    gone: undefined,
    anew: undefined,
    fresh: () => undefined,
    listChanged: () => {},
    listen: () => () => {},
  };
}

function claim(
  context: RunContext,
  changes: Partial<ClaimOptions> = {},
): Promise<Step | NotClaimed> {
  return claimStep({
    context,
    workflow: 'order',
    description: { tool: 'pay', digest: 'd', uncertain: 'hold' },
    states: ['open'],
    initial: { state: 'open' },
    times: TIMES,
    clock,
    request: new InFlight(),
    onTooLong: () => void tooLong++,
    onError: (error) => void errors.push(error),
    ...changes,
  });
}

async function granted(context: RunContext, changes: Partial<ClaimOptions> = {}): Promise<Step> {
  const step = await claim(context, changes);
  expect(step).toBeInstanceOf(Step);
  return step as Step;
}

describe('a claim', () => {
  it('asks the store once, and knows the position that the call was tested against', async () => {
    const step = await granted(processOf());
    expect(store.asked).toEqual(['claim']);
    expect(step.snapshot).toMatchObject({ state: 'open' });
    expect(step.tool).toBe('pay');
  });

  it('is not had in a state in which the step is not allowed, and holds up nobody', async () => {
    const context = processOf();
    const refused = await claim(context, { states: ['paid'] });
    expect(refused).toMatchObject({ reason: 'state', snapshot: { state: 'open' } });
    await granted(context);
    expect(clock.pending).toBe(STEP);
  });

  it('is not had of a run that ended', async () => {
    await store.delete('run');
    expect(await claim(processOf())).toEqual({ reason: 'unknown' });
    expect(clock.pending).toBe(0);
  });

  it('of another process is waited for, asking now and then, and had soon after it is let go', async () => {
    const other = await granted(processOf());
    store.take();
    const waiting = claim(processOf());
    await pass(clock, 5_000, 10);
    const asked = store.take().filter((each) => each === 'claim').length;
    expect(asked).toBeGreaterThan(15);
    expect(asked).toBeLessThan(60);
    await other.release();
    await pass(clock, 260, 10);
    expect(await waiting).toBeInstanceOf(Step);
  });

  it('of another process is not waited for longer than was said', async () => {
    await granted(processOf());
    let refused: unknown;
    void claim(processOf()).then((answer) => {
      refused = answer;
    });
    await pass(clock, 9_500);
    expect(refused).toBeUndefined();
    await pass(clock, 1_000);
    expect(refused).toMatchObject({ reason: 'busy', snapshot: { state: 'open' } });
    expect(clock.pending).toBe(STEP);
  });

  it('of another process is waited for by no more calls than may, the one that has its turn included', async () => {
    await granted(processOf());
    const context = processOf();
    const waiting = { maxWaiting: 2, maxWaitingBytes: 1_000 };
    const answers: unknown[] = [];
    for (let call = 0; call < 3; call++)
      void claim(context, { waiting }).then((answer) => answers.push(answer));
    await settle();
    expect(answers).toMatchObject([{ reason: 'busy' }]);
    await pass(clock, TIMES.waitMs + 500);
    expect(answers).toHaveLength(3);
    expect(await claim(processOf(), { waiting: { ...waiting, maxWaiting: 0 } })).toMatchObject({
      reason: 'busy',
      snapshot: { state: 'open' },
    });
  });

  it('of another process that died is an unknown outcome: held, with the tool that it was', async () => {
    (await granted(processOf())).giveUp();
    const waiting = claim(processOf(), {
      description: { tool: 'ship', digest: 'd', uncertain: 'hold' },
    });
    await pass(clock, TIMES.leaseMs + 500);
    expect(await waiting).toMatchObject({ reason: 'held', held: { tool: 'pay' } });
  });

  it('is given back, if its call was cancelled while the store was asked', async () => {
    let isFree = false;
    const call = new InFlight(() => {
      isFree = true;
    });
    const waiting = claim(processOf(), { request: call });
    call.cancel();
    call.end();
    expect(await waiting).toEqual({ reason: 'cancelled' });
    expect(store.asked).toEqual(['claim', 'release']);
    expect(isFree).toBe(true);
    expect(await claim(processOf())).toBeInstanceOf(Step);
    expect(clock.pending).toBe(STEP);
  });

  it('is not even asked for by a call that was cancelled before, or whose connection is gone', async () => {
    const cancelled = new InFlight();
    cancelled.cancel();
    const gone = new InFlight(undefined, { isGone: true, size: 0 });
    for (const request of [cancelled, gone]) {
      expect(await claim(processOf(), { request })).toEqual({ reason: 'cancelled' });
    }
    expect(store.asked).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  it('that the store fails to take is no claim, and is given back in case it was taken', async () => {
    store.fail('claim', 1, 'done');
    const context = processOf();
    expect(await claim(context)).toEqual({ reason: 'unavailable' });
    await settle();
    expect(store.asked).toEqual(['claim', 'release']);
    expect(errors).toHaveLength(1);
    await granted(context);
  });

  it('that cannot be given back at once is given back later', async () => {
    store.fail('claim', 1, 'done');
    store.fail('release', 3);
    expect(await claim(processOf())).toEqual({ reason: 'unavailable' });
    await pass(clock, 2_000);
    expect(store.take()).toEqual(['claim', 'release', 'release', 'release', 'release']);
    expect(await claim(processOf())).toBeInstanceOf(Step);
  });
});

describe('a step', () => {
  it('renews its lease three times while it lasts, until it ends', async () => {
    const step = await granted(processOf());
    store.take();
    await pass(clock, 10 * TIMES.leaseMs);
    expect(store.take().length).toBeGreaterThanOrEqual(29);
    expect(await step.commit(MOVE)).toBe('committed');
    await pass(clock, TIMES.leaseMs);
    expect(store.take()).toEqual(['commit']);
    expect(clock.pending).toBe(0);
  });

  it('goes on renewing after a renewal that failed or hung, and says so', async () => {
    const step = await granted(processOf());
    store.fail('renew', 1);
    await pass(clock, 4_000);
    store.fail('renew', 1, 'hang');
    await pass(clock, 4_500);
    expect(errors).toHaveLength(2);
    await pass(clock, TIMES.leaseMs);
    expect(await step.commit(MOVE)).toBe('committed');
  });

  it('is given up on once, after the longest time, if it has not ended', async () => {
    await granted(processOf());
    await pass(clock, TIMES.maxStepMs - 1);
    expect(tooLong).toBe(0);
    await pass(clock, TIMES.maxStepMs);
    expect(tooLong).toBe(1);
    const ended = await granted(processOf(), { workflow: 'another' });
    await ended.release();
    await pass(clock, 2 * TIMES.maxStepMs);
    expect(tooLong).toBe(1);
  });

  it.each([
    ['commit', 'saved', 'repeated'],
    ['release', 'released', 'lost'],
  ] as const)('ends once: whatever comes after %s changes nothing', async (first, state, then) => {
    const step = await granted(processOf());
    if (first === 'commit') await step.commit(MOVE);
    else await step.release();
    expect([step.state, step.isOver]).toEqual([state, true]);
    store.take();
    await step.release();
    expect(step.giveUp()).toBe(false);
    expect(await step.commit(MOVE)).toBe(then);
    expect([store.take(), step.state, clock.pending]).toEqual([[], state, 0]);
  });

  it('that was given up on is saved when its outcome comes late, for as long as nobody took the run over', async () => {
    const context = processOf();
    const step = await granted(context);
    expect([step.giveUp(), step.giveUp(), step.state]).toEqual([true, false, 'unsettled']);
    await pass(clock, 2 * TIMES.leaseMs);
    expect(await claim(context)).toMatchObject({ reason: 'held' });
    expect(await step.commit(MOVE)).toBe('committed');
    expect(await claim(context)).toMatchObject({ reason: 'state', snapshot: { state: 'paid' } });
    expect(clock.pending).toBe(0);
  });

  it('that was given up on and taken over is lost', async () => {
    const description = { tool: 'pay', digest: 'd', uncertain: 'retry' } as const;
    const step = await granted(processOf(), { description });
    step.giveUp();
    await pass(clock, TIMES.leaseMs);
    const next = await granted(processOf(), { description });
    expect([await step.commit(MOVE), step.state]).toEqual(['lost', 'lost']);
    expect(await next.commit(MOVE)).toBe('committed');
  });

  it('that was given up on keeps its id in flight while its answer may come, at most for the longest time', async () => {
    for (const ending of ['answer', 'time', 'nothing'] as const) {
      let isFree = false;
      const request = new InFlight(() => {
        isFree = true;
      });
      const step = await granted(processOf(), { request, workflow: ending });
      request.end();
      step.giveUp(true);
      await settle();
      expect(isFree).toBe(false);
      if (ending === 'answer') await step.commit(MOVE);
      if (ending === 'nothing') step.giveUp();
      if (ending === 'time') {
        await pass(clock, TIMES.maxStepMs);
        step.giveUp();
      }
      expect([isFree, clock.pending, tooLong]).toEqual([true, 0, ending === 'time' ? 1 : 0]);
      tooLong = 0;
    }
  });

  it.each(['commit', 'release', 'giveUp'] as const)(
    'lets the next call of its process in with %s',
    async (how) => {
      const context = processOf();
      const step = await granted(context);
      const next = claim(context, { states: undefined });
      if (how === 'commit') await step.commit(MOVE);
      else await step[how]();
      await pass(clock, TIMES.leaseMs);
      expect(await next).toEqual(
        how === 'giveUp' ? expect.objectContaining({ reason: 'held' }) : expect.any(Step),
      );
    },
  );

  it('whose commit failed to the end can be saved later', async () => {
    const step = await granted(processOf());
    store.fail('commit');
    const committing = step.commit(MOVE).catch((error: Error) => error.name);
    await pass(clock, 20_000);
    expect([await committing, step.state]).toEqual(['StoreUnavailable', 'unsettled']);
    store.heal();
    expect(await step.commit(MOVE)).toBe('committed');
  });

  it('lets the next call in even when its commit fails to the end', async () => {
    const context = processOf();
    const step = await granted(context);
    const next = claim(context);
    store.fail('commit');
    const committing = step.commit(MOVE).catch((error: Error) => error.name);
    await pass(clock, 20_000);
    expect(await committing).toBe('StoreUnavailable');
    expect(await next).toMatchObject({ reason: expect.stringMatching(/held|busy/) });
    expect(clock.pending).toBe(0);
  });
});
