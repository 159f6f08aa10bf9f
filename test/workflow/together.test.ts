import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import type { Binding } from '../../src/workflow/binding.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { Position } from '../../src/workflow/position.ts';
import { type Goal, type Stand, Together } from '../../src/workflow/together.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { few } from '../helpers/few.ts';

const STATES = ['s', 't', 'u'];
const EVENTS = ['E', 'F'];
const TOOLS = ['a', 'b', 'c', 'd'];
/** A call of a grouped tool: one of its bindings is about it, or none. */
const ACTIONS = [0, 1, 2];

interface Drawn {
  readonly targets: readonly (string | undefined)[];
  readonly bindings: readonly (Omit<Binding, 'tool' | 'when'> & {
    readonly tool: string;
    readonly action: number | undefined;
  })[];
}

const drawn = (grouping: boolean): fc.Arbitrary<Drawn> =>
  fc.record({
    targets: fc.tuple(
      ...STATES.flatMap(() =>
        EVENTS.map(() => fc.option(fc.constantFrom(...STATES), { nil: undefined, freq: 2 })),
      ),
    ),
    bindings: fc
      .array(
        fc.record({
          tool: fc.constantFrom(...TOOLS),
          states: fc.subarray(STATES, { minLength: 1 }),
          success: fc.option(fc.constantFrom(...EVENTS), { nil: undefined }),
          action: grouping
            ? fc.option(fc.constantFrom(...ACTIONS), { nil: undefined })
            : fc.constant(undefined),
        }),
        { maxLength: 7 },
      )
      // Of two bindings about the same calls the first one decides, so a second one is left out.
      .map((all) => all.filter(({ action }, i) => action === undefined || isFirst(all, i))),
  });

const isFirst = (all: readonly { tool: string; action?: number | undefined }[], i: number) =>
  all.findIndex(({ tool, action }) => tool === all[i]?.tool && action === all[i]?.action) === i;

function workflowOf(id: string, { targets, bindings }: Drawn): Workflow {
  const states = Object.fromEntries(
    STATES.map((state, i) => {
      const on = EVENTS.map((event, j) => [event, targets[i * EVENTS.length + j]] as const);
      return [state, { on: Object.fromEntries(on.filter(([, target]) => target !== undefined)) }];
    }),
  );
  const gate = new StateMachineGate({ id, initial: 's', states } as never) as StateMachineGate;
  for (const { tool, states: bound, success, action } of bindings) {
    const when =
      action === undefined ? undefined : (args: object) => 'n' in args && args.n === action;
    // No event that none of the states handles can be bound.
    const isKnown = Object.values(states).some(({ on }) => String(success) in on);
    gate.bindTool(tool, bound, { success: isKnown ? success : undefined, when } as never);
  }
  return gate.compile();
}

/** Where one call takes all workflows, gate after gate; `undefined` where one gate refuses it. */
function called(
  workflows: readonly Workflow[],
  from: readonly string[],
  tool: string,
  n: number,
): string[] | undefined {
  const to: string[] = [];
  for (const [i, workflow] of workflows.entries()) {
    const state = from[i] ?? '';
    const binding = workflow.match(tool, { n });
    if (binding !== undefined && !workflow.allows(state, binding)) return undefined;
    const event = binding?.eventIn(state);
    to.push(typeof event === 'string' ? workflow.next({ state }, event).position.state : state);
  }
  return to;
}

/** The length of the shortest way to a call that all allow, found by trying every call. */
function bruteForce(workflows: readonly Workflow[], tool: string, n: number): number | undefined {
  let front = [workflows.map(() => 's')];
  const seen = new Set(front.map(String));
  for (let length = 0; front.length > 0; length++) {
    if (front.some((states) => called(workflows, states, tool, n) !== undefined)) return length;
    const next: string[][] = [];
    for (const states of front) {
      for (const each of TOOLS) {
        for (const action of ACTIONS) {
          const to = called(workflows, states, each, action);
          if (to === undefined || seen.has(String(to))) continue;
          seen.add(String(to));
          next.push(to);
        }
      }
    }
    front = next;
  }
  return undefined;
}

/** Whether the calls can be made one after the other with some arguments, the last one included. */
function isWalkable(
  workflows: readonly Workflow[],
  path: readonly string[],
  tool: string,
  n: number,
): boolean {
  let places = [workflows.map(() => 's')];
  for (const step of path) {
    places = places.flatMap((states) =>
      ACTIONS.flatMap((action) => {
        const to = called(workflows, states, step, action);
        return to === undefined ? [] : [to];
      }),
    );
  }
  return places.some((states) => called(workflows, states, tool, n) !== undefined);
}

const standsOf = (workflows: readonly Workflow[], states: readonly string[]): Stand[] =>
  workflows.map((workflow, i) => {
    return { workflow, position: { state: states[i] ?? '' }, beginsAnew: false };
  });

function wayTo(workflows: readonly Workflow[], tool: string, n: number) {
  const goal: Goal = workflows.map((workflow) => {
    const binding = workflow.match(tool, { n });
    return binding === undefined ? [] : [binding.states];
  });
  const start = workflows.map(() => 's');
  return new Together(workflows).wayTo(goal, standsOf(workflows, start));
}

