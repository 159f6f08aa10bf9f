import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/services/global-setup.ts'],
    // A database cluster is made from nothing in a hook, on machines that are busy with other test files.
    hookTimeout: 60_000,
  },
});
