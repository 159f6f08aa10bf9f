/**
 * Only the compiler checks this file. The line under each `@ts-expect-error` must not compile, and
 * all others must.
 */

import { createMachine, setup } from 'xstate';
import { fsmGate, StateMachineGate, tool, type XStateContext } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { Json, StateStore } from '../../src/stores/index.ts';
import type { XStateMachine } from '../../src/workflow/xstate.ts';
import { orderMachine } from '../workflow/charts.ts';

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function assertType<_T extends true>(): void {}

const gate = new StateMachineGate(orderMachine, { onAction: () => {} });

// From a machine made by setup(), TypeScript infers paths, events and tags.
gate
  .bindTool('t', 'placed')
  .bindTool('t', ['placed.billing', 'placed.billing.due', { tag: 'money' }], 'PAID')
  .bindTool('t', { tag: 'open' }, { success: 'ADD', failure: 'CANCEL' });
gate
  .bindTool('t', { all: ['placed.billing.settled', 'placed.packing.packed', { tag: 'money' }] })
  .bind(tool('t').bindState({ any: ['cart', { not: { tag: 'money' } }] }));
// @ts-expect-error
gate.bindTool('t', { all: ['placed.billing.settled', { tag: 'mony' }] });
// @ts-expect-error
gate.bind(tool('t').bindState({ any: ['cart', { not: { tag: 'mony' } }] }));
// @ts-expect-error
gate.bindTool('t', 'placed.biling');
// @ts-expect-error
gate.bindTool('t', 'billing.due');
// @ts-expect-error
gate.bindTool('t', { tag: 'mony' });
gate
  .bindPrompt('p', { tag: 'money' })
  .bindResource('docs://**', ['placed.billing', { tag: 'open' }]);
// @ts-expect-error
gate.bindResource('docs://**', { tag: 'mony' });
// @ts-expect-error
gate.bindTool('t', 'cart', 'PAYED');
// @ts-expect-error
gate.bindTool('t', 'cart', { failure: 'PAYED' });
// @ts-expect-error
void gate.transition('PAYED');
void gate.transition('PAID', { amount: 1 });

// The current state is the path of a state. With parallel regions it only begins with one.
assertType<
  Same<typeof gate.currentState, 'cart' | 'paused' | 'shipped' | 'cancelled' | `placed.${string}`>
>();
const nested = new StateMachineGate(
  setup({}).createMachine({
    initial: 'a',
    states: { a: { on: { GO: 'b' } }, b: { initial: 'c', states: { c: {}, d: {} } } },
  }),
);
assertType<Same<typeof nested.currentState, 'a' | 'b.c' | 'b.d'>>();
nested.bindTool('t', ['a', 'b', 'b.d'], 'ANYTHING');
// @ts-expect-error
nested.bindTool('t', 'b.e');

// A machine without types takes strings, which the gate checks when it is made.
const plain = new StateMachineGate(
  createMachine({ initial: 'a', states: { a: { on: { GO: 'b' } }, b: {} } }),
);
plain.bindTool('t', ['a', { tag: 'x' }], 'GO');
assertType<Same<typeof plain.currentState, string>>();
const machine: XStateMachine = orderMachine;
new StateMachineGate(machine).bindTool('t', 'anything', 'ANYTHING');

// Declarations carry their tags.
gate.bind(
  tool('pay').bindState({ tag: 'money' }, 'PAID').invalidates('x.*'),
  tool('t').bindState(['cart', { tag: 'open' }]),
);
// @ts-expect-error
gate.bind(tool('pay').bindState({ tag: 'mony' }, 'PAID'));
// @ts-expect-error
gate.bind(tool('pay').bindState({ tag: 'money' }, { success: 'PAYED' }));
const flat = new StateMachineGate({ initial: 'a', states: { a: {} } });
// @ts-expect-error
flat.bind(tool('pay').bindState({ tag: 'money' }));
// @ts-expect-error
flat.bindTool('pay', { tag: 'money' });

// A gate with any names is a StateMachineGate.
declare const store: StateStore;
const gates: StateMachineGate[] = [gate, nested, plain];
void gates;
fsmGate(gate);
void runsOf(gate, { store }).resolve('r', 'succeeded', { event: 'PAID', payload: { amount: 2 } });
// @ts-expect-error
void runsOf(gate, { store }).resolve('r', 'succeeded', { event: 'PAYED' });

