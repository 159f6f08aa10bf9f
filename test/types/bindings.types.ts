/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import { fsmGate, StateMachineGate, tool } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';

const desk = new StateMachineGate({
  id: 'desk',
  initial: 'out',
  states: { out: { on: { LOGIN: 'in' } }, in: { on: { LEAVE: 'out' } } },
});

// A glob is a name like any other: it may be bound as names are, to the machine's own states.
desk
  .bindTool('admin.*', 'in')
  .bindTool('admin.**', ['in', 'out'] as const, 'LOGIN')
  .bindTool('get_*', '*', { readOnly: true, whileHeld: true })
  .bindTool('*.list', { not: 'out' }, { guard: ({ args }) => args.all !== true })
  .bindTool('admin.help', 'out', { success: 'LOGIN', failure: 'LEAVE' });
desk.bind(tool('admin.*').bindState('in', 'LEAVE'));
// A name that is made while the app runs may turn out to be one.
const prefix: string = 'admin';
desk.bindTool(`${prefix}.*`, 'in');

// @ts-expect-error
desk.bindTool('admin.*', 'inn');
// @ts-expect-error
desk.bindTool('admin.*', ['in', 'gone']);
// @ts-expect-error
desk.bindTool('admin.*', 'in', 'LOGOUT');
// @ts-expect-error
desk.bindTool('admin.*', { not: 'gone' });
// @ts-expect-error
desk.bindTool(/^admin/, 'in');
// @ts-expect-error
desk.bindTool(['admin.*', 'get_*'], 'in');
// @ts-expect-error
desk.bind(tool('admin.*').bindState('gone'));

// What no gate of the route binds is allowed or refused, and nothing else.
const gate = checkoutGate();
fsmGate(gate, { unbound: 'refuse' });
fsmGate(gate, { unbound: 'allow' });
fsmGate(gate, { unbound: undefined });
fsmGate(gate, { unbound: 'refuse', refusal: 'unknown-tool', visibility: 'stable' });
const strict: boolean = Math.random() < 2;
fsmGate(gate, { unbound: strict ? 'refuse' : 'allow' });

// @ts-expect-error
fsmGate(gate, { unbound: 'deny' });
// @ts-expect-error
fsmGate(gate, { unbound: true });
// @ts-expect-error
fsmGate(gate, { unbound: () => 'refuse' });
// @ts-expect-error
fsmGate(gate, { unbound: ['admin.*'] });
// @ts-expect-error
fsmGate(gate, { unbounded: 'refuse' });
