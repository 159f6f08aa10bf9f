import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import {
  elementSpans,
  memberSpans,
  parseJson,
  rootSpan,
  spanAt,
  withMember,
  withoutMember,
  withPlainKeys,
  withValueAt,
} from '../../src/wire/json-text.ts';
import { type ElementEdit, jsonTextOf, Message } from '../../src/wire/message.ts';
import { few } from '../helpers/few.ts';
import {
  arrayText,
  keyText,
  objectText,
  type Piece,
  spacedObjectText,
  takeApart,
  valueText,
  withOwn,
  withoutOwn,
} from './reference-json.ts';

const anyKey = keyText.map((text) => JSON.parse(text) as string);
const rawMembers = (piece: Piece): [string, string][] =>
  (piece.members ?? []).map(({ key, value }) => [key, value.raw]);
const rawElements = (text: string): string[] =>
  (takeApart(text).elements ?? []).map(({ raw }) => raw);

/** Strict: `1e400` is infinite to JavaScript, and `-0` is not `0`. */
function expectSame(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toEqual(expected);
  expect(isDeepStrictEqual(actual, expected)).toBe(true);
}

describe('a text with plain keys', () => {
  const keysIn = ({ members = [], elements = [] }: Piece): { key: string; from: number }[] => [
    ...members.flatMap(({ key, from, value }) => [{ key, from }, ...keysIn(value)]),
    ...elements.flatMap(keysIn),
  ];

  it('has the same keys, with no escapes in them but those that JSON demands', () => {
    fc.assert(
      fc.property(fc.oneof(spacedObjectText, arrayText), (text) => {
        const plain = withPlainKeys(text);
        const keys = keysIn(takeApart(plain));
        expect(keys.map(({ key }) => key)).toEqual(keysIn(takeApart(text)).map(({ key }) => key));
        for (const { key, from } of keys)
          expect(
            [`"${key}"`, JSON.stringify(key)].some((written) => plain.startsWith(written, from)),
          ).toBe(true);
      }),
    );
  });

  it('keeps everything else', () => {
    const text = '{"\\u006dethod":"\\u0061", "a\\"":{"\\u00e9" : ["\\n:", 1.0]}}';
    expect(withPlainKeys(text)).toBe('{"method":"\\u0061", "a\\"":{"é" : ["\\n:", 1.0]}}');
    expect(parseJson(text).value).toEqual({ method: 'a', 'a"': { é: ['\n:', 1] } });
  });
});

describe('the places of values in a text', () => {
  it('follow the grammar, in any way of writing', () => {
    const check = (text: string, piece: Piece): void => {
      for (const { value } of piece.members ?? []) check(text, value);
      for (const element of piece.elements ?? []) check(text, element);
      const { start } = piece;
      if (piece.members !== undefined) {
        const expected = piece.members.map(({ key, from, value }) => [
          key,
          from,
          value.start,
          value.end,
        ]);
        expect(
          memberSpans(text, start).map((each) => [each.key, each.from, each.start, each.end]),
        ).toEqual(expected);
      }
      if (piece.elements !== undefined) {
        const expected = piece.elements.map((element) => ({
          start: element.start,
          end: element.end,
        }));
        expect(elementSpans(text, start)).toEqual(expected);
      }
    };
    fc.assert(
      fc.property(spacedObjectText, (text) => {
        const { start, end } = rootSpan(text);
        const whole = takeApart(text);
        expect([start, end]).toEqual([whole.start, whole.end]);
        check(text, whole);
      }),
    );
  });

  it('at a path are those of the value that JSON.parse finds there', () => {
    fc.assert(
      fc.property(objectText, fc.array(anyKey, { maxLength: 3 }), (text, path) => {
        const span = spanAt(text, path);
        const message = new Message(JSON.parse(text) as JsonObject);
        const found = span === undefined ? undefined : JSON.parse(text.slice(span.start, span.end));
        expectSame(found, message.at(...path));
      }),
    );
  });
});

