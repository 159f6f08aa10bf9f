/**
 * Writes the pages of the site from those of the repository. A page keeps its text. Its links lead
 * to the site, and names of the public API in it lead to the reference.
 */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ApiReference, apiReference } from './api-reference.ts';
import { BOOKS, placeOf, REPOSITORY } from './books.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SITE = join(ROOT, 'site');
const OUT = join(SITE, 'pages');

const onSite = new Set(BOOKS.flatMap(({ pages }) => Object.keys(pages)));

/** @throws if a page of `docs/` has no place in the sidebar */
export function writePages(): void {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' });
  const missing = docs
    .filter((path) => path.endsWith('.md'))
    .map((path) => `docs/${path.replace(/\.md$/, '')}`)
    .filter((page) => !onSite.has(page));
  if (missing.length > 0) throw new Error(`add to site/books.ts: ${missing.join(', ')}`);

  rmSync(OUT, { recursive: true, force: true });
  const texts = new Map([...onSite].map((page) => [page, textOf(page)]));
  const reference = apiReference(texts);
  for (const [page, text] of texts)
    write(`${placeOf(page)}.md`, withReference(withLinks(page, text), reference));
  for (const [place, text] of reference.pages) write(`${place}.md`, text);
  write('api.json', JSON.stringify(reference.entries));
  write('index.md', home(texts.get('README') ?? ''));
  for (const picture of docs.filter((path) => /\.(svg|png)$/.test(path))) {
    mkdirSync(join(OUT, 'public'), { recursive: true });
    copyFileSync(join(ROOT, 'docs', picture), join(OUT, 'public', basename(picture)));
  }
  copyFileSync(join(SITE, 'icon.svg'), join(OUT, 'public/icon.svg'));
}

function textOf(page: string): string {
  return readFileSync(join(ROOT, `${page}.md`), 'utf8');
}

function write(place: string, text: string): void {
  const path = join(OUT, place);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

/** What `change` makes of the text outside of fenced code. */
function outsideCode(text: string, change: (text: string) => string): string {
  return text
    .split(/(^ *```[\s\S]*?^ *```$)/m)
    .map((part, index) => (index % 2 === 1 ? part : change(part)))
    .join('');
}

/** A link to a file that has no page leads to the repository, or is no link as long as there is none. */
function withLinks(page: string, text: string): string {
  const target = (link: string): string | undefined => {
    if (/^[a-z]+:/.test(link)) return link;
    const [file = '', anchor] = link.split('#');
    const hash = anchor === undefined ? '' : `#${anchor}`;
    if (file === '') return hash;
    const path = posix.join(posix.dirname(page), file);
    if (/\.(svg|png)$/.test(path)) return `/${posix.basename(path)}`;
    const linked = path.replace(/\.md$/, '');
    if (onSite.has(linked)) return `${placeOf(linked)}${hash}`;
    return REPOSITORY && `${REPOSITORY}/blob/main/${path}${hash}`;
  };
  return outsideCode(text, (part) =>
    part
      .replace(/<!--[\s\S]*?-->\n?/g, '')
      .replace(/(?<!!)\[([^\]]*)\]\(([^)\s]+)\)/g, (_, words: string, link: string) => {
        const to = target(link);
        return to === undefined ? words : `[${words}](${to})`;
      })
      .replace(
        /!\[([^\]]*)\]\(([^)\s]+)\)/g,
        (_, words: string, link: string) => `![${words}](${target(link)})`,
      ),
  );
}

/**
 * The first time that a page names an export as code, outside of links and headings, it leads to the
 * reference. A word in lower case counts where the page writes it as a call.
 */
function withReference(text: string, { links }: ApiReference): string {
  const linked = new Set<string>();
  const link = (code: string): string => {
    const [, name = '', call] = /^`([A-Za-z]\w*)(\(.*\))?`$/.exec(code) ?? [];
    const to = links.get(name);
    const isNamed = call !== undefined || /^[A-Z]|[a-z][A-Z]/.test(name);
    if (to === undefined || !isNamed || linked.has(name)) return code;
    linked.add(name);
    return `[${code}](${to})`;
  };
  const parts = /(^#.*$|\[(?:[^\]`]|`[^`]*`)*\]\([^)]*\)|`[^`\n]+`)/gm;
  return outsideCode(text, (part) =>
    part.replace(parts, (found) => (found.startsWith('`') ? link(found) : found)),
  );
}

/** The home page, with the program and the refusal that the README begins with. */
function home(readme: string): string {
  const [program = ''] = /^```ts\n[\s\S]*?^```$/m.exec(readme) ?? [];
  const [refusal = ''] = /^```\n[\s\S]*?^```$/m.exec(readme) ?? [];
  return readFileSync(join(SITE, 'home.md'), 'utf8')
    .replace('<!-- program -->', () => program)
    .replace('<!-- refusal -->', () => refusal);
}
