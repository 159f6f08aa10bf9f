import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import express from 'express';
import { memoryStore, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { listen } from '../../../test/helpers/serve.ts';
import { makeSqliteFile } from '../../../test/helpers/sqlite-file.ts';
import { inspector } from '../src/index.ts';
import { type Look, openBrowser, seriousFaults, type Viewer, view } from './browser.ts';
import { Shop } from './shop.ts';
import { hold, put } from './site.ts';

const SCREENSHOTS = fileURLToPath(new URL('../screenshots/', import.meta.url));
mkdirSync(SCREENSHOTS, { recursive: true });

let browser: Browser;
let shop: Shop;
const viewers: Viewer[] = [];

beforeAll(async () => {
  shop = new Shop();
  browser = await openBrowser();
});

afterEach(async () => {
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

const SIZES = [
  [390, 844],
  [1024, 800],
  [1440, 900],
] as const;

/** Nothing serious in both themes, and nothing beyond the edge; with a picture of each. */
async function judge(page: Page, part: string, width: number): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const path = `${SCREENSHOTS}${part}-${colorScheme}-${width}.png`;
    await page.screenshot({ path, animations: 'disabled' });
    expect(await seriousFaults(page)).toEqual([]);
  }
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
}

async function search(page: Page, text: string): Promise<void> {
  await page.getByLabel(/^Search runs/).fill(text);
  await page.getByRole('button', { name: 'Find' }).click();
}

const PAID = { uncertain: 'retry' } as const;

describe('a search on the page', () => {
  it('finds a held payment of another workflow, and opens its run there', async () => {
    const store = memoryStore();
    const { url } = await shop.instance({ store });
    const workflow = 'fulfilment';
    await put(store, 'ann-1', 'payment');
    await hold(store, 'ann-1', 'cart.pay', { amount: 120, currency: 'EUR' });
    await put(store, 'bob-1', 'received', { workflow, from: 'received' });
    await hold(store, 'bob-1', 'order.charge', { amount: 75, currency: 'EUR' }, { workflow });
    const { page } = await open(url);
    const tab = (name: string) =>
      page.getByRole('navigation', { name: 'Workflows' }).getByRole('button', { name });
    await tab('checkout').and(page.locator('[aria-current]')).waitFor();
    await search(page, '75.00');
    await tab('fulfilment').and(page.locator('[aria-current]')).waitFor();
    await page.getByRole('article').getByText('order.charge').first().waitFor();
    // What was found stays in sight, and the next search begins at the workflow that is shown.
    await expect.poll(() => page.locator('.row').allTextContents()).toHaveLength(1);
    await search(page, 'EUR');
    await expect.poll(() => page.locator('.row').count()).toBe(2);
    const texts = await page.locator('.row').allTextContents();
    expect(texts[0]).toContain('75.00 EUR · received');
    expect(texts[1]).toContain('120.00 EUR · checkout · payment');

    for (const row of await page.locator('.row .mark').all()) await row.click();
    const several = page.getByRole('form', { name: 'Resolve the chosen runs' });
    await several.getByText('2 runs chosen: 75.00 EUR · 120.00 EUR').waitFor();
    await several.getByLabel('Note for the trail of each').fill('Neither is at the bank.');
    await several.getByRole('button', { name: '2 failed …' }).click();
    await several.getByRole('button', { name: 'Yes, 2 failed' }).click();
    await page.getByText('2 of 2 resolved as failed.').waitFor();
    await expect.poll(() => page.title()).toBe('Interlock inspector');
    await tab('checkout').click();
    await page.getByLabel('Open runs').waitFor();
  });

  it('shows what other workflows have, and which one could not be asked', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const [away, kept] = [file.connect(), memoryStore()];
    const gates = ['cart', 'till'].map((id) => gateNamed(id));
    const stores = [sqliteStore({ database: away }), kept];
    const url = await serving(
      gates.map((gate, at) => runsOf(gate, { store: stores[at] ?? kept }) as never),
    );
    await put(kept, 'ann-1', 'payment', { workflow: 'till' });
    const { page, faults } = await open(url);
    await page.getByText('Live', { exact: true }).waitFor();
    for (const table of TABLES) away.exec(`ALTER TABLE ${table} RENAME TO hidden_${table}`);
    await search(page, 'payment');
    await page.locator('.hint', { hasText: 'cart: The store cannot be asked now' }).waitFor();
    expect(await page.locator('.row').textContent()).toContain('till · payment');
    await page.getByText('Store is away', { exact: true }).waitFor();
    // The browser itself tells of answers that are no success.
    expect(faults.splice(0).filter((fault) => !/Failed to load/.test(fault))).toEqual([]);
  });
});

