import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { FsmSnapshot } from '../../src/index.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  CommitRequest,
  RunKey,
} from '../../src/stores/index.ts';
import { type Random, seeded } from '../checker/random.ts';
import type { Caller } from '../checker/recorder.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import { brokenStore } from './broken-store.ts';
import type { PartResult } from './report.ts';
import { openStore } from './stores.ts';

export interface PinsScale {
  /** How many runs are held until the end. */
  readonly runs: number;
  /** How many of them are made at the same time. */
  readonly lanes: number;
}

/** A run whose step has an unknown outcome, and what must still be there at the end. */
interface HeldRun {
  readonly claim: ClaimRequest;
  readonly idempotencyKey: string;
  /** What was recorded or committed in the run's other workflow. */
  readonly facts: readonly string[];
  readonly isFrozen: boolean;
}

interface Tally {
  facts: number;
  /** How often a step was made anew, since a fact came between its claim and its commit. */
  moved: number;
  keys: number;
  attacks: number;
}

const HOUR = 3_600_000;
const BY = { actor: 'the operator', note: 'the torture' };
const BEGIN: FsmSnapshot = { state: 'open', updatedAt: 0 };
/** How many facts race in a run, and how many keys of a run are unsettled at once. */
const RACERS = 6;
const KEYS = 4;

/**
 * Runs are held, and everything that could take them away is tried: the end of their session, a
 * deletion, their time to live, a new run under their key. Before that, facts are recorded beside
 * steps, and steps that may be repeated are cut off. At the end all of it must be there.
 */
export function holdRuns(
  options: ArenaOptions,
  scale: PinsScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with(options, async (arena) => {
    const more =
      options.store.name === 'memory'
        ? []
        : await Promise.all([openStore(options.store), openStore(options.store)]);
    const { defect } = options;
    const views = [arena.store, ...more.map(({ store }) => store)].map((store) =>
      defect === undefined ? store : brokenStore(store, defect),
    );
    try {
      const tally: Tally = { facts: 0, moved: 0, keys: 0, attacks: 0 };
      const held: HeldRun[] = [];
      const lane = async (_: unknown, index: number): Promise<void> => {
        const random = seeded(seed, `pins, lane ${index}`);
        const own = new PinLane(arena, views, random, tally);
        while (held.length < scale.runs && !arena.isEnding) held.push(await own.hold());
      };
      await Promise.all(Array.from({ length: scale.lanes }, lane));
      for (const [index, run] of held.entries())
        await assertHeld(arena, views[index % views.length] ?? arena.store, run);
      return {
        did: `${held.length} runs held while their sessions end, ${views.length} connections`,
        measured: `${tally.attacks} attempts took none away; ${tally.facts} facts and ${tally.keys} keys kept`,
        details: `${tally.moved} commits were made anew, since a fact came before them`,
        faults: await arena.verify(),
      };
    } finally {
      await Promise.all(more.map((each) => each.close()));
    }
  });
}

/** Makes one held run after the other. */
class PinLane {
  readonly #arena: Arena;
  readonly #views: readonly AtomicStateStore[];
  readonly #random: Random;
  readonly #tally: Tally;

  constructor(arena: Arena, views: readonly AtomicStateStore[], random: Random, tally: Tally) {
    this.#arena = arena;
    this.#views = views;
    this.#random = random;
    this.#tally = tally;
  }

