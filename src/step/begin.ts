/** What a run begins with: hides how the app is asked for it, and for how long it is waited for. */
import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import type { Json } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';
import { jsonOf } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** A run that is about to begin. */
export interface BeginningRun {
  /** The run key. */
  readonly run: string;
  /** Whose run it is, where the request was authenticated. */
  readonly principal: string | undefined;
}

/**
 * Gives the shared data that a run begins with; of a statechart, its context. `undefined` leaves
 * it as the machine has it. What it rejects with, or throws, keeps the run from beginning.
 */
export type Begin = (run: BeginningRun) => Json | undefined | Promise<Json | undefined>;

/** How long the app may take, in milliseconds. */
const BEGIN_MS = 5_000;

/**
 * Asks the app.
 *
 * @throws whatever it throws; InterlockError `ERR_INTERLOCK_CONFIG` where what it gives is not
 * JSON; Error where it takes too long
 */
export async function askBegin(
  begin: Begin,
  run: BeginningRun,
  clock: Pick<Clock, 'after'>,
): Promise<Json | undefined> {
  let stop = (): void => {};
  const late = new Promise<never>((_, reject) => {
    const fail = (): void =>
      reject(new Error(`fsmGate(): begin took longer than ${BEGIN_MS} ms for a run`));
    stop = clock.after(BEGIN_MS, fail);
  });
  try {
    const given: unknown = await Promise.race([begin(run), late]);
    return given === undefined ? undefined : firstData(given);
  } finally {
    stop();
  }
}

/** A checked copy. @throws InterlockError `ERR_INTERLOCK_CONFIG` where it is not JSON */
export function firstData(given: unknown): Json {
  try {
    return jsonOf(given, 'the data that a run begins with');
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new InterlockError('ERR_INTERLOCK_CONFIG', `begin: ${message}`);
  }
}

/** A position with the data that its run begins with. */
export function begunWith(
  workflow: Workflow,
  position: Position,
  data: Json | undefined,
): Position {
  return data === undefined ? position : workflow.withData(position, data);
}
