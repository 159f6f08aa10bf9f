/**
 * How long `mcp-interlock replay` takes for many recorded calls, and how much memory. Hides how the
 * recording is made up: a thousand runs are open at a time.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Row } from './report.ts';

const CALLS_OF_RUN = 10;
const OPEN_AT_ONCE = 1_000;
const TOOLS = ['search', 'get_order', 'add_item', 'checkout', 'pay'];
const RULES = {
  search: {},
  get_order: { after: 'search' },
  add_item: { after: { tool: 'get_order', within: '1h' } },
  checkout: { after: 'add_item', limit: { times: 50, within: '1h' } },
  pay: { after: { tool: 'checkout', consumes: true }, limit: { times: 5, within: '5m' } },
};

const CLI = fileURLToPath(new URL('../../packages/cli/dist/main.js', import.meta.url));
/** Prints the peak of its memory, in kilobytes. */
const TELLS_PEAK =
  'process.on("exit", () => console.error("peak", process.resourceUsage().maxRSS))';

export async function measureReplay(runs: number): Promise<Row> {
  // Beside the packages that its gate file imports.
  const folder = mkdtempSync(fileURLToPath(new URL('../../node_modules/.bench-', import.meta.url)));
  const calls = join(mkdtempSync(join(tmpdir(), 'interlock-replay-')), 'calls.jsonl');
  try {
    await record(calls, runs);
    const gate = join(folder, 'gate.mjs');
    const made = `StateMachineGate.fromOrder(${JSON.stringify(RULES)}, { id: 'shop' })`;
    writeFileSync(
      gate,
      `import { StateMachineGate } from 'mcp-interlock';\nexport default ${made};\n`,
    );
    const tells = ['--import', `data:text/javascript,${TELLS_PEAK}`];
    const start = performance.now();
    const child = spawn(process.execPath, [...tells, CLI, 'replay', gate, '--calls', calls]);
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (text: Buffer) => {
        said += text;
      });
    const [code] = await once(child, 'close');
    if (code !== 0) throw new Error(`replay ended with ${code}: ${said}`);
    return {
      calls: runs * CALLS_OF_RUN,
      runs,
      seconds: Math.round((performance.now() - start) / 1_000),
      'peak MB': Math.round(Number(/peak (\d+)/.exec(said)?.[1]) / 1_000),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
    rmSync(join(calls, '..'), { recursive: true, force: true });
  }
}

async function record(path: string, runs: number): Promise<void> {
  const file = createWriteStream(path);
  let seq = 0;
  const write = async (line: object): Promise<void> => {
    const text = JSON.stringify({ instance: 'bench', seq: ++seq, at: AT + seq, ...line });
    if (!file.write(`${text}\n`)) await once(file, 'drain');
  };
  const own = { format: 'mcp-interlock/calls', version: 1, clock: 'process', key: 'bench' };
  await write({ type: 'recording', ...own });
  const open: { run: string; called: number }[] = [];
  let [begun, call] = [0, 0];
  for (;;) {
    while (open.length < OPEN_AT_ONCE && begun < runs)
      open.push({ run: digest(`run ${begun++}`), called: 0 });
    const at = Math.floor(Math.random() * open.length);
    const each = open[at];
    if (each === undefined) break;
    const { run, called } = each;
    const id = { '/id': `s${digest(`${run} ${called % 3}`)}` };
    const args = { hmacs: { ...id, '/amount': `n${digest(String(called % 7))}` } };
    const tool = TOOLS[called % TOOLS.length];
    await write({ type: 'start', call: ++call, tool, run, client: 'bench', args });
    await write({ type: 'end', call, outcome: 'ok', result: { hmacs: id } });
    each.called += 1;
    if (each.called === CALLS_OF_RUN) open.splice(at, 1);
  }
  file.end();
  await once(file, 'finish');
}

const AT = 1_764_108_000_000;

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 21);
}
