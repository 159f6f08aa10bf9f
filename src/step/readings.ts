/**
 * What the functions of a binding read of a call that has ended. It hides how one is found to have
 * read what another reader may read differently.
 */
import { exactJson } from '../wire/exact-json.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { FailedCall } from '../workflow/binding.ts';
import { AskedArguments } from '../workflow/bound-tools.ts';

/**
 * The arguments of a call, with the numbers as they came.
 *
 * @param argsText their JSON text, where JavaScript rounds a number in them
 */
export function askedOf(args: unknown, argsText: string | undefined): AskedArguments {
  const exact = argsText === undefined ? undefined : exactJson(argsText);
  return new AskedArguments(exact === undefined ? args : exact.value);
}

/** A watch on the numbers of an answer that JavaScript rounds; `undefined` where it rounds none. */
export function watchOf(
  { result, error }: Pick<FailedCall, 'result' | 'error'>,
  textOfAnswer: (() => string) | undefined,
): AskedArguments | undefined {
  const answer = textOfAnswer && exactJson(textOfAnswer())?.value;
  if (!isObject(answer)) return undefined;
  return new AskedArguments(
    result === undefined ? { error: answer.error ?? error } : { result: answer.result ?? result },
  );
}

/**
 * A function of the app read an argument that the upstream may have read differently. The gate does
 * not guess where such a call leads: its outcome is unknown.
 */
export class UnclearArguments extends Error {
  static throwIf(tool: string, { ambiguous, rounded }: AskedArguments): void {
    if (ambiguous !== undefined)
      throw new UnclearArguments(tool, `${JSON.stringify(ambiguous)} in another letter case`);
    if (rounded !== undefined) throw new UnclearArguments(tool, numberIn(rounded.name));
  }

  private constructor(tool: string, what: string) {
    super(`the arguments of ${JSON.stringify(tool)} have ${what}, ${DEPENDS}`);
  }
}

/**
 * A function of the app read a number in a tool's answer that JavaScript rounds. So it cannot
 * decide what the outcome sends. The message has no values, since apps log it.
 */
export class RoundedAnswer extends Error {
  /** @param name the key of the nearest member that the number is in */
  constructor(tool: string, name: string) {
    super(`the answer of ${JSON.stringify(tool)} has ${numberIn(name)}, ${DEPENDS}`);
  }
}

const DEPENDS = 'and what its outcome sends depends on it';

function numberIn(name: string): string {
  return `a number in ${JSON.stringify(name)} that JavaScript rounds`;
}
