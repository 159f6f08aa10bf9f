import type { Server } from '@modelcontextprotocol/server';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  InterlockError,
  managedHandle,
  type RunKeyStrategy,
  StateMachineGate,
  StoreUnavailable,
  sessionKey,
} from '../../src/index.ts';
import type { ManagedHandleOptions } from '../../src/session/run-key.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { FOUR_UPSTREAMS } from '../helpers/four-upstreams.ts';
import { RawSession, send, type WireMessage } from '../helpers/raw.ts';
import { makeStage, sceneOfBothEras } from '../helpers/scene.ts';
import { ask, callStateless, stateless, type TwoErasOptions } from '../helpers/two-eras.ts';

const START = 'checkout.start';
const key = (options: Partial<ManagedHandleOptions> = {}) =>
  managedHandle({ start: START, argument: 'workflow_run', ...options });

function serve(
  keys: RunKeyStrategy | readonly RunKeyStrategy[] = key(),
  app: TwoErasOptions = {},
  workflow: readonly StateMachineGate<string, string>[] = [checkoutGate()],
) {
  return sceneOfBothEras({ session: { key: keys, idleMs: 60_000 }, workflow, ...app });
}

async function begin(url: URL, user?: string): Promise<string> {
  const { result } = await callStateless(url, START, {}, user === undefined ? {} : { user });
  return result.structuredContent.workflow_run;
}

const alice = { user: 'alice' };
const UNKNOWN = 'Its "workflow_run" names no run that is known';
/** Parsers do not agree on a body that has it twice. */
const TWICE = 'stands twice';
const wordsIn = (message: WireMessage | undefined): unknown =>
  message?.error?.message ?? message?.result.content[0].text;

describe('a handle of the middleware', () => {
  it('is unguessable, and tool and result tell its lifetime', async () => {
    const { url } = await serve();
    const started = await callStateless(url, START, {}, alice);
    expect(started.result.structuredContent.workflow_run).toMatch(/^[\w-]{32}$/);
    expect(started.text).toContain('It expires 1 minute after its last use.');
    expect(started.result.resultType).toBe('complete');
    const { messages } = await ask(url, 'tools/list');
    expect(messages[0]?.result.tools[0].description).toContain(
      'It expires 1 minute after its last use.',
    );
    expect(await begin(url, 'alice')).not.toBe(await begin(url, 'alice'));
  });

  it('lives a day by default, and says so', async () => {
    const key = managedHandle({ start: START, argument: 'workflow_run' });
    const { url } = await sceneOfBothEras({ session: { key } });
    const { text } = await callStateless(url, START);
    expect(text).toContain('It expires 24 hours after its last use.');
  });

  it('names one run of one principal', async () => {
    const { url, run: runOf, calls } = await serve();
    const [mine, other] = [await begin(url, 'alice'), await begin(url, 'alice')];
    await callStateless(url, 'cart.add_item', { workflow_run: mine }, alice);
    expect(
      (await callStateless(url, 'cart.checkout', { workflow_run: other }, alice)).text,
    ).toContain('not available while checkout is in "empty"');
    for (const options of [{ user: 'bob' }, {}]) {
      const refused = await callStateless(url, 'cart.checkout', { workflow_run: mine }, options);
      expect(refused.text).toContain(UNKNOWN);
      expect(refused.text).toContain(`Call ${START} to begin a new one`);
    }
    const run = key().runKey(mine, { issuer: 'https://issuer.example', subject: 'alice' });
    await runOf(run).isIn('has_items');
    expect(calls.map(({ tool }) => tool)).toEqual(['cart.add_item']);
  });

  it('serves callers without a principal as a bearer token, and then no other caller', async () => {
    const { url } = await serve();
    const workflow_run = await begin(url);
    expect((await callStateless(url, 'cart.add_item', { workflow_run })).isError).toBe(false);
    expect((await callStateless(url, 'cart.checkout', { workflow_run }, alice)).text).toContain(
      UNKNOWN,
    );
  });

  it('expires when it is not used, and each use puts that off', async () => {
    const { url, clock } = await serve();
    const workflow_run = await begin(url, 'alice');
    for (let use = 0; use < 3; use++) {
      clock.advance(50_000);
      expect((await callStateless(url, 'cart.add_item', { workflow_run }, alice)).isError).toBe(
        false,
      );
    }
    clock.advance(60_001);
    expect((await callStateless(url, 'cart.add_item', { workflow_run }, alice)).text).toContain(
      UNKNOWN,
    );
  });

  it.each([
    ['unknown', '"workflow_run":"nonsense"'],
    ['empty', '"workflow_run":""'],
    ['a list', '"workflow_run":["HANDLE"]'],
    ['null', '"workflow_run":null'],
    ['a fraction', '"workflow_run":1.5'],
    ['too long', `"workflow_run":"${'x'.repeat(2_000)}"`],
    ['there twice', '"workflow_run":"HANDLE","workflow_run":"HANDLE"', TWICE],
    ['there twice, escaped', '"workflow_run":"HANDLE","workflow\\u005frun":"other"', TWICE],
    ['there in two letter cases', '"Workflow_Run":"other","workflow_run":"HANDLE"'],
    ['there in another letter case', '"Workflow_Run":"HANDLE"'],
  ])(
    'is refused if it is %s, even if something else could name a run',
    async (_what, member, said = UNKNOWN) => {
      const { url, calls } = await serve([key(), sessionKey()]);
      const handle = await begin(url);
      const { headers, body } = stateless('tools/call', {
        name: 'cart.add_item',
        arguments: { x: 1 },
      });
      const written = (request: unknown): string =>
        JSON.stringify(request).replace('"x":1', member.replaceAll('HANDLE', handle));
      const alone = await send(url, { headers, body: written(body) });
      expect(wordsIn(alone.messages[0])).toContain(said);
      const session = await RawSession.begin(url);
      const { _meta, ...params } = body.params as Record<string, unknown>;
      const { messages } = await session.post(written({ ...body, params }));
      expect(wordsIn(messages[0])).toContain(said);
      expect(calls).toEqual([]);
    },
  );

  it('is asked for in words where a call has none', async () => {
    const { url } = await serve();
    const { text } = await callStateless(url, 'cart.add_item', {}, alice);
    expect(text).toContain(
      `It needs the argument "workflow_run". Call ${START} to begin a new one, and pass the ` +
        '"workflow_run" that it returns.',
    );
  });
});

