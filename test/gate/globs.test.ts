import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isGlob } from '../../src/basics/glob.ts';
import { managedHandle, matchGlob, StateMachineGate } from '../../src/index.ts';
import { globOf } from '../helpers/glob-oracle.ts';
import { latch } from '../helpers/latch.ts';
import type { WireMessage } from '../helpers/raw.ts';
import { type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { ask, callStateless } from '../helpers/two-eras.ts';

const TOOLS = ['login', 'admin.view', 'admin.wipe', 'admin.users.list', 'help'];

const desk = () =>
  new StateMachineGate({
    id: 'desk',
    initial: 'out',
    states: { out: { on: { LOGIN: 'in', WIPE: 'gone' } }, in: { on: { WIPE: 'gone' } }, gone: {} },
  }).bindTool('login', 'out', 'LOGIN');

const office = (workflow: NonNullable<SceneOptions['workflow']>, options: SceneOptions = {}) =>
  scene({ workflow, makeServer: toolServer(TOOLS), ...options });

describe('a glob in bindTool()', () => {
  it('binds what it matches, in lists and calls, as matchGlob() has it', async () => {
    const app = await office(desk().bindTool('admin.*', 'in'));
    const client = await app.client();
    await client.sees(['login', 'admin.users.list', 'help']);
    await client.isRefused('admin.wipe', 'state');
    await client.calls('admin.users.list');
    await client.calls('login');
    await client.sees(['admin.view', 'admin.wipe', 'admin.users.list', 'help']);
    await client.calls('admin.wipe');
    expect(app.ledger.calls).toEqual(['admin.users.list', 'login', 'admin.wipe']);
  });

  it('binds a call in a process that has seen no list, and a tool that is added later', async () => {
    const later = [...TOOLS];
    const app = await office(desk().bindTool('admin.**', 'in'), {
      makeServer: (ledger) => toolServer(later)(ledger),
    });
    const session = await app.session();
    const { result } = await session.call('admin.users.list');
    expect(result._meta['mcp-interlock/refusal'].reason).toBe('state');
    later.push('admin.new');
    const client = await app.client();
    await client.isRefused('admin.new', 'state');
    expect(app.ledger.calls).toEqual([]);
  });

  it('may move the run, and claims it as a name does', async () => {
    const app = await office(desk().bindTool('admin.*', 'in', 'WIPE'));
    const client = await app.client();
    await client.calls('login');
    await client.calls('admin.view');
    await app.run(client.run).isIn('gone');
    expect(await app.run(client.run).moves()).toEqual(['login', 'admin.view']);
    await client.isRefused('admin.wipe', 'state');
  });

  it('gives way to an exact name', async () => {
    const gate = desk().bindTool('admin.*', 'in').bindTool('admin.view', '*');
    const app = await office(gate);
    const client = await app.client();
    await client.sees(['login', 'admin.view', 'admin.users.list', 'help']);
    await client.calls('admin.view');
    await client.isRefused('admin.wipe', 'state');
  });

  it('is named to no client, neither as available nor on a way', async () => {
    const gate = desk().bindTool('admin.*', 'out', 'WIPE').bindTool('help', 'gone');
    const app = await office(gate, { gate: { announce: true } });
    const client = await app.client();
    const { text, meta } = await client.isRefused('help', 'state');
    expect(text).not.toContain('*');
    expect(JSON.stringify(meta)).not.toContain('*');
    expect((await client.calls('admin.view')).texts.join()).not.toContain('*');
    expect(await app.runs.read(client.run)).toMatchObject({ state: 'gone' });
  });

  it('gives its tools their note, where a list shows the tools of all states', async () => {
    const app = await office(desk().bindTool('admin.*', 'in'), { gate: { visibility: 'stable' } });
    const client = await app.client();
    const { tools } = await client.raw.client.listTools();
    const noted = tools.filter(({ description }) => description?.includes('is in "in"') === true);
    expect(noted.map(({ name }) => name)).toEqual(['admin.view', 'admin.wipe']);
  });

  it("asks its tools' callers for a handle, and answers in the stateless era", async () => {
    const { url, calls } = await sceneOfBothEras({
      session: { key: managedHandle({ start: 'cart.begin', argument: 'cart_id' }) },
      workflow: new StateMachineGate({ id: 'desk', initial: 'out', states: { out: {}, in: {} } })
        .bindTool('cart.*', 'in')
        .bindTool('cart.view', 'out'),
      gate: { statusTool: 'cart.status' },
    });
    const { messages } = await ask(url, 'tools/list');
    const tools: WireMessage[] = messages[0]?.result.tools;
    const asking = tools.filter(({ inputSchema }) => inputSchema.properties?.cart_id);
    expect(asking.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']),
    );
    const { result: begun } = await callStateless(url, 'cart.begin');
    const { cart_id } = begun.structuredContent as { cart_id: string };
    const { result } = await callStateless(url, 'cart.pay', { cart_id });
    expect(result._meta['mcp-interlock/refusal'].reason).toBe('state');
    expect((await callStateless(url, 'cart.status', { cart_id })).isError).toBe(false);
    await callStateless(url, 'cart.view', { cart_id });
    expect(calls.map(({ tool }) => tool)).toEqual(['cart.view']);
  });

  it("decides with unbound: 'refuse' what is open", async () => {
    const gate = desk().bindTool('admin.*', '*');
    const app = await office(gate, { gate: { unbound: 'refuse' } });
    const client = await app.client();
    await client.sees(['login', 'admin.view', 'admin.wipe']);
    await client.isRefused('admin.users.list', 'unbound');
    await client.calls('admin.view');
  });

  it('may hide its tools from a client, and from one that only guesses', async () => {
    const hidden = desk().bindTool('admin.*', 'out', { visible: () => false });
    const app = await office(hidden);
    const client = await app.client();
    await client.sees(['login', 'admin.users.list', 'help']);
    await client.isRefused('admin.view', 'state');
    const secret = await office(desk().bindTool('admin.*', 'in'), {
      gate: { refusal: 'unknown-tool' },
    });
    const guessing = await secret.session();
    const noId = (answer: unknown): string => JSON.stringify(answer).replace(/"id":\d+/, '');
    const denied = noId(await guessing.call('admin.view'));
    expect(denied).toBe(noId(await guessing.call('admin.vies')).replaceAll('vies', 'view'));
    expect(secret.ledger.calls).toEqual([]);
  });

  it('lets no client fill a run with names that it makes up', async () => {
    const gate = desk().bindTool('admin.*', 'out', { failure: 'WIPE', retries: 2 });
    const app = await office(gate, { gate: { trail: { refusals: true }, unbound: 'refuse' } });
    const session = await app.session();
    for (const start of ['admin.', 'other.']) {
      const { error } = await session.call(start.padEnd(257, 'x'));
      expect(error?.message).toContain('name must have at most 256 characters');
    }
    expect(await app.runs.history(session.id)).toEqual([]);
    for (let made = 0; made < 100; made++) await session.call(`admin.${made}`);
    await session.call('admin.0');
    await app.run(session.id).isIn('out');
    await session.call('admin.100');
    await app.run(session.id).isIn('gone');
  });

  it('warns once of a limit that begins anew, whatever names its clients make up', async () => {
    const limited = { limit: { times: 100, within: '1h' } } as const;
    const app = await office(desk().bindTool('help_*', 'out', limited));
    const session = await app.session();
    for (let i = 0; i < 20; i++) await session.call(`help_${i}`);
    expect(app.warnings).toEqual([
      expect.stringContaining('tool "help_*" of workflow "desk" has a'),
    ]);
  });

  it('lets a call of another tool wait that it may lead on', async () => {
    const gate = desk().bindTool('admin.*', 'out', 'WIPE').bindTool('help', 'gone');
    const app = await office(gate);
    const [first, second] = [await app.client(), latch()];
    app.ledger.gates.set('admin.view', second.opened);
    const step = first.calls('admin.view');
    await app.run(first.run).becomes('running');
    const help = first.calls('help');
    second.open();
    await Promise.all([step, help]);
    expect(app.ledger.calls).toEqual(['admin.view', 'help']);
  });

  it('is a name where it is malformed', async () => {
    const app = await office(desk().bindTool('admin.**x', 'in'));
    const client = await app.client();
    await client.sees(['login', 'admin.view', 'admin.wipe', 'admin.users.list', 'help']);
    expect(app.warnings.join()).toContain('binds "admin.**x", which the upstream does not list');
  });

  it('is named in a warning where no listed tool matches it', async () => {
    const app = await office(desk().bindTool('amdin.*', 'in'));
    const client = await app.client();
    await client.raw.tools();
    expect(app.warnings.join()).toContain('binds "amdin.*", which the upstream does not list');
  });
});

describe('two globs that match one name', () => {
  const torn = () => desk().bindTool('admin.*', 'in').bindTool('*.wipe', 'out');

  it.each(['hide', 'stable'] as const)(
    'hide and refuse it where they differ, and tell the operator (%s)',
    async (visibility) => {
      const app = await office(torn(), { gate: { visibility } });
      const client = await app.client();
      expect(await client.raw.tools()).not.toContain('admin.wipe');
      await client.raw.tools();
      expect(app.warnings.filter((each) => each.includes('by the globs'))).toHaveLength(1);
      for (const prepare of [async () => {}, () => client.calls('login')]) {
        await prepare();
        await client.isRefused('admin.wipe', 'unavailable');
      }
      expect(app.warnings.filter((each) => each.includes('by the globs'))).toEqual([
        expect.stringContaining('binds "admin.wipe" in different ways, by the globs "admin.*" and'),
      ]);
      expect(app.errors).toEqual([]);
      expect(app.ledger.calls).toEqual(['login']);
    },
  );

  it('tell of names that no list has shown once, though a client makes many up', async () => {
    const app = await office(desk().bindTool('admin.*', 'in').bindTool('*.w*', 'out'));
    const told = () => app.warnings.filter((each) => each.includes('by the globs'));
    const session = await app.session();
    for (const name of ['admin.wipe', 'admin.wa', 'admin.wb', 'admin.wipe', 'admin.wc']) {
      const { result } = await session.call(name);
      expect(result._meta['mcp-interlock/refusal'].reason).toBe('unavailable');
    }
    const first =
      'workflow "desk" binds each name that two globs match in different ways, by the globs ' +
      '"admin.*" and "*.w*": no list has it, and each call of it is refused. Bind it by its name';
    expect(told()).toEqual([first]);
    await session.tools();
    await session.tools();
    await session.call('admin.wipe');
    await session.call('admin.wd');
    expect(told()).toEqual([first, expect.stringContaining('binds "admin.wipe" in different')]);
    expect(app.errors).toEqual([]);
  });

  it('do not, where an exact name binds it, or both bind alike', async () => {
    const app = await office(torn().bindTool('admin.wipe', 'out'));
    const client = await app.client();
    await client.calls('admin.wipe');
    const same = await office(desk().bindTool('admin.*', 'out').bindTool('*.wipe', 'out'));
    const other = await same.client();
    await other.calls('admin.wipe');
  });
});

it('a gate binds exactly the names that matchGlob() says', () => {
  fc.assert(
    fc.property(
      fc.array(globOf(['a', 'b', '*', '**', 'a*', '*b'], 3), { minLength: 1, maxLength: 3 }),
      fc.array(fc.constantFrom('a', 'b', 'ab'), { minLength: 1, maxLength: 4 }),
      (patterns, segments) => {
        const name = segments.join('.');
        const gate = new StateMachineGate({ id: 'g', initial: 's', states: { s: {}, t: {} } });
        for (const pattern of new Set(patterns)) gate.bindTool(pattern, 't');
        const isMeant = patterns.some((each) =>
          isGlob(each) ? matchGlob(each, name) : each === name,
        );
        expect(gate.compile().isBound(name)).toBe(isMeant);
        expect(gate.isToolAllowed(name)).toBe(!isMeant);
        expect(gate.compile().isVisible(name, 's')).toBe(!isMeant);
      },
    ),
  );
});
