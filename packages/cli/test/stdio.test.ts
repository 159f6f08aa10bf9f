import { type ChildProcessWithoutNullStreams, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { Page } from '../../../test/helpers/markdown.ts';
import { Installed } from './installed.ts';

const EVERYTHING = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);
const SHOP = fileURLToPath(new URL('fixtures/stdio_shop.py', import.meta.url));

const RULES = {
  id: 'shop',
  order: {
    checkout: {},
    pay: { after: { tool: 'checkout', consumes: true } },
    pay_slowly: {},
    pay_and_die: {},
    pay_at_length: {},
    ask: {},
  },
};

type Message = Record<string, unknown> & { readonly id?: unknown; readonly method?: string };

const installed = new Installed();
let made = 0;

beforeAll(() => installed.install(), 60_000);
afterAll(() => installed.remove());

/** A folder of its own for a test: the gate's file, what the server did, and the runs. */
function place(rules: object = RULES) {
  made += 1;
  const folder = `place-${made}`;
  const gate = installed.write(`${folder}/gate.json`, JSON.stringify(rules));
  const state = installed.path(`${folder}/state`);
  const ledger = installed.path(`${folder}/ledger`);
  mkdirSync(installed.path(`${folder}/work`));
  const done = (): string[] =>
    existsSync(ledger) ? readFileSync(ledger, 'utf8').trim().split('\n') : [];
  return { gate, state, ledger, done, work: installed.path(`${folder}/work`) };
}

type Place = ReturnType<typeof place>;

const commandOf = (place: Place, ...options: readonly string[]) => [
  installed.path('node_modules/mcp-interlock-cli/dist/main.js'),
  ...['stdio', place.gate, ...options, '--', 'python3', '-u', SHOP, place.ledger],
];

/** A gate whose client writes lines by hand. */
class Raw {
  readonly child: ChildProcessWithoutNullStreams;
  readonly lines: string[] = [];
  errors = '';
  #id = 0;
  readonly #waiting = new Map<(message: Message) => boolean, (message: Message) => void>();

