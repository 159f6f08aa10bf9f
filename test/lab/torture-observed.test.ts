import { expect, it } from 'vitest';
import type { Exchange } from '../../lab/checker/evidence.ts';
import { gateOf } from '../../lab/checker/machines.ts';
import { compareObserved, type ObservedTally } from '../../lab/torture/observed.ts';
import { MACHINES } from '../../lab/torture/workflows.ts';

const DONE = { content: [{ type: 'text', text: 'one.1' }] };
const REFUSED = { _meta: { 'mcp-interlock/refusal': { reason: 'state', state: 'empty' } } };

/** What the comparison says of calls that a client made, and of what it was told. */
async function compared(
  ...calls: readonly (readonly [tool: string, result: object, from: number, to: number])[]
): Promise<ObservedTally> {
  const tally = { runs: 0, calls: 0, refused: 0, faults: [] };
  const exchanges = calls.map(([name, result, sent, at], id): Exchange => {
    const request = { id, method: 'tools/call', params: { name, arguments: {} } };
    const messages = [{ at, message: { id, result } }];
    return { call: String(id), run: 'one', sent, request, status: 200, messages, ended: at };
  });
  const gate = gateOf(MACHINES.checkout);
  await compareObserved({ run: 'one', gate, exchanges, touched: Number.POSITIVE_INFINITY }, tally);
  return tally;
}

it('finds that an observing gate says the same of calls up to the first refusal', async () => {
  const tally = await compared(
    ['cart.add_item', DONE, 1, 2],
    ['cart.pay', REFUSED, 3, 4],
    ['cart.pay', DONE, 5, 6],
  );
  expect(tally).toEqual({ runs: 1, calls: 2, refused: 1, faults: [] });
});

it('reports a call that ran out of order, and one that was refused in its order', async () => {
  const ran = await compared(['cart.pay', DONE, 1, 2]);
  expect(ran.faults.join()).toContain('observed: {"tool":"cart.pay","reason":"state"}');
  const refused = await compared(['cart.add_item', REFUSED, 1, 2]);
  expect(refused.faults.join()).toContain('its client was told {"tool":"cart.add_item"');
});

it('compares nothing from where calls overlap', async () => {
  const tally = await compared(['cart.add_item', DONE, 1, 3], ['cart.pay', DONE, 2, 4]);
  expect(tally).toEqual({ runs: 0, calls: 0, refused: 0, faults: [] });
});
