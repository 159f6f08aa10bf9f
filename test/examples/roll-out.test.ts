import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { Page } from '../helpers/markdown.ts';
import { runToEnd } from '../helpers/program.ts';

const PROGRAM = fileURLToPath(new URL('../../examples/roll-out/roll-out.ts', import.meta.url));

it('brings a gate into an app in seven steps, with the numbers of the docs', async () => {
  const { stdout, stderr } = await runToEnd(PROGRAM);
  expect(stderr).toBe('');
  expect(new Page('docs/operate/roll-out.md').blocks('text')).toContain(stdout);
}, 180_000);
