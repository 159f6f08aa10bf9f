import Database from 'libsql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { localBus, memoryStore, type NotificationBus, principalKey } from '../../src/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { callOf, RawSession, send } from '../helpers/raw.ts';
import { type Scene, scene } from '../helpers/scene.ts';

const ALICES = { 'x-user': 'alice' };

/** Instances of one app, which share a store and a bus. */
async function instances(count: number, bus: NotificationBus = localBus()): Promise<Scene[]> {
  const shape = { mode: 'stateless', answers: 'json' } as const;
  const first = await scene({ session: { bus }, shape });
  const apps = [first];
  while (apps.length < count) apps.push(await scene({ session: { bus }, shape, beside: first }));
  return apps;
}

/** The same session, as its client reaches it on another instance. */
const on = ({ url }: Scene, { id }: RawSession): RawSession => RawSession.resume(url, id, ALICES);

describe('a client that opens a session for each call, on several instances', () => {
  it('is told by the instance that opened its sessions, though others serve the calls', async () => {
    const [a, b] = (await instances(2)) as [Scene, Scene];
    for (let time = 0; time < 3; time++) await on(b, await a.session(ALICES)).call('cart.add_item');
    expect(a.warnings).toEqual([]);
    await a.session(ALICES);
    expect(a.warnings).toEqual([
      expect.stringMatching(/^the client "raw" opened 3 sessions with a single call in each/),
    ]);
    expect(b.warnings).toEqual([]);
  });

  it('is told though it ends each session', async () => {
    const [a, b] = (await instances(2)) as [Scene, Scene];
    for (let time = 0; time < 3; time++) {
      const session = await a.session(ALICES);
      await on(b, session).call('cart.add_item');
      await session.end();
    }
    await a.session(ALICES);
    expect(a.warnings).toEqual([
      expect.stringContaining('key: [conversationKey(), principalKey()]'),
    ]);
  });

  it('is not one that calls more than once, each time on another instance', async () => {
    const [a, b, c] = (await instances(3)) as [Scene, Scene, Scene];
    for (let time = 0; time < 8; time++) {
      const session = await a.session(ALICES);
      const [one, other] = [
        [a, b],
        [b, c],
        [b, b],
        [c, c],
      ][time % 4] as [Scene, Scene];
      await on(one, session).call('cart.add_item');
      await on(other, session).call('cart.view');
    }
    await a.session(ALICES);
    expect([a, b, c].flatMap(({ warnings }) => warnings)).toEqual([]);
  });

  it('is not told of by instances that share a store without a bus: others may serve more', async () => {
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const file = new Database(':memory:');
    onTestFinished(() => void file.close());
    const beside = { clock: new ManualClock(), data: sqliteStore({ database: file }) };
    const apps = [await scene({ shape, beside }), await scene({ shape, beside })] as const;
    const [a, b] = apps;
    for (let time = 0; time < 3; time++) {
      const session = await a.session(ALICES);
      await session.call('cart.add_item');
      for (let call = 0; call < 3; call++) await on(b, session).call('cart.view');
    }
    await a.session(ALICES);
    expect(apps.flatMap(({ warnings }) => warnings)).toEqual([]);
  });

  it('is told without a bus where one process has the runs in its memory', async () => {
    const data = memoryStore();
    const app = await scene({ data, session: { store: data } });
    for (let time = 0; time < 4; time++) await (await app.session(ALICES)).call('cart.add_item');
    expect(app.warnings).toEqual([expect.stringContaining('with a single call in each')]);
  });

  it('is not one that listens on another instance', async () => {
    const [a, b] = (await instances(2)) as [Scene, Scene];
    for (let time = 0; time < 4; time++) {
      const session = on(b, await a.session(ALICES));
      const stream = await session.listen();
      onTestFinished(() => stream.cut());
      await session.call('cart.add_item');
    }
    expect(a.warnings).toEqual([]);
  });

  it('costs the bus two hints of calls for each session and instance, and two of lists', async () => {
    const bus = localBus();
    const [a, b] = (await instances(2, bus)) as [Scene, Scene];
    const kinds: string[] = [];
    await bus.subscribe((text) => void kinds.push(JSON.parse(text).kind));
    const session = await a.session(ALICES);
    for (let time = 0; time < 5; time++) {
      await on(b, session).call('cart.view');
      await on(b, session).tools();
      await session.call('cart.view');
    }
    expect(kinds.sort()).toEqual(['called', 'called', 'listed', 'listed']);
  });
});

