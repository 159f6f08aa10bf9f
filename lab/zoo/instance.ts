/** One of two instances: mounts what its parent orders, in front of a shop, with a shared Redis. */
import type { AddressInfo } from 'node:net';
import express, { type RequestHandler } from 'express';
import { mcpProxy } from 'mcp-interlock-cli/proxy';
import { createClient } from 'redis';
import { redisBus } from '../../src/bus/redis.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { authenticate } from '../../test/helpers/two-eras.ts';
import { type MountName, middlewaresOf } from './mounts.ts';

/** Mounts a play, or says what its operator was told. */
type Order =
  | { readonly id: string; readonly mount: MountName; readonly target: string }
  | { readonly id: string };

const client = createClient({ url: process.argv[2] ?? '' });
client.on('error', () => {});
await client.connect();

const told = new Map<string, string[]>();
const app = express();
app.use(authenticate);
const server = app.listen(0, '127.0.0.1', () =>
  process.send?.({ port: (server.address() as AddressInfo).port }),
);

// Each mount listens to the server's end.
server.setMaxListeners(0);

process.on('message', (order: Order) => {
  const said = told.get(order.id) ?? [];
  told.set(order.id, said);
  if ('mount' in order) {
    const shared = {
      store: redisStore({ client, prefix: order.id }),
      bus: redisBus({ client, channel: order.id }),
    };
    const middlewares = middlewaresOf(order.mount, (each) => said.push(each), shared);
    const handlers = [...middlewares, mcpProxy(order.target)] as readonly RequestHandler[];
    app.all(`/${order.id}`, ...handlers);
  }
  process.send?.({ told: said.join('\n') });
});
process.on('disconnect', () => process.exit());
