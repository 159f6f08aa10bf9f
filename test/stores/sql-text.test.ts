import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeText, encodeKey, encodeText } from '../../src/stores/sql-text.ts';

/** Every sequence of UTF-16 units, halves of pairs and NUL among them. */
const anyString = fc.string({
  unit: fc.nat(0xffff).map((code) => String.fromCharCode(code)),
  maxLength: 40,
});
const awkward = fc.string({
  unit: fc.constantFrom('\\', '\0', '\ud83d', '\ude00', 'u', '0', 'a', '#'),
});
const text = fc.oneof(anyString, awkward);

describe('text in a SQL column', () => {
  it('is the string itself where a database can keep it and it has no backslash', () => {
    for (const ordinary of ['', 'has_items', '__proto__', "'; DROP TABLE", 'Ünïcødé 😀', ' a\n']) {
      expect(encodeText(ordinary)).toBe(ordinary);
      expect(encodeKey(ordinary)).toBe(ordinary);
    }
    expect(encodeText('a\0b\\c\ud800')).toBe('a\\u0000b\\\\c\\ud800');
  });

  it('has neither NUL nor half of a surrogate pair, and gives any string back', () => {
    fc.assert(
      fc.property(text, (original) => {
        const encoded = encodeText(original);
        expect(encoded).not.toMatch(/\0|\p{Surrogate}/u);
        expect(decodeText(encoded)).toBe(original);
      }),
    );
  });
});

describe('text of an indexed key', () => {
  it('is the encoded string up to 1000 bytes, and never longer than fits an index', () => {
    expect(encodeKey('a\\'.repeat(333))).toBe(encodeText('a\\'.repeat(333)));
    for (const long of [
      'x'.repeat(1001),
      '😀'.repeat(1024),
      '\ud800'.repeat(5000),
      '\\'.repeat(1e6),
    ]) {
      const encoded = encodeKey(long);
      expect(Buffer.byteLength(encoded)).toBeLessThan(1300);
      expect(encoded).not.toMatch(/\0|\p{Surrogate}/u);
    }
  });

  it('differs for different strings', () => {
    const long = fc
      .tuple(text, fc.constantFrom('', 'x'.repeat(1500)))
      .map(([start, rest]) => rest + start);
    fc.assert(
      fc.property(long, long, (one, other) => {
        expect(encodeKey(one) === encodeKey(other)).toBe(one === other);
        // The text of a long key is not the text of any short key.
        expect(encodeKey(encodeKey(one))).toSatisfy(
          (twice) => twice !== encodeKey(one) || encodeKey(one) === one,
        );
      }),
    );
  });
});
