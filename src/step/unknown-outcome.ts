import type { Events } from '../events.ts';
import type { ClaimView, RunKey, WorkflowRecord } from '../stores/store.ts';

const PAGE = 'https://www.npmjs.com/package/mcp-interlock#when-nobody-knows-the-outcome';

/** A step whose outcome is unknown: as its own process has it, or as others see its claim. */
type LostStep = Pick<ClaimView, 'tool' | 'idempotencyKey' | 'uncertain'> & {
  readonly key: RunKey;
};

/**
 * Told to `onError` when a step's outcome is unknown. A run whose step must not be repeated is held
 * until a person resolves it, or until the outcome comes after all.
 */
export class UnknownOutcome extends Error {
  override readonly name = 'UnknownOutcome';
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** What the handler was given, to look the call up where it had its effect. */
  readonly idempotencyKey: string;
  /** Where the documentation says what to do. */
  readonly help = PAGE;

  /**
   * `waits` says whether the claim stays, so that a run whose step must not be repeated waits to be
   * resolved.
   */
  constructor({ key, tool, idempotencyKey, uncertain }: LostStep, why: string, waits: boolean) {
    const outcome = `the outcome of a call of ${JSON.stringify(tool)} is unknown (${why})`;
    super(waits && uncertain === 'hold' ? `${outcome}. ${remedy(key)}` : outcome);
    this.run = key.run;
    this.workflow = key.workflow;
    this.tool = tool;
    this.idempotencyKey = idempotencyKey;
  }
}

function remedy({ run, workflow }: RunKey): string {
  const resolve = `runsOf(gate, { store }).resolve(${JSON.stringify(run)}, 'succeeded')`;
  return (
    `Unless it comes late, no step of ${JSON.stringify(workflow)} runs in that run until somebody who found out ` +
    `says ${resolve}, or 'failed' (see ${PAGE})`
  );
}

/** A run that is met, with the claim that it may have. */
export interface Met extends Pick<WorkflowRecord, 'snapshot'> {
  readonly key: RunKey;
  readonly claim?: ClaimView | undefined;
  /** What time it is for the store, where it says so. */
  readonly now?: number | undefined;
}

/**
 * Says of a claim that a process left behind, and that holds its run: once in each process. Where
 * that process was killed, no other one would ever say so.
 */
export function tellIfHeld(
  { key, snapshot, claim, now }: Met,
  { events }: { readonly events: Events },
): void {
  if (claim === undefined || claim.live || claim.uncertain !== 'hold') return;
  if (!events.noteUnknown(claim.token)) return;
  const why = 'its lease is over, and no process has said what came of it';
  events.fail(new UnknownOutcome({ ...claim, key }, why, true), () => {
    const { tool, idempotencyKey, until, entry } = claim;
    const { run: runKey, workflow } = key;
    const { actor, requestId } = entry ?? {};
    const sinceMs = now === undefined || until === undefined ? undefined : now - until;
    const call = { runKey, workflow, tool, state: snapshot.state, actor, requestId };
    return { type: 'step.held', ...call, idempotencyKey, sinceMs };
  });
}
