import { Ajv } from 'ajv';
import type { StateMachineGate } from 'mcp-interlock';
import { testGate } from 'mcp-interlock-testing';
import { describe, expect, it } from 'vitest';
import { gateJsonSchema, parseWorkflows } from '../src/json-gate.ts';

const CHECKOUT = {
  $schema: './gate.schema.json',
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD: 'filled' } },
    filled: { on: { ADD: 'filled', PAY: 'paid', DROP: 'empty' }, after: { '60000': 'empty' } },
    paid: { type: 'final' },
  },
  tools: {
    'cart.add': [
      { states: 'empty', success: 'ADD' },
      { states: ['filled'], success: 'ADD', failure: 'DROP', retries: 2 },
    ],
    'cart.pay': {
      ...{ states: ['filled'], success: 'PAY', uncertain: 'retry', errors: 'unknown' },
      ...{ ok: { 'payment.status': { in: ['ok'] }, any: [{ a: 1 }] }, results: 'text' },
    },
    'cart.view': ['filled', 'paid'],
    'cart.receipt': 'paid',
    'cart.drop': { states: { not: { any: ['empty', 'paid'] } }, success: 'DROP' },
  },
  prompts: { thank_you: 'paid' },
  resources: { 'docs://receipts/**': ['paid'] },
  sync: [{ match: 'cart.*', invalidates: ['cart.view'], cacheControl: 'no-store' }],
};

/** The same with one thing changed, by its path. */
function changed(path: readonly string[], value: unknown): Record<string, unknown> {
  const copy = structuredClone(CHECKOUT) as Record<string, unknown>;
  const parents = path.slice(0, -1);
  const holder = parents.reduce((at, key) => at[key] as Record<string, unknown>, copy);
  holder[path.at(-1) ?? ''] = value;
  return copy;
}

const read = (document: unknown) => parseWorkflows(JSON.stringify(document));
const isValid = new Ajv({ strict: false }).compile(gateJsonSchema());

it('makes the gate that a document describes', async () => {
  const { gates, sync } = read(CHECKOUT);
  const [gate] = gates;
  const tools = ['cart.add', 'cart.pay', 'cart.view', 'cart.receipt', 'cart.drop', 'help'];
  expect(gate?.id).toBe('checkout');
  expect(gate?.getVisibleToolNames(tools)).toEqual(['cart.add', 'help']);
  await gate?.transition(gate.getTransitionEvent('cart.add') ?? '');
  const filled = ['cart.add', 'cart.pay', 'cart.view', 'cart.drop', 'help'];
  expect(gate?.getVisibleToolNames(tools)).toEqual(filled);
  expect(sync).toEqual({ policies: CHECKOUT.sync });
  expect(isValid(CHECKOUT)).toBe(true);
});

it('binds tools by globs, as its JSON Schema tells an editor', () => {
  const document = changed(['tools'], { 'admin.*': 'paid', 'get_*': ['filled', 'paid'] });
  const [gate] = read(document).gates;
  const tools = ['admin.wipe', 'admin.users.list', 'get_terms', 'help'];
  expect(gate?.getVisibleToolNames(tools)).toEqual(['admin.users.list', 'help']);
  expect(isValid(document)).toBe(true);
  expect(JSON.stringify(gateJsonSchema())).toContain('by name or by glob: \\"admin.*\\"');
});

it("takes the machine's own events, and transitions that enter a state again", async () => {
  const document = {
    ...changed(['states', 'filled', 'on', 'KEEP'], { target: 'filled', reenter: true }),
    on: { CANCEL: { target: 'empty' }, STOP: 'paid' },
    tools: { 'cart.stop': { states: '*', success: 'STOP' } },
    prompts: {},
    resources: {},
  };
  const [gate] = read(document).gates;
  expect(isValid(document)).toBe(true);
  await gate?.transition('ADD');
  expect(await gate?.transition('KEEP')).toMatchObject({ changed: false });
  expect(await gate?.transition('CANCEL')).toMatchObject({ currentState: 'empty' });
  expect(await gate?.transition(gate.getTransitionEvent('cart.stop') ?? '')).toMatchObject({
    currentState: 'paid',
  });
  expect(await gate?.transition('CANCEL')).toMatchObject({ changed: false });
  for (const wrong of [
    { ...document, on: { STOP: { reenter: true } } },
    { ...document, on: { STOP: { target: 'paid', guard: 'isOpen' } } },
    { ...document, on: { STOP: 'payd' } },
  ])
    expect(() => read(wrong)).toThrow(/STOP/);
});

