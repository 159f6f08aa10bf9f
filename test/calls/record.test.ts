import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import { expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { parseCallLine, type RecordedLine } from '../../src/calls/calls.ts';
import {
  fsmGate,
  type Middleware,
  type RecordCallsOptions,
  recordCalls,
  sessionStore,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { collect } from '../helpers/collect.ts';
import { RawSession } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { startUpstream } from '../helpers/upstream.ts';

const KEY = 'a key of sixteen bytes';

function recording(options: Partial<RecordCallsOptions> = {}) {
  let text = '';
  const recorder = recordCalls({
    write: (lines) => {
      text += lines;
    },
    key: KEY,
    ...options,
  });
  const lines = async (): Promise<RecordedLine[]> => {
    await recorder.flush();
    return text
      .split('\n')
      .slice(0, -1)
      .map((each, at) => parseCallLine(each, at + 1) as RecordedLine);
  };
  return { recorder, lines, text: () => text };
}

async function bank(onEvent: ReturnType<typeof recordCalls>, gate = {}) {
  return scene({
    ...{ gate, session: { onEvent } },
    makeServer: toolServer(['cart.add_item', 'cart.pay', 'find'], {
      find: (args) => ({ account: args.name, amounts: [1, 2], deep: { id: 7 } }),
    }),
  });
}

it('writes a line for the start and the end of each call, bound or not', async () => {
  const { recorder, lines, text } = recording({ clear: () => 'name' });
  const app = await bank(recorder);
  const user = await app.client();
  await user.calls('find', { name: 'DE-89', when: null });
  await user.calls('cart.add_item', { sku: 'DE-89' });
  await user.isRefused('cart.pay', 'state');
  await user.raw.call('cart.add_item', { fail: true });
  const [first, ...rest] = await lines();
  expect(first).toMatchObject({ type: 'recording', version: 1, seq: 1 });
  expect(
    rest.map((each) => [
      each.type,
      'tool' in each ? each.tool : '',
      'outcome' in each && each.outcome,
    ]),
  ).toEqual([
    ['start', 'find', false],
    ['end', '', 'ok'],
    ['start', 'cart.add_item', false],
    ['end', '', 'ok'],
    ['start', 'cart.pay', false],
    ['end', '', 'refused'],
    ['start', 'cart.add_item', false],
    ['end', '', 'tool_error'],
  ]);
  const [found, result, added] = rest as unknown as { args: object; result: object; run: string }[];
  // Equal values are seen across names and tools, and what they are is not.
  expect(found).toMatchObject({ args: { hmacs: { '/name': expect.stringMatching(/^s/) } } });
  const { hmacs } = (found?.args ?? {}) as { hmacs?: Record<string, string> };
  const hmac = hmacs?.['/name'];
  expect(result).toMatchObject({
    result: {
      hmacs: {
        '/account': hmac,
        '/amounts': [expect.any(String), expect.any(String)],
        '/deep/id': expect.stringMatching(/^n/),
      },
    },
  });
  expect(added).toMatchObject({ args: { hmacs: { '/sku': hmac } }, run: found?.run });
  expect(text()).not.toMatch(/DE-89|a key of/);
  expect(text()).not.toContain(user.run);
});

it('names the run of calls also while the gate observes', async () => {
  const { recorder, lines } = recording();
  const app = await bank(recorder, { enforce: false });
  const user = await app.client();
  await user.calls('find', { name: 'x' });
  await user.calls('cart.pay');
  const all = await lines();
  expect(all.map(({ type }) => type)).toEqual(['recording', 'start', 'end', 'start', 'end']);
  expect(all[1]).toMatchObject({ run: expect.any(String), client: expect.any(String) });
  expect(all[3]).toMatchObject({ run: (all[1] as { run: string }).run, tool: 'cart.pay' });
});

it('writes in clear only what the app lets through', async () => {
  const { recorder, lines } = recording({
    clear: ({ tool, pointer }) => {
      if (pointer === '/broken') throw new Error('no');
      return tool === 'find' && pointer !== '/secret';
    },
  });
  const app = await bank(recorder);
  const user = await app.client();
  await user.calls('find', { name: 'open', secret: 'shut', broken: 1 });
  const [, start, end] = (await lines()) as unknown as { args: unknown; result: unknown }[];
  expect(start?.args).toMatchObject({ clear: { '/name': 'open' } });
  expect(JSON.stringify(start)).not.toContain('shut');
  expect(end?.result).toMatchObject({ clear: { '/account': 'open', '/amounts': [1, 2] } });
});

it('shows of names only those that the listed schema has or the app lets through', async () => {
  const { recorder, lines, text } = recording({
    clear: ({ pointer, value }) => pointer === '/map/let-through' && value === 'v' && 'name',
  });
  const app = await scene({
    session: { onEvent: recorder },
    makeServer: () => {
      const server = new McpServer({ name: 'names', version: '1.0.0' });
      const inputSchema = z.looseObject({ map: z.looseObject({ known: z.string().optional() }) });
      server.registerTool('find', { inputSchema }, () => ({
        content: [{ type: 'text', text: '{"bob@x.example":1}' }],
      }));
      return server;
    },
  });
  const user = await app.client();
  const args = {
    'alice@x.example': 1,
    map: { sk_live_1: 'v', known: 'w', 'let-through': 'v' },
    'mallory@x.example': { known: 2 },
  };
  const names = async (): Promise<string[]> => {
    const all = (await lines()) as unknown as { type: string; args: { hmacs: object } }[];
    return Object.keys(all.findLast(({ type }) => type === 'start')?.args.hmacs ?? {});
  };
  await user.calls('find', args);
  const hidden = expect.stringMatching(/^(\/~h[\w-]{21})+$/);
  const [first] = await names();
  expect(await names()).toEqual([
    ...[first, hidden, hidden, hidden, hidden],
    expect.stringMatching(/^\/~h[\w-]{21}\/let-through$/),
    hidden,
  ]);
  await user.raw.tools();
  await user.calls('find', args);
  // Equal names have equal HMACs, and a schema knows a name in its place alone.
  const under = expect.stringMatching(/^\/map\/~h[\w-]{21}$/);
  const shown = [first, '/map', hidden, under, '/map/known', '/map/let-through', hidden];
  expect(await names()).toEqual(shown);
  expect(text()).not.toMatch(/alice|bob|mallory|sk_live/);
});

it('writes lines of a largest size, whatever the names and values are', async () => {
  const { recorder, text } = recording({ clear: () => true });
  const app = await bank(recorder);
  const opened = await app.session();
  const long = 'x'.repeat(1_000_000);
  await opened.call('find', { [long]: 1, ok: long, ...Object.fromEntries([[`a${long}`, {}]]) });
  await opened.call(long);
  await recorder.flush();
  const lengths = text()
    .split('\n')
    .map(({ length }) => length);
  expect(lengths.length).toBeGreaterThan(4);
  expect(Math.max(...lengths)).toBeLessThan(40_000);
});

it('keeps no values while lines wait to be written, and bounds the lines in bytes', {
  timeout: 60_000,
}, async () => {
  const stalled = new Promise<void>(() => {});
  const { recorder } = recording({ write: () => stalled, maxQueuedBytes: 4_000 });
  const app = await bank(recorder);
  const opened = await app.session();
  const call = () => opened.call('find', { secret: 'x'.repeat(1_300_000) });
  await call();
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 40; i++) await call();
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(10_000_000);
  expect(recorder.dropped).toBeGreaterThan(40);
});

it('bounds what it takes of one call, and says so', async () => {
  const { recorder, lines } = recording();
  const app = await bank(recorder);
  const user = await app.client();
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`a${i}`, i]));
  await user.calls('find', {
    many,
    long: Array(300).fill(1),
    deep: { a: { b: { c: { d: { e: 1 } } } } },
  });
  const [, start] = (await lines()) as unknown as { args: { hmacs: object; isCut: boolean } }[];
  expect(Object.keys(start?.args.hmacs ?? {}).length).toBeLessThanOrEqual(64);
  expect(start?.args.isCut).toBe(true);
});

