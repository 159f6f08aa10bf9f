import type { AddressInfo } from 'node:net';
import Database from 'libsql';
import { documentStore } from 'mcp-interlock/stores/document';
import { approvalApp } from './app.ts';
import { CLEAN_UP, TABLE, tableDocuments } from './documents.ts';

const database = new Database(process.env.RUNS ?? 'runs.db');
// Where another process writes, a statement waits so long. It must be less than `storeDeadlineMs`.
database.exec('PRAGMA busy_timeout = 1500');
database.exec(TABLE);

// Not each backend removes by itself what has expired.
const cleanUp = database.prepare(CLEAN_UP);
setInterval(() => cleanUp.run(Date.now()), 3_600_000).unref();

const store = documentStore(tableDocuments(database));

const server = approvalApp(store).listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://127.0.0.1:${port}/mcp`);
});
