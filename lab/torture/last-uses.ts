import { setTimeout as delay } from 'node:timers/promises';
import { runsOf } from '../../src/runs/index.ts';
import { seeded } from '../checker/random.ts';
import { type UsesEvidence, usesFaults } from '../checker/uses.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import type { Backend } from './backends.ts';
import { playAll } from './play.ts';
import type { PartResult } from './report.ts';
import { gateOfRules, LOOKUPS, RETRIED, RULEBOOK } from './rulebook.ts';
import { type Encounters, HANG_MS, RuledRun } from './ruled-run.ts';

export interface LastUsesScale {
  /** How many runs are played at least, and how many at the same time. */
  readonly runs: number;
  readonly lanes: number;
  /** Of each run. */
  readonly callers: number;
  readonly wishes: number;
  /** How many processes are killed, and how often the store is. */
  readonly kills: number;
  readonly restarts: number;
}

const OUTAGES_MS = [50, 300, 1_200];

/**
 * Callers race in a few runs for the last use, the last euro and the one approval, while processes
 * are killed in mid-step and the store is killed and started again. Then all that is left is taken.
 */
export function raceForLastUses(
  options: ArenaOptions,
  { isShared, server }: Pick<Backend, 'isShared' | 'server'>,
  scale: LastUsesScale,
  seed: number,
): Promise<PartResult> {
  const outages = server !== undefined;
  return Arena.with({ ...options, outages, binds: 'rules' }, async (arena) => {
    const met: Encounters = {
      ...{ calls: 0, done: 0, failed: 0, refused: 0, broken: 0, held: 0, late: 0 },
    };
    const tally = { kills: 0, hung: 0, restarts: 0 };
    // Unknown outcomes are what is played for; the report counts them.
    const ruled = runsOf(gateOfRules(), { store: arena.store, onError() {} });
    const runs: RuledRun[] = [];
    const quiet: UsesEvidence['quiet'][number][] = [];
    const kills = isShared ? scale.kills : 0;
    const restarts = server === undefined ? 0 : scale.restarts;
    const isDisturbed = () => tally.kills < kills || tally.restarts < restarts;
    let playing = scale.lanes;

    const lane = async (index: number): Promise<void> => {
      const random = seeded(seed, `rules, lane ${index}`);
      while ((runs.length < scale.runs || isDisturbed()) && !arena.isEnding) {
        const run = new RuledRun(arena, ruled, await arena.openSession(random), random, met);
        runs.push(run);
        await run.race(scale.callers, scale.wishes, () => isShared && tally.kills < kills);
        quiet.push({ run: run.run, at: await run.settle() });
        await run.drain();
        await run.settle();
      }
    };
    const killing = async (): Promise<void> => {
      const random = seeded(seed, 'rules, the kills');
      while (playing > 0 && !arena.options.signal.aborted) {
        await delay(random.between(20, 150));
        const { ready } = arena.fleet;
        const hanging = arena.ledger.open.filter((line) => msOf(line.args) === HANG_MS);
        const hung = ready.find(({ name }) => hanging.some((each) => each.server === name));
        const busy = ready.filter(({ endpoint }) => endpoint.inFlight > 0);
        const victim = hung ?? (tally.kills < kills && busy.length > 0 && random.pick(busy));
        // Another server has to be there to take over.
        if (!victim || ready.length < 2) continue;
        await arena.fleet.kill(victim);
        tally.kills++;
        if (victim === hung) tally.hung++;
      }
    };
    const restarting = async (): Promise<void> => {
      const random = seeded(seed, 'rules, the restarts');
      while (server !== undefined && tally.restarts < restarts && !arena.isEnding) {
        await delay(random.between(300, 1_500));
        await server.kill9();
        await delay(random.pick(OUTAGES_MS));
        await server.restart();
        tally.restarts++;
      }
    };
    const playLanes = async (): Promise<void> => {
      const lanes = Array.from({ length: scale.lanes }, async (_, index) => {
        try {
          await lane(index);
        } finally {
          playing--;
        }
      });
      await Promise.all([...lanes, restarting()]);
    };
    await playAll(arena, [{ play: killing }], playLanes);

    await arena.fleet.settled();
    const { exchanges, outside } = arena.log;
    const evidence: UsesEvidence = {
      rules: RULEBOOK,
      retried: RETRIED,
      lookups: LOOKUPS,
      runs: runs.map(({ run }) => run),
      ...{ exchanges, outside, quiet },
      ledger: arena.ledger.refresh().lines,
      trails: await Promise.all(runs.map((run) => run.trail())),
    };
    const found = usesFaults(evidence);
    const { crashes } = arena.fleet;
    const { begun } = arena.ledger;
    const again = begun.length - new Set(begun.map(({ key, attempt }) => key || attempt)).size;
    return {
      did:
        `${runs.length} runs × ${scale.callers} callers, ${tally.kills} kill -9, ` +
        `${tally.restarts} restarts, ${options.servers} servers`,
      measured: `${met.done} uses, ${met.refused} refused, ${counted(found.map(({ kind }) => kind))}`,
      details:
        `${met.calls} calls; ${met.failed} failed, ${met.broken} broke off, ${met.held} held and ` +
        `resolved, ${again} run again with their key, ${tally.hung} hung until their process died, ${met.late} had to come again`,
      faults: [
        ...arena.faults,
        ...crashes.map((crash) => `crash: ${crash}`),
        ...found.map(({ kind, text, run }) => `${kind}: ${text} (run ${run})`),
      ],
    };
  });
}

function msOf(args: unknown): unknown {
  return (args as { readonly ms?: unknown }).ms;
}

function counted(kinds: readonly string[]): string {
  const of = (kind: string): number => kinds.filter((each) => each === kind).length;
  return `${of('exceeded')} limits exceeded, ${of('used-twice')} used twice, ${of('lost')} lost`;
}
