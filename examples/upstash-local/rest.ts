import type { IncomingMessage, RequestListener } from 'node:http';
import type { Redis } from 'ioredis';

/** What Upstash answers to a request: an HTTP status, and a body of JSON. */
export interface RestAnswer {
  readonly status: number;
  readonly body: unknown;
}

export interface RestOptions {
  readonly redis: Redis;
  /** The token that clients must send. */
  readonly token: string;
  /** Called for each command, name first, before Redis gets it. */
  readonly onCommand?: (command: Command) => void;
}

type Command = readonly [name: string, ...args: string[]];
type Result = { readonly result: unknown } | { readonly error: string };

/** Serves the REST interface of Upstash in front of a Redis, as far as `@upstash/redis` uses it. */
export function serveRest(options: RestOptions): RequestListener {
  return (request, response) => {
    const answered = answerRest(request, options).catch(
      (error): RestAnswer => ({ status: 500, body: { error: String(error) } }),
    );
    void answered.then(({ status, body }) => {
      const headers = { 'content-type': 'application/json' };
      response.writeHead(status, headers).end(JSON.stringify(body));
    });
  };
}

/** @throws where Redis cannot be asked; an error that Redis gives is an answer */
export async function answerRest(
  request: IncomingMessage,
  options: RestOptions,
): Promise<RestAnswer> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk;
  if (request.headers.authorization !== `Bearer ${options.token}`)
    return { status: 401, body: { error: 'Unauthorized' } };
  const results = await execute(request.url ?? '/', JSON.parse(text), options);
  const inBase64 = request.headers['upstash-encoding'] === 'base64';
  const body = Array.isArray(results)
    ? results.map((each) => encode(each, inBase64))
    : encode(results, inBase64);
  return { status: 'error' in results ? 400 : 200, body };
}

async function execute(
  path: string,
  body: unknown,
  options: RestOptions,
): Promise<Result | Result[]> {
  if (path === '/') return one(body as Command, options);
  const list = body as Command[];
  if (path === '/pipeline') {
    const results: Result[] = [];
    for (const command of list) results.push(await one(command, options));
    return results;
  }
  if (path !== '/multi-exec') return { error: `ERR no such path: ${path}` };
  const transaction = options.redis.multi();
  for (const command of list.map(texts)) {
    options.onCommand?.(command);
    transaction.callBuffer(...command);
  }
  const replies = (await transaction.exec()) ?? [];
  return replies.map(([error, result]) => (error ? { error: error.message } : { result }));
}

async function one(sent: Command, { redis, onCommand }: RestOptions): Promise<Result> {
  const command = texts(sent);
  onCommand?.(command);
  try {
    return { result: await redis.callBuffer(...command) };
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
