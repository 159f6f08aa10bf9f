/** `mcp-interlock check`: says what is wrong with a gate before a model does, for CI and people. */
import { existsSync, readFileSync } from 'node:fs';
import {
  type CheckedTool,
  type CheckOptions,
  checkWorkflow,
  type Finding,
  toMermaid,
  workflowGraph,
} from 'mcp-interlock/check';
import {
  type CommandSpec,
  durationOf,
  Failure,
  type Given,
  parseCommand,
  targetOf,
  UsageError,
} from './command-line.ts';
import { parseJson } from './strict-json.ts';
import { toolsAt } from './upstream.ts';
import { loadWorkflows } from './workflow-file.ts';

export const CHECK = {
  usage: 'mcp-interlock check ./gate.ts [--tools tools.json | --target URL] [options]',
  about:
    'Looks for what is wrong with the workflows of a file: states that nothing reaches, tools\n' +
    'that never become available, names that the server does not list. The status is 0 where it\n' +
    'finds nothing, 1 where it finds something or cannot check, and 2 for a mistake in the\n' +
    'command line, such as a file that does not exist.',
  options: {
    tools: {
      takes: 'FILE',
      help: "the server's tools: names, or the result of tools/list, in JSON",
    },
    target: { takes: 'URL', help: 'an MCP server that is asked for its tools' },
    outside: { takes: 'EVENT', many: true, help: 'an event that runs.send() sends' },
    idle: { takes: 'TIME', help: 'how long a run is kept that nothing touches' },
    ignore: { takes: 'CODE', many: true, help: 'leaves findings out: dead-end, or dead-end:paid' },
    json: { help: 'prints JSON' },
    diagram: { help: 'prints Mermaid diagrams; what was found goes to standard error' },
  },
} as const satisfies CommandSpec;

/** What one workflow came to. */
interface Checked {
  readonly id: string;
  readonly findings: readonly Finding[];
  /** What is worth knowing, and often right. It does not change the status. */
  readonly notes: readonly Finding[];
  /** How the calls of each tool run. */
  readonly tools: readonly CheckedTool[];
  /** Whether it is made of rules of order. */
  readonly isOrder: boolean;
  readonly diagram?: string;
}

/** What the command prints, and the status that it ends with. */
export interface CheckReport {
  readonly out: string;
  readonly err: string;
  readonly status: 0 | 1;
  /** Why the server did not give its tools. The command says it after the rest. */
  readonly failure?: Failure;
}

/** Checks what the arguments name. @throws UsageError, Failure or InterlockError */
export async function check(args: readonly string[]): Promise<CheckReport> {
  const { file, given } = parseCommand(CHECK, args);
  const { target, ...options } = settingsOf(given);
  const { gates, sync } = await loadWorkflows(file);
  const { tools = options.tools, failure } = target === undefined ? {} : await asked(target);
  const checked = gates.map((gate): Checked => {
    const findings = checkWorkflow(gate, { ...options, ...(tools && { tools }), sync });
    const isOrder = workflowGraph(gate).kind === 'order';
    const diagram = given.diagram && { diagram: toMermaid(gate) };
    const { notes, tools: kinds } = findings;
    return { id: gate.id, findings, notes, tools: kinds, isOrder, ...diagram };
  });
  const isWrong = failure !== undefined || checked.some(({ findings }) => findings.length > 0);
  const ending = { status: isWrong ? 1 : 0, ...(failure && { failure }) } as const;
  const toolsChecked = tools !== undefined;
  if (given.json) {
    const workflows = checked.map(({ isOrder: _, ...each }) => each);
    const document = { workflows, toolsChecked };
    return { out: `${JSON.stringify(document, null, 2)}\n`, err: '', ...ending };
  }
  const advice = target === undefined ? ': give --target or --tools.' : '.';
  const unchecked = toolsChecked ? undefined : `Tool names were not checked${advice}`;
  const report = checked.map((each) => inWords(each, unchecked)).join('');
  if (!given.diagram) return { out: report, err: '', ...ending };
  return {
    out: checked.map(({ diagram }) => `${diagram?.trimEnd()}\n`).join('\n'),
    err: report,
    ...ending,
  };
}

/** The options, checked. The server is not asked yet. */
function settingsOf(
  given: Given<typeof CHECK.options>,
): CheckOptions & { readonly target?: URL | undefined } {
  const { tools, target, idle, outside, ignore } = given;
  if (tools !== undefined && target !== undefined)
    throw new UsageError('--tools and --target say the same: give one of them');
  return {
    ignore,
    ...(outside.length > 0 && { outside }),
    ...(idle !== undefined && { idleMs: durationOf('idle', idle) }),
    ...(tools !== undefined && { tools: readTools(tools) }),
    ...(target !== undefined && { target: targetOf(target) }),
  };
}

type Tools = NonNullable<CheckOptions['tools']>;

/** Of a list, or of the answer to `tools/list` with or without its envelope. */
function readTools(file: string): Tools {
  if (!existsSync(file)) throw new UsageError(`--tools: there is no file ${file}`);
  let value: unknown;
  try {
    value = parseJson(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new Failure(`--tools: ${file} ${whyUnread(cause)}`, { cause });
  }
  const result = memberOf(value, 'result') ?? value;
  const tools = memberOf(result, 'tools') ?? result;
  if (Array.isArray(tools) && tools.every(isTool)) return tools;
  throw new Failure(`--tools: ${file}: expected an array of names, or the result of tools/list`);
}

function whyUnread(cause: unknown): string {
  if (cause instanceof Failure) return `is no JSON: ${cause.message}`;
  return `cannot be read: ${cause instanceof Error && 'code' in cause ? cause.code : cause}`;
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function isTool(value: unknown): value is Tools[number] {
  return typeof value === 'string' || typeof memberOf(value, 'name') === 'string';
}

/** A server that is down must not hide what is wrong with the file, so its failure is kept. */
async function asked(target: URL): Promise<{ tools?: Tools; failure?: Failure }> {
  try {
    return { tools: await toolsAt(target) };
  } catch (error) {
    if (error instanceof Failure) return { failure: error };
    throw error;
  }
}

function inWords(
  { id, findings, notes, tools, isOrder }: Checked,
  unchecked: string | undefined,
): string {
  const kinds = isOrder ? kindsInWords(tools) : '';
  const told = notes.map(lineOf).join('');
  if (findings.length === 0)
    return (
      `${id}: nothing found${unchecked === undefined ? '' : `. ${unchecked}`}\n` + `${told}${kinds}`
    );
  const rest = unchecked === undefined ? '' : `  ${unchecked}\n`;
  return `${id}:\n${findings.map(lineOf).join('')}${told}${rest}${kinds}`;
}

function lineOf({ code, severity, place, message, remedy }: Finding): string {
  return `  ${severity} ${code} at ${place}: ${message}\n    ${remedy}\n`;
}

/** Rules do not show at a glance which tools are steps. */
function kindsInWords(tools: readonly CheckedTool[]): string {
  return (['step', 'recorded', 'free'] as const)
    .map((kind) => {
      const names = tools.filter((each) => each.kind === kind).map(({ tool }) => tool);
      return names.length === 0 ? '' : `  ${kind}: ${names.join(', ')}\n`;
    })
    .join('');
}
