import { expect, it, onTestFinished } from 'vitest';
import { fsmGate, type InterlockEvent, type Middleware, sessionStore } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { FOUR_UPSTREAMS } from '../helpers/four-upstreams.ts';
import { type RawRequest, type RawResponse, send } from '../helpers/raw.ts';
import { startUpstream } from '../helpers/upstream.ts';

const initialize = {
  jsonrpc: '2.0',
  id: 'hello',
  method: 'initialize',
  params: {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'a client', version: '1' },
  },
};
const call = (id: unknown, name: string, args: unknown = {}) => ({
  ...{ jsonrpc: '2.0', id, method: 'tools/call' },
  params: { name, arguments: args },
});
const stateless = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'a client', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
};

/** Well and ill formed, in order and out of order, in and out of a session. */
const REQUESTS: readonly (RawRequest & { readonly inSession?: boolean })[] = [
  { body: initialize },
  { inSession: true, body: { jsonrpc: '2.0', method: 'notifications/initialized' } },
  { inSession: true, body: { jsonrpc: '2.0', id: 1, method: 'tools/list' } },
  { inSession: true, body: call(2, 'cart.pay') },
  { inSession: true, body: call(3, 'cart.add_item', { sku: 'x' }) },
  { inSession: true, body: call(4, 'cart.add_item', { fail: true }) },
  { inSession: true, body: call(5, 'cart.nothing') },
  { inSession: true, body: call(6, 'cart.view', { sku: 7 }) },
  { inSession: true, body: [call(7, 'cart.pay'), call(8, 'cart.view')] },
  { inSession: true, body: [] },
  { inSession: true, body: 'not JSON' },
  { inSession: true, body: '{"jsonrpc":"2.0","id":9,"id":10,"method":"tools/list"}' },
  { inSession: true, body: call(11, 'cart.add_item', { sku: 'x'.repeat(5_000) }) },
  { inSession: true, body: call(12, 'cart.checkout'), headers: { accept: 'application/json' } },
  { inSession: true, body: call(13, 'cart.view'), headers: { 'accept-encoding': 'gzip, br' } },
  { inSession: true, body: { jsonrpc: '2.0', id: 14, method: 'ping' } },
  { body: call(15, 'cart.pay') },
  { body: call(16, 'cart.pay'), headers: { 'mcp-session-id': 'nobody-knows-me' } },
  { body: call(17, 'cart.pay'), headers: { 'content-type': 'text/plain' } },
  {
    body: {
      ...call(18, 'cart.view'),
      params: { name: 'cart.view', arguments: {}, _meta: stateless },
    },
    headers: {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'cart.view',
    },
  },
  { method: 'GET' },
  { method: 'GET', headers: { accept: 'application/json' } },
  { method: 'HEAD' },
  { method: 'OPTIONS' },
  { method: 'PUT', body: { any: 'thing' } },
  { method: 'DELETE', headers: { 'mcp-session-id': 'nobody-knows-me' } },
  { inSession: true, method: 'DELETE' },
  { inSession: true, body: call(19, 'cart.view') },
];

async function play(
  start: (typeof FOUR_UPSTREAMS)[number]['start'],
  middlewares: readonly Middleware[],
  isFetched: boolean,
) {
  const app = await start(middlewares);
  onTestFinished(() => app.close());
  let session = '';
  const answers: unknown[] = [];
  for (const { inSession, ...request } of REQUESTS) {
    const headers = inSession && session !== '' ? { 'mcp-session-id': session } : {};
    const answer = await send(app.url, { ...request, headers: { ...headers, ...request.headers } });
    session ||= String(answer.headers['mcp-session-id'] ?? '');
    answers.push(shown(request, answer, isFetched));
  }
  return { answers, calls: app.calls() };
}

/** An answer without what differs from one to the next anyway. */
function shown(
  request: RawRequest,
  { status, headers, text }: RawResponse,
  isFetched: boolean,
): unknown {
  const { date: _, 'mcp-session-id': __, ...rest } = headers;
  // Hosts of the Fetch API frame a body as its `Response` was made.
  const { 'content-length': ___, 'transfer-encoding': ____, ...framed } = rest;
  const kept = isFetched ? framed : rest;
  const of = typeof request.body === 'string' ? request.body : JSON.stringify(request.body ?? null);
  return [
    request.method ?? 'POST',
    of.slice(0, 60),
    status,
    kept,
    text.replace(/^id: .*$/gm, 'id'),
  ];
}

/** The same through `gateFetch()`. */
const FETCHED = (['sdk', 'hono', 'mcp-handler'] as const).map((host) => ({
  name: `a handler of ${host} behind gateFetch()`,
  async start(middlewares: readonly Middleware[]) {
    const shape = { mode: 'stateful', host } as const;
    const { url, ledger, close } = await startUpstream({ shape, middlewares });
    return { url, calls: () => ledger.calls, close };
  },
}));

for (const { name, start } of [...FOUR_UPSTREAMS, ...FETCHED])
  it(`leaves ${name} as it is while it observes`, async () => {
    const events: InterlockEvent[] = [];
    const errors: unknown[] = [];
    const isFetched = name.includes('gateFetch');
    const bare = await play(start, [], isFetched);
    const sessions = sessionStore({
      maxBodyBytes: 4_000,
      onEvent: (event) => void events.push(event),
      onError: (error) => void errors.push(error),
    });
    const gate = fsmGate(checkoutGate(), { enforce: false, maxBodyBytes: 4_000 });
    const observed = await play(start, [sessions, gate], isFetched);
    expect(observed).toEqual(bare);
    expect(errors).toEqual([]);
    // It has judged them, though: a session's `cart.pay` came too early.
    await expect.poll(() => events.some(({ type }) => type === 'call.refused')).toBe(true);
    expect(events.find(({ type }) => type === 'call.refused')).toMatchObject({
      ...{ enforced: false, reason: 'state', tool: 'cart.pay', state: 'empty' },
      way: ['cart.add_item', 'cart.checkout'],
    });
  });
