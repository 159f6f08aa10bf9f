/**
 * Turns events into spans and metrics. Hides which event becomes which attribute: the conventions
 * for MCP where they have a word, and `mcp_interlock.*` where they have none.
 */
import {
  type Attributes,
  type Context,
  context,
  isSpanContextValid,
  type Link,
  type Meter,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { InterlockEvent, ToolAnswer } from '../basics/events.ts';

/** The bounds that the conventions name, in seconds. Steps are faster, and need finer ones. */
const OPERATION_BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300];
const OWN_BOUNDS = [0.001, 0.002, 0.005, ...OPERATION_BOUNDS];

/** Attributes that have no word in the conventions. */
export const OWN = {
  workflow: 'mcp_interlock.workflow',
  run: 'mcp_interlock.run',
  state: 'mcp_interlock.state',
  stateTo: 'mcp_interlock.state.to',
  outcome: 'mcp_interlock.outcome',
  reason: 'mcp_interlock.refusal.reason',
  granted: 'mcp_interlock.wait.granted',
  operation: 'mcp_interlock.store.operation',
  runEnd: 'mcp_interlock.run.end',
  lost: 'mcp_interlock.session.lost',
  shown: 'mcp_interlock.list.shown',
} as const;

export type Instruments = ReturnType<typeof instrumentsOf>;

/** The metrics that come of events. */
function instrumentsOf(meter: Meter) {
  const duration = (name: string, bounds: number[], description: string) =>
    meter.createHistogram(name, {
      unit: 's',
      description,
      advice: { explicitBucketBoundaries: bounds },
    });
  const counter = (name: string, unit: string, description: string) =>
    meter.createCounter(name, { unit, description });
  return {
    operations: duration(
      'mcp.server.operation.duration',
      OPERATION_BOUNDS,
      'From when a request reached the first gate until its answer went out.',
    ),
    waits: duration(
      'mcp_interlock.call.wait.duration',
      OWN_BOUNDS,
      'How long calls waited for the turn of their run. Those that did not wait are left out.',
    ),
    steps: duration(
      'mcp_interlock.step.duration',
      OWN_BOUNDS,
      'From when the claim was asked for until the step had ended.',
    ),
    storeTimes: duration(
      'mcp_interlock.step.store.duration',
      OWN_BOUNDS,
      'How long a step waited for the store.',
    ),
    refused: counter('mcp_interlock.call.refused', '{call}', 'Calls that a gate refused.'),
    observed: counter(
      'mcp_interlock.call.would_refuse',
      '{call}',
      'Calls that ran, and that a gate which observes would have refused.',
    ),
    unknown: counter('mcp_interlock.step.unknown', '{step}', 'Steps whose outcome is unknown.'),
    unrecorded: counter(
      'mcp_interlock.step.unrecorded',
      '{step}',
      'Steps that ran, and whose outcome is not recorded.',
    ),
    held: counter(
      'mcp_interlock.step.held',
      '{step}',
      'Steps that a process left behind, which hold their runs; each once in each process.',
    ),
    begun: counter('mcp_interlock.run.begun', '{run}', 'Runs that began.'),
    moved: counter('mcp_interlock.run.moved', '{move}', 'Moves that were saved.'),
    ended: counter('mcp_interlock.run.ended', '{run}', 'Runs that came to their end.'),
    unknownSessions: counter(
      'mcp_interlock.session.unknown',
      '{request}',
      'Requests that named a session which the store does not know.',
    ),
    resolved: counter('mcp_interlock.run.resolved', '{run}', 'Runs that a person resolved.'),
    slow: counter('mcp_interlock.store.slow', '{operation}', 'Operations that took long.'),
    storeFailed: counter('mcp_interlock.store.failed', '{operation}', 'Operations that failed.'),
    errors: counter('mcp_interlock.error', '{error}', 'Errors that no other metric counts.'),
  };
}

type EventOf<Type extends InterlockEvent['type']> = Extract<
  InterlockEvent,
  { readonly type: Type }
>;

/** The end of a step. */
type StepEnd = EventOf<
  'step.committed' | 'step.failed' | 'step.released' | 'step.unknown' | 'step.unrecorded'
