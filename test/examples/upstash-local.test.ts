import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { Redis } from '@upstash/redis';
import { upstashStore } from 'mcp-interlock/stores/upstash';
import { expect, it, onTestFinished } from 'vitest';
import { HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { Page } from '../helpers/markdown.ts';
import { startProgram } from '../helpers/program.ts';
import { sharedRedis } from '../services/shared.ts';

const SERVER = fileURLToPath(new URL('../../examples/upstash-local/server.ts', import.meta.url));

it('the local stand-in for Upstash prints what a client reads, and keeps the steps of a run', async () => {
  const env = { REDIS_URL: await sharedRedis(), PORT: '0' };
  const program = await startProgram(SERVER, { env, ready: /^UPSTASH_.*$/ });
  onTestFinished(() => program.kill9());
  const [url, token] = program.match.split(' ').map((each) => each.replace(/^\w+=/, ''));
  const redis = new Redis({ url: url ?? '', token: token ?? '' });
  const store = upstashStore({ redis, prefix: `test-${randomUUID()}` });
  const run = randomUUID();
  await store.open(run, { principal: 'alice' }, HOUR);
  expect([await step(store, run), await step(store, run)]).toEqual([1, 2]);
  expect((await store.history({ run, workflow: 'checkout' })).length).toBeGreaterThan(0);
  const [one, two] = await redis.multi().set(run, 'ü', { ex: 60 }).get(run).exec();
  expect([one, two]).toEqual(['OK', 'ü']);
  await expect(new Redis({ url: url ?? '', token: 'wrong' }).get(run)).rejects.toThrow(
    'Unauthorized',
  );
});

it.each(['docs/operate/stores.md', 'examples/upstash-local/README.md'])(
  'the command that starts it stands in %s',
  (path) => {
    const command = 'node --import tsx examples/upstash-local/server.ts';
    expect(new Page(path).blocks('sh').join('')).toContain(command);
  },
);
