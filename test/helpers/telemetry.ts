import { type Attributes, context, propagation, type SpanContext, trace } from '@opentelemetry/api';
import {
  type DataPoint,
  DataPointType,
  type Histogram,
  MeterProvider,
  MetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-node';
import { expect, onTestFinished } from 'vitest';
import { type InstrumentOptions, instrument } from '../../src/otel/index.ts';

const KINDS: Readonly<Record<string, string>> = {
  HISTOGRAM: 'histogram',
  SUM: 'counter',
  GAUGE: 'gauge',
};

class Reader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

/** A metric in an export. */
export interface SeenMetric {
  readonly name: string;
  readonly unit: string;
  readonly kind: string;
  /** The bounds of a histogram's buckets. */
  readonly bounds: readonly number[];
  readonly points: readonly DataPoint<number | Histogram>[];
}

/** An app's OpenTelemetry SDK, with its own providers, propagator and context. */
export interface SeenTelemetry {
  /** Those that have ended, oldest first. */
  readonly spans: ReadableSpan[];
  /** How many spans have begun and not ended. */
  readonly open: number;
  /** The span of the only call of that tool, once it has ended. */
  spanOf(tool: string): Promise<ReadableSpan>;
  metrics(): Promise<SeenMetric[]>;
  /** A metric's values by its attributes: a number, or the count of a histogram. */
  values(name: string): Promise<{ readonly attributes: Attributes; readonly value: number }[]>;
  /** All exports as text. */
  text(): Promise<string>;
  readonly tracerProvider: NodeTracerProvider;
  disable(): void;
}

/** Traces and measures the gates of this process until the test ends. */
export function observe(options: InstrumentOptions = {}): SeenTelemetry {
  const exporter = new InMemorySpanExporter();
  let open = 0;
  const counting: SpanProcessor = {
    onStart() {
      open += 1;
    },
    onEnd() {
      open -= 1;
    },
    forceFlush: async () => {},
    shutdown: async () => {},
  };
  const tracerProvider = new NodeTracerProvider({
    spanProcessors: [counting, new SimpleSpanProcessor(exporter)],
  });
  const reader = new Reader();
  const meterProvider = new MeterProvider({ readers: [reader] });
  tracerProvider.register();
  const instrumentation = instrument({ meterProvider, ...options });
  const disable = (): void => {
    instrumentation.disable();
    trace.disable();
    context.disable();
    propagation.disable();
  };
  onTestFinished(async () => {
    disable();
    await Promise.all([tracerProvider.shutdown(), meterProvider.shutdown()]);
  });
  const collect = async (): Promise<SeenMetric[]> => {
    const { resourceMetrics } = await reader.collect();
    const all = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
    return all.map(({ descriptor: { name, unit }, dataPointType, dataPoints }) => ({
      name,
      unit,
      kind: KINDS[DataPointType[dataPointType]] ?? '',
      bounds: boundsOf(dataPoints[0]?.value),
      points: dataPoints as DataPoint<number | Histogram>[],
    }));
  };
  return {
    tracerProvider,
    disable,
    metrics: collect,
    get spans() {
      return exporter.getFinishedSpans();
    },
    get open() {
      return open;
    },
    async spanOf(tool) {
      const found = () =>
        exporter.getFinishedSpans().filter((span) => span.attributes['gen_ai.tool.name'] === tool);
      await expect.poll(() => found().length).toBe(1);
      return found()[0] as ReadableSpan;
    },
    async values(name) {
      const metric = (await collect()).find((each) => each.name === name);
      return (metric?.points ?? []).map(({ attributes, value }) => ({
        attributes,
        value: typeof value === 'number' ? value : value.count,
      }));
    },
    async text() {
      const spans = exporter
        .getFinishedSpans()
        .map(({ name, attributes, status, events, links }) => ({
          name,
          attributes,
          status,
          events,
          links,
        }));
      return JSON.stringify([spans, await collect()]);
    },
  };
}

/** A caller's trace, and the `_meta` that its client sends. */
export function remoteTrace(): { readonly context: SpanContext; readonly meta: object } {
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
  const spanId = '00f067aa0ba902b7';
  return {
    context: { traceId, spanId, traceFlags: 1, isRemote: true },
    meta: {
      traceparent: `00-${traceId}-${spanId}-01`,
      tracestate: 'rojo=00f067aa0ba902b7',
      baggage: 'userId=alice',
    },
  };
}

function boundsOf(value: unknown): readonly number[] {
  return (value as Partial<Histogram> | undefined)?.buckets?.boundaries ?? [];
}
