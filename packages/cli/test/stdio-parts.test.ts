import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { fsmGate, principalKey, StateMachineGate, sessionStore } from 'mcp-interlock';
import { gateFetch } from 'mcp-interlock/fetch';
import { expect, it, onTestFinished, vi } from 'vitest';
import { seeded } from '../../../lab/checker/random.ts';
import { Bridge } from '../src/stdio-bridge.ts';
import { Lines, type LongLine } from '../src/stdio-lines.ts';
import { spawnedOnWindows } from '../src/stdio-server.ts';

function linesOf(bytes: Buffer, limit: number, cutAt: (left: number) => number) {
  const got: (string | LongLine)[] = [];
  const add = (each: string | LongLine): void => void got.push(each);
  const lines = new Lines(limit, { line: add, tooLong: add });
  for (let at = 0; at < bytes.length; ) {
    const size = cutAt(bytes.length - at);
    lines.push(bytes.subarray(at, at + size));
    at += size;
  }
  lines.end();
  return got;
}

it('cuts bytes into the same lines wherever they are split', () => {
  const long = `{"jsonrpc":"2.0","id":7,"result":"${'x'.repeat(3_000)}"}`;
  const last = `{"result":"\\"id\\":1${'ü'.repeat(2_000)}","jsonrpc":"2.0","id":"a\\"b"}`;
  const hidden = `{"result":{"id":1,"y":"${'y'.repeat(3_000)},"},"error":0}`;
  const text = `{"a":"ü🎉"}\r\n\n \n${long}\n{"b":1}\n${last}\r\n${hidden}\n{"c":"\u2028"}`;
  const expected = [
    '{"a":"ü🎉"}',
    { bytes: long.length, id: '7' },
    '{"b":1}',
    { bytes: Buffer.byteLength(last) + 1, id: '"a\\"b"' },
    { bytes: hidden.length, id: undefined },
    '{"c":"\u2028"}',
  ];
  const bytes = Buffer.from(text);
  expect(linesOf(bytes, 2_000, () => 1)).toEqual(expected);
  expect(linesOf(bytes, 2_000, (left) => left)).toEqual(expected);
  const { between } = seeded(7, 'lines');
  for (let round = 0; round < 100; round++)
    expect(linesOf(bytes, 2_000, () => between(1, 900))).toEqual(expected);
});

it('starts programs of Windows by their paths, and scripts by cmd.exe', () => {
  const env = { PATH: '/tools;/node', PATHEXT: '.EXE;.CMD', ComSpec: 'C:\\cmd.exe' };
  const isThere = (path: string): boolean =>
    ['/node/npx.CMD', '/tools/python.EXE', '/my tools/run.cmd'].includes(path);
  const spawned = (...command: string[]) => spawnedOnWindows(command, env, isThere);
  expect(spawned('python', 'a "b" %c%')).toEqual({
    file: '/tools/python.EXE',
    args: ['a "b" %c%'],
    verbatim: false,
  });
  expect(spawned('npx', '-y', 'some server', 'C:\\my folder\\')).toEqual({
    file: 'C:\\cmd.exe',
    args: ['/d', '/s', '/c', '""/node/npx.CMD" "-y" "some server" "C:\\my folder\\\\""'],
    verbatim: true,
  });
  expect(spawned('/my tools/run.cmd').args.at(-1)).toBe('""/my tools/run.cmd""');
  expect(spawned('unknown')).toEqual({ file: 'unknown', args: [], verbatim: false });
  for (const unfit of ['a&b', 'a|b', '%PATH%', 'a^b', 'say "x"', 'a>b', 'x!y', 'a\nb'])
    expect(() => spawned('npx', unfit)).toThrow('which cmd.exe runs');
});

it('keeps a run busy for 60 seconds at most where no person answers', async () => {
  const [input, output, toServer, fromServer] = [0, 0, 0, 0].map(() => new PassThrough());
  if (!input || !output || !toServer || !fromServer) throw new Error('there are four');
  const gate = StateMachineGate.fromOrder({ ask: {}, checkout: {} }, { id: 'shop' });
  const bridge = new Bridge({
    client: { input, output },
    server: { input: toServer, output: fromServer },
    gate: (handler) =>
      gateFetch(handler, [sessionStore({ key: principalKey() }), fsmGate(gate)], {
        auth: () => ({ extra: { iss: 'os', sub: 'me' } }),
      }),
    maxLineBytes: 10_000,
    instructions: '',
    onFault: (fault) => expect(fault).toBeUndefined(),
    onRoots: () => {},
    amend: async (answer) => answer,
  });
  const done = [bridge.readClient(), bridge.readServer()];
  onTestFinished(async () => {
    for (const stream of [input, fromServer]) stream.end();
    await Promise.all(done);
  });
  const next = async (from: PassThrough) => JSON.parse(String((await once(from, 'data'))[0]));
  const call = (id: number, name: string): void =>
    void input.write(
      `${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name } })}\n`,
    );
  const send = (message: object): void => void fromServer.write(`${JSON.stringify(message)}\n`);
  const start = { protocolVersion: '2025-06-18', capabilities: {} };
  input.write(
    `${JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: start })}\n`,
  );
  expect((await next(toServer)).method).toBe('initialize');
  send({ jsonrpc: '2.0', id: 0, result: start });
  expect((await next(output)).id).toBe(0);

  call(1, 'ask');
  expect((await next(toServer)).id).toBe(1);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  send({ jsonrpc: '2.0', id: 'q', method: 'elicitation/create', params: {} });
  expect((await next(output)).method).toBe('elicitation/create');
  call(2, 'checkout');
  expect(JSON.stringify(await next(output))).toContain('"reason":"busy"');
  await vi.advanceTimersByTimeAsync(60_000);
  call(3, 'checkout');
  await new Promise(setImmediate);
  send({ jsonrpc: '2.0', id: 1, result: { content: [] } });
  expect((await next(output)).id).toBe(1);
  expect((await next(toServer)).id).toBe(3);
  send({ jsonrpc: '2.0', id: 3, result: { content: [] } });
  expect((await next(output)).id).toBe(3);
});
