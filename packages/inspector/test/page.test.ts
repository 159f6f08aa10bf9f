import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import express from 'express';
import {
  handleKey,
  memoryStore,
  principalKey,
  StateMachineGate,
  sessionStore,
} from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { workflowGraph } from 'mcp-interlock-check';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { TestClient } from '../../../test/helpers/client.ts';
import { listen } from '../../../test/helpers/serve.ts';
import { inspector } from '../src/index.ts';
import { type Look, openBrowser, seriousFaults, type Viewer, view } from './browser.ts';
import { type Instance, type InstanceOptions, Shop } from './shop.ts';
import { hold, put } from './site.ts';

const SCREENSHOTS = fileURLToPath(new URL('../screenshots/', import.meta.url));
mkdirSync(SCREENSHOTS, { recursive: true });

let browser: Browser;
let shop: Shop;
/** Serves the page. What clients do, they do at the other one. */
let here: Instance;
let there: Instance;
const viewers: Viewer[] = [];

beforeAll(async () => {
  shop = new Shop();
  [browser, here, there] = await Promise.all([openBrowser(), shop.instance(), shop.instance()]);
});

afterEach(async () => {
  // In each test: no error, nothing from another host, nothing that jumps about.
  const seen = viewers.splice(0);
  const shifts = await Promise.all(seen.map((viewer) => viewer.layoutShift()));
  await Promise.all(seen.map(({ context }) => context.close()));
  expect(seen.flatMap(({ faults }) => faults)).toEqual([]);
  for (const shift of shifts) expect(shift).toBeLessThan(0.02);
});

afterAll(async () => {
  await browser?.close();
  await shop?.close();
});

async function open(url: string, look?: Look): Promise<Viewer> {
  const viewer = await view(browser, url, look);
  viewers.push(viewer);
  return viewer;
}

/** Calls a tool: well, or so that it `fails`, `dies` before it answers, or is `slow`. */
async function call(client: TestClient, name: string, how = 'well'): Promise<void> {
  const called = client.client.callTool({ name, _meta: { how } });
  if (how === 'dies') await expect(called).rejects.toThrow();
  else await called;
}

async function runAt(state: 'has_items' | 'payment', instance = there): Promise<TestClient> {
  const client = await instance.client();
  await call(client, 'cart.add_item');
  if (state === 'payment') await call(client, 'cart.checkout');
  return client;
}

/** A run whose payment has an unknown outcome. */
async function heldRun(): Promise<TestClient> {
  const client = await runAt('payment');
  await call(client, 'cart.pay', 'dies');
  return client;
}

async function find(page: Page, client: TestClient): Promise<void> {
  const key = client.transport.sessionId ?? '';
  await page.getByLabel('Search runs by key').fill(key);
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByRole('article').waitFor();
}

const NAME_OF_FOCUSED =
  'document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent';

/** What is to be read of the names of all rows: a part that is cut off counts as an ellipsis. */
const SHOWN_NAMES = `JSON.stringify([...document.querySelectorAll('.who .first')].map((name) =>
  [...name.children]
    .map((part) => (part.scrollWidth > part.clientWidth ? '…' : part.textContent))
    .join('')))`;

/** Waits for the call with the unknown outcome. */
async function seesHeld(page: Page): Promise<void> {
  const step = page.getByRole('region', { name: 'The call that has the run' });
  await step.getByText('ended with an unknown outcome').waitFor({ timeout: 15_000 });
}

/** What a finger could push sideways. */
const PANS = `JSON.stringify([...document.querySelectorAll('html, .runs, .rows, .panel, .content')]
  .filter((part) => part.checkVisibility() && part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.className || part.tagName))`;

const LOOKS = ['light', 'dark'] as const;

/** Two instances on a store of their own: what stops their calls stops those of no other test. */
async function freshPair(second: InstanceOptions = {}): Promise<readonly [Instance, Instance]> {
  const own = new Shop();
  onTestFinished(() => own.close());
  return [await own.instance(), await own.instance(second)];
}

const stateBox = (page: Page, name: string) => page.locator(`[data-state="${name}"]`);

