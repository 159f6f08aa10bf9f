import { SpanKind, SpanStatusCode } from '@opentelemetry/api';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import { principalKey, runDigest } from '../../src/index.ts';
import { callOf } from '../helpers/raw.ts';
import { begins, pass, scene, sceneOfBothEras, settle } from '../helpers/scene.ts';
import { observe, remoteTrace } from '../helpers/telemetry.ts';
import { connectV2, PINNED } from '../helpers/two-eras.ts';

describe('over HTTP, a span', () => {
  it.each(['sse', 'json'] as const)('of a step tells its outcome (%s)', async (answers) => {
    const seen = observe();
    const app = await scene({ shape: { answers } });
    const client = await app.client();
    await client.calls('cart.add_item');
    const span = await seen.spanOf('cart.add_item');
    expect(span).toMatchObject({ name: 'tools/call cart.add_item', kind: SpanKind.SERVER });
    expect(span.status.code).toBe(SpanStatusCode.UNSET);
    expect(span.attributes).toMatchObject({
      'mcp.method.name': 'tools/call',
      'mcp.protocol.version': '2025-11-25',
      'mcp_interlock.workflow': 'checkout',
      'mcp_interlock.run': runDigest(client.run),
      'mcp_interlock.state': 'empty',
      'mcp_interlock.state.to': 'has_items',
      'mcp_interlock.outcome': 'succeeded',
    });
    expect(await seen.text()).not.toContain(client.run);
    expect(seen.open).toBe(0);
  });

  it('of a handshake, of a list and of a call tell what their clients saw', async () => {
    const seen = observe();
    const app = await scene();
    const client = await app.client();
    const remote = remoteTrace();
    await client.raw.client.listTools({ _meta: { ...remote.meta } });
    await client.calls('cart.add_item');
    await client.raw.tools();
    await expect.poll(() => seen.open).toBe(0);
    expect(seen.spans.map(({ name, kind }) => [name, kind])).toEqual(
      ['initialize', 'tools/list', 'tools/call cart.add_item', 'tools/list'].map((name) => [
        ...[name, SpanKind.SERVER],
      ]),
    );
    const [shaken, listed, , again] = seen.spans;
    expect(shaken?.attributes).toEqual({
      'mcp.method.name': 'initialize',
      'mcp.protocol.version': '2025-11-25',
      'jsonrpc.request.id': '0',
      'network.protocol.name': 'http',
    });
    expect(listed?.parentSpanContext).toMatchObject(remote.context);
    expect(listed?.attributes['mcp_interlock.list.shown']).toBe(2);
    expect(again?.attributes['mcp_interlock.list.shown']).toBe(3);
    const durations = await seen.values('mcp.server.operation.duration');
    const methods = durations.map(({ attributes }) => attributes['mcp.method.name']);
    expect(methods.sort()).toEqual(['initialize', 'tools/call', 'tools/list']);
    expect(await seen.text()).not.toContain(client.run);
  });

  it('of a list in the stateless era is the same', async () => {
    const seen = observe();
    const app = await sceneOfBothEras({ session: { key: principalKey() } });
    const client = await connectV2(app.url, 'alice', PINNED);
    await client.listTools();
    await client.close();
    const lists = seen.spans.filter(({ name }) => name === 'tools/list');
    expect(lists.map(({ attributes }) => attributes)).toEqual([
      expect.objectContaining({
        'mcp.protocol.version': '2026-07-28',
        'mcp_interlock.list.shown': 4,
      }),
    ]);
    expect(seen.open).toBe(0);
  });

  it('of a failed call, an ungated one and a refused one', async () => {
    const seen = observe();
    const client = await (await scene()).client();
    await client.raw.call('cart.add_item', { fail: true });
    await client.calls('cart.view');
    await client.isRefused('cart.pay', 'state');
    expect((await seen.spanOf('cart.add_item')).attributes).toMatchObject({
      'error.type': 'tool_error',
      'mcp_interlock.outcome': 'failed',
    });
    const viewed = await seen.spanOf('cart.view');
    expect(viewed).toMatchObject({ name: 'tools/call cart.view' });
    expect(Object.keys(viewed.attributes).filter((key) => key.startsWith('mcp_'))).toEqual([]);
    const pay = await seen.spanOf('cart.pay');
    expect(pay.status).toEqual({ code: SpanStatusCode.UNSET });
    expect(pay.attributes).not.toHaveProperty('error.type');
    expect(pay.attributes).toMatchObject({
      'mcp_interlock.outcome': 'refused',
      'mcp_interlock.refusal.reason': 'state',
      'mcp_interlock.state': 'empty',
    });
    const refused = await seen.values('mcp_interlock.call.refused');
    expect(refused.map(({ value }) => value)).toEqual([1]);
    expect(seen.open).toBe(0);
  });

  it('of a JSON-RPC error has its code', async () => {
    const seen = observe();
    const app = await scene({
      behind: [
        (req, res, next) => {
          if (req.body?.method !== 'tools/call') return next();
          const error = { code: -32603, message: 'Internal error' };
          res.json({ jsonrpc: '2.0', id: req.body.id, error });
        },
      ],
      shape: { parser: true },
    });
    const session = await app.session();
    await session.call('cart.add_item');
    const span = await seen.spanOf('cart.add_item');
    expect(span.attributes).toMatchObject({
      'error.type': '-32603',
      'rpc.response.status_code': '-32603',
      'mcp_interlock.outcome': 'failed',
    });
    expect(span.status).toEqual({ code: SpanStatusCode.ERROR });
  });

  it('of a step that took too long says that its outcome is unknown', async () => {
    const seen = observe();
    const app = await scene({ gate: { maxStepMs: 20_000 } });
    const client = await app.client();
    const held = await begins(app, 'cart.add_item', () => client.raw.call('cart.add_item'));
    await pass(app.clock, 21_000);
    await held.answer;
    const span = await seen.spanOf('cart.add_item');
    expect(span.attributes).toMatchObject({
      'error.type': 'tool_error',
      'mcp_interlock.outcome': 'unknown',
    });
    held.finish();
    const unknown = await seen.values('mcp_interlock.step.unknown');
    expect(unknown.map(({ value }) => value)).toEqual([1]);
    expect(seen.open).toBe(0);
  });

  it.each(['sse', 'json'] as const)(
    'of a step says so where the upstream hangs up (%s)',
    async (answers) => {
      const seen = observe();
      const hangsUp: RequestHandler = (req, res, next) => {
        if (req.body?.method !== 'tools/call') return next();
        res.type(answers === 'sse' ? 'text/event-stream' : 'application/json').end();
      };
      const app = await scene({ behind: [hangsUp], shape: { answers, parser: true } });
      const session = await app.session();
      await session.call('cart.add_item');
      const span = await seen.spanOf('cart.add_item');
      expect(span.attributes).toMatchObject({
        'error.type': 'tool_error',
        'mcp_interlock.outcome': 'unknown',
      });
      expect(seen.open).toBe(0);
    },
  );

  it('is there for each call of a batch', async () => {
    const seen = observe();
    const app = await scene();
    const session = await app.session();
    await session.post([callOf(1, 'cart.add_item'), callOf(2, 'cart.view'), callOf(3, 'cart.pay')]);
    await expect.poll(() => seen.open).toBe(0);
    const calls = seen.spans.filter(({ name }) => name.startsWith('tools/call'));
    const ids = calls.map(({ attributes }) => attributes['jsonrpc.request.id']);
    expect(ids.sort()).toEqual(['1', '2', '3']);
  });

  it('is a child of the caller’s, whom _meta names', async () => {
    const seen = observe();
    const session = await (await scene()).session();
    const remote = remoteTrace();
    await session.ask('tools/call', { name: 'cart.add_item', arguments: {}, _meta: remote.meta });
    const span = await seen.spanOf('cart.add_item');
    expect(span.parentSpanContext).toMatchObject(remote.context);
    expect(span.spanContext().traceId).toBe(remote.context.traceId);
  });

  it('of the stateless era has its version and no key of the run', async () => {
    const seen = observe();
    const app = await sceneOfBothEras({ session: { key: principalKey() } });
    const client = await connectV2(app.url, 'alice', PINNED);
    await client.callTool({ name: 'cart.add_item', arguments: {} });
    await client.close();
    const span = await seen.spanOf('cart.add_item');
    expect(span.attributes).toMatchObject({
      'mcp.protocol.version': '2026-07-28',
      'mcp_interlock.outcome': 'succeeded',
    });
    expect(await seen.text()).not.toContain('alice');
  });

  it('of a call whose client left ends once the upstream has answered', async () => {
    const seen = observe();
    const app = await scene();
    const session = await app.session();
    const held = await begins(app, 'cart.add_item', () =>
      session.stream(callOf(1, 'cart.add_item')),
    );
    (await held.answer).cut();
    await settle();
    held.finish();
    expect((await seen.spanOf('cart.add_item')).attributes).toMatchObject({
      'mcp_interlock.state.to': 'has_items',
    });
    expect(seen.open).toBe(0);
  });

  it('ends where the process drains and its connections end', async () => {
    const seen = observe();
    const app = await scene();
    const session = await app.session();
    const held = await begins(app, 'cart.view', () => session.stream(callOf(1, 'cart.view')));
    await app.sessions.close();
    (await held.answer).cut();
    await expect.poll(() => seen.open).toBe(0);
    expect((await seen.spanOf('cart.view')).attributes['mcp_interlock.outcome']).toBe('unanswered');
    held.finish();
  });

  it('is kept apart from those of another app in the same process', async () => {
    const seen = observe();
    const [one, other] = [await scene(), await scene()];
    const [first, second] = [await one.session(), await other.session()];
    const held = await begins(one, 'cart.add_item', () => first.call('cart.add_item'));
    await second.call('cart.view');
    held.finish();
    await held.answer;
    const isCall = ({ name }: { readonly name: string }) => name.startsWith('tools/call');
    await expect.poll(() => seen.spans.filter(isCall).length).toBe(2);
    expect((await seen.spanOf('cart.view')).attributes).not.toHaveProperty('mcp_interlock.run');
    expect((await seen.spanOf('cart.add_item')).attributes['mcp_interlock.run']).toBe(
      runDigest(first.id),
    );
    expect(seen.open).toBe(0);
  });
});
