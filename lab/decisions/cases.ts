/**
 * Draws cases: a route with its gates, and what clients, operators and time do to it. Hides how
 * often each thing comes, so that each kind of refusal is met. A case is JSON: functions are names.
 */
import { type Random, seeded } from '../checker/random.ts';

/** A workflow without its bindings. */
export type MachineSpec =
  | {
      readonly kind: 'flat';
      readonly states: Readonly<Record<string, FlatState>>;
      readonly initial: string;
    }
  | { readonly kind: 'chart'; readonly shape: 'regions' | 'nested'; readonly odd: boolean }
  | { readonly kind: 'order'; readonly rules: Readonly<Record<string, object>> };

interface FlatState {
  readonly on?: Readonly<Record<string, string>>;
  readonly after?: Readonly<Record<number, string>>;
  readonly type?: 'final';
}

/** A binding, whose functions are names that the player knows. */
export interface BindingSpec {
  readonly tool: string;
  readonly states: readonly unknown[];
  readonly success?: string;
  readonly failure?: string;
  readonly retries?: number;
  readonly errors?: string;
  readonly guard?: string;
  readonly visible?: string;
  readonly when?: string;
  readonly uncertain?: 'hold' | 'retry';
  readonly limit?: object;
}

/** A binding of a prompt, or of resources by a pattern. */
export interface ReadSpec {
  readonly prompt?: string;
  readonly pattern?: string;
  readonly states: readonly unknown[];
  readonly guard?: string;
  readonly visible?: string;
}

export interface GateSpec {
  readonly id: string;
  readonly machine: MachineSpec;
  readonly bindings: readonly BindingSpec[];
  readonly reads: readonly ReadSpec[];
  readonly shield?: object;
  readonly version?: number;
  readonly begin?: string;
  /** The other options of `fsmGate()`. */
  readonly mount: Readonly<Record<string, unknown>>;
}

/** One client; several may have one principal. */
export interface ClientSpec {
  readonly era: 'session' | 'stateless';
  readonly principal?: string;
}

export interface RouteSpec {
  readonly gates: readonly GateSpec[];
  readonly key: readonly KeyName[];
  /** The other options of `sessionStore()`. */
  readonly session: Readonly<Record<string, unknown>>;
  readonly clients: readonly ClientSpec[];
  /** What the upstream says of its tools. */
  readonly tools: readonly object[];
}

export type KeyName = 'session' | 'principal' | 'handle' | 'managed';

/** What a tool does. `latched`: it stays open until a step of the case lets it answer. */
export type Deed =
  | 'ok'
  | 'error'
  | 'rpc-error'
  | 'dies'
  | 'latched'
  | 'updates'
  | 'doubts'
  | 'asks'
  | 'limited';

/** One message of a client. The arguments are JSON text, since they may be no proper JSON value. */
export interface Message {
  readonly method: string;
  readonly params: string;
  readonly deed: Deed;
  /** For the name header of the stateless era. */
  readonly name?: string;
}

export type Operation =
  | {
      readonly do: 'send';
      readonly client: number;
      readonly messages: readonly Message[];
      readonly header?: string;
    }
  | { readonly do: 'cancel'; readonly client: number }
  | { readonly do: 'release'; readonly deed: Deed }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'end'; readonly client: number }
  | { readonly do: 'store'; readonly fails: 'none' | 'all' | 'claim' | 'read' | 'commit' }
  | { readonly do: 'outdate'; readonly client: number; readonly gate: number }
  | { readonly do: 'reboot' }
  | { readonly do: 'close' }
  | {
      readonly do: 'run';
      readonly client: number;
      readonly gate: number;
      readonly what: string;
      readonly argument?: string;
    };

export interface Case {
  readonly seed: number;
  readonly route: RouteSpec;
  readonly operations: readonly Operation[];
}

