import { request } from 'node:http';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import * as fc from 'fast-check';

/** A request as it goes over the wire. */
export interface RawRequest {
  readonly method: string;
  /** Names and values in turn; a name may come twice. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** Where the body is cut into chunks, as parts of its length. */
  readonly cuts: readonly number[];
}

export interface RawAnswer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/** Sends it on a connection of its own. Rejects where no whole answer comes. */
export function sendRaw(url: URL, { method, headers, body, cuts }: RawRequest): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const hasBody = body.length > 0;
    const sent = request(url, {
      method,
      agent: false,
      headers: [...headers, 'host', url.host, ...(hasBody ? ['transfer-encoding', 'chunked'] : [])],
      timeout: 10_000,
    });
    sent.on('timeout', () => sent.destroy(new Error('no answer within 10 s')));
    sent.on('error', reject);
    sent.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          type: response.headers['content-type'] ?? '',
          text,
        }),
      );
      response.on('error', reject);
    });
    const places = cuts.map((cut) => Math.floor(cut * body.length)).sort((a, b) => a - b);
    for (const [index, end] of [...places, body.length].entries()) {
      const part = body.subarray(places[index - 1] ?? 0, end);
      if (part.length > 0) sent.write(part);
    }
    sent.end();
  });
}

/** For a developer who sends it by hand. */
export function showRequest({ method, headers, body, cuts }: RawRequest): string {
  const lines = headers.flatMap((name, at) =>
    at % 2 === 0 ? [`${name}: ${headers[at + 1]}`] : [],
  );
  const text = body.toString('utf8');
  const isText = Buffer.from(text).equals(body) && !/[^\P{Cc}\t\r\n]|\ufeff/u.test(text);
  const shown = isText
    ? text
    : `Buffer.from('${body.toString('hex')}', 'hex') // ${JSON.stringify(body.toString('latin1'))}`;
  return [
    `  ${method} /mcp`,
    ...lines.map((line) => `  ${line}`),
    '',
    `  ${shown}`,
    `  cut at ${cuts.join(', ') || 'nowhere'}`,
  ].join('\n');
}

/** A JSON value that may have a member twice. */
export type Tree =
  | { readonly members: readonly (readonly [key: string, value: Tree])[] }
  | { readonly items: readonly Tree[] }
  | { readonly text: string };

export const tree = (value: unknown): Tree => {
  if (Array.isArray(value)) return { items: value.map(tree) };
  if (typeof value !== 'object' || value === null) return { text: JSON.stringify(value) };
  return { members: Object.entries(value).map(([key, each]) => [key, tree(each)] as const) };
};

export function write(value: Tree): string {
  if ('text' in value) return value.text;
  if ('items' in value) return `[${value.items.map(write).join(',')}]`;
  const members = value.members.map(([key, each]) => {
    return `${key.startsWith('"') ? key : JSON.stringify(key)}:${write(each)}`;
  });
  return `{${members.join(',')}}`;
}

/** A change of a valid call. What has no sense where it is applied changes nothing. */
export interface Change {
  readonly kind: 'insert' | 'double' | 'rename' | 'replace' | 'drop' | 'nest';
  /** Which object: the envelope, `params`, `arguments` or `_meta`. */
  readonly where: 'envelope' | 'params' | 'arguments' | '_meta';
  readonly key: string;
  readonly spelling: number;
  readonly value: Tree;
  readonly isFirst: boolean;
}

const HIDDEN = { name: 'cart.pay', arguments: {} };
const GROUPED = { name: 'cart', arguments: { action: 'pay' } };
const BASES = [
  { method: 'tools/call', params: { name: 'cart.view', arguments: {} } },
  { method: 'tools/call', params: HIDDEN },
  { method: 'tools/call', params: { name: 'cart', arguments: { action: 'view' } } },
  { method: 'tools/call', params: GROUPED },
  { method: 'tools/call', params: { name: 'cart.add', arguments: {} } },
  { method: 'ping', params: {} },
  { method: 'prompts/get', params: HIDDEN },
  { method: 'notifications/progress', params: HIDDEN },
  { result: {} },
];
const KEYS = [
  'method',
  'params',
  'name',
  'arguments',
  'action',
  'id',
  'jsonrpc',
  'result',
  '_meta',
  '__proto__',
];
const VALUES: readonly unknown[] = [
  'tools/call',
  'ping',
  'cart.pay',
  'cart.view',
  'cart.add',
  'cart',
  'pay',
  'view',
  HIDDEN,
  GROUPED,
  { params: HIDDEN },
  { method: 'tools/call', params: HIDDEN },
  'cart.pay\0x',
  { action: 'pay' },
  { action: 'view' },
  ['cart.pay'],
  { 'mcp-interlock/idempotencyKey': 'a key' },
  { 'mcp-interlock/try': 'a try' },
  { 'Mcp-Interlock/TRY': 'a try' },
  { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' },
  {},
  null,
  1,
];

/** Ways to write a key: first the plain one, then those that a reader may take for it. */
const SPELLINGS: readonly ((key: string) => string)[] = [
  (key) => key,
  (key) => key.toUpperCase(),
  (key) => key.charAt(0).toUpperCase() + key.slice(1),
  (key) => `"\\u00${key.charCodeAt(0).toString(16)}${key.slice(1)}"`,
  (key) => key.replace('s', '\u017f'),
  (key) => key.replace('k', '\u212a'),
  (key) => `${key}\0`,
  (key) => `${key}\0x`,
  (key) =>
    `"${key.slice(0, -1)}\\u00${key
      .charCodeAt(key.length - 1)
      .toString(16)
      .toUpperCase()}"`,
];

const change: fc.Arbitrary<Change> = fc.record({
  kind: fc.constantFrom('insert', 'insert', 'double', 'rename', 'replace', 'drop', 'nest'),
  where: fc.constantFrom('envelope', 'envelope', 'params', 'params', 'arguments', '_meta'),
  key: fc.constantFrom(...KEYS),
  spelling: fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.nat(SPELLINGS.length - 1)),
  value: fc.constantFrom(...VALUES.map(tree)),
  isFirst: fc.boolean(),
} as const);

