import { readFileSync } from 'node:fs';

declare global {
  /**
   * The functions of ours that were entered while a request is traced, in order, each as
   * `src/wire/call.ts:51:3 Call.name`.
   */
  var entered: string[] | undefined;
}

/** The way of a request through our code. A recursive call counts each time. */
export interface Way {
  readonly files: number;
  /** How many functions are entered at all. */
  readonly functions: number;
  /** How often one is entered. */
  readonly calls: number;
  /** Of the calls, those that enter another file or folder than the call before. */
  readonly 'file moves': number;
  readonly 'folder moves': number;
  /** The same with leaf helpers left out. */
  readonly 'calls*': number;
  readonly 'file moves*': number;
  readonly 'folder moves*': number;
}

/** Their list, one name a line. `leafHelpers()` has the rule by which a function is one. */
export const LEAF_HELPERS = new URL('leaf-helpers.txt', import.meta.url);

export function wayOf(entered: readonly string[]): Way {
  const leaves = new Set(readFileSync(LEAF_HELPERS, 'utf8').split('\n'));
  const withoutLeaves = entered.filter((each) => !leaves.has(each.replace(/:\d+:\d+ /, ' ')));
  return {
    files: new Set(entered.map(fileOf)).size,
    functions: new Set(entered).size,
    calls: entered.length,
    'file moves': moves(entered.map(fileOf)),
    'folder moves': moves(entered.map(folderOf)),
    'calls*': withoutLeaves.length,
    'file moves*': moves(withoutLeaves.map(fileOf)),
    'folder moves*': moves(withoutLeaves.map(folderOf)),
  };
}

/** What a row has: the mean of the ways of its requests. */
export function meanWay(ways: readonly (readonly string[])[]): Way {
  const [first, ...others] = ways.map(wayOf);
  if (first === undefined) throw new Error('there is no request');
  const mean = (column: keyof Way): number =>
    Math.round(others.reduce((sum, way) => sum + way[column], first[column]) / ways.length);
  const columns = Object.keys(first) as (keyof Way)[];
  return Object.fromEntries(columns.map((each) => [each, mean(each)])) as unknown as Way;
}

function fileOf(entered: string): string {
  return entered.slice(0, entered.indexOf(':'));
}

function folderOf(entered: string): string {
  return entered.slice(0, fileOf(entered).lastIndexOf('/'));
}

function moves(places: readonly string[]): number {
  return places.filter((place, at) => at > 0 && place !== places[at - 1]).length;
}
