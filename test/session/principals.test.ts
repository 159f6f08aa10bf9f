import type { IncomingHttpHeaders } from 'node:http';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import { callOf, PROTOCOL, type RawResponse, RawSession, send } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';
import { ask } from '../helpers/two-eras.ts';

/** Authentication of these tests: leaves the header's JSON in `req.auth`. */
const authenticate: RequestHandler = (req, _res, next) => {
  const { 'x-auth': auth } = req.headers;
  if (typeof auth === 'string') Object.assign(req, { auth: JSON.parse(auth) });
  next();
};
const as = (auth: unknown): Record<string, string> => ({ 'x-auth': JSON.stringify(auth) });

const SDK = {
  token: 't1',
  clientId: 'app',
  scopes: [],
  extra: { iss: 'https://id.example', sub: 'ann' },
};
const PAYLOAD = { header: {}, payload: { iss: 'https://id.example', sub: 'ann' }, token: 't1' };

/** A response without what is not the server's choice, such as its date. */
function comparable({ status, headers, text }: RawResponse): [number, IncomingHttpHeaders, string] {
  const { date: _, ...rest } = headers;
  return [status, rest, text];
}

describe.each([
  [
    'issuer and subject in the extra of the SDK',
    SDK,
    { ...SDK, extra: { ...SDK.extra, sub: 'bob' } },
  ],
  [
    'the same subject of another issuer',
    SDK,
    { ...SDK, extra: { ...SDK.extra, iss: 'https://evil.example' } },
  ],
  ['a payload', PAYLOAD, { ...PAYLOAD, payload: { ...PAYLOAD.payload, sub: 'bob' } }],
  ['claims on req.auth itself', { iss: 'i', sub: 'ann' }, { iss: 'i', sub: 'bob' }],
  ['a subject without an issuer', { sub: 'ann' }, { sub: 'bob' }],
  ['nothing but a client id', { clientId: 'app' }, { clientId: 'other' }],
  ['somebody, and a caller without any authorization', SDK, undefined],
  ['nobody, and a caller with an authorization', undefined, SDK],
])('a session of a caller who is told apart by %s', (_, owner, stranger) => {
  const headersOf = (auth: unknown) => (auth === undefined ? {} : as(auth));

  it.each(['POST', 'GET', 'HEAD', 'DELETE'])(
    'is to another caller, byte for byte, like an unknown one (%s)',
    async (method) => {
      for (const mode of ['stateful', 'stateless'] as const) {
        const app = await scene({ shape: { mode }, before: [authenticate] });
        const session = await app.sessionAt('payment', headersOf(owner));
        const body =
          method === 'POST' ? { body: [callOf(1, 'cart.pay'), callOf('2', 'cart.view')] } : {};
        const ask = (id: string, auth: unknown) =>
          send(app.url, {
            method,
            headers: { ...headersOf(auth), 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL },
            ...body,
          });
        const unknown = comparable(await ask('nobody', stranger));
        expect(unknown[0]).toBe(404);
        expect(comparable(await ask(session.id, stranger))).toEqual(unknown);
        app.clock.advance(60_000);
        expect(comparable(await ask(session.id, stranger))).toEqual(unknown);
        app.store.fail('read');
        const unavailable = comparable(await ask('nobody', stranger));
        expect(unavailable[0]).toBe(503);
        expect(comparable(await ask(session.id, stranger))).toEqual(unavailable);
        app.store.heal();
        expect(app.ledger.calls).toEqual([]);
        expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
      }
    },
  );
});

