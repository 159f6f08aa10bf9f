import { describe, expect, it } from 'vitest';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import type { FaultyStore } from '../helpers/faulty-store.ts';
import { callOf, INITIALIZE, type RawResponse, reasonOf, send } from '../helpers/raw.ts';
import { pass, passUntil, type Scene, scene, staysQuiet } from '../helpers/scene.ts';

const SECRETS = /hunter2|ECONNREFUSED|redis|10\.0\.0\.7/;
const UNAVAILABLE = { code: -32000, message: 'The session store is unavailable' };
const MODES = ['stateful', 'stateless'] as const;
/** Longer than `sessionCacheMs`. */
const STALE = 60_000;

function expectNoLeak(...responses: RawResponse[]): void {
  for (const { headers, text } of responses)
    expect(JSON.stringify(headers) + text).not.toMatch(SECRETS);
}

/** Breaks the store while `work` runs, or makes it hang and lets its deadlines pass. */
async function withBroken<T>(app: Scene, how: 'lost' | 'hang', work: () => Promise<T>): Promise<T> {
  const operations: Parameters<FaultyStore['fail']>[0][] = ['open', 'read', 'claim', 'end'];
  for (const each of operations) app.store.fail(each, Number.POSITIVE_INFINITY, how);
  return how === 'lost' ? work() : passUntil(app.clock, work());
}

describe.each(['lost', 'hang'] as const)('while the store cannot be asked (%s)', (how) => {
  it.each(['POST', 'GET', 'DELETE'])(
    'an unknown session is a 503 and not a 404 (%s)',
    async (method) => {
      const app = await scene();
      const body = method === 'POST' ? { body: callOf(3, 'cart.view') } : {};
      const request = { method, headers: { 'mcp-session-id': 'somebody' }, ...body };
      const refused = await withBroken(app, how, () => send(app.url, request));
      const id = method === 'POST' ? 3 : null;
      expect([refused.status, refused.messages]).toEqual([
        503,
        [{ jsonrpc: '2.0', id, error: UNAVAILABLE }],
      ]);
      expectNoLeak(refused);
      expect(app.ledger.calls).toEqual([]);
    },
  );

  it.each(MODES)('no session begins, and the client is told so (%s)', async (mode) => {
    const app = await scene({ shape: { mode } });
    const refused = await withBroken(app, how, () => send(app.url, { body: INITIALIZE }));
    expect(refused.status).toBe(503);
    expect(refused.headers).not.toHaveProperty('mcp-session-id');
    expect(refused.messages).toEqual([
      {
        jsonrpc: '2.0',
        id: 'init',
        error: { code: -32000, message: 'The session could not be recorded; try again later' },
      },
    ]);
    expectNoLeak(refused);
  });

  it('a known session keeps its ungated tools, even after sessionCacheMs', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    for (let round = 0; round < 3; round++) {
      app.clock.advance(STALE);
      const viewed = await withBroken(app, how, () => session.post(callOf(1, 'cart.view')));
      expect(viewed.messages.at(-1)?.result.content).toEqual([
        { type: 'text', text: 'cart.view done' },
      ]);
    }
    expect(app.ledger.calls).toEqual(['cart.view', 'cart.view', 'cart.view']);
  });

  it.each(['cart.pay', 'cart.add_item'])(
    'a known session is refused %s, whatever its state',
    async (tool) => {
      const app = await scene();
      const session = await app.sessionAt('payment');
      app.clock.advance(STALE);
      const refused = await withBroken(app, how, () => session.post(callOf(1, tool)));
      expect([refused.status, reasonOf(refused.messages[0])]).toEqual([200, 'unavailable']);
      expect(refused.messages[0]?.result.isError).toBe(true);
      expectNoLeak(refused);
      expect(app.ledger.calls).toEqual([]);
    },
  );

  it('a list shows the ungated tools, and no gated one', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.clock.advance(STALE);
    const listed = await withBroken(app, how, () =>
      session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
    );
    expect(listed.messages[0]?.result.tools.map((tool: { name: string }) => tool.name)).toEqual([
      'cart.view',
    ]);
    expectNoLeak(listed);
  });

  it('a DELETE does not end a minted session, and does so when it is sent again', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const session = await app.session();
    const refused = await withBroken(app, how, () => session.end());
    expect(refused.status).toBe(503);
    expectNoLeak(refused);
    app.store.heal();
    expect((await session.end()).status).toBe(200);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
  });

  it('the developer is told why, with the error of the store', async () => {
    const app = await scene();
    await withBroken(app, how, () =>
      send(app.url, { headers: { 'mcp-session-id': 'x' }, body: callOf(1, 'x') }),
    );
    const [error] = app.errors as [Error & { cause?: Error }];
    expect(error.name).toBe('StoreUnavailable');
    if (how === 'lost') expect(error.cause?.message).toContain('hunter2');
    else expect(error.message).toContain('within 2000 ms');
  });

  it('and once it is back, each run goes on where it was', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.clock.advance(STALE);
    await withBroken(app, how, () => session.call('cart.pay'));
    app.store.heal();
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    expect(reasonOf(await session.call('cart.pay'))).toBeUndefined();
    expect(await session.tools()).toEqual(['cart.view']);
  });
});

