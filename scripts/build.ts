/**
 * Makes `dist/`: a module for each entry, and chunks for what several of them share, so that each
 * entry has the same classes. The code stays readable, since an app's developer steps through it.
 * It bundles what the package needs of npm; peers stay imports. The declarations come from the
 * compiler and are rolled up in the same way.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { type ChunkingContext, rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import manifest from '../package.json' with { type: 'json' };
import { inputs } from './entries.ts';
import { modulesOf, NOTICES, noticesOf } from './third-party.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');
const PEERS = Object.keys(manifest.peerDependencies);

interface Output {
  readonly fileName: string;
}

async function bundle() {
  const build = await rolldown({
    cwd: ROOT,
    input: inputs(({ source }) => source),
    platform: 'node',
    external: [...PEERS, /^node:/],
  });
  const { output } = await build.write({
    dir: DIST,
    format: 'esm',
    chunkFileNames: 'chunks/[name].js',
    minify: false,
    minifyInternalExports: false,
    sourcemap: true,
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
  shorten(join(DIST, 'chunks/zod.js'));
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
  const map = readFileSync(`${path}.map`).toString('base64');
  const comment = /\/\/# sourceMappingURL=.*\s*$/;
  const inline = `//# sourceMappingURL=data:application/json;base64,${map}\n`;
  const shorter = transformSync(readFileSync(path, 'utf8').replace(comment, inline), {
    minify: true,
    format: 'esm',
    lineLimit: 120,
    legalComments: 'inline',
    sourcemap: 'external',
    sourcefile: path,
  });
  writeFileSync(path, `${shorter.code}//# sourceMappingURL=${basename(path)}.map\n`);
  writeFileSync(`${path}.map`, shorter.map);
}

/** The types are not checked here: `npm run check` does that. */
async function declare(): Promise<readonly Output[]> {
  const declarations = mkdtempSync(join(tmpdir(), 'interlock-types-'));
  try {
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    const options = ['-p', 'tsconfig.build.json', '--outDir', declarations];
    execFileSync(process.execPath, [compiler, ...options], { cwd: ROOT, stdio: 'inherit' });
    const build = await rollup({
      input: inputs(({ name }) => join(declarations, `${name}.d.ts`)),
      plugins: [dts()],
      external: (id) => !/^[./]/.test(id),
      // It warns of types that an entry uses and does not export: those are private on purpose.
      onLog: (level, log, report) => {
        if (!/private shared type/.test(log.message)) report(level, log);
      },
    });
    const { output } = await build.write({
      dir: DIST,
      entryFileNames: '[name].d.ts',
      chunkFileNames: 'types/[name].ts',
    });
    await build.close();
    return output;
  } finally {
    rmSync(declarations, { recursive: true });
  }
}

rmSync(DIST, { recursive: true, force: true });
const bundled = await bundle();
writeFileSync(join(DIST, NOTICES), noticesOf(modulesOf(bundled)));
/** Every file but the maps counts: an install reads and unpacks them all. */
const files = [...bundled, ...(await declare())]
  .map(({ fileName }) => fileName)
  .filter((name) => !name.endsWith('.map'));
const bytes = files.reduce((sum, name) => sum + statSync(join(DIST, name)).size, 0);
console.log(`dist: ${files.length} files, ${Math.round(bytes / 1000)} kB without maps`);
