import { memoryStore, principalKey, UnknownOutcome } from 'mcp-interlock';
import { describe, expect, it, vi } from 'vitest';
import type { ResolvedMany, RunPage, SearchPage } from '../src/api.ts';
import { codeOf, hold, put, startSite } from './site.ts';

/** What the app's own functions got wrong: that an outcome is unknown is told too. */
const faultsIn = (errors: readonly unknown[]) =>
  errors.filter((error) => !(error instanceof UnknownOutcome)).map(String);

const actorOf = (actor: string) => ({ read: true, write: true, actor }) as const;

describe('a held run', () => {
  it('says how much it is about and where to look, by what the trail may have', async () => {
    const store = memoryStore();
    const look = vi.fn(
      ({ tool, idempotencyKey, args }) =>
        new URL(`https://pay.example/${tool}/${idempotencyKey}?has=${args !== undefined}`),
    );
    const { list } = await startSite({ look }, { store });
    await hold(store, 'a', 'cart_pay', { amount: 120.5, currency: 'EUR', card: '…4242' });
    await hold(store, 'b');
    const [first, second] = (await list('?list=held')).body.runs;
    const { idempotencyKey } = first?.step ?? {};
    expect(first?.step).toMatchObject({
      tool: 'cart_pay',
      amount: '120.50 EUR',
      args: { amount: 120.5, currency: 'EUR', card: '…4242' },
      look: `https://pay.example/cart_pay/${idempotencyKey}?has=true`,
    });
    expect(second?.step).not.toHaveProperty('args');
    expect(second?.step).not.toHaveProperty('amount');
    expect(look).toHaveBeenCalledWith({
      workflow: 'checkout',
      run: first?.digest,
      tool: 'cart_pay',
      idempotencyKey,
      args: { amount: 120.5, currency: 'EUR', card: '…4242' },
      actor: 'ann',
      requestId: 7,
      since: expect.any(Number),
    });
  });

  it('shows a visitor without `write` neither the key of the step nor a link with it', async () => {
    const store = memoryStore();
    const look = vi.fn(({ idempotencyKey }) => `https://pay.example/${idempotencyKey}`);
    const { list } = await startSite({ look, authorize: () => ({ read: true }) }, { store });
    await hold(store, 'a', 'cart_pay', { amount: 1 });
    const { body, text } = await list('?list=held');
    expect(body.runs[0]?.step).toMatchObject({ amount: '1' });
    expect(text).not.toContain('pay.example');
    expect(look).not.toHaveBeenCalled();
  });

  it.each<[string, () => unknown, string]>([
    ['javascript:', () => 'javascript:alert(1)', 'look returned a URL of javascript:, expected'],
    ['data:', () => 'data:text/html,<script>alert(1)</script>', 'a URL of data:'],
    ['a path', () => '/payments/1', 'look returned a string, expected an http or https URL'],
    ['a login', () => 'https://me:secret@pay.example/', 'without a login'],
    ['a promise', async () => 'https://pay.example/', 'look returned a promise'],
    ['too long', () => `https://pay.example/${'x'.repeat(3_000)}`, 'at most 2048 characters'],
    ['an object', () => ({ toString: () => 'https://pay.example/' }), 'look returned a object'],
    [
      'throws',
      () => {
        throw new Error('no provider');
      },
      'no provider',
    ],
  ])('has no link where `look` gives %s, and says so once', async (_name, look, says) => {
    const store = memoryStore();
    const { list, errors } = await startSite({ look: look as () => string }, { store });
    await hold(store, 'a');
    for (let again = 0; again < 3; again++) {
      const { status, body } = await list('?list=held');
      expect(status).toBe(200);
      expect(body.runs[0]?.step?.tool).toBe('cart_pay');
      expect(body.runs[0]?.step).not.toHaveProperty('look');
    }
    const told = faultsIn(errors);
    expect(told).toEqual([expect.stringContaining(says)]);
    expect(told[0]).not.toContain('secret');
  });

  it('has no amount where `amount` gives anything but a short text', async () => {
    const store = memoryStore();
    const amount = (() => 120) as unknown as () => string;
    const { list, errors } = await startSite({ amount }, { store });
    await hold(store, 'a', 'cart_pay', { amount: 120 });
    expect((await list('?list=held')).body.runs[0]?.step).not.toHaveProperty('amount');
    expect(faultsIn(errors)[0]).toContain('amount returned a number, expected a text');
  });

  it('cuts off arguments that are long', async () => {
    const store = memoryStore();
    const { list } = await startSite({}, { store });
    await hold(store, 'a', 'cart_pay', { text: 'x'.repeat(10_000) });
    const args = (await list('?list=held')).body.runs[0]?.step?.args;
    expect(args).toMatch(/^\{"text":"x+…$/);
    expect(String(args).length).toBe(4_097);
  });
});

describe('runs that were resolved', () => {
  it('are listed and found by what was said of them, also when they have ended', async () => {
    const store = memoryStore();
    const site = await startSite({ authorize: () => actorOf('olga') }, { store });
    const watch = await site.watch();
    await expect.poll(() => watch.all('hello')).toHaveLength(1);
    for (const [run, amount] of [
      ['a', 1200],
      ['b', 49.9],
    ] as const) {
      await put(store, run, 'payment');
      await hold(store, run, 'cart_pay', { amount, currency: 'EUR' });
    }
    const { runs } = (await site.list('?list=held')).body;
    expect(runs.map(({ step }) => step?.amount)).toEqual(['1,200.00 EUR', '49.90 EUR']);
    const [first] = runs;
    const said = { outcome: 'succeeded', step: first?.step?.id, note: 'At the bank.' };
    await site.post(site.of(`runs/${first?.id}/resolve`), said);
    // A script of another process.
    await site.runs.resolve('b', 'failed', { actor: 'sam' });
    const listed = async () => (await site.list('?list=resolved')).body.runs;
    await expect.poll(async () => (await listed()).length).toBe(2);
    const [newer, older] = await listed();
    expect(newer?.resolved).toMatchObject({ tool: 'cart_pay', outcome: 'failed', actor: 'sam' });
    expect(older).toMatchObject({
      id: first?.id,
      ended: true,
      state: 'confirmed',
      resolved: {
        tool: 'cart_pay',
        outcome: 'succeeded',
        actor: 'olga',
        note: 'At the bank.',
        amount: '1,200.00 EUR',
      },
    });
    const foundBy = async (text: string) =>
      (await site.post<SearchPage>(site.of('search'), { text })).body.runs.map(({ id }) => id);
    expect(await foundBy('1200.00')).toEqual([first?.id]);
    expect(await foundBy('olga bank')).toEqual([first?.id]);
    expect(await foundBy('1,200.01')).toEqual([]);
  });
});

describe('several held runs', () => {
  const held = async (site: Awaited<ReturnType<typeof startSite>>) => {
    const page = (await site.get<RunPage>(site.of('runs?list=held'))).body;
    return page.runs.map(({ id, step }) => ({ id, step: step?.id ?? '' }));
  };

  it('are resolved with one note, each as an operation of its own', async () => {
    const store = memoryStore();
    const site = await startSite({ authorize: () => actorOf('olga') }, { store });
    for (const run of ['a', 'b', 'c']) {
      await put(store, run, 'payment');
      await hold(store, run);
    }
    const [first, second, third] = await held(site);
    // Another operator was faster with the second one.
    await site.runs.resolve('b', 'failed', { actor: 'sam' });
    const said = { outcome: 'succeeded', note: 'Each is at the bank.' };
    const { status, body } = await site.post<ResolvedMany>(site.of('resolve'), {
      ...said,
      runs: [first, second, third],
    });
    expect(status).toBe(200);
    expect(body.results).toEqual([
      { id: first?.id, state: 'confirmed' },
      {
        id: second?.id,
        error: { code: 'conflict', message: expect.stringContaining('no longer') },
      },
      { id: third?.id, state: 'confirmed' },
    ]);
    for (const run of ['a', 'c'])
      expect((await site.runs.history(run, 1))[0]).toMatchObject({
        kind: 'resolved',
        outcome: 'succeeded',
        actor: 'olga',
        note: 'Each is at the bank.',
      });
    expect((await site.runs.history('b', 1))[0]).toMatchObject({ outcome: 'failed', actor: 'sam' });
  });

  it('are left alone where they are foreign, and the others are resolved', async () => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    const other = await startSite({}, { store });
    await hold(store, 'a');
    await hold(store, 'b');
    const [own, second] = await held(site);
    const [, theirs] = await held(other);
    const { body } = await site.post<ResolvedMany>(site.of('resolve'), {
      outcome: 'failed',
      note: 'Looked up.',
      runs: [
        { id: 'b', step: second?.step },
        { ...theirs },
        { id: second?.id, step: own?.step },
        own,
      ],
    });
    expect(body.results.map(({ error }) => error?.code)).toEqual([
      'unknown',
      'unknown',
      'conflict',
      undefined,
    ]);
    expect((await site.runs.held()).runs.map(({ run }) => run)).toEqual(['b']);
  });

  it('need `write`, the token, a note and a list without repetition', async () => {
    const store = memoryStore();
    const viewers = await startSite({ authorize: () => ({ read: true }) }, { store });
    await hold(store, 'a');
    const runs = await held(viewers);
    const whole = { outcome: 'failed', note: 'Looked up.', runs };
    expect(codeOf(await viewers.post(viewers.of('resolve'), whole))).toBe('read-only');
    const site = await startSite({}, { store });
    const own = await held(site);
    const ask = async (body: object, headers = {}) =>
      codeOf(await site.post(site.of('resolve'), body, headers));
    const right = { ...whole, runs: own };
    expect(await ask(right, { 'x-interlock-token': 'forged' })).toBe('token');
    expect(await ask(right, { origin: 'https://evil.example' })).toBe('cross-site');
    expect(await ask({ ...right, note: ' ' })).toBe('bad-request');
    expect(await ask({ ...right, runs: [] })).toBe('bad-request');
    expect(await ask({ ...right, runs: [own[0], own[0]] })).toBe('bad-request');
    const many = Array.from({ length: 51 }, (_, at) => ({ id: `${at}`, step: 's' }));
    expect(await ask({ ...right, runs: many })).toBe('bad-request');
    expect(codeOf(await site.get(site.of('resolve')))).toBe('method');
    expect((await site.runs.held()).runs).toHaveLength(1);
  });

  it('are told to those who watch, with who did it, also at another instance', async () => {
    const store = memoryStore();
    const secret = 'both instances seal with the same secret';
    const here = await startSite({ secret, authorize: () => actorOf('olga') }, { store });
    const there = await startSite({ secret, pollMs: 50 }, { store });
    await hold(store, 'a');
    const watches = [await here.watch(), await there.watch()];
    for (const watch of watches)
      await expect.poll(() => watch.all('workflow').at(-1)?.workflow.counts?.held).toBe(1);
    const runs = await held(here);
    await here.post(here.of('resolve'), { outcome: 'failed', note: 'Refused.', runs });
    for (const watch of watches) {
      const told = () => watch.all('run').filter(({ resolved }) => resolved !== undefined);
      await expect.poll(() => told().length).toBe(1);
      const resolved = { tool: 'cart_pay', outcome: 'failed', actor: 'olga' };
      expect(told()[0]).toMatchObject({ id: runs[0]?.id, resolved });
    }
  });

  it('are told once each where a script resolves them in a process of its own', async () => {
    const store = memoryStore();
    const site = await startSite({ pollMs: 50 }, { store });
    await hold(store, 'a');
    await hold(store, 'b');
    const watch = await site.watch();
    await expect.poll(() => watch.all('workflow').at(-1)?.workflow.counts?.held).toBe(2);
    // The store alone, so that no event of this process says so.
    const claim = (await site.runs.read('a'))?.claim;
    const move = { run: 'a', workflow: 'checkout', token: claim?.token ?? '', ttlMs: 60_000 };
    const snapshot = { state: 'empty' };
    const trail = {
      from: 'empty',
      to: 'empty',
      event: null,
      tool: 'cart_pay',
      ...({ outcome: 'failed', kind: 'resolved', actor: 'night-job' } as const),
    };
    await store.commit({ ...move, snapshot, trail });
    const told = () => watch.all('run').filter(({ resolved }) => resolved !== undefined);
    await expect.poll(() => told()).toHaveLength(1);
    expect(told()[0]?.resolved).toEqual({
      tool: 'cart_pay',
      outcome: 'failed',
      actor: 'night-job',
    });
  });
});

describe('a search', () => {
  const issuer = 'https://login.example.com';
  const keyOf = (subject: string) => principalKey().runKey({ issuer, subject });

  async function filled(authorize = () => ({ read: true, write: true, keys: true }) as const) {
    const store = memoryStore();
    const site = await startSite({ authorize: authorize as never }, { store });
    await put(store, keyOf('4711'), 'payment');
    await put(store, keyOf('4712'), 'has_items');
    await put(store, keyOf('4713'), 'confirmed');
    await hold(store, keyOf('4714'), 'cart_pay', { amount: 77, order: 'A-9' });
    const search = async (body: object) =>
      (await site.post<SearchPage>(site.of('search'), body)).body;
    const states = async (text: string) =>
      (await search({ text })).runs.map(({ state, status }) => `${state} ${status}`);
    return { store, site, search, states };
  }

  it('finds runs by key, digest, state, tool, arguments and who called', async () => {
    const { search, states } = await filled();
    expect(await states('4711')).toEqual(['payment idle']);
    expect(await states('PAYMENT')).toEqual(['payment idle']);
    expect(await states('cart_pay')).toEqual(['empty held']);
    expect(await states('a-9 77')).toEqual(['empty held']);
    expect(await states('ann')).toEqual(['empty held']);
    const digest = (await search({ text: '4712' })).runs[0]?.digest ?? '';
    expect(await states(digest.slice(0, 8))).toEqual(['has_items idle']);
    // The held one first, though it is the newest.
    expect(await states('login.example')).toHaveLength(3);
    expect((await states('login.example'))[0]).toBe('empty held');
    expect(await states('payment 4712')).toEqual([]);
  });

  it('finds by a tool that was called before, and says how far it looked', async () => {
    const { search, states } = await filled();
    expect(await states('add_item')).toEqual(['payment idle', 'has_items idle']);
    expect((await search({ text: 'add_item' })).unreached).toContainEqual(
      'Of what a run called before, the newest 20 entries of its trail were read.',
    );
  });

  it('finds an ended run by its whole key, and says that it reaches no others', async () => {
    const { search, states } = await filled();
    expect(await states(keyOf('4713'))).toEqual(['confirmed idle']);
    const { runs, unreached } = await search({ text: 'confirmed' });
    expect(runs).toEqual([]);
    expect(unreached.join(' ')).toContain('A run that has ended is found by its whole key');
  });

  it('lets no visitor without `keys` find a run by a part of its key', async () => {
    const { search, states } = await filled((() => ({ read: true, write: true })) as never);
    expect(await states('4711')).toEqual([]);
    expect(await states(keyOf('4711'))).toEqual(['payment idle']);
    expect(JSON.stringify(await search({ text: 'payment' }))).not.toContain('4711');
  });

  it('finds by time, and needs one of the two', async () => {
    const { site, search } = await filled();
    expect((await search({ withinMs: 60_000 })).runs).toHaveLength(3);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect((await search({ withinMs: 5 })).runs).toHaveLength(0);
    expect(codeOf(await site.post(site.of('search'), {}))).toBe('bad-request');
    expect(codeOf(await site.post(site.of('search'), { text: '' }))).toBe('bad-request');
    expect(codeOf(await site.post(site.of('search'), { text: 'a', after: 'x' }))).toBe(
      'bad-request',
    );
  });

  it('looks at 2,000 runs at most, says so, and goes on from there', async () => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    for (let run = 0; run < 2_150; run++) await put(store, `run-${run}`, 'has_items');
    await put(store, 'the-last', 'payment');
    const search = async (body: object) =>
      (await site.post<SearchPage>(site.of('search'), body)).body;
    const first = await search({ text: 'payment' });
    expect(first).toMatchObject({ runs: [], looked: 2_000 });
    expect(first.unreached[0]).toBe('There are more runs than this search has looked at.');
    const second = await search({ text: 'payment', after: first.next });
    expect(second.runs.map(({ key }) => key)).toEqual(['the-last']);
    expect(second.looked).toBe(151);
    expect(second).not.toHaveProperty('next');
  });
});
