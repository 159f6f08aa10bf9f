import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  foldGraph,
  orderProgress,
  type WorkflowGraph,
  workflowGraph,
} from '../../packages/check/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { orderMachine } from '../workflow/charts.ts';

/** A chain of states, each of which leads to the next. */
function chain(length: number): WorkflowGraph {
  const names = Array.from({ length }, (_, at) => `s${at}`);
  const states = names.map((name, at) => [name, { on: { NEXT: names[at + 1] ?? name } }] as const);
  return workflowGraph(
    new StateMachineGate({ initial: 's0', states: Object.fromEntries(states) }).bindTool(
      'go',
      names.slice(0, -1),
      'NEXT',
    ),
  );
}

const shapeOf = ({ nodes, edges }: WorkflowGraph) => ({
  nodes: nodes.map(({ label, parent }) => (parent === undefined ? label : `${parent}/${label}`)),
  ways: [...new Set(edges.map(({ from, to }) => `${from} > ${to}`))],
});

describe('foldGraph()', () => {
  it('keeps what is near, and folds what is far, each part by itself', () => {
    const folded = foldGraph(chain(12), { near: ['s0', 's6'], most: 5 });
    expect(shapeOf(folded)).toEqual({
      nodes: ['s0', 's1', '3 more states', 's5', 's6', 's7', '4 more states'],
      ways: ['s0 > s1', 's1 > …s2', '…s2 > s5', 's5 > s6', 's6 > s7', 's7 > …s8'],
    });
    expect(folded.nodes[2]).toMatchObject({ type: 'folded', inside: ['s2', 's3', 's4'] });
  });

  it('leaves a graph as it is that is small enough, and a single state too', () => {
    const graph = chain(6);
    expect(foldGraph(graph, { near: ['s0'], most: 6 })).toBe(graph);
    expect(shapeOf(foldGraph(graph, { near: ['s0'], most: 5 })).nodes).toEqual(
      graph.nodes.map(({ id }) => id),
    );
  });

  it.each([0, -3, Number.NaN])('keeps one node where `most` is %d', (most) => {
    const folded = foldGraph(chain(4), { near: ['s2'], most });
    expect(shapeOf(folded).nodes).toEqual(['2 more states', 's2', 's3']);
  });

  it('folds within the state around, and a whole state to one box', () => {
    const graph = workflowGraph(new StateMachineGate(orderMachine, { onAction: () => {} }));
    const folded = foldGraph(graph, { near: ['placed.billing.due'], most: 1 });
    expect(shapeOf(folded).nodes).toEqual([
      'cart',
      'placed',
      'placed/billing',
      'placed.billing/due',
      'placed.billing/2 more states',
      'placed/packing',
      'placed/past',
      '3 more states',
    ]);
    const packing = folded.nodes.find(({ label }) => label === 'packing');
    expect(packing?.type).toBe('folded');
    expect(packing?.inside?.every((id) => id.startsWith('placed.packing.'))).toBe(true);
  });

  it('loses no state and no way, whatever stays', () => {
    const property = fc.property(graphs, fc.nat(12), fc.array(fc.nat(11)), (graph, most, picks) => {
      const near = picks.map((at) => graph.nodes[at % graph.nodes.length]?.id ?? '');
      const folded = foldGraph(graph, { near, most });
      const stays = folded.nodes.filter(({ type }) => type !== 'folded').map(({ id }) => id);
      const inside = folded.nodes.flatMap((node) => node.inside ?? []);
      expect([...stays, ...inside].sort()).toEqual(graph.nodes.map(({ id }) => id).sort());
      const at = (id: string) =>
        folded.nodes.find((node) => node.id === id || node.inside?.includes(id))?.id;
      const ways = graph.edges.map(({ from, to, id }) => [id, at(from), at(to)]);
      const left = ways.filter(([, from, to]) => from !== to || stays.includes(from ?? ''));
      expect(folded.edges.map(({ id, from, to }) => [id, from, to])).toEqual(left);
    });
    fc.assert(property, { numRuns: 200 });
  });
});

describe('orderProgress()', () => {
  it('says what is done, what is next and what each other tool waits for', () => {
    const graph = workflowGraph(
      StateMachineGate.fromOrder({
        quote: { after: 'search' },
        pay: { after: { all: ['quote', { any: ['password', 'code'] }] }, once: true },
        ticket: { after: 'pay' },
      }),
    );
    const available = ['search', 'quote', 'help', 'password', 'code'];
    expect(orderProgress(graph, { active: ['search', 'quote'], available })).toEqual({
      done: ['search', 'quote'],
      of: 5,
      next: ['password', 'code'],
      missing: new Map([
        ['pay', ['password or code']],
        ['ticket', ['pay']],
      ]),
    });
    const { missing } = orderProgress(graph, { active: ['code'], available: ['search'] });
    expect(missing.get('pay')).toEqual(['quote']);
  });
});

/** Flat machines of up to 12 states, with ways between any two. */
const graphs = fc
  .tuple(fc.integer({ min: 1, max: 12 }), fc.array(fc.tuple(fc.nat(11), fc.nat(11))))
  .map(([count, ways]) => {
    const states: Record<string, { on: Record<string, string> }> = {};
    for (let at = 0; at < count; at++) states[`s${at}`] = { on: {} };
    for (const [from, to] of ways) {
      const on = states[`s${from % count}`]?.on;
      if (on !== undefined) on[`TO_${to % count}`] = `s${to % count}`;
    }
    return workflowGraph(new StateMachineGate({ initial: 's0', states }));
  });
