import { defineConfig } from 'vitest/config';
import { unitTests } from './test/helpers/unit.ts';

const TESTS = ['test/**/*.test.ts', 'packages/*/test/**/*.test.ts'];
const UNIT = unitTests(['test', 'packages/cli/test', 'packages/inspector/test']);

/** Each of these files has its own process, and they begin first. */
const ALONE = [
  // They turn on the ambient form of `currentStep()`, which no other test may have.
  'test/ambient.test.ts',
  'test/session/current-step.test.ts',
  // They replace a module for all that imports it.
  'test/middleware.test.ts',
  'test/readme.test.ts',
  // light-my-request changes the prototypes of Express.
  'test/wire/adapters.test.ts',
  // Other servers of the Fetch API replace its global classes.
  'test/fetch/gate-fetch.test.ts',
  // They measure their process, or take so long that no worker should begin with one at the end.
  'test/instances/**/*.test.ts',
  'test/lab/**/*.test.ts',
  'test/quick-starts.test.ts',
];

const limits = {
  // Real servers and processes on two busy cores: nothing is fast there, and nothing is slow enough to wait for in vain.
  testTimeout: 30_000,
  expect: { poll: { timeout: 10_000, interval: 5 } },
  // A database cluster is made from nothing in a hook, on machines that are busy with other test files.
  hookTimeout: 60_000,
};

export default defineConfig({
  test: {
    globalSetup: ['test/services/global-setup.ts', 'test/helpers/warnings.ts'],
    // A test waits for processes and for time, a third of its own time or more. By default two cores would have one worker.
    maxWorkers: 3,
    projects: [
      { test: { ...limits, name: 'alone', include: ALONE } },
      // The files of each of the others share processes, so that each imports the source and the SDKs once.
      {
        test: {
          ...limits,
          name: 'together',
          include: TESTS,
          exclude: [...ALONE, ...UNIT],
          isolate: false,
        },
      },
      {
        test: {
          ...limits,
          name: 'unit',
          include: UNIT,
          exclude: ALONE,
          isolate: false,
          setupFiles: ['test/helpers/no-process.ts'],
          provide: { services: 'a unit test starts no service' },
        },
      },
    ],
  },
});
