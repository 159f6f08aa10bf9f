/**
 * The conditions of rules: what decides a call, or what a run keeps of one. Hides how a function is
 * recognised among others, and under which key a run keeps what a condition said. Pure.
 */
import { digestOf } from '../basics/digest.ts';
import { dropRejection, isTable, showValue } from '../basics/options.ts';
import { type ArgsOrResult, type ConditionTest, fault, parseCondition } from './condition.ts';

/** A condition, checked. */
export interface Test {
  readonly test: ConditionTest;
  /** The same for the same condition. Of a function it is its name: its source says nothing. */
  readonly key: string;
  /** As the author gave it. Absent where it is about the caller alone. */
  readonly said?: unknown;
  /** What must be claimed of the caller beside it, as the author gave it. */
  readonly caller?: unknown;
}

/** A condition on an earlier call, checked. */
export interface PastTest extends Test {
  readonly from: ArgsOrResult;
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is neither a condition nor a function */
export function parseTest(
  what: string,
  given: unknown,
  of: ArgsOrResult,
  name?: string,
): Test | undefined {
  if (given === undefined) return undefined;
  if (typeof given !== 'function') {
    const test = parseCondition(what, given, of);
    return Object.freeze({ test, key: keyOfCondition(given), said: given });
  }
  if (Object.prototype.toString.call(given).startsWith('[object Async'))
    throw fault(what, 'expected a condition, or a function that is not asynchronous');
  const test: ConditionTest = (read, unknown) => {
    let answer: unknown;
    try {
      answer = given(read([]));
    } catch {
      answer = undefined;
    }
    if (typeof answer === 'boolean') return answer;
    dropRejection(answer);
    unknown?.('');
    return undefined;
  };
  return Object.freeze({ test, key: name === undefined ? UNNAMED : `=${name}`, said: given });
}

export function keyOfCondition(said: unknown, caller?: unknown): string {
  const own = said === undefined ? '' : digestOf(said).slice(0, 12);
  return caller === undefined ? own : `${own}@${digestOf(caller).slice(0, 12)}`;
}

/** Begins what stands in place of a path, where what is claimed of the caller leaves a rule open. */
export const CALLERS = "the caller's ";

/**
 * A condition with what must be claimed of the caller beside it. Where nothing is claimed of the
 * caller, that is unknown.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is no condition
 */
export function testOfCaller(what: string, given: unknown): Test {
  const test = parseCondition(what, given);
  return Object.freeze({
    key: keyOfCondition(undefined, given),
    caller: given,
    test: (read, unknown) => {
      if (read.claims !== undefined)
        return test(read.claims, (path) => unknown?.(`${CALLERS}${path}`));
      unknown?.(`${CALLERS}claims`);
      return undefined;
    },
  });
}

/** A condition as words say it: what is claimed of the caller stands at `caller.role`. */
export function saidBy({ said, caller }: Pick<Test, 'said' | 'caller'>): unknown {
  if (!isTable(caller)) return said;
  const claimed = Object.entries(caller).map(([path, value]) => [`caller.${path}`, value] as const);
  return { ...(typeof said === 'object' ? said : {}), ...Object.fromEntries(claimed) };
}

/** Both conditions as one; `undefined` without either. @throws as {@link testOfCaller} */
export function bothTests(
  what: string,
  asked: Test | undefined,
  caller: unknown,
): Test | undefined {
  if (caller === undefined) return asked;
  const own = testOfCaller(what, caller);
  if (asked === undefined) return own;
  if (asked.key === UNNAMED)
    throw fault(what, 'the function beside it needs a name: give it one, as: "…"');
  const test: ConditionTest = (read, unknown) => {
    const truths = [asked.test(read, unknown), own.test(read, unknown)];
    if (truths.includes(false)) return false;
    return truths.includes(undefined) ? undefined : true;
  };
  return Object.freeze({ test, key: `${asked.key}${own.key}`, said: asked.said, caller });
}

/** The key of a function without a name. A digest has no such character. */
const UNNAMED = '=';

export function assertNames(
  what: string,
  name: unknown,
  named: readonly unknown[],
  where: string,
): void {
  if (name === undefined || named.some((each) => typeof each === 'function')) return;
  throw fault(`${what}: as`, `it names the function in ${where}, and there is none`);
}

/**
 * Whether the function of a kept condition has no name.
 *
 * @param tests the conditions of all rules on the calls of one tool
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where a run would keep two of them as one
 */
export function hasUnnamed(
  tool: string,
  tests: readonly (Test & { readonly from: ArgsOrResult })[],
): boolean {
  const functions = tests.filter(({ said }) => typeof said === 'function');
  for (const [i, { from, key, said }] of functions.entries())
    for (const other of functions.slice(i + 1)) {
      if (other.said === said && other.from === from) continue;
      if (key === UNNAMED || other.key === UNNAMED)
        throw fault(
          `rules on ${showValue(tool)}`,
          `several functions are asked of its calls: give each a name beside it, as: "…"`,
        );
      if (key === other.key && from === other.from)
        throw fault(
          `rules on ${showValue(tool)}`,
          `as: ${showValue(key.slice(1))} names two functions; give each a name of its own`,
        );
    }
  return functions.some(({ key }) => key === UNNAMED);
}
