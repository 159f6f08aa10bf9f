/**
 * Plays a case on one side, and writes down all that could be seen of it. Hides how clients, their
 * server and the operator speak to the gates.
 */

import type { InterlockEvent, RunKeyStrategy, SessionMiddleware } from '../../src/index.ts';
import type { Runs, RunView } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { type AnyGate, beginOf, makeGate, makeLaterGate } from './build.ts';
import type { Case, ClientSpec, Deed, KeyName, Message, Operation, RouteSpec } from './cases.ts';
import type { Side } from './side.ts';
import { settled, World, withoutChance } from './world.ts';

/** What was seen of a case: a line for each thing, in groups by operation. */
export interface Played {
  readonly lines: readonly string[];
  /** How often each reason of a refusal was met, as `call state` or `read guard`. */
  readonly reasons: ReadonlyMap<string, number>;
}

/** Waits long enough for each deadline, lease, turn and step of a case. */
const TO_THE_END_MS = 800_000;

export async function play(side: Side, { route, operations }: Case): Promise<Played> {
  const notes = new Notes();
  let scene: Scene;
  try {
    scene = new Scene(side, route, notes);
  } catch (error) {
    return { lines: [`made ${wordsOf(error)}`], reasons: notes.reasons };
  }
  notes.end('made');
  for (const [i, operation] of operations.entries()) {
    await scene.operate(operation);
    notes.end(`${i} ${JSON.stringify(operation).slice(0, 300)}`);
  }
  await scene.finish();
  notes.end('the end');
  return { lines: withoutChance(notes.lines.join('\n')).split('\n'), reasons: notes.reasons };
}

/** What was seen, by operation. Answers are sorted by request, since they are independent. */
class Notes {
  readonly lines: string[] = [];
  readonly reasons = new Map<string, number>();
  readonly #calls = new Map<number, number>();
  #answers: string[] = [];
  #others: string[] = [];

  readonly answer = (what: string): void => void this.#answers.push(what);

  readonly note = (what: string): void => void this.#others.push(what);

