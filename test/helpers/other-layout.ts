import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** Where the source says the number of each layout. */
const NUMBERS = {
  /** Of the texts of a run, and so of documents, Redis and PostgreSQL. */
  texts: ['src/stores/document/run-text.ts', 'LAYOUT'],
  sqlite: ['src/stores/sqlite/database.ts', 'SQLITE_FORMAT'],
} as const;

const ENTRIES = ['stores/redis', 'stores/postgres', 'stores/sqlite', 'stores/document'];

/** Builds of the source in a temporary folder, each of which may know other layouts. */
export class LayoutBuilds {
  readonly folder = mkdtempSync(join(tmpdir(), 'interlock-layouts-'));

  constructor() {
    symlinkSync(join(REPOSITORY, 'node_modules'), join(this.folder, 'node_modules'));
    writeFileSync(join(this.folder, 'package.json'), '{"type":"module"}');
  }

  /**
   * Builds the package into a folder of that name. Each named layout has the next number there.
   *
   * @param more further files to build, by their paths in the repository
   */
  async make(
    name: string,
    changed: readonly (keyof typeof NUMBERS)[],
    more: readonly string[] = [],
  ): Promise<string> {
    const outdir = join(this.folder, name);
    const missed = new Set(changed);
    const next = {
      name: 'next-layout',
      setup: ({ onLoad }: import('esbuild').PluginBuild) => {
        for (const kind of changed) {
          const [file, constant] = NUMBERS[kind];
          onLoad({ filter: new RegExp(`/${file.replaceAll('.', '\\.')}$`) }, ({ path }) => {
            const number = new RegExp(`^((?:export )?const ${constant} =) (\\d+);$`, 'm');
            const contents = readFileSync(path, 'utf8').replace(number, (_, start, own) => {
              missed.delete(kind);
              return `${start} ${Number(own) + 1};`;
            });
            return { contents, loader: 'ts' };
          });
        }
      },
    };
    const sources = [...ENTRIES.map((entry) => `src/${entry}.ts`), ...more];
    await build({
      entryPoints: sources.map((source) => join(REPOSITORY, source)),
      ...{ outdir, outbase: REPOSITORY, bundle: true, splitting: true, format: 'esm' },
      ...{ platform: 'node', target: 'node20', packages: 'external', plugins: [next] },
    });
    if (missed.size > 0) throw new Error(`no number was found for ${[...missed].join(', ')}`);
    return outdir;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}
