import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fsmGate, StateMachineGate, sessionStore } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { callOf, RawSession } from '../helpers/raw.ts';
import { pass, passUntil, type SceneOptions, scene } from '../helpers/scene.ts';
import { serve } from '../helpers/serve.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

/** The client must show an identity before it pays, and loses it by viewing the cart. */
const identity = () =>
  new StateMachineGate({
    id: 'identity',
    initial: 'unknown',
    states: { unknown: { on: { SHOW: 'known' } }, known: { on: { HIDE: 'unknown' } } },
  })
    .bindTool('id.show', 'unknown', 'SHOW')
    .bindTool('cart.pay', 'known')
    .bindTool('cart.view', ['unknown', 'known'], 'HIDE');

const shop = (ledger: Ledger): McpServer => {
  const server = cartServer(ledger);
  server.registerTool('id.show', {}, () => {
    ledger.calls.push('id.show');
    return { content: [{ type: 'text', text: 'shown' }] };
  });
  server.registerPrompt('receipt', {}, () => ({ messages: [] }));
  return server;
};

type Gates = Extract<SceneOptions['workflow'], readonly unknown[]>;

/** A shop behind those gates, and a client of it. */
async function behind(workflow: Gates, makeServer = shop) {
  const app = await scene({ workflow, makeServer });
  return { ...app, client: await app.client() };
}

const both = () => behind([checkoutGate(), identity()]);

const refusalOf = ({ meta }: { meta: Record<string, unknown> }) =>
  meta['mcp-interlock/refusal'] as Record<string, unknown>;

describe('a refusal of one of several gates', () => {
  it.each(['checkout first', 'identity first'])(
    'offers what all of them allow, and a way whose every call all of them allow (%s)',
    async (order) => {
      const gates = [checkoutGate(), identity()];
      if (order === 'identity first') gates.reverse();
      const { client, ledger } = await behind(gates);
      const refused = await client.isRefused('cart.pay', 'state');
      const { available, path } = refusalOf(refused);
      expect(new Set(available as string[])).toEqual(
        new Set(['cart.add_item', 'id.show', 'cart.view']),
      );
      expect([...(path as string[])].sort()).toEqual(['cart.add_item', 'cart.checkout', 'id.show']);
      for (const tool of [...(path as string[]), 'cart.pay']) await client.calls(tool);
      expect(ledger.calls).toEqual([...(path as string[]), 'cart.pay']);
    },
  );

  it('leads to where all gates allow the very call, not only its own', async () => {
    const { client } = await both();
    for (const tool of ['cart.add_item', 'cart.checkout']) await client.calls(tool);
    const refused = await client.isRefused('cart.pay', 'state');
    expect(refused.text).toBe(
      '[System: cart.pay is not available while identity is in "unknown". Available now: ' +
        'id.show, cart.view. To reach cart.pay, call id.show first.]',
    );
  });

  it('tells no way, and none of its tools, if another workflow cannot be read', async () => {
    const { client, store } = await both();
    await client.calls('id.show');
    // The claim tells the state in the first workflow; the store fails to read the others.
    store.fail('read');
    const refused = await client.isRefused('cart.pay', 'state');
    expect(refused.text).toBe(
      '[System: cart.pay is not available while checkout is in "empty". Available now: ' +
        'cart.add_item.]',
    );
  });

  it('names no tool of a workflow whose step is held', async () => {
    const { client, clock, store, ledger } = await both();
    await client.calls('id.show');
    store.fail('commit');
    const viewed = await passUntil(clock, client.raw.call('cart.view'));
    expect(viewed.isError).toBe(true);
    expect(ledger.calls).toContain('cart.view');
    clock.advance(20_000);
    const { available, path } = refusalOf(await client.raw.call('cart.pay'));
    expect([available, path]).toEqual([['cart.add_item'], undefined]);
  });

  it('costs one read more than that of a gate which stands alone', async () => {
    const one = await behind([checkoutGate()]);
    one.store.take();
    await one.client.isRefused('cart.pay', 'state');
    const two = await both();
    two.store.take();
    await two.client.isRefused('cart.pay', 'state');
    expect([one.store.take(), two.store.take()]).toEqual([['claim'], ['claim', 'read']]);
  });

  it('is about prompts too', async () => {
    const bound = checkoutGate().bindPrompt('receipt', 'confirmed');
    const app = await behind([bound, identity()]);
    const session = await app.session();
    const { error } = await session.ask('prompts/get', { name: 'receipt' });
    const { available, path } = error.data['mcp-interlock/refusal'];
    expect(available).toEqual(['cart.add_item', 'id.show', 'cart.view']);
    expect([...path].sort()).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay', 'id.show']);
    for (const tool of path) expect((await session.call(tool)).result.isError).toBeUndefined();
    expect((await session.ask('prompts/get', { name: 'receipt' })).error).toBeUndefined();
  });

  it('never names what another gate keeps secret', async () => {
    const hiding = { refusal: 'unknown-tool' } as const;
    const { client } = await behind([identity(), [checkoutGate(), hiding]]);
    const refused = await client.isRefused('cart.pay', 'state');
    expect(refused.text).toBe(
      '[System: cart.pay is not available while identity is in "unknown". Available now: ' +
        'id.show, cart.view, cart.add_item.]',
    );
    expect(JSON.stringify(refused.meta)).not.toContain('cart.checkout');
  });

  it('is about the gates of its own route, where one gate stands on two', async () => {
    const [sessions, gate, strict] = [
      sessionStore(),
      fsmGate(checkoutGate()),
      fsmGate(identity()),
    ] as readonly RequestHandler[] as [RequestHandler, RequestHandler, RequestHandler];
    const ledger: Ledger = { calls: [], gates: new Map() };
    const route: RequestHandler = async (req, res) => {
      const transport = new StreamableHTTPServerTransport({});
      await shop(ledger).connect(transport as never);
      await transport.handleRequest(req, res, req.body);
    };
    const app = express();
    app.all('/loose', sessions, gate, route);
    app.all('/strict', sessions, gate, strict, route);
    const { url } = await serve(app);
    for (const path of ['strict', 'loose', 'strict']) {
      const session = await RawSession.begin(new URL(path, url));
      const { result } = await session.call('cart.pay');
      const refusal = result._meta['mcp-interlock/refusal'];
      const ways = { loose: 2, strict: 3 }[path];
      expect([path, refusal.path.length]).toEqual([path, ways]);
      expect(refusal.available.includes('id.show')).toBe(path === 'strict');
    }
  });
});