export const TOOLS = ['t0', 't1', 't2', 't3', 't4', 't5'] as const;
const EVENTS = ['E0', 'E1', 'E2', 'E3'] as const;
const STATES = ['s0', 's1', 's2', 's3', 's4'] as const;
const PROMPTS = ['p0', 'p1', 'p2'] as const;
const URIS = [
  ...['docs://a/1', 'docs://a/2', 'docs://b/1', 'docs://c', 'docs://a/../a/1', 'DOCS://a/1', 'nil'],
];

/** The case of a seed, always the same. */
export function drawCase(seed: number): Case {
  const random = seeded(seed, 'decisions');
  const route = drawRoute(random);
  const operations: Operation[] = [];
  const most = random.between(5, 30);
  while (operations.length < most) operations.push(...drawOperations(random, route));
  return { seed, route, operations: operations.slice(0, 30) };
}

/** One of them; the first weight belongs to the first one. */
function weighted<T>(
  random: Random,
  choices: readonly (readonly [weight: number, choice: T])[],
): T {
  let at = random.between(
    1,
    choices.reduce((sum, [weight]) => sum + weight, 0),
  );
  for (const [weight, choice] of choices) {
    at -= weight;
    if (at <= 0) return choice;
  }
  throw new RangeError('there is nothing to pick from');
}

function some<T>(random: Random, items: readonly T[], most: number): T[] {
  return random.shuffled(items).slice(0, random.between(1, Math.min(most, items.length)));
}

/** A member that is there by chance. */
function maybe<K extends string, T>(
  random: Random,
  probability: number,
  key: K,
  value: () => T,
): { readonly [key in K]?: T } {
  return random.chance(probability) ? ({ [key]: value() } as { readonly [key in K]: T }) : {};
}

function drawRoute(random: Random): RouteSpec {
  const count = random.chance(0.3) ? 2 : 1;
  const isSecret = random.chance(0.25);
  const hasStatus = !isSecret && random.chance(0.4);
  const gates = Array.from({ length: count }, (_, i) =>
    drawGate(random, i === 0 ? 'one' : 'two', { isSecret, hasStatus }),
  );
  // Only the last gate of a route may refuse what none binds.
  const last = gates.at(-1);
  if (last !== undefined && random.chance(0.15))
    gates.splice(-1, 1, { ...last, mount: { ...last.mount, unbound: 'refuse' } });
  const key = weighted<readonly KeyName[]>(random, [
    [8, ['session']],
    [5, ['principal']],
    [4, ['session', 'principal']],
    [1, ['handle']],
    [1, ['managed']],
    [1, ['handle', 'session']],
  ]);
  // A caller without a run of its own is refused whatever it calls.
  const needsPrincipal = !key.includes('session') ? 0.95 : 0.6;
  const clients = Array.from(
    { length: random.between(1, 3) },
    (): ClientSpec => ({
      era: random.chance(key.length === 1 && key[0] === 'session' ? 0.06 : 0.45)
        ? 'stateless'
        : 'session',
      ...maybe(random, needsPrincipal, 'principal', () => (random.chance(0.75) ? 'ann' : 'bob')),
    }),
  );
  const tools = [...TOOLS, 'free', 'make'].map((name) => ({
    name,
    inputSchema: {
      type: 'object',
      properties: random.chance(0.15) ? { act: { type: 'string', 'x-mcp-header': 'Act' } } : {},
    },
    ...maybe(random, 0.3, 'annotations', () => ({ idempotentHint: true })),
  }));
  const session = {
    ...maybe(random, 0.35, 'maxHeldPerCaller', () => 1),
    ...maybe(random, 0.1, 'maxHeld', () => 2),
    ...maybe(random, 0.15, 'idleMs', () => 60_000),
    ...maybe(random, 0.15, 'sessionCacheMs', () => 0),
  };
  // An upstream may lack a tool that is bound.
  const listed = random.chance(0.1) ? tools.filter(({ name }) => name !== 't1') : tools;
  return { gates, key, session, clients, tools: listed };
}

