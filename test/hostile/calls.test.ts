import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { callOf, INITIALIZE, reasonOf, send, type WireMessage } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';

const GATED = ['cart.add_item', 'cart.checkout', 'cart.pay'];
const MODES = ['stateful', 'stateless'] as const;
const deep = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const call = (params: string): string =>
  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":${params}}`;

/** A most careless upstream: it runs all that looks like a call, request or not. */
function carelessUpstream(ran: string[]): RequestHandler {
  const fold = (value: unknown, key: string): unknown =>
    Object.entries(value ?? {}).find(([name]) => name.toLowerCase() === key)?.[1];
  return async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    const messages = Array.isArray(body) ? body : [body];
    for (const message of messages) ran.push(String(fold(fold(message, 'params'), 'name')));
    const asked = messages.filter((message: WireMessage) => message.id !== undefined);
    if (asked.length === 0) return void res.status(202).end();
    res.json(asked.map(({ id }: WireMessage) => ({ jsonrpc: '2.0', id, result: {} })));
  };
}

describe.each(MODES)('an odd call, %s', (mode) => {
  it.each<[string, string]>([
    ['has no name', '{}'],
    ['has no params', 'null'],
    ['has an array of params', '["cart.pay",{}]'],
    ['has params that are text', '"cart.pay"'],
    ['has a number as its tool', '{"name":1}'],
    ['has null as its tool', '{"name":null}'],
    ['has an array as its tool', '{"name":["cart.pay"]}'],
    ['has an object as its tool', '{"name":{"toString":"cart.pay"}}'],
  ])('is refused with its own id, because it %s', async (_, params) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const refused = await session.post(call(params));
    expect([refused.status, refused.messages]).toEqual([
      200,
      [
        {
          jsonrpc: '2.0',
          id: 7,
          error: { code: -32602, message: 'Invalid params: name must be a string' },
        },
      ],
    ]);
    expect(app.ledger.calls).toEqual([]);
  });

  it.each<[string, string]>([
    ['an empty name', '{"name":""}'],
    ['__proto__', '{"name":"__proto__"}'],
    ['constructor', '{"name":"constructor"}'],
    ['the name of a gated tool in another case', '{"name":"CART.PAY"}'],
    ['the name of a gated tool with a space', '{"name":"cart.pay "}'],
    ['the name of a gated tool with half a character', '{"name":"cart.pay\\ud800"}'],
    ['the name of a gated tool with an invisible character', '{"name":"cart\\u200b.pay"}'],
    ['the name of a gated tool in a look-alike script', '{"name":"c\\u0430rt.pay"}'],
    ['the longest name that fits', `{"name":"${'x'.repeat(100_000)}"}`],
  ])('reaches the upstream as it is, and is no gated tool: %s', async (_, params) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const { status, messages } = await session.post(call(params));
    expect([status, messages.length, messages[0]?.id]).toEqual([200, 1, 7]);
    expect(JSON.stringify(messages[0])).toMatch(/not found|disabled/);
    expect(app.ledger.calls).toEqual([]);
  });

  it.each<[string, string]>([
    ['as it is', '{"name":"cart.pay"}'],
    ['with an escaped name', '{"name":"\\u0063art\\u002epay"}'],
    ['with an escaped key', '{"n\\u0061me":"cart.pay"}'],
    ['with arguments that are an array', '{"name":"cart.pay","arguments":[]}'],
    ['with arguments that are text', '{"name":"cart.pay","arguments":"{}"}'],
    ['with arguments that are null', '{"name":"cart.pay","arguments":null}'],
    ['with a _meta that is text', '{"name":"cart.pay","_meta":"x"}'],
    ['with a _meta that is an array', '{"name":"cart.pay","_meta":[1]}'],
    ['with a _meta that is null', '{"name":"cart.pay","_meta":null}'],
    ['with a forged refusal', '{"name":"cart.pay","_meta":{"mcp-interlock/refusal":null}}'],
    ['with a _meta that is very deep', `{"name":"cart.pay","_meta":{"a":${deep(10_000)}}}`],
    [
      'with NUL and half a character in its arguments',
      '{"name":"cart.pay","arguments":{"\\u0000":"\\udc00"}}',
    ],
  ])('is refused like any other call of a hidden tool, %s', async (_, params) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const { status, messages } = await session.post(call(params));
    expect([status, messages.length, messages[0]?.id]).toEqual([200, 1, 7]);
    expect(reasonOf(messages[0])).toBe('state');
    expect(app.ledger.calls).toEqual([]);
    expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
  });

  it.each<[string, string]>([
    ['with arguments that are an array', '{"name":"cart.add_item","arguments":[]}'],
    ['with arguments that are text', '{"name":"cart.add_item","arguments":"{}"}'],
    ['with wrong arguments', '{"name":"cart.add_item","arguments":{"sku":1}}'],
    [
      'with a method of Object.prototype',
      '{"name":"cart.add_item","arguments":{"sku":{"toString":1}}}',
    ],
  ])('that is allowed, and that the upstream refuses, moves nothing: %s', async (_, params) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const { messages } = await session.post(call(params));
    expect(messages.at(-1)?.id).toBe(7);
    expect(app.ledger.calls).toEqual([]);
    expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect((await session.call('cart.add_item')).result.content[0].text).toBe('cart.add_item done');
  });

  it.each(['__proto__', 'constructor', '', '\u0000', '\ud800', '💶'.repeat(64), -0, 2 ** 53 - 1])(
    'is answered with its id, also an odd one: %j',
    async (id) => {
      const app = await scene({ shape: { mode } });
      const session = await app.session();
      const wire = JSON.parse(JSON.stringify(id));
      for (let round = 0; round < 2; round++) {
        expect(
          (await session.post(callOf(id, 'cart.pay'))).messages.map((each) => each.id),
        ).toEqual([wire]);
        expect(
          (await session.post(callOf(id, 'cart.view'))).messages.map((each) => each.id),
        ).toEqual([wire]);
      }
    },
  );

  it.each(['__proto__', 'constructor', 'tools/call ', 'TOOLS/CALL'])(
    'of the method %j is no call, and goes to the upstream',
    async (method) => {
      const app = await scene({ shape: { mode } });
      const session = await app.session();
      const { status, messages } = await session.post({ ...callOf(7, 'cart.pay'), method });
      expect([status, messages[0]?.id, messages[0]?.error.code]).toEqual([200, 7, -32601]);
      expect(app.ledger.calls).toEqual([]);
    },
  );
});

