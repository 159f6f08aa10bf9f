import { tool } from '../../src/doors/tool.ts';
import type { Json } from '../../src/stores/index.ts';
import type { FsmConfig } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';

/**
 * Only the compiler checks this file. The line under each `@ts-expect-error` must not compile, and
 * all others must.
 */

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function assertType<_T extends true>(): void {}

const gate = new StateMachineGate({
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
});
type States = 'empty' | 'has_items' | 'payment' | 'confirmed';
type Events = 'ADD_ITEM' | 'CHECKOUT' | 'CLEAR' | 'PAY' | 'CANCEL';

// TypeScript infers states and events from a literal, and from a constant one.
assertType<Same<typeof gate, StateMachineGate<States, Events>>>();
assertType<Same<typeof gate.currentState, States>>();
const constant = {
  initial: 'a',
  states: { a: { on: { GO: 'b' } }, b: { type: 'final' } },
} as const;
const fromConstant = new StateMachineGate(constant);
assertType<Same<typeof fromConstant, StateMachineGate<'a' | 'b', 'GO'>>>();

// A plain FsmConfig works too, with strings.
const plain: FsmConfig = { initial: 'a', states: { a: { on: { GO: 'b' } }, b: { type: 'final' } } };
const fromPlain = new StateMachineGate(plain);
assertType<Same<typeof fromPlain, StateMachineGate<string, string>>>();
fromPlain.bindTool('t', 'anything', 'ANYTHING').bind(tool('u').bindState('x', 'Y'));

// A misspelt initial state, target or key.
// @ts-expect-error
new StateMachineGate({ initial: 'emty', states: { empty: {} } });
// @ts-expect-error
new StateMachineGate({ initial: 'a', states: { a: { on: { GO: 'c' } }, b: {} } });
// @ts-expect-error
new StateMachineGate({ initial: 'a', states: { a: { onn: { GO: 'a' } } } });
// @ts-expect-error
new StateMachineGate({ intial: 'a', states: { a: {} } });
// @ts-expect-error
new StateMachineGate({ initial: 'a', states: { a: { type: 'finale' } } });

// The events of the machine's own `on` are events too, and its targets are states.
const rooted = new StateMachineGate({
  initial: 'a',
  on: { RESET: 'a', AGAIN: { target: 'b', reenter: true } },
  states: { a: { on: { GO: 'b', RESET: undefined } }, b: { on: { STAY: { target: 'b' } } } },
});
assertType<Same<typeof rooted, StateMachineGate<'a' | 'b', 'RESET' | 'AGAIN' | 'GO' | 'STAY'>>>();
const constantRoot = {
  initial: 'a',
  on: { RESET: { target: 'a', reenter: true } },
  states: { a: {}, b: {} },
} as const;
const fromConstantRoot = new StateMachineGate(constantRoot);
assertType<Same<typeof fromConstantRoot, StateMachineGate<'a' | 'b', 'RESET'>>>();
const separateRoot = {
  initial: 'a',
  on: { RESET: { target: 'a', reenter: true }, BACK: 'a' },
  states: { a: { on: { GO: 'b' } }, b: {} },
};
const fromSeparateRoot = new StateMachineGate(separateRoot);
assertType<Same<typeof fromSeparateRoot, StateMachineGate<'a' | 'b', 'RESET' | 'BACK' | 'GO'>>>();
// @ts-expect-error
new StateMachineGate({ initial: 'a', on: { RESET: 'c' }, states: { a: {} } });
// @ts-expect-error
new StateMachineGate({ initial: 'a', on: { RESET: { target: 'c' } }, states: { a: {} } });
// @ts-expect-error
export const wrongOn: FsmConfig['on'] = { GO: { target: 'a', reenters: true } };
// @ts-expect-error
rooted.bindTool('t', 'a', 'RESETT');

// bindTool takes the machine's own names only.
gate
  .bindTool('t', 'empty')
  .bindTool('t', ['empty', 'payment'], 'PAY')
  .bindTool('t', 'payment', { success: 'PAY' });
gate.bindTool('t', 'payment', {
  success: 'PAY',
  when: (args) => args.action === 'pay',
  uncertain: 'retry',
});
gate.bindTool('t', ['empty'] as const, undefined).bindTool('t', 'empty', { success: undefined });
// @ts-expect-error
gate.bindTool('t', 'emty');
// @ts-expect-error
gate.bindTool('t', ['empty', 'paymnt']);
// @ts-expect-error
gate.bindTool('t', 'payment', 'PAYY');
// @ts-expect-error
gate.bindTool('t', 'payment', { success: 'PAYY' });
// @ts-expect-error
gate.bindTool('t', 'payment', { sucess: 'PAY' });
// @ts-expect-error
gate.bindTool('t', 'payment', { uncertain: 'wait' });
// @ts-expect-error
gate.bindTool('t', 'payment', { when: async () => true });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: async () => 'PAY' });
// @ts-expect-error
gate.bindTool('t', 'payment', { failure: async () => 'PAY' });
// @ts-expect-error
gate.bindTool('t', 'payment', { errors: async () => 'unknown' });
// @ts-expect-error
gate.bindTool('t', 'payment', { errors: 'retry' });
gate.bindTool('t', 'payment', { errors: 'unknown' }).bindTool('t', 'payment', {
  errors: (result, error) => (error === undefined && result?.isError ? 'unknown' : 'failed'),
});

