import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InFlight } from '../../src/session/live-session.ts';
import { Turn, Turns, type WaitLimits } from '../../src/step/turns.ts';
import { ManualClock } from '../helpers/manual-clock.ts';

const WAIT = 10_000;

function setUp() {
  const clock = new ManualClock();
  const turns = new Turns(clock);
  const log: string[] = [];
  const ends = new Map<string, Turn>();
  /** Takes a turn and writes down what came of it. */
  const take = (
    name: string,
    key = 'run',
    call = new InFlight(),
    limits?: WaitLimits,
  ): InFlight => {
    void Promise.resolve(turns.take(key, WAIT, call, limits)).then((end) => {
      log.push(end === undefined ? `${name} refused` : name);
      if (end !== undefined) ends.set(name, end);
    });
    return call;
  };
  const flush = () => new Promise((resolve) => setImmediate(resolve));
  return { clock, turns, log, ends, take, flush };
}

describe('turns', () => {
  it('are had at once where nobody else has one, without even a pause', () => {
    const { turns, clock } = setUp();
    expect(turns.take('run', WAIT, new InFlight())).toBeInstanceOf(Turn);
    expect(clock.pending).toBe(0);
  });

  it('are had one at a time, first come, first served', async () => {
    const { take, log, ends, flush, clock } = setUp();
    for (const name of ['a', 'b', 'c']) take(name);
    await flush();
    expect(log).toEqual(['a']);
    ends.get('a')?.end();
    await flush();
    expect(log).toEqual(['a', 'b']);
    ends.get('b')?.end();
    await flush();
    ends.get('c')?.end();
    expect(log).toEqual(['a', 'b', 'c']);
    expect(clock.pending).toBe(0);
  });

  it('of different keys do not wait for each other, whatever the keys are called', async () => {
    const { take, log, flush } = setUp();
    for (const key of ['a', 'b', '__proto__', 'constructor', '']) take(key, key);
    await flush();
    expect(log).toEqual(['a', 'b', '__proto__', 'constructor', '']);
  });

  it('end once: ending one again takes nothing from the next', async () => {
    const { take, log, ends, flush } = setUp();
    for (const name of ['a', 'b', 'c']) take(name);
    await flush();
    ends.get('a')?.end();
    ends.get('a')?.end();
    await flush();
    expect(log).toEqual(['a', 'b']);
  });

  it('are waited for as long as was said, and no longer', async () => {
    const { take, log, ends, flush, clock } = setUp();
    take('a');
    take('b');
    clock.advance(WAIT - 1);
    await flush();
    expect(log).toEqual(['a']);
    clock.advance(1);
    await flush();
    expect(log).toEqual(['a', 'b refused']);
    ends.get('a')?.end();
    take('c');
    await flush();
    expect(log).toEqual(['a', 'b refused', 'c']);
    expect(clock.pending).toBe(0);
  });

  it.each(['cancel', 'leave'] as const)(
    'are not had by a call that was called off (%s)',
    async (how) => {
      const { take, log, ends, flush, clock } = setUp();
      take('a');
      const b = take('b');
      take('c');
      b[how]();
      await flush();
      expect(log).toEqual(['a', 'b refused']);
      ends.get('a')?.end();
      await flush();
      expect(log).toEqual(['a', 'b refused', 'c']);
      expect(clock.pending).toBe(0);
    },
  );

  it('are not waited for by a call that was called off before', async () => {
    const { take, log, flush, clock } = setUp();
    take('a');
    const gone = new InFlight();
    gone.cancel();
    take('b', 'run', gone);
    await flush();
    expect(log).toEqual(['a', 'b refused']);
    expect(clock.pending).toBe(0);
  });

  it('are refused while somebody says so: to those who wait, and to those who come', async () => {
    const { take, turns, log, ends, flush, clock } = setUp();
    take('a');
    take('b');
    const first = turns.refuseOthers('run');
    const second = turns.refuseOthers('run');
    take('c');
    await flush();
    expect(log).toEqual(['a', 'b refused', 'c refused']);
    first();
    first();
    take('d');
    await flush();
    expect(log.at(-1)).toBe('d refused');
    second();
    take('e');
    await flush();
    expect(log.at(-1)).toBe('d refused');
    ends.get('a')?.end();
    await flush();
    expect(log.at(-1)).toBe('e');
    expect(clock.pending).toBe(0);
  });

  it('are refused no longer than the turn lasts, and what ended with it changes nothing later', async () => {
    const { take, turns, log, ends, flush } = setUp();
    take('a');
    await flush();
    const undo = turns.refuseOthers('run');
    ends.get('a')?.end();
    take('b');
    await flush();
    expect(log).toEqual(['a', 'b']);
    turns.refuseOthers('run');
    undo();
    take('c');
    await flush();
    expect(log).toEqual(['a', 'b', 'c refused']);
  });

  it('cannot be refused where nobody has one', async () => {
    const { take, turns, log, flush } = setUp();
    turns.refuseOthers('run')();
    turns.refuseOthers('run');
    take('a');
    await flush();
    expect(log).toEqual(['a']);
  });

  it('are waited for by so many calls and bytes as may, and those that leave make room', async () => {
    const { take, log, ends, flush, clock } = setUp();
    const limits = { maxWaiting: 3, maxWaitingBytes: 100 };
    const sized = (name: string, size: number) =>
      take(name, 'run', new InFlight(undefined, { isGone: false, size }), limits);
    sized('a', 1_000);
    sized('b', 60);
    sized('too many bytes', 41);
    sized('c', 40);
    sized('d', 0);
    sized('too many calls', 0);
    await flush();
    expect(log).toEqual(['a', 'too many bytes refused', 'too many calls refused']);
    ends.get('a')?.end();
    await flush();
    sized('e', 60);
    sized('f', 0).cancel();
    await flush();
    expect(log.slice(3)).toEqual(['b', 'f refused']);
    clock.advance(WAIT);
    await flush();
    expect(log.slice(5)).toEqual(['c refused', 'd refused', 'e refused']);
    sized('g', 100);
    ends.get('b')?.end();
    await flush();
    expect(log.at(-1)).toBe('g');
    expect(clock.pending).toBe(0);
  });

  it('are waited for beside the limit by what comes from no client', async () => {
    const { take, log, ends, flush } = setUp();
    const limits = { maxWaiting: 1, maxWaitingBytes: 100 };
    take('a', 'run', undefined, limits);
    for (const name of ['job', 'webhook']) take(name);
    take('b', 'run', undefined, limits);
    take('c', 'run', undefined, limits);
    await flush();
    expect(log).toEqual(['a', 'c refused']);
    ends.get('a')?.end();
    await flush();
    expect(log.at(-1)).toBe('job');
  });

  it('are never had by two at once, and nobody is forgotten, whatever happens', async () => {
    const event = fc.oneof(
      fc.constant({ kind: 'take' as const }),
      fc.constant({ kind: 'end' as const }),
      fc.record({ kind: fc.constant('cancel' as const), at: fc.nat(20) }),
      fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(2 * WAIT) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 40 }), async (events) => {
        const { clock, turns, flush } = setUp();
        const calls: InFlight[] = [];
        const running: Turn[] = [];
        let settled = 0;
        for (const each of events) {
          if (each.kind === 'take') {
            const call = new InFlight();
            calls.push(call);
            void Promise.resolve(turns.take('run', WAIT, call)).then((end) => {
              settled++;
              if (end !== undefined) running.push(end);
            });
          } else if (each.kind === 'end') running.shift()?.end();
          else if (each.kind === 'cancel') calls[each.at]?.cancel();
          else clock.advance(each.ms);
          await flush();
          expect(running.length).toBeLessThanOrEqual(1);
        }
        while (running.length > 0) {
          running.shift()?.end();
          await flush();
        }
        expect(settled).toBe(calls.length);
        expect(clock.pending).toBe(0);
      }),
      { numRuns: 60 },
    );
  });
});
