/**
 * Makes `dist/app/`: the page with its script, its styles and the worker that lays diagrams out.
 * Each file's name has a hash of what is in it. npm packages are bundled, with their licences.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';

const APP = fileURLToPath(new URL('../app/', import.meta.url));
/** All that the page takes of `mcp-interlock/check`: that entry brings Node's modules along. */
const VIEW = fileURLToPath(new URL('../../../src/check/view.ts', import.meta.url));
const DIST = fileURLToPath(new URL('../dist/app/', import.meta.url));
/** All files together, as they are sent. */
const MOST_BYTES = 150_000;

const BUNDLED = [
  'preact',
  '@preact/signals',
  '@preact/signals-core',
  '@dagrejs/dagre',
  '@dagrejs/graphlib',
];

const sizes: [name: string, bytes: number, zipped: number][] = [];

function write(folder: string, name: string, text: string): void {
  const path = join(DIST, folder);
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, name), text);
  sizes.push([name, Buffer.byteLength(text), gzipSync(text).length]);
}

function hashed(name: string, ending: string, text: string): string {
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
  return `${name}-${hash}.${ending}`;
}

async function bundle(
  name: string,
  source: string,
  define: Record<string, string>,
): Promise<string> {
  const build = await rolldown({
    cwd: APP,
    input: join(APP, source),
    platform: 'browser',
    resolve: { alias: { 'mcp-interlock/check': VIEW } },
    transform: { define },
  });
  const { output } = await build.generate({
    format: 'esm',
    minify: true,
    comments: { legal: true, annotation: false, jsdoc: false },
  });
  await build.close();
  const [chunk, ...more] = output;
  if (more.length > 0) throw new Error(`${source} is more than one file: ${more[0]?.fileName}`);
  const file = hashed(name, 'js', chunk.code);
  write('assets', file, chunk.code);
  return file;
}

function styles(): string {
  const text = readFileSync(join(APP, 'styles.css'), 'utf8');
  const short = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\s*\n\s*/g, '\n');
  const file = hashed('styles', 'css', short);
  write('assets', file, short);
  return file;
}

/** Of all that is bundled. */
function licences(): string {
  const { resolve } = createRequire(import.meta.url);
  return BUNDLED.map((name) => {
    const folders = resolve.paths(name) ?? [];
    const found = folders.map((folder) => join(folder, name, 'LICENSE')).find(existsSync);
    if (found === undefined) throw new Error(`${name} has no LICENSE`);
    return `${name}\n\n${readFileSync(found, 'utf8').trim()}\n`;
  }).join('\n---\n\n');
}

rmSync(DIST, { recursive: true, force: true });
const worker = await bundle('layout', 'layout.worker.ts', {});
const main = await bundle('main', 'main.tsx', {
  LAYOUT_WORKER: JSON.stringify(`./${worker}`),
});
const page = readFileSync(join(APP, 'index.html'), 'utf8')
  .replace('./styles.css', `./assets/${styles()}`)
  .replace('./main.tsx', `./assets/${main}`);
write('', 'index.html', page);
writeFileSync(join(DIST, 'LICENSES.txt'), licences());

const zipped = sizes.reduce((sum, [, , bytes]) => sum + bytes, 0);
const each = sizes.map(([name, , bytes]) => `${name.split('-')[0]} ${kB(bytes)}`).join(', ');
console.log(`dist/app: ${kB(zipped)} gzipped (${each})`);
if (zipped > MOST_BYTES) throw new Error(`the page is more than ${kB(MOST_BYTES)}`);

function kB(bytes: number): string {
  return `${(bytes / 1000).toFixed(1)} kB`;
}
