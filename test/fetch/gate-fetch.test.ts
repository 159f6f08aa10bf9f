import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type FetchHandler, type GateFetchOptions, gateFetch } from '../../src/doors/fetch.ts';
import {
  type CallerRequest,
  currentStep,
  fsmGate,
  type SessionStoreOptions,
  StateMachineGate,
  stateSync,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { callOf, INITIALIZE, PROTOCOL, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { makeStage, pass, settle } from '../helpers/scene.ts';

const URL = 'https://shop.example/mcp?tenant=7';
const BOTH = 'application/json, text/event-stream';

function post(
  body: unknown,
  headers: Record<string, string> = {},
  init: RequestInit = {},
): Request {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const all = { 'content-type': 'application/json', accept: BOTH, ...headers };
  return new Request(URL, { method: 'POST', body: text, headers: all, ...init });
}

/** Answers each request with a result that names the called tool. */
async function echo(request: Request): Promise<Response> {
  const message = (await request.json()) as WireMessage;
  const text = message.params?.name ?? message.method;
  const result = { content: [{ type: 'text', text }], capabilities: {} };
  return Response.json({ jsonrpc: '2.0', id: message.id, result });
}

/** The checkout behind `gateFetch()`, with the test's own handler. */
function openShop(
  handler: FetchHandler = echo,
  options?: GateFetchOptions & { readonly session?: SessionStoreOptions },
) {
  const { session, ...rest } = options ?? {};
  const { stage, middlewares } = makeStage({ session: { sessionCacheMs: 0, ...session } });
  const fetch = gateFetch(handler, middlewares, rest);
  // Another handler answers the calls that lead up to a test.
  const lead = gateFetch(echo, middlewares, rest);
  return {
    ...stage,
    fetch,
    /** The headers of a session in `payment`. */
    async begin(headers: Record<string, string> = {}): Promise<Record<string, string>> {
      const { headers: answered } = await lead(post(INITIALIZE, headers));
      const id = answered.get('mcp-session-id') ?? '';
      const all = { ...headers, 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL };
      for (const tool of ['cart.add_item', 'cart.checkout']) {
        await (await lead(post(callOf(tool, tool), all))).text();
      }
      return all;
    },
  };
}

/** The members of an answer that no `Response` class has made. */
function plainAnswer(): Response {
  const { body, headers, statusText } = new Response('{}');
  return { status: 200, body, headers, statusText } as Response;
}

const errorOf = async (response: Response): Promise<unknown[]> => {
  const [message] = [(await response.json()) as WireMessage].flat();
  return [response.status, message?.error.code];
};

describe('gateFetch() turns away, before the handler sees it,', () => {
  const never = (): never => {
    throw new Error('the handler was asked');
  };

  it.each([
    ['a body that is not JSON', '{"jsonrpc"', {}, [400, -32700]],
    ['a body that is too large', JSON.stringify('x'.repeat(5 * 1024 * 1024)), {}, [413, -32700]],
    ['an encoded body', '{}', { 'content-encoding': 'gzip' }, [415, -32700]],
    [
      'a body that is not UTF-8',
      '{}',
      { 'content-type': 'application/json; charset=utf-7' },
      [415, -32700],
    ],
    ['a call without a session', callOf(1, 'cart.view'), {}, [400, -32000]],
    [
      'a call of an unknown session',
      callOf(1, 'cart.view'),
      { 'mcp-session-id': 'nobody' },
      [404, -32001],
    ],
    ['a batch with an initialize', [INITIALIZE, callOf(1, 'cart.view')], {}, [400, -32600]],
  ])('%s', async (_, body, headers, answer) => {
    expect(await errorOf(await openShop(never).fetch(post(body, headers)))).toEqual(answer);
  });

  it('a large body without a stated length', async () => {
    const chunk = new Uint8Array(1024 * 1024).fill(32);
    let left = 6;
    const body = new ReadableStream({
      pull(controller) {
        if (left-- > 0) controller.enqueue(chunk);
        else controller.close();
      },
    });
    const request = new Request(URL, { method: 'POST', body, duplex: 'half' });
    expect(await errorOf(await openShop(never).fetch(request))).toEqual([413, -32700]);
  });

  it.each([
    [413, {}],
    [415, { 'content-encoding': 'gzip' }],
  ])('a body without end, with a %i, and soon stops reading it', async (status, headers) => {
    const chunk = new Uint8Array(1024 * 1024).fill(32);
    let pulled = 0;
    const stopped = latch();
    const body = new ReadableStream({
      pull(controller) {
        pulled++;
        controller.enqueue(chunk);
      },
      cancel: () => stopped.open(),
    });
    const request = new Request(URL, { method: 'POST', body, duplex: 'half', headers });
    expect(await errorOf(await openShop(never).fetch(request))).toEqual([status, -32700]);
    await stopped.opened;
    expect(pulled).toBeGreaterThan(16);
    expect(pulled).toBeLessThan(32);
  });

  it('a body that stalls, and waits no longer than a second for the rest', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const stopped = latch();
    let isStopped = false;
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(new Uint8Array(5 * 1024 * 1024)),
      cancel() {
        isStopped = true;
        stopped.open();
      },
    });
    const request = new Request(URL, { method: 'POST', body, duplex: 'half' });
    expect(await errorOf(await openShop(never).fetch(request))).toEqual([413, -32700]);
    vi.advanceTimersByTime(999);
    await settle();
    expect(isStopped).toBe(false);
    vi.advanceTimersByTime(1);
    await stopped.opened;
  });

  it('a call of a session that began elsewhere, while the store is down', async () => {
    const shop = openShop(never);
    shop.store.fail('read');
    const elsewhere = post(callOf(1, 'cart.view'), { 'mcp-session-id': 'elsewhere' });
    expect(await errorOf(await shop.fetch(elsewhere))).toEqual([503, -32000]);
  });

  it('a PUT, and a GET for a stream without a session', async () => {
    const shop = openShop(never);
    const put = await shop.fetch(new Request(URL, { method: 'PUT', body: '{}' }));
    expect([put.status, put.headers.get('allow')]).toEqual([405, 'GET, POST, DELETE']);
    const stream = new Request(URL, { headers: { accept: 'text/event-stream' } });
    expect((await shop.fetch(stream)).status).toBe(400);
  });
});

