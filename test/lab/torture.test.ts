import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { seeded } from '../../lab/checker/random.ts';
import { type Backend, type Durability, startBackend } from '../../lab/torture/backends.ts';
import { raceDuplicates } from '../../lab/torture/duplicates.ts';
import { failStoreOver } from '../../lab/torture/failovers.ts';
import { killServers } from '../../lab/torture/kills.ts';
import { raceForLastUses } from '../../lab/torture/last-uses.ts';
import { parseOptions } from '../../lab/torture/options.ts';
import { partBus } from '../../lab/torture/partitions.ts';
import { holdRuns } from '../../lab/torture/pins.ts';
import { raceForUses } from '../../lab/torture/races.ts';
import { restartStore } from '../../lab/torture/restarts.ts';
import { STORE_NAMES, type StoreName } from '../../lab/torture/stores.ts';
import { throwSwitches } from '../../lab/torture/switches.ts';
import { compiled } from '../helpers/program.ts';

const TIMEOUT_MS = 60_000;

const PROGRAM = await compiled(
  fileURLToPath(new URL('../../lab/torture/torture.ts', import.meta.url)),
);

/** As much of the torture as a test suite has time for. */
const small = {
  duplicates: { steps: 30, duplicates: 4, lanes: 4, longestRun: 50 },
  kills: { kills: 2, lanes: 6 },
  restarts: { restarts: 2, lanes: 4, outagesMs: [100] },
  rules: { runs: 1, lanes: 1, callers: 8, wishes: 2, kills: 1, restarts: 0 },
  races: { uses: 112, callers: 16, lanes: 1 },
};

async function onBackend<T>(
  name: StoreName,
  durability: Durability,
  play: (backend: Backend) => Promise<T>,
) {
  const backend = await startBackend(name, durability);
  try {
    return await play(backend);
  } finally {
    await backend.stop();
  }
}

/** Each server is a process; two are enough but where more hear an operator. */
function optionsFor({ address }: Backend, servers = 2) {
  const { signal } = new AbortController();
  return { store: address, leaseMs: 1000, waitMs: 3000, servers, signal };
}

