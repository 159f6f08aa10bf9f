import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  parseResourcePattern,
  type ReadUri,
  readTemplate,
  readUri,
} from '../../src/workflow/resource-pattern.ts';
import { few } from '../helpers/few.ts';
import { readUri as readByReference } from './reference-uri-readings.ts';

/** How a pattern judges a URI. */
function held(pattern: string, uri: string): 'matched' | 'unclear' | 'free' {
  const read = readUri(uri);
  if (read === undefined) return 'unclear';
  return parseResourcePattern(pattern).matches(read) ? 'matched' : 'free';
}

describe('a glob on URIs', () => {
  it.each([
    ['docs://terms', 'docs://terms', true],
    ['docs://terms', 'docs://term', false],
    ['docs://*', 'docs://terms', true],
    ['docs://*', 'docs://terms/2024', false],
    ['docs://**', 'docs://terms/2024', true],
    ['docs://**', 'docs://', true],
    ['docs://*', 'docs://', false],
    ['docs://*/*', 'docs://a/', false],
    ['file:///*/*', 'file:///a', false],
    ['docs://a/**', 'docs://a', true],
    ['docs://a/**/z', 'docs://a/z', true],
    ['docs://a/**/z', 'docs://a/b/c/z', true],
    ['docs://a/**/z', 'docs://a/b/c', false],
    ['docs://**/a/**/b', 'docs://a/x/a/b', true],
    ['docs://receipt-*.pdf', 'docs://receipt-7.pdf', true],
    ['docs://receipt-*.pdf', 'docs://receipt-7.txt', false],
    ['docs://a*a', 'docs://a', false],
    ['docs://*a*b*', 'docs://xaxbx', true],
    ['docs://*a*b*', 'docs://xbxax', false],
    ['file:///srv/**', 'file:///srv/a/b', true],
    ['file:///srv/**', 'file:///etc/a', false],
    ['https://*.example.com/**', 'https://eu.example.com/x', true],
    ['https://*.example.com/**', 'https://eu.example.org/x', false],
    ['urn:isbn:*', 'urn:isbn:0451450523', true],
    ['urn:isbn:*', 'urn:issn:0451450523', false],
    ['docs://x/a b', 'docs://x/a%20b', true],
  ])('%s with %s: %s', (pattern, uri, matches) => {
    expect(held(pattern, uri)).toBe(matches ? 'matched' : 'free');
  });

  it('agrees with a regular expression on plain names', () => {
    const segment = fc.string({ unit: fc.constantFrom('a', 'b', '-'), minLength: 1, maxLength: 3 });
    const glob = fc.oneof(segment, fc.constantFrom('*', '**', 'a*', '*b', '*-*'));
    fc.assert(
      fc.property(
        fc.array(glob, { minLength: 1, maxLength: 5 }),
        fc.array(segment, { maxLength: 6 }),
        (globs, segments) => {
          const source = globs.map((each) =>
            each === '**' ? '(?:/[^/]+)*' : `/${each.replaceAll('*', '[^/]*')}`,
          );
          const expected = new RegExp(`^${source.join('')}$`).test(
            segments.map((each) => `/${each}`).join(''),
          );
          expect(held(`x:/${globs.join('/')}`, `x:/${segments.join('/')}`)).toBe(
            expected ? 'matched' : 'free',
          );
        },
      ),
    );
  });
});