  constructor(args: readonly string[], { state, work }: Place) {
    this.child = spawn(process.execPath, args, {
      cwd: work,
      env: { ...process.env, XDG_STATE_HOME: state },
    });
    this.child.stderr.on('data', (bytes) => (this.errors += bytes));
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      this.lines.push(line);
      const message = JSON.parse(line) as Message;
      for (const [wants, resolve] of this.#waiting) if (wants(message)) resolve(message);
    });
    onTestFinished(() => void this.child.kill('SIGKILL'));
  }

  write(line: string): void {
    this.child.stdin.write(`${line}\n`);
  }

  next(wants: (message: Message) => boolean): Promise<Message> {
    return new Promise((resolve) => this.#waiting.set(wants, resolve));
  }

  ask(method: string, params: object = {}, id: unknown = ++this.#id): Promise<Message> {
    const answer = this.next((message) => message.method === undefined && message.id === id);
    this.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return answer;
  }

  async begin(): Promise<Message> {
    const clientInfo = { name: 'raw', version: '1' };
    const capabilities = { elicitation: {} };
    const params = { protocolVersion: '2025-06-18', capabilities, clientInfo };
    const answer = await this.ask('initialize', params);
    this.write('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    return answer;
  }

  call(name: string, args: object = {}, id?: unknown): Promise<Message> {
    return this.ask('tools/call', { name, arguments: args }, id);
  }

  async end(signal?: NodeJS.Signals): Promise<number | null> {
    const exit = once(this.child, 'exit');
    if (signal === undefined) this.child.stdin.end();
    else this.child.kill(signal);
    const [status] = await exit;
    return status;
  }
}

const textOf = (answer: Message): string => JSON.stringify(answer.result ?? answer.error);

async function gateAt(place: Place, ...options: readonly string[]): Promise<Raw> {
  const raw = new Raw(commandOf(place, ...options), place);
  await raw.begin();
  return raw;
}

/** Whether a process runs with this file among its arguments. */
async function isRunning(ledger: string): Promise<boolean> {
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args']);
  return stdout.split('\n').some((line) => line.includes(SHOP) && line.includes(ledger));
}

it('gives a client of the SDK what the server itself would give', async () => {
  const where = place({ id: 'report', order: { 'get-sum': {}, echo: { after: 'get-sum' } } });
  const connect = async (args: readonly string[]) => {
    const client = new Client({ name: 'probe', version: '1' });
    const env = { ...process.env, XDG_STATE_HOME: where.state } as Record<string, string>;
    const given = { command: process.execPath, args: [...args], env, cwd: where.work };
    await client.connect(new StdioClientTransport({ ...given, stderr: 'ignore' }));
    onTestFinished(() => client.close());
    return client;
  };
  const server = [EVERYTHING, 'stdio'];
  const bare = await connect(server);
  const gated = await connect([
    ...commandOf(where).slice(0, 3),
    '--visibility',
    'hide',
    ...['--', process.execPath, ...server],
  ]);
  expect(gated.getServerVersion()).toEqual(bare.getServerVersion());
  expect(gated.getInstructions()).toContain(bare.getInstructions());
  expect(gated.getInstructions()).toContain('the workflow report allows');
  const { tools } = await bare.listTools();
  expect((await gated.listTools()).tools).toEqual(tools.filter(({ name }) => name !== 'echo'));
  expect(await gated.listPrompts()).toEqual(await bare.listPrompts());
  expect(await gated.listResources()).toEqual(await bare.listResources());
  const echo = { name: 'echo', arguments: { message: 'Grüße' } };
  expect(JSON.stringify(await gated.callTool(echo))).toContain('Call get-sum, then echo.');
  const sum = { name: 'get-sum', arguments: { a: 1, b: 2 } };
  expect(await gated.callTool(sum)).toEqual(await bare.callTool(sum));
  expect(await gated.callTool(echo)).toEqual(await bare.callTool(echo));
  expect((await gated.listTools()).tools).toEqual(tools);
  const progress: number[] = [];
  const long = { name: 'trigger-long-running-operation', arguments: { duration: 0.2, steps: 2 } };
  await gated.callTool(long, undefined, { onprogress: (each) => progress.push(each.progress) });
  // The SDK's client drops the last one where the result comes in the same chunk.
  expect(progress[0]).toBe(1);
});

it('serves the entry of a client as its page has it', async () => {
  const where = place();
  const [entry = ''] = new Page('docs/start/stdio.md').blocks('json');
  const { command, args } = JSON.parse(entry).mcpServers.shop;
  expect([command, ...args.slice(0, 3)]).toEqual(['npx', '-y', 'mcp-interlock-cli', 'stdio']);
  const [bin = ''] = commandOf(where);
  const own = args.slice(2, args.indexOf('--') + 1).with(1, where.gate);
  const gate = new Raw([bin, ...own, 'python3', '-u', SHOP, where.ledger, '--help'], where);
  await gate.begin();
  expect(textOf(await gate.call('pay'))).toContain('call checkout first');
});

it('passes numbers, spaces and characters on as they came', async () => {
  const gate = await gateAt(place());
  const line =
    '{"jsonrpc":"2.0", "id":"a","method":"tools/call",' +
    '"params":{"name":"raw","arguments":{"big":12345678901234567890,"one":1.0,"text":"ü🎉"}}}';
  const answer = gate.next(({ id }) => id === 'a');
  gate.write(line);
  expect(textOf(await answer)).toContain(JSON.stringify(line));
  expect(gate.lines.at(-1)).toContain('"structuredContent":{"big":12345678901234567890,"one":1.0}');
  expect(gate.lines.at(-1)).toMatch(/^\{"jsonrpc":"2\.0", "id":"a"/);
  expect(textOf(await gate.call('odd'))).toContain('Grüße 🎉');
});

it('reports what is no message, and forwards none of it', async () => {
  const gate = await gateAt(place());
  gate.write('not JSON');
  gate.write('');
  expect(textOf(await gate.call('noise'))).toContain('did noise');
  expect(gate.lines.every((line) => 'jsonrpc' in JSON.parse(line))).toBe(true);
  expect(gate.lines.join()).not.toContain('lost');
  for (const words of ['not JSON', 'Listening on port 3000', 'the server answered no request'])
    expect(gate.errors).toContain(words);
});

it('holds a step whose answer is too long, and reads on behind it', async () => {
  const gate = await gateAt(place());
  expect(textOf(await gate.call('pay_at_length'))).toContain('its outcome is unknown');
  expect(textOf(await gate.call('raw'))).toContain('big');
  expect(gate.errors).toContain('a line of the server has 170000');
}, 20_000);

it('shares one run between two processes, and lets one payment through', async () => {
  const where = place();
  const [a, b] = await Promise.all([gateAt(where), gateAt(where)]);
  expect(textOf(await b.call('pay'))).toContain('call checkout first');
  expect(textOf(await a.call('checkout'))).toContain('did checkout');
  const paid = await Promise.all([a.call('pay'), b.call('pay'), a.call('pay'), b.call('pay')]);
  expect(paid.filter((each) => textOf(each).includes('did pay'))).toHaveLength(1);
  expect(where.done().filter((each) => each === 'pay')).toHaveLength(1);
  expect(a.errors).toContain('a checkout in one window opens pay in another one');
  const apart = await gateAt(where, '--run', 'new');
  expect(textOf(await apart.call('pay'))).toContain('call checkout first');
}, 20_000);

it('keeps the runs in a folder of their own, which its user alone reads', async () => {
  const where = place();
  const gate = await gateAt(where);
  expect(statSync(`${where.state}/mcp-interlock`).mode & 0o777).toBe(0o700);
  expect(gate.errors).toMatch(/Runs: sqlite:\S+\/state\/mcp-interlock\/gate-[0-9a-f]{12}\.db/);
  expect(gate.errors).not.toContain('working directory');
});

it('holds the step of a server that dies, also for the next process', async () => {
  const where = place();
  const gate = await gateAt(where);
  const exit = once(gate.child, 'exit');
  expect(textOf(await gate.call('pay_and_die'))).toContain('its outcome is unknown');
  expect(await exit).toEqual([1, null]);
  expect(gate.errors).toContain('the server ended with the status 3');
  const next = await gateAt(where);
  expect(next.errors).toContain('pay_and_die runs in another process; or that has ended');
  // It waits until the claim of the dead step has run out.
  const refused = await next.call('checkout');
  expect(textOf(refused)).toContain('"reason":"held"');
  const last = await gateAt(where);
  expect(last.errors).toContain('The run goes on from earlier starts');
  const [line] = /mcp-interlock resolve .*--idle 30d/.exec(last.errors) ?? [''];
  expect(textOf(refused)).toContain(line);
  const command = line
    .replace(/^mcp-interlock/, `${process.execPath} ${commandOf(where)[0]}`)
    .replace('succeeded|failed', 'failed')
    .replace('WHY', 'checked');
  await promisify(execFile)('sh', ['-c', command]);
  expect(textOf(await next.call('checkout'))).toContain('did checkout');
}, 30_000);

it('finishes a step after its client has closed, and ends the server with it', async () => {
  const where = place();
  const gate = await gateAt(where);
  void gate.call('pay_slowly');
  while (!where.done().includes('pay_slowly')) await delay(10);
  expect(await gate.end()).toBe(0);
  expect(where.done()).toContain('pay_slowly ended');
  expect(gate.lines.join()).toContain('did pay_slowly');
  expect(await isRunning(where.ledger)).toBe(false);
  const next = await gateAt(where);
  expect(textOf(await next.call('checkout'))).toContain('did checkout');
});

it('ends a server that never answers, once the client has closed', async () => {
  const where = place();
  const gate = new Raw([...commandOf(where).slice(0, 3), '--', 'sleep', '1234'], where);
  void gate.begin();
  while (!gate.errors.includes('in front of sleep')) await delay(10);
  expect(await gate.end()).toBe(0);
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args']);
  expect(stdout.split('\n')).not.toContain('sleep 1234');
}, 20_000);

it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
  'leaves nothing running on %s',
  async (signal) => {
    const where = place();
    const gate = await gateAt(where);
    void gate.call('slow');
    while (!where.done().includes('slow')) await delay(10);
    expect(await gate.end(signal)).toBe(0);
    expect(await isRunning(where.ledger)).toBe(false);
  },
);

it('lets the server see the end of its input when the gate is killed', async () => {
  const where = place();
  const gate = await gateAt(where);
  await gate.end('SIGKILL');
  for (let tries = 0; tries < 200 && (await isRunning(where.ledger)); tries++) await delay(10);
  expect(await isRunning(where.ledger)).toBe(false);
});

it('keeps other steps busy while a person is asked, and no longer', async () => {
  const gate = await gateAt(place());
  const question = gate.next(({ method }) => method === 'elicitation/create');
  const asking = gate.call('ask');
  await question;
  expect(textOf(await gate.call('checkout'))).toContain('"reason":"busy"');
  gate.write('{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}');
  expect(textOf(await asking)).toContain('answered: accept');
  expect(textOf(await gate.call('checkout'))).toContain('did checkout');
});

it('answers a second request of an id that is under way, and forwards only the first', async () => {
  const where = place();
  const gate = await gateAt(where);
  void gate.call('slow', {}, 'same');
  expect(textOf(await gate.call('raw', {}, 'same'))).toContain('A request of this id is under way');
  expect(where.done()).not.toContain('raw');
});

it('reads messages that a shell pipes in without waiting', async () => {
  const where = place();
  const gate = new Raw(commandOf(where), where);
  const list = gate.ask('tools/list', {}, 'list');
  void gate.begin();
  await list;
  const call = gate.call('checkout');
  expect(await gate.end()).toBe(0);
  expect(textOf(await call)).toContain('did checkout');
});

const ALONE = { _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } };

