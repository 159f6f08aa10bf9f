import { readFileSync, writeFileSync } from 'node:fs';

/** What a row says, by the names of its columns. */
export type Row = Readonly<Record<string, number>>;
export type Rows = Readonly<Record<string, Row>>;

/** Prints a line at once. */
export type Print = (line: string) => void;

/** A row to be measured, or several that are measured at once. */
export interface Measurement {
  readonly name: string;
  measure(print: Print): Rows | Promise<Rows>;
}

/** What is written to a file, and compared with one. */
export interface Report {
  readonly date: string;
  readonly node: string;
  readonly machine: string;
  readonly command: string;
  readonly rows: Rows;
}

export function write(report: Report, file: string): void {
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
}

/** Of a row of turns: what the load and the other processes of the machine made of them. */
const NOISY = new Set([
  ...['min', 'median', 'max', 'bare /s', 'gated /s'],
  ...quantilesOf('bare', 'gated'),
]);

function quantilesOf(...variants: readonly string[]): string[] {
  return variants.flatMap((variant) => [`${variant} p50 ms`, `${variant} p99 ms`]);
}

/** Prints the figures of the rows that another report has too: before, now, and the change. */
export function compare({ rows }: Report, file: string): void {
  const before = JSON.parse(readFileSync(file, 'utf8')) as Report;
  console.log(`Since ${before.date} (Node ${before.node}, ${before.machine}: ${before.command})`);
  const both = Object.entries(rows).filter(([name]) => before.rows[name] !== undefined);
  const changes = both.map(([name, row]) => [name, changesOf(before.rows[name] ?? {}, row)]);
  console.table(Object.fromEntries(changes));
}

function changesOf(before: Row, now: Row): Readonly<Record<string, string>> {
  const columns = Object.entries(now).filter(
    ([column]) => before[column] !== undefined && !(NOISY.has(column) && 'ratio' in now),
  );
  return Object.fromEntries(
    columns.map(([column, value]) => {
      const was = before[column] ?? 0;
      const change = Number((value - was).toFixed(2));
      return [column, `${was} → ${value} (${change < 0 ? '' : '+'}${change})`];
    }),
  );
}

/** A table for a README: the rows' names, the ratio and the range of its turns, microseconds. */
export function markdown(rows: Rows): string {
  const columns = [
    ...['ratio', 'floor', 'to floor', 'min', 'median', 'max', 'one core', 'bare µs', 'gated µs'],
  ];
  const head = ['', ...columns].join(' | ');
  const lines = Object.entries(rows).map(([name, row]) =>
    [name, ...columns.map((column) => row[column] ?? '')].join(' | '),
  );
  const rule = '---|'.repeat(columns.length + 1);
  return [`|${head} |`, `|${rule}`, ...lines.map((line) => `| ${line} |`)].join('\n');
}