it('reads the byte order mark of an editor', () => {
  const text = '{ "id": "x", "initial": "a", "states": { "a": {} } }';
  expect(parseWorkflows(`\uFEFF${text}`).gates.map(({ id }) => id)).toEqual(['x']);
});

it('makes several gates of an array, with the policies of all', () => {
  const { gates, sync } = read([CHECKOUT, { ...CHECKOUT, id: 'second' }]);
  expect(gates.map(({ id }) => id)).toEqual(['checkout', 'second']);
  expect(sync?.policies).toHaveLength(2);
  expect(isValid([CHECKOUT, CHECKOUT])).toBe(true);
});

it('limits the tools of a machine', async () => {
  const limit = [
    { times: 2, within: '5m' },
    { sum: 'amount', max: 10 },
  ];
  const document = changed(['tools'], { 'cart.add': { states: '*', limit } });
  const [gate] = read(document).gates;
  expect(isValid(document)).toBe(true);
  const t = testGate(gate as StateMachineGate);
  expect((await t.call('cart.add', { amount: 6 })).ran).toBe(true);
  expect((await t.call('cart.add', { amount: 6 })).ran).toBe(false);
  expect((await t.call('cart.add', { amount: 4 })).ran).toBe(true);
  expect((await t.call('cart.add', { amount: 0 })).ran).toBe(false);
  await t.close();
});

