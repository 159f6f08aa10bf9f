import { setTimeout as delay } from 'node:timers/promises';
import type { Runs } from '../../src/runs/index.ts';
import { now } from '../checker/evidence.ts';
import type { Random } from '../checker/random.ts';
import { answerOf, type Told } from '../checker/reading.ts';
import type { Caller } from '../checker/recorder.ts';
import type { UsesTrail } from '../checker/uses.ts';
import type { Arena } from './arena.ts';
import { RETRIED, RULED_ID, RULED_TOOLS } from './rulebook.ts';

/** So long a handler takes that its process is killed before. */
export const HANG_MS = 600_000;

/** What its callers met. */
export interface Encounters {
  calls: number;
  done: number;
  failed: number;
  refused: number;
  broken: number;
  held: number;
  /** Calls that had to wait too long, or whose store was away. */
  late: number;
}

/** What a caller asks. Its `step` makes it another call than each other one of its run. */
export interface Wish {
  readonly tool: string;
  readonly ms: number;
  readonly amount?: number;
  readonly by?: string;
  readonly item?: string;
  readonly fail?: boolean;
}

/** Of one call: an outage of the store takes some. */
const MOST_TRIES = 1_000;
/** Of one tool, when all is over. Where larger ones break off, 66 of 0.05 fit into what is left. */
const MOST_PROBES = 100;
const SETTLED_MS = 30_000;
const PEOPLE = ['ada', 'bob', 'eve'];
const ITEMS = ['book', 'cup'];
const AMOUNTS = [0.1, 0.2, 0.25, 0.7, 1.05];
/** More of what many race for. */
const WISHED = [
  ...['draw', 'draw', 'spend', 'spend', 'spend', 'ping', 'book', 'look', 'sign', 'sign'],
  ...['approve', 'approve', 'approve', 'pay', 'pay', 'refund', 'refund', 'charge', 'charge'],
  ...['release', 'code', 'guess', 'guess'],
];

/** One run in which many callers race. */
export class RuledRun {
  readonly #arena: Arena;
  readonly #caller: Caller;
  readonly #runs: Runs;
  readonly #random: Random;
  readonly #met: Encounters;
  #steps = 0;
  /** One operator decides at a time, so that each decides what it has looked up. */
  #deciding: Promise<unknown> = Promise.resolve();

  constructor(arena: Arena, runs: Runs, caller: Caller, random: Random, met: Encounters) {
    this.#arena = arena;
    this.#runs = runs;
    this.#caller = caller;
    this.#random = random;
    this.#met = met;
  }

  get run(): string {
    return this.#caller.run;
  }

