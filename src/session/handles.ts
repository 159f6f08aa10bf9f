/**
 * Runs that handles name. Each handle has a run before its client sees it, whether the upstream
 * made the handle or the middleware's own start tool.
 */
import { randomBytes } from 'node:crypto';
import { inWords } from '../basics/clock.ts';
import { configError } from '../basics/errors.ts';
import { newToken } from '../basics/names.ts';
import { persist } from '../step/store-calls.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { headerFault } from '../wire/headers.ts';
import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { Admission, RunKeeper } from './run.ts';
import { type HandleKey, isHandle, type ManagedHandle } from './run-key.ts';

/** How long a failing store is asked again for the run of a handle that the upstream has made. */
const RECORD_MS = 5_000;

/**
 * Makes runs for the handles that a request may bring. Resolves to `false` where it has answered
 * the request, because its headers contradict a call of the start tool.
 */
export async function serveHandles(
  exchange: Exchange,
  admission: Admission,
  keeper: RunKeeper,
): Promise<boolean> {
  const { requests } = exchange;
  const { binding } = admission.identity;
  for (const key of keeper.keys) {
    if (key.kind !== 'handle') continue;
    const creating = requests.filter((each) => key.createdBy.some((tool) => isCallOf(each, tool)));
    if (creating.length === 0) continue;
    const record = (handle: string): Promise<boolean> => {
      const run = key.runKey(handle, binding);
      const insisting = { clock: keeper.clock, forMs: RECORD_MS, onError: keeper.onError };
      return persist(() => ensureRun(keeper, run, binding), insisting).then(
        () => true,
        () => false,
      );
    };
    exchange.join(new CreatedHandles(exchange, admission, key, creating, record));
  }
  const { managed } = admission;
  if (managed === undefined) return true;
  if (requests.some(isFirstPage)) exchange.join(new StartToolList(exchange, managed, keeper));
  const starts = requests.filter((each) => isCallOf(each, managed.start));
  for (const call of starts) {
    const fault = headerFault(exchange.req, call, admission.era);
    if (fault === undefined) continue;
    await exchange.reject(400, fault.code, fault.message);
    return false;
  }
  for (const call of starts) {
    await call.answerWith(await startRun(call, admission, managed, keeper));
  }
  return true;
}

/** Makes the run where there is none. A claim that no state allows does that, and nothing else. */
async function ensureRun(
  { store, ttlOf }: RunKeeper,
  run: string,
  principal: string | undefined,
): Promise<void> {
  await store.claim({
    run,
    workflow: 'handle',
    token: newToken(),
    step: { tool: '', digest: '', uncertain: 'hold' },
    states: [],
    initial: { state: '', updatedAt: 0 },
    create: { principal },
    leaseMs: 1,
    ttlMs: ttlOf(run),
  });
}

function isCallOf(call: Call, tool: string): boolean {
  return call.method === 'tools/call' && call.named === tool;
}

/** Reads new handles off the results of the tools that make them. */
class CreatedHandles implements Filter {
  readonly stage = 'session';
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #key: HandleKey;
  /** Makes the run, and resolves to whether it could. */
  readonly #record: (handle: string) => Promise<boolean>;
  readonly #awaited: Set<RequestId>;

  constructor(
    exchange: Exchange,
    admission: Admission,
    key: HandleKey,
    calls: readonly Call[],
    record: (handle: string) => Promise<boolean>,
  ) {
    this.#exchange = exchange;
    this.#admission = admission;
    this.#key = key;
    this.#record = record;
    this.#awaited = new Set(calls.map(({ id }) => id).filter((id) => id !== undefined));
  }

  wants(): boolean {
    return this.#awaited.size > 0;
  }