describe('a member', () => {
  it('that is set has its value, and the others keep their characters', () => {
    fc.assert(
      fc.property(spacedObjectText, anyKey, valueText, (text, key, value) => {
        const edited = withMember(text, key, value);
        expectSame(JSON.parse(edited), withOwn(JSON.parse(text), key, JSON.parse(value)));
        const before = rawMembers(takeApart(text));
        const at = before.findLastIndex(([name]) => name === key);
        const expected: [string, string][] =
          at === -1 ? [...before, [key, value]] : before.with(at, [key, value]);
        expect(rawMembers(takeApart(edited))).toEqual(expected);
      }),
    );
  });

  it('that is taken out is gone in all spellings, and the others keep their characters', () => {
    fc.assert(
      fc.property(spacedObjectText, anyKey, (text, key) => {
        const edited = withoutMember(text, key);
        expectSame(JSON.parse(edited), withoutOwn(JSON.parse(text), key));
        const expected = rawMembers(takeApart(text)).filter(([name]) => name !== key);
        expect(rawMembers(takeApart(edited))).toEqual(expected);
      }),
    );
  });

  it('that is missing can be taken out without a change', () => {
    fc.assert(
      fc.property(spacedObjectText, (text) => {
        expect(withoutMember(text, 'a key that is never made')).toBe(text);
      }),
    );
  });

  it('is set at any depth, in objects that are made where they are missing', () => {
    const setAt = (value: unknown, [key, ...rest]: string[], leaf: unknown): unknown => {
      if (key === undefined) return leaf;
      const object =
        typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
      const child = Object.hasOwn(object, key) ? Reflect.get(object, key) : undefined;
      return withOwn(object, key, setAt(child, rest, leaf));
    };
    fc.assert(
      fc.property(
        spacedObjectText,
        fc.array(anyKey, { minLength: 1, maxLength: 3 }),
        valueText,
        (text, path, value) => {
          const edited = withValueAt(text, path, value);
          expectSame(JSON.parse(edited), setAt(JSON.parse(text), path, JSON.parse(value)));
          const [first] = path;
          const others = (whole: string) =>
            rawMembers(takeApart(whole)).filter(([name]) => name !== first);
          expect(others(edited)).toEqual(others(text));
        },
      ),
    );
  });
});

