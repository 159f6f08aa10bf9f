import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import {
  type ListCacheOptions,
  principalKey,
  StateMachineGate,
  sessionKey,
} from '../../src/index.ts';
import { ManualClock } from '../../test/helpers/manual-clock.ts';
import { type Asked, Door, STATELESS, saysOfItself } from './door.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

/** How the app is made, and on what the upstream's lists depend beside what HTTP names. */
interface World {
  /** `auth`: the token says who calls. `named`: the app says. `open`: the app cannot tell. */
  readonly callers: 'auth' | 'named' | 'open';
  readonly listCache: Omit<ListCacheOptions, 'vary'> | true;
  /** The app says that the list depends on the client's address, too. */
  readonly varies: boolean;
  /** What the upstream says of its lists, in HTTP and in MCP. */
  readonly says: Readonly<Record<string, string>>;
  readonly hint: { readonly ttlMs?: number; readonly cacheScope?: string };
}

/** Two tokens of one user, with other rights; one of another user; and none. */
const TOKENS = [undefined, 'ann read', 'ann write', 'bob read'];
const INFOS = [
  { name: 'one', version: '1' },
  { name: 'one', version: '2' },
];
/** Of these no two requests share a list where they differ. */
const REVEALING: readonly (readonly [string, string])[] = [
  ['x-tenant', 'a'],
  ['x-tenant', 'b'],
  ['accept-language', 'de'],
  ['x-forwarded-host', 'other.example'],
  ['origin', 'https://page.example'],
  ['user-agent', 'one'],
  ['x-api-key', 'k'],
];
/** These may differ: no list depends on them, unless the app or the answer says so. */
const HARMLESS: readonly (readonly [string, string])[] = [
  ['x-real-ip', '10.0.0.1'],
  ['x-real-ip', '10.0.0.2'],
  ['x-request-id', '1'],
  ['traceparent', '00-1'],
  ['priority', 'u=1'],
];
const PARAMS = [
  '"cursor":"p2"',
  '"cursor":"__proto__"',
  '"cursor":""',
  '"cursor":null',
  '"cursor":7',
  '"_meta":{"progressToken":1}',
  '"_meta":{"x":1}',
  '"filter":"a"',
];

const usually = <T>(usual: T, others: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ weight: 7, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: others });

const client = fc.record({
  era: fc.constantFrom('session', 'session', 'stateless'),
  token: fc.nat(TOKENS.length - 1),
  info: usually(0, fc.constant(1)),
  cookie: usually<string | undefined>(undefined, fc.constantFrom('sid=1', 'sid=2')),
} as const);
type Client = typeof client extends fc.Arbitrary<infer T> ? T : never;

const command = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant('list'),
      who: fc.nat(3),
      // Seldom anything odd: most requests must agree, so that lists are kept at all.
      params: usually('', fc.constantFrom(...PARAMS)),
      headers: usually<readonly (readonly [string, string])[]>(
        [],
        fc.array(fc.constantFrom(...REVEALING, ...HARMLESS), { maxLength: 2 }),
      ),
      /** Another token than the client's usual one. */
      token: usually<number | undefined>(undefined, fc.constantFrom(1, 2, 3)),
      path: usually('/mcp', fc.constantFrom('/mcp?tenant=a', '/mcp?tenant=b', '/mcp/', '/MCP')),
    } as const),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('move'), who: fc.nat(3) } as const) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('wait'),
      ms: fc.constantFrom(1, 99, 100, 4_999, 5_001, 60_000),
    } as const),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('anew'), who: fc.nat(3) } as const) },
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

const play = fc.record({
  world: fc.record({
    callers: fc.constantFrom('auth', 'named', 'named', 'open'),
    listCache: fc.constantFrom<World['listCache']>(true, true, { ttlMs: 100 }, { shared: true }),
    varies: fc.boolean(),
    says: fc.constantFrom<World['says']>(
      ...[
        {},
        {},
        {},
        {},
        { 'cache-control': 'private' },
        { 'cache-control': 'max-age=1, no-store' },
      ],
      ...[
        { vary: 'x-real-ip' },
        { vary: 'Origin, Accept' },
        { vary: '*' },
        { 'set-cookie': 'a=b' },
      ],
    ),
    hint: fc.constantFrom<World['hint']>(
      ...[{}, {}, { ttlMs: 100 }, { ttlMs: 60_000, cacheScope: 'public' }],
      ...[{ ttlMs: 100, cacheScope: 'private' }, { cacheScope: 'public' }],
    ),
  } as const),
  // Two of them differ in as little as can be from the other two.
  clients: fc
    .tuple(client, client, fc.nat(TOKENS.length - 1), fc.nat(1))
    .map(([one, two, token, info]) => [one, two, { ...one, token }, { ...two, info }] as const),
  commands: fc.array(command, { minLength: 5, maxLength: 25, size: 'max' }),
});
type Play = typeof play extends fc.Arbitrary<infer T> ? T : never;

