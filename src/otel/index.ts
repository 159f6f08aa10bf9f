/**
 * `mcp-interlock/otel`: OpenTelemetry for every gate of a process, as a view of the event stream.
 * Hides how it listens, and that it does so once.
 */
import diagnosticsChannel from 'node:diagnostics_channel';
import {
  type BatchObservableResult,
  diag,
  type Meter,
  type MeterProvider,
  metrics,
  type ObservableResult,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import * as z from 'zod/mini';
import { configError } from '../basics/errors.ts';
import { EVENT_CHANNEL, type InterlockEvent } from '../basics/events.ts';
import { flagOption, lazyOptions, parseOptions } from '../basics/options.ts';
import { OWN, Telemetry } from './telemetry.ts';

/** What `runsOf()` returns, as far as its runs are counted. */
export interface CountedRuns {
  /** The gate's id. */
  readonly workflow: string;
  /** Whether this process receives from its bus; `undefined` where it has none. */
  readonly hearsBus?: boolean | undefined;
  count(): Promise<{
    readonly states: readonly { readonly state: string; readonly runs: number }[];
    readonly held: number;
    readonly running: number;
    readonly unreadable: number;
  }>;
}

/** Options of {@link instrument}. */
export interface InstrumentOptions {
  /** Makes the spans. Default: the one that the app has registered. */
  tracerProvider?: TracerProvider | undefined;
  /** Makes the metrics. Default: the one that the app has registered before. */
  meterProvider?: MeterProvider | undefined;
  /**
   * Whether spans name a run by its key. The key of a session is a credential: a reader of the span
   * can act as the client. Default `false`: the first 16 hex digits of its SHA-256 digest.
   */
  runKeys?: boolean | undefined;
  /**
   * What `runsOf()` returned for the workflows whose runs to count, each time that metrics are
   * collected. It counts runs that have not ended, held and unreadable runs, and running steps.
   * Their stores need an index. With `runsOf(gate, { sessions })` a metric also says whether the
   * bus receives. Default: none.
   */
  runs?: readonly CountedRuns[] | undefined;
}

/** What {@link instrument} returns. */
export interface Instrumentation {
  /** Ends every open span, and takes no more events. May be called again. */
  disable(): void;
}

const SCOPE = 'mcp-interlock';
/** Of the package, whose metrics and spans it names. A test compares it with package.json. */
const SCOPE_VERSION = '0.1.0';

const optionsSchema = lazyOptions(() => ({
  tracerProvider: z.optional(
    z.custom<TracerProvider>(
      (value) => typeof (value as TracerProvider | null)?.getTracer === 'function',
      'expected a tracer provider, with getTracer',
    ),
  ),
  meterProvider: z.optional(
    z.custom<MeterProvider>(
      (value) => typeof (value as MeterProvider | null)?.getMeter === 'function',
      'expected a meter provider, with getMeter',
    ),
  ),
  runKeys: flagOption(),
  runs: z._default(
    z.array(
      z.custom<CountedRuns>(
        (value) => typeof (value as CountedRuns | null)?.count === 'function',
        'expected what runsOf() returns',
      ),
    ),
    [],
  ),
}));

let current: Instrumentation | undefined;

/**
 * Makes a span of each `tools/call`, each `initialize` and each list that passes a gate of this
 * process, and metrics of what the gates decide. The app mounts its middlewares as before. Call it
 * once the app's OpenTelemetry SDK has started: the API has no meter before.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, also where it was called before and not disabled
 */
export function instrument(options?: InstrumentOptions): Instrumentation {
  const config = parseOptions('instrument()', optionsSchema, options);
  if (current !== undefined) {
    throw configError(
      'instrument() was called before in this process, and each call would be counted twice. ' +
        'Call disable() on what it returned first',
    );
  }
  const meter = (config.meterProvider ?? metrics.getMeterProvider()).getMeter(SCOPE, SCOPE_VERSION);
  const tracer = (config.tracerProvider ?? trace.getTracerProvider()).getTracer(
    SCOPE,
    SCOPE_VERSION,
  );
  const stopCounting = countRuns(meter, config.runs);
  const telemetry = new Telemetry(tracer, meter, config.runKeys);
  const listener = (event: unknown): void => {
    // What a listener of a channel throws would end the process.
    try {
      telemetry.take(event as InterlockEvent);
    } catch (error) {
      diag.error('mcp-interlock/otel: an event became no telemetry', error);
    }
  };
  diagnosticsChannel.subscribe(EVENT_CHANNEL, listener);
  const instrumentation: Instrumentation = {
    disable() {
      if (current !== instrumentation) return;
      current = undefined;
      diagnosticsChannel.unsubscribe(EVENT_CHANNEL, listener);
      stopCounting();
      telemetry.end();
    },
  };
  current = instrumentation;
  return instrumentation;
}

/** Counts runs at each collection, with one `count()` for each workflow. Returns what ends it. */
export function countRuns(meter: Meter, counted: readonly CountedRuns[]): () => void {
  if (counted.length === 0) return () => {};
  const gauge = (name: string, unit: string, description: string) =>
    meter.createObservableGauge(name, { unit, description });
  const unfinished = gauge('mcp_interlock.run.unfinished', '{run}', 'Runs that have not ended.');
  const held = gauge('mcp_interlock.run.held', '{run}', 'Runs that wait to be resolved.');
  const running = gauge('mcp_interlock.step.running', '{step}', 'Steps that are under way.');
  const unreadable = gauge(
    'mcp_interlock.run.unreadable',
    '{run}',
    'Runs that this deployment cannot read.',
  );
  const observed = [unfinished, held, running, unreadable];
  const counts = counted.map((runs) => async (result: BatchObservableResult): Promise<void> => {
    const now = await runs.count();
    const attributes = { [OWN.workflow]: runs.workflow };
    result.observe(held, now.held, attributes);
    result.observe(running, now.running, attributes);
    result.observe(unreadable, now.unreadable, attributes);
    for (const { state, runs: many } of now.states)
      result.observe(unfinished, many, { ...attributes, [OWN.state]: state });
  });
  for (const count of counts) meter.addBatchObservableCallback(count, observed);
  // Asked apart from the store, which may be down with the bus.
  const deaf = gauge('mcp_interlock.bus.deaf', '1', '1 while the bus receives nothing, else 0.');
  const listen = (result: ObservableResult): void => {
    const receives = counted.flatMap((runs) => runs.hearsBus ?? []);
    if (receives.length > 0) result.observe(receives.includes(false) ? 1 : 0);
  };
  deaf.addCallback(listen);
  return () => {
    for (const count of counts) meter.removeBatchObservableCallback(count, observed);
    deaf.removeCallback(listen);
  };
}
