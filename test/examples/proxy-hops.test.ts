import { createServer, type IncomingHttpHeaders, request } from 'node:http';
import { type AddressInfo, createServer as createTcp, type Server } from 'node:net';
import { mcpProxy } from 'mcp-interlock-cli/proxy';
import { expect, it, onTestFinished } from 'vitest';

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function statusThrough(target: string): Promise<number | undefined> {
  const proxy = mcpProxy(`${target}/mcp`);
  const front = await listen(
    createServer((req, res) => {
      req.headers['x-user'] = 'ann';
      proxy(req, res, () => res.end());
    }),
  );
  return new Promise((resolve, reject) => {
    const headers = {
      ...{ connection: 'Upgrade, HTTP2-Settings, X-Hop, X-User', upgrade: 'h2c', te: 'trailers' },
      ...{ 'http2-settings': 'AAMAAABk', 'x-hop': '1', 'content-type': 'application/json' },
    };
    const sent = request(`${front}/mcp`, { method: 'POST', headers }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode));
    });
    sent.on('error', reject).end('{}');
  });
}

it('keeps the headers of one connection from the server behind', async () => {
  let seen: IncomingHttpHeaders = {};
  const server = createServer((req, res) => {
    seen = req.headers;
    res.end();
  });
  expect(await statusThrough(await listen(server))).toBe(200);
  for (const name of ['upgrade', 'te', 'http2-settings', 'x-hop'])
    expect(seen[name]).toBeUndefined();
  expect(seen['content-type']).toBe('application/json');
  // The app has set it, so no client can take it away.
  expect(seen['x-user']).toBe('ann');
});

it('answers 502 at once where a server switches protocols instead of answering', async () => {
  const server = createTcp((socket) => {
    socket.on('error', () => {});
    const switched =
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n';
    socket.once('data', () => socket.write(switched));
  });
  expect(await statusThrough(await listen(server))).toBe(502);
});
