import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { aloneInMemory } from '../../src/doors/session-store.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession } from '../helpers/raw.ts';
import { ask } from '../helpers/two-eras.ts';

const APP = new URL('../helpers/lonely-app.ts', import.meta.url).pathname;

const beginSession = (url: URL): Promise<unknown> => RawSession.begin(url);
const askAlone = (url: URL): Promise<unknown> => ask(url, 'tools/list');

/** All warnings of a process that gets each request twice. */
async function warningsOf(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  request: (url: URL) => Promise<unknown>,
): Promise<string[]> {
  const { match, child } = await startProgram(APP, { args, env, ready: ADDRESS });
  let printed = '';
  child.stderr?.on('data', (chunk) => {
    printed += String(chunk);
  });
  try {
    await request(new URL(match));
    await request(new URL(match));
  } finally {
    // Once the process and its workers have ended, all their output is here.
    const closed = once(child, 'close');
    child.kill('SIGTERM');
    await closed;
  }
  return printed.match(/InterlockWarning: .*/g) ?? [];
}

// Concurrent, since each process of these tests mostly waits for its next request.
describe.concurrent('runs in the memory of one process of several', () => {
  it.each([
    ['a worker of node:cluster, at its first session', ['cluster'], {}, beginSession],
    ['Cloud Run, at its first request without one', [], { K_SERVICE: 'shop' }, askAlone],
    ['production, at its first session', [], { NODE_ENV: 'production' }, beginSession],
  ])('are warned of once: %s', async (_, args, env, request) => {
    const warnings = await warningsOf(args, env, request);
    expect(warnings).toEqual([
      expect.stringMatching(/in the memory of this process, .*"Session not found"/),
    ]);
    const [[variable] = []] = Object.entries(env);
    expect(warnings[0]).toMatch(args.length > 0 ? 'node:cluster' : `${variable} is`);
  });

  it.each([
    ['the process is the only one', [], {}],
    ['the store is one that others can share', ['cluster', 'sqlite'], { K_SERVICE: 'shop' }],
    ['production has such a store', ['cluster', 'sqlite'], { NODE_ENV: 'production' }],
  ])('are not warned of where %s', async (_, args, env) => {
    expect(await warningsOf(args, env, beginSession)).toEqual([]);
  });

  it.each([
    ['PM2', { pm_id: '0' }, 'PM2 (pm_id is set)'],
    ['PM2 in its cluster mode', { NODE_APP_INSTANCE: '3' }, 'PM2 (NODE_APP_INSTANCE is set)'],
    ['Vercel', { VERCEL: '1', AWS_LAMBDA_FUNCTION_NAME: 'x' }, 'Vercel (VERCEL is set)'],
    ['AWS Lambda', { AWS_LAMBDA_FUNCTION_NAME: 'x' }, 'AWS Lambda (AWS_LAMBDA_FUNCTION_NAME'],
    ['Cloud Run', { K_SERVICE: 'x' }, 'Cloud Run'],
    ['Kubernetes', { KUBERNETES_SERVICE_HOST: '10.0.0.1' }, 'Kubernetes (KUBERNETES_SERVICE_HOST'],
    ['NODE_ENV=production', { NODE_ENV: 'production' }, 'NODE_ENV is production'],
  ])('are recognised under %s', (_, env, name) => {
    expect(aloneInMemory(env, false)).toContain(name);
  });

  it('need no warning in a process that seems to be the only one', () => {
    expect(aloneInMemory({ VERCEL: '', NODE_ENV: 'development' }, false)).toBeUndefined();
  });
});
