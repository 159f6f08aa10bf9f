/** A real browser that looks at the page, and remembers what must never happen there. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { binary } from '../../../test/services/binaries.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const ARGUMENTS = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The page is served as it was built, so a change of it needs `npm run build`. */
function assertBuilt(): void {
  const at = (folder: string) => fileURLToPath(new URL(`../${folder}/`, import.meta.url));
  const times = (folder: string) =>
    readdirSync(folder).map((name) => statSync(join(folder, name)).mtimeMs);
  if (Math.max(...times(at('app'))) > Math.max(...times(at('dist/app/assets'))))
    throw new Error('packages/inspector/app has changed since its build: run `npm run build`');
}

export async function openBrowser(): Promise<Browser> {
  assertBuilt();
  return chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? binary('chromium', 'chromium'),
    // As root, as in a container, Chromium starts in no other way.
    chromiumSandbox: process.getuid?.() !== 0,
    args: ARGUMENTS,
  });
}

export interface Viewer {
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the console says is wrong, errors of scripts, and requests to other hosts. */
  readonly faults: string[];
  /** How far the page moved things by itself, as Chromium scores it. */
  layoutShift(): Promise<number>;
}

export interface Look {
  readonly width?: number;
  readonly height?: number;
  readonly colorScheme?: 'light' | 'dark';
  readonly reducedMotion?: 'reduce' | 'no-preference';
  readonly locale?: string;
  readonly timezoneId?: string;
}

/**
 * In the page's own words, since tests are compiled without the types of a browser. What follows on
 * an input is no jump. Chromium waits half a second for that, and a busy machine answers later.
 */
const OBSERVE_SHIFTS = `
  globalThis.layoutShift = 0;
  let inputAt = Number.NEGATIVE_INFINITY;
  for (const type of ['pointerdown', 'keydown', 'input', 'click'])
    addEventListener(type, ({ timeStamp }) => { inputAt = timeStamp; }, { capture: true });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries())
      if (!entry.hadRecentInput && entry.startTime - inputAt > 3000)
        globalThis.layoutShift += entry.value;
  }).observe({ type: 'layout-shift', buffered: true });
`;

export async function view(browser: Browser, url: string, look: Look = {}): Promise<Viewer> {
  const { width = 1600, height = 1000, ...rest } = look;
  const context = await browser.newContext({ viewport: { width, height }, ...rest });
  const page = await context.newPage();
  const faults: string[] = [];
  const { host } = new URL(url);
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => {
    const address = new URL(request.url());
    if (address.protocol !== 'data:' && address.host !== host) faults.push(request.url());
  });
  await page.addInitScript(OBSERVE_SHIFTS);
  await page.goto(url);
  return {
    page,
    context,
    faults,
    layoutShift: async () => Number(await page.evaluate('globalThis.layoutShift')),
  };
}

interface AxeResults {
  readonly violations: readonly {
    readonly id: string;
    readonly impact: string | null;
    readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
  }[];
}

/** What axe finds serious or critical on a page, with the element and how to mend it. */
export async function seriousFaults(page: Page): Promise<string[]> {
  // Injected as the browser's own code, since the page's policy lets no foreign script in.
  await page.evaluate(AXE);
  const { violations }: AxeResults = await page.evaluate(
    "axe.run({ resultTypes: ['violations'] })",
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
    );
}
