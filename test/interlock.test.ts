import express, { type RequestHandler } from 'express';
import express4 from 'express4';
import { describe, expect, it, onTestFinished } from 'vitest';
import { gateFetch } from '../src/doors/fetch.ts';
import {
  fsmGate,
  type InterlockOptions,
  interlock,
  StateMachineGate,
  sessionStore,
  stateSync,
} from '../src/index.ts';
import { runsOf } from '../src/runs/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { callOf, INITIALIZE, PROTOCOL, RawSession, reasonOf } from './helpers/raw.ts';
import { type SceneOptions, scene } from './helpers/scene.ts';

const policies = [
  { match: 'cart.*', cacheControl: 'no-store', invalidates: ['cart.view'] },
] as const;

/** Unknown outcomes are meant here. */
const QUIET = { onError: () => {} };

/** A second gate, which binds a tool of its own. */
const shipping = () =>
  new StateMachineGate({
    id: 'shipping',
    initial: 'packed',
    states: { packed: { on: { SHIP: 'sent' } }, sent: {} },
  }).bindTool('parcel.ship', 'packed', 'SHIP');

/** What a client sees of a checkout, and what the app is told. */
async function played(options: SceneOptions) {
  const app = await scene({
    workflow: [checkoutGate(), shipping()],
    sync: { policies },
    ...options,
  });
  const session = await app.session();
  const answers = [
    await session.ask('tools/list'),
    await session.call('cart.pay'),
    await session.call('cart.add_item'),
    await session.ask('tools/list'),
    await session.call('cart.view'),
  ];
  return { answers, ran: app.ledger.calls, errors: app.errors, warnings: app.warnings };
}

describe('interlock()', () => {
  it.each([true, false, ['cart.pay']] as const)(
    'answers as the middlewares that it holds, with enforce: %j',
    async (enforce) => {
      const gate = { enforce };
      const [singly, inOne] = [
        await played({ gate, mounted: 'singly', workflow: checkoutGate() }),
        await played({ gate, mounted: 'in one', workflow: checkoutGate() }),
      ];
      expect(inOne).toEqual(singly);
      expect(inOne.ran).toEqual(
        enforce === false
          ? ['cart.pay', 'cart.add_item', 'cart.view']
          : ['cart.add_item', 'cart.view'],
      );
    },
  );

  it('answers so with several gates and policies', async () => {
    expect(await played({ mounted: 'in one' })).toEqual(await played({ mounted: 'singly' }));
  });

  it.each([
    ['Express 4', express4 as unknown as typeof express],
    ['Express 5', express],
  ])('is mounted on a route or an app of %s, and reaches runs from outside', async (_, create) => {
    const checkout = checkoutGate();
    for (const mount of ['all', 'use'] as const) {
      const mcp = interlock({ gates: [{ gate: checkout, refusal: 'explain' }], policies });
      const app = create();
      app[mount]('/mcp', mcp as RequestHandler, express.json(), answer);
      const server = app.listen(0);
      const { port } = server.address() as { port: number };
      const session = await RawSession.begin(new URL(`http://127.0.0.1:${port}/mcp`));
      expect(reasonOf(await session.call('cart.pay'))).toBe('state');
      await session.call('cart.add_item');
      const runs = runsOf(checkout, { sessions: mcp });
      expect((await runs.read(session.id))?.snapshot.state).toBe('has_items');
      await mcp.close();
      expect(reasonOf(await session.call('cart.checkout'))).toBe('unavailable');
      server.closeAllConnections();
      server.close();
    }
  });

  it('stands in front of a handler of the Fetch API', async () => {
    const fetch = gateFetch(
      async (request) => {
        const { id } = (await request.json()) as { id: number };
        return Response.json({ jsonrpc: '2.0', id, result: { content: [], capabilities: {} } });
      },
      [interlock({ gates: [checkoutGate()] })],
    );
    const post = (body: unknown, headers = {}) =>
      fetch(
        new Request('https://shop.example/mcp', {
          method: 'POST',
          body: JSON.stringify(body),
          headers: {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            ...headers,
          },
        }),
      );
    const begun = await post(INITIALIZE);
    const session = {
      'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
      'mcp-protocol-version': PROTOCOL,
    };
    const refused = await (await post(callOf(1, 'cart.pay'), session)).json();
    expect(reasonOf(refused as never)).toBe('state');
  });

  it.each([
    [{}, '`gates` must be an array of one or more gates; got undefined', 'CONFIG'],
    [{ gates: [] }, '`gates` must be an array of one or more gates; got an empty array', 'CONFIG'],
    [{ gates: ['cart'] }, 'each of `gates` must be a gate, or { gate } with options', 'CONFIG'],
    [
      { gates: [{ gate: {} }] },
      'each of `gates` must be a gate, or { gate } with options',
      'CONFIG',
    ],
    [{ gates: [checkoutGate()], stor: 1 }, 'interlock(): ', 'CONFIG'],
    [{ gates: [{ gate: checkoutGate(), waitMS: 1 }] }, 'interlock(): ', 'CONFIG'],
    [{ gates: [checkoutGate()], policies: 5 }, 'interlock(): ', 'CONFIG'],
    [{ gates: [checkoutGate()], policies: [{ match: '' }] }, 'policies', 'POLICY'],
    [{ gates: [checkoutGate(), checkoutGate()] }, 'checkout', 'MOUNT'],
    [{ gates: [{ gate: shipping(), unbound: 'refuse' }, checkoutGate()] }, 'shipping', 'MOUNT'],
  ])('refuses %j when it is made', (options, words, code) => {
    const make = () => interlock(options as unknown as InterlockOptions);
    expect(make).toThrow(words);
    expect(make).toThrow(expect.objectContaining({ code: `ERR_INTERLOCK_${code}` }));
  });
});

