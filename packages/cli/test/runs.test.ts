import { randomUUID } from 'node:crypto';
import Database from 'libsql';
import { runDigest } from 'mcp-interlock';
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { claimed, claimOf, HOUR, step } from '../../testing/src/fixtures.ts';
import { HELD, RESOLVE, RUNS, runResolve } from '../src/runs-command.ts';
import { Installed } from './installed.ts';

const MODULE = `
import { StateMachineGate } from 'mcp-interlock';
export default [
  new StateMachineGate({
    id: 'checkout',
    initial: 'payment',
    states: { payment: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
  })
    .bindTool('cart_pay', 'payment', { success: 'PAY', uncertain: 'hold' })
    .bindTool('cart_quote', 'payment'),
  new StateMachineGate({ id: 'support', initial: 'any', states: { any: {} } })
    .bindTool('help', 'any'),
];
`;
const ANN = ['--actor', 'ann', '--note', 'looked up'];

const installed = new Installed();
let file: string;

beforeAll(async () => {
  await installed.install();
  file = installed.write('gate.ts', MODULE);
}, 60_000);

afterAll(() => installed.remove());

/** A file of runs: one is held, another has two unsettled calls, a third has nothing. */
async function fileOfRuns() {
  const path = installed.path(`${randomUUID()}.db`);
  const database = new Database(path);
  onTestFinished(() => void database.close());
  let now = Date.now() - 60_000;
  const store: AtomicStateStore = sqliteStore({ database, now: () => now });
  const [held = '', unsettled = '', idle = ''] = [randomUUID(), randomUUID(), randomUUID()];
  for (const run of [held, unsettled, idle]) {
    await store.open(run, {}, 24 * HOUR);
    await step(store, run, { ttlMs: 24 * HOUR }, { snapshot: { state: 'payment' } });
  }
  const lose = async (run: string, uncertain: 'hold' | 'retry', tool: string, digest = tool) => {
    const { idempotencyKey } = await claimed(
      store,
      claimOf(run, { leaseMs: 1, ttlMs: 24 * HOUR, step: { tool, uncertain, digest } }),
    );
    now += 10;
    return idempotencyKey;
  };
  const keys = {
    held: await lose(held, 'hold', 'cart_pay'),
    first: await lose(unsettled, 'retry', 'cart_quote', 'first'),
    second: await lose(unsettled, 'retry', 'cart_quote', 'second'),
  };
  now = Date.now();
  const command = (name: string, ...args: readonly string[]) =>
    installed.end(name, file, '--store', `sqlite:${path}`, ...args);
  return { path, store, command, keys, runs: { held, unsettled } };
}

let stage: Awaited<ReturnType<typeof fileOfRuns>>;
beforeEach(async () => {
  stage = await fileOfRuns();
});

it('counts the runs, lists the calls of unknown outcome and settles each by its key', async () => {
  const { path, command, keys, runs } = stage;
  const counted = await command('runs');
  expect(counted.status).toBe(0);
  expect(counted.out).toBe(
    'checkout: 3 runs have not ended; 0 running, 1 held, 1 with unsettled calls, 0 unreadable\n' +
      '  payment: 3\n' +
      'support: 0 runs have not ended; 0 running, 0 held, 0 with unsettled calls, 0 unreadable\n',
  );
  const listed = await command('held');
  expect([listed.status, listed.err]).toEqual([0, '']);
  expect(listed.out.replaceAll(/since \S+Z/g, 'since then').split('\n')).toEqual([
    `checkout, run ${runDigest(runs.held)}: cart_pay is held since then, key ${keys.held}`,
    ...[keys.first, keys.second].map(
      (key) =>
        `checkout, run ${runDigest(runs.unsettled)}: cart_quote is unsettled since then, key ${key}`,
    ),
    `To settle one: mcp-interlock resolve ${file} --store sqlite:${path} --key KEY ` +
      '--outcome succeeded|failed --actor NAME --note WHY',
    '',
  ]);
  for (const run of Object.values(runs)) expect(listed.out).not.toContain(run);

  const paid = await command('resolve', '--key', keys.held, '--outcome', 'succeeded', ...ANN);
  expect(paid).toEqual({
    status: 0,
    out: 'checkout: the call counts as succeeded, by ann: looked up. Now: paid\n',
    err: '',
  });
  const again = await command('resolve', '--key', keys.held, '--outcome', 'failed', ...ANN);
  expect(again).toMatchObject({ status: 1, out: '' });
  expect(again.err).toContain('nothing was changed: no such call waits for a person');
  await command('resolve', '--key', keys.first, '--outcome', 'failed', ...ANN);
  const { out } = await command('held', '--json');
  expect(JSON.parse(out)).toMatchObject({
    calls: [{ workflow: 'checkout', status: 'unsettled', idempotencyKey: keys.second }],
  });
}, 60_000);

it('settles a run by its key, where one call of one workflow is meant', async () => {
  const { store, command, runs } = stage;
  const asked = ['--outcome', 'succeeded', ...ANN];
  const unnamed = await command('resolve', '--run', runs.held, ...asked);
  expect(unnamed).toMatchObject({ status: 2, out: '' });
  expect(unnamed.err).toContain('give --workflow, one of checkout, support');
  const own = ['--workflow', 'checkout', ...asked];
  const several = await command('resolve', '--run', runs.unsettled, ...own);
  expect(several).toMatchObject({ status: 1, out: '' });
  expect(several.err).toContain('the run has several such calls');
  const unknown = await command('resolve', '--run', 'nope', ...own);
  expect(unknown.err).toContain('the store has no run of that key');
  const paid = await command('resolve', '--run', runs.held, ...own, '--json');
  expect(JSON.parse(paid.out)).toEqual({ workflow: 'checkout', resolved: true, state: 'paid' });
  const [last] = (await store.history({ run: runs.held, workflow: 'checkout' }, 1)) ?? [];
  expect(last).toMatchObject({ kind: 'resolved', actor: 'ann', note: 'looked up' });
}, 60_000);

it.each([
  [['--outcome', 'failed', ...ANN], 'give one of --key and --run'],
  [['--key', 'a', '--run', 'b', '--outcome', 'failed', ...ANN], 'give one of --key and --run'],
  [['--key', 'a', ...ANN], '--outcome is needed'],
  [['--key', 'a', '--outcome', 'paid', ...ANN], 'expected one of succeeded, failed, got "paid"'],
  [['--key', 'a', '--outcome', 'failed', '--note', 'why'], '--actor is needed'],
  [['--key', 'a', '--outcome', 'failed', '--actor', 'ann'], '--note is needed'],
])('names what is wrong with %j', async (args, words) => {
  await expect(runResolve(['gate.ts', ...args])).rejects.toMatchObject({
    name: 'UsageError',
    message: expect.stringContaining(words),
  });
});

it.each([
  ['runs', RUNS],
  ['held', HELD],
  ['resolve', RESOLVE],
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
