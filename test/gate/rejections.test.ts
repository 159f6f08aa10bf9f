import type { Request, RequestHandler, Response } from 'express';
import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type ErrorAnswer,
  type FsmGateOptions,
  fsmGate,
  type InterlockEvent,
  memoryStore,
  StateMachineGate,
  sessionStore,
  UnknownOutcome,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { CHALLENGES, REJECTIONS } from '../../src/wire/rejections.ts';
import {
  callOf,
  INITIALIZE,
  type RawResponse,
  reasonOf,
  type WireMessage,
} from '../helpers/raw.ts';
import { pass, type SceneOptions, scene } from '../helpers/scene.ts';

type Host = (req: Request, res: Response) => unknown;

const OPEN = 'open';
const shopGate = (uncertain: 'hold' | 'retry' = 'hold') =>
  new StateMachineGate<string, string>({
    id: 'shop',
    initial: OPEN,
    states: { open: { on: { PAY: 'paid' } }, paid: {} },
  })
    .bindTool('cart.pay', OPEN, { success: 'PAY', uncertain })
    .bindTool('cart.checkout', OPEN, { uncertain });

/**
 * A shop whose calls of `cart.pay` come to the test's own route, the first time. Later ones come to
 * the server.
 */
async function shop(
  host: Host,
  { gate = {}, ...options }: Omit<SceneOptions, 'gate'> & { readonly gate?: FsmGateOptions } = {},
) {
  const keys: unknown[] = [];
  const events: InterlockEvent[] = [];
  const answerOnce: RequestHandler = (req, res, next) => {
    if (!JSON.stringify(req.body ?? {}).includes('"cart.pay"')) return next();
    const [call = {}] = [req.body].flat().filter(({ method }) => method === 'tools/call');
    keys.push(call.params._meta['mcp-interlock/idempotencyKey']);
    if (keys.length > 1) return next();
    return void host(req, res);
  };
  const app = await scene({
    workflow: shopGate(),
    shape: { mode: 'stateless', answers: 'json', parser: true },
    gate: { onEvent: (event) => void events.push(event), ...gate },
    behind: [answerOnce],
    ...options,
  });
  const session = await app.session();
  const run = app.run(session.id);
  return {
    ...app,
    session,
    run,
    keys,
    events,
    pay: (): Promise<RawResponse> => session.post(callOf('p', 'cart.pay')),
    /** Nothing ran: the same call may be made again. */
    async isFree(): Promise<void> {
      await run.becomes('idle');
      expect((await session.call('cart.pay')).result.content[0].text).toBe('cart.pay done');
      await run.isIn('paid');
      expect(app.errors).toEqual([]);
    },
    /** The gate does not know what ran: the operator is told, and nothing runs. */
    async isHeld(told: string | undefined = undefined): Promise<void> {
      const unknown = app.errors.filter((error) => error instanceof UnknownOutcome);
      expect(unknown).toHaveLength(1);
      expect(String(unknown[0])).toContain(told ?? 'the upstream answered with HTTP');
      expect(events.filter(({ type }) => type === 'step.unknown')).toMatchObject([
        { tool: 'cart.pay', isHeld: true },
      ]);
      await pass(app.clock, 8_500);
      await run.is('held');
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
      expect([keys.length, app.ledger.calls]).toEqual([1, []]);
    },
  };
}

const errorOf = (code: number, message: string, id: unknown = null, data?: unknown) => ({
  jsonrpc: '2.0',
  error: { code, message, ...(data !== undefined && { data }) },
  id,
});

/** What the client of a call reads whose outcome is unknown. */
const UNKNOWN = { id: 'p', result: { isError: true } };
const saysUnknown = ({ status, messages }: RawResponse): void => {
  expect([status, messages]).toMatchObject([200, [UNKNOWN]]);
  expect(messages).toHaveLength(1);
  expect(messages[0]?.result._meta['mcp-interlock/outcome']).not.toHaveProperty('ran');
};

type Row = [status: number, code: number, id: unknown, message: string, data?: unknown];
const OWN = 'p';
const PY1 = 'server-error';
const VERSIONS = { supported: ['2026-07-28'], requested: '2027-01-01' };

