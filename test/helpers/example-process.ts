import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A program that prints the address at which it serves, started as its README says. */
export interface ExampleProcess {
  readonly url: URL;
  readonly child: ChildProcess;
  /** `kill -9`. Resolves once it is gone. */
  kill9(): Promise<void>;
}

/** Starts `file` with Node. Resolves once it has printed its address; rejects with what it printed where it ends before. */
export async function startExample(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<ExampleProcess> {
  const typescript = file.endsWith('.ts') ? ['--import', 'tsx'] : [];
  const child = spawn(process.execPath, [...typescript, file, ...args], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kill9 = () => end(child);
  try {
    return { url: await addressOf(child), child, kill9 };
  } catch (error) {
    await kill9();
    throw error;
  }
}

async function addressOf(child: ChildProcess): Promise<URL> {
  const printed: string[] = [];
  const address = new Promise<URL>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        printed.push(line);
        const [found] = /http:\/\/[^\s]+/.exec(line) ?? [];
        if (found !== undefined) resolve(new URL(found));
      });
    }
    child.once('exit', (code) => reject(new Error(`it ended with ${code}:\n${printed.join('\n')}`)));
    child.once('error', reject);
  });
  return address;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
