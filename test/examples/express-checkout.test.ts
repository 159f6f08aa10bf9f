import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { drawn } from '../../examples/express-checkout/terminal.ts';
import { drawDemo } from '../../scripts/record-demo.ts';
import { ROOT } from '../helpers/consumer.ts';
import { Page } from '../helpers/markdown.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { freePort, isFree } from '../services/ports.ts';

const run = promisify(execFile);

it('plays the checkout to its end with the client of the SDK, through a kill of the server', async () => {
  const { stdout } = await run(
    process.execPath,
    ['--import', 'tsx', 'examples/express-checkout/demo.ts'],
    {
      cwd: ROOT,
    },
  );
  const states = [...stdout.matchAll(/^State: (.+)$/gm)].map(([, state]) => state);
  expect(states).toEqual(['empty', 'has_items', 'payment', 'confirmed']);
  expect(stdout).toContain('SIGKILL');
  expect(stdout.trim().split('\n').at(-1)).toBe('Everything was as it should be.');
  // `npm run record-demo` draws it anew.
  expect(readFileSync(join(ROOT, 'docs/demo.svg'), 'utf8')).toBe(drawDemo(stdout));
}, 60_000);

it('keeps to the width of a terminal, and colours what stands out', () => {
  const line = '    [System: cart_pay is not available while checkout is in "empty".]';
  expect(drawn(`  cart_pay() refused\n${line}`, 40, true)).toBe(
    '\u001b[31m  cart_pay() refused\u001b[0m\n' +
      '\u001b[33m    [System: cart_pay is not available\n    while checkout is in "empty".]\u001b[0m',
  );
  expect(drawn(line, 40, false).split('\n')).toHaveLength(2);
  expect(drawn(`    ${'x'.repeat(90)}`, 40, false)).toBe(`    ${'x'.repeat(90)}`);
});

it('shows the inspector with --open, until it is stopped', async () => {
  // Its second instance takes the next one.
  const port = await freePort((each) => isFree(each + 1));
  const program = await startProgram(join(ROOT, 'examples/express-checkout/demo.ts'), {
    args: ['--open'],
    // No browser is found there.
    env: { PORT: String(port), PATH: '' },
    ready: /http:\/\/\S+\/inspector\//,
  });
  onTestFinished(() => program.kill9());
  const page = await fetch(program.match);
  expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('<title>')]);
  expect(page.headers.get('content-security-policy')).not.toContain('unsafe-inline');
}, 60_000);

/** The server as a deployment starts it, with a bank that waits for the test's word. */
async function startServer(folder: string) {
  const bank = pathToFileURL(join(ROOT, 'test/helpers/slow-bank.ts')).href;
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', '--import', bank, 'examples/express-checkout/server.ts'],
    {
      cwd: ROOT,
      env: {
        ...process.env,
        PORT: '0',
        RUNS_DB: join(folder, 'runs.db'),
        SHOP_DB: join(folder, 'shop.db'),
      },
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    },
  );
  onTestFinished(() => void child.kill('SIGKILL'));
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
    const address = ADDRESS.exec(line);
    if (address !== null) return { child, url: new URL(address[0]) };
  }
  throw new Error('the server ended before it listened');
}

const textOf = (message: WireMessage): unknown => message.result?.content[0].text;

it('brings a step to its end that runs when SIGTERM comes, and holds no run', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-drain-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const { child, url } = await startServer(folder);
  const session = await RawSession.begin(url);
  const other = await RawSession.begin(url);
  await session.call('cart_add_item', { sku: 'tea' });
  await session.call('cart_checkout');
  const paying = session.call('cart_pay');
  await once(child, 'message');

  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await expect
    .poll(async () => reasonOf(await other.call('cart_add_item', { sku: 'tea' })))
    .toBe('unavailable');
  child.send('paid');
  expect(textOf(await paying)).toBe('Paid. Thank you.');
  expect(await exited).toEqual([0, null]);

  const next = await startServer(folder);
  const resumed = RawSession.resume(next.url, session.id);
  expect(await resumed.tools()).toEqual(['cart_view']);
  expect(textOf(await resumed.call('cart_view'))).toBe('Items: tea. Payments: 1.');
}, 60_000);

it('ends as the page about several instances shows', () => {
  const end = new Page('docs/operate/instances.md')
    .blocks('ts')
    .find((block) => block.includes('SIGTERM'));
  const server = readFileSync(join(ROOT, 'examples/express-checkout/server.ts'), 'utf8');
  expect(server).toContain(end ?? 'no such code');
});
