import { copyFileSync, existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type * as z from 'zod/mini';
import { FULL } from '../lab/torture/options.ts';
import manifest from '../package.json' with { type: 'json' };
import { toMermaid } from '../packages/check/src/index.ts';
import { ERROR_CODES, InterlockError, type InterlockErrorCode } from '../src/basics/errors.ts';
import { parseOptions } from '../src/basics/options.ts';
import { postgresBus } from '../src/bus/postgres.ts';
import { redisBus } from '../src/bus/redis.ts';
import { gateFetch } from '../src/doors/fetch.ts';
import { commonShape } from '../src/doors/middleware.ts';
import { unknownOutcomeReply } from '../src/gate/replies.ts';
import {
  fsmGate,
  memoryStore,
  runKey,
  StateMachineGate,
  sessionStore,
  stateSync,
} from '../src/index.ts';
import { runsOf, workflowHealth } from '../src/runs/index.ts';
import { UnknownOutcome } from '../src/step/unknown-outcome.ts';
import { postgresStore } from '../src/stores/postgres.ts';
import { redisStore } from '../src/stores/redis.ts';
import { sqliteStore } from '../src/stores/sqlite.ts';
import { upstashStore } from '../src/stores/upstash.ts';
import { connect, type TestClient } from './helpers/client.ts';
import { Consumer, ROOT, type Served } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { freePort } from './services/ports.ts';

// Watched and not replaced: it is given the schema of every function's options.
vi.mock('../src/basics/options.ts', { spy: true });

const PAGES = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'ARCHITECTURE.md',
  'SECURITY.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
  ...readdirSync(join(ROOT, 'examples'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `examples/${name}`),
];
const readme = new Page('README.md');
const options = new Page('docs/reference/options.md');

describe('the first code of the README', () => {
  it('begins before line 30, with the two commands above it, and can be pasted as it is', () => {
    const start = readme.lines.indexOf('```ts') + 1;
    expect(start).toBeLessThan(30);
    const above = readme.lines.slice(0, start).join('\n');
    expect(above).toContain('npm ci && npm run demo');
    expect(above).toContain('npm ci && npm test');
    expect(readme.blocks('ts')[0]?.split('\n').length).toBeLessThan(40);
  });
});

it('draws the README’s machine as toMermaid() does', async () => {
  const [, machine = ''] = readme.blocks('ts');
  const make = new Function('StateMachineGate', `${machine}; return checkout;`);
  const drawn = readme.blocks('mermaid').at(-1);
  expect(drawn).toBe(toMermaid(make(StateMachineGate) as StateMachineGate));
});

describe('the machine of the page about machines', () => {
  const page = new Page('docs/build/machines.md');
  const project = new Consumer();
  let app: Served;
  let client: TestClient;

  beforeAll(async () => {
    project.linkInterlock();
    project.link('@modelcontextprotocol/sdk', 'express', 'libsql', 'tsx', 'zod');
    for (const file of ['mcp-handler.ts', 'shop.ts'])
      copyFileSync(join(ROOT, 'examples/express-checkout', file), join(project.folder, file));
    project.write(
      'server.ts',
      `
      import express from 'express';
      import { fsmGate, sessionStore, stateSync } from 'mcp-interlock';
      import { mcpHandler } from './mcp-handler.ts';
      ${page.blocks('ts')[0] ?? ''}
      const policies = [{ match: 'cart_*', invalidates: ['cart_view'] }];
      const app = express();
      app.all('/mcp', sessionStore(), fsmGate(checkout), stateSync({ policies }), mcpHandler);
      app.listen(Number(process.env.PORT));`,
    );
    app = await project.serve(await freePort(), 'npx tsx server.ts');
    client = await connect(app.url);
  }, 60_000);

  afterAll(async () => {
    await client?.close();
    await app?.stop();
    project.remove();
  });

  it('shows in each state the tools that the page says, and refuses in the words of the reference', async () => {
    const shown: string[][] = [];
    for (const [illegal, next] of WAY) {
      const { text, meta } = await client.call(illegal);
      const { state } = meta['mcp-interlock/refusal'] as { state: string };
      if (state === 'has_items')
        expect(`${text}\n`).toBe(new Page('docs/reference/refusals.md').blocks()[0]);
      shown.push([state, (await client.tools()).join('`, `')]);
      if (next !== undefined) await client.call(next, { sku: 'tea' });
    }
    expect(shown).toEqual(page.tableAfter('A client sees, while'));
  });

  it('tells of stale data where something changed, and not where it was only looked at', async () => {
    const fresh = await connect(app.url);
    const texts = async (tool: string) => (await fresh.call(tool, { sku: 'tea' })).texts;
    expect((await texts('cart_add_item')).at(-1)).toBe(
      '[System: Cache invalidated for cart_view — caused by cart_add_item]',
    );
    expect((await texts('cart_view')).join()).not.toContain('Cache invalidated');
    await fresh.close();
  });
});

/** In each state a call that is refused there, and one that leads on. */
const WAY = [
  ['cart_pay', 'cart_add_item'],
  ['cart_pay', 'cart_checkout'],
  ['cart_checkout', 'cart_pay'],
  ['cart_pay', undefined],
] as const;

describe('every code of the documentation', () => {
  const consumer = new Consumer();
  afterAll(() => consumer.remove());

  it('compiles, page by page', async () => {
    consumer.linkInterlock();
    consumer.link(
      '@hono/mcp',
      '@modelcontextprotocol/sdk',
      '@modelcontextprotocol/server',
      '@opentelemetry/api',
      '@opentelemetry/sdk-metrics',
      '@opentelemetry/sdk-trace-node',
      '@types/express',
      '@types/node',
      '@types/passport',
      '@types/pg',
      '@upstash/redis',
      'express',
      'express-oauth2-jwt-bearer',
      'express-rate-limit',
      'helmet',
      'hono',
      'ioredis',
      'jose',
      'libsql',
      'mcp-handler',
      'mcp-interlock-inspector',
      'passport',
      'pg',
      'redis',
      'vitest',
      'xstate',
      'zod',
    );
    consumer.write('package.json', '{ "type": "module" }');
    for (const [page, around] of Object.entries(SURROUNDINGS)) {
      const blocks = new Page(page).blocks('ts').slice(PLAYED[page] ?? 0);
      const code = BLOCKS_APART.includes(page) ? blocks.map(inBraces) : blocks;
      consumer.write(`${page}.ts`, `${around}\n${code.join('\n')}\nexport {};`);
    }
    const files = Object.keys(SURROUNDINGS).map((page) => `${page}.ts`);
    expect(await consumer.typeCheck(files, { skipLibCheck: true })).toBe('');
  }, 60_000);
});

it('compiles or runs the code of every page somewhere', () => {
  for (const [page, test] of Object.entries(TESTED_ELSEWHERE))
    expect(readFileSync(join(ROOT, test), 'utf8')).toContain(page);
  const known = [...Object.keys(SURROUNDINGS), ...Object.keys(TESTED_ELSEWHERE)];
  const withCode = PAGES.filter((page) => new Page(page).blocks('ts').length > 0);
  expect(withCode.filter((page) => !known.includes(page))).toEqual([]);
});

/** Pages whose code another test compiles or runs, or finds in an example. */
const TESTED_ELSEWHERE: Readonly<Record<string, string>> = {
  'docs/build/testing.md': 'test/testing/docs.test.ts',
  'docs/operate/custom-store.md': 'test/examples/custom-store.test.ts',
  'docs/operate/proxy.md': 'test/examples/proxy-gate.test.ts',
  'docs/start/any-server.md': 'test/helpers/quick-starts.ts',
  'docs/start/serverless.md': 'test/examples/vercel.test.ts',
};

/** How many first blocks of a page test/quick-starts.test.ts compiles and runs. */
const PLAYED: Readonly<Record<string, number>> = {
  'README.md': 1,
  'docs/start/fetch.md': 3,
};

/** Pages whose blocks are choices, and not one after the other. */
const BLOCKS_APART: readonly string[] = ['docs/build/eras.md'];

/** Its imports stay outside, as the language wants. */
function inBraces(block: string): string {
  const anImport = /^import .*;$/gm;
  return `${block.match(anImport)?.join('\n') ?? ''}\n{ ${block.replace(anImport, '')} }`;
}

/** What the pages leave out because their readers have it. */
const SURROUNDINGS: Readonly<Record<string, string>> = {
  'README.md': `import { StateMachineGate } from 'mcp-interlock';`,
  'docs/build/machines.md': '',
  'docs/build/checks.md': `
    import { StateMachineGate, type SyncPolicy } from 'mcp-interlock';
    import { expect } from 'vitest';
    declare const gate: StateMachineGate, tools: string[], policies: SyncPolicy[];`,
  'docs/operate/roll-out.md': `
    import type { Express, RequestHandler } from 'express';
    import { fsmGate, type StateMachineGate } from 'mcp-interlock';
import type { Runs } from 'mcp-interlock/runs';
import type { StateStore } from 'mcp-interlock/stores';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate;
    declare const store: StateStore, runs: Runs;`,
  'docs/reference/errors.md': `
    import { type FsmConfig, InterlockError, StateMachineGate } from 'mcp-interlock';
    declare const definition: FsmConfig;`,
  'docs/reference/events.md': `
    import { fsmGate, type StateMachineGate } from 'mcp-interlock';
    declare const checkout: StateMachineGate;`,
  'docs/reference/options.md': `
    import type { Express, RequestHandler } from 'express';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import { fsmGate, type StateMachineGate, sessionStore } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate, store: AtomicStateStore;`,
  'docs/start/express.md': '',
  'docs/build/tasks.md': `
    import type { StateMachineGate } from 'mcp-interlock';
    declare const checkout: StateMachineGate;`,
  'docs/operate/inspector.md': `
    import type { Runs } from 'mcp-interlock/runs';
import type { StateStore } from 'mcp-interlock/stores';
import { StateMachineGate } from 'mcp-interlock';
    import type { Authorization } from 'mcp-interlock-inspector';
    declare const store: StateStore;
    declare const runs: Runs;
    declare const run: string;
    declare function operatorOf(req: unknown): Authorization | false;
    const checkout = new StateMachineGate({ initial: 'open', states: { open: {} } });`,
  'docs/build/steps.md': `
    import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
    import * as z from 'zod';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import type { StateMachineGate, StepSource } from 'mcp-interlock';
    declare const server: McpServer, extra: StepSource;
    declare const provider: { charge(amount: number, options: object): Promise<void> };
    declare const client: { query(text: string): Promise<void> };
    declare const checkout: StateMachineGate, store: AtomicStateStore, run: string;`,
  'docs/start/fetch.md': `
    import type { AuthInfo } from '@modelcontextprotocol/server';
    declare const gated: (request: Request) => Promise<Response>;
    declare const verifyToken: (request: Request, token?: string) => AuthInfo | undefined;`,
  'docs/build/statecharts.md': `
    import type { Express, RequestHandler } from 'express';
    declare const app: Express, mcpHandler: RequestHandler;
    declare const mail: { send(what: string, run: string | undefined): Promise<void> };
    declare const slots: { isFree(slot: string): Promise<boolean> };`,
  'docs/start/clients.md': `
    import type { Express, RequestHandler } from 'express';
    import type { StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate;`,
  'docs/start/providers.md': `
    import type { Express, RequestHandler } from 'express';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import type { FsmConfig, StepSource } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, store: AtomicStateStore, run: string, config: FsmConfig;
    declare const extra: StepSource;
    declare const db: { slots: { isAvailable(slot: string): Promise<boolean> } };`,
  'docs/build/rules.md': '',
  'docs/build/rule-patterns.md': `
    import { StateMachineGate } from 'mcp-interlock';`,
  'docs/build/rules-more.md': `
    declare const bank: StateMachineGate;`,
  'docs/build/change-rules.md': `
    import type { GivenFact } from 'mcp-interlock/runs';
    declare function paymentsOf(principal: string | undefined): Promise<readonly GivenFact[]>;`,
  'docs/operate/stores.md': '',
  'docs/operate/limits.md': `
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import { sessionStore } from 'mcp-interlock';
    declare const store: AtomicStateStore;`,
  'docs/build/step-details.md': `
    import type { StateMachineGate } from 'mcp-interlock';
    declare const checkout: StateMachineGate;`,
  'docs/reference/glossary.md': '',
  'docs/build/runs.md': `
    import type { Express, RequestHandler } from 'express';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import { type FsmConfig, fsmGate, StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, store: AtomicStateStore, run: string, definition: FsmConfig;
    declare function alert(tool: string, calls: number): void;
    declare const checkout: StateMachineGate<'payment', 'CANCEL'>;
    declare const machine: FsmConfig;
    declare function basketOf(principal: string | undefined): Promise<{ limit: number } | undefined>;
    declare function limitOf(principal: string | undefined): Promise<number>;`,
  'docs/operate/operations.md': `
    import type { Express, RequestHandler } from 'express';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import { fsmGate, type NotificationBus } from 'mcp-interlock';
    import type { Server } from 'node:http';
    declare const app: Express, mcpHandler: RequestHandler, store: AtomicStateStore, bus: NotificationBus;
    declare const checkout: StateMachineGate, operatorToken: string, server: Server;
    declare const log: Record<'error' | 'info', (said: object, text: string) => void>;
    declare function page(words: string): void;`,
  'docs/operate/payments.md': `
    import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
    import type { Express, RequestHandler } from 'express';
    import { currentStep, type FsmConfig, StateMachineGate } from 'mcp-interlock';
import type { Runs } from 'mcp-interlock/runs';
    import { z } from 'zod';
    declare const app: Express, server: McpServer, runs: Runs, verifySignature: RequestHandler;
    declare const config: FsmConfig<'payment', 'PAY'>;
    type Charge = { id: string; declined: boolean; reason: string; status: 'succeeded' | 'failed' };
    declare const provider: {
      charge(order: string, options: { idempotencyKey: string | undefined }): Promise<Charge>;
      find(key: string): Promise<Charge | undefined>;
    };`,
  'docs/operate/trail.md': `
    import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
    import type { Express } from 'express';
    import type { AtomicStateStore } from 'mcp-interlock/stores';
import type { StateMachineGate } from 'mcp-interlock';
    declare const app: Express, client: Client;
    declare const checkout: StateMachineGate, store: AtomicStateStore, run: string;`,
  'docs/build/status-tool.md': `
    import type { Express, RequestHandler } from 'express';
    import type { StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate;`,
  'docs/build/eras.md': `
    import type { Express, RequestHandler } from 'express';
    import type { StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate;`,
  'docs/operate/authentication.md': `
    import type { Express, RequestHandler } from 'express';
    import { fsmGate, sessionStore, type StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, authenticate: RequestHandler;
    declare const checkout: StateMachineGate, issuer: string, audience: string;`,
  'docs/build/bindings.md': `
    import { type FsmConfig, StateMachineGate, tool, type XStateContext } from 'mcp-interlock';
    import { createMachine, setup } from 'xstate';
    declare const machine: FsmConfig<'payment', 'PAY'>, clerks: ReadonlySet<string>;
    const orderMachine = setup({ types: { context: {} as { total: number } } }).createMachine({
      context: { total: 0 }, initial: 'payment', states: { payment: {} },
    });`,
  'docs/build/prompts-and-resources.md': `
    import { type FsmConfig, StateMachineGate } from 'mcp-interlock';
    declare const machine: FsmConfig<'has_items' | 'payment' | 'confirmed', 'PAY'>;`,
  'docs/build/state-sync.md': `
    import type { Express, RequestHandler } from 'express';
    import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
    import { fsmGate, type StateMachineGate, stateSync, type SyncPolicy } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, tasks: StateMachineGate;
    declare const policies: SyncPolicy[], server: McpServer;`,
  'docs/operate/instances.md': `
    import type { Express, RequestHandler } from 'express';
    import type { Server } from 'node:http';
    import { fsmGate, sessionStore, type StateMachineGate } from 'mcp-interlock';
    declare const app: Express, mcpHandler: RequestHandler, checkout: StateMachineGate, server: Server;`,
};

describe('the tables of options', () => {
  const common = Object.keys(commonShape());
  const MIDDLEWARES = ['sessionStore', 'fsmGate', 'stateSync'];
  const schemas = new Map<string, z.ZodMiniObject>();

  beforeAll(() => {
    const nothing = async () => undefined;
    const gate = new StateMachineGate({ initial: 'a', states: { a: {} } });
    fsmGate(gate);
    sessionStore();
    runKey({ name: 'thread', of: () => undefined });
    gateFetch(async () => new Response(), [stateSync({ policies: [] })]);
    memoryStore();
    workflowHealth({ runs: [runsOf(gate, { store: memoryStore() })], stuckAfterMs: 1 });
    redisStore({ client: { eval: nothing, evalSha: nothing } });
    upstashStore({ redis: { eval: nothing, evalsha: nothing } });
    postgresStore({ pool: { query: nothing, connect: nothing } as never });
    expect(() => redisBus({} as never)).toThrow('client');
    expect(() => postgresBus({} as never)).toThrow('pool');
    expect(() => sqliteStore({} as never)).toThrow('database');
    for (const [what, schema] of vi.mocked(parseOptions).mock.calls)
      schemas.set(what.replace(/\(\).*/, ''), schema());
  });

  const schemaOf = (name: string): Record<string, z.ZodMiniType> => {
    if (name === 'common') return commonShape();
    const shape = Object.entries(schemas.get(name)?.shape ?? {}) as [string, z.ZodMiniType][];
    const isListedApart = (option: string) => MIDDLEWARES.includes(name) && common.includes(option);
    return Object.fromEntries(shape.filter(([option]) => !isListedApart(option)));
  };

  it.each([
    'common',
    'StateMachineGate',
    'runsOf',
    'sessionStore',
    'conversationKey',
    'runKey',
    'fsmGate',
    'stateSync',
    'gateFetch',
    'workflowHealth',
    'memoryStore',
    'sqliteStore',
    'redisStore',
    'upstashStore',
    'postgresStore',
    'redisBus',
    'postgresBus',
  ])('name exactly the options of %s, with their defaults', (name) => {
    const rows = options.tableAfter(`<!-- options: ${name} -->`);
    const schema = schemaOf(name);
    expect(rows.map(([option]) => option).sort()).toEqual(Object.keys(schema).sort());
    for (const [option = '', said = ''] of rows) {
      const given = schema[option]?.safeParse(undefined);
      expect(`${option}: ${said}`).toBe(
        `${option}: ${given?.success ? inWords(given.data, said) : 'required'}`,
      );
    }
  });
});

/**
 * A default as the tables write it. What is no plain value is described in words, which no test can
 * read.
 */
function inWords(value: unknown, said: string): string {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number')
    return [...NUMBERS].find((form) => form(value) === said)?.(value) ?? String(value);
  if (Array.isArray(value)) {
    if (value.length === 0) return 'none';
    const keys = value.map((each: { kind?: string; name?: string }) => each.name ?? each.kind);
    return keys.includes(undefined) ? 'a list' : `[${keys.map((key) => `${key}Key()`).join(', ')}]`;
  }
  if (value === undefined && !/^(in memory|from )/.test(said)) return 'none';
  return /^[\d']/.test(said) ? 'in words' : said;
}

const NUMBERS: readonly ((value: number) => string)[] = [
  (value) => value.toLocaleString('en'),
  (value) => `${value / 1024 / 1024} MiB`,
  (value) => `${value / 1000} s`,
  (value) => `${value / 60_000} minutes`,
  (value) => `${value / 3_600_000} hours`,
];

describe('the links of the documentation', () => {
  it('of each error code lead to its section in the package, and every section is a code', () => {
    const codes = Object.keys(ERROR_CODES) as InterlockErrorCode[];
    const { anchors } = new Page('docs/reference/errors.md');
    for (const code of codes)
      expect(new InterlockError(code, '').help).toBe(
        `mcp-interlock/docs/reference/errors.md#${code.toLowerCase()}`,
      );
    const sections = anchors.filter((anchor) => anchor.startsWith('err_'));
    expect(sections.map((anchor) => anchor.toUpperCase())).toEqual(codes);
  });

  it('of an unknown outcome leads to the section that says what to do', () => {
    const step = { key: { run: 'r', workflow: 'w' }, tool: 't', idempotencyKey: 'k' };
    const { help, message } = new UnknownOutcome({ ...step, uncertain: 'hold' }, 'why', {
      ran: false,
      waits: true,
    });
    expect(readme.anchors).toContain(new URL(help).hash.slice(1));
    expect(message).toContain(`see ${help}`);
  });

  it.each(PAGES)('all lead somewhere: %s', (path) => {
    const dead = new Page(path).links.filter(
      (link) => !link.startsWith('https:') && !leadsSomewhere(path, link),
    );
    expect(dead).toEqual([]);
  });
});

/**
 * Readers have the package alone, so no link of its pages may lead to a test, for example. `lab`
 * has pages for contributors, who have the repository.
 */
const PUBLISHED = ['README.md', 'LICENSE', 'lab', ...manifest.files];

function leadsSomewhere(path: string, link: string): boolean {
  const [file = '', anchor] = link.split('#');
  const target = file === '' ? path : join(dirname(path), file);
  return (
    existsSync(join(ROOT, target)) &&
    PUBLISHED.includes(target.replace(/\/.*/, '')) &&
    (anchor === undefined || new Page(target).anchors.includes(anchor))
  );
}

it('says of the torture what it does at its full scale', () => {
  const promises = readme.text.slice(readme.text.indexOf('## What it promises'));
  const { duplicates, kills, pins, restarts } = FULL;
  expect(promises.match(/\d[\d,]*(?= (steps|servers|runs|times))/g)).toEqual([
    duplicates.steps.toLocaleString('en'),
    ...[kills.kills, pins.runs, restarts.restarts].map((each) => each.toLocaleString('en')),
  ]);
});

it('quotes what a client is told when nobody knows the outcome, as the code says it', () => {
  const said = [false, true].map((ran) =>
    JSON.stringify(unknownOutcomeReply(1, 'cart_pay', 'checkout', { ran, era: 'session' })),
  );
  const quoted = readme.blocks()[1]?.trim().split('\n') ?? [];
  expect(quoted.map((line, index) => said[index]?.includes(line))).toEqual([true, true]);
});
