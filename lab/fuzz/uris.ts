import * as fc from 'fast-check';
import { type Host, startBare } from './hosts.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

/** Bound in a state that no run is in. */
const SECRETS = ['docs://vault/secret.txt', 'docs://receipts/7', 'file:///srv/private/a b.txt'];
/** Bound to nothing. */
const OPEN = [
  'docs://terms/a',
  'docs://vault-2/x',
  'docs://help/secret.txt',
  'file:///srv/public/a.txt',
  'other://vault/secret.txt',
];

/**
 * Ways in which a server may understand a URI; they are applied one after the other, in every
 * order.
 */
const READINGS: readonly ((uri: string) => string)[] = [
  decodeSome,
  (uri) => URL.parse(uri)?.href ?? uri,
  (uri) => uri.toLowerCase(),
  (uri) => uri.normalize('NFKC'),
  (uri) => uri.replace(/[\p{Cf}]+/gu, ''),
  (uri) => uri.replace(/[?#].*$/s, ''),
  (uri) => uri.replace(/\/+$/, ''),
  (uri) => uri.replace(/([^:/])\/{2,}/g, '$1/'),
  (uri) => uri.replace(/^([a-z]+):\/*/i, '$1://'),
  (uri) => uri.replace(/[. ]+(?=\/|$)/g, ''),
  (uri) => uri.replaceAll('\\', '/'),
  (uri) => uri.replace(/[^/]+\/\.\.\/|\.\//g, ''),
];
const MOST_READINGS = 400;

function decodeSome(uri: string): string {
  return uri.replace(/(?:%[0-9a-f]{2})+/gi, (bytes) =>
    Buffer.from(bytes.replaceAll('%', ''), 'hex').toString(),
  );
}

/** All that a reader may take the URI for. It applies each reading four times at most. */
function readingsOf(uri: string): Set<string> {
  const found = new Set([uri]);
  let last = [uri];
  for (let round = 0; round < 4 && found.size < MOST_READINGS; round++) {
    const made = last
      .flatMap((each) => READINGS.map((read) => read(each)))
      .filter((each) => !found.has(each));
    for (const each of made) found.add(each);
    last = [...new Set(made)];
  }
  return found;
}

function isSecret(uri: string): boolean {
  const plain = uri.replace(/^file:\/\//, 'file:///').replace(/^file:\/{3,}/, 'file:///');
  return (
    plain === 'docs://vault/secret.txt' ||
    plain === 'docs://receipts' ||
    plain.startsWith('docs://receipts/') ||
    /^file:\/\/\/srv\/private\/[^/]+$/.test(plain)
  );
}

const NOISE = [
  '/',
  '//',
  '\\',
  '.',
  '..',
  '%2e',
  '%2F',
  '%00',
  '\t',
  '\n',
  ' ',
  '?x',
  '#x',
  '%',
  '%25',
  '\u200b',
  '\u00ad',
  '\u3002',
  '\uff0f',
  ':',
  '@',
  'user@',
  ':80',
  '%ff',
  '*',
];

/** A change of a URI at a place of it, given as a part of its length. */
const change = fc.record({
  place: fc.double({ min: 0, max: 1, noNaN: true }),
  how: fc.constantFrom('insert', 'encode', 'double-encode', 'upper', 'wide', 'insert', 'encode'),
  noise: fc.constantFrom(...NOISE),
} as const);
const uri = fc
  .tuple(fc.constantFrom(...SECRETS, ...SECRETS, ...OPEN), fc.array(change, { maxLength: 4 }))
  .map(([base, changes]) => changes.reduce(changed, base));

function changed(
  text: string,
  { place, how, noise }: { place: number; how: string; noise: string },
): string {
  const chars = [...text];
  const at = Math.floor(place * (chars.length + 1));
  const char = chars[at] ?? '';
  const encoded = [...Buffer.from(char)]
    .map((byte) => `%${byte.toString(16).padStart(2, '0')}`)
    .join('');
  if (how === 'insert') chars.splice(at, 0, noise);
  else if (how === 'encode') chars.splice(at, 1, encoded);
  else if (how === 'double-encode') chars.splice(at, 1, encoded.replaceAll('%', '%25'));
  else if (how === 'upper') chars.splice(at, 1, char.toUpperCase());
  else if (/^[!-~]$/.test(char))
    chars.splice(at, 1, String.fromCharCode(char.charCodeAt(0) + 0xfee0));
  return chars.join('');
}

export const uris: Target = {
  name: 'uris',
  what: 'no way to understand a URI that is forwarded is a resource that the state hides',
  inputs: 150,
  async open(): Promise<OpenTarget> {
    const host = await startBare();
    return {
      property: fc.asyncProperty(fc.array(uri, { minLength: 1, maxLength: 10 }), (all) =>
        judge(host, all),
      ),
      describe: (all: string[]) => all.map((each) => `  ${JSON.stringify(each)}`).join('\n'),
      close: () => host.close(),
    };
  },
};

async function judge(host: Host, all: readonly string[]): Promise<void> {
  for (const method of ['resources/read', 'resources/subscribe']) await judgeAs(method, host, all);
}

async function judgeAs(method: string, host: Host, all: readonly string[]): Promise<void> {
  const messages = all.map((each, id) => ({ jsonrpc: '2.0', id, method, params: { uri: each } }));
  const { got } = await host.post(messages);
  const passed = got.flatMap(({ body }) => [JSON.parse(body.toString())].flat());
  const forwarded = new Set(passed.map(({ params }: { params: { uri: string } }) => params.uri));
  for (const each of forwarded) {
    const secret = [...readingsOf(each)].find(isSecret);
    if (secret !== undefined)
      broken(
        `it forwarded a ${method} that the state hides`,
        `${JSON.stringify(each)} may be ${secret}`,
      );
  }
  for (const each of all) {
    if (OPEN.includes(each) && !forwarded.has(each))
      broken(`it did not forward a ${method}`, `of ${each}, which nothing binds`);
  }
}
