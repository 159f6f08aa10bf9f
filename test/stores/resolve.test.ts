import { describe, expect, it } from 'vitest';
import { claimOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { adaptStateStore, isAtomicStore, resolveStore } from '../../src/stores/adapt.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type { StateStore } from '../../src/stores/store.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';

const quiet = { onWarning: () => {} };

describe('resolveStore()', () => {
  it('gives an atomic store back as it is, without a warning', () => {
    const warnings: string[] = [];
    const store = memoryStore();
    expect(resolveStore(store, { onWarning: (warning) => warnings.push(warning) })).toBe(store);
    expect(warnings).toEqual([]);
    expect(isAtomicStore(store)).toBe(true);
  });

  it('adapts a store of load and save, and warns once of its limits', () => {
    const warnings: string[] = [];
    const store = new JsonStateStore();
    const onWarning = (warning: string) => warnings.push(warning);
    expect(isAtomicStore(store)).toBe(false);
    expect(isAtomicStore(resolveStore(store, { onWarning }))).toBe(true);
    resolveStore(store, { onWarning });
    expect(warnings).toEqual([expect.stringContaining('steps are exact within one process only')]);
  });

  it('gives one adapter for one store, so that two middlewares see the same claims', async () => {
    const store = new JsonStateStore();
    const [one, other] = [resolveStore(store, quiet), resolveStore(store, quiet)];
    await one.open('run', {}, HOUR);
    await one.claim(claimOf('run'));
    expect((await other.claim(claimOf('run'))).status).toBe('busy');
    expect(resolveStore(new JsonStateStore(), quiet)).not.toBe(one);
  });

  it('warns through the process without onWarning', async () => {
    const warned = new Promise<Error>((resolve) => process.once('warning', resolve));
    resolveStore(new JsonStateStore());
    expect(await warned).toMatchObject({
      name: 'InterlockWarning',
      message: expect.stringContaining('one process'),
    });
  });

  it('never adapts a store of operations that is not whole, or of another contract', () => {
    const { claim, commit, renew } = memoryStore();
    const unfinished = Object.assign(new JsonStateStore(), { claim, commit, renew });
    const lacks =
      /it lacks "open", "read", "record", "freeze", "release", "end", "delete", "history"; it must/;
    for (const adapt of [resolveStore, adaptStateStore])
      expect(() => adapt(unfinished, quiet)).toThrow(lacks);
    const older = Object.assign(Object.create(memoryStore()), { freeze: undefined });
    expect(() => resolveStore(older, quiet)).toThrow(/and is none: it lacks "freeze"\./);
    const whole = memoryStore();
    for (const contract of [2, '1', null]) {
      const other = Object.assign(Object.create(whole), { contract, load() {}, save() {} });
      const message = `it must say contract: 1, and says ${JSON.stringify(contract)}.`;
      expect(() => resolveStore(other, quiet)).toThrow(message);
    }
  });

  it('adapts a store of load and save that can also delete', () => {
    const store = Object.assign(new JsonStateStore(), { delete() {}, read() {} });
    expect(isAtomicStore(resolveStore(store, quiet))).toBe(true);
  });

  it.each([
    [
      {},
      /FsmStateStore it lacks "load", "save"; to be an AtomicStateStore it lacks "open", "read"/,
    ],
    [{ load() {} }, /FsmStateStore it lacks "save"; /],
    [{ ...atomicWithout('commit') }, /and is none: it lacks "commit"; it must say contract: 1/],
    [{ load: true, save: 'yes' }, /lacks "load", "save"/],
    [undefined, /the store is of type undefined, which is no store/],
    [null, /the store is of type null/],
    ['redis://:secret@localhost', /^(?!.*secret).*the store is of type string/],
  ])('refuses %j and names what is missing', (store, message) => {
    const resolve = () => resolveStore(store as unknown as StateStore, quiet);
    expect(resolve).toThrow(InterlockError);
    expect(resolve).toThrow(expect.objectContaining({ code: 'ERR_INTERLOCK_STORE' }));
    expect(resolve).toThrow(message);
  });
});

describe('adaptStateStore()', () => {
  it('refuses an unknown option, and what is not a store', () => {
    const misspelt = { onwarning: () => {} } as never;
    expect(() => adaptStateStore(new JsonStateStore(), misspelt)).toThrow(
      /did you mean "onWarning"\?/,
    );
    expect(() => adaptStateStore({} as never)).toThrow(/it lacks "load", "save"/);
  });
});

function atomicWithout(operation: string): object {
  const names = ['open', 'read', 'claim', 'commit', 'renew', 'record', 'freeze', 'release', 'end'];
  names.push('delete', 'history');
  return Object.fromEntries(
    names.filter((name) => name !== operation).map((name) => [name, () => {}]),
  );
}