function drawGate(
  random: Random,
  id: string,
  { isSecret, hasStatus }: { readonly isSecret: boolean; readonly hasStatus: boolean },
): GateSpec {
  const machine = drawMachine(random);
  const tools = machine.kind === 'order' ? ['t4', 't5'] : some(random, TOOLS, 5);
  const isOpen = random.chance(0.3);
  const bindings = tools.flatMap((tool) => drawBindings(random, machine, tool, isOpen));
  const reads = random.chance(0.4)
    ? Array.from({ length: random.between(1, 3) }, () => drawRead(random, machine))
    : [];
  const visibility = weighted<'hide' | 'stable' | undefined>(random, [
    [isSecret ? 1 : 4, undefined],
    [isSecret ? 6 : 2, 'hide'],
    [isSecret ? 1 : 3, 'stable'],
  ]);
  return {
    id,
    machine,
    bindings: machine.kind === 'order' && random.chance(0.6) ? [] : bindings,
    reads,
    ...maybe(random, 0.22, 'shield', () => drawShield(random, machine)),
    ...maybe(random, 0.2, 'version', () => random.between(1, 3)),
    ...maybe(random, 0.3, 'begin', () =>
      weighted(random, [
        [9, 'n5'],
        [4, 'principal'],
        [2, 'throws'],
        [1, 'never'],
        [1, 'odd'],
      ]),
    ),
    mount: {
      ...(visibility !== undefined && { visibility }),
      ...(isSecret && { refusal: 'unknown-tool' }),
      ...(hasStatus && { statusTool: 'status' }),
      ...maybe(random, 0.3, 'whenEnded', () => random.pick(['keep', 'restart'])),
      ...maybe(random, 0.2, 'announce', () => true),
      ...maybe(random, 0.3, 'trail', () => ({ refusals: true })),
      ...maybe(random, 0.3, 'waitMs', () => random.pick([1, 500, 3_000, 20_000])),
      ...maybe(random, 0.15, 'maxWaiting', () => random.between(0, 1)),
      ...maybe(random, 0.15, 'maxStepMs', () => 30_000),
      ...maybe(random, 0.1, 'leaseMs', () => 2_000),
      ...maybe(random, 0.2, 'listCache', () => random.chance(0.5)),
    },
  };
}

function drawShield(random: Random, machine: MachineSpec): object {
  const mode = random.pick([undefined, 'repeated', 'consecutive']);
  const event = machine.kind === 'order' ? 't1' : 'E0';
  const isState = machine.kind === 'flat' && random.chance(0.6);
  return {
    max: random.between(1, 3),
    ...(mode !== undefined && { mode }),
    ...(mode === 'repeated' && maybe(random, 0.4, 'sameArguments', () => true)),
    ...maybe(random, 0.3, 'window', () => 20_000),
    fallback: isState ? { state: machine.initial } : { event },
  };
}

function drawMachine(random: Random): MachineSpec {
  const kind = weighted(random, [
    [6, 'flat' as const],
    [3, 'chart' as const],
    [2, 'order' as const],
  ]);
  if (kind === 'chart')
    return { kind, shape: random.pick(['regions', 'nested']), odd: random.chance(0.1) };
  if (kind === 'order') return { kind, rules: drawRules(random) };
  const names = STATES.slice(0, random.between(2, STATES.length));
  const states = names.map((name, i): [string, FlatState] => {
    if (i > 0 && random.chance(0.2)) return [name, { type: 'final' }];
    const on = EVENTS.filter(() => random.chance(0.55)).map((event) => [event, random.pick(names)]);
    const after = maybe(random, 0.2, 'after', () => ({
      [random.pick([1_000, 15_000, 40_000])]: random.pick(names),
    }));
    return [name, { on: Object.fromEntries(on), ...after }];
  });
  // A binding may send only what some state handles.
  const handled = new Set(states.flatMap(([, { on = {} }]) => Object.keys(on)));
  const missing = EVENTS.filter((event) => !handled.has(event));
  const more = missing.map((event) => [event, random.pick(names)] as const);
  const [[first, start] = ['s0', {}]] = states;
  states[0] = [first, { ...start, on: { ...start.on, ...Object.fromEntries(more) } }];
  return { kind, states: Object.fromEntries(states), initial: 's0' };
}

