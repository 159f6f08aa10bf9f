import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts', 'packages/*/test/**/*.test.ts'],
    globalSetup: ['test/services/global-setup.ts'],
    // Real servers and processes on two busy cores: nothing is fast there, and nothing is slow enough to wait for in vain.
    testTimeout: 30_000,
    // Half of the time a test waits for processes. By default two cores would have one worker.
    maxWorkers: 2,
    expect: { poll: { timeout: 10_000 } },
    // A database cluster is made from nothing in a hook, on machines that are busy with other test files.
    hookTimeout: 60_000,
  },
});