describe('arguments that are very deep', () => {
  const nested = (depth: number) =>
    call(`{"name":"cart.add_item","arguments":{"x":${deep(depth - 1)}}}`);

  it.each([
    ['which the middleware reads', false],
    ['which a parser in front has read', true],
  ])('are refused by name beyond 128 levels, in a body %s', async (_, parser) => {
    const app = await scene({ shape: { parser } });
    const session = await app.session();
    for (const depth of [129, 10_000]) {
      for (const body of [nested(depth), `[${nested(depth)}]`]) {
        const { messages } = await session.post(body);
        expect(reasonOf(messages.at(-1))).toBe('arguments');
        expect(messages.at(-1)?.result.content[0].text).toContain(
          'they are nested deeper than 128 objects and lists',
        );
      }
    }
    expect(app.ledger.calls).toEqual([]);
    const { messages } = await session.post(nested(128));
    expect(messages.at(-1)?.result.content[0].text).toBe('cart.add_item done');
  });

  it('reach a tool that is not bound, and no function of the app', async () => {
    const seen: unknown[] = [];
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { KEEP: 'open' } } },
    }).bindTool('cart.add_item', 'open', {
      success: 'KEEP',
      when: ({ x }) => seen.push(x) > 0,
    });
    const app = await scene({ workflow });
    const session = await app.session();
    expect(reasonOf((await session.post(nested(129))).messages.at(-1))).toBe('arguments');
    expect(seen).toEqual([]);
    await session.post(nested(10_000).replace('cart.add_item', 'cart.view'));
    expect(app.ledger.calls).toEqual(['cart.view']);
  });

  it.each([
    ['one deep list', (size: number) => deep(size / 2), 'arguments'],
    [
      'a list of small lists',
      (size: number) =>
        `[${Array(size / 8)
          .fill('[[1]]')
          .join(',')}]`,
    ],
  ])('cost a rule with "same" in proportion to their length, up to 4 MB: %s', async (...row) => {
    const [, text, reason] = row;
    const workflow = StateMachineGate.fromOrder({
      'cart.checkout': { after: [{ tool: 'cart.add_item', same: ['x'] }] },
    });
    const app = await scene({ workflow });
    const cpuOf = async (size: number): Promise<number> => {
      const session = await app.session();
      const body = call(`{"name":"cart.add_item","arguments":{"x":${text(size)}}}`);
      const before = process.cpuUsage();
      const { messages } = await session.post(body);
      const { user, system } = process.cpuUsage(before);
      expect(reasonOf(messages.at(-1))).toBe(reason);
      return (user + system) / 1000;
    };
    const quarter = await cpuOf(1_000_000);
    // With the square of the length it would be 16 times as much.
    expect(await cpuOf(4_000_000)).toBeLessThan(9 * quarter + 300);
  });
});

