import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

export interface ProgramOptions {
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** The program is ready once it has printed a line that this matches. */
  readonly ready: RegExp;
}

/** A program in its own process, started as its documentation says. */
export interface Program {
  /** The match in the line that said that it is ready. */
  readonly match: string;
  readonly child: ChildProcess;
  /** What it has printed since then. */
  output(): string;
  /** `kill -9`. Resolves once the process has ended. */
  kill9(): Promise<void>;
}

/** The address that our programs print once they serve. */
export const ADDRESS = /http:\/\/\S+/;

/**
 * Starts `file` with Node. Resolves once it is ready. Where it ends before, rejects with what it
 * printed.
 */
export async function startProgram(file: string, options: ProgramOptions): Promise<Program> {
  const typescript = file.endsWith('.ts') ? ['--import', 'tsx'] : [];
  const child = spawn(process.execPath, [...typescript, file, ...(options.args ?? [])], {
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const match = await readiness(child, options.ready);
  let printed = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (bytes: Buffer) => {
      printed += bytes.toString();
    });
  return { match, child, output: () => printed, kill9: () => kill9(child) };
}

function readiness(child: ChildProcess, ready: RegExp): Promise<string> {
  const printed: string[] = [];
  return new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        printed.push(line);
        const match = ready.exec(line);
        if (match !== null) resolve(match[0]);
      });
    }
    child.once('error', reject);
    child.once('exit', (code) =>
      reject(new Error(`it ended with ${code}:\n${printed.join('\n')}`)),
    );
  });
}

async function kill9(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
