import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { VisibilityOf } from '../../src/gate/visibility.ts';
import { type FsmGateOptions, localBus, principalKey, StateMachineGate } from '../../src/index.ts';
import type { AtomicStateStore, ClientInfo } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { connect } from '../helpers/client.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { INITIALIZE, RawSession, send, type WireMessage } from '../helpers/raw.ts';
import { type Scene, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { ask } from '../helpers/two-eras.ts';
import { sharedRedis } from '../services/shared.ts';

const ALL = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'];
const AT_START = ['cart.add_item', 'cart.view'];
const WITH_ITEMS = ['cart.add_item', 'cart.checkout', 'cart.view'];
const LIST = { jsonrpc: '2.0', id: 'list', method: 'tools/list' };

/** An app, and the SDK's client under a name of the test. */
async function visit(name: string, options: SceneOptions = {}) {
  const app = await scene(options);
  return { app, ...(await enter(app, name)) };
}

async function enter({ url }: Pick<Scene, 'url'>, name: string, user?: string) {
  const client = await connect(url, user === undefined ? {} : { 'x-user': user }, {
    name,
    version: '2.3.4',
  });
  onTestFinished(() => client.close());
  await client.streaming;
  return { client };
}

const gate = (options: FsmGateOptions): SceneOptions => ({ gate: options });

/** Whether the server's capabilities declare changes of the list. */
async function declares(url: URL, name: string): Promise<unknown> {
  const params = { ...INITIALIZE.params, clientInfo: { name, version: '1' } };
  const { messages } = await send(url, { body: { ...INITIALIZE, params } });
  return messages[0]?.result.capabilities.tools.listChanged;
}

describe('a client that is known not to list again', () => {
  it.each([
    'Anthropic',
    'Anthropic/ClaudeAI',
    'Anthropic/Toolbox',
    'claude-ai',
    'openai-mcp',
    'codex-mcp-client',
    'claude-ai (via mcp-remote 0.1.37)',
  ])('sees every tool from the first list on, as %s, and reads what is available', async (name) => {
    const { app, client } = await visit(name);
    const first = await client.client.listTools();
    expect(first.tools.map((tool) => tool.name)).toEqual(ALL);
    expect(first.tools[2]?.description).toContain('Available only while checkout is in "payment"');
    const { texts } = await client.call('cart.add_item');
    expect(texts.at(-1)).toContain('Available now: cart.add_item, cart.checkout');
    expect((await client.call('cart.checkout')).isError).toBe(false);
    expect((await client.call('cart.pay')).isError).toBe(false);
    expect(await client.client.listTools()).toEqual(first);
    expect(client.log).not.toContain('list_changed');
    expect(app.warnings).toEqual([]);
    expect(app.errors).toEqual([]);
  });

  it('is told at the handshake of no changes, while another one is', async () => {
    const { url } = await scene({ shape: { answers: 'json' } });
    expect(await declares(url, 'mcp')).toBe(true);
    const { url: plain } = await scene(gate({ visibility: 'stable' }));
    expect(await declares(url, 'openai-mcp')).toBe(await declares(plain, 'mcp'));
  });

  it.each([
    'mcp',
    'mcp-client',
    'claude-code',
    'Claude-AI',
    'openai-mcp ',
    'gemini-cli-mcp-client',
    'Visual Studio Code',
    'claude-ai (via mcp-remote 0.1.37) x',
    '',
  ])('is not one by a name that says nothing or another habit: %j', async (name) => {
    const { client } = await visit(name);
    expect(await client.tools()).toEqual(AT_START);
    expect((await client.call('cart.add_item')).texts).toHaveLength(1);
    expect(await client.tools()).toEqual(WITH_ITEMS);
    expect(client.log).toContain('list_changed');
  });

  it('still hears of nothing where another session moves the run that they share', async () => {
    const app = await scene({ session: { key: principalKey() } });
    const { client: chat } = await enter(app, 'openai-mcp', 'alice');
    const { client: code } = await enter(app, 'claude-code', 'alice');
    expect(await chat.tools()).toEqual(ALL);
    expect(await code.tools()).toEqual(AT_START);
    expect((await chat.call('cart.add_item')).text).toContain('Available now');
    await expect.poll(() => code.log).toContain('list_changed');
    expect(await code.tools()).toEqual(WITH_ITEMS);
    expect((await code.call('cart.checkout')).text).not.toContain('Available now');
    expect(await chat.tools()).toEqual(ALL);
  });

  it('gets no announcement where the app says announce: false, nor a plain stable list', async () => {
    const { client } = await visit('openai-mcp', gate({ announce: false }));
    expect(await client.tools()).toEqual(ALL);
    expect((await client.call('cart.add_item')).texts).toHaveLength(1);
    const { client: other } = await visit('openai-mcp', gate({ visibility: 'stable' }));
    expect((await other.call('cart.add_item')).texts).toHaveLength(1);
  });
});

describe('a name opens nothing', () => {
  const veiled = () =>
    new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: { empty: { on: { ADD_ITEM: 'has_items' } }, has_items: {} },
    })
      .bindTool('cart.add_item', 'empty', { success: 'ADD_ITEM' })
      .bindTool('cart.pay', 'has_items', { visible: () => true });

  it.each<[string, SceneOptions]>([
    ["visibility: 'hide'", gate({ visibility: 'hide' })],
    ["refusal: 'unknown-tool'", gate({ refusal: 'unknown-tool' })],
    [
      "refusal: 'unknown-tool' and 'auto' of a function",
      gate({ refusal: 'unknown-tool', visibility: () => 'auto' }),
    ],
    ['`visible` on a binding', { workflow: veiled() }],
  ])('under %s', async (_, options) => {
    const { client } = await visit('openai-mcp', options);
    expect(await client.tools()).not.toContain('cart.pay');
    expect((await client.call('cart.add_item')).texts).toHaveLength(1);
    expect(client.log).toContain('list_changed');
  });
});

