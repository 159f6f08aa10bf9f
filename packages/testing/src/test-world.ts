/**
 * The server and the clock around a tested gate. Hides how the server answers anything but a tool
 * call, and the order of the timers.
 */
import { type Clock, InterlockError, type ToolResult } from '../../../src/index.ts';
import {
  isObject,
  JSON_RPC,
  type JsonObject,
  SESSION_HEADER,
  showValue,
} from '../../../src/internal.ts';

/** A tool in the server's list. */
export interface TestTool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly inputSchema?: object | undefined;
  /** Such as `{ idempotentHint: true }`, by which a gate may let a call be repeated. */
  readonly annotations?: object | undefined;
  readonly [member: string]: unknown;
}

/**
 * In place of a result: the server dies after the tool ran, so the outcome of the call is unknown.
 * The clock goes on by one lease. From then on the run is held, or the call may be tried again.
 */
export const NO_ANSWER: unique symbol = Symbol('mcp-interlock.no-answer');

/** What a tool does: it answers, throws, or dies with the server. */
export type TestResult = string | ToolResult | Error | typeof NO_ANSWER;

/** A call that is under way. */
export interface ExpectedCall {
  /** Whether the tool ran. */
  readonly ran: boolean;
  /** Whether it ran, and the server died. */
  readonly isUnanswered: boolean;
  /** Says that the call will not come any more. */
  forget(): void;
}

interface Expected extends ExpectedCall {
  ran: boolean;
  isUnanswered: boolean;
  readonly result: (request: Request) => Promise<TestResult>;
}

/** An MCP server without a transport. The test says before each call what the tool does. */
export class TestUpstream {
  readonly #tools: ReadonlyMap<string, JsonObject>;
  readonly #session: string | undefined;
  readonly #expected = new Map<unknown, Expected>();

  /**
   * @param tools a later entry of a name adds to the earlier ones
   * @param session the session id that the server gives
   */
  constructor(tools: readonly (string | TestTool)[], session: string | undefined) {
    const listed = new Map<string, JsonObject>();
    for (const tool of tools) {
      const said = typeof tool === 'string' ? { name: tool } : tool;
      listed.set(said.name, { inputSchema: { type: 'object' }, ...listed.get(said.name), ...said });
    }
    this.#tools = listed;
    this.#session = session;
  }

  get toolNames(): Iterable<string> {
    return this.#tools.keys();
  }

  /** Says what the tool does in the call of that id, if the call comes. */
  expect(id: number, result: (request: Request) => Promise<TestResult>): ExpectedCall {
    const forget = (): void => void this.#expected.delete(id);
    const expected: Expected = { ran: false, isUnanswered: false, result, forget };
    this.#expected.set(id, expected);
    return expected;
  }

  /** Answers a request that the middlewares forward. */
  async serve(request: Request): Promise<Response> {
    if (request.method !== 'POST')
      return new Response(null, { status: request.method === 'DELETE' ? 200 : 405 });
    const message: unknown = await request.clone().json();
    if (!isObject(message) || message.id === undefined) return new Response(null, { status: 202 });
    const { id, method } = message;
    const answer = (said: JsonObject, headers: Record<string, string> = {}): Response =>
      Response.json({ jsonrpc: '2.0', id, ...said }, { headers });
    switch (method) {
      case 'initialize':
        return answer(
          { result: SERVER },
          this.#session === undefined ? {} : { [SESSION_HEADER]: this.#session },
        );
      case 'tools/list':
        return answer({ result: { tools: [...this.#tools.values()] } });
      case 'tools/call': {
        const said = await this.#run(id, request);
        return said === undefined ? died() : answer(said);
      }
      default: {
        const error = { code: JSON_RPC.METHOD_NOT_FOUND, message: `Method not found: ${method}` };
        return answer({ error });
      }
    }
  }

  /** `undefined` where the server dies. */
  async #run(id: unknown, request: Request): Promise<JsonObject | undefined> {
    const expected = this.#expected.get(id);
    if (expected === undefined)
      return { error: { code: JSON_RPC.INVALID_PARAMS, message: 'Unknown call' } };
    expected.ran = true;
    const result = await expected.result(request).catch(thrown);
    if (result !== NO_ANSWER) return saidBy(result);
    expected.isUnanswered = true;
    return undefined;
  }
}

const SERVER = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {} },
  serverInfo: { name: 'mcp-interlock-testing', version: '1' },
};

function thrown(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** As the SDK's servers do, it makes a result with `isError` of what a tool throws. */
function saidBy(result: string | ToolResult | Error): JsonObject {
  if (typeof result === 'string') return { result: textResult(result) };
  if (!(result instanceof Error)) return { result };
  const { message } = result;
  if ('code' in result && typeof result.code === 'number')
    return { error: { code: result.code, message } };
  return { result: { ...textResult(message), isError: true } };
}

function textResult(text: string): JsonObject {
  return { content: [{ type: 'text', text }] };
}

/** A stream that ends without the result. */
function died(): Response {
  return new Response('', { headers: { 'content-type': 'text/event-stream' } });
}

interface Timer {
  readonly at: number;
  readonly task: () => void;
}

/** A clock that stands still until a test moves it. */
export class TestClock implements Clock {
  #now: number;
  readonly #timers = new Set<Timer>();
  readonly #begin: () => Promise<void>;

  /** @param begin is awaited before time goes on */
  constructor(now: number, begin: () => Promise<void>) {
    this.#now = now;
    this.#begin = begin;
  }

  /** Milliseconds since the epoch. */
  readonly now = (): number => this.#now;

  readonly after = (ms: number, task: () => void): (() => void) => {
    const timer = { at: this.#now + ms, task };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /**
   * Lets so many milliseconds pass. Before this resolves, all timers of that time have run in their
   * order, each with the work that it started.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for anything but a number from 0 on
   */
  async advance(ms: number): Promise<void> {
    if (typeof ms !== 'number' || !(ms >= 0 && Number.isFinite(ms)))
      throw new InterlockError(
        'ERR_INTERLOCK_CONFIG',
        `clock.advance(): expected milliseconds, from 0 on, got ${showValue(ms)}`,
      );
    await this.#begin();
    const end = this.#now + ms;
    for (let next = this.#nextUntil(end); next !== undefined; next = this.#nextUntil(end)) {
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.task();
      await turns();
    }
    this.#now = Math.max(this.#now, end);
    await turns();
  }

  #nextUntil(end: number): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers)
      if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }
}

/** Gives work under way in this process its turns, such as the renewal of a lease. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}
