/**
 * Conditions on JSON, such as a tool's result. Hides paths, and how what is missing or of another
 * type is neither true nor false.
 */
import { configError, type InterlockError } from '../basics/errors.ts';
import { ExactNumber } from '../basics/numbers.ts';
import { isTable, showValue } from '../basics/options.ts';

/** A value that a member of JSON is compared with. */
export type Scalar = string | number | boolean | null;

/** What must hold of one member; all that it names. */
export interface Comparison {
  /**
   * It is this value. A value of another JSON type is unknown. `null` in a result is known: it is
   * another value. `null` in arguments is unknown, since many servers take it for a default.
   */
  readonly eq?: Scalar | undefined;
  /** It is another value, or missing. As `eq` otherwise. */
  readonly ne?: Scalar | undefined;
  /** It is a number above this one. Anything but a number is unknown, as in the next three. */
  readonly gt?: number | undefined;
  readonly gte?: number | undefined;
  readonly lt?: number | undefined;
  readonly lte?: number | undefined;
  /** It is one of these values. As `eq` otherwise. */
  readonly in?: readonly Scalar[] | undefined;
  /** Whether it is there at all. */
  readonly exists?: boolean | undefined;
}

/**
 * A condition on JSON: each key is a path, and its value what the member there must be. `any` holds
 * where one of its conditions does, `not` where its condition does not. All of it must hold.
 *
 * A path has dots (`payment.status`), or is a JSON Pointer (RFC 6901) where it begins with `/`. A
 * member that is called `any` or `not` is `/any` or `/not`.
 */
export interface Condition {
  readonly any?: readonly Condition[] | undefined;
  readonly not?: Condition | undefined;
  readonly [path: string]: Scalar | Comparison | Condition | readonly Condition[] | undefined;
}

/** `undefined`: unknown. */
export type Truth = boolean | undefined;

/** Gives the member of a value at a path, or {@link MISSING}. The empty path is the whole value. */
export interface Reader {
  (keys: Path): unknown;
  /**
   * What rules compare of a member, where the value itself is not there to be digested. As
   * `membersOf()` has it.
   */
  readonly digests?: (keys: Path) => string | readonly string[] | typeof MISSING | undefined;
  /** Reads what is claimed of who makes the call. Absent where nothing is known of that. */
  readonly claims?: Reader;
}

/** The keys of a path, from the outside in. */
export type Path = readonly string[];

/** A condition, checked. `unknown` gets each path that leaves it open. */
export type ConditionTest = (read: Reader, unknown?: (path: string) => void) => Truth;

/** What of a call a condition, or another part of a rule, reads. */
export type ArgsOrResult = 'args' | 'result';

/** No condition needs more, and each level costs a call. */
const DEEPEST = 16;

/** A member that is not there. */
export const MISSING = Symbol('missing');

/**
 * @param what for errors: where the condition stands
 * @param of whose JSON it reads: a `null` in arguments is unknown
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what is no condition
 */
export function parseCondition(
  what: string,
  condition: unknown,
  of: ArgsOrResult = 'result',
  depth = 0,
): ConditionTest {
  if (depth > DEEPEST) throw fault(what, `a condition has at most ${DEEPEST} levels`);
  if (!isTable(condition))
    throw fault(
      what,
      `expected a condition such as { status: 'approved' }, got ${showValue(condition)}`,
    );
  const members = Object.entries(condition).filter(([, member]) => member !== undefined);
  if (members.length === 0) throw fault(what, 'expected a condition, got an empty object');
  const tests = members.map(([name, member]): ConditionTest => {
    const own = `${what}: ${showValue(name)}`;
    if (name === 'not') {
      const test = parseCondition(own, member, of, depth + 1);
      return (read, unknown) => negate(test(read, unknown));
    }
    if (name !== 'any') return parseMember(own, name, member, of);
    if (!Array.isArray(member) || member.length === 0)
      throw fault(own, `expected one condition or more in an array, got ${showValue(member)}`);
    const conditions = member.map((each) => parseCondition(own, each, of, depth + 1));
    return combined(conditions, true);
  });
  return tests.length === 1 ? (tests[0] as ConditionTest) : combined(tests, false);
}

function parseMember(what: string, path: string, member: unknown, of: ArgsOrResult): ConditionTest {
  const keys = parsePath(what, path);
  const comparisons = isTable(member) ? comparisonsOf(what, member, of) : [equal(what, member, of)];
  return (read, unknown) => {
    const found = read(keys);
    let truth: Truth = true;
    for (const compare of comparisons) {
      const each = compare(found);
      if (each === false) return false;
      if (each === undefined) truth = undefined;
    }
    if (truth === undefined) unknown?.(path);
    return truth;
  };
}

type Compare = (found: unknown) => Truth;

function comparisonsOf(
  what: string,
  member: Readonly<Record<string, unknown>>,
  of: ArgsOrResult,
): Compare[] {
  const given = Object.entries(member).filter(([, operand]) => operand !== undefined);
  const right = Object.keys(OPERATORS).join(', ');
  if (given.length === 0) throw fault(what, `expected one of ${right}, got an empty object`);
  return given.map(([name, operand]) => {
    if (Object.hasOwn(OPERATORS, name))
      return OPERATORS[name as keyof typeof OPERATORS](`${what}: ${name}`, operand, of);
    throw fault(what, `expected one of ${right}, got ${showValue(name)}`);
  });
}

