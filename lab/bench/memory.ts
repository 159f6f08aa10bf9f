/**
 * Prints how many bytes a run keeps in the memory store: opened and never moved, after one step,
 * and for each step after it. A process of its own, since it collects its garbage on demand.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { memoryStore } from 'mcp-interlock';

const RUNS = 20_000;
const STEPS = 10;
const HOUR = 3_600_000;
const initial = { state: 'empty', updatedAt: 0 };
const step = { tool: 'cart.add_item', uncertain: 'hold' } as const;

function bytes(): number {
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function moveAll(runs: readonly string[], state: string): Promise<void> {
  for (const run of runs) {
    const key = { run, workflow: 'checkout' };
    // As long as the gate's own, and flat like them: a UUID is kept as a tree of its pieces.
    const token = randomBytes(18).toString('base64url');
    const digest = randomBytes(32).toString('base64url');
    const states = undefined;
    const claim = { ...key, token, step: { ...step, digest }, states, initial };
    await store.claim({ ...claim, leaseMs: 8_000, ttlMs: HOUR });
    const trail = { from: 'empty', to: state, event: 'ADD_ITEM', tool: step.tool, digest };
    await store.commit({ ...key, token, snapshot: { state }, trail, ttlMs: HOUR });
  }
}

const store = memoryStore({ maxRuns: RUNS });
const runs = Array.from({ length: RUNS }, () => randomUUID());
const empty = bytes();
for (const run of runs) await store.open(run, {}, HOUR);
const opened = bytes();
await moveAll(runs, 'has_items');
const moved = bytes();
for (let more = 1; more < STEPS; more++) await moveAll(runs, 'has_items');
const movedOften = bytes();

const aRun = (sum: number): number => Math.round(sum / RUNS);
console.log(
  JSON.stringify({
    'not moved': aRun(opened - empty),
    'after one step': aRun(moved - empty),
    'each further step': aRun((movedOften - moved) / (STEPS - 1)),
  }),
);
// The keys were not counted with the runs, since they were there before.
if (runs.length !== RUNS) throw new Error('the keys were collected');
