import type {
  AtomicStateStore,
  ClaimResult,
  ClaimView,
  FsmSnapshot,
  StepDescription,
} from '../stores/store.ts';
import { isPromise } from '../wire/task-line.ts';
import type { Clock } from './clock.ts';
import { newToken } from './ids.ts';
import type { InFlight } from './in-flight.ts';
import { releaseClaim } from './release-claim.ts';
import type { RunContext } from './run-context.ts';
import { Step, type StepParts, type StepTimes } from './step.ts';
import type { Turn, WaitLimits } from './turns.ts';
import { UNBEGUN } from './unbegun.ts';

/** As much of a run as its claims depend on. */
export type ClaimContext = Pick<RunContext, 'run' | 'store' | 'ttlMs' | 'turns' | 'create'>;

export interface ClaimOptions {
  readonly context: ClaimContext;
  readonly workflow: string;
  readonly description: StepDescription;
  readonly states: readonly string[] | undefined;
  /** Where a run begins that was never claimed. */
  readonly initial: Pick<FsmSnapshot, 'state' | 'context'>;
  readonly times: StepTimes;
  /** Without them a call waits however many others do, and is not counted among them. */
  readonly waiting?: WaitLimits;
  readonly clock: Clock;
  readonly request: InFlight;
  readonly onTooLong: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Why a call did not become a step. `snapshot` is the position that it was tested against, where
 * that is known.
 */
export interface NotClaimed {
  readonly reason: 'state' | 'busy' | 'held' | 'unavailable' | 'cancelled' | 'unknown';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The claim of the step whose outcome is unknown, where the run is held. */
  readonly held?: ClaimView;
  /** Why it is unavailable, where the store has nothing to do with that. */
  readonly cause?: string;
}

type Granted = Extract<ClaimResult, { status: 'claimed' }>;

const LONGEST_PAUSE_MS = 250;
const SHORTEST_PAUSE_MS = 10;

/** Names the turns of one workflow in one run. */
export function turnKey(context: Pick<RunContext, 'run'>, workflow: string): string {
  return JSON.stringify([workflow, context.run]);
}

/** Waits for the run's turn, within this process and across processes, and takes its claim. */
export async function claimStep(options: ClaimOptions): Promise<Step | NotClaimed> {
  const { context, workflow, times, waiting, clock, request } = options;
  const deadline = clock.now() + times.waitMs;
  const taken = context.turns.take(turnKey(context, workflow), times.waitMs, request, waiting);
  const turn = isPromise(taken) ? await taken : taken;
  if (turn === undefined) return calledOff(options) ?? { reason: 'busy' };
  try {
    const claimed = await claimInTurn(options, turn, deadline);
    if (!(claimed instanceof Step)) turn.end();
    return claimed;
  } catch (error) {
    turn.end();
    options.onError(error);
    return { reason: 'unavailable' };
  }
}

async function claimInTurn(
  options: ClaimOptions,
  turn: Turn,
  deadline: number,
): Promise<Step | NotClaimed> {
  const { context, waiting, clock, request } = options;
  const token = newToken();
  let leave: (() => void) | undefined;
  try {
    for (let attempt = 0; !context.turns.isOff(request, waiting); attempt++) {
      const askedAt = clock.now();
      const result = await ask(options, context.store, token);
      if (result.status === 'claimed') {
        const parts = partsOf(options, { token, askedAt, turn }, result);
        if (!context.turns.isOff(request, waiting)) {
          turn.step = parts;
          return new Step(parts, options.onTooLong);
        }
        await releaseClaim(parts, UNBEGUN);
        parts.endRequest();
      } else if (result.status === 'busy' && clock.now() < deadline) {
        leave ??= turn.wait(request, waiting);
        if (leave === undefined) return refusal(result);
        await pause(options, backOff(attempt, result.remainingMs));
      } else if (!request.cancelled) return refusal(result);
    }
    return calledOff(options) ?? { reason: 'cancelled' };
  } finally {
    leave?.();
  }
}

function partsOf(
  { context, workflow, description, times, clock, request, onError }: ClaimOptions,
  asked: Required<Pick<StepParts, 'token' | 'askedAt'>> & Pick<StepParts, 'turn'>,
  { snapshot, idempotencyKey, now = clock.now() }: Granted,
): StepParts {
  const { run, store, ttlMs } = context;
  const key = { run, workflow };
  return {
    ...asked,
    key,
    description,
    snapshot,
    now,
    idempotencyKey,
    store,
    ttlMs,
    times,
    clock,
    // Its id is in flight for as long as the step is, on whatever stream its result comes.
    endRequest: request.beginStep(description.uncertain === 'hold'),
    onError,
  };
}

/**
 * One claim. A claim that the store may have granted although it could not say so is let go again.
 */
async function ask(
  options: ClaimOptions,
  store: AtomicStateStore,
  token: string,
): Promise<ClaimResult> {
  const { context, workflow, description, states, initial, times, clock, onError } = options;
  const { run, ttlMs, create } = context;
  try {
    return await store.claim({
      run,
      workflow,
      token,
      step: description,
      states,
      initial: { ...initial, updatedAt: clock.now() },
      create,
      leaseMs: times.leaseMs,
      ttlMs,
    });
  } catch (error) {
    void releaseClaim({ store, key: { run, workflow }, token, clock, onError }, UNBEGUN, 1);
    throw error;
  }
}

/** Why a call waits no longer: its client called it off, or this process ends. */
function calledOff({ context, waiting, request }: ClaimOptions): NotClaimed | undefined {
  if (request.cancelled) return { reason: 'cancelled' };
  if (!context.turns.isOff(request, waiting)) return undefined;
  return { reason: 'unavailable', cause: 'the server is being restarted' };
}

function refusal(result: ClaimResult): NotClaimed {
  if (result.status === 'unknown') return { reason: 'unknown' };
  if (result.status === 'held')
    return { reason: 'held', snapshot: result.snapshot, held: result.claim };
  return { reason: result.status === 'state' ? 'state' : 'busy', snapshot: result.snapshot };
}

/**
 * Jittered, so that processes which wait for one run do not ask in step; never past the end of the
 * lease.
 */
function backOff(attempt: number, remainingMs: number): number {
  const ceiling = Math.min(
    LONGEST_PAUSE_MS,
    SHORTEST_PAUSE_MS * 2 ** attempt,
    Math.max(remainingMs, SHORTEST_PAUSE_MS),
  );
  return ceiling / 2 + (Math.random() * ceiling) / 2;
}

function pause({ context, waiting, clock, request }: ClaimOptions, ms: number): Promise<void> {
  return new Promise((resolve) => {
    let forget = (): void => {};
    const done = (): void => {
      stop();
      forget();
      resolve();
    };
    const stop = clock.after(ms, done);
    // It may have been called off while the store was asked.
    if (context.turns.isOff(request, waiting)) done();
    else forget = context.turns.onOff(request, waiting, done);
  });
}
