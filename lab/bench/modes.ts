/**
 * How soon a workflow of several instances goes from enforcing to observing. Hides how each
 * instance is asked: by a call that an enforcing gate refuses, in a run of its own.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { StateMachineGate } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { Caller, quantile } from './load.ts';
import type { Row } from './report.ts';
import { ServerProcess } from './server-process.ts';
import { PAY, type StoreName } from './setups.ts';
import { openBackend } from './stores.ts';

const INSTANCES = 4;
const BY = { actor: 'bench', note: 'how soon' };
const ASKED_EACH_MS = 5;
const PATIENCE_MS = 10_000;

/** @param address of the store: a server's, or a file's path */
export async function measureModes(name: StoreName, address: string, rounds: number): Promise<Row> {
  const workload = { ...PAY, store: name };
  const given = { connections: 1, address };
  const servers: ServerProcess[] = [];
  for (let at = 0; at < INSTANCES; at++)
    servers.push(await ServerProcess.start('gated', workload, given));
  const { store, close } = await openBackend(name, address);
  const gate = new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: { empty: { on: { ADD_ITEM: 'empty' } } },
  }).bindTool('cart.add_item', ['empty'], 'ADD_ITEM');
  const runs = runsOf(gate, { store });
  const taken: number[] = [];
  try {
    for (let round = 0; round < rounds; round++) {
      await allAre(servers, true);
      await runs.observe(BY);
      const said = performance.now();
      taken.push((await allAre(servers, false)) - said);
      await runs.enforce(BY);
    }
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await close();
  }
  return {
    rounds,
    'median ms': Math.round(quantile(taken, 0.5)),
    'max ms': Math.round(Math.max(...taken)),
    'within 1 s': taken.filter((ms) => ms <= 1_000).length,
  };
}

/** Waits until each instance enforces, or observes. Gives when the last one did. */
async function allAre(servers: readonly ServerProcess[], enforcing: boolean): Promise<number> {
  const until = performance.now() + PATIENCE_MS;
  const done = await Promise.all(
    servers.map(async ({ port }) => {
      for (;;) {
        const caller = new Caller(port, { sdk: 'v1', requests: PAY.requests });
        try {
          await caller.open();
          // A call that comes out otherwise throws.
          for (const sent of PAY.requests) await caller.call(sent, enforcing);
          return performance.now();
        } catch (error) {
          if (performance.now() > until) throw error;
          await delay(ASKED_EACH_MS);
        } finally {
          caller.close();
        }
      }
    }),
  );
  return Math.max(...done);
}