/** Each tool needs only tools before it, so that each can be called. */
function drawRules(random: Random): Readonly<Record<string, object>> {
  const rules = TOOLS.slice(0, 4).map((tool, i): [string, object] => {
    const earlier = TOOLS.slice(0, i);
    const one = (): unknown =>
      random.chance(0.35)
        ? {
            tool: random.pick(earlier),
            ...maybe(random, 0.6, 'same', () => ['act']),
            ...maybe(random, 0.4, 'consumes', () => true),
          }
        : random.pick(earlier);
    const after =
      i === 0
        ? undefined
        : weighted<() => unknown>(random, [
            [3, one],
            [1, () => [one(), one()]],
            [1, () => ({ any: [one(), one()] })],
            [1, () => ({ all: [one(), { any: [one(), one()] }] })],
          ])();
    return [
      tool,
      {
        ...(after !== undefined && { after }),
        // The fallback of a shield must be an event: a tool that the run remembers.
        ...maybe(random, tool === 't1' ? 1 : 0.2, 'once', () => true),
        ...(tool !== 't3' && maybe(random, 0.15, 'undoneBy', () => ['t3'])),
        ...maybe(random, 0.15, 'errors', () => 'unknown'),
        ...maybe(random, 0.15, 'limit', () => drawLimit(random)),
        ...(i > 0 && maybe(random, 0.1, 'notAfter', () => drawBarring(random, earlier))),
      },
    ];
  });
  // The first tool is only named, by chance: its calls then run beside others.
  return Object.fromEntries(random.chance(0.5) ? rules.slice(1) : rules);
}

function drawStates(random: Random, machine: MachineSpec): readonly unknown[] {
  if (random.chance(0.08)) return ['*'];
  const expression = (): unknown => {
    switch (machine.kind) {
      case 'flat': {
        const names = Object.keys(machine.states);
        return random.chance(0.12) ? { not: random.pick(names) } : random.pick(names);
      }
      case 'order':
        return random.chance(0.3) ? { not: random.pick(['t1', 't2']) } : random.pick(['t1', 't2']);
      case 'chart':
        return random.pick<unknown>(
          machine.shape === 'regions'
            ? [
                'a',
                'a',
                'p',
                'p.x.x0',
                'p.y.y0',
                { tag: 'open' },
                { all: ['p.x.x1', 'p.y'] },
                'done',
              ]
            : ['a', 'a', 'b', 'b.b0', 'b.b1', { tag: 'open' }, { any: ['late', 'b.b1'] }, 'done'],
        );
    }
  };
  return Array.from({ length: random.between(1, 2) }, expression);
}

function drawBindings(
  random: Random,
  machine: MachineSpec,
  tool: string,
  isOpen: boolean,
): BindingSpec[] {
  const isGrouped = random.chance(0.3);
  const whens = isGrouped
    ? [
        ...some(random, ['act=x', 'act=y', 'act'], 2),
        ...(random.chance(0.12) ? [random.pick(['throws', 'odd'])] : []),
      ]
    : [undefined, ...(random.chance(0.15) ? [undefined] : [])];
  return whens.map(
    (when): BindingSpec => ({
      tool,
      states: drawStates(random, machine),
      ...(when !== undefined && { when }),
      ...(machine.kind !== 'order' &&
        maybe(random, 0.75, 'success', () =>
          weighted(random, [
            [8, random.pick(EVENTS)],
            [2, 'by arguments'],
            [2, 'with payload'],
            [1, 'none'],
            [1, 'throws'],
          ]),
        )),
      ...(machine.kind !== 'order' &&
        random.chance(0.25) && {
          failure: random.chance(0.7) ? random.pick(EVENTS) : 'by arguments',
          ...maybe(random, 0.4, 'retries', () => random.between(1, 2)),
        }),
      ...maybe(random, 0.1, 'errors', () => random.pick(['unknown', 'by result', 'throws'])),
      ...maybe(random, isOpen ? 0.1 : 0.35, 'guard', () =>
        weighted(random, [
          [2, 'yes'],
          [2, 'no'],
          [2, 'words'],
          [1, 'throws'],
          [1, 'odd'],
          [1, 'never'],
          [3, 'act=x'],
          [3, 'n<6'],
          [1, 'ann'],
        ]),
      ),
      ...maybe(random, isOpen ? 0.05 : 0.25, 'visible', () => drawVisible(random)),
      ...maybe(random, 0.35, 'uncertain', () => random.pick(['hold', 'hold', 'retry'] as const)),
      ...(when === undefined &&
        machine.kind !== 'order' &&
        maybe(random, isOpen ? 0.05 : 0.2, 'limit', () => drawLimit(random))),
    }),
  );
}

