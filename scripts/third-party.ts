/**
 * The notices of the npm packages whose code a bundle has. They come from the bundle's own modules,
 * so that no list can miss one. Hides how a package is found that is bundled within another one:
 * the map beside a module says so.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** The name of the file, in the `dist` of each package. */
export const NOTICES = 'THIRD-PARTY-NOTICES.txt';

interface Chunk {
  readonly type: string;
  readonly moduleIds?: readonly string[];
}

/** The modules of what a bundler made. */
export function modulesOf(output: readonly Chunk[]): string[] {
  return output.flatMap(({ moduleIds }) => moduleIds ?? []);
}

/** @throws Error where a package has no licence that could be passed on. */
export function noticesOf(modules: readonly string[]): string {
  const titles = new Map<string, string[]>();
  const add = (folder: string, titleOf: (found: Manifest) => string): void => {
    const found = manifestIn(folder);
    const text = licenceIn(folder, found);
    titles.set(text, [...(titles.get(text) ?? []), titleOf(found)]);
  };
  const inner = new Map<string, string>();
  for (const folder of new Set(modules.flatMap((id) => packageIn(id)?.folder ?? [])))
    add(folder, ({ name, version, license }) => `${name} ${version} (${license})`);
  for (const id of modules) {
    const outer = packageIn(id);
    if (outer === undefined || !existsSync(`${id}.map`)) continue;
    const { sources }: { sources: string[] } = JSON.parse(readFileSync(`${id}.map`, 'utf8'));
    for (const { name } of sources.flatMap((source) => packageIn(source) ?? []))
      if (name !== outer.name) inner.set(name, outer.folder);
  }
  for (const [name, around] of inner) {
    const paths = createRequire(join(around, 'package.json')).resolve.paths(name) ?? [];
    const folder = paths.map((path) => join(path, name)).find(existsSync);
    const outer = manifestIn(around);
    if (folder === undefined)
      throw new Error(`${name} is bundled within ${outer.name}, and its licence is not installed`);
    add(folder, ({ version, license }) => {
      // Another version may be installed than the one that was bundled.
      const isSame = outer.dependencies?.[name] === version;
      return `${name}${isSame ? ` ${version}` : ''} (${license}), within ${outer.name}`;
    });
  }
  const notices = [...titles].map(([text, of]) => `${of.sort().join('\n')}\n\n${text}\n`);
  return notices.sort().join('\n---\n\n');
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

function manifestIn(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

/** The package that has a module; `undefined` where it is our own. */
function packageIn(path: string): { readonly folder: string; readonly name: string } | undefined {
  const [folder, name] =
    /^.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)(?=[\\/])/.exec(path) ?? [];
  return folder === undefined || name === undefined ? undefined : { folder, name };
}

function licenceIn(folder: string, { name, version, license }: Manifest): string {
  const files = readdirSync(folder).filter((each) => /^(licen[cs]e|notice)\b/i.test(each));
  if (license === undefined || !files.some((each) => /^l/i.test(each)))
    throw new Error(`${name} ${version} is bundled, and has no licence to pass on`);
  const texts = files.sort().map((file) => readFileSync(join(folder, file), 'utf8').trim());
  return texts.join('\n\n');
}
