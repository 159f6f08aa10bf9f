import type { AddressInfo } from 'node:net';
import { approvalApp } from './app.ts';
import { documentStore } from './document-store.ts';
import { fileDocuments } from './documents.ts';

const store = documentStore(fileDocuments(process.env.RUNS ?? 'runs'));

const server = approvalApp(store).listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://127.0.0.1:${port}/mcp`);
});
