/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import { type OrderRule, type OrderRules, StateMachineGate, tool } from '../../src/index.ts';

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function assertType<_T extends true>(): void {}

const gate = StateMachineGate.fromOrder(
  {
    pay: {
      after: ['checkout', { any: ['pin', { all: ['face', { tool: 'otp', consumes: true }] }] }],
    },
    cancel: { after: { tool: 'find', same: { order_id: 'id' } }, undoneBy: 'logout', once: true },
  },
  { id: 'shop' },
);
type Names = 'pay' | 'cancel' | 'checkout' | 'pin' | 'face' | 'otp' | 'find' | 'logout';

// TypeScript infers keys and named tools, at any depth.
assertType<Same<typeof gate, StateMachineGate<Names, Names, never, string>>>();
gate
  .bindPrompt('receipt', 'pay')
  .bindTool('refund', { all: ['pay', { not: 'logout' }] })
  .bind(tool('look').bindState({ any: ['find', 'otp'] }, 'logout'));
void gate.transition('otp');
// @ts-expect-error
gate.bindPrompt('receipt', 'payy');
// @ts-expect-error
gate.bindTool('refund', { all: ['pay', { not: 'logot' }] });
// @ts-expect-error
gate.bindTool('refund', 'pay', 'otpp');
// @ts-expect-error
void gate.transition('otpp');

// Rules of any names.
const rules: OrderRules = { a: { after: 'b' } };
const open = StateMachineGate.fromOrder(rules);
assertType<Same<typeof open, StateMachineGate<string, string, never, string>>>();
const rule: OrderRule<'a'> = { after: 'a' };
StateMachineGate.fromOrder({ b: rule }).bindPrompt('p', ['a', 'b']);
StateMachineGate.fromOrder({ a: {} });
StateMachineGate.fromOrder({ a: { errors: 'unknown' }, b: { errors: () => 'failed' } });

StateMachineGate.fromOrder({ a: { step: true }, b: { after: 'a', step: false } });
assertType<Same<OrderRule['step'], boolean | undefined>>();

// Wrong keys and wrong shapes.
// @ts-expect-error
StateMachineGate.fromOrder({ a: { step: 'no' } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { afterr: 'b' } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { after: { some: ['b'] } } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { after: { tool: 'b', smae: ['x'] } } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { after: { tool: 'b', same: 'x' } } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { once: 'yes' } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: {} }, { onAction: () => {} });
// @ts-expect-error
StateMachineGate.fromOrder({ a: {} }, { ids: 'a' });
StateMachineGate.fromOrder({
  a: {
    ok: { status: 'open' },
    guard: ({ args }) => args.sum !== 0 || 'Say a sum',
    uncertain: 'retry',
  },
  b: { step: false, visible: ({ principal }) => principal !== undefined, after: 'a' },
});
// @ts-expect-error
StateMachineGate.fromOrder({ a: { guard: () => 7 } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { uncertain: 'wait' } });
// @ts-expect-error
StateMachineGate.fromOrder({ a: { errors: async () => 'failed' } });

// What needs name are tools too. A rule names needs that there are.
const bank = StateMachineGate.fromOrder(
  { close: { after: [{ need: 'signed_in' }, 'review'] } },
  { needs: { signed_in: { any: [{ all: ['login', 'pin'] }, 'login_face'] } } },
);
bank.bindPrompt('goodbye', ['close', 'review', 'login_face', 'login', 'pin']);
// @ts-expect-error
bank.bindPrompt('goodbye', 'paid');
StateMachineGate.fromOrder(
  { close: { after: { need: 'sigend_in' } } },
  // @ts-expect-error
  { needs: { signed_in: 'login' } },
);
