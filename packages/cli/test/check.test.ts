import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { serve } from '../../../test/helpers/serve.ts';
import { CHECK, check } from '../src/check-command.ts';
import { painted } from '../src/log.ts';

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

it('says what is worth knowing of rules, and ends as it would without', async () => {
  const order = { pay: { after: { tool: 'approve', consumes: true } } };
  const rules = file('rules.json', { id: 'bank', order });
  const { out, status } = await check([rules]);
  expect(status).toBe(0);
  expect(out).toContain('note tries-unlimited at pay: calls of tool "pay" that fail use up no');
  const document = JSON.parse((await check([rules, '--json'])).out);
  expect(document.workflows[0]).toMatchObject({
    findings: [],
    notes: [{ code: 'tries-unlimited', severity: 'note' }],
  });
  expect((await check([rules, '--ignore', 'tries-unlimited'])).out).not.toContain('note');
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

it('says at which line of the file it is, and ends with how much it found', async () => {
  const path = join(folder, 'lines.ts');
  writeFileSync(
    path,
    `import { StateMachineGate } from 'mcp-interlock';

const shop = new StateMachineGate({
  id: 'shop',
  initial: 'empty',
  states: {
    empty: { on: { ADD: 'full' } },
    full: {},
    'long lost': { on: { ADD: 'full' } },
  },
}).bindTool('add', ['empty', 'long lost'], 'ADD');
const till = StateMachineGate.fromOrder({ pay: { after: 'scan' } }, { id: 'till' });
export default [shop, till];`,
  );
  const { out } = await check([path]);
  // "long lost" is a key once, and a text twice.
  expect(out).toMatch(/error state-unreachable at long lost: .*\n.*\n {4}\S+lines\.ts:9\n/);
  expect(out).toMatch(/warning dead-end at full: .*\n.*\n {4}\S+lines\.ts:8\n/);
  expect(out.trim().split('\n').at(-1)).toBe('1 error and 1 warning in 1 of 2 workflows');
  const machine = (id: string) =>
    `new StateMachineGate({
      id: '${id}',
      initial: 'a',
      states: { a: { type: 'final' }, lost: { on: { GO: 'a' } } },
    }).bindTool('go', 'lost', 'GO')`;
  const two = `export default [${machine('one')}, ${machine('two')}];`;
  writeFileSync(path, `import { StateMachineGate } from 'mcp-interlock';\n${two}`);
  expect((await check([path])).out).toMatch(/at lost: .*\n.*\n {4}in \S+lines\.ts\n/);
});

it('paints a report where it goes to a terminal, or is told to', () => {
  const terminal = (colours: boolean) =>
    ({ isTTY: true, hasColors: () => colours }) as unknown as NodeJS.WriteStream;
  const report = '  error dead-end at paid: it ends\n    gate.ts:3\n1 error in 1 workflow\n';
  expect(painted(report, terminal(false))).toBe(report);
  expect(painted(report, { isTTY: false } as NodeJS.WriteStream)).toBe(report);
  expect(painted(report, terminal(true))).toBe(
    '\u001b[31m  error\u001b[0m dead-end at paid: it ends\n' +
      '\u001b[36m    gate.ts:3\u001b[0m\n\u001b[1m1 error in 1 workflow\u001b[0m\n',
  );
});

const MACHINE =
  "{ id: 'm', initial: 'a', states: { a: { on: { GO: 'b' } }, b: { type: 'final' } } }";
const MODULE = `import { StateMachineGate } from 'mcp-interlock';
export default new StateMachineGate(${MACHINE}).bindTool('go', 'a', 'GO');`;
const COMMON = `const { StateMachineGate } = require('mcp-interlock');
module.exports = new StateMachineGate(${MACHINE}).bindTool('go', 'a', 'GO');`;

it.each([
  ['gate.ts', MODULE],
  ['gate.mjs', MODULE],
  ['gate.js', MODULE],
  ['gate.cjs', COMMON],
])('reads %s where the project has its own mcp-interlock', async (name, text) => {
  const project = mkdtempSync(join(tmpdir(), 'interlock-check-'));
  onTestFinished(() => rmSync(project, { recursive: true }));
  mkdirSync(join(project, 'node_modules/mcp-interlock'), { recursive: true });
  const own = join(project, 'node_modules/mcp-interlock');
  // Another copy, of which only the methods are like those of a gate.
  const copy = 'class StateMachineGate { compile() {} bindTool() { return this; } }';
  writeFileSync(join(own, 'package.json'), '{ "name": "mcp-interlock", "main": "index.js" }');
  writeFileSync(join(own, 'index.js'), `exports.StateMachineGate = ${copy}`);
  writeFileSync(join(project, 'package.json'), '{ "type": "module" }');
  writeFileSync(join(project, name), text);
  writeFileSync(join(project, 'tools.json'), '["go"]');
  const tools = ['--tools', join(project, 'tools.json')];
  expect((await check([join(project, name), ...tools])).out).toBe('m: nothing found\n');
  writeFileSync(join(project, 'other.mjs'), MODULE);
  writeFileSync(join(project, 'leads.mjs'), "export { default } from './other.mjs';");
  if (name === 'gate.mjs')
    await expect(check([join(project, 'leads.mjs')])).rejects.toThrow('of another copy of it');
});

it('asks a server for its tools', async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void python.kill('SIGKILL'));
  const [target] = (await once(createInterface({ input: python.stdout }), 'line')) as [string];
  expect((await check([good, '--target', target])).status).toBe(0);
  expect((await check([broken, '--target', target])).out).toContain('tool-not-listed at cart_pai');
});

