import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { build as esbuild } from 'esbuild';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { ENTRIES } from '../scripts/entries.ts';
import { NOTICES, noticesOf } from '../scripts/third-party.ts';
import { Consumer, ROOT } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { sharedTarball, sharedTarballsOfDevelopers } from './services/shared.ts';

/** Every public entry, by what users import. */
const SPECIFIERS = ENTRIES.map(({ specifier }) => specifier);

/** One class, and one thing that modules keep to themselves, through each pair of entries. */
const SHARED = `
import * as root from 'mcp-interlock';
import { currentStep } from 'mcp-interlock/ambient';
import { postgresBus } from 'mcp-interlock/bus/postgres';
import { redisBus } from 'mcp-interlock/bus/redis';
import { gateFetch } from 'mcp-interlock/fetch';
import { memoryStore } from 'mcp-interlock/stores/memory';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { upstashStore } from 'mcp-interlock/stores/upstash';
import { describeStateStore } from 'mcp-interlock-testing';

for (const wrong of [postgresBus, redisBus, postgresStore, redisStore, sqliteStore, upstashStore]) {
  try {
    wrong({});
  } catch (error) {
    console.log(wrong.name, error instanceof root.InterlockError, error.message);
  }
}
try {
  describeStateStore('mine', () => {}, {});
} catch (error) {
  console.log('describeStateStore', error instanceof root.InterlockError);
}
console.log(memoryStore === root.memoryStore, currentStep === root.currentStep);
// A middleware of one entry is known to the other.
const upstream = () => new Response('');
try {
  gateFetch(upstream, [() => {}]);
} catch (error) {
  console.log('gateFetch', error instanceof root.InterlockError);
}
gateFetch(upstream, [root.sessionStore(), root.stateSync({ policies: [] })]);
// Outside of a step, and with the ambient form turned on for the root as well.
console.log(root.currentStep());
`;

const USE = `
import express from 'express';
import { fsmGate, memoryStore, StateMachineGate } from 'mcp-interlock';
import { sessionStore, stateSync, tool } from 'mcp-interlock';
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

/** What an app's own library may export. The compiler has to name each type by what is published. */
const EXPORTED = `
import * as root from 'mcp-interlock';
import { explain, runsOf, workflowHealth } from 'mcp-interlock/runs';
import { adaptStateStore, verifyTrail } from 'mcp-interlock/stores';
import { checkWorkflow, suggestRules, toMermaid } from 'mcp-interlock-check';
import { testGate } from 'mcp-interlock-testing';

