/** Times and durations as people read them. */

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

const COUNT = new Intl.NumberFormat('en');

/** `12,034` */
export function counted(count: number): string {
  return COUNT.format(count);
}

const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** `12K`, where there is little room. */
export function countedShort(count: number): string {
  return count < 1000 ? String(count) : SHORT.format(count);
}
