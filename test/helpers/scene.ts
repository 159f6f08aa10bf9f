import type { RequestHandler } from 'express';
import { expect, onTestFinished } from 'vitest';
import {
  type Clock,
  type FsmGateOptions,
  fsmGate,
  interlock,
  type Middleware,
  memoryStore,
  type SessionMiddleware,
  type SessionStoreOptions,
  StateMachineGate,
  type StateSyncOptions,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { checkoutGate } from './checkout.ts';
import { connect, type TestClient, type ToolResult } from './client.ts';
import { FaultyStore } from './faulty-store.ts';
import { latch } from './latch.ts';
import { ManualClock } from './manual-clock.ts';
import { RawSession } from './raw.ts';
import { authenticate, startTwoEras, type TwoErasOptions } from './two-eras.ts';
import { type Ledger, startUpstream, type UpstreamOptions } from './upstream.ts';

type AnyGate = StateMachineGate<string, string>;

/** The options of every scene. */
export interface StageOptions {
  /**
   * One workflow, or several on one route, each with or without its own options. Default: the
   * checkout of the README.
   */
  readonly workflow?: AnyGate | readonly (AnyGate | readonly [AnyGate, FsmGateOptions])[];
  readonly session?: SessionStoreOptions;
  readonly gate?: FsmGateOptions;
  /** Options of `stateSync()`. Default: it is not mounted. */
  readonly sync?: StateSyncOptions;
  /** Default: in memory, by the scene's clock. */
  readonly data?: AtomicStateStore;
  /** A scene of another process of the same app, which shares only its clock and data. */
  readonly beside?: Pick<Stage, 'clock' | 'data'> | undefined;
  /** Whether the middlewares are three or more, or one of `interlock()`. Default: singly. */
  readonly mounted?: 'singly' | 'in one' | undefined;
}

/** The middlewares. The test controls their clock and store, and sees what they report. */
export interface Stage {
  readonly clock: ManualClock;
  /** The store of the middlewares: `data`, with faults of the test's, and a list of its calls. */
  readonly store: FaultyStore;
  readonly data: AtomicStateStore;
  readonly errors: unknown[];
  readonly warnings: string[];
  readonly sessions: SessionMiddleware;
  /** The first workflow's runs. */
  readonly runs: Runs;
}

/** The app's entrance, where the test sees which requests are in the app. */
export interface Entrance {
  /**
   * Waits until so many requests, streams included, are in the app at once, and each of them waits
   * there.
   */
  isServing(requests: number): Promise<void>;
}

export interface SceneOptions extends StageOptions, Omit<UpstreamOptions, 'middlewares'> {}

/** An app of SDK v1 behind the middlewares, and its users. Everything ends with the test. */
export interface Scene extends Stage, Entrance {
  readonly url: URL;
  readonly ledger: Ledger;
  /** A connected client of the SDK, with the name of its user or with headers. */
  client(user?: string | Record<string, string>): Promise<SceneClient>;
  /** A session that the test drives message by message. */
  session(headers?: Record<string, string>): Promise<RawSession>;
  /** The same in a state of the checkout. The ledger does not have the calls that led there. */
  sessionAt(state: 'has_items' | 'payment', headers?: Record<string, string>): Promise<RawSession>;
  /** A run by its key, such as a session's id. */
  run(key: string): SceneRun;
  /** Ends the app before the end of the test. */
  close(): Promise<void>;
}

/** Makes an app of SDK v1, which speaks MCP up to 2025-11-25. `x-user` authenticates. */
export async function scene(options: SceneOptions = {}): Promise<Scene> {
  const { stage, middlewares } = makeStage(options);
  const { before = [], ...upstreamOptions } = options;
  const { door, isServing } = makeEntrance();
  const upstream = await startUpstream({
    ...upstreamOptions,
    before: [door, authenticate, ...before],
    middlewares,
  });
  onTestFinished(() => upstream.close());
  const { url, ledger } = upstream;
  return {
    ...stage,
    url,
    ledger,
    isServing,
    client: (user) => SceneClient.connect(url, user),
    session: (headers) => RawSession.begin(url, headers),
    async sessionAt(state, headers) {
      const opened = await RawSession.begin(url, headers);
      await opened.call('cart.add_item');
      if (state === 'payment') await opened.call('cart.checkout');
      ledger.calls.length = 0;
      return opened;
    },
    run: (key) => new SceneRun(stage.runs, key),
    close: () => upstream.close(),
  };
}

/** An app of SDK v2 behind the middlewares. */
export type SceneOfBothEras = Awaited<ReturnType<typeof sceneOfBothEras>>;

/**
 * Makes an app of SDK v2, which serves both eras, and mounts the middlewares in one. `x-user`
 * authenticates.
 */
export async function sceneOfBothEras(
  options: StageOptions & Omit<TwoErasOptions, 'middlewares'> = {},
) {
  const { stage, middlewares } = makeStage({ mounted: 'in one', ...options });
  const { door, isServing } = makeEntrance();
  const before = [door, ...(options.before ?? [])];
  const app = await startTwoEras({ ...options, before, middlewares });
  onTestFinished(() => app.close());
  return { ...stage, ...app, isServing, run: (key: string) => new SceneRun(stage.runs, key) };
}

function makeEntrance(): Entrance & { readonly door: RequestHandler } {
  let inside = 0;
  return {
    door(_req, res, next) {
      inside += 1;
      res.once('close', () => {
        inside -= 1;
      });
      next();
    },
    async isServing(requests) {
      await expect.poll(() => inside).toBe(requests);
      await settle();
    },
  };
}

/** The middlewares of a scene, for a test that mounts them elsewhere. */
export function makeStage({
  workflow = checkoutGate(),
  session,
  gate,
  sync,
  beside,
  data: given,
  mounted = 'singly',
}: StageOptions) {
  const clock = beside?.clock ?? new ManualClock();
  const fresh = () => memoryStore({ now: clock.now, maxRuns: session?.maxSessions });
  const data = given ?? beside?.data ?? fresh();
  const store = new FaultyStore(data);
  const errors: unknown[] = [];
  const warnings: string[] = [];
  const observed: ObservedOptions = {
    clock,
    onError: (error) => void errors.push(error),
    onWarning: (warning) => void warnings.push(warning),
  };
  const { clock: _, ...observers } = observed;
  const gates = (workflow instanceof StateMachineGate ? [workflow] : workflow).map((each) =>
    each instanceof StateMachineGate ? ([each] as const) : each,
  );
  const [[first] = [checkoutGate()]] = gates;
  const ofGates = gates.map(([each, own]) => ({ gate: each, ...observed, ...gate, ...own }));
  const ofSessions = { store, ...observed, ...session };
  const policies = sync && { ...observers, ...sync };
  const sessions =
    mounted === 'in one'
      ? interlock({ ...ofSessions, gates: ofGates, policies })
      : sessionStore(ofSessions);
  onTestFinished(() => sessions.close());
  const singly = ofGates.map(({ gate: each, ...own }) => fsmGate(each, own));
  const behind = [...singly, ...(policies === undefined ? [] : [stateSync(policies)])];
  const middlewares: [Middleware, ...Middleware[]] = [
    sessions,
    ...(mounted === 'in one' ? [] : behind),
  ];
  const runs = runsOf(first, { sessions }) as Runs;
  const stage: Stage = { clock, store, data, errors, warnings, sessions, runs };
  return { stage, middlewares };
}

interface ObservedOptions {
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
}

/** A client in the words of a test. */
export class SceneClient {
  readonly raw: TestClient;

  private constructor(raw: TestClient) {
    this.raw = raw;
  }

  static async connect(url: URL, user: string | Record<string, string> = {}): Promise<SceneClient> {
    const raw = await connect(url, typeof user === 'string' ? { 'x-user': user } : user);
    onTestFinished(() => raw.close());
    return new SceneClient(raw);
  }

  /** The key of its session's run. */
  get run(): string {
    return String(this.raw.transport.sessionId);
  }

  /** Calls a tool, which must succeed. */
  async calls(tool: string, args: Record<string, unknown> = {}): Promise<ToolResult> {
    const result = await this.raw.call(tool, args);
    expect(result, `${tool} was to succeed`).toMatchObject({ isError: false });
    return result;
  }

  /** Calls a tool, which the gate must refuse for that reason. */
  async isRefused(
    tool: string,
    reason: string,
    args: Record<string, unknown> = {},
  ): Promise<ToolResult> {
    const result = await this.raw.call(tool, args);
    expect(result.meta['mcp-interlock/refusal'], `${tool} was to be refused`).toMatchObject({
      reason,
    });
    return result;
  }

  /** Lists the tools, and expects these. */
  async sees(tools: readonly string[]): Promise<void> {
    expect(await this.raw.tools()).toEqual(tools);
  }

  /** How many times it was told that its list changed. */
  get told(): number {
    return this.raw.log.filter((each) => each === 'list_changed').length;
  }

  /** Waits until it was told that many times. */
  async isTold(times: number): Promise<void> {
    await expect.poll(() => this.told).toBe(times);
  }
}

/** A run, as the public API sees it. */
export class SceneRun {
  readonly runs: Runs;
  readonly key: string;

  constructor(runs: Runs, key: string) {
    this.runs = runs;
    this.key = key;
  }

  async isIn(state: string, status?: 'idle' | 'running' | 'held'): Promise<void> {
    const view = await this.runs.read(this.key);
    expect(view?.snapshot.state).toBe(state);
    if (status !== undefined) expect(view?.status).toBe(status);
  }

  async is(status: 'idle' | 'running' | 'held'): Promise<void> {
    expect((await this.runs.read(this.key))?.status).toBe(status);
  }

  /** Waits until the run is in that state. */
  async becomes(status: 'idle' | 'running' | 'held'): Promise<void> {
    await expect.poll(async () => (await this.runs.read(this.key))?.status).toBe(status);
  }

  /** The tools of its moves, oldest first; `null` for moves that no call made. */
  async moves(): Promise<(string | null)[]> {
    const trail = await this.runs.history(this.key);
    return trail.filter(({ to }) => to !== undefined).map(({ tool }) => tool ?? null);
  }
}

/** A call whose handler is at work until `finish()`. */
export interface HeldCall<T> {
  readonly answer: Promise<T>;
  finish(): void;
}

/** Begins a call, and resolves once its handler is at work. */
export async function begins<T>(
  { ledger }: Pick<Scene, 'ledger'>,
  tool: string,
  call: () => Promise<T>,
): Promise<HeldCall<T>> {
  const handler = latch();
  const before = ledger.calls.length;
  ledger.gates.set(tool, handler.opened);
  const answer = call();
  // If the test fails before it waits for the answer, only that failure counts.
  answer.catch(() => {});
  await expect.poll(() => ledger.calls.slice(before)).toContain(tool);
  ledger.gates.delete(tool);
  return { answer, finish: handler.open };
}

/** Lets time pass in parts, so that the work of each timer is done before the next one fires. */
export async function pass(clock: ManualClock, ms: number, bit = 500): Promise<void> {
  for (let left = ms; left > 0; left -= bit) {
    clock.advance(Math.min(left, bit));
    await settle(1);
  }
}

/** Lets time pass in parts until the promise has settled. */
export async function passUntil<T>(
  clock: ManualClock,
  settling: Promise<T>,
  stepMs = 500,
): Promise<T> {
  let isSettled = false;
  const note = (): void => {
    isSettled = true;
  };
  settling.then(note, note);
  await expect
    .poll(() => {
      if (!isSettled) clock.advance(stepMs);
      return isSettled;
    })
    .toBe(true);
  return settling;
}

/** Expects that the app does nothing for an hour: no timer fires, and it calls no store. */
export async function staysQuiet({ clock, store, errors }: Stage): Promise<void> {
  await settle();
  store.take();
  const before = { rung: clock.rung, errors: errors.length };
  await pass(clock, 3_600_000, 60_000);
  expect(store.take()).toEqual([]);
  expect({ rung: clock.rung, errors: errors.length }).toEqual(before);
}

/** Gives all work under way in this process its turns. */
export async function settle(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
}