export const keys = [root.sessionKey(), root.conversationKey()] as const;
export const principal = root.principalKey();
export const handle = root.handleKey('basket', { createdBy: 'make' });
export const managed = root.managedHandle({ start: 'begin', argument: 'run' });
export const machine = new root.StateMachineGate({
  id: 'door', initial: 'open', states: { open: { on: { CLOSE: 'closed' } }, closed: {} },
}).bindTool('door.close', 'open', 'CLOSE');
export const rules = root.StateMachineGate.fromOrder({ add: {}, pay: { after: 'add' } });
export const sessions = root.sessionStore({ store: root.memoryStore(), key: [principal] });
export const mounted = [root.fsmGate(rules), root.stateSync({ policies: [] })] as const;
export const pay = root.tool('pay').bindState('open');
export const bus = root.localBus();
export const begin = root.beginIn('open');
export const runs = [runsOf(rules, { sessions }), runsOf(machine, { sessions })] as const;
export const read = () => runs[0].read('x');
export const health = workflowHealth({ runs, stuckAfterMs: 1_000 });
export const explained = () => explain(rules);
export const adapted = () => adaptStateStore({ load: async () => undefined, save: async () => {} });
export const verified = verifyTrail([], { from: { run: 'a', workflow: 'b' } });
export const known = [checkWorkflow(rules), toMermaid(machine)] as const;
export const suggested = () => suggestRules([], { reached: [], readOnly: [] });
export const played = () => testGate(machine);
`;

const consumer = new Consumer();
const installed = join(consumer.folder, 'node_modules/mcp-interlock');

beforeAll(async () => {
  await consumer.installTarballs(await sharedTarball(), ...(await sharedTarballsOfDevelopers()));
  consumer.link('@opentelemetry/api', 'express', '@types/express', '@types/node');
}, 120_000);

afterAll(() => consumer.remove());

/** An example that a page names or links to; not the rest of an address, or of a test's path. */
const EXAMPLE = /(?<![\w-]\/?)examples\/[\w/.-]*\w/g;

/** What is unpacked, by its path. */
const files = (): string[] =>
  readdirSync(installed, { recursive: true, encoding: 'utf8' })
    .filter((path) => statSync(join(installed, path)).isFile())
    .sort();

describe('the entries', () => {
  it('have a source each, a built module, and its declarations', () => {
    expect(ENTRIES.filter(({ source }) => !existsSync(join(ROOT, source)))).toEqual([]);
    const named = Object.values(manifest.exports).filter(
      (to) => typeof to === 'object' && 'types' in to,
    );
    expect(named).toEqual(
      ENTRIES.map(({ name }) => ({
        types: `./dist/${name}.d.ts`,
        default: `./dist/${name}.js`,
      })),
    );
    expect(SPECIFIERS).toContain('mcp-interlock');
  });

  it('are kept by bundlers where importing them does something', () => {
    expect(manifest.sideEffects).toEqual(['./dist/doors/ambient.js']);
  });
});

/** What each package bundles, by its folder. */
const BUNDLED = {
  '.': ['zod'],
  'packages/check': ['zod'],
  'packages/testing': ['zod'],
  'packages/cli': [
    ...['@modelcontextprotocol/client', '@modelcontextprotocol/core', 'ajv', 'ajv-formats'],
    ...[
      'content-type',
      'eventsource-parser',
      'fast-deep-equal',
      'fast-uri',
      'json-schema-traverse',
    ],
    ...['jsonc-parser', 'pkce-challenge', 'zod'],
  ],
  'packages/inspector': [
    ...['@dagrejs/dagre', '@dagrejs/graphlib', '@preact/signals', '@preact/signals-core'],
    ...['preact', 'zod'],
  ],
};

describe.each(Object.entries(BUNDLED))('the tarball of %s', (folder, bundled) => {
  const bin = (name: string): string => join(ROOT, 'node_modules/.bin', name);
  let tarball: string;
  const read = (path: string) => consumer.run('tar', '-xzOf', tarball, `package/${path}`);

  beforeAll(async () => {
    tarball = await consumer.pack(folder);
  });

  it('carries its licence, and those of the code that it bundles', async () => {
    expect(await read('LICENSE')).toContain('MIT License');
    const notices = await read(`dist/${NOTICES}`);
    const titles = [...notices.matchAll(/^(@?[a-z][\w/.-]*)(?: ([\d.]+))? \([\w.-]+\)/gm)];
    expect(titles.map(([, name]) => name).sort()).toEqual(bundled);
    for (const [title, name = '', version] of titles) {
      const found = join(ROOT, 'node_modules', name);
      const licence = readdirSync(found).find((each) => /^licen[cs]e/i.test(each)) ?? '';
      expect(notices, title).toContain(readFileSync(join(found, licence), 'utf8').trim());
      const own = JSON.parse(readFileSync(join(found, 'package.json'), 'utf8'));
      expect([own.version, undefined], title).toContain(version);
    }
  });

  it('has a README whose links lead somewhere, also to the notices', async () => {
    const { links } = new Page(join(folder, 'README.md'));
    const listed = (await consumer.run('tar', '-tzf', tarball)).split('\n');
    const dead = links
      .filter((link) => !/^(https:|#)/.test(link))
      .filter((link) => !listed.includes(`package/${link.replace(/#.*/, '')}`));
    expect(dead).toEqual([]);
    if (folder !== '.') expect(links).toContain(`dist/${NOTICES}`);
  });

  it('has nothing that publint warns of', async () => {
    expect(await consumer.run(bin('publint'), tarball, '--strict')).toContain('All good!');
  });

  it('has types wherever an ES module or a bundler looks for them', async () => {
    const options = ['--profile', 'esm-only', '--format', 'ascii', '--no-color'];
    // No app imports that one.
    if (folder === '.') options.push('--exclude-entrypoints', 'internal', '--');
    const report = await consumer.run(bin('attw'), tarball, ...options);
    expect(report).toContain('node16 (from ESM): 🟢');
  });
});

