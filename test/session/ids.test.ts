import { describe, expect, it } from 'vitest';
import { newSessionId, newToken } from '../../src/names.ts';

describe.each([
  ['a session id', newSessionId, 192],
  ["a claim's token", newToken, 144],
])('%s', (_, make, bits) => {
  it('is of visible ASCII, and at least 128 of its bits are left to chance', () => {
    expect(bits).toBeGreaterThanOrEqual(128);
    const ids = Array.from({ length: 300 }, make);
    for (const id of ids) expect(id).toMatch(/^[\x21-\x7e]+$/);
    const bytes = ids.map((id) => Buffer.from(id, 'base64url'));
    for (let bit = 0; bit < bits; bit++) {
      const ones = bytes.filter((each) => ((each[bit >> 3] ?? 0) >> (bit & 7)) & 1).length;
      // More than nine standard deviations of 300 fair coins: that does not happen by chance.
      expect(ones).toBeGreaterThan(70);
      expect(ones).toBeLessThan(230);
    }
    expect(new Set(ids).size).toBe(ids.length);
  });
});
