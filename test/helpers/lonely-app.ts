import cluster from 'node:cluster';
import Database from 'libsql';
import { fsmGate, sessionStore } from '../../src/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from './checkout.ts';
import { startUpstream } from './upstream.ts';

/**
 * A gated app as a host starts it. With `cluster` it runs in a worker, with `sqlite` it has a store
 * that other processes can share.
 */
const [, , ...wishes] = process.argv;

if (wishes.includes('cluster') && cluster.isPrimary) {
  cluster.fork();
  process.on('SIGTERM', () => process.exit());
} else {
  const store = wishes.includes('sqlite')
    ? sqliteStore({ database: new Database(':memory:') })
    : undefined;
  const { url } = await startUpstream({
    middlewares: [sessionStore({ store }), fsmGate(checkoutGate())],
  });
  console.log(`listening at ${url}`);
}
