import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  conversationKey,
  localBus,
  memoryStore,
  principalKey,
  type RunKeyRequest,
  runKey,
  type SessionStoreOptions,
  sessionKey,
} from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { latch } from '../helpers/latch.ts';
import { type RawSession, reasonOf, send, stream, type WireMessage } from '../helpers/raw.ts';
import {
  begins,
  type Scene,
  type SceneClient,
  type SceneOptions,
  scene,
} from '../helpers/scene.ts';
import { sharedRedis } from '../services/shared.ts';

const A = 'v1/conversation-a-4f1c';
const B = 'v1/conversation-b-99d0';
const ALICE = JSON.stringify(['https://issuer.example', 'alice']);
const AT_START = ['cart.add_item', 'cart.view'];
const WITH_ITEMS = ['cart.add_item', 'cart.checkout', 'cart.view'];
const ALL = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'];
const ALICES = { 'x-user': 'alice' };

const chat = (id: unknown) => ({ 'openai/session': id });
const keyOf = (id: string, principal: string = ALICE) => conversationKey().runKey(id, principal);

/** Calls a tool with the SDK's client, and gives the refusal's reason, or `undefined`. */
async function callIn({ raw }: SceneClient, tool: string, meta: Record<string, unknown>) {
  const result = await raw.client.callTool({ name: tool, arguments: {}, _meta: meta });
  return reasonOf({ result } as WireMessage);
}

const rawCall = (session: RawSession, name: string, meta?: Record<string, unknown>) =>
  session.ask('tools/call', { name, arguments: {}, ...(meta && { _meta: meta }) });

/** A client that opens a session for each call, and ends it. */
async function callAlone(app: Scene, tool: string, meta: Record<string, unknown>, user = 'alice') {
  const session = await app.session({ 'x-user': user });
  const answer = await rawCall(session, tool, meta);
  await session.end();
  return reasonOf(answer);
}

async function inRedis(): Promise<AtomicStateStore> {
  const client = createClient({ url: await sharedRedis() });
  await client.connect();
  onTestFinished(() => client.destroy());
  return redisStore({ client, prefix: `conversations:${randomUUID()}:` });
}

const STORES: readonly [string, () => Promise<AtomicStateStore | undefined>][] = [
  ['memory', async () => undefined],
  ['redis', inRedis],
];