describe('a store that fails', () => {
  it('begins no run, and the client is given no handle', async () => {
    const { url, store, errors } = await serve();
    store.fail('claim');
    const { messages, text } = await ask(url, 'tools/call', { name: START, arguments: {} }, alice);
    expect(messages).toEqual([
      {
        jsonrpc: '2.0',
        id: expect.any(Number),
        error: { code: -32603, message: 'The run could not be recorded; try again later' },
      },
    ]);
    expect(text).not.toContain('workflow_run');
    expect(errors).toEqual([expect.any(StoreUnavailable)]);
    store.heal();
    expect((await callStateless(url, START, {}, alice)).result).toHaveProperty('structuredContent');
  });
});

describe('the start tool', () => {
  it.each([
    ['another name', { 'mcp-name': 'cart.view' }],
    ['no name', { 'mcp-name': '' }],
    ['another method', { 'mcp-method': 'tools/list' }],
    ['no method', { 'mcp-method': '' }],
  ])(
    'is refused where the headers have %s, and begins nothing',
    async (_what, changes: Record<string, string>) => {
      const { url } = await serve();
      const { status, messages } = await ask(
        url,
        'tools/call',
        { name: START, arguments: {} },
        { changes },
      );
      expect([status, messages[0]?.error.code]).toEqual([400, -32020]);
      expect(messages[0]).not.toHaveProperty('result');
    },
  );

  it('takes a name that is encoded in its header', async () => {
    const { url } = await serve();
    const changes = { 'mcp-name': `=?base64?${Buffer.from(START).toString('base64')}?=` };
    expect((await callStateless(url, START, {}, { changes })).result).toHaveProperty(
      'structuredContent',
    );
  });

  it('is on the first page of a list alone', async () => {
    const { url } = await serve(key(), {
      register(server) {
        const low: Server = server.server;
        low.setRequestHandler('tools/list', async ({ params }) => {
          const name = params?.cursor === undefined ? 'cart.pay' : `other${params.cursor}`;
          const more = params?.cursor === undefined ? { nextCursor: '' } : {};
          return { tools: [{ name, inputSchema: { type: 'object' as const } }], ...more };
        });
      },
    });
    const names = async (params: Record<string, unknown>) =>
      (await ask(url, 'tools/list', params)).messages[0]?.result.tools.map(
        (tool: { name: string }) => tool.name,
      );
    expect(await names({})).toEqual([START, 'cart.pay']);
    expect(await names({ cursor: '' })).toEqual(['other']);
  });

  it('is refused at the first list where the upstream has a tool of its name', async () => {
    const { url, errors } = await serve(key({ start: 'cart.view' }));
    const { messages, status } = await ask(url, 'tools/list');
    expect([status, messages.map(({ error }) => error)]).toEqual([
      200,
      [{ code: -32603, message: 'Internal error' }],
    ]);
    expectConfigError(errors, /has a tool "cart\.view" of its own; choose another name/);
  });

  it('is refused at the first list where a gate binds it', async () => {
    const gate = checkoutGate().bindTool(START, 'empty');
    const { url, errors } = await serve(key(), {}, [gate]);
    const { messages } = await ask(url, 'tools/list');
    expect(messages[0]?.error).toEqual({ code: -32603, message: 'Internal error' });
    expectConfigError(errors, /"checkout\.start" begins a run.+do not bind it/);
  });
});

