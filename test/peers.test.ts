import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { StateMachineGate } from '../src/index.ts';
import { connect } from './helpers/client.ts';
import { latch } from './helpers/latch.ts';
import { callOf, RawSession, reasonOf, type WireMessage } from './helpers/raw.ts';
import { begins, pass, type Scene, scene } from './helpers/scene.ts';
import type { Ledger } from './helpers/upstream.ts';

const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

/** Authenticates by a header that names the subject. `req.auth` also has the token's bytes. */
const authenticate: RequestHandler = (req, _res, next) => {
  const [sub, token] = String(req.headers.authorization ?? '').split(':');
  if (sub)
    Object.assign(req, { auth: { token, clientId: 'app', scopes: [], extra: { iss: 'id', sub } } });
  next();
};

/** Saves a run as another process may have left it in the store. */
async function leaveIn(app: Scene, run: string, state: string): Promise<void> {
  const key = { run, workflow: 'checkout' };
  const step = { tool: 'x', digest: 'x', uncertain: 'hold' } as const;
  const initial = { state: 'empty', updatedAt: 0 };
  await app.data.claim({
    ...key,
    token: 't',
    step,
    states: undefined,
    initial,
    leaseMs: 1_000,
    ttlMs: 60_000,
  });
  const trail = { from: 'empty', to: state, event: null };
  await app.data.commit({ ...key, token: 't', snapshot: { state }, trail, ttlMs: 60_000 });
}

describe('two calls of one gated tool at the same time', () => {
  it('do not both run the handler: one runs, the other waits and is tested again', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    const second = session.call('cart.pay');
    await app.isServing(2);
    paying.finish();
    expect(textOf(await paying.answer)).toBe('cart.pay done');
    expect(reasonOf(await second)).toBe('state');
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  it('do not leave the older state, though the slow one ends last', async () => {
    const app = await scene();
    const session = await app.sessionAt('has_items');
    const slow = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const quick = session.call('cart.checkout');
    await app.isServing(2);
    slow.finish();
    await Promise.all([slow.answer, quick]);
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
  });
});

describe('a hidden tool', () => {
  it('cannot be called by its name, alone or in a batch, before or after a list', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    expect(await session.tools()).toContain('cart.pay');
    await session.call('cart.pay');
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    const { messages } = await session.post([callOf(1, 'cart.view'), callOf(2, 'cart.pay')]);
    expect(reasonOf(messages.find(({ id }) => id === 2))).toBe('state');
    expect(app.ledger.calls).toEqual(['cart.pay', 'cart.view']);
  });

  it('cannot be called as the action of a grouped tool', async () => {
    const makeServer = (ledger: Ledger): McpServer => {
      const server = new McpServer({ name: 'cart', version: '1' });
      server.registerTool('cart', { inputSchema: { action: z.string() } }, ({ action }) => {
        ledger.calls.push(action);
        return { content: [{ type: 'text', text: `${action} done` }] };
      });
      return server;
    };
    const isAction = (name: string) => (args: Record<string, unknown>) => args.action === name;
    const workflow = new StateMachineGate<string, string>({
      id: 'cart',
      initial: 'empty',
      states: { empty: { on: { ADD: 'full' } }, full: { on: { PAY: 'paid' } }, paid: {} },
    })
      .bindTool('cart', 'empty', { success: 'ADD', when: isAction('add') })
      .bindTool('cart', 'full', { success: 'PAY', when: isAction('pay') });
    const app = await scene({ makeServer, workflow });
    const session = await app.session();
    expect(reasonOf(await session.call('cart', { action: 'pay' }))).toBe('state');
    for (const action of ['look', 'add', 'pay']) {
      expect(textOf(await session.call('cart', { action }))).toBe(`${action} done`);
    }
    expect(app.ledger.calls).toEqual(['look', 'add', 'pay']);
  });
});