describe('the torture', { timeout: TIMEOUT_MS }, () => {
  it('sees one handler run for each step that duplicates race for', async () => {
    const result = await onBackend('memory', 'full', (backend) =>
      raceDuplicates(optionsFor(backend), small.duplicates, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toContain('30 steps × 4 duplicates');
  });

  it('reports a store whose claims are always granted', async () => {
    const result = await onBackend('memory', 'full', (backend) =>
      raceDuplicates({ ...optionsFor(backend), defect: 'claims-all' }, small.duplicates, 1),
    );
    expect(result.faults.join('\n')).toContain('overlap');
    expect(result.faults.join('\n')).toContain('illegal-execution');
  });

  it.each(['memory', 'sqlite'] as const)('sees no held run go on %s', async (store) => {
    const result = await onBackend(store, 'full', (backend) =>
      holdRuns(optionsFor(backend), { runs: 8, lanes: 2 }, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toMatch(/^([89]) runs held/);
    expect(result.details).not.toMatch(/^0 commits/);
  });

  it.each([
    ['lets-held-expire', 'lost: a held run is gone'],
    ['new-keys', 'key: digest'],
    ['loses-records', 'lost: of the facts'],
  ] as const)('reports a store that %s', async (defect, fault) => {
    const result = await onBackend('memory', 'full', (backend) =>
      holdRuns({ ...optionsFor(backend), defect }, { runs: 8, lanes: 2 }, 1),
    );
    expect(result.faults.join('\n')).toContain(fault);
  });

  it('sees nothing lost when processes are killed in mid-step', async () => {
    const result = await onBackend('redis', 'full', (backend) =>
      killServers(optionsFor(backend), small.kills, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toContain('2 kill -9 in mid-step');
  });

  it('sees nothing lost when the store is killed under load', async () => {
    const result = await onBackend('redis', 'full', (backend) =>
      restartStore(optionsFor(backend), serverOf(backend), small.restarts, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toContain('2 restarts');
  });

  it('sees nothing lost when a standby that each commit waits for takes over', async () => {
    const result = await onBackend('postgres-synchronous-standby', 'full', (backend) =>
      failStoreOver(optionsFor(backend), failoverOf(backend), { failovers: 1, lanes: 4 }, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toContain('1 failovers');
  });

  it('sees an instance that was cut off from its bus hear again, in order', async () => {
    const result = await onBackend('redis', 'full', ({ address }) =>
      partBus(address, { partitions: 2, lastMs: 200 }, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toContain('2 partitions');
  });

  it('sees each process stop what an operator stops, be the operator killed meanwhile', async () => {
    const result = await onBackend('sqlite', 'full', (backend) =>
      throwSwitches(optionsFor(backend, 3), { throws: 2, clients: 3 }, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toBe('2 freezeAll(), 3 servers');
    expect(result.details).toContain('1 were killed in the middle');
    expect(result.details).not.toMatch(/ 0 calls refused|stopped 0 runs/);
  });

  it('reports processes that never read a switch again', async () => {
    const result = await onBackend('sqlite', 'full', (backend) =>
      throwSwitches(
        { ...optionsFor(backend), defect: 'reads-switch-once' },
        { throws: 1, clients: 3 },
        1,
      ),
    );
    expect(result.faults.join('\n')).toMatch(/^frozen: .* began \d+ ms after freezeAll\(\)/m);
  });

  it('sees no use too many and none lost, where a process dies meanwhile', async () => {
    const result = await onBackend('sqlite', 'full', (backend) =>
      raceForLastUses(optionsFor(backend), backend, small.rules, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toMatch(/^\d runs × 8 callers, [12] kill -9/);
    expect(result.measured).toMatch(/^\d\d+ uses, \d+ refused, 0 limits exceeded, 0 used twice/);
  });

  it('counts the uses that exceed a limit in races', async () => {
    const result = await onBackend('memory', 'full', (backend) =>
      raceForUses(optionsFor(backend), small.races, 1),
    );
    expect(result.faults).toEqual([]);
    expect(result.did).toBe('112 uses raced for, 16 callers of a run, 2 servers');
    expect(result.measured).toMatch(/^0 exceeded a limit, 0 lost, \d\d done$/);
  });

  // Whether two calls meet is up to the machine: one race of a few shows it.
  it('reports a store that forgets uses, and one that lets calls race', { retry: 4 }, async () => {
    const alone = { ...small.races, uses: 32, races: ['accounts'] } as const;
    for (const defect of ['forgets-commits', 'claims-all'] as const) {
      const result = await onBackend('memory', 'full', (backend) =>
        raceForUses({ ...optionsFor(backend), defect }, small.races, 1),
      );
      expect(result.measured).toMatch(/^[1-9]\d* exceeded a limit/);
      expect(result.faults.join('\n')).toContain('exceeded: ');
      const ofAccounts = await onBackend('memory', 'full', (backend) =>
        raceForUses({ ...optionsFor(backend), defect }, alone, 1),
      );
      expect(ofAccounts.faults.join('\n')).toMatch(/^exceeded: \d.* of 149 transfer,/m);
    }
  });

  it('reports a store that forgets everything when it is killed', async () => {
    const result = await onBackend('redis', 'none', (backend) =>
      restartStore(optionsFor(backend), serverOf(backend), { ...small.restarts, restarts: 1 }, 1),
    );
    expect(result.faults.join('\n')).toContain('lost');
  });
});

function serverOf({ server }: Backend) {
  if (server === undefined) throw new Error('the backend has no server');
  return server;
}

function failoverOf({ failover }: Backend) {
  if (failover === undefined) throw new Error('nothing takes the place of what dies there');
  return failover;
}

describe('npm run torture', { timeout: TIMEOUT_MS }, () => {
  it('ends with status 0 and says that all held where it did', async () => {
    const parts = ['--part', 'duplicates,pins,kills'];
    const { status, lines } = await torture([
      '--quick',
      '--store',
      'memory',
      ...parts,
      '--seed',
      '7',
    ]);
    expect(lines.at(-1)).toMatch(/^ALL HELD on memory .* npm run torture -- .*--seed 7$/);
    expect(lines.join('\n')).toMatch(/memory +kills +- +the store dies with its process/);
    expect(status).toBe(0);
  });

  it('ends with status 1 and says what broke where a store is broken', async () => {
    const args = ['--quick', '--store', 'memory', '--part', 'duplicates', '--defect', 'claims-all'];
    const { status, lines } = await torture(args);
    expect(lines.at(-1)).toMatch(/^BROKEN \d+ TIMES on memory/);
    expect(status).toBe(1);
  });

  it('comes to an orderly end on Ctrl-C, and leaves nothing behind', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'interlock-interrupted-'));
    const ours = () => readdirSync(folder).filter((name) => name.startsWith('interlock-'));
    try {
      const running = torture(['--store', 'redis', '--part', 'kills'], { TMPDIR: folder });
      await expect.poll(() => ours().length, { timeout: TIMEOUT_MS }).toBe(2);
      running.child.kill('SIGINT');
      const { status, lines } = await running;
      expect(lines.at(-1)).toContain('INTERRUPTED');
      expect(status).toBe(130);
      expect(ours()).toEqual([]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('ends with status 1 and says what is right where an option is wrong', async () => {
    const { status, errors } = await torture(['--store', 'mysql']);
    expect(errors.trim()).toBe(`--store: expected one of ${STORE_NAMES.join(', ')}, got "mysql"`);
    expect(status).toBe(1);
  });
});

describe('parseOptions()', () => {
  it.each([
    ['--seed', 'x', 'expected a whole number, got "x"'],
    [
      '--part',
      'all',
      'expected one of duplicates, pins, kills, restarts, failovers, partitions, switch, rules, ' +
        'races, got "all"',
    ],
    ['--count', '0', 'expected a whole number above 0, got "0"'],
    ['--durability', 'high', 'expected one of full, relaxed, none, got "high"'],
    ['--sed', '1', "Unknown option '--sed'"],
  ])('refuses %s %s, and says what is right', (option, value, message) => {
    expect(() => parseOptions([option, value])).toThrow(message);
  });

  it('takes stores one by one and with commas, and by default those that need no choice', () => {
    expect(parseOptions([])?.stores).toEqual(['redis', 'upstash', 'postgres', 'sqlite']);
    const given = parseOptions(['--store', 'redis,ioredis', '--store', 'memory']);
    expect(given?.stores).toEqual(['redis', 'ioredis', 'memory']);
  });
});

describe('the client settings', () => {
  /** On one line, however it is formatted. */
  const read = (path: string) =>
    readFileSync(new URL(path, import.meta.url), 'utf8')
      .replace(/\s+/g, ' ')
      .replace(/,(?= [}\])])/g, '');
  const documented = read('../../docs/operate/limits.md');
  const measured = read('../../lab/torture/stores.ts');

  it.each([
    'disableOfflineQueue: true',
    'connectTimeout: 1000, reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 500)',
    'enableOfflineQueue: false',
    'autoResendUnfulfilledCommands: false',
    'maxLoadingRetryTime: 500',
    'retryStrategy: (times) => Math.min(50 * 2 ** times, 500)',
    'retries: 2, backoff: (n) => 50 * 2 ** n',
    'max: 10, connectionTimeoutMillis: 1000, keepAlive: true',
  ])('that are measured are those that are documented: %s', (setting) => {
    expect(documented).toContain(setting);
    expect(measured).toContain(setting);
  });
});

describe('seeded()', () => {
  const choices = (seed: number, name: string) => {
    const random = seeded(seed, name);
    return Array.from({ length: 20 }, () => random.between(1, 1000));
  };

  it('makes the same choices for the same seed and name, and others for others', () => {
    expect(choices(1, 'lane 1')).toEqual(choices(1, 'lane 1'));
    expect(choices(1, 'lane 1')).not.toEqual(choices(2, 'lane 1'));
    expect(choices(1, 'lane 1')).not.toEqual(choices(1, 'lane 2'));
  });

  it('keeps to its limits, and loses nothing when it shuffles', () => {
    const random = seeded(1, 'limits');
    const numbers = Array.from({ length: 1000 }, () => random.between(3, 5));
    expect(new Set(numbers)).toEqual(new Set([3, 4, 5]));
    expect(random.shuffled([1, 2, 3, 4]).sort()).toEqual([1, 2, 3, 4]);
  });
});

interface Ended {
  readonly status: number | null;
  readonly lines: readonly string[];
  readonly errors: string;
}

function torture(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  let resolve: (ended: Ended) => void = () => {};
  const ended = new Promise<Ended>((done) => {
    resolve = done;
  });
  const options = { env: { ...process.env, ...env } };
  const child = execFile(process.execPath, [PROGRAM, ...args], options, (_, stdout, stderr) =>
    resolve({ status: child.exitCode, lines: stdout.trim().split('\n'), errors: stderr }),
  );
  return Object.assign(ended, { child });
}
