import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { leafHelpers } from '../../lab/bench/functions.ts';
import { ServerProcess } from '../../lab/bench/server-process.ts';
import { DEFAULT, type Workload } from '../../lab/bench/setups.ts';
import { LEAF_HELPERS, meanWay, wayOf } from '../../lab/bench/way.ts';
import { noting } from '../../lab/bench/way-loader.ts';

describe('a function that notes that it was entered', () => {
  const SOURCE = `
    export function plain(): number { return 1; }
    export async function slow(): Promise<number> { await null; return plain(); }
    export const short = (value: number): { of: number } => ({ of: value });
    export function* several(): Generator<number> { yield plain(); }
    export class Thing {
      #inner(): (one: number) => number { return (one) => short(one).of; }
      constructor() { plain(); }
      get size(): number { return this.#inner()(2); }
      static make = (): Thing => new Thing();
    }`;

  afterEach(() => {
    globalThis.entered = undefined;
  });

  it('does so once for each call, in order, of whatever kind it is', async () => {
    const code = Buffer.from(noting('src/a.ts', SOURCE)).toString('base64');
    const module = await import(/* @vite-ignore */ `data:text/javascript;base64,${code}`);
    globalThis.entered = [];
    expect(await module.slow()).toBe(1);
    expect([...module.several()]).toEqual([1]);
    expect(module.Thing.make().size).toBe(2);
    expect(globalThis.entered.map((each) => each.replace(/:\d+:\d+/, ''))).toEqual([
      ...['src/a.ts slow', 'src/a.ts plain', 'src/a.ts several', 'src/a.ts plain'],
      ...['src/a.ts Thing.make', 'src/a.ts Thing.constructor', 'src/a.ts plain'],
      ...['src/a.ts Thing.size', 'src/a.ts Thing.#inner', 'src/a.ts Thing.=>', 'src/a.ts short'],
    ]);
    expect(globalThis.entered[0]).toBe('src/a.ts:3:5 slow');
  });
});

describe('the way of a request', () => {
  it('is its calls, and its moves between files and between folders', () => {
    const [leaf = ''] = readFileSync(LEAF_HELPERS, 'utf8').split('\n');
    const leafCall = leaf.replace(' ', ':1:1 ');
    const entered = ['src/x/a.ts:1:1 one', leafCall, 'src/x/a.ts:1:1 one', 'src/x/b.ts:1:1 two'];
    expect(wayOf(entered)).toEqual({
      files: 3,
      functions: 3,
      calls: 4,
      'file moves': 3,
      'folder moves': 2,
      'calls*': 3,
      'file moves*': 1,
      'folder moves*': 0,
    });
  });
});

/**
 * The most calls of a row without leaf helpers, some 5 % above what `npm run bench -- --trace`
 * counts. A change that needs more says in its commit message what the calls are for.
 */
const CEILINGS: Readonly<Record<string, number>> = {
  'ungated call': 230,
  'bound call without event': 345,
  step: 655,
  refusal: 450,
  'tools/list of 100': 355,
  'step with ambient': 660,
  'ungated call after steps': 230,
  'tools/list of 100, cached': 470,
};

/** The kinds of server that serve the rows. Lists of 1,000 go the way of those of 100. */
const KINDS: Readonly<Record<string, (row: Workload) => boolean>> = {
  'a server': ({ ambient, listCache }) => !ambient && !listCache,
  'a server with ambient': ({ ambient }) => ambient === true,
  'a server that caches its list': ({ listCache }) => listCache === true,
};

describe('the way of a request through a server', () => {
  it.each(Object.entries(KINDS))(
    '%s: is no longer than its ceiling',
    async (_, isServed) => {
      const rows = DEFAULT.filter((row) => row.name in CEILINGS && isServed(row));
      const [first] = rows;
      if (first === undefined) throw new Error('no rows');
      const server = await ServerProcess.start('gated', first, { connections: 1, isWalked: true });
      try {
        for (const row of rows) {
          const { 'calls*': calls } = meanWay(await server.ways(row, 4));
          expect(calls, row.name).toBeLessThanOrEqual(CEILINGS[row.name] ?? 0);
          // A ceiling far above the way would let the next accident pass.
          expect(calls, row.name).toBeGreaterThan((CEILINGS[row.name] ?? 0) * 0.8);
        }
      } finally {
        await server.stop();
      }
    },
    60_000,
  );

  it('has a ceiling for each row but those of 1,000 tools, and of calls side by side', () => {
    const rows = DEFAULT.filter(({ isSideBySide, tools }) => !isSideBySide && tools <= 100);
    expect(rows.map(({ name }) => name)).toEqual(Object.keys(CEILINGS));
  });

  it('is the same in each process, and leads through the step', async () => {
    const step = DEFAULT.find(({ name }) => name === 'step');
    if (step === undefined) throw new Error('no row for steps');
    const walked = async () => {
      const server = await ServerProcess.start('gated', step, { connections: 1, isWalked: true });
      try {
        return await server.ways(step, 4);
      } finally {
        await server.stop();
      }
    };
    const [[there, back], again] = await Promise.all([walked(), walked()]);
    expect(again).toEqual([there, back]);
    expect(there).toContainEqual(expect.stringMatching(/^src\/step\/step\.ts:\d+:\d+ Step\./));
    expect(back).not.toEqual(there);
  }, 60_000);
});

describe('the list of leaf helpers', () => {
  it('is that of their rule', () => {
    const listed = readFileSync(LEAF_HELPERS, 'utf8').trimEnd().split('\n');
    const renew = 'renew it with `npm run bench -- --renew-leaf-helpers`';
    expect(listed, renew).toEqual(leafHelpers());
  }, 60_000);
});
