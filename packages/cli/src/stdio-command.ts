/**
 * `mcp-interlock stdio`: a gate in front of a server that speaks stdio, as a client's configuration
 * starts it. Hides in which order the two start, and when they have to end.
 */
import { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { type CommandSpec, parseCommand, UsageError } from './command-line.ts';
import { GATE_OPTIONS } from './gate-options.ts';
import { StdioServer } from './stdio-server.ts';

export const STDIO = {
  usage: 'mcp-interlock stdio ./gate.json [options] -- COMMAND [ARG …]',
  about:
    'Starts an MCP server that speaks stdio, and gates it: the line for the configuration of a ' +
    'client, in front of the command that is there. The file is one of a gate, as for ' +
    '`mcp-interlock gate`. The run belongs to the file of the gate and the user of this machine, ' +
    'and goes on when the client starts the command again.',
  options: {
    run: {
      takes: 'NAME',
      help:
        'another run of the same gate, such as one for each environment; new begins one at each ' +
        'start. Default: one for the file and the user',
    },
    store: {
      takes: 'URL',
      help:
        'where runs are kept: sqlite:FILE, memory, redis://… or postgres://…. Default: a file of ' +
        'SQLite for each gate, in the folder where this platform keeps the state of programs',
    },
    key: {
      takes: 'KEY',
      many: true,
      help:
        'what names a run within the user, in order of preference. Default principal, one run. ' +
        'Others are session, a run for each start; conversation; handle:ARGUMENT=TOOL; and ' +
        'managed:ARGUMENT=TOOL, where the gate adds TOOL, for many conversations in one process',
    },
    idle: { takes: 'TIME', help: 'how long a run is kept that nothing touches. Default 30d' },
    ...GATE_OPTIONS,
  },
} as const satisfies CommandSpec;

/** Serves until the client or the server ends. Resolves to the status of the process. */
export async function runStdio(args: readonly string[]): Promise<number> {
  const at = args.indexOf('--');
  const command = at === -1 ? [] : args.slice(at + 1);
  if (command.length === 0)
    throw new UsageError(`give the command of the server behind --: ${STDIO.usage}`);
  const { file, given } = parseCommand(STDIO, args.slice(0, at));
  const output = takeOutput();
  const end = new End(output);
  // The gate takes as long to load as a server does to start.
  const starting = StdioServer.start(command);
  starting.catch(() => {});
  const { gateStdio } = await import('./stdio-gate.ts');
  return gateStdio({ file, given, command, starting, output, end });
}

/** When the process has to end. A client sends SIGTERM, and kills it 2 s later. */
export class End {
  #isUrgent = false;
  /** Resolves with the first signal, or once the client reads no more. */
  readonly asked: Promise<void>;

  constructor(output: Writable) {
    this.asked = new Promise((resolve) => {
      const ask = (): void => {
        this.#isUrgent = true;
        resolve();
      };
      for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, ask);
      output.once('close', ask);
    });
  }

  readonly isUrgent = (): boolean => this.#isUrgent;

  async until(ms: number, isDone: () => boolean): Promise<void> {
    const last = performance.now() + ms;
    while (!this.#isUrgent && !isDone() && performance.now() < last) await delay(10);
  }
}

/**
 * Standard output is the client's alone. All else that the process prints, such as the file of a
 * gate by `console.log`, goes to standard error.
 */
function takeOutput(): Writable {
  const { stdout, stderr } = process;
  const write = stdout.write.bind(stdout) as (
    bytes: Uint8Array,
    done: (e?: Error | null) => void,
  ) => boolean;
  stdout.write = stderr.write.bind(stderr);
  const output = new Writable({ write: (bytes: Uint8Array, _, done) => void write(bytes, done) });
  // The client reads no more: `close` follows.
  output.on('error', () => {});
  stdout.on('error', () => output.destroy());
  return output;
}
