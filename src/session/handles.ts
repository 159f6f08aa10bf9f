import type { Clock } from '../clock.ts';
import { newToken } from '../ids.ts';
import { type GuardedStore, persist } from '../step/store-calls.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { headerFault } from '../wire/mirrors.ts';
import { CreatedHandles } from './created-handles.ts';
import type { Admission } from './run.ts';
import type { RunKeyStrategy } from './run-key.ts';
import { begin, isFirstPage, StartToolList } from './start-tool.ts';

/**
 * How long a store that fails is asked again for the run of a handle that is handed out already.
 */
const RECORD_MS = 5_000;

/** What handles are kept with. */
export interface HandleKeeper {
  readonly keys: readonly RunKeyStrategy[];
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Sees to it that the handles which a request brings about have runs, which belong to its caller.
 * `false` where the request was answered as a whole, because its headers contradict a call of
 * the start tool.
 */
export async function serveHandles(
  exchange: Exchange,
  admission: Admission,
  keeper: HandleKeeper,
): Promise<boolean> {
  const { requests } = exchange;
  const { binding } = admission.identity;
  const make = (run: string): Promise<void> => ensureRun(keeper, run, binding);
  for (const key of keeper.keys) {
    if (key.kind !== 'handle') continue;
    const creating = requests.filter((each) => key.createdBy.some((tool) => isCallOf(each, tool)));
    if (creating.length === 0) continue;
    const onHandle = (handle: string): Promise<boolean> => {
      const run = key.runKey(handle, binding);
      const insisting = { clock: keeper.clock, forMs: RECORD_MS, onError: keeper.onError };
      return persist(() => make(run), insisting).then(
        () => true,
        () => false,
      );
    };
    exchange.join(new CreatedHandles(exchange, admission, key, creating, onHandle));
  }
  const { managed } = admission;
  if (managed === undefined) return true;
  if (requests.some(isFirstPage)) exchange.join(new StartToolList(exchange, managed, keeper));
  const starts = requests.filter((each) => isCallOf(each, managed.start));
  for (const call of starts) {
    const fault = headerFault(exchange.req, call, admission.era);
    if (fault === undefined) continue;
    await exchange.reject(400, fault.code, fault.message);
    return false;
  }
  for (const call of starts) {
    await exchange.answer(call, await begin(call, { admission, managed, keeper, make, binding }));
  }
  return true;
}

/**
 * Makes the run where there is none, in one operation: a claim that no state allows changes nothing
 * else.
 */
async function ensureRun(
  { store, ttlMs }: HandleKeeper,
  run: string,
  principal: string | undefined,
): Promise<void> {
  await store.claim({
    run,
    workflow: 'handle',
    token: newToken(),
    step: { tool: '', digest: '', uncertain: 'hold' },
    states: [],
    initial: { state: '', updatedAt: 0 },
    create: { principal },
    leaseMs: 1,
    ttlMs,
  });
}

function isCallOf({ method, message }: Incoming, tool: string): boolean {
  return method === 'tools/call' && message.at('params', 'name') === tool;
}
