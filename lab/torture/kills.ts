import { setTimeout as delay } from 'node:timers/promises';
import type { LedgerLine } from '../checker/evidence.ts';
import { seeded } from '../checker/random.ts';
import { answerOf } from '../checker/reading.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import { type Encounters, Lane } from './lane.ts';
import { describeObserved } from './observed.ts';
import { describeStops, NightShift, Operator } from './operator.ts';
import { playAll } from './play.ts';
import type { PartResult } from './report.ts';
import type { RunLog } from './run-log.ts';
import type { TortureServer } from './server-process.ts';

export interface KillsScale {
  /** How many processes are killed in the middle of a step. */
  readonly kills: number;
  readonly lanes: number;
}

/** Server processes are killed in mid-step, one after the other, and replaced at once. */
export function killServers(
  options: ArenaOptions,
  scale: KillsScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with(options, async (arena) => {
    const encounters: Encounters = {
      broken: 0,
      unknown: 0,
      unavailable: 0,
      held: 0,
      outOfOrder: 0,
      frozen: 0,
    };
    const blocked: number[] = [];
    const onBroken = async (log: RunLog) => {
      const ms = await blockedFor(arena, log);
      blocked.push(ms);
      if (ms > options.leaseMs) {
        arena.faults.push(
          `stuck: run ${log.run} was blocked ${Math.round(ms)} ms by a dead process`,
        );
      }
    };
    const lanes = Array.from({ length: scale.lanes }, (_, index) => {
      const random = seeded(seed, `kills, lane ${index}`);
      return new Lane(arena, { random, encounters, onBroken, leavesHeld: 0.5 });
    });
    const { tally, stopped } = await Operator.with(arena, async (operator) => {
      const night = new NightShift(arena, operator, {
        random: seeded(seed, 'kills, the operator'),
        workflows: ['checkout', 'rally'],
        mayDie: true,
      });
      const killing = () => killMany(arena, scale.kills, seed);
      return { tally: await playAll(arena, [...lanes, night], killing), stopped: operator.done };
    });
    const faults = await arena.verify();
    const attempts = arena.ledger.begun;
    const resolved = arena.log.outside.filter(({ did }) => did);
    const again = attempts.length - new Set(attempts.map(({ key }) => key)).size;
    const left = arena.logs.filter(({ isLeft }) => isLeft);
    const longest = Math.round(Math.max(0, ...blocked));
    return {
      did: `${tally.inStep} kill -9 in mid-step, ${options.servers} servers`,
      measured: `${again} run again with their key, ${resolved.length} held; blocked for ${longest} ms at most`,
      details:
        `${attempts.length} handlers in ${arena.logs.length} runs, of which ${tally.cut} were cut off and ${tally.unheard} ` +
        `had ended and were not heard of; ${encounters.broken} calls broke, ${encounters.outOfOrder} out of order were refused; ` +
        `${left.length} sessions ended while their runs were held; lease ${options.leaseMs} ms; ` +
        `${describeStops(stopped)}, ${encounters.frozen} calls refused; ${describeObserved(arena.observed)}`,
      faults,
    };
  });
}

interface KillTally {
  /** Kills that met a step. */
  inStep: number;
  /** Handlers that began and never ended. */
  cut: number;
  /** Handlers that ended, without their client being told. */
  unheard: number;
}

async function killMany(arena: Arena, kills: number, seed: number): Promise<KillTally> {
  const random = seeded(seed, 'kills');
  const tally: KillTally = { inStep: 0, cut: 0, unheard: 0 };
  while (tally.inStep < kills && !arena.isEnding) {
    await delay(random.between(0, 100));
    const victims = arena.fleet.ready.filter(({ endpoint }) => endpoint.inFlight > 0);
    // Another server has to be there to take over.
    if (arena.fleet.ready.length < 2 || victims.length === 0) continue;
    const victim = random.pick(victims);
    await arena.fleet.kill(victim);
    await allHeard(victim);
    const { cut, unheard } = interruptedBy(arena, victim);
    if (cut + unheard > 0) tally.inStep++;
    tally.cut += cut;
    tally.unheard += unheard;
  }
  return tally;
}

/** Until every client of a dead server has noticed. */
async function allHeard({ endpoint }: TortureServer): Promise<void> {
  while (endpoint.inFlight > 0) await delay(5);
}

function interruptedBy(arena: Arena, victim: TortureServer): { cut: number; unheard: number } {
  const told = new Set(
    arena.log.exchanges
      .map((each) => answerOf(each).told)
      .map((each) => each.kind === 'done' && each.attempt),
  );
  const isTheirs = ({ server }: LedgerLine): boolean => server === victim.name;
  const ended = arena.ledger
    .refresh()
    .lines.filter(({ phase }) => phase === 'end')
    .filter(isTheirs);
  return {
    cut: arena.ledger.open.filter(isTheirs).length,
    unheard: ended.filter(({ attempt }) => !told.has(attempt)).length,
  };
}

/**
 * A renewal that a process sent before it died is executed this much later at most: its deadline.
 */
const IN_FLIGHT_MS = 2_000;

/**
 * For how long a dead process's claim kept its run busy since its last renewal, on the store's
 * clock. On a busy machine questions and answers take long.
 */
async function blockedFor(arena: Arena, log: RunLog): Promise<number> {
  const { leaseMs } = arena.options;
  const look = () => arena.runsOf(log).read(log.run);
  const first = await look();
  const seen = performance.now();
  let renewed = Number.NEGATIVE_INFINITY;
  for (let ms = 0, view = first; ; await delay(10)) {
    if (view?.status !== 'running' || view.claim?.token !== first?.claim?.token) return ms;
    const left = await arena.leaseLeft(log);
    if (left === undefined) return ms;
    const began = performance.now() + left - leaseMs;
    // Never before the truth: the answer was on its way after the store had looked at its clock.
    renewed = Math.max(renewed, began);
    if (renewed > seen + IN_FLIGHT_MS)
      arena.faults.push(`stuck: run ${log.run} is renewed by no server`);
    const asked = performance.now();
    view = await look();
    if (view?.status === 'running') ms = asked - renewed;
  }
}
