/**
 * `npm run changelog -- --since REV` fails where a change that users see has no line in
 * CHANGELOG.md. Hides what users see: the reports in `api/`, and code that is packed, without its
 * comments and types.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { transformSync } from 'esbuild';
import { PACKAGES } from './entries.ts';

const FILE = 'CHANGELOG.md';
const HEADING = '## Unreleased\n';
const SURFACE = 'api/';
const CODE = [
  ...PACKAGES.map((folder) => `${posix.join(folder, 'src')}/`),
  'packages/inspector/app/',
];

/** The text with what is unreleased as a version. @throws Error where nothing is unreleased */
export function withVersion(text: string, version: string, date: string): string {
  const [before, after, ...more] = text.split(HEADING);
  if (after === undefined || more.length > 0)
    throw new Error(`${FILE} needs one heading "${HEADING.trim()}"`);
  if (after.includes(`## ${version} - `)) throw new Error(`${FILE} has ${version} already`);
  if (/^\s*(## |$)/.test(after)) throw new Error(`${FILE} has nothing that is unreleased`);
  return `${before}${HEADING}\n## ${version} - ${date}\n${after}`;
}

/**
 * The files of changes since a revision that users see and that CHANGELOG.md does not name; none
 * where it has a new line. A commit that changes code and nothing that users see says so in its
 * message: `Changelog: none`. That counts for no report in `api/`.
 */
export function untold(folder: string, since: string): string[] {
  const git = (...args: readonly string[]): string =>
    execFileSync('git', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const base = git('merge-base', since, 'HEAD').trim();
  const before = (path: string): string => {
    const isThere = git('ls-tree', '--name-only', base, path) !== '';
    return isThere ? git('show', `${base}:${path}`) : '';
  };
  const now = (path: string): string =>
    existsSync(join(folder, path)) ? readFileSync(join(folder, path), 'utf8') : '';
  const told = new Set(before(FILE).split('\n'));
  // A release adds no line but the heading of its version, and writes that version into the code.
  if (
    now(FILE)
      .split('\n')
      .some((line) => !/^#(?!# \d)/.test(line) && !told.has(line))
  )
    return [];
  const changedSince = (revision: string, paths: readonly string[]): string[] =>
    git('diff', '--name-only', '--no-renames', revision, '--', ...paths)
      .split('\n')
      .filter((path) => path !== '');
  const code = changedSince(base, CODE).filter(
    (path) => runs(path, before(path)) !== runs(path, now(path)),
  );
  const messages = git('log', '--format=%B%x00', `${base}..HEAD`, '--', ...CODE).split('\0');
  const saysNone = messages.slice(0, -1).every((text) => /^Changelog: none$/m.test(text));
  const isCommitted = changedSince('HEAD', CODE).length === 0;
  return [...changedSince(base, [SURFACE]), ...(saysNone && isCommitted ? [] : code)];
}

/** What of a file runs. */
function runs(path: string, text: string): string {
  const loader = /\.(tsx?)$/.exec(path)?.[1] as 'ts' | 'tsx' | undefined;
  if (loader === undefined) return text;
  return transformSync(text, { loader, minifyWhitespace: true, legalComments: 'none' }).code;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { since: { type: 'string', default: 'origin/main' } } });
  const files = untold(fileURLToPath(new URL('..', import.meta.url)), values.since);
  if (files.length > 0) {
    console.error(
      `Since ${values.since}, users see a change in:\n  ${files.join('\n  ')}\n` +
        `Say under "Unreleased" in ${FILE} what they see. Where code changes and they see nothing, ` +
        'end the message of its commit with "Changelog: none".',
    );
    process.exitCode = 1;
  }
}
