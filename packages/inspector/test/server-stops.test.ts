import { randomUUID } from 'node:crypto';
import { memoryStore, StateMachineGate } from 'mcp-interlock';
import { type Runs, runsOf } from 'mcp-interlock/runs';
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { makePostgresSchema } from '../../../test/helpers/postgres-schema.ts';
import { reasonOf } from '../../../test/helpers/raw.ts';
import { makeSqliteFile } from '../../../test/helpers/sqlite-file.ts';
import { sharedRedis } from '../../../test/services/shared.ts';
import type { Overview, StoppedCalls } from '../src/api.ts';
import {
  CHECKOUT,
  checkoutGate,
  codeOf,
  HOUR,
  hold,
  put,
  type Site,
  startSite,
  type Watch,
} from './site.ts';

const NOTE = 'the provider charges twice';
const SECRET = 'the same secret for all instances';

async function stoppedAt(site: Site): Promise<readonly StoppedCalls[] | undefined> {
  return (await site.get<Overview>('api/workflows')).body.workflows[0]?.stopped;
}

const lastStopped = (watch: Watch): readonly StoppedCalls[] | undefined =>
  watch.all('workflow').at(-1)?.workflow.stopped;

/** Two instances of one app on one store, each with a connection of its own. */
const STORES: readonly (readonly [name: string, make: () => Promise<() => AtomicStateStore>])[] = [
  [
    'SQLite',
    async () => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      return () => sqliteStore({ database: file.connect() });
    },
  ],
  [
    'Redis',
    async () => {
      const prefix = `inspector-${randomUUID()}:`;
      const [first, second] = [await redisClient(), await redisClient()];
      const clients = [first, second];
      return () => redisStore({ client: clients.pop() ?? first, prefix });
    },
  ],
  [
    'PostgreSQL',
    async () => {
      const database = await makePostgresSchema();
      onTestFinished(() => database.drop());
      const make = () => postgresStore({ pool: database.connect(), schema: database.schema });
      await make().migrate();
      return make;
    },
  ],
];

async function redisClient() {
  const client = createClient({ url: await sharedRedis() });
  await client.connect();
  onTestFinished(() => client.destroy());
  return client;
}

describe.each(STORES)('two instances on %s', (_, makeStores) => {
  it('are stopped by a visitor of one, and those who watch the other are told', async () => {
    const makeStore = await makeStores();
    const make = () => startSite({ pollMs: 50, secret: SECRET }, { store: makeStore() });
    const [here, there] = [await make(), await make()];
    const session = await there.session();
    await session.call('cart_add_item');
    const watch = await there.watch(`?workflow=${CHECKOUT}`);
    await expect.poll(() => lastStopped(watch)).toEqual([]);

    const frozen = await here.post(here.of('freeze'), { note: ` ${NOTE} ` });
    expect(frozen).toMatchObject({ status: 200, body: { done: true } });
    const at = expect.any(Number);
    expect(await stoppedAt(here)).toEqual([{ actor: 'olga', note: NOTE, at }]);
    await expect.poll(() => lastStopped(watch)).toEqual([{ actor: 'olga', note: NOTE, at }]);
    await expect
      .poll(async () => reasonOf(await session.call('cart_add_item')), { timeout: 1_000 })
      .toBe('frozen');

    const [by] = (await stoppedAt(there)) ?? [];
    const thawed = await there.post(there.of('unfreeze'), { note: 'refunded', at: by?.at });
    expect(thawed).toMatchObject({ status: 200, body: { done: true } });
    await expect.poll(() => lastStopped(watch)).toEqual([]);
    await expect
      .poll(async () => (await session.call('cart_add_item')).result?.isError)
      .not.toBe(true);
  });
});

