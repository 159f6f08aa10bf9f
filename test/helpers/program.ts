import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build, type Plugin } from 'esbuild';

export interface ProgramOptions {
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** The program is ready once it has printed a line that this matches. */
  readonly ready: RegExp;
}

/** A program in its own process. */
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
  const child = spawn(process.execPath, [await programOf(file), ...(options.args ?? [])], {
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

/** Runs `file` with Node to its end. */
export async function runToEnd(file: string, ...args: readonly string[]) {
  const program = await programOf(file);
  type Ended = { status: number | null; stdout: string; stderr: string };
  return new Promise<Ended>((resolve) => {
    const child = execFile(process.execPath, [program, ...args], (_, stdout, stderr) =>
      resolve({ status: child.exitCode, stdout, stderr }),
    );
  });
}

async function programOf(file: string): Promise<string> {
  return file.endsWith('.ts') ? compiled(file) : file;
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

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const programs = new Map<string, Promise<string>>();

/** Packages that find a file of theirs beside their own. */
const NATIVE = ['libsql', 'pg-native', 'esbuild', 'playwright-core'];
/** What CommonJS packages have as globals. */
const COMMON =
  "import { createRequire as requireOf } from 'node:module';" +
  'const require = requireOf(import.meta.url);' +
  'const __filename = import.meta.filename ?? "", __dirname = import.meta.dirname ?? "";';

/**
 * The path of a program in TypeScript as one file of JavaScript, with its packages. Node starts it
 * in a fifth of the CPU time that it needs with a loader for each source.
 */
export function compiled(file: string): Promise<string> {
  const known = programs.get(file) ?? compile(file);
  programs.set(file, known);
  return known;
}

async function compile(file: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [file],
    bundle: true,
    write: false,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    external: NATIVE,
    banner: { js: COMMON },
    plugins: [withOwnAddress],
  });
  // Within the repository, so that Node finds its packages.
  const name = relative(ROOT, file).replaceAll(/[^\w-]+/g, '-');
  const path = join(ROOT, 'node_modules/.cache/mcp-interlock', `${name}.mjs`);
  await mkdir(dirname(path), { recursive: true });
  // Another process may read it, or write it too.
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, outputFiles[0]?.text ?? '');
  await rename(draft, path);
  return path;
}

/** `import.meta.url` stays that of each source, beside which it looks for other files. */
const withOwnAddress: Plugin = {
  name: 'own address',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const address = JSON.stringify(pathToFileURL(path).href);
      return { contents: source.replaceAll('import.meta.url', address), loader: 'ts' };
    });
  },
};