describe('a message', () => {
  const edit = fc.oneof<fc.Arbitrary<ElementEdit>[]>(
    fc.constantFrom('keep', 'drop'),
    fc.dictionary(anyKey, fc.oneof(fc.string(), fc.integer(), fc.constant(null)), { maxKeys: 2 }),
  );
  const messageWith = (tools: string): Message => {
    const result = `{"a": 1.0 ,"tools": ${tools},"z":"\\u0041"}`;
    const text = `{"jsonrpc":"2.0", "id":12345678901234567890,"result":${result}}`;
    return new Message(JSON.parse(text) as JsonObject, text);
  };
  const amended = (element: unknown, change: ElementEdit): unknown => {
    if (typeof change === 'string' || typeof element !== 'object' || element === null)
      return element;
    if (Array.isArray(element)) return element;
    return Object.entries(change).reduce(
      (object, [key, value]) => withOwn(object, key, value),
      element,
    );
  };

  it('with edited elements keeps the others, in order, and all else to the letter', () => {
    fc.assert(
      fc.property(arrayText, fc.infiniteStream(edit), (tools, edits) => {
        const elements = JSON.parse(tools) as unknown[];
        const planned = elements.map(() => edits.next().value as ElementEdit);
        const message = messageWith(tools);
        const given = [...planned];
        message.editElements(['result', 'tools'], () => given.shift() ?? 'keep');
        const kept = elements.flatMap((element, index) =>
          planned[index] === 'drop' ? [] : [amended(element, planned[index] ?? 'keep')],
        );
        expectSame(message.at('result', 'tools'), kept);
        const raw = rawElements(tools).filter((_, index) => planned[index] !== 'drop');
        const edited = spanAt(message.text, ['result', 'tools']);
        rawElements(message.text.slice(edited?.start, edited?.end)).forEach((text, index) => {
          const change = planned.filter((each) => each !== 'drop')[index];
          if (change === 'keep') expect(text).toBe(raw[index]);
        });
        expect(message.text).toContain('"id":12345678901234567890,"result":{"a": 1.0 ,"tools": [');
        expect(message.text).toContain(',"z":"\\u0041"}}');
        if (planned.every((each) => each === 'keep')) expect(message.changed).toBe(false);
      }),
    );
  });

  it('takes an element at either end of an array, and touches no other', () => {
    fc.assert(
      fc.property(arrayText, fc.constantFrom('start', 'end'), (tools, where) => {
        const message = messageWith(tools);
        const block = { type: 'text', text: '\u2028 "quoted"' };
        message.insert(['result', 'tools'], block, where);
        const elements = JSON.parse(tools) as unknown[];
        expectSame(
          message.at('result', 'tools'),
          where === 'start' ? [block, ...elements] : [...elements, block],
        );
        const span = spanAt(message.text, ['result', 'tools']);
        const raw = rawElements(message.text.slice(span?.start, span?.end));
        expect(where === 'start' ? raw.slice(1) : raw.slice(0, -1)).toEqual(rawElements(tools));
      }),
    );
  });

  it('has a member set or taken out at a path, in step with its value', () => {
    fc.assert(
      fc.property(objectText, anyKey, valueText, (text, key, value) => {
        const message = new Message(JSON.parse(text) as JsonObject, text);
        message.set([key], JSON.parse(value));
        expectSame(
          message.value,
          withOwn(JSON.parse(text), key, JSON.parse(JSON.stringify(JSON.parse(value)))),
        );
        message.remove([], key);
        expectSame(message.value, withoutOwn(JSON.parse(text), key));
        expect(message.edits).toBe(2);
      }),
    );
  });

  it('comes out the same in each way of editing, and changes no value that it gave out', () => {
    const step = fc.oneof(
      fc.tuple(fc.constant('set' as const), anyKey, fc.jsonValue()),
      fc.tuple(fc.constant('assign' as const), anyKey, fc.string()),
      fc.tuple(fc.constant('remove' as const), anyKey, fc.jsonValue()),
      fc.tuple(fc.constant('insert' as const), fc.constantFrom('start', 'end'), fc.jsonValue()),
      fc.tuple(fc.constant('edit' as const), edit, fc.jsonValue()),
    );
    const apply = (message: Message, [kind, how, value]: unknown[]): void => {
      if (kind === 'set') message.set(['result', String(how)], value);
      if (kind === 'assign')
        message.assign(['result'], { [String(how)]: String(value), more: 'x' });
      if (kind === 'remove') message.remove(['result'], String(how));
      if (kind === 'insert') message.insert(['result', 'tools'], value, how as 'start');
      if (kind === 'edit') message.editElements(['result', 'tools'], () => how as ElementEdit);
    };
    fc.assert(
      fc.property(fc.array(fc.jsonValue()), fc.array(step, { maxLength: 4 }), (tools, steps) => {
        const text = JSON.stringify({ id: 1, result: { tools } });
        const given = JSON.parse(text) as JsonObject;
        const messages = [
          new Message(given, text),
          new Message(given),
          new Message(JSON.parse(text) as JsonObject, ` ${text}`),
        ];
        for (const message of messages) for (const each of steps) apply(message, each);
        const [asValue, withoutText, asText] = messages;
        expectSame(asValue?.value, asText?.value);
        expectSame(withoutText?.value, asText?.value);
        expectSame(JSON.parse(asValue?.text ?? ''), asText?.value);
        expect(asValue?.edits).toBe(asText?.edits);
        expect(JSON.stringify(given)).toBe(text);
      }),
    );
  });

  // How deep `JSON.stringify` gets differs between versions of V8, and between objects.
  it.each([1000, 3000, 6000, 10_000, 50_000])(
    'whose value nests %d levels deep is written again, from text and from value',
    (levels) => {
      const text = `{"id":1,"deep":${'{"a":['.repeat(levels)}1${']}'.repeat(levels)}}`;
      for (const message of [new Message(JSON.parse(text), text), new Message(JSON.parse(text))]) {
        message.set(['id'], 2);
        message.set(['more'], [JSON.parse(text)]);
        expect(message.text).toBe(`{"id":2${text.slice(7, -1)},"more":[${text}]}`);
      }
    },
  );

  it('whose value nests too deeply to be written again is edited all the same', () => {
    const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
    const text = `{"id":1,"deep":${deep}}`;
    const message = new Message(JSON.parse(text) as JsonObject, text);
    message.set(['id'], 2);
    expect(message.text).toBe(`{"id":2,"deep":${deep}}`);
  });

  it.each(['plain', '$&', "$'$`", '$1', '"quoted"', 'back\\slash', 'line\nbreak', '💶'])(
    'has a made-up name replaced by the name %j, to the letter',
    (name) => {
      const text = '{"result":{"content":[{"text":"Tool t123 not found"}],"t123":1.0}}';
      const message = new Message(JSON.parse(text) as JsonObject, text);
      message.rename('t123', name);
      expect(message.value).toEqual({
        result: { content: [{ text: `Tool ${name} not found` }], [name]: 1 },
      });
      expect(message.text).toContain(':1.0}');
    },
  );

  it('is not changed by an edit of a missing member', () => {
    const text = '{"id":1.0,"result":{"tools":{"not":"an array"},"meta":"text"}}';
    const message = new Message(JSON.parse(text) as JsonObject, text);
    message.editElements(['result', 'tools'], () => 'drop');
    message.editElements(['result', 'nothing'], () => 'drop');
    message.insert(['result', 'tools'], 1, 'end');
    message.remove(['result', 'meta'], 'key');
    message.remove(['nothing'], 'key');
    message.rename('absent', 'present');
    expect([message.text, message.changed]).toEqual([text, false]);
  });

  it('amends only elements that are objects, and writes null for what JSON cannot hold', () => {
    const text = '{"list":[1.0,"x",[],{"a":1}]}';
    const message = new Message(JSON.parse(text) as JsonObject, text);
    message.editElements(['list'], () => ({ b: undefined }));
    message.set(['c'], undefined);
    message.insert(['list'], undefined, 'end');
    expect(message.text).toBe('{"list":[1.0,"x",[],{"a":1,"b":null},null],"c":null}');
  });

  it('without a text is written from its value on demand', () => {
    const message = new Message({ jsonrpc: '2.0', id: 1 });
    expect([message.text, message.changed]).toEqual(['{"jsonrpc":"2.0","id":1}', false]);
    message.replace({ id: 2 });
    expect([message.text, message.value, message.changed]).toEqual(['{"id":2}', { id: 2 }, true]);
  });

  it('finds own members only', () => {
    const message = new Message(JSON.parse('{"a":{"__proto__":{"b":1}}}') as JsonObject);
    expect([
      message.at('constructor'),
      message.at('a', '__proto__', 'b'),
      message.at('a', 'toString'),
    ]).toEqual([undefined, 1, undefined]);
  });
});

