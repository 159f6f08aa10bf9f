import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import { serveRest } from './rest.ts';

const redis = new Redis(process.env.REDIS_URL ?? 'redis://localhost', { maxRetriesPerRequest: 0 });
redis.on('error', console.error);

const token = process.env.UPSTASH_REDIS_REST_TOKEN ?? 'local';
const server = createServer(serveRest({ redis, token }));
server.listen(Number(process.env.PORT ?? 8079), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`UPSTASH_REDIS_REST_URL=http://127.0.0.1:${port} UPSTASH_REDIS_REST_TOKEN=${token}`);
});
