import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ROOT } from './consumer.ts';

/** A page of the documentation, with what tests read in it. */
export class Page {
  readonly text: string;

  constructor(path: string) {
    this.text = readFileSync(join(ROOT, path), 'utf8');
  }

  get lines(): string[] {
    return this.text.split('\n');
  }

  /** The code of every fenced block in that language; with none, of those that name no language. */
  blocks(language = ''): string[] {
    const all = this.text.matchAll(/^```(\w*)\n(.*?)^```$/gms);
    return [...all].flatMap(([, named, code = '']) => (named === language ? code : []));
  }

  /** The blocks that the reader saves under these names, by name. */
  saved(...names: readonly string[]): Record<string, string> {
    const blocks = names.map((name) => {
      const told = this.text.search(new RegExp(`Save\\s+(it|this)\\s+as\\s+\\\`${name}\\\``));
      const below = told < 0 ? '' : this.text.slice(told);
      const [, code] = /^```\w+\n(.*?)^```$/ms.exec(below) ?? [];
      if (code === undefined) throw new Error(`the page does not say: Save it as ${name}`);
      return [name, code];
    });
    return Object.fromEntries(blocks);
  }

  /** The packages of an `npm install` on the page, beside mcp-interlock. */
  installed(which = 0): string[] {
    const [, names = ''] =
      [...this.text.matchAll(/`npm install (mcp-interlock [^`]+)`/g)][which] ?? [];
    return names.split(' ').filter((name) => name !== '' && name !== 'mcp-interlock');
  }

  /** The cells of each row of the first table after that line of text. Backticks are taken off. */
  tableAfter(line: string): string[][] {
    const start = this.lines.findIndex((each) => each.includes(line)) + 1;
    const below = this.lines.slice(start);
    const first = below.findIndex((each) => /^\|\s*-{3}/.test(each)) + 1;
    const end = below.findIndex((each, index) => index >= first && !each.startsWith('|'));
    return below.slice(first, end).map(cellsOf);
  }

  /** The anchors of the page, to which links may lead. */
  get anchors(): string[] {
    const headings = this.withoutCode.matchAll(/^#+ (.+)$/gm);
    return [...headings].map(([, title = '']) => slugOf(title));
  }

  get links(): string[] {
    return [...this.withoutCode.matchAll(/\]\(([^)]+)\)/g)].map(([, target = '']) => target);
  }

  private get withoutCode(): string {
    return this.text.replace(/^```.*?^```$/gms, '');
  }
}

function cellsOf(row: string): string[] {
  const cells = row.split(/(?<!\\)\|/).slice(1, -1);
  return cells.map((cell) =>
    cell
      .trim()
      .replaceAll('\\|', '|')
      .replace(/^`(.+)`$/, '$1'),
  );
}

/** The anchor as GitHub and npm make it. */
function slugOf(title: string): string {
  const plain = title.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '');
  return plain.replaceAll(' ', '-');
}

/**
 * Expects that a page has code, and that one of these files has each block of it word for word. So
 * the code compiles, and the tests run it.
 */
export function expectQuoted(page: string, files: readonly string[]): void {
  const sources = files.map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const blocks = new Page(page).blocks('ts');
  expect(blocks).not.toEqual([]);
  expect(blocks.filter((block) => !sources.some((source) => source.includes(block)))).toEqual([]);
}
