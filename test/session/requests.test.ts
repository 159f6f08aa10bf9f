import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import { latch } from '../helpers/latch.ts';
import { callOf, INITIALIZE, type RawResponse, send, type WireMessage } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';
import { startUpstream } from '../helpers/upstream.ts';

const MODES = ['stateful', 'stateless'] as const;
const IN_FLIGHT = { code: -32600, message: 'Invalid Request: a request id is in flight already' };
const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

describe.each(MODES)('a request id, %s', (mode) => {
  it('that is in flight is refused, and the first request is still answered', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const view = latch();
    app.ledger.gates.set('cart.view', view.opened);
    const first = session.post(callOf(1, 'cart.view'));
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view']);
    const second = await session.post(callOf(1, 'cart.view'));
    expect([second.status, second.messages]).toEqual([
      400,
      [{ jsonrpc: '2.0', id: 1, error: IN_FLIGHT }],
    ]);
    const listed = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    expect([listed.status, listed.messages[0]?.error]).toEqual([400, IN_FLIGHT]);
    view.open();
    expect(textOf((await first).messages.at(-1))).toBe('cart.view done');
    expect(app.ledger.calls).toEqual(['cart.view']);
  });

  it('is free again as soon as its request is answered', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    for (let round = 0; round < 3; round++) {
      expect(textOf((await session.post(callOf(1, 'cart.view'))).messages.at(-1))).toBe(
        'cart.view done',
      );
      expect((await session.post(callOf(1, 'cart.pay'))).messages[0]?.result.isError).toBe(true);
      expect(
        (await session.post([callOf(1, 'cart.pay'), callOf(2, 'cart.pay')])).messages,
      ).toHaveLength(2);
    }
  });

  it('is free again when its client has left', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const view = latch();
    app.ledger.gates.set('cart.view', view.opened);
    const left = await session.stream([callOf(1, 'cart.view'), callOf(2, 'cart.pay')]);
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view']);
    left.cut();
    app.ledger.gates.clear();
    await expect.poll(async () => (await session.post(callOf(1, 'cart.view'))).status).toBe(200);
    view.open();
  });

  it('may be the same in two sessions', async () => {
    const app = await scene({ shape: { mode } });
    const [ann, bob] = [await app.session(), await app.session()];
    const view = latch();
    app.ledger.gates.set('cart.view', view.opened);
    const answers = [ann, bob].map((session) => session.post(callOf(1, 'cart.view')));
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view', 'cart.view']);
    view.open();
    for (const { messages } of await Promise.all(answers))
      expect(textOf(messages.at(-1))).toBe('cart.view done');
  });

  it('that stands twice in a batch has the whole batch refused, not forwarded', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const refused = await session.post([
      callOf(1, 'cart.view'),
      callOf(2, 'cart.view'),
      callOf(1, 'cart.add_item'),
    ]);
    expect(refused.status).toBe(400);
    expect(refused.messages).toEqual(
      [1, 2, 1].map((id) => ({ jsonrpc: '2.0', id, error: IN_FLIGHT })),
    );
    expect(app.ledger.calls).toEqual([]);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(200);
  });

  it('1 is not the id "1"', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const view = latch();
    app.ledger.gates.set('cart.view', view.opened);
    const answers = [1, '1'].map((id) => session.post(callOf(id, 'cart.view')));
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view', 'cart.view']);
    view.open();
    const ids = (await Promise.all(answers)).map(({ messages }) => messages.at(-1)?.id);
    expect(ids).toEqual([1, '1']);
    const { messages } = await session.post([callOf(1, 'cart.pay'), callOf('1', 'cart.view')]);
    const results = new Map(messages.map((message) => [message.id, message.result.isError]));
    expect([results.get(1), results.get('1')]).toEqual([true, undefined]);
  });
});

/** The part of the `cors` package that matters here. */
function cors(exposed?: string | string[]): RequestHandler {
  return (req, res, next) => {
    res.setHeader('access-control-allow-origin', '*');
    if (exposed !== undefined) res.setHeader('access-control-expose-headers', exposed);
    if (req.method === 'OPTIONS') res.status(204).end();
    else next();
  };
}

describe('where a browser may be the client', () => {
  const exposedIn = ({ headers }: RawResponse): unknown => headers['access-control-expose-headers'];
  const origin = { origin: 'https://inspector.example' };

  it.each([
    ['nothing is exposed yet', undefined, 'Mcp-Session-Id'],
    ['something else is', 'X-Request-Id', 'X-Request-Id, Mcp-Session-Id'],
    ['a list of other things is', ['X-A', 'X-B'], 'X-A,X-B, Mcp-Session-Id'],
    ['it is exposed already', 'X-A, mcp-session-id', 'X-A, mcp-session-id'],
    ['everything is', '*', '*'],
  ])('the session id of the handshake can be read by it: %s', async (_, exposed, expected) => {
    for (const mode of MODES) {
      for (const place of ['before', 'behind'] as const) {
        const app = await scene({ shape: { mode }, [place]: [cors(exposed)] });
        const answer = await send(app.url, { headers: origin, body: INITIALIZE });
        expect(exposedIn(answer)).toBe(expected);
        expect(answer.headers['mcp-session-id']).toEqual(expect.any(String));
      }
    }
  });

  it('no header is exposed where the app lets no browser in, or no session began', async () => {
    const closed = await scene();
    expect(exposedIn(await send(closed.url, { body: INITIALIZE }))).toBeUndefined();
    const open = await scene({ before: [cors()] });
    expect(
      exposedIn(await send(open.url, { body: { ...INITIALIZE, params: {} } })),
    ).toBeUndefined();
  });

  it('its preflight passes through, in front of the app and behind', async () => {
    for (const place of ['before', 'behind'] as const) {
      const app = await scene({ [place]: [cors()] });
      const headers = { ...origin, 'access-control-request-headers': 'mcp-session-id' };
      const { status, text } = await send(app.url, { method: 'OPTIONS', headers });
      expect([status, text]).toEqual([204, '']);
      expect(app.store.asked).toEqual([]);
    }
  });
});

describe('server/discover without a session', () => {
  const DISCOVER = { jsonrpc: '2.0', id: 1, method: 'server/discover', params: {} };

  it.each(MODES)('comes back as the upstream answers it, to the byte (%s)', async (mode) => {
    const bare = await startUpstream({ shape: { mode } });
    onTestFinished(() => bare.close());
    const expected = await send(bare.url, { body: DISCOVER });
    const app = await scene({ shape: { mode } });
    const answer = await send(app.url, { body: DISCOVER });
    expect([answer.status, answer.text]).toEqual([expected.status, expected.text]);
    expect(answer.headers['content-type']).toBe(expected.headers['content-type']);
    expect(answer.headers).not.toHaveProperty('mcp-session-id');
    expect(app.store.asked).toEqual([]);
  });

  it.each([200, 400, 404, 405, 500])('is not touched, with status %i', async (status) => {
    const body = `{ "jsonrpc":"2.0",  "id":1, "error":{"code":-32601,"message":"nope"}, "n":1.0 }`;
    const app = await scene({
      behind: [(_req, res) => void res.status(status).type('application/json').send(body)],
    });
    const answer = await send(app.url, { body: DISCOVER });
    expect([answer.status, answer.text]).toEqual([status, body]);
  });

  it('lets no other message through beside it', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const refused = await send(app.url, { body: [DISCOVER, callOf(2, 'cart.view')] });
    expect([refused.status, refused.messages.map(({ id }) => id)]).toEqual([400, [1, 2]]);
    expect(app.ledger.calls).toEqual([]);
  });
});
