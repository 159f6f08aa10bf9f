import { setTimeout as delay } from 'node:timers/promises';
import { check, type Fault } from './check.ts';
import type { Evidence } from './evidence.ts';
import type { HandlerArguments } from './ledger.ts';
import { SHOP, SHOP_TOOLS } from './machines.ts';
import { type Random, seeded } from './random.ts';
import { answerOf } from './reading.ts';
import type { Caller } from './recorder.ts';
import { NOTE, Stage, type Surroundings } from './stage.ts';

export interface SceneOptions {
  readonly seed: number;
  /** How many rounds each client plays. */
  readonly rounds: number;
  readonly surroundings?: Surroundings;
}

export interface SceneResult {
  readonly evidence: Evidence;
  readonly faults: readonly Fault[];
}

/**
 * Clients of both eras play with one gate in this process: two sessions and two principals, each
 * with a stream of its own. They send steps twice at the same time, lists and looks beside them,
 * calls out of order, failures, and events from outside. Facts are recorded beside them, and
 * operators stop runs and tools for a moment. Before, other clients leave steps of unknown outcome
 * behind, and a night passes.
 */
export async function playScene({
  seed,
  rounds,
  surroundings = {},
}: SceneOptions): Promise<SceneResult> {
  const stage = await Stage.open({
    seed,
    machine: SHOP,
    tools: SHOP_TOOLS,
    visibility: 'hide',
    surroundings,
  });
  try {
    const held = await leaveBehind(stage, seeded(seed, 'the night'));
    const callers = [
      await stage.session(),
      await stage.session(),
      await stage.user('ada'),
      await stage.user('bob'),
    ];
    const players = callers.map(
      (caller, index) =>
        new Player(
          stage,
          caller,
          seeded(seed, `player ${index}`),
          seeded(seed, `player ${index}, the operator`),
        ),
    );
    await Promise.all([
      ...players.map((player) => player.play(rounds)),
      throwSwitch(stage, seeded(seed, 'the switch'), rounds),
    ]);
    await resolve(stage, held);
    await stage.settle();
    const evidence = await stage.evidence();
    return { evidence, faults: check(evidence) };
  } finally {
    await stage.close();
  }
}

const NIGHT_HOURS = 25;

/**
 * A session and a user whose steps must not be repeated lose the server in mid-step. So does a user
 * whose step may be repeated. The session ends, the others are not used for longer than a run
 * lives, and then the one step is repeated. Gives the user whose run is held.
 */
async function leaveBehind(stage: Stage, random: Random): Promise<Caller> {
  const call = (caller: Caller, tool: string, step: number) =>
    stage.recorder.call(stage.endpoint, caller, tool, { step, ms: step });
  const [session, held, repeats] = [
    await stage.session(),
    await stage.user('eve'),
    await stage.user('dan'),
  ];
  for (const caller of random.shuffled([session, held])) {
    await call(caller, 'cart.add', 1);
    stage.cutNext();
    await call(caller, 'cart.checkout', 2);
  }
  stage.cutNext();
  await call(repeats, 'cart.add', 1);
  await stage.recorder.endSession(stage.endpoint, session);
  stage.pass(NIGHT_HOURS);
  await call(repeats, 'cart.add', 1);
  return held;
}

/** An operator stops a tool, or all of them, for a moment; now and then. */
async function throwSwitch(stage: Stage, random: Random, rounds: number): Promise<void> {
  const by = { actor: 'the operator', note: 'a test' };
  for (let time = 0; time * 10 < rounds; time++) {
    await delay(random.between(30, 90));
    const scope = random.chance(0.5) ? { tool: random.pick(SHOP.bindings).tool } : {};
    const does = { machine: SHOP.id, ...scope };
    await stage.log.throwSwitch({ ...does, does: 'freeze' }, () =>
      stage.runs.freezeAll({ ...scope, ...by }),
    );
    await delay(random.between(0, 10));
    await stage.log.throwSwitch({ ...does, does: 'unfreeze' }, () =>
      stage.runs.unfreezeAll({ ...scope, ...by }),
    );
  }
}

/** An operator finds out that the held step was done. */
async function resolve(stage: Stage, { run }: Caller): Promise<void> {
  const key = stage.ledger.findLast((line) => line.run === run)?.key ?? '';
  const does = { kind: 'resolve', key, tool: 'cart.checkout', outcome: 'succeeded' } as const;
  await stage.log.ask(
    { run, machine: SHOP.id, does },
    () => stage.runs.resolve(stage.keyOf(run), 'succeeded', { actor: 'the operator' }),
    ({ resolved }) => resolved,
  );
}