describe('the handler behind gateFetch()', () => {
  it('gets the client’s request, and the other arguments of its host', async () => {
    const seen: unknown[] = [];
    const gated = gateFetch(
      async (request: Request, context: { params: string }) => {
        seen.push(
          request.method,
          request.url,
          request.headers.get('x-own'),
          await request.text(),
          context,
        );
        return new Response(null, { status: 202 });
      },
      [stateSync({ policies: [] })],
    );
    const body =
      '{"jsonrpc":"2.0",  "method":"notifications/x","params":{"n":12345678901234567890}}';
    const answer = await gated(post(body, { 'x-own': 'yes' }), { params: 'p' });
    expect([answer.status, await answer.text()]).toEqual([202, '']);
    expect(seen).toEqual(['POST', URL, 'yes', body, { params: 'p' }]);
  });

  it('finds its step, and an idempotency key in its body', async () => {
    const seen: unknown[] = [];
    const shop = openShop(async (request) => {
      const { params } = (await request.clone().json()) as WireMessage;
      const step = currentStep(request);
      seen.push(
        step?.tool,
        step?.state,
        params._meta['mcp-interlock/idempotencyKey'] === step?.idempotencyKey,
      );
      return echo(request);
    });
    const headers = await shop.begin();
    await (await shop.fetch(post(callOf(1, 'cart.pay'), headers))).text();
    expect(seen).toEqual(['cart.pay', 'payment', true]);
  });

  it('lets a browser read the session id, which is not its own', async () => {
    const origin = { 'access-control-allow-origin': 'https://app.example' };
    const shop = openShop(async (request) => {
      const answer = await echo(request);
      return new Response(answer.body, {
        headers: { ...Object.fromEntries(answer.headers), ...origin },
      });
    });
    const { headers } = await shop.fetch(post(INITIALIZE));
    expect(headers.get('access-control-expose-headers')).toBe('Mcp-Session-Id');
  });

  it('gets a preflight as it came', async () => {
    const request = new Request(URL, { method: 'OPTIONS' });
    const same: boolean[] = [];
    const shop = openShop(async (given) => {
      same.push(given === request);
      return new Response(null, { status: 204 });
    });
    expect((await shop.fetch(request)).status).toBe(204);
    expect(same).toEqual([true]);
  });

  it('gets no OPTIONS with a body, which is no preflight', async () => {
    let asked = 0;
    const shop = openShop(async () => {
      asked++;
      return new Response(null, { status: 204 });
    });
    const body = JSON.stringify(callOf(1, 'cart.pay'));
    expect((await shop.fetch(new Request(URL, { method: 'OPTIONS', body }))).status).toBe(405);
    expect(asked).toBe(0);
  });

  it.each([401, 404, 500])('answers %s with its own headers and body', async (status) => {
    const shop = openShop(
      async () => new Response('no', { status, headers: { 'www-authenticate': 'Bearer' } }),
    );
    const headers = await shop.begin();
    const answer = await shop.fetch(post(callOf(1, 'cart.view'), headers));
    expect([answer.status, answer.headers.get('www-authenticate'), await answer.text()]).toEqual([
      status,
      'Bearer',
      'no',
    ]);
  });

  it('may compress its answer: it cannot be read, and the client gets an error', async () => {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'br' };
    const shop = openShop(async () => new Response('???', { headers }));
    const answer = await shop.fetch(post(callOf(1, 'cart.view'), await shop.begin()));
    expect(await errorOf(answer)).toEqual([502, -32603]);
    expect(answer.headers.has('content-encoding')).toBe(false);
  });

  it('throws through gateFetch(), and leaves its step’s outcome unknown', async () => {
    const failure = new Error('the database is gone');
    const shop = openShop(async () => {
      throw failure;
    });
    const headers = await shop.begin();
    await expect(shop.fetch(post(callOf(1, 'cart.pay'), headers))).rejects.toBe(failure);
    expect(shop.errors.map(String)).toEqual([
      expect.stringContaining('outcome of a call of "cart.pay" is unknown'),
    ]);
  });

  it('breaks in the middle of its body, and so does the client’s body', async () => {
    const failure = new Error('the database is gone');
    const type = { 'content-type': 'text/event-stream' };
    const shop = openShop(async () => {
      const body = new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode(': begun\n\n')),
        pull: (controller) => controller.error(failure),
      });
      return new Response(body, { headers: type });
    });
    const answer = await shop.fetch(post(callOf(1, 'cart.view'), await shop.begin()));
    await expect(answer.text()).rejects.toThrow();
  });

  it('must return a Response', async () => {
    const shop = openShop((async () => undefined) as unknown as FetchHandler);
    const headers = await shop.begin();
    const asked = shop.fetch(post(callOf(1, 'cart.view'), headers));
    await expect(asked).rejects.toThrow(
      'the handler must return a Response; it returned undefined',
    );
  });

  it.each<[string, () => Response]>([
    ['Response.error()', () => Response.error()],
    ['status 101', () => ({ ...plainAnswer(), status: 101 })],
    ['status 999', () => ({ ...plainAnswer(), status: 999 })],
    ['204 with a body', () => ({ ...plainAnswer(), status: 204 })],
    ['an odd status text', () => ({ ...plainAnswer(), statusText: 'a\nb' })],
  ])('answers 502 and is told of, in place of %s', async (_, answer) => {
    const shop = openShop(answer);
    const headers = await shop.begin();
    const { status } = await shop.fetch(post(callOf(1, 'cart.view'), headers));
    expect(status).toBe(502);
    expect(shop.errors.map(String)).toEqual([
      expect.stringContaining('no client can be sent the handler'),
    ]);
  });

  it('may answer after its step was abandoned, which fails nothing', async () => {
    const clock = new ManualClock();
    const handler = { ...latch(), asked: latch(), signal: undefined as AbortSignal | undefined };
    const errors: unknown[] = [];
    const onError = (error: unknown): void => void errors.push(error);
    const gate = fsmGate(checkoutGate(), { maxStepMs: 1_000, clock, onError });
    const gated = gateFetch(
      async (request) => {
        const { method } = (await request.clone().json()) as WireMessage;
        if (method !== 'tools/call') return echo(request);
        handler.signal = request.signal;
        handler.asked.open();
        await handler.opened;
        throw new Error('too late');
      },
      [gate],
    );
    const opened = await gated(post(INITIALIZE));
    const headers = { 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '' };
    const asked = gated(post(callOf(1, 'cart.add_item'), headers));
    await handler.asked.opened;
    clock.advance(1_000);
    const { result } = (await (await asked).json()) as WireMessage;
    expect(result.content[0].text).toContain('cart.add_item may have run: its outcome is unknown.');
    await settle();
    expect(handler.signal?.aborted).toBe(true);
    handler.open();
    await settle();
    expect(errors.map(String)).toEqual([expect.stringContaining('is unknown')]);
  });

  it('is not called where the body was read before', async () => {
    const request = post(INITIALIZE);
    await request.text();
    await expect(openShop().fetch(request)).rejects.toThrow('was read before gateFetch()');
  });
});