describe('another spelling of a bound URI', () => {
  const bound = 'docs://vault/secret.txt';

  it.each([
    'DOCS://vault/secret.txt',
    'docs://VAULT/Secret.TXT',
    'docs://vault/secret.txt/',
    'docs://vault//secret.txt',
    'docs:///vault/secret.txt',
    'docs:/vault/secret.txt',
    'docs:vault/secret.txt',
    'docs://vault./secret.txt',
    'docs://vault/secret.txt.',
    'docs://vault/secret.txt%20',
    'docs://vault/secret.txt ',
    'docs://vault/secret.txt?x=1',
    'docs://vault/secret.txt#top',
    'docs://vault/secret.txt%3Fx',
    'docs://vault/%73ecret.txt',
    'docs://vault/secret%2etxt',
    'docs://vault/%2573ecret.txt',
    'docs://vault%2Fsecret.txt',
    'docs://vault/ｓecret.txt',
    'docs://vault/se%C2%ADcret.txt',
  ])('is that URI: %s', (uri) => expect(held(bound, uri)).toBe('matched'));

  it.each([
    'docs://vault/./secret.txt',
    'docs://vault/x/../secret.txt',
    'docs://vault/x/%2e%2e/secret.txt',
    'docs://vault/x/%2E./secret.txt',
    'docs://vault/x/%252e%252e/secret.txt',
    'docs://vault/x%2F..%2Fsecret.txt',
    'docs://vault/x/..;/secret.txt',
    'docs://vault/．．/secret.txt',
    'docs://vault\\secret.txt',
    'docs://vault%5Csecret.txt',
    'docs://user@vault/secret.txt',
    'docs://user:pass@vault/secret.txt',
    'docs://vault/secret.txt%00.png',
    'docs://vault/sec\tret.txt',
    'docs://vault/sec\nret.txt',
    'docs://vault/secret.txt%ff',
    'docs://vault／secret.txt',
    'docs://vault/%25252525252573ecret.txt',
    'docs://vault/%252573ecret.txt',
    `docs://vault/e${'\u0301\u0327'.repeat(16)}`,
    'docs://vault/secret%252520.txt',
    ' docs://vault/secret.txt',
    'do\tcs://vault/secret.txt',
    'vault/secret.txt',
    '//vault/secret.txt',
    '',
  ])('is unclear, and so refused: %j', (uri) => expect(readUri(uri)).toBeUndefined());

  it.each([
    ['long', 'x'.repeat(5_000)],
    ['deep', 'x/'.repeat(500)],
    ['long once it is written in ASCII', '\ufdfa'.repeat(500)],
  ])('is unclear where it is too %s', (_, path) =>
    expect(readUri(`docs://${path}`)).toBeUndefined(),
  );

  it.each([
    ['https://example.com/x', 'HTTPS://EXAMPLE.COM:443/x'],
    ['https://example.com/x', 'https:example.com/x'],
    ['https://example.com/x', 'https://example.com./x'],
    ['https://bücher.example/x', 'https://xn--bcher-kva.example/x'],
    ['https://xn--bcher-kva.example/x', 'https://BÜCHER.example/x'],
    ['http://127.0.0.1/x', 'http://0x7f.1/x'],
    ['file:///etc/x', 'file://localhost/etc/x'],
    ['docs://caf%C3%A9', 'docs://cafe\u0301'],
    ['docs://a%2Fb/*', 'docs://a/b/c'],
    // A parser that decodes late sees one segment here. One that decodes early sees two.
    ['docs://files/*', 'docs://files/a%2Fb'],
    ['docs://files/*/*', 'docs://files/a%2Fb'],
    ['docs://a%20b/*', 'docs://a%20b/c%2Fd'],
    ['docs://*/*', 'docs://a//b'],
    ['docs://a.*', 'docs://a.'],
  ])('is caught by %s: %s', (pattern, uri) => expect(held(pattern, uri)).toBe('matched'));

  it('does not get past a pattern, in any mix of spellings', () => {
    const character = (c: string): fc.Arbitrary<string> => {
      const hex = c.charCodeAt(0).toString(16).padStart(2, '0');
      return fc.constantFrom(
        c,
        c.toUpperCase(),
        `%${hex}`,
        `%${hex.toUpperCase()}`,
        `%25${hex}`,
        `${c}\u00ad`,
      );
    };
    const slash = fc.constantFrom('/', '//', '%2f', '%2F', '/./', '\\', '/x/../', './', '%20/');
    const text = (plain: string): fc.Arbitrary<string> =>
      fc
        .tuple(...[...plain].map((c) => (c === '/' ? slash : character(c))))
        .map((parts) => parts.join(''));
    const scheme = fc.constantFrom('docs', 'DOCS', 'Docs');
    const start = fc.constantFrom('://', ':///', ':/', ':', '://u@');
    const end = fc.constantFrom('', '/', '.', '?q', '#f', '%20', '?q=/../');
    fc.assert(
      fc.property(fc.tuple(scheme, start, text('vault/secret'), end), (parts) => {
        expect(held('docs://vault/secret', parts.join(''))).not.toBe('free');
        expect(held('docs://*/secret', parts.join(''))).not.toBe('free');
        expect(held('docs://vault/**', parts.join(''))).not.toBe('free');
      }),
      few(125),
    );
  });
});

const PATTERNS = [
  'docs://**',
  'docs://*',
  'docs://*/*',
  'docs://a/**',
  'docs://a/b*',
  'docs://**/report*.pdf',
  'docs://caf\u00e9/**',
  'docs://a/*/c',
  'https://example.com/**',
  'file:///srv/*/b',
].map(parseResourcePattern);

const matches = (pattern: (typeof PATTERNS)[number], read: ReadUri | undefined): boolean =>
  read !== undefined && pattern.matches(read);

const segment = fc.oneof(
  fc.constantFrom('a', 'b', 'bc', 'c', 'srv', 'Report-7.pdf', 'caf\u00e9', 'A b', '100%', 'x.'),
  fc.string({ unit: fc.constantFrom(...'abz09-_~\u00e9\u4e2d+,'), minLength: 1, maxLength: 8 }),
);
/** As it is, encoded as clients do it, or encoded again as inside another URI. */
const writtenSegment = fc.tuple(segment, fc.integer({ min: 0, max: 2 })).map(([text, times]) => {
  if (times === 0) return text.replace(/[ %]/g, encodeURIComponent);
  return times === 1 ? encodeURIComponent(text) : encodeURIComponent(encodeURIComponent(text));
});

/**
 * URIs as servers list them: no dot segments, control characters or user, and of sensible length.
 */