it('serves requests that stand alone, and sends nothing for a cancelled one', async () => {
  const where = place();
  const gate = new Raw(commandOf(where), where);
  const call = (name: string, id?: unknown) =>
    gate.ask('tools/call', { name, arguments: {}, ...ALONE }, id);
  expect(textOf(await gate.ask('server/discover', ALONE))).toContain('Method not found');
  expect(textOf(await call('pay'))).toContain('call checkout first');
  expect(textOf(await call('checkout'))).toContain('did checkout');
  void call('slow', 'gone');
  while (!where.done().includes('slow')) await delay(10);
  const params = { requestId: 'gone', ...ALONE };
  gate.write(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params }));
  expect(textOf(await call('pay'))).toContain('did pay');
  expect(where.done()).toContain('notifications/cancelled');
  expect(gate.lines.join()).not.toContain('gone');
});

it('keeps the output for the client, also from the file of a gate', async () => {
  const where = place();
  const file = installed.write(
    `place-${made}/gate.ts`,
    `import { StateMachineGate } from 'mcp-interlock';
     console.log('printed by the gate');
     export default StateMachineGate.fromOrder({ checkout: {} }, { id: 'shop' });`,
  );
  const gate = await gateAt({ ...where, gate: file });
  expect(gate.errors).toContain('printed by the gate');
  expect(gate.lines.join()).not.toContain('printed');
});

it('warns of a gate that an agent may write', async () => {
  const where = place();
  const folder = where.work.replace(/work$/, '');
  const gate = await gateAt({ ...where, work: folder });
  expect(gate.errors).toContain(`gate.json is in the working directory ${folder.slice(0, -1)}`);
});

it.each([
  [[], 'give the command of the server behind --'],
  [['--'], 'give the command of the server behind --'],
  [['--', 'no-such-program'], 'cannot start no-such-program: there is no such program'],
])('says what is wrong with %j', async (args, words) => {
  const { status, err } = await installed.end('stdio', place().gate, ...args);
  expect(err).toContain(words);
  expect(status).toBe(args.length === 2 ? 1 : 2);
});

it('ends the server where the file of the gate is wrong', async () => {
  const where = place({ id: 'shop' });
  const { status, err } = await installed.end(...commandOf(where).slice(1));
  expect(err).toContain(where.gate);
  expect(status).toBe(1);
  expect(await isRunning(where.ledger)).toBe(false);
});