/** Answers each request as an upstream would: a result that names what was called. */
const answer: RequestHandler = (req, res) => {
  const { id, method, params } = req.body ?? {};
  if (id === undefined) return void res.sendStatus(202);
  const content = [{ type: 'text', text: params?.name ?? method }];
  res.json({ jsonrpc: '2.0', id, result: { content, capabilities: {} } });
};

describe.each([
  [
    'mounted singly',
    () => [sessionStore(), fsmGate(checkoutGate(), QUIET), stateSync({ policies })],
  ],
  ['in one', () => [interlock({ gates: [{ gate: checkoutGate(), ...QUIET }], policies })]],
])('a middleware of the app beside those %s', (_, make) => {
  async function shop(foreign: RequestHandler, place: 'front' | 'behind' | 'between') {
    const app = express();
    const chain = make() as unknown as RequestHandler[];
    const at = { front: 0, between: 1, behind: chain.length }[place];
    const isBehindGates = at === chain.length;
    chain.splice(at, 0, foreign);
    app.all('/mcp', ...chain, express.json(), answer);
    const server = app.listen(0);
    const { port } = server.address() as { port: number };
    const url = new URL(`http://127.0.0.1:${port}/mcp`);
    const session = await RawSession.begin(url);
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    return { url, session, isBehindGates };
  }

  it.each(['front', 'between', 'behind'] as const)('may answer: %s', async (place) => {
    let isOpen = true;
    const { session, isBehindGates } = await shop((_req, res, next) => {
      if (isOpen) next();
      else
        res.status(503).json({ jsonrpc: '2.0', id: null, error: { code: 1, message: 'closed' } });
    }, place);
    isOpen = false;
    const { status } = await session.post(callOf(7, 'cart.add_item'));
    isOpen = true;
    // Behind the gate nobody knows whether the call ran, and the client is told so.
    expect(status).toBe(isBehindGates ? 200 : 503);
    const reason = reasonOf(await session.call('cart.checkout'));
    expect(reason).toBe(isBehindGates ? 'held' : 'state');
  });

  it.each(['front', 'between', 'behind'] as const)('may add a header: %s', async (place) => {
    const { url, session } = await shop((_req, res, next) => {
      res.setHeader('x-shop', 'open');
      next();
    }, place);
    const response = await fetch(url, {
      method: 'POST',
      body: JSON.stringify(callOf(7, 'cart.view')),
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...session.headers,
      },
    });
    expect(response.headers.get('x-shop')).toBe('open');
  });

  it.each(['front', 'between', 'behind'] as const)('may patch the response: %s', async (place) => {
    const seen: string[] = [];
    const { session } = await shop((_req, res, next) => {
      const end = res.end.bind(res) as (...given: unknown[]) => typeof res;
      res.end = ((...given: unknown[]) => {
        seen.push('end');
        return end(...given);
      }) as typeof res.end;
      next();
    }, place);
    seen.length = 0;
    await session.call('cart.add_item');
    expect(reasonOf(await session.call('cart.checkout'))).toBeUndefined();
    expect(seen).toEqual(['end', 'end']);
  });

  it('may read the body in front, and replace it: what is judged is what the handler gets', async () => {
    const { session } = await shop((req, res, next) => {
      express.json()(req, res, (error) => {
        if (req.body?.params?.name === 'cart.view') req.body.params.name = 'cart.pay';
        next(error);
      });
    }, 'front');
    expect(reasonOf(await session.call('cart.view'))).toBe('state');
  });
});