describe('a visitor who may act', () => {
  it('stops one tool of all runs, and lets it go on', async () => {
    const site = await startSite({ pollMs: HOUR });
    const session = await site.session();
    const watch = await site.watch();
    await expect.poll(() => lastStopped(watch)).toEqual([]);
    expect((await site.post(site.of('freeze'), { note: NOTE, tool: 'cart_checkout' })).status).toBe(
      200,
    );
    await session.call('cart_add_item');
    expect(reasonOf(await session.call('cart_checkout'))).toBe('frozen');
    const [stopped] = (await stoppedAt(site)) ?? [];
    expect(stopped).toMatchObject({ tool: 'cart_checkout', actor: 'olga', note: NOTE });
    const again = { note: NOTE, tool: 'cart_checkout', at: stopped?.at };
    expect((await site.post(site.of('unfreeze'), again)).status).toBe(200);
    await session.call('cart_checkout');
    expect((await site.look(session.id)).state).toBe('payment');
  });

  it('lets go on only what was looked at', async () => {
    const site = await startSite();
    const freeze = (body: object) => site.post(site.of('freeze'), { note: NOTE, ...body });
    const unfreeze = (body: object) => site.post(site.of('unfreeze'), { note: NOTE, ...body });
    await freeze({});
    const twice = await freeze({});
    expect([twice.status, codeOf(twice)]).toEqual([409, 'conflict']);
    const [all] = (await stoppedAt(site)) ?? [];
    // Another operator has stopped it anew since.
    for (const body of [{ at: (all?.at ?? 0) - 1 }, { at: all?.at, tool: 'cart_pay' }]) {
      const answer = await unfreeze(body);
      expect([answer.status, codeOf(answer)]).toEqual([409, 'conflict']);
    }
    expect(await stoppedAt(site)).toEqual([all]);
    expect((await unfreeze({ at: all?.at })).status).toBe(200);
    expect((await unfreeze({ at: all?.at })).status).toBe(409);
  });

  it('stops a run, also a held one, which then takes no event and no restart', async () => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    await put(store, 'run', 'payment');
    await hold(store, 'run');
    const { id, version } = await site.look('run');
    const act = (deed: string, body: object) => site.post(site.of(`runs/${id}/${deed}`), body);
    expect(await act('freeze', { note: NOTE })).toMatchObject({
      status: 200,
      body: { done: true, state: 'payment' },
    });
    const seen = await site.look('run');
    expect(seen).toMatchObject({ status: 'held', frozen: { actor: 'olga', note: NOTE } });
    expect(seen.trail.entries[0]).toMatchObject({ event: 'freeze', actor: 'olga', note: NOTE });
    expect(await act('resolve', { outcome: 'failed', step: seen.step?.id })).toMatchObject({
      status: 200,
    });
    for (const [deed, body] of [
      ['send', { event: 'CANCEL', version: version + 1 }],
      ['restart', { version: version + 1 }],
      ['freeze', { note: NOTE }],
    ] as const) {
      const answer = await act(deed, body);
      expect([deed, answer.status, codeOf(answer)]).toEqual([deed, 409, 'conflict']);
      expect(answer.text).toContain('An operator has stopped it.');
    }
    expect((await act('unfreeze', { note: 'refunded' })).status).toBe(200);
    expect((await act('unfreeze', { note: 'refunded' })).status).toBe(409);
    expect(await site.look('run')).not.toHaveProperty('frozen');
  });

  it.each<[what: string, deed: string, body: object, code: string]>([
    ['without a note', 'freeze', {}, 'bad-request'],
    ['with an empty note', 'freeze', { note: ' ' }, 'bad-request'],
    ['with a long note', 'freeze', { note: 'x'.repeat(2_001) }, 'bad-request'],
    ['of no tool', 'freeze', { note: NOTE, tool: 'cart_pya' }, 'bad-request'],
    ['as another person', 'freeze', { note: NOTE, actor: 'another' }, 'bad-request'],
    ['of nothing seen', 'unfreeze', { note: NOTE }, 'bad-request'],
    ['by another name', 'thaw', { note: NOTE }, 'unknown'],
  ])(
    'is told what is wrong with a stop %s, and nothing is stopped',
    async (_, deed, body, code) => {
      const site = await startSite();
      expect(codeOf(await site.post(site.of(deed), body))).toBe(code);
      expect(await stoppedAt(site)).toEqual([]);
    },
  );
});

