import { Redis } from 'ioredis';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { postgresBus } from '../../src/bus/postgres.ts';
import { redisBus } from '../../src/bus/redis.ts';
import type { NotificationBus } from '../../src/notify/bus.ts';
import { latch } from '../helpers/latch.ts';

/** Hears a message, closes all but the bus, and should then end. */
const [kind, url = '', unsubscribes] = process.argv.slice(2);

const { bus, close } = await open();
// Its connections keep no process alive.
const untilHeard = setInterval(() => {}, 60_000);
const heard = latch();
const stop = await bus.subscribe(heard.open);
await bus.publish('"a"');
await heard.opened;
clearInterval(untilHeard);
if (unsubscribes === 'yes') await stop();
process.stdout.write('done');
// A pool does not end while it has a client out.
void close();

async function open(): Promise<{ bus: NotificationBus; close: () => unknown }> {
  if (kind === 'postgres-left-open') {
    const pool = new Pool({ connectionString: url, allowExitOnIdle: true });
    return { bus: postgresBus({ pool, heartbeatMs: 100 }), close: () => {} };
  }
  if (kind === 'postgres') {
    const pool = new Pool({ connectionString: url });
    return { bus: postgresBus({ pool }), close: () => pool.end() };
  }
  if (kind === 'ioredis') {
    const client = new Redis(url);
    return { bus: redisBus({ client }), close: () => client.disconnect() };
  }
  const client = createClient({ url });
  await client.connect();
  return { bus: redisBus({ client }), close: () => client.destroy() };
}
