import type { AddressInfo } from 'node:net';
import Database from 'libsql';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { bookingApp } from './app.ts';
import { Slots } from './slots.ts';

const slots = new Slots(process.env.SLOTS_DB ?? 'slots.db');
const store = sqliteStore({ database: new Database(process.env.RUNS_DB ?? 'runs.db') });

const server = bookingApp(slots, store).listen(
  Number(process.env.PORT ?? 3000),
  '127.0.0.1',
  () => {
    const { port } = server.address() as AddressInfo;
    console.log(`http://127.0.0.1:${port}/mcp`);
  },
);
