import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withArgument } from '../../src/gate/argument-schema.ts';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import { few } from '../helpers/few.ts';

const ARGUMENT = 'workflow_run';
const ABOUT = { type: 'string', description: 'Names the run.' };

const ajv = new Ajv2020({ strict: false, logger: false, validateSchema: false, inlineRefs: false });

function accepts(schema: JsonObject, instance: unknown): boolean {
  return ajv.compile(schema)(instance) as boolean;
}

function asking(schema: unknown): JsonObject {
  const asked = withArgument(schema, ARGUMENT, ABOUT);
  expect(asked).toBeDefined();
  return asked as JsonObject;
}

/** Schemas of an object's members, none of which is the new argument. */
const value = fc.constantFrom<JsonObject>(
  {},
  { type: 'number' },
  { type: 'string' },
  { type: 'object' },
);
const key = fc.constantFrom('a', 'b', 'kind');
const members = fc.dictionary(key, value, { maxKeys: 3, noNullPrototype: true });

const { schema: anySchema } = fc.letrec<{
  schema: JsonObject;
  leaf: JsonObject;
  union: JsonObject;
}>((tie) => ({
  schema: fc.oneof({ maxDepth: 1, depthSize: 'small' }, tie('leaf'), tie('union')),
  leaf: fc.record<JsonObject>(
    {
      properties: members,
      required: fc.uniqueArray(key, { maxLength: 2 }),
      additionalProperties: fc.constantFrom<unknown>(false, true, {}, { type: 'number' }),
      minProperties: fc.nat(2),
      maxProperties: fc.integer({ min: 1, max: 3 }),
      propertyNames: fc.constantFrom<unknown>({ maxLength: 4 }, { pattern: '^[a-z]$' }, true),
      patternProperties: fc.dictionary(fc.constantFrom('^w', 'n$', '^.$', '_', ''), value, {
        maxKeys: 2,
        noNullPrototype: true,
      }),
      $ref: fc.constantFrom('#/$defs/One', '#/$defs/Two'),
    },
    { requiredKeys: [] },
  ),
  union: fc.record<JsonObject>(
    {
      allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 1 }),
      anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
      oneOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
      if: tie('schema'),
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: tie('schema'),
      else: tie('schema'),
      not: tie('schema'),
      dependentSchemas: fc.dictionary(key, tie('schema') as fc.Arbitrary<JsonObject>, {
        maxKeys: 1,
        noNullPrototype: true,
      }),
      unevaluatedProperties: fc.constantFrom(false, true),
    },
    { requiredKeys: [] },
  ),
}));

/** Definitions that refer to nothing, or only inside their members. */
const definition = fc.tuple(members, fc.boolean(), fc.boolean()).map(
  ([properties, isClosed, isRecursive]): JsonObject => ({
    type: 'object',
    properties: isRecursive ? { ...properties, a: { $ref: '#' } } : properties,
    additionalProperties: !isClosed,
  }),
);

const root = fc.tuple(anySchema, definition, definition, fc.boolean()).map(
  ([schema, One, Two, isRecursive]): JsonObject => ({
    ...schema,
    ...(isRecursive && { properties: { ...(schema.properties as object), a: { $ref: '#' } } }),
    type: 'object',
    $defs: { One, Two },
  }),
);

const { instance: anyInstance } = fc.letrec<{ instance: JsonObject }>((tie) => ({
  instance: fc.dictionary(
    fc.constantFrom('a', 'b', 'kind', 'w', 'other'),
    fc.oneof({ maxDepth: 2 }, fc.constantFrom<unknown>(1, 'x'), tie('instance')),
    { maxKeys: 3, noNullPrototype: true },
  ),
}));

describe('a schema that asks for one argument more', () => {
  it('takes with the argument exactly what it took without', () => {
    fc.assert(
      fc.property(
        root,
        fc.array(anyInstance, { minLength: 5, maxLength: 20 }),
        (schema, instances) => {
          const [before, after] = [ajv.compile(schema), ajv.compile(asking(schema))];
          for (const instance of instances) {
            expect(after({ ...instance, [ARGUMENT]: 'h' })).toBe(before(instance));
          }
        },
      ),
      few(30),
    );
  });

  it('takes nothing without the argument, and no argument that is not a string', () => {
    fc.assert(
      fc.property(root, anyInstance, (schema, instance) => {
        const asked = asking(schema);
        expect(accepts(asked, instance)).toBe(false);
        expect(accepts(asked, { ...instance, [ARGUMENT]: 7 })).toBe(false);
      }),
      few(15),
    );
  });

  it('keeps a simple schema as it is, but for the argument', () => {
    const schema = {
      type: 'object',
      properties: { sku: { type: 'string', 'x-mcp-header': 'Sku' } },
      required: ['sku'],
      additionalProperties: false,
    };
    expect(asking(schema)).toEqual({
      ...schema,
      properties: { ...schema.properties, [ARGUMENT]: ABOUT },
      required: ['sku', ARGUMENT],
    });
    expect(asking(undefined)).toEqual({
      type: 'object',
      properties: { [ARGUMENT]: ABOUT },
      required: [ARGUMENT],
    });
  });

  it.each<[string, JsonObject]>([
    ['in its members', { properties: { [ARGUMENT]: {} } }],
    ['among what it requires', { required: [ARGUMENT] }],
    ['behind a reference', { $ref: '#/$defs/A', $defs: { A: { properties: { [ARGUMENT]: {} } } } }],
    ['in one of a union', { oneOf: [{}, { anyOf: [{ properties: { [ARGUMENT]: {} } }] }] }],
    ['in a condition', { if: { required: ['a'] }, else: { properties: { [ARGUMENT]: {} } } }],
    ['in what must not be', { not: { required: [ARGUMENT] } }],
    [
      'in what depends on a member',
      { dependentSchemas: { a: { properties: { [ARGUMENT]: {} } } } },
    ],
  ])('is not made where the argument is known %s', (_where, schema) => {
    expect(withArgument(schema, ARGUMENT, ABOUT)).toBeUndefined();
  });

  it('may have one of the name in an object inside of it', () => {
    const schema = { properties: { inner: { properties: { [ARGUMENT]: { type: 'number' } } } } };
    expect(accepts(asking(schema), { inner: { [ARGUMENT]: 1 }, [ARGUMENT]: 'h' })).toBe(true);
  });

  it('takes names that JavaScript knows for ordinary ones', () => {
    const schema = JSON.parse(
      '{"properties":{"__proto__":{"type":"number"},"toString":{}},"required":["__proto__"]}',
    );
    const asked = withArgument(schema, 'constructor', ABOUT) as JsonObject;
    expect(JSON.parse(JSON.stringify(asked.properties))).toEqual(
      JSON.parse(
        '{"__proto__":{"type":"number"},"toString":{},"constructor":{"type":"string","description":"Names the run."}}',
      ),
    );
  });

  it('refers to itself as it was', () => {
    const tree = {
      type: 'object',
      properties: {
        children: { type: 'array', items: { $ref: '#' } },
        first: { $ref: '#/properties/name' },
        name: { type: 'string' },
      },
      additionalProperties: false,
    };
    const asked = asking(tree);
    expect(
      accepts(asked, { [ARGUMENT]: 'h', children: [{ children: [{ name: 'x' }], first: 'y' }] }),
    ).toBe(true);
    expect(accepts(asked, { [ARGUMENT]: 'h', children: [{ [ARGUMENT]: 'h' }] })).toBe(false);
  });
});
