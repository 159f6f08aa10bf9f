/**
 * Asks for each outside link of the repository's Markdown: `npm run links`. It ends with 1 where a
 * page is gone. A host that answers robots with 401, 403 or 429 may well show the page to a person, so
 * such a link is only counted.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const AT_ONCE = 8;
const TRIES = 3;
const TIME_MS = 20_000;
const REFUSED = [401, 403, 429];

/** Where each outside link of these texts stands, by its address without the anchor. */
export function outsideLinks(texts: ReadonlyMap<string, string>): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const [path, text] of texts) {
    const prose = text.replace(/^```.*?^```$/gms, '').replace(/`[^`\n]*`/g, '');
    for (const [, link = ''] of prose.matchAll(/\]\((https:\/\/[^)\s]+)\)/g)) {
      const address = link.replace(/#.*/, '');
      found.set(address, [...(found.get(address) ?? []), path]);
    }
  }
  return found;
}

export type Answer = 'there' | 'refused' | { readonly gone: string };

/** Asks for a page, and again where the network or the server fails. */
export async function ask(address: string, pauseMs = 2_000): Promise<Answer> {
  let gone = '';
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    if (attempt > 1) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    try {
      const headers = { accept: 'text/html,*/*', 'user-agent': 'Mozilla/5.0 (link check)' };
      const { status, body } = await fetch(address, {
        headers,
        signal: AbortSignal.timeout(TIME_MS),
      });
      await body?.cancel();
      if (status < 400) return 'there';
      if (REFUSED.includes(status)) return 'refused';
      gone = `HTTP ${status}`;
      if (status < 500) return { gone };
    } catch (error) {
      gone = String((error as Error).cause ?? error);
    }
  }
  return { gone };
}

async function main(): Promise<void> {
  const paths = execFileSync('git', ['ls-files', '*.md'], { cwd: ROOT, encoding: 'utf8' });
  const texts = paths
    .split('\n')
    .filter((path) => path !== '')
    .map((path): [string, string] => [path, readFileSync(join(ROOT, path), 'utf8')]);
  const links = [...outsideLinks(new Map(texts))];
  const count = links.length;
  let refused = 0;
  let gone = 0;
  const worker = async (): Promise<void> => {
    for (let next = links.pop(); next !== undefined; next = links.pop()) {
      const [address, pages] = next;
      const answer = await ask(address);
      if (answer === 'refused') refused++;
      if (typeof answer === 'string') continue;
      gone++;
      console.error(`${answer.gone}: ${address} in ${[...new Set(pages)].join(', ')}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  console.log(`links: ${count} outside, ${gone} gone, ${refused} not shown to a program`);
  if (gone > 0) process.exitCode = 1;
}

if (argv[1] === fileURLToPath(import.meta.url)) await main();
