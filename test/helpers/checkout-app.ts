import { expect, onTestFinished } from 'vitest';
import {
  type AtomicStateStore,
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  type SessionMiddleware,
  type SessionStoreOptions,
  type StateMachineGate,
  type StateSyncOptions,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { checkoutGate } from './checkout.ts';
import { FaultyStore } from './faulty-store.ts';
import { type Latch, latch } from './latch.ts';
import { ManualClock } from './manual-clock.ts';
import { RawSession, type WireMessage } from './raw.ts';
import { startUpstream, type Upstream, type UpstreamOptions } from './upstream.ts';

export interface CheckoutAppOptions extends Omit<UpstreamOptions, 'middlewares'> {
  readonly session?: SessionStoreOptions;
  readonly gate?: FsmGateOptions;
  readonly sync?: StateSyncOptions;
  /** Default: the workflow of the README. */
  readonly workflow?: StateMachineGate<string, string>;
  /** A second workflow on the same route. */
  readonly second?: StateMachineGate<string, string>;
  /** The clock and the data of another app: the two are as two processes then. */
  readonly beside?: CheckoutApp;
}

/** The checkout server behind the three middlewares, with time and the store in the test's hands. Closed with the test. */
export interface CheckoutApp extends Upstream {
  readonly sessions: SessionMiddleware;
  readonly clock: ManualClock;
  /** What the middlewares are given: `data`, but it can fail. */
  readonly store: FaultyStore;
  readonly data: AtomicStateStore;
  readonly errors: unknown[];
  readonly warnings: string[];
  /** A session that has come as far as `payment`, if asked for. */
  begin(headers?: Record<string, string>): Promise<RawSession>;
  beginAt(state: 'has_items' | 'payment', headers?: Record<string, string>): Promise<RawSession>;
}

export async function startCheckout(options: CheckoutAppOptions = {}): Promise<CheckoutApp> {
  const { session, gate, sync, workflow = checkoutGate(), second, beside, ...rest } = options;
  const clock = beside?.clock ?? new ManualClock();
  const data = beside?.data ?? memoryStore({ now: clock.now, maxRuns: session?.maxSessions });
  const store = new FaultyStore(data);
  const errors: unknown[] = [];
  const warnings: string[] = [];
  const observers = {
    onError: (error: unknown) => void errors.push(error),
    onWarning: (warning: string) => void warnings.push(warning),
  };
  const sessions = sessionStore({ store, clock, ...observers, ...session });
  const upstream = await startUpstream({
    ...rest,
    middlewares: [
      sessions,
      fsmGate(workflow, { clock, ...observers, ...gate }),
      ...(second === undefined ? [] : [fsmGate(second, { clock, ...observers, ...gate })]),
      ...(sync === undefined ? [] : [stateSync({ ...observers, ...sync })]),
    ],
  });
  onTestFinished(() => upstream.close());
  const begin = (headers?: Record<string, string>) => RawSession.begin(upstream.url, headers);
  return {
    ...upstream,
    sessions,
    clock,
    store,
    data,
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

/** A call whose handler waits until the test opens it. */
export interface HeldCall extends Latch {
  readonly answer: Promise<WireMessage>;
}

/** Starts a call and returns once its handler is running. */
export async function holdOpen(
  app: CheckoutApp,
  session: RawSession,
  tool: string,
): Promise<HeldCall> {
  const handler = latch();
  const before = app.ledger.calls.length;
  app.ledger.gates.set(tool, handler.opened);
  const answer = session.call(tool);
  // A test that fails before it waits for the answer has failed for its own reason.
  answer.catch(() => {});
  await expect.poll(() => app.ledger.calls.slice(before)).toContain(tool);
  app.ledger.gates.delete(tool);
  return { ...handler, answer };
}

/** Lets time pass bit by bit, so that what each timer begins is done before the next one fires. */
export async function pass(clock: ManualClock, ms: number, bit = 500): Promise<void> {
  for (let left = ms; left > 0; left -= bit) {
    clock.advance(Math.min(left, bit));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Leaves room for everything that is on its way inside this process. */
export async function settle(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
}
