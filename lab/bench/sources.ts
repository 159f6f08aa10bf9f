import { existsSync, readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { fileURLToPath } from 'node:url';

const DIST = new URL('../../dist/', import.meta.url).href;
const maps = new Map<string, SourceMap>();

/** Whether a running script is a module that the build made of `src/`. */
export function isBuilt(url: string): boolean {
  return url.startsWith(DIST) && existsSync(mapPath(url));
}

/** Where in `src/` a place of a built module came from, both counted from 0. */
export function sourceOf(
  url: string,
  line: number,
  column: number,
): { readonly file: string; readonly line: number } | undefined {
  const entry = mapOf(url).findEntry(line, column);
  if (!('originalSource' in entry)) return undefined;
  const [, file] = entry.originalSource.split('/src/');
  return file === undefined ? undefined : { file: `src/${file}`, line: entry.originalLine };
}

function mapOf(url: string): SourceMap {
  const known = maps.get(url);
  if (known !== undefined) return known;
  const map = new SourceMap(JSON.parse(readFileSync(mapPath(url), 'utf8')));
  maps.set(url, map);
  return map;
}

function mapPath(url: string): string {
  return `${fileURLToPath(url)}.map`;
}
