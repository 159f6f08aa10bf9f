/**
 * What rules ask of a call, in words for models and as facts for programs. Hides how a part of a
 * rule reads.
 */

import { waitWords, windowWords } from '../basics/clock.ts';
import { distinct } from '../basics/collections.ts';
import { type Decimal, digitsOf, showDecimal } from './decimal.ts';
import { type CheckedLimit, isBoundByCalls } from './limits.ts';
import type { Amount, Leaf } from './rule-parts.ts';
import { CALLERS, saidBy } from './rule-tests.ts';
import { MOST_MEMBERS } from './values.ts';
import { isSameName, type Part, retryAfter } from './verdict.ts';

/** One part of a rule that refuses a call, as programs read it. */
export interface RefusedPart {
  readonly part: 'arguments' | 'after' | 'notAfter' | 'once' | 'limit' | 'caller';
  /** The earlier tool; of a limit the called one. */
  readonly tool?: string | undefined;
  /** What must come from outside, or must not have come, in place of a tool; and by whom. */
  readonly outside?: string | undefined;
  readonly who?: string | undefined;
  /** The arguments that leave the rule open. */
  readonly paths?: readonly string[] | undefined;
  /** For how long such a call counts, in milliseconds. */
  readonly withinMs?: number | undefined;
  /** In how many milliseconds this part lets the call through, without another call. */
  readonly retryAfterMs?: number | undefined;
  /** In words. */
  readonly says: string;
}

/**
 * What the parts say to a model.
 *
 * @param hasWay whether the way to the tool says already which calls are missing
 */
export function partWords(parts: readonly Part[], hasWay: boolean): readonly string[] {
  const beside = parts.filter((each) => !isBare(each));
  // Of a call that no state refuses, the way says nothing.
  return [...new Set((beside.length === 0 && !hasWay ? parts : beside).map(wordsOf))];
}

/** The parts without earlier tools whose names the client must not learn. */
export function partsNaming(
  parts: readonly Part[],
  isShown: (tool: string) => boolean,
): readonly Part[] {
  return parts.flatMap((each): readonly Part[] => {
    if (each.part === 'any') {
      const shown = partsNaming(each.parts, isShown);
      return shown.length === 0 ? [] : [{ ...each, parts: shown }];
    }
    return 'leaf' in each && !isShown(each.leaf.tool) ? [] : [each];
  });
}

/** What the parts say to a program. Two requirements may ask the same. */
export function partsToReport(parts: readonly Part[]): readonly RefusedPart[] {
  return distinct(parts.flatMap(partToReport));
}

function partToReport(part: Part): readonly RefusedPart[] {
  if (part.part === 'any') return partsToReport(part.parts);
  const says = wordsOf(part);
  if (part.part === 'arguments') return [{ part: part.part, paths: part.paths, says }];
  if (part.part === 'caller') return [{ part: part.part, says }];
  if (part.part === 'once') return [{ part: part.part, tool: part.tool, says }];
  const { tool, withinMs } = part.part === 'limit' ? part.limit : part.leaf;
  const waits = part.part === 'after' ? {} : wait(part.retryAfterMs);
  const { outside } = part.part === 'limit' ? {} : part.leaf;
  const source = outside === undefined ? { tool } : { outside: tool, who: outside.who };
  return [{ part: part.part, ...source, ...window(withinMs), ...waits, says }];
}

/** In how many milliseconds the call may be made again, as a member. */
export function retryOf(parts: readonly Part[]): { readonly retryAfterMs?: number } {
  return wait(retryAfter(parts));
}

function window(withinMs: number): Pick<RefusedPart, 'withinMs'> {
  return withinMs === Number.POSITIVE_INFINITY ? {} : { withinMs };
}

function wait(retryAfterMs: number | undefined): { readonly retryAfterMs?: number } {
  return retryAfterMs === undefined ? {} : { retryAfterMs };
}

/** A call that was never made, and of which any will do. */
function isBare(part: Part): boolean {
  if (part.part === 'any') return part.parts.every(isBare);
  if (part.part !== 'after' || part.near !== 'none' || part.leaf.outside) return false;
  const { times, tests, same, atMost, withinMs, outcome } = part.leaf;
  const isAny = tests.length + same.length + atMost.length === 0 && outcome === 'succeeded';
  return times === 1 && isAny && withinMs === Number.POSITIVE_INFINITY;
}

function wordsOf(part: Part): string {
  switch (part.part) {
    case 'arguments':
      return argumentWords(part.paths, part.why);
    case 'any':
      return part.parts.map(wordsOf).join(', or ');
    case 'after':
      return afterWords(part);
    case 'notAfter': {
      const { withinMs, outcome, times, distinct, outside } = part.leaf;
      if (part.isFull)
        return `there were too many calls of ${part.leaf.tool} to know them all${again(part)}`;
      const apart = distinct === undefined ? '' : `with different ${distinct.path} `;
      const often = times > 1 ? `${times} times ${apart}` : '';
      const ended =
        outcome === 'failed' ? 'failed' : outcome === 'any' ? 'was called' : 'succeeded';
      const what = outside === undefined ? ended : 'came';
      const call = barringWords(part.leaf);
      if (withinMs === Number.POSITIVE_INFINITY) return `${call} ${what} ${often}before`;
      return `${call} ${what} ${often}less than ${windowWords(withinMs)} ago${again(part)}`;
    }
    case 'caller':
      return `only a caller with ${conditionWords(part.caller)} may call it`;
    case 'once':
      return `${part.tool} may succeed only once`;
    case 'limit':
      return limitWords(part.limit, part);
  }
}

