import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  principalKey,
  sessionStore,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import type { WireMessage } from '../helpers/raw.ts';
import { stateless } from '../helpers/two-eras.ts';

const ALICE = { clientId: 'app', extra: { iss: 'https://issuer.example', sub: 'alice' } };
const RUN = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'alice' });

/** SDK v2's handler of the Fetch API, behind a gate. */
function serve(options: FsmGateOptions = {}) {
  const calls: string[] = [];
  const aborted: string[] = [];
  const gates = new Map<string, Promise<void>>();
  const store = memoryStore();
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
      server.registerTool(name, { inputSchema: z.object({}) }, async (_args, { mcpReq }) => {
        calls.push(name);
        mcpReq.signal.addEventListener('abort', () => aborted.push(name));
        await gates.get(name);
        return { content: [{ type: 'text', text: `${name} done` }] };
      });
    }
    return server;
  });
  const onWarning = (): void => {};
  const onError = (): void => {};
  const gated = gateFetch(
    (request) => handler.fetch(request),
    [
      sessionStore({ key: principalKey(), store }),
      fsmGate(checkoutGate(), { onWarning, onError, ...options }),
    ],
    { auth: () => ALICE },
  );
  const run = runsOf(checkoutGate(), { store });
  return { gated, calls, aborted, gates, run: () => run.read(RUN) };
}

function requestOf(
  name: string,
  changes: Record<string, string> = {},
  signal?: AbortSignal,
): Request {
  const { headers, body } = stateless('tools/call', { name, arguments: {} }, { changes });
  return new Request('http://localhost/mcp', {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
    ...(signal !== undefined && { signal }),
  });
}

describe('a handler of the Fetch API in the stateless era', () => {
  it('is gated by principal', async () => {
    const { gated, calls } = serve();
    expect(await (await gated(requestOf('cart.pay'))).text()).toContain(
      'is not available while checkout',
    );
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
      expect(await (await gated(requestOf(tool))).text()).toContain(`${tool} done`);
    }
    expect(calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
  });

  it('refuses what the headers contradict', async () => {
    const { gated, calls } = serve();
    for (const changes of [{ 'mcp-name': 'cart.view' }, { 'mcp-protocol-version': '2025-11-25' }]) {
      const answer = await gated(requestOf('cart.add_item', changes));
      expect([answer.status, ((await answer.json()) as WireMessage).error.code]).toEqual([
        400, -32020,
      ]);
    }
    expect(calls).toEqual([]);
  });

  it('answers for a hidden tool as for one that is not there', async () => {
    const { gated } = serve({ visibility: 'hide', refusal: 'unknown-tool' });
    const [hidden, absent] = [
      await gated(requestOf('cart.pay')),
      await gated(requestOf('cart.gone')),
    ];
    expect(hidden.status).toBe(absent.status);
    const errorIn = async (answer: Response) => ((await answer.json()) as WireMessage).error;
    expect(await errorIn(hidden)).toEqual(
      JSON.parse(JSON.stringify(await errorIn(absent)).replaceAll('cart.gone', 'cart.pay')),
    );
  });

  it('is told that its client left, and the outcome is unknown', async () => {
    const { gated, calls, aborted, gates, run } = serve();
    const working = latch();
    gates.set('cart.add_item', working.opened);
    const leaving = new AbortController();
    const answer = Promise.resolve(gated(requestOf('cart.add_item', {}, leaving.signal))).catch(
      () => {},
    );
    await expect.poll(() => calls.length).toBe(1);
    leaving.abort();
    await expect.poll(() => aborted).toEqual(['cart.add_item']);
    working.open();
    await answer;
    expect(await run()).toMatchObject({
      snapshot: { state: 'empty' },
      status: 'running',
      claim: { tool: 'cart.add_item' },
    });
  });
});
