import type { PartName } from './options.ts';
import type { StoreName } from './stores.ts';

/** What one part of the torture came to on one store. */
export interface PartResult {
  /** What was done. */
  readonly did: string;
  /** The figures that the promise is about. */
  readonly measured: string;
  /** What else was counted. */
  readonly details: string;
  /** All that contradicts the promises, in words. */
  readonly faults: readonly string[];
}

/** One line of the table. */
export interface Row extends PartResult {
  readonly store: StoreName;
  readonly part: PartName;
  readonly seconds: number;
  /** Whether there was anything to be done: a store without a server cannot be restarted. */
  readonly applies: boolean;
}

const MOST_FAULTS_SHOWN = 10;

/** What is printed as soon as a part is over. */
export function describeRow({
  store,
  part,
  did,
  measured,
  details,
  faults,
  seconds,
  applies,
}: Row): string {
  if (!applies) return `${store}, ${part}: does not apply (${did})`;
  const shown = faults.slice(0, MOST_FAULTS_SHOWN).map((fault) => `\n  BROKEN ${fault}`);
  const more = faults.length - shown.length;
  return (
    `${store}, ${part}: ${did}; ${measured}; ${details} (${seconds.toFixed(0)} s)` +
    shown.join('') +
    (more > 0 ? `\n  and ${more} more` : '')
  );
}

export function tableOf(rows: readonly Row[]): string {
  const head = ['store', 'part', 'done', 'measured', 'broken', 'seconds'];
  const cells = rows.map((row) => [
    row.store,
    row.part,
    row.applies ? row.did : '-',
    row.applies ? row.measured : row.did,
    row.applies ? String(row.faults.length) : '-',
    row.applies ? row.seconds.toFixed(0) : '-',
  ]);
  const widths = head.map((title, column) =>
    Math.max(title.length, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  const line = (texts: readonly string[]) =>
    texts
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...cells.map(line)].join(
    '\n',
  );
}

/** The last line: what it all came to, and how to do it again. */
export function summaryOf(rows: readonly Row[], command: string): string {
  const faults = rows.reduce((sum, { faults }) => sum + faults.length, 0);
  const seconds = rows.reduce((sum, row) => sum + row.seconds, 0);
  const stores = [...new Set(rows.map(({ store }) => store))].join(', ');
  const verdict = faults === 0 ? 'ALL HELD' : `BROKEN ${faults} TIMES`;
  return `${verdict} on ${stores} in ${(seconds / 60).toFixed(1)} minutes: ${command}`;
}
