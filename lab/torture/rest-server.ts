/**
 * Upstash's REST interface in a process of its own, so that it can be killed. Takes the address of
 * its Redis and a port, and sends its token to its parent once it serves.
 */
import { connect, createServer } from 'node:net';
import { startUpstashRest } from '../../test/services/upstash-rest.ts';

const [, , redisUrl = '', port = ''] = process.argv;
const rest = await startUpstashRest(redisUrl);
const inner = Number(new URL(rest.url).port);

/** The service chooses its port by itself; clients need one that is the same after a restart. */
const outer = createServer((client) => {
  const service = connect(inner, '127.0.0.1');
  client.setNoDelay().pipe(service.setNoDelay()).pipe(client);
  client.on('error', () => service.destroy());
  service.on('error', () => client.destroy());
});
outer.listen(Number(port), '127.0.0.1', () => process.send?.(rest.token));
process.on('disconnect', () => process.exit());
