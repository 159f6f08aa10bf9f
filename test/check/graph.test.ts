import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import {
  activeNodes,
  checkWorkflow,
  precedes,
  toMermaid,
  type WorkflowGraph,
  workflowGraph,
} from '../../packages/check/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { readDiagram } from '../helpers/mermaid.ts';
import { lightMachine, orderMachine } from '../workflow/charts.ts';
import { checkoutConfig, checkoutGate } from '../workflow/machines.ts';

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

describe('where a run of a statechart may begin', () => {
  it('is the innermost node around all regions that are active then', () => {
    const gate = new StateMachineGate(orderMachine, {
      onAction: () => {},
      starts: ['placed', 'paused'],
    });
    expect(workflowGraph(gate).starts).toEqual([
      { state: 'placed.(billing.due|packing.waiting)', node: 'placed' },
      { state: 'paused', node: 'paused' },
    ]);
  });

  it('is the machine itself where that has the regions', () => {
    const region = (first: string) => ({
      initial: first,
      states: { [first]: { on: { GO: 'done' } }, done: {} },
    });
    const machine = createMachine({
      id: 'both',
      type: 'parallel',
      states: { left: region('a'), right: region('b') },
    });
    const gate = new StateMachineGate(machine, { starts: ['left.done'] });
    expect(workflowGraph(gate).starts).toEqual([
      { state: expect.stringContaining('left.done'), node: '' },
    ]);
  });
});

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
    const sure = { partly: [], staysPartly: [], isPartial: false, isGuarded: false };
    expect(graph.tools).toEqual([
      { ...sure, name: 'cart.add_item', nodes: ['empty', 'has_items'], stays: ['has_items'] },
      { ...sure, name: 'cart.checkout', nodes: ['has_items'], stays: [] },
      { ...sure, name: 'cart.pay', nodes: ['payment'], stays: [] },
      {
        ...sure,
        name: 'cart.view',
        nodes: ['has_items', 'payment'],
        stays: ['has_items', 'payment'],
      },
    ]);
    expect(JSON.parse(JSON.stringify(graph))).toEqual(graph);
  });

  it('has each further state in which a run may begin, once', () => {
    const graph = workflowGraph(
      new StateMachineGate(checkoutConfig, { starts: ['payment', 'empty', 'payment'] }),
    );
    expect(graph.starts).toEqual([{ state: 'payment', node: 'payment' }]);
    expect(workflowGraph(checkoutGate()).starts).toEqual([]);
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

  it("has the machine's own events in each state that takes them, and says what enters it again", () => {
    const gate = new StateMachineGate({
      id: 'timed',
      initial: 'cart',
      on: { CANCEL: 'cancelled', RESET: 'cart' },
      states: {
        cart: { on: { PAY: 'paid', LONGER: { target: 'cart', reenter: true }, NOTE: 'cart' } },
        paid: { on: { CANCEL: undefined, RESET: 'paid' } },
        cancelled: { type: 'final' },
      },
    }).bindTool('cart_keep', 'cart', 'LONGER');
    const { edges } = workflowGraph(gate);
    expect(lines(workflowGraph(gate))).toEqual([
      'cart --CANCEL--> cancelled',
      'cart --RESET--> cart',
      'cart --PAY--> paid',
      'cart --LONGER--> cart [cart_keep success]',
      'cart --NOTE--> cart',
      'paid --RESET--> paid',
    ]);
    expect(
      edges.filter(({ reenters }) => reenters).map(({ from, event }) => [from, event]),
    ).toEqual([
      ['cart', 'RESET'],
      ['cart', 'LONGER'],
    ]);
    expect(toMermaid(gate)).toContain(
      's0 --> s0 : (RESET) (enters again),<br/>cart_keep (enters again),<br/>(NOTE)',
    );
    expect(precedes(gate, 'cart_keep', 'cart_keep')).toMatchObject({ holds: false });
    const found = checkWorkflow(gate, { outside: ['PAY', 'NOTE', 'RESET'] });
    expect(found.map(({ code, place }) => `${code}:${place}`)).toEqual([
      'state-unreachable:cancelled',
      'event-unsent:CANCEL',
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
      ['bill_pay', ['placed.billing'], ['placed.billing.checked', 'placed.billing.settled']],
      ['pack', ['placed.packing.waiting'], []],
    ]);
  });

  it('tells where a tool is available always, and where only with other states', () => {
    const gate = new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('ship', { all: ['placed.billing.settled', 'placed.packing.packed'] })
      .bindTool('pay', { all: ['placed.billing', { not: 'placed.packing.packed' }] }, 'PAID')
      .bindTool('drop', 'placed.packing.waiting', 'CANCEL')
      .bindTool('edit', { not: 'placed' })
      .bindTool('help', '*');
    const graph = workflowGraph(gate);
    const places = graph.tools.map(({ name, nodes, partly, stays, staysPartly }) => {
      return { [name]: [nodes, partly, stays, staysPartly] };
    });
    const tops = ['cart', 'paused', 'shipped', 'cancelled'];
    expect(Object.assign({}, ...places)).toEqual({
      ship: [
        [],
        ['placed.billing.settled', 'placed.packing.packed'],
        [],
        ['placed.billing.settled', 'placed.packing.packed'],
      ],
      pay: [['placed.packing.waiting'], [], [], ['placed.billing']],
      drop: [['placed.packing.waiting'], [], [], []],
      edit: [tops, [], tops, []],
      help: [
        ['cart', 'placed', 'paused', 'shipped', 'cancelled'],
        [],
        ['cart', 'placed', 'paused', 'shipped', 'cancelled'],
        [],
      ],
    });
    const marked = graph.edges.flatMap(({ from, event, tools }) =>
      tools.map(({ name, isPartly }) => `${from} ${event} ${name}${isPartly ? ' partly' : ''}`),
    );
    expect(marked).toEqual(['placed CANCEL drop partly', 'placed.billing.due PAID pay partly']);
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
    expect(graph.nodes.map(({ id, type }) => `${id}: ${type}`)).toEqual([
      'checkout: tool',
      'verify: tool',
      'pay: tool',
      'gift: tool',
      'receipt: tool',
      '*1: any',
    ]);
    expect(lines(graph)).toEqual([
      'checkout --before--> pay',
      'verify --before--> pay',
      'pay --before--> *1',
      'gift --before--> *1',
      '*1 --before--> receipt',
    ]);
    expect(
      graph.tools.flatMap(({ nodes, partly, stays }) => [nodes, partly, stays]).flat(),
    ).toEqual([]);
    expect(activeNodes(gate, '{checkout, verify}')).toEqual(['checkout', 'verify']);
    expect(checkWorkflow(gate)).toEqual([]);
  });

  it('can be drawn and proven like any other', async () => {
    const { arrows } = await readDiagram(toMermaid(gate));
    expect(arrows.map(({ from, to }) => `${from} > ${to}`).sort()).toEqual([
      'any of > receipt',
      'checkout > pay',
      'gift > any of',
      'pay > any of',
      'verify > pay',
    ]);
    expect(precedes(gate, 'checkout', 'pay')).toEqual({ holds: true });
    expect(precedes(gate, 'pay', 'receipt')).toMatchObject({
      holds: false,
      isCertain: true,
      counterExample: [{ tool: 'gift' }, { tool: 'receipt' }],
    });
  });

  it('says what a rule says: the same arguments, use, undoing, once, and further bindings', () => {
    const gate = StateMachineGate.fromOrder({
      login: { undoneBy: 'logout' },
      cancel: { after: [{ tool: 'find', same: { order: 'id' }, consumes: true }, 'login'] },
      submit: {
        after: { all: ['login', { any: ['a', { all: ['b', { any: ['c'] }] }] }] },
        once: true,
      },
    })
      .bindTool(
        'refund',
        { all: ['submit', { not: { any: ['cancel', 'a'] } }] },
        { guard: () => true },
      )
      .bindTool('webhook', ['login', '*'], { success: 'b', failure: 'logout' });
    const graph = workflowGraph(gate);
    expect(lines(graph)).toEqual([
      'logout --undoes--> login',
      'find --before--> cancel',
      'login --before--> cancel',
      'login --before--> submit',
      'a --before--> *1',
      'b --before--> *2',
      'c --before--> *2',
      '*2 --before--> *1',
      '*1 --before--> submit',
      'submit --before--> refund',
      'cancel --unless--> refund',
      'a --unless--> refund',
      'webhook --logout--> logout [webhook failure]',
      'webhook --b--> b [webhook success]',
    ]);
    expect(graph.edges[1]).toMatchObject({ calls: { same: { order: 'id' } }, consumes: true });
    expect(graph.nodes.filter(({ once }) => once).map(({ id }) => id)).toEqual(['submit']);
    expect(graph.tools.filter(({ isGuarded }) => isGuarded).map(({ name }) => name)).toEqual([
      'refund',
    ]);
    expect(JSON.parse(JSON.stringify(graph))).toEqual(graph);
  });

  it('says when, how much and with which values', () => {
    const gate = StateMachineGate.fromOrder(
      {
        transfer: {
          after: [
            { tool: 'get_balance', within: '2m', same: { to: { result: 'accountId' } } },
            { tool: 'approve', when: { amount: { gt: 10_000 } }, times: 2, distinct: 'by' },
            { need: 'signed_in', when: { fast: { exists: true } } },
            { any: ['card', 'cash'], when: (args) => args.kind === 'bill' },
          ],
          notAfter: ['freeze', { tool: 'transfer', within: '10s', same: ['to'] }],
          limit: [
            { times: 5, within: '5m', outcome: 'any' },
            { sum: 'amount', below: 0.5, same: ['to'], when: { kind: { in: ['a', 'b'] } } },
          ],
        },
        find: {
          after: {
            ...{ tool: 'look', outcome: 'failed', consumes: 'calls' },
            ...{
              args: { any: [{ x: 1 }, { not: { y: null } }] },
              result: { n: { gte: 1, lt: 9 } },
            },
          },
        },
        close: { after: 'approve' },
      },
      { needs: { signed_in: 'card' } },
    );
    gate.bindTool('sum_up', { all: ['look', { not: 'approve' }] });
    const graph = workflowGraph(gate);
    const words = graph.edges.map(
      ({ from, type, to, says = [] }) => `${from} --${type}--> ${to}: ${says.join(', ')}`,
    );
    expect(words).toEqual([
      'get_balance --before--> transfer: same to = accountId of its result, within 2 minutes',
      'approve --before--> transfer: 2 times, different by, if amount > 10000',
      'card --before--> transfer: if fast is there',
      'card --before--> *1: ',
      'cash --before--> *1: ',
      '*1 --before--> transfer: if a function says so',
      'freeze --unless--> transfer: not after',
      'transfer --unless--> transfer: not after, same to, within 10 seconds',
      'look --before--> find: failed, with x = 1 or not y = null, result n >= 1 and n < 9, ' +
        'each call uses it up',
      'approve --before--> close: ',
      'look --before--> sum_up: if unused',
      'approve --unless--> sum_up: must not be done',
    ]);
    expect(graph.edges[0]).toMatchObject({
      calls: { within: 120_000, same: { to: { result: 'accountId' } } },
      holds: 'get_balance within 2 minutes',
    });
    expect(graph.edges[1]).toMatchObject({ when: { amount: { gt: 10_000 } } });
    expect(graph.edges[5]).toMatchObject({ when: true });
    expect(graph.tools.find(({ name }) => name === 'transfer')?.limits).toEqual([
      { times: 5, within: 300_000, outcome: 'any', says: 'at most 5 calls in 5 minutes' },
      {
        ...{ sum: 'amount', below: '0.5', same: ['to'], when: { kind: { in: ['a', 'b'] } } },
        says: 'amount below 0.5 for each to if kind in a, b',
      },
    ]);
    expect(activeNodes(gate, '{"get_balance within 2 minutes", card}')).toEqual([
      'get_balance',
      'card',
    ]);
    expect(JSON.parse(JSON.stringify(graph))).toEqual(graph);
  });
});
