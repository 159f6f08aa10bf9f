import { afterEach, describe, expect, it } from 'vitest';
import {
  fsmGate,
  memoryStore,
  principalKey,
  runsOf,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { send } from '../helpers/raw.ts';
import { callStateless, STATELESS, startTwoEras, stateless } from '../helpers/two-eras.ts';

const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function serve() {
  const store = memoryStore();
  const gate = new StateMachineGate({
    initial: 'cart',
    states: { cart: { on: { PAID: 'paid', BROKE: 'review' } }, paid: {}, review: {} },
  }).bindTool('cart.pay', 'cart', { success: 'PAID', failure: 'BROKE' });
  const app = await startTwoEras({
    middlewares: [
      sessionStore({ store, key: principalKey(), principal: () => 'ann' }),
      fsmGate(gate),
    ],
  });
  closing.push(app.close);
  const runs = runsOf(gate, { store });
  const state = async () => (await runs.read(principalKey().runKey('ann')))?.snapshot.state;
  return { ...app, state };
}

describe('a call that the upstream turns away before its tool runs', () => {
  it('is no failure of the tool: it moves nothing, and lets the run go', async () => {
    const { url, calls, state } = await serve();
    const { headers, body } = stateless('tools/call', { name: 'cart.pay', arguments: {} });
    const { 'io.modelcontextprotocol/protocolVersion': version } = body.params._meta;
    const bare = {
      ...body,
      params: { ...body.params, _meta: { 'io.modelcontextprotocol/protocolVersion': version } },
    };
    const refused = await send(url, { headers, body: bare });
    expect(refused.status).toBe(400);
    expect(refused.messages[0]).toMatchObject({ id: body.id, error: { code: -32602 } });
    expect(version).toBe(STATELESS);
    expect(calls).toEqual([]);
    expect(await state()).toBe('cart');
    expect((await callStateless(url, 'cart.pay')).text).toBe('cart.pay done');
    expect(await state()).toBe('paid');
  });

  it('unlike one whose tool says that it failed', async () => {
    const { url, state } = await serve();
    expect((await callStateless(url, 'cart.pay', { fail: true })).isError).toBe(true);
    expect(await state()).toBe('review');
  });
});
