import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AnyStateNode, createMachine, type StateValue } from 'xstate';
import { seeded } from '../../lab/checker/random.ts';
import { randomRules } from '../../lab/checker/rules-random.ts';
import {
  activeNodes,
  type GraphEdge,
  type GraphTool,
  toMermaid,
  type WorkflowGraph,
  workflowGraph,
} from '../../packages/check/src/index.ts';
import { testGate } from '../../packages/testing/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { StateExpression } from '../../src/workflow/position.ts';
import { few } from '../helpers/few.ts';
import { readDiagram } from '../helpers/mermaid.ts';
import { chartOf, EVENTS, type Shape, shapeAt } from '../workflow/charts.ts';
import { ACTIONS, gateOf, randomWorkflow } from '../workflow/machines.ts';

type AnyGate = StateMachineGate<string, string, string>;

/** What the gate answered of one tool in one state. */
interface Answered {
  readonly active: readonly string[];
  /** Whether it let through all calls that bindings are about, and whether any. */
  readonly all: boolean;
  readonly some: boolean;
}

const has = (active: readonly string[], names: readonly string[]): boolean =>
  active.some((each) => names.includes(each));

/** The tool's lists say what the gate answered, in each state that there is. */
function expectTruth(
  { nodes }: WorkflowGraph,
  { nodes: whole, partly }: Pick<GraphTool, 'nodes' | 'partly'>,
  answers: readonly Answered[],
): void {
  for (const { active, all, some } of answers) {
    if (has(active, whole)) expect(all).toBe(true);
    if (!has(active, [...whole, ...partly])) expect(some).toBe(false);
  }
  for (const id of partly) {
    const there = answers.filter(({ active }) => active.includes(id));
    expect(there.some(({ active, some }) => some && !has(active, whole))).toBe(true);
    expect(there.some(({ all }) => !all)).toBe(true);
  }
  for (const { id } of nodes) {
    const there = answers.filter(({ active }) => active.includes(id));
    if (there.length === 0 || !there.every(({ all }) => all)) continue;
    expect(there.every(({ active }) => has(active, whole))).toBe(true);
  }
}