describe('the caller behind gateFetch()', () => {
  const claims = (sub: string) => ({ clientId: 'app', extra: { iss: 'https://id.example', sub } });

  it('is named by request.auth, which the handler gets too, and owns its session', async () => {
    const seen: unknown[] = [];
    const shop = openShop(async (request) => {
      seen.push((request as { auth?: unknown }).auth);
      return echo(request);
    });
    const as = (sub: string, request: Request) => Object.assign(request, { auth: claims(sub) });
    const opened = await shop.fetch(as('ann', post(INITIALIZE)));
    const headers = { 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '' };
    expect((await shop.fetch(as('bob', post(callOf(1, 'cart.view'), headers)))).status).toBe(404);
    expect((await shop.fetch(post(callOf(1, 'cart.view'), headers))).status).toBe(404);
    expect((await shop.fetch(as('ann', post(callOf(1, 'cart.view'), headers)))).status).toBe(200);
    expect(seen).toEqual([claims('ann'), claims('ann')]);
  });

  it('is named by the option auth, at once or later', async () => {
    const auth = async (request: Request) => claims(request.headers.get('x-user') ?? '');
    const shop = openShop(echo, { auth });
    const headers = await shop.begin({ 'x-user': 'ann' });
    expect((await shop.fetch(post(callOf(1, 'cart.view'), headers))).status).toBe(200);
    expect(
      (await shop.fetch(post(callOf(1, 'cart.view'), { ...headers, 'x-user': 'bob' }))).status,
    ).toBe(404);
  });

  it('is named by principal(), which gets method, URL, headers and auth', async () => {
    const seen: CallerRequest[] = [];
    const principal = (req: CallerRequest) => {
      seen.push(req);
      return String(req.headers['x-user']);
    };
    const shop = openShop(echo, { auth: () => claims('ann'), session: { principal } });
    const headers = await shop.begin({ 'x-user': 'ann' });
    expect(
      (await shop.fetch(post(callOf(1, 'cart.view'), { ...headers, 'x-user': 'bob' }))).status,
    ).toBe(404);
    expect(seen.at(-1)).toMatchObject({ method: 'POST', url: URL, auth: claims('ann') });
  });
});

