/**
 * What a run keeps of a call: a value for each column. Hides how a column is named, so that each
 * build that keeps the same value names it the same, and how its value is made.
 */
import { type ArgsOrResult, parsePath, type Reader } from './condition.ts';
import { decimalOf, digitsOf } from './decimal.ts';
import type { NotedPart } from './facts.ts';
import type { CheckedLimit } from './limits.ts';
import type { Renamings } from './renamings.ts';
import { type Amount, BY, type Leaf, type ValueSource } from './rule-parts.ts';
import { keyOfCondition, type Test } from './rule-tests.ts';
import { type Fold, membersAt, personDigest, type Value } from './values.ts';

/** What has values of earlier calls kept. */
export type AskedPart = Leaf | CheckedLimit;

/** What a run keeps of each call of a tool. */
export interface Column {
  /** The same in each deployment that keeps the same. It says all but what a condition is. */
  readonly key: string;
  /** Its key in the record, where paths are the oldest ones. Default: the same. */
  readonly saved?: string;
  readonly from: NotedPart;
  /** Where a value must be, as an app gives it to `send()`. Absent where a condition is kept. */
  readonly path?: string;
  /** Whether a `same` asks for it. */
  readonly isCompared?: boolean;
  noted(read: Reader, salt: string): Value;
}

export interface ColumnsOfPart {
  readonly columns: readonly Column[];
  readonly keys: readonly string[];
}

export function columnOfSource({ from, path, fold }: ValueSource): string {
  return `${from}${fold === undefined ? '' : `~${fold}`}.${path}`;
}

export function columnOfTest(from: ArgsOrResult, { key }: Pick<Test, 'key'>): string {
  return `${from}?${key}`;
}

export function columnOfAmount({ source, isText, isSigned }: Amount): string {
  return `${source.from}${isSigned ? '%' : '$'}${isText ? '"' : ''}${source.path}`;
}

/** Whether the values of a column are amounts, which add up. */
export function isOfAmounts(key: string): boolean {
  return /^(?:args|result)[$%]/.test(key);
}

export function columnsOf(asked: AskedPart): readonly Column[] {
  const members = asked.same.map(({ earlier }): Column => {
    return { ...memberColumn(earlier), isCompared: true };
  });
  if ('sum' in asked) {
    const { sum, when } = asked;
    return [
      ...members,
      ...(when === undefined ? [] : [testColumn('args', when)]),
      ...(sum === undefined ? [] : [amountColumn(sum)]),
    ];
  }
  const { tests, distinct, atMost, isByOthers } = asked;
  return [
    ...members,
    ...tests.map((each) => testColumn(each.from, each)),
    ...(distinct === undefined ? [] : [memberColumn(distinct)]),
    ...(isByOthers ? [memberColumn(BY)] : []),
    ...atMost.map(({ earlier }) => amountColumn(earlier)),
  ];
}

/** The conditions that a run keeps the truth of. */
export function testsOf(asked: AskedPart): readonly Leaf['tests'][number][] {
  if (!('sum' in asked)) return asked.tests;
  return asked.when === undefined ? [] : [{ ...asked.when, from: 'args' }];
}

/** A column with its key in the record. */
export function inRecord(
  tool: string,
  column: Column,
  asked: AskedPart,
  renamings: Renamings,
): Column {
  if (column.from !== 'args' || !renamings.movesPaths(tool)) return column;
  const test = testsOf(asked).find((each) => columnOfTest(each.from, each) === column.key);
  if (test === undefined)
    return { ...column, saved: inOtherPath(column.key, (path) => renamings.savedPath(tool, path)) };
  const { said, caller } = test;
  if (typeof said === 'function') return column;
  const key = keyOfCondition(said && renamings.savedCondition(tool, said), caller);
  return { ...column, saved: columnOfTest('args', { key }) };
}

/** From where; then . for a value, $ for an amount, % for one of either sign; then the path. */
const NAMED_KEY = /^(args|result)((?:~[a-z,]+)?[.]|[$%]"?)(.*)$/s;

/** The key of the same column of arguments, with another path. */
export function inOtherPath(key: string, pathOf: (path: string) => string): string {
  const [, from, kind = '', path = ''] = NAMED_KEY.exec(key) ?? [];
  return from === 'args' ? `${from}${kind}${pathOf(path)}` : key;
}

/** The column of another build; `undefined` where the key does not say what is kept. */
export function columnNamed(key: string): Column | undefined {
  const [, from, kind = '', path = ''] = NAMED_KEY.exec(key) ?? [];
  if (key === columnOfSource(BY)) return memberColumn(BY);
  if (from !== 'args' && from !== 'result') return undefined;
  try {
    const source: ValueSource = { from, path, keys: path === '' ? [] : parsePath(key, path) };
    if (!kind.endsWith('.'))
      return amountColumn({
        source,
        isText: kind.endsWith('"'),
        isSigned: kind.startsWith('%'),
        scale: undefined,
      });
    const fold = kind === '.' ? undefined : (kind.slice(1, -1).split(',') as Fold[]);
    return memberColumn({ ...source, fold });
  } catch {
    return undefined;
  }
}

export function columnsFrom(all: readonly Column[], part: NotedPart): ColumnsOfPart {
  const columns = all.filter(({ from }) => from === part);
  return { columns, keys: Object.freeze(columns.map(({ key }) => key)) };
}

function memberColumn(source: ValueSource): Column {
  const { from, keys, fold } = source;
  if (from === 'by') {
    const noted = (read: Reader, salt: string): Value => {
      const by = read(keys);
      return typeof by === 'string' ? personDigest(by, salt) : null;
    };
    return { key: columnOfSource(source), from, path: from, noted };
  }
  const noted = (read: Reader, salt: string): Value => {
    const members = membersAt(read, keys, salt, fold);
    return typeof members === 'symbol' ? null : (members ?? null);
  };
  const path = `${from === 'args' ? 'arguments' : from}.${source.path}`;
  return { key: columnOfSource(source), from, path, noted };
}

function testColumn(from: ArgsOrResult, asked: Test): Column {
  const noted = (read: Reader): Value => {
    const truth = asked.test(read);
    return truth === undefined ? null : truth ? 't' : 'f';
  };
  return { key: columnOfTest(from, asked), from, noted };
}

function amountColumn(asked: Amount): Column {
  const { source, isText, isSigned } = asked;
  const noted = (read: Reader): Value => {
    const amount = decimalOf(read(source.keys), isText, isSigned);
    return amount === undefined ? null : digitsOf(amount);
  };
  return { key: columnOfAmount(asked), from: source.from, noted };
}
