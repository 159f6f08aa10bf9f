import { setTimeout as delay } from 'node:timers/promises';
import { principalKey, StoreUnavailable } from '../../src/index.ts';
import type { Runs } from '../../src/runs/index.ts';
import { check, type Fault } from '../checker/check.ts';
import { type Evidence, type LedgerLine, readTrail, type Trail } from '../checker/evidence.ts';
import type { HandlerArguments } from '../checker/ledger.ts';
import { SHOP, SHOP_TOOLS } from '../checker/machines.ts';
import type { Random } from '../checker/random.ts';
import { answerOf } from '../checker/reading.ts';
import { type Caller, type Endpoint, Recorder, WireLog } from '../checker/recorder.ts';

/** What the clients of a soak play in. */
export interface World {
  readonly issuer: string;
  readonly runs: Pick<Runs, 'read' | 'history' | 'send' | 'resolve'>;
  /** One of the gates that take requests now. */
  endpoint(random: Random): Endpoint;
  /** What the handlers of one run wrote down so far. */
  ledgerOf(run: string): readonly LedgerLine[];
  /** Whether an upstream of this name is no more. */
  isDead(server: string): boolean;
  disturbances(): Pick<Evidence, 'stalls' | 'outages'>;
  readonly tally: Record<string, number>;
}

/** What the checker found in a run, and what it looked at. */
export interface Judged {
  readonly evidence: Evidence;
  readonly faults: readonly Fault[];
}

const PATIENCE_MS = 60_000;

/**
 * One client and one run, from its beginning to its end: steps, lists, looks and events from
 * outside. Some steps come twice at a time, and their client cuts some off. Then the checker gets
 * all that was seen of the run.
 */
export async function playChapter(
  world: World,
  name: string,
  random: Random,
  isOver: () => boolean,
): Promise<Judged | undefined> {
  const chapter = await Chapter.open(world, name, random);
  if (chapter === undefined) return undefined;
  for (let left = random.between(10, 60); left > 0 && !isOver(); left--) await chapter.round();
  return chapter.close();
}

class Chapter {
  readonly #world: World;
  readonly #random: Random;
  readonly #recorder: Recorder;
  readonly #caller: Caller;
  readonly #key: string;
  #stream: { close(): void } | undefined;
  #shown: readonly string[] = SHOP_TOOLS;
  #step = 0;

  private constructor(world: World, random: Random, recorder: Recorder, caller: Caller) {
    this.#world = world;
    this.#random = random;
    this.#recorder = recorder;
    this.#caller = caller;
    this.#key =
      caller.era === 'session'
        ? caller.run
        : principalKey().runKey({ issuer: world.issuer, subject: caller.run });
  }

  /** `undefined` where no session could be started: the store is away, or a gate died. */
  static async open(world: World, name: string, random: Random): Promise<Chapter | undefined> {
    const recorder = new Recorder(new WireLog());
    const caller = random.chance(0.5)
      ? await recorder.openSession(world.endpoint(random))
      : recorder.principal(name, { 'x-user': name });
    if (caller === undefined) {
      await delay(50);
      return undefined;
    }
    return new Chapter(world, random, recorder, caller);
  }

