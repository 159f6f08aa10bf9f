import { describe, expect, it } from 'vitest';
import { hasPureTransitions, initFsmEngine } from '../../src/workflow/xstate.ts';

describe('initFsmEngine', () => {
  it('finds the xstate that is installed here, once', async () => {
    const first = initFsmEngine();
    expect(initFsmEngine()).toBe(first);
    expect(await first).toBe(true);
  });

  it('is false for a version without pure transitions', () => {
    expect(hasPureTransitions({ createMachine: () => ({}) })).toBe(false);
  });
});