describe('rules of order', () => {
  const order = (rules: unknown) => ({ id: 'shop', order: rules });

  it('make a gate without a machine', async () => {
    const document = order({
      pay: { after: ['checkout', { any: ['card', { tool: 'cash', consumes: true }] }], once: true },
      cancel: { after: { tool: 'find', same: ['order_id'] }, undoneBy: 'logout' },
      checkout: {},
      find: { after: 'card', step: false },
    });
    const [gate] = read(document).gates;
    expect(isValid(document)).toBe(true);
    expect(gate?.id).toBe('shop');
    expect(gate?.getVisibleToolNames(['pay', 'checkout', 'card'])).toEqual(['checkout', 'card']);
    await gate?.transition('checkout');
    await gate?.transition('card');
    expect(gate?.isToolAllowed('pay')).toBe(true);
  });

  it('say all that rules in TypeScript say, but functions', () => {
    const document = {
      ...order({
        pay: {
          after: [
            {
              ...{ tool: 'get_balance', within: '2m', times: 2, distinct: { result: 'bank' } },
              ...{
                same: { to: { result: 'accountId' }, 'from.id': { args: '/id' }, memo: 'memo' },
              },
              ...{ args: { kind: 'full' }, result: { 'funds.free': { gt: 0 } } },
            },
            {
              tool: 'approve',
              when: { amount: { gt: 10_000 } },
              consumes: 'calls',
              within: 60_000,
            },
            {
              any: [{ need: 'signed_in' }, { all: ['badge', 'pin'] }],
              when: { a: { exists: true } },
            },
          ],
          notAfter: ['freeze', { tool: 'pay', within: '1s', same: ['to'] }],
          limit: [
            { times: 5, within: '5m', same: ['to'], when: { fast: true }, outcome: 'any' },
            { sum: { path: 'amount', text: true }, below: 60_000, within: '24h' },
            { sum: 'amount', max: 1e6 },
          ],
          ...{ failure: 'pay_failed', retries: 2, uncertain: 'retry', errors: 'unknown' },
          ...{ ok: { status: 'paid' }, results: 'text' },
        },
        approve: {
          notAfter: { tool: 'reject', outcome: 'any', within: '5m' },
          limit: { times: 0 },
        },
      }),
      needs: { signed_in: { any: ['login_pin', { need: 'face' }] }, face: ['look', 'smile'] },
      results: 'structured',
    };
    expect(() => read(document)).not.toThrow();
    expect(isValid(document)).toBe(true);
  });

  it('count, sum up and look at times', async () => {
    const { order: rules, ...rest } = {
      order: {
        pay: { after: { need: 'code' }, limit: { sum: 'amount', below: 100, within: '1h' } },
        try_pin: { limit: { times: 2, outcome: 'any' } },
      },
      needs: { code: { tool: 'otp', consumes: true, within: '1m' } },
    } as const;
    const [gate] = parseWorkflows(JSON.stringify({ ...order(rules), ...rest })).gates;
    const t = testGate(gate as StateMachineGate);
    expect((await t.call('pay', { amount: 1 })).outcome).toBe('refused');
    for (const amount of [60, 50]) {
      await t.call('otp');
      expect((await t.call('pay', { amount })).ran).toBe(amount === 60);
    }
    const tries = [await t.call('try_pin'), await t.call('try_pin'), await t.call('try_pin')];
    expect(tries.map(({ ran }) => ran)).toEqual([true, true, false]);
    await t.close();
  });

  it.each<[change: object, message: string]>([
    [{ after: { tool: 'b', withn: '2m' } }, 'unknown key "withn", did you mean "within"?'],
    [{ after: { any: [{ tol: 'x' }] } }, 'after.any[0]: unknown key "tol", did you mean "tool"?'],
    [{ after: { tool: 'b', within: '2 min' } }, 'within: expected a duration such as "30s"'],
    [{ after: { tool: 'b', same: { x: { reslt: 'y' } } } }, 'same.x: unknown key "reslt", did you'],
    [{ after: { tool: 'b', same: { x: {} } } }, 'same: "x": expected a path such as "order_id"'],
    [{ after: { tool: 'b', times: 2000 } }, 'after.times: too big: expected number to be <=1000'],
    [{ after: { tool: 'b', distinct: 'x' } }, '"distinct" says which calls "times" counts'],
    [
      { after: { tool: 'b', consumes: 'call' } },
      'consumes: expected boolean or "calls", got "call"',
    ],
    [
      { after: { tool: 'b', outcome: 'ok' } },
      'after.outcome: expected one of "succeeded", "failed", "any", got "ok"',
    ],
    [
      { after: { need: 'x', within: '2m' } },
      'after: expected the name of a tool, { tool }, { outside }, { need }',
    ],
    [
      { after: { tool: 'b', args: { a: { gt: '5' } } } },
      'after.args.a.gt: expected number, got "5"',
    ],
    [{ after: { tool: 'b', result: { a: { gtt: 5 } } } }, 'result.a: unknown key "gtt", did you'],
    [{ after: { tool: 'b', when: {} } }, 'after: when: expected a condition, got an empty object'],
    [{ notAfter: { tool: 'b', consumes: true } }, 'pay.notAfter: unknown key "consumes"'],
    [{ notAfter: { need: 'x' } }, 'pay.notAfter: unknown key "need"'],
    [{ limit: { times: -1 } }, 'pay.limit.times: too small: expected number to be >=0, got -1'],
    [{ limit: {} }, 'rule of "pay": limit: expected one of "times" and "sum"'],
    [{ limit: { sum: 'a' } }, 'limit: a "sum" has one of "max" and "below"'],
    [{ limit: { sum: 'a', max: 1, below: 2 } }, 'limit: a "sum" has one of "max" and "below"'],
    [{ limit: { times: 1, max: 2 } }, 'limit: "max" and "below" bound a "sum"'],
    [{ limit: [{ tims: 5 }] }, 'pay.limit[0]: unknown key "tims", did you mean "times"?'],
    [{ limit: { times: 1, same: { a: 'b' } } }, 'pay.limit.same.a: expected object, got "b"'],
  ])('name the place and what is right: %j', (rule, message) => {
    const document = order({ pay: rule });
    expect(() => read(document)).toThrow(message);
    expect(isValid(document)).toBe(false);
  });

  it.each<[more: object, message: string]>([
    [{ needs: { x: { an: ['a'] } } }, 'needs.x: unknown key "an", did you mean "any"?'],
    [{ needs: [] }, 'needs: expected an object, got an empty array'],
    [{ results: 'json' }, 'results: expected one of "structured", "text", got "json"'],
    [{ need: {} }, 'unknown key "need", did you mean "needs"?'],
  ])('name it beside the rules, too: %j', (more, message) => {
    expect(() => read({ ...order({ pay: {} }), ...more })).toThrow(message);
    expect(isValid({ ...order({ pay: {} }), ...more })).toBe(false);
  });

  it('keep their meaning for `StateMachineGate` to check', () => {
    const document = order({ pay: { after: { need: 'x' } } });
    expect(() => read(document)).toThrow('expected one of the gate\'s "needs" (none), got "x"');
    const circle = { ...order({ pay: {} }), needs: { x: { need: 'y' }, y: { need: 'x' } } };
    expect(() => read(circle)).toThrow('a need cannot need itself: "x" needs "y" needs "x"');
  });

  it('take an argument that is called "__proto__"', async () => {
    const json = '{"pay":{"after":{"tool":"find","same":{"id":"id","__proto__":"id"}}}}';
    const [gate] = parseWorkflows(`{"id":"shop","order":${json}}`).gates;
    const t = testGate(gate as StateMachineGate);
    await t.call('find', { id: 1 });
    expect((await t.call('pay', { id: 1 })).ran).toBe(false);
    await t.close();
  });

  it.each<[rules: unknown, message: string]>([
    [{ pay: { afer: ['checkout'] } }, 'order.pay: unknown key "afer", did you mean "after"?'],
    [{ pay: { after: 5 } }, 'order.pay.after: expected string or object or array, got 5'],
    [{ pay: { step: 0 } }, 'order.pay.step: expected boolean, got 0'],
    [{ pay: { once: 'yes' } }, 'order.pay.once: expected boolean, got "yes"'],
    [{ pay: 'checkout' }, 'order.pay: expected object, got "checkout"'],
    [[], 'order: expected an object, got an empty array'],
  ])('are told wrong: %j', (rules, message) => {
    expect(() => read(order(rules))).toThrow(message);
    expect(isValid(order(rules))).toBe(false);
  });

  it.each<[rules: unknown]>([
    [{ a: { after: ['b'] }, b: { after: ['a'] } }],
    [{ a: { after: { tool: 'b', any: ['c'] } } }],
    [{ a: { after: { any: [] } } }],
    [{ a: { once: true, step: false } }],
  ])('that can never hold are told: %j', (rules) => {
    expect(() => read(order(rules))).toThrow('ERR_INTERLOCK_CONFIG');
  });
});

