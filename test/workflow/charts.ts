import { assign, createMachine, setup } from 'xstate';

/**
 * A bit of everything that pure transitions can run: hierarchy, regions, guards, context, history,
 * tags and actions.
 */
export const orderMachine = setup({
  types: {
    context: {} as { total: number; paid: number },
    events: {} as
      | { type: 'ADD'; price: number }
      | { type: 'PLACE' }
      | { type: 'PAID'; amount: number }
      | { type: 'DECLINED' }
      | { type: 'PACK' }
      | { type: 'PAUSE' }
      | { type: 'RESUME' }
      | { type: 'CANCEL' },
    tags: {} as 'open' | 'money',
  },
  actions: { warn: (_, _params: { days: number }) => {}, thank: () => {} },
  guards: { isPaid: ({ context }) => context.paid >= context.total },
}).createMachine({
  id: 'order',
  context: { total: 0, paid: 0 },
  initial: 'cart',
  states: {
    cart: {
      tags: 'open',
      on: {
        ADD: { actions: assign({ total: ({ context, event }) => context.total + event.price }) },
        PLACE: { target: 'placed', guard: ({ context }) => context.total > 0 },
      },
    },
    placed: {
      type: 'parallel',
      on: { CANCEL: 'cancelled', PAUSE: 'paused' },
      onDone: 'shipped',
      states: {
        billing: {
          initial: 'due',
          states: {
            due: {
              tags: 'money',
              on: {
                PAID: {
                  target: 'checked',
                  actions: assign({ paid: ({ context, event }) => context.paid + event.amount }),
                },
                DECLINED: { actions: { type: 'warn', params: { days: 3 } } },
              },
            },
            checked: { always: [{ guard: 'isPaid', target: 'settled' }, { target: 'due' }] },
            settled: { type: 'final', entry: 'thank' },
          },
        },
        packing: {
          initial: 'waiting',
          states: { waiting: { on: { PACK: 'packed' } }, packed: { type: 'final' } },
        },
        past: { type: 'history', history: 'deep' },
      },
    },
    paused: { on: { RESUME: 'placed.past' } },
    shipped: { type: 'final' },
    cancelled: { type: 'final' },
  },
});

/** A machine of one hierarchy and no types. */
export const lightMachine = createMachine({
  id: 'light',
  initial: 'green',
  states: {
    green: { on: { TIMER: 'red' } },
    red: {
      initial: 'walk',
      on: { RESET: 'green' },
      states: { walk: { on: { 'ped.*': 'wait' } }, wait: { on: { 'ped.stop': '#light.green' } } },
    },
  },
});
