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
  /** Takes a turn, and notes whether it was granted. */
  const take = (
    name: string,
    key = 'run',
    call = new InFlight(),
    limits?: WaitLimits,
  ): InFlight => {
    void Promise.resolve(turns.take(key, 'tool', WAIT, call, limits)).then((end) => {
      log.push(end === undefined ? `${name} refused` : name);
      if (end !== undefined) ends.set(name, end);
    });
    return call;
  };
  const flush = () => new Promise((resolve) => setImmediate(resolve));
  return { clock, turns, log, ends, take, flush };
}

describe('turns', () => {
  it('are granted synchronously where no other call has one', () => {
    const { turns, clock } = setUp();
    expect(turns.take('run', 'tool', WAIT, new InFlight())).toBeInstanceOf(Turn);
    expect(clock.pending).toBe(0);
  });

  it('are granted one at a time: first come, first served', async () => {
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

  it('of different keys do not wait for each other, even with a key `__proto__`', async () => {
    const { take, log, flush } = setUp();
    for (const key of ['a', 'b', '__proto__', 'constructor', '']) take(key, key);
    await flush();
    expect(log).toEqual(['a', 'b', '__proto__', 'constructor', '']);
  });

  it('end once: a second end takes nothing from the next turn', async () => {
    const { take, log, ends, flush } = setUp();
    for (const name of ['a', 'b', 'c']) take(name);
    await flush();
    ends.get('a')?.end();
    ends.get('a')?.end();
    await flush();
    expect(log).toEqual(['a', 'b']);
  });

  it('are waited for until waitMs is over, and no longer', async () => {
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
    'are not granted to a waiting call that is off (%s)',
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

  it('are not waited for by a call that is off before it asks', async () => {
    const { take, log, flush, clock } = setUp();
    take('a');
    const gone = new InFlight();
    gone.cancel();
    take('b', 'run', gone);
    await flush();
    expect(log).toEqual(['a', 'b refused']);
    expect(clock.pending).toBe(0);
  });

  it('are refused while refuseOthers() holds: to waiting calls, and to new ones', async () => {
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

  it('are refused until the turn ends; to end the refusal later changes nothing', async () => {
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

  it('cannot be refused where no call has one', async () => {
    const { take, turns, log, flush } = setUp();
    turns.refuseOthers('run')();
    turns.refuseOthers('run');
    take('a');
    await flush();
    expect(log).toEqual(['a']);
  });

  it('are waited for up to a limit of calls and bytes; a call that leaves makes room', async () => {
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

  it('are waited for without a limit by moves from outside', async () => {
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

  it('are never granted to two calls at once, and no call is forgotten, in any order', async () => {
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
            void Promise.resolve(turns.take('run', 'tool', WAIT, call)).then((end) => {
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
