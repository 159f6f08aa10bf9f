/** How a server of the benchmark is built. */
export interface Setup {
  readonly variant: 'bare' | 'gated';
  /** `stateful`: a transport for each session. `stateless`: a server and a transport for each request. */
  readonly mode: 'stateful' | 'stateless';
  readonly answers: 'sse' | 'json';
  readonly tools: number;
  /** Whether `express.json()` stands in front. Default `true`. */
  readonly parser?: boolean;
}

/** What is measured: one request, sent again and again, to one kind of server. */
export interface Workload extends Omit<Setup, 'variant'> {
  readonly name: string;
  readonly method: 'tools/list' | 'tools/call';
  readonly params: Record<string, unknown>;
}

const kinds = [
  { mode: 'stateless', answers: 'json' },
  { mode: 'stateful', answers: 'sse' },
] as const;

const call = (name: string) =>
  ({ method: 'tools/call', params: { name, arguments: { sku: 'a-1', quantity: 2 } } }) as const;

const requests = [
  { name: 'tools/list of 100 tools', tools: 100, method: 'tools/list', params: {} },
  { name: 'ungated call', tools: 5, ...call('cart.view') },
  { name: 'step', tools: 5, ...call('cart.add_item') },
] as const;

export const WORKLOADS: readonly Workload[] = kinds.flatMap((kind) =>
  requests.map((request) => ({
    ...kind,
    ...request,
    name: `${request.name}, ${kind.mode} ${kind.answers}`,
  })),
);
