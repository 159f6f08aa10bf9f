/** How a server of the benchmark is built. */
export interface Setup {
  readonly variant: 'bare' | 'gated';
  readonly sdk: 'v1' | 'v2';
  /**
   * `stateful`: a transport for each session. `stateless`: a server and a transport for each
   * request. SDK v2 is stateless.
   */
  readonly mode: 'stateful' | 'stateless';
  readonly answers: 'sse' | 'json';
  readonly tools: number;
  /** Whether `express.json()` stands in front. Default `true`. */
  readonly parser?: boolean;
}

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
}

const call = (name: string): Sent => {
  return { method: 'tools/call', params: { name, arguments: { sku: 'a-1', quantity: 2 } } };
};
const list: Sent = { method: 'tools/list', params: {} };

/** Each call moves its run: there and back. */
const STEPS = [call('cart.add_item'), call('cart.clear')];

const KIND = { sdk: 'v1', mode: 'stateful', answers: 'json', tools: 100 } as const;

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
  { ...KIND, name: 'ungated call after steps', requests: [call('cart.view')], before: STEPS },
];

const OTHERS = {
  SSE: { ...KIND, answers: 'sse' },
  'stateless server': { ...KIND, mode: 'stateless' },
  'SDK v2': { ...KIND, sdk: 'v2', mode: 'stateless' },
} as const;

/** The other kinds of server, and lists of other lengths. */
export const FULL: readonly Workload[] = [
  ...Object.entries(OTHERS).flatMap(([kind, other]) =>
    REQUESTS.map((each) => ({ ...other, ...each, name: `${each.name}, ${kind}` })),
  ),
  ...[10, 1_000].map((tools) => {
    return { ...KIND, tools, name: `tools/list of ${tools}`, requests: [list] };
  }),
];
