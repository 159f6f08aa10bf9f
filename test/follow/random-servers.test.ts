import { setImmediate as turn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import express, { type Request, type RequestHandler, type Response } from 'express';
import { expect, it } from 'vitest';
import { type Random, seeded } from '../../lab/checker/random.ts';
import { fsmGate, type InterlockEvent, memoryStore, sessionStore } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { cases } from '../helpers/few.ts';
import { type RawRequest, send } from '../helpers/raw.ts';
import { listen } from '../helpers/serve.ts';

const SERVERS = cases(50);
const TOOLS = ['cart.view', 'cart.add_item', 'cart.checkout', 'cart.pay', 'cart.nothing'];

/** A message that a client might send, and some that none should. */
function someMessage(random: Random, id: number): unknown {
  const call = { name: random.pick(TOOLS), arguments: { sku: 'ü'.repeat(random.between(0, 40)) } };
  return random.pick<unknown>([
    { jsonrpc: '2.0', id, method: 'tools/call', params: call },
    { jsonrpc: '2.0', id: `${id}`, method: 'tools/call', params: call },
    { jsonrpc: '2.0', id, method: 'tools/list' },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    [{ jsonrpc: '2.0', id, method: 'tools/call', params: call }],
    `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"cart.pay",`,
    { id, method: 'tools/call', params: call },
  ]);
}

function someRequests(random: Random): RawRequest[] {
  const initialize = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'a' } };
  return [
    { body: { jsonrpc: '2.0', id: 0, method: 'initialize', params: initialize } },
    ...Array.from({ length: 6 }, (_, at): RawRequest => {
      const method = random.pick(['POST', 'POST', 'POST', 'POST', 'GET', 'DELETE']);
      return method === 'POST' ? { body: someMessage(random, at + 1) } : { method };
    }),
  ];
}

/** What answers the message, nearly: some servers err in the id or the form. */
function someAnswer(random: Random, message: unknown): unknown {
  const { id = null } = (Array.isArray(message) ? message[0] : message) ?? {};
  const content = [{ type: 'text', text: 'é\u2028'.repeat(random.between(0, 300)) }];
  const tools = random.shuffled(TOOLS).map((name) => ({ name, inputSchema: { type: 'object' } }));
  return random.pick<unknown>([
    { jsonrpc: '2.0', id, result: { content } },
    { result: { tools, nextCursor: 'x' }, id, jsonrpc: '2.0' },
    { jsonrpc: '2.0', id, result: { content, isError: true } },
    { jsonrpc: '2.0', id, error: { code: -32_603, message: 'no' } },
    { jsonrpc: '2.0', id: 77, result: { content } },
    [{ jsonrpc: '2.0', id, result: { content } }],
    { jsonrpc: '2.0', id, result: { anything: true } },
  ]);
}

/** The body of an event stream, in one of the spellings that the HTML standard allows. */
function someStream(random: Random, messages: readonly unknown[]): string {
  const end = random.pick(['\n', '\r\n', '\r']);
  const events = messages.map((message) => {
    const lines = random.shuffled(['event: message', `id: ${random.between(1, 9)}`, ': ping']);
    return [...lines, `data: ${JSON.stringify(message)}`, '', ''].join(end);
  });
  const begin = random.chance(0.3) ? '\uFEFF' : '';
  // Some break off in the middle of an event.
  return begin + events.join('').slice(0, random.chance(0.2) ? -5 : undefined);
}

/** A server whose answers its seed decides, and what it received. */
function someServer(seed: number): { handler: RequestHandler; received: unknown[] } {
  const received: unknown[] = [];
  const handler = async (req: Request, res: Response): Promise<void> => {
    const random = seeded(seed, `answer ${received.length}`);
    const chunks: Buffer[] = [];
    if (req.body === undefined) for await (const chunk of req) chunks.push(chunk as Buffer);
    const text = req.body === undefined ? `${Buffer.concat(chunks)}` : JSON.stringify(req.body);
    received.push([req.method, req.url, text]);
    let message: unknown;
    try {
      message = JSON.parse(text);
    } catch {
      message = undefined;
    }
    const count = random.between(1, 3);
    const answers = Array.from({ length: count }, () => someAnswer(random, message));
    const isStream = random.chance(0.5);
    const body = random.chance(0.1)
      ? 'no JSON at all'
      : isStream
        ? someStream(random, answers)
        : // A number that JavaScript would write otherwise.
          JSON.stringify(answers[0], null, random.between(0, 2)).replace('true', '1.0e400');
    const isPacked = random.chance(0.2);
    const bytes = isPacked ? gzipSync(body) : Buffer.from(body);
    res.statusCode = random.pick([200, 200, 200, 200, 202, 400, 404, 500]);
    const json = random.pick(['application/json', 'application/json; charset=utf-8', 'text/plain']);
    res.setHeader('Content-Type', isStream ? 'text/event-stream' : json);
    if (isPacked) res.setHeader('Content-Encoding', 'gzip');
    if (random.chance(0.3)) res.setHeader('Set-Cookie', ['a=1', 'b=2']);
    if (seed % 2 === 0) res.setHeader('Mcp-Session-Id', `session-${seed}`);
    if (random.chance(0.2)) return void res.end();
    if (random.chance(0.2)) return void res.send(bytes);
    if (random.chance(0.3)) res.setHeader('Content-Length', bytes.length);
    if (random.chance(0.3)) res.flushHeaders();
    // Pieces end anywhere, also within a character.
    for (let at = 0; at < bytes.length; ) {
      const size = random.between(1, 400);
      res.write(bytes.subarray(at, at + size));
      at += size;
      if (random.chance(0.3)) await turn();
      // After the last byte, a client that knows the length may have all of it or not.
      if (random.chance(0.01) && at < bytes.length) return void res.destroy();
    }
    res.end();
  };
  return { handler, received };
}

/** Each answer to its last byte, or that the connection broke. */
async function play(seed: number, middlewares: readonly RequestHandler[]): Promise<unknown> {
  const random = seeded(seed, 'client');
  const app = express();
  const { handler, received } = someServer(seed);
  const parsers = random.chance(0.5) ? [express.json()] : [];
  app.all('/mcp', ...parsers, ...middlewares, handler);
  const served = await listen(app);
  const answers: unknown[] = [];
  let session: string | undefined;
  for (const request of someRequests(random)) {
    const isInSession = random.chance(0.8) && session !== undefined;
    const headers: Record<string, string> = isInSession ? { 'mcp-session-id': `${session}` } : {};
    const answer = await send(served.url, { ...request, headers }).catch(() => undefined);
    const { date: _, 'mcp-session-id': minted, ...rest } = answer?.headers ?? {};
    session ??= minted as string | undefined;
    answers.push([answer?.status, rest, answer?.text]);
  }
  await served.close();
  return { answers, received };
}

it(`leaves ${SERVERS} random servers as they are while it observes`, async () => {
  let judged = 0;
  const onEvent = ({ type }: InterlockEvent): void => void (type === 'call.ended' && judged++);
  for (let seed = 0; seed < SERVERS; seed++) {
    const bare = await play(seed, []);
    const sessions = sessionStore({ store: memoryStore(), onEvent, onError: () => undefined });
    const observed = await play(seed, [sessions, fsmGate(checkoutGate(), { enforce: false })]);
    expect(observed, `seed ${seed}`).toEqual(bare);
  }
  expect(judged).toBeGreaterThan(SERVERS);
}, 60_000);
