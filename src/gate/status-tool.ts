/**
 * The tool that says where a run stands: its name and schemas, how it is listed, how a call of it
 * is answered. Hides that several gates of one route share it.
 */
import * as z from 'zod/mini';
import { configError, type InterlockError } from '../basics/errors.ts';
import { lazily, optionalFunction, showValue } from '../basics/options.ts';
import { type Admission, deny, UNKNOWN_SESSION } from '../session/run.ts';
import { isHandle, startersOf } from '../session/run-key.ts';
import type { Json } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { type Exchange, Note } from '../wire/exchange.ts';
import { argumentsFault, headerFault } from '../wire/headers.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { entryWords, type NextTool, STATUSES } from '../workflow/advice.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig, StatusTool, SummarizedRun } from './config.ts';
import { Gates } from './gates.ts';
import { invalidParams, resultOf } from './replies.ts';
import { recordNow } from './standing.ts';
import { statusOfRun, statusWithout, type WorkflowStatus } from './status.ts';

/** What `fsmGate({ statusTool })` takes, if not the name alone. */
export interface StatusToolOptions {
  /**
   * The name that clients call: 1 to 128 letters, digits, `_`, `-` and `.`. Neither the gate nor
   * the upstream may have a tool of that name.
   */
  name: string;
  /** Says to the model what the tool is for. Default: words that name the workflows. */
  description?: string | undefined;
  /**
   * Returns what the model reads of the run's data, as JSON; it must be synchronous. If it throws,
   * `onError` gets the error, and the answer has no summary. Default: the model reads nothing of
   * the data.
   */
  summary?: ((run: SummarizedRun) => Json) | undefined;
}

export const statusToolOption = lazily(() =>
  z.optional(
    z.union([
      z.string(),
      z.strictObject({
        name: z.string(),
        description: z.optional(z.string().check(z.minLength(1), z.maxLength(2_000))),
        summary: optionalFunction<NonNullable<StatusToolOptions['summary']>>(),
      }),
    ]),
  ),
);

