import { StateMachineGate } from '../../src/index.ts';

/** Something that a client sends, at any length, and what is done about it. */
export interface Growing {
  readonly name: string;
  readonly lengths: readonly number[];
  /** Prepares one of that length; what it returns is measured. */
  at(length: number): () => unknown;
}

const gate = new StateMachineGate({ id: 'docs', initial: 'open', states: { open: {} } })
  .bindResource('docs://receipts/**', 'open')
  .bindResource('docs://*/a*b*c/**', 'open')
  .bindResource('docs://**/x*y*/z', 'open');
const { reads } = gate.compile();

/** How a URI may be written so that reading it takes long. */
const URIS: Readonly<Record<string, (length: number) => string>> = {
  plain: (length) => 'a'.repeat(length),
  'dots at an end': (length) => `${'.'.repeat(length - 1)}x`,
  'dots and spaces': (length) => `${'. '.repeat((length - 1) / 2)}x`,
  slashes: (length) => `a${'/'.repeat(250)}`.padEnd(length, 'a'),
  encoded: (length) => 'a%41'.repeat(length / 4),
  'encoded twice': (length) => 'a%2541'.repeat(length / 6),
  'with query and fragment': (length) => `${'a%2F'.repeat((length - 4) / 4)}?a#b`,
  'combining marks': (length) => `a${'\u0301\u0327'.repeat(15)}`.repeat((length - 16) / 181),
};

export const GROWING: readonly Growing[] = Object.entries(URIS).map(([name, make]) => ({
  name: `resources/read, a URI: ${name}`,
  lengths: [500, 1_000, 2_000, 4_000],
  at(length) {
    const uri = `docs://a/${make(length)}`;
    return () => reads.ofResource(uri);
  },
}));

/**
 * Microseconds a run at each length, and how much faster than the length they grow: 1 is in
 * proportion.
 */
export function measureGrowth({ lengths, at }: Growing, turnMs: number): Record<string, number> {
  const times = lengths.map((length) => microseconds(at(length), turnMs));
  const row = lengths.map((length, index) => [`${length}`, Math.round(times[index] ?? 0)] as const);
  const longer = (lengths.at(-1) ?? 1) / (lengths[0] ?? 1);
  const slower = (times.at(-1) ?? 0) / (times[0] ?? 1);
  return { ...Object.fromEntries(row), growth: Number((slower / longer).toFixed(2)) };
}

/** The fastest of several turns: other work of the machine only makes a turn slower. */
function microseconds(run: () => unknown, turnMs: number): number {
  let fastest = Number.POSITIVE_INFINITY;
  for (let turn = 0; turn < 5; turn++) {
    const start = performance.now();
    let runs = 0;
    for (; performance.now() - start < turnMs / 10; runs++) run();
    fastest = Math.min(fastest, (performance.now() - start) / runs);
  }
  return fastest * 1_000;
}