describe('the notices of what is bundled', () => {
  const project = new Consumer();
  const moduleOf = (name: string, files: Readonly<Record<string, string>>): string => {
    const manifest = JSON.stringify({ name, version: '1.0.0', license: 'MIT' });
    for (const [file, text] of Object.entries({ 'package.json': manifest, ...files }))
      project.write(`node_modules/${name}/${file}`, text);
    return join(project.folder, 'node_modules', name, 'index.js');
  };

  afterAll(() => project.remove());

  it('name each package, also one within another one', () => {
    moduleOf('inner', { LICENSE: 'Take it.' });
    const outer = moduleOf('@scope/outer', {
      'licence.md': 'Take it.',
      'index.js.map': '{ "sources": ["../lib/a.ts", "../node_modules/inner/b.ts"] }',
    });
    const plain = moduleOf('plain', { LICENSE: 'Copy it.', NOTICE: 'By us.' });
    expect(noticesOf([join(ROOT, 'src/index.ts'), outer, plain])).toBe(
      '@scope/outer 1.0.0 (MIT)\ninner (MIT), within @scope/outer\n\nTake it.\n\n---\n\n' +
        'plain 1.0.0 (MIT)\n\nCopy it.\n\nBy us.\n',
    );
  });

  it('cannot be made, and nor can the bundle, where a licence is missing', () => {
    expect(() => noticesOf([moduleOf('bare', {})])).toThrow(
      'bare 1.0.0 is bundled, and has no licence to pass on',
    );
    const map = '{ "sources": ["../node_modules/absent/a.ts"] }';
    const around = moduleOf('around', { LICENSE: 'Take it.', 'index.js.map': map });
    expect(() => noticesOf([around])).toThrow(
      'absent is bundled within around, and its licence is not installed',
    );
  });
});