  readonly onEvent = (event: InterlockEvent): void => {
    // A process asks for it on a beat of its own, and not for a call.
    if ('operation' in event && event.operation === 'readSwitch') return;
    if (event.type === 'call.refused' || event.type === 'read.refused') {
      const key = `${event.type.slice(0, 4)} ${event.reason}`;
      this.reasons.set(key, (this.reasons.get(key) ?? 0) + 1);
    }
    // The digest of a random key is random too.
    const run = 'runKey' in event ? { run: event.runKey } : {};
    const call =
      'call' in event && event.call !== undefined ? { call: this.#call(event.call) } : {};
    const request = 'request' in event ? { request: this.#call(event.request) } : {};
    this.note(`event ${JSON.stringify({ ...event, ...run, ...call, ...request })}`);
  };

  readonly onError = (error: unknown): void => this.note(`error ${wordsOf(error)}`);

  readonly onWarning = (warning: string): void => this.note(`warning ${warning}`);

  /** A side counts the requests of all cases; here those of this case are counted. */
  #call(number: number): number {
    const known = this.#calls.get(number) ?? this.#calls.size + 1;
    this.#calls.set(number, known);
    return known;
  }

  end(title: string): void {
    this.lines.push(`# ${title}`, ...[...this.#answers.sort(), ...this.#others].map(oneLine));
    this.#answers = [];
    this.#others = [];
  }
}

function oneLine(text: string): string {
  return text.replaceAll('\n', '\\n');
}

function wordsOf(error: unknown): string {
  const words: string[] = [];
  for (let next = error, left = 4; next !== undefined && left > 0; left--) {
    if (!(next instanceof Error)) return [...words, String(next)].join(' < ');
    const code: unknown = 'code' in next ? next.code : '';
    words.push(`${next.constructor.name} ${String(code)} ${next.message}`);
    next = next.cause;
  }
  return words.join(' < ');
}

interface Client extends ClientSpec {
  session?: string | undefined;
  /** The last handle that it was given. */
  handle: string | undefined;
  /** The ids of its calls. */
  readonly calls: number[];
}

class Scene {
  readonly #side: Side;
  readonly #route: RouteSpec;
  readonly #notes: Notes;
  readonly #world = new World();
  readonly #store: AtomicStateStore;
  readonly #gates: readonly AnyGate[];
  readonly #later: readonly AnyGate[];
  readonly #keys: readonly RunKeyStrategy[];
  readonly #clients: readonly Client[];
  readonly #upstream: Upstream;
  #sessions: SessionMiddleware;
  #send: (request: Request) => Promise<Response>;
  #runs: readonly Runs[];
  #ids = 0;
  #started = 0;

  constructor(side: Side, route: RouteSpec, notes: Notes) {
    this.#side = side;
    this.#route = route;
    this.#notes = notes;
    const world = this.#world;
    this.#store = world.faulty(side.memoryStore({ now: world.now }));
    this.#gates = route.gates.map((spec) => makeGate(side, spec, notes.note));
    this.#later = route.gates.map((spec) => makeLaterGate(side, spec));
    this.#keys = route.key.map((name) => keyNamed(side, name));
    this.#clients = route.clients.map((spec) => ({ ...spec, handle: undefined, calls: [] }));
    this.#upstream = new Upstream(side, route, notes);
    [this.#sessions, this.#send, this.#runs] = this.#mount();
  }

  /** A process: its own middlewares in front of the same server and the same store. */
  #mount(): readonly [SessionMiddleware, (request: Request) => Promise<Response>, readonly Runs[]] {
    const { sessionStore, fsmGate, gateFetch, runsOf } = this.#side;
    const { onError, onWarning, onEvent } = this.#notes;
    const clock = { now: this.#world.now, after: this.#world.after };
    const sessions = sessionStore({
      ...this.#route.session,
      store: this.#store,
      key: [...this.#keys],
      principal: ({ headers }) => headers['x-user'] as string | undefined,
      clock,
      onError,
      onWarning,
      onEvent,
    });
    const gates = this.#route.gates.map((spec, i) =>
      fsmGate(this.#gate(i), { onWarning, ...spec.mount, begin: beginOf(spec), clock }),
    );
    const send = gateFetch((request) => this.#upstream.serve(request), [sessions, ...gates]);
    return [sessions, send, this.#gates.map((gate) => runsOf(gate, { sessions }) as Runs)];
  }

  #gate(index: number): AnyGate {
    const gate = this.#gates[index];
    if (gate === undefined) throw new RangeError(`the case has no gate ${index}`);
    return gate;
  }

  async operate(operation: Operation): Promise<void> {
    switch (operation.do) {
      case 'send':
        await this.#sendMessages(this.#client(operation.client), operation);
        break;
      case 'cancel': {
        const client = this.#client(operation.client);
        const requestId = client.calls.at(-1) ?? 0;
        const body = message('notifications/cancelled', JSON.stringify({ requestId }));
        this.#start(`cancel ${requestId}`, this.#post(client, [body], {}));
        break;
      }
      case 'release':
        this.#upstream.release(operation.deed);
        break;
      case 'wait':
        await this.#world.wait(operation.ms);
        break;
      case 'end': {
        const client = this.#client(operation.client);
        if (client.session === undefined) break;
        const headers = headersOf(client, [], {});
        const request = new Request(URL_OF_ROUTE, { method: 'DELETE', headers });
        this.#start('end', this.#send(request));
        break;
      }
      case 'store':
        this.#world.failing = operation.fails;
        break;
      case 'outdate':
        await this.#outdate(this.#client(operation.client), operation.gate);
        break;
      case 'reboot':
        [this.#sessions, this.#send, this.#runs] = this.#mount();
        break;
      case 'close':
        void this.#sessions.close().catch(this.#notes.onError);
        break;
      case 'run':
        this.#askRuns(operation);
        break;
    }
    await settled();
  }

  /** Ends what is open, and writes down where each run stands. */
  async finish(): Promise<void> {
    this.#world.failing = 'none';
    this.#upstream.releaseAll();
    await settled();
    await this.#world.wait(TO_THE_END_MS);
    for (const client of this.#clients) {
      const run = this.#runOf(client);
      for (const [i, runs] of this.#runs.entries()) {
        this.#start(`run ${i} ${run}`, said(this.#standing(i, runs, run)));
        this.#start(`trail ${i} ${run}`, said(runs.history(run)));
      }
    }
    await settled();
    void this.#sessions.close().catch(this.#notes.onError);
    await settled();
  }

  async #standing(gate: number, runs: Runs, run: string): Promise<unknown> {
    const view = await runs.read(run);
    const explained = this.#side.explain(this.#gate(gate), view);
    return { view, explained };
  }

  #client(index: number): Client {
    const client = this.#clients[index];
    if (client === undefined) throw new RangeError(`the case has no client ${index}`);
    return client;
  }

  async #sendMessages(
    client: Client,
    { messages, header }: Extract<Operation, { do: 'send' }>,
  ): Promise<void> {
    if (client.era === 'session' && client.session === undefined) await this.#begin(client);
    const bodies = messages.map(({ method, params, deed }) => {
      const id = ++this.#ids;
      this.#upstream.expect(id, deed);
      if (method === 'tools/call') client.calls.push(id);
      const given = params.replaceAll('$handle', client.handle ?? 'none');
      return message(method, client.era === 'stateless' ? claimed(given) : given, id);
    });
    const headers = headersOf(client, messages, { wrong: header });
    const sent = this.#post(client, bodies, headers);
    this.#start(`answer ${this.#ids}`, sent, (body) => {
      const [, handle] = /"(?:basket|run)":"?([\w-]+)"?/.exec(body) ?? [];
      client.handle = handle ?? client.handle;
    });
  }

  async #begin(client: Client): Promise<void> {
    const params =
      '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}';
    const sent = this.#post(client, [message('initialize', params, ++this.#ids)], {});
    this.#start(
      `initialize ${this.#ids}`,
      sent.then((response) => {
        client.session = response.headers.get(SESSION) ?? undefined;
        return response;
      }),
    );
    await settled();
  }

