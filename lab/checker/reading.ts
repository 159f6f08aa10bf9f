import {
  CALL,
  type Exchange,
  type LedgerLine,
  type Machine,
  type MachineBinding,
  type RunInfo,
} from './evidence.ts';

/** What a client was told about its call. */
export type Told =
  /** The handler's own result: its first text names the attempt. */
  | { readonly kind: 'done'; readonly attempt: string; readonly isError: boolean }
  | {
      readonly kind: 'refused';
      readonly reason: string;
      readonly state: unknown;
      readonly workflow: unknown;
    }
  /** The tool ran or may have run, and its outcome is not recorded. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'tools'; readonly names: readonly string[]; readonly isWhole: boolean }
  | { readonly kind: 'broken' }
  /** The session, or the store, could not be asked. */
  | { readonly kind: 'unavailable' }
  | { readonly kind: 'other' }
  /** No answer that a client should ever get to a call or a list. */
  | { readonly kind: 'wrong'; readonly text: string };

export interface Answer {
  readonly told: Told;
  /** When the client had it. */
  readonly at: number;
}

const ASKED = ['tools/call', 'tools/list'];

/** What a model reads of a run, a workflow or a tool that operators have stopped. */
const FROZEN_WORDS =
  /was not run, because the operator has stopped (this run|all runs|all calls) of/;

export function answerOf(exchange: Exchange): Answer {
  const { request, messages } = exchange;
  const own = messages.find(({ message }) => message?.id === request.id && !message?.method);
  const at = own?.at ?? exchange.ended ?? Number.POSITIVE_INFINITY;
  return {
    told: ASKED.includes(request.method) ? told(exchange, own?.message) : { kind: 'other' },
    at,
  };
}

// biome-ignore lint/suspicious/noExplicitAny: what came over the wire may be anything
function told({ request, status, broke, hung, ended }: Exchange, message: any): Told {
  if (message === undefined) {
    if (hung) return { kind: 'wrong', text: 'no answer came' };
    if (broke || ended === undefined) return { kind: 'broken' };
    if (status === 503) return { kind: 'unavailable' };
    return { kind: 'wrong', text: `status ${status} without an answer to ${request.method}` };
  }
  if (status === 503) return { kind: 'unavailable' };
  const { result } = message;
  if (status !== 200 || result === undefined) {
    return { kind: 'wrong', text: `status ${status}: ${JSON.stringify(message).slice(0, 300)}` };
  }
  if (request.method === 'tools/list') {
    const names = (result.tools as { name: string }[]).map(({ name }) => name);
    const isWhole = result.nextCursor === undefined && request.params?.cursor === undefined;
    return { kind: 'tools', names, isWhole };
  }
  const refusal = result._meta?.['mcp-interlock/refusal'];
  if (refusal?.reason === 'frozen' && !FROZEN_WORDS.test(String(result.content?.[0]?.text)))
    return { kind: 'wrong', text: `frozen without its words: ${JSON.stringify(result)}` };
  if (refusal !== undefined) {
    return refusal.reason === 'unavailable'
      ? { kind: 'unavailable' }
      : {
          kind: 'refused',
          reason: refusal.reason,
          state: refusal.state,
          workflow: refusal.workflow,
        };
  }
  if (result._meta?.['mcp-interlock/outcome'] !== undefined) return { kind: 'unknown' };
  const attempt = String(result.content?.[0]?.text);
  return { kind: 'done', attempt, isError: result.isError === true };
}

/** One execution of a handler. */
export interface Attempt {
  readonly name: string;
  readonly server: string;
  readonly run: string;
  readonly tool: string;
  readonly args: unknown;
  readonly call: string;
  readonly key: string;
  readonly started: number;
  /** Absent where it did not come to that. */
  readonly ended?: number;
  readonly outcome?: 'succeeded' | 'failed';
}

/** The ledger's lines as executions, in the order in which they began. */
export function attemptsOf(ledger: readonly LedgerLine[]): Attempt[] {
  const ends = new Map(
    ledger.filter(({ phase }) => phase === 'end').map((each) => [each.attempt, each]),
  );
  return ledger
    .filter(({ phase }) => phase === 'start')
    .map(({ phase: _, at, attempt, outcome: __, ...line }) => {
      const end = ends.get(attempt);
      return {
        ...line,
        name: attempt,
        started: at,
        ...(end && { ended: end.at, outcome: end.outcome ?? 'succeeded' }),
      };
    })
    .sort((a, b) => a.started - b.started);
}

export function bindingOf(
  machine: Machine,
  tool: string,
  args: unknown,
): MachineBinding | undefined {
  return machine.bindings.find(
    (each) =>
      each.tool === tool &&
      (each.when === undefined ||
        (args as Record<string, unknown> | undefined)?.[each.when.argument] === each.when.equals),
  );
}

/** Whether the binding's calls claim the run: its outcome may send an event. */
export function isStep({ success, failure }: MachineBinding): boolean {
  return success !== undefined || failure !== undefined;
}

/** The tools that a list of the machine's run shows or hides by its state. */
export function hideable({ bindings }: Machine): Set<string> {
  const grouped = bindings.filter(({ when }) => when !== undefined).map(({ tool }) => tool);
  return new Set(bindings.map(({ tool }) => tool).filter((tool) => !grouped.includes(tool)));
}

/** What a list of a run shows of the machine's tools in a state. */
export function shownIn(machine: Machine, tools: readonly string[], state: string): string[] {
  const names = hideable(machine);
  return tools.filter(
    (tool) =>
      names.has(tool) &&
      machine.bindings.some((each) => each.tool === tool && each.from.includes(state)),
  );
}

/** The state as clients see it: that of an ended run which starts again is the initial one. */
export function seenState(
  { initial, final = [] }: Machine,
  { restarts }: RunInfo,
  state: string,
): string {
  return restarts && final.includes(state) ? initial : state;
}

export function callOf(exchange: Exchange): string | undefined {
  return exchange.request.params?._meta?.[CALL];
}

/** Whether the message says that it is of MCP 2026-07-28, which has no sessions. */
export function isStateless({ request }: Exchange): boolean {
  return request.params?._meta?.['io.modelcontextprotocol/protocolVersion'] !== undefined;
}

export function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
