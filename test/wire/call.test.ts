import { describe, expect, it } from 'vitest';
import { readCalls } from '../../src/wire/call.ts';
import { parseJson } from '../../src/wire/json-text.ts';

const read = (text: string, parsed = false) =>
  readCalls(
    parsed
      ? { value: JSON.parse(text), text: undefined, others: [] }
      : { ...parseJson(text), others: [] },
    50,
  );
const faultIn = (text: string, parsed = false): unknown => {
  const incoming = read(text, parsed);
  return 'body' in incoming ? incoming.body : undefined;
};
const invalid = (id: unknown, message: string) => ({
  jsonrpc: '2.0',
  id,
  error: { code: -32600, message: `Invalid Request: ${message}` },
});

describe('a message that parsers read in different ways', () => {
  it.each([
    ['{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', '"method" stands twice'],
    ['{"jsonrpc":"2.0","id":1,"method":"a","METHOD":"b"}', '"METHOD" stands twice'],
    ['{"jsonrpc":"2.0","id":1,"method":"a","\\u006dethod":"b"}', '"method" stands twice'],
    [
      '{"jsonrpc":"2.0","id":1,"method":"a","param\u017f":{},"params":{}}',
      '"param\u017f" must be spelled "params"',
    ],
    [
      '{"jsonrpc":"2.0","id":1,"result":{},"Method":"tools/call"}',
      '"Method" must be spelled "method"',
    ],
    [
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{}}',
      '"Params" must be spelled "params"',
    ],
    ['{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1,"x":2}}', '"x" stands twice'],
    ['{"jsonrpc":"2.0","id":1,"method":"a","params":{"k":1,"\u212a":2}}', '"\u212a" stands twice'],
    [
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Arguments":{}}}',
      '"Arguments" must be spelled "arguments"',
    ],
  ])('is refused: %s', (text, fault) => {
    expect(faultIn(text)).toEqual(invalid(1, `the member ${fault}`));
  });

  it.each([
    ['{"jsonrpc":"2.0","id":1,"method":"a","METHOD":"b"}', '"METHOD" stands twice'],
    [
      '{"jsonrpc":"2.0","id":1,"result":{},"Method":"tools/call"}',
      '"Method" must be spelled "method"',
    ],
    ['{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1,"X":2}}', '"X" stands twice'],
  ])('is refused where a parser has read it: %s', (text, fault) => {
    expect(faultIn(text, true)).toEqual(invalid(1, `the member ${fault}`));
  });

  it('in a batch is refused with its own id, and the whole batch with it', () => {
    const good = '{"jsonrpc":"2.0","id":1,"method":"a"}';
    expect(faultIn(`[${good},{"jsonrpc":"2.0","id":"x","method":"a","id":"x"}]`)).toEqual(
      invalid('x', 'the member "id" stands twice'),
    );
  });

  it.each([
    '{"jsonrpc":"2.0","id":1,"method":"tools/call",' +
      '"params":{"name":"a","arguments":{"Name":1,"name":2}}}',
    '{"jsonrpc":"2.0","id":1,"method":"other","params":{"Name":"a"}}',
    '{"jsonrpc":"2.0","id":1,"method":"a","params":[1,2]}',
    '{"jsonrpc":"2.0","id":1,"method":"a","x-Own":1,"constructor":1}',
  ])('is not one with odd keys that we do not read: %s', (text) => {
    expect([faultIn(text), faultIn(text, true)]).toEqual([undefined, undefined]);
  });
});

describe('the messages of a batch', () => {
  it('keep their text', () => {
    const texts = [
      '{"jsonrpc":"2.0", "id":1.0,"method":"a"}',
      '{"jsonrpc":"2.0","method":"\\u0061"}',
    ];
    const incoming = read(`\n[ ${texts.join(' ,\t')} ]`);
    expect('messages' in incoming && incoming.messages.map(({ message }) => message.text)).toEqual(
      texts,
    );
    expect('messages' in incoming && incoming.messages.map(({ kind }) => kind)).toEqual([
      'request',
      'notification',
    ]);
  });

  it('may be as many as the limit, and not one more', () => {
    const many = (count: number) =>
      `[${Array.from({ length: count }, () => '{"jsonrpc":"2.0","method":"a"}').join(',')}]`;
    expect(faultIn(many(50))).toBeUndefined();
    expect(faultIn(many(51))).toEqual(
      invalid(null, 'a batch holds at most 50 messages, this one 51'),
    );
  });
});
