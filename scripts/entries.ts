/**
 * What is published: one entry for each module that the `exports` of a package name. The build, the
 * tests and the rules of the structure read it here, so that no second list goes out of date.
 */
import manifest from '../package.json' with { type: 'json' };
import check from '../packages/check/package.json' with { type: 'json' };
import testing from '../packages/testing/package.json' with { type: 'json' };

export interface Entry {
  /** What users import: `mcp-interlock/stores/redis`. */
  readonly specifier: string;
  /** Its path in `dist/` and in `src/`, without an ending: `stores/redis`. */
  readonly name: string;
  /** Its source, from the root of the repository. */
  readonly source: string;
}

/** A package that an app imports: its folder, from the root of the repository, and its entries. */
export interface Library {
  readonly folder: string;
  readonly entries: readonly Entry[];
}

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}

function libraryIn(folder: string, { name: specifier, exports }: Manifest): Library {
  const entries = Object.entries(exports).flatMap(([path, to]) => {
    if (typeof to === 'string') return [];
    const name = to.default.replace(/^\.\/dist\/|\.js$/g, '');
    return [{ specifier: `${specifier}${path.slice(1)}`, name, source: `${folder}src/${name}.ts` }];
  });
  return { folder, entries };
}

const MAIN = libraryIn('', manifest);

/** The middlewares, and the packages that a developer's machine has beside them. */
export const LIBRARIES: readonly Library[] = [
  MAIN,
  libraryIn('packages/check/', check),
  libraryIn('packages/testing/', testing),
];

/** What the packages beside the middlewares take of their inside. Apps do not import it. */
export const INTERNAL = 'mcp-interlock/internal';

/** What apps import of the middlewares. */
export const ENTRIES: readonly Entry[] = MAIN.entries.filter(
  ({ specifier }) => specifier !== INTERNAL,
);