  /** Makes the run before the client sees the handle. */
  async onMessage(message: Message): Promise<void> {
    const { id, method, result } = message.value;
    if (method !== undefined || !isRequestId(id) || !this.#awaited.delete(id)) return;
    const handle = message.at('result', 'structuredContent', this.#key.field);
    if (!isObject(result) || result.isError === true || !isHandle(handle)) return;
    if (await this.#record(String(handle))) return;
    const { argument } = this.#key;
    const text =
      '[System: what was made could not be recorded, so no gated tool takes this ' +
      `${JSON.stringify(argument)}. Make another one later.]`;
    message.insert(['result', 'content'], { type: 'text', text }, 'end');
  }

  onEnd(): JsonObject[] {
    this.#expectLate();
    return [];
  }

  onClose(): void {
    this.#expectLate();
  }

  /** The result may still come on a GET that resumes the stream. */
  #expectLate(): void {
    if (this.#admission.era !== 'session' || !this.#exchange.tap.resumable) return;
    for (const id of this.#awaited.values()) {
      this.#admission.session.late.expect(id, `handle ${this.#key.argument}`, (message) =>
        this.onMessage(message),
      );
    }
  }
}

/** The answer to a call of the start tool: a new handle, whose run is stored by then. */
async function startRun(
  call: Call,
  { era, identity }: Admission,
  managed: ManagedHandle,
  keeper: RunKeeper,
): Promise<JsonObject> {
  const id = call.id ?? null;
  const handle = randomBytes(24).toString('base64url');
  const run = managed.runKey(handle, identity.binding);
  try {
    await ensureRun(keeper, run, identity.binding);
  } catch (error) {
    keeper.onError(error);
    return errorResponse(
      id,
      JSON_RPC.INTERNAL_ERROR,
      'The run could not be recorded; try again later',
    );
  }
  const given = { [managed.argument]: handle };
  const use = `Pass ${JSON.stringify(given)} to each tool that asks for it.`;
  const text = `${use} ${lifetime(keeper.ttlOf(run))}`;
  const result = {
    content: [{ type: 'text', text }],
    structuredContent: given,
    ...(era === 'stateless' && { resultType: 'complete' }),
  };
  return { jsonrpc: '2.0', id, result };
}

/** Adds the start tool to the first page of a list. */
class StartToolList implements Filter {
  readonly stage = 'session';
  readonly #exchange: Exchange;
  readonly #managed: ManagedHandle;
  readonly #keeper: RunKeeper;

  constructor(exchange: Exchange, managed: ManagedHandle, keeper: RunKeeper) {
    this.#exchange = exchange;
    this.#managed = managed;
    this.#keeper = keeper;
  }

  /** That of any handle's run. */
  get #ttlMs(): number {
    return this.#keeper.ttlOf(this.#managed.runKey('', undefined));
  }

  wants(): boolean {
    return true;
  }

  pageKey(): string {
    const isFirst = this.#exchange.requests.some(isFirstPage);
    return isFirst ? JSON.stringify([this.#managed, this.#ttlMs]) : 'later page';
  }

  onMessage(message: Message): void {
    const { id } = message.value;
    const tools = message.at('result', 'tools');
    if (
      !Array.isArray(tools) ||
      !this.#exchange.requests.some((each) => each.id === id && isFirstPage(each))
    )
      return;
    const { start } = this.#managed;
    if (!tools.some((tool) => isObject(tool) && tool.name === start)) {
      message.insert(['result', 'tools'], startTool(this.#managed, this.#ttlMs), 'start');
      return;
    }
    this.#keeper.onError(
      configError(
        `managedHandle(): the upstream has a tool ${JSON.stringify(start)} of its own; ` +
          'choose another name for the start tool',
      ),
    );
    message.replace(errorResponse(id as RequestId, JSON_RPC.INTERNAL_ERROR, 'Internal error'));
  }
}

function startTool({ start, argument, description }: ManagedHandle, ttlMs: number): JsonObject {
  const returns = `Returns a "${argument}", which the other tools of the workflow ask for.`;
  return {
    name: start,
    description: `${description} ${returns} ${lifetime(ttlMs)}`,
    inputSchema: { type: 'object', properties: {} },
    outputSchema: {
      type: 'object',
      properties: { [argument]: { type: 'string' } },
      required: [argument],
    },
  };
}

/** "State the handle's lifetime" (MCP 2026-07-28, "Stateful Tools"). */
function lifetime(ttlMs: number): string {
  return `It expires ${inWords(ttlMs)} after its last use.`;
}

function isFirstPage({ method, message }: Call): boolean {
  return method === 'tools/list' && message.at('params', 'cursor') === undefined;
}