function changed(message: Tree, each: Change): Tree {
  const path = {
    envelope: [],
    params: ['params'],
    arguments: ['params', 'arguments'],
    _meta: ['params', '_meta'],
  };
  return at(message, path[each.where], (members) => edited(members, each));
}

type Members = readonly (readonly [string, Tree])[];

function at(
  value: Tree,
  [key, ...rest]: readonly string[],
  edit: (members: Members) => Members,
): Tree {
  if (!('members' in value)) return value;
  if (key === undefined) return { members: edit(value.members) };
  return {
    members: value.members.map(
      ([name, each]) => [name, name === key ? at(each, rest, edit) : each] as const,
    ),
  };
}

function edited(members: Members, { kind, key, spelling, value, isFirst }: Change): Members {
  const written = SPELLINGS[spelling]?.(key) ?? key;
  const own = members.find(([name]) => name === key);
  switch (kind) {
    case 'insert':
      return isFirst ? [[written, value], ...members] : [...members, [written, value]];
    case 'double':
      if (own === undefined) return members;
      return isFirst ? [[written, own[1]], ...members] : [...members, [written, own[1]]];
    case 'rename':
      return members.map(([name, each]) => [name === key ? written : name, each] as const);
    case 'replace':
      return members.map(([name, each]) => [name, name === key ? value : each] as const);
    case 'drop':
      return members.filter(([name]) => name !== key);
    case 'nest':
      return [['__proto__', { members }]];
  }
}

/** What is made of the text before it is sent. */
const WRAPS: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => `[${text}]`,
  (text) => `[{"jsonrpc":"2.0","id":91,"method":"ping"},${text}]`,
  (text) =>
    `[${text},{"jsonrpc":"2.0","id":91,"method":"tools/call","params":{"name":"cart.view"}}]`,
  (text) => `[[${text}]]`,
  (text) => `{"jsonrpc":"2.0","id":91,"method":"ping"}\n${text}`,
  (text) => `${text}\n{"jsonrpc":"2.0","id":91,"method":"tools/call","params":{"name":"cart.pay"}}`,
  (text) => ` \r\n\t${text}\n`,
  (text) => `\ufeff${text}`,
  (text) => `/* */ ${text} // end`,
  (text) => text.replaceAll('"', "'"),
  (text) =>
    `{"a":"&method=tools/call&params[name]=cart.pay&","jsonrpc":"2.0","id":92,"method":"ping"}`.replace(
      '92',
      String(text.length),
    ),
  (text) =>
    `${text.slice(0, -1)},"a":"&jsonrpc=2.0&id=1&method=tools%2Fcall&params[name]=cart.pay&b="}`,
  () => 'jsonrpc=2.0&id=1&method=tools/call&params[name]=cart.pay',
];

/** What is made of the bytes. */
const ENCODINGS: readonly ((text: string) => Buffer)[] = [
  (text) => Buffer.from(text),
  (text) => Buffer.from(text, 'utf16le'),
  (text) => Buffer.from(`\ufeff${text}`, 'utf16le'),
  (text) => Buffer.from(`\ufeff${text}`, 'utf16le').swap16(),
  (text) => gzipSync(text),
  (text) => deflateSync(text),
  (text) => brotliCompressSync(text),
  // Decoders that drop what is invalid, take the lowest bits, or check nothing read "cart.pay".
  (text) => spliced(text, 'pay', Buffer.from('70ff6179', 'hex')),
  (text) => spliced(text, 'pay', Buffer.from('c1b06179', 'hex')),
  (text) => spliced(text, 'pay', Buffer.from('e081b06179', 'hex')),
  (text) => spliced(text, 'pay', Buffer.from('f06179', 'hex')),
  (text) => spliced(text, 'method', Buffer.from('6d65ff74686f64', 'hex')),
  (text) => spliced(text, 'params', Buffer.from('70c1a172616d73', 'hex')),
  (text) => spliced(text, 'tools/call', Buffer.from('746f6f6c73c0af63616c6c', 'hex')),
  (text) => Buffer.concat([Buffer.from([0xff]), Buffer.from(text)]),
];

