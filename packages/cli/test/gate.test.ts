import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { connect } from '../../../test/helpers/client.ts';
import { type Program, startProgram } from '../../../test/helpers/program.ts';
import { callOf, INITIALIZE, RawSession, reasonOf, send } from '../../../test/helpers/raw.ts';
import { serve } from '../../../test/helpers/serve.ts';
import { freePort } from '../../../test/services/ports.ts';
import { Installed } from './installed.ts';

const EVERYTHING = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);
const SHOP = fileURLToPath(new URL('fixtures/shop.py', import.meta.url));
const LONG = 'trigger-long-running-operation';

const REPORT = `
import { StateMachineGate } from 'mcp-interlock';

enum Step { Measured = 'MEASURED' }

export default new StateMachineGate({
  id: 'report',
  initial: 'started',
  states: {
    started: { on: { MEASURED: 'measured' } },
    measured: { on: { MEASURED: 'measured', CHECKED: 'checked' } },
    checked: { on: { ANNOUNCED: 'started' } },
  },
})
  .bindTool('get-sum', ['started', 'measured'], Step.Measured)
  .bindTool('${LONG}', ['measured'], 'CHECKED')
  .bindTool('echo', ['checked'], 'ANNOUNCED');

export const sync = [{ match: 'get-sum', invalidates: ['get-structured-content'] }];
`;

/** A second workflow behind the report. */
const TWO = `
const images = new StateMachineGate({ id: 'images', initial: 'any', states: { any: {} } })
  .bindTool('get-tiny-image', 'any');
export default [report, images];
`;

const CHECKOUT = {
  $schema: './node_modules/mcp-interlock-cli/gate.schema.json',
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD: 'filled' } },
    filled: { on: { PAY: 'paid' } },
    paid: { type: 'final' },
  },
  tools: {
    cart_add: { states: ['empty', 'filled'], success: 'ADD' },
    cart_pay: { states: 'filled', success: 'PAY' },
  },
};

const installed = new Installed();
let report: string;
let checkout: string;
let everything: Everything;

beforeAll(async () => {
  [everything] = await Promise.all([startEverything(), installed.install()]);
  report = installed.write('gate.ts', REPORT);
  checkout = installed.write('gate.json', JSON.stringify(CHECKOUT));
}, 60_000);

afterAll(async () => {
  await everything.kill9();
  installed.remove();
});

interface Everything extends Program {
  readonly target: string;
}

async function startEverything(port?: number): Promise<Everything> {
  const at = port ?? (await freePort());
  const program = await startProgram(EVERYTHING, {
    args: ['streamableHttp'],
    env: { PORT: String(at) },
    ready: /listening on port/,
  });
  return { ...program, target: `http://127.0.0.1:${at}/mcp` };
}

/** A gate that ends with the test. By default it keeps its runs in memory. */
async function gateFor(file: string, ...options: readonly string[]) {
  const store = options.includes('--store') ? [] : ['--store', 'memory'];
  const gate = await installed.gate(file, ...store, ...options);
  onTestFinished(gate.kill9);
  return gate;
}

/** A gate in front of nothing: enough for what is answered before anything is forwarded. */
const gateAlone = (...options: readonly string[]) =>
  gateFor(checkout, '--target', 'http://127.0.0.1:1/mcp', ...options);

const eventsOf = (gate: Program, type: string): Record<string, unknown>[] =>
  gate
    .output()
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter((event) => event.type === type);

it('leads a client of the SDK through a workflow that the server knows nothing of', async () => {
  const { url } = await gateFor(report, '--target', everything.target);
  const client = await connect(url);
  onTestFinished(client.close);
  const gated = async () =>
    (await client.tools()).filter((tool) => ['echo', 'get-sum', LONG].includes(tool));

  expect(await gated()).toEqual(['get-sum']);
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
  expect(client.log.filter((each) => each === 'progress')).toHaveLength(2);
  expect((await client.call('echo', { message: 'hello' })).text).toBe('Echo: hello');
});

