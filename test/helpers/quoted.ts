import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ROOT } from './consumer.ts';
import { Page } from './markdown.ts';

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
