import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import Database from 'libsql';
import { type OrderRules, runDigest, StateMachineGate } from 'mcp-interlock';
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { testGate } from 'mcp-interlock-testing';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { sharedPostgres, sharedRedis } from '../../../test/services/shared.ts';
import { claimed, claimOf, HOUR, step } from '../../testing/src/fixtures.ts';
import { check } from '../src/check-command.ts';
import { Installed } from './installed.ts';

/** A gate of the deployment after the one that saved the runs: "pay" was renamed to "payment". */
const moduleOf = (id: string, migrate: string): string => `
import { StateMachineGate } from 'mcp-interlock';
export default new StateMachineGate({
  id: ${JSON.stringify(id)},
  initial: 'empty',
  states: {
    empty: { on: { ADD: 'filled' } },
    filled: { on: { CHECKOUT: 'payment' } },
    payment: { on: { PAY: 'paid' } },
    paid: { type: 'final' },
  },
}, { ${migrate} })
  .bindTool('cart_add', 'empty', 'ADD')
  .bindTool('cart_checkout', 'filled', 'CHECKOUT')
  .bindTool('cart_settle', 'payment', 'PAY');
`;
const MIGRATE = `migrate: ({ state, context }) => {
  if (state === 'lost') throw new Error('no such\\n\\u001b[2Jstate');
  return { state: state === 'pay' ? 'payment' : state, context };
}`;
const TOOLS = '["cart_add", "cart_checkout", "cart_settle"]';

const NOT_COMPARED = '  Not compared: the store has noted no gate of these runs. Give --old FILE.';

const installed = new Installed();

beforeAll(async () => {
  await installed.install();
  for (const name of ['redis', 'pg']) installed.link(name);
  installed.write('tools.json', TOOLS);
}, 60_000);

afterAll(() => installed.remove());

/** The command in a process of its own, as a developer types it before a deployment. */
const command = (...args: readonly string[]) => installed.end(...args);

const tools = (): string[] => ['--tools', installed.path('tools.json')];

function openSqlite(url: string): AtomicStateStore {
  const database = new Database(url.slice('sqlite:'.length));
  onTestFinished(() => void database.close());
  return sqliteStore({ database });
}

async function openRedis(url: string): Promise<AtomicStateStore> {
  const client = createClient({ url });
  await client.connect();
  onTestFinished(() => client.destroy());
  return redisStore({ client });
}

async function openPostgres(url: string): Promise<AtomicStateStore> {
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const store = postgresStore({ pool });
  await store.migrate();
  return store;
}

/** A run of the older deployment, in a state. */
async function makeRun(
  store: AtomicStateStore,
  run: string,
  workflow: string,
  state: string,
): Promise<void> {
  await store.open(run, {}, HOUR);
  await step(store, run, { workflow }, { snapshot: { state } });
}

it.each<
  [string, () => Promise<string>, (url: string) => AtomicStateStore | Promise<AtomicStateStore>]
>([
  ['SQLite', async () => `sqlite:${installed.path('runs.db')}`, openSqlite],
  ['Redis', sharedRedis, openRedis],
  ['PostgreSQL', sharedPostgres, openPostgres],
])('tries a gate on the runs that live on %s, and changes nothing', async (_, urlOf, open) => {
  const url = await urlOf();
  const store = await open(url);
  // Other tests use the same servers.
  const workflow = `checkout-${randomUUID()}`;
  const keys = Array.from({ length: 4 }, () => randomUUID());
  const [filled = '', held = '', open1 = '', lost = ''] = keys;
  await makeRun(store, filled, workflow, 'filled');
  await makeRun(store, held, workflow, 'pay');
  await makeRun(store, open1, workflow, 'pay');
  await makeRun(store, lost, workflow, 'lost');
  await claimed(store, claimOf(held, { workflow, leaseMs: 1, step: { tool: 'cart_pay' } }));
  const asked = { workflow, forMs: 0, limit: 10 };
  await expect.poll(async () => (await store.held?.(asked))?.runs.length).toBe(1);
  const saved = async () => (await store.stuck?.(asked))?.runs;
  const before = await saved();

  const file = installed.write(`${workflow}.ts`, moduleOf(workflow, MIGRATE));
  const { status, out, err } = await command('check', file, ...tools(), '--store', url);
  expect([status, err]).toEqual([1, '']);
  const [gate, head, ...lines] = out.trimEnd().split('\n');
  expect(gate).toBe(`${workflow}: nothing found`);
  expect(head).toMatch(new RegExp(`^${workflow}: 4 runs in (sqlite|redis|postgres)`));
  expect(head).not.toMatch(/:[^/@]+@/);
  expect(lines[0]).toBe('  2 runs in "pay"');
  expect(lines.slice(1, 3).sort()).toEqual(['  1 run in "filled"', '  1 run in "lost"']);
  expect(lines.slice(3)).toEqual([
    '  "migrate" takes 2 runs in "pay" to "payment"',
    `  error migrate-threw: 1 run in "lost" cannot be read, such as ${runDigest(lost)}`,
    `    a run of "${workflow}" in "lost": "migrate" threw: no such\\u000a\\u001b[2Jstate`,
    '    Mend "migrate": it must give a state and a context for them.',
    `  error tool-not-bound: 1 held step of "cart_pay", such as in ${runDigest(held)}`,
    '    Bind it until they are settled, or give `resolve()` the event.',
    NOT_COMPARED,
  ]);
  for (const key of keys) expect(out).not.toContain(key);

  const json = await command('check', file, ...tools(), '--store', url, '--json');
  expect(json.status).toBe(1);
  expect(JSON.parse(json.out).workflows).toMatchObject([
    {
      id: workflow,
      findings: [],
      runs: {
        runs: 4,
        unreadable: 1,
        faults: [{ kind: 'migrate-threw', state: 'lost', runs: 1, run: runDigest(lost) }],
        migrated: [{ from: 'pay', version: 0, to: 'payment', runs: 2 }],
        unbound: [{ tool: 'cart_pay', held: 1, running: 0, run: runDigest(held) }],
      },
    },
  ]);
  expect(await saved()).toEqual(before);
});

