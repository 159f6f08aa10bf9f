import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import { type Host, startBare, startFetch, startParsed } from './hosts.ts';
import { type RawRequest, SESSION, showRequest } from './raw-request.ts';
import type { Got } from './readers.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

const KEYS = [
  'sku',
  'Sku',
  'name',
  'method',
  'id',
  'arguments',
  '_meta',
  'toString',
  'a b',
  'é',
  '💶',
  '\u2028',
  '',
  '\\',
  '"',
];
const scalar = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 6 }),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
);
/** The text of any JSON value, with numbers and escapes that JavaScript would write otherwise. */
const text: fc.Arbitrary<string> = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    scalar.map((value) => JSON.stringify(value)),
    fc.constantFrom(
      '1.0',
      '12345678901234567890',
      '-0',
      '1E5',
      '"\\u0061\\/"',
      '"\\ud83d\\ude00"',
      '{}',
      '[]',
    ),
    fc.array(tie('value'), { maxLength: 4 }).map((items) => `[${items.join(' ,')}]`),
    fc
      .uniqueArray(fc.tuple(fc.constantFrom(...KEYS), tie('value')), {
        maxLength: 4,
        selector: ([key]) => key.toLowerCase(),
      })
      .map(
        (members) =>
          `{${members.map(([key, value]) => `${JSON.stringify(key)}:\n${value}`).join(', ')}}`,
      ),
  ),
})).value;
const args = fc
  .uniqueArray(fc.tuple(fc.constantFrom(...KEYS), text), {
    maxLength: 5,
    selector: ([key]) => key.toLowerCase(),
  })
  .map(
    (members) =>
      `{ ${members.map(([key, value]) => `${JSON.stringify(key)} : ${value}`).join(',\t')} }`,
  );

/**
 * How a valid text is broken: a byte is taken out, put in or changed at a place given as a part of
 * the length.
 */
const damage = fc.record({
  place: fc.double({ min: 0, max: 1, noNaN: true }),
  bytes: fc.constantFrom(
    '',
    '"',
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '\\',
    '\0',
    '\x1f',
    '0',
    'e',
    '\x80',
    '\xff',
    '\xed\xa0\x80',
    'true',
    '//',
  ),
  isInsert: fc.boolean(),
});

interface Sent {
  readonly request: RawRequest;
  readonly tool: string;
}

const sent: fc.Arbitrary<Sent> = fc
  .record({
    tool: fc.constantFrom('cart.view', 'cart.add'),
    given: args,
    id: fc.oneof(fc.integer(), fc.string({ unit: 'grapheme', minLength: 1, maxLength: 5 })),
    damages: fc.array(damage, { maxLength: 2 }),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 4 }),
    space: fc.constantFrom('', ' ', '\r\n\t'),
  })
  .map(({ tool, given, id, damages, cuts, space }) => {
    const whole = `${space}{"jsonrpc":"2.0",${space}"id":${JSON.stringify(id)},"method":"tools/call","params":{"name":"${tool}","arguments":${given}}}${space}`;
    const body = damages.reduce<Buffer>((bytes, { place, bytes: more, isInsert }) => {
      const at = Math.floor(place * bytes.length);
      return Buffer.concat([
        bytes.subarray(0, at),
        Buffer.from(more, 'latin1'),
        bytes.subarray(isInsert ? at : at + 1),
      ]);
    }, Buffer.from(whole));
    const headers = [
      'content-type',
      'application/json',
      'accept',
      'application/json, text/event-stream',
      'mcp-session-id',
      SESSION,
    ];
    return { tool, request: { method: 'POST', headers, body, cuts } };
  });

export const bodies: Target = {
  name: 'bodies',
  what: 'a body that is JSON arrives as it was sent, but for the key of a step; another one is refused',
  inputs: 100,
  async open(): Promise<OpenTarget> {
    const hosts = await Promise.all([startBare(), startParsed(), startFetch()]);
    return {
      property: fc.asyncProperty(sent, async (each) => {
        for (const host of hosts) await judge(host, each);
      }),
      describe: ({ request }: Sent) => showRequest(request),
      close: async () => {
        for (const host of hosts) await host.close();
      },
    };
  },
};

async function judge(host: Host, { request }: Sent): Promise<void> {
  const { answer, got } = await host.send(request);
  const value = strictly(request.body);
  if (value === undefined) {
    if (got.length > 0) broken(`${host.name} forwarded what is no JSON`);
    if (answer.status !== 400) broken(`${host.name} answered ${answer.status} to what is no JSON`);
    return;
  }
  const [forwarded] = got;
  if (forwarded === undefined) {
    if (isOrdinary(value))
      broken(`${host.name} answered ${answer.status} to a call that nothing forbids`);
    return;
  }
  const arrived = withoutKey(forwarded.parsed ?? strictly(forwarded.body));
  if (!isSame(arrived, withoutKey(value)))
    broken(`${host.name} forwarded another body`, JSON.stringify(arrived));
  if (isUntouched(value, forwarded) && !forwarded.body.equals(request.body)) {
    broken(`${host.name} wrote a call anew that is nothing to it`);
  }
}

/** As JSON has it: there is no other zero. */
function isSame(one: unknown, other: unknown): boolean {
  return isDeepStrictEqual(JSON.parse(JSON.stringify(one)), JSON.parse(JSON.stringify(other)));
}

/** The value, or `undefined` where the bytes are no JSON in valid UTF-8. */
function strictly(body: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    return undefined;
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a body may be anything
function isOrdinary(value: any): boolean {
  const { jsonrpc, id, method, params, ...others } = value ?? {};
  const hasId = typeof id === 'string' || Number.isSafeInteger(id);
  const { name, arguments: given, ...more } = params ?? {};
  const isCall = jsonrpc === '2.0' && method === 'tools/call' && hasId && typeof name === 'string';
  const isPlain = typeof given === 'object' && given !== null && !Array.isArray(given);
  return (
    isCall &&
    isPlain &&
    !['cart', 'cart.pay'].includes(name) &&
    Object.keys({ ...others, ...more }).length === 0
  );
}

// biome-ignore lint/suspicious/noExplicitAny: a body may be anything
function isUntouched(value: any, { parsed }: Got): boolean {
  const namesTry = Object.keys(value?.params?._meta ?? {}).some(isTry);
  return parsed === undefined && value?.params?.name === 'cart.view' && !namesTry;
}

/** Without what the gate adds to a step, or takes out of it. */
// biome-ignore lint/suspicious/noExplicitAny: a body may be anything
function withoutKey(value: any): unknown {
  // Damage may have made a batch of the call.
  if (Array.isArray(value)) return value.map(withoutKey);
  const { 'mcp-interlock/idempotencyKey': _, ...others } = value?.params?._meta ?? {};
  if (value?.params?._meta === undefined) return value;
  const meta = Object.fromEntries(Object.entries(others).filter(([key]) => !isTry(key)));
  const { _meta, ...params } = value.params;
  return { ...value, params: Object.keys(meta).length === 0 ? params : { ...params, _meta: meta } };
}

/** The key of a try's id, as a careless reader has it: no client may name one. */
function isTry(key: string): boolean {
  const [read = ''] = key.split('\0');
  return read.toUpperCase().toLowerCase() === 'mcp-interlock/try';
}
