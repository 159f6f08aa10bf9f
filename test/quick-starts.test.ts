import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Consumer, ROOT } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { QUICK_STARTS, tryOut } from './helpers/quick-starts.ts';
import { sharedTarball, sharedTarballsOfCommand } from './services/shared.ts';

const { dependencies } = JSON.parse(
  readFileSync(join(ROOT, 'packages/cli/package.json'), 'utf8'),
) as { dependencies: Record<string, string> };
const { 'mcp-interlock': _, ...ofCommand } = dependencies;

describe.each(QUICK_STARTS)('the quick start of $page, from the packed tarball', (quickStart) => {
  const { page, packages, files, upstream } = quickStart;
  const project = new Consumer();
  afterAll(() => project.remove());

  // Without a registry: what the page has npm install beside is linked.
  beforeAll(async () => {
    const isCommand = upstream !== undefined;
    project.link(...(isCommand ? Object.keys(ofCommand) : []));
    const command = isCommand ? await sharedTarballsOfCommand() : [];
    await project.installTarballs(await sharedTarball(), ...command);
    project.link(...packages.filter((name) => !(isCommand && name in ofCommand)));
  }, 60_000);

  it('lists, refuses and steps', async () => {
    const refusal = await tryOut(quickStart, project);
    if (page === 'README.md') expect(`${refusal}\n`).toBe(new Page(page).blocks()[0]);
  }, 60_000);

  it('compiles', async () => {
    project.link('@types/express', '@types/node');
    const code = Object.keys(files).filter((file) => file.endsWith('.ts'));
    for (const file of code) project.write(file, files[file] ?? '');
    const forBundler = page.includes('Next.js');
    expect(await project.typeCheck(code, { skipLibCheck: true, forBundler })).toBe('');
  }, 60_000);
});
