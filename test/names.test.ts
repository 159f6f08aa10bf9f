import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nearestName, newSessionId, newToken, rightNames } from '../src/basics/names.ts';

describe('nearestName', () => {
  it.each([
    ['intial', 'initial'],
    ['PAYY', 'PAY'],
    ['pay', 'PAY'],
    ['cart_pay', 'cart.pay'],
    ['cartPay', 'cart.pay'],
    ['stauts', 'status'],
    ['onn', 'on'],
    ['adn', 'and'],
  ])('takes %s for %s', (wrong, right) => {
    expect(nearestName(wrong, ['other', 'something_else', right])).toBe(right);
  });

  it.each([
    ['pay', 'checkout'],
    ['a', 'b'],
    ['', 'x'],
    ['payment', 'pay'],
  ])('takes %s for nothing where there is only %s', (wrong, other) => {
    expect(nearestName(wrong, [other])).toBeUndefined();
  });

  it('prefers the nearer one, and the first of equally near ones', () => {
    expect(nearestName('payment', ['paymnet1', 'payments'])).toBe('payments');
    expect(nearestName('cart.pay', ['cart.bay', 'cart.day'])).toBe('cart.bay');
  });

  it('prefers a name to its twin in another case', () => {
    expect(nearestName('pay', ['PAY', 'pay'])).toBe('pay');
  });

  it('does not compare names that are too long to be typos', () => {
    expect(nearestName('x'.repeat(200_000), ['x'.repeat(199_999)])).toBeUndefined();
  });

  it('finds every name from which one character was lost', () => {
    const names = ['has_items', 'payment', 'confirmed', 'cart.add_item'];
    fc.assert(
      fc.property(fc.constantFrom(...names), fc.nat(), (name, seed) => {
        const at = seed % name.length;
        expect(nearestName(name.slice(0, at) + name.slice(at + 1), names)).toBe(name);
      }),
    );
  });
});

describe('rightNames', () => {
  it('names the nearest one and all of them', () => {
    expect(rightNames('emty', ['empty', 'paid'])).toBe(
      'did you mean "empty"? Known are "empty", "paid"',
    );
  });

  it('names all of them where none is near', () => {
    expect(rightNames('zzz', ['empty', 'paid'])).toBe('known are "empty", "paid"');
  });
});

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
