import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { join, relative } from 'node:path';
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
/** Within the repository, so that Node finds its packages. */
const CACHE = join(ROOT, 'node_modules/.cache/mcp-interlock');
const programs = new Map<string, Promise<string>>();

/** Packages that find a file of theirs beside their own, and one that a project may be without. */
const NATIVE = ['libsql', 'pg-native', 'esbuild', 'playwright-core', 'jiti', 'xstate'];
/** In parts, since it is replaced here too. */
const ADDRESS_OF_MODULE = ['import', 'meta', 'url'].join('.');

/**
 * The path of a program as one file of JavaScript, with its packages. Node starts it in a tenth of
 * the CPU time that it needs with a loader for each source: V8 keeps what it compiled for the next
 * process. Node 20 does so for no module, so the program is the body of a function.
 */
export function compiled(file: string, folder = CACHE): Promise<string> {
  const known = programs.get(file) ?? compile(file, folder);
  programs.set(file, known);
  return known;
}

async function compile(file: string, folder: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [file],
    bundle: true,
    write: false,
    platform: 'node',
    target: 'node20',
    // Alone this format may wait at its top.
    format: 'esm',
    external: NATIVE,
    define: { [ADDRESS_OF_MODULE]: 'ownAddress' },
    plugins: [withoutImports, withOwnAddress],
  });
  const code = (outputFiles[0]?.text ?? '')
    .replace(/^#!/, '//')
    .replace(/^export \{[^}]*\};$/m, '')
    // Node finds no loader for what V8 kept.
    .replace(/(?<![.\w$#])import\(/g, 'importAtRunTime(')
    // What is left in comments and patterns would make V8 read two bytes for each character.
    .replace(/[^\0-\x7f]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const given = 'require, importAtRunTime, __filename, __dirname, ownAddress';
  const body = `(async (${given}) => { 'use strict'; ${code}\n})`;
  const name = `${relative(ROOT, file).replaceAll(/[^\w-]+/g, '-')}.`;
  const version = createHash('sha256').update(body).digest('hex').slice(0, 16);
  await mkdir(folder, { recursive: true });
  for (const other of await readdir(folder))
    if (other.startsWith(name) && !other.startsWith(name + version))
      await rm(join(folder, other), { force: true });
  await replace(join(folder, `${name}${version}.body`), body);
  await replace(join(folder, `${name}${version}.cjs`), STARTER);
  return join(folder, `${name}${version}.cjs`);
}

/** Another process may read the file, or write it too. */
async function replace(path: string, text: string): Promise<void> {
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, text);
  await rename(draft, path);
}

/** Runs the body beside it, and keeps what V8 has compiled once that has started. */
const STARTER = `
const { existsSync, readFileSync, renameSync, writeFileSync } = require('node:fs');
const { cachedDataVersionTag } = require('node:v8');
const { pathToFileURL } = require('node:url');
const { Script } = require('node:vm');
const body = __filename.replace(/cjs$/, 'body');
const cache = body + '.' + cachedDataVersionTag();
const address = pathToFileURL(__filename).href;
const script = new Script(readFileSync(body, 'latin1'), {
  filename: address,
  cachedData: existsSync(cache) ? readFileSync(cache) : undefined,
});
script.runInThisContext()(require, (name) => import(name), __filename, __dirname, address);
const keep = () => {
  if (existsSync(cache)) return;
  writeFileSync(cache + process.pid, script.createCachedData());
  renameSync(cache + process.pid, cache);
};
setTimeout(keep, 500).unref();
process.once('exit', keep);
`;

/** Packages and Node's own modules that stay beside the program are required where they are met. */
const withoutImports: Plugin = {
  name: 'without imports',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^[^./]/ }, ({ path, kind, namespace }) => {
      const isBeside = isBuiltin(path) || NATIVE.includes(path);
      if (isBeside && kind !== 'require-call' && namespace !== 'required')
        return { path, namespace: 'required' };
    });
    onLoad({ filter: /./, namespace: 'required' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};

/** `import.meta.url` stays that of each source, beside which it looks for other files. */
const withOwnAddress: Plugin = {
  name: 'own address',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const address = JSON.stringify(pathToFileURL(path).href);
      return { contents: source.replaceAll(ADDRESS_OF_MODULE, address), loader: 'ts' };
    });
  },
};
