/**
 * The server behind the gate as a process of its own. Hides how a command is started on each
 * platform, and how it ends with all that it started.
 */
import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { Failure, UsageError } from './command-line.ts';

/** How a command is given to `spawn()`. */
export interface Spawned {
  readonly file: string;
  readonly args: readonly string[];
  /** The arguments are quoted already: Node must not do it again. */
  readonly verbatim: boolean;
}

/**
 * Windows starts programs by their paths, and scripts such as `npx.cmd` by `cmd.exe`, which reads
 * its line in its own way. An argument that `cmd.exe` could take for more than text is refused.
 *
 * @param isThere whether there is a file of that path
 * @throws UsageError
 */
export function spawnedOnWindows(
  [command = '', ...args]: readonly string[],
  { PATH = '', PATHEXT = '.COM;.EXE;.BAT;.CMD', ComSpec = 'cmd.exe' }: NodeJS.ProcessEnv,
  isThere: (path: string) => boolean = existsSync,
): Spawned {
  const folders = /[\\/]/.test(command) ? [''] : PATH.split(';');
  const endings = extname(command) === '' ? PATHEXT.split(';') : [''];
  const paths = folders.flatMap((folder) =>
    endings.map((ending) => (folder === '' ? command : join(folder, command)) + ending),
  );
  const file = paths.find(isThere) ?? command;
  if (!/\.(?:cmd|bat)$/i.test(file)) return { file, args, verbatim: false };
  const unfit = [file, ...args].find((each) => /["%!^&|<>\r\n]/.test(each));
  if (unfit !== undefined)
    throw new UsageError(
      `${JSON.stringify(unfit)} cannot be given to ${file}, which cmd.exe runs: ` +
        'it has one of " % ! ^ & | < >. Start the program behind it by its path, such as node.exe',
    );
  // A backslash in front of the closing quote would escape it.
  const quoted = [file, ...args].map((each) => `"${each.replace(/\\+$/, '$&$&')}"`);
  return { file: ComSpec, args: ['/d', '/s', '/c', `"${quoted.join(' ')}"`], verbatim: true };
}

/** What a server is given after each step of its end, in milliseconds. */
const GRACE_MS = 2_000;
/** The same where our own process was asked to end: its caller kills it 2 s later. */
const SHORT_GRACE_MS = 800;

/** A server that runs. Its errors go to our standard error as they are. */
export class StdioServer {
  readonly input: Writable;
  readonly output: Readable;
  /** Resolves to how it ended, once it has. */
  readonly ended: Promise<string>;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #onExit = (): void => this.#kill('SIGKILL');
  #isOver = false;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    this.input = child.stdin;
    this.output = child.stdout;
    // A write to a server that has ended. Its end says more.
    this.input.on('error', () => {});
    this.ended = once(child, 'exit').then(([status, signal]) => {
      this.#isOver = true;
      return signal === null ? `with the status ${status}` : `by ${signal}`;
    });
    // Where it never began, that is known already.
    this.ended.catch(() => {});
    process.once('exit', this.#onExit);
  }

  /**
   * Starts it in a process group of its own, so that what it starts ends with it.
   *
   * @throws Failure where there is no such program; UsageError
   */
  static async start(command: readonly string[]): Promise<StdioServer> {
    const [file = '', ...args] = command;
    const isWindows = process.platform === 'win32';
    const spawned = isWindows
      ? spawnedOnWindows(command, process.env)
      : { file, args, verbatim: false };
    const child = spawn(spawned.file, spawned.args, {
      stdio: ['pipe', 'pipe', 'inherit'],
      detached: !isWindows,
      windowsHide: true,
      windowsVerbatimArguments: spawned.verbatim,
    });
    const server = new StdioServer(child);
    await once(child, 'spawn').catch((error: NodeJS.ErrnoException) => {
      process.off('exit', server.#onExit);
      const why = error.code === 'ENOENT' ? 'there is no such program' : error.message;
      throw new Failure(`cannot start ${file}: ${why}`);
    });
    return server;
  }

  /**
   * Closes its input, and later asks it to end, and then kills it (MCP, Lifecycle, "Shutdown").
   * Resolves once it and all that it started have ended.
   */
  async end({ isUrgent }: { readonly isUrgent: () => boolean }): Promise<void> {
    this.input.end();
    if (!isUrgent()) await this.#wait(GRACE_MS, isUrgent);
    this.#kill('SIGTERM');
    await this.#wait(isUrgent() ? SHORT_GRACE_MS : GRACE_MS, () => false);
    this.#kill('SIGKILL');
    await this.ended;
    process.off('exit', this.#onExit);
  }

  /** Until it has ended, the time is over, or the end has become urgent. */
  async #wait(ms: number, isUrgent: () => boolean): Promise<void> {
    const until = performance.now() + ms;
    while (!this.#isOver && !isUrgent() && performance.now() < until)
      await Promise.race([this.ended, delay(20)]);
  }

  /** Also what it has started, and left behind. */
  #kill(signal: 'SIGTERM' | 'SIGKILL'): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    if (process.platform === 'win32') {
      if (!this.#isOver) spawnSync('taskkill', ['/pid', String(pid), '/T', '/F']);
      return;
    }
    try {
      process.kill(-pid, signal);
    } catch {
      // The group is empty.
    }
  }
}