>;

const CALL = 'tools/call';

/** The attributes that the conventions give each request, and those of each call of a tool. */
const everyRequest = (method: string): Attributes => ({
  'mcp.method.name': method,
  'network.protocol.name': 'http',
});
const EVERY_CALL: Attributes = { ...everyRequest(CALL), 'gen_ai.operation.name': 'execute_tool' };

/** The value of `error.type` where no other has few values. */
const OTHER = '_OTHER';

const TOOL = 'gen_ai.tool.name';
const VERSION = 'mcp.protocol.version';

/** JSON-RPC codes for errors of the client, which a server "SHOULD NOT" count as its own. */
const CLIENT_FAULTS: readonly number[] = [-32700, -32600, -32601, -32602, -32002];

/** Clients choose these names, and each makes a series of metrics, so their number is limited. */
const MOST_TOOLS = 1_000;
const MOST_VERSIONS = 16;
const LONGEST_NAME = 256;
/** An app's errors may have any code or name. */
const MOST_ERRORS = 100;

/** No request has this number. */
const NO_CALL = 0;

/** A request that has not ended. */
interface OpenSpan {
  readonly span: Span;
  /** The context for metrics and spans inside of the request. */
  readonly context: Context;
  readonly protocolVersion: string | undefined;
  /** Whether the span's name has the tool in it. */
  isNamed: boolean;
  /** The gate that the span's attributes are about. */
  workflow: string | undefined;
}

/** Turns each event into attributes of a span, and into metrics. */
export class Telemetry {
  readonly #tracer: Tracer;
  readonly #instruments: Instruments;
  readonly #runKeys: boolean;
  readonly #open = new Map<number, OpenSpan>();
  readonly #tools = new KnownNames(MOST_TOOLS);
  readonly #versions = new KnownNames(MOST_VERSIONS);
  readonly #errors = new KnownNames(MOST_ERRORS);

  constructor(tracer: Tracer, meter: Meter, runKeys: boolean) {
    this.#tracer = tracer;
    this.#instruments = instrumentsOf(meter);
    this.#runKeys = runKeys;
  }