describe('a value that nests deeply', () => {
  it('is written as JSON.stringify writes one that does not', () => {
    const levels = 20_000;
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const around = (inner: string) =>
          `${'[1,{"a":'.repeat(levels)}${inner}${',"b":[]},"c"]'.repeat(levels)}`;
        const deep = JSON.parse(around('null'));
        let innermost = deep;
        for (let level = 1; level < levels; level++) innermost = innermost[1].a;
        innermost[1].a = value;
        expect(jsonTextOf(deep)).toBe(around(JSON.stringify(value)));
      }),
      few(6),
    );
  });

  it('leaves out, or writes as null, what JSON cannot hold', () => {
    const odd = {
      f() {},
      u: undefined,
      d: new Date(0),
      l: [undefined, () => {}, Number.NaN],
      s: Symbol('s'),
    };
    const deep = JSON.parse(`${'['.repeat(20_000)}0${']'.repeat(20_000)}`);
    let innermost = deep;
    while (Array.isArray(innermost[0])) innermost = innermost[0];
    innermost[0] = odd;
    expect(jsonTextOf(deep)).toBe(
      `${'['.repeat(20_000)}${JSON.stringify(odd)}${']'.repeat(20_000)}`,
    );
    expect(jsonTextOf(undefined)).toBe('null');
    innermost[0] = 1n;
    expect(() => jsonTextOf(deep)).toThrow(TypeError);
  });
});
