/**
 * Makes sure that the servers and the browser of the tests are installed. As root on Debian or
 * Ubuntu it installs them with apt, else it says what to do and ends with status 1. Tests use a
 * server of REDIS_URL or DATABASE_URL, a browser of CHROMIUM_PATH and a pooler of PGBOUNCER_PATH.
 */
import { spawnSync } from 'node:child_process';
import { rmSync, statSync, writeFileSync } from 'node:fs';
import {
  findBinary,
  missingMessage,
  SERVICES,
  type ServiceName,
} from '../test/services/binaries.ts';

const POLICY = '/usr/sbin/policy-rc.d';

function isMissing(name: ServiceName): boolean {
  const { binaries, url } = SERVICES[name];
  return !process.env[url] && binaries.some((file) => findBinary(file) === undefined);
}

/**
 * The packages start system services of their own when they are installed; a policy that says 101
 * forbids it.
 */
function withoutStartingServices(install: () => boolean): boolean {
  const exists = statSync(POLICY, { throwIfNoEntry: false }) !== undefined;
  if (!exists) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    return install();
  } finally {
    if (!exists) rmSync(POLICY);
  }
}

function aptGet(...args: string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  return spawnSync('apt-get', args, { env, stdio: ['ignore', 'inherit', 'inherit'] }).status === 0;
}

function install(names: readonly ServiceName[]): boolean {
  const packages = names.flatMap((name) => SERVICES[name].packages);
  console.log(`Installing ${packages.join(' and ')} for the tests.`);
  return (
    aptGet('update') &&
    withoutStartingServices(() => aptGet('install', '-y', '--no-install-recommends', ...packages))
  );
}

const names = Object.keys(SERVICES) as ServiceName[];
const missing = names.filter(isMissing);
const isRoot = process.getuid?.() === 0;
if (missing.length > 0 && isRoot && findBinary('apt-get') !== undefined) install(missing);

for (const name of missing.filter(isMissing)) {
  console.error(missingMessage(name));
  process.exitCode = 1;
}
