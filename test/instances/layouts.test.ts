import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import Database from 'libsql';
import { createClient } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { runsOf } from '../../src/runs/index.ts';
import { LAYOUT } from '../../src/stores/document/run-text.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { LayoutBuilds } from '../helpers/other-layout.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { send } from '../helpers/raw.ts';
import { serve } from '../helpers/serve.ts';
import { sharedRedis } from '../services/shared.ts';
import type { Kind, LayoutInstance, LayoutOrder, LayoutPlaces } from './layout-instance.ts';

const KINDS: readonly Kind[] = ['redis', 'postgres', 'sqlite', 'documents'];
/** What clients are told, by a gate or by the balancer; never that their session is unknown. */
const REFUSED = /The session store is unavailable|no instance is ready/;
const INSTANCE = 'test/instances/layout-instance.ts';

/** An instance, and the process in which it runs. */
interface Running extends LayoutInstance {
  readonly child: ChildProcess;
  /** What its handlers said, in their order. */
  readonly said: string[];
  /** What its operator reads on the console. */
  logged(): string;
}

async function start(build: string, documents: string, places: LayoutPlaces): Promise<Running> {
  const child = fork(
    join(build, INSTANCE.replace(/ts$/, 'js')),
    [documents, JSON.stringify(places)],
    { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] },
  );
  onTestFinished(() => void child.kill('SIGKILL'));
  const said: string[] = [];
  const ready = once(child, 'message');
  child.on('message', (message) => void (typeof message === 'string' && said.push(message)));
  let logged = '';
  child.stderr?.on('data', (bytes) => {
    logged += bytes;
  });
  const [served] = await Promise.race([
    ready,
    once(child, 'exit').then(() => Promise.reject(new Error(`an instance ended: ${logged}`))),
  ]);
  return { ...(served as LayoutInstance), child, said, logged: () => logged };
}

