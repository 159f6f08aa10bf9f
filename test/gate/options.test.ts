import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Database from 'libsql';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import {
  type FsmGateOptions,
  fsmGate,
  type Middleware,
  memoryStore,
  StateMachineGate,
  sessionStore,
  stateSync,
  tool,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { begins, SceneClient, type SceneOptions, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { type Ledger, SHAPES, startUpstream } from '../helpers/upstream.ts';

/** An app with these middlewares. */
async function mounted(middlewares: readonly Middleware[]) {
  const upstream = await startUpstream({ middlewares });
  onTestFinished(() => upstream.close());
  return upstream;
}

/** The same with a client. */
const visited = async (middlewares: readonly Middleware[]) =>
  SceneClient.connect((await mounted(middlewares)).url);

/** A client of a scene. */
async function visit(options: SceneOptions = {}) {
  const app = await scene(options);
  return { ...app, client: await app.client() };
}

const gated = (): Middleware[] => [sessionStore(), fsmGate(checkoutGate())];

describe('announce', () => {
  it('says in words what is available after a move, and nothing where nothing moved', async () => {
    const { client } = await visit({ gate: { announce: true } });
    expect((await client.calls('cart.add_item')).texts).toEqual([
      'cart.add_item done',
      '[System: checkout is now in "has_items". Available now: cart.add_item, cart.checkout.]',
    ]);
    expect((await client.calls('cart.add_item')).texts).toEqual(['cart.add_item done']);
  });
});

describe('a refusal', () => {
  it('carries the same facts for programs, and the request is answered with HTTP 200', async () => {
    const { client } = await visit();
    const { meta, isError } = await client.raw.call('cart.pay');
    expect(isError).toBe(true);
    expect(meta).toEqual({
      'mcp-interlock/refusal': {
        workflow: 'checkout',
        state: 'empty',
        tool: 'cart.pay',
        reason: 'state',
        available: ['cart.add_item'],
        path: ['cart.add_item', 'cart.checkout'],
      },
    });
  });

  it('is a JSON-RPC error where the call asked for a task', async () => {
    const { client } = await visit();
    const call = client.raw.client.request(
      { method: 'tools/call', params: { name: 'cart.pay', arguments: {}, task: { ttl: 1000 } } },
      z.any(),
    );
    await expect(call).rejects.toMatchObject({
      code: -32602,
      data: { 'mcp-interlock/refusal': { reason: 'state', tool: 'cart.pay' } },
    });
  });

  it.each(SHAPES)(
    'looks like a tool that the upstream does not have, if so wished ($mode $answers ' +
      '$express $parser)',
    async (shape) => {
      const { ledger, client } = await visit({ shape, gate: { refusal: 'unknown-tool' } });
      const outcome = async (name: string): Promise<string> => {
        try {
          return JSON.stringify(await client.raw.call(name));
        } catch (error) {
          return String(error);
        }
      };
      const hidden = await outcome('cart.pay');
      const missing = await outcome('cart.nil');
      expect(hidden).toBe(missing.replaceAll('cart.nil', 'cart.pay'));
      expect(hidden).toContain('cart.pay');
      expect(ledger.calls).toEqual([]);
    },
  );
});

describe('progress', () => {
  it.each(SHAPES.filter(({ answers }) => answers === 'sse'))(
    'arrives while the handler still runs ($mode Express $express parser $parser)',
    async (shape) => {
      const { client, ...app } = await visit({ shape, sync: { policies: [] } });
      const adding = await begins(app, 'cart.add_item', () => client.calls('cart.add_item'));
      await expect.poll(() => client.raw.log).toEqual(['progress']);
      adding.finish();
      await adding.answer;
      expect(client.raw.log).toEqual(['progress', 'list_changed', 'result:cart.add_item']);
    },
  );
});

describe('a grouped tool', () => {
  const cart = (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'grouped', version: '1.0.0' });
    server.registerTool('cart', { inputSchema: { action: z.string() } }, async ({ action }) => {
      ledger.calls.push(action);
      return { content: [{ type: 'text', text: action }] };
    });
    return server;
  };
  const gate = () =>
    new StateMachineGate({
      id: 'grouped',
      initial: 'empty',
      states: {
        empty: { on: { ADD: 'full' } },
        full: { on: { PAY: 'paid' } },
        paid: { type: 'final' },
      },
    })
      .bindTool('cart', ['empty', 'full'], {
        success: 'ADD',
        when: ({ action }) => action === 'add',
      })
      .bindTool('cart', 'full', { success: 'PAY', when: ({ action }) => action === 'pay' });

  it('is bound by its arguments: one action is refused while the others go on', async () => {
    const { ledger, client } = await visit({ makeServer: cart, workflow: gate() });
    await client.sees(['cart']);
    expect((await client.isRefused('cart', 'state', { action: 'pay' })).text).toBe(
      '[System: This call of cart is not available while grouped is in "empty". Available ' +
        'now: cart. To reach it, call cart first.]',
    );
    for (const action of ['view', 'add', 'pay']) await client.calls('cart', { action });
    await client.isRefused('cart', 'state', { action: 'pay' });
    expect(ledger.calls).toEqual(['view', 'add', 'pay']);
  });

  it('is refused where its condition throws', async () => {
    const broken = new StateMachineGate({ id: 'broken', initial: 'a', states: { a: {} } }).bindTool(
      'cart',
      'a',
      {
        when: () => {
          throw new Error('secret of the condition');
        },
      },
    );
    const { errors, ledger, client } = await visit({ makeServer: cart, workflow: broken });
    const refused = await client.raw.call('cart', { action: 'add' });
    expect(refused.isError).toBe(true);
    expect(refused.text).not.toContain('secret');
    expect(String(errors[0])).toContain('secret');
    expect(ledger.calls).toEqual([]);
  });
});

