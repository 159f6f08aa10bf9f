import { describe, expect, inject, it } from 'vitest';
import { unitTests } from './helpers/unit.ts';

describe('the unit tests', () => {
  it('are the files that reach no process, no service and no built package', () => {
    const units = unitTests(['test', 'packages/cli/test']);
    expect(units).toEqual(
      expect.arrayContaining(['test/stores/memory.test.ts', 'test/wire/call.test.ts']),
    );
    const others = [
      // Through a helper, a service, `child_process` itself, and a package by its name.
      'test/session/processes.test.ts',
      'test/stores/redis.test.ts',
      'test/releases.test.ts',
      'packages/cli/test/proxy.test.ts',
    ];
    expect(units.filter((file) => others.includes(file))).toEqual([]);
  });

  it.each([
    ...(['exec', 'execFile', 'execFileSync', 'execSync'] as const),
    ...(['fork', 'spawn', 'spawnSync'] as const),
  ])('can start no process: %s', (name) => {
    const processes = process.getBuiltinModule('node:child_process');
    expect(() => processes[name]('true')).toThrow('a unit test starts no process');
    expect(() => new processes.ChildProcess()['spawn' as 'kill']()).toThrow('starts no process');
  });

  it('can start no service', async () => {
    await expect(fetch(`${inject('services')}/redis`)).rejects.toThrow(/URL/);
  });
});
