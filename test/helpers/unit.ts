/**
 * Which test files are unit tests: those that need no process, no database, no browser and no
 * build. What a file imports decides it, so no list has to be kept.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { importsOf } from './imports.ts';

/**
 * What starts processes, SQLite, and the package by its name, which is the built one. Proofs,
 * comparisons with what follows a recording, and hostile clients take a minute of their own.
 */
const HEAVY =
  /^(?:test\/(?:services|check|follow|hostile)\/|(?:node:)?child_process$|libsql$|mcp-interlock)/;

/** The unit tests in a folder of this repository, by their paths. */
export function unitTests(folders: readonly string[]): string[] {
  const imports = new Map<string, string[]>();
  const importedBy = (file: string): string[] => {
    const known = imports.get(file) ?? valueImports(file);
    imports.set(file, known);
    return known;
  };
  const isUnit = (test: string): boolean => {
    // A set is also walked over what is added on the way.
    const reached = new Set([test]);
    for (const file of reached) {
      if (HEAVY.test(file)) return false;
      if (/\.tsx?$/.test(file)) for (const to of importedBy(file)) reached.add(to);
    }
    return true;
  };
  return folders
    .flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((path) => join(folder, path)),
    )
    .map((path) => path.replaceAll('\\', '/'))
    .filter((path) => path.endsWith('.test.ts') && isUnit(path));
}

function valueImports(file: string): string[] {
  return importsOf(file, readFileSync(file, 'utf8'))
    .filter(({ typeOnly }) => !typeOnly)
    .map(({ to }) => to);
}