  async hold(): Promise<HeldRun> {
    const caller = await this.#openSession();
    const { run } = caller;
    const claim = claimOf({ run, workflow: 'held' }, 'hold', 'pay');
    const answer = await this.#view.claim(claim);
    if (answer.status !== 'claimed') throw new Error(`the run ${run} is ${answer.status}`);
    const [facts] = await Promise.all([this.#raceFacts(run), this.#repeatSteps(run)]);
    const isFrozen = this.#random.chance(0.3);
    if (isFrozen) await this.#freeze(claim);
    await this.#endSession(caller, claim);
    return { claim, idempotencyKey: answer.idempotencyKey, facts, isFrozen };
  }

  /** An operator stops the run while its step is at work. */
  async #freeze({ run, workflow }: ClaimRequest): Promise<void> {
    const { status } = await this.#view.freeze({
      ...{ run, workflow, token: randomUUID(), freeze: BY, initial: BEGIN, ttlMs: HOUR },
      entry: { from: BEGIN.state, event: 'freeze', ...BY },
    });
    if (status !== 'changed') this.#fault(`freeze: that of a step at work is "${status}"`, run);
  }

  async #openSession(): Promise<Caller> {
    const [server] = await this.#arena.servers(1, this.#random);
    const caller = server && (await this.#arena.recorder.openSession(server.endpoint));
    if (caller === undefined) throw new Error('no session could be started');
    return caller;
  }

  get #view(): AtomicStateStore {
    return this.#random.pick(this.#views);
  }

  /** Some record a fact beside the steps, and others add theirs by a step. */
  async #raceFacts(run: string): Promise<string[]> {
    const key = { run, workflow: 'facts' };
    const facts = Array.from({ length: RACERS }, (_, index) => `fact ${index}`);
    await Promise.all(
      facts.map((fact, index) => (index < 2 ? this.#commit(key, fact) : this.#record(key, fact))),
    );
    this.#tally.facts += facts.length;
    return facts;
  }

  async #record(key: RunKey, fact: string): Promise<void> {
    const view = this.#view;
    await delay(this.#random.between(0, 5));
    for (let seen = await snapshotOf(view, key); ; ) {
      const move = moveOf(seen, fact);
      const from = seen.version ?? 0;
      const request = { ...key, ...move, token: randomUUID(), from, initial: BEGIN, ttlMs: HOUR };
      const result = await view.record(request);
      // As a driver does that did not get the answer.
      const again = this.#random.chance(0.3) ? await this.#view.record(request) : result;
      if (result.status === 'recorded') {
        if (again.status !== 'recorded' || again.version !== result.version)
          this.#fault(`record: asked again, "${fact}" is ${JSON.stringify(again)}`, key.run);
        return;
      }
      if (result.status === 'unknown') throw new Error(`the run ${key.run} is unknown`);
      seen = result.snapshot;
    }
  }

  async #commit(key: RunKey, fact: string, ttlMs = HOUR): Promise<void> {
    const view = this.#view;
    const claim = claimOf(key, 'hold', fact);
    for (;;) {
      const granted = await view.claim(claim);
      if (granted.status === 'unknown') throw new Error(`the run ${key.run} is unknown`);
      // A step takes its time, and facts come meanwhile.
      await delay(this.#random.between(0, 5));
      for (let { snapshot } = granted; granted.status === 'claimed'; ) {
        const from = snapshot.version ?? 0;
        const move = moveOf(snapshot, fact);
        const result = await view.commit({
          ...key,
          ...move,
          token: claim.token,
          from,
          ttlMs,
        });
        if (result.status === 'committed') return;
        if (result.status !== 'moved') throw new Error(`a commit of ${key.run}: ${result.status}`);
        this.#tally.moved++;
        snapshot = result.snapshot;
      }
      await delay(1);
    }
  }

  /** Steps that may be repeated are cut off, one after the other, and repeated by any process. */
  async #repeatSteps(run: string): Promise<void> {
    const key = { run, workflow: 'keys' };
    const known = new Map<string, string>();
    for (let tries = 0; tries < 3 * KEYS; tries++) {
      const digest = `digest ${this.#random.between(1, KEYS)}`;
      const claim = claimOf(key, 'retry', digest);
      const result = await this.#view.claim(claim);
      if (result.status === 'busy') {
        await delay(1);
        continue;
      }
      if (result.status !== 'claimed') throw new Error(`a repetition of ${run}: ${result.status}`);
      const { idempotencyKey } = result;
      const before = known.get(digest);
      if (before === undefined) this.#tally.keys++;
      else if (before !== idempotencyKey)
        this.#fault(`key: ${digest} had ${before}, and has ${idempotencyKey}`, run);
      known.set(digest, idempotencyKey);
      await this.#view.renew(key, claim.token, 0);
    }
    // Settled, so that the run may expire.
    for (const digest of known.keys()) {
      const claim = claimOf(key, 'retry', digest);
      await this.#view.claim(claim);
      await this.#view.release(key, claim.token);
    }
  }

  /** Ends the session in one of the ways there are, and then tries to get the run away. */
  async #endSession(caller: Caller, claim: ClaimRequest): Promise<void> {
    const { run } = caller;
    const leave = () => this.#view.renew(claim, claim.token, 0);
    if (this.#random.chance(0.5)) {
      if (this.#random.chance(0.5)) await leave();
      const servers = await this.#arena.servers(2, this.#random);
      await Promise.all([
        this.#attack('end', () => this.#view.end(run, { ifUnclaimed: true }), 'claimed', run),
        ...servers.map(({ endpoint }) => this.#arena.recorder.endSession(endpoint, caller)),
      ]);
    } else {
      await leave();
      // Only a commit makes an expiry earlier.
      await this.#commit({ run, workflow: 'last' }, 'last', 1);
      await delay(5);
    }
    await leave();
    const status = async () => (await this.#view.open(run, {}, HOUR)).status;
    const stranger = async () =>
      (await this.#view.claim(claimOf({ run, workflow: 'other' }, 'hold', ''))).status;
    await Promise.all([
      this.#attack('open', status, 'taken', run),
      this.#attack('claim', stranger, 'unknown', run),
      this.#attack('delete', () => this.#view.delete(run), 'pinned', run),
      this.#attack('end', () => this.#view.end(run), 'ended', run),
      this.#random.chance(0.1) && this.#view.purge?.(),
    ]);
  }

  async #attack(
    name: string,
    does: () => Promise<string>,
    expected: string,
    run: string,
  ): Promise<void> {
    this.#tally.attacks++;
    const answer = await does();
    if (answer !== expected)
      this.#fault(`pin: ${name} of a held run is "${answer}", not "${expected}"`, run);
  }

  #fault(text: string, run: string): void {
    this.#arena.faults.push(`${text} (run ${run})`);
  }
}

