import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** A private server of the tests, with its own port and folder. It ends with their process. */
export interface Service {
  readonly url: string;
  /** Ends the server and removes its folder. */
  stop(): Promise<void>;
  /** `kill -9`, as a crash would; port and data stay. Resolves once the server is dead. */
  kill9(): Promise<void>;
  /**
   * Stops it if it runs, and starts it again on the same port and data. Resolves once it answers.
   */
  restart(): Promise<void>;
}

export interface ServerSpec {
  readonly command: string;
  readonly args: readonly string[];
  /** The server's own folder: removed by `stop()`, or by the watchdog. */
  readonly folder: string;
  readonly owner?: { readonly uid: number; readonly gid: number } | undefined;
  /** The signal that ends it in good order. */
  readonly stopSignal: NodeJS.Signals;
  /** The signal that ends it at once, with every process that it has forked. */
  readonly abortSignal: 'SIGKILL' | 'SIGQUIT';
  /** Resolves if the server answers; rejects while it does not. */
  readonly probe: () => Promise<unknown>;
}

const READY_WITHIN_MS = 30_000;
const STOPPED_WITHIN_MS = 10_000;

/** Starts a server. Resolves once it answers. */
export async function startServer(url: string, spec: ServerSpec): Promise<Service> {
  let running = await launch(spec);

  async function halt(signal: NodeJS.Signals) {
    await running.end(signal);
  }
  return {
    url,
    async stop() {
      await halt(spec.stopSignal);
      await rm(spec.folder, { recursive: true, force: true });
    },
    kill9: () => halt('SIGKILL'),
    async restart() {
      await halt(spec.stopSignal);
      running = await launch(spec);
    },
  };
}

interface Running {
  end(signal: NodeJS.Signals): Promise<void>;
}

/**
 * Tries again until the deadline: after a crash, the remains of the last process may still be in
 * use.
 */
async function launch(spec: ServerSpec): Promise<Running> {
  const deadline = Date.now() + READY_WITHIN_MS;
  for (;;) {
    const child = spawnServer(spec);
    const guard = watchdog(child, spec);
    if (await answers(child, spec, deadline)) return { end: (signal) => end(child, guard, signal) };
    await end(child, guard, 'SIGKILL');
    if (Date.now() > deadline) throw new Error(`${spec.command} did not start:\n${logTail(spec)}`);
    await delay(100);
  }
}

/** In its own process group, so that Ctrl-C in a terminal reaches the tests and not the server. */
function spawnServer(spec: ServerSpec): ChildProcess {
  const log = openSync(logFile(spec), 'a');
  const child = spawn(spec.command, spec.args, {
    cwd: spec.folder,
    stdio: ['ignore', log, log],
    detached: true,
    ...spec.owner,
  });
  closeSync(log);
  child.on('error', () => {});
  child.unref();
  return child;
}

/**
 * A shell that kills the server and removes its folder when its standard input ends. That happens
 * when this process ends in any way. A line on its input says that the server has stopped already.
 */
function watchdog(server: ChildProcess, spec: ServerSpec): ChildProcess {
  const clearUp = 'kill -s "$2" -- "-$1"; sleep 1; kill -s KILL -- "-$1"; rm -rf -- "$3"';
  const script = `read -r _ || { ${clearUp}; } 2>/dev/null`;
  const args = [String(server.pid), spec.abortSignal.slice(3), spec.folder];
  const shell = spawn('/bin/sh', ['-c', script, 'watchdog', ...args], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  shell.stdin?.on('error', () => {});
  shell.unref();
  if (shell.stdin && 'unref' in shell.stdin) (shell.stdin as unknown as { unref(): void }).unref();
  return shell;
}

async function answers(child: ChildProcess, spec: ServerSpec, deadline: number): Promise<boolean> {
  while (isAlive(child) && Date.now() < deadline) {
    try {
      await spec.probe();
      return isAlive(child);
    } catch {
      await delay(20);
    }
  }
  return false;
}

async function end(
  child: ChildProcess,
  guard: ChildProcess,
  signal: NodeJS.Signals,
): Promise<void> {
  if (isAlive(child)) {
    child.ref();
    const gone = once(child, 'exit');
    kill(child, signal);
    const timer = setTimeout(() => kill(child, 'SIGKILL'), STOPPED_WITHIN_MS);
    await gone;
    clearTimeout(timer);
  }
  guard.stdin?.end('\n');
}

/**
 * Each of PostgreSQL's children needs its own signal for a crash of the whole server, since they
 * leave its process group.
 */
function kill(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  const victims = signal === 'SIGKILL' ? [child.pid, ...childrenOf(child.pid)] : [child.pid];
  for (const pid of victims) {
    try {
      process.kill(pid, signal);
    } catch {
      // The process has ended already.
    }
  }
}

function childrenOf(pid: number): number[] {
  return listChildren(pid).split(/\s+/).filter(Boolean).map(Number);
}

/** Asks the kernel first, because a small Linux image has no `pgrep`. */
function listChildren(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    return spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' }).stdout ?? '';
  }
}

function isAlive(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}

function logFile(spec: ServerSpec): string {
  return join(spec.folder, 'server.log');
}

function logTail(spec: ServerSpec): string {
  return readFileSync(logFile(spec), 'utf8').split('\n').slice(-20).join('\n');
}