describe('several gates on one route', () => {
  const audit = () =>
    new StateMachineGate({
      id: 'audit',
      initial: 'open',
      states: { open: { on: { CLOSE: 'closed' } }, closed: { type: 'final' } },
    });

  it('keep one run each, and a tool of both must be allowed by both', async () => {
    const audited = audit()
      .bindTool('cart.view', 'open', 'CLOSE')
      .bindTool('cart.add_item', 'open');
    const { ledger, client } = await visit({ workflow: [checkoutGate(), audited] });
    await client.calls('cart.add_item');
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await client.calls('cart.view');
    await client.sees(['cart.checkout']);
    const refused = await client.isRefused('cart.add_item', 'state');
    expect(refused.meta).toMatchObject({
      'mcp-interlock/refusal': { workflow: 'audit', state: 'closed' },
    });
    await client.calls('cart.checkout');
    expect(ledger.calls).toEqual(['cart.add_item', 'cart.view', 'cart.checkout']);
  });

  it('claim a tool of both, and the first lets go if the second refuses', async () => {
    const both = audit().bindTool('cart.add_item', 'open', 'CLOSE');
    const { ledger, client, data } = await visit({ workflow: [checkoutGate(), both] });
    await client.calls('cart.add_item');
    expect((await client.isRefused('cart.add_item', 'state')).meta).toMatchObject({
      'mcp-interlock/refusal': { workflow: 'audit' },
    });
    // If the first gate still held its claim, this step would wait.
    await client.calls('cart.checkout');
    expect(ledger.calls).toEqual(['cart.add_item', 'cart.checkout']);
    const record = await data.read(client.run, 1000);
    expect(record?.workflows.checkout?.snapshot).toMatchObject({ state: 'payment', version: 2 });
    expect(record?.workflows.audit?.snapshot).toMatchObject({ state: 'closed', version: 1 });
  });

  it('do not count a call as failed that the second gate hides as an unknown tool', async () => {
    const first = new StateMachineGate({
      id: 'first',
      initial: 'open',
      states: { open: { on: { DONE: 'done', FAILED: 'broken' } }, done: {}, broken: {} },
    }).bindTool('cart.pay', 'open', { success: 'DONE', failure: 'FAILED' });
    const hides = { refusal: 'unknown-tool' } as const;
    const workflow = [first, [checkoutGate(), hides]] as const;
    const { ledger, client, data } = await visit({ workflow });
    expect((await client.raw.call('cart.pay')).text).toContain('Tool cart.pay not found');
    expect(ledger.calls).toEqual([]);
    const record = await data.read(client.run, 1000);
    expect(record?.workflows.first).toEqual({
      snapshot: expect.objectContaining({ state: 'open', version: 0 }),
    });
  });
});

