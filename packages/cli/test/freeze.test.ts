import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { runDigest } from 'mcp-interlock';
import { Pool } from 'pg';
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { connect } from '../../../test/helpers/client.ts';
import { Page } from '../../../test/helpers/markdown.ts';
import { sharedPostgres, sharedRedis } from '../../../test/services/shared.ts';
import { FREEZE, FROZEN, runFreeze, UNFREEZE } from '../src/freeze-command.ts';
import { Installed } from './installed.ts';

// Each of them starts several processes, one after another.
vi.setConfig({ testTimeout: 90_000 });

const SHOP = fileURLToPath(new URL('fixtures/shop.py', import.meta.url));
const CHECKOUT = {
  id: 'checkout',
  initial: 'empty',
  states: { empty: { on: { ADD: 'filled' } }, filled: { on: { PAY: 'empty', ADD: 'filled' } } },
  tools: {
    cart_add: { states: ['empty', 'filled'], success: 'ADD' },
    cart_pay: { states: 'filled', success: 'PAY' },
  },
};
const MODULE = `
import { StateMachineGate } from 'mcp-interlock';
export default [
  new StateMachineGate(${JSON.stringify({ ...CHECKOUT, tools: undefined })})
    .bindTool('cart_add', ['empty', 'filled'], 'ADD')
    .bindTool('cart_pay', 'filled', 'PAY'),
  new StateMachineGate({ id: 'support', initial: 'any', states: { any: {} } })
    .bindTool('help', 'any'),
];
`;
const ANN = ['--actor', 'ann', '--note', 'the provider charges twice'];
const SINCE = /since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/;

const installed = new Installed();
let target: string;

beforeAll(async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = once(createInterface({ input: python.stdout }), 'line');
  await installed.install();
  for (const name of ['redis', 'pg']) installed.link(name);
  installed.write('gate.json', JSON.stringify(CHECKOUT));
  installed.write('gate.ts', MODULE);
  [target] = (await lines) as [string];
  return () => void python.kill('SIGKILL');
}, 60_000);

afterAll(() => installed.remove());

/** The command in a process of its own, as an operator types it. */
const command = (...args: readonly string[]) => installed.end(...args);

/** Two gates, each a process, on one store, by default a file of theirs, and a client of each. */
async function twoGates(
  name: string,
  file = installed.path('gate.json'),
  store = `sqlite:${installed.path(`${name}.db`)}`,
) {
  const start = async () => {
    const gate = await installed.gate(file, '--target', target, '--store', store);
    onTestFinished(gate.kill9);
    const client = await connect(gate.url);
    onTestFinished(client.close);
    return client;
  };
  const clients = [await start(), await start()] as const;
  const all = (tool: string): Promise<string[]> =>
    Promise.all(clients.map(async (client) => (await client.call(tool)).text));
  return { store, file, clients, all };
}

const DID = ['did cart_add', 'did cart_add'];

it.each([
  ['SQLite', async () => `sqlite:${installed.path('all.db')}`],
  ['Redis', sharedRedis],
  ['PostgreSQL', sharedPostgres],
])('stops all calls of all gates on %s within a second, and lets them go on', async (_, url) => {
  // Other tests use the same servers.
  const id = `checkout-${randomUUID()}`;
  const own = installed.write(`${id}.json`, JSON.stringify({ ...CHECKOUT, id }));
  const { store, file, all } = await twoGates('all', own, await url());
  expect(await all('cart_add')).toEqual(DID);
  const frozen = await command('freeze', file, '--store', store, ...ANN);
  const within = performance.now() + 1_000;
  expect(frozen).toMatchObject({ status: 0, err: '' });
  const [line, hint] = frozen.out.split('\n');
  expect(line).toMatch(SINCE);
  expect(line?.replace(SINCE, 'since then')).toBe(
    `${id}: all calls are stopped since then, by ann: the provider charges twice.`,
  );
  expect(hint).toMatch(
    /^To let it go on: mcp-interlock unfreeze \S+ --store \S+ --actor NAME --note WHY$/,
  );
  expect(hint).not.toMatch(/:[^/@]+@/);
  const words = `cart_add was not run, because the operator has stopped all runs of ${id}.`;
  while (performance.now() < within)
    if ((await all('cart_add')).every((each) => each.includes(words))) break;
  const said = await all('cart_add');
  for (const each of said) expect(each).toContain(words);
  // What no workflow binds goes on.
  expect(await all('help')).toEqual(['did help', 'did help']);

  const seen = await command('frozen', file, '--store', store);
  expect(seen).toMatchObject({ status: 0, out: frozen.out });
  const again = await command('freeze', file, '--store', store, '--actor', 'bob', '--note', 'me');
  expect(again.status).toBe(0);
  expect(again.out).toContain(`${id}: nothing was changed, since that was stopped before.\n`);
  expect(again.out).toContain('by ann: the provider charges twice.');

  const on = ['--store', store, '--actor', 'bob', '--note', 'refunded'];
  expect(await command('unfreeze', file, ...on)).toEqual({
    status: 0,
    out: `${id}: all calls go on again, by bob: refunded.\n`,
    err: '',
  });
  await expect.poll(() => all('cart_add'), { timeout: 1_000 }).toEqual(DID);
  expect((await command('unfreeze', file, ...on)).out).toBe(
    `${id}: nothing was changed, since nothing was stopped.\n`,
  );
  expect((await command('frozen', file, '--store', store)).out).toBe(
    `${id}: nothing is stopped.\n`,
  );
});