describe.each(STORES)('a run of a conversation, in %s', (_name, makeData) => {
  const start = async (options: SceneOptions = {}) => {
    const data = await makeData();
    return scene({ ...(data && { data }), ...options });
  };

  it('goes on in the next session, for a client that opens one for each call', async () => {
    const app = await start();
    expect(await callAlone(app, 'cart.pay', chat(A))).toBe('state');
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
      expect(await callAlone(app, tool, chat(A)), tool).toBeUndefined();
    expect(app.ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
    expect(app.warnings).toEqual([]);
  });

  it('outlives the DELETE of its session, and is listed and erased with its principal', async () => {
    const app = await start();
    await callAlone(app, 'cart.add_item', chat(A));
    const run = keyOf(A);
    await app.run(run).isIn('has_items');
    const { runs } = await app.runs.list({ principal: ALICE });
    expect(runs).toContain(run);
    await app.runs.erase(ALICE);
    expect(await app.runs.read(run)).toBeUndefined();
  });

  it('is one of the principal alone: the same id of another one names another run', async () => {
    const app = await start();
    await callAlone(app, 'cart.add_item', chat(A));
    expect(await callAlone(app, 'cart.checkout', chat(A), 'bob')).toBe('state');
    expect(await callAlone(app, 'cart.checkout', chat(A))).toBeUndefined();
  });

  it('stands beside another one of the same session, also in parallel', async () => {
    const app = await start();
    const alice = await app.client('alice');
    expect(
      await Promise.all([
        callIn(alice, 'cart.add_item', chat(A)),
        callIn(alice, 'cart.add_item', chat(B)),
      ]),
    ).toEqual([undefined, undefined]);
    expect(await callIn(alice, 'cart.checkout', chat(A))).toBeUndefined();
    expect(await callIn(alice, 'cart.pay', chat(B))).toBe('state');
    await app.run(keyOf(A)).isIn('payment');
    await app.run(keyOf(B)).isIn('has_items');
  });

  it('is what the lists of the session show, in each process, up to a second one', async () => {
    const app = await start();
    const other = await scene({ beside: app, shape: { mode: 'stateless', answers: 'json' } });
    const one = await app.session(ALICES);
    const elsewhere = () => send(other.url, { headers: one.headers, body: LIST });
    const names = async () =>
      (await elsewhere()).messages.at(-1)?.result.tools.map(({ name }: WireMessage) => name);
    expect(await one.tools()).toEqual(AT_START);
    await rawCall(one, 'cart.add_item', chat(A));
    expect(await one.tools()).toEqual(WITH_ITEMS);
    expect(await names()).toEqual(WITH_ITEMS);
    await rawCall(one, 'cart.add_item', chat(B));
    expect(await one.tools()).toEqual(ALL);
    app.clock.advance(5_000);
    expect(await names()).toEqual(ALL);
    await rawCall(one, 'cart.checkout', chat(A));
    expect(await one.tools()).toEqual(ALL);
  });

  it('is not begun by a session that has a run of its own, which it keeps', async () => {
    const app = await start();
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item');
    expect(reasonOf(await rawCall(session, 'cart.checkout', chat(A)))).toBeUndefined();
    await app.run(session.id).isIn('payment');
    expect(await app.runs.read(keyOf(A))).toBeUndefined();
    // Another process finds the same in the store.
    const other = await scene({ beside: app, shape: { mode: 'stateless', answers: 'json' } });
    const { messages } = await send(other.url, {
      headers: session.headers,
      body: { ...CALL, params: { name: 'cart.pay', arguments: {}, _meta: chat(A) } },
    });
    expect(reasonOf(messages.at(-1))).toBeUndefined();
    await app.run(session.id).isIn('confirmed');
  });

  it('is refused in words once it made way, and never begins anew while it would live', async () => {
    const app = await start({ session: { maxConversationsPerCaller: 3 } });
    const session = await app.session(ALICES);
    const id = (at: number) => `conversation-number-${at}`;
    const add = (at: number) => rawCall(session, 'cart.add_item', chat(id(at)));
    for (const at of [0, 1]) expect(reasonOf(await add(at))).toBeUndefined();
    // A refused call begins nothing, so its run makes way before those that have begun.
    expect(reasonOf(await rawCall(session, 'cart.pay', chat(id(2))))).toBe('state');
    for (const at of [3, 4, 5]) expect(reasonOf(await add(at))).toBeUndefined();
    const { length } = app.ledger.calls;
    for (const at of [0, 1]) {
      const refused = await add(at);
      expect(reasonOf(refused)).toBe('no-run');
      expect(refused.result.content[0].text).toContain('had to make way');
      expect(await app.runs.read(keyOf(id(at)))).toBeUndefined();
    }
    expect(app.ledger.calls).toHaveLength(length);
    expect(app.errors).toEqual([]);
    const listed = await session.ask('tools/list', { _meta: chat(id(0)) });
    expect(listed.error).toBeUndefined();
  });

  it('is one of at most 1,000: one without a claim makes way for the next', {
    timeout: 60_000,
  }, async () => {
    const app = await start();
    const claim = (run: string) =>
      app.data.claim({
        run,
        workflow: 'checkout',
        token: randomUUID(),
        step: { tool: 'cart.add_item', digest: '', uncertain: 'retry' },
        states: undefined,
        initial: { state: 'empty', updatedAt: app.clock.now() },
        create: { principal: ALICE },
        leaseMs: 3_600_000,
        ttlMs: 3_600_000,
      });
    const key = (at: number) => keyOf(`conversation-number-${at}`);
    const numbers = [...Array(1_000).keys()];
    for (let at = 0; at < 1_000; at += 50)
      await Promise.all(numbers.slice(at, at + 50).map((each) => claim(key(each))));
    const session = await app.session(ALICES);
    const full = await rawCall(session, 'cart.add_item', chat(A));
    expect(full.result.content[0].text).toContain('may have no more');
    expect(app.ledger.calls).toEqual([]);
    // One of them comes to rest, and no other one does.
    const one = await app.data.read(key(512), 3_600_000);
    const token = one?.workflows.checkout?.claim?.token ?? '';
    await app.data.release({ run: key(512), workflow: 'checkout' }, token);
    // For a second the process asks the store about none of them again.
    app.store.take();
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBe('no-run');
    expect(app.store.times('end')).toBe(0);
    app.clock.advance(1_000);
    // One that cannot be asked to make way leaves no room, and is asked again.
    app.store.fail('end', 1);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBe('no-run');
    expect(app.errors).toHaveLength(1);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBeUndefined();
    expect(await app.data.read(key(512), 3_600_000)).toBeUndefined();
    expect(await app.data.read(key(511), 3_600_000)).toBeDefined();
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(B)))).toBeUndefined();
    expect(await app.runs.read(keyOf(A))).toBeUndefined();
    expect(await app.runs.read(keyOf(B))).toBeDefined();
  });
});