describe('a client that keeps the id of a session that is over', () => {
  const CALLS = 'called 3 times with the id of a session that is over';
  const callTimes = async ({ clock }: Scene, session: RawSession, times: number) => {
    for (let time = 0; time < times; time++) {
      clock.advance(250);
      await session.call('cart.view');
    }
  };

  it('is told to the operator once, by its name and with the line that serves it', async () => {
    const app = await scene();
    for (let time = 0; time < 2; time++) {
      const session = await app.session(ALICES);
      await session.end();
      await callTimes(app, session, 2);
      if (time === 0) expect(app.warnings).toEqual([]);
      await callTimes(app, session, 2);
    }
    expect(app.warnings).toEqual([
      `the client "raw" ${CALLS}. It keeps the id after 404, so its calls fail until its user ` +
        'connects it again. If your server makes no sessions of its own, give ' +
        'sessionStore({ key: principalKey() }): no call needs a session then. Else let idleMs be ' +
        'long, and keep runs in a store that outlives a restart; ' +
        'see mcp-interlock/docs/start/clients.md#after-400-and-404',
    ]);
  });

  it('reads of authentication where it has no principal', async () => {
    const app = await scene();
    const session = await app.session();
    await session.end();
    await callTimes(app, session, 3);
    expect(app.warnings).toEqual([
      expect.stringMatching(/mount authentication in front, and give .+principalKey\(\)/),
    ]);
  });

  it('is named by its user agent where another process, or none, knew its session', async () => {
    const app = await scene();
    const agent = { 'user-agent': 'python-httpx/0.28.1' };
    const lost = RawSession.resume(app.url, 'a-session-before-the-restart', agent);
    await callTimes(app, lost, 3);
    expect(app.warnings).toEqual([expect.stringContaining(`"python-httpx/0.28.1" ${CALLS}`)]);
  });

  it('is told on another instance than the one where its session ended', async () => {
    const [a, b] = (await instances(2)) as [Scene, Scene];
    const session = await a.session(ALICES);
    await on(b, session).tools();
    await session.end();
    await callTimes(b, on(b, session), 3);
    expect(b.warnings).toEqual([expect.stringContaining(`the client "raw" ${CALLS}`)]);
  });

  it('is not one that sent its calls side by side, and could not know', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    await session.end();
    for (let turn = 0; turn < 2; turn++) {
      await Promise.all([1, 2, 3, 4].map((id) => session.post(callOf(id, 'cart.view'))));
      app.clock.advance(1000);
    }
    expect(app.warnings).toEqual([]);
  });

  it('is not one that asks for something else, nor a caller with the id of another one', async () => {
    const app = await scene();
    const session = await app.session(ALICES);
    const thief = RawSession.resume(app.url, session.id, { 'x-user': 'bob' });
    await callTimes(app, thief, 4);
    await session.end();
    for (let time = 0; time < 4; time++) {
      app.clock.advance(1000);
      await session.tools().catch(() => {});
      await send(session.url, { method: 'GET', headers: session.headers });
      await session.end();
    }
    expect(app.warnings).toEqual([]);
  });

  it('is told nothing of where no run needs a session', async () => {
    const app = await scene({ session: { key: principalKey() } });
    const lost = RawSession.resume(app.url, 'a-session-before-the-restart', ALICES);
    await callTimes(app, lost, 4);
    expect(app.warnings).toEqual([]);
  });

  it('fills neither the log nor the memory, by names or by ids that it makes up', async () => {
    const app = await scene();
    for (let client = 0; client < 110; client++) {
      const agent = { 'user-agent': `agent-${client}` };
      await callTimes(app, RawSession.resume(app.url, `session-${client}`, agent), 3);
    }
    expect(app.warnings).toHaveLength(100);
    const long = await scene();
    await callTimes(long, RawSession.resume(long.url, 'x'.repeat(300)), 4);
    expect(long.warnings).toEqual([]);
  });
});