describe('a client that leaves', () => {
  const waiting = () => {
    const handler = { ...latch(), asked: latch(), signal: undefined as AbortSignal | undefined };
    const answer: FetchHandler = async (request) => {
      handler.signal = request.signal;
      handler.asked.open();
      await handler.opened;
      return echo(request);
    };
    return { handler, answer };
  };

  it('in the middle of a call that is no step, aborts the handler', async () => {
    const { handler, answer } = waiting();
    const shop = openShop(answer);
    const client = new AbortController();
    const asked = shop.fetch(
      post(callOf(1, 'cart.view'), await shop.begin(), { signal: client.signal }),
    );
    await handler.asked.opened;
    expect(handler.signal?.aborted).toBe(false);
    client.abort();
    expect(handler.signal?.aborted).toBe(true);
    handler.open();
    await asked;
    expect(shop.errors).toEqual([]);
  });

  it('in the middle of a step, aborts nothing: the step is saved', async () => {
    const { handler, answer } = waiting();
    const shop = openShop(answer);
    const headers = await shop.begin();
    const client = new AbortController();
    const asked = shop.fetch(post(callOf(1, 'cart.pay'), headers, { signal: client.signal }));
    await handler.asked.opened;
    client.abort();
    expect(handler.signal?.aborted).toBe(false);
    handler.open();
    await asked;
    const again = await shop.fetch(post(callOf(2, 'cart.pay'), headers));
    expect(reasonOf((await again.json()) as WireMessage)).toBe('state');
    expect([handler.signal?.aborted, shop.errors]).toEqual([false, []]);
  });

  it.each([
    ['cart.view', true],
    ['cart.pay', false],
  ])('by no longer reading a stream, in %s: the handler is aborted: %s', async (tool, cutOff) => {
    const handler = { cancelled: false, signal: undefined as AbortSignal | undefined, ...latch() };
    const encoder = new TextEncoder();
    const shop = openShop(async (request) => {
      handler.signal = request.signal;
      const { id } = (await request.json()) as WireMessage;
      const body = new ReadableStream({
        start(controller) {
          controller.enqueue(encoder.encode(': begun\n\n'));
          void handler.opened.then(() => {
            if (handler.cancelled) return;
            const result = { jsonrpc: '2.0', id, result: { content: [] } };
            controller.enqueue(encoder.encode(`data: ${JSON.stringify(result)}\n\n`));
            controller.close();
          });
        },
        cancel() {
          handler.cancelled = true;
        },
      });
      return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    });
    const headers = await shop.begin();
    const answer = await shop.fetch(post(callOf(1, tool), headers));
    const reader = answer.body?.getReader();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe(': begun\n\n');
    await reader?.cancel();
    await settle();
    expect([handler.cancelled, handler.signal?.aborted]).toEqual([cutOff, cutOff]);
    handler.open();
    await settle();
    expect(shop.errors).toEqual([]);
    const pay = shop.fetch(post(callOf(2, 'cart.pay'), headers));
    if (tool === 'cart.pay')
      expect(reasonOf((await (await pay).json()) as WireMessage)).toBe('state');
  });

  it('while its body is read, gets no answer', async () => {
    const client = new AbortController();
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode('{"json'));
        client.signal.addEventListener('abort', () => controller.error(client.signal.reason));
      },
    });
    const shop = openShop();
    const asked = shop.fetch(
      new Request(URL, { method: 'POST', body, duplex: 'half', signal: client.signal }),
    );
    client.abort();
    expect((await asked).status).toBe(400);
    expect(shop.errors).toEqual([]);
  });
});

