import { StateMachineGate } from 'mcp-interlock';

/**
 * An order, from its first reservation to its delivery. Above a limit it waits for a manager before
 * money moves.
 */
export function orderGate() {
  return new StateMachineGate({
    id: 'order',
    initial: 'created',
    states: {
      created: { on: { reserve_inventory: 'inventory_reserved', cancel: 'cancelled' } },
      inventory_reserved: {
        on: {
          authorize_payment: 'payment_authorized',
          ask_manager: 'awaiting_manager_approval',
          cancel: 'cancelled',
        },
      },
      awaiting_manager_approval: {
        on: {
          approve_payment: 'payment_authorized',
          reject_payment: 'cancelled',
          cancel: 'cancelled',
        },
      },
      payment_authorized: { on: { capture_payment: 'payment_captured', cancel: 'cancelled' } },
      payment_captured: { on: { trigger_fulfillment: 'fulfillment_triggered' } },
      fulfillment_triggered: { on: { mark_shipped: 'shipped' } },
      shipped: { on: { mark_delivered: 'delivered', refund: 'refunded' } },
      delivered: { on: { refund: 'refunded' } },
      cancelled: { type: 'final' },
      refunded: { type: 'final' },
    },
  })
    .bindTool('reserve_inventory', 'created', 'reserve_inventory')
    .bindTool('authorize_payment', 'inventory_reserved', {
      success: ({ result }) =>
        result.structuredContent?.needsApproval === true ? 'ask_manager' : 'authorize_payment',
    })
    .bindTool('capture_payment', 'payment_authorized', 'capture_payment')
    .bindTool('trigger_fulfillment', 'payment_captured', 'trigger_fulfillment')
    .bindTool(
      'cancel_order',
      ['created', 'inventory_reserved', 'awaiting_manager_approval', 'payment_authorized'],
      'cancel',
    );
}

/** The states in which a person has to do something next. */
export const UNFINISHED = [
  'inventory_reserved',
  'awaiting_manager_approval',
  'payment_authorized',
  'payment_captured',
  'fulfillment_triggered',
] as const;

/** What people and other systems send, by their role: events that no tool of the agent's sends. */
export const EVENTS_OF = {
  agent: [],
  manager: ['approve_payment', 'reject_payment', 'refund'],
  carrier: ['mark_shipped', 'mark_delivered'],
} as const;

export type Role = keyof typeof EVENTS_OF;