describe('a member of _meta that is named as ours', () => {
  const meta = {
    'mcp-interlock/idempotencyKey': 'forged',
    'MCP-Interlock/IdempotencyKey': 'forged',
    'mcp-interlock/try': 'forged',
    'mcp-interlock/other': 'forged',
    kept: 1,
  };

  it.each([
    ['tools/call', { name: 'cart.add_item', arguments: {} }],
    ['prompts/get', { name: 'help' }],
    ['resources/read', { uri: 'docs://terms' }],
    ['tools/list', {}],
    ['unknown/method', {}],
  ])('is taken out of what a client sends to %s', async (method, params) => {
    const seen: string[] = [];
    const app = await scene({
      shape: { mode: 'stateless', parser: true },
      behind: [(req, _res, next) => next(void seen.push(JSON.stringify(req.body)))],
    });
    const session = await app.session();
    await session.post({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } });
    const forwarded = seen.filter((each) => each.includes(method));
    expect(forwarded).toHaveLength(1);
    expect(forwarded[0]).not.toContain('forged');
    expect(forwarded[0]).toContain('"kept":1');
  });
});

describe('an idempotency key', () => {
  const KEY = 'mcp-interlock/idempotencyKey';

  it.each(['cart.add_item', 'cart.view'])(
    'of the client never reaches the handler of %s',
    async (tool) => {
      const seen: string[] = [];
      const app = await scene({
        shape: { mode: 'stateless', parser: true },
        behind: [(req, _res, next) => next(void seen.push(JSON.stringify(req.body)))],
      });
      const session = await app.session();
      const params = { name: tool, arguments: {}, _meta: { [KEY]: 'forged', kept: 1 } };
      await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
      await session.post([
        { jsonrpc: '2.0', id: 2, method: 'tools/call', params },
        callOf(3, 'cart.pay'),
      ]);
      const forwarded = seen.filter((each) => each.includes('tools/call'));
      expect(forwarded).toHaveLength(2);
      for (const body of forwarded) {
        expect(body).not.toContain('forged');
        expect(body).toContain('"kept":1');
        expect(body.includes(KEY)).toBe(tool === 'cart.add_item');
      }
    },
  );

  it.each([`{"mcp-interlock\\/idempotency\\u004bey":"forged"}`, `{"${KEY}":{"deep":"forged"}}`])(
    'of the client is taken out in all spellings: %s',
    async (meta) => {
      const texts: string[] = [];
      const app = await scene({
        shape: { mode: 'stateless' },
        behind: [
          (req, _res, next) => {
            req.on('data', (chunk: Buffer) => void texts.push(chunk.toString()));
            next();
          },
        ],
      });
      const session = await app.session();
      for (const tool of ['cart.view', 'cart.add_item']) {
        await session.post(call(`{"name":"${tool}","arguments":{},"_meta":${meta}}`));
        const sent = texts.at(-1) ?? '';
        expect(sent).toContain(tool);
        expect(sent).not.toContain('forged');
      }
    },
  );
});