it('refuses the tools that no workflow binds, where it is told to', async () => {
  const file = installed.write('two.ts', REPORT.replace('export default', 'const report =') + TWO);
  const { url } = await gateFor(file, '--target', everything.target, '--unbound', 'refuse');
  const client = await connect(url);
  onTestFinished(client.close);
  expect(await client.tools()).toEqual(['get-sum', 'get-tiny-image']);
  const { meta } = await client.call('get-env');
  expect(meta['mcp-interlock/refusal']).toMatchObject({ reason: 'unbound', tool: 'get-env' });
});

it('gates a server in Python by a workflow in JSON, and gives it sessions', async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void python.kill('SIGKILL'));
  const [target] = (await once(createInterface({ input: python.stdout }), 'line')) as [string];
  const client = await connect((await gateFor(checkout, '--target', target)).url);
  onTestFinished(client.close);

  expect(await client.tools()).toEqual(['cart_add', 'help']);
  expect((await client.call('cart_pay')).text).toContain('call cart_add first');
  expect((await client.call('cart_add')).text).toBe('did cart_add');
  expect(await client.tools()).toEqual(['cart_add', 'cart_pay', 'help']);
  expect((await client.call('cart_pay')).text).toBe('did cart_pay');
  expect(await client.tools()).toEqual(['help']);
});

it('serves clients from before the gate, where it is told to, and refuses them else', async () => {
  const python = spawn('python3', ['-u', SHOP], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void python.kill('SIGKILL'));
  const [target] = (await once(createInterface({ input: python.stdout }), 'line')) as [string];
  const options = ['--target', target, '--store', 'memory'];
  const { url } = await gateFor(checkout, ...options, '--without-session', 'pass');
  const [help] = (await send(url, { body: callOf(1, 'help') })).messages;
  expect(help?.result.content[0].text).toBe('did help');
  const [pay = {}] = (await send(url, { body: callOf(2, 'cart_pay') })).messages;
  expect(reasonOf(pay)).toBe('no-run');
  expect(pay.result.content[0].text).toContain('Reconnect to the server');
  const strict = await gateFor(checkout, ...options);
  expect((await send(strict.url, { body: callOf(1, 'help') })).status).toBe(400);
});

it('goes on with its runs after kill -9, on the same file, and outlives the server', async () => {
  const port = await freePort();
  const victim = await startEverything();
  onTestFinished(() => victim.kill9());
  const store = `sqlite:${installed.path('runs.db')}`;
  const options = ['--target', victim.target, '--port', String(port), '--store', store];
  const first = await gateFor(report, ...options);
  const before = await RawSession.begin(first.url);
  await before.call('get-sum', { a: 1, b: 2 });
  await first.kill9();

  const second = await gateFor(report, ...options);
  const after = RawSession.resume(second.url, before.id);
  expect(await after.tools()).toContain(LONG);
  expect(reasonOf(await after.call('echo'))).toBe('state');

  await victim.kill9();
  const { status, messages } = await after.post(callOf(9, 'get-sum', { a: 1, b: 2 }));
  expect([status, messages[0]?.error.message]).toEqual([
    502,
    'The server behind the gate could not be reached. Nothing was sent to it.',
  ]);
  expect(eventsOf(second, 'warning').at(-1)?.message).toContain('cannot be reached: ECONNREFUSED');
  const again = await startEverything(Number(new URL(victim.target).port));
  onTestFinished(() => again.kill9());
  const client = await connect(second.url);
  onTestFinished(client.close);
  expect((await client.call('get-sum', { a: 1, b: 2 })).isError).toBe(false);
});

it('ends on SIGTERM once the call that runs is done, and begins no other', async () => {
  const gate = await gateFor(report, '--target', everything.target);
  const session = await RawSession.begin(gate.url);
  await session.call('get-sum', { a: 1, b: 2 });
  // A client's own stream is open for as long as the client is there.
  const stream = await session.listen();
  const running = session.call(LONG, { duration: 1, steps: 2 });
  await expect.poll(() => eventsOf(gate, 'step.started').length).toBe(2);
  const gone = once(gate.child, 'exit');
  gate.child.kill('SIGTERM');
  await expect.poll(() => eventsOf(gate, 'gate.ending').length).toBe(1);

  const other = await RawSession.resume(gate.url, session.id).call('get-sum', { a: 1, b: 2 });
  expect(reasonOf(other)).toBe('unavailable');
  expect((await send(gate.url, { body: INITIALIZE })).status).toBe(503);
  expect((await send(new URL('/health', gate.url), { method: 'GET' })).status).toBe(503);
  expect((await running).result.content[0].text).toContain('operation completed');
  expect(await gone).toEqual([0, null]);
  stream.cut();
});

