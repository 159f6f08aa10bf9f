import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { Consumer } from '../../../test/helpers/consumer.ts';
import { ADDRESS, type Program, runToEnd, startProgram } from '../../../test/helpers/program.ts';
import { sharedCommand } from '../../../test/services/shared.ts';

/** A gate that serves, in a process of its own. */
export interface Gate extends Program {
  readonly url: URL;
}

/** What a command that has ended printed. */
export interface Ended {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

/**
 * A folder with the tarballs of both packages installed, and the packages that the command needs.
 * Needs no registry: the test links those packages.
 */
export class Installed {
  readonly #consumer = new Consumer();

  async install(): Promise<void> {
    const options = { recursive: true, verbatimSymlinks: true };
    cpSync(await sharedCommand(), this.#consumer.folder, options);
  }

  /** Another package of the repository's, installed beside them. */
  link(name: string): void {
    this.#consumer.link(name);
  }

  get #command(): string {
    return this.path('node_modules/mcp-interlock-cli/dist/main.js');
  }

  /** The path of a file in it. */
  path(name: string): string {
    return join(this.#consumer.folder, name);
  }

  write(name: string, text: string): string {
    this.#consumer.write(name, text);
    return this.path(name);
  }

  /** What the command printed; it must end by itself, and well. */
  run(...args: readonly string[]): Promise<string> {
    return this.#consumer.run(this.path('node_modules/.bin/mcp-interlock'), ...args);
  }

  /** The command in a process of its own, to its end, be that good or bad. */
  async end(...args: readonly string[]): Promise<Ended> {
    const { status, stdout: out, stderr: err } = await runToEnd(this.#command, ...args);
    return { status, out, err };
  }

  /** Starts `mcp-interlock gate`, with JSON for a log. Without a file it can only record. */
  async gate(file: string | undefined, ...options: readonly string[]): Promise<Gate> {
    const port = options.includes('--port') ? [] : ['--port', '0'];
    const args = [
      'gate',
      ...(file === undefined ? [] : [file]),
      '--log',
      'json',
      ...port,
      ...options,
    ];
    const program = await startProgram(this.#command, { args, ready: ADDRESS });
    return { ...program, url: new URL(program.match.slice(0, program.match.indexOf('"'))) };
  }

  remove(): void {
    this.#consumer.remove();
  }
}
