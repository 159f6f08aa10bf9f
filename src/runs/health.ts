/**
 * Says by HTTP whether a process and its runs are well, for orchestrators, alarms and people. Hides
 * how it spares the store many probes. No client sees a store's messages, or keys without the app's
 * leave.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod/mini';
import { configError } from '../basics/errors.ts';
import { lazyOptions, optionalFunction, parseOptions } from '../basics/options.ts';
import { safely } from '../doors/middleware.ts';
import type { Observed } from '../follow/observations.ts';
import { observationsOf } from '../follow/observer.ts';
import type { CallerRequest } from '../session/callers.ts';
import { listStopped, type Stopped } from '../step/switch.ts';
import {
  countInStore,
  hasIndex,
  heldRuns,
  indexOf,
  stuckRuns,
  unsettledRuns,
} from './run-views.ts';
import { Runs } from './runs.ts';
import { MOVER, type RunsMover } from './runs-mover.ts';
import type { RunsUnderWay, RunView } from './runs-options.ts';

interface Authorizes {
  // A method, so that it also takes functions of a richer request, such as Express's.
  authorize(req: CallerRequest): boolean | Promise<boolean>;
}

/** What else may make an answer 503. */
type FailOn = 'held' | 'unsettled' | 'stuck' | 'unreadable' | 'bus';

/** Options of {@link workflowHealth}. */
export interface WorkflowHealthOptions {
  /** What `runsOf()` returned for each gate. */
  runs: readonly Runs[];
  /** How long an open run has not moved when it counts as stuck, in milliseconds. */
  stuckAfterMs: number;
  /**
   * Whether this request may see the keys of runs, which are credentials. Where it returns `true`,
   * or a promise of that, the report lists the first held and stuck runs. Default: no request may.
   */
  authorize?: Authorizes['authorize'] | undefined;
  /**
   * What makes the answer 503, beside a store that cannot be asked and a process that ends. Use it
   * for an alarm, not for an orchestrator: a restart resolves no held run. Default: nothing.
   */
  failOn?: readonly FailOn[] | undefined;
  /** How long an answer is used again without asking the store, in milliseconds. Default 1,000. */
  maxAgeMs?: number | undefined;
  /**
   * Called where a store could not be asked, or evicts keys. Default: that of the first of `runs`.
   */
  onError?: ((error: unknown) => void) | undefined;
}

/** The answer to a probe. */
export interface HealthReport {
  /** `ok` and `degraded` come with 200, `failing` with 503. */
  readonly status: 'ok' | 'degraded' | 'failing';
  /**
   * Why it is failing. `store`: a store takes no writes. `ending`: this process takes no new
   * steps, after `close()`. `index`: the runs cannot be counted for which `failOn` asks.
   */
  readonly failing: readonly (FailOn | 'store' | 'ending' | 'index')[];
  /** What a person should look at, though steps go on. Absent: nothing. */
  readonly degraded?: readonly ('evictions' | 'switch' | 'strayed')[];
  /**
   * Whether this process receives what it sends itself over its bus, and so the others. Absent
   * where it has no bus.
   */
  readonly bus?: 'hears' | 'deaf';
  /** In the order of `runs`. */
  readonly workflows: readonly WorkflowHealth[];
}

/** One workflow. It has counts only where `index` is `ok`. */
export interface WorkflowHealth extends Partial<RunsUnderWay> {
  /** The gate's id. */
  readonly workflow: string;
  /** Whether the store takes writes, and so steps can run. */
  readonly store: 'ok' | 'failing';
  /**
   * `rising`: the server has evicted keys within the last hour. They may be those of another
   * program, or live runs. `hidden`: the server does not say. Absent: neither.
   */
  readonly evictions?: 'rising' | 'hidden';
  /**
   * `restored`: within the last hour the store had lost the workflow's switch, and this process
   * wrote it back. Live runs may be lost. Absent: it has not.
   */
  readonly switch?: 'restored';
  /**
   * Whether its runs can be counted. `none`: the store keeps no index of them. `uncounted`: it
   * lists them only, and `held` and `stuck` are how many it lists, up to 50.
   */
  readonly index: 'ok' | 'uncounted' | 'unavailable' | 'none';
  /** Whether operators have stopped the workflow, or some of its tools. Absent where all go on. */
  readonly frozen?: 'workflow' | 'tools';
  /** What they have stopped. Only for a request that may see keys. */
  readonly stopped?: readonly Stopped[];
  /** What this process has observed of its runs, and not enforced. Absent: nothing. */
  readonly observed?: Pick<Observed, 'since' | 'runs' | 'refused' | 'calls'>;
  /** All of that: by rule, by hour and the last one. Only for a request that may see keys. */
  readonly observations?: Observed;
  /** The longest held runs. Only for a request that may see keys. */
  readonly heldRuns?: readonly ListedRun[];
  /** The oldest runs with unsettled steps. Only for a request that may see keys. */
  readonly unsettledRuns?: readonly ListedRun[];
  /** The oldest stuck runs. Only for a request that may see keys. */
  readonly stuckRuns?: readonly ListedRun[];
}

