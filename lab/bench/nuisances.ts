/**
 * One client that wants the server for itself, in a process of its own. neighbours.ts starts it
 * with a port and the name of a nuisance, and kills it in the end.
 */
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

const MIB = 1024 * 1024;
/** Just below the largest body that the middleware, and SDK v1, take. */
const SIZE = 4 * MIB - 1024;

/** 4 MB of arguments, by their shape. */
export const BODIES: Readonly<Record<string, () => string>> = {
  'one string': () => JSON.stringify('x'.repeat(SIZE)),
  'empty arrays': () => `[${'[],'.repeat(SIZE / 3 - 1)}[]]`,
  'empty objects': () => `[${'{},'.repeat(SIZE / 3 - 1)}{}]`,
  'deep arrays': () => '['.repeat(SIZE / 2) + ']'.repeat(SIZE / 2),
  numbers: () => `[${'0,'.repeat(SIZE / 2 - 1)}0]`,
  'many keys': () => {
    const count = Math.floor(SIZE / 14);
    return `{${Array.from({ length: count }, (_, at) => `"k${100_000 + at}":1`).join(',')}}`;
  },
};

type Nuisance = (port: number) => Promise<unknown>;

export const NUISANCES: Readonly<Record<string, Nuisance>> = {
  'slow bodies, 500 connections': (port) => many(500, () => dribble(port)),
  'new sessions, as many as it takes': (port) => many(4, () => openSessions(port)),
  '1,000 GET streams': openStreams,
  '300 calls that wait for one run': waitInLine,
  ...Object.fromEntries(
    Object.entries(BODIES).map(([shape, make]) => [
      `4 MB bodies, ${shape}`,
      (port: number) => sendBodies(port, make()),
    ]),
  ),
};

const agent = new Agent({ keepAlive: true });

function many(count: number, start: () => Promise<unknown>): Promise<unknown> {
  return Promise.all(Array.from({ length: count }, start));
}

interface Answer {
  readonly session: string;
  readonly status: number;
}

function post(port: number, body: string, session = ''): Promise<Answer> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': Buffer.byteLength(body),
    ...(session !== '' && { 'mcp-session-id': session }),
  };
  return new Promise((resolve) => {
    const sent = request({ port, path: '/mcp', method: 'POST', agent, headers }, (response) => {
      const { headers, statusCode: status = 0 } = response;
      response
        .on('error', () => {})
        .on('close', () =>
          resolve({ session: String(headers['mcp-session-id'] ?? session), status }),
        );
      response.resume();
    });
    sent.on('error', () => resolve({ session, status: 0 }));
    sent.end(body);
  });
}

function open(port: number): Promise<Answer> {
  const clientInfo = { name: 'nuisance', version: '1' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  return post(port, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }));
}

function callOf(id: number, name: string, args: string): string {
  const params = `{"name":"${name}","arguments":${args}}`;
  return `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;
}

/** A body that never comes to its end, one byte at a time. */
async function dribble(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  const head = 'POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json';
  socket.write(`${head}\r\ncontent-length: 1000000\r\n\r\n{"jsonrpc":"2.0","x":"`);
  while (!socket.destroyed) {
    socket.write('y');
    await delay(100);
  }
}

async function openSessions(port: number): Promise<never> {
  for (;;) await open(port);
}

async function openStreams(port: number): Promise<void> {
  for (let count = 0; count < 1000; count += 4) {
    const { session } = await open(port);
    const headers = { accept: 'text/event-stream', 'mcp-session-id': session };
    for (let at = 0; at < 4; at++) {
      const sent = request({ port, path: '/mcp', method: 'GET', agent: false, headers });
      sent.on('error', () => {}).on('response', (response) => response.resume());
      sent.end();
    }
  }
  await delay(3_600_000);
}

/** 200 kB each, so that what waits is not small either. */
async function waitInLine(port: number): Promise<never> {
  const { session } = await open(port);
  const args = JSON.stringify({ sku: 'x'.repeat(200_000) });
  let id = 0;
  await many(300, async () => {
    for (;;) {
      const { status } = await post(port, callOf(++id, 'cart.slow', args), session);
      if (status !== 200) await delay(50);
    }
  });
  throw new Error('it never ends');
}

async function sendBodies(port: number, value: string): Promise<never> {
  const { session } = await open(port);
  for (let id = 1; ; id++)
    await post(port, callOf(id, 'cart.add_item', `{"sku":"a","more":${value}}`), session);
}

const [port, name = ''] = process.argv.slice(2);
process.on('disconnect', () => process.exit());
if (process.send !== undefined) await NUISANCES[name]?.(Number(port));