  #post(
    client: Client,
    bodies: readonly string[],
    headers: Readonly<Record<string, string>>,
  ): Promise<Response> {
    const body = bodies.length === 1 ? (bodies[0] ?? '') : `[${bodies.join()}]`;
    const all = { ...headersOf(client, [], { isBatch: bodies.length > 1 }), ...headers };
    return this.#send(new Request(URL_OF_ROUTE, { method: 'POST', headers: all, body }));
  }

  /** Writes down what comes of it, whenever that is. */
  #start(what: string, made: Promise<Response | string>, seen?: (body: string) => void): void {
    const { answer } = this.#notes;
    // The number sorts what comes at once: the rest may differ in drawn names.
    const about = `${String(++this.#started).padStart(3, '0')} ${what}`;
    made
      .then(async (response) => {
        if (typeof response === 'string') return response;
        const body = await response.text();
        seen?.(body);
        const headers = JSON.stringify([...response.headers].sort());
        return `${response.status} ${headers} ${body}`;
      })
      .then(
        (text) => answer(`${about}: ${text}`),
        (error: unknown) => answer(`${about} failed: ${wordsOf(error)}`),
      );
  }

  /** The key of the client's run, by the first strategy that names one. */
  #runOf({ session, principal, handle }: Client): string {
    for (const key of this.#keys) {
      if (key.kind === 'session' && session !== undefined) return key.runKey(session);
      if (key.kind === 'principal' && principal !== undefined) return key.runKey(principal);
      if ((key.kind === 'handle' || key.kind === 'managed') && handle !== undefined)
        return key.runKey(handle, principal);
    }
    return 'no run';
  }

  /** Another deployment of the app moves the run to where this one cannot read it. */
  async #outdate(client: Client, gate: number): Promise<void> {
    const later = this.#later[gate];
    if (later === undefined) return;
    // With sessions, since the store alone would be asked by the system's clock.
    const sessions = this.#side.sessionStore({
      store: this.#store,
      clock: { now: this.#world.now, after: this.#world.after },
      onError: () => {},
      onWarning: () => {},
    });
    const moved = this.#side.runsOf(later, { sessions }).send(this.#runOf(client), 'GO');
    moved.catch(() => {});
    await settled();
  }

  #askRuns(operation: Extract<Operation, { do: 'run' }>): void {
    const { gate: index, what } = operation;
    const runs = this.#runs[index];
    if (runs === undefined) throw new RangeError(`the case has no gate ${index}`);
    const run = this.#runOf(this.#client(operation.client));
    this.#start(`${what} ${++this.#ids}`, said(this.#ask(runs, this.#gate(index), run, operation)));
  }

  async #ask(
    runs: Runs,
    gate: AnyGate,
    run: string,
    { what, argument = '' }: Extract<Operation, { do: 'run' }>,
  ): Promise<unknown> {
    const { explain, heldOutcomes, whatIf } = this.#side;
    const actor = 'operator';
    switch (what) {
      case 'read':
        return runs.read(run);
      case 'explain': {
        const view = await runs.read(run);
        return { explained: explain(gate, view), held: view && heldOutcomes(gate, view) };
      }
      case 'what-if': {
        const view = await runs.read(run);
        return whatIf(gate, view, moveNamed(argument, view));
      }
      case 'send':
        return runs.send(run, argument, { actor, payload: { n: 2 } });
      case 'restart':
        return runs.restart(run, { actor });
      case 'freeze':
        return runs.freeze(run, { actor, note: 'look at it' });
      case 'unfreeze':
        return runs.unfreeze(run, { actor, note: 'it is well' });
      case 'resolve':
        if (argument === 'event') return runs.resolve(run, 'succeeded', { actor, event: 'E1' });
        if (argument === 'none') return runs.resolve(run, 'succeeded', { actor, event: null });
        return runs.resolve(run, argument === 'failed' ? 'failed' : 'succeeded', { note: 'seen' });
      case 'update':
        return runs.update(run, () => {
          if (argument === 'throws') throw new Error('a change throws');
          return { n: argument === 'n9' ? 9 : 1 };
        });
      case 'begin':
        return runs.begin(run, { actor });
      case 'held':
        return runs.held();
      case 'stuck':
        return runs.stuck({ forMs: 5_000 });
      case 'count':
        return runs.count({ forMs: 5_000 });
      case 'history':
        return runs.history(run);
      case 'sweep':
        return runs.sweep();
      case 'delete':
        return runs.delete(run);
      default:
        throw new Error(`a case asks runs for nothing known: ${what}`);
    }
  }
}

