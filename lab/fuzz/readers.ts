import { brotliDecompressSync, gunzipSync, inflateRawSync, inflateSync } from 'node:zlib';
import { type Loose, looseOf, looseValues } from './loose-json.ts';

/** A request as the server behind the gate got it. */
export interface Got {
  readonly method: string;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** What a body parser in front of the gate made of the bytes, as it reached the server. */
  readonly parsed?: unknown;
}

/** A call that a reader finds in a request. */
export interface ReadCall {
  /** Who reads it so. */
  readonly reader: string;
  readonly name: string;
  /** The value of the argument `action`. */
  readonly action: unknown;
}

/** All calls that any reader could find in a request. */
export function everyReading(got: Got): ReadCall[] {
  const calls: ReadCall[] = [...headerCalls(got)];
  for (const [bytesName, bytes] of unpacked(got)) {
    for (const [textName, text] of decoded(bytes)) {
      const messages = looseValues(text).flatMap((value) => messagesIn(value));
      calls.push(...callsIn(messages, `${bytesName}${textName}`));
      if (isForm(got)) calls.push(...formCalls(text, `${bytesName}${textName}`));
    }
  }
  if (got.parsed !== undefined) {
    calls.push(...callsIn(messagesIn(looseOf(got.parsed)), 'parsed, '));
  }
  return calls;
}

/**
 * How a server may unpack the bytes: as they are, or by what they look like, with the header or
 * without it.
 */
function* unpacked({ body }: Got): Generator<readonly [string, Buffer]> {
  yield ['', body];
  const unpackers = {
    gzip: gunzipSync,
    deflate: inflateSync,
    raw: inflateRawSync,
    br: brotliDecompressSync,
  };
  for (const [name, unpack] of Object.entries(unpackers)) {
    try {
      yield [`${name}, `, unpack(body, { maxOutputLength: 1 << 20 })];
    } catch {
      // It is something else.
    }
  }
}

/** How a server may decode them. */
function* decoded(bytes: Buffer): Generator<readonly [string, string]> {
  const utf8 = bytes.toString('utf8');
  yield ['UTF-8, ', utf8];
  if (utf8.includes('\ufffd')) {
    yield ['invalid UTF-8 dropped, ', utf8.replaceAll('\ufffd', '')];
    yield ['Latin 1, ', bytes.toString('latin1')];
    yield ['overlong UTF-8, ', overlong(bytes)];
    yield ['lowest seven bits, ', bytes.toString('ascii')];
  }
  if (bytes.includes(0)) {
    yield ['UTF-16, ', bytes.toString('utf16le')];
    yield [
      'UTF-16 with its bytes swapped, ',
      Buffer.from(bytes.subarray(0, bytes.length & ~1))
        .swap16()
        .toString('utf16le'),
    ];
    yield ['without NUL, ', utf8.replaceAll('\0', '')];
  }
}

/** As a decoder that checks nothing reads it: two, three or four bytes for what one would say. */
function overlong(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length; at++) {
    const first = bytes[at] ?? 0;
    const more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    let code = more === 0 ? first : first & (0x3f >> more);
    for (let next = 0; next < more; next++) code = (code << 6) | ((bytes[++at] ?? 0) & 0x3f);
    text += code <= 0x10ffff ? String.fromCodePoint(code) : '';
  }
  return text;
}

function messagesIn(value: Loose): Loose[] {
  return value.kind === 'array' ? value.items.flatMap(messagesIn) : [value];
}

/** Which of several members of one name counts. */
interface Policy {
  readonly name: string;
  readonly find: (members: readonly (readonly [string, Loose])[], key: string) => Loose | undefined;
}

type Members = readonly (readonly [string, Loose])[];

const exact = (members: Members, key: string): Loose[] =>
  members.filter(([name]) => name === key).map(([, value]) => value);
/** As Go's EqualFold and others have it: the long s and the Kelvin sign are letters too. */
const fold = (name: string): string =>
  name.replaceAll('\u017f', 's').replaceAll('\u212a', 'k').toLowerCase();
const folded = (members: Members, key: string): Loose[] =>
  members.filter(([name]) => fold(name) === key.toLowerCase()).map(([, value]) => value);
/** Where strings end at a NUL. */
const cut = (text: string): string => text.replace(/\0.*/s, '');
const cutKeys = (members: Members, key: string): Loose | undefined => {
  const value = members.filter(([name]) => cut(name) === key).at(-1)?.[1];
  return value?.kind === 'plain' && typeof value.value === 'string'
    ? { ...value, value: cut(value.value) }
    : value;
};

