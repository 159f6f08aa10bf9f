import { describe, it } from 'vitest';
import { memoryStore } from '../../src/stores/memory.ts';
import { describeStateStore } from '../../src/testing/index.ts';

describeStateStore(
  'memoryStore()',
  async () => {
    let time = 1_000_000;
    return {
      store: memoryStore({ now: () => time }),
      advance: (ms) => {
        time += ms;
      },
      close: async () => {},
    };
  },
  { describe, it, scope: 'process' },
);

describeStateStore(
  'memoryStore() on the real clock',
  async () => ({ store: memoryStore(), close: async () => {} }),
  { describe, it, scope: 'process' },
);