it('prints what its page shows', async () => {
  const page = new Page('docs/operate/operations.md');
  const shown = page.blocks('text').find((block) => block.startsWith('checkout: nothing found'));
  const [file = ''] = page.blocks('ts').filter((block) => block.includes('no price'));
  const url = `sqlite:${installed.path('page.db')}`;
  const store = openSqlite(url);
  for (const run of ['a', 'b', 'c']) await makeRun(store, run, 'checkout', 'pay');
  for (const run of ['d', 'e']) await makeRun(store, run, 'checkout', 'filled');
  await makeRun(store, 'f', 'checkout', 'quoted');
  await claimed(
    store,
    claimOf('c', { workflow: 'checkout', leaseMs: 1, step: { tool: 'cart_pay' } }),
  );
  const asked = { workflow: 'checkout', limit: 10 };
  await expect.poll(async () => (await store.held?.(asked))?.runs.length).toBe(1);
  const { out, status } = await check([
    installed.write('page.ts', file),
    ...tools(),
    '--store',
    url,
  ]);
  expect(out.replaceAll(url, 'sqlite:runs.db').trimEnd()).toBe(shown?.trimEnd());
  expect(status).toBe(1);
});

it('ends well where the gate can go on with each run', async () => {
  const url = `sqlite:${installed.path('good.db')}`;
  await makeRun(openSqlite(url), randomUUID(), 'checkout', 'pay');
  const file = installed.write('good.ts', moduleOf('checkout', MIGRATE));
  expect(await command('check', file, ...tools(), '--store', url)).toEqual({
    status: 0,
    out:
      'checkout: nothing found\n' +
      `checkout: 1 run in ${url}\n` +
      '  1 run in "pay"\n' +
      '  "migrate" takes 1 run in "pay" to "payment"\n' +
      `${NOT_COMPARED}\n`,
    err: '',
  });
  const without = installed.write('without.ts', moduleOf('checkout', ''));
  const { status, out } = await command('check', without, ...tools(), '--store', url);
  expect(status).toBe(1);
  expect(out).toContain('error unknown-state: 1 run in "pay" cannot be read, such as ');
  expect(out).toContain('Give the gate a "migrate" that takes them to another state.\n');
});

it('makes no store, and still says what is wrong with the file', async () => {
  const file = installed.write('nowhere.ts', moduleOf('checkout', ''));
  const path = installed.path('nowhere.db');
  const args = ['check', file, ...tools(), '--store', `sqlite:${path}`];
  expect(await command(...args)).toEqual({
    status: 1,
    out: 'checkout: nothing found\n',
    err: `mcp-interlock: there is no file ${path}: give the --store of your gates\n`,
  });
  expect(existsSync(path)).toBe(false);
  const other = new Database(installed.path('other.db'));
  other.exec('CREATE TABLE people (name TEXT)');
  other.close();
  const before = readFileSync(installed.path('other.db'));
  const wrong = ['--store', `sqlite:${installed.path('other.db')}`];
  const { status, err } = await command('check', file, ...tools(), ...wrong);
  expect(status).toBe(1);
  expect(err).toContain('other.db holds no runs: give the --store of your gates\n');
  expect(readFileSync(installed.path('other.db'))).toEqual(before);
});

