import { memoryStore, runDigest } from 'mcp-interlock';
import { describe, expect, it } from 'vitest';
import type { ResolvedMany, RunDetail, SearchPage } from '../src/api.ts';
import { checkoutGate, codeOf, hold, put, type Site, startSite } from './site.ts';

const actorOf = (actor: string) => ({ read: true, write: true, actor }) as const;

/** A run whose payments have unknown outcomes and may be repeated, one for each amount. */
async function unsettled(store: ReturnType<typeof memoryStore>, run: string, ...amounts: number[]) {
  await put(store, run, 'payment');
  for (const amount of amounts)
    await hold(store, run, 'cart_pay', { amount }, { uncertain: 'retry' });
}

const listed = async (site: Site) => (await site.list('?list=unsettled')).body.runs;

describe('an unsettled call', () => {
  it('is counted, listed and found beside held ones, and its run goes on', async () => {
    const store = memoryStore();
    const look = ({ idempotencyKey }: { idempotencyKey: string }) =>
      `https://pay.example/${idempotencyKey}`;
    const site = await startSite({ look }, { store });
    await unsettled(store, 'a', 1, 2);
    await put(store, 'b', 'payment');
    await hold(store, 'b');
    expect((await site.runs.count()).unsettled).toBe(1);
    const { text } = await site.get('api/workflows');
    expect(JSON.parse(text).workflows[0].counts).toMatchObject({ held: 1, unsettled: 1 });
    const [run, ...none] = await listed(site);
    expect(none).toEqual([]);
    expect(run).toMatchObject({ digest: runDigest('a'), status: 'idle' });
    expect(run).not.toHaveProperty('step');
    const [older, newer] = (await site.runs.read('a'))?.unsettled ?? [];
    // Of the older one, the run has its key alone.
    expect(run?.unsettled).toEqual([
      {
        id: runDigest(older?.idempotencyKey ?? ''),
        tool: 'cart_pay',
        sinceMs: expect.any(Number),
        idempotencyKey: older?.idempotencyKey,
        look: `https://pay.example/${older?.idempotencyKey}`,
      },
      expect.objectContaining({
        args: { amount: 2 },
        amount: '2',
        actor: 'ann',
        overdueMs: expect.any(Number),
        look: `https://pay.example/${newer?.idempotencyKey}`,
      }),
    ]);
    const search = { text: 'cart_pay payment' };
    const found = (await site.post<SearchPage>(site.of('search'), search)).body.runs;
    expect(found.map(({ digest }) => digest)).toEqual([runDigest('b'), runDigest('a')]);
  });

  it('says what each outcome would send, and is resolved by its key', async () => {
    const store = memoryStore();
    const site = await startSite({ authorize: () => actorOf('olga') }, { store });
    await unsettled(store, 'a', 1, 2);
    const id = await site.idOf('a');
    const seen = (await site.get<RunDetail>(site.of(`runs/${id}`))).body;
    const [first, second] = seen.unsettled ?? [];
    for (const each of [first, second])
      expect(each?.resolutions).toEqual([
        { outcome: 'succeeded', event: 'PAY', leadsTo: 'confirmed' },
        { outcome: 'failed', event: 'DECLINED', leadsTo: 'has_items' },
      ]);
    const path = site.of(`runs/${id}/resolve`);
    const said = { outcome: 'succeeded', step: second?.id, note: 'At the bank.' };
    expect((await site.post(path, said)).body).toEqual({ done: true, state: 'confirmed' });
    const left = (await site.runs.read('a'))?.unsettled;
    expect(left?.map(({ idempotencyKey }) => idempotencyKey)).toEqual([first?.idempotencyKey]);
    expect((await site.runs.history('a', 1))[0]).toMatchObject({
      kind: 'resolved',
      outcome: 'succeeded',
      actor: 'olga',
      note: 'At the bank.',
    });
    // Another operator was faster.
    const again = await site.post(path, said);
    expect([again.status, codeOf(again)]).toEqual([409, 'conflict']);
  });

  it('is one of several that are resolved with one note, two of one run among them', async () => {
    const store = memoryStore();
    const site = await startSite({ authorize: () => actorOf('olga') }, { store });
    await unsettled(store, 'a', 1, 2);
    await unsettled(store, 'b', 3);
    await put(store, 'c', 'payment');
    await hold(store, 'c');
    const unsure = (await listed(site)).flatMap(({ id, unsettled: calls = [] }) =>
      calls.map(({ id: step }) => ({ id, step })),
    );
    expect(unsure).toHaveLength(3);
    const [held] = (await site.list('?list=held')).body.runs;
    const runs = [...unsure, { id: held?.id, step: held?.step?.id }];
    const asked = { outcome: 'failed', note: 'The bank has none of them.', runs };
    const { body } = await site.post<ResolvedMany>(site.of('resolve'), asked);
    expect(body.results).toEqual(runs.map(({ id }) => ({ id, state: 'has_items' })));
    expect(await site.runs.count()).toMatchObject({ held: 0, unsettled: 0 });
    expect((await site.runs.history('b', 1))[0]).toMatchObject({
      kind: 'resolved',
      note: 'The bank has none of them.',
      actor: 'olga',
    });
    const twice = { ...asked, runs: [runs[0], runs[0]] };
    expect(codeOf(await site.post(site.of('resolve'), twice))).toBe('bad-request');
  });

  it('is shown without its key to those who may only look, and they resolve none', async () => {
    const store = memoryStore();
    const look = () => 'https://pay.example/';
    const site = await startSite({ look, authorize: () => ({ read: true }) }, { store });
    await unsettled(store, 'a', 1);
    const { body, text } = await site.list('?list=unsettled');
    const [run] = body.runs;
    expect(run?.unsettled).toEqual([expect.objectContaining({ tool: 'cart_pay', amount: '1' })]);
    expect(text).not.toContain('idempotencyKey');
    expect(text).not.toContain('pay.example');
    const step = run?.unsettled?.[0]?.id;
    const one = { outcome: 'failed', step };
    expect(codeOf(await site.post(site.of(`runs/${run?.id}/resolve`), one))).toBe('read-only');
    const many = { outcome: 'failed', note: 'Looked up.', runs: [{ id: run?.id, step }] };
    expect(codeOf(await site.post(site.of('resolve'), many))).toBe('read-only');
    expect((await site.runs.count()).unsettled).toBe(1);
  });

  it.each(['hold', 'retry'] as const)(
    'says what its tool answered where the store did not save it (%s), also to a later visitor',
    async (uncertain) => {
      const store = memoryStore();
      const commit = store.commit.bind(store);
      const failing = Object.assign(store, {
        commit: async (request: Parameters<typeof commit>[0]) => {
          if (request.trail.tool === 'cart_pay') throw new Error('the disk is full');
          return commit(request);
        },
      });
      const gate = checkoutGate(uncertain);
      const step = { leaseMs: 100, maxStepMs: 200, onError: () => {} };
      const site = await startSite({}, { store: failing, gate, step });
      const session = await site.session();
      for (const tool of ['cart_add_item', 'cart_checkout', 'cart_pay']) await session.call(tool);
      const list = uncertain === 'hold' ? 'held' : 'unsettled';
      const calls = async () =>
        (await site.list(`?list=${list}`)).body.runs.flatMap(
          ({ step: held, unsettled: unsure = [] }) => (held ? [held] : unsure),
        );
      await expect.poll(calls).toHaveLength(1);
      expect(await calls()).toEqual([
        expect.objectContaining({ tool: 'cart_pay', answered: 'succeeded' }),
      ]);
    },
  );
});
