/**
 * A whole gate in a test. Hides the client, the server behind the middlewares, and how they speak
 * to each other. The middlewares themselves decide, as they do in an app.
 */

import * as z from 'zod/mini';
import { gateFetch } from '../../../src/doors/fetch.ts';
import {
  type CurrentStep,
  currentStep,
  type FsmGateOptions,
  fsmGate,
  InterlockError,
  type Middleware,
  type Refusal,
  type RefusalReason,
  type RunKeyStrategy,
  type SessionMiddleware,
  type SessionStoreOptions,
  type StateMachineGate,
  type StateSyncOptions,
  sessionStore,
  stateSync,
  type ToolResult,
} from '../../../src/index.ts';
import {
  assertGate,
  defaultKeys,
  givenFactsOption,
  isObject,
  isTable,
  lazyOptions,
  META_PREFIX,
  newToken,
  parseKeys,
  parseOptions,
  rightNames,
  sessionsOf,
  showValue,
} from '../../../src/internal.ts';
import {
  type GivenFact,
  type Resolution,
  type ResolveOptions,
  type Runs,
  runsOf,
  type SendOptions,
  type Sent,
} from '../../../src/runs/index.ts';
import type { Json, TrailEntry } from '../../../src/stores/index.ts';
import { isReply, McpClient, type Reply, type RpcError } from './mcp-client.ts';
import {
  type ExpectedCall,
  TestClock,
  type TestResult,
  type TestTool,
  TestUpstream,
} from './test-world.ts';

/** A gate with any names. */
export type AnyGate = StateMachineGate<string, string, string, string, unknown>;

/** Options of {@link testGate}. `C` are the states of a run, `X` is its data. */
export interface TestGateOptions<C extends string = string, X = Json | undefined> {
  /**
   * Tools of the server that no gate binds, by name. Also bound tools to which you give more, such
   * as `annotations`. Default: the bound tools only.
   */
  readonly tools?: readonly (string | TestTool)[] | undefined;
  /** The caller, as `sessionStore({ principal })` would name it. Default: no principal. */
  readonly principal?: string | undefined;
  /** The run's state, with one gate. Default: the initial one. */
  readonly state?: C | undefined;
  /** Under rules, with one gate: the calls that the run has made before. Default: none. */
  readonly facts?: readonly GivenFact[] | undefined;
  /** The run's shared data or a statechart's context, with one gate. Default: the initial one. */
  readonly context?: X | undefined;
  /**
   * The session id, which guards and `begin` see as the run: visible ASCII without spaces. Default:
   * a random one.
   */
  readonly run?: string | undefined;
  /** The first time of the clock: milliseconds since the epoch. Default: the system's. */
  readonly now?: number | undefined;
  /** Options of `sessionStore()`, such as a `store` or a `key`. */
  readonly session?: Omit<SessionStoreOptions, 'clock' | 'principal'> | undefined;
  /** Options of `fsmGate()`, for each gate. */
  readonly gate?: Omit<FsmGateOptions, 'clock'> | undefined;
  /** Options of `stateSync()`. Default: it is not mounted. */
  readonly sync?: StateSyncOptions | undefined;
}

/** Why a call was refused, in words and in facts. */
export interface TestRefusal extends Refusal {
  /** What the model reads. */
  readonly text: string;
}

/** What a client sees of a call. */
export interface TestAnswer {
  /**
   * `ok`: a result. `tool_error`: the tool's result with `isError`. `rpc_error`: a JSON-RPC error.
   * `refused`: by a gate. `unknown`: the gate says that the outcome of the call is unknown, or the
   * server gave no answer to a call that no gate holds.
   */
  readonly outcome: 'ok' | 'tool_error' | 'rpc_error' | 'refused' | 'unknown';
  /** The texts of the result, joined by line feeds; the message of an error. */
  readonly text: string;
  /** Whether the tool ran. */
  readonly ran: boolean;
  /** The result as the client got it; absent where it got an error. */
  readonly result?: ToolResult;
  readonly error?: RpcError;
  readonly refusal?: TestRefusal;
}

/** What a tool does in a test: its result, a promise of it, or a function of the call. */
export type TestOutcome =
  | TestResult
  | Promise<TestResult>
  | ((
      args: Readonly<Record<string, unknown>>,
      step: CurrentStep | undefined,
    ) => TestResult | Promise<TestResult>);

function isTool(value: unknown): boolean {
  return isTable(value) && typeof value.name === 'string';
}