const LIST = { jsonrpc: '2.0', id: 'list', method: 'tools/list', params: {} };
const CALL = { jsonrpc: '2.0', id: 'call', method: 'tools/call' };

describe('a client that sends 2,500 ids', () => {
  it('keeps 1,000 runs, those it used last, and takes none of another principal', {
    timeout: 120_000,
  }, async () => {
    const data = memoryStore({ maxRuns: 20_000 });
    const app = await scene({ data, session: { store: data } });
    await callAlone(app, 'cart.add_item', chat(A), 'bob');
    const session = await app.session(ALICES);
    const id = (at: number) => `conversation-number-${at}`;
    for (let at = 0; at < 1_300; at += 50)
      await Promise.all(
        Array.from({ length: 50 }, (_, of) =>
          session.post({
            ...CALL,
            id: at + of,
            params: { name: 'cart.add_item', arguments: {}, _meta: chat(id(at + of)) },
          }),
        ),
      );
    let after: string | undefined;
    const found: string[] = [];
    do {
      const page = await data.list?.({ principal: ALICE, limit: 1_000, after });
      found.push(...(page?.runs ?? []).filter((run) => run.startsWith('named ')));
      after = page?.next;
    } while (after !== undefined);
    expect(found).toHaveLength(1_000);
    expect(await app.runs.read(keyOf(id(1_299)))).toBeDefined();
    expect(await app.runs.read(keyOf(id(0)))).toBeUndefined();
    const bob = JSON.stringify(['https://issuer.example', 'bob']);
    await app.run(keyOf(A, bob)).isIn('has_items');
  });
});

