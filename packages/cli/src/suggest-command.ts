/** `mcp-interlock suggest`: a gate of the rules that recorded runs keep. */
import { readFileSync } from 'node:fs';
import { type SuggestedRule, suggestRules } from 'mcp-interlock-check';
import { type CommandSpec, parseCommand, UsageError } from './command-line.ts';
import { assertFiles, linesOf } from './recorded-files.ts';
import { parseJson } from './strict-json.ts';

export const SUGGEST = {
  usage: 'mcp-interlock suggest --calls calls.jsonl --reached TOOL [options]',
  isFileOptional: true,
  about:
    'Finds rules that the good runs of a recording keep, and prints a gate of them in JSON. ' +
    'What each one goes by is printed on standard error. The status is 1 where there is none.',
  options: {
    calls: { takes: 'FILE', many: true, help: 'what recordCalls() or gate --record wrote; needed' },
    reached: { takes: 'TOOL', many: true, help: 'a run is good in which it succeeded; needed' },
    tools: {
      takes: 'FILE',
      help: 'the result of tools/list, in JSON: no rule is suggested for what only reads',
    },
    habits: { help: 'writes also what only habit shows: no call that breaks it was seen to fail' },
    json: { help: 'prints what was found, each rule with its evidence, and no gate' },
    id: { takes: 'NAME', help: 'the id of the gate. Default suggested' },
  },
} as const satisfies CommandSpec;

export async function runSuggest(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(SUGGEST, args);
  if (file !== '') throw new UsageError(`unexpected ${JSON.stringify(file)}`);
  assertFiles(given.calls);
  if (given.reached.length === 0)
    throw new UsageError('--reached is needed: a tool that good runs come to');
  const readOnly = given.tools === undefined ? [] : readOnlyIn(given.tools);
  const { reached } = given;
  const found = await suggestRules(linesOf(given.calls), { reached, readOnly });
  const { rules, runs, good, leftOut } = found;
  console.error(
    `${good} of ${runs} runs are good${leftOut > 0 ? `, ${leftOut} lines left out` : ''}`,
  );
  for (const each of rules) console.error(`  ${inWords(each)}`);
  if (given.tools === undefined)
    console.error('Tools that only read are not known: give --tools to leave them out.');
  if (rules.length === 0) {
    console.error('mcp-interlock: the good runs keep no rule that is not kept by chance');
    return 1;
  }
  if (given.json) {
    process.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
    return 0;
  }
  const written = rules.filter(({ isHabit }) => given.habits || !isHabit);
  if (written.length < rules.length)
    console.error(`${rules.length - written.length} rules are left out: give --habits for them`);
  if (written.length === 0) {
    console.error('mcp-interlock: only habit shows a rule, which is no reason for a gate');
    return 1;
  }
  process.stdout.write(`${JSON.stringify(gateOf(given.id ?? 'suggested', written), null, 2)}\n`);
  return 0;
}

/** The tools that a list says only read. */
function readOnlyIn(path: string): readonly string[] {
  const list = parseJson(readFileSync(path, 'utf8')) as { tools?: unknown };
  const tools = Array.isArray(list) ? list : list.tools;
  if (!Array.isArray(tools)) throw new UsageError(`--tools: ${path} is no result of tools/list`);
  return (tools as { name?: string; annotations?: { readOnlyHint?: boolean } }[]).flatMap((each) =>
    each.annotations?.readOnlyHint === true ? (each.name ?? []) : [],
  );
}

function inWords(suggested: SuggestedRule): string {
  const { kind, tool, after, same, runs, exceptions, confidence, isHabit, examples } = suggested;
  const value = same && ` with ${same.argument} as ${same.earlier} of its ${same.from}`;
  const rule = kind === 'once' ? `${tool} once` : `${tool} after ${after}${value ?? ''}`;
  const broken = exceptions === 0 ? 'no exception' : `${exceptions} exceptions`;
  const such = examples.length === 0 ? '' : `, such as ${examples.join(', ')}`;
  const habit = isHabit ? '; only habit shows it' : '';
  const share = `${Math.floor(confidence * 1_000) / 10} %`;
  return `${rule}: ${runs} runs, ${broken}, ${share}${such}${habit}`;
}

type Earlier = string | { tool: string; same: Record<string, Record<string, string>> };

/** A gate in JSON, as `check` and `gate` read it. */
function gateOf(id: string, rules: readonly SuggestedRule[]): object {
  const order: Record<string, { after?: Earlier[]; once?: true }> = {};
  for (const { kind, tool, after = '', same } of rules) {
    const rule = order[tool] ?? {};
    order[tool] = rule;
    if (kind === 'once') rule.once = true;
    else if (same === undefined) rule.after = [...(rule.after ?? []), after];
    else {
      const { argument, earlier, from } = same;
      const value = { tool: after, same: { [argument]: { [from]: earlier } } };
      rule.after = [...(rule.after ?? []), value];
    }
  }
  return { id, order };
}