function again({ retryAfterMs }: { readonly retryAfterMs: number | undefined }): string {
  return retryAfterMs === undefined ? '' : `: again in ${waitWords(retryAfterMs)}`;
}

function argumentWords(paths: readonly string[], why: 'when' | 'same' | 'sum'): string {
  const [callers = [], args = []] = [true, false].map((isOfCaller) =>
    paths.filter((each) => each !== '' && each.startsWith(CALLERS) === isOfCaller),
  );
  const named = args.map((each) => JSON.stringify(each));
  const ofCall = named.length === 0 ? 'its arguments' : `its argument ${named.join(' and ')}`;
  const what = [...(args.length > 0 || callers.length === 0 ? [ofCall] : []), ...callers].join(
    ' and ',
  );
  if (why === 'sum') return `${what} must be a number that is not negative, and not too long`;
  if (why === 'same')
    return `${what} must be there, and a list must have 1 to ${MOST_MEMBERS} members`;
  return `${what} must be there, and of the type that a rule compares`;
}

/** What is needed of an earlier call: `call approve_transfer first`. */
function afterWords({ leaf, near, count, needed }: Extract<Part, { part: 'after' }>): string {
  const { tool, withinMs, times, distinct, tests, outcome, outside } = leaf;
  if (needed !== undefined) return shortageWords(leaf, needed, count);
  if (outside !== undefined) return sentWords(leaf, outside.who, near, count);
  if (outcome === 'failed')
    return `${tool} must have failed ${times > 1 ? `${times} times ` : ''}before`;
  const window = windowWords(withinMs);
  const values = valuesNeeded(leaf, near === 'other' ? tool : 'it');
  const isOne = times === 1 && tests.length === 0;
  if (near === 'other' && isOne && values !== '') return values;
  if (near === 'late' && times === 1)
    return `call ${tool} again: its answer is older than ${window}`;
  if (near === 'used' && times === 1)
    return `call ${tool} again${sameWords(leaf)} only to do it once more: each success counts once`;
  const often = times > 1 ? ` ${times} times` : '';
  const different = distinct === undefined ? '' : ` with different ${distinct.path}`;
  const tested = testWords(tests).map((each) => `, with ${each}`);
  const made = times > 1 && count > 0 && distinct === undefined ? ` (${count} so far)` : '';
  const lasting = withinMs === Number.POSITIVE_INFINITY ? [] : [`it counts for ${window}`];
  const also = [...(values === '' ? [] : [valuesNeeded(leaf, 'it')]), ...lasting];
  const more = also.length === 0 ? '' : `: ${also.join(', and ')}`;
  return `call ${tool}${sameWords(leaf)} first${often}${different}${tested.join('')}${made}${more}`;
}

/** `a person in finance must do approve_payment first`, and that no call does it. */
function sentWords(
  leaf: Leaf,
  who: string,
  near: Extract<Part, { part: 'after' }>['near'],
  count: number,
): string {
  const { tool, withinMs, times, distinct, tests, isByOthers } = leaf;
  const isAgain = near === 'late' || near === 'used';
  const often = times > 1 ? ` ${times} times` : '';
  const apart = distinct?.from === 'by' ? ' by different people' : '';
  const different = distinct && apart === '' ? ` with different ${distinct.path}` : apart;
  const tested = testWords(tests).map((each) => `, with ${each}`);
  const others = isByOthers ? ', and not the caller' : '';
  const made = times > 1 && count > 0 && distinct === undefined ? ` (${count} so far)` : '';
  const also = [
    ...(near === 'late' ? [`what came is older than ${windowWords(withinMs)}`] : []),
    ...(near === 'used' ? ['each counts once'] : []),
    ...(valuesNeeded(leaf, 'it') === '' ? [] : [valuesNeeded(leaf, 'it')]),
    ...(withinMs === Number.POSITIVE_INFINITY ? [] : [`it counts for ${windowWords(withinMs)}`]),
    'no call does it, so wait for it',
  ];
  return (
    `${who} must do ${tool}${sameWords(leaf)}${isAgain ? ' again' : ' first'}` +
    `${often}${different}${tested.join('')}${others}${made}: ${also.join(', and ')}`
  );
}

/** What is needed where one call cannot serve two requirements. */
function shortageWords(leaf: Leaf, needed: number, count: number): string {
  const { tool, tests, outside } = leaf;
  const tested = testWords(tests).map((each) => `, with ${each},`);
  const call = outside === undefined ? 'call' : `${outside.who} must do`;
  const calls = outside === undefined ? 'calls of it' : 'of them';
  const often = needed - count === 1 ? 'once more' : `${needed - count} times more`;
  const there = `${count} ${count === 1 ? 'is' : 'are'} there`;
  return (
    `${call} ${tool}${sameWords(leaf)}${tested.join('')} ${often}: ` +
    `${needed} ${calls} are needed, and ${there}`
  );
}