describe('an id of a conversation', () => {
  it.each<[string, unknown]>([
    ['a number', 1234567890123456],
    ['null', null],
    ['an object', { id: A }],
    ['an array', [A]],
    ['15 bytes', 'x'.repeat(15)],
    ['257 bytes', 'x'.repeat(257)],
    ['257 bytes in fewer characters', `${'é'.repeat(128)}x`],
    ['a line end', `${A}\n`],
    ['a NUL', `${A}\0`],
    ['a C1 control character', `${A}\u0085`],
    ['half a surrogate pair', `${A}\ud800`],
  ])('names nothing where it is %s: the session has the run', async (_what, id) => {
    const app = await scene();
    const session = await app.session(ALICES);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(id)))).toBeUndefined();
    await app.run(session.id).isIn('has_items');
    expect(app.warnings).toEqual([expect.stringMatching(/16 to 256 bytes/)]);
  });

  it.each<[string, string]>([
    ['16 bytes', 'x'.repeat(16)],
    ['256 bytes', 'x'.repeat(256)],
    ['8 characters of 16 bytes', 'é'.repeat(8)],
    ['what looks like another key', 'principal ["a","b"]'],
  ])('names a run where it is %s', async (_what, id) => {
    const app = await scene();
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item', { sessionID: id });
    await app.run(keyOf(id)).isIn('has_items');
    expect(await app.runs.read(session.id)).toMatchObject({ state: 'empty' });
  });

  it('is kept as a digest: neither the store nor an event has it', async () => {
    const told: unknown[] = [];
    const app = await scene({ session: { onEvent: (event) => void told.push(event) } });
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item', chat(A));
    expect(keyOf(A)).not.toContain(A);
    const { runs } = await app.runs.list({ principal: ALICE });
    expect(runs).toHaveLength(2);
    const records = await Promise.all(runs.map((run) => app.data.read(run, 60_000)));
    expect(JSON.stringify([records, told, runs])).not.toContain(A);
  });

  it('is refused in two spellings, of which the server may read the other', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    const both = { 'openai/session': A, 'OpenAI/Session': B };
    const refused = await rawCall(session, 'cart.add_item', both);
    expect(reasonOf(refused)).toBe('no-run');
    expect(refused.result.content[0].text).toContain('in two ways');
    expect(app.ledger.calls).toEqual([]);
  });

  it('names nothing without a principal, unless the app says so', async () => {
    const app = await scene();
    const session = await app.session();
    await rawCall(session, 'cart.add_item', chat(A));
    await app.run(session.id).isIn('has_items');

    const key = [conversationKey({ anonymous: true }), sessionKey()];
    const open = await scene({ session: { key } });
    const [first, second] = [await open.session(), await open.session()];
    await rawCall(first, 'cart.add_item', chat(A));
    expect(reasonOf(await rawCall(second, 'cart.checkout', chat(A)))).toBeUndefined();
    await open.run(conversationKey().runKey(A)).isIn('payment');
    // A caller with a principal has runs of their own, also of the same id.
    expect(await callAlone(open, 'cart.pay', chat(A))).toBe('state');
  });

  it('may stand under a name that the app gives, which comes first', async () => {
    const key = [conversationKey({ names: ['acme/thread'] }), sessionKey()];
    const app = await scene({ session: { key } });
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item', { 'acme/thread': A, 'openai/session': B });
    await app.run(keyOf(A)).isIn('has_items');
    expect(await app.runs.read(keyOf(B))).toBeUndefined();
  });

  it('counts for each call of a batch by itself, and one step of each run goes on', async () => {
    const app = await scene({ shape: { mode: 'stateful', answers: 'json' } });
    const session = await app.session(ALICES);
    const call = (id: number, meta: Record<string, unknown>) => ({
      ...CALL,
      id,
      params: { name: 'cart.add_item', arguments: {}, _meta: meta },
    });
    const { messages } = await session.post(
      [call(1, chat(A)), call(2, chat(B)), call(3, chat(A))],
      { 'mcp-protocol-version': '2025-03-26' },
    );
    const reasons = [1, 2, 3].map((id) => reasonOf(messages.find((each) => each.id === id)));
    expect(reasons).toEqual([undefined, undefined, 'busy']);
    await app.run(keyOf(A)).isIn('has_items');
    await app.run(keyOf(B)).isIn('has_items');
  });

  it('lets a request of the session era without a session in, and nothing else does', async () => {
    const app = await scene({ shape: { mode: 'stateless', answers: 'json' } });
    const ask = (method: string, params: unknown) =>
      send(app.url, { headers: ALICES, body: { ...CALL, method, params } });
    expect((await ask('tools/list', {})).status).toBe(400);
    const call = { name: 'cart.add_item', arguments: {} };
    expect((await ask('tools/call', call)).status).toBe(400);
    expect((await ask('tools/call', { ...call, _meta: chat(A) })).status).toBe(200);
    await app.run(keyOf(A)).isIn('has_items');
  });

  it('opens nothing while the store cannot say whether the session has a run', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    app.store.fail('read', 1);
    const refused = await rawCall(session, 'cart.add_item', chat(A));
    expect(reasonOf(refused)).toBe('no-run');
    expect(refused.result.content[0].text).toContain('Try again later');
    expect(app.errors).toHaveLength(1);
    expect(app.ledger.calls).toEqual([]);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBeUndefined();
  });

  it('opens nothing while the store cannot say how many runs the principal has', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    app.store.fail('list', 1);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBe('no-run');
    expect(app.errors).toHaveLength(1);
    expect(app.ledger.calls).toEqual([]);
    expect(reasonOf(await rawCall(session, 'cart.add_item', chat(A)))).toBeUndefined();
  });

  it('costs a session two calls of the store at its first call, and one list a minute', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    const costs = async (id: string) => {
      app.store.take();
      await rawCall(session, 'cart.add_item', chat(id));
      return app.store.take();
    };
    expect(await costs(A)).toEqual(['read', 'record', 'list', 'claim', 'commit']);
    expect(await costs(A)).toEqual(['claim', 'commit']);
    expect(await costs(B)).toEqual(['record', 'claim', 'commit']);
    expect(await costs(A)).toEqual(['claim', 'commit']);
  });
});