describe('the argument that names a run', () => {
  it('is refused at the first list where a bound tool has one of its name', async () => {
    const { url, errors } = await serve(key({ argument: 'sku' }));
    const { messages } = await ask(url, 'tools/list');
    expect(messages[0]?.error).toEqual({ code: -32603, message: 'Internal error' });
    expectConfigError(
      errors,
      /"cart\.add_item" has an argument "sku" of its own; choose another name/,
    );
  });

  it('is asked for once by a tool of two gates, and names a run of both', async () => {
    const audit = new StateMachineGate({
      id: 'audit',
      initial: 'open',
      states: { open: { on: { CLOSE: 'closed' } }, closed: { type: 'final' } },
    })
      .bindTool('cart.add_item', 'open', 'CLOSE')
      .bindTool('cart.view', 'closed');
    const { url, calls, errors } = await serve(key(), {}, [checkoutGate(), audit]);
    const { messages } = await ask(url, 'tools/list');
    const tools = new Map(
      messages[0]?.result.tools.map((tool: { name: string }) => [tool.name, tool]),
    );
    const added = tools.get('cart.add_item') as {
      description: string;
      inputSchema: { required: string[] };
    };
    expect(added.inputSchema.required).toEqual(['workflow_run']);
    expect(added.description).toMatch(/while checkout is in .+while audit is in/s);
    expect(errors).toEqual([]);
    const workflow_run = await begin(url);
    expect((await callStateless(url, 'cart.view', { workflow_run })).isError).toBe(true);
    await callStateless(url, 'cart.add_item', { workflow_run, sku: 'tea' });
    expect((await callStateless(url, 'cart.view', { workflow_run })).text).toBe('cart.view done');
    expect(calls).toEqual([
      { tool: 'cart.add_item', args: { sku: 'tea' } },
      { tool: 'cart.view', args: {} },
    ]);
  });

  it('is nothing to a session whose own run is preferred', async () => {
    const { url } = await serve([sessionKey(), key()]);
    const client = await connect(url);
    onTestFinished(() => client.close());
    expect(await client.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect((await client.call('cart.add_item')).isError).toBe(false);
  });
});

describe.each(FOUR_UPSTREAMS)('in a session in front of $name', (kind) => {
  it('a run is begun, named and left behind by handles', async () => {
    const { stage, middlewares } = makeStage({ session: { key: key() } });
    const upstream = await kind.start(middlewares);
    onTestFinished(() => upstream.close());
    const client = await connect(upstream.url, { 'x-user': 'alice' });
    onTestFinished(() => client.close());
    const { tools } = await client.client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      START,
      'cart.add_item',
      'cart.checkout',
      'cart.pay',
      'cart.view',
    ]);
    const started = await client.client.callTool({ name: START, arguments: {} });
    const handle = started.structuredContent as Record<string, unknown>;
    expect((await client.call('cart.pay', handle)).isError).toBe(true);
    expect((await client.call('cart.add_item', handle)).text).toBe('cart.add_item done');
    expect((await client.call('cart.add_item')).text).toContain(
      'It needs the argument "workflow_run"',
    );
    expect(stage.errors).toEqual([]);
  });
});

function expectConfigError(errors: readonly unknown[], message: RegExp): void {
  expect(errors).toHaveLength(1);
  expect(errors[0]).toBeInstanceOf(InterlockError);
  expect(errors[0]).toMatchObject({
    code: 'ERR_INTERLOCK_CONFIG',
    message: expect.stringMatching(message),
  });
}
