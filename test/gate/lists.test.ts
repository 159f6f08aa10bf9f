import express, { type RequestHandler } from 'express';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { principalKey, StateMachineGate, stateSync } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession, type WireMessage } from '../helpers/raw.ts';
import { type Scene, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { ask, callStateless } from '../helpers/two-eras.ts';
import { startUpstream } from '../helpers/upstream.ts';

/** The text of a page of tools, by the id of its request. */
type Page = (id: string) => string;

const tool = (name: string, description = `Does ${name}.`): string =>
  `{"name":"${name}","description":"${description}","inputSchema":{"type":"object","maximum":1.0}}`;
const TOOLS = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'];
const pageOf = (tools: readonly string[], more = ''): string =>
  `{"tools":[${tools.map((name) => tool(name)).join(',')}]${more}}`;
const idLast = (result: string): Page => {
  return (id) => `{"result":${result},"jsonrpc":"2.0","id":${id}}`;
};

/** Answers `tools/list` with one page after the other, and repeats the last one. */
function upstreamOf(pages: readonly Page[], answers: 'json' | 'sse'): RequestHandler {
  let next = 0;
  let event = 0;
  return (req, res, go) => {
    const asked: WireMessage = req.body ?? {};
    if (asked.method !== 'tools/list') return go();
    const page = pages[Math.min(next++, pages.length - 1)] as Page;
    const text = page(JSON.stringify(asked.id));
    if (answers === 'json') res.type('json').send(text);
    else res.type('text/event-stream').send(`event: message\nid: ${++event}\ndata: ${text}\n\n`);
  };
}

/** An app whose upstream lists these pages, and a session of it. */
async function listing(
  pages: readonly Page[],
  { answers = 'json', ...options }: SceneOptions & { answers?: 'json' | 'sse' } = {},
) {
  const app = await scene({
    shape: { mode: 'stateless', answers, parser: true },
    behind: [upstreamOf(pages, answers)],
    ...options,
  });
  const session = await app.session();
  /** The text of the list for a request of that id. */
  const list = async (id: unknown, of = session): Promise<string> => {
    const { text } = await of.post({ jsonrpc: '2.0', id, method: 'tools/list' });
    return text.replace(/^[^{]*/, '').trimEnd();
  };
  return { ...app, raw: session, list };
}

const shown = (text: string): unknown =>
  (JSON.parse(text) as WireMessage).result.tools.map((each: WireMessage) => each.name);

describe.each(['json', 'sse'] as const)('a list that comes again, in %s', (answers) => {
  it('is shown with each request’s id, and every character of the upstream’s', async () => {
    const { list } = await listing([idLast(pageOf(TOOLS, ',"total":12345678901234567890'))], {
      answers,
    });
    const expected = (id: string) =>
      idLast(pageOf(['cart.add_item', 'cart.view'], ',"total":12345678901234567890'))(id);
    for (const id of [1, 2, 'one', 'a "quoted" id', 1_000_000])
      expect(await list(id)).toBe(expected(JSON.stringify(id)));
  });

  it('is filtered by the state of each run', async () => {
    const { list, raw, session } = await listing([idLast(pageOf(TOOLS))], { answers });
    const other = await session();
    for (let times = 0; times < 2; times++)
      expect(shown(await list(1))).toEqual(['cart.add_item', 'cart.view']);
    await raw.call('cart.add_item');
    for (let times = 0; times < 2; times++) {
      expect(shown(await list(2))).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
      expect(shown(await list(2, other))).toEqual(['cart.add_item', 'cart.view']);
    }
  });

  it('is read anew if one character of it has changed', async () => {
    const changed = pageOf(TOOLS).replace('Does cart.view', 'Dose cart.view');
    const swapped = pageOf(['cart.view', ...TOOLS.slice(0, 3)]);
    const pages = [pageOf(TOOLS), pageOf(TOOLS), changed, swapped, pageOf(TOOLS)].map(idLast);
    const { list } = await listing(pages, { answers });
    const kept = pageOf(['cart.add_item', 'cart.view']);
    expect(await list(1)).toBe(idLast(kept)('1'));
    expect(await list(2)).toBe(idLast(kept)('2'));
    expect(await list(3)).toBe(idLast(kept.replace('Does cart.view', 'Dose cart.view'))('3'));
    expect(await list(4)).toBe(idLast(pageOf(['cart.view', 'cart.add_item']))('4'));
    expect(await list(5)).toBe(idLast(kept)('5'));
  });

  it('carries its id wherever the upstream puts it', async () => {
    const first: Page = (id) => `{ "id": ${id}, "jsonrpc":"2.0","result":${pageOf(TOOLS)} }`;
    const { list } = await listing([first], { answers });
    for (const id of [1, 2]) {
      const [text, page] = [await list(id), pageOf(['cart.add_item', 'cart.view'])];
      expect(text).toBe(`{ "id": ${id}, "jsonrpc":"2.0","result":${page} }`);
    }
  });

  it('hides as much if it has two ids, or other lists', async () => {
    const twice: Page = (id) => `{"id":${id},"result":${pageOf(TOOLS)},"jsonrpc":"2.0","id":${id}}`;
    const more = pageOf(TOOLS, ',"prompts":[{"name":"order.summary"},{"name":"help"}]');
    const workflow = checkoutGate().bindPrompt('order.summary', ['has_items']);
    const { list, raw } = await listing([twice, twice, idLast(more)], { answers, workflow });
    for (const id of [1, 2]) expect(shown(await list(id))).toEqual(['cart.add_item', 'cart.view']);
    const prompts = async (id: number) =>
      (JSON.parse(await list(id)) as WireMessage).result.prompts;
    for (const id of [3, 4]) expect(await prompts(id)).toEqual([{ name: 'help' }]);
    await raw.call('cart.add_item');
    for (const id of [5, 6])
      expect(await prompts(id)).toEqual([{ name: 'order.summary' }, { name: 'help' }]);
  });

  it('is filtered by each of two workflows, and decorated by what stands behind', async () => {
    const stock = new StateMachineGate({
      id: 'stock',
      initial: 'open',
      states: { open: { on: { LOOK: 'seen' } }, seen: {} },
    })
      .bindTool('cart.view', 'open', 'LOOK')
      .bindTool('cart.pay', 'seen');
    const policies = [{ match: 'cart.view', cacheControl: 'no-store' as const }];
    const { list, raw } = await listing([idLast(pageOf(TOOLS))], {
      answers,
      workflow: [checkoutGate(), stock],
      sync: { policies },
    });
    const view = tool('cart.view', 'Does cart.view. [Cache-Control: no-store]');
    for (const id of [1, 2])
      expect(await list(id)).toBe(idLast(`{"tools":[${tool('cart.add_item')},${view}]}`)(`${id}`));
    await raw.call('cart.view');
    for (const id of [3, 4]) expect(shown(await list(id))).toEqual(['cart.add_item']);
    await raw.call('cart.add_item');
    for (const id of [5, 6])
      expect(shown(await list(id))).toEqual(['cart.add_item', 'cart.checkout']);
    await raw.call('cart.checkout');
    for (const id of [7, 8]) expect(shown(await list(id))).toEqual(['cart.pay']);
  });

  it('costs one read of the store, and hides every gated tool while that fails', async () => {
    const { list, store } = await listing([idLast(pageOf(TOOLS))], { answers });
    store.take();
    for (const id of [1, 2, 3]) {
      await list(id);
      expect(store.take()).toEqual(['read']);
    }
    store.fail('read');
    for (const id of [4, 5]) expect(shown(await list(id))).toEqual(['cart.view']);
    store.heal();
    expect(shown(await list(6))).toEqual(['cart.add_item', 'cart.view']);
  });

  it('warns of a bound tool that is not listed, also on a page that was seen before', async () => {
    const page = idLast(pageOf(TOOLS.slice(0, 3)));
    const { list, warnings } = await listing([page], {
      answers,
      workflow: checkoutGate().bindTool('cart.viwe', 'empty'),
    });
    for (const id of [1, 2, 3]) await list(id);
    expect(warnings.filter((each) => each.includes('cart.viwe'))).toHaveLength(1);
  });

  it('keeps the pages of a long list apart', async () => {
    const pages = TOOLS.map((name, at) => {
      const more = at < TOOLS.length - 1 ? `,"nextCursor":"${at + 1}"` : '';
      return pageOf([name], more);
    });
    const behind: RequestHandler = (req, res, go) => {
      const { id, method, params } = (req.body ?? {}) as WireMessage;
      if (method !== 'tools/list') return go();
      const text = idLast(pages[Number(params?.cursor ?? 0)] ?? '')(JSON.stringify(id));
      if (answers === 'json') res.type('json').send(text);
      else res.type('text/event-stream').send(`data: ${text}\n\n`);
    };
    const { raw } = await listing([], { answers, behind: [behind] });
    const all = async (): Promise<unknown[]> => {
      const seen: unknown[] = [];
      for (let cursor: string | undefined, at = 0; at < 9; at++) {
        const { result } = await raw.ask('tools/list', { cursor });
        seen.push(...result.tools.map(({ name }: WireMessage) => name));
        cursor = result.nextCursor;
        if (cursor === undefined) break;
      }
      return seen;
    };
    for (let times = 0; times < 3; times++)
      expect(await all()).toEqual(['cart.add_item', 'cart.view']);
  });

  it('has the same descriptions each time if it is stable', async () => {
    const { list } = await listing([idLast(pageOf(TOOLS))], {
      answers,
      gate: { visibility: 'stable' },
    });
    const [first, second] = [await list(1), await list(2)];
    expect(shown(first)).toEqual(TOOLS);
    expect(first).toContain('Available');
    expect(second).toBe(first.replace(/"id":1}$/, '"id":2}'));
  });
});

it('filters a list that answers a request of another stream', async () => {
  const page = idLast(pageOf(TOOLS));
  const stray: RequestHandler = (req, res, go) => {
    const { id, method } = (req.body ?? {}) as WireMessage;
    if (method !== 'tools/list') return go();
    const events = [page('"another"'), page(JSON.stringify(id)), page('"another"')];
    res.type('text/event-stream').send(events.map((text) => `data: ${text}\n\n`).join(''));
  };
  const app = await scene({
    shape: { mode: 'stateless', answers: 'sse', parser: true },
    behind: [stray],
  });
  const session: RawSession = await app.session();
  for (const id of [1, 2]) {
    const { messages } = await session.post({ jsonrpc: '2.0', id, method: 'tools/list' });
    expect(messages.map((each) => each.id)).toEqual(['another', id, 'another']);
    for (const { result } of messages)
      expect(result.tools.map((each: WireMessage) => each.name)).toEqual([
        'cart.add_item',
        'cart.view',
      ]);
  }
});

describe('what a list says of its tools', () => {
  const annotated = (annotations: Readonly<Record<string, unknown>>): Page => {
    const tools = TOOLS.map((name) => ({
      name,
      inputSchema: { type: 'object' },
      annotations: annotations[name] ?? {},
    }));
    return idLast(JSON.stringify({ tools }));
  };
  const first = annotated({ 'cart.view': { readOnlyHint: true } });
  const other = annotated({ 'cart.add_item': { idempotentHint: true } });
  const policies = [{ match: 'cart.*', invalidates: ['orders.*'] }];

  /** Whether the process remembers the first list, and repeats no change of it. */
  async function knowsFirst({ data }: Scene, client: RawSession): Promise<boolean> {
    const claim = vi.spyOn(data, 'claim');
    const { result: viewed } = await client.call('cart.view');
    await client.call('cart.add_item');
    const uncertain = claim.mock.calls[0]?.[0].step.uncertain;
    claim.mockRestore();
    const facts = [uncertain, viewed.content.length];
    expect([
      ['hold', 1],
      ['retry', 2],
    ]).toContainEqual(facts);
    return uncertain === 'hold';
  }

  it.each(['json', 'sse'] as const)(
    'holds again when it comes again, in %s, where another came in between',
    async (answers) => {
      const pages = [first, first, first, other, other, first, other, first];
      const { list, raw, ...app } = await listing(pages, { answers, sync: { policies } });
      for (const [at, page] of pages.entries()) {
        await list(at);
        expect(await knowsFirst(app, raw), `after list ${at}`).toBe(page === first);
      }
    },
  );

  it('holds again for stateSync() where no gate stands in front', async () => {
    const pages = [first, other, first, other, first];
    const upstream = await startUpstream({
      shape: { answers: 'json', parser: true },
      middlewares: [stateSync({ policies })],
      behind: [upstreamOf(pages, 'json')],
    });
    onTestFinished(() => upstream.close());
    const client = await RawSession.begin(upstream.url);
    for (const page of pages) {
      await client.ask('tools/list');
      const { result } = await client.call('cart.view');
      expect(result.content).toHaveLength(page === first ? 1 : 2);
    }
  });

  it('holds again for a client whose list was kept', async () => {
    let asked = 0;
    const behind: RequestHandler = (req, res, go) => {
      const { id, method } = (req.body ?? {}) as WireMessage;
      if (method !== 'tools/list') return go();
      asked++;
      const page = req.headers['x-shop'] === 'other' ? other : first;
      res.type('json').send(page(JSON.stringify(id)));
    };
    const vary = (req: { headers: Record<string, unknown> }) => String(req.headers['x-shop']);
    const { raw, ...app } = await listing([], {
      behind: [behind],
      gate: { listCache: { vary } },
      sync: { policies },
    });
    for (const shop of ['first', 'first', 'other', 'first', 'other', 'first', 'first']) {
      await raw.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' }, { 'x-shop': shop });
      expect(await knowsFirst(app, raw)).toBe(shop === 'first');
    }
    expect(asked).toBe(2);
  });

  it('holds again of the arguments that are repeated in headers', async () => {
    const mirroring = (argument: string): Page => {
      const properties = { [argument]: { type: 'string', 'x-mcp-header': 'Sku' } };
      const tools = [{ name: 'cart.add_item', inputSchema: { type: 'object', properties } }];
      return idLast(JSON.stringify({ resultType: 'complete', tools }));
    };
    const [now, then] = [mirroring('sku'), mirroring('note')];
    const app = await sceneOfBothEras({
      session: { key: principalKey() },
      before: [express.json()],
      behind: [upstreamOf([now, then, now, then, now], 'json')],
    });
    const changes = { 'mcp-param-sku': '7' };
    for (const isRight of [true, false, true, false, true]) {
      await ask(app.url, 'tools/list', {}, { user: 'ann' });
      const args = { sku: '7' };
      const called = await callStateless(app.url, 'cart.add_item', args, { user: 'ann', changes });
      expect(called.status).toBe(isRight ? 200 : 400);
    }
  });
});

it('filters the second list of a stream by where the run stands then', async () => {
  const page = idLast(pageOf(TOOLS));
  let move: (() => Promise<unknown>) | undefined;
  const behind: RequestHandler = async (req, res, go) => {
    const { id, method } = (req.body ?? {}) as WireMessage;
    if (method !== 'tools/list') return go();
    res.type('text/event-stream').write(`data: ${page(JSON.stringify(id))}\n\n`);
    await move?.();
    res.end(`data: ${page('"another"').replace(',', ',\ndata: ')}\n\n`);
  };
  const { raw } = await listing([], { answers: 'sse', behind: [behind] });
  for (let times = 0; times < 2; times++) await raw.ask('tools/list');
  move = () => raw.call('cart.add_item');
  const { messages } = await raw.post({ jsonrpc: '2.0', id: 9, method: 'tools/list' });
  const lists = messages.filter(({ result }) => result !== undefined);
  expect(lists.map((each) => shown(JSON.stringify(each)))).toEqual([
    ['cart.add_item', 'cart.view'],
    ['cart.add_item', 'cart.checkout', 'cart.view'],
  ]);
});

it('keeps the headers of a list that is shown whole, also when it comes again', async () => {
  const page = idLast(pageOf(['cart.view', 'cart.help']));
  const behind: RequestHandler = (req, res, go) => {
    const { id, method } = (req.body ?? {}) as WireMessage;
    if (method !== 'tools/list') return go();
    res
      .set('etag', '"list"')
      .type('json')
      .send(page(JSON.stringify(id)));
  };
  const { raw } = await listing([], { behind: [behind] });
  for (const id of [1, 2, 3, 4]) {
    const { headers, text } = await raw.post({ jsonrpc: '2.0', id, method: 'tools/list' });
    expect(text).toBe(page(String(id)));
    expect(headers.etag).toBe('"list"');
  }
});
