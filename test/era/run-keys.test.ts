import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type FsmGateOptions,
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { sceneOfBothEras } from '../helpers/scene.ts';
import {
  AUTO,
  ask,
  callStateless,
  connectV2,
  PINNED,
  type TwoErasOptions,
} from '../helpers/two-eras.ts';

async function serve(
  key: RunKeyStrategy | readonly RunKeyStrategy[] | undefined,
  gate: FsmGateOptions = {},
  options: TwoErasOptions = {},
) {
  const app = await sceneOfBothEras({ session: { key }, gate, ...options });
  return { ...app, app, store: app.data };
}

describe('a stateless request without a run key', () => {
  it('is refused where it calls a gated tool, and the developer is warned once', async () => {
    const { url, app, warnings } = await serve(undefined);
    const refused = await callStateless(url, 'cart.add_item', {}, { user: 'alice' });
    expect(refused.text).toBe(
      '[System: cart.add_item was not run, because it belongs to no run of checkout. Nothing ' +
        'that you can send names one, so no call of it can run here. Do not try again: tell the ' +
        'user that this server has to be set up for clients without a session.]',
    );
    expect(refused.result.resultType).toBe('complete');
    expect(refused.result._meta['mcp-interlock/refusal'].reason).toBe('no-run');
    await callStateless(url, 'cart.pay', {}, { user: 'alice' });
    expect(warnings).toEqual([expect.stringContaining('sessionStore({ key })')]);
    expect((await callStateless(url, 'cart.view')).text).toBe('cart.view done');
    expect(app.calls.map(({ tool }) => tool)).toEqual(['cart.view']);
  });
});

describe('a stateless list without a run key', () => {
  it.each([['hide'], ['stable']] as const)(
    'warns the developer of what to do, once, where lists are to %s',
    async (visibility) => {
      const { url, warnings } = await serve(undefined, { visibility });
      await ask(url, 'tools/list');
      await ask(url, 'tools/list');
      await callStateless(url, 'cart.add_item', {}, { user: 'alice' });
      expect(warnings.filter((each) => !each.startsWith('visibility'))).toEqual([
        'nothing in a request names its run, so each call of a bound tool is refused. Since ' +
          'MCP 2026-07-28 there are no sessions: give sessionStore({ key }) principalKey() or ' +
          'managedHandle(), see mcp-interlock/docs/build/eras.md#what-names-a-run',
      ]);
    },
  );

  it('warns of nothing where a key names runs, or may', async () => {
    for (const key of [principalKey(), managedHandle({ start: 'begin', argument: 'run' })]) {
      const { url, warnings } = await serve(key);
      await ask(url, 'tools/list');
      await ask(url, 'tools/list', {}, { user: 'alice' });
      expect(warnings).toEqual([]);
    }
  });
});

describe('principalKey()', () => {
  it('gives each principal one run, in each era and for each client', async () => {
    const { url, store } = await serve([principalKey()]);
    const auto = await connectV2(url, 'alice', AUTO);
    const pinned = await connectV2(url, 'alice', PINNED);
    const v1 = await connect(url, { 'x-user': 'alice' });
    onTestFinished(() => auto.close());
    onTestFinished(() => pinned.close());
    onTestFinished(() => v1.close());
    await auto.callTool({ name: 'cart.add_item', arguments: {} });
    await pinned.callTool({ name: 'cart.checkout', arguments: {} });
    expect((await v1.call('cart.pay')).text).toBe('cart.pay done');
    const run = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'alice' });
    expect((await runsOf(checkoutGate(), { store }).read(run))?.snapshot.state).toBe('confirmed');
    expect((await callStateless(url, 'cart.pay', {}, { user: 'bob' })).text).toContain(
      'not available while checkout is in "empty"',
    );
  });

  it('lets a user pay again, in the stateless era and with any client', async () => {
    const { url, run } = await serve([principalKey()], { visibility: 'hide' });
    const alice = await connectV2(url, 'alice', PINNED);
    onTestFinished(() => alice.close());
    const tools = async () => (await alice.listTools()).tools.map(({ name }) => name);
    for (let time = 0; time < 2; time++) {
      expect(await tools()).toEqual(['cart.add_item', 'cart.view']);
      for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay'])
        expect((await alice.callTool({ name, arguments: {} })).isError, name).not.toBe(true);
    }
    const key = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'alice' });
    expect((await run(key).runs.history(key)).map(({ event }) => event)).toEqual([
      ...['ADD_ITEM', 'CHECKOUT', 'PAY', 'restart', 'ADD_ITEM', 'CHECKOUT', 'PAY'],
    ]);
  });

  it('gives no run to a caller without a principal', async () => {
    const { url, app, warnings } = await serve(principalKey());
    expect((await callStateless(url, 'cart.add_item')).text).toContain(
      'Its runs belong to users who have signed in, and this request comes from none.',
    );
    expect(warnings).toEqual([
      expect.stringContaining('Mount authentication in front of sessionStore()'),
    ]);
    expect(app.calls).toEqual([]);
  });

  it('leaves sessions their own runs where they are preferred', async () => {
    const { url } = await serve([sessionKey(), principalKey()]);
    await callStateless(url, 'cart.add_item', {}, { user: 'alice' });
    const v1 = await connect(url, { 'x-user': 'alice' });
    onTestFinished(() => v1.close());
    expect(await v1.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect((await callStateless(url, 'cart.checkout', {}, { user: 'alice' })).text).toBe(
      'cart.checkout done',
    );
  });
});