describe('the door', () => {
  it('turns away web pages that point their name at it, or that are not allowed', async () => {
    const allowed = 'http://localhost:6274';
    const { url } = await gateAlone('--allow-origin', allowed, '--allow-host', 'gate.internal');
    const statusWith = async (headers: Record<string, string>) =>
      (await send(url, { headers, body: INITIALIZE })).status;
    // 502: it was let through, and nothing is behind.
    expect(await statusWith({})).toBe(502);
    expect(await statusWith({ host: 'localhost:8080' })).toBe(502);
    expect(await statusWith({ host: 'gate.internal' })).toBe(502);
    expect(await statusWith({ origin: allowed })).toBe(502);
    expect(await statusWith({ host: 'evil.example' })).toBe(403);
    expect(await statusWith({ host: 'localhost.evil.example' })).toBe(403);
    expect(await statusWith({ host: '127.0.0.1.evil.example:80' })).toBe(403);
    expect(await statusWith({ origin: 'http://evil.example' })).toBe(403);
    expect(await statusWith({ origin: 'null' })).toBe(403);
    expect(await statusWith({ origin: `${allowed}0` })).toBe(403);
    expect(await statusWith({ host: 'evil.example', origin: 'http://evil.example' })).toBe(403);
    const headers = { 'access-control-request-method': 'POST', origin: allowed };
    const preflight = await send(url, { method: 'OPTIONS', headers });
    expect([preflight.status, preflight.headers['access-control-allow-origin']]).toEqual([
      204,
      allowed,
    ]);
  });

  it('asks for a token where it is told to, and keeps one run for each principal', async () => {
    const { publicKey, privateKey } = await generateKeyPair('RS256');
    const keys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'a' }] });
    const issuer = await serve((_req, res) => void res.end(keys));
    const iss = issuer.url.origin;
    const audience = 'https://gate.example/mcp';
    const { url } = await gateFor(
      report,
      ...['--target', everything.target, '--key', 'principal', '--jwks', issuer.url.href],
      ...['--issuer', iss, '--audience', audience],
    );
    const tokenFor = async (sub: unknown, aud = audience) => {
      const claims = new SignJWT({ iss, sub, aud } as JWTPayload).setProtectedHeader({
        alg: 'RS256',
        kid: 'a',
      });
      return { authorization: `Bearer ${await claims.setExpirationTime('1h').sign(privateKey)}` };
    };
    const missing = await send(url, { body: INITIALIZE });
    expect([missing.status, missing.headers['www-authenticate']]).toEqual([
      401,
      'Bearer resource_metadata="https://gate.example/.well-known/oauth-protected-resource/mcp"',
    ]);
    const wellKnown = new URL('/.well-known/oauth-protected-resource/mcp', url);
    const metadata = await send(wellKnown, { method: 'GET' });
    expect(metadata.messages[0]).toMatchObject({
      resource: audience,
      authorization_servers: [iss],
    });
    const others = await tokenFor('alice', 'https://another.example');
    const refused = await send(url, { headers: others, body: INITIALIZE });
    expect([refused.status, refused.headers['www-authenticate']]).toEqual([
      401,
      expect.stringContaining('error="invalid_token"'),
    ]);
    for (const sub of [5, '', {}, ['alice'], true, null]) {
      const named = await send(url, { headers: await tokenFor(sub), body: INITIALIZE });
      expect([sub, named.status]).toEqual([sub, 401]);
      expect(named.headers['www-authenticate']).toContain('error="invalid_token"');
    }

    const alice = await RawSession.begin(url, await tokenFor('alice'));
    await alice.call('get-sum', { a: 1, b: 2 });
    const sameAlice = await RawSession.begin(url, await tokenFor('alice'));
    expect(await sameAlice.tools()).toContain(LONG);
    const bob = await RawSession.begin(url, await tokenFor('bob'));
    expect(await bob.tools()).not.toContain(LONG);
    const thief = RawSession.resume(url, alice.id, await tokenFor('bob'));
    expect((await thief.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' })).status).toBe(404);
  });

  it('lets no redirect of the server lead round the gate', async () => {
    const server = await serve((_req, res) => {
      res.writeHead(307, { location: 'http://127.0.0.1:1/elsewhere' }).end();
    });
    const gate = await gateFor(checkout, '--target', server.url.href);
    const { status, headers } = await send(gate.url, { body: INITIALIZE });
    expect([status, headers.location]).toEqual([502, undefined]);
    expect(eventsOf(gate, 'warning').at(-1)?.message).toContain('answers with a redirect');
  });
});