async function kill(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

async function tell({ child }: Running, order: LayoutOrder): Promise<void> {
  const gone = order === 'end' && once(child, 'exit');
  child.send(order);
  if (gone) expect(await gone).toEqual([0, null]);
}

/** One address for all instances: each request goes to the next one that serves its store. */
async function balance() {
  let targets: readonly LayoutInstance[] = [];
  const turns = new Map<Kind, number>();
  const { url } = await serve((req, res) => {
    const kind = req.url?.split('/')[1] as Kind;
    const served = targets.flatMap(({ urls }) => urls[kind] ?? []);
    const turn = (turns.get(kind) ?? 0) + 1;
    turns.set(kind, turn);
    const target = served[turn % served.length];
    if (target === undefined) {
      res.writeHead(503).end('no instance is ready');
      return;
    }
    const { method, headers } = req;
    const forwarded = httpRequest(target, { method, headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      pipeline(answer, res, () => {});
    });
    forwarded.on('error', () => res.destroy());
    req.pipe(forwarded);
  });
  return {
    of: (kind: Kind) => new URL(`/${kind}/mcp`, url),
    to: (...instances: readonly LayoutInstance[]) => {
      targets = instances;
    },
  };
}

async function makePlaces(folder: string) {
  const schema = await makePostgresSchema();
  onTestFinished(() => schema.drop());
  const redis = createClient({ url: await sharedRedis() });
  await redis.connect();
  onTestFinished(() => redis.destroy());
  const places: LayoutPlaces = {
    redis: { url: await sharedRedis(), prefix: `layouts-${randomUUID()}` },
    postgres: schema,
    sqlite: join(folder, 'sqlite.db'),
    documents: join(folder, 'documents.db'),
    ledger: join(folder, 'ledger'),
  };
  writeFileSync(places.ledger, '');
  const opened = (path: string) => sqliteStore({ database: new Database(path) });
  const stores = (): Record<Kind, Omit<ReturnType<typeof sqliteStore>, 'unsettled'>> => ({
    redis: redisStore({ client: redis, prefix: places.redis.prefix }),
    postgres: postgresStore({ pool: schema.connect(), schema: schema.schema }),
    sqlite: opened(places.sqlite),
    documents: opened(places.documents),
  });
  return { places, stores };
}

/** A client of a live session, which makes each step once, and asks again where it is refused. */
class Shopper {
  readonly name: string;
  readonly kind: Kind;
  readonly client: TestClient;
  /** Whatever it was told instead of a result. */
  readonly refusals: string[] = [];
  readonly done: string[] = [];

  constructor(name: string, kind: Kind, client: TestClient) {
    this.name = name;
    this.kind = kind;
    this.client = client;
  }

  async try(tool: string, waits = false): Promise<boolean> {
    const said = await this.client
      .call(tool, { client: this.name, waits })
      .catch((error: unknown) => ({ isError: true, text: String(error) }));
    if (said.isError) this.refusals.push(said.text);
    else this.done.push(tool);
    return !said.isError;
  }

  async step(tool: string): Promise<void> {
    let tries = 0;
    while (!(await this.try(tool))) expect(++tries, this.refusals.at(-1)).toBeLessThan(20);
  }
}

it('a rolling deployment to another layout and back repeats no step and loses none, on each store', async () => {
  const builds = new LayoutBuilds();
  onTestFinished(() => builds.remove());
  const [own, other, otherDocuments] = await Promise.all([
    builds.make('own', [], [INSTANCE]),
    builds.make('other', ['texts', 'sqlite'], [INSTANCE]),
    builds.make('documents', ['texts']),
  ]);
  const { places, stores } = await makePlaces(builds.folder);
  const startOwn = () => start(own, own, places);
  const address = await balance();
  const each = <T>(work: (kind: Kind) => Promise<T>): Promise<T[]> => Promise.all(KINDS.map(work));
  const shoppers: Shopper[] = [];
  const enter = async (name: string, kind: Kind): Promise<Shopper> => {
    const client = await connect(address.of(kind));
    onTestFinished(() => client.close());
    const shopper = new Shopper(name, kind, client);
    shoppers.push(shopper);
    return shopper;
  };

  // Two instances of today, with three live sessions on each store.
  const first = await startOwn();
  const second = await startOwn();
  address.to(first, second);
  const walking = await each((kind) => enter('walking', kind));
  const working = await each((kind) => enter('working', kind));
  const held = await each((kind) => enter('held', kind));
  for (const group of [walking, working, held])
    await Promise.all(group.map((shopper) => shopper.step('cart.add_item')));

  // A step of each is at work: one in an instance that will end in order, one in one that dies.
  const atWork = (group: readonly Shopper[], at: Running) => {
    address.to(at);
    const steps = group.map((shopper) => shopper.try('cart.checkout', true));
    return expect
      .poll(() =>
        group.every(({ name, kind }) => at.said.includes(`${kind} ${name} cart.checkout`)),
      )
      .toBe(true)
      .then(() => steps);
  };
  const ending = await atWork(working, first);
  const dying = await atWork(held, second);
  await kill(second.child);
  expect(await Promise.all(dying)).toEqual(KINDS.map(() => false));
  const lost = held.map(({ refusals }) => refusals.splice(0));
  expect(lost.flat()).toHaveLength(KINDS.length);

  // The next layout comes. It says why it does not serve.
  const third = await start(other, otherDocuments, places);
  const format = expect.stringMatching(/format \d.*this version of mcp-interlock knows/);
  expect(third.refused).toEqual({ postgres: format, sqlite: format });
  expect(Object.keys(third.urls)).toEqual(['redis', 'postgres', 'documents']);
  for (const url of Object.values(third.urls))
    expect(await send(new URL('/health', url), { method: 'GET' })).toMatchObject({ status: 503 });

  // Both layouts are behind the address: sessions go on, and new ones begin, with some tries more.
  address.to(third, first, first, first);
  const late = await each(async (kind) => {
    for (let tries = 0; ; tries++)
      try {
        return await enter('late', kind);
      } catch (error) {
        expect(tries).toBeLessThan(20);
        expect(String(error)).toMatch(/try again later|The session store is unavailable/);
      }
  });
  for (const group of [walking, late])
    for (const shopper of group)
      await shopper.step(group === walking ? 'cart.checkout' : 'cart.add_item');

  // The last instance of today lets its step end, and goes. Nothing of it is known as over.
  tell(first, 'go on');
  expect(await Promise.all(ending)).toEqual(KINDS.map(() => true));
  await tell(first, 'end');
  address.to(third);
  const told = (what: string, own: number): RegExp =>
    new RegExp(`${what} format ${own}.*knows format ${own + 1}`);
  expect(third.logged()).toMatch(told('Redis has under this prefix is in', LAYOUT));
  expect(third.logged()).toMatch(told('schema .* has', LAYOUT));
  expect(third.logged()).toMatch(
    new RegExp(`a document has layout ${LAYOUT}.*knows layout ${LAYOUT + 1}`),
  );
  const before = readFileSync(places.ledger, 'utf8');
  for (const shopper of shoppers) {
    expect(await shopper.try('cart.pay')).toBe(false);
    expect(await shopper.try('cart.checkout')).toBe(false);
    await expect(shopper.client.tools(), shopper.kind).rejects.toThrow(REFUSED);
  }
  expect(readFileSync(places.ledger, 'utf8')).toBe(before);
  for (const { refusals } of shoppers)
    for (const refusal of refusals) expect(refusal).toMatch(REFUSED);

  // Back to today: all goes on where it was, and the held steps are found and resolved.
  const fourth = await startOwn();
  const todays = stores();
  address.to(fourth);
  await kill(third.child);
  for (const shopper of held) {
    expect(await shopper.try('cart.checkout')).toBe(false);
    expect(shopper.refusals.at(-1)).toContain('unknown');
    const runs = runsOf(checkoutGate(), { store: todays[shopper.kind], onError() {} });
    const { runs: found } = await runs.held();
    expect(found).toMatchObject([{ status: 'held', claim: { tool: 'cart.checkout' } }]);
    expect(await runs.resolve(found[0]?.run ?? '', 'succeeded')).toMatchObject({ resolved: true });
  }
  await Promise.all(late.map((shopper) => shopper.step('cart.checkout')));
  await Promise.all(shoppers.map((shopper) => shopper.step('cart.pay')));

  const names = ['walking', 'working', 'held', 'late'];
  const steps = ['cart.add_item', 'cart.checkout', 'cart.pay'];
  const wanted = KINDS.flatMap((kind) =>
    names.flatMap((name) => steps.map((tool) => `${kind} ${name} ${tool}`)),
  );
  const ledger = readFileSync(places.ledger, 'utf8').trim().split('\n');
  expect(ledger.sort()).toEqual(wanted.sort());
}, 180_000);
