import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Outline, outlinesOf } from '../../src/wire/json-outline.ts';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import { parseJson, spanAt } from '../../src/wire/json-text.ts';
import { Message } from '../../src/wire/message.ts';
import { few } from '../helpers/few.ts';
import { keyText, objectText, type Piece, takeApart, valueText } from './reference-json.ts';

const inner = (piece: Piece): readonly Piece[] => [
  ...(piece.members ?? []).map(({ value }) => value),
  ...(piece.elements ?? []),
];

/** The outline's reference: slow and plain, on the pieces of the text. */
function hasDoubled(piece: Piece): boolean {
  const keys = (piece.members ?? []).map(({ key }) => key);
  return new Set(keys).size < keys.length || inner(piece).some(hasDoubled);
}

function namesPrototype(piece: Piece): boolean {
  const keys = (piece.members ?? []).map(({ key }) => key);
  return keys.includes('__proto__') || inner(piece).some(namesPrototype);
}

const memberOf = (piece: Piece | undefined, key: string): Piece | undefined =>
  piece?.members?.findLast((each) => each.key === key)?.value;

const outlined = (text: string): { plain: string; outline: Outline } => {
  const { text: plain } = parseJson(text);
  const [outline] = outlinesOf(plain);
  if (outline === undefined) throw new Error('it has no outline');
  return { plain, outline };
};

/** A message with parts of any kind, in any order. */
const part = fc.tuple(
  fc.constantFrom('"name"', '"arguments"', '"_meta"', '"\\u005fmeta"', '"x"'),
  valueText,
);
const paramsText = fc.oneof(
  fc.array(part, { maxLength: 4 }).map((parts) => `{${parts.map((p) => p.join(' :')).join(' ,')}}`),
  valueText,
);
const messageText = fc
  .tuple(
    fc.array(fc.tuple(keyText, valueText), { maxLength: 2 }),
    fc.option(paramsText, { nil: undefined }),
    fc.array(fc.tuple(keyText, valueText), { maxLength: 2 }),
  )
  .map(([before, params, after]) => {
    const own = params === undefined ? [] : [['"params"', params] as const];
    return ` {${[...before, ...own, ...after].map((pair) => pair.join(': ')).join(',')}}\n`;
  });

describe('the outline of a message', () => {
  it('tells whether an object has a key twice, at any depth', () => {
    fc.assert(
      fc.property(objectText, (text) => {
        const { plain, outline } = outlined(text);
        expect(outline.doubled !== undefined).toBe(hasDoubled(takeApart(plain)));
      }),
      few(125),
    );
  });

  it('tells so for objects with any number of keys, in any order', () => {
    const key = fc.oneof(
      fc.nat(300).map(String),
      fc.string({ maxLength: 3 }),
      fc.constant('a"b\\'),
    );
    fc.assert(
      fc.property(fc.array(key, { maxLength: 150 }), fc.nat(), (keys, at) => {
        const members = keys.map((each) => `${JSON.stringify(each)}:{"a":[{"b":1,"c":2}]}`);
        // Objects in objects have their own lists of keys.
        members.splice(at % (members.length + 1), 0, `"n":{${members.join(',')}}`);
        const { outline } = outlined(`{"x":{${members.join(',')}}}`);
        const isDoubled = new Set(keys).size < keys.length || keys.includes('n');
        expect(outline.doubled !== undefined).toBe(isDoubled);
      }),
    );
  });

  it('has the places of its parts, of any kind and in any order', () => {
    fc.assert(
      fc.property(messageText, (text) => {
        const { plain, outline } = outlined(text);
        if (outline.doubled !== undefined) return;
        const whole = takeApart(plain);
        expect([outline.start, outline.end]).toEqual([whole.start, whole.end]);
        const params = memberOf(whole, 'params');
        const expected = {
          params,
          'params._meta': memberOf(params, '_meta'),
          'params.arguments': memberOf(params, 'arguments'),
        };
        for (const [name, piece] of Object.entries(expected)) {
          const place = outline.places[name as keyof Outline['places']];
          const found =
            place && plain.slice(outline.start + place.start, outline.start + place.end);
          expect(found, name).toBe(piece?.raw);
        }
        const args = expected['params.arguments'];
        expect(outline.namesPrototype).toBe(args !== undefined && namesPrototype(args));
      }),
      few(125),
    );
  });

  it('tells where a number in the arguments may be rounded, at any depth and in no string', () => {
    const number = fc.constantFrom('1e400', '-1e-400', '1234567890123456789', '0.1', '-7', '1e9');
    const text = fc.constantFrom('"1e400"', '"1234567890123456789"', 'true', '{}', '"x"');
    const short = fc.array(fc.constantFrom('1', '22', '4096'), { maxLength: 30 });
    const leaf = fc.oneof(
      number,
      text,
      short.map((list) => `[${list.join(',')}]`),
    );
    const value = fc.letrec<{ value: string }>((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        leaf,
        fc.array(tie('value'), { maxLength: 4 }).map((list) => `[ ${list.join(' , ')}]`),
        fc
          .array(tie('value'), { maxLength: 4 })
          .map((list) => `{${list.map((each, i) => `"k${i}": ${each}`).join(',')} }`),
      ),
    })).value;
    const isOdd = (piece: Piece): boolean =>
      inner(piece).some(isOdd) || /^-?(1e-?400|1234567890123456789)$/.test(piece.raw);
    fc.assert(
      fc.property(value, value, (args, other) => {
        const params = `{"arguments":${args},"_meta":{"x":${other}}}`;
        const { outline } = outlined(`{"y":${other},"params":${params}}`);
        expect(outline.mayRound).toBe(isOdd(takeApart(args)));
      }),
      few(125),
    );
  });

  it('is made for each message of a batch', () => {
    fc.assert(
      fc.property(fc.array(objectText, { maxLength: 5 }), (texts) => {
        const body = `[ ${texts.join(' , ')} ]`;
        const { text } = parseJson(body);
        const outlines = outlinesOf(text);
        const pieces = takeApart(text).elements ?? [];
        expect(outlines.map(({ start, end }) => [start, end])).toEqual(
          pieces.map(({ start, end }) => [start, end]),
        );
        expect(outlines.map(({ doubled }) => doubled !== undefined)).toEqual(
          pieces.map(hasDoubled),
        );
      }),
    );
  });

  it('is made for a body of any depth, with any number of keys', () => {
    const deep = `{"params":{"arguments":${'{"a":['.repeat(300_000)}${']}'.repeat(300_000)}}}`;
    expect(outlined(deep).outline).toMatchObject({ doubled: undefined, end: deep.length });
    const keys = Array.from({ length: 100_000 }, (_, i) => `"${(i * 7_919) % 100_003}":0`);
    expect(outlined(`{${keys.join(',')}}`).outline.doubled).toBeUndefined();
    expect(outlined(`{${keys.join(',')},"7919":1}`).outline.doubled).toBe('7919');
    const long = `"${'x'.repeat(100_000)}"`;
    expect(outlined(`{${long}:1,"a":{${long}:1}}`).outline.doubled).toBeUndefined();
    expect(outlined(`{${long}:1,"a":1,${long}:1}`).outline.doubled).toHaveLength(100_000);
  });
});

