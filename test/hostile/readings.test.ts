import express, { type RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { few } from '../helpers/few.ts';
import { callOf, type RawSession, reasonOf, send } from '../helpers/raw.ts';
import { type Scene, type SceneOptions, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

const INVALID = -32600;
const PARSE = -32700;
const MISMATCH = -32020;
const JSON_BODY = { 'content-type': 'application/json' };

/** The two kinds of hosts that read bodies. */
const HOSTS = ['express', 'hono'] as const;

/** A tool whose action `refund` is gated, and one whose arguments pick its event. */
function bank(): StateMachineGate<string, string> {
  return new StateMachineGate({
    id: 'bank',
    initial: 'open',
    states: {
      open: { on: { CLOSE: 'closed', KEEP: 'open' } },
      closed: { on: { CLOSE: 'closed' } },
    },
  })
    .bindTool('money', 'closed', { when: ({ action }) => action === 'refund' })
    .bindTool('guarded', 'open', {
      guard: ({ args }) => (args.order as { sum?: number } | undefined)?.sum !== 100,
    })
    .bindTool('sender', 'open', {
      success: ({ args }) => (args.close === true ? 'CLOSE' : 'KEEP'),
    })
    .bindTool('late', 'open', {
      success: ({ args, result }) =>
        Array.isArray(result.content) && args.close === true ? 'CLOSE' : 'KEEP',
    })
    .bindTool('plain', 'open', 'KEEP');
}

async function openBank(options: SceneOptions = {}): Promise<{ app: Scene; session: RawSession }> {
  const app = await scene({
    workflow: bank(),
    makeServer: toolServer(['money', 'guarded', 'sender', 'late', 'plain', 'free']),
    ...options,
    shape: { mode: 'stateless', answers: 'json', ...options.shape },
  });
  return { app, session: await app.session() };
}

const call = (tool: string, args: string): string =>
  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"${tool}","arguments":${args}}}`;

describe.each(HOSTS)('repeated keys, behind %s', (host) => {
  it.each([
    '{"action":"view","action":"refund"}',
    '{"action":"view","\\u0061ction":"refund"}',
    '{"a":{"b":[{"c":1,"d":2},{"c":1,"c":2}]}}',
    `{${Array.from({ length: 100 }, (_, i) => `"k${i}":1`).join(',')},"k50":2}`,
    '{"":1,"":2}',
    '{"a\\"b":1,"a\\"b":2}',
  ])('in the arguments are refused for any tool: %s', async (args) => {
    const { app, session } = await openBank({ shape: { host } });
    for (const tool of ['money', 'free']) {
      const { status, messages } = await session.post(call(tool, args));
      expect([status, messages[0]?.id, messages[0]?.error?.code]).toEqual([400, 7, INVALID]);
      expect(messages[0]?.error?.message).toContain('stands twice');
    }
    expect(app.ledger.calls).toEqual([]);
  });

  it('in one element of a batch are refused with the whole batch', async () => {
    const { app, session } = await openBank({ shape: { host } });
    const body = `[${call('free', '{}').replace('7', '1')},${call('free', '{"a":{"x":1,"x":1}}')}]`;
    const { status, messages } = await session.post(body);
    expect([status, messages[0]?.id]).toEqual([400, 7]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('are none in a string, or in two objects', async () => {
    const { app, session } = await openBank({ shape: { host } });
    const args = '{"a":"{\\"x\\":1,\\"x\\":2}","b":{"x":1},"c":{"x":1},"d":[{"x":1},{"x":2}]}';
    await session.post(call('free', args));
    expect(app.ledger.calls).toEqual(['free']);
  });
});

describe('a key in another letter case, which some readers take for the same', () => {
  const { stringify } = JSON;

  it.each<[string, unknown]>([
    ['money', { Action: 'refund' }],
    ['money', { action: 'view', ACTION: 'refund' }],
    ['money', { a\u0063tion: 'view', act\u0130on: 'x', 'ACT\u0049ON': 'refund' }],
    ['guarded', { Order: { sum: 100 } }],
    ['guarded', { order: { Sum: 100 } }],
    ['guarded', { order: { sum: 1, SUM: 100 } }],
    ['sender', { Close: true }],
    ['sender', { close: false, cLose: true }],
  ])('is refused where the gate reads it, and %s is not run with %j', async (tool, args) => {
    for (const parser of [true, false]) {
      const { app, session } = await openBank({ shape: { parser } });
      const { status, messages } = await session.post(call(tool, stringify(args)));
      expect([status, reasonOf(messages[0])]).toEqual([200, 'arguments']);
      expect(messages[0]?.result.content[0].text).toContain('must be spelled so');
      expect(app.ledger.calls).toEqual([]);
      expect(app.errors).toEqual([]);
    }
  });

  it.each<[string, unknown]>([
    ['money', { Apple: 1, apple: 2 }],
    ['money', { action: 'view', order: { Sum: 1, sum: 2 } }],
    ['guarded', { Apple: 1, apple: 2, order: { sum: 5, Note: 'a', note: 'b' } }],
    ['sender', { close: false, items: [{ A: 1, a: 2 }] }],
    ['sender', { '': 1, ' ': 2, ß: 3 }],
    ['plain', { Close: true, close: false }],
    ['free', { Action: 'refund', action: 'view' }],
  ])('is the app’s own where no function reads it: %s runs with %j', async (tool, args) => {
    const { app, session } = await openBank();
    await session.post(call(tool, stringify(args)));
    expect([app.ledger.calls, app.errors]).toEqual([[tool], []]);
  });

  it('leaves the outcome unknown where a function reads it with the result', async () => {
    const { app, session } = await openBank();
    const { messages } = await session.post(call('late', '{"Close":true}'));
    expect(messages[0]?.error ?? messages[0]?.result.isError).toBeTruthy();
    expect(app.ledger.calls).toEqual(['late']);
    expect(String(app.errors[0])).toContain('in another letter case');
    app.clock.advance(60_000);
    expect(reasonOf(await session.call('plain'))).toBe('held');
  });

  it('is refused where a function reads all of the arguments', async () => {
    const seen: unknown[] = [];
    const workflow = new StateMachineGate({ initial: 'open', states: { open: {} } })
      .bindTool('free', 'open', {
        guard({ args: { action, ...rest } }) {
          seen.push(rest);
          return action !== 'refund';
        },
      })
      .bindTool('plain', 'open', { when: (args) => JSON.stringify(args).includes('refund') });
    const { app, session } = await openBank({ workflow });
    for (const tool of ['free', 'plain'])
      expect(reasonOf(await session.call(tool, { Apple: 1, apple: 2 }))).toBe('arguments');
    expect(app.ledger.calls).toEqual([]);
    await session.call('free', { action: 'view', apple: [{ b: [1, 2] }] });
    expect(seen.at(-1)).toEqual({ apple: [{ b: [1, 2] }] });
    expect(app.ledger.calls).toEqual(['free']);
  });
});

describe.each(HOSTS)('"__proto__" as a key, behind %s', (host) => {
  it.each([
    '"result":{},"__proto__":{"method":"tools/call","params":{"name":"money"}}',
    '"method":"tools/call","params":{"name":"free","__proto__":{"name":"money"}}',
    '"method":"tools/call","params":{"name":"free","_meta":{"__proto__":{}}}',
    '"method":"tools/call","params":{"name":"free","_meta":{"\\u005f_proto__":{}}}',
  ])('is refused in the envelope, in params and in _meta: %s', async (members) => {
    const body = `{"jsonrpc":"2.0","id":7,${members}}`;
    for (const parser of host === 'express' ? [true, false] : [false]) {
      const { app, session } = await openBank({ shape: { host, parser } });
      const { status, messages } = await session.post(body);
      expect([status, messages[0]?.id, messages[0]?.error?.code]).toEqual([400, 7, INVALID]);
      expect(app.ledger.calls).toEqual([]);
    }
  });

  it.each([
    '{"__proto__":{"action":"refund"}}',
    '{"a":[{"b":{"__proto__":1}}]}',
    '{"a":{"\\u005f\\u005fproto__":1}}',
  ])('is refused at any depth of a bound tool’s arguments, and of no other: %s', async (args) => {
    for (const parser of host === 'express' ? [true, false] : [false]) {
      const { app, session } = await openBank({ shape: { host, parser } });
      const { status, messages } = await session.post(call('money', args));
      expect([status, reasonOf(messages[0])]).toEqual([200, 'arguments']);
      expect(app.ledger.calls).toEqual([]);
      await session.post(call('free', args));
      expect(app.ledger.calls).toEqual(['free']);
    }
  });
});

describe.each(HOSTS)('bytes that are no UTF-8, behind %s', (host) => {
  it.each<[string, number[]]>([
    ['a byte that never stands in it', [0xff]],
    ['an overlong slash', [0xc0, 0xaf]],
    ['half a pair of surrogates', [0xed, 0xa0, 0x80]],
    ['a character that is cut off', [0xe2, 0x82]],
    ['a code beyond the last one', [0xf4, 0x90, 0x80, 0x80]],
  ])('are a 400, and are not repaired: %s', async (_, bytes) => {
    const { app, session } = await openBank({ shape: { host } });
    const [before = '', after = ''] = call('pl|ain', '{}').split('|');
    const body = Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]);
    const { status, messages } = await session.post(body);
    expect([status, messages[0]?.error?.code]).toEqual([400, PARSE]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('are told from any text that is UTF-8', async () => {
    const { app, session } = await openBank({ shape: { host } });
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 3_000 }), async (text) => {
        app.ledger.calls.length = 0;
        await session.post(Buffer.from(call('free', JSON.stringify({ text }))));
        expect(app.ledger.calls).toEqual(['free']);
      }),
      { ...few(6), examples: [['é'.repeat(5_000)]] },
    );
  });
});

describe.each(HOSTS)('a media type, behind %s', (host) => {
  it.each([
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'text/plain',
    'text/json',
    'application/jsonx',
    'application/json, text/plain',
    'application/json; a=b, application/x-www-form-urlencoded',
    'application/vnd.api+jsonx',
    'json',
    ';application/json',
  ])('other than JSON is a 415: %s', async (type) => {
    const { app, session } = await openBank({ shape: { host } });
    const media = { 'content-type': type };
    const { status, messages } = await session.post(call('free', '{}'), media);
    expect([status, app.ledger.calls]).toEqual([415, []]);
    // Some upstreams have a refusal of their own, which is another one.
    expect(messages[0]?.error.message).toMatch(/^the request body must be/);
  });

  it.each([
    'application/json',
    'Application/JSON ; charset=UTF-8',
    'application/vnd.api+json',
    'application/json;profile="a b"',
  ])('of JSON is taken: %s', async (type) => {
    const { session } = await openBank({ shape: { host } });
    // The upstream's transport may refuse it all the same.
    const { status, messages } = await session.post(call('money', '{"action":"refund"}'), {
      'content-type': type,
    });
    expect([status, reasonOf(messages[0])]).toEqual([200, 'state']);
  });
});

describe('a media type', () => {
  it.each<[string, RequestHandler]>([
    ['express.json()', express.json({ type: () => true })],
    ['express.urlencoded()', express.urlencoded({ extended: false })],
    ['express.text()', express.text({ type: () => true })],
  ])('other than JSON is a 415, even where %s has read the body', async (_, parser) => {
    const { app, session } = await openBank({ before: [parser] });
    const body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"free"}}`;
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const { status, messages } = await session.post(body, form);
    expect([status, messages[0]?.error.message]).toEqual([
      415,
      'the request body must be application/json',
    ]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('that comes twice is a 415: readers take the first or the last', async () => {
    const { app, session } = await openBank();
    const doubled = ['application/json', 'application/x-www-form-urlencoded'];
    const { status, messages } = await send(app.url, {
      headers: { ...session.headers, 'content-type': doubled as unknown as string },
      body: call('money', '{"action":"refund"}'),
    });
    expect([status, messages[0]?.error.code]).toEqual([415, PARSE]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('need not be named', async () => {
    const { app, session } = await openBank({ shape: { parser: false } });
    const body = Buffer.from(call('money', '{"action":"refund"}'));
    const bare = { 'content-type': '' };
    expect(reasonOf((await session.post(body, bare)).messages[0])).toBe('state');
    expect(app.ledger.calls).toEqual([]);
  });
});

describe.each(HOSTS)('a header that differs from the body, behind %s', (host) => {
  const base64 = (text: string): string => `=?base64?${Buffer.from(text).toString('base64')}?=`;

  it.each<[string, Record<string, string>]>([
    ['another method', { 'mcp-method': 'tools/list' }],
    ['the method in capitals', { 'mcp-method': 'TOOLS/CALL' }],
    ['another tool', { 'mcp-name': 'plain' }],
    ['another tool, encoded', { 'mcp-name': base64('plain') }],
    ['the tool in capitals', { 'mcp-name': 'FREE' }],
    ['no tool', { 'mcp-name': '' }],
    ['an encoding that is none', { 'mcp-name': '=?base64?ZnJlZQ?=' }],
    ['the right method and another tool', { 'mcp-method': 'tools/call', 'mcp-name': 'money' }],
  ])('is refused for any tool: %s', async (_, headers) => {
    const { app, session } = await openBank({ shape: { host } });
    for (const body of [call('free', '{}'), `[${call('free', '{}')}]`]) {
      const { status, messages } = await session.post(body, headers);
      expect([status, messages[0]?.error?.code]).toEqual([400, MISMATCH]);
    }
    expect(app.ledger.calls).toEqual([]);
  });

  it.each<[string, Record<string, string>]>([
    ['both', { 'mcp-method': 'tools/call', 'mcp-name': 'free' }],
    ['the name alone', { 'mcp-name': 'free' }],
    ['the name encoded', { 'mcp-name': base64('free') }],
    ['none', {}],
  ])('is not one with the same value: %s', async (_, headers) => {
    const { app, session } = await openBank({ shape: { host } });
    await session.post(call('free', '{}'), headers);
    expect(app.ledger.calls).toEqual(['free']);
  });

  it('is refused where it does not name each message of a batch', async () => {
    const { app, session } = await openBank({ shape: { host } });
    const named = { 'mcp-method': 'tools/call', 'mcp-name': 'money' };
    const refused = call('money', '{"action":"refund"}');
    const ping = '{"jsonrpc":"2.0","id":8,"method":"ping"}';
    // A gateway would take the rest of the batch for the tool that the header names.
    for (const body of [`[${ping},${refused}]`, `[${refused},${call('free', '{}')}]`]) {
      const { status, messages } = await session.post(body, named);
      expect([status, messages[0]?.error?.code]).toEqual([400, MISMATCH]);
    }
    expect(app.ledger.calls).toEqual([]);
    await session.post(`[${call('money', '{}')}]`, named);
    expect(app.ledger.calls).toEqual(['money']);
  });

  it('is refused where the body calls nothing', async () => {
    const { session } = await openBank({ shape: { host } });
    const named = { 'mcp-method': 'tools/call', 'mcp-name': 'money' };
    for (const body of [
      { jsonrpc: '2.0', id: 1, result: {} },
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      { jsonrpc: '2.0', id: 1, method: 'ping' },
    ]) {
      const { status, messages } = await session.post(body, named);
      expect([status, messages[0]?.error?.code]).toEqual([400, MISMATCH]);
    }
  });

  it('is refused for a bound tool’s arguments, with a known schema and without', async () => {
    const { app, session } = await openBank({ shape: { host } });
    const args = { region: 'eu', amount: 42, urgent: true, note: 'Grüße' };
    const post = (headers: Record<string, string>) =>
      session.post(callOf(1, 'plain', args), headers);
    for (const wrong of ['us', '43', 'false', base64('Gruß'), '=?base64?!?=', '\u00e9'])
      expect((await post({ 'mcp-param-x': wrong })).messages[0]?.error?.code).toBe(MISMATCH);
    expect(app.ledger.calls).toEqual([]);
    // Its argument has this value further down, and another one under the header's own name.
    const nested = { ...args, Region: 'us' };
    const deep = { action: 'view', more: { action: 'pay' } };
    for (const [given, headers] of [
      [args, { 'mcp-param-region': '42' }],
      [nested, { 'mcp-param-region': 'eu', 'mcp-param-urgent': 'eu' }],
      [deep, { 'mcp-param-action': 'pay' }],
    ] as const) {
      const { messages } = await session.post(callOf(1, 'plain', given), headers);
      expect(messages[0]?.error?.code).toBe(MISMATCH);
    }
    expect(app.ledger.calls).toEqual([]);
    const right = { 'mcp-param-a': 'eu', 'mcp-param-b': '42.0', 'mcp-param-c': 'true' };
    await post({ ...right, 'mcp-param-d': base64('Grüße') });
    expect(app.ledger.calls).toEqual(['plain']);
    await session.post(callOf(1, 'free', args), { 'mcp-param-x': 'us' });
    expect(app.ledger.calls).toEqual(['plain', 'free']);
  });
});

describe('two copies of one body', () => {
  const keep = (raw: (body: Buffer) => unknown): RequestHandler[] => [
    express.json({
      verify: (req, _res, body) => void Object.assign(req, { rawBody: raw(body) }),
    }),
  ];
  const passed: string[] = [];
  const note: RequestHandler = (req, _res, next) => {
    passed.push(String((req as { rawBody?: unknown }).rawBody));
    next();
  };

  it.each<[string, string]>([
    ['has a key twice', call('free', '{"a":1,"a":2}')],
    ['has a key twice in its envelope', call('free', '{}').replace('"id":7', '"id":7,"id":7')],
    ['is no JSON', '{'],
    ['names another tool', call('money', '{}')],
    ['has another id', call('free', '{"a":2}').replace('7', '8')],
    ['has another method', call('free', '{"a":2}').replace('tools/call', 'tools/list')],
    ['is a batch', `[${call('free', '{"a":2}')}]`],
    ['is a notification', call('free', '{"a":2}').replace('"id":7,', '')],
  ])('are refused where the kept text %s', async (_, raw) => {
    const { app, session } = await openBank({ before: keep(() => raw) });
    const headers = { ...session.headers, ...JSON_BODY };
    const { status } = await send(app.url, { headers, body: call('free', '{"a":2}') });
    expect([status, app.ledger.calls]).toEqual([400, []]);
  });

  it('are refused where the kept bytes are no UTF-8, and the parser repaired them', async () => {
    const { app, session } = await openBank({ before: keep((body) => body) });
    const body = Buffer.from(call('free', '{"a":"x"}'));
    body[body.indexOf('"x"') + 1] = 0xff;
    expect((await session.post(body)).status).toBe(400);
    expect(app.ledger.calls).toEqual([]);
  });

  it.each([
    ['1234567890123456789', '1234567890123456790'],
    ['0.1', '0.1000000000000000000001'],
    ['1e401', '1e400'],
  ])(
    'that round to the same are made one: of %s and %s, it is the judged one',
    async (one, other) => {
      passed.length = 0;
      const before: RequestHandler[] = [
        express.text({ type: '*/*' }),
        (req, _res, next) => {
          if (String(req.body).includes(one))
            Object.assign(req, { rawBody: req.body.replace(one, other) });
          next();
        },
      ];
      const parse: RequestHandler = (req, _res, next) => {
        if (typeof req.body === 'string' && req.body !== '') req.body = JSON.parse(req.body);
        next();
      };
      const { session } = await openBank({ before, behind: [note, parse] });
      await session.post(call('plain', `{"a":${one}}`));
      expect(passed.at(-1)).toContain(`{"a":${one}}`);
    },
  );

  it('agree where a middleware changed arguments: the upstream gets the judged ones', async () => {
    passed.length = 0;
    const sanitize: RequestHandler = (req, _res, next) => {
      if (req.body?.params?.arguments) req.body.params.arguments = { a: 'clean' };
      next();
    };
    const { app, session } = await openBank({
      before: [...keep((body) => body), sanitize],
      behind: [note],
    });
    for (const tool of ['free', 'plain']) await session.post(call(tool, '{"a":"<b>"}'));
    expect(app.ledger.calls).toEqual(['free', 'plain']);
    for (const text of passed.slice(-2)) {
      expect(text).toContain('clean');
      expect(text).not.toContain('<b>');
    }
  });

  it('that are the same keep every character', async () => {
    passed.length = 0;
    const { session } = await openBank({ before: keep((body) => body), behind: [note] });
    await session.post(call('plain', '{ "n": 12345678901234567890, "f": 1.0 }'));
    expect(passed.at(-1)).toContain('{ "n": 12345678901234567890, "f": 1.0 }');
    expect(passed.at(-1)).toContain('mcp-interlock/idempotencyKey');
  });

  it('are both amended where a host set `req.body` and left the stream unread', async () => {
    const left: RequestHandler = (req, _res, next) => {
      const chunks: Buffer[] = [];
      const body = { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'plain' } };
      Object.assign(req, { body });
      void chunks;
      next();
    };
    const streams: string[] = [];
    const read: RequestHandler = async (req, res) => {
      let text = '';
      for await (const chunk of req) text += chunk;
      streams.push(text);
      res.json({ jsonrpc: '2.0', id: 7, result: { content: [] } });
    };
    const { app, session } = await openBank({
      before: [(req, res, next) => (req.headers['x-left'] ? left(req, res, next) : next())],
      behind: [(req, res, next) => (req.headers['x-left'] ? read(req, res, next) : next())],
    });
    const headers = { ...session.headers, 'x-left': '1' };
    const body = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"plain"}}';
    await send(app.url, { headers, body });
    expect(streams).toHaveLength(1);
    expect(streams[0]).toContain('mcp-interlock/idempotencyKey');
    const other = body.replace('plain', 'money');
    expect((await send(app.url, { headers, body: other })).status).toBe(400);
    expect(streams).toHaveLength(1);
  });
});