describe('a step of one gate that another gate still judges', () => {
  it('has no unknown outcome if its client cancels: it was not forwarded', async () => {
    const [asked, answer] = [latch(), latch()];
    const slow = new StateMachineGate({
      id: 'slow',
      initial: 'on',
      states: { on: { on: { SEEN: 'on' } } },
    }).bindTool('cart.add_item', 'on', {
      success: 'SEEN',
      guard: async () => {
        asked.open();
        await answer.opened;
        return true;
      },
    });
    const app = await scene({ workflow: [[checkoutGate(), { cancelGraceMs: 1_000 }], slow] });
    const session = await app.session();
    session.post(callOf(7, 'cart.add_item')).catch(() => {});
    await asked.opened;
    const params = { requestId: 7 };
    await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    await pass(app.clock, 2_000);
    answer.open();
    await app.run(session.id).is('idle');
    expect(app.errors).toEqual([]);
    expect(app.ledger.calls).toEqual([]);
    const { messages } = await session.post(callOf(7, 'cart.add_item'));
    expect(messages[0]?.result?.isError).toBeUndefined();
  });
});

describe('an announcement of one of several gates', () => {
  it('offers what all allow once all have moved, though each moves by itself', async () => {
    const alarm = new StateMachineGate({
      id: 'alarm',
      initial: 'off',
      states: { off: { on: { ARM: 'on' } }, on: {} },
    })
      .bindTool('cart.add_item', 'off', 'ARM')
      .bindTool('cart.checkout', 'off');
    const announce = { announce: true };
    const { client } = await behind([[checkoutGate(), announce], identity(), [alarm, announce]]);
    expect((await client.calls('cart.add_item')).texts).toEqual([
      'cart.add_item done',
      '[System: checkout is now in "has_items". Available now: id.show, cart.view.]',
      '[System: alarm is now in "on". Available now: id.show, cart.view.]',
    ]);
  });

  it('leaves out what another gate hides', async () => {
    const { client } = await behind([[checkoutGate(), { announce: true }], identity()]);
    await client.calls('cart.add_item');
    expect((await client.calls('cart.checkout')).texts[1]).toBe(
      '[System: checkout is now in "payment". Available now: id.show, cart.view.]',
    );
  });
});

