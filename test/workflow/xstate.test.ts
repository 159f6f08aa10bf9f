import { describe, expect, it } from 'vitest';
import { canLoad, initFsmEngine } from '../../src/workflow/xstate.ts';

describe('initFsmEngine', () => {
  it('finds the xstate that is installed here, once', async () => {
    const first = initFsmEngine();
    expect(initFsmEngine()).toBe(first);
    expect(await first).toBe(true);
  });

  it('is false where the module is not installed', async () => {
    const missing = 'a-module-that-is-not-installed';
    expect(await canLoad(() => import(missing))).toBe(false);
  });

  it('is false where loading throws, or gives a version without pure transitions', async () => {
    const broken = () => {
      throw new Error('broken');
    };
    expect(await canLoad(broken)).toBe(false);
    expect(await canLoad(async () => ({ createMachine: () => ({}) }))).toBe(false);
  });
});