describe('visibility as a function', () => {
  it('gets name and version, and is asked once for each session', async () => {
    const asked: ClientInfo[] = [];
    const visibility: VisibilityOf = (client) => {
      asked.push(client);
      return client.name === 'langchain' ? 'stable' : 'auto';
    };
    const { app, client } = await visit('langchain', gate({ visibility }));
    expect(await client.tools()).toEqual(ALL);
    expect((await client.call('cart.add_item')).texts.at(-1)).toContain('Available now');
    expect(await client.tools()).toEqual(ALL);
    expect(asked).toEqual([{ name: 'langchain', version: '2.3.4' }]);
    expect(await (await enter(app, 'codex-mcp-client')).client.tools()).toEqual(ALL);
    expect(await (await enter(app, 'mcp')).client.tools()).toEqual(AT_START);
  });

  it("wins over the table: 'hide' hides from a client that is known", async () => {
    const { client } = await visit('openai-mcp', gate({ visibility: () => 'hide' }));
    expect(await client.tools()).toEqual(AT_START);
  });

  it('gets 100 characters of each, and empty ones of a client that says nothing', async () => {
    const asked: ClientInfo[] = [];
    const visibility: VisibilityOf = (client) => {
      asked.push(client);
      return 'hide';
    };
    const { url } = await scene({ ...gate({ visibility }), shape: { answers: 'json' } });
    await connect(url, {}, { name: 'n'.repeat(200), version: 'v'.repeat(200) });
    expect(asked[0]).toEqual({ name: 'n'.repeat(100), version: 'v'.repeat(100) });
    const both = await sceneOfBothEras(gate({ visibility }));
    asked.length = 0;
    await ask(both.url, 'tools/list');
    expect(asked).toEqual([{ name: '', version: '' }]);
  });

  it.each<[string, () => unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('no such client');
      },
      'no such client',
    ],
    ['returns nothing', () => undefined, 'must return'],
    ['returns a promise that fails', () => Promise.reject(new Error('late')), 'must return'],
    ['returns another word', () => 'show', '"show"'],
  ])('hides where it %s, and onError is told', async (_, visibility, told) => {
    const { app, client } = await visit('openai-mcp', gate({ visibility: visibility as never }));
    expect(await client.tools()).toEqual(AT_START);
    expect((await client.call('cart.add_item')).texts).toHaveLength(1);
    expect(String(app.errors[0])).toContain(told);
    // Not for each request.
    expect(app.errors).toHaveLength(1);
  });

  it('decides in the stateless era by what a request says of its client', async () => {
    const visibility: VisibilityOf = ({ name }) => (name === 'inspector' ? 'hide' : 'auto');
    const { url, warnings } = await sceneOfBothEras({
      ...gate({ visibility }),
      session: { key: principalKey() },
    });
    const listed = async (name: string) => {
      const _meta = { 'io.modelcontextprotocol/clientInfo': { name, version: '1' } };
      const { messages } = await ask(url, 'tools/list', { _meta }, { user: 'alice' });
      return messages[0]?.result.tools.map((tool: WireMessage) => tool.name);
    };
    expect(await listed('inspector')).toEqual(AT_START);
    expect(await listed('mcp')).toEqual(ALL);
    expect(warnings.filter((each) => each.includes('"MUST NOT vary'))).toHaveLength(1);
  });

  it('may say stable where tools are otherwise secret: it is the word of the app', async () => {
    const { client } = await visit(
      'openai-mcp',
      gate({ refusal: 'unknown-tool', visibility: () => 'stable' }),
    );
    expect(await client.tools()).toEqual(ALL);
    expect((await client.call('cart.pay')).text).toContain('not available');
  });
});

