/**
 * Looks at the built site in Chromium, in both themes and at three widths: `npm run site:look`. It
 * ends with 1 where axe finds something serious, where a page is wider than the window, where a
 * diagram is not drawn, or where the console complains. Its pictures are in `site/screenshots`.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { openBrowser, seriousFaults, view } from '../packages/inspector/test/browser.ts';

const DIST = fileURLToPath(new URL('dist', import.meta.url));
const PICTURES = fileURLToPath(new URL('screenshots', import.meta.url));
const WIDTHS = [1440, 1024, 390];
/** A home, a guide with code and a table, one with a diagram, and pages of the API. */
const PAGES = ['/', '/start/express', '/build/steps', '/api/', '/api/mcp-interlock'];
const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
};

const server = createServer((req, res) => {
  const path = decodeURIComponent(new URL(req.url ?? '/', 'http://site').pathname);
  const file = [path, `${path}.html`, `${path}/index.html`]
    .map((each) => join(DIST, each))
    .find((each) => /\.\w+$/.test(each) && existsSync(each));
  const type = TYPES[extname(file ?? '')] ?? 'application/octet-stream';
  res.writeHead(file === undefined ? 404 : 200, { 'content-type': type });
  res.end(file === undefined ? '' : readFileSync(file));
});
await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const browser = await openBrowser();
mkdirSync(PICTURES, { recursive: true });

const pages = argv.length > 2 ? argv.slice(2) : PAGES;
const faults: string[] = [];
for (const path of pages)
  for (const width of WIDTHS)
    for (const colorScheme of ['light', 'dark'] as const) {
      const viewer = await view(browser, origin + path, { width, height: 900, colorScheme });
      const { page, context } = viewer;
      await page.waitForLoadState('networkidle');
      const where = `${path} ${width} ${colorScheme}`;
      const drawn = page.locator('.diagram svg');
      const undrawn = page.locator('.diagram-source');
      if ((await drawn.count()) + (await undrawn.count()) > 0) await drawn.last().waitFor();
      if ((await undrawn.count()) > 0) faults.push(`${where}: a diagram is not drawn`);
      const wide = Number(await page.evaluate('document.documentElement.scrollWidth'));
      if (wide > width) faults.push(`${where}: ${wide} px wide`);
      const found = [...(await seriousFaults(page)), ...viewer.faults];
      faults.push(...found.map((fault) => `${where}: ${fault}`));
      const name = path.replace(/^\/|\/$/g, '').replaceAll('/', '-') || 'home';
      await page.screenshot({ path: join(PICTURES, `${name}-${width}-${colorScheme}.png`) });
      await context.close();
    }

await browser.close();
server.close();
for (const fault of faults) console.error(fault);
console.log(`site: ${pages.length} pages, 3 widths, 2 themes, ${faults.length} faults`);
if (faults.length > 0) process.exitCode = 1;
