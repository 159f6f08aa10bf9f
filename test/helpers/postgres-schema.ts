import { randomUUID } from 'node:crypto';
import { Pool, type PoolConfig } from 'pg';
import { sharedPostgres } from '../services/shared.ts';

/** A test's own schema in the shared PostgreSQL, with as many pools as it needs. */
export interface PostgresSchema {
  readonly url: string;
  readonly schema: string;
  connect(config?: PoolConfig): Pool;
  /** Closes a pool before the test ends. */
  disconnect(pool: Pool): Promise<void>;
  drop(): Promise<void>;
}

export async function makePostgresSchema(): Promise<PostgresSchema> {
  const url = await sharedPostgres();
  const schema = `test_${randomUUID().replaceAll('-', '')}`;
  const pools = new Set<Pool>();

  const connect = (config: PoolConfig = {}) => {
    const pool = new Pool({ connectionString: url, max: 4, ...config });
    pools.add(pool);
    return pool;
  };
  const disconnect = async (pool: Pool) => {
    pools.delete(pool);
    await pool.end();
  };
  const drop = async () => {
    await connect().query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await Promise.all([...pools].map(disconnect));
  };
  return { url, schema, connect, disconnect, drop };
}
