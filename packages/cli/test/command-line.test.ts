import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { serve } from '../../../test/helpers/serve.ts';
import { sharedPostgres, sharedRedis } from '../../../test/services/shared.ts';
import { CHECK } from '../src/check-command.ts';
import { helpOf, usageOf } from '../src/command-line.ts';
import { FREEZE, FROZEN, UNFREEZE } from '../src/freeze-command.ts';
import { GATE, principalOf, runGate } from '../src/gate-command.ts';
import { parseWorkflows } from '../src/json-gate.ts';
import { REPLAY } from '../src/replay-command.ts';
import { STDIO } from '../src/stdio-command.ts';
import { storeNamed } from '../src/stores.ts';
import { SUGGEST } from '../src/suggest-command.ts';
import { targetFault } from '../src/upstream.ts';
import { loadWorkflows } from '../src/workflow-file.ts';

const folder = mkdtempSync(join(tmpdir(), 'interlock-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const page = new Page('docs/start/any-server.md');
const TARGET = ['--target', 'http://127.0.0.1:1/mcp'];

it.each(Object.entries({ GATE, CHECK, REPLAY, SUGGEST, FREEZE, UNFREEZE, FROZEN }))(
  'prints the help of %s in 80 columns',
  (_, spec) => {
    const long = (text: string) => text.split('\n').filter((line) => line.length > 80);
    expect(long(helpOf(spec))).toEqual([]);
    expect(long(usageOf(spec.usage))).toEqual([]);
  },
);

it('names a caller by the digest of a header, and by nothing where it is missing', () => {
  const name = principalOf({ principal: 'header:X-Api-Key' });
  const of = (headers: Record<string, string>) => name?.({ headers } as never);
  expect(of({ 'x-api-key': 'secret' })).toMatch(/^[\w-]{43}$/);
  expect(of({ 'x-api-key': 'secret' })).not.toBe(of({ 'x-api-key': 'other' }));
  expect([of({}), of({ 'x-api-key': '' })]).toEqual([undefined, undefined]);
  expect(() => principalOf({ principal: 'x-api-key' })).toThrow('expected header:NAME');
});

it('says what stands at a target', async () => {
  const { url } = await serve((req, res) => {
    if (req.url === '/mcp') return void res.writeHead(400).end('{"jsonrpc":"2.0","id":null}');
    if (req.url === '/sse' && req.method === 'GET')
      return void res
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .write('event: endpoint\ndata: /messages\n\n');
    res.writeHead(404).end('Cannot POST');
  });
  const at = (path: string) => targetFault(new URL(path, url));
  expect(await at('/mcp')).toBeUndefined();
  expect(await at('/')).toBe(
    `answers 404, and not as an MCP server. Did you mean --target ${new URL('/mcp', url).href}?`,
  );
  expect(await at('/sse')).toContain('serves HTTP with SSE');
  expect(await targetFault(new URL('http://127.0.0.1:1/mcp'))).toContain('ECONNREFUSED');
});

describe('a wrong command line', () => {
  it.each<[args: string[], message: string]>([
    [TARGET, 'give the file of a gate: mcp-interlock gate'],
    [['a.ts', 'b.ts', ...TARGET], 'unexpected "b.ts"'],
    [['a.ts'], '--target is needed'],
    [['a.ts', ...TARGET, '--prot', '1'], 'unknown option --prot, did you mean --port? Known are'],
    [['a.ts', '--tagret', 'http://a/'], 'unknown option --tagret, did you mean --target?'],
    [['a.ts', ...TARGET, '-p', '1'], 'unknown option -p, known are --target, --port, --host'],
    [['a.ts', ...TARGET, '--port'], '--port needs a value: --port PORT'],
    [['a.ts', ...TARGET, '--port', '--log', 'json'], '--port needs a value'],
    [['a.ts', ...TARGET, '--port='], '--port needs a value'],
    [['a.ts', ...TARGET, '--port', '65536'], '--port: expected a port from 0 to 65535'],
    [['a.ts', ...TARGET, '--port', '1', '--port', '2'], '--port is given 2 times'],
    [['a.ts', ...TARGET, '--announce=no'], '--announce takes no value, got "no"'],
    [['a.ts', '--target', 'localhost:3001'], '--target: expected a URL such as'],
    [
      ['a.ts', '--target', 'node server.js'],
      'got "node server.js". For a server on stdio: mcp-interlock stdio ./gate.json -- node server.js',
    ],
    [['a.ts', ...TARGET, '--path', 'mcp'], '--path: expected a path such as /mcp'],
    [['a.ts', ...TARGET, '--path', '/:mcp'], '--path: expected a path such as /mcp'],
    [['a.ts', ...TARGET, '--path', '/health/x'], 'and not /health'],
    [['a.ts', ...TARGET, '--drain', '20'], '--drain: expected a time such as 500ms'],
    [['a.ts', ...TARGET, '--log', 'xml'], '--log: expected one of text, json, got "xml"'],
    [
      ['a.ts', ...TARGET, '--key', 'user'],
      '--key: expected session, principal, conversation, handle:',
    ],
    [['a.ts', ...TARGET, '--key', 'principal'], '--key principal needs --jwks or --principal'],
    [
      ['a.ts', ...TARGET, '--key', 'conversation'],
      '--key conversation needs --jwks or --principal',
    ],
    [['a.ts', ...TARGET, '--issuer', 'me'], '--jwks, --issuer and --audience belong together'],
    [['a.ts', ...TARGET, '--allow-origin', 'http://a/'], 'expected scheme, host and port alone'],
    [
      ['a.ts', ...TARGET, '--store', 'mysql://u:secret@h'],
      '--store: expected sqlite:runs.db, memory',
    ],
    [['a.ts', ...TARGET, '--store', 'sqlite::memory:'], '--store: say memory'],
    [['a.ts', ...TARGET], 'a.ts: there is no such file'],
    [['a.yaml', ...TARGET], 'a.yaml: expected a file that ends in .json, .ts'],
  ])('%j is told with what is right: %s', async (args, message) => {
    await expect(runGate(args)).rejects.toThrow(message);
    await expect(runGate(args)).rejects.toHaveProperty('name', 'UsageError');
    await expect(runGate(args)).rejects.not.toThrow('secret');
  });
});

describe('a module', () => {
  const gate = (id: string) =>
    `new StateMachineGate({ id: '${id}', initial: 'a', states: { a: {} } })`;
  const imported = "import { StateMachineGate } from 'mcp-interlock';";

  it.each([
    ['gate.ts', `${imported} export default ${gate('x')} satisfies StateMachineGate;`],
    ['gate.mts', `${imported} enum A { B } export default ${gate('x')};`],
    ['gate.mjs', `${imported} export default await Promise.resolve(${gate('x')});`],
    ['gate.js', `${imported} export default [${gate('x')}];`],
    [
      'gate.cjs',
      `const { StateMachineGate } = require('mcp-interlock'); exports.default = ${gate('x')};`,
    ],
    [
      'other.cjs',
      `const { StateMachineGate } = require('mcp-interlock'); module.exports = ${gate('x')};`,
    ],
  ])('%s gives its gate, without the package beside it', async (name, text) => {
    const { gates, sync } = await loadWorkflows(file(name, text));
    expect([gates.map(({ id }) => id), sync]).toEqual([['x'], undefined]);
  });

  it('gives several gates in their order, and policies', async () => {
    const policies = "[{ match: 'a', invalidates: ['b'] }]";
    const text = `${imported} export default [${gate('x')}, ${gate('y')}];`;
    for (const sync of [policies, `{ policies: ${policies} }`]) {
      const loaded = await loadWorkflows(
        file(`two-${randomUUID()}.ts`, `${text} export const sync = ${sync};`),
      );
      expect(loaded.gates.map(({ id }) => id)).toEqual(['x', 'y']);
      expect(loaded.sync).toEqual({ policies: [{ match: 'a', invalidates: ['b'] }] });
    }
  });

  it.each([
    ['export const gate = 1;', 'expected a default export that is a StateMachineGate'],
    ['export default 7;', 'it is number: 7'],
    ['export default new Map();', 'it is an instance of Map'],
    ['export default [];', 'the default export is an empty array'],
    [`${imported} export default ${gate('x')}; export const sync = 7;`, 'the export "sync"'],
    [`${imported}\n\nthrow new Error('mine');`, 'mine (at 3:'],
    [`${imported}\n${gate('a b')};`, 'id: expected 1 to 64 letters'],
    ['export default {', 'Unexpected token'],
    ["import 'not-installed';", "Cannot find module 'not-installed'"],
  ])('%j is told by its file', async (text, message) => {
    const path = file(`wrong-${randomUUID()}.ts`, text);
    await expect(loadWorkflows(path)).rejects.toThrow(`${path}: `);
    await expect(loadWorkflows(path)).rejects.toThrow(message);
  });
});

describe('a store', () => {
  const unheard = (message: string): void => {
    throw new Error(message);
  };

  it.each([
    ['SQLite', async () => `sqlite:${join(folder, 'runs.db')}`, true],
    ['memory', async () => 'memory', false],
    ['Redis', sharedRedis, true],
    ['PostgreSQL', sharedPostgres, true],
  ])('of %s keeps a run', async (_name, url, hasBus) => {
    const { store, bus, close } = await storeNamed(await url())(unheard);
    onTestFinished(close);
    const run = `cli ${Math.random()}`;
    await store.open(run, {}, 60_000);
    expect(await store.read(run, 60_000)).toBeDefined();
    expect(bus !== undefined).toBe(hasBus);
  });

  it.each([
    ['sqlite:/nowhere/runs.db', 'ENOENT'],
    [`sqlite:${folder}`, 'EISDIR'],
    [`sqlite:${file('no.db', 'This is no database, and long enough.')}`, 'not a database'],
    ['redis://:secret@127.0.0.1:1', 'ECONNREFUSED'],
    ['postgres://me:secret@127.0.0.1:1/db', 'ECONNREFUSED'],
  ])('that cannot be opened is told: %s', async (url, message) => {
    const opening = storeNamed(url)(unheard);
    await expect(opening).rejects.toThrow(/^the store .* cannot be opened: /);
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.not.toThrow('secret');
  });
});

describe('the page of the command', () => {
  it.each([
    ['gate', GATE],
    ['stdio', STDIO],
  ])('names each option of %s, and what it takes', (command, { options: known }) => {
    const rows = new Page('docs/reference/options.md').tableAfter(
      `<!-- options: mcp-interlock ${command} -->`,
    );
    const options = Object.entries(known).map(([name, option]) => {
      const takes = 'takes' in option ? ` ${option.takes}` : '';
      return `--${name}${takes}${'many' in option ? ' …' : ''}`;
    });
    expect(rows.map(([option]) => option)).toEqual(options);
    for (const [option = '', standard = ''] of rows) {
      const name = /^--([\w-]+)/.exec(option)?.[1] ?? '';
      const { help } = known[name as keyof typeof known];
      if (!['needed', 'none', 'off'].includes(standard))
        expect(help).toMatch(new RegExp(`Default:? ${standard}`));
    }
  });

  it('shows workflows that can be read', async () => {
    const [json = '', order = ''] = page.blocks('json');
    expect(parseWorkflows(order).gates[0]?.id).toBe('shop');
    expect(parseWorkflows(json).gates[0]?.id).toBe('checkout');
    const { gates, sync } = await loadWorkflows(file('page.ts', page.blocks('ts')[0] ?? ''));
    expect([gates[0]?.id, sync?.policies.length]).toEqual(['checkout', 1]);
    const [readme = ''] = new Page('packages/cli/README.md').blocks('json');
    expect(parseWorkflows(readme).gates[0]?.id).toBe('checkout');
  });
});