function spliced(text: string, word: string, bytes: Buffer): Buffer {
  const at = text.indexOf(word);
  if (at === -1) return Buffer.from(text);
  return Buffer.concat([
    Buffer.from(text.slice(0, at)),
    bytes,
    Buffer.from(text.slice(at + word.length)),
  ]);
}

const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json; charset=utf-16',
  'application/json; charset=iso-8859-1',
  'application/x-www-form-urlencoded',
  'text/plain',
  'multipart/form-data; boundary=x',
  'application/octet-stream',
  'application/problem+json',
  'application/json, application/x-www-form-urlencoded',
  'APPLICATION/JSON',
];
const ENCODED = (text: string): string => `=?base64?${Buffer.from(text).toString('base64')}?=`;
/** More headers, that a gate or a server may read or not. */
const EXTRAS: readonly (readonly string[])[] = [
  ['mcp-method', 'tools/call'],
  ['mcp-method', 'ping'],
  ['mcp-name', 'cart.pay'],
  ['mcp-name', 'cart.view'],
  ['mcp-name', ENCODED('cart.pay')],
  ['Mcp-Method', ENCODED('tools/call')],
  ['mcp-method', 'tools/call', 'mcp-name', 'cart.pay'],
  ['mcp-method', 'tools/call', 'mcp-name', 'cart', 'mcp-param-action', 'pay'],
  ['mcp-method', 'tools/call', 'mcp-name', 'cart.view'],
  ['mcp-protocol-version', '2026-07-28'],
  ['mcp-protocol-version', '2025-11-25'],
  ['content-encoding', 'gzip'],
  ['content-encoding', 'deflate'],
  ['content-encoding', 'br'],
  ['content-encoding', 'identity'],
  ['content-type', 'application/x-www-form-urlencoded'],
  ['x-http-method-override', 'POST'],
];
const STATELESS = tree({
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
});

/** What {@link rawRequest} is made of, so that a finding shrinks to what matters. */
export interface Recipe {
  readonly base: Tree;
  readonly isStateless: boolean;
  readonly changes: readonly Change[];
  readonly wrap: number;
  readonly encoding: number;
  readonly type: number;
  readonly extras: readonly (readonly string[])[];
  readonly method: string;
  readonly cuts: readonly number[];
  readonly id: number;
}

const seldom = <T>(usual: T, others: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ weight: 5, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: others });

export const recipe: fc.Arbitrary<Recipe> = fc.record({
  base: fc.constantFrom(...BASES.map(tree)),
  isStateless: seldom(false, fc.constant(true)),
  changes: fc.array(change, { maxLength: 4 }),
  wrap: seldom(0, fc.nat(WRAPS.length - 1)),
  encoding: seldom(0, fc.nat(ENCODINGS.length - 1)),
  type: seldom(0, fc.nat(TYPES.length)),
  extras: fc.oneof(fc.constant([]), fc.array(fc.constantFrom(...EXTRAS), { maxLength: 2 })),
  method: seldom(
    'POST',
    fc.constantFrom('PUT', 'PATCH', 'GET', 'DELETE', 'HEAD', 'OPTIONS', 'QUERY'),
  ),
  cuts: seldom<readonly number[]>(
    [],
    fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 3 }),
  ),
  id: fc.nat(1000),
});

/** Stands for the session of the host that gets the request. */
export const SESSION = 'the session';

/**
 * Valid calls, and what is nearly one: each tries to make a reader take it for a gated call.
 */
export const rawRequest: fc.Arbitrary<RawRequest> = recipe.map(cook);

export function cook(chosen: Recipe): RawRequest {
  const { base, isStateless, changes, wrap, encoding, type, extras, method, cuts, id } = chosen;
  const envelope: Tree = {
    members: [
      ['jsonrpc', tree('2.0')],
      ['id', tree(id)],
      ...('members' in base ? base.members : []),
    ],
  };
  const claimed = isStateless
    ? at(envelope, ['params'], (members) => [...members, ['_meta', STATELESS]])
    : envelope;
  const text = write(changes.reduce(changed, claimed));
  const body = ENCODINGS[encoding]?.(WRAPS[wrap]?.(text) ?? text) ?? Buffer.from(text);
  const contentType = TYPES[type];
  return {
    method,
    headers: [
      ...['accept', 'application/json, text/event-stream'],
      ...(contentType === undefined ? [] : ['content-type', contentType]),
      ...(isStateless ? ['mcp-protocol-version', '2026-07-28'] : ['mcp-session-id', SESSION]),
      ...extras.flat(),
    ],
    body: method === 'GET' || method === 'HEAD' ? Buffer.alloc(0) : body,
    cuts,
  };
}
