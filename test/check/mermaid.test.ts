import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toMermaid } from '../../src/check/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { type ReadDiagram, readDiagram } from '../helpers/mermaid.ts';
import { orderMachine } from '../workflow/charts.ts';
import { checkoutGate } from '../workflow/machines.ts';

function arrows({ arrows }: ReadDiagram): string[] {
  return arrows.map(({ from, to, label }) => `${from} > ${to}${label === '' ? '' : `: ${label}`}`);
}

describe('toMermaid()', () => {
  it('draws a flat machine with its tools on the arrows', async () => {
    const text = toMermaid(checkoutGate().bindTool('cart.view', 'payment'));
    expect(text).toBe(`stateDiagram-v2
  state "empty" as s0
  state "has_items" as s1
  s1 : cart.add_item
  state "payment" as s2
  s2 : cart.view
  state "confirmed" as s3
  [*] --> s0
  s3 --> [*]
  s0 --> s1 : cart.add_item
  s1 --> s2 : cart.checkout
  s1 --> s0 : (CLEAR)
  s2 --> s3 : cart.pay
  s2 --> s1 : (CANCEL)
`);
    expect(arrows(await readDiagram(text))).toEqual([
      '[*] > empty',
      'confirmed > [*]',
      'empty > has_items: cart.add_item',
      'has_items > payment: cart.checkout',
      'has_items > empty: (CLEAR)',
      'payment > confirmed: cart.pay',
      'payment > has_items: (CANCEL)',
    ]);
  });

  it('marks failures, guards and deadlines', async () => {
    const gate = new StateMachineGate({
      initial: 'open',
      states: {
        open: { on: { OK: 'paid', NO: 'open' }, after: { 900000: 'late' } },
        paid: {},
        late: {},
      },
    })
      .bindTool('pay', 'open', { success: 'OK', failure: 'NO' })
      .bindTool('buy', 'open', { success: 'OK', guard: () => true });
    expect(arrows(await readDiagram(toMermaid(gate)))).toEqual([
      '[*] > open',
      'open > paid: pay, buy?',
      'open > open: pay fails',
      'open > late: (after 15 min)',
    ]);
  });

  it('draws a statechart: hierarchy, regions, history, ends', async () => {
    const gate = new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('bill_pay', 'placed.billing', 'PAID')
      .bindTool('look', 'placed');
    const diagram = await readDiagram(toMermaid(gate));
    expect(diagram.boxes.map(({ label, parent }) => [label, parent])).toEqual(
      expect.arrayContaining([
        ['cart', undefined],
        ['placed', undefined],
        ['billing', 'placed'],
        ['packing', 'placed'],
        ['due', 'billing'],
        ['waiting', 'packing'],
        ['past (history)', 'placed'],
      ]),
    );
    expect(arrows(diagram)).toEqual(
      expect.arrayContaining([
        '[*] > cart',
        '[*] > due',
        'settled > [*]',
        'due > checked: bill_pay',
        'paused > past (history): (RESUME)',
        'placed > shipped: (done)',
        'checked > settled: (always)?',
      ]),
    );
  });

  it.each([
    'with "quotes"',
    'state "x" as s0 {',
    'a: b; c --> d',
    '}}} --',
    '%% comment',
    '<b onclick="x">&amp;</b>',
    '1. list',
    '- list',
    '**bold** __proto__ `code` [link](x)',
    '#35; #quot;',
    'classDef x: fill:#f00;',
    'style s0 fill:#000;x',
    '[*]',
    'end note',
    'direction LR',
    'my Direction  TB x',
    'state x',
    'note',
    'note left of s0',
    'scale 350 width',
    'hide empty description',
    'accTitle: x',
    'accDescr { x }',
    'click s0 href "x"',
    'class s0 x',
    'x as y',
    'title x',
    'default',
    'stateDiagram-v2',
    '\u0000\n\t',
    ' ',
    '🛒 é 漢',
    'note right of s0 : x',
    '<<fork>>',
    '$$x$$',
    'constructor',
  ])('draws a name such as %j as it is', async (name) => {
    const gate = new StateMachineGate({
      initial: name,
      states: { [name]: { on: { [name]: 'end' } }, end: {} },
    }).bindTool(name, name, name);
    await expectDrawn(gate, name);
  });

  it('draws any name as it is', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }), async (name) => {
        fc.pre(name !== 'end');
        const gate = new StateMachineGate({
          initial: name,
          states: { [name]: { on: { [name]: 'end' } }, end: {} },
        }).bindTool(name, name, name);
        await expectDrawn(gate, name);
      }),
      { numRuns: 50 },
    );
  });
});

async function expectDrawn(gate: StateMachineGate, name: string): Promise<void> {
  const seen = name.replace(/\p{Cc}/gu, (each) => {
    const code = each.charCodeAt(0);
    return String.fromCharCode(code < 0x20 ? 0x2400 + code : 0x2421);
  });
  const { boxes, arrows } = await readDiagram(toMermaid(gate));
  expect(boxes.map(({ label }) => label)).toEqual([seen, 'end']);
  expect(arrows.at(-1)).toEqual({ from: seen, to: 'end', label: seen });
}
