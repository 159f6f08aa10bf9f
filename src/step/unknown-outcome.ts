import type { ClaimView, RunKey } from '../stores/store.ts';

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

/** The claims whose unknown outcome this process has told of, by their tokens. */
const told = new Set<string>();

/** Beyond that the oldest are forgotten, and told of again where they are met again. */
const MOST_TOLD = 10_000;

/** Says that nobody knows what a step came to; `waits` as in {@link UnknownOutcome}. */
export function tellUnknown(
  step: LostStep & Pick<ClaimView, 'token'>,
  why: string,
  { onError }: { readonly onError: (error: unknown) => void },
  waits: boolean,
): void {
  const [oldest = ''] = told;
  if (told.size >= MOST_TOLD) told.delete(oldest);
  told.add(step.token);
  onError(new UnknownOutcome(step, why, waits));
}

/**
 * Says of a claim that a process left behind, and that holds its run: once in each process. Where
 * that process was killed, no other one would ever say so.
 */
export function tellIfHeld(
  key: RunKey,
  claim: ClaimView | undefined,
  config: { readonly onError: (error: unknown) => void },
): void {
  if (claim === undefined || claim.live || claim.uncertain !== 'hold' || told.has(claim.token))
    return;
  tellUnknown(
    { ...claim, key },
    'its lease is over, and no process has said what came of it',
    config,
    true,
  );
}