it('sends what the server asks for with each request that asks it for its tools', async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void python.kill('SIGKILL'));
  const [target] = (await once(createInterface({ input: python.stdout }), 'line')) as [string];
  const { url } = await serve((req, res) => {
    const { method, headers } = req;
    if (headers.authorization !== 'Bearer a secret' || headers['x-tenant'] !== 'eu')
      return void res.writeHead(401).end();
    const upstream = request(target, { method, headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(res);
    });
    req.pipe(upstream);
  });
  const own = ['--header', 'Authorization: Bearer a secret', '--header', 'x-tenant:eu'];
  expect((await check([good, '--target', url.href, ...own])).status).toBe(0);
  const named = await check([broken, '--target', url.href, ...own]);
  expect(named.out).toContain('tool-not-listed at cart_pai');
  const { status, failure } = await check([good, '--target', url.href, ...own.slice(0, 2)]);
  expect([status, failure?.message.includes('a secret')]).toEqual([1, false]);
});

it('says what is wrong with a file, also where the server does not list its tools', async () => {
  const dead = ['--target', 'http://127.0.0.1:1/mcp'];
  const failure = { message: 'http://127.0.0.1:1/mcp cannot be reached: ECONNREFUSED' };
  expect(await check([good, ...dead])).toMatchObject({
    out: 'checkout: nothing found. Tool names were not checked.\n',
    status: 1,
    failure,
  });
  const checked = await check([broken, ...dead]);
  expect(checked).toMatchObject({ status: 1, failure });
  expect(checked.out).toContain('error state-unreachable at lost: ');
  const { out } = await check([broken, ...dead, '--json']);
  expect(JSON.parse(out)).toMatchObject({ toolsChecked: false, workflows: [{ id: 'checkout' }] });
  await expect(check([file('shape.json', {}), ...dead])).rejects.toThrow('id: expected string');
  const { url } = await serve((_req, res) => res.writeHead(404).end());
  const { failure: refused } = await check([good, '--target', url.href]);
  expect(refused?.message).toContain(`${url.href} does not list its tools: `);
});

it('says where the names of tools were not checked', async () => {
  expect(await check([good])).toEqual({
    out: 'checkout: nothing found. ' + 'Tool names were not checked: give --target or --tools.\n',
    err: '',
    status: 0,
  });
  // Also where something else is wrong: a person must not take the rest for checked.
  expect((await check([broken])).out).toContain(
    '  Tool names were not checked: give --target or --tools.\n',
  );
  const tools = file('both.json', ['cart_add', 'cart_pay']);
  expect((await check([broken, '--tools', tools])).out).not.toContain('not checked');
  expect(JSON.parse((await check([good, '--json'])).out).toolsChecked).toBe(false);
  expect(JSON.parse((await check([good, '--json', '--tools', tools])).out).toolsChecked).toBe(true);
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

it('tells what is wrong with the file of tools', async () => {
  const none = check([good, '--tools', 'nope.json']);
  await expect(none).rejects.toThrow(/^--tools: there is no file nope\.json$/);
  await expect(none).rejects.toHaveProperty('name', 'UsageError');
  const unread = check([good, '--tools', folder]);
  await expect(unread).rejects.toThrow(`--tools: ${folder} cannot be read: EISDIR`);
  await expect(unread).rejects.toHaveProperty('name', 'Failure');
  const wrong = join(folder, 'wrong.json');
  writeFileSync(wrong, '["cart_add"\n"cart_pay"]');
  await expect(check([good, '--tools', wrong])).rejects.toThrow(
    `--tools: ${wrong} is no JSON: line 1, column 12: a comma is missing after "cart_add"`,
  );
});

it.each<[args: string[], message: string]>([
  [['nope.json'], 'nope.json: there is no such file'],
  [[good, '--target', 'node server.js'], 'For a server on stdio: mcp-interlock stdio'],
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