describe('the graph says where the gate lets a tool through', () => {
  it('in each state of any flat machine', async () => {
    const seen = { whole: 0, partly: 0, closed: 0, stays: 0 };
    const property = fc.asyncProperty(randomWorkflow, async (random) => {
      // The gate refuses such a name as no name at all.
      fc.pre(random.tools.every(({ name }) => !name.includes('\0')));
      const gate = gateOf(random);
      const graph = workflowGraph(gate);
      const answers = new Map<string, Answered[]>();
      for (const state of random.states) {
        const test = testGate(gate, { state });
        for (const tool of graph.tools) {
          const bindings = random.tools.find(({ name }) => name === tool.name)?.bindings ?? [];
          const calls = [{}, ...Array.from({ length: ACTIONS }, (_, action) => ({ action }))];
          const about = calls.filter((args) => bindings.some(({ when }) => when?.(args) ?? true));
          const ran: boolean[] = [];
          // A call that fails moves no run here, so that the next one is made in the same state.
          for (const args of about)
            ran.push((await test.call(tool.name, args, new Error('it failed'))).ran);
          const some = ran.includes(true);
          const answer = { active: [state], all: !ran.includes(false), some };
          answers.set(tool.name, [...(answers.get(tool.name) ?? []), answer]);
          const isWhole = tool.nodes.includes(state);
          seen[isWhole ? 'whole' : tool.partly.includes(state) ? 'partly' : 'closed']++;
          const moves = graph.edges.filter(
            ({ from, tools }) =>
              from === state &&
              tools.some(({ name, outcome }) => name === tool.name && outcome === 'success'),
          );
          const at = [...tool.stays, ...tool.staysPartly].includes(state);
          if (moves.length === 0) expect(at).toBe(some);
          if (at) seen.stays++;
        }
        await test.close();
      }
      for (const tool of graph.tools) expectTruth(graph, tool, answers.get(tool.name) ?? []);
      expect((await readDiagram(toMermaid(gate))).boxes).toHaveLength(random.states.length);
    });
    // A round has not always enough of each.
    const isEnough = () => Math.min(...Object.values(seen)) > 3;
    for (let round = 0; round === 0 || (round < 27 && !isEnough()); round++)
      await fc.assert(property, few(8, round));
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(3);
  }, 60_000);

  it('in each combination of states of any statechart, with any expressions', async () => {
    const seen = { whole: 0, partly: 0, closed: 0, stays: 0, staysPartly: 0, partlyOnEdge: 0 };
    // A shape at random has hardly ever two regions of several states.
    const around = (kind: Shape['kind'], inner: fc.Arbitrary<Shape[]>): fc.Arbitrary<Shape> =>
      fc.tuple(shapeAt(0), inner).map(([shape, inner]) => ({ ...shape, kind, inner }));
    const leaf = shapeAt(4);
    const region = around('compound', fc.array(leaf, { minLength: 2, maxLength: 3 }));
    const regions = around('parallel', fc.array(region, { minLength: 2, maxLength: 3 }));
    const shape = fc.oneof(shapeAt(0), {
      arbitrary: around('compound', fc.tuple(regions, leaf)),
      weight: 3,
    });
    const bound = fc.tuple(expression, fc.option(fc.constantFrom(...EVENTS)));
    const tools = fc.array(fc.array(bound, { minLength: 1, maxLength: 2 }), {
      minLength: 1,
      maxLength: 4,
    });
    const tags = fc.array(fc.subarray(['p', 'q']), { minLength: 7, maxLength: 7 });
    const property = fc.asyncProperty(shape, tags, tools, async (root: Shape, tagged, bindings) => {
      let next = 0;
      const tagsOf = () => tagged[next++ % tagged.length] ?? [];
      const machine = createMachine({
        ...chartOf(root, undefined, tagsOf).config,
        id: 'chart',
      } as never);
      const values = valuesOf(machine.root, 13);
      fc.pre(values !== undefined);
      const gate = boundGate(machine, bindings);
      const graph = workflowGraph(gate);
      const workflow = gate.clone().compile();
      const answers = new Map<string, Answered[]>();
      const unmoved = new Map<string, Answered[]>();
      for (const value of values) {
        const state = workflow.model.chart?.textOf(value) ?? '';
        const active = activeNodes(gate, state);
        const test = testGate(gate, { state });
        const snapshot = machine.resolveState({ value });
        const at = gate.clone();
        at.restore({ state, updatedAt: 0 });
        for (const { name } of graph.tools) {
          const { ran } = await test.call(name, {}, new Error('it failed'));
          const answer = { active, all: ran, some: ran };
          answers.set(name, [...(answers.get(name) ?? []), answer]);
          const type = ran ? at.getTransitionEvent(name) : undefined;
          const isMoved = type !== undefined && snapshot.can({ type });
          const stays = ran && !isMoved;
          unmoved.set(name, [...(unmoved.get(name) ?? []), { active, all: stays, some: stays }]);
          const taken = graph.edges.filter(
            (edge) => active.includes(edge.from) && takes(edge, name),
          );
          if (isMoved) expect(taken.map(({ event }) => event)).toContain(type);
          for (const edge of taken) {
            const isPartly = edge.tools.some((each) => each.name === name && each.isPartly);
            if (!isPartly) expect([ran, type]).toEqual([true, edge.event]);
          }
        }
        await test.close();
      }
      for (const tool of graph.tools) {
        const { name, nodes, partly, stays, staysPartly } = tool;
        expectTruth(graph, tool, answers.get(name) ?? []);
        expectTruth(graph, { nodes: stays, partly: staysPartly }, unmoved.get(name) ?? []);
        seen.partlyOnEdge += graph.edges
          .flatMap(({ tools }) => tools)
          .filter(({ isPartly }) => isPartly).length;
        seen.whole += nodes.length;
        seen.partly += partly.length;
        seen.stays += stays.length;
        seen.staysPartly += staysPartly.length;
        seen.closed += (answers.get(name) ?? []).filter(({ some }) => !some).length;
      }
      expect((await readDiagram(toMermaid(gate))).boxes).toHaveLength(graph.nodes.length);
    });
    // A round of 30 charts has not always an edge that is partly taken.
    for (let round = 0; round === 0 || (round < 27 && !Object.values(seen).every(Boolean)); round++)
      await fc.assert(property, few(8, round));
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(0);
  }, 300_000);

  it('after any calls, under any rules of order', async () => {
    const seen = { made: 0, failed: 0, refused: 0, lost: 0, junctions: 0 };
    const said = new Set<string>();
    const further = fc.array(orderExpression, { maxLength: 2 });
    const calls = fc.array(fc.nat(), { minLength: 10, maxLength: 25 });
    const property = fc.asyncProperty(fc.nat(), further, calls, async (seed, more, seeds) => {
      const gate = orderGateOf(seed);
      fc.pre(gate !== undefined);
      for (const [i, states] of more.entries()) tryTo(() => gate.bindTool(`more ${i}`, states));
      const graph = workflowGraph(gate);
      const workflow = gate.clone().compile();
      const names = graph.tools.map(({ name }) => name);
      const test = testGate(gate, { now: Date.UTC(2026, 0, 1) });
      const namedNow = async () => new Set(workflow.model.doneIn?.(await test.state()));
      for (const each of seeds) {
        const { pick, chance, between } = seeded(each, 'call');
        if (chance(0.2)) await test.clock.advance(pick([1, 999, 60_000, 3_600_000]));
        const before = await namedNow();
        const listed = await test.list();
        for (const { name, limits } of graph.tools) {
          if (!isOpen(graph, before, name)) expect(listed).not.toContain(name);
          // What is left of a limit is no matter of the state.
          else if (limits === undefined) expect(listed).toContain(name);
        }
        const tool = pick(names);
        const args = { id: between(1, 2), kind: pick(['a', 'b']), amount: pick([0.1, 5, 15]) };
        const structuredContent = { id: between(1, 2), status: pick(['open', 'closed']) };
        const isFailing = chance(0.2);
        const { outcome } = await test.call(tool, args, {
          ...{ content: [], structuredContent, isError: isFailing },
        });
        if (!isOpen(graph, before, tool)) expect(outcome).toBe('refused');
        seen[outcome === 'ok' ? 'made' : outcome === 'refused' ? 'refused' : 'failed']++;
        const after = await namedNow();
        seen.lost += expectEffect(graph, { tool, outcome }, before, after);
        const active = activeNodes(gate, await test.state());
        for (const id of active) expect(names).toContain(id);
        for (const { from, holds } of graph.edges)
          if (holds !== undefined && after.has(holds)) expect(active).toContain(from);
      }
      await test.close();
      for (const { type, calls: asked = {}, consumes, when } of graph.edges) {
        const kinds = Object.keys({
          ...asked,
          ...(consumes && { consumes }),
          ...(when && { when }),
        });
        for (const each of [type, ...kinds]) said.add(each);
      }
      if (graph.tools.some(({ limits }) => limits !== undefined)) said.add('limits');
      seen.junctions += graph.nodes.filter(({ type }) => type !== 'tool').length;
      const { boxes, arrows } = await readDiagram(toMermaid(gate));
      expect(boxes).toHaveLength(graph.nodes.length);
      expect(arrows).toHaveLength(graph.edges.length);
    });
    // A round has not always a call that makes a state lose a name.
    const isEnough = () =>
      Object.values(seen).every((each) => each > 5) && said.size === ALL.length;
    for (let round = 0; round === 0 || (round < 27 && !isEnough()); round++)
      await fc.assert(property, few(10, round));
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(5);
    expect([...said].sort()).toEqual(ALL);
  }, 300_000);
});

