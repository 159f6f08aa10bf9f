import { describe, expect, it } from 'vitest';
import { ListedTools } from '../../src/gate/config.ts';
import { principalKey, StateMachineGate, unboundTools } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type SceneClient, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { ask, callStateless } from '../helpers/two-eras.ts';
import type { Ledger } from '../helpers/upstream.ts';

const LISTED = ['cart.add_item', 'cart.checkout', 'cart.pay'];

/** The checkout with a binding that no list has. */
const misspelt = () => checkoutGate().bindTool('cart.veiw', ['empty', 'has_items', 'payment']);

async function visit(options: SceneOptions = {}) {
  const app = await scene({ workflow: misspelt(), makeServer: toolServer(LISTED), ...options });
  return { ...app, client: await app.client(), another: () => app.client() };
}

/** What a refusal of `cart.pay` offers. */
async function namedTo(client: SceneClient) {
  const { meta, texts } = await client.isRefused('cart.pay', 'state');
  const { available, path } = meta['mcp-interlock/refusal'] as Record<string, unknown>;
  return { available, path, text: texts.join() };
}

describe('a bound tool that the upstream does not list', () => {
  it('is named until the list was seen, and never after that', async () => {
    const { client } = await visit();
    expect((await namedTo(client)).available).toEqual(['cart.add_item', 'cart.veiw']);
    await client.sees(['cart.add_item']);
    const { available, text } = await namedTo(client);
    expect(available).toEqual(['cart.add_item']);
    expect(text).not.toContain('cart.veiw');
  });

  it('is not named in what is announced after a move', async () => {
    const { client } = await visit({ gate: { announce: true } });
    await client.sees(['cart.add_item']);
    expect((await client.calls('cart.add_item')).texts.at(-1)).toBe(
      '[System: checkout is now in "has_items". Available now: cart.add_item, cart.checkout.]',
    );
  });

  it('is not named by the status tool, which waits for nothing of it', async () => {
    const { client } = await visit({ gate: { statusTool: 'checkout.status' } });
    await client.raw.tools();
    const { texts } = await client.calls('checkout.status');
    expect(texts.join()).toContain('cart.add_item');
    expect(texts.join()).not.toContain('cart.veiw');
  });

  it('is not named where a resource is refused', async () => {
    const workflow = misspelt().bindResource('docs://receipts/*', 'confirmed');
    const { client } = await visit({ workflow });
    await client.raw.tools();
    const reading = client.raw.client.readResource({ uri: 'docs://receipts/7' });
    await expect(reading).rejects.toMatchObject({
      data: { 'mcp-interlock/refusal': { available: ['cart.add_item'] } },
    });
  });

  it('is named to no client whose list is a page that came before', async () => {
    const app = await visit();
    await app.client.raw.tools();
    for (let i = 0; i < 3; i++) {
      const next = await app.another();
      await next.sees(['cart.add_item']);
      expect((await namedTo(next)).available).toEqual(['cart.add_item']);
    }
  });

  it('is named to no client whose list was kept', async () => {
    const app = await scene({
      workflow: misspelt(),
      makeServer: toolServer(LISTED),
      gate: { listCache: { shared: true } },
    });
    for (let i = 0; i < 3; i++) {
      const client = await app.client();
      await client.sees(['cart.add_item']);
      await client.sees(['cart.add_item']);
      expect((await namedTo(client)).available).toEqual(['cart.add_item']);
    }
  });

  it('leads nowhere: a way that needs it is not told', async () => {
    const workflow = new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { PAY: 'paid' } },
        paid: { type: 'final' },
      },
    })
      .bindTool('cart.add_itme', 'empty', 'ADD_ITEM')
      .bindTool('cart.pay', 'has_items', 'PAY');
    const { client } = await visit({ workflow });
    await client.raw.tools();
    expect(await namedTo(client)).toEqual({
      available: [],
      path: undefined,
      text:
        '[System: cart.pay is not available while checkout is in "empty". No tool of ' +
        'checkout is available now.]',
    });
  });
});

