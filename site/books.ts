/** The order in which a reader finds the pages, and what the sidebar calls each. */
import manifest from '../package.json' with { type: 'json' };

/**
 * Where the source is. It stays `undefined` until the manifest names a repository, which is the one
 * place for it. Then pages get a link to edit them, and links to files without a page lead there.
 */
export const REPOSITORY: string | undefined = addressOf(Reflect.get(manifest, 'repository'));

export interface Book {
  readonly title: string;
  /** Each page by its path from the root of the repository, without `.md`. */
  readonly pages: Readonly<Record<string, string>>;
}

export const BOOKS: readonly Book[] = [
  {
    title: 'Start',
    pages: {
      README: 'What it is',
      'docs/start/express': 'Express',
      'docs/start/fetch': 'Fetch: Next.js, Vercel, Hono',
      'docs/start/any-server': 'Any server',
      'docs/start/stdio': 'A server on stdio',
      'docs/start/serverless': 'Serverless',
      'docs/start/clients': 'Clients',
      'docs/start/providers': 'Model providers',
    },
  },
  {
    title: 'Build',
    pages: {
      'docs/build/rules': 'Rules',
      'docs/build/rule-patterns': 'Patterns of rules',
      'docs/build/machines': 'Machines',
      'docs/build/statecharts': 'Statecharts',
      'docs/build/bindings': 'Bindings',
      'docs/build/steps': 'Steps',
      'docs/build/step-details': 'Steps: the rare cases',
      'docs/build/change-rules': 'Change rules that live',
      'docs/build/runs': 'Runs and their data',
      'docs/build/eras': 'Both eras, and run keys',
      'docs/build/prompts-and-resources': 'Prompts and resources',
      'docs/build/tasks': 'Tasks',
      'docs/build/state-sync': 'State sync',
      'docs/build/status-tool': 'Status tool',
      'docs/build/testing': 'Testing',
      'docs/build/checks': 'Checks and diagrams',
      'docs/build/check-command': 'The check command',
      'docs/build/rules-more': 'More rules',
      'docs/build/rules-beside': 'Rules compared',
    },
  },
  {
    title: 'Operate',
    pages: {
      'docs/operate/operations': 'Runbook',
      'docs/operate/mistakes': 'Mistakes that show late',
      'docs/operate/roll-out': 'Roll-out',
      'docs/operate/guarantees': 'Guarantees',
      'docs/operate/measured': 'How it was measured',
      'docs/operate/limits': 'Limits and settings',
      'docs/operate/payments': 'Payments',
      'docs/operate/inspector': 'Inspector',
      'docs/operate/stores': 'Stores',
      'docs/operate/custom-store': 'Your own store',
      'docs/operate/instances': 'Instances',
      'docs/operate/trail': 'Trail',
      'docs/operate/authentication': 'Authentication',
      'docs/operate/proxy': 'Proxy',
      'docs/operate/conformance': 'Conformance',
    },
  },
  {
    title: 'Reference',
    pages: {
      'docs/reference/options': 'Options',
      'docs/reference/refusals': 'Refusals',
      'docs/reference/errors': 'Error codes',
      'docs/reference/events': 'Events',
      'docs/reference/glossary': 'Words',
      'docs/reference/stability': 'What stays stable',
      SECURITY: 'Security',
      CHANGELOG: 'Changes',
      CONTRIBUTING: 'Contributing',
      ARCHITECTURE: 'Architecture',
      CODE_OF_CONDUCT: 'Code of conduct',
    },
  },
];

/** The address of a page within the site: `docs/build/steps` becomes `/build/steps`. */
export function placeOf(page: string): string {
  return `/${page.replace(/^docs\//, '').toLowerCase()}`;
}

/** A repository as npm lets a manifest name it, as an address that a browser opens. */
function addressOf(repository: unknown): string | undefined {
  const named =
    typeof repository === 'object' && repository !== null
      ? Reflect.get(repository, 'url')
      : repository;
  if (typeof named !== 'string') return undefined;
  return named
    .replace(/^github:/, 'https://github.com/')
    .replace(/^git\+/, '')
    .replace(/\.git$/, '');
}
