import { setTimeout as delay } from 'node:timers/promises';
import type { Failover } from '../../test/services/failover.ts';
import { seeded } from '../checker/random.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import { type Encounters, Lane } from './lane.ts';
import { describeObserved } from './observed.ts';
import { playAll } from './play.ts';
import { Prober } from './prober.ts';
import type { PartResult } from './report.ts';
import { middle } from './restarts.ts';

export interface FailoversScale {
  readonly failovers: number;
  readonly lanes: number;
}

/**
 * The store's primary is killed under load, and another server takes its place; or its disk is
 * full for a while. How long no step can be made, and which promises break.
 */
export function failStoreOver(
  options: Omit<ArenaOptions, 'outages'>,
  store: Failover,
  scale: FailoversScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with({ ...options, outages: true }, async (arena) => {
    const encounters: Encounters = {
      broken: 0,
      unknown: 0,
      unavailable: 0,
      held: 0,
      outOfOrder: 0,
      frozen: 0,
    };
    const lanes = Array.from({ length: scale.lanes }, (_, index) => {
      return new Lane(arena, { random: seeded(seed, `failovers, lane ${index}`), encounters });
    });
    const random = seeded(seed, 'failovers');
    const outages: number[] = [];
    let done = 0;
    await playAll(arena, lanes, async () => {
      while (done < scale.failovers && !arena.isEnding) {
        // New ones each time: a run that a failover lost is no measure of the next one.
        const ready = arena.fleet.ready;
        const probers = await Promise.all(ready.map((each) => Prober.start(arena, each)));
        await store.isWhole();
        await delay(random.between(300, 1000));
        await store.kill9();
        const killed = performance.now();
        await store.failOver();
        const served = await Promise.all(probers.map((prober) => prober.serves()));
        outages.push(Math.max(...served) - killed);
        done++;
      }
    });
    const faults = await arena.verify();
    const resolved = arena.log.outside.filter(({ did }) => did);
    return {
      did: `${done} ${store.what} under load, ${options.servers} servers`,
      measured:
        `${faults.length} promises broken; every process serves again after ${middle(outages)} ms ` +
        `(median), ${Math.round(Math.max(0, ...outages))} ms at most`,
      details:
        `${arena.ledger.begun.length} handlers in ${arena.logs.length} runs; ` +
        `${encounters.unknown} outcomes unknown, ${resolved.length} held; ` +
        describeObserved(arena.observed),
      faults,
    };
  });
}
