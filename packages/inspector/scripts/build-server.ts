/**
 * Makes `dist/index.js` and its declarations, beside the page in `dist/app/`. It bundles zod. The
 * middleware stays an import, so that the app and the inspector have the same one.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import { modulesOf } from '../../../scripts/third-party.ts';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const DIST = join(PACKAGE, 'dist');

/** Gives the modules that are in it. */
async function bundle(): Promise<readonly string[]> {
  const build = await rolldown({
    cwd: PACKAGE,
    input: 'src/index.ts',
    platform: 'node',
    external: [/^mcp-interlock(?:\/|$)/, /^node:/],
  });
  const { output } = await build.write({
    file: join(DIST, 'index.js'),
    format: 'esm',
    sourcemap: true,
  });
  await build.close();
  return modulesOf(output);
}

/** The types are not checked here: `npm run check` does that. */
async function declare(): Promise<void> {
  const declarations = mkdtempSync(join(tmpdir(), 'inspector-types-'));
  try {
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    const options = ['--noCheck', '--declaration', '--emitDeclarationOnly', '--noEmit', 'false'];
    const config = [
      '--ignoreConfig',
      '--target',
      'es2023',
      '--module',
      'nodenext',
      '--types',
      'node',
    ];
    const paths = ['--rewriteRelativeImportExtensions', '--outDir', declarations];
    const source = join(PACKAGE, 'src/index.ts');
    execFileSync(process.execPath, [compiler, ...options, ...config, ...paths, source], {
      cwd: PACKAGE,
      stdio: 'inherit',
    });
    const build = await rollup({
      input: join(declarations, 'index.d.ts'),
      plugins: [dts()],
      external: (id) => !/^[./]/.test(id),
    });
    await build.write({ file: join(DIST, 'index.d.ts') });
    await build.close();
  } finally {
    rmSync(declarations, { recursive: true });
  }
}

/** Gives the modules that are in it. */
export async function buildServer(): Promise<readonly string[]> {
  const modules = await bundle();
  await declare();
  return modules;
}