const DOCUMENT = 'the workflow: ';

describe('a mistake in the shape', () => {
  it.each<[path: string[], value: unknown, message: string]>([
    [['id'], undefined, 'id: expected string, got undefined'],
    [['id'], 'a b', 'id: expected 1 to 64 letters, digits, "_", "." or "-", got "a b"'],
    [['initial'], 7, 'initial: expected string, got 7'],
    [['tool'], {}, 'unknown key "tool", did you mean "tools"?'],
    // Where a run begins, code chooses.
    [['starts'], ['filled'], 'unknown key "starts"'],
    [['states'], [], 'states: expected an object, got an empty array'],
    [['states', 'paid', 'type'], 'end', 'states.paid.type: expected "final", got "end"'],
    [['states', 'empty', 'onn'], {}, 'states.empty: unknown key "onn", did you mean "on"?'],
    [
      ['states', 'empty', 'on', 'ADD'],
      null,
      'states.empty.on.ADD: expected string or object, got null',
    ],
    [['tools', 'cart.pay'], 5, 'tools.cart.pay: expected string or array or object, got 5'],
    [['tools', 'cart.pay'], [], 'tools.cart.pay: '],
    [['tools', 'cart.pay', 'states'], undefined, 'tools.cart.pay.states: expected '],
    [
      ['tools', 'cart.pay', 'states'],
      ['filled', 1],
      'tools.cart.pay.states[1]: expected string or object, got 1',
    ],
    [
      ['tools', 'cart.pay', 'sucess'],
      'PAY',
      'tools.cart.pay: unknown key "sucess", did you mean "success"?',
    ],
    [
      ['tools', 'cart.pay', 'uncertain'],
      'no',
      'tools.cart.pay.uncertain: expected one of "hold", "retry", got "no"',
    ],
    [
      ['tools', 'cart.pay', 'errors'],
      'no',
      'tools.cart.pay.errors: expected one of "failed", "unknown", got "no"',
    ],
    [['tools', 'cart.pay', 'limit'], { tims: 5 }, 'tools.cart.pay.limit: unknown key "tims"'],
    [['tools', 'cart.pay', 'ok'], { 'payment.status': { is: 'ok' } }, 'tools.cart.pay'],
    [['tools', 'cart.pay', 'states'], { nott: 'paid' }, 'unknown key "nott", did you mean "not"?'],
    [['tools', 'cart.pay', 'states'], { any: [] }, 'tools.cart.pay.states.any: '],
    [['tools', 'cart.pay', 'retries'], 0.5, 'tools.cart.pay.retries: expected int, got 0.5'],
    [['prompts', 'thank_you'], {}, 'prompts.thank_you: expected string or array, got an object'],
    [['resources'], 'docs://x', 'resources: expected an object, got "docs://x"'],
    [['sync'], {}, 'sync: expected array, got an object'],
    [['sync', '0', 'match'], undefined, 'sync[0].match: expected string, got undefined'],
    [
      ['sync', '0', 'cacheControl'],
      'x',
      'sync[0].cacheControl: expected one of "no-store", "immutable", got "x"',
    ],
  ])('at %j is told by its place, and by the JSON Schema: %j', (path, value, message) => {
    const document = changed(path, value);
    expect(() => read(document)).toThrow(DOCUMENT);
    expect(() => read(document)).toThrow(message);
    expect(isValid(JSON.parse(JSON.stringify(document)))).toBe(false);
  });
});