describe('a list that has no id', () => {
  it('is stable after two conversations, unless the app hides: then it shows the last', async () => {
    const app = await scene({ gate: { visibility: 'hide' } });
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item', chat(A));
    await rawCall(session, 'cart.pay', chat(B));
    expect(await session.tools()).toEqual(AT_START);
    await rawCall(session, 'cart.add_item', chat(A));
    expect(await session.tools()).toEqual(WITH_ITEMS);
  });

  it('keeps hidden names secret, however many ids a client sends', async () => {
    const app = await scene({ gate: { refusal: 'unknown-tool' } });
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.pay', chat(A));
    const answer = await rawCall(session, 'cart.pay', chat(B));
    expect(JSON.stringify(answer)).not.toContain('checkout');
    expect(await session.tools()).toEqual(AT_START);
  });

  it('shows the conversation that it names itself, where it names one', async () => {
    const app = await scene();
    await callAlone(app, 'cart.add_item', chat(A));
    const session = await app.session(ALICES);
    const { result } = await session.ask('tools/list', { _meta: chat(A) });
    expect(result.tools.map(({ name }: WireMessage) => name)).toEqual(WITH_ITEMS);
    expect(await session.tools()).toEqual(AT_START);
  });
});

describe('a move of a conversation', () => {
  const SHAPE = { mode: 'stateless', answers: 'json' } as const;
  const changes = ({ messages }: { messages: readonly WireMessage[] }) =>
    messages.filter(({ method }) => method === 'notifications/tools/list_changed').length;

  it('is told to the sessions that show it, and to no other one', async () => {
    const app = await scene({ shape: SHAPE });
    const open = async (user: string) => {
      const session = await app.session({ 'x-user': user });
      return { session, heard: await session.listen() };
    };
    const [one, two, none, bob] = [
      ...[await open('alice'), await open('alice'), await open('alice')],
      await open('bob'),
    ] as const;
    await rawCall(one.session, 'cart.view', chat(A));
    await rawCall(two.session, 'cart.view', chat(A));
    await rawCall(bob.session, 'cart.view', chat(A));
    const counts = () => [one, two, bob, none].map(({ heard }) => changes(heard));
    // Each of the three heard that its list shows a conversation now.
    await expect.poll(counts).toEqual([1, 1, 1, 0]);
    await rawCall(one.session, 'cart.add_item', chat(A));
    await expect.poll(counts).toEqual([2, 2, 1, 0]);
    await app.runs.send(keyOf(A), 'CLEAR');
    await expect.poll(counts).toEqual([3, 3, 1, 0]);
  });

  it('is told on the stream of its own call, before the result', async () => {
    const app = await scene();
    const alice = await app.client('alice');
    await callIn(alice, 'cart.add_item', chat(A));
    expect(alice.told).toBeGreaterThan(0);
    await alice.sees(WITH_ITEMS);
  });

  it('is not told to a session whose list became stable, but that it became so is', async () => {
    const app = await scene({ shape: SHAPE });
    const session = await app.session(ALICES);
    const heard = await session.listen();
    await rawCall(session, 'cart.add_item', chat(A));
    await expect.poll(() => changes(heard)).toBe(2);
    await rawCall(session, 'cart.add_item', chat(B));
    await expect.poll(() => changes(heard)).toBe(3);
    await rawCall(session, 'cart.checkout', chat(A));
    await rawCall(session, 'cart.checkout', chat(B));
    await app.run(keyOf(B)).isIn('payment');
    expect(changes(heard)).toBe(3);
  });

  it('is saved where its answer comes on a stream that is resumed', async () => {
    const app = await scene({ eventStore: () => new ListEventStore() });
    const session = await app.session(ALICES);
    const work = latch();
    app.ledger.gates.set('cart.add_item', work.opened);
    const body = { ...CALL, params: { name: 'cart.add_item', arguments: {}, _meta: chat(A) } };
    const cut = await stream(app.url, { headers: session.headers, body });
    await expect.poll(() => cut.lastEventId).toBeDefined();
    await expect.poll(() => app.ledger.calls).toEqual(['cart.add_item']);
    cut.cut();
    // Another conversation of the session goes on meanwhile, and is not taken for this one.
    expect(reasonOf(await rawCall(session, 'cart.pay', chat(B)))).toBe('state');
    let resumed = await session.listen(cut.lastEventId);
    // Until the server knows that the old connection is gone, it answers 409.
    await expect
      .poll(async () => {
        if (resumed.status !== 200) resumed = await session.listen(cut.lastEventId);
        return resumed.status;
      })
      .toBe(200);
    work.open();
    await expect
      .poll(() => resumed.messages.find(({ id }) => id === CALL.id)?.result?.content?.[0]?.text)
      .toBe('cart.add_item done');
    await app.run(keyOf(A)).isIn('has_items');
    await app.run(keyOf(B)).isIn('empty');
  });
});