/** `with the same order_id`; empty where the two calls name their values otherwise. */
function sameWords({ same }: Leaf): string {
  if (same.length === 0 || !same.every(isSameName)) return '';
  return ` with the same ${same.map(({ own }) => pathWords(own.path)).join(' and ')}`;
}

/** `to_account must be an accountId that get_balance returned`; empty as above. */
function valuesNeeded({ same, atMost }: Leaf, tool: string): string {
  const amounts = atMost.map(({ own, earlier }) => {
    const how = earlier.source.from === 'result' ? 'returned' : 'was called with';
    return `${own.source.path} must be at most ${withArticle(amountWords(earlier))} that ${tool} ${how}`;
  });
  if (same.every(isSameName)) return amounts.join(' and ');
  const values = same.map(({ own, earlier }) => {
    const how = earlier.from === 'result' ? 'returned' : 'was called with';
    return `${own.path} must be ${withArticle(earlier.path)} that ${tool} ${how}`;
  });
  return [...values, ...amounts].join(' and ');
}

/** Which earlier call stands in the way: `reject with the same id`. */
function barringWords(leaf: Leaf): string {
  const tested = testWords(leaf.tests);
  const own = tested.map((each) => ` with ${each}`).join(' and');
  if (leaf.same.every(isSameName)) return `${leaf.tool}${sameWords(leaf)}${own}`;
  const values = leaf.same.map(({ own, earlier }) => {
    const where = earlier.from === 'result' ? 'a result' : 'arguments';
    return `${where} that has ${own.path} as ${earlier.path}`;
  });
  return `a call of ${leaf.tool} with ${[...values, ...tested].join(' and ')}`;
}

/** All arguments have the empty path. */
export function pathWords(path: string): string {
  return path === '' ? 'arguments' : path;
}

function withArticle(word: string): string {
  return /^[aeiou]/i.test(word) ? `an ${word}` : `a ${word}`;
}

/** What must have been so of an earlier call: `a result status "open"`. */
function testWords(tests: Leaf['tests']): readonly string[] {
  return tests.map(
    ({ from, ...test }) =>
      `${from === 'args' ? 'arguments' : 'a result'} ${conditionWords(saidBy(test))}`,
  );
}

function conditionWords(said: unknown): string {
  if (typeof said === 'function') return 'that a rule accepts';
  const members = Object.entries(said as Record<string, unknown>);
  const isPlain = members.every(([, value]) => typeof value !== 'object' || value === null);
  if (!isPlain) return `as ${JSON.stringify(said)} asks`;
  return members.map(([path, value]) => `${path} ${JSON.stringify(value)}`).join(' and ');
}

/** A limit as lists say it: `At most 5 in 5 minutes.` */
export function limitNote(limit: CheckedLimit): string {
  const some = limit.when === undefined ? '' : 'For some calls: ';
  const words = `${some}${limitWords(limit)}.`;
  // An argument's name stays as it is.
  return limit.sum === undefined || some !== '' ? words.replace(/^at/, 'At') : words;
}

/** @param part where it refuses a call: what is left of it, and when it leaves room again */
function limitWords(
  { times, sum, withinMs, same, outcome, also }: CheckedLimit,
  part?: Extract<Part, { part: 'limit' }>,
): string {
  const window = withinMs === Number.POSITIVE_INFINITY ? '' : ` in ${windowWords(withinMs)}`;
  const each =
    same.length === 0
      ? ''
      : ` for each ${same.map(({ own }) => own.path || 'set of arguments').join(' and ')}`;
  const others = also.map(({ tool }) => tool).join(' and ');
  const beside = others === '' ? '' : ` together with ${others}`;
  const kind = outcome === 'failed' ? ' that fail' : '';
  const when = part === undefined ? '' : again(part);
  if (part?.isFull) return `too many of its calls${window} are to be compared with one more${when}`;
  if (sum === undefined) return `at most ${times}${kind}${beside}${each}${window}${when}`;
  const { isIncluded, isText } = sum;
  const show = isText ? digitsOf : showDecimal;
  const most = isBoundByCalls(sum)
    ? `the ${sum.bound.amount.source.path} of ${sum.bound.leaf.tool}`
    : `${isIncluded ? 'at most' : 'less than'} ${showDecimal(sum.bound as Decimal)}`;
  const at = isIncluded ? (isBoundByCalls(sum) ? 'at most ' : '') : 'less than ';
  const spare = part?.left && `${at}${show(part.left)} is left`;
  const left = part === undefined ? '' : `, and ${spare ?? 'an earlier amount is not known'}`;
  return `${amountWords(sum)}${beside} may add up to ${most}${each}${window}${left}${when}`;
}

function amountWords({ source, scale }: Amount): string {
  return scale === undefined ? source.path : `${source.path} times ${showDecimal(scale)}`;
}