const optionsSchema = lazyOptions(() => ({
  tools: z._default(
    z.array(z.union([z.string(), z.custom<TestTool>(isTool, 'expected a tool with a name')])),
    () => [],
  ),
  principal: z.optional(z.string().check(z.minLength(1))),
  state: z.optional(z.string()),
  facts: givenFactsOption(),
  context: z.optional(z.unknown()),
  run: z.optional(z.string().check(z.regex(/^[\x21-\x7e]+$/))),
  now: z._default(z.number(), () => Date.now()),
  session: z._default(z.custom<SessionStoreOptions>(isTable, 'expected an object'), () => ({})),
  gate: z._default(z.custom<FsmGateOptions>(isTable, 'expected an object'), () => ({})),
  sync: z.optional(z.custom<StateSyncOptions>(isTable, 'expected an object')),
}));

/** Not inferred, since the declarations of the package must not name zod. */
interface Parsed {
  readonly tools: readonly (string | TestTool)[];
  readonly principal?: string | undefined;
  readonly state?: string | undefined;
  readonly facts?: readonly GivenFact[] | undefined;
  readonly context?: unknown;
  readonly run?: string | undefined;
  readonly now: number;
  readonly session: SessionStoreOptions;
  readonly gate: FsmGateOptions;
  readonly sync?: StateSyncOptions | undefined;
}

/** One client, one run and one server, with gates between them. Made by {@link testGate}. */
export class TestGate<E extends string = string, C extends string = string, X = Json | undefined> {
  /** The clock of the middlewares and the store. It stands still until the test moves it. */
  readonly clock: TestClock;
  /** The arguments of `onError`: failures that are not reported to a client. */
  readonly errors: readonly unknown[];
  /** The arguments of `onWarning`: likely mistakes. */
  readonly warnings: readonly string[];
  readonly #gates: readonly [AnyGate, ...AnyGate[]];
  readonly #options: Parsed;
  readonly #sessions: SessionMiddleware;
  readonly #upstream: TestUpstream;
  readonly #client: McpClient;
  readonly #known: ReadonlySet<string>;
  #begun: Promise<void> | undefined;
  #last: TestAnswer | undefined;