describe('runKey()', () => {
  const byThread = (of: (request: RunKeyRequest) => string | undefined) => ({
    key: [runKey({ name: 'thread', of }), sessionKey()],
  });
  const header = ({ http }: RunKeyRequest) => {
    const value = http.headers['x-thread'];
    return typeof value === 'string' ? value : undefined;
  };

  it('names runs by what the app reads, for calls and for lists', async () => {
    const asked: unknown[] = [];
    const app = await scene({
      session: byThread((request) => {
        const { method, tool, principal, meta } = request;
        asked.push({ method, tool, principal, meta });
        return header(request);
      }),
    });
    const inA = await app.session({ ...ALICES, 'x-thread': A });
    await rawCall(inA, 'cart.add_item', { x: 1 });
    const again = await app.session({ ...ALICES, 'x-thread': A });
    expect(await again.tools()).toEqual(WITH_ITEMS);
    await app.run(runKey({ name: 'thread', of: header }).runKey(A, ALICE)).isIn('has_items');
    expect(await app.runs.read(keyOf(A))).toBeUndefined();
    expect(asked).toEqual([
      { method: 'tools/call', tool: 'cart.add_item', principal: ALICE, meta: { x: 1 } },
      { method: 'tools/list', tool: undefined, principal: ALICE, meta: {} },
    ]);
  });

  it.each<[string, (request: RunKeyRequest) => unknown]>([
    [
      'throws',
      () => {
        throw new Error('the threads cannot be read');
      },
    ],
    ['gives a promise', async () => A],
    ['gives a number', () => 1234567890123456],
  ])('fails closed where its function %s', async (_what, of) => {
    const app = await scene({ session: byThread(of as () => string) });
    const session = await app.session(ALICES);
    expect(reasonOf(await rawCall(session, 'cart.add_item'))).toBe('no-run');
    expect(app.ledger.calls).toEqual([]);
    expect(app.errors).toHaveLength(1);
    expect((await rawCall(session, 'cart.view')).result.isError).not.toBe(true);
  });

  it('is not asked for callers without a principal, and names nothing for a short id', async () => {
    const app = await scene({ session: byThread(() => 'short') });
    const anonymous = await app.session();
    await rawCall(anonymous, 'cart.add_item');
    expect(app.warnings).toEqual([]);
    const session = await app.session(ALICES);
    await rawCall(session, 'cart.add_item');
    await app.run(session.id).isIn('has_items');
    expect(app.warnings).toEqual([expect.stringContaining('16 to 256 bytes')]);
  });
});

