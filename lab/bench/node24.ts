import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The npm packages that hold Node itself, by platform and architecture. */
const PACKAGE = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`;
const FOLDER = join(tmpdir(), 'interlock-bench-node24');

/** The path of a Node 24, which npm brings into a temporary folder the first time. */
export function node24(): string {
  const path = join(FOLDER, 'node_modules/node24/bin/node');
  if (existsSync(path)) return path;
  mkdirSync(FOLDER, { recursive: true });
  const quietly = ['--no-audit', '--no-fund', '--no-save', '--prefix', FOLDER];
  execFileSync('npm', ['install', ...quietly, `node24@npm:${PACKAGE}@24`], { stdio: 'inherit' });
  return path;
}
