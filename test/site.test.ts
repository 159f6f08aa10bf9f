import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { apiReports } from '../scripts/api-report.ts';
import { ask, outsideLinks } from '../scripts/outside-links.ts';
import { apiReference } from '../site/api-reference.ts';
import { BOOKS } from '../site/books.ts';
import { deadLinks } from '../site/links.ts';
import { Page } from './helpers/markdown.ts';
import { serve } from './helpers/serve.ts';

// `npm run site` builds the site and checks its links. Here is what needs no build.
describe('the reference of the site', () => {
  const code = '```ts\nconst route = gateFetch(handler, [sessionStore()]);\n```\n';
  const { pages } = apiReference(new Map([['docs/start/any', code]]));
  const all = [...pages.values()].join('\n');

  it('has each export of each entry once', () => {
    const exported = [...apiReports()].flatMap(([path, text]) => {
      const [own = ''] = text.split('// Named by the above');
      const names = own.matchAll(
        /^export (?:abstract )?(?:class|const|function|interface|type) ([\w$]+)/gm,
      );
      return [...new Set([...names].map(([, name = '']) => `${path}: ${name}`))];
    });
    expect(exported.length).toBeGreaterThan(200);
    const headings = [...all.matchAll(/^##+ (\w+) \{#\w+\}$/gm)].map(([, name]) => name);
    const hidden = [...pages.values()].flatMap((text) => {
      const [, below = ''] = text.split('## Named, and not exported');
      return [...below.matchAll(/^### (\w+) \{#/gm)].map(([, name]) => name);
    });
    const names = exported.map((each) => each.split(': ')[1]);
    expect([...headings].sort()).toEqual([...names, ...hidden].sort());
  });

  it('shows signature, comment and members, and code of the docs where a comment has none', () => {
    const page = pages.get('/api/fetch') ?? '';
    expect(page).toContain('export function gateFetch<');
    expect(page).toContain('Puts the middlewares in front of an MCP handler of the Fetch API');
    expect(page).toContain('| `auth` | Says who makes a request.');
    expect(page).toContain(`Example, from [any](/start/any):\n\n${code.trimEnd()}`);
    expect(all.match(/.*{@link.*/g)).toBe(null);
  });
});

it('has each page of the README’s list in the sidebar', () => {
  const pages = BOOKS.flatMap((book) => Object.keys(book.pages)).map((page) => `${page}.md`);
  expect(new Set(pages).size).toBe(pages.length);
  const linked = new Page('README.md').links.filter((link) => /^(docs\/|[A-Z]+\.md)/.test(link));
  const files = linked.map((link) => link.replace(/#.*/, '')).filter((file) => /\.md$/.test(file));
  expect(files.filter((file) => !pages.includes(file))).toEqual([]);
});

describe('the links of a built site', () => {
  const built = (files: Readonly<Record<string, string>>): string => {
    const folder = mkdtempSync(join(tmpdir(), 'interlock-site-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return folder;
  };
  const steps = '<h2 id="a-&amp;-b">Steps</h2>';

  it('lead to pages, files and anchors', () => {
    const index =
      '<a href="/docs/steps#a-&amp;-b">1</a><img src="icon.svg"><a href="https://x.test/y">2</a>';
    const dist = built({ 'index.html': index, 'steps.html': steps, 'icon.svg': '' });
    expect(deadLinks(dist, '/docs/')).toEqual({ pages: 2, links: 2, dead: [] });
  });

  it.each(['/docs/gone', '/docs/steps#gone', '/steps', 'gone.svg', '#gone'])(
    'are found dead: %s',
    (link) => {
      const dist = built({
        'index.html': `<a class="x" href="${link}">1</a>`,
        'steps.html': steps,
      });
      expect(deadLinks(dist, '/docs/').dead).toEqual([`index.html: ${link}`]);
    },
  );
});

describe('an outside link', () => {
  it('is found with its pages, but not in code', () => {
    const a = '[x](https://a.test/1#part) `[y](https://b.test)`\n```\n[z](https://c.test)\n```\n';
    const found = outsideLinks(
      new Map([
        ['a.md', a],
        ['b.md', '[x](https://a.test/1)'],
      ]),
    );
    expect([...found]).toEqual([['https://a.test/1', ['a.md', 'b.md']]]);
  });

  it('is there, refused to programs, or gone; a server that fails is asked again', async () => {
    const asked: string[] = [];
    const { url } = await serve((req, res) => {
      const path = req.url ?? '';
      asked.push(path);
      const isFirst = asked.filter((each) => each === path).length === 1;
      res.statusCode = path === '/flaky' ? (isFirst ? 503 : 200) : Number(path.slice(1));
      res.end();
    });
    const answers = await Promise.all(
      ['200', '403', '404', 'flaky', '500'].map((path) => ask(new URL(`/${path}`, url).href, 1)),
    );
    expect(answers).toEqual([
      'there',
      'refused',
      { gone: 'HTTP 404' },
      'there',
      { gone: 'HTTP 500' },
    ]);
    expect(asked.filter((path) => path === '/500').length).toBe(3);
    expect(asked.filter((path) => path === '/404').length).toBe(1);
  });
});
