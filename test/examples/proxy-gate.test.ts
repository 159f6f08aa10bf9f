import { once } from 'node:events';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { memoryStore, runsOf } from 'mcp-interlock';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { gateInFrontOf, report } from '../../examples/proxy-gate/gate.ts';
import { connect } from '../helpers/client.ts';
import { ADDRESS, type Program, startProgram } from '../helpers/program.ts';
import { callOf, RawSession, type WireMessage } from '../helpers/raw.ts';
import { freePort } from '../services/ports.ts';

const EVERYTHING = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);
const SERVER = fileURLToPath(new URL('../../examples/proxy-gate/server.ts', import.meta.url));
const LONG = 'trigger-long-running-operation';

interface Everything extends Program {
  readonly target: string;
}

async function startEverything(): Promise<Everything> {
  const port = await freePort();
  const program = await startProgram(EVERYTHING, {
    args: ['streamableHttp'],
    env: { PORT: String(port) },
    ready: /listening on port/,
  });
  return { ...program, target: `http://127.0.0.1:${port}` };
}

let everything: Everything;
beforeAll(async () => {
  everything = await startEverything();
});
afterAll(() => everything.kill9());

async function startGate(target = everything.target) {
  const store = memoryStore();
  const server = gateInFrontOf(target, store).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, 'listening');
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
  return { url, runs: runsOf(report, { store }) };
}

/** A call that reports progress ten times a second. */
function longCall(id: number, seconds: number): WireMessage {
  const call = callOf(id, LONG, { duration: seconds, steps: seconds * 10 });
  return { ...call, params: { ...call.params, _meta: { progressToken: 'token' } } };
}

const isProgress = ({ method }: WireMessage) => method === 'notifications/progress';

it('leads a client of the SDK through a workflow that the server knows nothing of', async () => {
  const { url } = await startGate();
  const client = await connect(url);
  onTestFinished(client.close);
  const gated = async () => (await client.tools()).filter((tool) => ['echo', 'get-sum', LONG].includes(tool));

  expect(await gated()).toEqual(['get-sum']);
  expect(await client.tools()).toContain('get-tiny-image');
  expect((await client.call('echo', { message: 'hello' })).text).toBe(
    '[System: echo is not available while report is in "started". Available now: get-sum. ' +
      `To reach echo, call get-sum, then ${LONG} first.]`,
  );
  expect((await client.call('get-sum', { a: 1, b: 2 })).texts).toEqual([
    'The sum of 1 and 2 is 3.',
    '[System: Cache invalidated for get-structured-content — caused by get-sum]',
  ]);
  expect(await gated()).toEqual(['get-sum', LONG]);
  await client.call(LONG, { duration: 0.2, steps: 2 });
  expect(await gated()).toEqual(['echo']);
  expect((await client.call('echo', { message: 'hello' })).text).toBe('Echo: hello');
  expect(await gated()).toEqual(['get-sum']);
  expect(client.log.filter((each) => each === 'progress')).toHaveLength(2);
});

it('tells the client of a changed list once, on the stream of the call and before its result', async () => {
  const session = await RawSession.begin((await startGate()).url);
  const { messages } = await session.post(callOf(1, 'get-sum', { a: 1, b: 2 }));
  expect(messages.map(({ method, id }) => method ?? id)).toEqual(['notifications/tools/list_changed', 1]);
});

it('streams progress while the call runs, and sees the outcome though the client leaves', async () => {
  const { url, runs } = await startGate();
  const session = await RawSession.begin(url);
  await session.call('get-sum', { a: 1, b: 2 });
  const stream = await session.stream(longCall(7, 1));
  await expect.poll(() => stream.messages.filter(isProgress).length).toBeGreaterThan(0);
  expect(await runs.read(session.id)).toMatchObject({ status: 'running', snapshot: { state: 'measured' } });
  stream.cut();

  await expect
    .poll(() => runs.read(session.id), { timeout: 5_000 })
    .toMatchObject({
      status: 'idle',
      snapshot: { state: 'checked' },
    });
  const resumed = await session.listen(stream.lastEventId);
  await expect.poll(() => resumed.messages.find(({ id }) => id === 7)?.result.isError ?? false).toBe(false);
  await expect.poll(() => resumed.messages.some(({ id }) => id === 7)).toBe(true);
  resumed.cut();
});

it('opens a quiet stream at once, and lets the server know when the client has left it', async () => {
  const session = await RawSession.begin((await startGate()).url);
  const first = await session.listen();
  expect([first.status, first.text]).toEqual([200, '']);
  first.cut();
  // A server that still believes in the first stream refuses a second one.
  await expect
    .poll(async () => {
      const second = await session.listen();
      second.cut();
      return second.status;
    })
    .toBe(200);
});

it('breaks off the answer of a server that died, and does not take the call for done', async () => {
  const victim = await startEverything();
  onTestFinished(victim.kill9);
  const { url, runs } = await startGate(victim.target);
  const session = await RawSession.begin(url);
  await session.call('get-sum', { a: 1, b: 2 });
  const answer = await fetch(url, {
    method: 'POST',
    headers: {
      ...session.headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    body: JSON.stringify(longCall(7, 30)),
  });
  await victim.kill9();
  await expect(answer.text()).rejects.toThrow('terminated');
  expect((await runs.read(session.id))?.snapshot.state).toBe('measured');
  expect((await session.post({ jsonrpc: '2.0', id: 8, method: 'tools/list' })).status).toBe(504);
});

it('serves as its README says', async () => {
  const { match, kill9 } = await startProgram(SERVER, {
    env: { PORT: '0', TARGET: everything.target },
    ready: ADDRESS,
  });
  onTestFinished(kill9);
  const session = await RawSession.begin(new URL(match));
  expect(await session.tools()).toContain('get-sum');
  expect(await session.tools()).not.toContain('echo');
});
