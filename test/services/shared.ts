import { inject } from 'vitest';
import { SERVICES, type ServiceName } from './binaries.ts';

/**
 * The address of the Redis that all tests of this run share; it is started for the first that asks.
 * Whoever uses it keeps to keys of its own. `REDIS_URL` names another server.
 */
export const sharedRedis = (): Promise<string> => shared('redis');

/**
 * The address of the PostgreSQL that all tests of this run share, as above. `DATABASE_URL` names
 * another server.
 */
export const sharedPostgres = (): Promise<string> => shared('postgres');

async function shared(name: ServiceName): Promise<string> {
  const own = process.env[SERVICES[name].url];
  if (own) return own;
  const response = await fetch(`${inject('services')}/${name}`);
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return text;
}