describe('a message whose parts have known places', () => {
  const path = fc.oneof(
    fc.constantFrom(['params'], ['params', '_meta'], ['params', 'arguments'], ['params', 'name']),
    keyText.map((key) => ['params', '_meta', JSON.parse(key) as string]),
    keyText.map((key) => ['params', 'arguments', JSON.parse(key) as string, 'deep']),
    keyText.map((key) => [JSON.parse(key) as string]),
  );
  const kinds = fc.constantFrom('set', 'assign', 'remove');
  const step = fc.tuple(kinds, path, fc.jsonValue({ maxDepth: 1 }));

  it('comes out like one without known places, after any edits', () => {
    fc.assert(
      fc.property(messageText, fc.array(step, { maxLength: 5 }), (text, steps) => {
        const { plain, outline } = outlined(text);
        fc.pre(outline.doubled === undefined && !plain.includes('__proto__'));
        const own = plain.slice(outline.start, outline.end);
        const value = JSON.parse(own) as JsonObject;
        const known = new Message(value, own, outline.places);
        const plainly = new Message(JSON.parse(own) as JsonObject, ` ${own}`);
        for (const [kind, at, written] of steps) {
          fc.pre(!(at as readonly string[]).includes('__proto__'));
          for (const message of [known, plainly]) {
            if (kind === 'set') message.set(at, written);
            else if (kind === 'assign') message.assign(at, { a: 'k', b: JSON.stringify(written) });
            else message.remove(at.slice(0, -1), at.at(-1) ?? '');
          }
        }
        const expected = JSON.parse(plainly.text) as JsonObject;
        expect(isDeepStrictEqual(JSON.parse(known.text), expected)).toBe(true);
        expect(isDeepStrictEqual(known.value, expected)).toBe(true);
        expect(known.edits).toBe(plainly.edits);
        expect(isDeepStrictEqual(value, JSON.parse(own))).toBe(true);
      }),
      few(125),
    );
  });

  it('keeps every character around an edit', () => {
    const text =
      '{ "id":1.0,"params" : {"arguments":{"n":12345678901234567890 },"name":"a", "_meta":{} } }';
    const { plain, outline } = outlined(text);
    const message = new Message(JSON.parse(plain) as JsonObject, plain, outline.places);
    message.set(['params', '_meta', 'key'], 'k');
    message.set(['params', 'name'], 'b');
    message.remove(['params', '_meta'], 'none');
    message.assign(['params', '_meta'], { a: '1', b: '"' });
    expect(message.edits).toBe(4);
    expect(message.text).toBe(
      '{ "id":1.0,"params" : {"arguments":{"n":12345678901234567890 },' +
        '"name":"b", "_meta":{"key":"k","a":"1","b":"\\""} } }',
    );
    expect(spanAt(message.text, ['params', '_meta', 'key'])).toBeDefined();
  });
});
