/** Times, durations and run keys as people read them. */

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
] as const;

/** A duration with its one or two biggest units: `3 min 20 s`, `2 d 4 h`, `0 s`. */
export function inWords(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000)) * 1000;
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  const [name, size] = UNITS[first] ?? ['s', 1000];
  const big = Math.floor(seconds / size);
  const [smallName, smallSize] = UNITS[first + 1] ?? ['', 0];
  const small = smallSize > 0 ? Math.floor((seconds % size) / smallSize) : 0;
  return small > 0 ? `${big} ${name} ${small} ${smallName}` : `${big} ${name}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

/** The time of day, with the day where it is not `now`'s. */
export function atTime(at: number, now: number): string {
  const time = CLOCK.format(at);
  return DAY.format(at) === DAY.format(now) ? time : `${DAY.format(at)}, ${time}`;
}

const WHOLE = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'full',
  timeStyle: 'long',
  hourCycle: 'h23',
});

/** The whole date, with the year and the time zone: logs of other machines may be in another. */
export function wholeDate(at: number): string {
  return WHOLE.format(at);
}

const COUNT = new Intl.NumberFormat('en');

/** `12,034` */
export function counted(count: number): string {
  return COUNT.format(count);
}

/** `1 run`, `12,034 runs` */
export function many(count: number, what: string): string {
  return `${counted(count)} ${what}${count === 1 ? '' : 's'}`;
}

/** `3.5 %`; `0 %` only where there is none. */
export function shareInWords(part: number, whole: number): string {
  const percent = whole === 0 ? 0 : (100 * part) / whole;
  if (percent > 0 && percent < 0.1) return '< 0.1 %';
  return `${percent.toFixed(percent === 0 || percent >= 99.95 ? 0 : 1)} %`;
}

const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** `12K`, where there is little room. */
export function countedShort(count: number): string {
  return count < 1000 ? String(count) : SHORT.format(count);
}

/** The key of a run as a row has room for it: what distinguishes it from other runs comes first. */
export interface KeyInWords {
  readonly first: string;
  /** What many runs have in common, such as the issuer. Empty where there is no such part. */
  readonly rest: string;
}

/**
 * A principal's key begins with the issuer, and a handle's with the argument. Here the subject and
 * the handle come first. A session's id is all that there is of its key.
 */
export function keyInWords(key: string): KeyInWords {
  const [, kind, named = ''] = /^(principal|handle) (.*)$/s.exec(key) ?? [];
  if (kind === 'principal') {
    const [first = '', ...rest] = principalParts(named);
    return { first, rest: rest.join(' · ') };
  }
  const [argument, owner, handle] = kind === 'handle' ? partsIn(named) : [];
  if (typeof handle !== 'string') return { first: key, rest: '' };
  const rest = [...(typeof owner === 'string' ? principalParts(owner) : []), String(argument)];
  return { first: handle, rest: rest.join(' · ') };
}

/** The subject and its issuer; an app's own name of a principal has no issuer. */
function principalParts(principal: string): readonly string[] {
  const [issuer, subject, ...more] = partsIn(principal);
  if (typeof issuer !== 'string' || typeof subject !== 'string' || more.length > 0)
    return [principal];
  return [subject, issuer];
}

function partsIn(text: string): readonly unknown[] {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}