const TABLES = ['workflow_documents', 'workflow_index'];

describe('a store that is away', () => {
  it.each(SIZES)(
    'is named by the list and by the lamp, until it is back, %i px wide',
    async (width, height) => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      const database = file.connect();
      const store = sqliteStore({ database });
      const { url } = await shop.instance({ store });
      const { page, faults } = await open(url, { width, height });
      const lamp = page.locator('.connection');
      await page.getByText('No run is under way here.').waitFor();
      expect(await lamp.textContent()).toBe('Live');

      for (const table of TABLES) database.exec(`ALTER TABLE ${table} RENAME TO hidden_${table}`);
      await page.getByText(/^The store cannot be asked now/).waitFor();
      expect(await page.getByText('No run is under way here.').count()).toBe(0);
      await expect.poll(() => lamp.textContent()).toBe('Store is away');
      expect(await lamp.getAttribute('class')).not.toContain('live');
      await judge(page, 'away', width);

      for (const table of TABLES) database.exec(`ALTER TABLE hidden_${table} RENAME TO ${table}`);
      await page.getByText('No run is under way here.').waitFor({ timeout: 15_000 });
      await expect.poll(() => lamp.textContent()).toBe('Live');

      await put(store, 'ann-1', 'payment');
      await expect.poll(() => page.locator('.row').count()).toBe(1);
      for (const table of TABLES) database.exec(`ALTER TABLE ${table} RENAME TO hidden_${table}`);
      await page.locator('.hint.bad', { hasText: 'The store cannot be asked now' }).waitFor();
      expect(await page.locator('.row').count()).toBe(1);
      for (const table of TABLES) database.exec(`ALTER TABLE hidden_${table} RENAME TO ${table}`);
      await page.locator('.hint.bad').waitFor({ state: 'detached', timeout: 15_000 });
      expect(faults.splice(0).filter((fault) => !/Failed to load/.test(fault))).toEqual([]);
    },
  );
});

describe('the tabs of workflows', () => {
  it.each(SIZES)(
    'are all in sight, six of them and what is wrong, %i px wide',
    async (width, height) => {
      const store = memoryStore();
      const names = ['checkout', 'insurance-claim', 'fulfilment', 'returns', 'trip-rules', 'plant'];
      const gates = names.map((id) => gateNamed(id));
      const sessions = sessionStore({ store, onError: () => {}, onWarning: () => {} });
      const runs = gates.map((gate) => runsOf(gate, { sessions }));
      await put(store, 'ann-1', 'payment', { workflow: 'returns' });
      await hold(store, 'ann-1', 'pay', { amount: 7 }, { workflow: 'returns' });
      await hold(store, 'bob-1', 'pay', { amount: 7 }, { ...PAID, workflow: 'returns' });
      await runs[3]?.freezeAll({ actor: 'kim', note: 'it pays twice' });
      const { page } = await open(await serving(runs as never), { width, height });
      await page.locator('.kinds').waitFor();
      const tabs = page.getByRole('navigation', { name: 'Workflows' });
      expect(await tabs.getByRole('button').count()).toBe(6);
      for (const name of names) {
        const box = await tabs.getByRole('button', { name }).boundingBox();
        expect(box?.x).toBeGreaterThanOrEqual(0);
        expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(width);
      }
      const hidden = 'scrollWidth > clientWidth || scrollHeight > clientHeight';
      expect(
        await page.evaluate(`(({ ${hidden.replaceAll(/ [>|]+ /g, ', ')} }) => ${hidden})
        (document.querySelector('.workflows'))`),
      ).toBe(false);
      const troubled = tabs.getByRole('button', { name: 'returns' });
      for (const says of ['1 held', '1 unsettled', 'stopped'])
        expect(await troubled.textContent()).toContain(says);
      await judge(page, 'tabs', width);
    },
  );
});

