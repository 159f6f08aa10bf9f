import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json } from '../../src/stores/index.ts';
import { flatModel } from '../../src/workflow/flat-machine.ts';
import { LoopShield, type LoopShieldOptions, uncounted } from '../../src/workflow/loop-shield.ts';
import type { Position } from '../../src/workflow/position.ts';
import { statechartModel } from '../../src/workflow/statechart.ts';
import { sealed } from '../helpers/envelope.ts';
import { lightMachine } from './charts.ts';

const model = flatModel({
  id: 'support',
  initial: 'diagnosis',
  states: { diagnosis: { on: { ESCALATE: 'escalation' } }, escalation: {} },
});
const shield = (options: Partial<LoopShieldOptions> = {}) =>
  new LoopShield(model, { max: 3, fallback: { state: 'escalation' }, ...options });

/** For each call, whether it is one too many. A store keeps the run between every two. */
function loops(
  of: LoopShield,
  calls: readonly (readonly [tool: string, digest: string, at: number])[],
): boolean[] {
  let position: Position = model.start;
  return calls.map(([tool, digest, at]) => {
    const count = of.count(position, { tool, digest }, at);
    position = JSON.parse(JSON.stringify(count.position));
    return count.isLoop;
  });
}

describe('a loop shield', () => {
  it('lets "max" calls of one tool through, with any calls between them, and not one more', () => {
    expect(
      loops(shield(), [
        ['a', '1', 0],
        ['b', '1', 1],
        ['a', '2', 2],
        ['a', '3', 3],
        ['b', '1', 4],
        ['a', '1', 5],
      ]),
    ).toEqual([false, false, false, false, false, true]);
  });

  it('counts the calls of all tools together with "consecutive"', () => {
    const consecutive = shield({ mode: 'consecutive' });
    expect(
      loops(consecutive, [
        ['a', '1', 0],
        ['b', '1', 1],
        ['c', '1', 2],
        ['d', '1', 3],
      ]),
    ).toEqual([false, false, false, true]);
  });

  it('counts calls with other arguments apart with "sameArguments"', () => {
    const same = shield({ max: 1, sameArguments: true });
    expect(
      loops(same, [
        ['a', '1', 0],
        ['a', '2', 1],
        ['a', '1', 2],
      ]),
    ).toEqual([false, false, true]);
  });

  it('forgets calls that are older than its window', () => {
    const recent = shield({ max: 2, window: 100 });
    expect(
      loops(recent, [
        ['a', '1', 0],
        ['a', '1', 50],
        ['a', '1', 100],
        ['a', '1', 149],
        ['a', '1', 151],
      ]),
    ).toEqual([false, false, false, true, true]);
  });

  it('counts exactly the calls of its window, in any history', () => {
    const call = fc.tuple(fc.constantFrom('a', 'b'), fc.constantFrom('1', '2'), fc.nat(30));
    fc.assert(
      fc.property(
        fc.array(call, { maxLength: 20 }),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        (steps, max, sameArguments) => {
          const calls = steps.map(([tool, digest], i) => {
            const at = steps.slice(0, i + 1).reduce((sum, [, , pause]) => sum + pause, 0);
            return [tool, digest, at] as const;
          });
          const expected = calls.map(([tool, digest, now], i) => {
            const counted = calls
              .slice(0, i + 1)
              .filter(
                (each) =>
                  each[0] === tool && (!sameArguments || each[1] === digest) && now - each[2] < 50,
              );
            return counted.length > max;
          });
          expect(loops(shield({ max, sameArguments, window: 50 }), calls)).toEqual(expected);
        },
      ),
    );
  });

  it('keeps the count beside all else that the run carries, and a move ends it', () => {
    const kept = { state: 'diagnosis', context: sealed({ data: { ticket: 1 }, version: 2 }) };
    const { position } = shield().count(kept, { tool: 'a', digest: '1' }, 7);
    expect(position).toEqual({
      state: 'diagnosis',
      context: sealed({ data: { ticket: 1 }, version: 2, loop: [['a', [7]]] }),
    });
    expect(uncounted(position)).toEqual(kept);
    expect(uncounted(kept)).toBe(kept);
    expect(uncounted(shield().count(model.start, { tool: 'a', digest: '1' }, 7).position)).toEqual({
      state: 'diagnosis',
      context: sealed(),
    });
  });

  it('keeps a limited number of kinds of calls', () => {
    let position: Position = model.start;
    for (let i = 0; i < 100; i++) {
      position = shield({ sameArguments: true }).count(
        position,
        { tool: 'a', digest: String(i) },
        i,
      ).position;
    }
    expect((position.context as { loop: unknown[] }).loop).toHaveLength(32);
  });

  it.each([[null], ['x'], [[['a']]], [[['a', 'b']]], [[[1, [2]]]], [{ a: 1 }]])(
    'takes %j in place of a count for none',
    (loop) => {
      const stored = { state: 'diagnosis', context: sealed({ loop: loop as Json }) };
      expect(shield().count(stored, { tool: 'a', digest: '1' }, 7)).toMatchObject({
        calls: 1,
        isLoop: false,
      });
    },
  );
});

