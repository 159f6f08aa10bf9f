import type { RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { startCheckout } from '../helpers/checkout-app.ts';
import type { WireMessage } from '../helpers/raw.ts';

const HIDDEN = ['cart.checkout', 'cart.pay'];

/** JSON as text, so that a member may stand twice and be written in any way. */
const textOf = (key: string): fc.Arbitrary<string> =>
  fc.constantFrom(
    JSON.stringify(key),
    JSON.stringify(key.toUpperCase()),
    JSON.stringify(`${key.slice(0, 1).toUpperCase()}${key.slice(1)}`),
    `"\\u00${key.charCodeAt(0).toString(16)}${key.slice(1)}"`,
  );
const memberOf = (key: string, value: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(fc.oneof({ weight: 4, arbitrary: fc.constant(JSON.stringify(key)) }, textOf(key)), value)
    .map((pair) => pair.join(':'));
const objectOf = (...members: fc.Arbitrary<string>[]): fc.Arbitrary<string> =>
  fc.array(fc.oneof(...members), { maxLength: 6 }).map((each) => `{${each.join(',')}}`);

const anything = fc.jsonValue({ maxDepth: 2 }).map((value) => JSON.stringify(value));
const tool = fc.constantFrom(
  '"cart.pay"',
  '"cart.checkout"',
  '"cart.view"',
  '"\\u0063art.pay"',
  '["cart.pay"]',
);
const params = objectOf(
  memberOf('name', tool),
  memberOf('arguments', anything),
  memberOf('_meta', anything),
);
/** Two of everything that counts, of which one is likely to be harmless. */
const doubled = fc
  .tuple(
    memberOf('name', tool),
    memberOf('name', tool),
    memberOf('method', fc.constant('"tools/call"')),
  )
  .map(
    ([first, second, method]) => `{"jsonrpc":"2.0","id":1,${method},"params":{${first},${second}}}`,
  );
const members = objectOf(
  memberOf('jsonrpc', fc.constant('"2.0"')),
  memberOf('id', fc.constantFrom('1', '"1"', 'null', '{}')),
  memberOf('method', fc.constantFrom('"tools/call"', '"tools\\/call"', '"ping"', '[]')),
  memberOf('params', params),
  memberOf('result', params),
);
const message = fc.oneof(
  doubled,
  fc
    .tuple(params, fc.constantFrom('', ',"id":1', ',"id":"1"'))
    .map(([given, id]) => `{"jsonrpc":"2.0","method":"tools/call","params":${given}${id}}`),
  fc
    .tuple(textOf('method'), params)
    .map(
      ([key, given]) =>
        `{"jsonrpc":"2.0","id":1,"result":{},${key}:"tools/call","params":${given}}`,
    ),
  members,
  anything,
);
const body = fc.oneof(
  message,
  fc.array(message, { maxLength: 4 }).map((each) => `[${each.join(',')}]`),
);

/** Runs every call that anybody could read out of what it is given, however they spell a member's name. */
function everyReading(ran: unknown[]): RequestHandler {
  const readings = (value: unknown, key: string): unknown[] =>
    Object.entries(value ?? {})
      .filter(([name]) => name.toLowerCase() === key)
      .map(([, each]) => each);
  return async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const messages = [JSON.parse(Buffer.concat(chunks).toString())].flat() as WireMessage[];
    for (const each of messages.filter((one) => readings(one, 'method').includes('tools/call'))) {
      for (const given of readings(each, 'params')) ran.push(...readings(given, 'name'));
    }
    const answers = messages
      .filter(({ id }) => id !== undefined)
      .map(({ id }) => ({ jsonrpc: '2.0', id, result: {} }));
    if (answers.length === 0) res.status(202).end();
    else res.json(answers);
  };
}

describe('whatever a client sends', () => {
  it('is answered, and no reading of what goes on is a call of a tool that is hidden', async () => {
    const ran: unknown[] = [];
    const upstream = everyReading(ran);
    const app = await startCheckout({
      shape: { mode: 'stateless' },
      behind: [
        (req, res, next) =>
          req.headers['x-fuzz'] === undefined ? next() : void upstream(req, res, next),
      ],
    });
    const session = await app.begin();
    const allowed = new Set<unknown>();
    await fc.assert(
      fc.asyncProperty(body, async (text) => {
        ran.length = 0;
        const { status, messages } = await session.post(text, { 'x-fuzz': '1' });
        expect([200, 202, 400]).toContain(status);
        for (const answer of messages) expect(answer.jsonrpc).toBe('2.0');
        expect(ran.filter((name) => HIDDEN.includes(String(name)))).toEqual([]);
        for (const name of ran) allowed.add(name);
      }),
      {
        numRuns: 300,
        examples: [
          ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cart.view"}}'],
        ],
      },
    );
    expect(allowed).toContain('cart.view');
    expect(app.errors).toEqual([]);
  }, 20_000);
});
