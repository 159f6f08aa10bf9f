/** Workflows of the sizes and shapes that a diagram must serve. */
import { StateMachineGate } from 'mcp-interlock';
import { createMachine } from 'xstate';

/** A flat machine of 13 states, with ways back and two ends. */
export function claimGate() {
  return new StateMachineGate({
    id: 'insurance-claim',
    initial: 'draft',
    states: {
      draft: { on: { SUBMIT: 'submitted' } },
      submitted: { on: { ASSIGN: 'assigned', REJECT: 'rejected' } },
      assigned: { on: { ASK: 'waiting_for_documents', INSPECT: 'inspection_scheduled' } },
      waiting_for_documents: {
        on: { RECEIVE: 'documents_received' },
        after: { 86400000: 'lapsed' },
      },
      documents_received: { on: { INSPECT: 'inspection_scheduled', ASK: 'waiting_for_documents' } },
      inspection_scheduled: { on: { INSPECTED: 'inspected' } },
      inspected: { on: { ASSESS: 'assessed', ASK: 'waiting_for_documents' } },
      assessed: { on: { APPROVE: 'approved', REJECT: 'rejected', ESCALATE: 'second_assessment' } },
      second_assessment: { on: { APPROVE: 'approved', REJECT: 'rejected' } },
      approved: { on: { PAY: 'payment_ordered' } },
      payment_ordered: { on: { PAID: 'closed', BOUNCED: 'approved' } },
      rejected: { on: { APPEAL: 'second_assessment', CLOSE: 'closed' } },
      lapsed: { on: { CLOSE: 'closed' } },
      closed: { type: 'final' },
    },
  })
    .bindTool('claim_submit', 'draft', 'SUBMIT')
    .bindTool('claim_assign_to_adjuster', 'submitted', 'ASSIGN')
    .bindTool('claim_request_documents_from_customer', ['assigned', 'documents_received'], 'ASK')
    .bindTool('claim_receive_documents', 'waiting_for_documents', 'RECEIVE')
    .bindTool('inspection_schedule', ['assigned', 'documents_received'], 'INSPECT')
    .bindTool('inspection_report', 'inspection_scheduled', 'INSPECTED')
    .bindTool('claim_assess_damage', 'inspected', 'ASSESS')
    .bindTool('claim_approve', ['assessed', 'second_assessment'], 'APPROVE')
    .bindTool('claim_reject', ['submitted', 'assessed', 'second_assessment'], 'REJECT')
    .bindTool('claim_escalate', 'assessed', 'ESCALATE')
    .bindTool('claim_pay', 'approved', 'PAY')
    .bindTool('claim_appeal', 'rejected', 'APPEAL')
    .bindTool('claim_show', ['draft', 'submitted', 'assigned', 'assessed', 'closed']);
}

/** A flat machine of 60 states: twelve stations of five steps, each of which may go wrong. */
export function plantGate() {
  const steps = ['prepare', 'run', 'measure', 'correct', 'release'];
  const names = Array.from({ length: 12 }, (_, at) =>
    steps.map((step) => `station_${at + 1}_${step}`),
  );
  const states: Record<string, { on?: Record<string, string>; type?: 'final' }> = {};
  for (const [at, [prepare, run, measure, correct, release]] of names.entries()) {
    states[`${prepare}`] = { on: { START: `${run}` } };
    states[`${run}`] = { on: { STOPPED: `${measure}` } };
    states[`${measure}`] = { on: { GOOD: `${release}`, BAD: `${correct}` } };
    states[`${correct}`] = { on: { START: `${run}` } };
    states[`${release}`] =
      at === 11 ? { type: 'final' } : { on: { NEXT: `station_${at + 2}_prepare` } };
  }
  const gate = new StateMachineGate({ id: 'plant', initial: 'station_1_prepare', states });
  const all = (step: string) => names.map((_, at) => `station_${at + 1}_${step}`);
  return gate
    .bindTool('station_start', [...all('prepare'), ...all('correct')], 'START')
    .bindTool('station_stop', all('run'), 'STOPPED')
    .bindTool('measurement_record', all('measure'), { success: 'GOOD', failure: 'BAD' })
    .bindTool('part_forward_to_next_station', all('release').slice(0, -1), 'NEXT');
}

/** A statechart: three regions within a state, and one of them nested. */
export function tripChart() {
  const machine = createMachine({
    id: 'trip-chart',
    initial: 'planning',
    states: {
      planning: { on: { BOOK: 'booking' } },
      booking: {
        type: 'parallel',
        onDone: 'confirmed',
        on: { ABANDON: 'abandoned' },
        states: {
          flight: leg('FLIGHT'),
          hotel: leg('HOTEL'),
          car: leg('CAR'),
        },
      },
      confirmed: { on: { TRAVEL: 'travelled' } },
      travelled: { type: 'final' },
      abandoned: { type: 'final' },
    },
  });
  return new StateMachineGate(machine)
    .bindTool('trip_book', 'planning', 'BOOK')
    .bindTool('flight_hold', 'booking.flight.open', 'FLIGHT_HELD')
    .bindTool('flight_pay', 'booking.flight.held', 'FLIGHT_PAID')
    .bindTool('hotel_hold', 'booking.hotel.open', 'HOTEL_HELD')
    .bindTool('hotel_pay', 'booking.hotel.held', 'HOTEL_PAID')
    .bindTool('car_hold', 'booking.car.open', 'CAR_HELD')
    .bindTool('car_pay', 'booking.car.held', 'CAR_PAID')
    .bindTool('trip_abandon', 'booking', 'ABANDON');
}

function leg(name: string) {
  return {
    initial: 'open',
    states: {
      open: { on: { [`${name}_HELD`]: 'held' } },
      held: { on: { [`${name}_PAID`]: 'paid' } },
      paid: { type: 'final' as const },
    },
  };
}

/** Rules of order over eight tools. */
export function tripRules() {
  return StateMachineGate.fromOrder(
    {
      hold_flight: { after: 'search_flights' },
      hold_hotel: { after: 'search_hotels' },
      quote_trip: { after: ['hold_flight', 'hold_hotel'] },
      accept_terms: { after: 'quote_trip' },
      pay_trip: { after: ['quote_trip', 'accept_terms'], once: true },
      send_ticket: { after: 'pay_trip' },
    },
    { id: 'trip-rules' },
  );
}
