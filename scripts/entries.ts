/**
 * What is published: one entry for each module that the `exports` of a package name. The build, the
 * tests and the rules of the structure read it here, so that no second list goes out of date.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/**
 * The folders of all packages, from the root of the repository, in the order in which they are
 * published: what others need is first.
 */
export const PACKAGES = [
  '.',
  'packages/check',
  'packages/testing',
  'packages/inspector',
  'packages/cli',
] as const;

export interface Entry {
  /** What users import: `mcp-interlock/stores/redis`. */
  readonly specifier: string;
  /** Its path in `dist/` and in `src/`, without an ending: `stores/redis`. */
  readonly name: string;
  /** Its source, from the root of the repository. */
  readonly source: string;
}

/** A package that an app imports. */
export interface Library {
  /** As a prefix of its paths: the main package has none. */
  readonly folder: string;
  readonly entries: readonly Entry[];
}

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<
    Record<string, string | { readonly default: string; readonly types?: string }>
  >;
}

export function manifestOf(folder: (typeof PACKAGES)[number]): Manifest {
  const path = new URL(`../${folder}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(fileURLToPath(path), 'utf8'));
}

function libraryOf(inFolder: (typeof PACKAGES)[number]): Library {
  const { name: specifier, exports } = manifestOf(inFolder);
  const folder = inFolder === '.' ? '' : `${inFolder}/`;
  const entries = Object.entries(exports).flatMap(([path, to]) => {
    if (typeof to === 'string') return [];
    const name = to.default.replace(/^\.\/dist\/|\.js$/g, '');
    return [{ specifier: `${specifier}${path.slice(1)}`, name, source: `${folder}src/${name}.ts` }];
  });
  return { folder, entries };
}

const MAIN = libraryOf('.');

/** The middlewares, and the packages that a developer's machine has beside them. */
export const LIBRARIES: readonly Library[] = [
  MAIN,
  libraryOf('packages/check'),
  libraryOf('packages/testing'),
];

/** What the packages beside the middlewares take of their inside. Apps do not import it. */
export const INTERNAL = 'mcp-interlock/internal';

/** What apps import of the middlewares. */
export const ENTRIES: readonly Entry[] = MAIN.entries.filter(
  ({ specifier }) => specifier !== INTERNAL,
);
