import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { leafHelpers } from '../../bench/functions.ts';
import { ServerProcess } from '../../bench/server-process.ts';
import { DEFAULT } from '../../bench/setups.ts';
import { LEAF_HELPERS, wayOf } from '../../bench/way.ts';
import { noting } from '../../bench/way-loader.ts';

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

  it('is the same in each process and for each request', async () => {
    const workload = DEFAULT.find(({ name }) => name === 'step');
    if (workload === undefined) throw new Error('no row for steps');
    const ways: (readonly string[])[] = [];
    for (let each = 0; each < 2; each++) {
      const server = await ServerProcess.start('gated', workload, {
        connections: 1,
        isWalked: true,
      });
      try {
        // A step there and a step back. The first ones fill caches, and a client that calls three
        // times without a new list is noted once.
        for (let step = 0; step < 8; step++) {
          const way = await server.walk();
          if (step >= 4) ways.push(way);
        }
      } finally {
        await server.stop();
      }
    }
    const [there, back, ...again] = ways;
    expect(again).toEqual([there, back, there, back, there, back]);
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