describe('calls are stopped by no', () => {
  const visitors: readonly (readonly [what: string, act: (site: Site) => Promise<unknown>])[] = [
    ['request without the token of the page', (site) => post(site, { 'x-interlock-token': '' })],
    ['page of another site', (site) => post(site, { 'sec-fetch-site': 'cross-site' })],
    ['form', (site) => post(site, { 'content-type': 'text/plain' })],
    ['GET', (site) => site.get(site.of('freeze'))],
  ];
  const post = (site: Site, headers: Record<string, string>) =>
    site.post(site.of('freeze'), { note: NOTE }, headers);

  it.each(visitors)('%s', async (_, act) => {
    const site = await startSite();
    expect(await act(site)).toMatchObject({ status: expect.toSatisfy((is) => is >= 400) });
    expect(await stoppedAt(site)).toEqual([]);
  });

  it('visitor who may only look, and who is told who stopped them', async () => {
    const store = memoryStore();
    const reader = await startSite({ authorize: () => ({ read: true }) }, { store });
    await put(store, 'run', 'payment');
    const { id } = await reader.look('run');
    const paths = ['freeze', 'unfreeze', `runs/${id}/freeze`, `runs/${id}/unfreeze`];
    for (const path of paths) {
      const answer = await reader.post(reader.of(path), { note: NOTE, at: 0 });
      expect([path, answer.status, codeOf(answer)]).toEqual([path, 403, 'read-only']);
    }
    await reader.runs.freezeAll({ actor: 'job', note: NOTE });
    expect(await stoppedAt(reader)).toEqual([{ actor: 'job', note: NOTE, at: expect.any(Number) }]);
  });
});

describe('those who watch', () => {
  it('another workflow are told too, from when they come', async () => {
    const store = memoryStore();
    const other = new StateMachineGate({ id: 'other', initial: 'a', states: { a: {} } });
    const runs = [runsOf(checkoutGate(), { store }), runsOf(other, { store })] as Runs[];
    const site = await startSite({ runs, pollMs: 50 }, { store });
    const workflow = `w${Buffer.from('other').toString('base64url')}`;
    const watch = await site.watch(`?workflow=${workflow}`);
    const of = (each: Watch) =>
      each
        .all('stopped')
        .filter((told) => told.workflow === CHECKOUT)
        .at(-1)?.stopped;
    await expect.poll(() => of(watch)).toEqual([]);
    await site.post(site.of('freeze'), { note: NOTE });
    await expect.poll(() => of(watch)).toMatchObject([{ actor: 'olga', note: NOTE }]);
    const late = await site.watch(`?workflow=${workflow}`);
    await expect.poll(() => of(late)).toMatchObject([{ actor: 'olga', note: NOTE }]);
    expect(watch.all('workflow').map((told) => told.workflow.id)).not.toContain('checkout');
  });
});

describe('what an app stops by itself', () => {
  it('is told to those who watch at once, also of a run', async () => {
    const store = memoryStore();
    const site = await startSite({ pollMs: HOUR }, { store });
    await put(store, 'run', 'payment');
    const watch = await site.watch();
    await expect.poll(() => lastStopped(watch)).toEqual([]);
    await site.runs.freezeAll({ actor: 'job', note: NOTE });
    await expect.poll(() => lastStopped(watch)).toMatchObject([{ actor: 'job', note: NOTE }]);
    await site.runs.freeze('run', { actor: 'job', note: NOTE });
    await expect.poll(() => watch.all('run').map(({ what }) => what)).toContain('moved');
  });
});

describe('a store', () => {
  it('that goes away leaves what it said last of what is stopped', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    const site = await startSite({ pollMs: 50 }, { store: sqliteStore({ database }) });
    await site.runs.freezeAll({ actor: 'job', note: NOTE });
    expect(await stoppedAt(site)).toMatchObject([{ actor: 'job' }]);
    for (const table of ['workflow_documents', 'workflow_index'])
      database.exec(`ALTER TABLE ${table} RENAME TO hidden_${table}`);
    await expect
      .poll(async () => (await site.get<Overview>('api/workflows')).body.workflows[0])
      .toMatchObject({ store: 'unavailable', stopped: [{ actor: 'job' }] });
    const answer = await site.post(site.of('freeze'), { note: NOTE });
    expect([answer.status, codeOf(answer)]).toEqual([503, 'unavailable']);
  });

  it('that keeps no switches is shown without them, and stops nothing', async () => {
    const store = new Proxy<AtomicStateStore>(memoryStore(), {
      get: (whole, name) => {
        if (name === 'readSwitch' || name === 'swapSwitch') return undefined;
        const member: unknown = Reflect.get(whole, name);
        return typeof member === 'function' ? member.bind(whole) : member;
      },
    });
    const site = await startSite({}, { store });
    expect(await stoppedAt(site)).toBeUndefined();
    const answer = await site.post(site.of('freeze'), { note: NOTE });
    expect([answer.status, codeOf(answer)]).toEqual([501, 'no-switch']);
  });
});
