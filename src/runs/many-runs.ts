/**
 * What a person does to many runs at once: settles them after an outage, or erases those of a
 * principal. Hides the pages of a list, and the runs that move meanwhile.
 */

import { principalText } from '../basics/names.ts';
import { StoreUnavailable } from '../step/store-calls.ts';
import type { ClaimView, UnsettledStep, WorkflowRecord } from '../stores/store.ts';
import { heldRuns, indexOf, unsettledRuns } from './run-views.ts';
import type { RunsMover } from './runs-mover.ts';
import {
  type Deleted,
  type Erased,
  type EraseOptions,
  type HeldRun,
  type ListOptions,
  parseOutcome,
  type Resolution,
  type ResolveAllOptions,
  type ResolvedAll,
  type ResolvedRun,
  type RunView,
} from './runs-options.ts';

const AT_ONCE = 100;

/** The runs of all parts of a list. */
async function* allOf(mover: RunsMover, list: typeof heldRuns): AsyncGenerator<RunView> {
  let after: string | undefined;
  do {
    const { runs, next } = await list(mover, { limit: AT_ONCE, after });
    yield* runs;
    after = next;
  } while (after !== undefined);
}

function isHeld(view: RunView): view is HeldRun {
  return view.claim !== undefined;
}

/** The run with the step of unknown outcome that has that key; `undefined` where none has it. */
export async function runUnder(
  mover: RunsMover,
  idempotencyKey: string,
): Promise<string | undefined> {
  for await (const { run, claim } of allOf(mover, heldRuns))
    if (claim?.idempotencyKey === idempotencyKey) return run;
  if (mover.store.unsettled === undefined) return undefined;
  for await (const { run, unsettled = [] } of allOf(mover, unsettledRuns))
    if (unsettled.some((each) => each.idempotencyKey === idempotencyKey)) return run;
  return undefined;
}

/**
 * The step of unknown outcome that a person means; else why there is none to resolve.
 *
 * @param named by the claim's token or its key. Default: a held claim, else the only
 * step of unknown outcome
 */
export function stepToResolve(
  { claim, unsettled = [] }: Pick<WorkflowRecord, 'claim' | 'unsettled'>,
  named: { readonly token?: string | undefined; readonly idempotencyKey?: string | undefined },
): ClaimView | UnsettledStep | 'not-held' | 'running' | 'several' {
  const { token, idempotencyKey } = named;
  const others = unsettled.filter((each) => each.idempotencyKey !== claim?.idempotencyKey);
  const isNamed = (key: string): boolean => idempotencyKey === undefined || idempotencyKey === key;
  if (
    claim !== undefined &&
    isNamed(claim.idempotencyKey) &&
    (token ?? claim.token) === claim.token
  ) {
    if (claim.live) return 'running';
    // One that may be repeated is no more meant than the steps that it stands beside.
    const isMeant =
      claim.uncertain === 'hold' || token !== undefined || idempotencyKey !== undefined;
    return isMeant || others.length === 0 ? claim : 'several';
  }
  if (token !== undefined) return 'not-held';
  const [step, ...more] = others.filter((each) => isNamed(each.idempotencyKey));
  if (more.length > 0) return 'several';
  return step ?? 'not-held';
}

/** @param resolve settles the step that the view shows, and no later one */
export async function resolveHeld(
  mover: RunsMover,
  { tool, since = 0, outcome, dryRun = false }: ResolveAllOptions,
  resolve: (held: HeldRun, outcome: 'succeeded' | 'failed') => Promise<Resolution>,
): Promise<ResolvedAll> {
  const runs: ResolvedRun[] = [];
  const attempt = oneByOne(mover);
  for await (const held of allOf(mover, heldRuns)) {
    if (!isHeld(held)) continue;
    const { run, claim } = held;
    // A run that this deployment cannot read stays held.
    const isMeant = claim.tool === tool && (claim.since ?? since) >= since;
    if (!isMeant || held.fault !== undefined) continue;
    const found =
      typeof outcome !== 'function'
        ? outcome
        : await attempt(async () =>
            parseOutcome('resolveAll(): outcome()', await outcome(held), undefined),
          );
    const known = { run, idempotencyKey: claim.idempotencyKey, outcome: found };
    const isLeft = dryRun || found === undefined;
    const resolution = isLeft ? undefined : await attempt(() => resolve(held, found));
    runs.push({ ...known, ...(resolution && { resolution }) });
  }
  return { resolved: runs.filter(({ resolution }) => resolution?.resolved).length, runs };
}

/** After so many runs in a row of which the store fails, it is away, and not one of them broken. */
const AWAY = 3;

/**
 * What is done to many runs, one after another. One run's fault is reported, and the others are
 * done.
 *
 * @returns asks for one run; it gives `undefined` for a fault, and rejects where the store is away
 */
export function oneByOne({
  onError,
}: Pick<RunsMover, 'onError'>): <T>(act: () => Promise<T>) => Promise<T | undefined> {
  let failures = 0;
  return async (act) => {
    try {
      const done = await act();
      failures = 0;
      return done;
    } catch (error) {
      failures = error instanceof StoreUnavailable ? failures + 1 : 0;
      if (failures >= AWAY) throw error;
      onError(error);
      return undefined;
    }
  };
}

/**
 * @param remove deletes one run, and notifies its clients
 * @param leave notifies the clients of one that is not theirs any more
 */
export async function eraseOf(
  mover: RunsMover,
  owner: ListOptions['principal'],
  { held }: EraseOptions,
  { remove, leave }: { remove(run: string): Promise<Deleted>; leave(run: string): void },
): Promise<Erased> {
  const { list } = indexOf(mover, 'erase()');
  const { store } = mover;
  const principal = principalText(owner);
  let deleted = 0;
  const pinned: string[] = [];
  const failed: string[] = [];
  const attempt = oneByOne(mover);
  const anonymized: { run: string; freed: string }[] = [];
  let after: string | undefined;
  do {
    const onError = (error: unknown, kept: string): void => {
      mover.onError(error);
      failed.push(kept);
    };
    const page = await list({ principal, limit: AT_ONCE, after, onError });
    for (const run of page.runs) {
      const isDone = await attempt(async () => {
        const result = await remove(run);
        if (result.deleted) deleted++;
        if (result.deleted || result.reason !== 'pinned') return true;
        const unnamed = held === 'anonymize' ? await store.anonymize?.(run) : undefined;
        if (unnamed === undefined) pinned.push(run);
        else {
          anonymized.push({ run: unnamed, freed: run });
          leave(run);
        }
        return true;
      });
      if (isDone === undefined) failed.push(run);
    }
    after = page.next;
  } while (after !== undefined);
  await store.purge?.({ principal });
  return { deleted, anonymized, pinned, ...(failed.length > 0 && { failed }) };
}
