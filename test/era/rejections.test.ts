import { describe, expect, it } from 'vitest';
import { principalKey, StateMachineGate } from '../../src/index.ts';
import { send } from '../helpers/raw.ts';
import { sceneOfBothEras } from '../helpers/scene.ts';
import { callStateless, STATELESS, stateless } from '../helpers/two-eras.ts';

async function shop() {
  const workflow = new StateMachineGate<string, string>({
    initial: 'cart',
    states: { cart: { on: { PAID: 'paid', BROKE: 'review' } }, paid: {}, review: {} },
  }).bindTool('cart.pay', 'cart', { success: 'PAID', failure: 'BROKE' });
  const session = { key: principalKey(), principal: () => 'ann' };
  const app = await sceneOfBothEras({ workflow, session });
  return { ...app, run: app.run(principalKey().runKey('ann')) };
}

describe('a call that the upstream rejects before its tool runs', () => {
  it('is no failure of the tool: it moves nothing, and lets the run go', async () => {
    const { url, calls, run } = await shop();
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
    await run.isIn('cart');
    await run.is('idle');
    expect((await callStateless(url, 'cart.pay')).text).toBe('cart.pay done');
    await run.isIn('paid');
  });

  it('unlike one whose tool says that it failed', async () => {
    const { url, run } = await shop();
    expect((await callStateless(url, 'cart.pay', { fail: true })).isError).toBe(true);
    await run.isIn('review');
  });
});