describe.each(HOSTS)('a NUL, which ends strings of C, behind %s', (host) => {
  const view = call('free', '{}');

  it.each<[string, string]>([
    ['a key of the message', view.replace('{', '{"method\\u0000x":"ping",')],
    ['a key of its params', view.replace('"name"', '"name\\u0000x":"money","name"')],
    ['a key that stands alone', call('money', '{}').replace('"arguments"', '"arguments\\u0000"')],
    ['the method', view.replace('tools/call', 'tools/call\\u0000')],
    ['the name', view.replace('"free"', '"money\\u0000x"')],
  ])('is refused in %s', async (_, body) => {
    const { app, session } = await openBank({ shape: { host } });
    const { status, messages } = await session.post(body);
    expect([status, messages[0]?.error?.code]).toEqual([400, INVALID]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('is refused in a key of the arguments that a gate reads, and in no other', async () => {
    const { app, session } = await openBank({ shape: { host } });
    const { messages } = await session.post(call('money', '{"action\\u0000x":"refund"}'));
    expect(reasonOf(messages[0])).toBe('arguments');
    expect(app.ledger.calls).toEqual([]);
    await session.post(call('money', '{"action":"view","note\\u0000":"a\\u0000b"}'));
    expect(app.ledger.calls).toEqual(['money']);
  });
});
