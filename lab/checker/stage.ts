import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import express, { type Express, type RequestHandler } from 'express';
import * as z from 'zod';
import {
  type FsmSnapshot,
  fsmGate,
  memoryStore,
  principalKey,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { check } from './check.ts';
import {
  type Evidence,
  type LedgerLine,
  type Machine,
  type RunInfo,
  readTrail,
  type Trail,
} from './evidence.ts';
import { type Handler, type HandlerArguments, makeHandler } from './ledger.ts';
import { gateOf } from './machines.ts';
import { type Random, seeded } from './random.ts';
import { type Caller, Endpoint, Recorder, WireLog } from './recorder.ts';

const ISSUER = 'https://issuer.example';

const HOUR = 3_600_000;

/** The tool of what {@link Stage.record} adds. */
export const NOTE = 'note';

/** What a scene asks of the public API. */
export type OutsideApi = Pick<
  Runs,
  'read' | 'history' | 'send' | 'resolve' | 'freeze' | 'unfreeze' | 'freezeAll' | 'unfreezeAll'
>;

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

export interface StageOptions {
  /** Of what the surroundings choose. */
  readonly seed: number;
  readonly machine: Machine;
  /** Every tool of the server. */
  readonly tools: readonly string[];
  /** Default: the era's own. */
  readonly visibility?: 'hide' | 'stable' | undefined;
  readonly surroundings?: Surroundings | undefined;
}

/**
 * A gate around a server of SDK v2 in this process, on a real socket, and all that is known of what
 * it does.
 */
export class Stage {
  readonly log = new WireLog();
  readonly recorder = new Recorder(this.log);
  readonly ledger: LedgerLine[] = [];
  readonly infos: RunInfo[] = [];
  readonly endpoint: Endpoint;
  readonly runs: OutsideApi;
  readonly #options: StageOptions;
  readonly #store: AtomicStateStore;
  readonly #world: World;
  readonly #keys = new Map<string, string>();
  readonly #close: () => Promise<void>;
  readonly #streams: { close(): void }[] = [];

  private constructor(
    options: StageOptions,
    url: URL,
    runs: OutsideApi,
    store: AtomicStateStore,
    world: World,
    close: () => Promise<void>,
  ) {
    this.#options = options;
    this.#store = store;
    this.#world = world;
    this.endpoint = new Endpoint(url);
    this.runs = runs;
    this.#close = close;
    world.append = (line) => this.ledger.push(line);
  }

  static async open(options: StageOptions): Promise<Stage> {
    const { seed, machine, tools, visibility, surroundings = {} } = options;
    const { store: around, runs, front, handler = (own: Handler) => own } = surroundings;
    const random = seeded(seed, 'surroundings');
    const world: World = { append() {}, lateMs: 0, cutting: 'none', cut: new Set() };
    const data = memoryStore({ now: () => Date.now() + world.lateMs });
    const store = around?.(data, random) ?? data;
    const quiet = { onError: () => {}, onWarning: () => {} };
    const sessions = sessionStore({ store, key: [sessionKey(), principalKey()], ...quiet });
    const gate = gateOf(machine);
    const handle = handler(
      makeHandler('server', (line) => {
        if (world.cutting === 'this') world.cut.add(line.call);
        if (line.phase === 'start') world.cutting = 'none';
        if (line.phase === 'start' || !world.cut.has(line.call)) world.append(line);
      }),
      random,
    );
    const served = toNodeHandler(serverOf(tools, handle));
    const upstream: RequestHandler = (req, res) => {
      if (world.cutting === 'next' && req.method === 'POST') {
        world.cutting = 'this';
        res.write = () => true;
        res.end = (() => res.destroy()) as typeof res.end;
      }
      return served(req, res, req.body);
    };
    const app: Express = express();
    app.use(authenticate);
    if (front !== undefined) app.use('/mcp', front(random, upstream));
    const guarded = [sessions, fsmGate(gate, { visibility, ...quiet })];
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
    return new Stage(options, url, runs?.(outside) ?? outside, store, world, close);
  }

  /** A new session, with a stream of its own. */
  async session(): Promise<Caller> {
    const caller = await this.recorder.openSession(this.endpoint);
    if (caller === undefined) throw new Error('no session could be started');
    this.#keys.set(caller.run, caller.run);
    await this.#enter(caller, 'hide', false);
    return caller;
  }

  /** A user without sessions; with a stream of their own where lists hide. */
  async user(name: string): Promise<Caller> {
    const caller = this.recorder.principal(name, { 'x-user': name });
    this.#keys.set(name, principalKey().runKey({ issuer: ISSUER, subject: name }));
    // By default it is the runs of principals that start again.
    await this.#enter(caller, this.#options.visibility ?? 'stable', true);
    return caller;
  }

  async #enter(caller: Caller, lists: RunInfo['lists'], restarts: boolean): Promise<void> {
    const { run } = caller;
    this.infos.push({ run, lists: this.#options.visibility ?? lists, restarts });
    if (lists === 'stable') return;
    const stream = await this.recorder.listen(this.endpoint, caller);
    if (stream === undefined) throw new Error('no stream could be opened');
    this.#streams.push(stream);
  }

  /** The server dies in the next call of a tool: its handler never ends, and no answer comes. */
  cutNext(): void {
    this.#world.cutting = 'next';
  }

  /** Time passes on the store's clock. */
  pass(hours: number): void {
    this.#world.lateMs += hours * HOUR;
  }

  /** Adds a fact to a run beside its steps, as a call of a lookup does. Whether it is saved. */
  async record(run: string): Promise<boolean> {
    const { id: workflow, initial } = this.#options.machine;
    const key = { run: this.keyOf(run), workflow };
    const begin: FsmSnapshot = { state: initial, updatedAt: 0 };
    for (let tries = 0; tries < 10; tries++) {
      const record = await this.#store.read(key.run, 24 * HOUR);
      const {
        updatedAt: _,
        version = 0,
        ...snapshot
      } = record?.workflows[workflow]?.snapshot ?? begin;
      const { status } = await this.#store.record({
        ...key,
        token: randomUUID(),
        from: version,
        initial: begin,
        snapshot,
        trail: {
          from: snapshot.state,
          to: snapshot.state,
          event: null,
          tool: NOTE,
          outcome: 'succeeded',
        },
        ttlMs: 24 * HOUR,
      });
      if (status !== 'moved') return status === 'recorded';
    }
    return false;
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
    const { exchanges, streams, outside, switches } = this.log;
    const { machine, tools } = this.#options;
    const trails: Trail[] = [];
    for (const { run } of this.infos) {
      const view = await this.runs.read(this.keyOf(run));
      const entries = await this.runs.history(this.keyOf(run), Number.MAX_SAFE_INTEGER);
      const now = view && {
        state: view.snapshot.state,
        version: view.snapshot.version ?? 0,
        status: view.status,
        claimed: view.claim?.tool,
        isFrozen: view.frozen !== undefined,
      };
      trails.push({
        run,
        machine: machine.id,
        ...readTrail(entries),
        now: now as Trail['now'],
      });
    }
    return {
      machines: [machine],
      tools,
      runs: this.infos,
      exchanges,
      streams,
      ledger: this.ledger,
      outside,
      switches,
      trails,
    };
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.close();
    this.endpoint.close();
    await this.#close();
  }
}

/** What a stage can change around its server. */
interface World {
  append: (line: LedgerLine) => void;
  /** How much later it is for the store. */
  lateMs: number;
  /** Whether the server dies in the next call, or in this one. */
  cutting: 'none' | 'next' | 'this';
  /** The calls in which it died. */
  readonly cut: Set<string>;
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
function serverOf(tools: readonly string[], handle: Handler) {
  return createMcpHandler(
    ({ requestInfo }) => {
      const headers = requestInfo?.headers;
      const run = headers?.get('mcp-session-id') ?? headers?.get('x-user') ?? '';
      const server = new McpServer({ name: 'stage', version: '1.0.0' });
      const inputSchema = z.looseObject({
        step: z.number(),
        ms: z.number(),
        fail: z.boolean().optional(),
      });
      for (const tool of tools) {
        server.registerTool(tool, { inputSchema }, (args, { mcpReq }) =>
          handle({ tool, args: args as HandlerArguments, run, meta: mcpReq._meta }),
        );
      }
      return server;
    },
    { keepAliveMs: 0 },
  );
}
