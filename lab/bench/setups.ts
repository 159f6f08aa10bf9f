/** How a server of the benchmark is built. */
export interface Setup {
  /** `floor` has a gate in one file in front: what any gate must cost at least. */
  readonly variant: 'bare' | 'gated' | 'floor';
  readonly sdk: 'v1' | 'v2';
  /**
   * `stateful`: a transport for each session. `stateless`: a server and a transport for each
   * request. SDK v2 is stateless.
   */
  readonly mode: 'stateful' | 'stateless';
  readonly answers: 'sse' | 'json';
  /** How many tools the server has. */
  readonly tools: number;
  /** Whether `express.json()` stands in front. Default `true`. */
  readonly parser?: boolean;
  /** Whether the server imports `mcp-interlock/ambient`. */
  readonly ambient?: boolean;
  /** Whether the gate answers lists from its cache. */
  readonly listCache?: boolean;
  /** Where runs are kept. The bare server's handler does one get and one set there. */
  readonly store?: StoreName;
  /** How many milliseconds the handlers of `cart.price` and `cart.view` take. Default none. */
  readonly lookupMs?: number;
  /** How many tools are bound beside those of the requests, and not available. Default none. */
  readonly bound?: number;
  /** Whether the gate is made of rules, and what they ask. Default: a machine. */
  readonly rules?: 'plain' | 'windows and sums';
  /** Whether the gate only observes. */
  readonly observes?: boolean;
  /** Whether `stateSync()` stands behind the gate. Default `true`. */
  readonly syncs?: boolean;
  /** How many states the workflow has beside those of the requests. Default none. */
  readonly states?: number;
}

export const STORE_NAMES = ['SQLite', 'Redis', 'PostgreSQL'] as const;
export type StoreName = (typeof STORE_NAMES)[number];

/** What a client sends, but for its id. */
export interface Sent {
  readonly method: 'tools/list' | 'tools/call';
  readonly params: Record<string, unknown>;
}

/** What is measured: requests, sent in turn again and again, to one kind of server. */
export interface Workload extends Omit<Setup, 'variant'> {
  readonly name: string;
  readonly requests: readonly Sent[];
  /** Whether the gated server refuses them. The bare one runs the tool. */
  readonly isRefused?: boolean;
  /** Sent some hundred times before anything is measured. */
  readonly before?: readonly Sent[];
  /** One client sends them all at once, again and again: each turn of its is timed by the clock. */
  readonly isSideBySide?: boolean;
  /** Measured on Node 24. */
  readonly onNode24?: boolean;
}

const call = (name: string, more: Record<string, unknown> = {}): Sent => {
  return { method: 'tools/call', params: { name, arguments: { sku: 'a-1', ...more } } };
};
const list: Sent = { method: 'tools/list', params: {} };

/** Each call moves its run: there and back. */
const STEPS = [call('cart.add_item'), call('cart.clear')];

export const KIND = { sdk: 'v1', mode: 'stateful', answers: 'json', tools: 100 } as const;

const REQUESTS = [
  { name: 'ungated call', requests: [call('cart.view')] },
  { name: 'bound call without event', requests: [call('cart.price')] },
  { name: 'step', requests: STEPS },
  { name: 'refusal', requests: [call('cart.pay')], isRefused: true },
  { name: 'tools/list of 100', requests: [list] },
] as const;

/** One kind of server: an app with a stateful server of SDK v1 that answers in JSON. */
export const DEFAULT: readonly Workload[] = [
  ...REQUESTS.map((each) => ({ ...KIND, ...each })),
  { ...KIND, name: 'step with ambient', requests: STEPS, ambient: true },
  { ...KIND, name: 'ungated call after steps', requests: [call('cart.view')], before: STEPS },
  ...[100, 1_000].map((tools) => {
    return {
      ...KIND,
      name: `tools/list of ${tools}, cached`,
      requests: [list],
      tools,
      listCache: true,
    };
  }),
  {
    ...KIND,
    name: 'five lookups side by side',
    // Two of the bound tool without an event, three of one that no binding names.
    requests: ['cart.price', 'cart.view', 'cart.price', 'cart.view', 'cart.view'].map((name) =>
      call(name),
    ),
    lookupMs: 200,
    isSideBySide: true,
  },
];

const OTHERS = {
  SSE: { ...KIND, answers: 'sse' },
  'stateless server': { ...KIND, mode: 'stateless' },
  'SDK v2': { ...KIND, sdk: 'v2', mode: 'stateless' },
  'Node 24': { ...KIND, onNode24: true },
} as const;

/** The same steps under rules. What they cost is compared with each other. */
export const RULED: Workload = {
  ...KIND,
  name: 'step of rules',
  requests: ['cart.add_item', 'cart.clear'].map((name) => call(name, { quantity: 2 })),
};

/** A call that an enforcing gate refuses. */
export const PAY: Workload = {
  ...KIND,
  name: 'call out of order',
  requests: [call('cart.pay')],
  isRefused: true,
};

/** What an observing gate costs, beside an enforcing one: each is compared with the one before. */
export const OBSERVED: readonly (readonly [enforced: Workload, observed: Workload])[] = [
  [
    { ...KIND, name: 'bound call without event', requests: [call('cart.price')] },
    { ...KIND, name: 'observed step', requests: STEPS, observes: true },
  ],
  [
    { ...KIND, name: 'step', requests: STEPS },
    { ...KIND, name: 'observed step', requests: STEPS, observes: true },
  ],
  [
    { ...KIND, name: 'ungated call', requests: [call('cart.view')] },
    { ...KIND, name: 'observed ungated call', requests: [call('cart.view')], observes: true },
  ],
];

/** The other kinds of server, lists of other lengths, and the stores that outlive a process. */
export const FULL: readonly Workload[] = [
  ...Object.entries(OTHERS).flatMap(([kind, other]) =>
    REQUESTS.map((each) => ({ ...other, ...each, name: `${each.name}, ${kind}` })),
  ),
  ...[10, 1_000].map((tools) => {
    return { ...KIND, tools, name: `tools/list of ${tools}`, requests: [list] };
  }),
  ...STORE_NAMES.map((store) => ({ ...KIND, name: `step on ${store}`, requests: STEPS, store })),
];

/** The same calls, with more and more of one thing in the workflow. */
export const GROWING_WORKFLOWS = [
  { thing: 'bound', name: 'bound tools', counts: [10, 100, 1_000, 10_000] },
  { thing: 'states', name: 'states', counts: [10, 100, 1_000] },
] as const;

/** What a decision is made about. */
export const DECIDED = REQUESTS.slice(0, 4);

/** An answer of so many bytes. */
export function largeAnswer(answers: Setup['answers'], bytes: number): Workload {
  const requests = [call('cart.report', { bytes })];
  const size = `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  const name = `answer of ${size}, ${answers === 'sse' ? 'SSE' : 'JSON'}`;
  return { ...KIND, answers, tools: 10, name, requests };
}

/** A step beside streams that stay open; few tools, since each session has a server. */
export const BESIDE_STREAMS: Workload = { ...KIND, tools: 10, name: 'step', requests: STEPS };
