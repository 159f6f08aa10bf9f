import { readFileSync } from 'node:fs';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { redisBus } from '../../src/bus/redis.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { everyOperation } from '../helpers/operations.ts';
import { startPostgres } from '../services/postgres.ts';
import { startRedis } from '../services/redis.ts';

const page = readFileSync('docs/operate/stores.md', 'utf8');

/** The first block of code in the page that begins so. */
function blockOf(start: string): string {
  const at = page.indexOf(`\n${start}`) + 1;
  return page.slice(at, page.indexOf('\n```', at));
}

it('PostgreSQL works with a role that cannot create, as the page sets it up', async () => {
  const server = await startPostgres();
  onTestFinished(() => server.stop());
  const admin = new Pool({ connectionString: server.url });
  await admin.query(`CREATE ROLE shop_app LOGIN PASSWORD 'x'`);
  await admin.query(blockOf('CREATE ROLE shop_owner'));
  await admin.end();

  const owner = new Pool({ connectionString: server.url, options: '-c role=shop_owner' });
  await postgresStore({ pool: owner, schema: 'interlock' }).migrate();
  await owner.end();

  const pool = new Pool({
    connectionString: server.url.replace(/\/\/[^@]*@/, '//').replace('//', '//shop_app:x@'),
  });
  const store = postgresStore({ pool, schema: 'interlock' });
  await store.migrate();
  for (const operate of Object.values(everyOperation(store, 'a run'))) await operate();
  await store.purge({ principal: 'alice' });
  await expect(pool.query('CREATE TABLE interlock.other (a int)')).rejects.toThrow('permission');
  await pool.end();
}, 60_000);

it('Redis works with a user of few rights, as the page sets it up', async () => {
  const server = await startRedis();
  onTestFinished(() => server.stop());
  const admin = await createClient({ url: server.url }).connect();
  onTestFinished(() => admin.destroy());
  for (const line of blockOf('ACL SETUSER').split('\n')) await admin.sendCommand(line.split(' '));
  const user = { username: 'shop', password: 'password' };
  const client = await createClient({ url: server.url, ...user }).connect();
  onTestFinished(() => client.destroy());

  const store = redisStore({ client });
  for (const operate of Object.values(everyOperation(store, 'a run'))) await operate();
  await store.count({ workflow: 'checkout', forMs: 0 });
  await store.rebuildIndex();
  await store.purge();
  const bus = redisBus({ client });
  const heard: string[] = [];
  const stop = await bus.subscribe((message) => heard.push(message));
  await bus.publish('"hello"');
  await expect.poll(() => heard).toEqual(['"hello"']);
  await stop();
  expect(await admin.sendCommand(['ACL', 'LOG'])).toEqual([]);
  await expect(client.set('other', '1')).rejects.toThrow('NOPERM');
}, 60_000);