function drawLimit(random: Random): object {
  return weighted<object>(random, [
    [1, { times: 0 }],
    [4, { times: 1 }],
    [3, { times: 1, within: random.pick(['10s', '40s']) }],
    [2, { times: 1, same: ['act'] }],
    [2, { times: 2, outcome: 'any' }],
    [2, { sum: 'n', max: 4, when: { n: { exists: true } } }],
  ]);
}

function drawBarring(random: Random, tools: readonly string[]): object {
  return {
    tool: random.pick(tools),
    ...maybe(random, 0.5, 'same', () => ['act']),
    ...maybe(random, 0.5, 'within', () => random.pick(['10s', '40s'])),
    ...maybe(random, 0.3, 'outcome', () => random.pick(['failed', 'any'])),
  };
}

function drawVisible(random: Random): string {
  return weighted(random, [
    [1, 'yes'],
    [1, 'no'],
    [3, 'ann'],
    [3, 'n<6'],
    [1, 'throws'],
    [1, 'odd'],
    [1, 'run'],
  ]);
}

function drawRead(random: Random, machine: MachineSpec): ReadSpec {
  const about = random.chance(0.5)
    ? { prompt: random.pick(PROMPTS) }
    : { pattern: random.pick(['docs://a/1', 'docs://a/**', 'docs://*/1', 'docs://**']) };
  return {
    ...about,
    states: drawStates(random, machine),
    ...maybe(random, 0.3, 'guard', () =>
      random.pick(['yes', 'no', 'words', 'throws', 'n<6', 'ann']),
    ),
    ...maybe(random, 0.2, 'visible', () => drawVisible(random)),
  };
}

/** Arguments as a client writes them. Most are proper. */
function drawArguments(random: Random): string | undefined {
  return weighted<string | undefined>(random, [
    [16, '{}'],
    [14, '{"act":"x"}'],
    [10, '{"act":"y"}'],
    [4, '{"act":"x","event":"E1"}'],
    [4, '{"event":"E2","n":3}'],
    [3, '{"event":"nowhere"}'],
    [2, undefined],
    [2, '{"act":"x","Act":"y"}'],
    [1, '{"act":"x","act":"y"}'],
    [2, '{"act":9007199254740993}'],
    [2, '{"act":"x","n":9007199254740993}'],
    [1, `{"n":1${'0'.repeat(1_001)}}`],
    [1, `{"n":${'['.repeat(130)}${']'.repeat(130)}}`],
    [1, '{"__proto__":{"act":"x"}}'],
    [1, '{"a":{"__proto__":1}}'],
    [1, '[]'],
    [1, 'null'],
    [1, '"x"'],
  ]);
}

function drawDeed(random: Random): Deed {
  return weighted<Deed>(random, [
    [14, 'ok'],
    [3, 'error'],
    [1, 'rpc-error'],
    [1, 'dies'],
    [3, 'latched'],
    [2, 'updates'],
    [1, 'doubts'],
    [1, 'asks'],
    [1, 'limited'],
  ]);
}