// A function that chooses an event returns the machine's events only.
gate.bindTool('pay', 'placed.billing.due', {
  success: ({ args, result }) =>
    result.structuredContent?.ok === true
      ? { type: 'PAID', payload: { amount: Number(args.sum) } }
      : 'DECLINED',
  failure: ({ error, result }) =>
    error === undefined && result?.isError === true ? 'DECLINED' : undefined,
  guard: async ({ run, args, principal, context, state, tool: name }) =>
    [run, principal, state, name].includes('x') || context === null || args.x === 1 || 'Not today',
});
// @ts-expect-error
gate.bindTool('pay', 'cart', { success: () => 'PAYED' });
// @ts-expect-error
gate.bindTool('pay', 'cart', { success: () => ({ type: 'PAYED' }) });
// @ts-expect-error
gate.bindTool('pay', 'cart', { success: async () => 'PAID' });
// @ts-expect-error
gate.bindTool('pay', 'cart', { guard: () => 7 });

// The names that a function of a declaration returns are its events.
const pay = tool('pay').bindState('placed', {
  success: ({ args }) => (args.ok === true ? 'PAID' : 'DECLINED'),
});
gate.bind(pay);
const misspelt = tool('pay').bindState('placed', { success: () => 'DECLIND' });
// @ts-expect-error
gate.bind(misspelt);

// A guard reads the machine's context, as JSON holds it.
interface Order {
  readonly total: number;
  note?: string;
  paidAt: string | undefined;
  readonly lines: readonly { readonly sku: string; tags: string[] }[];
  made: Date;
  recount(): void;
  extra: unknown;
}
const ordering = new StateMachineGate(
  setup({ types: { context: {} as Order } }).createMachine({
    context: () => ({}) as Order,
    initial: 'a',
    states: { a: { on: { GO: 'b' } }, b: {} },
  }),
);
ordering.bindTool('t', 'a', {
  guard({ context }) {
    assertType<Same<typeof context.total, number>>();
    assertType<Same<typeof context.paidAt, string | undefined>>();
    assertType<Same<typeof context.extra, Json | undefined>>();
    assertType<Same<typeof context.recount, never>>();
    const [line] = context.lines;
    return context.total > 0 && context.note !== '' && line?.tags[0] === line?.sku;
  },
});
// @ts-expect-error
ordering.bindTool('t', 'a', { guard: ({ context }) => context.totl > 0 });
ordering.bindPrompt('p', 'a', { guard: ({ context }) => context.total > 0 });
ordering.bindResource('docs://**', 'a', { guard: async ({ context }) => context.total > 0 });
const anyContext: StateMachineGate[] = [ordering, gate];
void anyContext;
fsmGate(ordering);
plain.bindTool('t', 'a', { guard: ({ context }) => context?.total === 1 });
flat.bindTool('t', 'a', {
  guard({ context }) {
    assertType<Same<typeof context, Json | undefined>>();
    return true;
  },
});

// So do event functions and `visible`, and a declaration that names the type of the context.
ordering.bindTool('t', 'a', {
  success: ({ context }) => (context.total > 0 ? 'GO' : undefined),
  failure: ({ context }) => (context.note === undefined ? undefined : 'GO'),
  visible: ({ context }) => context.total > 0,
});
// @ts-expect-error
ordering.bindTool('t', 'a', { success: ({ context }) => (context.totl > 0 ? 'GO' : undefined) });
// @ts-expect-error
ordering.bindTool('t', 'a', { visible: ({ context }) => context.totl > 0 });
type OrderContext = { total: number; tags?: string[] };
const typed = tool<OrderContext>('t')
  .bindState('a', {
    success: ({ context }) => (context.total > 0 ? 'GO' : undefined),
    guard: ({ context }) => context.tags === undefined,
  })
  .stale();
const counting = new StateMachineGate(
  setup({ types: { context: {} as OrderContext } }).createMachine({
    context: { total: 1 },
    initial: 'a',
    states: { a: { on: { GO: 'b' } }, b: {} },
  }),
);
counting.bind(typed, tool('u').bindState('a', 'GO'));
type Placed = XStateContext<typeof orderMachine>;
gate.bind(tool<Placed>('t').bindState('cart', { guard: ({ context }) => context.total > 0 }));
const counted = tool<OrderContext>('t').bindState('a', {
  guard: ({ context }) => context.total > 0,
});
// @ts-expect-error
flat.bind(counted);
const unlike = tool<{ total: string }>('t').bindState('a', {
  visible: ({ context }) => context.total === '',
});
// @ts-expect-error
counting.bind(unlike);
// @ts-expect-error
tool<OrderContext>('t').bindState('a', { guard: ({ context }) => context.totl > 0 });

// `matches` takes the machine's paths and tags only.
gate.bindTool('pay', 'placed', {
  guard: ({ matches }) => matches('placed.billing.due') && matches({ tag: 'money' }),
  visible: ({ matches }) => matches({ any: ['cart', { tag: 'open' }] }),
});
// @ts-expect-error
gate.bindTool('pay', 'placed', { guard: ({ matches }) => matches('placed.biling') });
// @ts-expect-error
gate.bindTool('pay', 'placed', { guard: ({ matches }) => matches({ tag: 'mony' }) });