describe('the packed tarball, installed into an empty folder', () => {
  it('brings nothing else along', () => {
    const packages = readdirSync(join(consumer.folder, 'node_modules')).filter(
      (name) => !name.startsWith('.'),
    );
    const ours = ['mcp-interlock', 'mcp-interlock-check', 'mcp-interlock-testing'];
    expect(packages.sort()).toEqual(['@opentelemetry', '@types', 'express', ...ours]);
  });

  it('holds every file that its exports name', () => {
    const named = ENTRIES.flatMap(({ name }) => [`dist/${name}.js`, `dist/${name}.d.ts`]);
    expect(files()).toEqual(expect.arrayContaining(named));
  });

  it('holds the build and what README links to, and no sources or tests', () => {
    expect(readdirSync(installed).sort()).toEqual([
      'ARCHITECTURE.md',
      'CHANGELOG.md',
      'CONTRIBUTING.md',
      'LICENSE',
      'README.md',
      'SECURITY.md',
      'dist',
      'docs',
      'examples',
      'package.json',
    ]);
    expect(files().filter((path) => /\.test\.|tsbuildinfo|(^|\/)(bench|src)\//.test(path))).toEqual(
      [],
    );
  });

  // 45 files and 92 kB on 2026-11-28.
  it('holds the examples that its docs name: their source alone, which is light', () => {
    const examples = files().filter((path) => path.startsWith('examples/'));
    expect(examples.filter((path) => !/\.(ts|md)$/.test(path))).toEqual([]);
    const bytes = examples.reduce((sum, path) => sum + statSync(join(installed, path)).size, 0);
    expect(bytes).toBeLessThanOrEqual(150_000);
    const named = files()
      .filter((path) => path.endsWith('.md'))
      .flatMap((page) => readFileSync(join(installed, page), 'utf8').match(EXAMPLE) ?? []);
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((path) => !existsSync(join(installed, path)))).toEqual([]);
  });

  it('holds each file that its pages at the top and README link to', () => {
    const dead = ['README.md', 'SECURITY.md', 'CHANGELOG.md'].flatMap((page) =>
      new Page(page).links
        .filter((link) => !/^(https:|#)/.test(link))
        .map((link) => link.replace(/#.*/, ''))
        .filter((file) => !existsSync(join(installed, file))),
    );
    expect(dead).toEqual([]);
  });

  // 43 files and 1,722 kB on 2026-11-28: readable code with the comments of its declarations.
  // Minified it was 970 kB, and no developer could step through it.
  it('is few files and light, its docs and examples aside', () => {
    const counted = files().filter((path) => !/^(docs|examples)\/|\.md$/.test(path));
    const bytes = counted.reduce((sum, path) => sum + statSync(join(installed, path)).size, 0);
    expect(counted.length).toBeLessThanOrEqual(50);
    expect(bytes).toBeLessThanOrEqual(1_900_000);
  });

  // 819 kB on 2026-11-28. With maps that carry their sources it was 1,669.
  it('is light to download', async () => {
    expect(statSync(await sharedTarball()).size).toBeLessThanOrEqual(900_000);
  });

  it('can be read where it is installed: each module of ours with its names and comments', () => {
    const textOf = (path: string): string => readFileSync(join(installed, path), 'utf8');
    const ours = files().filter((path) => path.endsWith('.js') && !path.endsWith('/zod.js'));
    const code = ours.map(textOf).join('\n');
    const built = [...code.matchAll(/^\/\/ (src\/\S+\.ts)$/gm)].map(([, source]) => source);
    expect(built).toContain('src/step/step.ts');
    expect(new Set(built).size).toBe(built.length);
    const step = readFileSync(join(ROOT, 'src/step/step.ts'), 'utf8');
    const [comment = 'none'] = /(?<=\n)\/\*\* .*\n(?=export class Step )/.exec(step) ?? [];
    expect(code).toContain(`${comment}var Step = class`);
  });

  it('names in a stack trace functions and lines that can be read there', async () => {
    consumer.write(
      'trace.mjs',
      "import { workflowHealth } from 'mcp-interlock/runs';\nworkflowHealth({ x: 1 });",
    );
    const failed = await consumer.node('--enable-source-maps', 'trace.mjs').catch(String);
    const lineOf = (name: string): string | undefined => {
      const at = new RegExp(`at ${name} \\(file://(\\S+\\.js):(\\d+):`).exec(failed);
      const [, path = '', line] = at ?? [];
      return readFileSync(path, 'utf8').split('\n')[Number(line) - 1];
    };
    expect(lineOf('parseOptions')).toContain('throw new InterlockError(code, ');
    expect(lineOf('workflowHealth')).toContain('parseOptions("workflowHealth()"');
  });

  it('has no maps, and names none: what they would lead to is what is there', () => {
    expect(files().filter((path) => path.endsWith('.map'))).toEqual([]);
    const modules = files().filter((path) => path.endsWith('.js'));
    expect(modules.length).toBeGreaterThan(12);
    const named = modules.filter((path) =>
      readFileSync(join(installed, path), 'utf8').includes('sourceMappingURL'),
    );
    expect(named).toEqual([]);
  });

  it('has one copy of each class, and of what a module keeps, through every entry', async () => {
    consumer.write('shared.mjs', SHARED);
    const lines = (await consumer.node('shared.mjs')).split('\n');
    expect(lines.filter((line) => /false/.test(line))).toEqual([]);
    expect(lines).toHaveLength(11);
    expect(lines[3]).toMatch(/^redisStore true redisStore\(\) options: client: expected a client/);
    expect(lines[9]).toBe('undefined');
  });

  it('can be imported, by each of its entries', async () => {
    const script = `for (const entry of ${JSON.stringify(SPECIFIERS)})
      console.log(Object.keys(await import(entry)).length > 0);`;
    consumer.write('import.mjs', script);
    expect(await consumer.node('import.mjs')).toBe('true\n'.repeat(SPECIFIERS.length));
  });

  it('can be required where Node can require ES modules', async () => {
    const script = `const { StateMachineGate } = require('mcp-interlock');
      console.log(new StateMachineGate({ initial: 'open', states: { open: {} } }).currentState);
      for (const entry of ${JSON.stringify(SPECIFIERS)}) require(entry);`;
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

  it('names each type that a library exports of it, by what is published', async () => {
    consumer.write('exported.mts', EXPORTED);
    expect(await consumer.typeCheck(['exported.mts'], { declares: true })).toBe('');
  }, 60_000);

  it('type-checks as a bundler resolves it', async () => {
    consumer.write('bundled.ts', USE);
    expect(await consumer.typeCheck(['bundled.ts'], { forBundler: true })).toBe('');
  }, 60_000);

  it('is bundled without its optional peers, and then finds no XState', async () => {
    const code =
      "import { initFsmEngine } from 'mcp-interlock'; console.log(await initFsmEngine());";
    consumer.write('in.mjs', code);
    const input = join(consumer.folder, 'in.mjs');
    const options = { format: 'esm', platform: 'node', bundle: true, logLevel: 'silent' } as const;
    const outfile = join(consumer.folder, 'out.mjs');
    const { errors, warnings } = await esbuild({ ...options, entryPoints: [input], outfile });
    expect([errors, warnings]).toEqual([[], []]);
    expect(await consumer.node('out.mjs')).toBe('false\n');
    const built = await rolldown({ input, platform: 'node', logLevel: 'silent' });
    await built.write({ dir: join(consumer.folder, 'out'), format: 'esm' });
    await built.close();
    expect(await consumer.node('out/in.js')).toBe('false\n');
  }, 60_000);

  it('has declarations of each entry that need no dependency of ours', async () => {
    const uses = SPECIFIERS.map((entry, at) => `export * as entry${at} from '${entry}';`);
    consumer.write('entries.mts', uses.join('\n'));
    expect(await consumer.typeCheck(['entries.mts'])).toBe('');
  }, 60_000);
});
