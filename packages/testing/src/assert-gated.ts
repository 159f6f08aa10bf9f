/** Tests whether a mounted route is gated. Hides how to ask a server without running a tool. */

import { AssertionError } from 'node:assert';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as z from 'zod/mini';
import { InterlockError, type StateMachineGate } from '../../../src/index.ts';
import {
  assertGate,
  availabilityNote,
  isObject,
  type JsonObject,
  lazyOptions,
  META_PREFIX,
  parseOptions,
  quoteNames,
  showValue,
  tableOption,
  type Workflow,
} from '../../../src/internal.ts';
import { type ClientEra, isReply, McpClient, type Reply, type Send } from './mcp-client.ts';

/** An app for Node's HTTP server, such as Express or Connect. */
export type NodeApp = RequestListener & { listen(...args: never[]): unknown };

/** An MCP server: its URL, an app, or a handler of the Fetch API. */
export type GatedTarget =
  | string
  | URL
  | NodeApp
  | { fetch(request: Request): Response | Promise<Response> }
  | ((request: Request) => Response | Promise<Response>);

/** Options of {@link assertGated}. */
export interface AssertGatedOptions {
  /** Headers of each request, such as `authorization`. Default: none. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The route of an app or a handler. Default `'/mcp'`. */
  readonly path?: string | undefined;
}

/** The findings of {@link assertGated}. */
export interface Gated {
  /** The eras that the server speaks. All of them are gated. */
  readonly eras: readonly ClientEra[];
  /** The tool that was refused. */
  readonly tool: string;
}

const optionsSchema = lazyOptions(() => ({
  headers: z._default(tableOption(), () => ({})),
  path: z._default(z.string().check(z.startsWith('/')), '/mcp'),
}));

/** The host of apps and handlers, which no request looks up. */
const LOCAL = 'http://localhost';
/** How long a server may take for one answer, in milliseconds. */
const ANSWER_MS = 10_000;
/** Another gate of the route may refuse some tools: this gate must refuse one of so many. */
const MOST_TOOLS = 20;
/** Arguments that every gate refuses in every state. `JSON.stringify` keeps the key. */
const NEVER_RUN: unknown = JSON.parse('{"__proto__":null}');

/**
 * Asserts that a server's route is behind the gate, in each era that the server speaks. The list
 * must hide a tool that the initial state does not allow, or say where it is available. And this
 * gate must refuse a call of it. Calls no tool that could run, and needs no MCP SDK.
 *
 * Serves an app for Node on a free port meanwhile. Where principals name the runs, give `headers`
 * of a principal whose run has not begun.
 *
 * @throws AssertionError where the route is not gated; its message says what to do
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the initial state allows every bound tool, so
 * that there is nothing to ask
 */
export async function assertGated<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  target: GatedTarget,
  options?: AssertGatedOptions,
): Promise<Gated> {
  assertGate('assertGated()', gate);
  const { headers, path } = parseOptions('assertGated()', optionsSchema, options);
  const workflow = gate.compile();
  const tools = refusedAtStart(workflow);
  const own = Object.entries(headers).map(([name, value]) => [name, String(value)] as const);
  const place = await placeOf(target, path);
  try {
    const eras: ClientEra[] = [];
    const seen: Reply[] = [];
    let refused: string | undefined;
    for (const era of ['session', 'stateless'] as const) {
      const client = new McpClient(place.send, place.url, era, Object.fromEntries(own));
      const began = await client.begin();
      seen.push(began);
      if (began.result === undefined) continue;
      eras.push(era);
      try {
        refused = await assertRefuses(client, workflow, tools);
      } finally {
        await client.end();
      }
    }
    if (refused === undefined) throw failure(notMcp(place.url, seen), seen.map(said), 'an answer');
    return { eras, tool: refused };
  } finally {
    await place.close();
  }
}

/** The tools that no new run may call. */
function refusedAtStart(workflow: Workflow): readonly string[] {
  const { id, initial, toolNames } = workflow;
  const refused = toolNames.filter((tool) => !workflow.isVisible(tool, initial));
  if (refused.length > 0) return refused.slice(0, MOST_TOOLS);
  throw configError(
    `the initial state ${showValue(initial)} of ${showValue(id)} refuses none of its tools, ` +
      `which are ${quoteNames(toolNames)}; use testGate() for what later states refuse`,
  );
}

