/**
 * Tries the packed packages as users will have them. On each Node it imports every entry and plays
 * each door's quick start. It also tries each peer at both ends of its range, each bundler without
 * the optional peers, and an upgrade with the way back on each store. Everything comes from the
 * registry, into temporary folders. `--help` says how.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import manifest from '../../package.json' with { type: 'json' };
import { INTERNAL, LIBRARIES } from '../../scripts/entries.ts';
import { Consumer, ROOT } from '../../test/helpers/consumer.ts';
import {
  NEXT_BUILDS,
  QUICK_STARTS,
  type QuickStart,
  tryOut,
} from '../../test/helpers/quick-starts.ts';
import { DriverServers } from './driver-servers.ts';
import { fetchNodes, type NodeBinary } from './nodes.ts';
import { packLater, ROLLBACKS, rollBack } from './rollback.ts';

const HELP = `npm run release-check -- [options]

  --only TEXT   only the cells whose name has the text in it: node, "Node 24", peer, express, pg,
                rollback, bundler
  --suite       also runs tests of the gate and of steps on each Node
`;

/** One thing that is tried. It rejects where it does not work. */
interface Cell {
  readonly name: string;
  try(): Promise<unknown>;
}

const FROM_REGISTRY = ['--no-audit', '--no-fund', '--ignore-scripts', '--prefer-offline'];
const LONGEST_FAULT = 3_000;
const SUITE = ['test/step', 'test/gate', 'test/session', 'test/workflow', 'test/wire'];

/** A project with the packed packages and those others of the registry. */
async function projectWith(
  packages: readonly string[],
  folders: readonly string[] = ['.'],
): Promise<Consumer> {
  const project = new Consumer();
  projects.push(project);
  const tarballs = await Promise.all(folders.map((folder) => project.pack(folder)));
  await project.run('npm', 'install', ...FROM_REGISTRY, ...tarballs, ...packages);
  return project;
}

const projects: Consumer[] = [];
/** All that is published. */
const PACKAGES = ['check', 'testing', 'inspector', 'cli'].map((name) => `packages/${name}`);

function projectOf({ upstream, packages }: QuickStart): Promise<Consumer> {
  return projectWith(
    packages,
    upstream === undefined ? ['.'] : ['.', 'packages/check', 'packages/cli'],
  );
}

/** What is installed once is tried on every Node. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

function nodeCells(nodes: readonly NodeBinary[], withSuite: boolean): Cell[] {
  // `mcp-interlock/otel` is the only entry that imports its peer.
  const empty = once(() => projectWith(['@opentelemetry/api'], ['.', ...PACKAGES]));
  const started = QUICK_STARTS.map((quickStart) => once(() => projectOf(quickStart)));
  return nodes.flatMap(({ name, path }) => {
    const on = async (project: Consumer): Promise<Consumer> => {
      project.nodePath = path;
      return project;
    };
    const entries: Cell = {
      name: `${name}: every entry`,
      try: async () => importEntries(await on(await empty())),
    };
    const starts = QUICK_STARTS.map(
      (quickStart, at): Cell => ({
        name: `${name}: quick start of ${quickStart.page}`,
        try: async () => tryOut(quickStart, await on(await (started[at] ?? empty)())),
      }),
    );
    const suite: Cell = { name: `${name}: ${SUITE.join(', ')}`, try: () => runSuite(path) };
    return [entries, ...starts, ...(withSuite ? [suite] : [])];
  });
}

async function importEntries(project: Consumer): Promise<void> {
  const named = LIBRARIES.flatMap(({ entries }) => entries.map(({ specifier }) => specifier));
  const apps = named.filter((specifier) => specifier !== INTERNAL);
  const all = JSON.stringify([...apps, 'mcp-interlock-inspector', 'mcp-interlock-cli/proxy']);
  project.write('entries.mjs', `for (const entry of ${all}) await import(entry);`);
  await project.node('entries.mjs');
  assert.match(await project.node('node_modules/.bin/mcp-interlock', '--help'), /mcp-interlock/);
}

async function runSuite(node: string): Promise<void> {
  const args = ['node_modules/vitest/vitest.mjs', 'run', ...SUITE];
  const running = promisify(execFile)(node, args, { cwd: ROOT, maxBuffer: 2 ** 28 });
  await running.catch(({ stdout }: { stdout: string }) => {
    throw new Error(stdout.slice(-LONGEST_FAULT));
  });
}

/** The ends of each peer's range, as the registry has them today. */
async function peerCells(servers: DriverServers): Promise<Cell[]> {
  const cells = Object.entries(manifest.peerDependencies).map(async ([peer, range]) => {
    const versions = await versionsOf(peer, range);
    const ends = new Set([versions.at(0), versions.at(-1)]);
    return [...ends].map((version): Cell => {
      const name = `peer ${peer}@${version} of ${range}`;
      const installed = `${peer}@${version}`;
      return { name, try: () => (isServed(peer) ? playStart(installed) : playDriver(installed)) };
    });
  });
  const playDriver = (installed: string) =>
    servers.play(installed, () => projectWith([installed, 'tsx'], ['.', 'packages/testing']));
  return (await Promise.all(cells)).flat();
}

/** Wrangler takes what has no default export for a script, in which nothing can be awaited. */
const BUNDLED = `import { initFsmEngine } from 'mcp-interlock';
import { gateFetch } from 'mcp-interlock/fetch';
console.log(typeof gateFetch, await initFsmEngine());
export default {};`;

/** A file, since the options of webpack's command change with its versions. */
const WEBPACK_CONFIG = `export default {
  mode: 'production',
  target: 'node20',
  entry: './in.mjs',
  experiments: { outputModule: true },
  output: { path: import.meta.dirname, filename: 'out.mjs', library: { type: 'module' } },
};`;

