import express, { type Request, type RequestHandler, type Response } from 'express';
import express4 from 'express4';
import request from 'supertest';
import { afterEach, describe, expect, it, vi } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { mount, stageWith } from '../src/doors/middleware.ts';
import { fsmGate, type Middleware, sessionStore, stateSync } from '../src/index.ts';
import { DEFAULT_LIMITS } from '../src/wire/exchange.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { callOf, INITIALIZE } from './helpers/raw.ts';

const MAKERS: Readonly<Record<string, () => Middleware>> = {
  'sessionStore()': () => sessionStore(),
  'fsmGate()': () => fsmGate(checkoutGate()),
  'stateSync()': () => stateSync({ policies: [] }),
};

/** The global `process` as another runtime shows it. */
function runsOn(versions: Partial<NodeJS.ProcessVersions>): void {
  vi.stubGlobal('process', Object.create(process, { versions: { value: versions } }));
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe.each(Object.entries(MAKERS))('%s', (_, make) => {
  it('refuses a Node that is too old, at construction', () => {
    runsOn({ node: '18.20.8' });
    expect(make).toThrow(/needs Node 20 or later, and this is Node 18\.20\.8 \(ERR_INTERLOCK_NODE/);
  });

  it.each([{ node: '20.0.0' }, { node: '101.0.0' }, {}])('is made on %o', (versions) => {
    runsOn(versions);
    expect(make).not.toThrow();
  });
});

it('`engines` says from which Node on the middlewares can be made', () => {
  const [, oldest = ''] = /^>=(\d+)$/.exec(manifest.engines.node) ?? [];
  runsOn({ node: `${oldest}.0.0` });
  expect(sessionStore).not.toThrow();
  runsOn({ node: `${Number(oldest) - 1}.99.0` });
  expect(() => sessionStore()).toThrow('ERR_INTERLOCK_NODE');
});

describe.each([
  ['Express 4', express4],
  ['Express 5', express],
])('a route of all() in %s', (_, create) => {
  it('has each middleware once, although the route has it once for each method', async () => {
    const seen: number[] = [];
    const watching = mount([
      stageWith(DEFAULT_LIMITS, () => true, {
        mayWatch: () => true,
        watches({ stages }) {
          seen.push(stages.length);
          return true;
        },
      }),
    ]);
    const app = create();
    const others = [sessionStore(), fsmGate(checkoutGate())] as readonly Middleware[];
    const chain = [watching, ...others] as readonly RequestHandler[];
    app.all('/mcp', ...chain, (_req: Request, res: Response) => void res.end());
    await request(app).put('/mcp');
    await request(app).put('/mcp');
    expect(seen).toEqual([3, 3]);
  });

  it('lets a middleware watch that the app has wrapped', async () => {
    let seen = 0;
    const watching = mount([
      stageWith(DEFAULT_LIMITS, () => true, {
        watches() {
          seen += 1;
          return true;
        },
      }),
    ]);
    const app = create();
    app.all('/mcp', (req: Request, res: Response, next) => watching(req, res, next));
    app.all('/mcp', (_req: Request, res: Response) => void res.end());
    await request(app).post('/mcp').send({}).expect(200);
    expect(seen).toBe(1);
  });
});

describe('a request, as Express hands it to the middlewares', () => {
  const app = () => {
    const shop = express();
    const onWarning = (): void => {};
    const gated: readonly Middleware[] = [
      sessionStore({ onWarning }),
      fsmGate(checkoutGate(), { onWarning }),
    ];
    const upstream: RequestHandler = (req, res) => {
      if (req.method === 'OPTIONS') return void res.sendStatus(204);
      res.json({ jsonrpc: '2.0', id: req.body.id, result: { content: [] } });
    };
    shop.all('/mcp', ...(gated as readonly RequestHandler[]), express.json(), upstream);
    return request(shop);
  };

  it('passes as OPTIONS without a body', async () => {
    await app().options('/mcp').set('origin', 'https://shop.example').expect(204);
  });

  it('is refused where its body is too large', async () => {
    const large = { ...callOf(1, 'cart.view'), pad: 'x'.repeat(5 << 20) };
    await app().post('/mcp').send(large).expect(413);
  });

  it('is refused without a session, and with one that is unknown', async () => {
    await app().post('/mcp').send(callOf(1, 'cart.view')).expect(400);
    const named = app().post('/mcp').set('mcp-session-id', 'made-up');
    await named.send(callOf(1, 'cart.view')).expect(404);
  });

  it('begins a session, and then meets the gate', async () => {
    const shop = app();
    const begun = await shop.post('/mcp').send(INITIALIZE).expect(200);
    const session = String(begun.headers['mcp-session-id']);
    const refused = await shop
      .post('/mcp')
      .set('mcp-session-id', session)
      .send(callOf(2, 'cart.pay'))
      .expect(200);
    expect(refused.body.result).toMatchObject({
      isError: true,
      _meta: { 'mcp-interlock/refusal': { reason: 'state' } },
    });
  });
});
