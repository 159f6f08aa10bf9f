import { once } from 'node:events';
import { request as ask, type IncomingMessage } from 'node:http';
import express from 'express';
import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type FsmGateOptions,
  type Middleware,
  runKey,
  type SessionStoreOptions,
  StateMachineGate,
  stateSync,
} from '../../src/index.ts';
import type { FaultyStore } from '../helpers/faulty-store.ts';
import { callOf, INITIALIZE, send } from '../helpers/raw.ts';
import { makeStage } from '../helpers/scene.ts';
import { serve } from '../helpers/serve.ts';

/** Each piece is written once the client has the one before, so the first must not wait. */
const BODIES = {
  'text/event-stream': [
    ': one\n\nevent: message\nda',
    'ta: {"jsonrpc":"2.0","id":7,"result":{"content":',
    '[],"n":1.0}}\n\n',
    ': the last comment\n\n',
  ],
  'application/json': ['{"jsonrpc":"2.0","id":7,', '"result":{"content":[', '],"n":1.0}}'],
} as const;
type Type = keyof typeof BODIES;

const never = (): Promise<never> => new Promise(() => {});
const fail = (): never => {
  throw new Error('a part of it failed');
};

interface Fault {
  readonly gate?: FsmGateOptions;
  readonly session?: SessionStoreOptions;
  readonly guard?: () => Promise<boolean>;
  readonly break?: (store: FaultyStore) => void;
}

const STORE_CALLS = ['open', 'read', 'record', 'claim', 'commit'] as const;

const FAULTS: Readonly<Record<string, Fault>> = {
  'nothing fails': {},
  'a guard throws': { guard: fail },
  'a guard hangs': { guard: never },
  'begin() throws': { gate: { begin: fail } },
  'begin() hangs': { gate: { begin: never } },
  'the app listens, and throws': { session: { onEvent: fail } },
  'onError throws': { session: { onError: fail }, guard: fail },
  'key() throws': { session: { key: runKey({ name: 'thread', of: fail }) } },
  'the switch cannot be read': { break: (store) => store.fail('readSwitch') },
  ...Object.fromEntries(
    STORE_CALLS.flatMap((each) => [
      [`the store fails to ${each}`, { break: (store: FaultyStore) => store.fail(each) }],
      [
        `the store never answers to ${each}`,
        {
          break: (store: FaultyStore) => store.fail(each, Number.POSITIVE_INFINITY, 'hang'),
        },
      ],
    ]),
  ),
  'the store is dead': {
    break(store) {
      for (const each of STORE_CALLS) store.fail(each, Number.POSITIVE_INFINITY, 'hang');
    },
  },
};

interface Staged {
  readonly middlewares: readonly Middleware[];
  readonly store?: FaultyStore;
}

/** @param fault absent: no gate is mounted */
function staged(fault: Fault | undefined): Staged {
  if (fault === undefined) return { middlewares: [] };
  const { gate, session, guard } = fault;
  const workflow = new StateMachineGate({
    id: 'out-first',
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: {} },
  }).bindTool('cart.pay', 'open', { success: 'PAY', guard: guard ?? (() => true) });
  const observes: FsmGateOptions = { enforce: false, ...gate };
  const { middlewares, stage } = makeStage({ workflow, gate: observes, session: session ?? {} });
  return { middlewares, store: stage.store };
}

/** What a client gets of a call, piece by piece, from a server of Node. */
async function overNode(type: Type, fault?: Fault): Promise<unknown> {
  const { middlewares, store } = staged(fault);
  let got = (): void => {};
  const app = express();
  app.post('/mcp', ...middlewares, async (req, res) => {
    let body = '';
    for await (const chunk of req) body += chunk;
    if (JSON.parse(body).method === 'initialize')
      return void res.json({ jsonrpc: '2.0', id: 'init', result: { capabilities: {} } });
    res.writeHead(200, 'Fine', ['Content-Type', type, 'x-Twice', '1', 'x-Twice', '2']);
    for (const piece of BODIES[type]) {
      const received = new Promise<void>((resolve) => {
        got = resolve;
      });
      res.write(piece);
      await received;
    }
    res.end();
  });
  const { url } = await serve(app);
  const opened = await send(url, { body: INITIALIZE });
  if (store !== undefined) fault?.break?.(store);
  const session = opened.headers['mcp-session-id'];
  const headers = { 'content-type': 'application/json', accept: Object.keys(BODIES).join() };
  const sent = ask(url, {
    ...{ method: 'POST', agent: false },
    headers: { ...headers, ...(session && { 'mcp-session-id': session }) },
  }).end(JSON.stringify(callOf(7, 'cart.pay')));
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const pieces: string[] = [];
  for await (const piece of answer) {
    pieces.push(String(piece));
    got();
  }
  const { statusCode, statusMessage, rawHeaders } = answer;
  return [statusCode, statusMessage, rawHeaders.filter((each) => !each.endsWith('GMT')), pieces];
}

/** The same of a handler of the Fetch API. */
async function overFetch(
  type: Type,
  fault?: Fault,
  { middlewares, store }: Staged = staged(fault),
) {
  let got = (): void => {};
  const handler = async (request: Request): Promise<Response> => {
    const { method } = (await request.json()) as { method: string };
    if (method === 'initialize')
      return Response.json({ jsonrpc: '2.0', id: 'init', result: { capabilities: {} } });
    const left: string[] = [...BODIES[type]];
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const piece = left.shift();
          if (piece === undefined) return controller.close();
          const received = new Promise<void>((resolve) => {
            got = resolve;
          });
          controller.enqueue(Buffer.from(piece));
          // A tap lets no piece go by itself, and so cannot be waited for.
          if (fault !== undefined || middlewares.length === 0) await received;
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { headers: { 'content-type': type, 'x-one': '1' } });
  };
  const [first, ...others] = middlewares;
  const handle = first === undefined ? handler : gateFetch(handler, [first, ...others]);
  const post = (message: unknown, session?: string): Request =>
    new Request('https://shop.example/mcp', {
      method: 'POST',
      body: JSON.stringify(message),
      headers: {
        'content-type': 'application/json',
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
    });
  const opened = await handle(post(INITIALIZE));
  await opened.text();
  if (store !== undefined) fault?.break?.(store);
  const answer = await handle(
    post(callOf(7, 'cart.pay'), opened.headers.get('mcp-session-id') ?? undefined),
  );
  const pieces: string[] = [];
  const reader = answer.body?.getReader();
  for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) {
    pieces.push(Buffer.from(read.value).toString());
    got();
  }
  return { status: answer.status, headers: [...answer.headers], pieces };
}

describe.each(Object.entries(FAULTS))('while a gate observes and %s', (_, fault) => {
  it.each(Object.keys(BODIES) as Type[])(
    'sends each piece of %s before it reads it, and as it is',
    async (type) => {
      expect(await overNode(type, fault)).toEqual(await overNode(type));
    },
  );

  it('does so for an event stream of the Fetch API', async () => {
    const type = 'text/event-stream';
    expect(await overFetch(type, fault)).toEqual(await overFetch(type));
  });
});

it('cannot do so by a tap, which sends whole events: so observing has a witness of its own', async () => {
  const type = 'text/event-stream';
  const { pieces } = await overFetch(type, undefined, {
    middlewares: [stateSync({ policies: [] })],
  });
  expect(pieces.join('')).toBe(BODIES[type].join(''));
  expect(pieces).not.toEqual(BODIES[type]);
});