describe('handleKey()', () => {
  let made = 0;
  const baskets: TwoErasOptions = {
    register(server) {
      server.registerTool('create_basket', { description: 'Makes a basket.' }, () => {
        const structuredContent = { basket_id: `b${++made}` };
        return { content: [{ type: 'text', text: 'made' }], structuredContent };
      });
    },
  };
  const key = () => handleKey('basket_id', { createdBy: 'create_basket' });

  it('gives each handle a run of its own', async () => {
    const { url } = await serve(key(), {}, baskets);
    const create = () => callStateless(url, 'create_basket', {}, { user: 'alice' });
    const [one, two] = [await create(), await create()].map(
      ({ result }) => result.structuredContent.basket_id,
    );
    const call = (tool: string, basket_id: string) =>
      callStateless(url, tool, { basket_id }, { user: 'alice' });
    expect((await call('cart.add_item', one)).text).toBe('cart.add_item done');
    expect((await call('cart.checkout', two)).isError).toBe(true);
    expect((await call('cart.checkout', one)).text).toBe('cart.checkout done');
  });

  it('does not know a handle that no tool returned to this principal', async () => {
    const { url, app } = await serve(key(), {}, baskets);
    const { result } = await callStateless(url, 'create_basket', {}, { user: 'alice' });
    const { basket_id } = result.structuredContent;
    const asked = [
      await callStateless(url, 'cart.add_item', { basket_id }, { user: 'bob' }),
      await callStateless(url, 'cart.add_item', { basket_id }),
      await callStateless(url, 'cart.add_item', { basket_id: 'made-up' }, { user: 'alice' }),
    ];
    for (const { text } of asked) {
      expect(text).toContain('Its "basket_id" names no run that is known');
      expect(text).toContain('Call create_basket to begin a new one');
    }
    expect((await callStateless(url, 'cart.add_item', {}, { user: 'alice' })).text).toContain(
      'It needs the argument "basket_id"',
    );
    expect(app.calls).toEqual([]);
  });
});

describe('managedHandle()', () => {
  const key = () => managedHandle({ start: 'checkout.start', argument: 'workflow_run' });

  it('begins a run by a tool of its own, and asks each gated tool for it', async () => {
    const { url, app } = await serve(key());
    const client = await connectV2(url, 'alice', PINNED);
    onTestFinished(() => client.close());
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      'checkout.start',
      'cart.add_item',
      'cart.checkout',
      'cart.pay',
      'cart.view',
    ]);
    expect(tools[1]?.inputSchema).toMatchObject({
      properties: { sku: { type: 'string' }, workflow_run: { type: 'string' } },
      required: ['workflow_run'],
    });
    expect(tools[4]?.inputSchema.properties).not.toHaveProperty('workflow_run');
    const started = await client.callTool({ name: 'checkout.start', arguments: {} });
    const handle = started.structuredContent as { workflow_run: string };
    await client.callTool({ name: 'cart.add_item', arguments: { sku: 'tea', ...handle } });
    expect(app.calls).toEqual([{ tool: 'cart.add_item', args: { sku: 'tea' } }]);
  });
});