describe('two workflows on one route', () => {
  it('name the shortest way that both allow, and miss none where no tool is grouped', () => {
    const seen = { ways: 0, none: 0, longer: 0 };
    fc.assert(
      fc.property(
        fc.tuple(drawn(false), drawn(false)),
        fc.constantFrom(...TOOLS),
        ([one, other], tool) => {
          const workflows = [workflowOf('one', one), workflowOf('other', other)];
          const { path, foreseen } = wayTo(workflows, tool, 0);
          const shortest = bruteForce(workflows, tool, 0);
          expect(path?.length).toBe(shortest);
          expect(foreseen).toBe(true);
          if (path === undefined) seen.none++;
          else {
            expect(isWalkable(workflows, path, tool, 0)).toBe(true);
            seen.ways++;
            if (path.length > 1) seen.longer++;
          }
        },
      ),
      few(750),
    );
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(0);
  });

  it('name no way that one refuses where tools are grouped, and deny none that exists', () => {
    const seen = { ways: 0, denied: 0, unknown: 0 };
    fc.assert(
      fc.property(
        fc.tuple(drawn(true), drawn(true)),
        fc.constantFrom(...TOOLS),
        fc.constantFrom(...ACTIONS),
        ([one, other], tool, n) => {
          const workflows = [workflowOf('one', one), workflowOf('other', other)];
          const { path, foreseen } = wayTo(workflows, tool, n);
          const shortest = bruteForce(workflows, tool, n);
          if (path !== undefined) {
            expect(isWalkable(workflows, path, tool, n)).toBe(true);
            expect(path.length).toBeGreaterThanOrEqual(shortest ?? Number.POSITIVE_INFINITY);
            seen.ways++;
          } else if (foreseen) {
            expect(shortest).toBeUndefined();
            seen.denied++;
          } else seen.unknown++;
        },
      ),
      few(750),
    );
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(0);
  });

  it('offer the tools that both show, those of the first one first', () => {
    fc.assert(
      fc.property(
        fc.tuple(drawn(true), drawn(true)),
        fc.constantFrom(...STATES),
        fc.constantFrom(...STATES),
        ([one, other], s, t) => {
          const workflows = [workflowOf('one', one), workflowOf('other', other)];
          const [first, second] = workflows as [Workflow, Workflow];
          const shown = [...first.available(s), ...second.available(t)].filter(
            (tool) => first.isVisible(tool, s) && second.isVisible(tool, t),
          );
          const together = new Together(workflows);
          expect(together.available(standsOf(workflows, [s, t]))).toEqual([...new Set(shown)]);
          const unknown = [
            standsOf(workflows, [s])[0] as Stand,
            { ...(standsOf(workflows, [s, t])[1] as Stand), position: undefined },
          ];
          expect(together.available(unknown)).toEqual(
            first.available(s).filter((tool) => !second.isBound(tool)),
          );
        },
      ),
    );
  });

  it("leave a way beyond the search's limits out, without denying it", () => {
    const counter = (id: string, length: number): Workflow => {
      const states = Object.fromEntries(
        Array.from({ length }, (_, i) => [
          `${id}${i}`,
          i + 1 < length ? { on: { NEXT: `${id}${i + 1}` } } : {},
        ]),
      );
      const gate = new StateMachineGate({
        id,
        initial: `${id}0`,
        states,
      } as never) as StateMachineGate;
      const all = Object.keys(states);
      return gate
        .bindTool(`next ${id}`, all as never, 'NEXT' as never)
        .bindTool('end', [all.at(-1)] as never)
        .compile();
    };
    const way = (length: number) => {
      const workflows = [counter('x', length), counter('y', length)];
      const goal = workflows.map((workflow) => [workflow.match('end', {})?.states ?? []]);
      const stands = workflows.map((workflow) => ({
        workflow,
        position: workflow.start,
        beginsAnew: false,
      }));
      return new Together(workflows).wayTo(goal, stands);
    };
    expect(way(20).path).toHaveLength(38);
    expect(way(60)).toEqual({ path: undefined, foreseen: false });
  });

  it('know where a run that ends starts again', () => {
    const shop = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
    })
      .bindTool('pay', 'open', 'PAY')
      .compile();
    const club = new StateMachineGate({
      id: 'club',
      initial: 'guest',
      states: {
        guest: { on: { FIRST: 'known' } },
        known: { on: { SECOND: 'member' } },
        member: {},
      },
    })
      .bindTool('pay', 'guest', 'FIRST')
      .bindTool('pay', 'known', 'SECOND')
      .bindTool('enter', 'member')
      .compile();
    const way = (beginsAnew: boolean) =>
      new Together([club, shop]).wayTo(
        [[['member']], []],
        [club, shop].map((workflow) => ({ workflow, position: workflow.start, beginsAnew })),
      );
    // The first `pay` ends the shop's run: advice must not have the model begin another one.
    expect(way(true)).toEqual({ path: undefined, foreseen: true });
    expect(way(false)).toEqual({ path: undefined, foreseen: true });
  });

  it("name no way that a statechart's guards stop, and never deny that a way exists", () => {
    const chart = (total: number) =>
      new StateMachineGate(
        createMachine({
          id: 'chart',
          context: { total },
          initial: 'cart',
          states: {
            cart: {
              on: { ORDER: { target: 'ordered', guard: ({ context }) => context.total > 0 } },
            },
            ordered: {},
          },
        }),
      )
        .bindTool('order', 'cart', 'ORDER')
        .bindTool('ship', 'ordered')
        .compile();
    const flat = new StateMachineGate({
      id: 'flat',
      initial: 'a',
      states: { a: { on: { ORDER: 'b' } }, b: {} },
    })
      .bindTool('order', 'a', 'ORDER')
      .bindTool('ship', 'b')
      .compile();
    const way = (total: number) => {
      const workflows = [flat, chart(total)];
      const stands = workflows.map((workflow) => ({
        workflow,
        position: workflow.start as Position,
        beginsAnew: false,
      }));
      return new Together(workflows).wayTo([[['b']], [['ordered']]], stands);
    };
    expect(way(1).path).toEqual(['order']);
    expect(way(0)).toEqual({ path: undefined, foreseen: false });
  });
});
