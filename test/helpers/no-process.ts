/** In the process of a unit test, whatever starts another one throws. */
import processes, { ChildProcess } from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';

const refuse = (): never => {
  throw new Error('a unit test starts no process');
};

const starters = { exec: refuse, execFile: refuse, fork: refuse, spawn: refuse };
const syncStarters = { execFileSync: refuse, execSync: refuse, spawnSync: refuse };
// A module that was loaded earlier has kept the functions, but they all begin with this method.
Object.assign(ChildProcess.prototype, { spawn: refuse });
Object.assign(processes, starters, syncStarters);
syncBuiltinESMExports();
