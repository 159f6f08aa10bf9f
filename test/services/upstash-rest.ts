import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';

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

type Result = { readonly result: unknown } | { readonly error: string };
type Command = readonly [name: string, ...args: string[]];

/** Speaks the REST protocol of Upstash on the loopback interface and forwards to a real Redis. */
export async function startUpstashRest(redisUrl: string): Promise<UpstashRest> {
  const token = 'a-token-of-the-tests';
  const redis = await impatientClient(redisUrl);
  const commands: Command[] = [];
  const faults: Fault[] = [];
  let requests = 0;

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    requests += 1;
    const body = await bodyOf(request);
    if (request.headers.authorization !== `Bearer ${token}`)
      return answer(response, 401, { error: 'Unauthorized' });
    const fault = faults.shift();
    if (fault === 'drop-request') return void request.socket.destroy();
    if (fault === 'status-500') return answer(response, 500, { error: 'internal error' });
    if (typeof fault === 'object') await delay(fault.delayMs);

    const results = await execute(redis, request.url ?? '/', JSON.parse(body), commands);
    if (fault === 'drop-answer') return void request.socket.destroy();
    const inBase64 = request.headers['upstash-encoding'] === 'base64';
    const encoded = Array.isArray(results)
      ? results.map((one) => encode(one, inBase64))
      : encode(results, inBase64);
    answer(response, 'error' in results ? 400 : 200, encoded);
  }

  const server = createServer((request, response) => {
    handle(request, response).catch((error) => answer(response, 500, { error: String(error) }));
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

async function execute(
  redis: Redis,
  path: string,
  body: unknown,
  log: Command[],
): Promise<Result | Result[]> {
  if (path === '/') return one(redis, body as Command, log);
  const list = body as Command[];
  if (path === '/pipeline') {
    const results: Result[] = [];
    for (const command of list) results.push(await one(redis, command, log));
    return results;
  }
  if (path === '/multi-exec') {
    log.push(...list);
    const transaction = redis.multi();
    for (const command of list) transaction.callBuffer(...texts(command));
    const replies = await transaction.exec();
    return (replies ?? []).map(([error, result]) =>
      error ? { error: error.message } : { result },
    );
  }
  return { error: `ERR no such path: ${path}` };
}

async function one(redis: Redis, command: Command, log: Command[]): Promise<Result> {
  log.push(texts(command));
  try {
    return { result: await redis.callBuffer(...texts(command)) };
  } catch (error) {
    if (error instanceof Error && error.name === 'ReplyError') return { error: error.message };
    throw error;
  }
}

/** The client sends numbers as numbers. */
function texts([name, ...args]: Command): Command {
  return [name, ...args.map(String)];
}

function encode(result: Result, inBase64: boolean): unknown {
  return 'error' in result ? result : { result: encodeValue(result.result, inBase64) };
}

function encodeValue(value: unknown, inBase64: boolean): unknown {
  if (Buffer.isBuffer(value)) return value.toString(inBase64 ? 'base64' : 'utf8');
  return Array.isArray(value) ? value.map((item) => encodeValue(item, inBase64)) : value;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk;
  return body;
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