describe('a binding of a tool that the server does not have', () => {
  it('is warned of at the first list, with the name that it resembles', async () => {
    const workflow = new StateMachineGate<string, string>({
      id: 'checkout',
      initial: 'empty',
      states: { empty: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pya', 'paid', 'PAY');
    const app = await scene({ workflow });
    const session = await app.session();
    app.warnings.length = 0;
    await session.tools();
    await session.tools();
    expect(app.warnings).toEqual([
      expect.stringMatching(/"cart\.pya".*Did you mean "cart\.pay"\?/),
    ]);
  });
});

describe("another user's token", () => {
  it('finds the session of its owner unknown, for lists, moves and the end', async () => {
    const app = await scene({ before: [authenticate] });
    const session = await app.sessionAt('payment', { authorization: 'ann:t1' });
    const stranger = RawSession.resume(app.url, session.id, { authorization: 'bob:t2' });
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    expect((await stranger.post(list)).status).toBe(404);
    expect((await stranger.post(callOf(1, 'cart.pay'))).status).toBe(404);
    expect((await stranger.listen()).status).toBe(404);
    expect((await stranger.end()).status).toBe(404);
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('the refresh of a token', () => {
  it('does not end the session, which is bound to issuer and subject', async () => {
    const app = await scene({ before: [authenticate] });
    const { id } = await app.sessionAt('payment', { authorization: 'ann:t1' });
    const refreshed = RawSession.resume(app.url, id, { authorization: 'ann:t2' });
    expect(textOf(await refreshed.call('cart.pay'))).toBe('cart.pay done');
  });
});

describe('a stored state that the workflow does not have', () => {
  it.each(['paused', 'constructor', '__proto__', 'toString', ''])(
    'does not start over, and is no hole: %j refuses every gated tool and says so',
    async (state) => {
      const app = await scene();
      const session = await app.session();
      await leaveIn(app, session.id, state);
      expect(await session.tools()).toEqual(['cart.view']);
      for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
        const refused = await session.call(tool);
        expect(refused.result.isError).toBe(true);
        expect(reasonOf(refused)).toBe('unreadable');
      }
      expect(textOf(await session.call('cart.view'))).toBe('cart.view done');
      expect(app.ledger.calls).toEqual(['cart.view']);
      const told = app.errors.map(String).join('\n');
      expect(told).toContain(`${JSON.stringify(state)}, a state that "checkout" does not have`);
    },
  );
});

describe('a run that was evicted', () => {
  it('is an unknown session, and does not begin again under the old id', async () => {
    const app = await scene({ shape: { mode: 'stateless' }, session: { maxSessions: 1 } });
    const session = await app.sessionAt('payment');
    app.clock.advance(5_000);
    await app.session();
    for (const tool of ['cart.pay', 'cart.add_item', 'cart.view']) {
      expect((await session.post(callOf(1, tool))).status).toBe(404);
    }
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('a store that fails', () => {
  it('gives the client a fixed message, and not its error with the password', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.clock.advance(60_000);
    for (const operation of ['read', 'claim', 'open', 'delete'] as const) app.store.fail(operation);
    const unknown = RawSession.resume(app.url, 'nobody');
    const answers = [
      await session.post(callOf(1, 'cart.pay')),
      await session.post({ jsonrpc: '2.0', id: 2, method: 'tools/list' }),
      await unknown.post(callOf(3, 'cart.pay')),
      await unknown.end(),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 503, 503]);
    for (const { text, headers } of answers)
      expect(text + JSON.stringify(headers)).not.toContain('hunter2');
    expect(app.errors.length).toBeGreaterThan(0);
  });

  it('and that hangs does not hang the server: each call of it has a deadline', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.store.take();
    app.store.fail('claim', 1, 'hang');
    const paying = session.call('cart.pay');
    await expect.poll(() => app.store.asked).toEqual(['claim']);
    expect(textOf(await session.call('cart.view'))).toBe('cart.view done');
    app.clock.advance(2_000);
    expect(reasonOf(await paying)).toBe('unavailable');
    expect(app.ledger.calls).toEqual(['cart.view']);
  });
});

describe('a save that fails after the handler ran', () => {
  it('does not make the retry run it again: the run is held', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.store.fail('commit');
    let answer: WireMessage | undefined;
    void session.call('cart.pay').then((message) => {
      answer = message;
    });
    await expect
      .poll(async () => {
        await pass(app.clock, 1_000);
        return textOf(answer);
      })
      .toContain('cart.pay ran, but its outcome could not be recorded. Do not call it again');
    await pass(app.clock, 10_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    // It is saved once the store works again.
    app.store.heal();
    await pass(app.clock, 10_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });
});

describe('a session that ends in the middle of a call', () => {
  it('ends neither the process nor another session', async () => {
    const rejections: unknown[] = [];
    const note = (reason: unknown): void => void rejections.push(reason);
    process.on('unhandledRejection', note);
    onTestFinished(() => void process.off('unhandledRejection', note));
    const app = await scene();
    const [session, other] = [await app.sessionAt('payment'), await app.session()];
    const paying = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    await session.end();
    paying.finish();
    expect((await paying.answer).result.isError).toBe(true);
    expect(await other.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect(rejections).toEqual([]);
  });
});

describe('list_changed', () => {
  it.each(['stateful', 'stateless'] as const)(
    'is declared, so that clients do not drop it (%s)',
    async (mode) => {
      const silent = (ledger: Ledger): McpServer => {
        const server = new McpServer({ name: 'cart', version: '1' });
        server.registerTool('cart.add_item', {}, () => {
          ledger.calls.push('cart.add_item');
          return { content: [] };
        });
        server.server.registerCapabilities({ tools: { listChanged: false } });
        return server;
      };
      const app = await scene({ shape: { mode }, makeServer: silent });
      const client = await connect(app.url);
      expect(client.client.getServerCapabilities()?.tools).toEqual({ listChanged: true });
      await client.call('cart.add_item');
      await expect.poll(() => client.log).toContain('list_changed');
      await client.close();
    },
  );
});

describe('decoration and invalidation', () => {
  it('match the same form of a name: the one on the wire', async () => {
    const policies = [
      { match: 'cart.view', cacheControl: 'no-store' as const },
      { match: 'cart.add_item', invalidates: ['cart.view'] },
      { match: 'cart_*', cacheControl: 'immutable' as const, invalidates: ['never'] },
    ];
    const app = await scene({ sync: { policies } });
    const session = await app.session();
    const { result } = await session.ask('tools/list');
    const described = result.tools.map(({ description }: WireMessage) => description);
    expect(described).toEqual(['Does cart.add_item.', 'Does cart.view. [Cache-Control: no-store]']);
    const added = await session.call('cart.add_item');
    expect(added.result.content.at(-1).text).toContain('Cache invalidated for cart.view');
  });
});

describe('the caching fields of a list', () => {
  const cached: RequestHandler = (req, res, next) => {
    const { id, method, params } = req.body ?? {};
    if (method !== 'tools/list') return next();
    const names =
      params?.cursor === 'plain' ? ['cart.view'] : ['cart.add_item', 'cart.pay', 'cart.view'];
    const tools = names.map((name) => ({ name, inputSchema: { type: 'object' } }));
    res.json({ jsonrpc: '2.0', id, result: { tools, ttlMs: 30_000, cacheScope: 'public' } });
  };

  it('are replaced where a list depends on the run: no cache may keep it', async () => {
    const app = await scene({ shape: { parser: true }, behind: [cached] });
    const session = await app.session();
    const { result } = await session.ask('tools/list');
    expect(result).toMatchObject({ ttlMs: 0, cacheScope: 'private' });
    expect(result.tools.map(({ name }: WireMessage) => name)).toEqual([
      'cart.add_item',
      'cart.view',
    ]);
  });

  it('are the same on every page of it, and are not made up', async () => {
    const app = await scene({ shape: { parser: true }, behind: [cached] });
    const session = await app.session();
    const { result } = await session.ask('tools/list', { cursor: 'plain' });
    expect(result).toMatchObject({ ttlMs: 0, cacheScope: 'private' });
    const bare = await scene();
    const own = await (await bare.session()).ask('tools/list');
    expect(Object.keys(own.result)).toEqual(['tools']);
  });
});

describe('progress', () => {
  it('reaches the client while the handler still runs', async () => {
    const app = await scene({
      sync: { policies: [{ match: '**', invalidates: ['cart.*'] }] },
    });
    const session = await app.sessionAt('payment');
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const params = { name: 'cart.pay', arguments: {}, _meta: { progressToken: 'p' } };
    const paying = await session.stream({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    await expect
      .poll(() => paying.messages.map(({ method }) => method))
      .toEqual(['notifications/progress']);
    handler.open();
    await expect.poll(() => textOf(paying.messages.at(-1))).toBe('cart.pay done');
  });
});