describe('a claim that the store did not answer in time', () => {
  it('is released, and holds up no call', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.store.take();
    app.store.fail('claim', 1, 'hang');
    const refused = session.call('cart.pay');
    await expect.poll(() => app.store.asked).toEqual(['claim']);
    app.clock.advance(2_000);
    expect(reasonOf(await refused)).toBe('unavailable');
    await expect.poll(() => app.store.asked.at(-1)).toBe('release');
    expect((await session.call('cart.pay')).result.content).toEqual([
      { type: 'text', text: 'cart.pay done' },
    ]);
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });
});

describe('a commit that fails each time', () => {
  it("is told without the store's error, and saved when the store is back", async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    app.store.fail('commit');
    const call = session.post(callOf(9, 'cart.pay'));
    let answer: RawResponse | undefined;
    call.then((response) => {
      answer = response;
    });
    await expect
      .poll(() => {
        app.clock.advance(1_600);
        return answer;
      })
      .toBeDefined();
    expect(answer?.messages.at(-1)).toEqual({
      jsonrpc: '2.0',
      id: 9,
      result: {
        content: [
          {
            type: 'text',
            text:
              '[System: cart.pay ran, but its outcome could not be recorded. ' +
              'Do not call it again; the operator must check what happened.]',
          },
        ],
        isError: true,
        _meta: {
          'mcp-interlock/outcome': {
            workflow: 'checkout',
            tool: 'cart.pay',
            outcome: 'unknown',
            ran: true,
          },
        },
      },
    });
    expectNoLeak(await call);
    await pass(app.clock, 60_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect(await session.tools()).toEqual(['cart.view']);
    await staysQuiet(app);
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  /** A session whose cart.pay has run, and could not be saved while its lease lasted. */
  async function unsaved(app: Scene) {
    const session = await app.sessionAt('payment');
    app.store.take();
    app.store.fail('commit');
    const call = session.call('cart.pay');
    await expect.poll(() => app.store.asked).toContain('commit');
    await pass(app.clock, 15_000);
    expect((await call).result._meta['mcp-interlock/outcome']).toMatchObject({ ran: true });
    return session;
  }

  it('is told of once, when it is saved after all', async () => {
    const workflow = checkoutGate();
    const app = await scene({ workflow });
    const session = await unsaved(app);
    const moves: unknown[] = [];
    workflow.onTransition(({ currentState }) => void moves.push(currentState));
    const listening = await session.listen();
    listening.messages.length = 0;
    // The commit is saved and its answer lost: the next try finds it done.
    app.store.fail('commit', 2, 'done');
    await pass(app.clock, 60_000);
    expect(moves).toEqual(['confirmed']);
    await expect.poll(() => listening.messages).toHaveLength(1);
  });

  it('is not saved over what a person has resolved', async () => {
    const workflow = checkoutGate();
    const app = await scene({ workflow });
    const session = await unsaved(app);
    const runs = runsOf(workflow, { store: app.data });
    expect(await runs.resolve(session.id, 'failed')).toMatchObject({ resolved: true });
    app.store.heal();
    await pass(app.clock, 60_000);
    const view = await runs.read(session.id);
    expect(view).toMatchObject({ status: 'idle', snapshot: { state: 'payment' } });
    await staysQuiet(app);
  });

  it('is not tried for ever', async () => {
    const app = await scene({ gate: { maxStepMs: 60_000 } });
    await unsaved(app);
    await pass(app.clock, 120_000);
    await staysQuiet(app);
  });
});