/** As the transports write them. Each row of the table has at least one. */
const ANSWERS: readonly Row[] = [
  // SDK v1 and v2, the session era.
  [400, -32000, null, 'Bad Request: Server not initialized'],
  [400, -32000, null, 'Bad Request: Mcp-Session-Id header is required'],
  [400, -32000, null, 'Bad Request: Unsupported protocol version: 1 (supported versions: 2)'],
  [403, -32000, null, 'Invalid Host header: evil.example'],
  [403, -32000, null, 'Invalid Origin header: http://evil.example'],
  [404, -32001, null, 'Session not found'],
  [
    406,
    -32000,
    null,
    'Not Acceptable: Client must accept both application/json and text/event-stream',
  ],
  [413, -32000, null, 'Payload Too Large: Request body must not exceed 4194304 bytes'],
  [415, -32000, null, 'Unsupported Media Type: Content-Type must be application/json'],
  [400, -32700, null, 'Parse error: Invalid JSON'],
  [400, -32600, null, 'Invalid Request: Batch must not exceed 100 messages'],
  // Their middlewares, and the routes of their examples.
  [403, -32000, null, 'Missing Host header'],
  [403, -32000, null, 'Invalid Host: evil.example'],
  [403, -32000, null, 'Invalid Origin: evil.example'],
  [400, -32000, null, 'Bad Request: No valid session ID provided'],
  [400, -32000, null, 'Bad Request: Session ID required'],
  // SDK v2, the stateless era.
  [400, -32600, OWN, 'Bad Request: the request body is not a valid JSON-RPC message'],
  [400, -32600, null, 'Bad Request: JSON-RPC batches are not supported by this endpoint'],
  [400, -32020, OWN, 'Bad Request: the request headers and body disagree: x', { mismatch: {} }],
  [400, -32022, OWN, 'Unsupported protocol version: 2027-01-01', VERSIONS],
  [
    400,
    -32602,
    OWN,
    'Invalid _meta envelope for protocol revision 2026-07-28: x',
    { envelope: {} },
  ],
  [
    ...([400, -32602, OWN] as const),
    'Invalid params: the MCP-Protocol-Version header names protocol revision 2026-07-28, but …',
    { envelope: { missing: ['_meta'] } },
  ],
  // Python 1 and 2.
  [400, -32600, PY1, 'Bad Request: Missing session ID'],
  [400, -32600, PY1, 'Bad Request: Unsupported protocol version: 1. Supported versions: 2'],
  [400, -32600, null, 'Bad Request: Missing session ID'],
  [400, -32600, null, 'Body must be a single JSON-RPC request or notification object'],
  [400, -32602, PY1, 'Validation error: 1 validation error for JSONRPCMessage'],
  [400, -32700, PY1, 'Parse error: Expecting value: line 1 column 1 (char 0)'],
  [404, -32600, PY1, 'Session not found'],
  [404, -32600, null, 'Not Found: Session has been terminated'],
  [404, -32600, PY1, 'Not Found: Invalid or expired session ID'],
  [406, -32600, PY1, 'Not Acceptable: Client must accept application/json'],
  [415, -32600, null, 'Unsupported Media Type: Content-Type must be application/json'],
  // @hono/mcp.
  [404, -32000, null, 'Bad Request: Unsupported protocol version (supported versions: 2025-11-25)'],
];

