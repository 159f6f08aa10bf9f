/**
 * Makes the `dist/` of each library: a module for each entry, and chunks for what several of them
 * share, so that each entry has the same classes. The code stays readable, since an app's developer
 * steps through it. It bundles what a package needs of npm; peers stay imports, and so do the
 * middlewares in the packages beside them. The declarations come from the compiler and are rolled
 * up in the same way.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { type ChunkingContext, rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import manifest from '../package.json' with { type: 'json' };
import { INTERNAL, LIBRARIES, type Library } from './entries.ts';
import { modulesOf, NOTICES, noticesOf } from './third-party.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PEERS = Object.keys(manifest.peerDependencies);

/** The source of an entry of the middlewares, without its ending, and what users import for it. */
const SPECIFIERS = new Map(
  LIBRARIES[0]?.entries.map(({ source, specifier }) => [source.replace(/\.ts$/, ''), specifier]),
);

interface Output {
  readonly fileName: string;
}

/** Makes what a library imports of the middlewares an import of what they publish. */
function ofTheMiddlewares({ folder }: Library, from: string, isBundled = (_: string) => false) {
  return {
    name: 'of-the-middlewares',
    resolveId(id: string, importer?: string) {
      if (folder === '' || importer === undefined || !id.startsWith('../')) return null;
      const path = relative(from, resolve(dirname(importer), id)).replace(/\.[jt]s$/, '');
      const specifier = SPECIFIERS.get(path);
      if (specifier === undefined || isBundled(specifier)) return null;
      return { id: specifier, external: true };
    },
  };
}

async function bundle(library: Library) {
  const dist = join(ROOT, library.folder, 'dist');
  const build = await rolldown({
    cwd: ROOT,
    input: Object.fromEntries(library.entries.map(({ name, source }) => [name, source])),
    platform: 'node',
    external: [...PEERS, /^node:/],
    plugins: [ofTheMiddlewares(library, ROOT)],
  });
  const { output } = await build.write({
    dir: dist,
    format: 'esm',
    chunkFileNames: 'chunks/[name].js',
    minify: false,
    minifyInternalExports: false,
    // Not published, and so not named: they are for our own profiles, and users read the code itself.
    sourcemap: 'hidden',
    comments: { legal: true, annotation: true, jsdoc: true },
    // Each file costs an import some 0.3 ms: the gate is one, and zod is another.
    codeSplitting: {
      groups: [
        { name: 'zod', test: /node_modules[\\/]zod[\\/]/, priority: 1 },
        {
          debugName: 'gate',
          name: (id, modules) => (reachedByRoot(modules).has(id) ? 'gate' : null),
        },
      ],
    },
  });
  await build.close();
  shorten(join(dist, 'chunks/zod.js'));
  return output;
}

/** The modules that the root entry loads. */
function reachedByRoot(modules: ChunkingContext): ReadonlySet<string> {
  const reached = new Set<string>();
  const reach = (id: string): void => {
    if (reached.has(id)) return;
    reached.add(id);
    for (const each of modules.getModuleInfo(id)?.importedIds ?? []) reach(each);
  };
  reach(join(ROOT, 'src/index.ts'));
  return reached;
}

/**
 * Minifies what is not ours to read. Lines stay short: Node prints the whole line of an error that
 * it does not catch, above its message.
 */
function shorten(path: string): void {
  const { code } = transformSync(readFileSync(path, 'utf8'), {
    minify: true,
    format: 'esm',
    lineLimit: 120,
    legalComments: 'inline',
  });
  writeFileSync(path, code);
  rmSync(`${path}.map`);
}

/** Of a package beside the middlewares: what it names of their inside becomes its own. */
async function declare(library: Library, declarations: string): Promise<readonly Output[]> {
  const entries = library.entries.filter(({ specifier }) => specifier !== INTERNAL);
  const build = await rollup({
    input: Object.fromEntries(
      entries.map(({ name, source }) => [
        name,
        join(declarations, source.replace(/\.ts$/, '.d.ts')),
      ]),
    ),
    plugins: [ofTheMiddlewares(library, declarations, (id) => id === INTERNAL), dts()],
    external: (id) => !/^[./]/.test(id),
    // It warns of types that an entry uses and does not export: those are private on purpose.
    onLog: (level, log, report) => {
      if (!/private shared type/.test(log.message)) report(level, log);
    },
  });
  const { output } = await build.write({
    dir: join(ROOT, library.folder, 'dist'),
    entryFileNames: '[name].d.ts',
    chunkFileNames: 'types/[name].ts',
  });
  await build.close();
  return output;
}

async function build(library: Library, declarations: string): Promise<void> {
  const dist = join(ROOT, library.folder, 'dist');
  rmSync(dist, { recursive: true, force: true });
  const bundled = await bundle(library);
  writeFileSync(join(dist, NOTICES), noticesOf(modulesOf(bundled)));
  /** Every file but the maps counts: an install reads and unpacks them all. */
  const files = [...bundled, ...(await declare(library, declarations))]
    .map(({ fileName }) => fileName)
    .filter((name) => !name.endsWith('.map'));
  const bytes = files.reduce((sum, name) => sum + statSync(join(dist, name)).size, 0);
  const size = `${Math.round(bytes / 1000)} kB without maps`;
  console.log(`${library.folder}dist: ${files.length} files, ${size}`);
}

const declarations = mkdtempSync(join(tmpdir(), 'interlock-types-'));
try {
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  const options = ['-p', 'tsconfig.build.json', '--outDir', declarations];
  // The types are not checked here: `npm run check` does that.
  execFileSync(process.execPath, [compiler, ...options], { cwd: ROOT, stdio: 'inherit' });
  for (const library of LIBRARIES) await build(library, declarations);
} finally {
  rmSync(declarations, { recursive: true });
}