  constructor(gates: readonly [AnyGate, ...AnyGate[]], options: Parsed) {
    const { now, session, gate, sync, principal, tools, run } = options;
    const clock = new TestClock(now, () => this.#begin());
    const errors: unknown[] = [];
    const warnings: string[] = [];
    const observers = {
      onError: (error: unknown) => void errors.push(error),
      onWarning: (warning: string) => void warnings.push(warning),
    };
    this.clock = clock;
    this.errors = errors;
    this.warnings = warnings;
    this.#gates = gates;
    this.#options = options;
    const { onWarning = observers.onWarning } = session;
    this.#sessions = sessionStore({ ...observers, ...session, clock, principal: () => principal });
    const middlewares: [Middleware, ...Middleware[]] = [
      this.#sessions,
      ...gates.map((each) => fsmGate(each, { onWarning, ...gate, clock })),
      ...(sync === undefined ? [] : [stateSync(sync)]),
    ];
    const bound = gates.flatMap((each) => each.compile().toolNames);
    this.#upstream = new TestUpstream([...bound, ...tools], run);
    const send = gateFetch((request) => this.#upstream.serve(request), middlewares);
    this.#client = new McpClient(send, 'http://mcp.test/mcp', 'session');
    this.#known = new Set([...this.#upstream.toolNames, ...ownTools(options)]);
    this.#assertBeginning();
  }

  /**
   * Calls a tool, and resolves to what the client sees.
   *
   * @param result what the tool does if it runs. It answers with a text or a result, throws an
   * `Error` (one with a numeric `code` becomes a JSON-RPC error), or gives `NO_ANSWER`. A promise
   * of one of these keeps the call open. A function gets the arguments and the step, and returns
   * one of these. Default: a text.
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the server has no such tool
   */
  async call(
    tool: string,
    args: Readonly<Record<string, unknown>> = {},
    result: TestOutcome = `${tool} done`,
  ): Promise<TestAnswer> {
    if (!this.#known.has(tool)) throw unknownTool(tool, this.#known);
    await this.#begin();
    const id = this.#client.nextId();
    const awaited = this.#upstream.expect(id, async (request) =>
      typeof result === 'function' ? result(args, currentStep(request)) : result,
    );
    if (result instanceof Promise) result.catch(() => {});
    const reply = await this.#client.request('tools/call', { name: tool, arguments: args }, id);
    awaited.forget();
    const answer = answerOf(reply, awaited);
    this.#last = answer;
    // The claim of a call without an answer lives for one more lease.
    if (awaited.isUnanswered) await this.clock.advance(this.#options.gate.leaseMs ?? LEASE_MS);
    return answer;
  }

  /** The names of the tools that the client is shown now. */
  async list(): Promise<string[]> {
    await this.#begin();
    return this.#listed();
  }

  /** Why the gate refused the last call, or that of this answer; `undefined` if it did not. */
  refusal(answer: TestAnswer | undefined = this.#last): TestRefusal | undefined {
    return answer?.refusal;
  }

  /** The run's key: the session's, or the principal's where `session.key` says so. */
  async run(): Promise<string> {
    await this.#begin();
    return this.#runKey();
  }

  /** `runsOf()` of a gate, by default of the first one. */
  runs(): Runs<E>;
  runs(gate: AnyGate): Runs;
  runs(gate: AnyGate = this.#gates[0]): Runs {
    if (!this.#gates.includes(gate))
      throw configError(`runs(): expected one of the tested gates, got ${showValue(gate)}`);
    // Given explicitly: a later test may have mounted the gate with another `begin`.
    const { begin = () => undefined } = this.#options.gate;
    return runsOf(gate, { sessions: this.#sessions, begin });
  }

  /** The run's state now, after all deadlines that have passed. */
  state(): Promise<C>;
  state(gate: AnyGate): Promise<string>;
  async state(gate?: AnyGate): Promise<string> {
    return (await this.#view(gate)).state;
  }

  /** The run's shared data; of a statechart its context. */
  context(): Promise<X>;
  context(gate: AnyGate): Promise<Json | undefined>;
  async context(gate?: AnyGate): Promise<unknown> {
    return (await this.#view(gate)).context;
  }

  /** The run's trail, oldest entry first. */
  async history(gate: AnyGate = this.#gates[0]): Promise<TrailEntry[]> {
    return this.runs(gate).history(await this.run());
  }

  /** Moves the run by an event from outside, as `runs.send()` does. */
  async send(event: E, options?: SendOptions): Promise<Sent> {
    return this.runs().send(await this.run(), event, options);
  }

  /** Resolves a held call by its outcome, as `runs.resolve()` does. */
  async resolve(outcome: 'succeeded' | 'failed', options?: ResolveOptions<E>): Promise<Resolution> {
    return this.runs().resolve(await this.run(), outcome, options);
  }

  /** Closes the session store, so that nothing of the test is left in this process. */
  async close(): Promise<void> {
    await this.#sessions.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #view(gate = this.#gates[0]) {
    const run = await this.run();
    const view = await this.runs(gate).read(run);
    return view ?? { state: gate.compile().initial, context: undefined };
  }

  /** As every client does, opens a session and lists the tools. */
  async #begin(): Promise<void> {
    this.#begun ??= (async () => {
      const { result, status, body } = await this.#client.begin();
      if (result === undefined) throw new Error(`no session was opened: HTTP ${status}, ${body}`);
      await this.#place();
      await this.#listed();
    })();
    return this.#begun;
  }

  async #listed(): Promise<string[]> {
    const tools = await this.#client.tools();
    if (isReply(tools)) throw unanswered('tools/list', tools);
    return tools.map(({ name }) => String(name));
  }

  get #key(): RunKeyStrategy | undefined {
    const { key = defaultKeys() } = this.#options.session;
    // Its calls carry no id of a conversation.
    return parseKeys(key).find(({ kind }) => kind !== 'request');
  }

  #runKey(): string {
    const { principal } = this.#options;
    const key = this.#key;
    const { sessionId } = this.#client;
    if (key?.kind === 'session' && sessionId !== undefined) return key.runKey(sessionId);
    if (key?.kind === 'principal' && principal !== undefined) return key.runKey(principal);
    throw configError(
      'the run is named by a handle, or by nothing: ask runs(gate) for it by key.runKey(…)',
    );
  }

  /** Puts the run where the test begins, by a claim that it releases at once. */
  async #place(): Promise<void> {
    const { state, facts, context, principal } = this.#options;
    if (state === undefined && facts === undefined && context === undefined) return;
    const workflow = this.#gates[0].compile();
    const position = state === undefined ? workflow.start : { ...workflow.start, state };
    const calls = workflow.rules.givenFacts(facts ?? [], this.#runKey(), this.clock.now());
    const began = workflow.begunWith(position, { calls });
    const placed = context === undefined ? began : workflow.withData(began, context as Json);
    const { store, idleMs: ttlMs } = sessionsOf(this.#sessions).config;
    const key = { run: this.#runKey(), workflow: workflow.id };
    const token = newToken();
    await store.claim({
      ...key,
      token,
      step: { tool: '', digest: '', uncertain: 'retry' },
      states: undefined,
      // Only version 0 runs the entry actions of the initial state.
      initial: {
        ...placed,
        updatedAt: this.clock.now(),
        version: position === began && state === undefined ? 0 : 1,
      },
      create: { principal },
      leaseMs: 1,
      ttlMs,
    });
    await store.release(key, token);
  }

  #assertBeginning(): void {
    const { state, facts, context } = this.#options;
    if (state === undefined && facts === undefined && context === undefined) return;
    if (this.#gates.length > 1)
      throw configError('state, facts and context are those of one gate, and several are tested');
    const workflow = this.#gates[0].compile();
    if (state !== undefined && workflow.isOrder)
      throw configError('state: a run of rules stands where its calls have led: give "facts"');
    if (state !== undefined && !workflow.model.has(state))
      throw configError(`state: got ${showValue(state)}; ${rightNames(state, workflow.states)}`);
  }
}

/** The default of `fsmGate()`. */
const LEASE_MS = 8_000;

/**
 * A gate in a test, without a server or a socket: `sessionStore()`, `fsmGate()` and, with the
 * option `sync`, `stateSync()`. On one side they have a client, on the other side tools that do
 * what the test says. Give several gates as a list, in the order of mounting. Works with every test
 * runner.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function testGate<S extends string, E extends string, T extends string, C extends string, X>(
  gate: StateMachineGate<S, E, T, C, X>,
  options?: TestGateOptions<NoInfer<C>, NoInfer<X>>,
): TestGate<E, C, X>;
export function testGate(
  gates: readonly [AnyGate, ...AnyGate[]],
  options?: Omit<TestGateOptions, 'state' | 'facts' | 'context'>,
): TestGate;
export function testGate(given: unknown, options?: unknown): TestGate {
  const gates: readonly unknown[] = Array.isArray(given) ? given : [given];
  if (!isGates(gates))
    throw configError('expected a StateMachineGate or a list of them, got an empty array');
  const parsed = parseOptions('testGate()', optionsSchema, options);
  return new TestGate(gates, parsed);
}

function isGates(given: readonly unknown[]): given is readonly [AnyGate, ...AnyGate[]] {
  for (const each of given) assertGate('testGate()', each);
  return given.length > 0;
}

/** The tools that the middlewares add to those of the server. */
function ownTools({ gate, session }: Parsed): string[] {
  const { statusTool } = gate;
  const { key = defaultKeys() } = session;
  const starts = parseKeys(key).flatMap((each) => (each.kind === 'managed' ? each.start : []));
  const named = typeof statusTool === 'object' ? statusTool.name : statusTool;
  return named === undefined ? starts : [named, ...starts];
}

function answerOf(reply: Reply, { ran, isUnanswered }: ExpectedCall): TestAnswer {
  const { result, error } = reply;
  // A gate says nothing of a call that moves no run: the client's stream just ends.
  if (isUnanswered && result === undefined && error === undefined && reply.status < 400)
    return { outcome: 'unknown', text: '', ran };
  if (reply.status >= 400) throw unanswered('tools/call', reply);
  if (error !== undefined) return { outcome: 'rpc_error', text: error.message, ran, error };
  if (result === undefined) throw unanswered('tools/call', reply);
  const content = Array.isArray(result.content) ? result.content.filter(isObject) : [];
  const texts = content.map((block) => block.text).filter((each) => typeof each === 'string');
  const text = texts.join('\n');
  const meta = isObject(result._meta) ? result._meta : {};
  const refused = meta[`${META_PREFIX}refusal`];
  if (isRefusal(refused))
    return { outcome: 'refused', text, ran, result, refusal: { ...refused, text } };
  if (isObject(meta[`${META_PREFIX}outcome`])) return { outcome: 'unknown', text, ran, result };
  return { outcome: result.isError === true ? 'tool_error' : 'ok', text, ran, result };
}

function isRefusal(value: unknown): value is Refusal & { readonly reason: RefusalReason } {
  return isObject(value) && typeof value.reason === 'string' && Array.isArray(value.available);
}

/** The session has ended, or the middlewares refused the whole request. */
function unanswered(method: string, { status, body, error }: Reply): Error {
  const said = error?.message ?? body;
  const advice =
    status === 404
      ? '; a session that is idle for 24 hours is over: ' +
        'give session: { idleMs } more, as your server must'
      : '';
  return new Error(`${method} was not answered: HTTP ${status}, ${said}${advice}`);
}

function unknownTool(tool: string, known: ReadonlySet<string>): InterlockError {
  return configError(
    `no gate binds the tool ${showValue(tool)}; ${rightNames(tool, known)}. ` +
      'Give { tools } what the server has beside them',
  );
}

function configError(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', `testGate(): ${message}`);
}
