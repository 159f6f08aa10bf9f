/**
 * Runs the checkout against the example's server and says what the client sees. Ends with status 0
 * where everything was as it should be, and with 1 at the first difference.
 *
 * With `--open` a model calls the tools of such a checkout again and again, on two instances. The
 * inspector shows it in a browser until you stop it. `PORT` is the first instance's.
 */

import { deepStrictEqual as expectEqual } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AppProcess } from './app-process.ts';
import { type Answer, Shopper } from './shopper.ts';
import { print } from './terminal.ts';

const LIST_CHANGED = 'notifications/tools/list_changed';

if (process.argv.includes('--open')) {
  const url = `http://127.0.0.1:${process.env.PORT ?? 4100}/inspector/`;
  setTimeout(() => openInBrowser(url), 1_000);
  await import('../../packages/inspector/dev.ts');
}

const folder = mkdtempSync(join(tmpdir(), 'interlock-demo-'));
let app = await AppProcess.start(folder);
const shopper = await Shopper.connect(app.url);
try {
  print(`The checkout of examples/express-checkout, on SQLite, with the SDK's client.`);

  await showState('empty', ['cart_add_item', 'cart_view'], {
    illegal: 'cart_pay',
    refusal:
      '[System: cart_pay is not available while checkout is in "empty". ' +
      'Available now: cart_add_item. ' +
      'To reach cart_pay, call cart_add_item, then cart_checkout first.]',
  });
  await move('cart_add_item', { sku: 'tea' }, 'Added tea.');

  await showState('has_items', ['cart_add_item', 'cart_checkout', 'cart_view'], {
    illegal: 'cart_pay',
    refusal:
      '[System: cart_pay is not available while checkout is in "has_items". ' +
      'Available now: cart_add_item, cart_checkout. To reach cart_pay, call cart_checkout first.]',
  });
  await stay('cart_add_item', { sku: 'cups' }, 'Added cups.');
  await move('cart_checkout', {}, 'To pay: 10 EUR.');

  await killAndRestart();

  await showState('payment', ['cart_pay', 'cart_view'], {
    illegal: 'cart_checkout',
    refusal:
      '[System: cart_checkout is not available while checkout is in "payment". ' +
      'Available now: cart_pay. ' +
      'No call leads to cart_checkout from here. checkout waits for CANCEL, from outside.]',
  });
  await payTwiceAtOnce();

  await showState('confirmed', ['cart_view'], {
    illegal: 'cart_pay',
    refusal:
      '[System: cart_pay is not available while checkout is in "confirmed". ' +
      'No tool of checkout is available now. ' +
      'cart_pay cannot be reached from here by calling tools.]',
  });
  await endSession();
  print('\nEverything was as it should be.');
} finally {
  await shopper.close();
  await app.kill();
  rmSync(folder, { recursive: true });
}

/** Where there is no browser, the address that was printed has to do. */
function openInBrowser(url: string): void {
  const openers: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
    darwin: ['open'],
    win32: ['cmd', '/c', 'start'],
  };
  const [command, ...args] = openers[process.platform] ?? ['xdg-open'];
  spawn(command, [...args, url], { stdio: 'ignore', detached: true })
    .on('error', () => {})
    .unref();
}

interface IllegalCall {
  readonly illegal: string;
  readonly refusal: string;
}

/**
 * What the client is shown in a state, and what it reads when it calls a tool that it is not shown.
 */
async function showState(
  state: string,
  visible: string[],
  { illegal, refusal }: IllegalCall,
): Promise<void> {
  const tools = await shopper.tools();
  const refused = await shopper.call(illegal);
  heading(`State: ${refused.state}`);
  say(
    'tools/list',
    ...[...tools].map(([name, description]) => `${name.padEnd(14)} ${description}`),
  );
  sayCall(illegal, {}, refused);

  expectEqual(refused.state, state);
  expectEqual([...tools.keys()], visible);
  expectEqual(tools.get('cart_view'), 'Shows the cart. [Cache-Control: no-store]');
  expectEqual(refused, { texts: [refusal], isError: true, state, notified: [] });
}

/** A call that moves the run: the client is notified of its new list before it has the result. */
async function move(tool: string, args: Record<string, unknown>, text: string): Promise<void> {
  const answer = await shopper.call(tool, args);
  sayCall(tool, args, answer);
  expectEqual(answer, succeeded(tool, text, [LIST_CHANGED]));
}

/** A call that succeeds, in a state that does not handle its event. */
async function stay(tool: string, args: Record<string, unknown>, text: string): Promise<void> {
  const answer = await shopper.call(tool, args);
  sayCall(tool, args, answer);
  expectEqual(answer, succeeded(tool, text, []));
}

function succeeded(tool: string, text: string, notified: string[]): Answer {
  const stale = `[System: Cache invalidated for cart_view — caused by ${tool}]`;
  return { texts: [text, stale], isError: false, state: undefined, notified };
}

/** The same client, in the same session, with a server that has only its files to go by. */
async function killAndRestart(): Promise<void> {
  await app.kill();
  app = await AppProcess.start(folder, app.url.port);
  heading('The server was killed (SIGKILL) and started again; the client goes on in its session.');
}

async function payTwiceAtOnce(): Promise<void> {
  const answers = await Promise.all([shopper.call('cart_pay'), shopper.call('cart_pay')]);
  const [ran, refused] = answers[0].isError ? [answers[1], answers[0]] : answers;
  const view = await shopper.call('cart_view');
  say('Two calls of cart_pay at once: one runs, the other waits for it and is tested again');
  sayCall('cart_pay', {}, ran);
  sayCall('cart_pay', {}, { ...refused, notified: [] });
  sayCall('cart_view', {}, view);

  expectEqual(ran, succeeded('cart_pay', 'Paid. Thank you.', [LIST_CHANGED]));
  expectEqual([refused.isError, refused.state], [true, 'confirmed']);
  expectEqual(view.texts, ['Items: tea, cups. Payments: 1.']);
}

async function endSession(): Promise<void> {
  const id = await shopper.endSession();
  const response = await fetch(app.url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': id ?? '',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
  });
  heading('The client ended its session (DELETE).');
  say('tools/list with the old session id', `HTTP ${response.status} ${await response.text()}`);
  expectEqual(response.status, 404);
}

function heading(text: string): void {
  print(`\n${text}\n${'-'.repeat(text.length)}`);
}

function say(title: string, ...lines: readonly string[]): void {
  print(`  ${title}`);
  for (const line of lines) print(`    ${line}`);
}

function sayCall(
  tool: string,
  args: Record<string, unknown>,
  { texts, isError, notified }: Answer,
): void {
  const outcome = isError ? 'refused' : 'succeeded';
  say(
    `${tool}(${Object.values(args).join()}) ${outcome}`,
    ...notified.map((each) => `<- ${each}`),
    ...texts,
  );
}