/** Resolves to a tool that this gate has refused. */
async function assertRefuses(
  client: McpClient,
  workflow: Workflow,
  tools: readonly string[],
): Promise<string> {
  const { id, initial } = workflow;
  const listed = await client.tools();
  if (isReply(listed))
    throw failure(`the server did not list its tools: ${said(listed)}`, said(listed), 'a list');
  let last = '';
  for (const tool of tools) {
    const shown = listed.find(({ name }) => name === tool);
    const isNoted = shown !== undefined && isGatedNote(shown, workflow, tool);
    if (shown !== undefined && !isNoted)
      throw failure(
        `the list shows ${showValue(tool)}, which ${showValue(id)} does not allow in its initial ` +
          `state ${showValue(initial)}. ${mountIt(id)} Or the headers are those of a principal ` +
          'whose run has moved on: take those of another one',
        'shown',
        'hidden',
      );
    const args = isNoted ? NEVER_RUN : {};
    const reply = await client.request('tools/call', { name: tool, arguments: args });
    const refusal = refusalIn(reply);
    if (refusal?.workflow === id) return tool;
    last = said(reply);
    if (refusal === undefined) {
      throw failure(
        `a call of ${showValue(tool)} was not refused by ${showValue(id)}, but answered ${last}. ` +
          `${mountIt(id)} A gate with refusal: 'unknown-tool' looks like none: leave ` +
          'that out in the test',
        last,
        `a refusal of ${id}`,
      );
    }
  }
  throw failure(
    `another gate refused each of ${quoteNames(tools)}, and ${showValue(id)} none. ${mountIt(id)}`,
    last,
    `a refusal of ${id}`,
  );
}

function mountIt(id: string): string {
  return (
    `Mount fsmGate() of ${showValue(id)} on this very route, in front of the handler: ` +
    "app.all('/mcp', sessionStore(), fsmGate(gate), handler)."
  );
}

/** Whether the description of a listed tool says where the gate allows it. */
function isGatedNote({ description }: JsonObject, workflow: Workflow, tool: string): boolean {
  const place = workflow.whereabouts(tool, () => ({ path: undefined, foreseen: false }));
  if (place === undefined || typeof description !== 'string') return false;
  return description.includes(availabilityNote(place).slice(0, -1));
}

function refusalIn({ result }: Reply): JsonObject | undefined {
  const meta = result?._meta;
  const refusal = isObject(meta) ? meta[`${META_PREFIX}refusal`] : undefined;
  return isObject(refusal) ? refusal : undefined;
}

/** An answer in the words of a message. */
function said({ status, body }: Reply): string {
  return `HTTP ${status} ${showValue(body)}`;
}

function notMcp(url: string, seen: readonly Reply[]): string {
  const isForbidden = seen.some(({ status }) => status === 401 || status === 403);
  const advice = isForbidden
    ? 'Give { headers } with what authenticates'
    : 'Give the URL or the { path } of its MCP route';
  return `no MCP server answers at ${url}: ${seen.map(said).join(', then ')}. ${advice}`;
}

interface Place {
  readonly url: string;
  readonly send: Send;
  close(): Promise<void>;
}

async function placeOf(target: unknown, path: string): Promise<Place> {
  const close = async (): Promise<void> => {};
  if (typeof target === 'string' || target instanceof URL) {
    const url = String(target);
    if (!URL.canParse(url)) throw configError(`expected a URL, got ${showValue(url)}`);
    return { url, send: (request) => fetched(request), close };
  }
  if (isNodeApp(target)) return serve(target, path);
  const url = `${LOCAL}${path}`;
  if (hasFetch(target)) return { url, send: async (request) => target.fetch(request), close };
  if (isHandler(target)) return { url, send: async (request) => target(request), close };
  throw configError(
    `expected a URL, an app or a handler of the Fetch API, got ${showValue(target)}`,
  );
}

function isNodeApp(target: unknown): target is NodeApp {
  return typeof target === 'function' && 'listen' in target && typeof target.listen === 'function';
}

function hasFetch(target: unknown): target is { fetch: Send } {
  return (
    typeof target === 'object' &&
    target !== null &&
    'fetch' in target &&
    typeof target.fetch === 'function'
  );
}

function isHandler(target: unknown): target is Send {
  return typeof target === 'function';
}

async function serve(app: RequestListener, path: string): Promise<Place> {
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}${path}`,
    send: (request) => fetched(request),
    async close() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function fetched(request: Request): Promise<Response> {
  try {
    return await fetch(request, { signal: AbortSignal.timeout(ANSWER_MS) });
  } catch (error) {
    const { cause = error } = error instanceof Error ? error : {};
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw failure(
      `${request.url} cannot be reached: ${reason}. ` +
        'Start the server before, or give its app in place of a URL',
      'no answer',
      'an answer',
    );
  }
}

function failure(message: string, actual: unknown, expected: unknown): AssertionError {
  return new AssertionError({
    message: `assertGated(): ${message}`,
    actual,
    expected,
    operator: 'assertGated',
  });
}

function configError(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', `assertGated(): ${message}`);
}