/** How many lists were asked for, and how many of them the cache gave. */
let lists = 0;
let kept = 0;

/**
 * The same requests go to a gate that keeps lists and to one that keeps none, with twins of one
 * upstream. Its list is another one for each difference that an upstream may see.
 */
export const listCache: Target = {
  name: 'list-cache',
  what: 'a gate that keeps lists gives each request the list that a gate without a cache gives it',
  inputs: 40,
  async open(): Promise<OpenTarget> {
    return {
      property: fc.asyncProperty(play, playOut),
      describe,
      // A cache that keeps nothing would be right, and nothing would be proven.
      close: async () => {
        if (kept * 100 < lists)
          broken('the cache answers next to no request', `${kept} of ${lists}`);
      },
    };
  },
};

async function playOut({ world, clients, commands }: Play): Promise<void> {
  const clock = new ManualClock();
  const [cached, plain] = [new Side(world, clock, true), new Side(world, clock, false)];
  for (const each of commands) {
    if (each.kind === 'wait') {
      clock.advance(each.ms);
      continue;
    }
    const who = clients[each.who] as Client;
    if (each.kind === 'anew') {
      for (const side of [cached, plain]) await side.end(each.who, who);
    } else if (each.kind === 'move') {
      const [one, other] = [await cached.move(each.who, who), await plain.move(each.who, who)];
      if (one !== other) broken('a call came to something else where lists are kept', one);
    } else {
      const [one, other] = [await cached.list(each, who), await plain.list(each, who)];
      if (one !== other)
        broken(
          'a request got a list that a gate without a cache does not give it',
          `${one}\n  and not ${other}`,
        );
    }
  }
  lists += plain.lists;
  kept += plain.lists - cached.lists;
}

/** A gate with its upstream. */
class Side {
  readonly #world: World;
  readonly #door: Door;
  readonly #sessions = new Map<number, Record<string, string>>();
  /** What the clients of the sessions said of themselves. */
  readonly #infos = new Map<string, unknown>();
  #begun = 0;
  /** How many lists the upstream has given. */
  lists = 0;

