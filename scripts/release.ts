/**
 * `npm run release -- VERSION` makes a version of what is unreleased. Hides which files name the
 * version: the packages are released together, and each takes the others of exactly its version,
 * since they share the inside of the middlewares.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { withVersion } from './changelog.ts';
import { PACKAGES } from './entries.ts';

interface Manifest {
  name: string;
  version: string;
  dependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
}

/**
 * Writes the version into the files of a folder. Gives the names of the packages, in the order in
 * which they are published. @throws Error before anything is written
 */
export function release(folder: string, version: string, date: string): string[] {
  const read = (path: string): string => readFileSync(join(folder, path), 'utf8');
  const written = new Map<string, string>();
  const paths = PACKAGES.map((each) => join(each, 'package.json'));
  const manifests = paths.map((path): Manifest => JSON.parse(read(path)));
  const names = manifests.map(({ name }) => name);
  const old = manifests[0]?.version ?? '';
  // The first version stands in the manifests before it is released.
  if (version !== old && !isLater(version, old))
    throw new Error(`expected ${old} or a later version, got "${version}"`);

  written.set('CHANGELOG.md', withVersion(read('CHANGELOG.md'), version, date));
  const raise = (manifest: Manifest): void => {
    manifest.version = version;
    for (const ranges of [manifest.dependencies, manifest.peerDependencies])
      for (const name of names) if (ranges?.[name] !== undefined) ranges[name] = version;
  };
  const lock: { version: string; packages: Record<string, Manifest> } = JSON.parse(
    read('package-lock.json'),
  );
  lock.version = version;
  for (const [at, manifest] of manifests.entries()) {
    raise(manifest);
    written.set(paths[at] ?? '', asJson(manifest));
    const locked = lock.packages[PACKAGES[at] === '.' ? '' : (PACKAGES[at] ?? '')];
    if (locked !== undefined) raise(locked);
  }
  written.set('package-lock.json', asJson(lock));
  for (const [path, text] of [
    ['src/otel/index.ts', (each: string) => `SCOPE_VERSION = '${each}'`],
    ['docs/reference/stability.md', (each: string) => `"mcp-interlock": "~${each}"`],
  ] as const) {
    if (!read(path).includes(text(old))) throw new Error(`${path} does not say: ${text(old)}`);
    written.set(path, read(path).replace(text(old), text(version)));
  }
  for (const [path, text] of written) writeFileSync(join(folder, path), text);
  return names;
}

function asJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** As Semantic Versioning orders them: 0.2.0-rc.1 comes before 0.2.0. */
function isLater(version: string, old: string): boolean {
  const read = (text: string) =>
    /^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*))?$/.exec(text)?.slice(1);
  const [now, then] = [read(version), read(old)];
  if (now === undefined || then === undefined) return false;
  const at = [0, 1, 2].find((each) => now[each] !== then[each]);
  if (at !== undefined) return Number(now[at]) > Number(then[at]);
  const [pre, oldPre] = [now[3], then[3]];
  if (pre === undefined || oldPre === undefined) return oldPre !== undefined;
  return pre.localeCompare(oldPre, 'en', { numeric: true }) > 0;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const [version = ''] = argv.slice(2);
  try {
    const date = new Date().toISOString().slice(0, 10);
    const names = release(fileURLToPath(new URL('..', import.meta.url)), version, date);
    console.log(
      `${version} is in the changelog and in the packages. Read \`git diff\`, then:\n\n` +
        `  git commit -am 'Release ${version}' && git tag v${version} && git push origin HEAD v${version}\n\n` +
        `The tag publishes, in this order: ${names.join(', ')}.`,
    );
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
