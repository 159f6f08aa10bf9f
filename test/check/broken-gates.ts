/** A gate for each finding of `checkWorkflow()`, with that fault and no other. */
import { createMachine } from 'xstate';
import type { CheckOptions, FindingCode } from '../../packages/check/src/index.ts';
import { sessionKey } from '../../src/session/run-key.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';

/** A gate with one fault, and the finding that it must have. */
export interface BrokenGate {
  readonly code: FindingCode;
  readonly place: string;
  readonly gate: () => StateMachineGate;
  readonly options?: CheckOptions;
  /** A part of the finding's message. */
  readonly says: RegExp;
}

/** A gate without a fault. */
export function sound() {
  return new StateMachineGate({
    id: 'shop',
    initial: 'empty',
    states: {
      empty: { on: { ADD: 'full' } },
      full: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart_add', 'empty', 'ADD')
    .bindTool('cart_pay', 'full', 'PAY');
}

const ordering = createMachine({
  id: 'order',
  initial: 'open',
  states: {
    open: {
      initial: 'empty',
      on: { CANCEL: { target: 'gone', actions: { type: 'refund' } } },
      states: {
        empty: { on: { ADD: 'full', CANCEL: {} } },
        full: { on: { CANCEL: '#order.gone' } },
      },
    },
    gone: { type: 'final' },
  },
});

/** The same event takes both regions out of their first states, so neither leaves first. */
const twins = createMachine({
  id: 'twins',
  type: 'parallel',
  states: {
    left: { initial: 'off', states: { off: { on: { GO: 'on' } }, on: {} } },
    right: { initial: 'off', states: { off: { on: { GO: 'on' } }, on: {} } },
  },
  on: { RESET: { target: ['.left.off', '.right.off'] } },
});

export const BROKEN_GATES: readonly BrokenGate[] = [
  {
    code: 'gate-unnamed',
    place: 'workflow',
    gate: () => StateMachineGate.fromOrder({ pay: {} }) as StateMachineGate,
    says: /the gate has no id, so a store keeps its runs and switches as those of "workflow"/,
  },
  {
    code: 'rule-unmeetable',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({
        approve: { limit: { times: 2, outcome: 'any' } },
        pay: { after: { tool: 'approve', times: 3 } },
      }) as StateMachineGate,
    says: /"pay" can never be called: it needs 3 calls of "approve", whose limit is 2/,
  },
  {
    code: 'limit-too-low',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({
        pay: { limit: { sum: 'cart.amount', below: 1, within: '1h' } },
      }) as StateMachineGate,
    options: {
      tools: [
        {
          name: 'pay',
          inputSchema: {
            type: 'object',
            properties: { cart: { properties: { amount: { type: 'number', minimum: 1 } } } },
          },
        },
      ],
    },
    says: /no call of tool "pay" .*"cart.amount" may add up to less than 1, .* no less than 1/,
  },
  {
    code: 'text-unfolded',
    place: 'mail',
    gate: () =>
      StateMachineGate.fromOrder({
        mail: { limit: { times: 2, same: ['to'] } },
      }) as StateMachineGate,
    options: {
      tools: [
        { name: 'mail', inputSchema: { type: 'object', properties: { to: { type: 'string' } } } },
      ],
    },
    says: /"mail" compares the text "to" byte for byte/,
  },
  {
    code: 'currency-mixed',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({ pay: { limit: { sum: 'amount', max: 5 } } }) as StateMachineGate,
    options: {
      tools: [
        {
          name: 'pay',
          inputSchema: {
            type: 'object',
            properties: { amount: { type: 'number' }, currency: { type: 'string' } },
          },
        },
      ],
    },
    says: /adds up "amount" of tool "pay" in any currency/,
  },
  {
    code: 'argument-not-listed',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({
        pay: { limit: { sum: 'amuont', max: 1, same: ['order'] } },
      }) as StateMachineGate,
    options: {
      tools: [
        { name: 'pay', inputSchema: { type: 'object', properties: { amount: {}, order: {} } } },
      ],
    },
    says: /a rule reads the argument "amuont" of tool "pay", which is not in the tool's input/,
  },
  {
    code: 'limit-resettable',
    place: 'pay',
    gate: () => StateMachineGate.fromOrder({ pay: { limit: { times: 5 } } }) as StateMachineGate,
    options: { key: sessionKey() },
    says: /tool "pay" has a limit, and a client that begins a new session has a new run/,
  },
  {
    code: 'window-outlives-run',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({
        pay: { limit: { times: 5, within: '24h' }, after: { tool: 'look', within: '7d' } },
      }) as StateMachineGate,
    options: { idleMs: 3_600_000 },
    says: /looks back 7 days, and a run is forgotten after an idleMs of 3600000 ms/,
  },
  {
    code: 'guesses-unlimited',
    place: 'enter_pin',
    gate: () =>
      StateMachineGate.fromOrder({
        enter_pin: { limit: { times: 3, within: '1h' } },
        pay: { after: 'enter_pin' },
      }) as StateMachineGate,
    says: /the limit of tool "enter_pin" counts successes, and tool "pay" .* such as guesses of a PIN/,
  },
  {
    code: 'function-unnamed',
    place: 'find',
    gate: () =>
      StateMachineGate.fromOrder(
        { find: {}, pay: { after: { tool: 'find', args: ({ id }) => id === 1 } } },
        { id: 'order' },
      ),
    says: /function without a name/,
  },
  {
    code: 'tries-unlimited',
    place: 'pay',
    gate: () =>
      StateMachineGate.fromOrder({
        pay: { after: { tool: 'approve', consumes: true } },
      }) as StateMachineGate,
    says: /calls of tool "pay" that fail use up no success of "approve"/,
  },
  {
    code: 'records-joined',
    place: 'settle',
    gate: () =>
      StateMachineGate.fromOrder({
        settle: { renamed: ['pay', 'charge'], limit: { times: 5 } },
      }) as StateMachineGate,
    says: /tool "settle" keeps what "charge" did under "pay": .* a new budget after a roll-back/,
  },
  {
    code: 'tool-no-step',
    place: 'checkout',
    gate: () => StateMachineGate.fromOrder({ pay: { after: ['checkout', 'look', 'quote'] } }),
    options: {
      tools: [
        { name: 'pay' },
        { name: 'checkout', annotations: { destructiveHint: false } },
        { name: 'look', annotations: { readOnlyHint: true } },
        'quote',
      ],
    },
    says: /"checkout" may have an effect.*names it in "after" and has no rule/,
  },
  {
    code: 'action-shadowed',
    place: 'open.full',
    says: /"open.full" takes "CANCEL" itself, so the actions that state "open" has for it are not done/,
    gate: () =>
      new StateMachineGate(ordering, { onAction: () => {} })
        .bindTool('add', 'open.empty', 'ADD')
        .bindTool('cancel', 'open', 'CANCEL') as StateMachineGate,
  },
  {
    code: 'dead-end',
    place: 'paid',
    says: /a run that comes to "paid" of workflow "shop" can never leave it/,
    gate: () =>
      new StateMachineGate({
        id: 'shop',
        initial: 'open',
        states: { open: { on: { PAY: 'paid' } }, paid: {} },
      }).bindTool('pay', 'open', 'PAY'),
  },
  {
    code: 'event-unhandled',
    place: 'pay',
    says: /tool "pay" sends "REFUND", which none of its states handles; states that do are "paid"/,
    gate: () =>
      new StateMachineGate({
        id: 'shop',
        initial: 'open',
        states: {
          open: { on: { PAY: 'paid' } },
          paid: { on: { REFUND: 'open', SHIP: 'sent' } },
          sent: { type: 'final' },
        },
      })
        .bindTool('pay', 'open', 'REFUND')
        .bindTool('checkout', 'open', 'PAY')
        .bindTool('refund', 'paid', 'REFUND')
        .bindTool('ship', 'paid', 'SHIP'),
  },
  {
    code: 'event-unsent',
    place: 'CANCEL',
    says: /no tool of workflow "shop" sends "CANCEL", and nothing from outside does; "CANCELED" is sent/,
    gate: () =>
      new StateMachineGate({
        id: 'shop',
        initial: 'open',
        states: {
          open: { on: { CANCEL: 'closed', CANCELED: 'closed', TIDY: 'closed' } },
          closed: { type: 'final' },
        },
      }).bindTool('cancel', 'open', 'CANCELED'),
    options: { outside: ['TIDY'] },
  },
  {
    code: 'idle-too-short',
    place: 'waiting',
    says: /waits in "waiting" for an event from outside, and is forgotten after an idleMs of 3600000 ms/,
    gate: () =>
      new StateMachineGate({
        id: 'approval',
        initial: 'open',
        states: {
          open: { on: { ASK: 'waiting' } },
          waiting: { on: { APPROVE: 'done', REJECT: 'open' } },
          done: { type: 'final' },
        },
      })
        .bindTool('ask', 'open', 'ASK')
        .bindTool('look', 'waiting'),
    options: { idleMs: 3_600_000 },
  },
  {
    code: 'invalidation-unmatched',
    place: 'policies[0].invalidates[1]',
    says: /"cart_add" makes "cart.\*" stale, and the server has no tool that it matches/,
    gate: () => sound(),
    options: {
      tools: ['cart_add', 'cart_pay', 'cart_view'],
      sync: { policies: [{ match: 'cart_add', invalidates: ['cart_view', 'cart.*'] }] },
    },
  },
  {
    code: 'policy-shadowed',
    place: 'policies[1]',
    says: /policies\[1\] \("cart_add"\) never applies/,
    gate: () => sound(),
    options: { sync: { policies: [{ match: 'cart_*' }, { match: 'cart_add' }] } },
  },
  {
    code: 'policy-unmatched',
    place: 'policies[0]',
    says: /the server has no tool that "cart_vew" matches/,
    gate: () => sound(),
    options: {
      tools: ['cart_add', 'cart_pay', 'cart_view'],
      sync: { policies: [{ match: 'cart_vew' }] },
    },
  },
  {
    code: 'state-unreachable',
    place: 'refunded',
    says: /no way leads to state "refunded" of workflow "shop", so "refund_print" can never be called/,
    gate: () =>
      new StateMachineGate({
        id: 'shop',
        initial: 'open',
        states: {
          open: { on: { PAY: 'paid' } },
          paid: { type: 'final' },
          refunded: { type: 'final' },
        },
      })
        .bindTool('pay', 'open', 'PAY')
        .bindTool('refund_print', 'refunded'),
  },
  {
    code: 'tool-name',
    place: 'cart.view',
    says: /OpenAI and Anthropic take no tool that is called "cart.view"/,
    gate: () => sound().bindTool('cart.view', 'full'),
  },
  {
    code: 'tool-not-listed',
    place: 'cart_pay',
    says: /the server lists no tool "cart_pay", .* did you mean "card_pay"\?.* not gate "card_pay" now$/,
    gate: () => sound(),
    options: { tools: ['cart_add', { name: 'card_pay' }] },
  },
  {
    code: 'tool-rebound',
    place: 'cart_view',
    says: /tool "cart_view" is bound again/,
    gate: () => sound().bindTool('cart_view', 'empty').bindTool('cart_view', 'full'),
  },
  {
    code: 'tool-unavailable',
    place: 'look',
    says: /"look" can never be called: .* comes to \{ all: \["left.on", "right.off"\] \}/,
    gate: () =>
      new StateMachineGate(twins)
        .bindTool('go', ['left.off', 'right.off'], 'GO')
        .bindTool('reset', 'left', 'RESET')
        .bindTool('look', { all: ['left.on', 'right.off'] }) as StateMachineGate,
  },
];