gate
  .bindTool('t', 'payment', { success: 'PAY', ok: { 'a.b': { gt: 1 }, any: [{ x: null }] } })
  .bindTool('t', 'payment', { success: 'PAY', ok: ({ isError }) => isError !== true });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: 'PAY', ok: async () => true });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: 'PAY', ok: { not: 'x' } });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: 'PAY', ok: { any: { x: 1 } } });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: 'PAY', ok: 'approved' });

// Events sent and states seen.
void gate
  .transition('PAY')
  .then(({ currentState }) => assertType<Same<typeof currentState, States>>());
// @ts-expect-error
void gate.transition('PAYY');
const event = gate.getTransitionEvent('t');
assertType<Same<typeof event, Events | undefined>>();
gate.onTransition(({ previousState, run }) => {
  assertType<Same<typeof previousState, States>>();
  assertType<Same<typeof run, string | undefined>>();
});
gate.onTransition(async () => {});

// Declarations carry their names, and a gate checks them.
const pay = tool('cart.pay').bindState('payment', 'PAY').invalidates('cart.*');
const grouped = tool('cart')
  .stale()
  .bindState('empty', { success: 'ADD_ITEM', when: (args) => args.action === 'add' })
  .bindState(['has_items', 'payment'], { when: (args) => args.action === 'clear' })
  .bindState('confirmed');
gate.bind(pay, grouped, tool('countries').cached());
// @ts-expect-error
gate.bind(tool('t').bindState('paymnt', 'PAY'));
// @ts-expect-error
gate.bind(pay, tool('t').bindState('payment', 'PAYY'));
// @ts-expect-error
gate.bind(tool('t').bindState('payment', { success: 'PAYY' }).cached());
// @ts-expect-error
gate.bind(tool('t').bindState('payment').bindState(['payment', 'paymnt']));
// @ts-expect-error
tool('t').bindState('payment', { sucess: 'PAY' });
// @ts-expect-error
tool('t').bindState('payment').bindings.push({ tool: 't', states: [] });

// A gate with any names is a StateMachineGate.
const gates: StateMachineGate[] = [gate, fromConstant, fromPlain];
void gates;

// bindPrompt and bindResource also take the machine's own names only, and no events.
gate
  .bindPrompt('p', 'empty')
  .bindResource('docs://**', ['empty', 'payment'] as const, {
    guard: async ({ args }) => args.a === 1,
  })
  .bindTool('t', 'empty');
fromPlain.bindPrompt('p', 'anything').bindResource('docs://**', ['x', 'y'], undefined);
// @ts-expect-error
gate.bindPrompt('p', 'emty');
// @ts-expect-error
gate.bindResource('docs://**', ['empty', 'paymnt']);
// @ts-expect-error
gate.bindPrompt('p', 'empty', 'ADD_ITEM');
// @ts-expect-error
gate.bindResource('docs://**', 'empty', { success: 'ADD_ITEM' });

// A configuration in a constant, whose values TypeScript widens. Its states and events are still
// known.
const separate = {
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' }, after: { 1000: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
};
const fromSeparate = new StateMachineGate(separate, { version: 1 });
assertType<Same<typeof fromSeparate, StateMachineGate<States, Events>>>();
fromSeparate.bindTool('t', ['empty', 'payment'], 'PAY');
// @ts-expect-error
fromSeparate.bindTool('t', 'emty');
// @ts-expect-error
fromSeparate.bindTool('t', 'payment', 'PAYY');
const satisfying = {
  initial: 'empty',
  states: { empty: { on: { GO: 'done' } }, done: { type: 'final' } },
} satisfies FsmConfig;
const fromSatisfying = new StateMachineGate(satisfying);
assertType<Same<typeof fromSatisfying, StateMachineGate<'empty' | 'done', 'GO'>>>();
new StateMachineGate({ initial: 'a', states: { a: {} } } satisfies FsmConfig);
new StateMachineGate({ initial: 'a', states: { a: {} } } as const satisfies FsmConfig);
// What TypeScript still knows, it checks.
const halfKnown = { initial: 'c', states: { a: { on: { GO: 'c' } }, b: {} } } as const;
// @ts-expect-error
new StateMachineGate(halfKnown);
const wrongKey = { intial: 'a', states: { a: {} } };
// @ts-expect-error
new StateMachineGate(wrongKey);
const wrongType = { initial: 'a', states: { a: { on: { GO: 7 } } } };
// @ts-expect-error
new StateMachineGate(wrongType);
// A generic function keeps the names of its gate.
function gateOf<S extends string, E extends string>(config: FsmConfig<S, E>) {
  return new StateMachineGate(config);
}
const passedOn = gateOf({ initial: 'a', states: { a: { on: { GO: 'a' } } } });
assertType<Same<typeof passedOn, StateMachineGate<'a', 'GO'>>>();
new StateMachineGate<'a', 'GO'>({ initial: 'a', states: { a: { on: { GO: 'a' } } } });

