import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import express, { type RequestHandler } from 'express';
import express4 from 'express4';
import { memoryStore } from 'mcp-interlock';
import { type Runs, runsOf } from 'mcp-interlock/runs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { send } from '../../../test/helpers/raw.ts';
import { serve } from '../../../test/helpers/serve.ts';
import type { RunDetail, SessionInfo } from '../src/api.ts';
import { type Authorization, inspector } from '../src/index.ts';
import { Seal } from '../src/seal.ts';
import { checkoutGate, codeOf, hold, put, startSite } from './site.ts';

const SECRET = 'a secret of at least 32 characters';
const HTML = { accept: 'text/html,application/xhtml+xml' };

function inEnvironment(name: string | undefined): void {
  const before = process.env.NODE_ENV;
  onTestFinished(() => {
    process.env.NODE_ENV = before;
  });
  if (name === undefined) delete process.env.NODE_ENV;
  else process.env.NODE_ENV = name;
}

describe('without authorize', () => {
  const OPEN = { authorize: undefined };

  it.each(['production', 'test', undefined])('shows nothing where NODE_ENV is %s', async (name) => {
    inEnvironment(name);
    const site = await startSite(OPEN);
    const data = await site.get('api/workflows');
    expect([data.status, codeOf(data)]).toEqual([403, 'unauthorized']);
    const page = await site.get<string>('', HTML);
    expect(page.status).toBe(403);
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(page.body).toContain('give inspector({ authorize })');
    expect(page.body).not.toMatch(/style=|<script/);
  });

  it('shows a developer all but the keys of runs, and says that it is open', async () => {
    inEnvironment('development');
    const site = await startSite(OPEN);
    expect((await site.get<SessionInfo>('api/session')).body).toMatchObject({
      can: { read: true, write: true, keys: false },
      development: true,
      actor: 'developer',
    });
    const session = await site.session();
    await session.call('cart_add_item');
    expect((await site.list()).text).not.toContain(session.id);
  });

  it.each<[what: string, headers: Record<string, string>]>([
    ['a name that was made to lead here', { host: 'evil.example' }],
    ['a name that only begins like ours', { host: 'localhost.evil.example:80' }],
    ['an address of the network', { host: '192.168.1.7' }],
    ['a proxy on this machine', { host: 'localhost', 'x-forwarded-for': '203.0.113.9' }],
    ['another proxy', { host: 'localhost', forwarded: 'for=203.0.113.9' }],
  ])('shows a developer nothing by %s', async (_, headers) => {
    inEnvironment('development');
    const site = await startSite(OPEN);
    expect(codeOf(await site.get('api/workflows', headers))).toBe('unauthorized');
    expect((await site.get('', { ...HTML, ...headers })).status).toBe(403);
  });
});

describe('authorize', () => {
  it.each<[what: string, answer: unknown]>([
    ['false', false],
    ['nothing', undefined],
    ['true', true],
    ['an object without read', { write: true }],
    ['read that is only truthy', { read: 1 }],
  ])('refuses by %s', async (_, answer) => {
    const authorize = () => answer as Authorization;
    const site = await startSite({ authorize });
    for (const path of ['', 'api/session', 'api/workflows', 'api/events', 'nowhere'])
      expect((await site.get(path)).status, path).toBe(403);
    const page = await site.get<string>('', HTML);
    expect(page.body).toContain('Sign in');
    expect(page.body).not.toContain('authorize');
  });

  it.each<[what: string, fail: () => Promise<never>]>([
    [
      'throws',
      () => {
        throw new Error('ldap://secret');
      },
    ],
    ['rejects', () => Promise.reject(new Error('ldap://secret'))],
  ])('refuses where it %s, and tells the app alone why', async (_, authorize) => {
    const site = await startSite({ authorize });
    const { status, text } = await site.get('api/workflows');
    expect(status).toBe(403);
    expect(text).not.toContain('ldap');
    expect(site.errors).toEqual([expect.objectContaining({ message: 'ldap://secret' })]);
  });

  it('gives keys and deeds to those alone who may have them', async () => {
    const store = memoryStore();
    const authorize = () => ({ read: true, actor: 'rita' }) as const;
    const site = await startSite({ authorize }, { store });
    await put(store, 'run', 'payment');
    await hold(store, 'run');
    const seen = await site.look('run');
    expect(seen).not.toHaveProperty('key');
    expect(seen.step).not.toHaveProperty('idempotencyKey');
    for (const list of ['held', 'open'])
      expect((await site.list(`?list=${list}`)).text).not.toContain('"run"');
    const deeds = {
      resolve: { outcome: 'failed', step: seen.step?.id },
      send: { event: 'CANCEL', version: 1 },
      restart: { version: 1 },
      delete: { digest: seen.digest },
    };
    for (const [deed, body] of Object.entries(deeds)) {
      const answer = await site.post(site.of(`runs/${seen.id}/${deed}`), body);
      expect([deed, answer.status, codeOf(answer)]).toEqual([deed, 403, 'read-only']);
    }
    expect((await site.look('run')).status).toBe('held');
  });
});