const honestUri = fc
  .tuple(
    fc.constantFrom('docs://', 'DOCS://', 'docs:/', 'docs:', 'https://example.com/', 'file:///'),
    fc.array(writtenSegment, { minLength: 1, maxLength: 6 }),
    fc.constantFrom('', '/', '?q=1', '?q=a%20b&r=/c', '#top', '?q#f'),
  )
  .map(([start, segments, end]) => `${start}${segments.join('/')}${end}`);

const anyUri = fc
  .array(
    fc.oneof(
      fc.constantFrom('.', '..', '/', '//', '%2e', '%252f', '%25252e', '?', '#', ' ', '%20', ';'),
      fc.constantFrom('a', 'b', 'B', '%61', '%zz', '%', '%c3%a9', '\u00ad', '\uff0e', '@', '\\'),
      fc.constantFrom('. . .', '....', '%FF', '%00', '\ufdfa', 'caf\u00e9', 'cafe\u0301', ':'),
    ),
    { maxLength: 12 },
  )
  .map((parts) => `docs://${parts.join('')}`);

describe('reading a URI', () => {
  it('never throws, and reads a URI as it reads what new URL() makes of it', () => {
    const unit = fc.constantFrom(...'ab:/?#@%.*2eF\\ \u0000é[]{}');
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string({ unit }).map((rest) => `docs:${rest}`),
        ),
        (uri) => {
          const read = readUri(uri);
          if (read === undefined) return;
          const written = readUri(new URL(uri).href);
          const texts = new Set(read.readings.map((each) => each.join('\n')));
          for (const each of written?.readings ?? []) expect(texts).toContain(each.join('\n'));
        },
      ),
      few(250),
    );
  });

  it('judges an honest URI as the first releases did', () => {
    fc.assert(
      fc.property(honestUri, (uri) => {
        expect(readUri(uri)).toBeDefined();
        for (const pattern of PATTERNS)
          expect([pattern.key, matches(pattern, readUri(uri))]).toEqual([
            pattern.key,
            matches(pattern, readByReference(uri)),
          ]);
      }),
      few(250),
    );
  });

  it('refuses any other URI, or judges it as the first releases did', () => {
    fc.assert(
      fc.property(anyUri, (uri) => {
        const read = readUri(uri);
        if (read === undefined) return;
        const before = readByReference(uri);
        expect(before).toBeDefined();
        for (const pattern of PATTERNS)
          expect(matches(pattern, read)).toBe(matches(pattern, before));
      }),
      few(500),
    );
  });

  it('is quick even for a URI that is made to be slow', () => {
    const uri = `docs://${'a/'.repeat(250)}%252F${'a'.repeat(3_000)}`;
    const pattern = parseResourcePattern(`docs://${'**/a/'.repeat(20)}${'*a'.repeat(20)}b`);
    const read = readUri(uri);
    expect(read !== undefined && pattern.matches(read)).toBe(false);
  });
});

describe('a URI template', () => {
  it.each([
    ['docs://*', 'docs://{id}', true],
    ['docs://**', 'docs://{id}/pages/{page}', true],
    ['docs://*/pages/*', 'docs://{id}/pages/{page}', true],
    ['docs://receipt-*', 'docs://receipt-{id}', true],
    ['docs://receipt-*', 'docs://{id}', false],
    ['docs://receipt', 'docs://{id}', false],
    ['docs://*', 'docs://{+path}', false],
    ['docs://**', 'docs://{+path}', true],
    ['docs://a/**', 'docs://a{/path*}', true],
    ['docs://a/*', 'docs://a{/path*}', false],
    ['docs://a', 'docs://a{?q,page}', true],
    ['docs://a', 'docs://a{.ext}', false],
    ['docs://a*', 'docs://a{.ext}', true],
    ['docs://**', 'DOCS://{id}', true],
    ['docs://**', 'other://{id}', false],
    ['docs://**', '{+uri}', false],
    ['docs://**', 'docs://{unclosed', false],
    ['docs://**', `docs://${'{a}'.repeat(50)}`, false],
  ])('%s matches all that %s makes: %s', (pattern, template, all) => {
    expect(parseResourcePattern(pattern).matchesAll(readTemplate(template))).toBe(all);
  });
});

describe('a pattern that would match other URIs than it seems to', () => {
  it.each([
    [undefined, 'expected a URI'],
    ['', 'absolute URI'],
    ['receipts/**', 'absolute URI'],
    ['*://x', 'absolute URI'],
    ['docs://{id}', 'write * for {id}'],
    ['docs://a?q=*', 'neither query nor fragment'],
    ['docs://a#b', 'neither query nor fragment'],
    [' docs://a', 'absolute URI'],
    ['docs://a ', 'white space'],
    ['docs://a/../b', 'dot segments'],
    ['docs://user@a', 'without a user'],
    ['docs://a\\b', 'backslashes'],
    ['docs://a**', 'stand alone'],
    ['https://', 'new URL()'],
  ])('%j is refused', (pattern, words) => {
    expect(() => parseResourcePattern(pattern)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_BINDING',
        message: expect.stringContaining(words),
      }),
    );
  });
});