/** A run that needs a person, without its data. */
export interface ListedRun
  extends Pick<
    RunView,
    'run' | 'state' | 'status' | 'frozen' | 'unsettled' | 'heldForMs' | 'unmovedForMs' | 'fault'
  > {
  /** The tool of the step that is running or held. */
  readonly tool?: string;
  /** That step's idempotency key, to look it up at a payment provider, for example. */
  readonly idempotencyKey?: string;
}

/** What {@link workflowHealth} returns: a handler of Node's form, for readiness and alarms. */
export interface HealthHandler {
  (req: IncomingMessage, res: ServerResponse): void;
  /**
   * For liveness: 200 as long as the process answers. It asks no store, since one that is down must
   * not make the orchestrator restart each process.
   */
  readonly live: (req: IncomingMessage, res: ServerResponse) => void;
  /** The handler itself for hosts of the Fetch API. Never rejects. */
  readonly fetch: (request: Request) => Promise<Response>;
}

const optionsSchema = lazyOptions(() => ({
  runs: z
    .array(
      z.custom<Runs>((value) => value instanceof Runs, 'expected what runsOf() returned'),
      'expected a list of what runsOf() returned',
    )
    .check(z.minLength(1, 'expected what runsOf() returned, once at least')),
  stuckAfterMs: z.number().check(z.minimum(0)),
  authorize: optionalFunction<Authorizes['authorize']>(),
  failOn: z._default(
    z.array(z.enum(['held', 'unsettled', 'stuck', 'unreadable', 'bus'])),
    () => [],
  ),
  maxAgeMs: z._default(z.number().check(z.minimum(0)), 1_000),
  onError: optionalFunction<(error: unknown) => void>(),
}));

/** The most runs in a list. */
const LISTED = 50;

/** A prober may wait for a second. What a store has not answered by then counts as failed. */
const ANSWER_MS = 800;

/** For how long what a store has lost is an alarm, in milliseconds. */
const LOSS_MS = 60 * 60_000;

/**
 * Says whether the process and its runs are well:
 * `app.get('/health', workflowHealth({ runs, stuckAfterMs }))`. It answers 200, or 503 where a
 * store takes no writes or the process ends, with a {@link HealthReport} as JSON. A store that
 * counts no runs takes no process out. The handler never throws. Held runs that it finds are
 * reported as events, as by `runs.held()`.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown,
 * `ERR_INTERLOCK_STORE` where `failOn` names what the store cannot know
 */
export function workflowHealth(options: WorkflowHealthOptions): HealthHandler {
  const { runs, authorize, onError, ...rules } = parseOptions(
    'workflowHealth()',
    optionsSchema,
    options,
  );
  const movers = runs.map((each) => each[MOVER]);
  for (const mover of movers) checkFailOn(mover, rules.failOn);
  const [{ clock, onError: theirs } = movers[0] as RunsMover] = movers;
  const onFault = onError === undefined ? theirs : safely(onError);
  const now = (): number => clock.now();
  const look = (withKeys: boolean) => (): Promise<WorkflowHealth[]> =>
    Promise.all(movers.map((mover) => lookAt(mover, rules.stuckAfterMs, withKeys, onFault)));
  const counts = shared(look(false), rules.maxAgeMs, now);
  const lists = shared(look(true), rules.maxAgeMs, now);

  const isAuthorized = async (req: CallerRequest): Promise<boolean> => {
    try {
      return (await authorize?.(req)) === true;
    } catch (error) {
      onFault(error);
      return false;
    }
  };
  const answer = async (req: CallerRequest): Promise<HealthAnswer> => {
    if (!isLook(req)) return NOT_ALLOWED;
    const workflows = await ((await isAuthorized(req)) ? lists : counts)();
    const report = reportOf(movers, workflows, rules.failOn);
    return answerOf(report.status === 'failing' ? 503 : 200, report);
  };
  const handler = (req: IncomingMessage, res: ServerResponse): void =>
    void answer(req)
      .then((made) => write(req, res, made))
      .catch(onFault);
  return Object.assign(handler, {
    live: (req: IncomingMessage, res: ServerResponse): void =>
      write(req, res, isLook(req) ? ALIVE : NOT_ALLOWED),
    fetch: async (request: Request): Promise<Response> => {
      const { status, headers, body } = await answer(callerOf(request));
      return new Response(request.method === 'HEAD' ? null : body, { status, headers });
    },
  });
}

