import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { ROOT } from '../helpers/consumer.ts';

const run = promisify(execFile);

it('plays the checkout to its end with the client of the SDK, through a kill of the server', async () => {
  const { stdout } = await run(
    process.execPath,
    ['--import', 'tsx', 'examples/express-checkout/demo.ts'],
    {
      cwd: ROOT,
    },
  );
  const states = [...stdout.matchAll(/^State: (.+)$/gm)].map(([, state]) => state);
  expect(states).toEqual(['empty', 'has_items', 'payment', 'confirmed']);
  expect(stdout).toContain('SIGKILL');
  expect(stdout.trim().split('\n').at(-1)).toBe('Everything was as it should be.');
}, 60_000);