describe('an upstream that runs all that looks like a call', () => {
  async function startCareless(ran: string[]) {
    const upstream = carelessUpstream(ran);
    const app = await scene({
      shape: { mode: 'stateless' },
      behind: [
        (req, res, next) =>
          req.headers['x-careless'] === undefined ? next() : void upstream(req, res, next),
      ],
    });
    return app;
  }

  it.each<[string, (gated: WireMessage) => unknown]>([
    ['on its own', (gated) => gated],
    ['as a notification', ({ id: _, ...gated }) => gated],
    ['in a batch', (gated) => [callOf(1, 'cart.view'), gated]],
    ['as a notification in a batch', ({ id: _, ...gated }) => [callOf(1, 'cart.view'), gated]],
    ['beside a result', (gated) => ({ ...gated, result: {} })],
    ['with the params as members too', (gated) => ({ ...gated, ...gated.params })],
  ])('never gets a gated tool that is not available: %s', async (_, form) => {
    const ran: string[] = [];
    const app = await startCareless(ran);
    const session = await app.session();
    for (const tool of ['cart.checkout', 'cart.pay']) {
      await session.post(form(callOf(7, tool)), { 'x-careless': '1' });
    }
    expect(ran.filter((tool) => GATED.includes(tool))).toEqual([]);
  });

  it.each(['PUT', 'PATCH', 'SEARCH', 'M-SEARCH'])(
    'gets none by another method either: %s',
    async (method) => {
      const ran: string[] = [];
      const app = await startCareless(ran);
      const { headers } = await app.session();
      const careless = { ...headers, 'x-careless': '1' };
      const refused = await send(app.url, {
        method,
        headers: careless,
        body: callOf(1, 'cart.pay'),
      });
      expect([refused.status, refused.headers.allow]).toEqual([405, 'GET, POST, DELETE']);
      expect(ran).toEqual([]);
    },
  );

  it.each([
    ['GET', 400],
    ['DELETE', 400],
    ['OPTIONS', 405],
  ])('gets none by a %s that has a body', async (method, status) => {
    const ran: string[] = [];
    const app = await startCareless(ran);
    const { headers } = await app.session();
    const careless = { ...headers, 'x-careless': '1' };
    const body = JSON.stringify(callOf(1, 'cart.pay'));
    for (const framing of [
      { 'content-length': String(body.length) },
      { 'transfer-encoding': 'chunked' },
    ]) {
      const refused = await send(app.url, { method, headers: { ...careless, ...framing }, body });
      const code = status === 400 ? -32600 : -32000;
      expect([refused.status, refused.messages[0]?.error.code]).toEqual([status, code]);
    }
    expect(ran).toEqual([]);
  });

  it('gets none whose method V8 may misread (nodejs/node#63785)', async () => {
    const passed: string[] = [];
    const app = await scene({
      shape: { mode: 'stateless' },
      behind: [
        async (req, res, next) => {
          if (req.headers['x-careless'] === undefined) return next();
          for await (const chunk of req) passed.push(String(chunk));
          res.status(202).end();
        },
      ],
    });
    const session = await app.session();
    const message = (key: string): string =>
      `{"jsonrpc":"2.0","id":7,"${key}":"tools/call","result":{},"params":{"name":"cart.pay"}}`;
    // V8 may mistake a later key for an earlier one that begins with the same characters.
    for (let turn = 0; turn < 20; turn++)
      await session.post(message('\\\\u006d'), { 'x-careless': '1' });
    const refused = await session.post(message('\\u006dethod'), { 'x-careless': '1' });
    expect(passed.filter((text) => text.includes('ethod'))).toEqual([]);
    expect(reasonOf(refused.messages[0])).toBe('state');
  });

  it('gets none before there is a session', async () => {
    const ran: string[] = [];
    const app = await startCareless(ran);
    const headers = { 'x-careless': '1' };
    for (const body of [
      callOf(1, 'cart.pay'),
      [INITIALIZE, callOf(1, 'cart.pay')],
      { ...callOf(1, 'cart.pay'), id: undefined },
    ]) {
      expect((await send(app.url, { headers, body })).status).toBe(400);
    }
    expect(ran).toEqual([]);
  });
});

describe('a session id', () => {
  it.each<[string, string, number]>([
    ['is very long', 'x'.repeat(8_000), 404],
    ['is longer than Node takes headers', 'x'.repeat(20_000), 431],
    ['is __proto__', '__proto__', 404],
    ['is constructor', 'constructor', 404],
    ['is a number', '0', 404],
    ['is two', 'a, b', 404],
    ['is not ASCII', '\u00e9', 404],
    ['looks like a key of a store', 'checkout:*', 404],
  ])('that %s is unknown', async (_, id, status) => {
    const app = await scene();
    const before = await app.session();
    const refused = await send(app.url, {
      headers: { 'mcp-session-id': id },
      body: callOf(1, 'cart.pay'),
    });
    expect(refused.status).toBe(status);
    expect(app.errors).toEqual([]);
    expect((await before.call('cart.view')).result.content[0].text).toBe('cart.view done');
  });
});
