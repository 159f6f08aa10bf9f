import { randomUUID } from 'node:crypto';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type RequestHandler } from 'express';
import {
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  runDigest,
  StateMachineGate,
  sessionStore,
} from 'mcp-interlock';
import { type Runs, runsOf } from 'mcp-interlock/runs';
import type { AtomicStateStore, StateStore } from 'mcp-interlock/stores';
import { onTestFinished } from 'vitest';
import { RawSession, type RawStream, send, stream } from '../../../test/helpers/raw.ts';
import { serve } from '../../../test/helpers/serve.ts';
import { toolServer } from '../../../test/helpers/tool-server.ts';
import type {
  Failure,
  Json,
  LiveEvent,
  LiveEvents,
  RunDetail,
  RunPage,
  SearchPage,
  SessionInfo,
} from '../src/api.ts';
import { type InspectorOptions, inspector } from '../src/index.ts';

export const HOUR = 3_600_000;
const TOOLS = ['cart_add_item', 'cart_checkout', 'cart_pay', 'help'];

export const checkoutGate = (uncertain: 'hold' | 'retry' = 'hold') =>
  new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: { on: { PAY: 'confirmed', DECLINED: 'has_items', CANCEL: 'has_items' } },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart_add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart_checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart_pay', 'payment', { success: 'PAY', failure: 'DECLINED', uncertain });

export const CHECKOUT = `w${Buffer.from('checkout').toString('base64url')}`;
const CAN_ALL = { read: true, write: true, keys: true, actor: 'olga' } as const;

interface Answer<T> {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  readonly text: string;
  readonly body: T;
}

/** One instance of an app: its MCP route, and the inspector beside it. */
export async function startSite(
  options: Partial<InspectorOptions> = {},
  {
    store = memoryStore(),
    gate = checkoutGate(),
    before = [],
    step,
  }: {
    store?: StateStore;
    gate?: StateMachineGate;
    before?: RequestHandler[];
    step?: FsmGateOptions;
  } = {},
) {
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const sessions = sessionStore({ store, onError, onWarning: () => {} });
  const runs = runsOf(gate, { sessions }) as Runs;
  const page = inspector({ runs: [runs], authorize: () => CAN_ALL, onError, ...options });
  onTestFinished(() => page.close());
  const app: Express = express();
  app.use(...([...before, (_req, _res, next) => next()] as RequestHandler[]));
  app.use('/inspector', page);
  app.all('/mcp', sessions, fsmGate(gate, step), async (req, res) => {
    if (req.method !== 'POST') return void res.status(405).set('allow', 'POST').end();
    const server = toolServer(TOOLS)({ calls: [], gates: new Map() });
    const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(req, res, req.body);
  });
  const { url } = await serve(app);
  const at = (path: string): URL => new URL(`/inspector/${path}`, url);
  const tokens = new Map<string, string>();

  const get = async <T>(path: string, headers: Record<string, string> = {}): Promise<Answer<T>> =>
    answerOf(await send(at(path), { method: 'GET', headers }));
  const token = async (headers: Record<string, string>): Promise<string> => {
    const key = JSON.stringify(headers);
    const known = tokens.get(key) ?? (await get<SessionInfo>('api/session', headers)).body.token;
    tokens.set(key, known);
    return known;
  };
  const post = async <T>(
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer<T>> => {
    const own = { 'content-type': 'application/json', 'x-interlock-token': await token({}) };
    return answerOf(await send(at(path), { headers: { ...own, ...headers }, body }));
  };
  const of = (path: string): string => `api/workflows/${CHECKOUT}/${path}`;
  const idOf = async (run: string): Promise<string> => {
    const { runs: found } = (await post<SearchPage>(of('search'), { text: run })).body;
    return found.find(({ digest }) => digest === runDigest(run))?.id ?? 'none';
  };
  return {
    url,
    at,
    page,
    runs,
    store,
    errors,
    get,
    post,
    of,
    session: () => RawSession.begin(url),
    /** The id by which the page names a run. */
    idOf,
    async look(run: string): Promise<RunDetail> {
      return (await get<RunDetail>(of(`runs/${await idOf(run)}`))).body;
    },
    list: (query = '') => get<RunPage>(of(`runs${query}`)),
    watch: (query = '', headers: Record<string, string> = {}) =>
      stream(at(`api/events${query}`), { method: 'GET', headers }).then((raw) => new Watch(raw)),
  };
}

export type Site = Awaited<ReturnType<typeof startSite>>;

function answerOf<T>({ status, headers, text }: Awaited<ReturnType<typeof send>>): Answer<T> {
  const isJson = String(headers['content-type']).startsWith('application/json');
  return { status, headers, text, body: (isJson ? JSON.parse(text) : text) as T };
}

export const codeOf = ({ body }: Answer<unknown>): string | undefined =>
  (body as Partial<Failure> | undefined)?.error?.code;

/** The events of a stream, as they come. */
export class Watch {
  readonly raw: RawStream;

  constructor(raw: RawStream) {
    this.raw = raw;
    onTestFinished(() => raw.cut());
  }

  all<Name extends LiveEvent>(name: Name): LiveEvents[Name][] {
    const blocks = this.raw.text
      .split('\n\n')
      .filter((block) => block.includes(`event: ${name}\n`));
    return blocks.map((block) => JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? 'null'));
  }
}

/** Brings a run to a state, as an instance does it. */
export async function put(
  store: AtomicStateStore,
  run: string,
  state: string,
  { workflow = 'checkout', from = 'empty' } = {},
): Promise<void> {
  const key = { run, workflow, token: randomUUID(), ttlMs: HOUR };
  const step = { tool: 'cart_add_item', digest: 'd', uncertain: 'hold' } as const;
  const initial = { state: from, updatedAt: 0 };
  const how = { states: undefined, create: {}, leaseMs: 60_000 };
  await store.claim({ ...key, ...how, step, initial });
  const trail = { from, to: state, event: 'ADD_ITEM', tool: step.tool } as const;
  const ended = state === 'confirmed';
  await store.commit({ ...key, snapshot: { state, context: { card: '4111' } }, trail, ended });
}

interface HoldOptions {
  readonly uncertain?: 'hold' | 'retry';
  readonly workflow?: string;
}

/** Leaves a call behind, as a process does that is killed; resolves once its lease is over. */
export async function hold(
  store: AtomicStateStore,
  run: string,
  tool = 'cart_pay',
  args?: Json,
  { uncertain = 'hold', workflow = 'checkout' }: HoldOptions = {},
) {
  await store.claim({
    run,
    workflow,
    token: randomUUID(),
    ttlMs: HOUR,
    leaseMs: 1,
    create: {},
    states: undefined,
    step: { tool, digest: JSON.stringify(args ?? 'd'), uncertain },
    entry: { tool, actor: 'ann', requestId: 7, ...(args !== undefined && { args }) },
    initial: { state: 'empty', updatedAt: 0 },
  });
  while ((await store.read(run, HOUR))?.workflows[workflow]?.claim?.live !== false)
    await new Promise((resolve) => setImmediate(resolve));
}
