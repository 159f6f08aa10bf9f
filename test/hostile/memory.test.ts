import { describe, expect, it } from 'vitest';
import { ownText } from '../../src/basics/names.ts';
import { invalidationText } from '../../src/policy/sync-filter.ts';
import { clientInfoIn } from '../../src/session/callers.ts';
import { jsonOf } from '../../src/workflow/stored.ts';
import { collect } from '../helpers/collect.ts';
import { send } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';

const TIMES = 12;
const LONG = 3_900_000;

/** By how many bytes the heap grows while the task runs so many times. */
async function growthOf(task: (i: number) => unknown): Promise<number> {
  // What is compiled and made once.
  await task(0);
  collect();
  const before = process.memoryUsage().heapUsed;
  const kept: unknown[] = [];
  for (let i = 1; i <= TIMES; i++) kept.push(await task(i));
  collect();
  const growth = process.memoryUsage().heapUsed - before;
  expect(kept).toHaveLength(TIMES);
  return growth;
}

/** Another text each time, since V8 may keep equal ones once. */
const long = (i: number): string => `${i} ${'x'.repeat(LONG)}`;

describe('what is kept of a long text keeps no more of it in memory:', () => {
  it.each<[string, (text: string) => unknown]>([
    ['the name of a client', (name) => clientInfoIn({ name })],
    ['the version of a client', (version) => clientInfoIn({ name: 'x', version })],
    ['the tool in a note that data went stale', (tool) => invalidationText(tool, ['a.*'])],
    ['what the app saves of an argument', (text) => jsonOf({ note: text.slice(0, 50) }, 'data')],
    ['a part of any text', (text) => ownText(text, 50)],
  ])('%s', async (_, keep) => {
    expect(await growthOf((i) => keep(long(i)))).toBeLessThan(LONG);
  });
});

it('sessions of clients with long names cost no more than others', async () => {
  // Such a server keeps no name itself.
  const app = await scene({ shape: { mode: 'stateless' } });
  const growth = await growthOf(async (i) => {
    const clientInfo = { name: long(i), version: '1' };
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
    const body = { jsonrpc: '2.0', id: 1, method: 'initialize', params };
    const { status } = await send(app.url, { body });
    expect(status).toBe(200);
  });
  expect(growth).toBeLessThan(LONG);
});