/** All that an edge of rules may say. */
const ALL = [
  ...['args', 'before', 'consumes', 'distinct', 'limits', 'outcome', 'result', 'same'],
  ...['times', 'undoes', 'unless', 'unused', 'when', 'within'],
];

/** A gate with rules of every kind; `undefined` where some tool could never be called. */
function orderGateOf(seed: number): AnyGate | undefined {
  const { rules, needs = {} } = randomRules(seeded(seed, 'graph'));
  try {
    return StateMachineGate.fromOrder(rules as never, { needs } as never) as unknown as AnyGate;
  } catch (error) {
    expect(String(error)).toMatch(/can never be called|cannot be after itself/);
    return undefined;
  }
}

/** Expressions over these names. */
function expressionOver(names: readonly StateExpression[]): fc.Arbitrary<StateExpression> {
  return fc.letrec<{ expression: StateExpression }>((tie) => {
    const parts = fc.array(tie('expression'), { minLength: 1, maxLength: 3 });
    return {
      expression: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        fc.constantFrom(...names),
        fc.record({ all: parts }),
        fc.record({ any: parts }),
        fc.record({ not: tie('expression') }),
      ),
    };
  }).expression;
}

/** A number stands for a state, since a random chart has any states. */
const expression = expressionOver([
  ...Array.from({ length: 12 }, (_, i) => String(i)),
  { tag: 'p' },
  { tag: 'q' },
  '*',
]);
const orderExpression = expressionOver(['login', 'find', 'otp', '*']);

