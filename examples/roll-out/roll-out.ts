/**
 * Brings a gate into the shop, in the seven steps of docs/operate/roll-out.md, and says what each
 * of them has shown.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import express, { type RequestHandler } from 'express';
import { fsmGate, memoryStore, recordCalls, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { replayCalls, suggestRules } from 'mcp-interlock-check';
import { type Played, play } from './agents.ts';
import { shop } from './shop.ts';

const RUNS = 120;
const WITHIN_MS = 1_000;

/** Serves the shop behind these middlewares while the agents buy. */
async function serve(middlewares: readonly RequestHandler[], runs = RUNS): Promise<Played> {
  const app = express();
  app.all('/mcp', express.json(), ...middlewares, shop());
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    return await play(new URL(`http://127.0.0.1:${port}/mcp`), runs);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

function say(step: string, words: string): void {
  console.log(`${step.padEnd(10)} ${words}`);
}

const share = (part: number, whole: number): string => `${((100 * part) / whole).toFixed(1)} %`;

// 1. Record: there is no gate yet, so one that binds nothing reports each call.
const nothing = new StateMachineGate({ id: 'shop', initial: 'any', states: { any: {} } });
const lines: string[] = [];
const recorder = recordCalls({
  key: 'the key of the recording',
  write: (text) => void lines.push(...text.trimEnd().split('\n')),
});
const { calls } = await serve([
  sessionStore({ store: memoryStore(), onEvent: recorder }),
  fsmGate(nothing, { enforce: false }),
]);
await recorder.flush();
say('record', `${calls} calls of ${RUNS} runs, in ${lines.length} lines`);

// 2. Write the gate. What the good runs have in common is a start.
const { rules } = await suggestRules(lines, { reached: ['pay'] });
for (const { kind, tool, after, runs, exceptions } of rules)
  if (tool === 'pay')
    say('suggest', `${kind}: pay after ${after}, in ${runs} runs with ${exceptions} exceptions`);
const gate = StateMachineGate.fromOrder(
  {
    checkout: { after: 'add_item' },
    pay: { after: { tool: 'checkout', same: ['cart'], consumes: true } },
  },
  { id: 'shop' },
);

// 3. Replay.
const replayed = await replayCalls(gate, { lines: () => lines });
say('replay', `${replayed.refused} runs would have been refused, ${share(replayed.refused, RUNS)}`);

// 4. Observe: clients see no difference.
const sessions = sessionStore({ store: memoryStore() });
const observed = await serve([sessions, fsmGate(gate, { enforce: false })]);
const seen = runsOf(gate, { sessions }).observed;
say('observe', `${observed.refused} calls refused; ${seen?.refused} runs would have been`);

// 5. Enforce one tool, and 6. all.
for (const [step, enforce] of [
  ['one tool', ['pay']],
  ['all tools', true],
] as const) {
  const played = await serve([
    sessionStore({ store: memoryStore() }),
    fsmGate(gate, { enforce: enforce === true ? true : [...enforce] }),
  ]);
  say(step, `${played.refused} calls refused, and ${played.paid} of ${RUNS} agents paid`);
}

// 7. Go back, as at night.
const last = sessionStore({ store: memoryStore() });
await runsOf(gate, { sessions: last }).observe({ actor: 'ann', note: 'too many refusals' });
await new Promise((resolve) => setTimeout(resolve, WITHIN_MS));
const back = await serve([last, fsmGate(gate)]);
say('go back', `${back.refused} calls refused`);
