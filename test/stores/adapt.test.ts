import { describe, it } from 'vitest';
import { adaptStateStore } from '../../src/stores/adapt.ts';
import { describeStateStore } from '../../src/testing/index.ts';

describeStateStore(
  'adaptStateStore()',
  async () => {
    let time = 1_000_000;
    const texts = new Map<string, string>();
    const adapt = () =>
      adaptStateStore(
        {
          load: async (key) => {
            const text = texts.get(key);
            return text === undefined ? undefined : JSON.parse(text);
          },
          save: async (key, snapshot) => {
            texts.set(key, JSON.stringify(snapshot));
          },
        },
        { now: () => time, onWarning: () => {} },
      );
    return {
      store: adapt(),
      advance: (ms) => {
        time += ms;
      },
      reopen: async () => adapt(),
      close: async () => {},
    };
  },
  { describe, it, scope: 'restarts' },
);