describe('unsettled calls on the page', () => {
  it.each(SIZES)('stand beside held ones, and are resolved, %i px wide', async (width, height) => {
    const store = memoryStore();
    const look = ({ idempotencyKey }: { idempotencyKey: string }) =>
      `https://pay.example/payments/${idempotencyKey}`;
    const { url } = await shop.instance({ store, look });
    for (const [run, ...amounts] of [
      ['ann-1', 20, 30],
      ['bob-1', 40],
      ['cas-1', 50],
    ] as const) {
      await put(store, run, 'payment');
      for (const amount of amounts)
        await hold(store, run, 'cart.pay', { amount, currency: 'EUR' }, PAID);
    }
    const { page } = await open(url, { width, height });
    const kind = page.getByRole('button', { name: /^Unsettled/ });
    await expect.poll(() => kind.textContent()).toBe('Unsettled3');
    expect(await kind.getAttribute('aria-pressed')).toBe('true');
    const row = (text: string) => page.locator('.row', { hasText: text });
    await expect.poll(() => row('unsettled').count()).toBe(3);
    await judge(page, 'unsettled-list', width);

    await row('40.00 EUR').click();
    const call = page.getByRole('region', { name: 'An unsettled call of cart.pay' });
    await call.getByText('ended with an unknown outcome, and may be repeated').waitFor();
    await call.getByRole('link', { name: 'pay.example' }).waitFor();
    await judge(page, 'unsettled-run', width);
    await page.getByRole('radio', { name: /It succeeded/ }).check();
    await page.getByLabel('Note for the trail').fill('The bank has it: receipt 4711.');
    await page.getByRole('button', { name: 'Resolve as succeeded' }).click();
    await page.getByRole('heading', { name: 'confirmed' }).waitFor();
    await page.getByText('The bank has it: receipt 4711.').waitFor();
    await call.waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');

    await expect.poll(() => row('unsettled').count()).toBe(2);
    await row('30.00 EUR').locator('.mark').click();
    await row('50.00 EUR').locator('.mark').click();
    const several = page.getByRole('form', { name: 'Resolve the chosen runs' });
    await several.getByText('2 runs with 3 calls chosen').waitFor();
    await several.getByLabel('Note for the trail of each').fill('The bank has none of them.');
    await judge(page, 'unsettled-several', width);
    await several.getByRole('button', { name: '3 failed …' }).click();
    await several.getByText('Say that 3 calls failed?').waitFor();
    await several.getByRole('button', { name: 'Yes, 3 failed' }).click();
    await page.getByText('3 of 3 resolved as failed.').waitFor();
    await page.getByText('No call is unsettled.').waitFor();
    await expect.poll(() => kind.textContent()).toBe('Unsettled0');
  });

  it('say what the tool answered, also to an operator who comes when it is over', async () => {
    const store = memoryStore();
    const commit = store.commit.bind(store);
    store.commit = async (request) => {
      if (request.trail.tool === 'cart.pay') throw new Error('the disk is full');
      return commit(request);
    };
    const instance = await shop.instance({ store });
    const client = await instance.client();
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await client.call(tool);
    const { page } = await open(instance.url);
    await page.locator('.row', { hasText: 'held' }).click();
    await page.getByText('that it succeeded; this was not saved').waitFor();
  });
});

function gateNamed(id: string) {
  return new StateMachineGate({
    id,
    initial: 'empty',
    states: {
      empty: { on: { ADD: 'payment' } },
      payment: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('add', 'empty', 'ADD')
    .bindTool('pay', 'payment', 'PAY');
}

/** The address of a page that inspects these. */
async function serving(runs: Parameters<typeof inspector>[0]['runs']): Promise<string> {
  const inspected = inspector({
    runs,
    authorize: () => ({ read: true, write: true, actor: 'kim' }),
    pollMs: 200,
    onError: () => {},
  });
  const app = express();
  app.use('/inspector', inspected);
  const served = await listen(app);
  onTestFinished(async () => {
    inspected.close();
    await served.close();
  });
  return new URL('/inspector/', served.url).href;
}
