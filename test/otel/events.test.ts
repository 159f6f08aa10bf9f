import diagnosticsChannel from 'node:diagnostics_channel';
import { context, metrics, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };
import {
  EVENT_CHANNEL,
  type EventDraft,
  Events,
  type InterlockEvent,
  runDigest,
} from '../../src/basics/events.ts';
import { instrument } from '../../src/otel/index.ts';
import { Page } from '../helpers/markdown.ts';
import { observe, remoteTrace } from '../helpers/telemetry.ts';
import { freePort } from '../services/ports.ts';

const page = new Page('docs/operate/operations.md');

/** A session's id, which no span and no metric may have. */
const SECRET = 'session-7c1d2c4e';

const RUN = { workflow: 'checkout', runKey: SECRET } as const;
const CALL = { ...RUN, tool: 'cart.pay', state: 'payment', requestId: 7, call: 1 } as const;
const { call: _, ...HELD } = CALL;
const STEP = { ...CALL, durationMs: 300, storeMs: 4, isLate: false } as const;

/** Publishes as a gate does. */
function tell(...drafts: readonly EventDraft[]): void {
  const events = new Events({});
  for (const draft of drafts) events.publish(draft);
}

function starts(call = 1, more: { readonly trace?: object; readonly tool?: string } = {}): void {
  const started = { call, tool: 'cart.pay', requestId: 7, inSession: true } as const;
  tell({ type: 'call.started', ...started, protocolVersion: '2025-11-25', ...more });
}

function ends(end: Partial<Extract<InterlockEvent, { type: 'call.ended' }>> = {}): void {
  const ended = {
    call: 1,
    tool: 'cart.pay',
    requestId: 7,
    outcome: 'ok',
    durationMs: 250,
  } as const;
  tell({ type: 'call.ended', ...ended, ...end } as EventDraft);
}

const LIST = { request: 9, method: 'tools/list', requestId: 3 } as const;

function lists(ended: object = {}): void {
  tell({ type: 'request.started', ...LIST, inSession: true, protocolVersion: '2025-11-25' });
  const end = { outcome: 'ok', shown: 4, durationMs: 30, ...ended } as const;
  tell({ type: 'request.ended', ...LIST, ...end });
}

/** Each event that becomes telemetry, with all its optional members. */
function tellAll(): void {
  starts();
  tell(
    { type: 'call.waited', ...CALL, waitedMs: 20, granted: true },
    { type: 'step.started', ...CALL, waitedMs: 20 },
    { type: 'step.committed', ...STEP, outcome: 'succeeded', event: 'PAY', to: 'confirmed' },
    { type: 'run.begun', ...RUN, state: 'empty' },
    { type: 'run.moved', ...RUN, from: 'payment', to: 'confirmed', event: 'PAY' },
    { type: 'run.ended', ...RUN, cause: 'final', state: 'confirmed' },
    { type: 'session.unknown', requests: 3, lost: 1, sinceMs: 10_000 },
  );
  ends();
  starts(2);
  tell({ type: 'call.refused', ...CALL, call: 2, reason: 'state' });
  tell({ type: 'call.refused', ...CALL, call: 2, reason: 'state', enforced: false });
  ends({ call: 2, outcome: 'refused', reason: 'state' });
  starts(3);
  ends({ call: 3, outcome: 'rpc_error', code: -32603 });
  tell(
    { type: 'step.failed', ...STEP, call: 3, kind: 'tool_error' },
    { type: 'step.released', ...STEP, call: 3, why: 'not_run' },
    { type: 'step.unknown', ...STEP, call: 3, why: '', isHeld: true, idempotencyKey: 'key' },
    { type: 'step.unrecorded', ...STEP, call: 3, why: '', isHeld: false, idempotencyKey: 'key' },
    { type: 'step.held', ...HELD, idempotencyKey: 'key' },
    { type: 'run.resolved', ...RUN, tool: 'cart.pay', outcome: 'succeeded', state: 'confirmed' },
    { type: 'store.slow', operation: 'commit', durationMs: 1_200 },
    { type: 'store.failed', operation: 'commit', durationMs: 2_000, error: new Error('down') },
    { type: 'error', error: new Error('out of words') },
  );
  lists();
}

const runs = {
  workflow: 'checkout',
  count: async () => ({
    states: [{ state: 'payment', runs: 3 }],
    held: 1,
    running: 2,
    unreadable: 4,
  }),
};

/** The same of sessions with a bus. */
const runsWithBus = (hearsBus: boolean) => ({ ...runs, hearsBus });

