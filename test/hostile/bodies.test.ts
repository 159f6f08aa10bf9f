import { describe, expect, it } from 'vitest';
import { callOf, type RawSession } from '../helpers/raw.ts';
import { type Scene, scene } from '../helpers/scene.ts';

const PARSE = -32700;
const INVALID = -32600;

/** The server still serves, this session is where it was, and no handler ran meanwhile. */
async function expectUnharmed(app: Scene, session: RawSession): Promise<void> {
  expect(app.ledger.calls).toEqual([]);
  expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
  expect((await session.call('cart.view')).result.content[0].text).toBe('cart.view done');
}

const callWith = (params: string, more = '', id = 7): string =>
  `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{${params}}${more}}`;

const member = (text: string): string => callWith('"name":"cart.pay","arguments":{}', text);

describe.each(['stateful', 'stateless'] as const)('a body is refused as a whole, %s,', (mode) => {
  it.each<[string, string | Buffer, number, unknown, number]>([
    ['is empty', '', 400, null, PARSE],
    ['is not JSON', '{"jsonrpc":"2.0","id":1,', 400, null, PARSE],
    [
      'is JSON with something behind it',
      '{"jsonrpc":"2.0","id":1,"method":"ping"} x',
      400,
      null,
      PARSE,
    ],
    [
      'is two messages without a batch',
      '{"jsonrpc":"2.0","id":1}{"jsonrpc":"2.0"}',
      400,
      null,
      PARSE,
    ],
    [
      'has a raw line break in a string',
      '{"jsonrpc":"2.0","id":1,"method":"a\nb"}',
      400,
      null,
      PARSE,
    ],
    ['is another encoding of text', Buffer.from(member(''), 'utf16le'), 400, null, PARSE],
    ['is a number', '1', 400, null, INVALID],
    ['is null', 'null', 400, null, INVALID],
    ['is a string', '"tools/call"', 400, null, INVALID],
    ['is an empty batch', '[]', 400, null, INVALID],
    ['is a batch in a batch', `[[${member('')}]]`, 400, null, INVALID],
    ['is a batch with null in it', `[${member('')},null]`, 400, null, INVALID],
    ['has no version', '{"id":7,"method":"tools/call"}', 400, 7, INVALID],
    ['has another version', '{"jsonrpc":"1.0","id":"a","method":"tools/call"}', 400, 'a', INVALID],
    [
      'has a version that is a number',
      '{"jsonrpc":2.0,"id":7,"method":"tools/call"}',
      400,
      7,
      INVALID,
    ],
    ['has nothing but a version', '{"jsonrpc":"2.0","id":7}', 400, 7, INVALID],
    ['has a method that is no string', '{"jsonrpc":"2.0","id":7,"method":{}}', 400, 7, INVALID],
    ['has null as its id', '{"jsonrpc":"2.0","id":null,"method":"tools/call"}', 400, null, INVALID],
    [
      'has a fraction as its id',
      '{"jsonrpc":"2.0","id":1.5,"method":"tools/call"}',
      400,
      null,
      INVALID,
    ],
    [
      'has an infinite id',
      '{"jsonrpc":"2.0","id":1e999,"method":"tools/call"}',
      400,
      null,
      INVALID,
    ],
    [
      'has an object as its id',
      '{"jsonrpc":"2.0","id":{},"method":"tools/call"}',
      400,
      null,
      INVALID,
    ],
    ['has true as its id', '{"jsonrpc":"2.0","id":true,"method":"tools/call"}', 400, null, INVALID],
    ['has its method twice', member(',"method":"ping"'), 400, 7, INVALID],
    ['has its method in another case too', member(',"Method":"ping"'), 400, 7, INVALID],
    ['has its method in an escaped form too', member(',"\\u006dethod":"ping"'), 400, 7, INVALID],
    ['has its params twice', member(',"params":{"name":"cart.view"}'), 400, 7, INVALID],
    ['has its id twice', member(',"ID":8'), 400, 7, INVALID],
    ['has its tool twice', callWith('"name":"cart.view","name":"cart.pay"'), 400, 7, INVALID],
    [
      'has its tool twice in an element of a batch',
      `[${member('')},${callWith('"Name":"x","name":"y"', '', 8)}]`,
      400,
      8,
      INVALID,
    ],
  ])('because it %s', async (_, body, status, id, code) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const refused = await session.post(body);
    expect([refused.status, refused.headers['content-type']]).toEqual([status, 'application/json']);
    expect(refused.messages).toEqual([
      {
        jsonrpc: '2.0',
        id,
        error: { code, message: expect.stringMatching(/^(Parse error|Invalid Request)/) },
      },
    ]);
    await expectUnharmed(app, session);
  });

  it('because an id in it is longer than 256 bytes, which much would remember', async () => {
    const app = await scene({ shape: { mode }, gate: { trail: { refusals: true } } });
    const session = await app.session();
    const pay = (id: unknown) => ({ ...callOf(1, 'cart.pay'), id });
    const longest = 'é'.repeat(128);
    for (const id of ['x'.repeat(257), `${longest}x`, 'x'.repeat(3_000_000)]) {
      for (const body of [pay(id), [pay(1), pay(id)]]) {
        const refused = await session.post(body);
        expect([refused.status, refused.messages]).toEqual([
          400,
          [
            {
              jsonrpc: '2.0',
              id: null,
              error: { code: INVALID, message: 'Invalid Request: an id has at most 256 bytes' },
            },
          ],
        ]);
      }
    }
    const { messages } = await session.post(pay(longest));
    expect([messages[0]?.id, messages[0]?.result.isError]).toEqual([longest, true]);
    await expectUnharmed(app, session);
  });

  it('because it is too large, with a stated length or without', async () => {
    const app = await scene({ shape: { mode }, session: { maxBodyBytes: 10_000 } });
    const session = await app.session();
    const large = callOf(1, 'cart.view', { sku: 'x'.repeat(20_000) });
    const chunked = { 'transfer-encoding': 'chunked' };
    for (const headers of [{}, chunked]) {
      const refused = await session.post(large, headers);
      expect([refused.status, refused.messages]).toEqual([
        413,
        [
          {
            jsonrpc: '2.0',
            id: null,
            error: {
              code: expect.any(Number),
              message: 'the request body is larger than 10000 bytes',
            },
          },
        ],
      ]);
    }
    const close = callOf(1, 'cart.view', { sku: 'x'.repeat(9_800) });
    expect((await session.post(close)).status).toBe(200);
    app.ledger.calls.length = 0;
    await expectUnharmed(app, session);
  });

  it('because it has more messages than the limit, but not with just as many', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const batch = (size: number) => Array.from({ length: size }, (_, id) => callOf(id, 'cart.pay'));
    const refused = await session.post(batch(51));
    expect([refused.status, refused.messages]).toEqual([
      413,
      [
        {
          jsonrpc: '2.0',
          id: null,
          error: {
            code: INVALID,
            message: 'Invalid Request: a batch holds at most 50 messages, this one 51',
          },
        },
      ],
    ]);
    const answered = await session.post(batch(50));
    expect([answered.status, answered.messages.length]).toEqual([200, 50]);
    expect(answered.messages.every(({ result }) => result.isError)).toBe(true);
    await expectUnharmed(app, session);
  });

  it('because it is encoded, without a parser that decodes it', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const refused = await session.post(callOf(1, 'cart.pay'), { 'content-encoding': 'gzip' });
    expect([refused.status, refused.messages[0]?.id]).toEqual([415, null]);
    await expectUnharmed(app, session);
  });
});

describe('behind a body parser', () => {
  const parsed = { shape: { parser: true } };

  it.each(['[]', '{}', '[null]', '{"jsonrpc":"2.0","id":{},"method":"tools/call"}'])(
    'a body that is no message is refused as well: %s',
    async (body) => {
      const app = await scene(parsed);
      const session = await app.session();
      const refused = await session.post(body);
      expect([refused.status, refused.messages[0]?.error.code]).toEqual([400, INVALID]);
      await expectUnharmed(app, session);
    },
  );

  it('a tool that is named twice is the one that the app sees', async () => {
    const app = await scene(parsed);
    const session = await app.session();
    const text = (first: string, second: string) =>
      callWith(`"name":"${first}","name":"${second}"`);
    const { messages } = await session.post(text('cart.view', 'cart.pay'));
    expect(messages[0]?.result._meta['mcp-interlock/refusal']).toMatchObject({ tool: 'cart.pay' });
    await session.post(text('cart.pay', 'cart.view'));
    expect(app.ledger.calls).toEqual(['cart.view']);
  });
});
