import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { Consumer, ROOT } from './helpers/consumer.ts';

/** Every public entry, by what users import. */
const ENTRIES = Object.keys(manifest.exports)
  .filter((path) => path !== './package.json')
  .map((path) => `mcp-interlock${path.slice(1)}`);

const USE = `
import express from 'express';
import { fsmGate, memoryStore, StateMachineGate, sessionStore, stateSync, tool } from 'mcp-interlock';
import { redisStore } from 'mcp-interlock/stores/redis';
import type { UpstashStoreOptions } from 'mcp-interlock/stores/upstash';

const gate = new StateMachineGate({
  initial: 'open',
  states: { open: { on: { CLOSE: 'closed' } }, closed: { type: 'final' } },
}).bindTool('door.close', 'open', 'CLOSE');
gate.bind(tool('door.knock').bindState('open').stale());
// @ts-expect-error a state that does not exist
gate.bindTool('door.close', 'opne', 'CLOSE');
// @ts-expect-error an event that does not exist
gate.bindTool('door.close', 'open', 'CLOES');

const app = express();
const syncing = stateSync({ policies: [] });
app.all('/mcp', sessionStore({ store: memoryStore() }), fsmGate(gate), syncing, (_req, res) => {
  res.end();
});
export const left: string = gate.currentState satisfies 'open' | 'closed';
export type Options = UpstashStoreOptions | Parameters<typeof redisStore>[0];
`;

const consumer = new Consumer();
const installed = join(consumer.folder, 'node_modules/mcp-interlock');

beforeAll(async () => {
  const packed = await consumer.run('npm', 'pack', '--ignore-scripts', '--json', ROOT);
  const [{ filename }] = JSON.parse(packed) as [{ filename: string }];
  const quickly = ['--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts'];
  await consumer.run('npm', 'install', ...quickly, `./${filename}`);
  consumer.link('express', '@types/express', '@types/node');
}, 120_000);

afterAll(() => consumer.remove());

describe('the packed tarball, installed into an empty folder', () => {
  it('brings zod along, and nothing else', () => {
    const packages = readdirSync(join(consumer.folder, 'node_modules')).filter(
      (name) => !name.startsWith('.'),
    );
    expect(packages.sort()).toEqual(['@types', 'express', 'mcp-interlock', 'zod']);
  });

  it('holds every file that its exports name', () => {
    const named = Object.values(manifest.exports).flatMap((to) =>
      typeof to === 'string' ? to : Object.values(to),
    );
    expect(named.length).toBeGreaterThan(ENTRIES.length);
    expect(named.filter((path) => !existsSync(join(installed, path)))).toEqual([]);
  });

  it('holds the build, the sources that its maps name, what README links to, and no tests, examples or benchmarks', () => {
    const top = readdirSync(installed).filter((name) => name !== 'node_modules');
    expect(top.sort()).toEqual(['LICENSE', 'README.md', 'dist', 'docs', 'package.json', 'src']);
    const all = readdirSync(installed, { recursive: true, encoding: 'utf8' });
    expect(
      all.filter((path) => /\.test\.|tsbuildinfo|(^|\/)(bench|examples)\//.test(path)),
    ).toEqual([]);
  });

  it('can be imported, by each of its entries', async () => {
    const script = `for (const entry of ${JSON.stringify(ENTRIES)}) console.log(Object.keys(await import(entry)).length > 0);`;
    consumer.write('import.mjs', script);
    expect(await consumer.node('import.mjs')).toBe('true\n'.repeat(ENTRIES.length));
  });

  it('can be required where Node can require ES modules', async () => {
    const script = `const { StateMachineGate } = require('mcp-interlock');
      console.log(new StateMachineGate({ initial: 'open', states: { open: {} } }).currentState);
      for (const entry of ${JSON.stringify(ENTRIES)}) require(entry);`;
    consumer.write('require.cjs', script);
    const required = consumer.node('require.cjs');
    if (process.features.require_module) expect(await required).toBe('open\n');
    else await expect(required).rejects.toThrow('ERR_REQUIRE_ESM');
  });

  it.each(['mts', 'cts'])(
    'type-checks in a .%s file, with the types of Express and misspelt names refused',
    async (ending) => {
      consumer.write(`use.${ending}`, USE);
      expect(await consumer.typeCheck([`use.${ending}`])).toBe('');
    },
    60_000,
  );
});