/** All of the run is there, and a person can still decide what became of its step. */
async function assertHeld(
  arena: Arena,
  view: AtomicStateStore,
  { claim, idempotencyKey, facts, isFrozen }: HeldRun,
): Promise<void> {
  const { run } = claim;
  const fault = (text: string) => arena.faults.push(`${text} (run ${run})`);
  const record = await view.read(run, HOUR);
  if (record === undefined) return void fault('lost: a held run is gone');
  const held = record.workflows.held?.claim;
  const frozen = record.workflows.held?.frozen;
  if (frozen?.actor !== (isFrozen ? BY.actor : undefined))
    fault(`freeze: a held run is frozen by ${frozen?.actor}`);
  if (record.sessionEnded !== true) fault('pin: the session of a held run goes on');
  if (held?.token !== claim.token) fault('lost: the step of a held run is gone');
  if (held?.idempotencyKey !== idempotencyKey) fault('key: that of a held step is another one');
  const key = { run, workflow: 'facts' };
  const kept = factsIn(record.workflows.facts?.snapshot ?? BEGIN);
  if ([...kept].sort().join() !== facts.join())
    fault(`lost: of the facts ${facts} there are ${kept}`);
  const told = await view.history(key);
  if (told.length !== facts.length) fault(`lost: the trail tells of ${told.length} facts`);
  const resolution = { ...moveOf(BEGIN, 'paid'), token: claim.token, as: randomUUID() };
  const { status } = await view.commit({ ...resolution, run, workflow: 'held', ttlMs: HOUR });
  if (status !== 'committed') fault(`lost: the resolution of a held step is "${status}"`);
  if ((await view.read(run, HOUR)) === undefined) fault('lost: the evidence is gone once settled');
}

function claimOf(key: RunKey, uncertain: 'hold' | 'retry', digest: string): ClaimRequest {
  return {
    ...key,
    token: randomUUID(),
    step: { tool: 'torture', digest, uncertain },
    states: undefined,
    initial: BEGIN,
    leaseMs: 10_000,
    ttlMs: HOUR,
  };
}

/** The next snapshot, with one more fact. */
function moveOf(before: FsmSnapshot, fact: string): Pick<CommitRequest, 'snapshot' | 'trail'> {
  const { state } = before;
  return {
    snapshot: { state, context: [...factsIn(before), fact] },
    trail: { from: state, to: state, event: null, tool: fact, outcome: 'succeeded' },
  };
}

function factsIn({ context = [] }: FsmSnapshot): string[] {
  return Array.isArray(context) ? context.map(String) : [];
}

async function snapshotOf(view: AtomicStateStore, { run, workflow }: RunKey): Promise<FsmSnapshot> {
  return (await view.read(run, HOUR))?.workflows[workflow]?.snapshot ?? BEGIN;
}