/** An alarm that could never ring is a mistake. */
function checkFailOn(mover: RunsMover, failOn: readonly FailOn[]): void {
  if (failOn.some((each) => each !== 'bus')) indexOf(mover, 'workflowHealth({ failOn })');
  if (!failOn.includes('bus') || mover.sessions?.receivesOthers !== undefined) return;
  throw configError(
    'workflowHealth(): failOn: "bus" needs runs of a bus: write runsOf(gate, { sessions }) with ' +
      'the sessions of sessionStore({ bus })',
  );
}

/** Asks whether the store takes writes, and how the runs of one workflow are. */
async function lookAt(
  mover: RunsMover,
  forMs: number,
  withKeys: boolean,
  onFault: (error: unknown) => void,
): Promise<WorkflowHealth> {
  const inTime = <T>(asked: Promise<T>, late: T): Promise<T> =>
    new Promise((resolve) => {
      const stop = mover.clock.after(ANSWER_MS, () => resolve(late));
      void asked.then(resolve).finally(stop);
    });
  const or = <T>(asked: Promise<T>, failed: T): Promise<T> =>
    asked.catch((error: unknown) => {
      onFault(error);
      return failed;
    });
  const { store, workflow } = mover;
  const proven = store.prove().then(() => 'ok' as const);
  const own = store.switchOf(workflow.id);
  const switched = Promise.resolve(own?.read());
  const [state, found, freeze, evicting] = await Promise.all([
    inTime(or<WorkflowHealth['store']>(proven, 'failing'), 'failing'),
    inTime(countedIn(mover, forMs, withKeys, onFault), { index: 'unavailable' }),
    inTime(or(switched, undefined), undefined),
    inTime(or(evictionsIn(mover, onFault), undefined), undefined),
  ]);
  const isRestored = own !== undefined && Math.abs(mover.clock.now() - own.restoredAt) < LOSS_MS;
  const stopped = freeze ? listStopped(freeze) : [];
  const observations = observationsOf(workflow).report;
  const observed = observations && shortened(observations);
  return {
    ...{ workflow: workflow.id, store: state },
    ...(evicting && { evictions: evicting }),
    ...(isRestored && { switch: 'restored' as const }),
    ...(stopped.length > 0 && { frozen: freeze?.all ? ('workflow' as const) : ('tools' as const) }),
    ...(stopped.length > 0 && withKeys && { stopped }),
    ...(observed && { observed }),
    ...(observations && withKeys && { observations }),
    ...found,
  };
}

/** What each store's server said of its evictions, and when they rose last. */
const evicted = new WeakMap<RunsMover['store'], { keys: number; roseAt: number }>();

async function evictionsIn(
  { store, clock }: RunsMover,
  onFault: (error: unknown) => void,
): Promise<WorkflowHealth['evictions']> {
  if (store.evictedKeys === undefined) return undefined;
  const keys = await store.evictedKeys();
  if (keys === undefined) return 'hidden';
  // What was evicted before this process looked may be long ago.
  const known = evicted.get(store) ?? { keys, roseAt: Number.NEGATIVE_INFINITY };
  evicted.set(store, known);
  const more = keys - known.keys;
  // A server that began again counts from zero.
  known.keys = keys;
  if (more > 0) {
    known.roseAt = clock.now();
    onFault(new Error(`the server of the store has evicted ${more} keys: runs may be lost`));
  }
  return Math.abs(clock.now() - known.roseAt) < LOSS_MS ? 'rising' : undefined;
}

function shortened({ since, runs, refused, calls }: Observed): WorkflowHealth['observed'] {
  return { since, runs, refused, calls };
}

async function countedIn(
  mover: RunsMover,
  forMs: number,
  withKeys: boolean,
  onFault: (error: unknown) => void,
): Promise<Omit<WorkflowHealth, 'workflow' | 'store'>> {
  if (!hasIndex(mover)) return { index: 'none' };
  try {
    const counted = mover.store.count && (await countInStore(mover, { forMs }, true));
    const page = { limit: LISTED };
    const [held, unsettled, stuck] = await Promise.all([
      // Also where no key may be seen: the list reports held runs as events.
      counted?.held === 0 ? NONE : heldRuns(mover, page),
      withKeys && counted?.unsettled ? unsettledRuns(mover, page) : NONE,
      counted && (!withKeys || counted.stuck === 0) ? NONE : stuckRuns(mover, { forMs, ...page }),
    ]);
    const listed = withKeys && {
      heldRuns: held.runs.map(listedRun),
      ...(unsettled.runs.length > 0 && { unsettledRuns: unsettled.runs.map(listedRun) }),
      stuckRuns: stuck.runs.map(listedRun),
    };
    if (counted) return { index: 'ok', ...counted, ...listed };
    return { index: 'uncounted', held: held.runs.length, stuck: stuck.runs.length, ...listed };
  } catch (error) {
    onFault(error);
    return { index: 'unavailable' };
  }
}

