import { setup } from 'xstate';
import { interlock, type SessionMiddleware, StateMachineGate, tool } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';

/**
 * Only the compiler checks this file. The line under each `@ts-expect-error` must not compile, and
 * all others must.
 */

const flat = new StateMachineGate({
  id: 'flat',
  initial: 'a',
  states: { a: { on: { GO: 'b' } }, b: {} },
}).bindTool('go', 'a', 'GO');
const rules = StateMachineGate.fromOrder({ pay: { after: 'checkout' }, checkout: {} }, { id: 'r' });
const chart = new StateMachineGate(
  setup({ types: { context: {} as { items: number } } }).createMachine({
    id: 'chart',
    context: { items: 0 },
    initial: 'open',
    states: { open: { tags: ['busy'] } },
  }),
);

// It takes gates of each kind, with and without options, and all options of the three middlewares.
const mcp: SessionMiddleware = interlock({
  gates: [flat, rules, { gate: chart, statusTool: 'status', enforce: false }],
  idleMs: 1_000,
  policies: {
    policies: [{ match: 'a', cacheControl: 'immutable' }],
    tools: [tool('go').cached()],
    placement: 'prepend',
  },
});
runsOf(flat, { sessions: mcp });
interlock({ gates: [flat], policies: [{ match: 'a', cacheControl: 'no-store' }] });
const widened = [{ match: 'a', cacheControl: 'no-store' }];
interlock({ gates: [flat], policies: widened });

// @ts-expect-error: there must be gates
interlock({});
// @ts-expect-error: a gate, not its machine
interlock({ gates: [{ initial: 'a', states: { a: {} } }] });
// @ts-expect-error: no option of fsmGate()
interlock({ gates: [{ gate: flat, waitMS: 1 }] });
// @ts-expect-error: no option of sessionStore()
interlock({ gates: [flat], idleMS: 1 });
// @ts-expect-error: no such directive
interlock({ gates: [flat], policies: [{ match: 'a', cacheControl: 'never' }] });