it('stops one tool, in the workflow that binds it, and says so in JSON', async () => {
  const { store, file, all } = await twoGates('tool', installed.path('gate.ts'));
  expect(await all('cart_add')).toEqual(DID);
  const frozen = await command(
    ...['freeze', file, '--store', store, '--tool', 'cart_pay', '--json', ...ANN],
  );
  expect(frozen).toMatchObject({ status: 0 });
  expect(JSON.parse(frozen.out)).toEqual({
    workflows: [
      {
        workflow: 'checkout',
        changed: true,
        stopped: [
          {
            tool: 'cart_pay',
            at: expect.any(Number),
            actor: 'ann',
            note: 'the provider charges twice',
          },
        ],
      },
    ],
  });
  const words = 'cart_pay was not run, because the operator has stopped all calls of it.';
  await expect
    .poll(() => all('cart_pay'), { timeout: 1_000 })
    .toSatisfy((said: string[]) => said.every((each) => each.includes(words)));
  expect(await all('cart_add')).toEqual(DID);
  const both = await command('frozen', file, '--store', store);
  expect(both.out).toContain('checkout: calls of cart_pay are stopped since');
  expect(both.out).toContain('support: nothing is stopped.\n');
  const none = await command('freeze', file, '--store', store, '--tool', 'cart_pya', ...ANN);
  expect(none).toMatchObject({ status: 2, out: '' });
  expect(none.err).toContain('support binds no tool "cart_pya"; it binds "help"');
  const other = await command('unfreeze', file, '--store', store, '--tool', 'cart_add', ...ANN);
  const [first, second] = other.out.split('\n');
  expect(first).toBe(
    'checkout: nothing was changed, since calls of cart_add were not stopped by themselves.',
  );
  expect(second).toContain('checkout: calls of cart_pay are stopped since');
  await command('unfreeze', file, '--store', store, '--workflow', 'checkout', ...ANN);
  await expect
    .poll(() => all('cart_pay'), { timeout: 1_000 })
    .toEqual(['did cart_pay', 'did cart_pay']);
});

it('stops one run at once, and never prints its key', async () => {
  const { store, file, clients, all } = await twoGates('run');
  expect(await all('cart_add')).toEqual(DID);
  const key = clients[0].transport.sessionId ?? '';
  const on = ['--store', store, '--run', key];
  const frozen = await command('freeze', file, ...on, ...ANN);
  expect(frozen).toMatchObject({ status: 0, err: '' });
  expect(frozen.out.replace(SINCE, 'since then')).toBe(
    `checkout, run ${runDigest(key)}: it is stopped since then, by ann: ` +
      'the provider charges twice.\n' +
      `To let it go on: mcp-interlock unfreeze ${file} --store ${store} --run KEY ` +
      '--actor NAME --note WHY\n',
  );
  const [stopped, other] = await all('cart_add');
  expect(stopped).toContain('the operator has stopped this run of checkout');
  expect(other).toBe('did cart_add');
  expect((await command('frozen', file, ...on)).out).toBe(frozen.out);
  const thawed = await command('unfreeze', file, ...on, ...ANN);
  expect(thawed.out).toBe(
    `checkout, run ${runDigest(key)}: it goes on again, by ann: the provider charges twice.\n`,
  );
  expect(await all('cart_add')).toEqual(DID);
  const unknown = await command('freeze', file, '--store', store, '--run', 'nope', ...ANN);
  expect(unknown).toEqual({
    status: 1,
    out: '',
    err: 'mcp-interlock: the store has no run of that key\n',
  });
});

