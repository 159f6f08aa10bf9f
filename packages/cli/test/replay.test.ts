import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect } from '../../../test/helpers/client.ts';
import { startProgram } from '../../../test/helpers/program.ts';
import { freePort } from '../../../test/services/ports.ts';
import { Installed } from './installed.ts';

const EVERYTHING = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);

const gate = (states: string) => `
import { StateMachineGate } from 'mcp-interlock';
export default new StateMachineGate({
  id: 'report',
  initial: 'started',
  states: { started: { on: { MEASURED: 'measured' } }, measured: { on: { SAID: 'started' } } },
}).bindTool('get-sum', 'started', 'MEASURED').bindTool('echo', ${states}, 'SAID');
`;

const installed = new Installed();

beforeAll(() => installed.install(), 60_000);
afterAll(() => installed.remove());

it('records a server that has no gate, and tells what one would have refused', async () => {
  const port = await freePort();
  const server = await startProgram(EVERYTHING, {
    args: ['streamableHttp'],
    env: { PORT: String(port) },
    ready: /listening on port/,
  });
  const calls = installed.path('calls.jsonl');
  const target = `http://127.0.0.1:${port}/mcp`;
  const watcher = await installed.gate(
    undefined,
    ...['--record', calls, '--store', 'memory', '--target', target],
  );
  try {
    for (const isRight of [true, true, false]) {
      const client = await connect(watcher.url);
      if (isRight) await client.call('get-sum', { a: 1, b: 2 });
      await client.call('echo', { message: 'the secret' });
      await client.close();
    }
  } finally {
    watcher.child.kill('SIGTERM');
    await once(watcher.child, 'exit');
    await server.kill9();
  }
  expect(readFileSync(calls, 'utf8')).not.toContain('secret');
  expect(statSync(`${calls}.key`).mode & 0o077).toBe(0);

  const strict = installed.write('gate.ts', gate("'measured'"));
  const loose = installed.write('loose.ts', gate("['started', 'measured']"));
  const told = await installed.run('replay', strict, '--calls', calls);
  expect(told).toContain('report: 5 calls in 3 runs');
  expect(told).toContain('refused    1 run (33.3 %)');
  expect(told).toContain('1 run: echo, state in started');
  const [json] = JSON.parse(await installed.run('replay', strict, '--calls', calls, '--json'));
  expect(json).toMatchObject({ workflow: 'report', runs: 3, refused: 1, unknown: 0 });
  const compared = await installed.run('replay', strict, '--calls', calls, '--compare', loose);
  expect(compared).toContain('1 run: not refused → echo refused, state in started');

  const share = (most: string) =>
    installed.end('replay', strict, '--calls', calls, '--max-refused', most);
  expect(await share('40%')).toMatchObject({ status: 0 });
  expect(await share('30%')).toMatchObject({ status: 1, err: expect.stringContaining('30%') });
  expect(await share('many')).toMatchObject({ status: 2 });
  expect(await installed.end('replay', strict)).toMatchObject({ status: 2 });
}, 120_000);

it('suggests a gate that check passes, and that a replay refuses nothing by', async () => {
  let seq = 0;
  const lines: string[] = [];
  const call = (run: number, tool: string, id: string): void => {
    const of = { instance: 'one', at: 0, call: ++seq };
    const args = { hmacs: { '/id': `s${id.padEnd(21, '_')}` } };
    lines.push(JSON.stringify({ type: 'start', seq, ...of, tool, run: `run${run}`, args }));
    lines.push(JSON.stringify({ type: 'end', seq: ++seq, ...of, outcome: 'ok' }));
  };
  for (let run = 0; run < 80; run++) {
    if (run % 3 === 0) call(run, 'look', `look${run}`);
    call(run, 'find', `id${run}`);
    if (run % 2 === 0) call(run, 'look', `look${run + 1}`);
    call(run, 'pay', `id${run}`);
    for (let more = 0; more < 4; more++) call(run, 'look', `look${run + more}`);
  }
  const calls = installed.write('made.jsonl', `${lines.join('\n')}\n`);
  const asked = ['suggest', '--calls', calls, '--reached', 'pay'] as const;
  const { status, out, err } = await installed.end(...asked);
  expect({ status, err }).toMatchObject({ status: 0, err: expect.stringContaining('80 of 80') });
  expect(JSON.parse(out)).toEqual({
    id: 'suggested',
    order: {
      pay: { after: [{ tool: 'find', same: { '/id': { args: '/id' } } }] },
    },
  });
  const gate = installed.write('suggested.json', out);
  expect(await installed.run('check', gate)).toContain('suggested: nothing found');
  expect(await installed.run('replay', gate, '--calls', calls)).toContain('refused    0 runs');
  expect(await installed.end('suggest', '--calls', calls)).toMatchObject({ status: 2 });
}, 60_000);