/** The expression with names of states in place of the numbers. */
function named(expression: StateExpression, names: readonly string[]): StateExpression {
  if (typeof expression === 'string') {
    return expression === '*' ? '*' : (names[Number(expression) % names.length] ?? '*');
  }
  if ('all' in expression) return { all: expression.all.map((each) => named(each, names)) };
  if ('any' in expression) return { any: expression.any.map((each) => named(each, names)) };
  return 'not' in expression ? { not: named(expression.not, names) } : expression;
}

/** What the gate refuses to bind, such as an unknown name, is left out. */
function tryTo(bind: () => void): void {
  try {
    bind();
  } catch (error) {
    expect(error).toMatchObject({ name: 'InterlockError' });
  }
}

function boundGate(
  machine: ReturnType<typeof createMachine>,
  tools: readonly (readonly (readonly [StateExpression, string | null])[])[],
): AnyGate {
  const gate = new StateMachineGate(machine) as unknown as AnyGate;
  const names = gate.clone().compile().states;
  for (const [i, bindings] of tools.entries())
    for (const [states, event] of bindings)
      tryTo(() => gate.bindTool(`tool ${i}`, named(states, names), event ?? undefined));
  return gate;
}

/** Every state that the machine's shape allows; `undefined` where they are more than `most`. */
function valuesOf(node: AnyStateNode, most: number): StateValue[] | undefined {
  const children = Object.values(node.states).filter(({ type }) => type !== 'history');
  const inner: [string, StateValue[]][] = [];
  for (const child of children) {
    const values = valuesOf(child, most);
    if (values === undefined) return undefined;
    inner.push([child.key, values]);
  }
  const isAtom = (key: string): boolean =>
    Object.values(node.states[key]?.states ?? {}).every(({ type }) => type === 'history');
  const all =
    node.type === 'parallel'
      ? inner.reduce<Record<string, StateValue>[]>(
          (some, [key, values]) =>
            some.flatMap((each) => values.map((value) => ({ ...each, [key]: value }))),
          [{}],
        )
      : inner.flatMap(([key, values]): StateValue[] =>
          isAtom(key) ? [key] : values.map((value) => ({ [key]: value })),
        );
  const whole = children.length === 0 ? [{}] : all;
  return whole.length > most ? undefined : whole;
}

function takes({ tools }: GraphEdge, name: string): boolean {
  return tools.some((tool) => tool.name === name && tool.outcome === 'success');
}

/** Whether some call of the tool may be allowed while the state names these, as the edges say. */
function isOpen(graph: WorkflowGraph, named: ReadonlySet<string>, id: string): boolean {
  const { once, holds } = graph.nodes.find((each) => each.id === id) ?? {};
  if (once && named.has(holds ?? '')) return false;
  return neededEdges(graph, id).every((edge) => mayHold(graph, named, edge));
}

