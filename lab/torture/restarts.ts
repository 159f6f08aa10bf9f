import { setTimeout as delay } from 'node:timers/promises';
import { now } from '../checker/evidence.ts';
import { SWITCH_MS } from '../checker/freezes.ts';
import { type Random, seeded } from '../checker/random.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import type { KillableServer } from './backends.ts';
import { type Encounters, Lane } from './lane.ts';
import { describeObserved } from './observed.ts';
import { describeStops, NightShift, Operator } from './operator.ts';
import { playAll } from './play.ts';
import { Prober } from './prober.ts';
import type { PartResult } from './report.ts';

export interface RestartsScale {
  readonly restarts: number;
  readonly lanes: number;
  /** How long the store stays away, in milliseconds: one of these. */
  readonly outagesMs: readonly number[];
}

/** From the store's return until every process serves again. */
const RECOVERY_LIMIT_MS = 2_000;

interface RestartTally {
  restarts: number;
  /** For each restart and process, how long it took. */
  readonly recoveries: number[];
  /** Ungated calls that were served while the store was away. */
  ungated: number;
  /** Gated calls that were refused while the store was away. */
  refused: number;
}

/** The store is killed under load, and started again after a while. */
export function restartStore(
  options: Omit<ArenaOptions, 'outages'>,
  server: KillableServer,
  scale: RestartsScale,
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
      return new Lane(arena, { random: seeded(seed, `restarts, lane ${index}`), encounters });
    });
    const probers = await Promise.all(arena.fleet.ready.map((each) => Prober.start(arena, each)));
    const tally: RestartTally = { restarts: 0, recoveries: [], ungated: 0, refused: 0 };
    const random = seeded(seed, 'restarts');
    const stopped = await Operator.with(arena, async (operator) => {
      // The probers play the other workflow: they tell when a process serves again.
      const night = new NightShift(arena, operator, {
        random: seeded(seed, 'restarts, the operator'),
        workflows: ['checkout'],
      });
      await playAll(arena, [...lanes, night], async () => {
        while (tally.restarts < scale.restarts && !arena.isEnding) {
          await restartOnce(arena, server, probers, scale, random, tally);
        }
      });
      return operator.done;
    });
    const faults = await arena.verify();
    for (const ms of tally.recoveries) {
      if (ms > RECOVERY_LIMIT_MS)
        faults.push(`slow: a process served again ${Math.round(ms)} ms after its store`);
    }
    const attempts = arena.ledger.begun;
    const longest = Math.round(Math.max(0, ...tally.recoveries));
    const resolved = arena.log.outside.filter(({ did }) => did);
    return {
      did: `${tally.restarts} restarts of the store under load, ${options.servers} servers`,
      measured: `serving again after ${middle(tally.recoveries)} ms (median), ${longest} ms at most`,
      details:
        `${attempts.length} handlers in ${arena.logs.length} runs; while it was away ${tally.ungated} ungated calls were served and ` +
        `${tally.refused} gated ones refused; ${encounters.unknown} outcomes unknown, ${resolved.length} held; ` +
        `${describeStops(stopped)}, ${encounters.frozen} calls refused; ${describeObserved(arena.observed)}`,
      faults,
    };
  });
}

async function restartOnce(
  arena: Arena,
  server: KillableServer,
  probers: readonly Prober[],
  scale: RestartsScale,
  random: Random,
  tally: RestartTally,
): Promise<void> {
  await delay(random.between(300, 1000));
  const from = now();
  await server.kill9();
  const away = delay(random.pick(scale.outagesMs));
  const probes = await Promise.all(probers.map((prober) => prober.whileAway()));
  tally.ungated += probes.length;
  tally.refused += probes.filter((refused) => refused).length;
  await away;
  await server.restart();
  const back = performance.now();
  const servedAt = await Promise.all(probers.map((prober) => prober.serves()));
  // A process that could not read a switch asks again once this has passed.
  arena.away.push({ from, to: now() + SWITCH_MS });
  tally.recoveries.push(...servedAt.map((at) => at - back));
  tally.restarts++;
}

export function middle(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return Math.round(sorted[Math.floor(sorted.length / 2)] ?? 0);
}
