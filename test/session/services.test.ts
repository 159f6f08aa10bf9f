import express from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import { checkWorkflow } from '../../packages/check/src/index.ts';
import {
  fsmGate,
  memoryStore,
  principalKey,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';
import { INITIALIZE, send } from '../helpers/raw.ts';
import { rulesApp } from '../helpers/rules-app.ts';
import { serve } from '../helpers/serve.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

const HOUR = 3_600_000;
const PRINCIPAL = JSON.stringify(['https://issuer.example', 'alice']);
const ALICE = { 'x-user': 'alice' };
const RULES = { add_item: {}, pay: { after: 'add_item', limit: { times: 1 } } } as const;
const named = () => StateMachineGate.fromOrder(RULES, { id: 'shop' });
const unnamed = () => StateMachineGate.fromOrder(RULES);
const by = { actor: 'ann', note: 'a trial' };

function inSqlite(): AtomicStateStore {
  const file = makeSqliteFile();
  onTestFinished(() => file.remove());
  return sqliteStore({ database: file.connect() });
}

describe('a gate without an id', () => {
  it('is an error in runsOf() and at the first request, on a store that others may share', async () => {
    const data = inSqlite();
    expect(() => runsOf(unnamed(), { store: data })).toThrow(/a gate has no id/);
    expect(() => runsOf(unnamed(), { sessions: sessionStore({ store: data }) })).toThrow(
      /a gate has no id/,
    );
    const app = await rulesApp(named(), { data });
    const other = express();
    const errors: unknown[] = [];
    const onError = (error: unknown) => void errors.push(error);
    other.all('/mcp', sessionStore({ store: data, onError }), fsmGate(unnamed()), () => {
      throw new Error('a refused request must not come here');
    });
    const { url } = await serve(other);
    const { status } = await send(url, { method: 'POST', body: INITIALIZE });
    expect([status, errors]).toMatchObject([500, [{ code: 'ERR_INTERLOCK_CONFIG' }]]);
    await (await app.begin()).may('add_item');
  });

  it('is warned of on a store with only load and save, and fine in memory', () => {
    const warnings: string[] = [];
    const onWarning = (warning: string) => void warnings.push(warning);
    runsOf(unnamed(), { store: memoryStore(), onWarning });
    expect(warnings).toEqual([]);
    runsOf(unnamed(), { store: new JsonStateStore(), onWarning });
    expect(warnings).toContainEqual(expect.stringContaining('a gate has no id'));
  });

  it('is noted by checkWorkflow()', () => {
    expect(checkWorkflow(unnamed()).notes).toMatchObject([{ code: 'gate-unnamed' }]);
    expect(checkWorkflow(named()).notes).toEqual([]);
  });
});

describe('two services on one store', () => {
  it('share no run, no limit, no list of runs and no switch, where each has a name', async () => {
    const data = inSqlite();
    const session = { key: principalKey() };
    const a = await rulesApp(named(), { data, session: { ...session, service: 'a' } });
    const b = await rulesApp(named(), { data, session: { ...session, service: 'b' } });
    const [inA, inB] = [await a.begin(ALICE), await b.begin(ALICE)];
    await inA.may('add_item');
    await inB.mayNot('pay', 'state');
    await inB.may('add_item');
    await inA.may('pay');
    await inB.may('pay');
    await inB.mayNot('pay', 'limit');
    await a.runs.freezeAll(by);
    await inA.mayNot('add_item', 'frozen');
    await inB.may('add_item');

    expect((await a.runs.count()).runs).toBe(1);
    const { runs: keys } = await a.runs.list({ principal: PRINCIPAL });
    expect(keys).toContain(principalKey().runKey(PRINCIPAL));
    const [key = ''] = keys.filter((each) => each.startsWith('principal '));
    const beside = runsOf(named(), { store: data, service: 'a' });
    expect(await beside.read(key)).toMatchObject({ run: key });
    expect(await runsOf(named(), { store: data }).read(key)).toBeUndefined();
    await a.runs.unfreezeAll(by);
    await a.runs.erase(PRINCIPAL);
    expect(await a.runs.read(key)).toBeUndefined();
    expect(await b.runs.read(key)).toMatchObject({ run: key });
  });
});

describe('a run of a principal', () => {
  const gate = () =>
    StateMachineGate.fromOrder(
      { pay: { limit: { sum: 'amount', max: 100, within: '7d' } } },
      { id: 'bank' },
    );
  const session = { key: principalKey() };

  it('lives at least as long as its longest window, where idleMs is the default', async () => {
    const app = await rulesApp(gate(), { session });
    await (await app.begin(ALICE)).may('pay', { amount: 90 });
    app.clock.jump(6 * 24 * HOUR);
    await (await app.begin(ALICE)).mayNot('pay', 'limit', { amount: 90 });
    app.clock.jump(2 * 24 * HOUR);
    await (await app.begin(ALICE)).may('pay', { amount: 90 });
  });

  it('must not be given a shorter life by the app', () => {
    const runs = (idleMs: number, key: Parameters<typeof sessionStore>[0]) =>
      runsOf(gate(), { sessions: sessionStore({ idleMs, ...key }) });
    expect(() => runs(HOUR, session)).toThrow(
      /idleMs: got 3600000, .*"bank" looks back 604800000 ms/,
    );
    expect(() => runs(7 * 24 * HOUR, session)).not.toThrow();
  });
});
