/**
 * How large the house is: code without comments and blank lines, as files, lines and tokens. The
 * words and signs of Lua and SQL, which stand in template texts, count as tokens too. Beside that:
 * types and exports of `src/`, names of the main entry, what an app bundles, and the tarball.
 *
 * `npm run count -- REV` counts another revision, by git alone, and leaves out what is built.
 */
import { execFileSync } from 'node:child_process';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import ts from '@typescript/old';
import { build } from 'esbuild';
import { PACKAGES } from './entries.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const [revision = 'HEAD'] = process.argv.slice(2);
const PLACES = PACKAGES.map((folder) => posix.join(folder, 'src'));

/** A template text of this many characters is a script or a statement. */
const SCRIPT_LENGTH = 80;

interface Size {
  files: number;
  lines: number;
  tokens: number;
}

function git(...args: string[]): string {
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1e9 });
}

function sizeOf(text: string): Size {
  const file = ts.createSourceFile('file.ts', text, ts.ScriptTarget.Latest, true);
  const lines = new Set<number>();
  let tokens = 0;
  const count = (node: ts.Node): void => {
    if (ts.isJSDoc(node)) return;
    const children = node.getChildren(file);
    for (const child of children) count(child);
    if (children.length > 0 || node.kind === ts.SyntaxKind.EndOfFileToken) return;
    const own = node.getText(file);
    if (own === '') return;
    const isScript = ts.isTemplateLiteralToken(node) && own.length >= SCRIPT_LENGTH;
    tokens += isScript ? (own.match(/\w+|[^\s\w]/g) ?? []).length : 1;
    const first = file.getLineAndCharacterOfPosition(node.getStart(file)).line;
    for (const [at, line] of own.split('\n').entries())
      if (line.trim() !== '') lines.add(first + at);
  };
  count(file);
  return { files: 1, lines: lines.size, tokens };
}

const sizes: Record<string, Size> = {};
let [types, exported] = [0, 0];
for (const place of PLACES) {
  const names = git('ls-tree', '-r', '--name-only', revision, place).split('\n');
  for (const name of names.filter((each) => each.endsWith('.ts'))) {
    const text = git('show', `${revision}:${name}`);
    const { lines, tokens } = sizeOf(text);
    if (place === 'src') {
      types += (text.match(/^(?:export )?(?:interface|type) \w+/gm) ?? []).length;
      exported += (text.match(/^export (?!\*|\{|type \{)/gm) ?? []).length;
    }
    const room = place === 'src' ? name.split('/').slice(0, -1).slice(0, 2).join('/') : place;
    for (const key of new Set([place, room])) {
      sizes[key] ??= { files: 0, lines: 0, tokens: 0 };
      sizes[key].files++;
      sizes[key].lines += lines;
      sizes[key].tokens += tokens;
    }
  }
}
const index = git('show', `${revision}:src/index.ts`).replaceAll(/\/\*[\s\S]*?\*\//g, '');
const names = [...index.matchAll(/export (?:type )?\{([^}]*)\}/g)].flatMap(([, list = '']) =>
  list.split(',').filter((each) => each.trim() !== ''),
);
console.table(sizes);
console.log(`types in src: ${types}; exports: ${exported}`);
console.log(`names at the main entry: ${names.length}`);
if (revision === 'HEAD') {
  const contents = "export { fsmGate, sessionStore, stateSync } from './dist/index.js';";
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: ROOT },
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'node',
    packages: 'external',
  });
  const bundled = gzipSync(outputFiles[0]?.text ?? '').length;
  console.log(`three middlewares, minified and zipped: ${Math.round(bundled / 1_000)} kB`);
  const npm = ['pack', '--dry-run', '--ignore-scripts', '--json'];
  const packed = execFileSync('npm', npm, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1e9 });
  const [{ size }] = JSON.parse(packed) as [{ size: number }];
  console.log(`packed main package: ${Math.round(size / 1_000)} kB`);
}
