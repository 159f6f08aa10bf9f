import Database from 'libsql';
import { Pool } from 'pg';
import { postgresStore } from '../../src/stores/postgres.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import type { Method, StoreAddress, StoreAnswer, StoreCall } from './store-process.ts';
import { takeSteps } from './take-steps.ts';

const store = await open(JSON.parse(process.argv[2] ?? ''));

process.on('message', async ({ id, method, args }: StoreCall) => {
  try {
    answer({ id, value: await operation(method).apply(store, [...args]) });
  } catch (error) {
    answer({ id, error: String(error) });
  }
});
process.on('disconnect', () => process.exit());
process.send?.('ready');

async function open(address: StoreAddress): Promise<AtomicStateStore> {
  if (address.kind === 'sqlite') {
    return sqliteStore({ database: new Database(address.file), busyTimeoutMs: 30_000 });
  }
  const pool = new Pool({ connectionString: address.url, max: 4 });
  const opened = postgresStore({ pool, schema: address.schema });
  if (address.migrate) await opened.migrate();
  return opened;
}

function operation(method: Method): (...args: unknown[]) => Promise<unknown> {
  const known = method === 'takeSteps' ? takeSteps.bind(undefined, store) : store[method];
  return known as (...args: unknown[]) => Promise<unknown>;
}

function answer(message: StoreAnswer): void {
  process.send?.(message);
}