describe('a request of another site', () => {
  it.each<[what: string, headers: Record<string, string>]>([
    ['from another site', { 'sec-fetch-site': 'cross-site' }],
    ['from another host of the same site', { 'sec-fetch-site': 'same-site' }],
    ['of an older browser', { origin: 'https://evil.example' }],
    ['of a page without an origin', { origin: 'null' }],
    ['of our name at another port', { origin: 'http://127.0.0.1:1' }],
    ['that calls itself ours, and is not', { origin: 'http://evil.example', 'sec-fetch-site': '' }],
  ])('%s changes and reads nothing, with the right token too', async (_, headers) => {
    const site = await startSite();
    const session = await site.session();
    await session.call('cart_add_item');
    const id = await site.idOf(session.id);
    const sent = await site.post(
      site.of(`runs/${id}/send`),
      { event: 'CLEAR', version: 1 },
      headers,
    );
    expect([sent.status, codeOf(sent)]).toEqual([403, 'cross-site']);
    expect(codeOf(await site.get(site.of(`runs/${id}`), headers))).toBe('cross-site');
    expect((await site.look(session.id)).version).toBe(1);
  });

  it('is told from one of the page itself', async () => {
    const site = await startSite();
    const own = [{ 'sec-fetch-site': 'same-origin' }, { origin: site.url.origin }];
    for (const headers of own)
      expect((await site.post(site.of('what-if'), {}, headers)).status).toBe(200);
  });

  it('is answered without a word that lets its browser read it', async () => {
    const site = await startSite();
    const { headers } = await site.get('api/workflows', { origin: site.url.origin });
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    expect(headers).toMatchObject({
      'cross-origin-resource-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
    });
  });
});

describe('the token', () => {
  it('is needed for every POST, and good for one person and for a while', async () => {
    let time = 1_700_000_000_000;
    let actor = 'olga';
    const authorize = () => ({ read: true, write: true, actor }) as const;
    const site = await startSite({ authorize, now: () => time });
    const tryWith = (token: string) =>
      site.post(site.of('what-if'), {}, { 'x-interlock-token': token });
    const { token, renewAfterMs } = (await site.get<SessionInfo>('api/session')).body;
    expect((await tryWith(token)).status).toBe(200);
    const [expires, signature = ''] = token.split('.');
    const later = `${(time + 10 * renewAfterMs).toString(36)}.${signature}`;
    const foreign = `${expires}.${new Seal().sign(`${expires} olga`)}`;
    for (const wrong of ['', 'x', token.slice(0, -1), `${token}.x`.slice(1), later, foreign])
      expect(codeOf(await tryWith(wrong)), wrong).toBe('token');
    actor = 'eve';
    expect(codeOf(await tryWith(token))).toBe('token');
    actor = 'olga';
    time += 2 * renewAfterMs - 1;
    expect((await tryWith(token)).status).toBe(200);
    time += 1;
    expect(codeOf(await tryWith(token))).toBe('token');
  });
});