describe('a call that an official transport rejected before its handler', () => {
  it.each(ANSWERS)('never ran: HTTP %i, %i, id %s, %s', async (status, code, id, message, data) => {
    const error = errorOf(code, message, id, data);
    const app = await shop((_req, res) => res.status(status).json(error));
    const answer = await app.pay();
    expect([answer.status, answer.text]).toEqual([status, JSON.stringify(error)]);
    await app.isFree();
    expect(await app.runs.history(app.session.id)).toMatchObject([
      { outcome: 'not_run', kind: 'rejected', tool: 'cart.pay' },
      { to: 'paid' },
    ]);
  });

  it('has each row and each beginning of the table in the list above', () => {
    const unused = REJECTIONS.flatMap((row) => {
      const alike = ANSWERS.filter(([status, code]) => row.status === status && row.code === code);
      return row.messages.filter((words) => !alike.some((each) => each[3].startsWith(words)));
    });
    expect(unused).toEqual([]);
  });

  it.each([
    [401, 'invalid_token', 'Token has expired'],
    [403, 'insufficient_scope', 'Insufficient scope'],
  ])('never ran: the challenge of bearer authentication, HTTP %i', async (status, error, words) => {
    const app = await shop((_req, res) => {
      res.set('WWW-Authenticate', `Bearer error="${error}", error_description="${words}"`);
      res.status(status).json({ error, error_description: words });
    });
    const answer = await app.pay();
    expect([answer.status, answer.headers['www-authenticate']]).toEqual([
      status,
      `Bearer error="${error}", error_description="${words}"`,
    ]);
    expect(CHALLENGES[status]).toBe(error);
    await app.isFree();
  });

  it.each([
    ['asks for another version', { 'mcp-protocol-version': '1999-01-01' }, 400],
    ['accepts no event stream', { accept: 'application/json' }, 406],
  ])(
    'never ran: the transport of SDK v1 itself, for a client that %s',
    async (_, headers, status) => {
      const app = await shop(() => {}, { behind: [] });
      expect((await app.session.post(callOf('p', 'cart.pay'), headers)).status).toBe(status);
      await app.run.becomes('idle');
      expect([app.ledger.calls, app.errors]).toEqual([[], []]);
      await app.session.call('cart.pay');
      await app.run.isIn('paid');
    },
  );

  it.each(['express', 'sdk'] as const)('is told to its client as it came, in %s', async (host) => {
    const app = await shop(() => {}, {
      behind: [],
      shape: { host, mode: 'stateful', answers: 'sse' },
    });
    const other = { 'mcp-protocol-version': '1999-01-01' };
    const { status, messages } = await app.session.post(callOf('p', 'cart.pay'), other);
    expect([status, messages[0]]).toMatchObject([400, { id: null, error: { code: -32000 } }]);
    await app.run.becomes('idle');
    expect(app.errors).toEqual([]);
  });
});

/** A route that charges, and then fails in its own words. */
const CHARGED: readonly [string, Host][] = [
  ...([400, 403, 404] as const).map((status): [string, Host] => [
    `HTTP ${status} with -32000, null and its own words`,
    (_req, res) => res.status(status).json(errorOf(-32000, 'The receipt is gone')),
  ]),
  [
    'the 404 of its own request for the receipt, which Express answers with',
    (req) => req.next?.(Object.assign(new Error('Request failed'), { status: 404 })),
  ],
  ['a plain 404', (_req, res) => res.status(404).send('no receipt')],
  ['a 404 without a body', (_req, res) => res.status(404).end()],
  ['404 with -32601', (req, res) => res.status(404).json(errorOf(-32601, 'x', req.body.id))],
  ['400 with -32603', (_req, res) => res.status(400).json(errorOf(-32603, 'Internal error'))],
  [
    'what the transports make of a throw: -32700 with data',
    (_req, res) => res.status(400).json(errorOf(-32700, 'Parse error', null, 'Error: late')),
  ],
  [
    'a handler’s error with its own id, which Python 2 answers with 400',
    (req, res) => res.status(400).json(errorOf(-32602, 'Unknown receipt', req.body.id)),
  ],
  [
    'a rejection with another status',
    (_req, res) => res.status(409).json(errorOf(-32001, 'Session not found')),
  ],
  [
    'a rejection with another id',
    (_req, res) => res.status(404).json(errorOf(-32001, 'Session not found', 7)),
  ],
  [
    'a rejection with data',
    (_req, res) => res.status(404).json(errorOf(-32001, 'Session not found', null, 1)),
  ],
  [
    'a rejection and more',
    (_req, res) => res.status(404).json({ ...errorOf(-32001, 'Session not found'), paid: true }),
  ],
  [
    'a rejection as text',
    (_req, res) =>
      res
        .status(404)
        .type('text')
        .send(JSON.stringify(errorOf(-32001, 'Session not found'))),
  ],
  [
    'a rejection of more than 64 KiB',
    (_req, res) => res.status(404).json(errorOf(-32001, `Session not found${' '.repeat(65_536)}`)),
  ],
  [
    'a rejection behind an event',
    (_req, res) => {
      const event = (message: unknown) => `data: ${JSON.stringify(message)}\n\n`;
      const notice = { jsonrpc: '2.0', method: 'notifications/message', params: {} };
      res.status(404).type('text/event-stream');
      res.end(event(notice) + event(errorOf(-32001, 'Session not found')));
    },
  ],
  [
    'a challenge without its header',
    (_req, res) => res.status(401).json({ error: 'invalid_token', error_description: 'x' }),
  ],
  ['a redirect', (_req, res) => res.redirect(303, '/receipt')],
];