function drawCall(
  random: Random,
  route: RouteSpec,
  given?: { tool?: string; deed?: Deed },
): Message {
  const bound = route.gates.flatMap(({ bindings, machine }) => [
    ...bindings.map(({ tool }) => tool),
    ...(machine.kind === 'order' ? ['t0', 't1', 't2', 't3'] : []),
  ]);
  const tool =
    given?.tool ??
    weighted<string>(random, [
      [24, random.pick([...bound, 't0'])],
      [3, random.pick(TOOLS)],
      [2, 'free'],
      [2, 'make'],
      [1, 'T0'],
      [1, 'nosuch'],
    ]);
  const deed = given?.deed ?? drawDeed(random);
  if (given === undefined && random.chance(0.015)) {
    const params = random.pick([
      '{"name":3}',
      '{}',
      '{"name":["t0"]}',
      '{"name":"t0","name":"t1"}',
      '[]',
    ]);
    return { method: 'tools/call', params, deed };
  }
  const args = withHandle(random, route, drawArguments(random));
  const text = args === undefined ? '' : `,"arguments":${args}`;
  return {
    method: 'tools/call',
    params: `{"name":${JSON.stringify(tool)}${text}}`,
    deed,
    name: tool,
  };
}

/** The player puts the handle in that the client was given. */
function withHandle(
  random: Random,
  { key }: RouteSpec,
  args: string | undefined,
): string | undefined {
  const argument = key.includes('handle') ? 'basket' : key.includes('managed') ? 'run' : undefined;
  if (argument === undefined || args === undefined || !args.startsWith('{')) return args;
  if (random.chance(0.12)) return args;
  const handle = random.chance(0.9) ? '$handle' : 'unknown-handle';
  const member = `"${argument}":"${handle}"`;
  return args === '{}' ? `{${member}}` : `{${member},${args.slice(1)}`;
}

function drawOperations(random: Random, route: RouteSpec): readonly Operation[] {
  const client = random.between(0, route.clients.length - 1);
  const gate = random.between(0, route.gates.length - 1);
  const send = (...messages: Message[]): Operation => ({ do: 'send', client, messages });
  const plain = (method: string, params = '{}', name?: string): Message => ({
    method,
    params,
    deed: 'ok',
    ...(name !== undefined && { name }),
  });
  const call = (given?: { tool?: string; deed?: Deed }): Message => drawCall(random, route, given);
  const run = (what: string, argument?: string): Operation => ({
    do: 'run',
    client,
    gate,
    what,
    ...(argument !== undefined && { argument }),
  });
  const hasStatus = route.gates[gate]?.mount.statusTool !== undefined;
  const hasReads = route.gates.some(({ reads }) => reads.length > 0);
  const isNamed = route.key.includes('handle') || route.key.includes('managed');
  return weighted<() => readonly Operation[]>(random, [
    [40, () => [send(call())]],
    [12, () => [send(plain('tools/list'))]],
    [
      2,
      () => [
        send(plain(random.pick(['prompts/list', 'resources/list', 'resources/templates/list']))),
      ],
    ],
    [hasReads ? 12 : 1, () => drawReads(random).map((message) => send(message))],
    [hasStatus ? 6 : 0, () => [send(call({ tool: 'status', deed: 'ok' }))]],
    [
      isNamed ? 10 : 0,
      () => [send(call({ tool: route.key.includes('handle') ? 'make' : 'begin', deed: 'ok' }))],
    ],
    [2, () => [send(call(), call())]],
    [2, () => [send(call(), plain('tools/list'))]],
    [1, () => [{ ...send(call()), header: random.pick(['name', 'method', 'mirror', 'version']) }]],
    [2, () => [{ do: 'cancel', client }]],
    [6, () => [{ do: 'release', deed: drawDeed(random) }]],
    [7, () => [{ do: 'wait', ms: random.pick([1, 600, 2_500, 6_000, 9_000, 16_000, 45_000]) }]],
    [1, () => [{ do: 'wait', ms: random.pick([90_000, 700_000, 90_000_000]) }]],
    [1, () => [{ do: 'end', client }]],
    [2, () => [{ do: 'outdate', client, gate }, send(call()), send(plain('tools/list'))]],
    [1, () => [{ do: 'reboot' }]],
    // Calls behind one that stays open wait, and then are busy.
    [5, () => [send(call({ deed: 'latched' })), send(call()), { do: 'wait', ms: 11_000 }]],
    [5, () => drawHeld(random, client, call)],
    [3, () => drawFault(random, send(call()), send(plain('tools/list')))],
    [1, () => [{ do: 'close' }, send(call())]],
    // A model that goes round in circles.
    [3, () => drawCircle(random, send, call)],
    [14, () => [drawRun(random, run)]],
  ])();
}

