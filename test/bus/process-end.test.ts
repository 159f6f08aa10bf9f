import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { compiled } from '../helpers/program.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';

const run = promisify(execFile);
const CHILD = fileURLToPath(new URL('./listening-child.ts', import.meta.url));

describe.each([
  ['postgres', sharedPostgres],
  // Its pool is not ended, and has no timers either: only the heartbeats could keep it alive.
  ['postgres-left-open', sharedPostgres],
  ['ioredis', sharedRedis],
  ['node-redis', sharedRedis],
] as const)('a process with a bus over %s', (kind, serverUrl) => {
  it.each([
    ['after it has unsubscribed', 'yes'],
    ['though it still listens', 'no'],
  ])(
    'ends by itself %s',
    async (_when, unsubscribes) => {
      const args = [await compiled(CHILD), kind, await serverUrl(), unsubscribes];
      // Rejects where the process must be killed, or fails.
      const { stdout, stderr } = await run(process.execPath, args, { timeout: 60_000 });
      expect({ stdout, stderr }).toEqual({ stdout: 'done', stderr: '' });
    },
    90_000,
  );
});