describe('the fall-back', () => {
  const looping = { state: 'diagnosis', context: sealed({ data: 1, loop: [['a', [1, 2, 3]]] }) };

  it('goes to a state, and starts a new count', () => {
    expect(shield().fallBack(looping, 0)).toEqual({
      position: { state: 'escalation', context: sealed({ data: 1 }) },
      changed: true,
      handled: true,
      actions: [],
    });
    expect(shield({ fallback: { state: 'diagnosis' } }).fallBack(looping, 0)).toMatchObject({
      changed: false,
      position: { context: sealed({ data: 1 }) },
    });
  });

  it('goes where an event leads', () => {
    const byEvent = shield({ fallback: { event: 'ESCALATE' } });
    expect(byEvent.fallBack(looping, 0)).toMatchObject({
      position: { state: 'escalation', context: sealed({ data: 1 }) },
      handled: true,
    });
  });

  it('takes an event for a statechart', () => {
    const light = statechartModel(lightMachine, false);
    const byEvent = new LoopShield(light, { max: 1, fallback: { event: 'RESET' } });
    expect(byEvent.fallBack({ state: 'red.wait' }, 0).position).toMatchObject({ state: 'green' });
    expect(() => new LoopShield(light, { max: 1, fallback: { state: 'green' } })).toThrow(
      'only a flat machine falls back to a state; name an event',
    );
  });
});

describe('a loop shield with wrong options', () => {
  it.each([
    [{ max: 0 }, 'ERR_INTERLOCK_CONFIG', 'max: '],
    [{ max: undefined }, 'ERR_INTERLOCK_CONFIG', 'max: '],
    [{ mode: 'repeat' }, 'ERR_INTERLOCK_CONFIG', 'expected one of "repeated", "consecutive"'],
    [{ windw: 1 }, 'ERR_INTERLOCK_CONFIG', 'did you mean "window"?'],
    [{ fallback: undefined }, 'ERR_INTERLOCK_CONFIG', 'fallback'],
    [{ fallback: 'escalation' }, 'ERR_INTERLOCK_CONFIG', 'fallback'],
    [{ fallback: {} }, 'ERR_INTERLOCK_CONFIG', 'fallback: expected either { state } or { event }'],
    [
      { fallback: { state: 'escalation', event: 'ESCALATE' } },
      'ERR_INTERLOCK_CONFIG',
      'fallback: expected either { state } or { event }',
    ],
    [{ fallback: { stat: 'escalation' } }, 'ERR_INTERLOCK_CONFIG', 'did you mean "state"?'],
    [{ fallback: { state: 'escalaton' } }, 'ERR_INTERLOCK_TARGET', 'did you mean "escalation"?'],
    [{ fallback: { event: 'ESCALTE' } }, 'ERR_INTERLOCK_EVENT', 'did you mean "ESCALATE"?'],
    [
      { mode: 'consecutive', sameArguments: true },
      'ERR_INTERLOCK_CONFIG',
      'goes with the mode "repeated" only',
    ],
  ])('refuses %j', (wrong, code, text) => {
    expect(() => shield(wrong as never)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(text) }),
    );
  });
});
