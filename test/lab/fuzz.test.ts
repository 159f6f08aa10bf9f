import { deflateSync, gzipSync } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DEFECTS } from '../../lab/checker/defects.ts';
import { everyReading } from '../../lab/fuzz/readers.ts';
import { sessionsAround } from '../../lab/fuzz/sessions.ts';
import { broken, type Finding, replayOf, runOnce, type Target } from '../../lab/fuzz/target.ts';
import { TARGETS } from '../../lab/fuzz/targets.ts';
import { runToEnd } from '../helpers/program.ts';

/** A new one each time; it is in the name of each test that fuzzes by it. */
const SEED = Math.floor(Math.random() * 1e9);

/** One run, which takes a second; `npm run fuzz` takes as many as it is told to. */
async function fuzz(target: Target, run = 0): Promise<Finding | undefined> {
  const open = await target.open();
  try {
    return await runOnce(target, open, SEED, run);
  } finally {
    await open.close();
  }
}

/** The same target, which tells the first input that it finds and looks for no smaller one. */
function withoutShrinking(target: Target): Target {
  return {
    ...target,
    async open() {
      const open = await target.open();
      return { ...open, property: Object.assign(open.property, { shrink: () => fc.Stream.nil() }) };
    },
  };
}

describe(`fuzzing with seed ${SEED}`, { timeout: 150_000 }, () => {
  it.each(TARGETS)('$name: $what', async (target) => {
    const found = await fuzz(target);
    expect(found && `${found.text}\n${replayOf(found)}`).toBeUndefined();
  });

  it.each(['shows-all', 'refuses-legal', 'forgets-commits', 'praises-failures'] as const)(
    'finds a gate that is broken on purpose: %s',
    async (name) => {
      const target = withoutShrinking(sessionsAround(DEFECTS[name]));
      let found: Finding | undefined;
      for (let run = 0; run < 40 && found === undefined; run++) found = await fuzz(target, run);
      expect(found?.text).toBeDefined();
    },
  );
});

/** What is told of one input that does this, where one may take so much and leave 8 MB. */
async function told(act: () => void, cpuMs = 100): Promise<string | undefined> {
  const property = fc.property(fc.constant(0), act);
  const target: Target = { name: 'one', what: '', inputs: 1, open: async () => open };
  const open = { property, close: async () => {} };
  const worst = { cpuMs: 0, megabytes: 0 };
  const found = await runOnce(target, open, SEED, 0, worst, { cpuMs, megabytes: 8 });
  return found?.text.split('\n')[0];
}

describe('an input', () => {
  it('is a finding where it takes more CPU time than one may', async () => {
    const spin = () => {
      const before = process.cpuUsage();
      while (process.cpuUsage(before).user < 150_000);
    };
    expect(await told(spin)).toBe('an input takes too much CPU time');
    expect(await told(() => {})).toBeUndefined();
  });

  it('is a finding where it leaves more memory behind than one may', async () => {
    const left: Buffer[] = [];
    const leaves = () => void left.push(Buffer.alloc(16 * 2 ** 20, 1));
    // A busy machine may take long to hand memory out.
    const cpuMs = 60_000;
    expect(await told(leaves, cpuMs)).toBe('an input takes too much memory');
    const drops = () => void Buffer.alloc(16 * 2 ** 20, 1);
    expect(await told(drops, cpuMs)).toBeUndefined();
  });

  it('is told as the smallest one that breaks what holds', async () => {
    const property = fc.property(fc.nat(), (input) => void (input > 10 && broken('too large')));
    const open = { property, close: async () => {} };
    const target: Target = { name: 'small', what: '', inputs: 50, open: async () => open };
    expect((await fuzz(target))?.text).toBe('too large\n11');
  });

  it('is told to be broken before it is told to be dear', async () => {
    expect(await told(() => broken('broken'))).toBe('broken');
  });
});

const CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cart.pay"}}';
const post = (body: string | Buffer, ...rawHeaders: string[]) =>
  everyReading({ method: 'POST', rawHeaders, body: Buffer.from(body as string) });