describe('the page of the inspector', () => {
  it('shows live what a client does at another instance', async () => {
    const { page } = await open(here.url);
    const client = await runAt('has_items');
    await find(page, client);
    await page.getByRole('heading', { name: 'has_items' }).waitFor();
    expect(await stateBox(page, 'has_items').getAttribute('class')).toContain('active');
    const sees = page.locator('.tools > div').first();
    expect(await sees.getByText('cart.pay').count()).toBe(0);

    await call(client, 'cart.checkout');
    await page.getByRole('heading', { name: 'payment' }).waitFor();
    await expect.poll(() => stateBox(page, 'payment').getAttribute('class')).toContain('active');
    await sees.getByText('cart.pay').waitFor();
    // The words are those that its model is given.
    const refused = await client.call('cart.clear');
    await page.getByText(refused.text).waitFor();
    expect(await page.locator('.trail > li').count()).toBe(2);
    expect(await page.locator('.label.newest').textContent()).toContain('cart.checkout');
  });

  it('has the whole date of a time in its tooltip, with the time zone', async () => {
    const timeZone = 'Asia/Kolkata';
    const { page } = await open(here.url, { locale: 'en-US', timezoneId: timeZone });
    const client = await runAt('has_items');
    await find(page, client);
    const time = page.locator('.trail time').first();
    const at = new Date((await time.getAttribute('datetime')) ?? '');
    const date = at.toLocaleDateString('en-US', { timeZone, dateStyle: 'full' });
    const clock = at.toLocaleTimeString('en-GB', { timeZone });
    expect(await time.getAttribute('title')).toBe(`${date} at ${clock} GMT+5:30`);
  });

  it('says of tools that the gate does not bind what lists have shown', async () => {
    const instance = await shop.instance();
    const { page } = await open(instance.url);
    const client = await runAt('has_items', instance);
    await find(page, client);
    const sees = page.locator('.tools > div').first();
    await sees.getByText('3 bound + others', { exact: true }).waitFor();
    await sees.getByText('no list of tools has passed this process yet').waitFor();
    await client.tools();
    await page.reload();
    await sees.getByText('3 bound + 5 others', { exact: true }).waitFor();
    await sees.getByText('order.hand_over').waitFor();
    expect(await page.locator('.tools > div').last().getByText('order.').count()).toBe(0);
  });

  it.each([390, 1024, 1440])('tells runs of one issuer apart, %i px wide', async (width) => {
    const issuer = 'https://login.example.com/tenants/acme-production/v2.0';
    const subjects = ['4711', '4712', `auth0|${'0'.repeat(23)}a`, `auth0|${'0'.repeat(23)}b`];
    const store = memoryStore();
    for (const subject of subjects)
      await put(store, principalKey().runKey({ issuer, subject }), 'has_items');
    const handles = handleKey('cart', { createdBy: 'cart.new' });
    await put(store, handles.runKey('c-81', { issuer, subject: '4711' }), 'has_items');
    const authorize = () => ({ read: true, keys: true }) as const;
    const instance = await shop.instance({ store, authorize });
    const { page } = await open(instance.url, { width, height: 800 });
    if (width < 900) await page.getByRole('button', { name: 'Runs', exact: true }).click();
    await page.getByRole('button', { name: /^Open/ }).click();
    await expect.poll(() => page.locator('.rows').getByRole('option').count()).toBe(5);
    await page.screenshot({ path: `${SCREENSHOTS}rows-${width}.png`, animations: 'disabled' });
    const read: string[] = JSON.parse(String(await page.evaluate(SHOWN_NAMES)));
    expect(new Set(read).size).toBe(5);
    for (const short of ['4711', '4712', 'c-81']) expect(read).toContain(short);
    const row = page.locator('.who', { hasText: '4712' });
    expect(await row.getAttribute('title')).toBe(
      `4712\n${issuer}\n${principalKey().runKey({ issuer, subject: '4712' })}`,
    );
  });

  it('counts down the lease of a step, and sees its end', async () => {
    const { page } = await open(here.url);
    const client = await runAt('payment');
    const paying = call(client, 'cart.pay', 'slow');
    await find(page, client);
    const lease = page.getByRole('progressbar', { name: 'What is left of the lease' });
    await lease.waitFor();
    await page.getByText('cart.pay is running', { exact: true }).waitFor();
    shop.slow.open();
    await paying;
    await page.getByRole('heading', { name: 'confirmed' }).waitFor();
    await lease.waitFor({ state: 'detached' });
  });

  it('shows held runs first, and resolves one with a note', async () => {
    const client = await heldRun();
    const { page } = await open(here.url);
    await page.getByRole('button', { name: /^Held/ }).click();
    await page.locator('.rows').getByRole('option', { name: /held/ }).first().waitFor();
    await page.locator('.rows').getByRole('option').first().click();
    await seesHeld(page);

    await page.getByRole('radio', { name: /It succeeded/ }).check();
    await page.getByLabel('Note for the trail').fill('The bank has it: receipt 4711.');
    await page.getByRole('button', { name: 'Resolve as succeeded' }).click();
    await page.getByRole('heading', { name: 'confirmed' }).waitFor();
    await page.getByText('The bank has it: receipt 4711.').waitFor();
    await page.getByText('by kim').waitFor();
    expect(await client.tools()).toContain('receipt.show');
  });

  it('lets an operator resolve three of five held runs by their amounts, on a phone', async () => {
    const store = memoryStore();
    const olga = () => ({ read: true, write: true, actor: 'olga' }) as const;
    const look = ({ idempotencyKey }: { idempotencyKey: string }) =>
      `https://pay.example/payments/${idempotencyKey}`;
    const [own, others] = [
      await shop.instance({ store, look }),
      await shop.instance({ store, authorize: olga }),
    ];
    for (const amount of [10, 20, 30, 40, 50]) {
      await put(store, `run-${amount}`, 'payment');
      await hold(store, `run-${amount}`, 'cart.pay', { amount, currency: 'EUR' });
    }
    const [phone, other] = [
      await open(own.url, { width: 390, height: 844 }),
      await open(others.url),
    ];
    const { page } = phone;
    const row = (amount: number) => page.locator('.row', { hasText: `${amount}.00 EUR` });
    await expect.poll(() => page.title()).toBe('(5 held) Interlock inspector');
    await expect.poll(() => other.page.title()).toBe('(5 held) Interlock inspector');

    await row(40).click();
    await page.getByRole('link', { name: 'pay.example' }).waitFor();
    await page.locator('.step code.args', { hasText: '"amount":40' }).waitFor();
    expect(await page.evaluate(PANS)).toBe('[]');
    await page.keyboard.press('Escape');

    for (const amount of [20, 40, 50]) await row(amount).locator('.mark').click();
    const several = page.getByRole('form', { name: 'Resolve the chosen runs' });
    await several.getByText('3 runs chosen: 20.00 EUR · 40.00 EUR · 50.00 EUR').waitFor();
    await several.getByRole('button', { name: '3 succeeded …' }).click();
    await several.getByText('Write first where you looked them up.').waitFor();
    await several.getByLabel('Note for the trail of each').fill('At the bank: 20, 40 and 50.');
    expect(await page.evaluate(PANS)).toBe('[]');
    for (const colorScheme of LOOKS) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page)).toEqual([]);
      const path = `${SCREENSHOTS}several-${colorScheme}-390.png`;
      await page.screenshot({ path, animations: 'disabled' });
    }
    // A slip of the finger is no outcome.
    await several.getByRole('button', { name: '3 failed …' }).click();
    await several.getByText('Say that 3 calls failed?').waitFor();
    expect(await several.getByRole('button', { name: 'Yes, 3 failed' }).isDisabled()).toBe(true);
    await several.getByRole('button', { name: 'Back' }).click();
    await several.getByRole('button', { name: '3 succeeded …' }).click();
    await several.getByRole('button', { name: 'Yes, 3 succeeded' }).click();
    await page.getByText('3 of 3 resolved as succeeded.').waitFor();
    await expect.poll(() => page.title()).toBe('(2 held) Interlock inspector');
    await expect.poll(() => page.locator('.row').count()).toBe(2);
    expect(await row(10).count()).toBe(1);
    expect(await row(30).count()).toBe(1);
    // Who did it is told to the others.
    await other.page.getByText(/^kim resolved cart.pay of run [0-9a-f]+ as succeeded/).waitFor();
    // What has ended is in no other list, and is found by its amount all the same.
    await page.getByRole('button', { name: 'Resolved' }).click();
    await expect.poll(() => page.locator('.row').count()).toBe(3);
    expect(await row(40).textContent()).toMatch(
      /40\.00 EUR · succeeded: cart\.pay.*kim, \d+ s ago/,
    );
    await page.getByLabel(/^Search runs/).fill('50.00');
    await page.getByRole('button', { name: 'Find' }).click();
    await expect.poll(() => page.locator('.row').count()).toBe(1);
    await page.getByRole('article').getByText('At the bank: 20, 40 and 50.').waitFor();
  });

  it('hears of runs again once its server has restarted, which names them anew', async () => {
    const store = memoryStore();
    await put(store, 'ann-1', 'payment');
    await hold(store, 'ann-1', 'cart.pay', { amount: 7 });
    const before = await shop.instance({ store, secret: 'of the first process, of 32 letters' });
    const viewer = await open(before.url);
    const { page } = viewer;
    await page.locator('.row').click();
    await page.getByRole('article').waitFor();
    await expect.poll(() => page.title()).toBe('(1 held) Interlock inspector');
    const { port } = new URL(before.url);
    await before.close();
    await page.getByText('Reconnecting').waitFor();
    expect(await page.locator('.kinds .held .number').textContent()).toBe('–');
    const after = { store, secret: 'of the second process, of 32 letters', port: Number(port) };
    await shop.instance(after);
    await page.getByText('Live').waitFor({ timeout: 20_000 });
    await put(store, 'bob-1', 'payment');
    await hold(store, 'bob-1', 'cart.pay', { amount: 9 });
    await expect.poll(() => page.title(), { timeout: 10_000 }).toBe('(2 held) Interlock inspector');
    // What did not answer meanwhile is no fault of the page.
    viewer.faults.length = 0;
  });

  it('searches, walks through the list and leaves a run by single keys', async () => {
    const store = memoryStore();
    const { url } = await shop.instance({ store });
    for (const name of ['ann-1', 'ann-2', 'bob-1']) await put(store, name, 'payment');
    await hold(store, 'bob-1', 'cart.pay', { amount: 7 });
    const { page } = await open(url);
    await page.locator('.row').first().waitFor();
    await page.keyboard.press('/');
    expect(await page.evaluate(NAME_OF_FOCUSED)).toMatch(/^Search runs/);
    await page.keyboard.type('payment');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.row').count()).toBe(3);
    await page.getByText('Where it looked').click();
    await page.getByText(/a run that has ended is found by its whole key/).waitFor();
    // Held ones come first, and a text that one run fits opens it.
    expect(await page.locator('.row').first().textContent()).toContain('cart.pay');
    await page.evaluate('document.activeElement.blur()');
    await page.keyboard.press('j');
    const list = page.getByRole('listbox');
    expect(await list.getAttribute('aria-activedescendant')).toBe('row-1');
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    await page.keyboard.press('k');
    expect(await list.getAttribute('aria-activedescendant')).toBe('row-0');
    await page.keyboard.press('x');
    await page.getByText('1 run chosen').waitFor();
    await page.keyboard.press('x');
    await page.getByText('1 run chosen').waitFor({ state: 'detached' });
    await page.keyboard.press('Enter');
    await seesHeld(page);
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: 'Pick a run' }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type('amount 7');
    await page.keyboard.press('Enter');
    await seesHeld(page);
  });

  it('names its single keys, and can do without them', async () => {
    const store = memoryStore();
    const { url } = await shop.instance({ store });
    await put(store, 'ann-1', 'payment');
    const { page } = await open(url);
    await page.locator('.row').first().waitFor();
    await page.getByRole('button', { name: 'Keys' }).click();
    await page.getByRole('definition').filter({ hasText: 'search' }).waitFor();
    expect(await seriousFaults(page)).toEqual([]);
    await page.getByRole('checkbox').uncheck();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.evaluate('document.activeElement.blur()');
    await page.keyboard.press('/');
    expect(await page.evaluate(NAME_OF_FOCUSED)).not.toMatch(/^Search runs/);
    await page.reload();
    await page.locator('.row').first().waitFor();
    await page.keyboard.press('/');
    expect(await page.evaluate(NAME_OF_FOCUSED)).not.toMatch(/^Search runs/);
  });

  it('folds refusals in a row', async () => {
    const instance = await shop.instance({ refusals: true });
    const { page } = await open(instance.url);
    const client = await runAt('has_items', instance);
    for (let times = 0; times < 4; times++) await call(client, 'cart.pay');
    await find(page, client);
    await page.locator('.trail > li').first().waitFor();
    await expect
      .poll(() => page.locator('.content > .run > section > .trail > li').count())
      .toBe(2);
    await page.getByText('4 refusals of').click();
    await expect.poll(() => page.getByText('was refused').count()).toBe(4);
  });

  it('sends an event that no call sends', async () => {
    const { page } = await open(here.url);
    const client = await runAt('payment');
    await find(page, client);
    await page.getByRole('combobox', { name: 'Event' }).selectOption('APPROVE');
    await page.getByLabel('Payload').fill('{"by": ');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('The payload is not JSON.').waitFor();
    await page.getByLabel('Payload').fill('{"by": "Kim"}');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('heading', { name: 'confirmed' }).waitFor();
    expect(await client.tools()).toContain('receipt.show');
  });

  it('stops all calls with a reason, shows all operators who did, and lets them go on', async () => {
    const instances = await freshPair();
    const [first, second] = [await open(instances[0].url), await open(instances[1].url)];
    const client = await runAt('has_items', instances[1]);
    // The other operator looks at another workflow of another instance, and does nothing.
    await second.page.getByRole('button', { name: 'fulfilment' }).click();
    await stateBox(second.page, 'received').waitFor();
    await first.page.getByRole('button', { name: 'Stop all calls' }).click();
    const dialog = first.page.getByRole('dialog', { name: 'Stop calls of checkout?' });
    const confirm = dialog.getByRole('button', { name: 'Stop all calls' });
    expect(await confirm.isDisabled()).toBe(true);
    await dialog.getByLabel('Reason').fill('   ');
    expect(await confirm.isDisabled()).toBe(true);
    await dialog.getByLabel('Reason').fill('the provider charges twice');
    await confirm.click();

    for (const { page } of [second, first]) {
      const bar = page.getByRole('alert');
      await bar.getByText('All calls of checkout are stopped').waitFor();
      expect(await bar.textContent()).toMatch(/since \d\d:\d\d:\d\d by kim/);
      await bar.getByText('the provider charges twice').waitFor();
    }
    const again = first.page.getByRole('button', { name: 'Stop all calls' });
    await again.waitFor({ state: 'detached' });
    await first.page.locator('.rows').getByRole('option').first().waitFor();
    await expect
      .poll(async () => (await client.call('cart.add_item')).text, { timeout: 1_000 })
      .toContain('the operator has stopped all runs of checkout');
    for (const colorScheme of LOOKS) {
      await first.page.emulateMedia({ colorScheme });
      expect(await seriousFaults(first.page)).toEqual([]);
      const path = `${SCREENSHOTS}stopped-${colorScheme}.png`;
      await first.page.screenshot({ path, animations: 'disabled' });
    }

    await second.page.getByRole('button', { name: 'Let all go on' }).click();
    const thaw = second.page.getByRole('dialog', { name: 'Let all calls of checkout go on?' });
    await thaw.getByLabel('Reason').fill('refunded');
    await thaw.getByRole('button', { name: 'Let them go on' }).click();
    for (const { page } of [second, first])
      await page.getByText('All calls of checkout are stopped').waitFor({ state: 'detached' });
    await expect.poll(async () => (await client.call('cart.add_item')).text).toBe('Done.');
  });

  it('stops one tool, on a narrow screen too, and only for those who may act', async () => {
    const [acting, reading] = await freshPair({ authorize: () => ({ read: true }) });
    const client = await runAt('payment', reading);
    const reader = await open(reading.url);
    const { page } = await open(acting.url, { width: 390, height: 780 });
    await page.getByRole('button', { name: 'Stop all calls' }).click();
    const dialog = page.getByRole('dialog', { name: 'Stop calls of checkout?' });
    await dialog.getByLabel('Which').selectOption({ label: 'Calls of cart.pay, in all runs' });
    await dialog.getByLabel('Reason').fill('the provider charges twice');
    for (const colorScheme of LOOKS) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page)).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}stop-dialog-${colorScheme}-390.png` });
    }
    await dialog.getByRole('button', { name: 'Stop calls of cart.pay' }).click();
    for (const each of [page, reader.page])
      await each.getByText('Calls of cart.pay are stopped').waitFor();
    for (const colorScheme of LOOKS) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page)).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}stopped-${colorScheme}-390.png` });
    }
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
    expect(await reader.page.getByRole('button', { name: /Stop|go on/ }).count()).toBe(0);

    expect((await client.call('cart.pay')).text).toContain('has stopped all calls of it');
    // The other tools can still be stopped.
    await page.getByRole('button', { name: 'Stop all calls' }).waitFor();
    await page.getByRole('button', { name: 'Let them go on' }).click();
    const thaw = page.getByRole('dialog', { name: 'Let calls of cart.pay go on?' });
    await thaw.getByLabel('Reason').fill('refunded');
    await thaw.getByRole('button', { name: 'Let them go on' }).click();
    await reader.page.getByText('Calls of cart.pay are stopped').waitFor({ state: 'detached' });
    await expect.poll(async () => (await client.call('cart.pay')).text).toBe('Done.');
  });

  it('stops one run with a reason, and lets it go on', async () => {
    const { page } = await open(here.url);
    const client = await runAt('payment');
    await find(page, client);
    await page.getByRole('button', { name: 'Stop this run' }).click();
    const dialog = page.getByRole('dialog', { name: 'Stop this run?' });
    await dialog.getByLabel('Reason').fill('it was charged twice');
    await dialog.getByRole('button', { name: 'Stop this run' }).click();
    const stopped = page.getByRole('region', { name: 'This run is stopped' });
    await stopped.getByText('by kim: it was charged twice').waitFor();
    expect((await client.call('cart.pay')).text).toContain('has stopped this run of checkout');
    expect(await page.getByRole('button', { name: 'Begin anew' }).isDisabled()).toBe(true);
    await page.screenshot({ path: `${SCREENSHOTS}stopped-run.png`, animations: 'disabled' });
    await stopped.getByRole('button', { name: 'Let it go on' }).click();
    const thaw = page.getByRole('dialog', { name: 'Let this run go on?' });
    await thaw.getByLabel('Reason').fill('refunded');
    await thaw.getByRole('button', { name: 'Let it go on' }).click();
    await stopped.waitFor({ state: 'detached' });
    await call(client, 'cart.pay');
    await page.getByRole('heading', { name: 'confirmed' }).waitFor();
  });

  it('says what a gate would refuse that only observes, by rule, and shows its last run', async () => {
    const observing = await shop.instance({ observes: true, store: memoryStore() });
    const [good, bad] = [await runAt('payment', observing), await observing.client()];
    await call(good, 'cart.pay');
    await call(bad, 'cart.pay');
    for (const [width, colorScheme] of [
      [1440, 'light'],
      [390, 'dark'],
    ] as const) {
      const look = { width, height: 900, colorScheme };
      const { page } = await open(observing.url, look);
      const summary = page.getByText('It would refuse 50.0 % of runs');
      await summary.click();
      await page.getByText('1 of 2 runs and 4 calls that this process has observed').waitFor();
      await page.getByText('cart.pay (state): first in 1 run, 50.0 %; 1 call').waitFor();
      await page.screenshot({ path: `${SCREENSHOTS}observed-${width}.png` });
      expect(await seriousFaults(page)).toEqual([]);
      await page.getByRole('button', { name: 'Look at its run' }).click();
      await page.getByRole('heading', { name: 'empty' }).first().waitFor();
    }
  });

  it('draws an arrow to each further state in which a run may begin', async () => {
    const machine = {
      id: 'shop',
      initial: 'empty',
      states: { empty: { on: { ADD: 'full' } }, full: { on: { PAY: 'paid' } }, paid: {} },
    };
    const gate = new StateMachineGate(machine, { starts: ['full'] }).bindTool(
      'add',
      'empty',
      'ADD',
    );
    const sessions = sessionStore({ store: memoryStore(), onWarning: () => {} });
    const inspected = inspector({
      runs: [runsOf(gate, { sessions })],
      authorize: () => ({ read: true, write: false }),
    });
    const app = express();
    app.use('/inspector', inspected);
    const served = await listen(app);
    onTestFinished(async () => {
      inspected.close();
      await served.close();
    });
    const { page } = await open(new URL('/inspector/', served.url).href);
    await stateBox(page, 'full').waitFor();
    const labels = await page.locator('.label .line-of > text').allTextContents();
    expect(labels.sort()).toEqual(['PAY', 'add', 'may begin']);
    const title = page.locator('.line-of.begins > title');
    expect(await title.textContent()).toBe('a run may begin in full, where the app says so');
    // Both arrows leave one dot.
    expect(await page.locator('.arrow').count()).toBe(4);
    expect(await page.locator('.dot').count()).toBe(1);
  });

  it('draws rules of order as what needs what, and lights what a run has done', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        login: { undoneBy: 'logout' },
        pay: { after: { any: ['card', { all: ['login', { tool: 'otp', consumes: true }] }] } },
        cancel: { after: { tool: 'find', same: ['order_id'] } },
        submit: { after: 'pay', once: true },
      },
      { id: 'bank' },
    ).bindTool('refund', { all: ['pay', { not: 'submit' }] });
    const sessions = sessionStore({ store: memoryStore(), onWarning: () => {} });
    const runs = runsOf(gate, { sessions });
    const inspected = inspector({ runs: [runs], authorize: () => ({ read: true, write: true }) });
    const app = express();
    app.use('/inspector', inspected);
    const served = await listen(app);
    onTestFinished(async () => {
      inspected.close();
      await served.close();
    });
    const { page } = await open(new URL('/inspector/', served.url).href);
    await stateBox(page, 'refund').waitFor();
    expect((await page.locator('.junction').allTextContents()).sort()).toEqual([
      'all of',
      'any of',
    ]);
    const labels = await page.locator('.label .line-of > text').allTextContents();
    expect(labels.sort()).toEqual(['must not be done', 'same order_id', 'undoes', 'uses it up']);
    // No tool is drawn as available in the box of another one.
    expect(await page.locator('.state .line-of > text').allTextContents()).toEqual(['once']);
    const { edges } = workflowGraph(gate);
    expect(await page.locator('.arrow').count()).toBe(edges.length);
    expect(await page.locator('.arrow.against').count()).toBe(2);
    expect(await page.getByLabel('Legend').textContent()).toContain('must not be done');

    await page.locator('.tabs').getByRole('button', { name: 'What if' }).click();
    const panel = page.getByRole('article', { name: 'What if' });
    for (const tool of ['otp', 'login', 'pay']) {
      await panel.getByRole('button', { name: `${tool} succeeds` }).click();
      await expect.poll(() => stateBox(page, tool).getAttribute('class')).toContain('active');
    }
    // Paying has used the code up. What a rule says is no move that a walk can take.
    expect(await stateBox(page, 'otp').getAttribute('class')).not.toContain('active');
    expect(await page.locator('.label .offered').count()).toBe(0);
    await page.screenshot({ path: `${SCREENSHOTS}order.png` });
  });

  it('walks through the machine without touching a run', async () => {
    const { page } = await open(here.url);
    const client = await runAt('has_items');
    await find(page, client);
    await page.locator('.tabs').getByRole('button', { name: 'What if' }).click();
    const panel = page.getByRole('article', { name: 'What if' });
    await panel.getByRole('button', { name: 'cart.checkout succeeds' }).click();
    await panel.getByRole('heading', { name: 'payment' }).waitFor();
    await panel.getByRole('button', { name: 'cart.pay fails' }).click();
    await panel.getByRole('heading', { name: 'has_items' }).waitFor();
    expect(await stateBox(page, 'has_items').getAttribute('class')).toContain('active');
    // A way of the diagram is a move, too.
    await page.locator('.label .offered', { hasText: 'cart.clear' }).click();
    await panel.getByRole('heading', { name: 'empty' }).waitFor();
    await panel.getByRole('button', { name: /start/ }).click();
    await panel.getByRole('heading', { name: 'has_items' }).waitFor();
    expect(await client.tools()).toContain('cart.checkout');
  });

  it('lets those only look who may not write, and others not at all', async () => {
    const readers = await shop.instance({ authorize: () => ({ read: true }) });
    const client = await heldRun();
    const reader = await open(readers.url);
    await find(reader.page, client);
    await seesHeld(reader.page);
    expect(await reader.page.getByRole('button', { name: /^(Resolve |Send|Delete)/ }).count()).toBe(
      0,
    );
    expect(await reader.page.getByText('idempotency key').count()).toBe(0);

    const closed = await shop.instance({ authorize: () => false });
    const context = await browser.newContext();
    const page = await context.newPage();
    const answer = await page.goto(closed.url);
    expect(answer?.status()).toBe(403);
    expect(await page.locator('script').count()).toBe(0);
    expect(await page.textContent('body')).toContain('You may not see the inspector');
    await context.close();
  });

  it('says that the connection is lost, comes back by itself, and knows what happened', async () => {
    const instance = await shop.instance();
    const { page, faults } = await open(instance.url);
    const client = await runAt('has_items');
    await find(page, client);
    await page.getByText('Live', { exact: true }).waitFor();
    await instance.close();
    await page.getByText('Reconnecting').waitFor();
    await call(client, 'cart.checkout');
    await shop.instance({ port: instance.port });
    await page.getByText('Live', { exact: true }).waitFor({ timeout: 15_000 });
    await page.getByRole('heading', { name: 'payment' }).waitFor();
    // The browser itself says so, of each try.
    const tries = faults.splice(0);
    expect(tries.filter((fault) => !/ERR_|Failed to load/.test(fault))).toEqual([]);
  });

  it('scrolls through 10,000 runs, of which it shows a screenful', async () => {
    const store = memoryStore();
    const full = await shop.instance({ store, stuckAfterMs: 60 * 60_000 });
    for (let run = 0; run < 10_000; run++) await put(store, `run-${run}`, 'has_items');
    const { page } = await open(full.url);
    const list = page.getByRole('listbox');
    await page.locator('.rows').getByRole('option').first().waitFor();
    await expect.poll(() => page.locator('.kinds .open .number').textContent()).toBe('10K');
    await list.focus();
    const rows = page.locator('.row');
    // Each press loads a further part of the list, as fast as the machine allows.
    await expect
      .poll(
        async () => {
          await page.keyboard.press('End');
          expect(await rows.count()).toBeLessThan(60);
          const last = await list.getAttribute('aria-activedescendant');
          return Number(last?.replace('row-', ''));
        },
        { timeout: 15_000 },
      )
      .toBeGreaterThan(300);
    await page.keyboard.press('Enter');
    await page.getByRole('article').waitFor();
    await page.keyboard.press('Home');
    expect(await list.getAttribute('aria-activedescendant')).toBe('row-0');
  });

  it('can be used by the keyboard alone', async () => {
    await heldRun();
    const { page } = await open(here.url, { reducedMotion: 'reduce' });
    await page.getByRole('button', { name: /^Held/ }).click();
    await page.locator('.rows').getByRole('option', { name: /held/ }).first().waitFor();
    const focused = async (): Promise<string> => String(await page.evaluate(NAME_OF_FOCUSED));
    const tabTo = async (name: RegExp): Promise<void> => {
      for (let key = 0; key < 40 && !name.test(await focused()); key++)
        await page.keyboard.press('Tab');
      expect(await focused()).toMatch(name);
    };
    await page.evaluate('document.activeElement.blur()');
    await tabTo(/^Skip to the run/);
    await tabTo(/^Held runs/);
    await page.keyboard.press('Enter');
    await seesHeld(page);
    await tabTo(/^payment, state, the run is here/);
    await page.keyboard.press('ArrowUp');
    expect(await focused()).toMatch(/^has_items/);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Show runs in all states' }).waitFor();
    await tabTo(/^What if/);
    // Of two radio buttons one is a stop, and the arrow keys choose.
    await page.keyboard.press('Tab');
    await tabTo(/^Copy the idempotency key/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Tab');
    await page.keyboard.type('Looked up.');
    await page.keyboard.press('Tab');
    expect(await focused()).toBe('Resolve as failed');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'has_items' }).waitFor();
    await page.getByText('Looked up.').waitFor();
  });

  it.each([
    [1600, 1000],
    [360, 780],
  ])('has nothing that axe finds serious, by day or night, %i px wide', async (width, height) => {
    const client = await heldRun();
    const { page } = await open(here.url, { colorScheme: 'light', width, height });
    const judge = async (part: string): Promise<void> => {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        const path = `${SCREENSHOTS}${part}-${colorScheme}-${width}.png`;
        await page.screenshot({ path, animations: 'disabled' });
        expect(await seriousFaults(page)).toEqual([]);
      }
    };
    await page.locator('.rows').getByRole('option').first().waitFor();
    await find(page, client);
    await seesHeld(page);
    await expect.poll(() => page.locator('.state').count()).toBeGreaterThan(3);
    await judge('held');
    await page.getByRole('button', { name: 'What if' }).last().click();
    await page.getByRole('button', { name: 'From the beginning' }).waitFor();
    await judge('what-if');
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    if (width > 900) return;
    for (const part of ['Diagram', 'Runs']) {
      await page.getByRole('button', { name: part, exact: true }).click();
      await judge(part.toLowerCase());
    }
  });
});

/** A run of the checkout with one item, as an instance makes it. */
