import { afterEach, describe, expect, it } from 'vitest';
import {
  fsmGate,
  memoryStore,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { type AnyUpstream, FOUR_UPSTREAMS, type UpstreamKind } from '../helpers/four-upstreams.ts';
import { INITIALIZE, type RawResponse, send, type WireMessage } from '../helpers/raw.ts';
import {
  AUTO,
  ask,
  callStateless,
  connectV2,
  PINNED,
  STATELESS,
  stateless,
} from '../helpers/two-eras.ts';
import { CONTRADICTIONS } from './contradictions.ts';

const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const KEYS: readonly (readonly [string, readonly RunKeyStrategy[]])[] = [
  ['sessionKey()', [sessionKey()]],
  ['principalKey()', [principalKey()]],
  ['sessionKey(), then principalKey()', [sessionKey(), principalKey()]],
];

async function bare(kind: UpstreamKind): Promise<AnyUpstream> {
  const upstream = await kind.start([]);
  closing.push(upstream.close);
  return upstream;
}

async function gated(
  kind: UpstreamKind,
  key: readonly RunKeyStrategy[],
): Promise<AnyUpstream & { store: ReturnType<typeof memoryStore> }> {
  const store = memoryStore();
  const onWarning = (): void => {};
  const upstream = await kind.start([
    sessionStore({ key, store, onWarning }),
    fsmGate(checkoutGate(), { onWarning }),
  ]);
  closing.push(upstream.close);
  return { ...upstream, store };
}

/** The header of a session of the user's; none if the upstream has no sessions. */
async function sessionOf({ url }: AnyUpstream, user: string): Promise<Record<string, string>> {
  const { headers } = await send(url, { headers: { 'x-user': user }, body: INITIALIZE });
  const id = headers['mcp-session-id'];
  return typeof id === 'string' ? { 'mcp-session-id': id } : {};
}

const codesOf = ({ messages }: RawResponse): number[] =>
  messages.map(({ error }: WireMessage) => error?.code).filter((code) => code !== undefined);

describe.each(FOUR_UPSTREAMS)('in front of $name', (kind) => {
  describe.each(KEYS)('with %s', (_name, key) => {
    it('runs no bound tool out of order, even if a request contradicts itself', async () => {
      const upstream = await gated(kind, key);
      const named = await sessionOf(upstream, 'alice');
      for (const session of [named, {}]) {
        for (const row of CONTRADICTIONS) {
          const { headers, body } = row.request('cart.pay');
          await send(upstream.url, {
            headers: { 'x-user': 'alice', ...session, ...headers },
            body,
          });
          expect(upstream.calls(), row.name).not.toContain('cart.pay');
        }
      }
    });

    it('moves a run once for each time that a handler runs, and never for another', async () => {
      const upstream = await gated(kind, key);
      const session = await sessionOf(upstream, 'alice');
      const keys = [...Object.values(session), principalKey().runKey(ALICE)];
      const moves = async (): Promise<number> => {
        const runs = runsOf(checkoutGate(), { store: upstream.store });
        const found = await Promise.all(keys.map((run) => runs.read(run)));
        return found.reduce((sum, run) => sum + (run?.snapshot.version ?? 0), 0);
      };
      for (const row of CONTRADICTIONS) {
        const { headers, body } = row.request('cart.add_item');
        await send(upstream.url, { headers: { 'x-user': 'alice', ...session, ...headers }, body });
        const ran = upstream.calls().filter((tool) => tool === 'cart.add_item').length;
        expect(await moves(), row.name).toBe(ran);
      }
    });
  });

  it('answers a contradictory ungated call as alone, unless the era is unclear', async () => {
    const [alone, behind] = [await bare(kind), await gated(kind, [sessionKey()])];
    const sessions = [await sessionOf(alone, 'alice'), await sessionOf(behind, 'alice')] as const;
    for (const row of CONTRADICTIONS) {
      const { headers, body } = row.request('cart.view');
      const [expected, answer] = await Promise.all(
        [alone, behind].map(({ url }, at) =>
          send(url, { headers: { ...sessions[at], ...headers, 'x-user': 'alice' }, body }),
        ),
      );
      if (row.refused === undefined) {
        expect([answer?.status, codesOf(answer as RawResponse)], row.name).toEqual([
          expected?.status,
          codesOf(expected as RawResponse),
        ]);
      } else {
        expect([answer?.status, codesOf(answer as RawResponse)], row.name).toEqual([
          400,
          [row.refused],
        ]);
      }
    }
  });

  it('refuses a contradictory gated call before it claims anything', async () => {
    const upstream = await gated(kind, [sessionKey(), principalKey()]);
    const session = await sessionOf(upstream, 'alice');
    for (const { refused, gated: code, name, request } of CONTRADICTIONS) {
      if (refused === undefined && code === undefined) continue;
      for (const tool of ['cart.pay', 'cart.add_item']) {
        const { headers, body } = request(tool);
        const answer = await send(upstream.url, {
          headers: { 'x-user': 'alice', ...session, ...headers },
          body,
        });
        const codes = [...new Set(codesOf(answer))];
        expect([answer.status, codes], `${name}: ${tool}`).toEqual([400, [refused ?? code]]);
      }
    }
    expect(upstream.calls()).toEqual([]);
  });

  it('lets no caller into another one’s session by a stateless request', async () => {
    const upstream = await gated(kind, [sessionKey()]);
    const session = await sessionOf(upstream, 'alice');
    const changes = { ...session, 'mcp-protocol-version': '2025-11-25' };
    await send(upstream.url, {
      headers: { 'x-user': 'alice', ...changes },
      body: {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'cart.add_item', arguments: {} },
      },
    });
    const before = upstream.calls().length;
    for (const user of ['mallory', 'alice']) {
      const answer = await callStateless(
        upstream.url,
        'cart.checkout',
        {},
        { user, changes: session },
      );
      expect(answer.text).toContain('belongs to no run');
    }
    expect(upstream.calls()).toHaveLength(before);
  });

  it('answers GET and DELETE of 2026 without a session as it does alone', async () => {
    const [alone, behind] = [await bare(kind), await gated(kind, [sessionKey()])];
    for (const method of ['GET', 'DELETE']) {
      const headers = { 'mcp-protocol-version': STATELESS, 'x-user': 'alice' };
      const [expected, answer] = await Promise.all(
        [alone, behind].map(({ url }) => send(url, { method, headers })),
      );
      expect([answer?.status, answer?.headers.allow]).toEqual([
        expected?.status,
        expected?.headers.allow,
      ]);
    }
  });

  it('passes a probe on, with a claim or without', async () => {
    const [alone, behind] = [await bare(kind), await gated(kind, [sessionKey()])];
    const claimless = { body: { jsonrpc: '2.0', id: 1, method: 'server/discover', params: {} } };
    for (const request of [stateless('server/discover'), claimless]) {
      const [expected, answer] = await Promise.all(
        [alone, behind].map(({ url }) => send(url, request)),
      );
      expect(answer?.status).toBe(expected?.status);
      expect(answer?.messages).toEqual(expected?.messages);
    }
  });

  it('serves each client that it serves alone, and each finds its own workflow', async () => {
    const { url } = await gated(kind, [sessionKey(), principalKey()]);
    const v1 = await connect(url, { 'x-user': 'alice' });
    closing.push(() => v1.close());
    expect(await v1.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect((await v1.call('cart.pay')).isError).toBe(true);
    expect((await v1.call('cart.add_item')).text).toBe('cart.add_item done');
    for (const options of [{}, AUTO, ...(kind.isStateless ? [PINNED] : [])]) {
      const v2 = await connectV2(url, `bob ${JSON.stringify(options)}`, options);
      closing.push(() => v2.close());
      expect((await v2.callTool({ name: 'cart.pay', arguments: {} })).isError).toBe(true);
      await v2.callTool({ name: 'cart.add_item', arguments: {} });
      const done = await v2.callTool({ name: 'cart.checkout', arguments: {} });
      expect(done.content).toEqual([{ type: 'text', text: 'cart.checkout done' }]);
    }
    if (!kind.isStateless) await expect(connectV2(url, 'carol', PINNED)).rejects.toThrow();
  });
});

const ALICE = { issuer: 'https://issuer.example', subject: 'alice' };

describe('a stateless upstream', () => {
  const [kind] = FOUR_UPSTREAMS as [UpstreamKind];

  it('takes the notification that SDK v2 sends without Mcp-Method', async () => {
    const { url } = await gated(kind, [principalKey()]);
    const { headers, body } = stateless(
      'notifications/cancelled',
      { requestId: 1 },
      { user: 'alice' },
    );
    const { id: _, ...note } = body;
    delete headers['mcp-method'];
    expect((await send(url, { headers, body: note })).status).toBe(202);
  });

  it('sees no session id in a stateless request, and echoes none', async () => {
    const seen: unknown[] = [];
    const upstream = await kind.start([
      sessionStore({ key: principalKey() }),
      ((req: { rawHeaders: string[]; headers: object }, _res: unknown, next: () => void) => {
        seen.push(
          'mcp-session-id' in req.headers,
          req.rawHeaders.map((each) => each.toLowerCase()).includes('mcp-session-id'),
        );
        next();
      }) as never,
    ]);
    closing.push(upstream.close);
    const { headers } = await ask(
      upstream.url,
      'tools/list',
      {},
      { changes: { 'mcp-session-id': 'x' } },
    );
    expect(seen).toEqual([false, false]);
    expect(headers).not.toHaveProperty('mcp-session-id');
  });
});
