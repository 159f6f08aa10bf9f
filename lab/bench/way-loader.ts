/**
 * Hooks of Node's loader, for `--trace`. They load `mcp-interlock` from `src/` in place of `dist/`,
 * and each function of ours notes that it was entered. The build would not do, since a minifier or
 * a bundler may put a function into its only caller.
 */
import { readFileSync } from 'node:fs';
import type { LoadHook, ResolveHook } from 'node:module';
import { fileURLToPath } from 'node:url';
import ts from '@typescript/typescript6';
import { transformSync } from 'esbuild';
import { ENTRIES } from '../../scripts/entries.ts';
import { functionsOf } from './functions.ts';

const ROOT = new URL('../..', import.meta.url).href;
const sources = new Map(ENTRIES.map(({ specifier, source }) => [specifier, ROOT + source]));

export const resolve: ResolveHook = (specifier, context, next) => {
  const url = sources.get(specifier);
  return url === undefined ? next(specifier, context) : { url, shortCircuit: true };
};

export const load: LoadHook = (url, context, next) => {
  if (!url.startsWith(`${ROOT}src/`)) return next(url, context);
  const path = url.slice(ROOT.length);
  const source = noting(path, readFileSync(fileURLToPath(url), 'utf8'));
  return { format: 'module', source, shortCircuit: true };
};

/** The JavaScript of a source file, in which each function first notes its place and name. */
export function noting(path: string, text: string): string {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const notes = functionsOf(path, file).flatMap(({ name, node, body }) => {
    const { line, character } = file.getLineAndCharacterOfPosition(node.getStart());
    const place = name.replace(' ', `:${line + 1}:${character + 1} `);
    const note = `globalThis.entered?.push(${JSON.stringify(place)})`;
    if (ts.isBlock(body)) return [{ at: body.getStart() + 1, code: `${note};` }];
    return [
      { at: body.getStart(), code: `(${note},` },
      { at: body.getEnd(), code: ')' },
    ];
  });
  let noted = text;
  // From the end on, so that the places before stay right.
  for (const { at, code } of notes.sort((one, other) => other.at - one.at))
    noted = noted.slice(0, at) + code + noted.slice(at);
  return transformSync(noted, { loader: 'ts', target: 'node20', sourcefile: path }).code;
}
