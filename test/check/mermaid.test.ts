import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toMermaid } from '../../packages/check/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { Page } from '../helpers/markdown.ts';
import { type ReadDiagram, readDiagram } from '../helpers/mermaid.ts';
import { orderMachine } from '../workflow/charts.ts';
import { checkoutConfig, checkoutGate } from '../workflow/machines.ts';

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
        paid: { on: { KEEP: { target: 'paid', reenter: true } } },
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
      'paid > paid: (KEEP) (enters again)',
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

  it('draws the further states in which a run may begin', async () => {
    const flat = new StateMachineGate(checkoutConfig, {
      starts: ['payment', 'empty', 'payment', 'has_items'],
    });
    const text = toMermaid(flat);
    expect(text).toContain('\n  [*] --> s2 : (may begin)\n');
    expect(arrows(await readDiagram(text)).filter((arrow) => arrow.startsWith('[*]'))).toEqual([
      '[*] > empty',
      '[*] > payment: (may begin)',
      '[*] > has_items: (may begin)',
    ]);
    const chart = new StateMachineGate(orderMachine, {
      onAction: () => {},
      starts: ['placed', 'paused', 'placed.billing.due'],
    });
    const diagram = await readDiagram(toMermaid(chart));
    expect(arrows(diagram)).toEqual(
      expect.arrayContaining([
        '[*] > placed: (may begin in placed.(billing.due|packing.waiting))',
        '[*] > paused: (may begin)',
      ]),
    );
  });

  it('draws where a run stands, and folds what is far', async () => {
    const names = Array.from({ length: 30 }, (_, at) => `a_step_with_the_long_number_${at}`);
    const ways = names.map((name, at) => [name, { on: { NEXT: names[at + 1] ?? name } }] as const);
    const gate = new StateMachineGate({
      initial: `${names[0]}`,
      states: Object.fromEntries(ways),
    }).bindTool('go', names, 'NEXT');
    const text = toMermaid(gate, { state: `${names[9]}`, most: 4 });
    expect(text).toContain('state "a_step_with_the_long#95;<br/>number_9" as s4');
    expect(text).toContain('\n  class s4 here\n');
    const { boxes, arrows: drawn } = await readDiagram(text);
    expect(boxes.map(({ label, lines }) => [label, ...lines])).toEqual([
      [names[0]],
      [names[1]],
      ['6 more states', ...names.slice(2, 5), 'and 3 more'],
      [names[8]],
      [names[9]],
      ['20 more states', ...names.slice(10, 13), 'and 17 more'],
    ]);
    expect(drawn.map(({ label }) => label)).toEqual(['', 'go', 'go', '', 'go', 'go']);
    expect(() => toMermaid(gate, { state: 'nowhere' })).toThrow(
      'toMermaid() got the state "nowhere", which "workflow" does not have',
    );
    expect(() => toMermaid(gate, { most: 0 })).toThrow('most');
  });

  it('draws what of the rules is done, and what is next', async () => {
    const gate = StateMachineGate.fromOrder({
      quote: { after: 'search' },
      pay: { after: { all: ['quote', { any: ['password', 'code'] }] }, once: true },
      ticket: { after: 'pay' },
    });
    const text = toMermaid(gate, { state: '{search, quote}' });
    expect(text.split('\n').slice(0, 4)).toEqual([
      '---',
      'title: "2 of 5 done, next: password, code"',
      '---',
      'flowchart LR',
    ]);
    expect(text).toMatch(/classDef done .*\n {2}class s0,s1 done\n/);
    expect(text).toMatch(/classDef next .*\n {2}class s2,s3 next\n/);
    expect((await readDiagram(text)).boxes.map(({ label }) => label)).toContain('password');
  });

  it('draws windows, counts, values and limits', async () => {
    const gate = StateMachineGate.fromOrder({
      pay: {
        after: { tool: 'quote', within: '2m', times: 2, same: { to: { result: 'id' } } },
        notAfter: { tool: 'pay', within: '1s' },
        limit: [
          { times: 5, within: '5m' },
          { sum: 'amount', max: 0.5 },
        ],
        once: true,
      },
    });
    const { boxes, arrows: drawn } = await readDiagram(toMermaid(gate));
    expect(boxes.map(({ label }) => label)).toEqual([
      'quote',
      'pay (once, at most 5 in 5 minutes, amount up to 0.5)',
    ]);
    expect(drawn.map(({ from, to, label }) => `${from} > ${to.slice(0, 3)}: ${label}`)).toEqual([
      'quote > pay: 2 times, same to = id of its result, within 2 minutes',
      'pay (once, at most 5 in 5 minutes, amount up to 0.5) > pay: not after, within 1 second',
    ]);
    const machine = new StateMachineGate({
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    })
      .bindTool('pay', 'open', { success: 'PAY', limit: { times: 3 } })
      .bindTool('look', 'paid', { limit: { times: 9, within: '1h' } });
    const chart = await readDiagram(toMermaid(machine));
    expect(chart.arrows.map(({ label }) => label)).toContain('pay (at most 3)');
    expect(chart.boxes.flatMap(({ lines }) => lines)).toEqual(['look (at most 9 in 1 hour)']);
  });

  it('draws rules of order as what needs what', async () => {
    const gate = StateMachineGate.fromOrder({
      pay: { after: ['checkout', { tool: 'otp', consumes: true }] },
      login: { undoneBy: 'logout' },
      cancel: { after: [{ tool: 'find', same: { order_id: 'id' } }] },
      submit: { after: { any: ['pay', { all: ['login', 'review'] }] }, once: true },
    })
      .bindTool('refund', { all: ['pay', { not: 'cancel' }] }, { guard: () => true })
      .bindTool('webhook', '*', { success: 'otp', failure: 'checkout' });
    const text = toMermaid(gate);
    expect(text).toBe(`flowchart LR
  s0["checkout"]
  s1["otp"]
  s2["pay"]
  s3["login"]
  s4["logout"]
  s5["find"]
  s6["cancel"]
  s7["review"]
  s8["submit (once)"]
  s9["refund?"]
  s10["webhook"]
  s11(["any of"])
  s12(["all of"])
  s0 --> s2
  s1 -->|"uses it up"| s2
  s4 -.->|"undoes"| s3
  s5 -->|"same order_id #61; id"| s6
  s2 --> s11
  s3 --> s12
  s7 --> s12
  s12 --> s11
  s11 --> s8
  s2 --> s9
  s6 --x|"must not be done"| s9
  s10 ==>|"counts as it if it fails"| s0
  s10 ==>|"counts as it"| s1
`);
    expect(arrows(await readDiagram(text))).toEqual([
      'checkout > pay',
      'otp > pay: uses it up',
      'logout > login: undoes',
      'find > cancel: same order_id = id',
      'pay > any of',
      'login > all of',
      'review > all of',
      'all of > any of',
      'any of > submit (once)',
      'pay > refund?',
      'cancel > refund?: must not be done',
      'webhook > checkout: counts as it if it fails',
      'webhook > otp: counts as it',
    ]);
  });

  it('draws the rules of docs/build/checks.md as the page does', () => {
    const page = new Page('docs/build/checks.md');
    const code = page.blocks('ts').at(-1) ?? '';
    const gate = new Function('StateMachineGate', `return ${code}`)(StateMachineGate);
    expect(toMermaid(gate)).toBe(page.blocks('mermaid')[0]);
  });

  it('marks a tool that needs more than its state', async () => {
    const gate = new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('ship', { all: ['placed.billing.settled', 'placed.packing.packed'] })
      .bindTool('drop', 'placed.packing.waiting', 'CANCEL')
      .bindTool('look', 'cart', { guard: () => true });
    const diagram = await readDiagram(toMermaid(gate));
    const drawn = diagram.boxes.flatMap(({ label, lines }) =>
      lines.filter((line) => line !== label).map((line) => `${label}: ${line}`),
    );
    expect(drawn).toEqual(['cart: look?', 'settled: ship?', 'packed: ship?']);
    expect(arrows(diagram)).toContain('placed > cancelled: drop?');
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
    await expectOrderDrawn(name);
  });

  it('draws any name as it is', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }), async (name) => {
        fc.pre(name !== 'end' && !name.includes('*'));
        const gate = new StateMachineGate({
          initial: name,
          states: { [name]: { on: { [name]: 'end' } }, end: {} },
        }).bindTool(name, name, name);
        await expectDrawn(gate, name);
        await expectOrderDrawn(name);
      }),
      { numRuns: 50 },
    );
  });
});

/** The name as a reader sees it. */
function seenAs(name: string): string {
  return name.replace(/\p{Cc}/gu, (each) => {
    const code = each.charCodeAt(0);
    return String.fromCharCode(code < 0x20 ? 0x2400 + code : 0x2421);
  });
}

/** In rules of order the name is that of a tool, and of an argument. */
async function expectOrderDrawn(name: string): Promise<void> {
  const rules = { end: { after: { tool: name, same: [name] }, once: true } };
  const seen = seenAs(name);
  const { boxes, arrows } = await readDiagram(toMermaid(StateMachineGate.fromOrder(rules)));
  expect(boxes.map(({ label }) => label)).toEqual([seen, 'end (once)']);
  expect(arrows).toEqual([{ from: seen, to: 'end (once)', label: `same ${seen}` }]);
}

async function expectDrawn(gate: StateMachineGate, name: string): Promise<void> {
  const seen = seenAs(name);
  const { boxes, arrows } = await readDiagram(toMermaid(gate));
  expect(boxes.map(({ label }) => label)).toEqual([seen, 'end']);
  expect(arrows.at(-1)).toEqual({ from: seen, to: 'end', label: seen });
}
