/**
 * What is published: one entry for each module that package.json's `exports` names. The build, the
 * tests and the rules of the structure read it here, so that no second list goes out of date.
 */
import manifest from '../package.json' with { type: 'json' };

export interface Entry {
  /** What users import: `mcp-interlock/stores/redis`. */
  readonly specifier: string;
  /** Its path in `dist/` and in `src/`, without an ending: `stores/redis`. */
  readonly name: string;
  /** Its source, from the root of the repository. */
  readonly source: string;
}

export const ENTRIES: readonly Entry[] = Object.entries(manifest.exports).flatMap(([path, to]) => {
  if (typeof to === 'string') return [];
  const name = to.default.replace(/^\.\/dist\/|\.js$/g, '');
  return [{ specifier: `${manifest.name}${path.slice(1)}`, name, source: `src/${name}.ts` }];
});

/** A pair of each entry's name and what `of` makes of it, as bundlers take them. */
export function inputs(of: (entry: Entry) => string): Record<string, string> {
  return Object.fromEntries(ENTRIES.map((entry) => [entry.name, of(entry)]));
}