describe('a bound tool that one client has in its list, and another one has not', () => {
  /** Each second session's server lacks a tool. */
  const unequal = () => {
    let sessions = 0;
    return (ledger: Ledger) =>
      toolServer(sessions++ % 2 === 0 ? [...LISTED, 'cart.veiw'] : LISTED)(ledger);
  };

  it('is named to the one alone', async () => {
    const app = await visit({ makeServer: unequal() });
    const clients = [app.client, await app.another(), await app.another(), await app.another()];
    for (const client of clients) await client.raw.tools();
    const named = await Promise.all(clients.map(async (each) => (await namedTo(each)).available));
    const [full, less] = [['cart.add_item', 'cart.veiw'], ['cart.add_item']];
    expect(named).toEqual([full, less, full, less]);
  });
});

describe('a bound tool that is not listed, since MCP 2026-07-28', () => {
  it('is named to the principals alone who have not listed yet', async () => {
    const { url } = await sceneOfBothEras({
      workflow: misspelt(),
      session: { key: principalKey() },
    });
    const refusalFor = async (user: string): Promise<unknown> => {
      const { result } = await callStateless(url, 'cart.pay', {}, { user });
      return result._meta['mcp-interlock/refusal'].available;
    };
    await ask(url, 'tools/list', {}, { user: 'ann' });
    expect(await refusalFor('ann')).toEqual(['cart.add_item']);
    expect(await refusalFor('bob')).toEqual(['cart.add_item', 'cart.veiw']);
    await ask(url, 'tools/list', {}, { user: 'bob' });
    expect(await refusalFor('bob')).toEqual(['cart.add_item']);
  });
});

describe('a list of several pages', () => {
  const named = (...names: string[]) => names.map((name) => ({ name }));
  const open = () => {
    const listed = new ListedTools(misspelt().compile());
    return {
      note: (reader: string, names: string[], cursor?: string, nextCursor?: string) =>
        listed.note(named(...names), { reader, cursor, nextCursor }, !nextCursor, () => {}),
      missing: (reader: string) => [...listed.missingFor(reader)],
      key: (reader: string) => listed.keyFor(reader),
    };
  };
  const [add, ...rest] = LISTED as [string, ...string[]];

  it('lacks what none of its pages has', () => {
    const { note, missing } = open();
    note('ann', [add], undefined, '2');
    expect(missing('ann')).toEqual([]);
    note('ann', rest, '2');
    expect(missing('ann')).toEqual(['cart.veiw']);
    note('ann', [add], undefined, '2');
    note('ann', [...rest, 'cart.veiw'], '2');
    expect(missing('ann')).toEqual([]);
  });

  it('says nothing where one of its pages was not seen, and is read whole from then on', () => {
    const { note, missing, key } = open();
    const before = key('ann');
    note('ann', rest, '2');
    expect(missing('ann')).toEqual([]);
    expect(key('ann')).not.toBe(before);
    expect(key('bob')).not.toBe(key('ann'));
  });

  it('is read again by all once it is another one', () => {
    const { note, key } = open();
    note('ann', LISTED);
    note('bob', LISTED);
    expect(key('ann')).toBe(key('bob'));
    const before = key('bob');
    note('ann', [...LISTED, 'cart.veiw']);
    expect(key('bob')).not.toBe(before);
  });
});

describe('unboundTools()', () => {
  it('names the listed tools that the gate does not bind, of every mount of it', async () => {
    const workflow = checkoutGate();
    expect(unboundTools(workflow)).toBeUndefined();
    for (const name of ['help', 'search']) {
      const makeServer = toolServer([...LISTED, name]);
      const { client } = await visit({ workflow, makeServer });
      await client.raw.tools();
    }
    expect(unboundTools(workflow)).toEqual(['help', 'search']);
    expect(unboundTools(checkoutGate())).toBeUndefined();
  });

  it('is empty where each listed tool is bound', async () => {
    const workflow = checkoutGate();
    const { client } = await visit({ workflow });
    await client.raw.tools();
    expect(unboundTools(workflow)).toEqual([]);
  });
});