  /** All callers at once, each with some wishes, one after the other. */
  async race(callers: number, wishes: number, mayHang: () => boolean): Promise<void> {
    const all = Array.from({ length: callers }, async () => {
      for (let made = 0; made < wishes && !this.#arena.isEnding; made++)
        await this.call(this.#wish(mayHang()));
    });
    await Promise.all(all);
    // Seldom enough that most bookings come before it.
    if (this.#random.chance(0.3)) await this.call({ tool: 'cancel', ms: 1 });
  }

  #wish(mayHang: boolean): Wish {
    const random = this.#random;
    const tool = random.pick(WISHED);
    // A repeated one would hang again.
    const hangs = mayHang && !RETRIED.includes(tool) && random.chance(0.02);
    return {
      tool,
      ms: hangs ? HANG_MS : random.chance(0.1) ? random.between(50, 200) : random.between(0, 12),
      ...(tool === 'spend' && { amount: random.pick(AMOUNTS) }),
      ...(tool === 'sign' && { by: random.pick(PEOPLE) }),
      ...((tool === 'look' || tool === 'book') && { item: random.pick(ITEMS) }),
      ...(random.chance(tool === 'guess' ? 0.5 : 0.15) && { fail: true }),
    };
  }

  /**
   * Calls until it is known what came of it. A step that must not be repeated is called no more
   * once its answer is lost: whoever finds the run held decides it.
   */
  async call({ tool, ...members }: Wish): Promise<Told> {
    const met = this.#met;
    const args = { step: ++this.#steps, ...members };
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const [server] = await this.#arena.servers(1, this.#random);
      if (server === undefined) throw new Error('no server is there');
      const { recorder } = this.#arena;
      met.calls++;
      const { told } = answerOf(await recorder.call(server.endpoint, this.#caller, tool, args));
      switch (told.kind) {
        case 'done':
          met[told.isError ? 'failed' : 'done']++;
          return told;
        case 'broken':
        case 'unknown':
          met.broken++;
          if (!RETRIED.includes(tool)) return told;
          break;
        case 'unavailable':
          met.late++;
          await delay(25);
          break;
        case 'refused':
          if (['state', 'guard', 'limit', 'arguments'].includes(told.reason)) {
            met.refused++;
            return told;
          }
          if (told.reason === 'held') await this.decide();
          else met.late++;
          await delay(this.#random.between(5, 40));
          break;
        default:
          this.#fault(`wrong answer: ${JSON.stringify(told)} to ${tool}`);
          return told;
      }
    }
    throw new Error(`${tool} got nowhere (run ${this.run})`);
  }

  /** What an operator does about a held run: looks whether the handler has had its effect. */
  decide(): Promise<void> {
    const next = this.#deciding.then(() => this.#arena.ask(() => this.#decide()));
    this.#deciding = next.catch(() => {});
    return next;
  }

  async #decide(): Promise<void> {
    const { run } = this;
    const view = await this.#runs.read(run);
    if (view?.status !== 'held' || view.claim === undefined) return;
    const { idempotencyKey: key, tool } = view.claim;
    if (this.#arena.isAtWork(key)) return;
    const ended = this.#arena.ledger.refresh().lines.filter((each) => each.key === key);
    const hasEffect = ended.some((each) => each.outcome === 'succeeded');
    const outcome = hasEffect ? 'succeeded' : 'failed';
    const does = { kind: 'resolve', key, tool, outcome } as const;
    const { resolved } = await this.#arena.log.ask(
      { run, machine: RULED_ID, does },
      () => this.#runs.resolve(run, outcome, { actor: 'operator' }),
      ({ resolved }) => resolved,
    );
    if (resolved) this.#met.held++;
  }

  /** Until nothing is at work or held. When that was. */
  async settle(): Promise<number> {
    const deadline = Date.now() + SETTLED_MS;
    for (;;) {
      const asked = now();
      const view = await this.#arena.ask(() => this.#runs.read(this.run));
      // A run in which nothing was called is not known yet.
      if (view === undefined || view.status === 'idle') return asked;
      if (view.status === 'held') await this.decide();
      if (Date.now() > deadline) {
        this.#fault(`stuck: nothing settles the ${view.status} ${view.claim?.tool}`);
        return asked;
      }
      await delay(20);
    }
  }

  /** Takes all that is left, tool by tool, until the rules refuse one more. */
  async drain(): Promise<void> {
    const probes: Wish[] = RULED_TOOLS.flatMap((tool): Wish[] => {
      // Nothing stops these, a `cancel` would stop others, and the last three are not wished for.
      if (['approve', 'sign', 'code', 'cancel', 'look'].includes(tool)) return [];
      if (['transfer', 'card_payment', 'wire'].includes(tool)) return [];
      if (tool === 'spend') return [0.7, 0.1, 0.05].map((amount) => ({ tool, amount, ms: 0 }));
      return tool === 'book' ? ITEMS.map((item) => ({ tool, item, ms: 0 })) : [{ tool, ms: 0 }];
    });
    for (const probe of probes)
      for (let made = 0; ; made++) {
        const told = await this.call(probe);
        if (told.kind !== 'done') break;
        if (made === MOST_PROBES) {
          this.#fault(`exceeded: ${probe.tool} never comes to its end`);
          break;
        }
      }
  }

  async trail(): Promise<UsesTrail> {
    const entries = await this.#arena.ask(() =>
      this.#runs.history(this.run, Number.MAX_SAFE_INTEGER),
    );
    return { run: this.run, entries };
  }

  #fault(text: string): void {
    this.#arena.faults.push(`${text} (run ${this.run})`);
  }
}
