import type { AddressInfo } from 'node:net';
import { Pool } from 'pg';
import { orderApp } from './app.ts';
import type { User } from './auth.ts';

const pool = new Pool({
  connectionString: process.env.DATABASE_URL,
  connectionTimeoutMillis: 1000,
});
pool.on('error', console.error);

const users = new Map<string, User>([
  [process.env.AGENT_TOKEN ?? 'agent-token', { name: 'agent-7', role: 'agent' }],
  [process.env.MANAGER_TOKEN ?? 'manager-token', { name: 'mia', role: 'manager' }],
  [process.env.CARRIER_TOKEN ?? 'carrier-token', { name: 'parcels', role: 'carrier' }],
]);

const app = await orderApp({ pool, schema: process.env.SCHEMA ?? 'public', users });

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://127.0.0.1:${port}/mcp`);
});
