import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * One instance of a function: starts cold, serves one request, and ends as soon as nothing keeps
 * it. As the launcher of `@vercel/node` does, it gives an exported app the untouched request. For a
 * plain function it reads the body, and `req.body` parses that on demand. It does not restore the
 * stream then, as that launcher does and others do not.
 */
export function serveOnce(handler: RequestListener & { listen?: unknown }): void {
  const server = createServer(async (req, res) => {
    server.close();
    if (typeof handler.listen !== 'function') await readBody(req);
    handler(req, res);
  });
  server.listen(0, '127.0.0.1', () => {
    process.send?.((server.address() as AddressInfo).port, () => process.disconnect());
  });
}

async function readBody(req: IncomingMessage): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const isJson = req.headers['content-type'] === 'application/json';
  Object.defineProperty(req, 'body', {
    configurable: true,
    enumerable: true,
    get: () => (isJson ? JSON.parse(text) : undefined),
  });
}
