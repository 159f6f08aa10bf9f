import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { quantile } from './load.ts';
import type { Row, Rows } from './report.ts';

const COMMAND = fileURLToPath(new URL('../../packages/cli/dist/main.js', import.meta.url));
const SERVER = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);
const CALLS = 200;
const CALLED = {
  'ungated call': { name: 'get-sum', arguments: { a: 1, b: 2 } },
  step: { name: 'echo', arguments: { message: 'x' } },
} as const;

/** A client on stdio that does nothing but wait for answers. */
class StdioClient {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, () => void>();
  #id = 0;

  constructor(args: readonly string[], state: string) {
    this.#child = spawn(process.execPath, args, {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: { ...process.env, XDG_STATE_HOME: state },
    });
    if (this.#child.stdout === null) throw new Error('no output');
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const { id, method } = JSON.parse(line) as { id?: number; method?: string };
      if (method === undefined && id !== undefined) this.#waiting.get(id)?.();
    });
  }

  /** Resolves to how long the answer took, in milliseconds. */
  async ask(method: string, params: object = {}): Promise<number> {
    const id = ++this.#id;
    const start = performance.now();
    const answered = new Promise<void>((resolve) => this.#waiting.set(id, resolve));
    this.#write({ id, method, params });
    await answered;
    return performance.now() - start;
  }

  async begin(): Promise<void> {
    const clientInfo = { name: 'bench', version: '1' };
    await this.ask('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo });
    this.#write({ method: 'notifications/initialized' });
  }

  async end(): Promise<void> {
    const exit = once(this.#child, 'exit');
    this.#child.stdin?.end();
    await exit;
  }

  #write(message: object): void {
    this.#child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  }
}

/**
 * What `mcp-interlock stdio` adds to a server: until its first list, to an ungated call, and to a
 * step, which is saved in SQLite twice. Bare and gated server take turns. It stops after each round,
 * and gives all rows after the last one. The command must be built.
 */
export async function* measureStdio(rounds: number): AsyncGenerator<Rows, Rows> {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-bench-'));
  const gate = join(folder, 'gate.json');
  writeFileSync(gate, JSON.stringify({ id: 'bench', order: { echo: {} } }));
  const server = [SERVER, 'stdio'];
  const gated = [COMMAND, 'stdio', gate, '--', process.execPath, ...server];
  const rows = new Map<string, number[]>();
  const add = (name: string, ...ms: readonly number[]): void => {
    rows.set(name, [...(rows.get(name) ?? []), ...ms]);
  };
  try {
    for (let round = 0; round < rounds; round++) {
      for (const [variant, args] of [['bare', server] as const, ['gated', gated] as const]) {
        const start = performance.now();
        const client = new StdioClient(args, folder);
        await client.begin();
        await client.ask('tools/list');
        add(`start to first list, ${variant}`, performance.now() - start);
        for (const [name, params] of Object.entries(CALLED))
          for (let call = 0; call < CALLS; call++) {
            const ms = await client.ask('tools/call', params);
            if (call >= CALLS / 4) add(`${name}, ${variant}`, ms);
          }
        await client.end();
      }
      if (round + 1 < rounds) yield {};
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return Object.fromEntries([...rows].map(([name, times]) => [name, summaryOf(times)]));
}

function summaryOf(times: readonly number[]): Row {
  const of = (share: number): number => Number(quantile(times, share).toFixed(2));
  return { min: of(0), median: of(0.5), max: of(1) };
}