it('makes no store, and doubts one that has no run', async () => {
  const file = installed.path('gate.json');
  const path = installed.path('nowhere.db');
  const missing = await command('freeze', file, '--store', `sqlite:${path}`, ...ANN);
  expect(missing).toEqual({
    status: 1,
    out: '',
    err: `mcp-interlock: there is no file ${path}: give the --store of your gates\n`,
  });
  expect(existsSync(path)).toBe(false);
  const { store } = await twoGates('empty');
  const { status, out, err } = await command('freeze', file, '--store', store, ...ANN);
  expect(status).toBe(0);
  expect(out).toContain('checkout: all calls are stopped');
  expect(err).toBe(
    `mcp-interlock: ${store} has no run of checkout that is under way. ` +
      'Is it the store of your gates?\n',
  );
});

it('makes no table in a database that is not that of the gates', async () => {
  const url = new URL(await sharedPostgres());
  const name = `empty_${randomUUID().replaceAll('-', '')}`;
  const pool = new Pool({ connectionString: url.href });
  await pool.query(`CREATE DATABASE ${name}`);
  onTestFinished(async () => {
    await pool.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await pool.end();
  });
  url.pathname = `/${name}`;
  const file = installed.path('gate.json');
  const { status, out, err } = await command('freeze', file, '--store', url.href, ...ANN);
  expect([status, out]).toEqual([1, '']);
  expect(err).toContain('does not exist');
  expect(err).not.toContain('    at ');
  const again = await command('frozen', file, '--store', url.href);
  expect([again.status, again.err]).toEqual([1, expect.stringContaining('does not exist')]);
});

it('keeps what another operator wrote on its line', async () => {
  const { store, file, clients } = await twoGates('lines');
  await clients[0].call('cart_add');
  const note = 'twice\nsupport: nothing is stopped.\u001b[2J';
  const args = ['--store', store, '--actor', 'eve', '--note', note];
  const { out } = await command('freeze', file, ...args);
  expect(out.trimEnd().split('\n')).toHaveLength(2);
  expect(out).toContain('by eve: twice\\u000asupport: nothing is stopped.\\u001b[2J.');
});

it.each<[args: string[], message: string]>([
  [ANN, 'give the file of a gate: mcp-interlock freeze'],
  [['gate.ts', '--note', 'why'], '--actor is needed: who does it'],
  [['gate.ts', '--actor', 'ann'], '--note is needed: why'],
  [['gate.ts', '--acter', 'ann'], 'unknown option --acter, did you mean --actor?'],
  [['gate.ts', ...ANN, '--store', 'memory'], 'another process cannot see what a gate keeps'],
  [['gate.ts', ...ANN, '--tool', 'a', '--run', 'b'], '--tool and --run: give one of them'],
  [['gate.ts', ...ANN, '--idle', '7'], '--idle: expected a time'],
  [['nope.ts', ...ANN], 'nope.ts: there is no such file'],
])('tells a wrong command line: %j', async (args, message) => {
  await expect(runFreeze(args)).rejects.toThrow(message);
  await expect(runFreeze(args)).rejects.toHaveProperty('name', 'UsageError');
});

it.each([
  ['freeze', FREEZE],
  ['unfreeze', UNFREEZE],
  ['frozen', FROZEN],
])('has each option of %s on its page', (name, { options }) => {
  const rows = new Page('docs/reference/options.md').tableAfter(
    `<!-- options: mcp-interlock ${name} -->`,
  );
  const known = Object.entries(options).map(([option, spec]) => {
    const takes = 'takes' in spec ? ` ${spec.takes}` : '';
    return `--${option}${takes}`;
  });
  expect(rows.map(([option]) => option)).toEqual(known);
});

it('has gates enforce that observed, and observe again', async () => {
  const file = installed.path('gate.json');
  const store = `sqlite:${installed.path('mode.db')}`;
  const gate = await installed.gate(file, '--target', target, '--store', store, '--observe');
  onTestFinished(gate.kill9);
  const pay = async (): Promise<string> => {
    const client = await connect(gate.url);
    onTestFinished(client.close);
    return (await client.call('cart_pay')).text;
  };
  expect(await pay()).toBe('did cart_pay');
  const enforced = await command('enforce', file, '--store', store, ...ANN, '--living');
  expect(enforced).toMatchObject({ status: 0 });
  expect(enforced.out).toMatch(
    /: enforces, also in runs that were observed, from now on, by ann: /,
  );
  await expect.poll(pay).toContain('cart_pay is not available');
  const observed = await command('observe', file, '--store', store, ...ANN);
  expect(observed.out).toMatch(/: observes, and refuses nothing, from now on, by ann: /);
  await expect.poll(pay).toBe('did cart_pay');
  expect(await command('enforce', file, '--store', store)).toMatchObject({ status: 2 });
});
