import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import express, { type RequestHandler } from 'express';
import * as fc from 'fast-check';
import { fsmGate, StateMachineGate, sessionStore, stateSync } from '../../src/index.ts';
import { sendRaw } from './raw-request.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

/** What the server behind the gate writes. */
interface Written {
  /** Cut anywhere, in the middle of characters too. */
  readonly chunks: readonly Buffer[];
  /** Whether there is a pause between the chunks. */
  readonly isSlow: boolean;
}

const SHOWN = 'cart.add';
const HIDDEN = 'cart.pay';
const tools = (names: readonly string[]) =>
  names.map((name) => ({ name, inputSchema: { type: 'object' } }));
const MESSAGES: readonly unknown[] = [
  { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 1, progress: 1 } },
  {
    jsonrpc: '2.0',
    method: 'notifications/message',
    params: { level: 'info', data: 'é €💶\u2028 data: x' },
  },
  { jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text: 'done' }] } },
  { jsonrpc: '2.0', id: 1, result: { tools: tools([SHOWN, HIDDEN, 'cart.view']) } },
  { jsonrpc: '2.0', id: 7, result: { tools: tools([HIDDEN]) } },
  { jsonrpc: '2.0', id: 1, error: { code: -32603, message: HIDDEN } },
  [{ jsonrpc: '2.0', id: 1, result: { tools: tools([HIDDEN, SHOWN]) } }],
];
/** Numbers that JavaScript would write otherwise. */
const RAW =
  '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":[1.0,12345678901234567890,1e400]}}';
const lineEnd = fc.constantFrom('\n', '\n', '\r', '\r\n');

/** One event: its data may be on several lines, and other fields may stand around it. */
const event = fc
  .record({
    text: fc.constantFrom(
      ...MESSAGES.map((each) => JSON.stringify(each)),
      JSON.stringify(MESSAGES[3], null, 1),
      RAW,
      '',
    ),
    before: fc.array(
      fc.constantFrom(': comment', 'event: message', 'id: 7', 'retry: 20', 'foo: bar', ':'),
      { maxLength: 2 },
    ),
    after: fc.array(fc.constantFrom(': comment', 'id: é', 'retry: x'), { maxLength: 1 }),
    space: fc.constantFrom(' ', ''),
    end: lineEnd,
  })
  .map(({ text, before, after, space, end }) => {
    const data = text.split('\n').map((line) => `data:${space}${line}`);
    const lines = [...before, ...data, ...after, ''];
    return lines.map((line) => line + end).join('');
  });

const written: fc.Arbitrary<Written> = fc
  .record({
    events: fc.array(event, { minLength: 1, maxLength: 6 }),
    isMarked: fc.boolean(),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 10 }),
    isSlow: fc.boolean(),
  })
  .map(({ events, isMarked, cuts, isSlow }) => {
    const bytes = Buffer.from(`${isMarked ? '\ufeff' : ''}${events.join('')}`);
    const places = cuts.map((cut) => Math.floor(cut * bytes.length)).sort((a, b) => a - b);
    const ends = [...places, bytes.length];
    return { isSlow, chunks: ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end)) };
  });

export const streams: Target = {
  name: 'streams',
  what: 'an event stream arrives as it was written, but for the lists that hide tools, however it is cut',
  inputs: 100,
  async open(): Promise<OpenTarget> {
    let next: Written = { chunks: [], isSlow: false };
    const server = await startServer(() => next);
    const call = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'cart.view' },
    });
    const headers = [
      'content-type',
      'application/json',
      'accept',
      'application/json, text/event-stream',
      'mcp-session-id',
      server.session,
    ];
    return {
      property: fc.asyncProperty(written, async (each) => {
        next = each;
        const { text } = await sendRaw(server.url, {
          method: 'POST',
          headers,
          body: Buffer.from(call),
          cuts: [],
        });
        compare(Buffer.concat(each.chunks).toString(), text);
      }),
      describe: ({ chunks }: Written) =>
        chunks.map((chunk) => `  ${JSON.stringify(chunk.toString('latin1'))}`).join('\n'),
      close: server.close,
    };
  },
};

function compare(written: string, read: string): void {
  const [sent, got] = [eventsOf(written), eventsOf(read)];
  if (!written.includes('"tools"')) {
    // Nothing is to be changed, so nothing may be: not a byte.
    if (written.replace(/^\ufeff/, '') !== read.replace(/^\ufeff/, ''))
      broken('a stream without lists was changed');
    return;
  }
  if (sent.length !== got.length)
    broken('other events arrived than were written', `${sent.length} and ${got.length}`);
  for (const [index, { id, event, data }] of sent.entries()) {
    const other = got[index] ?? broken('an event is missing');
    if (other.id !== id || other.event !== event)
      broken('an event has another id or type', `event ${index}`);
    if (!data.includes('"tools"')) {
      if (other.data !== data)
        broken('an event that is no list was changed', `event ${index}: ${other.data}`);
    } else if (
      JSON.stringify(JSON.parse(other.data)) !== JSON.stringify(filtered(JSON.parse(data)))
    ) {
      broken('a list is not filtered as it should be', `event ${index}: ${other.data}`);
    }
  }
}

/** A list as a client in the initial state may see it. */
// biome-ignore lint/suspicious/noExplicitAny: made above
function filtered(message: any): unknown {
  if (Array.isArray(message)) return message.map(filtered);
  const { tools: all } = message.result;
  const shown = all.filter(({ name }: { name: string }) => name !== HIDDEN);
  return { ...message, result: { ...message.result, tools: shown } };
}

function eventsOf(text: string): EventSourceMessage[] {
  const events: EventSourceMessage[] = [];
  createParser({ onEvent: (each) => void events.push(each) }).feed(
    `${text.replace(/^\ufeff/, '')}:\n`,
  );
  return events;
}

async function startServer(next: () => Written) {
  const gate = new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: { empty: { on: { ADD: 'filled' } }, filled: { on: { PAY: 'empty' } } },
  })
    .bindTool(SHOWN, ['empty'], 'ADD')
    .bindTool(HIDDEN, ['filled'], 'PAY');
  const quiet = { onError: () => {}, onWarning: () => {} };
  const guards = [sessionStore(quiet), fsmGate(gate, quiet), stateSync({ policies: [], ...quiet })];
  const upstream: RequestHandler = async (req, res) => {
    if (req.headers['mcp-session-id'] === undefined) {
      const result = {
        protocolVersion: '2025-11-25',
        capabilities: {},
        serverInfo: { name: 'fuzz', version: '1' },
      };
      res.json({ jsonrpc: '2.0', id: 0, result });
      return;
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const { chunks, isSlow } = next();
    for (const chunk of chunks) {
      res.write(chunk);
      if (isSlow) await delay(0);
    }
    res.end();
  };
  const app = express();
  app.all('/mcp', ...(guards as unknown as RequestHandler[]), upstream);
  const server = createServer(app as RequestListener).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'fuzz', version: '1' },
  };
  const begun = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }),
  });
  await begun.text();
  const close = (): Promise<void> => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  };
  return { url, session: begun.headers.get('mcp-session-id') ?? '', close };
}
