import { metrics } from '@opentelemetry/api';
import {
  ConsoleMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  ConsoleSpanExporter,
  NodeTracerProvider,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-node';
import { instrument } from 'mcp-interlock/otel';
import type { Runs } from 'mcp-interlock/runs';

/**
 * Writes spans and metrics to the console. Change the two exporters, and nothing else, for OTLP.
 */
export function startTelemetry(runs: readonly Runs[]): { stop(): Promise<void> } {
  const tracers = new NodeTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(new ConsoleSpanExporter())],
  });
  tracers.register();
  const reader = new PeriodicExportingMetricReader({ exporter: new ConsoleMetricExporter() });
  const meters = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(meters);
  const telemetry = instrument({ runs });
  return {
    async stop() {
      telemetry.disable();
      await Promise.all([tracers.shutdown(), meters.shutdown()]);
    },
  };
}