function moveNamed(name: string, view: RunView | undefined) {
  if (name === 'deadline') return { deadline: true } as const;
  if (name.startsWith('E')) return { event: name, payload: { n: 2 } };
  const outcome = view?.status === 'held' ? 'failed' : 'succeeded';
  return { tool: name, outcome, event: 'E0' } as const;
}

/** The JSON of what it resolves to. */
async function said(made: Promise<unknown>): Promise<string> {
  return JSON.stringify(await made) ?? 'undefined';
}

function keyNamed(side: Side, name: KeyName): RunKeyStrategy {
  switch (name) {
    case 'session':
      return side.sessionKey();
    case 'principal':
      return side.principalKey();
    case 'handle':
      return side.handleKey('basket', { createdBy: 'make' });
    case 'managed':
      return side.managedHandle({ start: 'begin', argument: 'run' });
  }
}

const URL_OF_ROUTE = 'http://mcp.test/mcp';
const SESSION = 'mcp-session-id';
const CLAIM =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",' +
  '"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},' +
  '"io.modelcontextprotocol/clientCapabilities":{}}';

function message(method: string, params: string, id?: number): string {
  const text = id === undefined ? '' : `"id":${id},`;
  return `{"jsonrpc":"2.0",${text}"method":"${method}","params":${params}}`;
}

/** The params with what each request of the stateless era says of itself. */
function claimed(params: string): string {
  if (!params.startsWith('{')) return params;
  return params === '{}' ? `{${CLAIM}}` : `{${CLAIM},${params.slice(1)}`;
}

function headersOf(
  { era, session, principal }: Client,
  messages: readonly Message[],
  { isBatch = false, wrong }: { readonly isBatch?: boolean; readonly wrong?: string | undefined },
): Record<string, string> {
  const [first] = messages;
  const version = era === 'stateless' ? '2026-07-28' : isBatch ? '2025-03-26' : '2025-11-25';
  const isStateless = era === 'stateless' && first !== undefined;
  return {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': version,
    ...(session !== undefined && { [SESSION]: session }),
    ...(principal !== undefined && { 'x-user': principal }),
    ...(isStateless && { 'mcp-method': first.method }),
    ...(isStateless && first.name !== undefined && { 'mcp-name': first.name }),
    ...(wrong === 'name' && { 'mcp-name': 'another' }),
    ...(wrong === 'method' && { 'mcp-method': 'tools/list' }),
    ...(wrong === 'mirror' && { 'mcp-param-act': 'z' }),
    ...(wrong === 'version' && { 'mcp-protocol-version': '2026-07-28' }),
  };
}

/** The MCP server behind the gates. */
class Upstream {
  readonly #side: Side;
  readonly #tools: readonly object[];
  readonly #notes: Notes;
  readonly #deeds = new Map<unknown, Deed>();
  readonly #latched: ((deed: Deed) => void)[] = [];
  #sessions = 0;
  #handles = 0;

