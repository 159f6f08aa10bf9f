import { onTestFinished } from 'vitest';
import {
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  type SessionStoreOptions,
  type StateSyncOptions,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { checkoutGate } from './checkout.ts';
import { FaultyStore } from './faulty-store.ts';
import { ManualClock } from './manual-clock.ts';
import { RawSession } from './raw.ts';
import { startUpstream, type Upstream, type UpstreamOptions } from './upstream.ts';

export interface CheckoutAppOptions extends Omit<UpstreamOptions, 'middlewares'> {
  readonly session?: SessionStoreOptions;
  readonly gate?: FsmGateOptions;
  readonly sync?: StateSyncOptions;
}

/** The checkout server behind the three middlewares, with time and the store in the test's hands. Closed with the test. */
export interface CheckoutApp extends Upstream {
  readonly clock: ManualClock;
  readonly store: FaultyStore;
  readonly errors: unknown[];
  readonly warnings: string[];
  /** A session that has come as far as `payment`, if asked for. */
  begin(headers?: Record<string, string>): Promise<RawSession>;
  beginAt(state: 'has_items' | 'payment', headers?: Record<string, string>): Promise<RawSession>;
}

export async function startCheckout(options: CheckoutAppOptions = {}): Promise<CheckoutApp> {
  const { session, gate, sync, ...rest } = options;
  const clock = new ManualClock();
  const maxRuns = session?.maxSessions;
  const store = new FaultyStore(memoryStore({ now: clock.now, maxRuns }));
  const errors: unknown[] = [];
  const warnings: string[] = [];
  const observers = {
    onError: (error: unknown) => void errors.push(error),
    onWarning: (warning: string) => void warnings.push(warning),
  };
  const upstream = await startUpstream({
    ...rest,
    middlewares: [
      sessionStore({ store, clock, ...observers, ...session }),
      fsmGate(checkoutGate(), { clock, ...observers, ...gate }),
      ...(sync === undefined ? [] : [stateSync({ ...observers, ...sync })]),
    ],
  });
  onTestFinished(() => upstream.close());
  const begin = (headers?: Record<string, string>) => RawSession.begin(upstream.url, headers);
  return {
    ...upstream,
    clock,
    store,
    errors,
    warnings,
    begin,
    async beginAt(state, headers) {
      const opened = await begin(headers);
      await opened.call('cart.add_item');
      if (state === 'payment') await opened.call('cart.checkout');
      upstream.ledger.calls.length = 0;
      return opened;
    },
  };
}

/** Lets time pass bit by bit, so that what each timer begins is done before the next one fires. */
export async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 500) {
    clock.advance(Math.min(left, 500));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Leaves room for everything that is on its way inside this process. */
export async function settle(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
}
