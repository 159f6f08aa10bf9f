/**
 * What an app and its operators read of a step of unknown outcome. Hides the words, and that each
 * process reports each such step once.
 */
import { type Answered, type Events, runDigest } from '../basics/events.ts';
import type { ClaimView, RunKey, WorkflowRecord } from '../stores/store.ts';

const PAGE = 'https://www.npmjs.com/package/mcp-interlock#when-the-outcome-is-unknown';

/** A step whose outcome is unknown, or the claim that it left behind. */
type UnknownStep = Pick<ClaimView, 'tool' | 'idempotencyKey' | 'uncertain'> & {
  readonly key: RunKey;
};

const ANSWERS = {
  succeeded: 'The tool answered that it succeeded',
  failed: 'The tool answered that it failed',
  input_required: 'The tool asked for input',
} as const satisfies Record<Answered, string>;

/** What is known of an unknown outcome. */
export interface KnownOfUnknown {
  /** Whether the tool surely ran, and only its outcome is not recorded. */
  readonly ran: boolean;
  /** What the tool answered, where it did: apart from what the store made of it. */
  readonly answered?: Answered | undefined;
  /** Whether the claim stays, so that the run may be held. */
  readonly waits: boolean;
  /** What the app's code threw. */
  readonly cause?: unknown;
}

/**
 * Given to `onError` when a step's outcome is unknown, or is known and not recorded. A run whose
 * step must not be repeated is held until a person resolves it, or until the outcome comes late.
 */
export class UnknownOutcome extends Error {
  override readonly name = 'UnknownOutcome';
  /** The run key. Not enumerable, as it may be a session's id, and no log may hold one. */
  declare readonly run: string;
  /** The digest of the run key, by which the inspector and a log find the run. */
  readonly digest: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** The key that the handler was given: look the call up by it where it had its effect. */
  readonly idempotencyKey: string;
  /** Where the documentation says what to do. */
  readonly help = PAGE;

  constructor(
    { key, tool, idempotencyKey, uncertain }: UnknownStep,
    why: string,
    { ran, waits, answered, cause }: KnownOfUnknown,
  ) {
    const call = `a call of ${JSON.stringify(tool)}`;
    const outcome = ran
      ? `${call} ran, and its outcome is not recorded (${why})`
      : `the outcome of ${call} is unknown (${why})`;
    const message = [
      outcome,
      ...(answered === undefined ? [] : [ANSWERS[answered]]),
      ...(waits && uncertain === 'hold' ? [remedy(key, idempotencyKey)] : []),
    ].join('. ');
    super(message, cause === undefined ? undefined : { cause });
    Object.defineProperty(this, 'run', { value: key.run });
    this.digest = runDigest(key.run);
    this.workflow = key.workflow;
    this.tool = tool;
    this.idempotencyKey = idempotencyKey;
  }
}

/** The very call that resolves the step. It names no run key: a log may keep what is printed. */
function remedy({ run, workflow }: RunKey, idempotencyKey: string): string {
  const held = JSON.stringify(idempotencyKey);
  const resolve = `runsOf(gate, { store }).resolve({ idempotencyKey: ${held} }, 'succeeded')`;
  return (
    `Unless it comes late, no step of ${JSON.stringify(workflow)} runs in the run with the ` +
    `digest ${runDigest(run)} until a person resolves it: ${resolve}, or 'failed' (see ${PAGE})`
  );
}

/** A run as the store has it, with the claim that it may have. */
interface MetRun extends Pick<WorkflowRecord, 'snapshot'> {
  readonly key: RunKey;
  readonly claim?: ClaimView | undefined;
  /** What time it is for the store, where it says so. */
  readonly now?: number | undefined;
}

/** Why a process left a claim behind, by the claim's `kind`. */
const LEFT: Readonly<Record<string, string>> = {
  undecided: 'its binding did not say where that leads',
  unknown: 'its handler or its binding said so',
};

/**
 * Reports a claim that another process left behind and that holds its run, once in each process.
 * Had that process been killed, it could not have reported it.
 */
export function reportIfHeld(
  { key, snapshot, claim, now }: MetRun,
  { events }: { readonly events: Events },
): void {
  if (claim === undefined || claim.live || claim.uncertain !== 'hold') return;
  if (!events.noteUnknown(claim.token)) return;
  const { kind } = claim;
  const ran = kind === 'undecided';
  const why = (kind && LEFT[kind]) ?? 'its lease is over, and no process has said what came of it';
  events.fail(new UnknownOutcome({ ...claim, key }, why, { ran, waits: true }), () => {
    const { tool, idempotencyKey, until, entry } = claim;
    const { run: runKey, workflow } = key;
    const { actor, requestId } = entry ?? {};
    const sinceMs = now === undefined || until === undefined ? undefined : now - until;
    const call = { runKey, workflow, tool, state: snapshot.state, actor, requestId };
    return { type: 'step.held', ...call, idempotencyKey, sinceMs, kind };
  });
}
