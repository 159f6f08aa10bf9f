import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runToEnd } from '../helpers/program.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

const PROGRAM = join(ROOT, 'lab/decisions/decisions.ts');
const run = (...args: string[]) => runToEnd(PROGRAM, ...args);

/** A copy of the source, where one text is another one. */
function copyWith(file: string, text: string, other: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'decisions-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const name of ['src', 'package.json', 'tsconfig.json'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const path = join(folder, file);
  const source = readFileSync(path, 'utf8');
  expect(source).toContain(text);
  writeFileSync(path, source.replaceAll(text, other));
  return folder;
}

describe('npm run decisions', { timeout: 300_000 }, () => {
  it('finds that each of 400 random cases ends as recorded, with each reason of a refusal', async () => {
    const { status, stdout } = await run('--check');
    expect(stdout).toContain('\nAS RECORDED');
    expect(stdout).not.toContain('TOO SELDOM');
    expect(status).toBe(0);
  });

  it('finds that an observing gate says of each run first what an enforcing one does', async () => {
    const { status, stdout } = await run('--observe', '--cases', '100');
    expect(stdout).toContain('\nNO DIFFERENCE');
    expect(stdout).toMatch(/call held +\d/);
    expect(status).toBe(0);
  });

  it('finds one changed word, and prints a command that shows it with the fewest operations', async () => {
    const changed = copyWith('src/workflow/advice.ts', 'is not available', 'is not to be had');
    const { status, stdout } = await run('--old', ROOT, '--new', changed, '--cases', '10');
    expect(stdout).toMatch(/older: .*is not available/);
    expect(stdout).toMatch(/newer: .*is not to be had/);
    expect(stdout).toMatch(/^\d+ CASES DIFFER$/m);
    expect(status).toBe(1);
    const [, command = '', kept = ''] =
      /^npm run decisions -- (.* --keep (none|[\d,]+))$/m.exec(stdout) ?? [];
    expect(kept.split(',').length).toBeLessThan(5);
    const again = await run(...command.split(' '));
    expect(again.stdout).toMatch(/older: .*is not available/);
    expect(again.status).toBe(1);
  });

  it('finds no difference of the source from a copy of it', async () => {
    const same = copyWith('src/workflow/advice.ts', 'is not available', 'is not available');
    const { status, stdout } = await run('--old', same, '--cases', '10');
    expect(stdout).toContain('\nNO DIFFERENCE');
    expect(status).toBe(0);
  });

  it.each([
    ['--cases', 'x', '--cases: expected a whole number, got "x"'],
    ['--keep', '1,', '--keep: expected a whole number, got ""'],
    ['--old', 'no-such-revision', 'no-such-revision'],
  ])('refuses %s %s, and says what is wrong', async (option, value, message) => {
    const { status, stderr } = await run(option, value);
    expect(stderr).toContain(message);
    expect(status).toBe(1);
  });
});