describe('the tables of the documentation', () => {
  it('name exactly the attributes that spans have', () => {
    const seen = observe();
    tellAll();
    const keys = seen.spans.flatMap(({ attributes }) => Object.keys(attributes));
    expect([...new Set(keys)].sort()).toEqual(
      page
        .tableAfter('### Spans')
        .map(([name]) => name)
        .sort(),
    );
  });

  it('name exactly the metrics, with their kinds, units and attributes', async () => {
    const seen = observe({ runs: [runsWithBus(true)] });
    tellAll();
    const found = (await seen.metrics()).map(({ name, kind, unit, points }) => {
      const keys = points.flatMap(({ attributes }) => Object.keys(attributes));
      return [name, kind, unit, [...new Set(keys)].sort().join()];
    });
    const told = page.tableAfter('### Metrics').map(([name, kind, unit, attributes = '']) => {
      const keys = [...`\`${attributes}\``.matchAll(/[\w.]+/g)].map(([key]) => key);
      return [name, kind, unit, keys.sort().join()];
    });
    expect(found.sort()).toEqual(told.sort());
  });
});

describe('what Prometheus scrapes', () => {
  /** The metrics of a real scrape: their kinds and labels by name. */
  async function scrape(): Promise<Map<string, { kind: string; labels: Set<string> }>> {
    const port = await freePort();
    const exporter = new PrometheusExporter({ port, host: '127.0.0.1' });
    const meterProvider = new MeterProvider({ readers: [exporter] });
    onTestFinished(() => meterProvider.shutdown());
    observe({ meterProvider, runs: [runsWithBus(true)] });
    tellAll();
    const url = `http://127.0.0.1:${port}/metrics`;
    await expect
      .poll(() =>
        fetch(url).then(
          ({ ok }) => ok,
          () => false,
        ),
      )
      .toBe(true);
    const text = await (await fetch(url)).text();
    const found = new Map<string, { kind: string; labels: Set<string> }>();
    for (const [, name = '', kind = ''] of text.matchAll(/^# TYPE (\w+) (\w+)$/gm))
      if (name !== 'target_info') found.set(name, { kind, labels: new Set() });
    for (const [, series = '', labels = ''] of text.matchAll(/^(\w+)\{(.*)\} /gm)) {
      const known = found.get(series) ?? found.get(series.replace(/_(bucket|sum|count)$/, ''));
      for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known?.labels.add(label);
    }
    return found;
  }

  it('has the names that the table gives, for each metric', async () => {
    const scraped = [...(await scrape())].map(([name, { kind }]) => [name, kind]);
    const table = page.tableAfter('### In the words of Prometheus');
    expect(table.map(([, name, kind]) => [name, kind]).sort()).toEqual(scraped.sort());
    const ours = page.tableAfter('### Metrics').map(([name]) => name);
    expect(table.map(([name]) => name)).toEqual(ours);
  });

  it('has the metrics and labels that the alert rules ask for', async () => {
    const scraped = await scrape();
    const [rules = ''] = page.blocks('yaml');
    const asked = rules.split('- alert:').slice(1);
    expect(asked).toHaveLength(3);
    for (const rule of asked) {
      const names = rule.match(/\b(?:mcp_interlock|gen_ai)_\w+/g) ?? [];
      const metrics = names.filter((name) => scraped.has(name));
      expect(metrics).not.toEqual([]);
      const labels = metrics.flatMap((name) => [...(scraped.get(name)?.labels ?? [])]);
      expect([...metrics, ...labels]).toEqual(expect.arrayContaining(names));
    }
  });
});

describe('a span', () => {
  it('tells what came of a step, and names its run by a digest', () => {
    const seen = observe();
    tellAll();
    const [paid] = seen.spans;
    expect(paid).toMatchObject({ name: 'tools/call cart.pay', kind: SpanKind.SERVER });
    expect(paid?.status.code).toBe(SpanStatusCode.UNSET);
    expect(paid?.attributes).toEqual({
      'mcp.method.name': 'tools/call',
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'cart.pay',
      'jsonrpc.request.id': '7',
      'mcp.protocol.version': '2025-11-25',
      'network.protocol.name': 'http',
      'mcp_interlock.workflow': 'checkout',
      'mcp_interlock.run': runDigest(SECRET),
      'mcp_interlock.state': 'payment',
      'mcp_interlock.state.to': 'confirmed',
      'mcp_interlock.outcome': 'succeeded',
    });
  });

  it('and a metric hold no run key, unless `runKeys` asks for it', async () => {
    const seen = observe();
    tellAll();
    expect(await seen.text()).not.toContain(SECRET);
    seen.disable();
    const open = observe({ runKeys: true });
    tellAll();
    expect(open.spans[0]?.attributes['mcp_interlock.run']).toBe(SECRET);
  });

  it.each([
    ['ok', undefined, undefined, undefined],
    ['tool_error', undefined, 'tool_error', undefined],
    ['refused', undefined, undefined, 'refused'],
    ['unknown', undefined, 'tool_error', 'unknown'],
    ['unanswered', undefined, undefined, 'unanswered'],
    ['rpc_error', -32603, '-32603', undefined],
    ['rpc_error', -32000, '-32000', undefined],
    ['rpc_error', -32602, undefined, undefined],
  ] as const)('of a call that ended as %s (%s) has the error %s', (outcome, code, error, own) => {
    const seen = observe();
    starts();
    ends({ outcome, code });
    const [span] = seen.spans;
    expect(span?.attributes['error.type']).toBe(error);
    expect(span?.attributes['mcp_interlock.outcome']).toBe(own);
    expect(span?.attributes['rpc.response.status_code']).toBe(code?.toString());
    const status = error === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR;
    expect(span?.status.code).toBe(status);
  });

  it('of a list says how much it showed, and has no word of tools', async () => {
    const seen = observe();
    lists();
    const [span] = seen.spans;
    expect(span).toMatchObject({ name: 'tools/list', kind: SpanKind.SERVER });
    const attributes = {
      'mcp.method.name': 'tools/list',
      'mcp.protocol.version': '2025-11-25',
      'network.protocol.name': 'http',
    };
    expect(span?.attributes).toEqual({
      ...attributes,
      'jsonrpc.request.id': '3',
      'mcp_interlock.list.shown': 4,
    });
    expect(await seen.values('mcp.server.operation.duration')).toEqual([{ attributes, value: 1 }]);
    lists({ outcome: 'rpc_error', code: -32603, shown: undefined });
    expect(seen.spans[1]?.attributes).toMatchObject({ 'error.type': '-32603' });
    expect(seen.spans[1]?.status.code).toBe(SpanStatusCode.ERROR);
  });

  it('is a child of the caller’s span, and links to the active one', () => {
    const seen = observe();
    const http = trace.getTracer('http').startSpan('POST /mcp');
    const remote = remoteTrace();
    context.with(trace.setSpan(context.active(), http), () => {
      starts(1, { trace: remote.meta });
      starts(2);
    });
    ends();
    ends({ call: 2 });
    const [called, alone] = seen.spans;
    expect(called?.spanContext().traceId).toBe(remote.context.traceId);
    expect(called?.parentSpanContext).toMatchObject(remote.context);
    expect(called?.links.map((link) => link.context)).toEqual([http.spanContext()]);
    expect(alone?.parentSpanContext?.spanId).toBe(http.spanContext().spanId);
    expect(alone?.links).toEqual([]);
    http.end();
  });

  it('is about the gate that refused a call, where another had claimed it', () => {
    const seen = observe();
    starts();
    tell(
      { type: 'step.started', ...CALL, waitedMs: 0 },
      { type: 'call.refused', ...CALL, workflow: 'stock', state: 'sold_out', reason: 'state' },
      { type: 'step.released', ...STEP, why: 'withdrawn' },
    );
    ends({ outcome: 'refused' });
    expect(seen.spans[0]?.attributes).toMatchObject({
      'mcp_interlock.workflow': 'stock',
      'mcp_interlock.state': 'sold_out',
      'mcp_interlock.outcome': 'refused',
      'mcp_interlock.refusal.reason': 'state',
    });
  });

  it('ends with the instrumentation, where its call goes on', () => {
    const seen = observe();
    starts();
    expect(seen.open).toBe(1);
    seen.disable();
    expect(seen.open).toBe(0);
  });
});

describe('metrics', () => {
  it('have the buckets of the conventions, and seconds', async () => {
    const seen = observe();
    tellAll();
    const all = await seen.metrics();
    const duration = all.find(({ name }) => name === 'mcp.server.operation.duration');
    const bounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300];
    expect(duration).toMatchObject({ unit: 's', bounds });
    expect(duration?.points[0]?.value).toMatchObject({ max: 0.25 });
  });

  it('count an outcome that came late with its first one', async () => {
    const seen = observe();
    const late = { ...STEP, isLate: true } as const;
    tell(
      { type: 'step.unknown', ...STEP, why: '', isHeld: true, idempotencyKey: 'key' },
      { type: 'step.committed', ...late, outcome: 'succeeded', event: 'PAY', to: 'confirmed' },
    );
    const steps = await seen.values('mcp_interlock.step.duration');
    expect(steps.map(({ value }) => value)).toEqual([1]);
  });

  it('get no series for a name that only a client has made up', async () => {
    const seen = observe();
    for (let call = 1; call <= 50; call++) {
      const tool = `made.up.${call}`;
      starts(call, { tool });
      ends({ call, tool, outcome: 'rpc_error', code: -32602 });
    }
    const operations = await seen.values('mcp.server.operation.duration');
    expect(operations.map(({ value }) => value)).toEqual([50]);
    expect(new Set(seen.spans.map(({ name }) => name))).toEqual(new Set(['tools/call']));
  });

  it('count the runs of the store, until the instrumentation is disabled', async () => {
    const count = vi.fn(runs.count);
    const seen = observe({ runs: [{ ...runs, count }] });
    const attributes = { 'mcp_interlock.workflow': 'checkout' };
    expect(await seen.values('mcp_interlock.run.held')).toEqual([{ attributes, value: 1 }]);
    expect(await seen.values('mcp_interlock.run.unfinished')).toEqual([
      { attributes: { ...attributes, 'mcp_interlock.state': 'payment' }, value: 3 },
    ]);
    expect(await seen.values('mcp_interlock.run.unreadable')).toEqual([{ attributes, value: 4 }]);
    expect(await seen.values('mcp_interlock.bus.deaf')).toEqual([]);
    seen.disable();
    await seen.metrics();
    expect(count).toHaveBeenCalledTimes(4);
  });

  it.each([
    [[true, true], 0],
    [[true, false], 1],
  ])('say whether a bus is not heard, also where the store is down: %j', async (hear, value) => {
    const count = () => Promise.reject(new Error('down'));
    const seen = observe({ runs: hear.map((each) => ({ ...runsWithBus(each), count })) });
    expect(await seen.values('mcp_interlock.bus.deaf')).toEqual([{ attributes: {}, value }]);
  });

  it('count errors by their code or else their name, of which few become series', async () => {
    const seen = observe();
    const refused = Object.assign(new Error('no'), { code: 'ECONNREFUSED' });
    tell(
      { type: 'error', error: refused },
      { type: 'error', error: refused },
      { type: 'error', error: new TypeError('undefined is no function') },
      { type: 'error', error: 'a text' },
    );
    expect(await seen.values('mcp_interlock.error')).toEqual([
      { attributes: { 'error.type': 'ECONNREFUSED' }, value: 2 },
      { attributes: { 'error.type': 'TypeError' }, value: 1 },
      { attributes: { 'error.type': '_OTHER' }, value: 1 },
    ]);
    for (let at = 0; at < 500; at++)
      tell({ type: 'error', error: Object.assign(new Error(''), { code: `E${at}` }) });
    expect((await seen.values('mcp_interlock.error')).length).toBeLessThanOrEqual(101);
  });
});

describe('instrument()', () => {
  it('gives spans and metrics the version of the package', () => {
    const getTracer = vi.fn();
    const getMeter = vi.fn(() => metrics.getMeterProvider().getMeter(''));
    instrument({ tracerProvider: { getTracer }, meterProvider: { getMeter } }).disable();
    expect(getTracer).toHaveBeenCalledWith('mcp-interlock', manifest.version);
    expect(getMeter).toHaveBeenCalledWith('mcp-interlock', manifest.version);
  });

  it('throws where it was called before and not disabled', () => {
    const { disable } = observe();
    expect(() => instrument()).toThrow(/called before .*ERR_INTERLOCK_CONFIG/s);
    disable();
    instrument().disable();
  });

  it('names wrong options', () => {
    expect(() => instrument({ runKey: true } as never)).toThrow('runKeys');
    expect(() => instrument({ runs: [{}] } as never)).toThrow('expected what runsOf() returns');
    expect(() => instrument({ tracerProvider: {} } as never)).toThrow('expected a tracer provider');
  });

  it('does no harm where a provider throws, or an event is of another version', () => {
    const tracerProvider = { getTracer: () => ({ startSpan: fail }) };
    const { disable } = instrument({ tracerProvider: tracerProvider as never });
    starts();
    ends();
    diagnosticsChannel.channel(EVENT_CHANNEL).publish({ type: 'of.tomorrow' });
    disable();
    expect(new Events({}).isOn).toBe(false);
  });
});

function fail(): never {
  throw new Error('no span');
}