/** How each of them is told to bundle `in.mjs` into `out.mjs`, in a project without XState. */
const BUNDLERS: Readonly<Record<string, { packages: readonly string[]; command: string }>> = {
  webpack: {
    packages: ['webpack', 'webpack-cli'],
    command: 'npx webpack --config webpack.config.mjs',
  },
  Rollup: {
    packages: ['rollup', '@rollup/plugin-node-resolve'],
    command: 'npx rollup in.mjs --plugin node-resolve --format es --file out.mjs',
  },
  esbuild: {
    packages: ['esbuild'],
    command: 'npx esbuild in.mjs --bundle --platform=node --format=esm --outfile=out.mjs',
  },
  Wrangler: {
    packages: ['wrangler'],
    command:
      'npx wrangler deploy in.mjs --dry-run --name x --outdir built ' +
      '--compatibility-date 2026-01-01 --compatibility-flags nodejs_compat && cp built/in.js out.mjs',
  },
  'the tracer of Vercel': {
    packages: ['@vercel/nft'],
    command: 'npx nft print in.mjs | grep mcp-interlock/dist/index.js && cp in.mjs out.mjs',
  },
};

/** Builds without the optional peers, which each bundler must take for optional too. */
function bundlerCells(): Cell[] {
  const bundled = Object.entries(BUNDLERS).map(
    ([name, { packages, command }]): Cell => ({
      name: `bundler ${name}`,
      async try() {
        const project = await projectWith(packages);
        project.write('in.mjs', BUNDLED);
        project.write('webpack.config.mjs', WEBPACK_CONFIG);
        await project.run('bash', '-c', command);
        assert.equal(await project.node('out.mjs'), 'function false\n');
      },
    }),
  );
  const built = NEXT_BUILDS.map(
    (start): Cell => ({
      name: `bundler of ${start.page}`,
      try: async () => tryOut(start, await projectOf(start)),
    }),
  );
  return [...bundled, ...built];
}

const STORE_DRIVERS = ['libsql', 'redis', 'pg', '@upstash/redis'];

/** An upgrade with runs alive and the way back, on each store. */
function rollbackCells(servers: DriverServers): Cell[] {
  const others = [...STORE_DRIVERS, 'tsx', 'express@5', '@modelcontextprotocol/sdk@1', 'zod@4'];
  const older = once(() => projectWith(others));
  return ROLLBACKS.flatMap((rollback) => {
    const newer = once(async () => {
      const project = await projectWith(others);
      await project.installTarballs(await packLater(rollback, project));
      return project;
    });
    return STORE_DRIVERS.map(
      (driver): Cell => ({
        name: `rollback ${rollback}: ${driver}`,
        async try() {
          const releases = { older: await older(), newer: await newer() };
          const file = { url: join(releases.older.folder, `${rollback}.db`) };
          const address = driver === 'libsql' ? file : await servers.addressFor(driver);
          await rollBack(rollback, driver, address, releases);
        },
      }),
    );
  });
}

/** Whether the README's quick start has it. */
const isServed = (peer: string): boolean => readme.packages.includes(peer);
const [readme] = QUICK_STARTS as readonly [QuickStart];

async function playStart(installed: string): Promise<unknown> {
  const peer = installed.slice(0, installed.lastIndexOf('@'));
  const packages = readme.packages.map((name) => (name === peer ? installed : name));
  const files = { 'server.ts': readme.files['server.ts'] ?? '' };
  // Express before 4.16 has no parser of bodies, and the gate needs none.
  if (/^express@4\.([0-9]|1[0-5])\./.test(installed))
    files['server.ts'] = files['server.ts'].replace('express.json(), ', '');
  return tryOut({ ...readme, files }, await projectWith(packages));
}

async function versionsOf(peer: string, range: string): Promise<string[]> {
  const args = ['view', `${peer}@${range}`, 'version', '--json'];
  const { stdout } = await promisify(execFile)('npm', args);
  const versions = [JSON.parse(stdout)].flat() as string[];
  return versions.sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
}

async function releaseCheck(only: string, withSuite: boolean): Promise<number> {
  const { nodes, missing } = await fetchNodes(projects);
  for (const name of missing) console.log(`SKIPPED: ${name} is not in the registry.`);
  const servers = new DriverServers();
  const faults: string[] = [];
  try {
    const cells = [...nodeCells(nodes, withSuite), ...(await peerCells(servers))];
    cells.push(...rollbackCells(servers), ...bundlerCells());
    const chosen = cells.filter(({ name }) => name.toLowerCase().includes(only.toLowerCase()));
    if (chosen.length === 0) throw new Error(`--only: no cell has "${only}" in its name`);
    for (const cell of chosen) {
      const began = Date.now();
      const fault = await cell.try().then(
        () => undefined,
        (error: Error) => `${cell.name}\n${error.message.slice(0, LONGEST_FAULT)}`,
      );
      if (fault !== undefined) faults.push(fault);
      const seconds = `${Math.round((Date.now() - began) / 1000)} s`.padStart(5);
      console.log(`${fault === undefined ? 'ok    ' : 'FAILED'} ${seconds}  ${cell.name}`);
    }
    console.log(`\n${chosen.length - faults.length} of ${chosen.length} cells work.`);
    for (const fault of faults) console.log(`\nFAILED: ${fault}`);
  } finally {
    await servers.stop();
    for (const project of projects) project.remove();
  }
  return faults.length === 0 ? 0 : 1;
}

try {
  const options = {
    help: { type: 'boolean' },
    only: { type: 'string' },
    suite: { type: 'boolean' },
  } as const;
  const { help, only = '', suite = false } = parseArgs({ options }).values;
  if (help) console.log(HELP);
  else process.exitCode = await releaseCheck(only, suite);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