it('doubts a store that has no run of the gate', async () => {
  const url = `sqlite:${installed.path('none.db')}`;
  openSqlite(url);
  const file = installed.write('none.ts', moduleOf('checkout', ''));
  expect(await command('check', file, ...tools(), '--store', url)).toEqual({
    status: 0,
    out: `checkout: nothing found\ncheckout: 0 runs in ${url}\n`,
    err:
      `mcp-interlock: ${url} has no run of checkout that is under way. ` +
      'Is it the store of your gates?\n',
  });
});

it.each([
  ['memory', 'another process cannot see what a gate keeps'],
  ['mysql://host', '--store: expected sqlite:runs.db'],
])('tells a wrong store as freeze does: %s', async (store, message) => {
  const file = installed.write('wrong.ts', moduleOf('checkout', ''));
  await expect(check([file, '--store', store])).rejects.toThrow(message);
  await expect(check([file, '--store', store])).rejects.toHaveProperty('name', 'UsageError');
});

/** A build of the bank that serves: its calls, each in a session of its own. */
async function serve(
  store: AtomicStateStore,
  rules: object,
  calls: Readonly<Record<string, readonly (readonly [tool: string, args?: object])[]>>,
  service?: string,
): Promise<void> {
  const gate = StateMachineGate.fromOrder(rules as OrderRules, { id: 'bank' });
  for (const [run, made] of Object.entries(calls)) {
    // The store goes by its own time, and only the gate's note by this one.
    const now = Date.parse('2026-11-02T08:00Z');
    await using app = testGate(gate as never, { run, now, session: { store, service } });
    for (const [tool, args] of made)
      expect((await app.call(tool, args as never)).refusal, tool).toBe(undefined);
  }
  const named = service === undefined ? 'gates:bank' : `${service}/gates:bank`;
  await expect.poll(() => store.readSwitch?.(named)).toBeDefined();
}

const SPENT = { limit: { sum: 'amount', max: 100, within: '24h' } };
const PAY_60 = ['pay', { amount: 60 }] as const;