describe('a client that opens a session for each call', () => {
  /** Three sessions of one call each, and the beginning of a fourth. */
  async function wasteful(
    session: SessionStoreOptions,
    headers: Record<string, string>,
    meta?: Record<string, unknown>,
  ) {
    const app = await scene({ session: { bus: localBus(), ...session } });
    for (let time = 0; time < 4; time++)
      await rawCall(await app.session(headers), 'cart.add_item', meta);
    return app;
  }

  it.each<[string, Record<string, string>, Record<string, unknown> | undefined, RegExp]>([
    ['a principal', ALICES, undefined, /key: \[conversationKey\(\), principalKey\(\)\]/],
    ['no principal and an id', {}, chat(A), /conversationKey\(\{ anonymous: true \}\)/],
    ['neither', {}, undefined, /Mount authentication.+managedHandle\(\{ start/],
  ])('is told to the operator once, with the line that serves it: %s', async (...given) => {
    const [, headers, meta, line] = given;
    const { warnings } = await wasteful({}, headers, meta);
    expect(warnings).toEqual([expect.stringMatching(line)]);
    expect(warnings[0]).toContain('the client "raw" opened 3 sessions with a single call in each');
  });

  it.each<[string, SessionStoreOptions, Record<string, unknown> | undefined]>([
    ['it names its conversations', {}, chat(A)],
    ['principals have runs', { key: [sessionKey(), principalKey()] }, undefined],
  ])('is not told where %s', async (_what, session, meta) => {
    expect((await wasteful(session, ALICES, meta)).warnings).toEqual([]);
  });

  it('is not taken for one that calls more, or that has a call under way', async () => {
    const app = await scene({ session: { bus: localBus() } });
    for (let time = 0; time < 4; time++) {
      const session = await app.session(ALICES);
      await rawCall(session, 'cart.view');
      await rawCall(session, 'cart.view');
    }
    const held = [];
    for (let time = 0; time < 4; time++) {
      const session = await app.session(ALICES);
      held.push(await begins(app, 'cart.add_item', () => rawCall(session, 'cart.add_item')));
    }
    await app.session(ALICES);
    expect(app.warnings).toEqual([]);
    for (const each of held) each.finish();
    await Promise.all(held.map(({ answer }) => answer));
  });

  it('is named in at most 100 characters, none of which can break a log', async () => {
    const app = await scene({ session: { bus: localBus() } });
    const name = `\u202e"\n\u0085${'x'.repeat(200)}`;
    for (let time = 0; time < 4; time++) {
      const { headers } = await send(app.url, {
        headers: ALICES,
        body: {
          jsonrpc: '2.0',
          id: 1,
          method: 'initialize',
          params: {
            protocolVersion: '2025-11-25',
            capabilities: {},
            clientInfo: { name, version: '1' },
          },
        },
      });
      const id = String(headers['mcp-session-id']);
      await send(app.url, {
        headers: { ...ALICES, 'mcp-session-id': id },
        body: { ...CALL, params: { name: 'cart.view', arguments: {} } },
      });
    }
    const [warning = ''] = app.warnings;
    expect(warning).toContain(`"\\u202e\\"\\n\\u0085${'x'.repeat(96)}" opened`);
    expect(warning).toMatch(/^[\x20-\x7e]+$/);
  });
});
