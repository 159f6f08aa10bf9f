import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { untold } from '../scripts/changelog.ts';
import { PACKAGES } from '../scripts/entries.ts';
import { release } from '../scripts/release.ts';
import { ROOT } from './helpers/consumer.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'interlock-release-'));
});

afterEach(() => rmSync(folder, { recursive: true }));

const read = (path: string): string => readFileSync(join(folder, path), 'utf8');

function write(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
}

describe('a release, in a copy', () => {
  const MANIFESTS = PACKAGES.map((each) => join(each, 'package.json'));
  const OTHERS = ['package-lock.json', 'src/otel/index.ts', 'docs/reference/stability.md'];
  const CHANGELOG = '# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.0.1 - 2026-01-01\n\n- Old.\n';
  const [major, minor] = manifest.version.split('.');
  const next = `${major}.${Number(minor) + 1}.0`;

  beforeEach(() => {
    for (const path of [...MANIFESTS, ...OTHERS])
      cpSync(join(ROOT, path), join(folder, path), { recursive: true });
    write('CHANGELOG.md', CHANGELOG);
  });

  it('moves what is unreleased to a version, and raises the packages and what they take', () => {
    expect(release(folder, next, '2026-12-01')).toEqual([
      'mcp-interlock',
      'mcp-interlock-check',
      'mcp-interlock-testing',
      'mcp-interlock-inspector',
      'mcp-interlock-cli',
    ]);
    expect(read('CHANGELOG.md')).toBe(
      CHANGELOG.replace('Unreleased\n', `Unreleased\n\n## ${next} - 2026-12-01\n`),
    );
    for (const path of [...MANIFESTS, ...OTHERS]) {
      const [was, is] = [readFileSync(join(ROOT, path), 'utf8'), read(path)].map((text) =>
        text.split('\n'),
      );
      const changed = is?.filter((line, at) => line !== was?.[at]) ?? [];
      expect(is?.length, path).toBe(was?.length);
      expect(changed.filter((line) => !line.includes(next))).toEqual([]);
      expect(changed.length, path).toBeGreaterThan(0);
    }
    const { dependencies, peerDependencies } = JSON.parse(read('packages/cli/package.json'));
    expect(dependencies['mcp-interlock']).toBe(next);
    expect(peerDependencies['mcp-interlock-inspector']).toBe(next);
    const locked = JSON.parse(read('package-lock.json')).packages['packages/inspector'];
    expect([locked.version, locked.dependencies['mcp-interlock-check']]).toEqual([next, next]);
  });

  it.each([
    ['0.0.9', `expected ${manifest.version} or a later version, got "0.0.9"`],
    [`${manifest.version}-rc.1`, 'or a later version'],
    ['later', 'or a later version'],
    ['', 'or a later version'],
  ])('refuses the version "%s", and writes nothing', (version, message) => {
    expect(() => release(folder, version, '2026-12-01')).toThrow(message);
    expect(read('CHANGELOG.md')).toBe(CHANGELOG);
  });

  it('is made once, and not of nothing', () => {
    release(folder, `${next}-rc.1`, '2026-12-01');
    expect(() => release(folder, next, '2026-12-02')).toThrow('has nothing that is unreleased');
    write('CHANGELOG.md', read('CHANGELOG.md').replace('Unreleased\n', 'Unreleased\n\n- More.\n'));
    release(folder, next, '2026-12-02');
    expect(read('CHANGELOG.md')).toContain(`## ${next} - 2026-12-02\n\n- More.\n`);
    write('CHANGELOG.md', read('CHANGELOG.md').replace('Unreleased\n', 'Unreleased\n\n- Most.\n'));
    expect(() => release(folder, next, '2026-12-03')).toThrow(`has ${next} already`);
  });
});

describe('the packages', () => {
  const manifests = PACKAGES.map((each) =>
    JSON.parse(readFileSync(join(ROOT, each, 'package.json'), 'utf8')),
  );

  it('have one version, take the others of that version, and can be published', () => {
    const names = manifests.map(({ name }) => name);
    for (const { version, private: isPrivate, dependencies, peerDependencies } of manifests) {
      expect([version, isPrivate]).toEqual([manifest.version, undefined]);
      for (const [name, range] of Object.entries({ ...dependencies, ...peerDependencies }))
        if (names.includes(name)) expect([name, range]).toEqual([name, version]);
    }
  });

  it('are published in the order that a release prints', () => {
    const workflow = readFileSync(join(ROOT, '.github/workflows/release.yml'), 'utf8');
    const loops = [...workflow.matchAll(/for folder in (.*); do/g)].map(([, all]) => all);
    expect(loops.at(-1)).toBe(PACKAGES.join(' '));
  });
});

describe('the check of the changelog', () => {
  const git = (...args: readonly string[]): void => {
    const settings = ['user.name=a', 'user.email=a@example.com', 'commit.gpgsign=false'];
    const given = settings.flatMap((each) => ['-c', each]);
    execFileSync('git', [...given, ...args], { cwd: folder, stdio: 'ignore' });
  };
  const commit = (message: string): void => {
    git('add', '--all');
    git('commit', '--message', message);
  };
  /** What a branch that began at `main` leaves untold. */
  const found = (): string[] => untold(folder, 'main');

  beforeEach(() => {
    git('init', '--initial-branch', 'main');
    write('CHANGELOG.md', '# Changelog\n\n## Unreleased\n\n- New.\n');
    write('src/a.ts', '/** One. */\nexport const one: number = 1;\n');
    write('api/a.d.ts', 'export const one: number;\n');
    commit('Begin');
    git('checkout', '-b', 'change');
  });

  it('finds a change of the surface, and one of code, committed or not', () => {
    expect(found()).toEqual([]);
    write('src/a.ts', 'export const one: number = 2;\n');
    write('packages/cli/src/b.ts', 'export {};\nconsole.log(1);\n');
    expect(found()).toEqual(['src/a.ts']);
    commit('Change');
    write('api/a.d.ts', 'export const one: string;\n');
    expect(found()).toEqual(['api/a.d.ts', 'packages/cli/src/b.ts', 'src/a.ts']);
  });

  it('takes a new line of the changelog for what is told, and no heading', () => {
    write('src/a.ts', 'export const one: number = 2;\n');
    write('CHANGELOG.md', '# Changelog\n\n## Unreleased\n\n### Other\n\n- New.\n');
    expect(found()).toEqual(['src/a.ts']);
    write('CHANGELOG.md', '# Changelog\n\n## Unreleased\n\n- New.\n- `one` is 2.\n');
    expect(found()).toEqual([]);
    write('CHANGELOG.md', '# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-12-01\n\n- New.\n');
    expect(found()).toEqual([]);
  });

  it('lets comments, types and tests pass', () => {
    write('src/a.ts', '// Two.\nexport const one: 1 = 1;\n');
    write('test/a.test.ts', 'throw new Error();\n');
    commit('Say more');
    expect(found()).toEqual([]);
  });

  it('lets code pass whose commit says that users see nothing, and no surface', () => {
    write('src/a.ts', 'export const one: number = 3 - 2;\n');
    commit('Count\n\nChangelog: none');
    expect(found()).toEqual([]);
    write('api/a.d.ts', 'export const one: string;\n');
    commit('Type\n\nChangelog: none');
    expect(found()).toEqual(['api/a.d.ts']);
    write('src/a.ts', 'export const one: number = 4;\n');
    commit('Change');
    expect(found()).toEqual(['api/a.d.ts', 'src/a.ts']);
  });
});
