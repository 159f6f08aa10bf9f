import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis as Upstash } from '@upstash/redis';
import { Redis } from 'ioredis';
import { Client } from 'pg';
import { describe, expect, it } from 'vitest';
import { freePort, isFree } from './ports.ts';
import { startPostgres } from './postgres.ts';
import { startRedis } from './redis.ts';
import { sharedRedis } from './shared.ts';
import { startUpstashRest } from './upstash-rest.ts';

const PATIENCE = { timeout: 20_000, interval: 50 };
const POSTGRES = new URL('./postgres.ts', import.meta.url).href;

describe("the tests' own servers", () => {
  it('are on the same port with the same data after a kill and a restart', {
    timeout: 60_000,
  }, async () => {
    const [redis, postgres] = await Promise.all([
      startRedis({ appendfsync: 'always' }),
      startPostgres(),
    ]);
    try {
      await onRedis(redis.url, (client) => client.set('key', 'value'));
      await onPostgres(postgres.url, 'create table t as select 42 as n');
      await Promise.all([redis.kill9(), postgres.kill9()]);
      expect(await Promise.all([isFree(redis.port), isFree(postgres.port)])).toEqual([true, true]);
      await Promise.all([redis.restart(), postgres.restart()]);
      expect(await onRedis(redis.url, (client) => client.get('key'))).toBe('value');
      expect(await onPostgres(postgres.url, 'select n from t')).toEqual([{ n: 42 }]);
    } finally {
      await Promise.all([redis.stop(), postgres.stop()]);
    }
    expect(await Promise.all([isFree(redis.port), isFree(postgres.port)])).toEqual([true, true]);
  });

  it('stand on ports that the system gives to no connection', async () => {
    const ports = await Promise.all(Array.from({ length: 50 }, () => freePort()));
    expect(Math.max(...ports)).toBeLessThan(32_768 - 10_000);
  });

  it('do not outlive the process that started them, even one that is killed', {
    timeout: 60_000,
  }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'interlock-orphans-'));
    await chmod(folder, 0o755);
    const program = `
      import { startRedis } from ${JSON.stringify(new URL('./redis.ts', import.meta.url).href)};
      import { startPostgres } from ${JSON.stringify(POSTGRES)};
      const services = await Promise.all([startRedis(), startPostgres()]);
      console.log(JSON.stringify(services.map(({ port }) => port)));
      setInterval(() => {}, 1000);
    `;
    const args = ['--import', 'tsx', '--input-type=module', '--eval', program];
    const owner = spawn(process.execPath, args, { env: { ...process.env, TMPDIR: folder } });
    const [line] = await once(owner.stdout, 'data');
    const ports: number[] = JSON.parse(String(line));
    expect(await Promise.all(ports.map(isFree))).toEqual([false, false]);

    owner.kill('SIGKILL');
    await expect.poll(() => Promise.all(ports.map(isFree)), PATIENCE).toEqual([true, true]);
    await expect.poll(() => serverFolders(folder), PATIENCE).toEqual([]);
    await rm(folder, { recursive: true });
  });
});

describe("the tests' own Upstash", () => {
  it('answers single commands, pipelines and transactions as the real client expects', async () => {
    const rest = await startUpstashRest(await sharedRedis());
    try {
      for (const settings of [{}, { responseEncoding: false as const }]) {
        const client = new Upstash({
          url: rest.url,
          token: rest.token,
          enableAutoPipelining: false,
          ...settings,
        });
        const key = `test-${crypto.randomUUID()}`;
        expect(await client.set(key, { ünï: [1] }, { ex: 60 })).toBe('OK');
        expect(await client.get(key)).toEqual({ ünï: [1] });
        expect(await client.pipeline().exists(key).get('no such key').exec()).toEqual([1, null]);
        expect(await client.multi().strlen(key).del(key).exec()).toEqual([13, 1]);
        await expect(client.eval("return redis.error_reply('NO')", [], [])).rejects.toThrow(/NO/);
      }
      const stranger = new Upstash({ url: rest.url, token: 'wrong' });
      await expect(stranger.get('key')).rejects.toThrow(/Unauthorized/);
    } finally {
      await rest.stop();
    }
  });
});

async function serverFolders(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => /^interlock-(redis|postgres)-/.test(name));
}

async function onRedis<T>(url: string, ask: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url);
  try {
    return await ask(client);
  } finally {
    client.disconnect();
  }
}

async function onPostgres(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}
