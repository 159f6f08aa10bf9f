/**
 * Makes `dist/`: the server, and in `app/` the page with its script, its styles and the worker that
 * lays diagrams out. The name of each file of the page has a hash of what is in it. npm packages
 * are bundled, and one file has their licences.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';
import { modulesOf, NOTICES, noticesOf } from '../../../scripts/third-party.ts';
import { buildServer } from './build-server.ts';

const APP = fileURLToPath(new URL('../app/', import.meta.url));
/** All that the page takes of `mcp-interlock-check`: that entry brings Node's modules along. */
const VIEW = fileURLToPath(new URL('../../check/src/view.ts', import.meta.url));
const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
/** All files together, as they are sent. */
const MOST_BYTES = 150_000;

const sizes: [name: string, bytes: number, zipped: number][] = [];

function write(folder: string, name: string, text: string): void {
  const path = join(DIST, 'app', folder);
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
    resolve: { alias: { 'mcp-interlock-check': VIEW } },
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
  modules.push(...modulesOf([chunk]));
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

rmSync(DIST, { recursive: true, force: true });
const modules = [...(await buildServer())];
const worker = await bundle('layout', 'layout.worker.ts', {});
const main = await bundle('main', 'main.tsx', {
  LAYOUT_WORKER: JSON.stringify(`./${worker}`),
});
const page = readFileSync(join(APP, 'index.html'), 'utf8')
  .replace('./styles.css', `./assets/${styles()}`)
  .replace('./main.tsx', `./assets/${main}`);
write('', 'index.html', page);
writeFileSync(join(DIST, NOTICES), noticesOf(modules));

const zipped = sizes.reduce((sum, [, , bytes]) => sum + bytes, 0);
const each = sizes.map(([name, , bytes]) => `${name.split('-')[0]} ${kB(bytes)}`).join(', ');
console.log(`dist/app: ${kB(zipped)} gzipped (${each})`);
if (zipped > MOST_BYTES) throw new Error(`the page is more than ${kB(MOST_BYTES)}`);

function kB(bytes: number): string {
  return `${(bytes / 1000).toFixed(1)} kB`;
}