describe('a list that several gates filter', () => {
  const hiding = () =>
    new StateMachineGate({ id: 'hiding', initial: 'a', states: { a: {}, b: {} } })
      .bindTool('cart.pay', 'b')
      .bindTool('cart.view', 'b');

  it('shows each gate what the upstream lists, not what other gates leave of it', async () => {
    const gate = checkoutGate().bindTool('cart.veiw', 'empty').bindTool('cart.view', 'empty');
    const { client, warnings } = await visit({ workflow: [hiding(), gate] });
    await client.sees(['cart.add_item']);
    expect(warnings).toEqual([expect.stringContaining('"cart.veiw"')]);
    expect(warnings[0]).toContain('Did you mean "cart.view"?');
  });

  it('shows each gate the annotations of tools that another one hides', async () => {
    const claimed: unknown[] = [];
    const first = new StateMachineGate({
      id: 'first',
      initial: 'a',
      states: { a: { on: { OPEN: 'b' } }, b: {} },
    })
      .bindTool('open', 'a', 'OPEN')
      .bindTool('read', 'b');
    const second = new StateMachineGate({
      id: 'second',
      initial: 'c',
      states: { c: { on: { READ: 'd' } }, d: {} },
    }).bindTool('read', 'c', 'READ');
    const makeServer = toolServer(['open', 'read'], {}, { read: { readOnlyHint: true } });
    const { client, store } = await visit({ makeServer, workflow: [first, second] });
    const { claim } = store;
    store.claim = (request) => {
      claimed.push([request.workflow, request.step.tool, request.step.uncertain]);
      return claim(request);
    };
    await client.sees(['open']);
    await client.calls('open');
    await client.calls('read');
    expect(claimed).toEqual([
      ['first', 'open', 'hold'],
      ['second', 'read', 'retry'],
    ]);
  });
});

describe('a bound tool that the upstream never lists', () => {
  it('is warned of once, with the name that it resembles', async () => {
    const workflow = checkoutGate().bindTool('cart.veiw', 'empty');
    const { client, warnings } = await visit({ workflow });
    await client.raw.tools();
    await client.raw.tools();
    expect(warnings).toEqual([
      'the gate "checkout" binds "cart.veiw", which the upstream does not list. No request meets ' +
        'this binding, and what waits for it stays unavailable. Did you mean "cart.view"? ' +
        'This gate does not gate "cart.view" now.',
    ]);
  });
});

