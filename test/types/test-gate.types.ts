/**
 * Only the compiler checks this file. Under each `@ts-expect-error` stands what must not compile.
 */
import { setup } from 'xstate';
import { assertGated, NO_ANSWER, testGate } from '../../packages/testing/src/index.ts';
import { memoryStore, StateMachineGate } from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import type { Json } from '../../src/stores/index.ts';

const store = memoryStore();

const door = new StateMachineGate({
  initial: 'open',
  states: { open: { on: { CLOSE: 'closed' } }, closed: {} },
}).bindTool('door.close', 'open', 'CLOSE');

const t = testGate(door, { state: 'closed', context: { knocks: 2 } });
(await t.state()) satisfies 'open' | 'closed';
(await t.context()) satisfies Json | undefined;
void t.send('CLOSE');
void t.resolve('failed', { event: 'CLOSE' });
void t.call('door.close', { gently: true }, NO_ANSWER);
void t.call('door.close', {}, Promise.resolve('closed'));
void t.call('door.close', {}, async ({ gently }, step) => `${gently} ${step?.idempotencyKey}`);
// @ts-expect-error a state that the gate does not have
testGate(door, { state: 'ajar' });
// @ts-expect-error an event that the gate does not have
void t.send('OPEN');
// @ts-expect-error no result of a tool
void t.call('door.close', {}, 42);
// @ts-expect-error its clock is the test's own
testGate(door, { gate: { clock: t.clock } });

// For a statechart: the texts of its states, and its context.
const machine = setup({
  types: {} as { context: { left: number }; events: { type: 'TAKE' } },
}).createMachine({
  id: 'stock',
  initial: 'open',
  context: { left: 1 },
  states: { open: { on: { TAKE: 'empty' } }, empty: {} },
});
const stock = new StateMachineGate(machine).bindTool('take', 'open', 'TAKE');
const s = testGate(stock, { context: { left: 0 } });
(await s.context()).left satisfies number;
// @ts-expect-error another context than the machine's
testGate(stock, { context: { right: 0 } });

// With several gates on one route, each is asked for by name.
const both = testGate([door, stock]);
(await both.state(stock)) satisfies string;
void both.runs(door);
// @ts-expect-error whose state it is cannot be told
testGate([door, stock], { state: 'open' });

void assertGated(door, new URL('http://shop.example/mcp'));
void assertGated(door, async () => new Response(), { path: '/mcp' });
void assertGated(stock, { fetch: () => new Response() });
// @ts-expect-error nothing that serves
void assertGated(door, 42);

// The states that runs are looked for in are those of the gate.
const doors = runsOf(door, { store });
void doors.stuck({ forMs: 1000, state: 'closed' });
void doors.stuck({ forMs: 1000, state: { not: 'closed' } });
// @ts-expect-error a state that the gate does not have
void doors.stuck({ forMs: 1000, state: 'zz' });
// @ts-expect-error an expression of such a state
void doors.stuck({ forMs: 1000, state: { any: ['open', 'zz'] } });
void runsOf(stock, { store }).stuck({ forMs: 1000, state: 'empty' });
void (doors satisfies Runs);
void runsOf(door as StateMachineGate, { store }).stuck({ forMs: 1000, state: 'any text' });
const rules = StateMachineGate.fromOrder({ pay: { after: 'checkout' } });
void runsOf(rules, { store }).stuck({ forMs: 1000, state: '{checkout}' });
