import { describe, expect, it } from 'vitest';
import { LateResponses } from '../../src/wire/call.ts';
import { Message } from '../../src/wire/message.ts';

const message = () => new Message({ jsonrpc: '2.0', id: 1, result: {} });
const mark = (name: string) => (late: Message) => late.set(['result', name], true);

describe('a response that comes late', () => {
  it('is changed as each part would have done, in order, each time that it comes', async () => {
    const late = new LateResponses();
    const order: string[] = [];
    late.expect(1, 'gate', async () => void order.push('gate'));
    late.expect(1, 'sync', () => void order.push('sync'));
    await late.apply(1, message());
    await late.apply(1, message());
    expect(order).toEqual(['gate', 'sync', 'gate', 'sync']);
  });

  it('is not mistaken for one whose id looks alike', () => {
    const late = new LateResponses();
    late.expect(1, 'gate', mark('number'));
    late.expect('1', 'gate', mark('string'));
    const came = message();
    void late.apply('1', came);
    expect(came.at('result')).toEqual({ string: true });
  });

  it('is changed by the last function of a part', () => {
    const late = new LateResponses();
    late.expect(1, 'gate', mark('first'));
    late.expect(1, 'gate', mark('second'));
    const came = message();
    void late.apply(1, came);
    expect([came.at('result'), late.size]).toEqual([{ second: true }, 1]);
  });

  it('that no part expects is left as it is, and the oldest requests are forgotten', () => {
    const late = new LateResponses();
    for (let id = 0; id <= 100; id++) late.expect(id, 'gate', mark('seen'));
    const [forgotten, known] = [message(), message()];
    void late.apply(0, forgotten);
    void late.apply(100, known);
    expect([forgotten.changed, known.changed, late.size]).toEqual([false, true, 100]);
  });
});