/** Makes the test of a member by what it is to be compared with. */
type Operator = (what: string, operand: unknown, of: ArgsOrResult) => Compare;

const equal: Operator = (what, operand, of) => {
  const scalar = scalarOf(what, operand);
  return (found) => isEqual(found, scalar, of);
};

function ordered(isSo: (found: number, operand: number) => boolean): Operator {
  return (what, operand) => {
    if (typeof operand !== 'number' || !Number.isFinite(operand))
      throw fault(what, `expected a number, got ${showValue(operand)}`);
    // A number that JavaScript rounds may be on the other side.
    return (found) => (typeof found === 'number' ? isSo(found, operand) : undefined);
  };
}

const OPERATORS = {
  eq: equal,
  ne: (what, operand, of) => {
    const compare = equal(what, operand, of);
    return (found) => (found === MISSING ? true : negate(compare(found)));
  },
  gt: ordered((found, operand) => found > operand),
  gte: ordered((found, operand) => found >= operand),
  lt: ordered((found, operand) => found < operand),
  lte: ordered((found, operand) => found <= operand),
  in: (what, operand, of) => {
    if (!Array.isArray(operand) || operand.length === 0)
      throw fault(what, `expected one value or more in an array, got ${showValue(operand)}`);
    const tests = operand.map((each) => equal(what, each, of));
    return (found) => {
      const truths = tests.map((test) => test(found));
      return truths.includes(true) || (truths.includes(undefined) ? undefined : false);
    };
  },
  exists: (what, operand) => {
    if (typeof operand !== 'boolean')
      throw fault(what, `expected true or false, got ${showValue(operand)}`);
    return (found) => (found !== MISSING) === operand;
  },
} satisfies Record<string, Operator>;

function scalarOf(what: string, operand: unknown): Scalar {
  const isNumber = typeof operand === 'number' && Number.isFinite(operand);
  if (operand === null || isNumber || typeof operand === 'string' || typeof operand === 'boolean')
    return operand;
  throw fault(
    what,
    `expected a text, a finite number, true, false or null, or an object with one of ` +
      `${Object.keys(OPERATORS).join(', ')}; got ${showValue(operand)}`,
  );
}

/** Of another JSON type than the operand, a value is unknown; `null` as {@link Comparison} says. */
function isEqual(found: unknown, operand: Scalar, of: ArgsOrResult): Truth {
  if (found === MISSING || found instanceof ExactNumber) return undefined;
  if (operand === null) return found === null;
  if (found === null) return of === 'args' ? undefined : false;
  return typeof found === typeof operand ? found === operand : undefined;
}

function negate(truth: Truth): Truth {
  return truth === undefined ? undefined : !truth;
}

/** @param decides the truth that wins over unknown: `false` where all must hold, else `true` */
function combined(tests: readonly ConditionTest[], decides: boolean): ConditionTest {
  return (read, unknown) => {
    const open: string[] = [];
    let truth: Truth = !decides;
    for (const test of tests) {
      const each = test(read, (path) => open.push(path));
      if (each === decides) return decides;
      if (each === undefined) truth = undefined;
    }
    if (unknown !== undefined) open.forEach(unknown);
    return truth;
  };
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for a path that is none */
export function parsePath(what: string, path: string): Path {
  if (path.startsWith('/') && /~(?![01])/.test(path))
    throw fault(what, `${showValue(path)} is no JSON Pointer: "~" stands before 0 or 1 (RFC 6901)`);
  const keys = path.startsWith('/') ? keysOfPointer(path) : path.split('.');
  if (!path.startsWith('/') && keys.includes(''))
    throw fault(what, 'expected a path such as "payment.status", or a JSON Pointer such as "/a.b"');
  return keys;
}

/** The keys of a JSON Pointer that is not empty (RFC 6901). */
export function keysOfPointer(pointer: string): Path {
  return pointer
    .slice(1)
    .split('/')
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
}

export function pointerTo(keys: Path): string {
  return keys.map((key) => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** Reads a value. Only own members: a path never reads what JavaScript adds to an object. */
export function readerOf(value: unknown): Reader {
  return (keys) => {
    let found = value;
    for (const key of keys) {
      if (!hasMember(found, key)) return MISSING;
      found = found[key];
    }
    return found === undefined ? MISSING : found;
  };
}

/** The same reader of a call, with what is claimed of its caller. */
export function readerBy(read: Reader, claims: unknown): Reader {
  if (claims === undefined) return read;
  const { digests } = read;
  const own: Reader = (keys) => read(keys);
  return Object.assign(own, digests && { digests }, { claims: readerOf(claims) });
}

/** Whether JSON has a member of this name. An array has a length and others that are none of it. */
export function hasMember(value: unknown, key: string): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) return false;
  if (Array.isArray(value) && !/^(0|[1-9]\d{0,9})$/.test(key)) return false;
  return Object.hasOwn(value, key);
}

/** @param what where the fault is */
export function fault(what: string, why: string): InterlockError {
  return configError(`${what}: ${why}`);
}