// Expressions of states, at any depth.
gate
  .bindTool('t', '*')
  .bindTool('t', { not: 'empty' })
  .bindTool('t', { all: [{ not: 'empty' }, { any: ['payment', 'has_items'] }] }, 'PAY')
  .bindTool('t', ['empty', { any: ['payment'] }])
  .bindPrompt('p', { not: { any: ['empty', 'payment'] } })
  .bindResource('docs://**', ['*']);
// @ts-expect-error
gate.bindTool('t', { not: 'emty' });
// @ts-expect-error
gate.bindTool('t', { all: ['payment', 'emty'] });
// @ts-expect-error
gate.bindTool('t', { any: ['payment', { not: { all: ['emty'] } }] });
// @ts-expect-error
gate.bindTool('t', { some: ['payment'] });
// @ts-expect-error
gate.bindTool('t', { any: 'payment' });
// @ts-expect-error
gate.bindTool('t', { tag: 'open' });
// @ts-expect-error
gate.bindPrompt('p', { all: ['emty'] });
// @ts-expect-error
gate.bindResource('docs://**', { not: 'emty' });

// So do declarations. The gate that takes them checks their names.
gate.bind(
  tool('t').bindState({ all: [{ not: 'empty' }, { any: ['payment', 'has_items'] }] }, 'PAY'),
  tool('t').bindState(['*', { not: 'empty' }]),
);
// @ts-expect-error
gate.bind(tool('t').bindState({ all: ['payment', { not: 'emty' }] }));
// @ts-expect-error
gate.bind(tool('t').bindState({ any: [{ tag: 'open' }] }));

// What the functions of bindings are told, by names that the machine has.
gate.bindTool('t', 'payment', {
  success: ({ args, result, tool: name, state, context, principal, matches }) => {
    assertType<Same<typeof context, Json | undefined>>();
    assertType<Same<typeof principal, string | undefined>>();
    const isPaid = result.isError !== true && args.sum === 1 && name !== state;
    return isPaid && matches('payment') ? 'PAY' : 'CANCEL';
  },
  failure: ({ error, matches }) => (error && matches('payment') ? 'CANCEL' : undefined),
  retries: 2,
  guard: ({ matches }) => matches('payment') || matches({ not: 'empty' }),
  visible: ({ run, principal, state, context, matches }) =>
    run !== undefined && principal !== state && context !== null && !matches('confirmed'),
});
// @ts-expect-error
gate.bindTool('t', 'payment', { guard: ({ matches }) => matches('paymnt') });
// @ts-expect-error
gate.bindTool('t', 'payment', { guard: ({ matches }) => matches({ tag: 'open' }) });
// @ts-expect-error
gate.bindTool('t', 'payment', { success: ({ matches }) => (matches('paymnt') ? 'PAY' : 'CANCEL') });
// @ts-expect-error
gate.bindTool('t', 'payment', { visible: ({ matches }) => matches('paymnt') });
// @ts-expect-error
gate.bindTool('t', 'payment', { visible: async () => true });
// @ts-expect-error
gate.bindTool('t', 'payment', { visible: 'admin' });
// @ts-expect-error
gate.bindTool('t', 'payment', { failure: 'CANCEL', retries: 'two' });
// @ts-expect-error
gate.bindPrompt('p', 'empty', { visible: () => 1 });
gate.bindResource('docs://**', 'empty', { visible: ({ matches }) => matches('empty') });

// A `when` reads arguments only.
// @ts-expect-error
gate.bindTool('t', 'payment', { when: ({ args }, { state }) => args === state });

// The functions of a declaration read the same. The names in their `matches` are checked at run
// time.
gate.bind(
  tool('t').bindState('payment', {
    success: ({ context, matches }) => (context === null && matches('empty') ? 'PAY' : 'CANCEL'),
    visible: ({ matches }) => matches('payment'),
  }),
);
const typed = tool<{ total: number }>('t').bindState('payment', {
  guard: ({ context }) => context.total > 0,
});
// @ts-expect-error
gate.bind(typed);