/** A step whose outcome stays unknown, and what comes after its lease. */
function drawHeld(
  random: Random,
  client: number,
  call: (given: { deed: Deed }) => Message,
): readonly Operation[] {
  const send = (...messages: Message[]): Operation => ({ do: 'send', client, messages });
  return [
    send(call({ deed: random.pick(['dies', 'doubts', 'dies']) })),
    { do: 'wait', ms: 9_000 },
    send(call({ deed: 'ok' })),
  ];
}

function drawFault(random: Random, ...during: readonly Operation[]): readonly Operation[] {
  return [
    { do: 'store', fails: random.pick(['all', 'all', 'claim', 'read', 'commit']) },
    ...during,
    { do: 'wait', ms: random.pick([1_000, 16_000]) },
    { do: 'store', fails: 'none' },
  ];
}

function drawCircle(
  random: Random,
  send: (message: Message) => Operation,
  call: (given: { tool: string; deed: Deed }) => Message,
): readonly Operation[] {
  const again = call({ tool: random.pick(TOOLS), deed: random.pick(['ok', 'error']) });
  return Array.from({ length: random.between(2, 4) }, () => send(again));
}

function drawReads(random: Random): readonly Message[] {
  const name = random.pick(PROMPTS);
  const uri = random.pick(URIS);
  const prompt: Message = {
    method: 'prompts/get',
    params: JSON.stringify({ name, arguments: { act: 'x' } }),
    deed: 'ok',
    name,
  };
  const resource: Message = {
    method: random.pick(['resources/read', 'resources/read', 'resources/subscribe']),
    params: JSON.stringify({ uri }),
    deed: 'ok',
    name: uri,
  };
  const ref = random.chance(0.5) ? { type: 'ref/prompt', name } : { type: 'ref/resource', uri };
  const complete: Message = {
    method: 'completion/complete',
    params: JSON.stringify({ ref, argument: { name: 'act', value: '' } }),
    deed: 'ok',
  };
  const odd: Message = { method: 'prompts/get', params: '{"name":7}', deed: 'ok', name: 'p0' };
  return [
    weighted(random, [
      [6, prompt],
      [6, resource],
      [2, complete],
      [1, odd],
    ]),
  ];
}

function drawRun(random: Random, run: (what: string, argument?: string) => Operation): Operation {
  return weighted<() => Operation>(random, [
    [4, () => run('read')],
    [3, () => run('explain')],
    [3, () => run('what-if', random.pick([...TOOLS, ...EVENTS, 'deadline']))],
    [6, () => run('send', random.pick([...EVENTS, 'nowhere']))],
    [2, () => run('restart')],
    [1, () => run('freeze')],
    [2, () => run('unfreeze')],
    [4, () => run('resolve', random.pick(['succeeded', 'failed', 'event', 'none']))],
    [4, () => run('update', random.pick(['n1', 'n9', 'throws']))],
    [1, () => run('begin')],
    [1, () => run('held')],
    [1, () => run('stuck')],
    [1, () => run('count')],
    [1, () => run('history')],
    [1, () => run('sweep')],
    [1, () => run('delete')],
  ])();
}
