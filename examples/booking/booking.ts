import { StateMachineGate } from 'mcp-interlock';
import type { Json } from 'mcp-interlock/stores';
import type { Slots } from './slots.ts';

/** What the run carries along: the tools write it, and the guard reads it. */
export interface Draft {
  readonly patient?: string;
  readonly slot?: string;
}

export function draftOf(context: Json | undefined): Draft {
  return (context ?? {}) as Draft;
}

/** A patient books once the desk knows them, and gets no slot that another patient has. */
export function bookingGate(slots: Slots) {
  return new StateMachineGate({
    id: 'booking',
    initial: 'triage',
    states: {
      triage: { on: { VERIFIED: 'booking' } },
      booking: { on: { CHOSEN: 'chosen' } },
      chosen: { on: { CONFIRMED: 'confirmed', SLOT_TAKEN: 'booking' } },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('verify_identity', 'triage', {
      success: ({ result }) =>
        result.structuredContent?.verified === true ? 'VERIFIED' : undefined,
    })
    .bindTool('choose_slot', ['booking', 'chosen'], 'CHOSEN')
    .bindTool('confirm_booking', 'chosen', {
      // Before the call: what was free when the model chose may be taken by now.
      async guard({ context }) {
        const { slot = '' } = draftOf(context);
        return (await slots.isFree(slot)) || `${slot} is taken. Call list_slots, then choose_slot`;
      },
      // And after it: another patient may have been quicker while the call ran.
      success: ({ result }) =>
        result.structuredContent?.booked === true ? 'CONFIRMED' : 'SLOT_TAKEN',
    })
    .bindTool('send_confirmation', 'confirmed');
}
