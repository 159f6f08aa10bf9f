import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import express, { type Express, type RequestHandler } from 'express';
import * as z from 'zod';
import {
  type AtomicStateStore,
  fsmGate,
  memoryStore,
  principalKey,
  type Runs,
  runsOf,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { check, type Fault } from './check.ts';
import type { Evidence, LedgerLine, RunInfo, Trail } from './evidence.ts';
import { type Handler, type HandlerArguments, makeHandler } from './ledger.ts';
import { gateOf, SHOP, SHOP_TOOLS } from './machines.ts';
import { type Random, seeded } from './random.ts';
import { answerOf } from './reading.ts';
import { type Caller, Endpoint, Recorder, WireLog } from './recorder.ts';

const ISSUER = 'https://issuer.example';
const USERS = ['ada', 'bob'];

/** What a scene asks of the public API. */
export type OutsideApi = Pick<Runs, 'read' | 'history' | 'send'>;

/** What stands around the real gate. By default nothing does. */
export interface Surroundings {
  /** Around the store. */
  readonly store?: (store: AtomicStateStore, random: Random) => AtomicStateStore;
  /** Around the public API. */
  readonly runs?: (runs: OutsideApi) => OutsideApi;
  /** In front of the middlewares. */
  readonly front?: (random: Random, upstream: RequestHandler) => RequestHandler;
  /** Around what each tool does. */
  readonly handler?: (handle: Handler, random: Random) => Handler;
}

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
 * Clients of both eras play with one gate in this process: two sessions and two principals, each with a stream of its own. They send
 * steps twice at the same time, lists and looks beside them, calls out of order, failures, and events from outside.
 */
export async function playScene({
  seed,
  rounds,
  surroundings = {},
}: SceneOptions): Promise<SceneResult> {
  const stage = await Stage.open(seed, surroundings);
  try {
    const players = await stage.players();
    await Promise.all(players.map((player) => player.play(rounds)));
    await stage.settle();
    const evidence = await stage.evidence();
    return { evidence, faults: check(evidence) };
  } finally {
    await stage.close();
  }
}

class Stage {
  readonly log = new WireLog();
  readonly recorder = new Recorder(this.log);
  readonly ledger: LedgerLine[] = [];
  readonly infos: RunInfo[] = [];
  readonly endpoint: Endpoint;
  readonly runs: OutsideApi;
  readonly seed: number;
  readonly #keys = new Map<string, string>();
  readonly #close: () => Promise<void>;
  readonly #streams: { close(): void }[] = [];

  private constructor(
    seed: number,
    url: URL,
    runs: OutsideApi,
    close: () => Promise<void>,
    append: (write: (line: LedgerLine) => void) => void,
  ) {
    this.seed = seed;
    this.endpoint = new Endpoint(url);
    this.runs = runs;
    this.#close = close;
    append((line) => this.ledger.push(line));
  }

  static async open(
    seed: number,
    { store: around, runs, front, handler = (own) => own }: Surroundings,
  ): Promise<Stage> {
    const random = seeded(seed, 'surroundings');
    const data = memoryStore();
    const store = around?.(data, random) ?? data;
    const quiet = { onError: () => {}, onWarning: () => {} };
    const sessions = sessionStore({ store, key: [sessionKey(), principalKey()], ...quiet });
    const gate = gateOf(SHOP);
    let write: (line: LedgerLine) => void = () => {};
    const handle = handler(
      makeHandler('server', (line) => write(line)),
      random,
    );
    const served = toNodeHandler(shopServer(handle));
    const upstream: RequestHandler = (req, res) => served(req, res, req.body);
    const app: Express = express();
    app.use(authenticate);
    if (front !== undefined) app.use('/mcp', front(random, upstream));
    const guarded = [sessions, fsmGate(gate, { visibility: 'hide', ...quiet })];
    app.use('/mcp', ...(guarded as RequestHandler[]));
    app.all('/mcp', upstream);
    const server = app.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as AddressInfo;
    const url = new URL(`http://127.0.0.1:${port}/mcp`);
    const close = async (): Promise<void> => {
      await sessions.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    };
    const outside = runsOf(gate, { sessions });
    return new Stage(seed, url, runs?.(outside) ?? outside, close, (to) => {
      write = to;
    });
  }

  async players(): Promise<Player[]> {
    const callers: Caller[] = [];
    for (let count = 0; count < 2; count++) {
      const session = await this.recorder.openSession(this.endpoint);
      if (session === undefined) throw new Error('no session could be started');
      this.#keys.set(session.run, session.run);
      callers.push(session);
    }
    for (const user of USERS) {
      this.#keys.set(user, principalKey().runKey({ issuer: ISSUER, subject: user }));
      callers.push(this.recorder.principal(user, { 'x-user': user }));
    }
    for (const caller of callers) {
      this.infos.push({ run: caller.run, lists: 'hide' });
      const stream = await this.recorder.listen(this.endpoint, caller);
      if (stream === undefined) throw new Error('no stream could be opened');
      this.#streams.push(stream);
    }
    return callers.map((caller) => new Player(this, caller));
  }

  /** The run's key in the store. */
  keyOf(run: string): string {
    return this.#keys.get(run) ?? run;
  }

  /** Until every due notification has come, or had time enough to. */
  async settle(): Promise<void> {
    for (let tries = 0; tries < 20 && (await this.#isUntold()); tries++) await delay(10);
  }

  async #isUntold(): Promise<boolean> {
    return check(await this.evidence()).some(({ kind }) => kind === 'untold');
  }

  async evidence(): Promise<Evidence> {
    const { exchanges, streams, outside } = this.log;
    const trails: Trail[] = [];
    for (const { run } of this.infos) {
      const view = await this.runs.read(this.keyOf(run));
      const moves = await this.runs.history(this.keyOf(run), Number.MAX_SAFE_INTEGER);
      const now = view && {
        state: view.snapshot.state,
        version: view.snapshot.version ?? 0,
        status: view.status,
      };
      trails.push({
        run,
        machine: SHOP.id,
        moves: moves as Trail['moves'],
        now: now as Trail['now'],
      });
    }
    return {
      machines: [SHOP],
      tools: SHOP_TOOLS,
      runs: this.infos,
      exchanges,
      streams,
      ledger: this.ledger,
      outside,
      trails,
    };
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.close();
    this.endpoint.close();
    await this.#close();
  }
}

/** One client. It knows nothing of the state but what lists show. */
class Player {
  readonly #stage: Stage;
  readonly #caller: Caller;
  readonly #random: Random;
  #shown: readonly string[] = SHOP_TOOLS;
  #step = 0;

  constructor(stage: Stage, caller: Caller) {
    this.#stage = stage;
    this.#caller = caller;
    this.#random = seeded(
      stage.seed,
      `player ${stage.infos.findIndex(({ run }) => run === caller.run)}`,
    );
  }

  async play(rounds: number): Promise<void> {
    for (let round = 0; round < rounds; round++) await this.#round();
    await this.#list();
  }

  async #round(): Promise<void> {
    const random = this.#random;
    const tool = this.#choose();
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
    await Promise.all(beside);
    await this.#list();
  }

  /** Mostly something that leads on. */
  #choose(): string {
    const tools = this.#random.chance(0.85) ? this.#shown : SHOP_TOOLS;
    const steps = tools.filter((tool) => tool !== 'cart.view' && tool !== 'cart.peek');
    return this.#random.pick(this.#random.chance(0.8) && steps.length > 0 ? steps : tools);
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

/** `req.auth` as authentication leaves it. */
const authenticate: RequestHandler = (req, _res, next) => {
  const user = req.headers['x-user'];
  if (typeof user === 'string') {
    const extra = { iss: ISSUER, sub: user };
    Object.assign(req, { auth: { token: 'token', clientId: 'app', scopes: [], extra } });
  }
  next();
};

/** SDK v2's server, which serves both eras. */
function shopServer(handle: Handler) {
  return createMcpHandler(
    ({ requestInfo }) => {
      const headers = requestInfo?.headers;
      const run = headers?.get('mcp-session-id') ?? headers?.get('x-user') ?? '';
      const server = new McpServer({ name: 'shop', version: '1.0.0' });
      const inputSchema = z.object({
        step: z.number(),
        ms: z.number(),
        fail: z.boolean().optional(),
      });
      for (const tool of SHOP_TOOLS) {
        server.registerTool(tool, { inputSchema }, (args, { mcpReq }) =>
          handle({ tool, args, run, meta: mcpReq._meta }),
        );
      }
      return server;
    },
    { keepAliveMs: 0 },
  );
}
