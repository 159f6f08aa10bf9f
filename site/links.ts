import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';

/** Reads a built site, and finds the links within it that lead to no page, file or anchor. */
export function deadLinks(
  dist: string,
  base: string,
): { readonly pages: number; readonly links: number; readonly dead: readonly string[] } {
  const pages = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.html'),
  );
  const texts = new Map(pages.map((page) => [page, readFileSync(join(dist, page), 'utf8')]));
  const anchors = new Map(
    [...texts].map(([page, text]) => [
      page,
      new Set([...text.matchAll(/\sid="([^"]+)"/g)].map(([, id = '']) => unescaped(id))),
    ]),
  );
  let links = 0;
  const dead: string[] = [];
  for (const [page, text] of texts)
    for (const [, found = ''] of text.matchAll(
      /<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"/g,
    )) {
      const link = unescaped(found);
      if (/^[a-z]+:|^\/\//.test(link)) continue;
      links++;
      const [path = '', anchor = ''] = link.split('#');
      const to = targetOf(dist, base, page, path);
      const isThere =
        to !== undefined && (anchor === '' || anchors.get(to)?.has(decodeURIComponent(anchor)));
      if (!isThere) dead.push(`${page}: ${link}`);
    }
  return { pages: pages.length, links, dead: [...new Set(dead)] };
}

/** The file that a server sends for a link on a page. */
function targetOf(dist: string, base: string, page: string, path: string): string | undefined {
  if (path === '') return page;
  if (path.startsWith('/') && !path.startsWith(base)) return undefined;
  const from = path.startsWith('/') ? path.slice(base.length) : posix.join(dirname(page), path);
  const file = decodeURIComponent(from);
  return [file, `${file}.html`, posix.join(file, 'index.html')].find(
    (each) => /\.\w+$/.test(each) && existsSync(join(dist, each)),
  );
}

function unescaped(text: string): string {
  return text.replaceAll('&amp;', '&').replaceAll('&quot;', '"').replaceAll('&#39;', "'");
}
