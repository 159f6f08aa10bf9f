/**
 * Builds the site into `site/dist`, and checks each link in it: `npm run site`. With `--preview` it
 * then serves the site. The package must be built, since the reference is made from its types.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { deadLinks } from './links.ts';
import { writePages } from './pages.ts';

const SITE = fileURLToPath(new URL('.', import.meta.url));
const DIST = join(SITE, 'dist');

const run = (command: string, ...args: readonly string[]): void => {
  execFileSync(command, args, { cwd: SITE, stdio: 'inherit' });
};

if (!existsSync(join(SITE, 'node_modules/vitepress'))) run('npm', 'ci', '--no-audit', '--no-fund');
writePages();
const vitepress = join(SITE, 'node_modules/vitepress/bin/vitepress.js');
run(process.execPath, vitepress, 'build');

const { pages, links, dead } = deadLinks(DIST, process.env.SITE_BASE ?? '/');
for (const each of dead) console.error(`dead link: ${each}`);
console.log(`site: ${pages} pages, ${links} links, ${dead.length} dead`);
if (dead.length > 0) process.exitCode = 1;
else if (argv.includes('--preview')) run(process.execPath, vitepress, 'preview');