describe('a call whose route charges, and then answers with an error', () => {
  it.each(CHARGED)('is held: %s', async (name, host) => {
    const app = await shop(host);
    const answer = await app.pay();
    if (name.includes('behind an event')) expect(answer.messages.at(-1)).toMatchObject(UNKNOWN);
    else saysUnknown(answer);
    await app.isHeld();
  });

  it.each<[number, Host]>([
    [500, (_req, res) => res.status(500).json(errorOf(-32603, 'Internal server error'))],
    [503, (_req, res) => res.status(503).send('Overloaded')],
    [502, (req, res) => res.status(502).json(errorOf(-32000, 'x', req.body.id))],
  ])('is held, and its HTTP %i becomes a result that a model reads', async (status, host) => {
    const app = await shop(host);
    saysUnknown(await app.pay());
    await app.isHeld(`HTTP ${status}`);
  });

  it('is held after HTTP 499, which SDK v2 sends when its client has left', async () => {
    const app = await shop((_req, res) => res.status(499).end(), {
      gate: { neverRan: () => true },
    });
    saysUnknown(await app.pay());
  });

  it('gets the same key at the next try, where it may be repeated', async () => {
    const app = await shop((_req, res) => res.status(404).send('no receipt'), {
      workflow: shopGate('retry'),
    });
    saysUnknown(await app.pay());
    await pass(app.clock, 8_500);
    await app.session.call('cart.pay');
    expect([app.keys.length, new Set(app.keys).size]).toEqual([2, 1]);
  });

  it('is held in a batch with a second request, whatever the answer', async () => {
    const app = await shop(
      (_req, res) => res.status(404).json(errorOf(-32001, 'Session not found')),
      {
        gate: { neverRan: () => true },
      },
    );
    const batch = [callOf('p', 'cart.pay'), callOf('v', 'cart.view')];
    const { status, messages } = await app.session.post(batch);
    expect([status, messages]).toMatchObject([200, [UNKNOWN]]);
    await pass(app.clock, 8_500);
    await app.run.is('held');
  });

  it('waits for an input that its client cannot give, as with HTTP 200', async () => {
    const app = await shop((req, res) =>
      res.status(400).json(errorOf(-32021, 'Missing capability', req.body.id)),
    );
    expect((await app.pay()).status).toBe(400);
    await app.isFree();
  });

  it('has its success, whatever the HTTP status', async () => {
    const app = await shop((req, res) =>
      res.status(404).json({ jsonrpc: '2.0', id: req.body.id, result: { content: [] } }),
    );
    await app.pay();
    await app.run.isIn('paid');
  });

  it('says so on each of two gates, and its client reads it once', async () => {
    const second = new StateMachineGate<string, string>({
      id: 'stock',
      initial: 'there',
      states: { there: { on: { PAY: 'sold' } }, sold: {} },
    }).bindTool('cart.pay', 'there', 'PAY');
    const app = await shop((_req, res) => res.status(404).send('no receipt'), {
      workflow: [shopGate(), second],
    });
    saysUnknown(await app.pay());
    expect(app.errors.filter((error) => error instanceof UnknownOutcome)).toHaveLength(2);
  });
});

