import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, INITIALIZE, type RawSession, send, type WireMessage } from '../helpers/raw.ts';
import { type Scene, scene } from '../helpers/scene.ts';

const RESULT = '"result":{"content":[{"type":"text","text":"secret success"}],"tools":[]}';
const ERROR = '"error":{"code":-32000,"message":"secret failure"}';
const UNREADABLE = 'the upstream sent a response that the middleware cannot read';
const JSON_TYPE = 'application/json';
const SSE_TYPE = 'text/event-stream';

/**
 * What an upstream answers to each call of `cart.pay` and `cart.view`: a result and an error at
 * once.
 */
const ANSWERS: readonly (readonly [name: string, type: string, members: string])[] = [
  ['JSON, the result first', JSON_TYPE, `${RESULT},${ERROR}`],
  ['JSON, the error first', JSON_TYPE, `${ERROR},${RESULT}`],
  ['JSON, an error that is null', JSON_TYPE, `${RESULT},"error":null`],
  ['JSON, a result that is null', JSON_TYPE, `${ERROR},"result":null`],
  ['an event', SSE_TYPE, `${RESULT},${ERROR}`],
  ['an event, an error that is null', SSE_TYPE, `${RESULT},"error":null`],
];

interface Body {
  readonly id: string | number;
  readonly method: string;
  readonly params?: { readonly name?: string };
}

function answering(type: string, members: string): RequestHandler {
  const answerOf = ({ id }: Body): string =>
    `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${members}}`;
  const isOdd = (body: Body): boolean =>
    ['cart.pay', 'cart.view'].includes(body.params?.name ?? '');
  return (req, res, next) => {
    const bodies = [req.body ?? {}].flat() as Body[];
    if (!bodies.some(isOdd)) return next();
    const texts = bodies.map((body) =>
      isOdd(body) ? answerOf(body) : JSON.stringify({ jsonrpc: '2.0', id: body.id, result: {} }),
    );
    const json = Array.isArray(req.body) ? `[${texts.join(',')}]` : String(texts[0]);
    res.set('content-type', type).end(type === SSE_TYPE ? `data: ${json}\n\n` : json);
  };
}

async function start(type: string, members: string) {
  const stale: unknown[] = [];
  const workflow = checkoutGate();
  const app = await scene({
    shape: { mode: 'stateless', answers: 'json', parser: true },
    behind: [answering(type, members)],
    workflow,
    sync: {
      policies: [{ match: 'cart.*', invalidates: ['orders.*'] }],
      onInvalidation: (event) => void stale.push(event),
    },
  });
  const session = await app.sessionAt('payment');
  stale.length = 0;
  return { app, session, workflow, stale };
}

/** The one answer to a request, byte for byte as the client got it. */
async function answerTo(session: RawSession, body: unknown): Promise<WireMessage[]> {
  const { text, messages } = await session.post(body);
  expect(text).not.toContain('secret');
  return messages;
}

const outcomes = ({ errors }: Scene): unknown[] => errors.map((error) => (error as Error).name);

describe.each(ANSWERS)('an answer with both a result and an error: %s', (_, type, members) => {
  it('to a step leaves its outcome unknown, and the client sees neither', async () => {
    const { app, session, workflow, stale } = await start(type, members);
    const [answer, ...others] = await answerTo(session, callOf('p', 'cart.pay'));
    expect(others).toEqual([]);
    expect(answer).toMatchObject({ id: 'p', result: { isError: true } });
    expect(answer?.result._meta['mcp-interlock/outcome']).toEqual({
      workflow: 'checkout',
      tool: 'cart.pay',
      outcome: 'unknown',
    });
    expect(outcomes(app)).toContain('UnknownOutcome');
    expect(stale).toEqual([]);
    const runs = runsOf(workflow, { store: app.data });
    expect((await runs.read(session.id))?.snapshot.state).toBe('payment');
    app.clock.advance(8_000);
    const again = await session.call('cart.pay');
    expect(again.result._meta['mcp-interlock/refusal'].reason).toBe('held');
  });

  it('to an ungated call is an error, and makes nothing stale', async () => {
    const { app, session, stale } = await start(type, members);
    const [answer] = await answerTo(session, callOf('v', 'cart.view'));
    expect(answer).toEqual({
      jsonrpc: '2.0',
      id: 'v',
      error: { code: -32603, message: UNREADABLE },
    });
    expect(stale).toEqual([]);
    expect(app.errors.map(String).join()).toContain('both a result and an error');
  });

  it('leaves the other answers of its batch alone', async () => {
    const { session } = await start(type, members);
    const batch = [callOf('v', 'cart.view'), { jsonrpc: '2.0', id: 'o', method: 'ping' }];
    const answers = await answerTo(session, batch);
    expect(answers.flat().map(({ id, error }) => [id, error?.code])).toEqual([
      ['v', -32603],
      ['o', undefined],
    ]);
  });
});

describe('an initialize that is answered with both a result and an error', () => {
  it('begins no session', async () => {
    const app = await scene({
      shape: { mode: 'stateless', answers: 'json', parser: true },
      behind: [
        (_req, res) => {
          res.json({ jsonrpc: '2.0', id: 'init', result: {}, error: { code: 1, message: 'no' } });
        },
      ],
    });
    const { headers, messages } = await send(app.url, { body: INITIALIZE });
    expect(headers['mcp-session-id']).toBeUndefined();
    expect(messages).toMatchObject([{ id: 'init', error: { code: -32603 } }]);
  });
});
