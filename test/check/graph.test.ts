import { describe, expect, it } from 'vitest';
import {
  activeNodes,
  checkWorkflow,
  precedes,
  toMermaid,
  type WorkflowGraph,
  workflowGraph,
} from '../../src/check/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { readDiagram } from '../helpers/mermaid.ts';
import { lightMachine, orderMachine } from '../workflow/charts.ts';
import { checkoutGate } from '../workflow/machines.ts';

/** The edges as lines: `empty --ADD_ITEM--> has_items [cart.add_item ok]`. */
function lines({ edges }: WorkflowGraph): string[] {
  return edges.map(({ from, to, type, event, isGuarded, after, tools }) => {
    const way = type === 'event' ? event : after === undefined ? type : `${type} ${after}`;
    const marks = tools.map(({ name, outcome, isGuarded, isPartial, isChosen }) =>
      [
        name,
        outcome,
        ...(isGuarded ? ['guarded'] : []),
        ...(isPartial ? ['partial'] : []),
        ...(isChosen ? ['chosen'] : []),
      ].join(' '),
    );
    const calls = marks.length === 0 ? '' : ` [${marks.join(', ')}]`;
    return `${from} --${way}${isGuarded ? '?' : ''}--> ${to}${calls}`;
  });
}

describe('the graph of a flat machine', () => {
  it('has its states, its ways, and the tools that take them', () => {
    const gate = checkoutGate().bindTool('cart.view', ['has_items', 'payment']);
    const graph = workflowGraph(gate);
    expect(graph).toMatchObject({ id: 'checkout', kind: 'flat', initial: ['empty'] });
    expect(graph.nodes).toEqual([
      { id: 'empty', label: 'empty', type: 'atomic' },
      { id: 'has_items', label: 'has_items', type: 'atomic' },
      { id: 'payment', label: 'payment', type: 'atomic' },
      { id: 'confirmed', label: 'confirmed', type: 'final' },
    ]);
    expect(lines(graph)).toEqual([
      'empty --ADD_ITEM--> has_items [cart.add_item success]',
      'has_items --CHECKOUT--> payment [cart.checkout success]',
      'has_items --CLEAR--> empty',
      'payment --PAY--> confirmed [cart.pay success]',
      'payment --CANCEL--> has_items',
    ]);
    expect(graph.tools).toEqual([
      {
        name: 'cart.add_item',
        nodes: ['empty', 'has_items'],
        stays: ['has_items'],
        isPartial: false,
      },
      { name: 'cart.checkout', nodes: ['has_items'], stays: [], isPartial: false },
      { name: 'cart.pay', nodes: ['payment'], stays: [], isPartial: false },
      {
        name: 'cart.view',
        nodes: ['has_items', 'payment'],
        stays: ['has_items', 'payment'],
        isPartial: false,
      },
    ]);
    expect(JSON.parse(JSON.stringify(graph))).toEqual(graph);
  });

  it('marks guards, functions, a "when", failures and deadlines', () => {
    const gate = new StateMachineGate({
      initial: 'open',
      states: {
        open: { on: { OK: 'done', NO: 'open' }, after: { 5000: 'late' } },
        done: { type: 'final' },
        late: { type: 'final' },
      },
    })
      .bindTool('a', 'open', { success: 'OK', failure: 'NO', guard: () => true })
      .bindTool('b', 'open', { success: 'OK', when: () => true })
      .bindTool('b', 'open', { success: 'NO' })
      .bindTool('b', 'open', { success: 'OK' })
      .bindTool('c', 'open', { success: () => 'OK' });
    expect(lines(workflowGraph(gate))).toEqual([
      'open --OK--> done [a success guarded, b success partial, c success chosen]',
      'open --NO--> open [a failure guarded, b success, c success chosen]',
      'open --deadline 5000--> late',
    ]);
  });

  it('changes nothing in the gate: tools can be bound afterwards', () => {
    const gate = checkoutGate();
    workflowGraph(gate);
    expect(() => gate.bindTool('cart.view', 'payment')).not.toThrow();
    expect(activeNodes(gate, 'payment')).toEqual(['payment']);
    expect(activeNodes(gate, 'nowhere')).toEqual([]);
  });
});