async function inRedis(): Promise<AtomicStateStore> {
  const client = createClient({ url: await sharedRedis() });
  await client.connect();
  onTestFinished(() => client.destroy());
  return redisStore({ client, prefix: `clients:${randomUUID()}:` });
}

async function inPostgres(): Promise<AtomicStateStore> {
  const { schema, connect: open, drop } = await makePostgresSchema();
  onTestFinished(drop);
  const store = postgresStore({ pool: open(), schema });
  await store.migrate();
  return store;
}

describe('another instance', () => {
  it.each<[string, () => Promise<AtomicStateStore>]>([
    ['Redis', inRedis],
    ['PostgreSQL', inPostgres],
  ])('knows from %s which client a session is', async (_, makeData) => {
    const app = await scene({ data: await makeData() });
    const other = await scene({ beside: app, shape: { mode: 'stateless', answers: 'json' } });
    const elsewhere = async (session: string, body: unknown) => {
      const headers = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      const { messages } = await send(other.url, { headers, body });
      return messages.at(-1)?.result;
    };
    for (const [name, seen, words] of [
      ['openai-mcp', ALL, 2],
      ['mcp', AT_START, 1],
    ] as const) {
      const { client } = await enter(app, name);
      const id = client.transport.sessionId ?? '';
      const { tools } = await elsewhere(id, LIST);
      expect(tools.map((tool: WireMessage) => tool.name)).toEqual(seen);
      const call = { ...LIST, method: 'tools/call', params: { name: 'cart.add_item' } };
      expect((await elsewhere(id, call)).content).toHaveLength(words);
    }
  });
});

describe('a kept list', () => {
  it('is shown to each client in its own way, though the server is asked once for each name', async () => {
    let asked = 0;
    const app = await scene({
      ...gate({ listCache: { shared: true, ttlMs: 60_000 } }),
      shape: { parser: true, answers: 'json' },
      behind: [
        (req, _res, next) => {
          if (req.body?.method === 'tools/list') asked++;
          next();
        },
      ],
    });
    const { client: chat } = await enter(app, 'openai-mcp');
    const { client: code } = await enter(app, 'claude-code');
    const { client: second } = await enter(app, 'openai-mcp');
    for (let round = 0; round < 3; round++) {
      expect(await chat.tools()).toEqual(ALL);
      expect(await code.tools()).toEqual(AT_START);
    }
    await chat.call('cart.add_item');
    await code.call('cart.add_item');
    for (let round = 0; round < 3; round++) {
      expect(await code.tools()).toEqual(WITH_ITEMS);
      expect(await chat.tools()).toEqual(ALL);
      expect(await second.tools()).toEqual(ALL);
    }
    expect(asked).toBe(2);
  });
});