it('says how its runs are, and names none of them in its log', async () => {
  const gate = await gateFor(report, '--target', everything.target);
  const session = await RawSession.begin(gate.url);
  await session.call('get-sum', { a: 1, b: 2 });
  const health = await send(new URL('/health', gate.url), { method: 'GET' });
  expect([health.status, health.messages[0]]).toEqual([
    200,
    {
      status: 'ok',
      failing: [],
      workflows: [expect.objectContaining({ workflow: 'report', store: 'ok', runs: 1, held: 0 })],
    },
  ]);
  expect((await send(new URL('/health/live', gate.url), { method: 'GET' })).status).toBe(200);
  expect((await send(new URL('/elsewhere', gate.url), { method: 'GET' })).status).toBe(404);
  await expect.poll(() => eventsOf(gate, 'run.moved')).toHaveLength(1);
  expect(eventsOf(gate, 'run.moved')[0]).toMatchObject({ from: 'started', to: 'measured' });
  expect(gate.output()).not.toContain(session.id);
});

it('shows the inspector to a browser with its key, and to no other one', async () => {
  const target = ['--target', 'http://127.0.0.1:1/mcp', '--store', 'memory', '--port', '0'];
  await expect(installed.run('gate', checkout, ...target, '--inspect')).rejects.toThrow(
    '--inspect needs the package "mcp-interlock-inspector": npm install mcp-interlock-inspector',
  );
  installed.link('mcp-interlock-inspector');
  const gate = await gateAlone('--inspect');
  const address = () => /Inspector: (\S+)/.exec(gate.output())?.[1];
  await expect.poll(address).toBeDefined();
  const door = new URL(address() ?? '');
  const get = (path: string, headers: Record<string, string> = {}) =>
    send(new URL(path, gate.url), { method: 'GET', headers: { accept: 'text/html', ...headers } });

  const entered = await get(door.pathname + door.search);
  expect([entered.status, entered.headers.location]).toEqual([302, '/inspector/']);
  const [cookie = ''] = entered.headers['set-cookie'] ?? [];
  expect(cookie).toContain('HttpOnly; SameSite=Strict');
  const own = { cookie: cookie.split(';')[0] ?? '' };
  expect((await get('/inspector/api/workflows', own)).status).toBe(200);
  expect((await get('/inspector/api/workflows')).status).toBe(403);
  expect((await get('/inspector?key=wrong')).status).toBe(403);
  const logged = gate
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'));
  expect(logged.join()).not.toContain(door.searchParams.get('key'));
});

it('says at once what keeps it from serving', async () => {
  const taken = await serve(() => {});
  const { port } = taken.url;
  const target = ['--target', 'http://127.0.0.1:1/mcp', '--store', 'memory'];
  await expect(installed.run('gate', checkout, ...target, '--port', port)).rejects.toThrow(
    `cannot listen on 127.0.0.1, port ${port}: another program listens there`,
  );
});

it('checks a gate, and says last that the server cannot be reached', async () => {
  const target = ['--target', 'http://127.0.0.1:1/mcp'];
  expect(await installed.run('check', checkout)).toContain('checkout: nothing found. Tool names');
  await expect(installed.run('check', checkout, ...target)).rejects.toThrow(
    'mcp-interlock: http://127.0.0.1:1/mcp cannot be reached: ECONNREFUSED',
  );
});
