import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type AnyMachineSnapshot,
  type AnyStateNode,
  createMachine,
  initialTransition,
  type StateValue,
  transition,
} from 'xstate';
import type { Position } from '../../src/workflow/position.ts';
import { statechartModel } from '../../src/workflow/statechart.ts';
import { few } from '../helpers/few.ts';
import { chartOf, EVENTS, type Guards, type Shape, shapeAt } from './charts.ts';

/**
 * Where the transitions of two regions conflict, the first in document order counts (SCXML,
 * "removeConflictingTransitions"). XState takes the first in the order of its value's keys. A way
 * into the history of parallel states can reverse that order.
 */
function inOrder(node: AnyStateNode, value: StateValue): StateValue {
  if (typeof value === 'string') return value;
  return Object.fromEntries(
    Object.entries(node.states).flatMap(([key, inner]) => {
      const own = value[key];
      return own === undefined ? [] : [[key, inOrder(inner, own)]];
    }),
  );
}

/**
 * A way into the history of parallel states can leave XState with no or two active states inside
 * one state.
 */
function isWhole({ _nodes: nodes }: AnyMachineSnapshot): boolean {
  const active = new Set(nodes);
  return nodes.every(({ type, states }) => {
    const inner = Object.values(states).filter((state) => state.type !== 'history');
    if (type === 'parallel') return inner.every((state) => active.has(state));
    return type !== 'compound' || inner.filter((state) => active.has(state)).length === 1;
  });
}

describe('any statechart', () => {
  it('goes from our snapshots where XState goes from its own, and its texts name its state', () => {
    const seen = { texts: new Set<string>(), history: 0, done: 0, broken: 0, steps: 0 };
    fc.assert(
      fc.property(
        shapeAt(0),
        fc.array(fc.constantFrom(...EVENTS), { maxLength: 12 }),
        (root, events) => {
          const machine = createMachine(chartOf(root).config as never);
          const model = statechartModel(machine, false);
          let [snapshot] = initialTransition(machine);
          let position: Position = model.start;
          for (const type of events) {
            if (snapshot.status !== 'active') break;
            const [reached] = transition(machine, snapshot, { type });
            const stored = JSON.parse(JSON.stringify(machine.getPersistedSnapshot(reached)));
            snapshot = machine.restoreSnapshot(
              { ...stored, value: inOrder(machine.root, stored.value) },
              {} as never,
            );
            if (!isWhole(snapshot)) {
              expect(() => model.next(position, type)).toThrow('no whole state');
              seen.broken++;
              return;
            }
            const next = model.next(position, type);
            expect(next.changed).toBe(next.position.state !== position.state);
            position = JSON.parse(JSON.stringify(next.position));
            expect(model.has(position.state)).toBe(true);
            const active = model.names.filter((path) => model.isIn(position.state, [path]));
            expect(active.length).toBe(
              snapshot._nodes.filter((node) => node.parent !== undefined).length,
            );
            expect(new Set(active)).toEqual(
              new Set(
                snapshot._nodes.flatMap(({ path }) => (path.length > 0 ? [textOf(path)] : [])),
              ),
            );
            seen.steps++;
            seen.texts.add(position.state);
            seen.history += JSON.stringify(position.context ?? '').includes('history') ? 1 : 0;
          }
          seen.done += snapshot.status === 'done' ? 1 : 0;
        },
      ),
      few(120),
    );
    expect(seen.broken).toBeLessThan(seen.steps / 20);
    expect(seen.texts.size).toBeGreaterThan(50);
    expect(Math.min(seen.history, seen.done)).toBeGreaterThan(0);
  });
});

describe('the guards of any statechart', () => {
  it('stop exactly the events that the state would take without guards', () => {
    const seen = { stopped: 0, taken: 0, unknown: 0 };
    const guards = fc.array(fc.constantFrom(null, true, false, false), {
      minLength: 1,
      maxLength: 3,
    });
    const answers = fc.array(guards, { minLength: 20, maxLength: 20 });
    const events = fc.array(fc.constantFrom(...EVENTS), { maxLength: 6 });
    fc.assert(
      fc.property(shapeAt(0), answers, events, (root, given, sent) => {
        let next = 0;
        const guardsOf = (): Guards => given[next++ % given.length] ?? [null];
        const shape = withoutHistory(root);
        const machine = createMachine(chartOf(shape, guardsOf).config as never);
        const free = createMachine(chartOf(shape).config as never);
        const model = statechartModel(machine, false);
        let [snapshot] = initialTransition(machine);
        let position: Position = model.start;
        for (const event of sent) {
          if (snapshot.status !== 'active') return;
          for (const type of EVENTS) {
            const known = free.resolveState({ value: snapshot.value }).can({ type });
            const taken = snapshot.can({ type });
            expect(model.isStopped(position, type)).toBe(known && !taken);
            seen[taken ? 'taken' : known ? 'stopped' : 'unknown']++;
          }
          [snapshot] = transition(machine, snapshot, { type: event });
          position = model.next(position, event).position;
        }
      }),
      few(75),
    );
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(0);
  });
});

function withoutHistory(shape: Shape): Shape {
  return { ...shape, history: 'none', inner: shape.inner.map(withoutHistory) };
}

const textOf = (path: readonly string[]): string =>
  path.map((key) => key.replace(/[\\.|()]/g, '\\$&')).join('.');
