import { randomBytes } from 'node:crypto';
import { InterlockError } from '../errors.ts';
import type { Exchange, Part } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { Admission } from './run.ts';
import type { ManagedHandle } from './run-key.ts';

/** How long handles live, and who is told of what goes wrong with them. */
interface StartKeeper {
  readonly ttlMs: number;
  readonly onError: (error: unknown) => void;
}

export interface Beginning {
  readonly admission: Admission;
  readonly managed: ManagedHandle;
  readonly keeper: StartKeeper;
  readonly make: (run: string) => Promise<void>;
  readonly binding: string | undefined;
}

/** Answers a call of the start tool with a new handle, whose run is kept by then. */
export async function begin(
  call: Incoming,
  { admission, managed, keeper, make, binding }: Beginning,
): Promise<JsonObject> {
  const id = call.id ?? null;
  const { era } = admission;
  const handle = randomBytes(24).toString('base64url');
  try {
    await make(managed.runKey(handle, binding));
  } catch (error) {
    keeper.onError(error);
    return errorResponse(
      id,
      JSON_RPC.INTERNAL_ERROR,
      'The run could not be recorded; try again later',
    );
  }
  const text = `Pass ${JSON.stringify({ [managed.argument]: handle })} to each tool that asks for it. ${lifetime(keeper.ttlMs)}`;
  const result = {
    content: [{ type: 'text', text }],
    structuredContent: { [managed.argument]: handle },
    ...(era === 'stateless' && { resultType: 'complete' }),
  };
  return { jsonrpc: '2.0', id, result };
}

/** Adds the start tool to the first page of a list. */
export class StartToolList implements Part {
  readonly stage = 'session';
  readonly #exchange: Exchange;
  readonly #managed: ManagedHandle;
  readonly #keeper: StartKeeper;

  constructor(exchange: Exchange, managed: ManagedHandle, keeper: StartKeeper) {
    this.#exchange = exchange;
    this.#managed = managed;
    this.#keeper = keeper;
  }

  wants(): boolean {
    return true;
  }

  pageKey(): string {
    const isFirst = this.#exchange.requests.some(isFirstPage);
    return isFirst ? JSON.stringify([this.#managed, this.#keeper.ttlMs]) : 'later page';
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
      message.insert(['result', 'tools'], startTool(this.#managed, this.#keeper.ttlMs), 'start');
      return;
    }
    this.#keeper.onError(
      new InterlockError(
        'ERR_INTERLOCK_CONFIG',
        `managedHandle(): the upstream has a tool ${JSON.stringify(start)} of its own; choose another name for the start tool`,
      ),
    );
    message.replace(errorResponse(id as RequestId, JSON_RPC.INTERNAL_ERROR, 'Internal error'));
  }
}

function startTool({ start, argument, description }: ManagedHandle, ttlMs: number): JsonObject {
  const says = `Returns a "${argument}", which the other tools of the workflow ask for. ${lifetime(ttlMs)}`;
  return {
    name: start,
    description: `${description} ${says}`,
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
  const [count, unit] = inUnits(ttlMs);
  return `It expires ${count} ${unit}${count === 1 ? '' : 's'} after its last use.`;
}

function inUnits(ms: number): [count: number, unit: string] {
  const minutes = ms / 60_000;
  if (minutes >= 120) return [Math.floor(minutes / 60), 'hour'];
  return minutes >= 1 ? [Math.floor(minutes), 'minute'] : [Math.ceil(ms / 1000), 'second'];
}

export function isFirstPage({ method, message }: Incoming): boolean {
  return method === 'tools/list' && message.at('params', 'cursor') === undefined;
}
