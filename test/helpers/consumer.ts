import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const run = promisify(execFile);

/** A server that runs in a project. */
export interface Served {
  readonly url: URL;
  /** Kills it. */
  stop(): Promise<void>;
}

const QUIETLY = ['--offline', '--no-audit', '--no-fund', '--ignore-scripts'];

/** A user's empty project, in a folder outside of the repository. */
export class Consumer {
  readonly folder: string;
  /** The Node that its commands run on. */
  nodePath = process.execPath;

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'interlock-consumer-'));
    this.write('package.json', '{ "name": "consumer", "private": true }');
  }

  write(path: string, text: string): void {
    const file = join(this.folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  /** Gives the project what the repository has installed, without a registry. */
  link(...packages: readonly string[]): void {
    for (const name of packages) this.#link(name, join(ROOT, 'node_modules', name));
  }

  /**
   * Installs them as a user would. Link their dependencies before, since this asks no registry.
   */
  async installTarballs(...tarballs: readonly string[]): Promise<void> {
    await this.run('npm', 'install', ...QUIETLY, ...tarballs);
  }

  /** The path of the tarball of a folder of the repository, which is in the project. */
  async pack(folder: string): Promise<string> {
    const path = resolve(ROOT, folder);
    const packed = await this.run('npm', 'pack', '--ignore-scripts', '--json', path);
    const [{ filename }] = JSON.parse(packed) as [{ filename: string }];
    return join(this.folder, filename);
  }

  /** The libraries as they are in the working tree, built. */
  linkInterlock(): void {
    this.#link('mcp-interlock', ROOT);
    for (const name of ['check', 'testing'])
      this.#link(`mcp-interlock-${name}`, join(ROOT, 'packages', name));
  }

  /** What the command printed. @throws with both of its streams in the message where it fails. */
  async run(command: string, ...args: readonly string[]): Promise<string> {
    try {
      const { stdout } = await run(command, args, { cwd: this.folder, env: this.#environment() });
      return stdout;
    } catch (error) {
      const { stdout, stderr } = error as { stdout?: string; stderr?: string };
      throw new Error(`${command} ${args.join(' ')} failed:\n${stdout}\n${stderr}`, {
        cause: error,
      });
    }
  }

  node(...args: readonly string[]): Promise<string> {
    return this.run(this.nodePath, ...args);
  }

  /**
   * Runs a command of the shell, which is to serve MCP on that port. Resolves once it does.
   * @throws what the command printed, where it ends before or takes longer than a minute.
   */
  async serve(port: number, command: string): Promise<Served> {
    const child = spawn(command, {
      cwd: this.folder,
      env: { ...this.#environment(), PORT: String(port) },
      shell: true,
      // A group of its own: what the shell starts ends with it.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let printed = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        printed += text;
      });
    const hasEnded = (): boolean => child.exitCode !== null || child.signalCode !== null;
    const stop = async (): Promise<void> => {
      if (child.pid === undefined || hasEnded()) return;
      const gone = once(child, 'exit');
      process.kill(-child.pid, 'SIGKILL');
      await gone;
    };
    const url = new URL(`http://127.0.0.1:${port}/mcp`);
    const end = Date.now() + 60_000;
    while (!(await fetch(url, { method: 'OPTIONS' }).catch(() => false))) {
      if (hasEnded() || Date.now() > end) {
        await stop();
        throw new Error(`"${command}" does not serve ${url}:\n${printed}`);
      }
      await delay(50);
    }
    return { url, stop };
  }

  /** Type-checks as a strict user would; by default the declarations of the packages too. */
  typeCheck(
    files: readonly string[],
    { skipLibCheck = false, forBundler = false, declares = false } = {},
  ): Promise<string> {
    const resolution = forBundler
      ? ['--module', 'esnext', '--moduleResolution', 'bundler']
      : ['--module', 'nodenext'];
    const options = [
      ...(declares
        ? ['--declaration', '--emitDeclarationOnly', '--outDir', 'declared']
        : ['--noEmit']),
      '--strict',
      '--target',
      'es2022',
      ...resolution,
      '--types',
      'node',
    ];
    // One thread: several check what they share once each.
    const others = [
      ...['--allowImportingTsExtensions', '--skipLibCheck', String(skipLibCheck)],
      '--singleThreaded',
    ];
    return this.node(
      join(ROOT, 'node_modules/typescript/bin/tsc'),
      ...options,
      ...others,
      ...files,
    );
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }

  #link(name: string, target: string): void {
    const link = join(this.folder, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(target, link, 'dir');
    const { bin = {} } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
    for (const [command, file] of Object.entries<string>(
      typeof bin === 'string' ? { [name]: bin } : bin,
    )) {
      const path = join(this.folder, 'node_modules/.bin', command);
      mkdirSync(dirname(path), { recursive: true });
      if (!existsSync(path)) symlinkSync(join(target, file), path);
    }
  }

  /**
   * Without what `npm test` sets for its own scripts: a nested npm would take it for its own.
   */
  #environment(): NodeJS.ProcessEnv {
    const inherited = Object.entries(process.env).filter(
      ([name]) => !/^npm_(package|lifecycle|command)/i.test(name),
    );
    const path = `${dirname(this.nodePath)}${delimiter}${process.env.PATH}`;
    return { ...Object.fromEntries(inherited), PATH: path };
  }
}