describe('a session', () => {
  it('outlives the refresh of its token', async () => {
    const app = await scene({ before: [authenticate] });
    const session = await app.sessionAt('has_items', as(SDK));
    const refreshed = as({ ...SDK, token: 't2', expiresAt: 9, scopes: ['more'] });
    const { messages } = await session.post(callOf(1, 'cart.checkout'), refreshed);
    expect(messages.at(-1)?.result.content).toEqual([{ type: 'text', text: 'cart.checkout done' }]);
    expect(app.warnings).toEqual([]);
  });

  it('is bound to what principal() returns, and to nothing else', async () => {
    const app = await scene({
      before: [authenticate],
      session: { principal: (req) => req.headers['x-user']?.toString() },
    });
    const session = await app.session({ 'x-user': 'ann', ...as(SDK) });
    const view = callOf(1, 'cart.view');
    const other = { ...as({ clientId: 'another' }), 'x-user': 'ann' };
    expect((await session.post(view, other)).status).toBe(200);
    expect((await session.post(view, { 'x-user': 'bob' })).status).toBe(404);
    expect(
      (await send(app.url, { headers: { 'mcp-session-id': session.id }, body: view })).status,
    ).toBe(404);
    expect(app.warnings).toEqual([]);
  });

  it.each([
    ['a number', 42],
    ['null', null],
    ['an empty name', ''],
    ['a promise', Promise.resolve('ann')],
  ])('is refused, and the developer told why, where that is %s', async (_, principal) => {
    const app = await scene({ session: { principal: () => principal as string } });
    const refused = await send(app.url, {
      headers: { 'mcp-session-id': 'x' },
      body: callOf(5, 'cart.view'),
    });
    expect([refused.status, refused.messages[0]?.id]).toEqual([500, 5]);
    expect(String(app.errors[0])).toMatch(/principal\(\) .*ERR_INTERLOCK_CONFIG/);
  });

  it('is refused where principal() throws, without its error', async () => {
    const app = await scene({
      session: {
        principal: () => {
          throw new Error('secret of the directory');
        },
      },
    });
    const refused = await send(app.url, {
      headers: { 'mcp-session-id': 'x' },
      body: callOf(5, 'cart.view'),
    });
    expect([refused.status, refused.messages]).toEqual([
      500,
      [{ jsonrpc: '2.0', id: 5, error: { code: -32603, message: 'Internal error' } }],
    ]);
    expect(refused.text).not.toContain('secret');
    expect(app.errors.map(String)).toEqual(['Error: secret of the directory']);
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('a warning', () => {
  it('is given once where only a client id names the caller', async () => {
    const app = await scene({ before: [authenticate] });
    const session = await app.session(as({ clientId: 'app', token: 't1', scopes: [] }));
    await session.call('cart.view');
    await RawSession.begin(app.url, as({ clientId: 'app2' }));
    expect(app.warnings).toEqual([expect.stringMatching(/bound to the client id.*principal/)]);
  });

  it('is given once where an authorization names no caller', async () => {
    const app = await scene({ before: [authenticate] });
    const session = await app.session(as({ token: 'opaque', scopes: [] }));
    await session.call('cart.view');
    expect(app.warnings).toEqual([expect.stringMatching(/bound to no user.*principal/)]);
  });

  it('is not given where the app does not authenticate', async () => {
    const app = await scene();
    await (await app.session()).call('cart.view');
    expect(app.warnings).toEqual([]);
  });

  const leaving =
    (left: object): RequestHandler =>
    (req, _res, next) => {
      Object.assign(req, left);
      next();
    };

  it.each([
    ['an Authorization header', { authorization: 'Bearer t1' }, {}],
    ['a Cookie header', { cookie: 'sid=1' }, {}],
    ['req.user', {}, { user: { id: 7 } }],
    ['req.session', {}, { session: { id: 's1' } }],
    ['req.auth', {}, { auth: () => ({ userId: 7 }) }],
  ])('is given once where a request has %s, and nobody was found', async (mark, headers, left) => {
    const app = await scene({ before: [leaving(left)] });
    for (const _ of ['first', 'second']) await (await app.session(headers)).call('cart.view');
    expect(app.warnings).toEqual([
      expect.stringMatching(
        new RegExp(
          `a request has ${mark}, and no principal came of it.*docs/operate/authentication.md`,
        ),
      ),
    ]);
  });

  it("is given where the app's own principal() finds no name in such a request", async () => {
    const principal = (req: { headers: IncomingHttpHeaders }) => req.headers['x-user']?.toString();
    const app = await scene({ session: { principal } });
    await app.session({ authorization: 'Bearer t1', cookie: 'sid=1', 'x-user': 'ann' });
    expect(app.warnings).toEqual([]);
    await app.session({ authorization: 'Bearer t1' });
    expect(app.warnings).toEqual([
      expect.stringContaining('sessionStore({ principal }) returned undefined'),
    ]);
  });

  it('is given where a stateless request has such a mark', async () => {
    const app = await scene();
    await ask(app.url, 'tools/list', {}, { changes: { authorization: 'Bearer t1' } });
    expect(app.warnings).toEqual([expect.stringContaining('an Authorization header')]);
  });

  it.each([
    ['auth', { auth: { iss: 'i', sub: 'ann' } }],
    ['user', { user: { id: 7 } }],
  ])('is given once where req.%s is set behind the middlewares', async (name, left) => {
    const app = await scene({ behind: [leaving(left)] });
    for (const _ of ['first', 'second']) await (await app.session()).call('cart.view');
    expect(app.warnings).toEqual([
      expect.stringMatching(
        new RegExp(`req.${name} was set behind sessionStore\\(\\).*Mount authentication in front`),
      ),
    ]);
  });

  it('is given where req.user is set behind for a stateless request', async () => {
    const app = await scene({ behind: [leaving({ user: { id: 7 } })] });
    await ask(app.url, 'tools/list');
    expect(app.warnings).toEqual([expect.stringContaining('req.user was set behind')]);
  });

  it('is not given where authentication stands in front, and is added to behind', async () => {
    const app = await scene({
      before: [authenticate],
      behind: [leaving({ user: { id: 7 } })],
    });
    await (await app.session({ ...as(SDK), authorization: 'Bearer t1' })).call('cart.view');
    expect(app.warnings).toEqual([]);
  });
});