describe('the first list of tools', () => {
  it('warns of arguments that rules read and no schema has, and of what a renamed tool may be', async () => {
    const workflow = StateMachineGate.fromOrder({
      'cart.add_item': { limit: { sum: 'amount', max: 5, same: ['sku'] } },
      settle_invoice: {},
    });
    const { client, warnings } = await visit({ workflow });
    await client.raw.tools();
    await client.raw.tools();
    expect(warnings).toEqual([
      expect.stringContaining('reads the argument "amount" of "cart.add_item", which is not in'),
      expect.stringMatching(/binds "settle_invoice".+this gate does not gate "cart\./),
    ]);
  });
});

describe('onError and onWarning of sessionStore()', () => {
  interface Told {
    readonly errors: string[];
    readonly warnings: string[];
    readonly observers: Pick<FsmGateOptions, 'onError' | 'onWarning'>;
  }

  const listener = (): Told => {
    const [errors, warnings]: [string[], string[]] = [[], []];
    return {
      errors,
      warnings,
      observers: {
        onError: (error) => void errors.push(String(error)),
        onWarning: (warning) => void warnings.push(warning),
      },
    };
  };
  /** Binds a tool that the upstream does not have, and one whose `when` throws. */
  const faulty = (id: string) =>
    new StateMachineGate({ id, initial: 'a', states: { a: {} } })
      .bindTool(`${id}.nothing`, 'a')
      .bindTool('cart.view', 'a', {
        when: () => {
          throw new Error(`secret of ${id}`);
        },
      });

  it('serve each gate behind it that has none of its own', async () => {
    const [app, own] = [listener(), listener()];
    const client = await visited([
      sessionStore(app.observers),
      fsmGate(faulty('heir')),
      fsmGate(faulty('other'), own.observers),
    ]);
    await client.raw.tools();
    await client.raw.tools();
    expect((await client.raw.call('cart.view')).isError).toBe(true);
    expect(app.errors).toEqual(['Error: secret of heir']);
    expect(app.warnings).toEqual([expect.stringContaining('"heir" binds "heir.nothing"')]);
    expect(own.errors).toEqual([]);
    expect(own.warnings).toEqual([expect.stringContaining('"other" binds "other.nothing"')]);
  });

  it('serve a gate on two routes by the sessionStore() in front of each', async () => {
    const routes = [listener(), listener()];
    const gate = fsmGate(faulty('shared'));
    for (const { observers } of routes) {
      const client = await visited([sessionStore(observers), gate]);
      await client.raw.call('cart.view');
    }
    expect(routes.map(({ errors }) => errors)).toEqual([
      ['Error: secret of shared'],
      ['Error: secret of shared'],
    ]);
  });

  it('serve stateSync() too, also for a middleware that cannot act', async () => {
    const app = listener();
    const sync = stateSync({ policies: [] });
    const copying = Object.assign(
      ((req, res, next) => sync(Object.create(req), res, next)) as Middleware,
      sync,
    );
    const upstream = await mounted([sessionStore(app.observers), copying]);
    await expect(connect(upstream.url)).rejects.toThrow();
    expect(app.errors).toEqual([expect.stringContaining('ERR_INTERLOCK_MOUNT')]);
  });

  it('report a wrong order of mounting behind it', async () => {
    const app = listener();
    const twice = [fsmGate(checkoutGate()), fsmGate(checkoutGate())];
    const upstream = await mounted([sessionStore(app.observers), ...twice]);
    await expect(connect(upstream.url)).rejects.toThrow();
    expect(app.errors).toEqual([expect.stringContaining('two gates of the id "checkout"')]);
  });

  it('are told of what stands behind, and what stands in front keeps its own', async () => {
    const [first, app] = [listener(), listener()];
    const sync = stateSync({ policies: [], ...first.observers });
    const client = await visited([sync, sessionStore(app.observers), fsmGate(faulty('last'))]);
    await client.raw.tools();
    await client.raw.call('cart.view');
    expect([app.errors.length, app.warnings.length]).toEqual([1, 1]);
    expect([first.errors, first.warnings]).toEqual([[], []]);
  });
});

describe('the inline form', () => {
  it('declares a tool once for both middlewares', async () => {
    const add = tool('cart.add_item').bindState('empty', 'ADD_ITEM').invalidates('cart.*');
    const view = tool('cart.view').stale();
    const gate = new StateMachineGate({
      id: 'inline',
      initial: 'empty',
      states: { empty: { on: { ADD_ITEM: 'has_items' } }, has_items: {} },
    }).bind(add, view);
    const sync = { policies: [], tools: [add, view] };
    const { client } = await visit({ workflow: gate, sync });
    const { tools } = await client.raw.client.listTools();
    expect(tools.find(({ name }) => name === 'cart.view')?.description).toBe(
      'Does cart.view. [Cache-Control: no-store]',
    );
    expect((await client.calls('cart.add_item')).texts[1]).toBe(
      '[System: Cache invalidated for cart.* — caused by cart.add_item]',
    );
    await client.isRefused('cart.add_item', 'state');
  });
});

describe('mounting', () => {
  it('works without sessionStore(), with runs in memory', async () => {
    const client = await visited([fsmGate(checkoutGate())]);
    await client.calls('cart.add_item');
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
  });

  it('takes stateSync() in any place', async () => {
    for (const at of [0, 1, 2]) {
      const middlewares = gated();
      middlewares.splice(
        at,
        0,
        stateSync({
          policies: [{ match: 'cart.**', invalidates: ['cart.*'] }],
          placement: 'prepend',
        }),
      );
      const client = await visited(middlewares);
      expect((await client.calls('cart.add_item')).texts).toEqual([
        '[System: Cache invalidated for cart.* — caused by cart.add_item]',
        'cart.add_item done',
      ]);
    }
  });

  it('fails closed and says why if sessionStore() comes after the gate that needs it', async () => {
    const errors: unknown[] = [];
    const late = sessionStore({ onError: (error) => errors.push(error) });
    const upstream = await mounted([fsmGate(checkoutGate()), late]);
    await expect(connect(upstream.url)).rejects.toThrow();
    expect(errors[0]).toMatchObject({ code: 'ERR_INTERLOCK_MOUNT' });
  });

  it('refuses two gates of one id, which would share a snapshot', async () => {
    const errors: unknown[] = [];
    const onError = (error: unknown): void => void errors.push(error);
    const second = fsmGate(checkoutGate(), { onError });
    const upstream = await mounted([sessionStore(), fsmGate(checkoutGate()), second]);
    await expect(connect(upstream.url)).rejects.toThrow();
    expect(String(errors[0])).toContain('"checkout"');
  });

  it('acts once if it is mounted twice', async () => {
    const gate = fsmGate(checkoutGate(), { announce: true });
    const sync = stateSync({ policies: [{ match: 'cart.*', invalidates: ['cart.*'] }] });
    const client = await visited([sessionStore(), gate, sync, gate, sync]);
    expect((await client.calls('cart.add_item')).texts).toHaveLength(3);
  });

  it('leaves the gate object where it was, and tells its callbacks which run moved', async () => {
    const gate = checkoutGate();
    const moves: unknown[] = [];
    gate.onTransition((move) => void moves.push(move));
    const { client } = await visit({ workflow: gate });
    await client.calls('cart.add_item');
    expect(gate.currentState).toBe('empty');
    expect(moves).toEqual([
      {
        changed: true,
        previousState: 'empty',
        currentState: 'has_items',
        event: 'ADD_ITEM',
        run: client.run,
      },
    ]);
  });
});

describe('a mistake in the options', () => {
  it('is told with the options of the middleware itself, in front of those that all have', () => {
    expect(() => sessionStore({ ttl: 1 } as object)).toThrow(
      'known are "store", "key", "principal", "claims", "idleMs"',
    );
    expect(() => fsmGate(checkoutGate(), { store: 1 } as object)).toThrow(
      'known are "announce", "visibility"',
    );
    expect(() => stateSync({ policy: [] } as never)).toThrow('Known are "policies", "defaults"');
  });

  it.each<[unknown, string]>([
    ['yes', 'listCache: expected boolean or object'],
    [{ ttl: 5 }, 'listCache: unknown key "ttl", did you mean "ttlMs"?'],
    [{ ttlMs: 0 }, 'listCache.ttlMs: '],
    [{ vary: 'x-plan' }, 'listCache.vary: expected a function'],
    [{ shared: 'all' }, 'listCache.shared: expected boolean'],
  ])('is a list cache of %j', (listCache, said) => {
    expect(() => fsmGate(checkoutGate(), { listCache } as object)).toThrow(`fsmGate(): ${said}`);
  });

  it('is a definition in the place of a gate', () => {
    expect(() => fsmGate({ initial: 'a', states: { a: {} } } as never)).toThrow(
      'must be a StateMachineGate, got a machine; write fsmGate(new StateMachineGate(machine))',
    );
    expect(() => fsmGate(StateMachineGate as never)).toThrow(
      'must be a StateMachineGate, got the class itself; write fsmGate(new StateMachineGate(',
    );
    expect(() => fsmGate({ pay: { after: 'checkout' } } as never)).toThrow(
      'got an object; of rules of order make StateMachineGate.fromOrder(rules)',
    );
    const ofAnotherCopy = { compile() {}, bindTool() {} };
    expect(() => fsmGate(ofAnotherCopy as never)).toThrow('of another copy of mcp-interlock');
    expect(() => runsOf(undefined as never, {})).toThrow(
      'must be a StateMachineGate, got undefined',
    );
  });

  it('is a request, where a door is mounted without its brackets', () => {
    const request = new IncomingMessage(new Socket());
    expect(() => fsmGate(request as never)).toThrow('got a request; write fsmGate(gate)');
    expect(() => sessionStore(request as object)).toThrow(
      'sessionStore() got a request: mount sessionStore(), with the brackets',
    );
  });

  it('is a store in their place, which would not be used', () => {
    const store = sqliteStore({ database: new Database(':memory:') });
    expect(() => sessionStore(store as object)).toThrow('got an instance of DocumentStore');
    expect(() => sessionStore(memoryStore() as object)).toThrow('got an instance of MemoryStore');
  });

  it('is a second gate in their place, which would not be mounted', () => {
    expect(() => fsmGate(checkoutGate(), checkoutGate() as object)).toThrow(
      'got a StateMachineGate',
    );
  });
});