describe('an error in a handler of the Fetch API', () => {
  it.each<[string, () => globalThis.Response, number, 'idle' | 'running']>([
    [
      'proves that nothing ran, as the transport says it',
      () => globalThis.Response.json(errorOf(-32001, 'Session not found'), { status: 404 }),
      404,
      'idle',
    ],
    [
      'proves nothing',
      () => new globalThis.Response('no receipt', { status: 404 }),
      200,
      'running',
    ],
  ])('%s', async (_, answer, wanted, left) => {
    const store = memoryStore();
    const errors: unknown[] = [];
    const onError = (error: unknown) => void errors.push(error);
    const middlewares = [sessionStore({ store, onError }), fsmGate(shopGate())] as const;
    const fetch = gateFetch(async (request) => {
      const { id, method, params } = (await request.json()) as WireMessage;
      if (params?.name === 'cart.pay') return answer();
      if (id === undefined) return new globalThis.Response(null, { status: 202 });
      const result = { content: [], capabilities: {}, method };
      return globalThis.Response.json({ jsonrpc: '2.0', id, result });
    }, middlewares);
    const post = (body: WireMessage, headers = {}) => {
      const accept = 'application/json, text/event-stream';
      const all = { 'content-type': 'application/json', accept, ...headers };
      const init = { method: 'POST', headers: all, body: JSON.stringify(body) };
      return fetch(new globalThis.Request('http://shop.example/mcp', init));
    };
    const run = (await post(INITIALIZE)).headers.get('mcp-session-id') ?? '';
    const said = await post(callOf('p', 'cart.pay'), { 'mcp-session-id': run });
    expect(said.status).toBe(wanted);
    const told = (await said.json()) as WireMessage;
    if (wanted === 200) expect(told).toMatchObject(UNKNOWN);
    else expect(told).toEqual(errorOf(-32001, 'Session not found'));
    const runs = runsOf(shopGate(), { store });
    await expect.poll(async () => (await runs.read(run))?.status).toBe(left);
    expect(errors).toHaveLength(wanted === 200 ? 1 : 0);
  });
});

describe('neverRan()', () => {
  it('is shown the answer, and frees the run with `true`', async () => {
    const shown: ErrorAnswer[] = [];
    const app = await shop(
      (_req, res) => res.status(429).set('Retry-After', '3').send('Too many requests'),
      { gate: { neverRan: (answer) => shown.push(answer) > 0 && answer.status === 429 } },
    );
    const { status, text, headers } = await app.pay();
    expect([status, text, headers['retry-after']]).toEqual([429, 'Too many requests', '3']);
    expect(shown).toMatchObject([
      { status: 429, body: 'Too many requests', headers: { 'retry-after': '3' }, error: undefined },
    ]);
    await app.isFree();
  });

  it('is shown a JSON-RPC error that is not in the table, and asked about no other', async () => {
    const shown: ErrorAnswer[] = [];
    const gate: FsmGateOptions = { neverRan: (answer) => shown.push(answer) > 0 };
    const own = await shop((_req, res) => res.status(404).json(errorOf(-32000, 'No such app')), {
      gate,
    });
    await own.pay();
    await own.isFree();
    expect(shown.map(({ error }) => error)).toEqual([{ code: -32000, message: 'No such app' }]);
    const known = await shop(
      (_req, res) => res.status(404).json(errorOf(-32001, 'Session not found')),
      {
        gate,
      },
    );
    await known.pay();
    const late = await shop(
      (_req, res) => res.status(400).json(errorOf(-32603, 'Internal error')),
      {
        gate,
      },
    );
    await late.pay();
    const broken = await shop((_req, res) => res.status(503).send('x'), { gate });
    await broken.pay();
    expect(shown).toHaveLength(1);
  });

  it.each<[string, () => unknown, string | undefined]>([
    [
      'throws',
      () => {
        throw new Error('no such field');
      },
      'no such field',
    ],
    ['rejects', async () => Promise.reject(new Error('too late')), 'too late'],
    ['promises `true`', async () => true, undefined],
    ['returns 1', () => 1, undefined],
    ['returns nothing', () => undefined, undefined],
  ])('that %s proves nothing, and the operator is told', async (_, neverRan, told) => {
    const app = await shop((_req, res) => res.status(429).send('slow down'), {
      gate: { neverRan: neverRan as () => boolean },
    });
    saysUnknown(await app.pay());
    if (told !== undefined) await expect.poll(() => app.errors.join()).toContain(told);
    await app.isHeld('HTTP 429');
  });
});