  /** Events of other types become no telemetry. */
  readonly #handlers: {
    readonly [Type in InterlockEvent['type']]?: (event: EventOf<Type>) => void;
  } = {
    'call.started': (event) => this.#start(event),
    'call.ended': (event) => this.#finish(event),
    'request.started': (event) => {
      const { request, method } = event;
      this.#open.set(request, this.#begin(event, method, everyRequest(method)));
    },
    'request.ended': (event) => {
      const { request, method, shown, protocolVersion } = event;
      const said = resultOf(event);
      this.#end(request, event, everyRequest(method), said, {
        ...(shown !== undefined && { [OWN.shown]: shown }),
        ...(protocolVersion !== undefined && { [VERSION]: protocolVersion }),
      });
    },
    'call.refused': (event) => this.#refuse(event),
    'call.waited': (event) => {
      const attributes = { ...ofTool(event), [OWN.granted]: event.granted };
      this.#instruments.waits.record(event.waitedMs / 1000, attributes, this.#contextOf(event));
    },
    'step.started': (event) => this.#describe(event, {}),
    'step.committed': (event) => this.#endStep(event, event.outcome, { [OWN.stateTo]: event.to }),
    'step.failed': (event) => this.#endStep(event, 'failed'),
    'step.released': (event) => this.#endStep(event, event.why),
    'step.unknown': (event) => {
      this.#instruments.unknown.add(1, ofTool(event), this.#contextOf(event));
      this.#endStep(event, 'unknown');
    },
    'step.unrecorded': (event) => {
      this.#instruments.unrecorded.add(1, ofTool(event), this.#contextOf(event));
      this.#endStep(event, 'unknown');
    },
    'step.held': (event) => this.#instruments.held.add(1, ofTool(event)),
    'run.begun': ({ workflow }) => this.#instruments.begun.add(1, { [OWN.workflow]: workflow }),
    'run.moved': ({ workflow, from, to }) =>
      this.#instruments.moved.add(1, {
        [OWN.workflow]: workflow,
        [OWN.state]: from,
        [OWN.stateTo]: to,
      }),
    'run.ended': ({ workflow, state, cause }) =>
      this.#instruments.ended.add(1, {
        [OWN.runEnd]: cause,
        ...(workflow !== undefined && { [OWN.workflow]: workflow }),
        ...(state !== undefined && { [OWN.state]: state }),
      }),
    'session.unknown': ({ requests, lost }) => {
      const { unknownSessions } = this.#instruments;
      if (lost > 0) unknownSessions.add(lost, { [OWN.lost]: true });
      if (requests > lost) unknownSessions.add(requests - lost, { [OWN.lost]: false });
    },
    'run.resolved': (event) =>
      this.#instruments.resolved.add(1, { ...ofTool(event), [OWN.outcome]: event.outcome }),
    'store.slow': ({ operation }) => this.#instruments.slow.add(1, { [OWN.operation]: operation }),
    'store.failed': ({ operation }) =>
      this.#instruments.storeFailed.add(1, { [OWN.operation]: operation }),
    error: ({ code, error }) => {
      const type = code ?? (error instanceof Error ? error.name : OTHER);
      this.#errors.learn(type);
      this.#instruments.errors.add(1, { 'error.type': this.#errors.has(type) ? type : OTHER });
    },
  };

  take(event: InterlockEvent): void {
    const take = this.#handlers[event.type] as ((event: InterlockEvent) => void) | undefined;
    take?.(event);
  }

  /** Ends the spans that are open. */
  end(): void {
    for (const { span } of this.#open.values()) span.end();
    this.#open.clear();
  }

  #start(event: EventOf<'call.started'>): void {
    const { call, tool } = event;
    const isNamed = this.#tools.has(tool);
    const name = isNamed ? spanName(tool) : CALL;
    this.#open.set(call, this.#begin(event, name, { ...EVERY_CALL, [TOOL]: tool }, isNamed));
  }

  #begin(
    event: EventOf<'call.started' | 'request.started'>,
    name: string,
    attributes: Attributes,
    isNamed = true,
  ): OpenSpan {
    const { requestId, protocolVersion, trace: remote } = event;
    const ambient = context.active();
    const parent = remote === undefined ? ambient : propagation.extract(ambient, remote);
    const span = this.#tracer.startSpan(
      name,
      {
        kind: SpanKind.SERVER,
        attributes: {
          ...attributes,
          'jsonrpc.request.id': String(requestId),
          ...(protocolVersion !== undefined && { [VERSION]: protocolVersion }),
        },
        links: linksTo(ambient, parent),
      },
      parent,
    );
    const within = trace.setSpan(parent, span);
    return { span, context: within, protocolVersion, isNamed, workflow: undefined };
  }

  #finish(event: EventOf<'call.ended'>): void {
    const { call, tool, outcome } = event;
    const opened = this.#open.get(call);
    if (opened !== undefined && outcome === 'ok') this.#noteTool(opened, tool);
    const known = { ...EVERY_CALL, ...(this.#tools.has(tool) && { [TOOL]: tool }) };
    const own = OWN_OUTCOMES.includes(outcome) ? { [OWN.outcome]: outcome } : {};
    this.#end(call, event, known, resultOf(event), own);
  }

  /**
   * @param known what the metric says of the request, beside its version and what was `said`
   * @param own what only the span says of its end
   */
  #end(
    number: number,
    { outcome, durationMs }: EventOf<'call.ended' | 'request.ended'>,
    known: Attributes,
    said: Attributes,
    own: Attributes,
  ): void {
    const opened = this.#open.get(number);
    if (opened === undefined) return;
    this.#open.delete(number);
    const { span } = opened;
    span.setAttributes({ ...said, ...own });
    if (said['error.type'] !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
    const version = String(own[VERSION] ?? opened.protocolVersion ?? '');
    if (outcome === 'ok') this.#versions.learn(version);
    const attributes = {
      ...known,
      ...(this.#versions.has(version) && { [VERSION]: version }),
      ...said,
    };
    this.#instruments.operations.record(durationMs / 1000, attributes, opened.context);
  }

  #refuse(event: EventOf<'call.refused'>): void {
    const reason = { [OWN.reason]: event.reason };
    if (event.enforced === false) {
      this.#instruments.observed.add(1, { ...ofTool(event), ...reason }, this.#contextOf(event));
      return;
    }
    this.#instruments.refused.add(1, { ...ofTool(event), ...reason }, this.#contextOf(event));
    this.#describe(event, { ...reason, [OWN.outcome]: 'refused' });
  }

  #endStep(event: StepEnd, outcome: string, more: Attributes = {}): void {
    if (event.isLate) return;
    const { steps, storeTimes } = this.#instruments;
    const attributes = { ...ofTool(event), [OWN.outcome]: outcome };
    const within = this.#contextOf(event);
    steps.record(event.durationMs / 1000, attributes, within);
    storeTimes.record(event.storeMs / 1000, attributes, within);
    this.#describe(event, { ...more, [OWN.outcome]: outcome });
  }

  /** The tool exists: a gate binds it, or it was called with success. */
  #noteTool(call: OpenSpan, tool: string): void {
    this.#tools.learn(tool);
    if (call.isNamed || !this.#tools.has(tool)) return;
    call.isNamed = true;
    call.span.updateName(spanName(tool));
  }

  #contextOf({ call = NO_CALL }: { readonly call?: number | undefined }): Context | undefined {
    return this.#open.get(call)?.context;
  }

  /**
   * Puts on the call's span what a gate did. Where several gates claim one call, the span is about
   * the first, or about the one that refuses.
   */
  #describe(
    event: EventOf<'call.refused' | 'step.started'> | StepEnd,
    attributes: Attributes,
  ): void {
    const call = this.#open.get(event.call ?? NO_CALL);
    if (call === undefined) return;
    this.#noteTool(call, event.tool);
    if (event.type === 'call.refused') call.workflow = event.workflow;
    call.workflow ??= event.workflow;
    if (call.workflow !== event.workflow) return;
    const { state } = event;
    const run = this.#runKeys ? event.runKey : event.run;
    call.span.setAttributes({
      [OWN.workflow]: event.workflow,
      ...(state !== undefined && { [OWN.state]: state }),
      ...(run !== undefined && { [OWN.run]: run }),
      ...attributes,
    });
  }
}

