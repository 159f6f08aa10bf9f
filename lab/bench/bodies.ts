/**
 * What a large body costs before the gate decides: to read and check it, to digest its arguments,
 * and to digest one for a rule with `same`, each as a ratio to `JSON.parse` of the same text.
 *
 * Where the system tells it (Linux), it counts the processor time of the one thread. Then other
 * work of the machine counts little. It takes the least of several turns.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { StateMachineGate } from '../../src/index.ts';
import { parseBody } from '../../src/wire/body.ts';
import { type Call, readCalls } from '../../src/wire/call.ts';
import { exactJson } from '../../src/wire/exact-json.ts';
import { AskedArguments } from '../../src/workflow/bound-tools.ts';
import type { Rows } from './report.ts';

/** A tool whose argument a rule compares with that of a later call. */
const { ledger } = StateMachineGate.fromOrder({
  pay: {},
  refund: { after: { tool: 'pay', same: ['a'] } },
}).compile().rules;

/** Just below the largest body that the middleware takes. */
const SIZE = 4 * 1024 * 1024 - 1024;
/** Milliseconds beside the ratio: decoding a string takes longer than parsing it. */
const ALLOWANCE = 8;

const repeated = (piece: string, separator = ','): string =>
  Array(Math.floor(SIZE / (Buffer.byteLength(piece) + separator.length)))
    .fill(piece)
    .join(separator);

function counted(make: (index: number) => string): string {
  const pieces: string[] = [];
  for (let length = 0, i = 0; length < SIZE - 64; i++) {
    const piece = make(i);
    pieces.push(piece);
    length += Buffer.byteLength(piece) + 1;
  }
  return pieces.join(',');
}

/** In an order that has no rule. */
const mixed = (index: number): number => (index * 7_919) % 1_000_003;

/** The arguments, by what there is a lot of in them. */
const SHAPES = {
  'one string': () => `{"a":"${'x'.repeat(SIZE)}"}`,
  'one string, not ASCII': () => `{"a":"${'é'.repeat(SIZE / 2)}"}`,
  'one string of escapes': () => `{"a":"${'\\n'.repeat(SIZE / 2)}"}`,
  'short strings': () => `{"a":[${counted((i) => `"word${i % 1_000}"`)}]}`,
  '[],[],…': () => `{"a":[${repeated('[]')}]}`,
  '{},{},…': () => `{"a":[${repeated('{}')}]}`,
  'small objects': () => `{"a":[${repeated('{"b":1,"a":2}')}]}`,
  'small nested arrays': () => `{"a":[${repeated('[[1]]')}]}`,
  'deep arrays': () => `{"a":${'['.repeat(SIZE / 2)}${']'.repeat(SIZE / 2)}}`,
  'deep objects': () => `{"a":${'{"a":'.repeat(SIZE / 6)}1${'}'.repeat(SIZE / 6)}}`,
  'many keys': () => `{${counted((i) => `"k${i}":1`)}}`,
  'many keys, mixed': () => `{${counted((i) => `"k${mixed(i)}":1`)}}`,
  'many keys that are numbers': () => `{${counted((i) => `"${i}":1`)}}`,
  '0,0,…': () => `{"a":[${repeated('0')}]}`,
  integers: () => `{"a":[${counted((i) => String(mixed(i)))}]}`,
  'short decimals': () => `{"a":[${counted((i) => String(mixed(i) / 1e5))}]}`,
  'long decimals': () => `{"a":[${counted((i) => String(Math.sin(i)))}]}`,
  'numbers of 19 digits': () => `{"a":[${counted((i) => `1${String(i).padStart(18, '7')}`)}]}`,
  'numbers of 17 digits': () => `{"a":[${counted((i) => Math.sin(i + 1).toPrecision(17))}]}`,
  'numbers beyond 1e308': () => `{"a":[${repeated('1e400')}]}`,
  'many keys, long numbers': () => `{${counted((i) => `"k${i}":1234567890123456789`)}}`,
  'many short keys': () => `{${counted((i) => `"${i.toString(36)}":1`)},"N":1234567890123456789}`,
  'true,true,…': () => `{"a":[${repeated('true')}]}`,
} satisfies Record<string, () => string>;

type Shape = keyof typeof SHAPES;
export const BODIES = Object.keys(SHAPES) as readonly Shape[];

function clock(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return performance.now();
  }
}

/** The least time of several turns, of which each is long enough for the clock. */
function least(task: () => unknown): number {
  let best = Number.POSITIVE_INFINITY;
  for (let turn = 0; turn < 5; turn++) {
    const start = clock();
    let times = 0;
    do {
      task();
      times++;
    } while (clock() - start < 40);
    best = Math.min(best, (clock() - start) / times);
  }
  return best;
}

/** The shapes that say the most. */
export const TELLING_BODIES: readonly Shape[] = [
  'one string',
  '[],[],…',
  'many keys',
  'small nested arrays',
  'deep arrays',
];

/**
 * Milliseconds and ratios for 4 MiB of one of {@link BODIES}. `over` is 1 where a part takes longer
 * than twice `JSON.parse` and 8 ms.
 */
export function measureBody(shape: Shape): Rows {
  const args = SHAPES[shape]();
  const head = '"jsonrpc":"2.0","id":1,"method":"tools/call"';
  const text = `{${head},"params":{"name":"pay","arguments":${args}}}`;
  const bytes = Buffer.from(text);
  const parse = least(() => JSON.parse(text));
  const readIt = (): Call | undefined => {
    const body = parseBody(bytes);
    if ('status' in body) throw new Error(body.message);
    const incoming = readCalls({ ...body, others: [] }, 50);
    if ('status' in incoming) throw new Error(JSON.stringify(incoming.body));
    return incoming.messages[0];
  };
  const read = least(readIt);
  const call = readIt();
  // Only where a rule, a guard or a condition reads a number that JavaScript rounds.
  const rounded = call?.roundedText;
  const exact = rounded === undefined ? 0 : least(() => exactJson(rounded, call?.args));
  const digest = least(() => call?.digest);
  const rule = least(() =>
    ledger?.note('pay', 'args', new AskedArguments(call?.args).read, 'a run'),
  );
  const hash = least(() => createHash('sha256').update(bytes).digest());
  const short = (value: number, digits: number): number => Number(value.toFixed(digits));
  const over = (ms: number): number => (ms > 2 * parse + ALLOWANCE ? 1 : 0);
  const row = {
    'JSON.parse ms': short(parse, 1),
    'read ms': short(read, 1),
    'read ratio': short(read / parse, 2),
    over: over(read),
    'exact ms': short(exact, 1),
    'exact ratio': short(exact / parse, 2),
    exactOver: over(exact),
    'digest ms': short(digest, 1),
    'digest ratio': short(digest / parse, 2),
    digestOver: over(digest),
    'rule ms': short(rule, 1),
    'rule ratio': short(rule / parse, 2),
    'SHA-256 ms': short(hash, 1),
  };
  return { [`body of 4 MiB: ${shape}`]: row };
}