  constructor(side: Side, { tools }: RouteSpec, notes: Notes) {
    this.#side = side;
    this.#tools = tools;
    this.#notes = notes;
  }

  expect(id: number, deed: Deed): void {
    this.#deeds.set(id, deed);
  }

  /** Lets the call that has been open for longest do that. */
  release(deed: Deed): void {
    this.#latched.shift()?.(deed === 'latched' ? 'ok' : deed);
  }

  releaseAll(): void {
    for (const open of this.#latched.splice(0)) open('ok');
  }

  async serve(request: Request): Promise<Response> {
    const { method } = request;
    if (method !== 'POST') return new Response(null, { status: method === 'DELETE' ? 200 : 405 });
    const text = await request.clone().text();
    this.#notes.note(`upstream ${text}`);
    const body: unknown = JSON.parse(text);
    if (!Array.isArray(body)) return this.#answer(request, body);
    const answers = await Promise.all(body.map((each) => this.#answer(request, each)));
    const parts = await Promise.all(answers.map((each) => each.text()));
    const said = parts.filter((part) => part.startsWith('{'));
    if (said.length === 0) return new Response(null, { status: 202 });
    return new Response(`[${said.join()}]`, { headers: { 'content-type': 'application/json' } });
  }

  async #answer(request: Request, sent: unknown): Promise<Response> {
    const { id, method, params } = sent as { id?: unknown; method?: unknown; params?: unknown };
    if (id === undefined) return new Response(null, { status: 202 });
    const answer = (said: object, headers: Record<string, string> = {}): Response =>
      Response.json({ jsonrpc: '2.0', id, ...said }, { headers });
    switch (method) {
      case 'initialize':
        return answer({ result: SERVER }, { [SESSION]: `session-${++this.#sessions}` });
      case 'tools/list':
        return answer({ result: { tools: this.#tools } });
      case 'prompts/list':
        return answer({ result: { prompts: ['p0', 'p1', 'p2', 'p3'].map((name) => ({ name })) } });
      case 'resources/list':
        return answer({ result: { resources: RESOURCES } });
      case 'resources/templates/list':
        return answer({
          result: { resourceTemplates: [{ uriTemplate: 'docs://a/{n}', name: 'a' }] },
        });
      case 'prompts/get':
        return answer({ result: { messages: [] } });
      case 'resources/read':
        return answer({ result: { contents: [] } });
      case 'tools/call':
        return this.#call(request, id, params, answer);
      default:
        return answer({ result: {} });
    }
  }

  async #call(
    request: Request,
    id: unknown,
    params: unknown,
    answer: (said: object) => Response,
  ): Promise<Response> {
    const { name } = params as { name?: unknown };
    const isKnown = this.#tools.some((tool) => Reflect.get(tool, 'name') === name);
    if (!isKnown) return answer({ error: { code: -32602, message: `Unknown tool: ${name}` } });
    let deed = this.#deeds.get(id) ?? 'ok';
    if (deed === 'latched') deed = await new Promise((resolve) => this.#latched.push(resolve));
    const step = this.#side.currentStep(request);
    const result = { content: [{ type: 'text', text: `${name} done` }] };
    switch (deed) {
      case 'error':
        return answer({ result: { ...result, isError: true } });
      case 'rpc-error':
        return answer({ error: { code: -32000, message: 'the tool failed' } });
      case 'dies':
        return new Response('', { headers: { 'content-type': 'text/event-stream' } });
      case 'limited':
        return new Response('slow down', { status: 429 });
      case 'asks':
        return answer({ result: { resultType: 'input_required', inputRequests: {} } });
      case 'updates':
        step?.update(() => ({ n: 6 }));
        return answer({ result });
      case 'doubts':
        step?.unknown('the provider timed out');
        return answer({ result });
      default:
        if (name !== 'make') return answer({ result });
        return answer({
          result: { ...result, structuredContent: { basket: `b${++this.#handles}` } },
        });
    }
  }
}

const SERVER = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {}, prompts: {}, resources: {}, completions: {} },
  serverInfo: { name: 'upstream', version: '1' },
};

const RESOURCES = ['docs://a/1', 'docs://a/2', 'docs://b/1', 'docs://c'].map((uri) => ({
  uri,
  name: uri,
}));