  constructor(world: World, clock: ManualClock, isCached: boolean) {
    this.#world = world;
    const { callers, varies, listCache: options } = world;
    const own = options === true ? {} : options;
    const vary = (req: { headers: Record<string, unknown> }) => String(req.headers['x-real-ip']);
    const gate = new StateMachineGate({
      id: 'cart',
      initial: 'empty',
      states: { empty: { on: { ADD: 'filled' } }, filled: { on: { ADD: 'empty' } } },
    })
      .bindTool('cart.add', ['empty', 'filled'], 'ADD')
      .bindTool('cart.pay', 'filled');
    this.#door = new Door({
      gate,
      gateOptions: {
        clock,
        visibility: 'hide',
        listCache: isCached && { ...own, ...(varies && { vary }) },
      },
      sessions: {
        clock,
        key: [sessionKey(), principalKey()],
        ...(callers === 'named' && {
          principal: ({ headers }) => /^Bearer (\w+)/.exec(String(headers.authorization))?.[1],
        }),
      },
      ...(callers === 'auth' && { auth: authOf }),
      answer: (asked) => this.#answer(asked),
    });
  }

  #answer({ message, request, headers }: Asked): object {
    if (message.method === 'initialize') {
      const session = `s-${this.#begun++}`;
      this.#infos.set(session, message.params.clientInfo);
      headers.set('mcp-session-id', session);
      return {};
    }
    if (message.method !== 'tools/list') return { resultType: 'complete', content: [] };
    this.lists++;
    const { says, hint } = this.#world;
    for (const [name, value] of Object.entries(says)) headers.set(name, value);
    const name = `t-${createHash('sha256').update(this.#dependsOn(message, request)).digest('hex').slice(0, 12)}`;
    const tools = ['cart.add', name, 'cart.pay'].map((each) => ({
      name: each,
      inputSchema: { type: 'object' },
    }));
    return { resultType: 'complete', ...hint, tools };
  }

  /** All that this upstream's list depends on, as text. */
  #dependsOn(message: Asked['message'], request: Request): string {
    const { callers, varies, listCache: options, says, hint } = this.#world;
    const { 'cache-control': control = '', vary = '' } = says;
    // An upstream that says `public` gives all callers the same list, unless HTTP says otherwise.
    const isShared = (options !== true && options.shared === true) || hint.cacheScope === 'public';
    const isForAll = isShared && !control.includes('private');
    const { params = {} } = message;
    const seen: unknown[] = [request.url, params.cursor, params.filter];
    const session = request.headers.get('mcp-session-id');
    // Each request has another progress token.
    const { progressToken: _, ...meta } = params._meta ?? {};
    seen.push(meta, session === null ? undefined : this.#infos.get(session));
    for (const [name, value] of [...request.headers].sort()) {
      const isAddress = name === 'x-real-ip';
      if (isAddress && (varies || vary === '*' || vary === name)) seen.push([name, value]);
      if (REVEALING.some(([known]) => known === name)) seen.push([name, value]);
    }
    if (isForAll) return JSON.stringify(seen);
    const credentials = ['authorization', 'cookie'].map((name) => request.headers.get(name));
    // Where the app has read the token, the list depends on what it says alone.
    const auth = callers === 'auth' ? authOf(request) : undefined;
    return JSON.stringify([...seen, auth?.extra ?? credentials]);
  }

  async list(
    { who, params, headers, token, path }: Extract<Command, { kind: 'list' }>,
    { era, ...client }: Client,
  ): Promise<string> {
    const own = await this.#headersOf(who, { era, ...client });
    const meta = JSON.stringify(saysOfItself(INFOS[client.info]));
    const given =
      era === 'session'
        ? params
        : params.includes('_meta')
          ? `"_meta":${meta.slice(0, -1)},${params.slice(9)}`
          : [params, `"_meta":${meta}`].filter(Boolean).join();
    const text = `{"jsonrpc":"2.0","id":${who + 1},"method":"tools/list","params":{${given}}}`;
    const other = TOKENS[token ?? 0];
    const all = {
      ...own,
      ...(other !== undefined && { authorization: `Bearer ${other}` }),
      ...(era === 'stateless' && { 'mcp-method': 'tools/list' }),
      ...Object.fromEntries(headers),
    };
    const { status, message } = await this.#door.post(text, all, path);
    // How long it is still good is less by its age.
    const { ttlMs: _, ...result } = message?.result ?? {};
    return JSON.stringify([status, message?.id, message?.error, result]);
  }

  /** Moves the client's run. */
  async move(who: number, client: Client): Promise<string> {
    const own = await this.#headersOf(who, client);
    const meta = client.era === 'session' ? '' : `,"_meta":${JSON.stringify(saysOfItself())}`;
    const { status, message } = await this.#door.ask(
      'tools/call',
      `{"name":"cart.add","arguments":{}${meta}}`,
      client.era === 'session'
        ? own
        : { ...own, 'mcp-method': 'tools/call', 'mcp-name': 'cart.add' },
    );
    return JSON.stringify([status, message?.result?.isError, message?.error?.code]);
  }

  async end(who: number, { era }: Client): Promise<void> {
    const session = this.#sessions.get(who);
    if (era === 'stateless' || session === undefined) return;
    await this.#door.end(session);
    this.#sessions.delete(who);
  }

  async #headersOf(who: number, { era, token, info, cookie }: Client) {
    // An app that cannot tell its callers has none with credentials: it keeps no lists of those.
    const bearer = this.#world.callers === 'open' ? undefined : TOKENS[token];
    const own: Record<string, string> = {
      ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
      ...(cookie !== undefined && { cookie }),
    };
    if (era === 'stateless') return { ...own, 'mcp-protocol-version': STATELESS };
    const known = this.#sessions.get(who) ?? (await this.#door.begin(own, INFOS[info]));
    this.#sessions.set(who, known);
    return known;
  }
}

function authOf(request: Request) {
  const [, sub, scope] =
    /^Bearer (\w+) (\w+)$/.exec(request.headers.get('authorization') ?? '') ?? [];
  if (sub === undefined) return undefined;
  return { scopes: [scope], extra: { iss: 'https://issuer.example', sub, scope } };
}

function describe({ world, clients, commands }: Play): string {
  return [world, ...clients, ...commands].map((each) => `  ${JSON.stringify(each)}`).join('\n');
}
