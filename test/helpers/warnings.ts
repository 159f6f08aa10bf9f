/**
 * What a test warns of without failing. It is printed at the end of the run, below the results of
 * all files. Hides how it gets there from the process of a test.
 */
import type { RunnerTestCase } from 'vitest';
import type { TestProject } from 'vitest/node';
import { painted } from '../../packages/cli/src/log.ts';

declare module 'vitest' {
  interface TaskMeta {
    warnings?: readonly string[];
  }
}

/** Each warning begins with a file and a line. */
export function warn({ meta }: RunnerTestCase, warnings: readonly string[]): void {
  meta.warnings = warnings;
}

/** Vitest calls this before all tests, and what it returns after them. */
export default function printAtTheEnd({ vitest }: TestProject): () => void {
  return () => {
    const tests = vitest.state.getTestModules().flatMap((each) => [...each.children.allTests()]);
    const report = reportOf(tests.flatMap((test) => test.meta().warnings ?? []));
    if (report !== '') process.stderr.write(painted(report, process.stderr));
  };
}

export function reportOf(warnings: readonly string[]): string {
  if (warnings.length === 0) return '';
  const lines = warnings.map((each) => `  warning  ${each}\n`);
  const count = `${warnings.length} ${warnings.length === 1 ? 'warning' : 'warnings'}`;
  return `\n${lines.join('')}\n${count}. Warnings fail no test: see Style in CONTRIBUTING.md.\n`;
}
