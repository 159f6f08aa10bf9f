import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const run = promisify(execFile);

const QUIETLY = ['--offline', '--no-audit', '--no-fund', '--ignore-scripts'];

/** A user's empty project, in a folder outside of the repository. */
export class Consumer {
  readonly folder: string;

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
   * Packs folders of the repository, by default the root, and installs the tarballs as a user would.
   * Link what they depend on before: no registry is asked.
   */
  async install(...folders: readonly string[]): Promise<void> {
    const packing = (folders.length === 0 ? ['.'] : folders).map((folder) => this.pack(folder));
    await this.run('npm', 'install', ...QUIETLY, ...(await Promise.all(packing)));
  }

  /** The tarball of a folder of the repository, by its path in the project. */
  async pack(folder: string): Promise<string> {
    const path = join(ROOT, folder);
    const packed = await this.run('npm', 'pack', '--ignore-scripts', '--json', path);
    const [{ filename }] = JSON.parse(packed) as [{ filename: string }];
    return `./${filename}`;
  }

  /** The package as it is in the working tree, built. */
  linkInterlock(): void {
    this.#link('mcp-interlock', ROOT);
  }

  /** What the command printed. @throws with both of its streams in the message where it fails. */
  async run(command: string, ...args: readonly string[]): Promise<string> {
    try {
      const { stdout } = await run(command, args, { cwd: this.folder, env: environment() });
      return stdout;
    } catch (error) {
      const { stdout, stderr } = error as { stdout?: string; stderr?: string };
      throw new Error(`${command} ${args.join(' ')} failed:\n${stdout}\n${stderr}`, {
        cause: error,
      });
    }
  }

  node(...args: readonly string[]): Promise<string> {
    return this.run(process.execPath, ...args);
  }

  /** Type-checks as a strict user would; by default the declarations of the packages too. */
  typeCheck(
    files: readonly string[],
    { skipLibCheck = false, forBundler = false } = {},
  ): Promise<string> {
    const resolution = forBundler
      ? ['--module', 'esnext', '--moduleResolution', 'bundler']
      : ['--module', 'nodenext'];
    const options = [
      '--noEmit',
      '--strict',
      '--target',
      'es2022',
      ...resolution,
      '--types',
      'node',
    ];
    const others = ['--allowImportingTsExtensions', '--skipLibCheck', String(skipLibCheck)];
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
  }
}

/** Without what `npm test` sets for its own scripts: a nested npm would take it for its own. */
function environment(): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^npm_(package|lifecycle|command)/i.test(name),
  );
  return Object.fromEntries(inherited);
}