describe('a mistake in the workflow', () => {
  it.each<[path: string[], value: unknown, message: string]>([
    [['initial'], 'emty', '"emty" of workflow "checkout" does not exist, did you mean "empty"?'],
    [['states', 'empty', 'on', 'ADD'], 'fild', 'did you mean "filled"?'],
    [['states', 'filled', 'after'], { '1': 'empty', '2': 'paid' }, 'after: expected one delay'],
    [['states', 'paid', 'on'], { PAY: 'paid' }, 'a final state has no "on"'],
    [['tools', 'cart.pay', 'states'], { all: ['filled', 'paid'] }, 'which is true in no state'],
    [['tools', 'cart.pay', 'states'], { not: 'piad' }, 'did you mean "paid"?'],
    [['tools', 'cart.pay', 'states'], 'filed', 'did you mean "filled"?'],
    [
      ['tools', 'cart.pay', 'success'],
      'PAX',
      'tools.cart.pay.success: no state handles the event "PAX", did you mean "PAY"?',
    ],
    [
      ['tools', 'cart.pay', 'failure'],
      'BACK',
      'tools.cart.pay.failure: no state handles the event "BACK", known are',
    ],
    [['tools', 'cart.pay', 'retries'], 1, 'retries'],
    [['tools', 'cart.pay', 'limit'], { times: 5, max: 2 }, 'bound a "sum"'],
    [['prompts', 'thank_you'], 'paidd', 'did you mean "paid"?'],
    [['resources', '***'], 'paid', '***'],
  ])('at %j is told with the right names: %j', (path, value, message) => {
    expect(() => read(changed(path, value))).toThrow(message);
  });
});

describe('a file that is no JSON', () => {
  it.each<[text: string, message: string]>([
    ['', 'the file is empty'],
    ['{\n  "initial": "empty"\n  "id": 1 }', 'line 2, column 21: a comma is missing after "empty"'],
    ['{ "a": {}\n\n"b": {} }', 'line 1, column 10: a comma is missing after }'],
    ['{ "a": [1 }', 'line 1, column 10: a "]" is missing after 1'],
    ['{ "a": 1 ]', 'line 1, column 9: a "}" is missing after 1'],
    ['{ "a" 1 }', 'line 1, column 6: a colon is missing after "a"'],
    ['{\n  "id": "a",\n}', 'line 2, column 12: this comma is one too many'],
    ['[1, 2, ]', 'line 1, column 6: this comma is one too many'],
    ['[1,, 2]', 'line 1, column 4: this comma is one too many'],
    ['{ , }', 'line 1, column 3: this comma is one too many'],
    ['{ "a": , "b": 1 }', 'line 1, column 8: expected a value'],
    ['{ 5: 1 }', 'line 1, column 3: expected a name in double quotes'],
    ['{ id: 1 }', 'line 1, column 3: unexpected id: names and strings need double quotes'],
    ['{ "a": True }', 'line 1, column 8: unexpected True: '],
    ['{ "a": 1', 'line 1, column 9: the file ends too early: a "}" is missing'],
    ['[1', 'line 1, column 3: the file ends too early: a "]" is missing'],
    ['{ "a": 1,', 'line 1, column 10: the file ends too early'],
    ['{} }', 'line 1, column 4: the JSON ends before this: '],
    ['{ "id": "a" // why\n}', 'line 1, column 13: JSON has no comments'],
    ['{ } /* why', 'line 1, column 5: JSON has no comments'],
    ['{ "a": "b\n}', 'line 1, column 8: the closing quote of this string is missing'],
    ['{ "a": 1. }', 'line 1, column 8: a digit is missing in this number'],
    ['{ "a": "\\u12" }', 'line 1, column 8: expected four hexadecimal digits after each \\u'],
    ['{ "a": "\\x" }', 'line 1, column 8: a backslash of this string needs to be written twice'],
    ['{ "a": "\t" }', 'line 1, column 8: this string has a control character'],
    [`{ "a": "${'x'.repeat(99)}" 1 }`, `a comma is missing after "${'x'.repeat(59)}…`],
    ['{\n  "tools": { "pay": "a", "pay": "b" } }', 'line 2, column 26: "pay" is there twice'],
    ['[{ "id": "a" }, { "id": "a",\n "id": "b" }]', 'line 2, column 2: "id" is there twice'],
    ['7', 'expected an object, got 7'],
    [`{ "ok": ${'{"any":['.repeat(50_000)}`, 'more than 200 brackets are open here'],
    ['[]', 'expected a workflow, got an empty array'],
    ['[{}, 5]', 'workflow 1 of the file: id: expected string'],
  ])('is told by line and column: %j', (text, message) => {
    expect(() => parseWorkflows(text)).toThrow(message);
  });
});