  async round(): Promise<void> {
    const random = this.#random;
    await this.#keepStream();
    const tool = this.#choose();
    const args: HandlerArguments = {
      step: ++this.#step,
      ms: random.chance(0.1) ? random.between(20, 200) : random.between(0, 4),
      ...(random.chance(0.1) && { fail: true }),
    };
    const beside: Promise<unknown>[] = [this.#call(tool, args, random.chance(0.08))];
    if (random.chance(0.3)) beside.push(this.#call(tool, args));
    if (random.chance(0.3))
      beside.push(this.#call(random.pick(SHOP_TOOLS), { ...args, step: ++this.#step }));
    if (random.chance(0.3)) beside.push(this.#list());
    if (random.chance(0.15)) beside.push(this.#look());
    if (random.chance(0.05)) beside.push(this.#clear());
    await Promise.all(beside);
    await this.#list();
  }

  /** Waits until nothing of the run is under way, and a person has resolved what was held. */
  async close(): Promise<Judged> {
    const deadline = Date.now() + PATIENCE_MS;
    while (!(await this.#isIdle())) {
      if (Date.now() > deadline) break;
      await delay(50);
    }
    await this.#list();
    const trail = await this.#trail();
    this.#stream?.close();
    const { exchanges, streams, outside } = this.#recorder.log;
    const { run, era } = this.#caller;
    const evidence: Evidence = {
      machines: [SHOP],
      tools: SHOP_TOOLS,
      runs: [{ run, lists: 'hide' }],
      exchanges,
      streams,
      ledger: this.#world.ledgerOf(run),
      outside,
      trails: [trail],
      ...this.#world.disturbances(),
    };
    if (era === 'session') await this.#end();
    return { evidence, faults: check(evidence) };
  }

  /** A stream that a gate's end took with it is opened again. */
  async #keepStream(): Promise<void> {
    const last = this.#recorder.log.streams.at(-1);
    if (this.#stream !== undefined && last !== undefined && last.closed === undefined) return;
    this.#stream = await this.#recorder.listen(this.#endpoint, this.#caller);
  }

  get #endpoint(): Endpoint {
    return this.#world.endpoint(this.#random);
  }

  /** Mostly something that leads on. */
  #choose(): string {
    const tools = this.#random.chance(0.9) ? this.#shown : SHOP_TOOLS;
    const steps = tools.filter((tool) => tool !== 'cart.view' && tool !== 'cart.peek');
    return this.#random.pick(this.#random.chance(0.8) && steps.length > 0 ? steps : tools);
  }

  async #call(tool: string, args: HandlerArguments, vanishes = false): Promise<void> {
    const leaving = new AbortController();
    const options = vanishes ? { signal: leaving.signal } : {};
    const answering = this.#recorder.call(this.#endpoint, this.#caller, tool, args, options);
    if (vanishes) {
      await delay(this.#random.between(0, 10));
      leaving.abort();
    }
    const { told } = answerOf(await answering);
    this.#count(told.kind === 'refused' ? `refused: ${told.reason}` : told.kind);
    if (told.kind === 'refused' && told.reason === 'held') await this.#decide();
  }

  async #list(): Promise<void> {
    const { told } = answerOf(await this.#recorder.list(this.#endpoint, this.#caller));
    if (told.kind === 'tools') this.#shown = told.names;
  }

  async #look(): Promise<void> {
    const does: { kind: 'look'; state?: string; version?: number } = { kind: 'look' };
    await this.#ask(
      does,
      () => this.#world.runs.read(this.#key),
      (view) => {
        does.state = view?.snapshot.state ?? SHOP.initial;
        does.version = view?.snapshot.version ?? 0;
        return true;
      },
    );
  }

  async #clear(): Promise<void> {
    await this.#ask(
      { kind: 'send', event: 'CLEAR' },
      () => this.#world.runs.send(this.#key, 'CLEAR', { actor: 'soak' }),
      ({ sent }) => sent,
    );
  }

  /** Asks the public API once. A store that is away leaves the answer open. */
  async #ask<T>(
    does: Parameters<WireLog['ask']>[0]['does'],
    question: () => Promise<T>,
    did: (answer: T) => boolean,
  ): Promise<void> {
    const about = { run: this.#caller.run, machine: SHOP.id, does };
    await this.#recorder.log.ask(about, question, did).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable)) throw error;
    });
  }

  async #isIdle(): Promise<boolean> {
    if (this.#isAtWork()) return false;
    const view = await this.#world.runs.read(this.#key).catch(() => ({ status: 'away' }) as const);
    if (view?.status === 'held') await this.#decide();
    return view === undefined || view.status === 'idle';
  }

  /** An upstream that died took its handlers with it. */
  #isAtWork(key?: string): boolean {
    const lines = this.#world.ledgerOf(this.#caller.run);
    const ended = new Set(lines.filter(({ phase }) => phase === 'end').map((each) => each.attempt));
    return lines.some(
      (each) =>
        each.phase === 'start' &&
        (key === undefined || each.key === key) &&
        !ended.has(each.attempt) &&
        !this.#world.isDead(each.server),
    );
  }

  /** What an operator does about a held run: looks whether the step has had its effect. */
  async #decide(): Promise<void> {
    const view = await this.#world.runs.read(this.#key).catch(() => undefined);
    if (view?.status !== 'held' || view.claim === undefined) return;
    const { idempotencyKey: key, tool } = view.claim;
    if (this.#isAtWork(key)) return;
    const ends = this.#world.ledgerOf(this.#caller.run).filter((each) => each.key === key);
    const outcome = ends.some((each) => each.outcome === 'succeeded') ? 'succeeded' : 'failed';
    this.#count(`resolved: ${outcome}`);
    await this.#ask(
      { kind: 'resolve', key, tool, outcome },
      () => this.#world.runs.resolve(this.#key, outcome, { actor: 'operator' }),
      ({ resolved }) => resolved,
    );
  }

  async #trail(): Promise<Trail> {
    const { runs } = this.#world;
    const all = Number.MAX_SAFE_INTEGER;
    const [view, entries] = await insist(() =>
      Promise.all([runs.read(this.#key), runs.history(this.#key, all)]),
    );
    const now = view && {
      state: view.snapshot.state,
      version: view.snapshot.version ?? 0,
      status: view.status,
    };
    return { run: this.#caller.run, machine: SHOP.id, ...readTrail(entries), now };
  }

  /** A session's end, until it is confirmed; a gate may die of something else meanwhile. */
  async #end(): Promise<void> {
    const { headers } = this.#caller;
    for (let tries = 0; tries < 100; tries++) {
      const { url } = this.#endpoint;
      const response = await fetch(url, { method: 'DELETE', headers }).catch(() => undefined);
      await response?.body?.cancel();
      if (response?.status === 200 || response?.status === 404) return;
      await delay(50);
    }
  }

  #count(what: string): void {
    const { tally } = this.#world;
    tally[what] = (tally[what] ?? 0) + 1;
  }
}

async function insist<T>(question: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await question();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await delay(50);
    }
  }
}
