import { randomUUID } from 'node:crypto';
import { Pool } from 'pg';
import { beforeAll, describe, it } from 'vitest';
import { postgresStore } from '../../src/stores/postgres.ts';
import { describeStateStore } from '../../src/testing/index.ts';
import { sharedPostgres } from '../services/shared.ts';

const schema = `interlock_${randomUUID().slice(0, 8)}`;
let url: string;

beforeAll(async () => {
  url = await sharedPostgres();
  const pool = new Pool({ connectionString: url });
  await postgresStore({ pool, schema }).migrate();
  await pool.end();
});

async function makeStore() {
  const pools: Pool[] = [];
  const reopen = async () => {
    const pool = new Pool({ connectionString: url, max: 4 });
    pools.push(pool);
    return postgresStore({ pool, schema });
  };
  const close = async () => {
    await Promise.all(pools.map((pool) => pool.end()));
  };
  return { store: await reopen(), reopen, close };
}

describeStateStore('postgresStore()', makeStore, { describe, it });
