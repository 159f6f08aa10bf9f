import fc from 'fast-check';

/** A JSON text, taken to pieces by the grammar of RFC 8259. Each piece keeps its characters. */
export interface Piece {
  readonly start: number;
  readonly end: number;
  readonly raw: string;
  readonly members?: readonly {
    readonly key: string;
    readonly from: number;
    readonly value: Piece;
  }[];
  readonly elements?: readonly Piece[];
}

/** A slow and plain parser, which shares nothing with the code under test. */
export function takeApart(text: string): Piece {
  let at = 0;
  const space = (): void => {
    while (' \t\n\r'.includes(text.charAt(at)) && at < text.length) at++;
  };
  const token = (pattern: RegExp): string => {
    const [found = ''] = text.slice(at).match(pattern) ?? [];
    at += found.length;
    return found;
  };
  const list = <T>(close: string, item: () => T): T[] => {
    const items: T[] = [];
    at++;
    for (space(); text[at] !== close; space()) {
      if (text[at] === ',') at++;
      space();
      items.push(item());
    }
    at++;
    return items;
  };
  const value = (): Piece => {
    const start = at;
    let inner: Pick<Piece, 'members' | 'elements'> = {};
    if (text[at] === '{') {
      inner = {
        members: list('}', () => {
          const from = at;
          const key = JSON.parse(token(/^"(?:[^"\\]|\\.)*"/)) as string;
          space();
          at++;
          space();
          return { key, from, value: value() };
        }),
      };
    } else if (text[at] === '[') inner = { elements: list(']', value) };
    else token(/^(?:"(?:[^"\\]|\\.)*"|[^\s,\]}]+)/);
    return { start, end: at, raw: text.slice(start, at), ...inner };
  };
  space();
  return value();
}

const space = fc.string({ unit: fc.constantFrom(' ', '\n', '\t', '\r'), maxLength: 3 });

const character = fc.oneof(
  fc.constantFrom(
    'a',
    'B',
    '0',
    ' ',
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    'é',
    '€',
    '💶',
    '\u2028',
    '\u007f',
  ),
  fc.constantFrom(
    '\\"',
    '\\\\',
    '\\/',
    '\\b',
    '\\n',
    '\\u0061',
    '\\ud83d\\udcb6',
    '\\ud800',
    '\\u0000',
  ),
);

const stringText = fc.string({ unit: character, maxLength: 6 }).map((inside) => `"${inside}"`);

/** After a key with a backslash, V8 may mistake a key with an escape for it (nodejs/node#63785). */
function parsesAsWritten(): boolean {
  JSON.parse('{"h":[],"\\\\":0}');
  return Object.keys(JSON.parse('{"h":1,"\\"":2}')).includes('"');
}

/** A few keys, so that some repeat, with some that objects inherit. */
export const keyText = fc
  .oneof(
    fc.constantFrom('"a"', '"b"', '"\\u0061"', '""', '"__proto__"', '"constructor"', '"7"'),
    stringText,
  )
  .filter(parsesAsWritten() ? () => true : (text) => !text.includes('\\\\'));

/** Values that JavaScript's parser loses or changes. */
const scalarText = fc.oneof(
  fc.constantFrom(
    '12345678901234567890',
    '1.0',
    '1e400',
    '-0',
    '1E+2',
    '0.10',
    'true',
    'false',
    'null',
  ),
  fc.integer().map(String),
  stringText,
);

const spaced = (text: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(space, text, space).map((parts) => parts.join(''));

const nested = fc.letrec<{ value: string; object: string; array: string }>((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, scalarText, tie('object'), tie('array')),
  object: fc
    .tuple(
      space,
      fc.array(
        fc.tuple(spaced(keyText), spaced(tie('value'))).map(([key, value]) => `${key}:${value}`),
        { maxLength: 5 },
      ),
    )
    .map(([inside, members]) => `{${members.length === 0 ? inside : members.join(',')}}`),
  array: fc
    .tuple(space, fc.array(spaced(tie('value')), { maxLength: 5 }))
    .map(([inside, elements]) => `[${elements.length === 0 ? inside : elements.join(',')}]`),
}));

/** Any JSON value, written in any way. */
export const valueText = nested.value;
export const objectText = nested.object;
export const arrayText = nested.array;
export const spacedObjectText = spaced(nested.object);

/** Sets an own property of any name. */
export function withOwn(object: object, key: string, value: unknown): object {
  const copy = withoutOwn(object, key);
  Object.defineProperty(copy, key, { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

export function withoutOwn(object: object, key: string): object {
  const copy = {};
  Object.defineProperties(copy, Object.getOwnPropertyDescriptors(object));
  Reflect.deleteProperty(copy, key);
  return copy;
}