function spanName(tool: string): string {
  return `${CALL} ${tool}`;
}

/** Outcomes of a call that no step's event reports. */
const OWN_OUTCOMES: readonly ToolAnswer[] = ['refused', 'unknown', 'unanswered'];

/**
 * The attributes that the conventions give the end of a request. One whose client left before the
 * answer has not failed. Neither has a refused call: the gate did its work, and an alarm on errors
 * must not ring for it.
 */
function resultOf({ outcome, code }: EventOf<'call.ended' | 'request.ended'>): Attributes {
  if (code !== undefined) {
    const isOurs = !CLIENT_FAULTS.includes(code);
    return {
      'rpc.response.status_code': String(code),
      ...(isOurs && { 'error.type': String(code) }),
    };
  }
  const isFailure = outcome === 'tool_error' || outcome === 'unknown';
  return isFailure ? { 'error.type': 'tool_error' } : {};
}

/** A link to the active span, where the caller's own trace goes on ("Context propagation"). */
function linksTo(ambient: Context, parent: Context): Link[] {
  const active = trace.getSpanContext(ambient);
  if (active === undefined || !isSpanContextValid(active)) return [];
  return trace.getSpanContext(parent) === active ? [] : [{ context: active }];
}

/** Without the run, which would make a series of its own. Only bound tools come here. */
function ofTool(event: { readonly workflow: string; readonly tool: string }): Attributes {
  return { [OWN.workflow]: event.workflow, [TOOL]: event.tool };
}

/** Names that clients have sent and that exist, up to a number and a length. */
class KnownNames {
  readonly #names = new Set<string>();
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  has(name: string): boolean {
    return this.#names.has(name);
  }

  learn(name: string): void {
    if (this.#names.size < this.#most && name.length <= LONGEST_NAME) this.#names.add(name);
  }
}
