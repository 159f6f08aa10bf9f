import { type ChildProcess, execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from './consumer.ts';

const PACKAGE = '@vercel/node@24.0.0';
const CACHE = join(ROOT, 'node_modules/.cache/interlock', PACKAGE.replaceAll('/', '-'));
const DEV_SERVER = 'node_modules/@vercel/node/dist/dev-server.mjs';

/** Vercel's own Node runtime with one entry of a project, as `vercel dev` starts it. */
export interface VercelRuntime {
  readonly origin: URL;
  stop(): Promise<void>;
}

/**
 * Fetches the runtime, once for each machine. Its 86 MB are too many for a dependency of the
 * package. `VERCEL_NODE` names a folder that has it already.
 */
export async function fetchVercelRuntime(): Promise<string> {
  const given = process.env.VERCEL_NODE;
  const folder = given ?? CACHE;
  if (existsSync(join(folder, DEV_SERVER))) return folder;
  if (given !== undefined)
    throw new Error(`VERCEL_NODE=${given} has no @vercel/node installed in it`);
  await mkdir(dirname(CACHE), { recursive: true });
  const draft = await mkdtemp(`${CACHE}-`);
  await writeFile(join(draft, 'package.json'), '{ "private": true }');
  const args = [
    'install',
    '--prefix',
    draft,
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    PACKAGE,
  ];
  try {
    await promisify(execFile)('npm', args, { cwd: draft });
  } catch (cause) {
    await rm(draft, { recursive: true });
    const advice = 'or install it yourself and set VERCEL_NODE to the folder';
    throw new Error(
      `npm could not install ${PACKAGE}, which this test needs; try again, ${advice}`,
      {
        cause,
      },
    );
  }
  await rename(draft, CACHE).catch(() => rm(draft, { recursive: true }));
  return CACHE;
}

/** Starts `entry` of the project in `folder`. Resolves once it serves. */
export async function startVercelRuntime(
  runtime: string,
  folder: string,
  entry: string,
  env: NodeJS.ProcessEnv,
): Promise<VercelRuntime> {
  const child = fork(join(runtime, DEV_SERVER), [], {
    cwd: folder,
    env: {
      ...process.env,
      ...env,
      VERCEL_DEV_ENTRYPOINT: entry,
      // Vercel's command line compiles TypeScript in the same way.
      NODE_OPTIONS: `--no-warnings --import ${import.meta.resolve('tsx')}`,
    },
    execArgv: [],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let errors = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const failed = once(child, 'exit').then(() => {
    throw new Error(`Vercel's runtime did not start ${entry}:\n${errors}`);
  });
  const [address] = (await Promise.race([once(child, 'message'), failed])) as [{ port: number }];
  failed.catch(() => {});
  return { origin: new URL(`http://127.0.0.1:${address.port}`), stop: () => end(child) };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
