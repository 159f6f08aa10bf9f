import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { CHECK, check } from '../src/check-command.ts';

const SHOP = fileURLToPath(new URL('fixtures/shop.py', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'interlock-check-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, value: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify(value));
  return path;
}

const CHECKOUT = {
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD: 'filled' } },
    filled: { on: { PAY: 'paid' } },
    paid: { type: 'final' },
  },
  tools: {
    cart_add: { states: 'empty', success: 'ADD' },
    cart_pay: { states: 'filled', success: 'PAY' },
  },
};
const good = file('good.json', CHECKOUT);
const broken = file('broken.json', {
  ...CHECKOUT,
  states: { ...CHECKOUT.states, lost: { on: { ADD: 'filled' } } },
  tools: { ...CHECKOUT.tools, cart_pai: { states: 'filled', success: 'PAY' } },
});

it('finds nothing in a good gate, and says what is wrong with a broken one', async () => {
  const tools = file('tools.json', ['cart_add', 'cart_pay']);
  expect(await check([good, '--tools', tools])).toEqual({
    out: 'checkout: nothing found\n',
    err: '',
    status: 0,
  });
  const { out, status } = await check([broken, '--tools', tools]);
  expect(status).toBe(1);
  expect(out).toContain('error state-unreachable at lost: ');
  expect(out).toContain('error tool-not-listed at cart_pai: ');
  const ignored = ['--ignore', 'state-unreachable:lost', '--ignore', 'tool-not-listed'];
  expect((await check([broken, '--tools', tools, ...ignored])).status).toBe(0);
});

it('asks a server for its tools', async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void python.kill('SIGKILL'));
  const [target] = (await once(createInterface({ input: python.stdout }), 'line')) as [string];
  expect((await check([good, '--target', target])).status).toBe(0);
  expect((await check([broken, '--target', target])).out).toContain('tool-not-listed at cart_pai');
  await expect(check([good, '--target', 'http://127.0.0.1:1/mcp'])).rejects.toThrow(
    'http://127.0.0.1:1/mcp does not list its tools: ',
  );
});

it('prints JSON for CI, and diagrams apart from what was found', async () => {
  const json = JSON.parse((await check([broken, '--json'])).out);
  expect(json.workflows[0]).toMatchObject({
    id: 'checkout',
    findings: [{ code: 'state-unreachable', severity: 'error', place: 'lost' }],
  });
  const { out, err } = await check([broken, '--diagram']);
  expect(out).toContain('stateDiagram-v2');
  expect(err).toContain('state-unreachable');
});

it.each<[tools: unknown, isRight: boolean]>([
  [[{ name: 'cart_add' }, { name: 'cart_pay' }], true],
  [{ tools: [{ name: 'cart_add' }, { name: 'cart_pay' }] }, true],
  [
    { jsonrpc: '2.0', id: 1, result: { tools: [{ name: 'cart_add' }, { name: 'cart_pay' }] } },
    true,
  ],
  [{ tool: [] }, false],
  [[7], false],
])('reads tools from %j: %s', async (tools, isRight) => {
  const checking = check([good, '--tools', file('listed.json', tools)]);
  if (isRight) expect((await checking).status).toBe(0);
  else await expect(checking).rejects.toThrow('expected an array of names, or the result of');
});

it.each<[args: string[], message: string]>([
  [[good, '--tools', 'a', '--target', 'http://a/mcp'], 'give one of them'],
  [[good, '--ignore', 'dead-and'], 'did you mean "dead-end"?'],
  [[good, '--idle', '7'], '--idle: expected a time'],
  [[], 'give the file of a gate'],
])('tells a wrong command line: %j', async (args, message) => {
  await expect(check(args)).rejects.toThrow(message);
});

it('has each of its options on its page', () => {
  const rows = new Page('docs/reference/options.md').tableAfter(
    '<!-- options: mcp-interlock check -->',
  );
  const options = Object.entries(CHECK.options).map(([name, option]) => {
    const takes = 'takes' in option ? ` ${option.takes}` : '';
    return `--${name}${takes}${'many' in option ? ' …' : ''}`;
  });
  expect(rows.map(([option]) => option)).toEqual(options);
});