/** One client. It knows nothing of the state but what lists show. */
class Player {
  readonly #stage: Stage;
  readonly #caller: Caller;
  readonly #random: Random;
  /** Of what its operator does. */
  readonly #stops: Random;
  #shown: readonly string[] = SHOP_TOOLS;
  #step = 0;

  constructor(stage: Stage, caller: Caller, random: Random, stops: Random) {
    this.#stage = stage;
    this.#caller = caller;
    this.#random = random;
    this.#stops = stops;
  }

  async play(rounds: number): Promise<void> {
    for (let round = 0; round < rounds; round++) await this.#round();
    await this.#list();
  }

  async #round(): Promise<void> {
    const random = this.#random;
    const tool = this.#choose(random);
    const args: HandlerArguments = {
      step: ++this.#step,
      ms: random.between(0, 4),
      ...(random.chance(0.1) && { fail: true }),
    };
    const beside: Promise<unknown>[] = [this.#call(tool, args)];
    if (random.chance(0.4)) beside.push(this.#call(tool, args));
    if (random.chance(0.3))
      beside.push(this.#call(random.pick(SHOP_TOOLS), { ...args, step: ++this.#step }));
    if (random.chance(0.4)) beside.push(this.#list());
    if (random.chance(0.2)) beside.push(this.#look().catch(() => {}));
    if (random.chance(0.08)) beside.push(this.#clear().catch(() => {}));
    if (random.chance(0.2)) beside.push(this.#record());
    if (this.#stops.chance(0.12)) beside.push(this.#freeze());
    await Promise.all(beside);
    await this.#list();
  }

  /** Mostly something that leads on. */
  #choose(random: Random): string {
    const tools = random.chance(0.85) ? this.#shown : SHOP_TOOLS;
    const steps = tools.filter((tool) => tool !== 'cart.view' && tool !== 'cart.peek');
    return random.pick(random.chance(0.8) && steps.length > 0 ? steps : tools);
  }

  async #call(tool: string, args: HandlerArguments): Promise<void> {
    await this.#stage.recorder.call(this.#stage.endpoint, this.#caller, tool, args);
  }

  async #list(): Promise<void> {
    const exchange = await this.#stage.recorder.list(this.#stage.endpoint, this.#caller);
    const { told } = answerOf(exchange);
    if (told.kind === 'tools') this.#shown = told.names;
  }

  /** The public API's own word. */
  async #look(): Promise<void> {
    const { run } = this.#caller;
    const does: { kind: 'look'; state?: string; version?: number } = { kind: 'look' };
    await this.#stage.log.ask(
      { run, machine: SHOP.id, does },
      () => this.#stage.runs.read(this.#stage.keyOf(run)),
      (view) => {
        does.state = view?.snapshot.state ?? SHOP.initial;
        does.version = view?.snapshot.version ?? 0;
        return true;
      },
    );
  }

  /** A fact that is added beside the steps. */
  async #record(): Promise<void> {
    const { run } = this.#caller;
    await this.#stage.log.ask(
      { run, machine: SHOP.id, does: { kind: 'record', tool: NOTE } },
      () => this.#stage.record(run),
      (recorded) => recorded,
    );
  }

  /** An operator stops the run for a moment, be it in the middle of a step. */
  async #freeze(): Promise<void> {
    const run = this.#stage.keyOf(this.#caller.run);
    const about = { run: this.#caller.run, machine: SHOP.id };
    const by = { actor: 'the operator', note: 'a test' };
    await this.#stage.log.freeze({ ...about, kind: 'freeze' }, async () => {
      const told = await this.#stage.runs.freeze(run, by);
      return told.frozen || told.reason;
    });
    await this.#call(this.#choose(this.#stops), { step: ++this.#step, ms: 1 });
    await this.#stage.log.freeze({ ...about, kind: 'unfreeze' }, async () => {
      const told = await this.#stage.runs.unfreeze(run, by);
      return told.unfrozen || told.reason;
    });
  }

  /** An event that no call sends. */
  async #clear(): Promise<void> {
    const { run } = this.#caller;
    await this.#stage.log.ask(
      { run, machine: SHOP.id, does: { kind: 'send', event: 'CLEAR' } },
      () => this.#stage.runs.send(this.#stage.keyOf(run), 'CLEAR', { actor: 'the scene' }),
      ({ sent }) => sent,
    );
  }
}