/** What MCP 2025-11-25 allows in a tool's name (Tools, "Tool Names"). */
const TOOL_NAME = /^[\w.-]{1,128}$/;

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` where the gate cannot have such a tool. */
export function statusToolOf(
  option: string | StatusToolOptions | undefined,
  workflow: Workflow,
  refusal: GateConfig['refusal'],
): StatusTool | undefined {
  if (option === undefined) return undefined;
  const given = typeof option === 'string' ? { name: option } : option;
  const { name, description, summary } = given;
  if (!TOOL_NAME.test(name))
    throw fault(
      'expected the name of a tool, 1 to 128 letters, digits, "_", "-" and ".", ' +
        `got ${showValue(name)}`,
    );
  if (workflow.names(name))
    throw fault(`the gate binds a tool ${showValue(name)}; choose another name`);
  if (refusal === 'unknown-tool')
    throw fault('it says what refusal: "unknown-tool" keeps secret; leave one of the two out');
  return Object.freeze({ name, description, summary });
}

function fault(message: string): InterlockError {
  return configError(`fsmGate(): statusTool: ${message}`);
}

/** The status tools that a page has by now: gates that share one add it once. */
const listed = new Note<Message, Set<string>>();

/**
 * Adds the tool to the last page of a list. Hides an upstream's tool of that name on every page.
 */
export function listStatusTool(
  message: Message,
  status: StatusTool,
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): void {
  const names = listed.of(message) ?? new Set();
  if (names.has(status.name) || !Array.isArray(message.at('result', 'tools'))) return;
  listed.put(message, names.add(status.name));
  if (admission.managed?.start === status.name) {
    config.onError(
      fault(`${showValue(status.name)} is the start of managedHandle(); choose another name`),
    );
    const id = message.value.id as RequestId;
    message.replace(errorResponse(id, JSON_RPC.INTERNAL_ERROR, 'Internal error'));
    return;
  }
  message.editElements(['result', 'tools'], (tool) => {
    if (!isObject(tool) || tool.name !== status.name) return 'keep';
    config.warnOnce(
      `the upstream has a tool ${showValue(status.name)} of its own, which no client sees: ` +
        'the status tool has that name. Choose another one',
    );
    return 'drop';
  });
  if (message.at('result', 'nextCursor') !== undefined) return;
  const sharing = Gates.of(config, exchange).sharing(status.name);
  message.insert(['result', 'tools'], describedTool(status, sharing, admission), 'end');
}

/** Part of a page's key: what the listed tool depends on, beside the route's gates. */
export function statusToolKey(status: StatusTool | undefined, admission: Admission): string {
  if (status === undefined || !admission.byArgument) return '';
  const isOnly = admission.listed === undefined;
  return JSON.stringify([isOnly, ...admission.handles.map(({ argument }) => argument)]);
}

function describedTool(
  { name, description }: StatusTool,
  sharing: readonly GateConfig[],
  admission: Admission,
): JsonObject {
  const workflows = sharing.map(({ workflow }) => workflow.id).join(' and ');
  return {
    name,
    description:
      description ??
      `Says where ${workflows} stands, what can be called next and where that leads, what is ` +
        'waited for, and what happened last. Changes nothing. Call it when you do not know how ' +
        'to go on.',
    inputSchema: inputSchema(admission),
    outputSchema: OUTPUT_SCHEMA,
    annotations: { readOnlyHint: true, openWorldHint: false },
  };
}

/** Asks for the handle, if one names the run. */
function inputSchema({ handles, managed }: Admission): JsonObject {
  const names = handles.map(({ argument }) => argument);
  const about = { type: 'string', description: 'Names the run of the workflow.' };
  const [only, ...more] = names;
  const isRequired = only !== undefined && (more.length === 0 || managed !== undefined);
  const properties = Object.fromEntries(names.map((argument) => [argument, about]));
  return isRequired
    ? objectSchema(properties, managed?.argument ?? only)
    : objectSchema(properties);
}

const objectSchema = (properties: JsonObject, ...required: string[]): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required }),
});
const listSchema = (items: JsonObject, description?: string): JsonObject => ({
  type: 'array',
  ...(description !== undefined && { description }),
  items,
});
const TEXT = { type: 'string' };
const TEXTS = listSchema(TEXT);
const AWAITED = ['step', 'operator', 'condition', 'workflow', 'event', 'deadline'];
const STATUS = objectSchema(
  {
    workflow: TEXT,
    status: { ...TEXT, enum: STATUSES },
    says: { ...TEXT, description: 'Where the run stands, in words.' },
    state: TEXT,
    next: listSchema(
      objectSchema({ tool: TEXT, leadsTo: TEXTS, says: TEXT }, 'tool', 'leadsTo', 'says'),
      'The tools that can be called now, and where a success leads.',
    ),
    pass: { type: 'object', description: 'Arguments to pass to each of these tools.' },
    waitsFor: objectSchema(
      { what: { ...TEXT, enum: AWAITED }, tool: TEXT, path: TEXTS, events: TEXTS },
      'what',
    ),
    leavesAt: { ...TEXT, description: 'When the state is left without a call.' },
    leavesInMs: { type: 'number' },
    summary: { description: "The app's own words or facts." },
    recent: listSchema(
      objectSchema({ tool: TEXT, event: TEXT, from: TEXT, to: TEXT, outcome: TEXT }, 'from'),
      'The last calls and moves, newest last.',
    ),
  },
  ...['workflow', 'status', 'says', 'next'],
);
const OUTPUT_SCHEMA = objectSchema({ workflows: listSchema(STATUS) }, 'workflows');

/** What the tool cannot answer by. */
const NO_STATE: readonly WorkflowStatus['status'][] = ['unavailable', 'unreadable'];

/**
 * Answers a call of the status tool for all gates that share it. `ended`: the gate answered the
 * whole HTTP request.
 */
export async function answerStatus(
  status: StatusTool,
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  incoming: Call,
): Promise<'answered' | 'ended'> {
  const { req } = exchange;
  const fault =
    headerFault(req, incoming, admission.era) ?? argumentsFault(req, incoming, undefined);
  if (fault !== undefined) {
    await exchange.reject(400, fault.code, fault.message);
    return 'ended';
  }
  const { id = null, message } = incoming;
  // A client that asked for a task would not parse a plain result.
  if (message.at('params', 'task') !== undefined) {
    const words = `[System: ${status.name} does not run as a task. Call it without one.]`;
    await incoming.answerWith(invalidParams(incoming, words));
    return 'answered';
  }
  const parts = await partsOf(status, config, Gates.of(config, exchange), admission, incoming);
  if (parts === 'unknown') {
    await deny(exchange, UNKNOWN_SESSION);
    return 'ended';
  }
  const result = {
    content: [{ type: 'text', text: parts.map(textOf).join('\n\n') }],
    structuredContent: { workflows: parts },
    ...(parts.every(({ status: each }) => NO_STATE.includes(each)) && { isError: true }),
  };
  await incoming.answerWith(resultOf(id, result, admission.era));
  return 'answered';
}

/** The facts in words, for clients that show their model only text. */
function textOf({ says, next, pass, summary, recent = [] }: WorkflowStatus): string {
  const lines = [says, ...next.map((each) => `- ${each.says}`)];
  if (pass !== undefined && next.length > 0) lines.push(`Pass ${JSON.stringify(pass)} to each.`);
  if (summary !== undefined)
    lines.push(`Summary: ${typeof summary === 'string' ? summary : JSON.stringify(summary)}`);
  if (recent.length > 0) {
    const shown = recent.map(({ event = null, ...each }) => entryWords({ event, ...each }));
    lines.push(`Last, the newest at the end: ${shown.join('; ')}.`);
  }
  return lines.join('\n');
}

/** One part for each workflow; `unknown` where the session is over. */
async function partsOf(
  status: StatusTool,
  config: GateConfig,
  gates: Gates,
  admission: Admission,
  incoming: Call,
): Promise<readonly WorkflowStatus[] | 'unknown'> {
  const sharing = gates.sharing(status.name);
  const starters = startersFor(admission);
  const run = admission.runOf(incoming);
  if ('advice' in run) {
    const { advice, warning } = run;
    if (warning !== undefined) config.warnOnce(warning);
    return sharing.map((gate) => statusWithout(gate, 'no-run', starters, advice));
  }
  const record = await recordNow(config, run);
  if (record === 'away') return sharing.map((gate) => statusWithout(gate, 'unavailable'));
  if (record === undefined && run.create === undefined) {
    const { gone } = run;
    if (gone === undefined) return 'unknown';
    return sharing.map((gate) => statusWithout(gate, 'no-run', starters, gone));
  }
  const outlook = await gates.lookAt(admission, run, record);
  const pass = handleIn(admission, incoming);
  const parts = sharing.map((gate) => ({ gate, run, record, outlook, starters, pass }));
  return Promise.all(parts.map(statusOfRun));
}

/** The tools that return the handles of new runs. */
function startersFor({ handles }: Admission): readonly NextTool[] {
  return handles.flatMap((key) =>
    startersOf(key).map((tool) => {
      const says = `${tool} begins a new run, and returns its "${key.argument}".`;
      return { tool, leadsTo: [], says };
    }),
  );
}

/** The handle with which the call names its run. */
function handleIn({ handles }: Admission, { message }: Call): WorkflowStatus['pass'] {
  for (const { argument } of handles) {
    const value = message.at('params', 'arguments', argument);
    if (isHandle(value)) return { [argument]: value };
  }
  return undefined;
}