describe('the operator', () => {
  const goOn = async (app: Scene, name: string, calls: number) => {
    const { client } = await enter(app, name);
    await client.tools();
    await client.call('cart.add_item');
    for (let call = 0; call < calls; call++) await client.call('cart.view');
    return client;
  };

  it('is told once for each name of a client that goes on with an old list', async () => {
    const app = await scene();
    await goOn(app, 'langchain "x"\n\u202e', 2);
    expect(app.warnings).toEqual([]);
    await goOn(app, 'langchain "x"\n\u202e', 5);
    await goOn(app, 'langchain "x"\n\u202e', 3);
    expect(app.warnings).toEqual([
      'the client "langchain \\"x\\"\\n\\u202e" was notified that its list of tools changed, and ' +
        'called 3 times without listing again, as far as this process saw. Its model may not see ' +
        'what "checkout" allows now. If it never lists again, give fsmGate(gate, { visibility: ' +
        '(client) => client.name === "langchain \\"x\\"\\n\\u202e" ? \'stable\' : \'auto\' }); ' +
        'see mcp-interlock/docs/start/clients.md',
    ]);
    await goOn(app, 'another', 3);
    expect(app.warnings).toHaveLength(2);
  });

  /** So many sessions that move once, are told of the new list, and end. */
  const comeAndGo = async (app: Scene, name: string, sessions: number, lists = false) => {
    for (let session = 0; session < sessions; session++) {
      const { client } = await enter(app, name);
      await client.call('cart.add_item');
      if (lists) await client.tools();
      await client.transport.terminateSession();
      await client.close();
    }
  };

  it('is told of a client whose sessions end with an old list, at the fourth of its name', async () => {
    const app = await scene();
    await comeAndGo(app, 'langchain', 3);
    await comeAndGo(app, 'another', 3);
    expect(app.warnings.filter((each) => !each.includes('single call'))).toEqual([]);
    await comeAndGo(app, 'langchain', 2);
    expect(app.warnings.filter((each) => !each.includes('single call'))).toEqual([
      '3 sessions of the client "langchain" were notified that their list of tools changed, and ended ' +
        'without listing again, as far as this process saw. Its model may not see what ' +
        '"checkout" allows now. If it never lists again, give fsmGate(gate, { visibility: ' +
        "(client) => client.name === \"langchain\" ? 'stable' : 'auto' }); " +
        'see mcp-interlock/docs/start/clients.md',
    ]);
  });

  it('is not told so of a name that listed again, or whose sessions go on', async () => {
    const app = await scene({ session: { idleMs: 60_000 } });
    await comeAndGo(app, 'another', 1, true);
    await comeAndGo(app, 'another', 4);
    expect(app.warnings.filter((each) => !each.includes('single call'))).toEqual([]);
    const open = await scene({ session: { idleMs: 60_000 } });
    for (let session = 0; session < 4; session++) {
      const each = await open.session();
      await each.call('cart.add_item');
      await each.call('cart.view');
    }
    expect(open.warnings).toEqual([]);
    open.clock.advance(61_000);
    for (let session = 0; session < 4; session++)
      await (await open.session()).call('cart.add_item');
    expect(open.warnings.filter((each) => !each.includes('single call'))).toEqual([
      expect.stringMatching(/^3 sessions of the client "raw"/),
    ]);
  });

  it('is not told so where tools are secret, or where another instance listed them', async () => {
    const secret = await scene(gate({ refusal: 'unknown-tool' }));
    await comeAndGo(secret, 'langchain', 5);
    expect(secret.warnings.filter((each) => !each.includes('single call'))).toEqual([]);
    const session = { bus: localBus() };
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const one = await scene({ session, shape });
    const other = await scene({ session, shape, beside: one });
    for (let time = 0; time < 5; time++) {
      const here = await one.session({ 'x-user': 'ann' });
      const there = RawSession.resume(other.url, here.id, { 'x-user': 'ann' });
      await here.call('cart.add_item');
      await here.call('cart.view');
      await there.tools();
      await here.end();
    }
    expect([...one.warnings, ...other.warnings]).toEqual([]);
  });

  it('is told once of a name that an SDK gives, before its client has called anything', async () => {
    const app = await scene();
    for (let each = 0; each < 2; each++) await enter(app, 'mcp (via mcp-remote 0.1.37)');
    expect(app.warnings).toEqual([
      'a client gives its SDK\'s own name, "mcp". Frameworks that do, such as LangChain, list ' +
        'once, and their models never see what a call makes available. If yours does, give ' +
        "fsmGate(gate, { visibility: (client) => client.name === \"mcp\" ? 'stable' : 'auto' }); " +
        'see mcp-interlock/docs/start/clients.md',
    ]);
  });

  it('is told nothing of a client that lists again, or is known, or must not know', async () => {
    const app = await scene();
    const client = await goOn(app, 'another', 2);
    await client.tools();
    for (let call = 0; call < 5; call++) await client.call('cart.view');
    await goOn(app, 'openai-mcp', 5);
    expect(app.warnings).toEqual([]);
    const secret = await scene(gate({ refusal: 'unknown-tool' }));
    await goOn(secret, 'mcp', 5);
    expect(secret.warnings).toEqual([]);
  });

  it('is told that a move from outside went unseen, and reads the line for a function', async () => {
    const app = await scene(gate({ visibility: () => 'auto' }));
    const { client } = await enter(app, 'mcp');
    await app.runs.send(client.transport.sessionId ?? '', 'ADD_ITEM');
    for (let call = 0; call < 3; call++) await client.call('cart.view');
    expect(app.warnings).toHaveLength(1);
    expect(app.warnings[0]).toContain('let your visibility return \'stable\' for the name "mcp"');
  });

  it('is told of at most 100 names', async () => {
    const app = await scene({ shape: { answers: 'json' } });
    for (let each = 0; each < 102; each++) {
      const clientInfo = { name: `client ${each}`, version: '1' };
      const body = { ...INITIALIZE, params: { ...INITIALIZE.params, clientInfo } };
      const { headers } = await send(app.url, { body });
      const client = RawSession.resume(app.url, String(headers['mcp-session-id']));
      await client.tools();
      await client.call('cart.add_item');
      for (let call = 0; call < 3; call++) await client.call('cart.view');
    }
    expect(app.warnings).toHaveLength(100);
  }, 120_000);
});