describe('bytes behind gateFetch()', () => {
  const pass = (handler: FetchHandler) => gateFetch(handler, [stateSync({ policies: [] })]);

  it.each(['text/event-stream', 'application/json', 'text/plain'])(
    'of %s arrive as they were sent, wherever they were cut',
    async (type) => {
      const message = '{"jsonrpc":"2.0","id":1,"result":{"n":12345678901234567890,"é":"🛒"}}';
      const text = type === 'text/event-stream' ? `id: 1\ndata: ${message}\n\n: bye\n\n` : message;
      const bytes = new TextEncoder().encode(text);
      await fc.assert(
        fc.asyncProperty(fc.array(fc.nat(bytes.length), { maxLength: 6 }), async (cuts) => {
          const edges = [0, ...cuts.sort((a, b) => a - b), bytes.length];
          const body = new ReadableStream({
            start(controller) {
              edges
                .slice(1)
                .forEach((edge, i) => void controller.enqueue(bytes.slice(edges[i], edge)));
              controller.close();
            },
          });
          const gated = pass(async () => new Response(body, { headers: { 'content-type': type } }));
          const asked =
            type === 'text/plain' ? new Request(URL) : post({ jsonrpc: '2.0', id: 1, method: 'x' });
          expect(await (await gated(asked)).text()).toBe(text);
        }),
        { numRuns: 50 },
      );
    },
  );

  it('are not read faster than the client reads them', async () => {
    const event = new TextEncoder().encode(`: ${'x'.repeat(4094)}\n\n`);
    let pulled = 0;
    const body = new ReadableStream(
      {
        pull(controller) {
          if (++pulled > 1000) controller.close();
          else controller.enqueue(event);
        },
      },
      { highWaterMark: 0 },
    );
    const gated = pass(
      async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } }),
    );
    const answer = await gated(new Request(URL));
    await settle(50);
    expect(pulled).toBeLessThan(10);
    const whole = await answer.arrayBuffer();
    expect([whole.byteLength, pulled]).toEqual([1000 * event.length, 1001]);
  });

  it('are none of a 204, and none of HEAD', async () => {
    const gated = pass(
      async ({ method }) => new Response(null, { status: method === 'HEAD' ? 200 : 204 }),
    );
    expect((await gated(new Request(URL, { method: 'DELETE' }))).body).toBeNull();
    expect((await gated(new Request(URL, { method: 'HEAD' }))).body).toBeNull();
  });

  it('are none of HEAD, and a handler that streams is told to stop', async () => {
    let cancelled = false;
    const bytes = new TextEncoder().encode('x'.repeat(65_536));
    const body = new ReadableStream({
      pull: (controller) => controller.enqueue(bytes),
      cancel() {
        cancelled = true;
      },
    });
    const answer = await pass(async () => new Response(body))(new Request(URL, { method: 'HEAD' }));
    expect([answer.status, answer.body]).toEqual([200, null]);
    await expect.poll(() => cancelled).toBe(true);
    const unknown = new Request(URL, { method: 'HEAD', headers: { 'mcp-session-id': 'nobody' } });
    const refused = await openShop().fetch(unknown);
    expect([refused.status, refused.body]).toEqual([404, null]);
  });
});