describe('check --store, where the store has noted a gate', () => {
  it('prints what its page shows', async () => {
    const page = new Page('docs/build/change-rules.md');
    const [shown = ''] = page.blocks('text');
    const [file = ''] = page.blocks('json');
    const url = `sqlite:${installed.path('bank.db')}`;
    const rules = { pay: SPENT, refund: { limit: { times: 1, within: '24h' } } };
    await serve(openSqlite(url), rules, {
      a: [PAY_60, ['refund']],
      b: [PAY_60],
      c: [['pay', { amount: 10 }]],
    });
    const next = installed.write('next.json', file);
    const bank = installed.write('bank-tools.json', '["pay", "refund", "risk"]');
    const args = [next, '--tools', bank, '--key', 'principal', '--store', url];
    const { out, status } = await check(args);
    expect(out.replaceAll(url, 'sqlite:bank.db').trimEnd()).toBe(shown.trimEnd());
    expect(status).toBe(1);
    const fails = async (...on: string[]) =>
      (await check([...args, ...on.flatMap((each) => ['--fail-on', each])])).status;
    expect(await fails('none')).toBe(0);
    expect(await fails('unreadable', 'held', 'opened')).toBe(0);
    for (const each of ['closed', 'budget']) expect(await fails(each)).toBe(1);
    const keyed = await check([next, '--tools', bank, '--key', 'session', '--store', url]);
    expect(keyed.out).toContain('warning limit-resettable at pay');
  });

  it('says what opens, which budget begins anew, and what no rule is about any more', async () => {
    const url = `sqlite:${installed.path('looser.db')}`;
    await serve(
      openSqlite(url),
      { pay: SPENT, look: { limit: { times: 1 } }, peek: {} },
      {
        a: [PAY_60, ['look'], ['peek']],
      },
    );
    const file = installed.write('looser.json', '{ "id": "bank", "order": { "look": {} } }');
    const { out, status } = await check([file, '--tools', tools()[1] ?? '', '--store', url]);
    const a = runDigest('a');
    expect(out.slice(out.indexOf('  compared')).replace(/.* workflow\n$/, '')).toBe(
      '  compared with the gate noted at 2026-11-02T08:00Z\n' +
        `  note opened: "look", now in 1 run, such as ${a}\n` +
        '    0 runs could before, 1 can after.\n' +
        '  no rule: "pay" can be called in each run, as before\n' +
        '  no rule: "peek" can be called in each run, as before\n' +
        `  error budget: a new budget for "pay" in 1 run, such as ${a}\n` +
        '    amount may add up to at most 100 in 1 day. The new gate has no such limit.\n' +
        `  error budget: a new budget for "look" in 1 run, such as ${a}\n` +
        '    At most 1. The new gate has no such limit.\n',
    );
    expect(status).toBe(1);
  });

  it('takes a file in the place of the note, and says where it needs one', async () => {
    const url = `sqlite:${installed.path('old.db')}`;
    await serve(openSqlite(url), { pay: {} }, { a: [['pay']] });
    const next = installed.write(
      'with-guard.ts',
      `import { StateMachineGate } from 'mcp-interlock';
      export default StateMachineGate.fromOrder({ pay: { guard: () => true } }, { id: 'bank' });`,
    );
    const args = [next, '--tools', installed.write('pay.json', '["pay"]'), '--store', url];
    const noted = await check(args);
    expect(noted.out).toContain('  perhaps: "pay", by functions that differ: guard\n');
    expect(noted.status).toBe(0);
    const given = await check([...args, '--old', next]);
    expect(given.out).toContain('  compared with the gate of --old: nothing changes for them\n');
    const json = await check([...args, '--old', next, '--json']);
    expect(JSON.parse(json.out).workflows[0].runs.compared).toMatchObject({
      with: 'given',
      noted: [{ isSame: false }],
      tools: [],
    });
    const other = installed.write('other.json', '{ "id": "shop", "order": { "pay": {} } }');
    const missed = await check([...args, '--old', other]);
    expect(missed.out).toContain('  --old has no gate "bank": what the store has noted counts.\n');
    expect(missed.out).toContain('  compared with the gate noted at 2026-11-02T08:00Z\n');
    const same = installed.write('same.json', '{ "id": "bank", "order": { "pay": {} } }');
    const { out } = await check([same, ...args.slice(1)]);
    expect(out).toContain('  The gate that serves them says the same.\n');
  });

  it('looks at the runs of one service', async () => {
    const url = `sqlite:${installed.path('services.db')}`;
    const store = openSqlite(url);
    await serve(store, { pay: {} }, { a: [['pay']], b: [['pay']] }, 'eu');
    await serve(store, { pay: { once: true } }, { c: [['pay']] }, 'us');
    const file = installed.write('once.json', '{"id":"bank","order":{"pay":{"once":true}}}');
    const of = async (...service: string[]) =>
      (await check([file, '--store', url, ...service])).out;
    expect(await of('--service', 'eu')).toContain('  error closed: "pay", no longer in 2 runs');
    expect(await of('--service', 'us')).toContain('  The gate that serves them says the same.\n');
    expect(await of()).toContain('bank: 0 runs in ');
  });

  it('says of two rules that become one which budget a roll-back begins anew', async () => {
    const url = `sqlite:${installed.path('joined.db')}`;
    const both = { pay: SPENT, charge: SPENT };
    await serve(openSqlite(url), both, { a: [PAY_60, ['charge', { amount: 9 }]] });
    const settle = { ...SPENT, renamed: ['pay', 'charge'] };
    const joined = JSON.stringify({ id: 'bank', order: { settle } });
    const { out, status } = await check([installed.write('joined.json', joined), '--store', url]);
    expect(out).toContain('  note records-joined at settle: ');
    expect(out).toContain(
      `  error budget: a new budget for "charge" in 1 run, such as ${runDigest('a')}\n` +
        '    amount may add up to at most 100 in 1 day. ' +
        'The calls go to the record of another old name: a roll-back does not find them.\n',
    );
    expect(status).toBe(1);
  });

  it.each([
    [['--old', 'old.ts'], '--old is about runs: give the --store of your gates too'],
    [['--fail-on', 'closed'], '--fail-on is about runs: give the --store of your gates too'],
    [['--header', 'a: b'], '--header is sent to --target: give that too'],
    [
      ['--store', 'sqlite:x.db', '--fail-on', 'all'],
      '--fail-on: expected one of unreadable, closed, opened, budget, held, none, got "all"',
    ],
    [
      ['--target', 'http://127.0.0.1:1/mcp', '--header', 'Authorization Bearer secret'],
      "--header: expected a name and a value, such as 'Authorization: Bearer …'",
    ],
  ])('refuses options that do not go together: %s', async (given, message) => {
    const file = installed.write('options.json', '{ "id": "bank", "order": { "pay": {} } }');
    const refused = check([file, ...given]);
    await expect(refused).rejects.toHaveProperty('name', 'UsageError');
    await expect(refused).rejects.toThrow(message);
  });
});