it('drops lines rather than hold a call up, and says how many', async () => {
  let release = (): void => {};
  const written: string[] = [];
  const { recorder } = recording({
    maxQueued: 3,
    write: (lines) => {
      written.push(lines);
      if (written.length > 1) return undefined;
      return new Promise<void>((resolve) => {
        release = resolve;
      });
    },
  });
  const app = await bank(recorder);
  const opened: RawSession = await app.session();
  for (let i = 0; i < 5; i++) await opened.call('find', { name: String(i) });
  await expect.poll(() => written.length).toBe(1);
  expect(recorder.dropped).toBeGreaterThan(0);
  release();
  await opened.call('find', { name: 'later' });
  await expect.poll(() => written.join('')).toMatch(/"type":"dropped"/);
});

it('goes on after a write that fails, and tells of it', async () => {
  const errors: unknown[] = [];
  let fails = true;
  const { recorder, text } = recording({
    onError: (error) => void errors.push(error),
    write: (lines) => {
      if (fails) throw new Error('the disk is full');
      saved += lines;
    },
  });
  let saved = '';
  const app = await bank(recorder);
  const user = await app.client();
  await user.calls('find');
  await recorder.flush();
  fails = false;
  await user.calls('find');
  await recorder.flush();
  expect(errors).toEqual([new Error('the disk is full')]);
  expect(saved).toMatch(/"type":"dropped"/);
  expect(text()).toBe('');
});