describe('a call that waits behind another one, and whose client was told so, through gateFetch()', () => {
  const telling = (id: string): WireMessage => {
    const params = { name: 'cart.pay', arguments: {}, _meta: { progressToken: 'p' } };
    return { ...callOf(id, 'cart.pay'), params };
  };

  /** A payment at work that will fail, and one behind it whose client was told. */
  async function waiting(second: () => Promise<Response>) {
    const first = latch();
    const asked: unknown[] = [];
    const shop = openShop(async (request) => {
      const { id } = (await request.json()) as WireMessage;
      asked.push(id);
      if (id !== 'first') return second();
      await first.opened;
      return Response.json({ jsonrpc: '2.0', id, result: { content: [], isError: true } });
    });
    const headers = await shop.begin();
    const firstAnswer = shop.fetch(post(telling('first'), headers));
    await expect.poll(() => asked).toEqual(['first']);
    const waiting = shop.fetch(post(telling('second'), headers));
    await settle();
    await pass(shop.clock, 5_000);
    const response = await waiting;
    expect([response.status, response.headers.get('content-type')]).toEqual([
      200,
      'text/event-stream',
    ]);
    const finish = async (): Promise<void> => {
      first.open();
      await (await firstAnswer).text();
    };
    return { ...shop, asked, response, finish };
  }

  it('reads the handler’s answer on the same stream', async () => {
    const result = { content: [] };
    const { response, finish, errors } = await waiting(async () =>
      Response.json(
        { jsonrpc: '2.0', id: 'second', result },
        { headers: { 'content-length': '9' } },
      ),
    );
    await finish();
    const events = (await response.text()).split('\n\n');
    expect(events[0]).toContain('"message":"Waiting for another call of this run"');
    expect(events[1]).toContain('"id":"second","result":{"content":[]');
    expect(errors).toEqual([]);
  });

  it('reads that its outcome is unknown where the handler throws, as onError does', async () => {
    const fault = new Error('no bank');
    const { response, finish, errors } = await waiting(() => Promise.reject(fault));
    await finish();
    expect(await response.text()).toContain('cart.pay may have run');
    expect(errors).toContain(fault);
  });

  it('is never handed on where the client stops reading', async () => {
    const { response, finish, asked, errors } = await waiting(() => {
      throw new Error('it was handed on');
    });
    await response.body?.cancel();
    await finish();
    await settle();
    expect([asked, errors]).toEqual([['first'], []]);
  });
});

it('finds the run of a gate that observes beside one that enforces', async () => {
  const told: unknown[] = [];
  const view = new StateMachineGate({
    id: 'views',
    initial: 'new',
    states: { new: { on: { SEEN: 'seen' } }, seen: {} },
  }).bindTool('cart.view', 'seen', 'SEEN');
  const { middlewares } = makeStage({
    workflow: [[view, { enforce: false }], checkoutGate()],
    session: {
      onEvent: (event) => {
        if (event.type === 'call.refused') told.push([event.tool, event.enforced]);
      },
    },
  });
  const fetch = gateFetch(echo, middlewares);
  const begun = await fetch(post(INITIALIZE));
  const id = begun.headers.get('mcp-session-id') ?? '';
  const session = { 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL };
  for (const tool of ['cart.pay', 'cart.view'])
    await (await fetch(post(callOf(tool, tool), session))).text();
  await expect
    .poll(() => told)
    .toEqual([
      ['cart.pay', undefined],
      ['cart.view', false],
    ]);
});
