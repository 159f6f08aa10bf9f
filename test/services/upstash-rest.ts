import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { answerRest, type RestAnswer } from '../../examples/upstash-local/rest.ts';

/** How a request fails. */
export type Fault =
  /** The connection breaks after the server has executed the command: the answer is lost. */
  | 'drop-answer'
  /** The connection breaks before the server executes the command. */
  | 'drop-request'
  /** The server answers 500 and executes nothing. */
  | 'status-500'
  /** The server executes the command so much later. */
  | { readonly delayMs: number };

export interface UpstashRest {
  readonly url: string;
  readonly token: string;
  /** Every executed command, in order: name first. */
  readonly commands: readonly (readonly string[])[];
  /** How many HTTP requests came, those with a fault included. */
  readonly requests: number;
  /** Gives one of these faults to each of the next requests, in order. */
  inject(...faults: readonly Fault[]): void;
  stop(): Promise<void>;
}

/**
 * Fails at once while its server is away, so that only the client under test waits or tries again.
 */
async function impatientClient(url: string): Promise<Redis> {
  const redis = new Redis(url, {
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 50,
  });
  redis.on('error', () => {});
  await once(redis, 'ready');
  return redis;
}

/** Speaks the REST protocol of Upstash on the loopback interface and forwards to a real Redis. */
export async function startUpstashRest(redisUrl: string): Promise<UpstashRest> {
  const token = 'a-token-of-the-tests';
  const redis = await impatientClient(redisUrl);
  const commands: (readonly string[])[] = [];
  const faults: Fault[] = [];
  let requests = 0;

  const options = {
    redis,
    token,
    onCommand: (command: readonly string[]) => void commands.push(command),
  };

  async function handle(request: IncomingMessage): Promise<RestAnswer | undefined> {
    requests += 1;
    const fault = faults.shift();
    if (fault === 'drop-request') return void request.socket.destroy();
    if (fault === 'status-500') return { status: 500, body: { error: 'internal error' } };
    if (typeof fault === 'object') await delay(fault.delayMs);
    const answer = await answerRest(request, options);
    return fault === 'drop-answer' ? void request.socket.destroy() : answer;
  }

  const server = createServer(async (request, response) => {
    const answer = await handle(request).catch((error) => ({
      status: 500,
      body: { error: String(error) },
    }));
    if (answer === undefined) return;
    const { status, body } = answer;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    token,
    commands,
    get requests() {
      return requests;
    },
    inject: (...next) => void faults.push(...next),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      redis.disconnect();
    },
  };
}
