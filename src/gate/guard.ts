import type { Clock } from '../clock.ts';
import type { Guard, GuardedCall } from '../workflow/binding.ts';

/** How guards are asked. */
export interface GuardOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** How long all guards of one call may take together, in milliseconds. */
  readonly deadlineMs: number;
  /** Told what a guard throws, that one took too long, or that one gave no answer. */
  readonly onError: (error: unknown) => void;
}

/** A call that a guard did not let through, with the guard's own words where it gave some. */
export interface GuardRefusal {
  readonly words: string | undefined;
}

const TOO_LATE = Symbol('too late');

/**
 * Asks a call's guards, one after the other, until one refuses. `undefined` where all of them let
 * it through. Whatever is not `true` refuses, and so does a guard that throws or outlasts the
 * deadline.
 */
export async function askGuards(
  guards: readonly Guard[],
  call: GuardedCall,
  options: GuardOptions,
): Promise<GuardRefusal | undefined> {
  const { clock, deadlineMs, onError } = options;
  if (guards.length === 0) return undefined;
  let stop = (): void => {};
  const deadline = new Promise<typeof TOO_LATE>((resolve) => {
    stop = clock.after(deadlineMs, () => resolve(TOO_LATE));
  });
  try {
    for (const guard of guards) {
      const answer: unknown = await Promise.race([ask(guard, call), deadline]);
      if (answer === true) continue;
      if (answer === TOO_LATE) {
        onError(
          new Error(`a guard of ${JSON.stringify(call.tool)} took longer than ${deadlineMs} ms`),
        );
      } else if (typeof answer !== 'string' && answer !== false) {
        onError(
          new Error(`a guard of ${JSON.stringify(call.tool)} answered neither a boolean nor words`),
        );
      }
      return { words: typeof answer === 'string' && answer !== '' ? answer : undefined };
    }
    return undefined;
  } catch (error) {
    onError(error);
    return { words: undefined };
  } finally {
    stop();
  }
}

/** A rejection after the deadline is nobody's any more, and must not end the process. */
function ask(guard: Guard, call: GuardedCall): Promise<unknown> {
  const answer = Promise.resolve().then(() => guard(call));
  answer.catch(() => {});
  return answer;
}
