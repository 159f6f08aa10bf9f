import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { runDigest, UnknownOutcome } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { ClaimRequest } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type Scene, type SceneClient, scene } from '../helpers/scene.ts';

const LEASE = 8_000;

/** A step of a killed process: only its claim is left. */
async function leaveClaim(
  app: Scene,
  run: string,
  uncertain: 'hold' | 'retry' = 'hold',
): Promise<string> {
  const step = { tool: 'cart.add_item', digest: '', uncertain };
  const request: ClaimRequest = {
    run,
    workflow: 'checkout',
    token: `dead ${run} ${Math.random()}`,
    step,
    states: undefined,
    initial: { state: 'empty', updatedAt: 0 },
    leaseMs: LEASE,
    ttlMs: 24 * 3_600_000,
  };
  const claimed = await app.data.claim(request);
  expect(claimed.status).toBe('claimed');
  return claimed.status === 'claimed' ? claimed.idempotencyKey : '';
}

const told = (app: Scene) => app.errors.filter((error) => error instanceof UnknownOutcome);

describe('a claim that a killed process left behind', () => {
  const meetings: readonly [string, (app: Scene, client: SceneClient) => Promise<unknown>][] = [
    ['a call', (_, client) => client.isRefused('cart.add_item', 'held')],
    ['a list', (_, client) => client.raw.tools()],
    ['a look from outside', (app, client) => app.runs.read(client.run)],
    ['an event from outside', (app, client) => app.runs.send(client.run, 'ADD_ITEM')],
    ['a sweep', (app, client) => app.runs.sweep([client.run])],
    ['a list of held runs', (app) => app.runs.held()],
    ['a list of stuck runs', (app) => app.runs.stuck({ forMs: 0 })],
    ['a count', (app) => app.runs.count()],
  ];

  it.each(meetings)('is reported by %s that meets it, and only once', async (_, meets) => {
    const app = await scene();
    const client = await app.client();
    const idempotencyKey = await leaveClaim(app, client.run);
    await client.raw.tools();
    await app.run(client.run).is('running');
    expect(told(app)).toEqual([]);
    app.clock.advance(LEASE);
    await meets(app, client);
    expect(told(app)).toEqual([
      expect.objectContaining({
        run: client.run,
        workflow: 'checkout',
        tool: 'cart.add_item',
        idempotencyKey,
        message: expect.stringContaining(
          `${runDigest(client.run)} until a person resolves it: runsOf(gate, { store })` +
            `.resolve({ idempotencyKey: "${idempotencyKey}" }, 'succeeded'), or 'failed' ` +
            '(see https://',
        ),
        help: expect.stringMatching(/^https:.*#when-the-outcome-is-unknown$/),
      }),
    ]);
    const [error] = told(app);
    // What `console.error` prints, and what a logger makes of it.
    for (const printed of [inspect(error), JSON.stringify(error), JSON.stringify({ ...error })])
      expect(printed).not.toContain(client.run);
    expect(inspect(error)).toContain(runDigest(client.run));
    for (const [, each] of meetings) await each(app, client);
    expect(told(app)).toHaveLength(1);
    const resolved = await app.runs.resolve({ idempotencyKey }, 'failed');
    expect(resolved).toMatchObject({ resolved: true });
  });

  it('is reported once for each claim, and not if the step may be repeated', async () => {
    const app = await scene();
    const clients = await Promise.all([app.client(), app.client(), app.client()]);
    const [one, other, repeatable] = clients;
    if (!one || !other || !repeatable) throw new Error('too few clients');
    await leaveClaim(app, one.run);
    await leaveClaim(app, other.run);
    await leaveClaim(app, repeatable.run, 'retry');
    app.clock.advance(LEASE);
    for (const client of clients) await client.raw.tools();
    expect(told(app).map((error) => (error as UnknownOutcome).run)).toEqual([one.run, other.run]);
    await app.runs.resolve(one.run, 'failed');
    await leaveClaim(app, one.run);
    app.clock.advance(LEASE);
    await one.isRefused('cart.add_item', 'held');
    expect(told(app)).toHaveLength(3);
  });

  it('is not reported again by the process that gave up its step', async () => {
    const app = await scene({
      behind: [
        (req, res, next) =>
          req.method === 'POST' && req.headers['x-cut'] === 'yes' ? void res.destroy() : next(),
      ],
    });
    const client = await app.client();
    const session = await app.session({ 'x-cut': 'no' });
    const headers = { 'x-cut': 'yes' };
    const body = { jsonrpc: '2.0', id: 9, method: 'tools/call', params: { name: 'cart.add_item' } };
    await session.post(body, headers).catch(() => {});
    await expect.poll(() => told(app)).toHaveLength(1);
    app.clock.advance(LEASE);
    await session.call('cart.add_item');
    await app.runs.read(session.id);
    expect(told(app)).toHaveLength(1);
    await client.calls('cart.add_item');
  });

  it('is not reported when an operator resolves it', async () => {
    const app = await scene();
    const client = await app.client();
    await leaveClaim(app, client.run);
    app.clock.advance(LEASE);
    const errors: unknown[] = [];
    const options = { store: app.data, onError: (error: unknown) => void errors.push(error) };
    const runs = runsOf(checkoutGate(), options);
    expect(await runs.resolve(client.run, 'succeeded')).toMatchObject({ resolved: true });
    expect(errors).toEqual([]);
  });
});
