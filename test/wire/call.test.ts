import { describe, expect, it } from 'vitest';
import { LateResponses, readCalls } from '../../src/wire/call.ts';
import { parseJson } from '../../src/wire/json-text.ts';
import { Message } from '../../src/wire/message.ts';

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

it("keeps a client's answer to a long id, which the server itself gave its request", () => {
  const answer = `{"jsonrpc":"2.0","id":"${'x'.repeat(1_000)}","result":{}}`;
  expect(faultIn(answer)).toBeUndefined();
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

const lateMessage = () => new Message({ jsonrpc: '2.0', id: 1, result: {} });
const mark = (name: string) => (late: Message) => late.set(['result', name], true);

describe('a response that comes late', () => {
  it('is changed as each part would have done, in order, each time that it comes', async () => {
    const late = new LateResponses();
    const order: string[] = [];
    late.expect(1, 'gate', async () => void order.push('gate'));
    late.expect(1, 'sync', () => void order.push('sync'));
    await late.apply(1, lateMessage());
    await late.apply(1, lateMessage());
    expect(order).toEqual(['gate', 'sync', 'gate', 'sync']);
  });

  it('is not mistaken for one whose id looks alike', () => {
    const late = new LateResponses();
    late.expect(1, 'gate', mark('number'));
    late.expect('1', 'gate', mark('string'));
    const came = lateMessage();
    void late.apply('1', came);
    expect(came.at('result')).toEqual({ string: true });
  });

  it('is changed by the last function of a part', () => {
    const late = new LateResponses();
    late.expect(1, 'gate', mark('first'));
    late.expect(1, 'gate', mark('second'));
    const came = lateMessage();
    void late.apply(1, came);
    expect([came.at('result'), late.size]).toEqual([{ second: true }, 1]);
  });

  it('that no part expects is left as it is, and the oldest requests are forgotten', () => {
    const late = new LateResponses();
    for (let id = 0; id <= 100; id++) late.expect(id, 'gate', mark('seen'));
    const [forgotten, known] = [lateMessage(), lateMessage()];
    void late.apply(0, forgotten);
    void late.apply(100, known);
    expect([forgotten.changed, known.changed, late.size]).toEqual([false, true, 100]);
  });

  it('that a step waits for is kept before those that only come again, or were given up', () => {
    const late = new LateResponses();
    late.expect('step', 'gate', mark('seen'), () => 'step');
    late.expect('step', 'sync', mark('noted'));
    late.expect('given up', 'gate', mark('seen'), () => 'given-up');
    for (let id = 0; id < 200; id++) late.expect(id, 'gate', mark('seen'));
    const [step, givenUp, old] = [lateMessage(), lateMessage(), lateMessage()];
    void late.apply('step', step);
    void late.apply('given up', givenUp);
    void late.apply(0, old);
    expect([step.changed, givenUp.changed, old.changed, late.size]).toEqual([
      true,
      true,
      false,
      100,
    ]);
    for (let id = 0; id < 99; id++) late.expect(`s${id}`, 'gate', mark('seen'), () => 'step');
    expect([late.size, late.isFull]).toEqual([100, true]);
    const gone = lateMessage();
    void late.apply('given up', gone);
    expect(gone.changed).toBe(false);
  });

  it('leaves room again once a step is done', () => {
    const late = new LateResponses();
    let stake: 'step' | 'repeat' = 'step';
    for (let id = 0; id < 100; id++) late.expect(id, 'gate', mark('seen'), () => stake);
    expect(late.isFull).toBe(true);
    stake = 'repeat';
    expect(late.isFull).toBe(false);
  });
});
