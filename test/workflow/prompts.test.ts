import { describe, expect, it } from 'vitest';
import { trailToPrompts } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { scene } from '../helpers/scene.ts';

/** A run in which a model bought something, with a failure, a refusal and a person's help. */
async function bought() {
  const app = await scene({
    gate: { trail: { refusals: true, args: (args) => args } },
  });
  const session = await app.session();
  await session.call('cart.add_item', { sku: 'a' });
  await session.call('cart.pay', {});
  await session.call('cart.checkout', { fail: true });
  await session.call('cart.checkout', {});
  await app.runs.send(session.id, 'CANCEL', { payload: { why: 'the card' } });
  return app.runs.history(session.id);
}

describe('trailToPrompts()', () => {
  it('tells calls as the assistant, and failures and moves from outside as the user', async () => {
    const { messages, state, output } = trailToPrompts(checkoutGate(), await bought());
    expect(messages.map(({ role, content }) => `${role}: ${content}`)).toEqual([
      'assistant: Called "cart.add_item" with {"sku":"a"} in "empty". The run is in "has_items" now.',
      'assistant: Called "cart.pay" with {} in "has_items".',
      'user: "cart.pay" was refused (state). The run is still in "has_items".',
      'assistant: Called "cart.checkout" with {"fail":true} in "has_items".',
      'user: "cart.checkout" failed (tool_error), attempt 1. The run is still in "has_items".',
      'assistant: Called "cart.checkout" with {} in "has_items". The run is in "payment" now.',
      'user: "CANCEL" happened with {"why":"the card"}. The run is in "has_items" now.',
    ]);
    expect(state).toBe('has_items');
    expect(output?.oneOf.map(({ properties }) => properties.tool.const)).toEqual([
      'cart.add_item',
      'cart.checkout',
    ]);
  });

  it('leaves an omitted binding out on both sides of its move', async () => {
    const trail = await bought();
    const contents = (omit: readonly string[]) =>
      trailToPrompts(checkoutGate(), trail, { omit }).messages.map(({ seq }) => seq);
    // The call that came to payment is out, and what went on from there.
    expect(contents(['CHECKOUT'])).toEqual([1, 2, 2, 3, 3]);
    expect(contents(['cart.checkout'])).toEqual([1, 2, 2]);
    expect(contents(['CANCEL'])).toEqual([1, 2, 2, 3, 3, 4]);
    const own = trailToPrompts(checkoutGate(), trail, {
      omit: ({ outcome }) => outcome === 'refused',
    });
    expect(own.messages.map(({ seq }) => seq)).toEqual([1, 3, 3, 4, 5]);
  });

  it('asks for nothing where no tool is available', () => {
    const at = { version: 3, attempt: 1, at: 0, event: 'PAY', outcome: 'succeeded' } as const;
    const paid = { ...at, seq: 3, from: 'payment', to: 'confirmed', tool: 'cart.pay' };
    expect(trailToPrompts(checkoutGate(), [paid]).output).toBeUndefined();
  });

  it('asks for no tool that nobody is shown, since a trail does not say whose run it is', () => {
    const gate = checkoutGate()
      .bindTool('cart.gift', 'empty', { visible: ({ principal }) => principal === 'admin' })
      .bindTool('cart.clear', 'empty', { visible: ({ state }) => state === 'empty' });
    const { output } = trailToPrompts(gate, []);
    expect(output?.oneOf.map(({ properties }) => properties.tool.const)).toEqual([
      'cart.add_item',
      'cart.clear',
    ]);
  });

  it('begins where a run begins', () => {
    expect(trailToPrompts(checkoutGate(), [])).toMatchObject({ messages: [], state: 'empty' });
  });
});