describe('everyReading()', () => {
  it.each<[string, string | Buffer, string[]?]>([
    ['as it is', CALL],
    ['in a batch', `[${CALL}]`],
    ['behind another value', `{} ${CALL}`],
    ['behind a comment', `/* */${CALL}`],
    ['with single quotes', CALL.replaceAll('"', "'")],
    ['with its last key', CALL.replace('"name"', '"name":"cart.view","name"')],
    ['with its first key', CALL.replace('"cart.pay"', '"cart.pay","name":"cart.view"')],
    ['with a key in capitals', CALL.replace('"method"', '"METHOD"')],
    ['with a long s', CALL.replace('"params"', '"param\u017f"')],
    ['with an escape', CALL.replace('"name"', '"\\u006eame"')],
    ['with a key that ends at a NUL', CALL.replace('"name"', '"name\\u0000x"')],
    ['with a prototype', `{"result":{},"__proto__":${CALL}}`],
    ['with a list for a name', CALL.replace('"cart.pay"', '["cart.pay"]')],
    ['with a byte that is dropped', spliced('70ff6179')],
    ['with overlong UTF-8', spliced('c1b06179')],
    ['in UTF-16', Buffer.from(CALL, 'utf16le')],
    ['in UTF-16 with a mark and swapped bytes', Buffer.from(`\ufeff${CALL}`, 'utf16le').swap16()],
    ['in gzip', gzipSync(CALL)],
    ['in deflate', deflateSync(CALL)],
    [
      'as a form',
      'method=tools/call&params[name]=cart.pay',
      ['content-type', 'application/x-www-form-urlencoded'],
    ],
    ['in its headers', '{}', ['Mcp-Method', 'tools/call', 'Mcp-Name', 'cart.pay']],
    [
      'in encoded headers',
      '{}',
      ['Mcp-Method', 'tools/call', 'Mcp-Name', '=?base64?Y2FydC5wYXk=?='],
    ],
    [
      'in the second of two headers',
      '{}',
      ['mcp-method', 'ping', 'mcp-method', 'tools/call', 'mcp-name', 'cart.pay'],
    ],
  ])('finds a call %s', (_, body, headers = []) => {
    expect(post(body, ...headers).map(({ name }) => name)).toContain('cart.pay');
  });

  it('finds the arguments that another reader sees', () => {
    const call = (args: string) => CALL.replace('"cart.pay"', `"cart","arguments":${args}`);
    for (const args of [
      '{"action":"view","action":"pay"}',
      '{"action":"pay","action":"view"}',
      '{"action":"view","Action":"pay"}',
      '{"__proto__":{"action":"pay"}}',
    ]) {
      expect(
        post(call(args)).map(({ action }) => action),
        args,
      ).toContain('pay');
    }
  });

  it('finds none where there is none', () => {
    expect(post(CALL.replace('tools/call', 'ping'))).toEqual([]);
    expect(
      post('{"jsonrpc":"2.0","id":1,"result":{"a":"&method=tools/call&params[name]=cart.pay"}}'),
    ).toEqual([]);
  });
});

function spliced(pay: string): Buffer {
  const [before = '', after = ''] = CALL.split('pay');
  return Buffer.concat([Buffer.from(before), Buffer.from(pay, 'hex'), Buffer.from(after)]);
}

const PROGRAM = new URL('../../lab/fuzz/fuzz.ts', import.meta.url).pathname;

describe('npm run fuzz', { timeout: 60_000 }, () => {
  it('prints its seed and plays one run of a target again', async () => {
    const { status, stdout } = await runToEnd(
      PROGRAM,
      '--seed',
      '5',
      '--target',
      'globs',
      '--run',
      '3',
    );
    expect(stdout).toContain('npm run fuzz -- --seed 5: globs');
    expect(stdout).toMatch(/globs +2000 inputs; the dearest took \d+ ms and/);
    expect(stdout).toContain('NOTHING FOUND with seed 5');
    expect(status).toBe(0);
  });

  it.each([
    ['--minutes', 'x', 'expected a number above 0, got "x"'],
    ['--target', 'all', 'expected one of differential, guided, bodies, sessions'],
    ['--run', '-1', 'argument'],
  ])('refuses %s %s, and says what is right', async (option, value, message) => {
    const { status, stderr } = await runToEnd(PROGRAM, option, value);
    expect(stderr).toContain(message);
    expect(status).toBe(1);
  });
});
