import { createRequire } from 'node:module';
import { defineConfig } from 'vitepress';
import manifest from '../../package.json' with { type: 'json' };
import { BOOKS, placeOf, REPOSITORY } from '../books.ts';

// `npm run site` writes it with the pages.
const api = createRequire(import.meta.url)('../pages/api.json');

// No group can be folded: VitePress nests a button in a button for that, which axe finds serious.
const books = BOOKS.map(({ title, pages }) => ({
  text: title,
  items: Object.entries(pages).map(([page, text]) => ({ text, link: placeOf(page) })),
}));

export default defineConfig({
  title: manifest.name,
  description: manifest.description,
  lang: 'en',
  base: process.env.SITE_BASE ?? '/',
  srcDir: 'pages',
  outDir: 'dist',
  cleanUrls: true,
  lastUpdated: false,
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: '/icon.svg' }]],
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    // As on GitHub, so that a link within the repository has the same anchor here.
    anchor: {
      slugify: (title) =>
        title
          .toLowerCase()
          .replace(/[^\p{L}\p{N}\s_-]/gu, '')
          .replaceAll(' ', '-'),
    },
    config: (markdown) => {
      const fence = markdown.renderer.rules.fence;
      markdown.renderer.rules.fence = (tokens, index, ...rest) => {
        const { info, content } = tokens[index] ?? { info: '', content: '' };
        if (info.trim() !== 'mermaid') return fence?.(tokens, index, ...rest) ?? '';
        return `<Mermaid source="${encodeURIComponent(content)}" />`;
      };
    },
  },
  themeConfig: {
    search: {
      provider: 'local',
      options: { detailedView: true },
    },
    nav: [
      { text: 'Start', link: '/start/express', activeMatch: '/start/' },
      { text: 'Build', link: '/build/rules', activeMatch: '/build/' },
      { text: 'Operate', link: '/operate/operations', activeMatch: '/operate/' },
      { text: 'Reference', link: '/reference/options', activeMatch: '/reference/' },
      { text: 'API', link: '/api/', activeMatch: '/api/' },
    ],
    sidebar: { '/api/': [{ text: 'API', items: api }], '/': books },
    outline: [2, 3],
    docFooter: { prev: 'Before', next: 'Next' },
    ...(REPOSITORY === undefined
      ? {}
      : { socialLinks: [{ icon: 'github', link: REPOSITORY, ariaLabel: 'The source' }] }),
  },
});
