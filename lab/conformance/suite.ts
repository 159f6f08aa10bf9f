import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Check, readChecks } from './checks.ts';
import type { TestSet } from './plan.ts';

/** The first releases know nothing of 2026-07-28, and are what npm calls the latest. */
const PACKAGE = '@modelcontextprotocol/conformance@0.2.0-alpha.12';
/** The suite needs it, and this command runs on others too. */
const NODE_MAJOR = 22;
const RUN_MS = 120_000;

/** The official suite, installed where neither the repository nor its users see it. */
export interface Suite {
  readonly node: string;
  readonly script: string;
}

/**
 * Installs the suite, and a Node that it runs on where this one is older. Once: later calls find it
 * in the user's cache.
 */
export async function installSuite(
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<Suite> {
  const ownNode = Number(process.versions.node.split('.')[0]) >= NODE_MAJOR;
  const nodePackage = `node-${process.platform}-${process.arch}`;
  const packages = [PACKAGE, ...(ownNode ? [] : [`${nodePackage}@${NODE_MAJOR}`])];
  const caches = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const folder = join(caches, 'mcp-interlock-conformance', packages.join('+').replaceAll('/', '-'));
  if (existsSync(folder)) say(`Found ${packages.join(' and ')} in ${folder}.`);
  else {
    say(`Installing ${packages.join(' and ')} in ${folder}; delete it to be rid of them.`);
    await install(packages, folder, signal);
  }
  const modules = join(folder, 'node_modules');
  return {
    node: ownNode ? process.execPath : join(modules, nodePackage, 'bin/node'),
    script: join(modules, '@modelcontextprotocol/conformance/dist/index.js'),
  };
}

/** Into a folder of another name first, so that what is found later was installed to its end. */
async function install(
  packages: readonly string[],
  folder: string,
  signal: AbortSignal,
): Promise<void> {
  mkdirSync(dirname(folder), { recursive: true });
  const unfinished = mkdtempSync(`${folder}.`);
  try {
    const options = ['--no-save', '--no-audit', '--no-fund', '--loglevel=error'];
    const { status, output } = await run(
      'npm',
      ['install', ...options, '--prefix', unfinished, ...packages],
      signal,
    );
    if (status !== 0) throw new Error(`npm install failed:\n${output}`);
    renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
}

/**
 * Runs the scenarios that a revision requires. What the suite printed is only of interest where it
 * checked nothing.
 */
export async function runSuite(
  { node, script }: Suite,
  { requirements }: TestSet,
  url: URL,
  folder: string,
  signal: AbortSignal,
): Promise<{ checks: Check[]; faults: string[] }> {
  const args = [script, 'server', '--url', url.href, '--requirements', requirements, '-o', folder];
  const { status, output } = await run(
    node,
    args,
    AbortSignal.any([signal, AbortSignal.timeout(RUN_MS)]),
  );
  const checks = readChecks(folder);
  // With 1 it says that a check failed, which is no fault of the run.
  const faults = [0, 1].includes(status ?? -1) ? [] : [`the suite ended with ${status}`];
  if (checks.length === 0) faults.push(`the suite checked nothing:\n${output.slice(-2000)}`);
  return { checks, faults };
}

/**
 * A program to its end, which comes at once where the signal says so: resolves once the process is
 * gone.
 */
function run(command: string, args: readonly string[], signal: AbortSignal) {
  const child = spawn(command, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  child.on('error', (error) => {
    output += error.message;
  });
  return new Promise<{ status: number | null; output: string }>((resolve) => {
    child.on('close', (status) => resolve({ status, output }));
  });
}