const NONE = { runs: [] } as const;

function listedRun(view: RunView): ListedRun {
  const { run, state, status, frozen, unsettled, heldForMs, unmovedForMs, fault, claim } = view;
  return {
    run,
    state,
    status,
    ...(frozen && { frozen }),
    ...(unsettled && { unsettled }),
    ...(heldForMs !== undefined && { heldForMs }),
    ...(unmovedForMs !== undefined && { unmovedForMs }),
    ...(fault !== undefined && { fault }),
    ...(status !== 'idle' && claim && { tool: claim.tool, idempotencyKey: claim.idempotencyKey }),
  };
}

function reportOf(
  movers: readonly RunsMover[],
  workflows: readonly WorkflowHealth[],
  failOn: readonly FailOn[],
): HealthReport {
  const receives = movers.flatMap(({ sessions }) => sessions?.receivesOthers ?? []);
  const isDeaf = receives.includes(false);
  const isBlind = workflows.some(({ index }) => index === 'unavailable');
  const faults: readonly (readonly [HealthReport['failing'][number], boolean])[] = [
    ['store', workflows.some(({ store }) => store !== 'ok')],
    ['ending', movers.some(({ turns }) => turns.closed)],
    ['bus', isDeaf && failOn.includes('bus')],
    ['index', isBlind && failOn.some((each) => each !== 'bus')],
    ['held', workflows.some(({ held = 0 }) => held > 0) && failOn.includes('held')],
    [
      'unsettled',
      workflows.some(({ unsettled = 0 }) => unsettled > 0) && failOn.includes('unsettled'),
    ],
    ['stuck', workflows.some(({ stuck = 0 }) => stuck > 0) && failOn.includes('stuck')],
    [
      'unreadable',
      workflows.some(({ unreadable = 0 }) => unreadable > 0) && failOn.includes('unreadable'),
    ],
  ];
  const failing = faults.filter(([, isFault]) => isFault).map(([name]) => name);
  const degraded = [
    ...(workflows.some(({ evictions }) => evictions === 'rising') ? ['evictions' as const] : []),
    ...(workflows.some((each) => each.switch === 'restored') ? ['switch' as const] : []),
    ...(workflows.some(({ strayed = 0 }) => strayed > 0) ? ['strayed' as const] : []),
  ];
  const well = degraded.length > 0 ? 'degraded' : 'ok';
  return {
    status: failing.length === 0 ? well : 'failing',
    failing,
    ...(degraded.length > 0 && { degraded }),
    ...(receives.length > 0 && { bus: isDeaf ? 'deaf' : 'hears' }),
    workflows,
  };
}

/**
 * Asks once for all probes that come meanwhile, and gives the answer again until it is too old.
 */
function shared<T>(ask: () => Promise<T>, maxAgeMs: number, now: () => number): () => Promise<T> {
  let last: { readonly answer: Promise<T>; at: number | undefined } | undefined;
  return () => {
    const age = last?.at === undefined ? 0 : now() - last.at;
    // A clock may go back.
    if (last !== undefined && age >= 0 && (last.at === undefined || age < maxAgeMs))
      return last.answer;
    const asked: NonNullable<typeof last> = { answer: ask(), at: undefined };
    const done = (): void => {
      asked.at = now();
    };
    asked.answer.then(done, done);
    last = asked;
    return asked.answer;
  };
}

interface HealthAnswer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

function answerOf(status: number, value: unknown, more: Record<string, string> = {}): HealthAnswer {
  const body = JSON.stringify(value);
  return {
    status,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(Buffer.byteLength(body)),
      'cache-control': 'no-store',
      ...more,
    },
    body,
  };
}

const ALIVE = answerOf(200, { status: 'ok' });
const NOT_ALLOWED = answerOf(405, { error: 'Method not allowed' }, { allow: 'GET, HEAD' });

function isLook({ method }: CallerRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Does nothing where the response has begun, or its client has left. */
function write(
  req: IncomingMessage,
  res: ServerResponse,
  { status, headers, body }: HealthAnswer,
): void {
  if (res.headersSent || res.destroyed) return;
  res.writeHead(status, headers);
  res.end(req.method === 'HEAD' ? undefined : body);
}

/** A Fetch API request in the form that the app's functions are given. */
function callerOf(request: Request & { readonly auth?: unknown }): CallerRequest {
  const { pathname, search } = new URL(request.url);
  return {
    method: request.method,
    url: `${pathname}${search}`,
    headers: Object.fromEntries(request.headers),
    auth: request.auth,
  };
}