describe('the graph of a statechart', () => {
  const gate = new StateMachineGate(orderMachine, { onAction: () => {} })
    .bindTool('cart_add', 'cart', 'ADD')
    .bindTool('order_place', { tag: 'open' }, 'PLACE')
    .bindTool('bill_pay', 'placed.billing', 'PAID')
    .bindTool('pack', 'placed.packing.waiting', 'PACK');

  it('nests its states, with regions, history, tags and ends', () => {
    const graph = workflowGraph(gate);
    expect(graph.kind).toBe('statechart');
    expect(graph.nodes.map(({ id, type, parent = '-' }) => `${parent} > ${id}: ${type}`)).toEqual([
      '- > cart: atomic',
      '- > placed: parallel',
      'placed > placed.billing: compound',
      'placed.billing > placed.billing.due: atomic',
      'placed.billing > placed.billing.checked: atomic',
      'placed.billing > placed.billing.settled: final',
      'placed > placed.packing: compound',
      'placed.packing > placed.packing.waiting: atomic',
      'placed.packing > placed.packing.packed: final',
      'placed > placed.past: history',
      '- > paused: atomic',
      '- > shipped: final',
      '- > cancelled: final',
    ]);
    expect(graph.nodes[0]).toMatchObject({ tags: ['open'] });
    expect(graph.nodes[2]).toMatchObject({ initial: 'placed.billing.due' });
    expect(lines(graph)).toEqual([
      'cart --ADD--> cart [cart_add success]',
      'cart --PLACE?--> placed [order_place success]',
      'placed --CANCEL--> cancelled',
      'placed --PAUSE--> paused',
      'placed --done--> shipped',
      'placed.billing.due --PAID--> placed.billing.checked [bill_pay success]',
      'placed.billing.due --DECLINED--> placed.billing.due',
      'placed.billing.checked --always?--> placed.billing.settled',
      'placed.billing.checked --always--> placed.billing.due',
      'placed.packing.waiting --PACK--> placed.packing.packed [pack success]',
      'paused --RESUME--> placed.past',
    ]);
    expect(graph.tools.map(({ name, nodes, stays }) => [name, nodes, stays])).toEqual([
      ['cart_add', ['cart'], []],
      ['order_place', ['cart'], []],
      ['bill_pay', ['placed.billing'], []],
      ['pack', ['placed.packing.waiting'], []],
    ]);
  });

  it('names the active nodes of a stored state, outermost first', () => {
    const state = 'placed.(billing.due|packing.waiting)';
    const active = [
      'placed',
      'placed.billing',
      'placed.billing.due',
      'placed.packing',
      'placed.packing.waiting',
    ];
    expect(activeNodes(gate, state)).toEqual(active);
    expect(activeNodes(new StateMachineGate(lightMachine), 'red.walk')).toEqual([
      'red',
      'red.walk',
    ]);
  });
});

describe('the graph of rules of order', () => {
  const gate = StateMachineGate.fromOrder({
    pay: { after: ['checkout', 'verify'] },
    receipt: { after: { any: ['pay', 'gift'] } },
  });

  it('has a node for each tool, and an edge from what is needed to what needs it', () => {
    const graph = workflowGraph(gate);
    expect(graph.kind).toBe('order');
    expect(graph.nodes.map(({ id }) => id).sort()).toEqual([
      'checkout',
      'gift',
      'pay',
      'receipt',
      'verify',
    ]);
    expect(lines(graph).sort()).toEqual([
      'checkout --before--> pay',
      'gift --before--> receipt',
      'pay --before--> receipt',
      'verify --before--> pay',
    ]);
    expect(activeNodes(gate, '{checkout, verify}')).toEqual(['checkout', 'verify']);
    expect(checkWorkflow(gate)).toEqual([]);
  });

  it('can be drawn and proven like any other', async () => {
    const { arrows } = await readDiagram(toMermaid(gate));
    expect(arrows.map(({ from, to }) => `${from} > ${to}`).sort()).toEqual([
      'checkout > pay',
      'gift > receipt',
      'pay > receipt',
      'verify > pay',
    ]);
    expect(precedes(gate, 'checkout', 'pay')).toEqual({ holds: true });
    expect(precedes(gate, 'pay', 'receipt')).toMatchObject({
      holds: false,
      isCertain: true,
      counterExample: [{ tool: 'gift' }, { tool: 'receipt' }],
    });
  });
});
