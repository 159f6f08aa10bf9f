import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { quantile } from './load.ts';
import { ServerProcess, type StartOptions } from './server-process.ts';
import { DEFAULT } from './setups.ts';

/** What is loaded before the package. */
const BEFORE = {
  'an empty process': '',
  'a process with Express and the SDK': `
    await import('express');
    await import('@modelcontextprotocol/sdk/server/mcp.js');
    await import('@modelcontextprotocol/sdk/server/streamableHttp.js');`,
} as const;

/** Milliseconds that the import takes, and until a fresh server has answered its first list. */
export async function measureCold(
  rounds: number,
  options: StartOptions,
): Promise<Record<string, Record<string, number>>> {
  const rows: Record<string, number[]> = {};
  for (const [name, before] of Object.entries(BEFORE)) {
    const code = `${before}
      const start = performance.now();
      await import('mcp-interlock');
      console.log(performance.now() - start);`;
    rows[`import in ${name}`] = Array.from({ length: rounds }, () =>
      Number(run(code, options.node ?? process.execPath)),
    );
  }
  const list = DEFAULT.find(({ name }) => name.startsWith('tools/list'));
  for (const variant of ['bare', 'gated'] as const) {
    const times: number[] = [];
    for (let round = 0; list !== undefined && round < rounds; round++) {
      const start = performance.now();
      const server = await ServerProcess.start(variant, list, { ...options, connections: 1 });
      await server.turn(1);
      times.push(performance.now() - start);
      await server.stop();
    }
    rows[`first list of a ${variant} server, its start and the loader of TypeScript included`] =
      times;
  }
  return Object.fromEntries(
    Object.entries(rows).map(([name, times]) => {
      const at = (share: number) => Math.round(quantile(times, share));
      return [name, { min: at(0), median: at(0.5), max: at(1) }];
    }),
  );
}

function run(code: string, node: string): string {
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  return execFileSync(node, ['--input-type=module', '--eval', code], { cwd, encoding: 'utf8' });
}