it('gives a serverless host what it has to wait for', async () => {
  const waited: Promise<unknown>[] = [];
  const { recorder, text } = recording({ waitUntil: (writing) => void waited.push(writing) });
  const app = await bank(recorder);
  const user = await app.client();
  await user.calls('find');
  await Promise.all(waited);
  expect(text()).toMatch(/"outcome":"ok"/);
});

it('refuses a key that could be guessed', () => {
  expect(() => recordCalls({ write: () => {}, key: 'short' })).toThrow(/at least 16/);
});

const gate = (enforce: boolean) => fsmGate(checkoutGate(), { enforce }) as RequestHandler;

it.each<[string, boolean, boolean | undefined]>([
  ['a gate', true, undefined],
  ['an observing gate', false, undefined],
  ['an observing gate, and passes all', false, false],
])('records calls where sessionStore() under app.use() has %s', async (_, enforces, enforce) => {
  for (const place of ['before', 'behind'] as const) {
    const { recorder, lines } = recording();
    const sessions = sessionStore({ onEvent: recorder, enforce });
    onTestFinished(() => sessions.close());
    const both = [sessions as RequestHandler, gate(enforces)];
    const app = await startUpstream(
      place === 'before'
        ? { before: both }
        : { before: both.slice(0, 1), middlewares: [both[1] as Middleware] },
    );
    onTestFinished(() => app.close());
    const opened = await RawSession.begin(app.url);
    await opened.call('cart.add_item');
    const types = (await lines()).map(({ type }) => type);
    expect(types, place).toEqual(['recording', 'start', 'end']);
  }
});

it('says at once where no gate tells of calls', async () => {
  const { recorder, lines } = recording();
  const warnings: string[] = [];
  const onWarning = (warning: string) => void warnings.push(warning);
  const sessions = sessionStore({ onEvent: recorder, onWarning });
  onTestFinished(() => sessions.close());
  const app = await startUpstream({ before: [sessions as RequestHandler] });
  onTestFinished(() => app.close());
  const opened = await RawSession.begin(app.url);
  for (let i = 0; i < 2; i++) await opened.call('cart.add_item');
  expect(await lines()).toEqual([]);
  expect(warnings).toEqual([expect.stringContaining('sessionStore({ onEvent }) gets no calls')]);
});
