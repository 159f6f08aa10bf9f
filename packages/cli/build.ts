/**
 * Makes `dist/`: the command, and the proxy that it and other apps use. What an install needs of
 * npm beside it is in `dependencies`; the other packages are bundled. Also writes the JSON Schema
 * of gates in JSON, from the schema that the command itself reads them with.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { modulesOf, NOTICES, noticesOf } from '../../scripts/third-party.ts';
import manifest from './package.json' with { type: 'json' };
import { gateJsonSchema } from './src/json-gate.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const DIST = join(HERE, 'dist');
const installed = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });

rmSync(DIST, { recursive: true, force: true });
const build = await rolldown({
  cwd: HERE,
  input: { main: 'src/main.ts', proxy: 'src/proxy.ts' },
  platform: 'node',
  // jsonc-parser's `main` is UMD, which no bundler sees through.
  resolve: { mainFields: ['module', 'main'] },
  external: (id) => id.startsWith('node:') || installed.some((name) => isOf(name, id)),
});
const { output } = await build.write({
  dir: DIST,
  format: 'esm',
  chunkFileNames: 'chunks/[name].js',
  // Names stay, for stack traces; the maps carry the sources.
  minify: {
    compress: true,
    mangle: { toplevel: false, keepNames: { function: true, class: true } },
    codegen: true,
  },
  sourcemap: true,
  comments: { legal: true, annotation: true, jsdoc: false },
});
await build.close();
writeFileSync(join(HERE, 'gate.schema.json'), `${JSON.stringify(gateJsonSchema(), null, 2)}\n`);
chmodSync(join(DIST, 'main.js'), 0o755);
writeFileSync(join(DIST, NOTICES), noticesOf(modulesOf(output)));
execFileSync(
  process.execPath,
  [
    join(HERE, '../../node_modules/typescript/bin/tsc'),
    ...['src/proxy.ts', '--ignoreConfig', '--declaration', '--emitDeclarationOnly', '--noCheck'],
    ...['--outDir', DIST, '--module', 'nodenext', '--target', 'es2023'],
  ],
  { cwd: HERE, stdio: 'inherit' },
);

function isOf(name: string, id: string): boolean {
  return id === name || id.startsWith(`${name}/`);
}