/**
 * Copies what it parsed into an object of its own, so that `__proto__` becomes where it looks next.
 */
function inherited(members: Members, key: string): Loose | undefined {
  const own = exact(members, key).at(-1);
  if (own !== undefined) return own;
  const parent = exact(members, '__proto__').at(-1);
  return parent?.kind === 'object' ? inherited(parent.members, key) : undefined;
}

const POLICIES: readonly Policy[] = [
  { name: 'the last key', find: (members, key) => exact(members, key).at(-1) },
  { name: 'the first key', find: (members, key) => exact(members, key)[0] },
  { name: 'the last key in any letter case', find: (members, key) => folded(members, key).at(-1) },
  { name: 'the first key in any letter case', find: (members, key) => folded(members, key)[0] },
  { name: 'strings that end at a NUL', find: cutKeys },
  { name: '__proto__ as a prototype', find: inherited },
];

function callsIn(messages: readonly Loose[], how: string): ReadCall[] {
  const calls = new Map<string, ReadCall>();
  for (const policy of POLICIES) {
    for (const message of messages) {
      const call = callIn(message, policy, how);
      if (call !== undefined) calls.set(JSON.stringify({ ...call, reader: '' }), call);
    }
  }
  return [...calls.values()];
}

function callIn(message: Loose, { name: policy, find }: Policy, how: string): ReadCall | undefined {
  const get = (value: Loose | undefined, key: string): Loose | undefined =>
    value?.kind === 'object' ? find(value.members, key) : undefined;
  if (textOf(get(message, 'method')) !== 'tools/call') return undefined;
  const params = get(message, 'params');
  const name = textOf(get(params, 'name'));
  if (name === undefined) return undefined;
  const args = get(params, 'arguments');
  return { reader: `${how}${policy}`, name, action: textOf(get(args, 'action')) };
}

/** Also a list of one text, as languages without types have it. */
function textOf(value: Loose | undefined): string | undefined {
  if (value?.kind === 'plain' && typeof value.value === 'string') return value.value;
  if (value?.kind === 'array' && value.items.length === 1) return textOf(value.items[0]);
  return undefined;
}

/** Whether one of its headers says so. */
function isForm({ rawHeaders }: Got): boolean {
  return rawHeaders.some((value, at) => {
    const name = rawHeaders[at - 1]?.toLowerCase();
    return at % 2 === 1 && name === 'content-type' && value.toLowerCase().includes('form');
  });
}

/** A form's fields, flat or nested as qs has them. */
function formCalls(text: string, how: string): ReadCall[] {
  if (!text.includes('=')) return [];
  const fields = new URLSearchParams(text);
  const calls: ReadCall[] = [];
  for (const [which, get] of [
    ['last', (name: string) => fields.getAll(name).at(-1)],
    ['first', (name: string) => fields.get(name) ?? undefined],
  ] as const) {
    if (get('method') !== 'tools/call') continue;
    const name = get('params[name]') ?? get('params.name') ?? get('name');
    const action = get('params[arguments][action]') ?? get('params.arguments.action');
    if (name !== undefined) calls.push({ reader: `${how}a form's ${which} fields`, name, action });
  }
  return calls;
}

/** Servers and proxies that route by headers before they look at the body. */
function headerCalls({ method: verb, rawHeaders }: Got): ReadCall[] {
  if (verb !== 'POST') return [];
  const all = (name: string): string[] =>
    rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
  const calls: ReadCall[] = [];
  for (const pick of [0, -1]) {
    const method = decodedHeader(all('mcp-method').at(pick));
    const name = decodedHeader(all('mcp-name').at(pick));
    if (method !== 'tools/call' || name === undefined) continue;
    const action = decodedHeader(all('mcp-param-action').at(pick));
    calls.push({
      reader: `the ${pick === 0 ? 'first' : 'last'} headers`,
      name,
      action,
    });
  }
  return calls;
}

/** MCP 2026-07-28 writes what is not plain ASCII as `=?base64?…?=`. */
function decodedHeader(value: string | undefined): string | undefined {
  const encoded = value === undefined ? null : /^=\?base64\?(.*)\?=$/i.exec(value.trim());
  return encoded === null ? value?.trim() : Buffer.from(encoded[1] ?? '', 'base64').toString();
}
