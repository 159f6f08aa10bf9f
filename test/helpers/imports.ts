import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** One import or re-export. */
export interface Import {
  /** The importing file, by its path in the folder, such as `src/`. */
  readonly from: string;
  /** The imported file, likewise, or the name of a package. */
  readonly to: string;
  readonly isOurs: boolean;
  /** Whether it imports only types. */
  readonly typeOnly: boolean;
}

const STATEMENT = /^(?:import|export)\s+(type\s)?(?:[^'";]*?\sfrom\s+)?'([^']+)'/gm;
const DYNAMIC = /\bimport\(\s*'([^']+)'\s*\)/g;

/** The text of every source file of a folder, by its path from that folder on. */
export function sourceFiles(folder = 'src'): Map<string, string> {
  const top = join(ROOT, folder);
  const paths = readdirSync(top, { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  );
  return new Map(
    paths.sort().map((path) => [path.replaceAll('\\', '/'), readFileSync(join(top, path), 'utf8')]),
  );
}

export function importsOf(from: string, text: string): Import[] {
  const found = [...text.matchAll(STATEMENT)].map(([, type, to = '']) => ({
    to,
    typeOnly: type !== undefined,
  }));
  const dynamic = [...text.matchAll(DYNAMIC)].map(([, to = '']) => ({ to, typeOnly: false }));
  return [...found, ...dynamic].map(({ to, typeOnly }) => {
    const isOurs = to.startsWith('.');
    return { from, to: isOurs ? resolve(from, to) : to, isOurs, typeOnly };
  });
}

function resolve(from: string, to: string): string {
  return relative('.', normalize(join(dirname(from), to))).replaceAll('\\', '/');
}

/** The cycles of our own files, as `a.ts → b.ts → a.ts`; at least one where there are any. */
export function importCycles(imports: readonly Import[]): string[] {
  const next = new Map<string, string[]>();
  for (const { from, to, isOurs } of imports)
    if (isOurs) next.set(from, [...(next.get(from) ?? []), to]);
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (file: string, way: readonly string[]): void => {
    const at = way.indexOf(file);
    if (at !== -1) cycles.push([...way.slice(at), file].join(' → '));
    if (at !== -1 || done.has(file)) return;
    for (const to of next.get(file) ?? []) visit(to, [...way, file]);
    done.add(file);
  };
  for (const file of next.keys()) visit(file, []);
  return cycles;
}