describe('a malformed request', () => {
  it('comes to no file outside of the package', async () => {
    const site = await startSite();
    const targets = [
      '/inspector/../package.json',
      '/inspector/..%2fpackage.json',
      '/inspector/%2e%2e/%2e%2e/package.json',
      '/inspector/assets/..%2f..%2f..%2fpackage.json',
      '/inspector/assets/%5c..%5c..%5cpackage.json',
      '/inspector//etc/passwd',
      '/inspector/%00',
      '/inspector/%ff',
      '/inspector/THIRD-PARTY-NOTICES.txt',
      '/inspector/..%2fTHIRD-PARTY-NOTICES.txt',
      '/inspector/__proto__',
      '/inspector/api/workflows/__proto__/runs',
      '/inspector/api/workflows/toString',
      '/inspector/api/nothing',
      '/inspector/api',
    ];
    for (const target of targets) {
      const { status, text } = await send(site.url, { method: 'GET', target });
      expect([404, 400], `${target}: ${text}`).toContain(status);
      expect(text).not.toMatch(/mcp-interlock"|root:/);
    }
    expect(site.errors).toEqual([]);
  });

  it('puts nothing into a header of the answer', async () => {
    const site = await startSite();
    for (const target of [
      '/inspector?x=%0d%0aset-cookie:%20a=b',
      '/inspector?%0d%0aset-cookie:a',
      '/inspector#//evil.example',
    ]) {
      const { headers } = await send(site.url, { method: 'GET', target });
      expect(headers['set-cookie']).toBeUndefined();
      expect(headers.location ?? './inspector/').toMatch(/^\.\/inspector\/(\?|$)/);
    }
    const { headers } = await send(site.url, { method: 'GET', target: '//evil.example/inspector' });
    expect(headers.location).toBeUndefined();
  });

  it.each(['put', 'delete', 'patch', 'options'])('of method %s is answered 405', async (method) => {
    const site = await startSite();
    for (const path of ['', 'api/workflows', 'api/session', 'api/events', site.of('runs')]) {
      const answer = await send(site.at(path), { method: method.toUpperCase() });
      expect([path, answer.status, answer.headers.allow]).toEqual([path, 405, 'GET, HEAD']);
    }
    const posts = await site.get(site.of('what-if'));
    expect([posts.status, posts.headers.allow]).toEqual([405, 'POST']);
  });

  it('has only JSON for a body, and no more than 256 KiB of it', async () => {
    const site = await startSite();
    const path = site.of('what-if');
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp'])
      expect(codeOf(await site.post(path, '{}', { 'content-type': type }))).toBe('media-type');
    const large = { move: { event: 'x'.repeat(300_000) } };
    const refused = await site.post(path, large);
    expect([refused.status, codeOf(refused)]).toEqual([413, 'too-large']);
    expect(refused.headers.connection).toBe('close');
    expect(codeOf(await site.post(path, '{"a":'))).toBe('bad-request');
  });

  it('does not have an endless body read to its end', async () => {
    const site = await startSite();
    const { token } = (await site.get<SessionInfo>('api/session')).body;
    const socket = connect(Number(site.url.port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    let answer = '';
    socket.on('data', (data) => {
      answer += String(data);
    });
    const ended = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => {});
    socket.write(
      `POST /inspector/${site.of('what-if')} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n` +
        `x-interlock-token: ${token}\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
    const pump = (): void => {
      while (!socket.destroyed && socket.write(chunk));
      if (!socket.destroyed) socket.once('drain', pump);
    };
    pump();
    await ended;
    expect(answer).toContain('HTTP/1.1 413');
  });

  it('is not told of where its client leaves in the middle of a body', async () => {
    const site = await startSite();
    const { token } = (await site.get<SessionInfo>('api/session')).body;
    const socket = connect(Number(site.url.port), '127.0.0.1');
    const path = `/inspector/${site.of('what-if')}`;
    const headers = `host: x\r\ncontent-type: application/json\r\nx-interlock-token: ${token}`;
    socket.write(`POST ${path} HTTP/1.1\r\n${headers}\r\ncontent-length: 99\r\n\r\n{"m`, () =>
      socket.destroy(),
    );
    await new Promise((resolve) => socket.once('close', resolve));
    expect((await site.get('api/workflows')).status).toBe(200);
    expect(site.errors).toEqual([]);
  });

  it.each<[what: string, path: string]>([
    ['an id of no run', 'runs/AAAA'],
    ['an id of another secret', `runs/${new Seal().close('run', 'run')}`],
    ['a sealed place for an id', `runs/${new Seal(SECRET).close('page', 'run')}`],
    ['a run that is no more', `runs/${new Seal(SECRET).close('run', 'no-such-run')}`],
    ['a deed that there is not', `runs/${new Seal(SECRET).close('run', 'run')}/toString`],
  ])('with %s is answered 404', async (_, path) => {
    const site = await startSite({ secret: SECRET });
    const answer = path.endsWith('toString')
      ? await site.post(site.of(path), {})
      : await site.get(site.of(path));
    expect([answer.status, codeOf(answer)]).toEqual([404, 'unknown']);
    expect(answer.text).not.toContain('no-such-run');
  });

  it.each<[query: string]>([
    ['?limit=0'],
    ['?limit=201'],
    ['?limit=1e2'],
    ['?limit=5&limit=6'],
    ['?list=all'],
    ['?state=payed'],
    ['?state='],
    ['?after=AAAA'],
    ['?stuckForMs=-1'],
    ['?limti=5'],
  ])('asks for a list by %s in vain', async (query) => {
    const site = await startSite();
    const answer = await site.list(query);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  });

  it.each<[body: unknown]>([
    [[]],
    [null],
    ['text'],
    [{ event: 'CLEAR' }],
    [{ event: '', version: 1 }],
    [{ event: 'CLEAR', version: -1 }],
    [{ event: 'CLEAR', version: 1, actor: 'root' }],
    [{ event: ['CLEAR'], version: 1 }],
  ])('sends nothing by %j', async (body) => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    await put(store, 'run', 'has_items');
    const id = await site.idOf('run');
    const answer = await site.post(site.of(`runs/${id}/send`), JSON.stringify(body));
    expect(codeOf(answer)).toBe('bad-request');
    expect((await site.look('run')).version).toBe(1);
  });
});

describe('the names of runs', () => {
  it('are opaque, the same each time, and good wherever the secret is the same', async () => {
    const store = memoryStore();
    await put(store, 'the-key-of-a-session', 'payment');
    const one = await startSite({ secret: SECRET }, { store });
    const two = await startSite({ secret: Buffer.from(SECRET) }, { store });
    const other = await startSite({}, { store });
    const id = await one.idOf('the-key-of-a-session');
    expect(id).toBe(await two.idOf('the-key-of-a-session'));
    expect(Buffer.from(id, 'base64url').toString('latin1')).not.toContain('session');
    expect((await two.get<RunDetail>(two.of(`runs/${id}`))).status).toBe(200);
    expect(codeOf(await other.get(other.of(`runs/${id}`)))).toBe('unknown');
  });

  it('name any run there can be, and no other spelling of them is taken', () => {
    const seal = new Seal(SECRET);
    for (const key of ['', ' ', '\0', '\ud800', '__proto__', '🛒'.repeat(1_000)]) {
      const id = seal.close('run', key);
      expect(seal.open('run', id)).toBe(key);
      expect(seal.open('page', id)).toBeUndefined();
      expect(seal.open('run', `${id}=`)).toBeUndefined();
      expect(seal.open('run', ` ${id}`)).toBeUndefined();
      for (let at = 0; at < Math.min(id.length, 80); at++) {
        const turned = id[at] === 'A' ? 'B' : 'A';
        expect(seal.open('run', id.slice(0, at) + turned + id.slice(at + 1))).toBeUndefined();
      }
    }
    for (let length = 0; length < 60; length++)
      expect(seal.open('run', randomBytes(length).toString('base64url'))).toBeUndefined();
  });
});

describe('the page', () => {
  it('allows no script, style or connection but its own', async () => {
    const site = await startSite();
    const { headers } = await site.get('');
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(policy).toContain("form-action 'none'; frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
  });

  it('names its files by what is in them, so that they are kept for ever', async () => {
    const site = await startSite();
    const page = await site.get<string>('');
    expect(page.status).toBe(200);
    expect(page.headers['cache-control']).toBe('no-cache');
    const [, file = ''] = /src="\.\/(assets\/[^"]+)"/.exec(page.body) ?? [];
    const { status, headers, text } = await site.get(file);
    expect(status).toBe(200);
    expect(headers['cache-control']).toContain('immutable');
    expect(headers['content-type']).toBe('text/javascript; charset=utf-8');
    const known = { 'if-none-match': String(headers.etag) };
    expect((await site.get(file, known)).status).toBe(304);
    const zipped = await send(site.at(file), {
      method: 'GET',
      headers: { 'accept-encoding': 'gzip' },
    });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(Number(zipped.headers['content-length'])).toBeLessThan(text.length);
  });

  it.each([
    ['4', express4 as unknown as typeof express],
    ['5', express],
  ])('is found with and without a slash at the end, in Express %s', async (_, express) => {
    const runs = runsOf(checkoutGate(), { store: memoryStore() }) as Runs;
    const authorize = () => ({ read: true }) as const;
    const app = express();
    const router = express.Router();
    router.use('/:tenant/ops', inspector({ runs: [runs], authorize }) as RequestHandler);
    app.use('/deep', router);
    const { url } = await serve(app);
    const bare = await send(new URL('/deep/acme/ops?a=b', url), { method: 'GET' });
    expect([bare.status, bare.headers.location]).toEqual([301, './ops/?a=b']);
    const { status } = await send(new URL('/deep/acme/ops/api/session', url), { method: 'GET' });
    expect(status).toBe(200);
  });

  it('is served by a plain server of Node as well', async () => {
    const runs = runsOf(checkoutGate(), { store: memoryStore() }) as Runs;
    const authorize = () => ({ read: true }) as const;
    const page = inspector({ runs: [runs], authorize, basePath: '/ops' });
    const { url } = await serve((req, res) => page(req, res));
    const at = (path: string) => send(new URL(path, url), { method: 'GET' });
    expect((await at('/ops/api/session')).status).toBe(200);
    expect((await at('/ops')).headers.location).toBe('./ops/');
    expect((await at('/opsx/api/session')).status).toBe(404);
    expect((await at('/')).status).toBe(404);
  });

  it('takes a body that express.json() has read already', async () => {
    const site = await startSite({}, { before: [express.json()] });
    expect(
      (await site.post(site.of('what-if'), { move: { event: 'ADD_ITEM' } })).body,
    ).toMatchObject({ state: 'has_items' });
  });
});