function neededEdges(graph: WorkflowGraph, id: string): readonly GraphEdge[] {
  return graph.edges.filter(
    ({ to, type }) => to === id && (type === 'before' || type === 'unless'),
  );
}

function typeOf(graph: WorkflowGraph, id: string): string | undefined {
  return graph.nodes.find((each) => each.id === id)?.type;
}

/** Whether the edge says nothing of some calls. */
function isPassed(graph: WorkflowGraph, { from, when, type, calls }: GraphEdge): boolean {
  if (when !== undefined || (type === 'unless' && calls?.same !== undefined)) return true;
  return (
    typeOf(graph, from) !== 'tool' && neededEdges(graph, from).every((e) => isPassed(graph, e))
  );
}

/** Whether the edge may hold for some call. */
function mayHold(graph: WorkflowGraph, named: ReadonlySet<string>, edge: GraphEdge): boolean {
  if (edge.when !== undefined) return true;
  const { from } = edge;
  const parts = neededEdges(graph, from);
  if (typeOf(graph, from) === 'all') return parts.every((each) => mayHold(graph, named, each));
  if (typeOf(graph, from) === 'any' && parts.every((each) => isPassed(graph, each))) return true;
  return isMet(graph, named, edge);
}

/** Whether the edge may hold for some call that it is about, at least in part. */
function isMet(graph: WorkflowGraph, named: ReadonlySet<string>, edge: GraphEdge): boolean {
  const { from, type, calls, holds = '' } = edge;
  const parts = neededEdges(graph, from);
  switch (typeOf(graph, from)) {
    case 'tool':
      return type === 'before' ? named.has(holds) : calls?.same !== undefined || !named.has(holds);
    case 'all':
      return parts.every((each) => isPassed(graph, each))
        ? parts.some((each) => isMet(graph, named, each))
        : parts.every((each) => mayHold(graph, named, each));
    default:
      return parts.some((each) => isMet(graph, named, each));
  }
}

/** What a call changed is what the edges say. Gives how many names the state has lost. */
function expectEffect(
  graph: WorkflowGraph,
  { tool, outcome }: { readonly tool: string; readonly outcome: string },
  before: ReadonlySet<string>,
  after: ReadonlySet<string>,
): number {
  const lost = [...before].filter((each) => !after.has(each));
  const gained = [...after].filter((each) => !before.has(each));
  if (outcome === 'refused') {
    expect([lost, gained]).toEqual([[], []]);
    return 0;
  }
  const named = graph.edges.filter(({ holds }) => holds !== undefined);
  const toolsOf = (names: readonly string[]): readonly string[] =>
    names.flatMap((name) => named.filter(({ holds }) => holds === name).map(({ from }) => from));
  const undone = graph.edges.filter(({ from, type }) => type === 'undoes' && from === tool);
  const used = usedBy(graph, tool).filter(
    ({ consumes }) => outcome === 'ok' || consumes === 'calls',
  );
  const takers = [
    ...used.map(({ from }) => from),
    ...(outcome === 'ok' ? undone.map(({ to }) => to) : []),
  ];
  for (const each of toolsOf(lost)) expect(takers).toContain(each);
  for (const each of toolsOf(gained)) expect(each).toBe(tool);
  if (outcome !== 'ok') return lost.length;
  for (const { from, calls, holds = '' } of named) {
    const { outcome: asked, times, distinct, args, result } = calls ?? {};
    if (asked === undefined && undone.some(({ to }) => to === from))
      expect(after.has(holds)).toBe(false);
    const isAny = asked !== 'failed' && (args ?? result ?? times ?? distinct) === undefined;
    if (from === tool && isAny) expect(after.has(holds)).toBe(true);
  }
  return lost.length;
}

/** The edges by which a success of the tool uses earlier calls up. */
function usedBy(graph: WorkflowGraph, id: string): readonly GraphEdge[] {
  return neededEdges(graph, id).flatMap((edge) => [
    ...(edge.consumes === undefined ? [] : [edge]),
    ...(typeOf(graph, edge.from) === 'tool' ? [] : usedBy(graph, edge.from)),
  ]);
}