describe('a list of several gates that shows every tool', () => {
  it('says of each the way that leads through all of them', async () => {
    const stable = { visibility: 'stable' } as const;
    const door = new StateMachineGate({
      id: 'door',
      initial: 'shut',
      states: { shut: { on: { OPEN: 'open' } }, open: {} },
    })
      .bindTool('id.show', 'shut', 'OPEN')
      .bindTool('cart.checkout', 'open');
    const { client } = await behind([
      [checkoutGate(), stable],
      [door, stable],
    ]);
    const { tools } = await client.raw.client.listTools();
    const described = Object.fromEntries(tools.map(({ name, description }) => [name, description]));
    expect(described['cart.pay']).toContain(
      'From the start of a run, cart.add_item, then id.show, then cart.checkout leads there.',
    );
    expect(described['cart.checkout']).toContain('only while door is in "open"');
  });
});

describe('any two gates', () => {
  const TOOLS = ['a', 'b', 'c', 'd'];
  const STATES = ['s', 't', 'u'];
  const EVENTS = ['E', 'F'];
  const drawn = fc.record({
    targets: fc.array(fc.option(fc.constantFrom(...STATES), { nil: undefined, freq: 3 }), {
      minLength: 6,
      maxLength: 6,
    }),
    bindings: fc.array(
      fc.record({
        tool: fc.constantFrom(...TOOLS),
        states: fc.subarray(STATES, { minLength: 1, maxLength: 2 }),
        success: fc.option(fc.constantFrom(...EVENTS), { nil: undefined, freq: 4 }),
      }),
      { minLength: 2, maxLength: 6 },
    ),
  });
  const gateOf = (
    id: string,
    { targets, bindings }: typeof drawn extends fc.Arbitrary<infer T> ? T : never,
  ) => {
    const states = Object.fromEntries(
      STATES.map((state, i) => {
        const on = EVENTS.map((event, j) => [event, targets[2 * i + j]] as const);
        return [state, { on: Object.fromEntries(on.filter(([, target]) => target)) }];
      }),
    );
    const gate = new StateMachineGate<string, string>({ id, initial: 's', states } as never);
    // No event that none of the states handles can be bound.
    const isKnown = (event = '') => Object.values(states).some(({ on }) => event in on);
    for (const { tool, states: bound, success } of bindings)
      gate.bindTool(tool, bound, isKnown(success) ? { success } : {});
    return gate;
  };

  it('offer what can be called, and name ways that lead to their end', async () => {
    const seen = { ways: 0, none: 0 };
    await fc.assert(
      fc.asyncProperty(drawn, drawn, async (one, other) => {
        const gates = [gateOf('one', one), gateOf('other', other)];
        const app = await behind(gates, toolServer(TOOLS));
        for (const tool of TOOLS) {
          const session = await app.session();
          const { result } = await session.call(tool);
          if (result.isError !== true) continue;
          const { available, path } = result._meta['mcp-interlock/refusal'];
          expect(available.every((each: string) => each !== tool)).toBe(true);
          for (const each of available) {
            const fresh = await app.session();
            expect((await fresh.call(each)).result.isError, each).not.toBe(true);
          }
          if (path === undefined) {
            seen.none++;
            continue;
          }
          for (const each of [...path, tool])
            expect((await session.call(each)).result.isError, `${path} ${tool}`).not.toBe(true);
          seen.ways++;
        }
      }),
      { numRuns: 12 },
    );
    expect(seen.ways + seen.none).toBeGreaterThan(0);
  });
});
