/**
 * What a person does to many runs at once: settles them after an outage, or erases those of a
 * principal. Hides the pages of a list, and the runs that move meanwhile.
 */
import { heldRuns, indexOf } from './run-views.ts';
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
  type RunsMover,
  type RunView,
} from './runs-options.ts';
import { principalText } from './session/run-key.ts';
import { StoreUnavailable } from './step/store-calls.ts';

const AT_ONCE = 100;

/** The held runs of a gate, the longest held first. */
async function* allHeld(mover: RunsMover): AsyncGenerator<HeldRun> {
  let after: string | undefined;
  do {
    const { runs, next } = await heldRuns(mover, { limit: AT_ONCE, after });
    for (const run of runs) if (isHeld(run)) yield run;
    after = next;
  } while (after !== undefined);
}

function isHeld(view: RunView): view is HeldRun {
  return view.claim !== undefined;
}

/** The held run whose step has that key; `undefined` where none has it. */
export async function heldUnder(
  mover: RunsMover,
  idempotencyKey: string,
): Promise<HeldRun | undefined> {
  for await (const held of allHeld(mover))
    if (held.claim.idempotencyKey === idempotencyKey) return held;
  return undefined;
}

/** @param resolve settles the step that the view shows, and no later one */
export async function resolveHeld(
  mover: RunsMover,
  { tool, since = 0, outcome, dryRun = false }: ResolveAllOptions,
  resolve: (held: HeldRun, outcome: 'succeeded' | 'failed') => Promise<Resolution>,
): Promise<ResolvedAll> {
  const runs: ResolvedRun[] = [];
  for await (const held of allHeld(mover)) {
    const { run, claim } = held;
    // A run that this deployment cannot read stays held.
    const isMeant = claim.tool === tool && (claim.since ?? since) >= since;
    if (!isMeant || held.fault !== undefined) continue;
    const found = typeof outcome === 'function' ? await asked(mover, outcome, held) : outcome;
    const known = { run, idempotencyKey: claim.idempotencyKey, outcome: found };
    const isLeft = dryRun || found === undefined;
    const resolution = isLeft ? undefined : await resolved(mover, () => resolve(held, found));
    runs.push({ ...known, ...(resolution && { resolution }) });
  }
  return { resolved: runs.filter(({ resolution }) => resolution?.resolved).length, runs };
}

/** One run whose outcome the app cannot find out must not leave the others held. */
async function asked(
  { onError }: RunsMover,
  outcome: Exclude<ResolveAllOptions['outcome'], string>,
  held: HeldRun,
): Promise<'succeeded' | 'failed' | undefined> {
  try {
    return parseOutcome('resolveAll(): outcome()', await outcome(held), undefined);
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/** One run that cannot be resolved must not leave the others held. The store's failure ends it. */
async function resolved(
  { onError }: RunsMover,
  resolve: () => Promise<Resolution>,
): Promise<Resolution | undefined> {
  try {
    return await resolve();
  } catch (error) {
    if (error instanceof StoreUnavailable) throw error;
    onError(error);
    return undefined;
  }
}

/**
 * @param remove deletes one run, and tells its clients
 * @param leave tells the clients of one that is not theirs any more
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
  const anonymized: { run: string; freed: string }[] = [];
  let after: string | undefined;
  do {
    const page = await list({ principal, limit: AT_ONCE, after });
    for (const run of page.runs) {
      const result = await remove(run);
      if (result.deleted) deleted++;
      else if (result.reason === 'pinned') {
        const unnamed = held === 'anonymize' ? await store.anonymize?.(run) : undefined;
        if (unnamed === undefined) {
          pinned.push(run);
          continue;
        }
        anonymized.push({ run: unnamed, freed: run });
        leave(run);
      }
    }
    after = page.next;
  } while (after !== undefined);
  await store.purge?.({ principal });
  return { deleted, anonymized, pinned };
}
