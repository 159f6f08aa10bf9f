/** `mcp-interlock check`: says what is wrong with a gate before a model does, for CI and people. */
import { existsSync, readFileSync } from 'node:fs';
import { InterlockError } from 'mcp-interlock';
import { type CheckedRuns, runsOf } from 'mcp-interlock/runs';
import {
  type CheckedTool,
  type CheckOptions,
  checkWorkflow,
  type Finding,
  toMermaid,
  workflowGraph,
} from 'mcp-interlock-check';
import { BREAKS_RUNS, FAIL_ON, type FailOn, faultsOf, many, runsInWords } from './checked-runs.ts';
import {
  type CommandSpec,
  choiceOf,
  durationOf,
  Failure,
  type Given,
  parseCommand,
  targetOf,
  UsageError,
} from './command-line.ts';
import { KEY_FORMS, strategyNamed } from './key-option.ts';
import { doubtOf, type Opener, STORE_HELP, storeFailure, storeOfGates } from './stores.ts';
import { parseJson } from './strict-json.ts';
import { toolsAt } from './upstream.ts';
import { type AnyGate, loadWorkflows } from './workflow-file.ts';

export const CHECK = {
  usage:
    'mcp-interlock check ./gate.ts [--tools tools.json | --target URL] ' +
    '[--store URL [--old FILE]] [options]',
  about:
    'Looks for what is wrong with the workflows of a file: states that nothing reaches, tools ' +
    'that never become available, names that the server does not list. With --store also what a ' +
    'deployment of these gates would change for the runs that live. The status is 0 where it finds ' +
    'nothing, 1 where it finds something or cannot check, and 2 for a mistake in the ' +
    'command line, such as a file that does not exist.',
  options: {
    tools: {
      takes: 'FILE',
      help: "the server's tools: names, or the result of tools/list, in JSON",
    },
    target: { takes: 'URL', help: 'an MCP server that is asked for its tools' },
    store: {
      takes: 'URL',
      help: `also tries the gates on the runs that live. It changes nothing there. ${STORE_HELP}`,
    },
    service: { takes: 'NAME', help: 'the --service of the gates, with --store' },
    old: {
      takes: 'FILE',
      help: 'the gates that serve now, with --store. Default: those that the store has noted last',
    },
    'fail-on': {
      takes: 'WHAT',
      many: true,
      help:
        `what of the runs fails: ${FAIL_ON.join(', ')}, or none. ` +
        `Default ${BREAKS_RUNS.join(' ')}`,
    },
    header: {
      takes: "'NAME: VALUE'",
      many: true,
      help: 'is sent to --target, such as Authorization. Other users of the machine may see it',
    },
    key: {
      takes: 'KEY',
      many: true,
      help: `what names a run, as for the gate: ${KEY_FORMS}. With it, finds limits that a new session resets`,
    },
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
  /** How it would take the runs of `--store`. */
  readonly runs?: CheckedRuns;
}

/** What the command prints, and the status that it ends with. */
export interface CheckReport {
  readonly out: string;
  readonly err: string;
  readonly status: 0 | 1;
  /** Why the server gave no tools, or the store no runs. The command says it after the rest. */
  readonly failure?: Failure;
}

/** How the gates of a file would take the runs of a store. */
interface Tried {
  /** The store, without a password. */
  readonly name: string;
  /** By gate, in the file's order. */
  readonly runs: readonly CheckedRuns[];
  /** In words, for a store that has no run of a gate. */
  readonly doubts: readonly string[];
}

/** Checks what the arguments name. @throws UsageError, Failure or InterlockError */
export async function check(args: readonly string[]): Promise<CheckReport> {
  const { file, given } = parseCommand(CHECK, args);
  const { target, headers, open, failOn, ...options } = settingsOf(given);
  const { gates, sync } = await loadWorkflows(file);
  const olds = given.old === undefined ? undefined : (await loadWorkflows(given.old)).gates;
  const asked = target === undefined ? {} : await settled(toolsAt(target, headers));
  const trial = { gates, olds, service: given.service };
  const tried = open === undefined ? {} : await settled(tryOn(open, trial));
  const { found: tools = options.tools } = asked;
  const doubts = tried.found?.doubts.join('') ?? '';
  const checked = gates.map((gate, index): Checked => {
    const findings = checkWorkflow(gate, { ...options, ...(tools && { tools }), sync });
    const isOrder = workflowGraph(gate).kind === 'order';
    const diagram = given.diagram && { diagram: toMermaid(gate) };
    const { notes, tools: kinds } = findings;
    const runs = tried.found?.runs[index];
    const all = { id: gate.id, findings, notes, tools: kinds, isOrder, ...diagram };
    return { ...all, ...(runs && { runs }) };
  });
  const failure = both(asked.failure, tried.failure);
  const ending = {
    status: failure !== undefined || checked.some((each) => isWrong(each, failOn)) ? 1 : 0,
    ...(failure && { failure }),
  } as const;
  const toolsChecked = tools !== undefined;
  if (given.json) {
    const workflows = checked.map(({ isOrder: _, ...each }) => each);
    const document = { workflows, toolsChecked };
    return { out: `${JSON.stringify(document, null, 2)}\n`, err: doubts, ...ending };
  }
  const advice = target === undefined ? ': give --target or --tools.' : '.';
  const unchecked = toolsChecked ? undefined : `Tool names were not checked${advice}`;
  const name = tried.found?.name ?? '';
  const placeOf = placesIn(file);
  const words = checked.map(
    (each) =>
      inWords(each, unchecked, placeOf) +
      runsInWords(
        each.id,
        each.runs,
        name,
        failOn,
        olds?.some(({ id }) => id === each.id) === false,
      ),
  );
  const report = words.join('') + countInWords(checked);
  if (!given.diagram) return { out: report, err: doubts, ...ending };
  return {
    out: checked.map(({ diagram }) => `${diagram?.trimEnd()}\n`).join('\n'),
    err: `${report}${doubts}`,
    ...ending,
  };
}

/** The options, checked. Neither the server nor the store is asked yet. */
function settingsOf(given: Given<typeof CHECK.options>): CheckOptions & {
  readonly target?: URL | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly open?: Opener | undefined;
  readonly failOn: readonly FailOn[];
} {
  const { tools, target, store, idle, outside, ignore, key, header } = given;
  if (tools !== undefined && target !== undefined)
    throw new UsageError('--tools and --target say the same: give one of them');
  if (header.length > 0 && target === undefined)
    throw new UsageError('--header is sent to --target: give that too');
  for (const name of ['old', 'service', 'fail-on'] as const)
    if (given[name] !== undefined && given[name].length > 0 && store === undefined)
      throw new UsageError(`--${name} is about runs: give the --store of your gates too`);
  return {
    ignore,
    failOn: failOnOf(given['fail-on']),
    headers: Object.fromEntries(header.map(headerOf)),
    ...(key.length > 0 && { key: key.map((each) => strategyNamed(each, true)) }),
    ...(outside.length > 0 && { outside }),
    ...(idle !== undefined && { idleMs: durationOf('idle', idle) }),
    ...(tools !== undefined && { tools: readTools(tools) }),
    ...(target !== undefined && { target: targetOf(target) }),
    ...(store !== undefined && { open: storeOfGates(store) }),
  };
}

function failOnOf(words: readonly string[]): readonly FailOn[] {
  const chosen = words.map((each) => choiceOf('fail-on', each, [...FAIL_ON, 'none']));
  if (chosen.includes('none') && chosen.length > 1)
    throw new UsageError('--fail-on none stands alone');
  return chosen.length === 0 ? BREAKS_RUNS : chosen.filter((each) => each !== 'none');
}

/** Its value may be a credential, so no message has it. */
function headerOf(text: string): readonly [name: string, value: string] {
  const [, name, value] = /^([\w!#$%&'*+.^`|~-]+): *([\t\x20-\x7e\x80-\xff]*)$/.exec(text) ?? [];
  if (name !== undefined && value !== undefined) return [name, value];
  throw new UsageError("--header: expected a name and a value, such as 'Authorization: Bearer …'");
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

/**
 * A server or a store that is down must not hide what is wrong with the file, so its failure is
 * kept.
 */
async function settled<T>(asked: Promise<T>): Promise<{ found?: T; failure?: Failure }> {
  try {
    return { found: await asked };
  } catch (error) {
    if (error instanceof Failure) return { failure: error };
    if (error instanceof InterlockError) return { failure: new Failure(error.message) };
    throw error;
  }
}

function both(first: Failure | undefined, second: Failure | undefined): Failure | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  return new Failure(`${first.message}; ${second.message}`);
}

function isWrong({ findings, runs }: Checked, failOn: readonly FailOn[]): boolean {
  if (findings.length > 0) return true;
  return runs !== undefined && faultsOf(runs).some((each) => failOn.includes(each));
}

async function tryOn(
  open: Opener,
  {
    gates,
    olds,
    service,
  }: {
    readonly gates: readonly AnyGate[];
    readonly olds: readonly AnyGate[] | undefined;
    readonly service: string | undefined;
  },
): Promise<Tried> {
  const store = await open((message) => console.error(`mcp-interlock: ${message}`));
  try {
    const runs: CheckedRuns[] = [];
    for (const gate of gates) {
      const old = olds?.find(({ id }) => id === gate.id);
      runs.push(await runsOf(gate, { store: store.store, service }).check({ old }));
    }
    const empty = gates.filter((_, index) => runs[index]?.runs === 0);
    const doubts = empty.map(({ id }) => `${doubtOf(store, id)}\n`);
    return { name: store.name, runs, doubts };
  } catch (error) {
    throw storeFailure(error);
  } finally {
    await store.close();
  }
}

function inWords(
  { id, findings, notes, tools, isOrder }: Checked,
  unchecked: string | undefined,
  placeOf: (name: string) => string,
): string {
  const findingInWords = ({ code, severity, place, message, remedy }: Finding): string =>
    `  ${severity} ${code} at ${place}: ${message}\n    ${remedy}\n    ${placeOf(place)}\n`;
  const kinds = isOrder ? kindsInWords(tools) : '';
  const noted = notes.map(findingInWords).join('');
  if (findings.length === 0)
    return (
      `${id}: nothing found${unchecked === undefined ? '' : `. ${unchecked}`}\n` +
      `${noted}${kinds}`
    );
  const rest = unchecked === undefined ? '' : `  ${unchecked}\n`;
  return `${id}:\n${findings.map(findingInWords).join('')}${noted}${rest}${kinds}`;
}

/** Each one is looked for in the whole file. */
const MOST_PLACES = 200;

/**
 * Finds the line where a file speaks of a state, a tool or an event: its only key of that name,
 * else its only text. Terminals open `gate.ts:12` in an editor. It gives no line where it is not
 * sure.
 */
function placesIn(file: string): (name: string) => string {
  const lines = readFileSync(file, 'utf8').split('\n');
  const only = (pattern: RegExp): number | undefined => {
    const found = lines.flatMap((line, at) => (pattern.test(line) ? [at + 1] : []));
    return found.length === 1 ? found[0] : undefined;
  };
  let asked = 0;
  return (name) => {
    asked += 1;
    if (asked > MOST_PLACES) return `in ${file}`;
    const own = name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
    const line =
      only(new RegExp(`(?<![\\w.-])(['"]?)${own}\\1\\s*:`)) ??
      only(new RegExp(`(['"\`])${own}\\1`));
    return line === undefined ? `in ${file}` : `${file}:${line}`;
  };
}

/** `2 errors and 1 warning in 1 of 3 workflows`; empty where all is well. */
function countInWords(checked: readonly Checked[]): string {
  const of = (severity: Finding['severity']): number =>
    checked.flatMap(({ findings }) => findings).filter((each) => each.severity === severity).length;
  const [errors, warnings] = [of('error'), of('warning')];
  if (errors + warnings === 0) return '';
  const wrong = checked.filter(({ findings }) => findings.length > 0).length;
  const counted = [errors > 0 && many(errors, 'error'), warnings > 0 && many(warnings, 'warning')];
  const share = wrong === checked.length ? '' : `${wrong} of `;
  const found = counted.filter(Boolean).join(' and ');
  return `${found} in ${share}${many(checked.length, 'workflow')}\n`;
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
