/** `mcp-interlock check`: says what is wrong with a gate before a model does, for CI and people. */
import { readFileSync } from 'node:fs';
import { type CheckOptions, checkWorkflow, type Finding, toMermaid } from 'mcp-interlock/check';
import {
  type CommandSpec,
  durationOf,
  Failure,
  type Given,
  parseCommand,
  UsageError,
  urlOf,
} from './command-line.ts';
import { loadWorkflows } from './workflow-file.ts';

export const CHECK = {
  usage: 'mcp-interlock check ./gate.ts [--tools tools.json | --target URL] [options]',
  about:
    'Looks for what is wrong with the workflows of a file: states that nothing reaches, tools\n' +
    'that never become available, names that the server does not list. The status is 0 where it\n' +
    'finds nothing, 1 where it finds something, and 2 for a mistake in the command line.',
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
  readonly diagram?: string;
}

/** What the command prints, and the status that it ends with. */
export interface CheckReport {
  readonly out: string;
  readonly err: string;
  readonly status: 0 | 1;
}

/** Checks what the arguments name. @throws UsageError, Failure or InterlockError */
export async function check(args: readonly string[]): Promise<CheckReport> {
  const { file, given } = parseCommand(CHECK, args);
  const known = await knownOf(given);
  const { gates, sync } = await loadWorkflows(file);
  const checked = gates.map((gate): Checked => {
    const findings = checkWorkflow(gate, { ...known, sync });
    return { id: gate.id, findings, ...(given.diagram && { diagram: toMermaid(gate) }) };
  });
  const status = checked.some(({ findings }) => findings.length > 0) ? 1 : 0;
  const report = checked.map(inWords).join('');
  if (given.json)
    return { out: `${JSON.stringify({ workflows: checked }, null, 2)}\n`, err: '', status };
  if (!given.diagram) return { out: report, err: '', status };
  return {
    out: checked.map(({ diagram }) => `${diagram?.trimEnd()}\n`).join('\n'),
    err: report,
    status,
  };
}

async function knownOf(given: Given<typeof CHECK.options>): Promise<CheckOptions> {
  const { tools, target, idle, outside, ignore } = given;
  if (tools !== undefined && target !== undefined)
    throw new UsageError('--tools and --target say the same: give one of them');
  return {
    ignore,
    ...(outside.length > 0 && { outside }),
    ...(idle !== undefined && { idleMs: durationOf('idle', idle) }),
    ...(tools !== undefined && { tools: readTools(tools) }),
    ...(target !== undefined && { tools: await askForTools(urlOf('target', target)) }),
  };
}

type Tools = NonNullable<CheckOptions['tools']>;

/** Of a list, or of the answer to `tools/list` with or without its envelope. */
function readTools(file: string): Tools {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new Failure(`--tools ${file}: ${cause instanceof Error ? cause.message : cause}`, {
      cause,
    });
  }
  const result = memberOf(value, 'result') ?? value;
  const tools = memberOf(result, 'tools') ?? result;
  if (Array.isArray(tools) && tools.every(isTool)) return tools;
  throw new Failure(`--tools ${file}: expected an array of names, or the result of tools/list`);
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function isTool(value: unknown): value is Tools[number] {
  return typeof value === 'string' || typeof memberOf(value, 'name') === 'string';
}

async function askForTools(target: URL): Promise<Tools> {
  const { listTools } = await import('./upstream-tools.ts');
  try {
    return await listTools(target);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Failure(`${target.origin}${target.pathname} does not list its tools: ${why}`, {
      cause,
    });
  }
}

function inWords({ id, findings }: Checked): string {
  if (findings.length === 0) return `${id}: nothing found\n`;
  const lines = findings.map(
    ({ code, severity, place, message, remedy }) =>
      `  ${severity} ${code} at ${place}: ${message}\n    ${remedy}\n`,
  );
  return `${id}:\n${lines.join('')}`;
}
