import * as fc from 'fast-check';
import { InterlockError, type OrderRules, StateMachineGate } from '../../src/index.ts';
import {
  type Requirement as AskedRequirement,
  type Rule as AskedRule,
  type ForwardedCall,
  type Json,
  judge,
} from '../checker/rules.ts';
import { Door, refusalIn } from './door.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

const TOOLS = ['t0', 't1', 't2', 't3', 't4'];
const NAMES = ['x', 'y', 'constructor'];

/** Each line has the spellings of one value; no two lines have the same value. */
const VALUES: readonly (readonly string[])[] = [
  ['7', '7.0', '70e-1', '0.7E+1'],
  ['"7"', '"\\u0037"'],
  ['1234567890123456789', '1234567890123456789.0', '12345678901234567890e-1'],
  ['1234567890123456790', '123456789012345679e1'],
  ['9007199254740992', '9.007199254740992E15'],
  ['9007199254740993', '9007199254740993.00'],
  ['0.1', '0.10000000000000001', '1e-1'],
  ['0', '-0', '0.0', '0e9'],
  ['1e400', '10e399'],
  ['1e-400', '0.1e-399'],
  ['null'],
  ['true'],
  ['""'],
  ['"é"', '"\\u00e9"'],
  ['"e\u0301"'],
  ['{"a":1,"b":[2]}', '{ "b" : [2.0], "a":1e0 }'],
  ['{"a":[2],"b":1}', '{"b":1,"a":[2]}'],
  ['[1,2]', '[1.0 ,\n20e-1]'],
  ['[2,1]'],
  ['[]'],
  ['{}'],
];

interface Needed {
  readonly tool: string;
  /** This call's argument, and the earlier call's. */
  readonly same: readonly (readonly [own: string, earlier: string])[];
  readonly consumes: boolean;
}
type Requirement =
  | Needed
  | { readonly all: readonly Requirement[] }
  | { readonly any: readonly Requirement[] };
interface Rule {
  readonly after: Requirement | undefined;
  readonly undoneBy: readonly string[];
  readonly once: boolean;
  readonly step: boolean;
}

const pairs = fc.uniqueArray(fc.tuple(fc.constantFrom('x', 'y'), fc.constantFrom(...NAMES)), {
  maxLength: 2,
  selector: ([own]) => own,
});

/** A tool needs only tools before it, so that no rule is impossible. */
function requirement(before: readonly string[]): fc.Arbitrary<Requirement> {
  const needed = fc.record({
    tool: fc.constantFrom(...before),
    same: fc.oneof({ weight: 2, arbitrary: pairs }, fc.constant([['x', 'x']] as const)),
    consumes: fc.boolean(),
  });
  const some = fc.array(needed, { minLength: 1, maxLength: 3 });
  return fc.oneof(
    { weight: 3, arbitrary: needed },
    some.map((all) => ({ all })),
    some.map((any) => ({ any })),
    fc.tuple(some, needed).map(([any, other]) => ({ all: [{ any }, other] })),
  );
}

const ruleOf = (tool: string): fc.Arbitrary<Rule> => {
  const before = TOOLS.slice(0, TOOLS.indexOf(tool));
  const others = TOOLS.filter((each) => each !== tool);
  return fc.record({
    after:
      before.length === 0
        ? fc.constant(undefined)
        : fc.option(requirement(before), { nil: undefined, freq: 5 }),
    undoneBy: fc.oneof(fc.constant([]), fc.subarray(others, { minLength: 1, maxLength: 1 })),
    once: fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, fc.constant(true)),
    step: fc.boolean(),
  });
};

/** A value's line, and which of its spellings. Often one of few values, so that calls agree. */
const value = fc.tuple(
  fc.oneof({ weight: 3, arbitrary: fc.nat(1) }, fc.nat(VALUES.length - 1)),
  fc.nat(3),
);
const call = fc.record({
  tool: fc.constantFrom(...TOOLS),
  given: fc.tuple(...NAMES.map(() => fc.option(value, { freq: 8 }))),
  fails: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, fc.constant(true)),
});
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;

const play = fc.record({
  rules: fc.tuple(...TOOLS.map((tool) => fc.option(ruleOf(tool), { freq: 5 }))),
  calls: fc.array(call, { minLength: 4, maxLength: 24, size: 'max' }),
});
type Play = typeof play extends fc.Arbitrary<infer T> ? T : never;

export const rules: Target = {
  name: 'rules',
  what: 'rules of order with `same` allow just what an evaluator from outside allows, in any spelling',
  inputs: 25,
  async open(): Promise<OpenTarget> {
    return { property: fc.asyncProperty(play, playOut), describe, close: async () => {} };
  },
};

async function playOut({ rules: drawn, calls }: Play): Promise<void> {
  const known = rulesOf(drawn);
  if (known.size === 0) return;
  const door = new Door({
    gate: gateOf(known),
    answer: ({ message }) =>
      message.method === 'tools/list'
        ? { tools: TOOLS.map((name) => ({ name, inputSchema: { type: 'object' } })) }
        : { content: [], isError: message.params._meta?.fails === true },
  });
  const headers = await door.begin();
  const model = new Model(known);
  for (const each of calls) {
    const shown = await door.ask('tools/list', '{}', headers);
    const names: string[] = shown.message.result.tools.map(({ name }: { name: string }) => name);
    const expected = TOOLS.filter((tool) => model.shows(tool));
    if (String(names) !== String(expected))
      broken('a list shows other tools than the rules say', `${names}, not ${expected}`);
    const isAllowed = model.allows(each);
    const before = door.ran.length;
    const answer = await door.ask('tools/call', textOf(each), headers);
    if (door.ran.length > before !== isAllowed)
      broken(
        `a call was ${isAllowed ? 'refused' : 'forwarded'}, and the rules say otherwise`,
        `${textOf(each)}: ${refusalIn(answer) ?? answer.text}`,
      );
    if (isAllowed) model.end(each);
  }
}

/** `step: false` is an error beside some other rules, so it is left out there. */
function rulesOf(drawn: Play['rules']): ReadonlyMap<string, Rule> {
  const entries = drawn.flatMap((rule, at) => (rule === null ? [] : [[`t${at}`, rule] as const]));
  const known = new Map<string, Rule>(entries);
  for (const [tool, rule] of entries) {
    if (rule.step || isPossible(known)) continue;
    known.set(tool, { ...rule, step: true });
  }
  return known;
}

function isPossible(known: ReadonlyMap<string, Rule>): boolean {
  try {
    return gateOf(known) !== undefined;
  } catch (error) {
    if (error instanceof InterlockError && error.message.includes('step: false')) return false;
    throw error;
  }
}

function gateOf(known: ReadonlyMap<string, Rule>): StateMachineGate<string, string> {
  const written = [...known].map(([tool, { after, undoneBy, once, step }]) => [
    tool,
    { undoneBy, once, ...(!step && { step }), ...(after && { after: [writtenOf(after)] }) },
  ]);
  return StateMachineGate.fromOrder(Object.fromEntries(written) as OrderRules, { id: 'rules' });
}

function writtenOf(needs: Requirement): AskedRequirement {
  if ('all' in needs) return { all: needs.all.map(writtenOf) };
  if ('any' in needs) return { any: needs.any.map(writtenOf) };
  const { tool, same, consumes } = needs;
  if (same.length === 0 && !consumes) return tool;
  return { tool, consumes, ...(same.length > 0 && { same: tableOf(same) }) };
}

/** A list where the names are the same in both calls, and else a table. */
function tableOf(same: Needed['same']): readonly string[] | { readonly [own: string]: string } {
  return same.every(([own, earlier]) => own === earlier)
    ? same.map(([own]) => own)
    : Object.fromEntries(same);
}

function textOf({ tool, given, fails }: Call): string {
  const members = given.flatMap((each, at) => {
    if (each === null) return [];
    const spellings = VALUES[each[0]] ?? [];
    return `"${NAMES[at]}":${spellings[each[1] % spellings.length]}`;
  });
  return `{"name":"${tool}","arguments":{${members.join()}},"_meta":{"fails":${fails}}}`;
}

/** The arguments for the evaluator, which reads plain JSON: a value is the name of its line. */
function argsOf({ given }: Call): { readonly [name: string]: Json } {
  return Object.fromEntries(
    given.flatMap((each, at) => (each === null ? [] : [[NAMES[at] ?? '', lineOf(each[0])]])),
  );
}

/** The members of a list are compared one by one, so a list stays one. */
function lineOf(line: number): Json {
  const [text = ''] = VALUES[line] ?? [];
  return text.startsWith('[') ? JSON.parse(text) : `line ${line}`;
}

/** What an evaluator from outside says of calls, and by that what a list shows. */
class Model {
  readonly #rules: ReadonlyMap<string, Rule>;
  readonly #written: Readonly<Record<string, AskedRule>>;
  readonly #history: ForwardedCall[] = [];

  constructor(known: ReadonlyMap<string, Rule>) {
    this.#rules = known;
    this.#written = Object.fromEntries([...known].map(([tool, rule]) => [tool, ruleFor(rule)]));
  }

  /** Whether a list shows the tool: values count for calls alone, and what they use up for both. */
  shows(tool: string): boolean {
    const rule = this.#rules.get(tool);
    if (rule?.once === true && this.#isThere({ tool, consumes: true })) return false;
    return rule?.after === undefined || this.#isThere(withoutValues(rule.after));
  }

  #isThere(after: AskedRequirement): boolean {
    return this.#isAllowed({ ...this.#written, probe: { after } }, 'probe', {});
  }

  allows(each: Call): boolean {
    return this.#isAllowed(this.#written, each.tool, argsOf(each));
  }

  #isAllowed(rules: Readonly<Record<string, AskedRule>>, tool: string, args: Json): boolean {
    const call = { tool, args, at: this.#history.length };
    return judge({ rules }, this.#history, call).verdict === 'allowed';
  }

  end({ fails, ...call }: Call): void {
    const outcome = fails ? 'failed' : 'succeeded';
    const claimedAt = this.#history.length;
    this.#history.push({ tool: call.tool, args: argsOf({ ...call, fails }), outcome, claimedAt });
  }
}

function withoutValues(needs: Requirement): AskedRequirement {
  if ('all' in needs) return { all: needs.all.map(withoutValues) };
  if ('any' in needs) return { any: needs.any.map(withoutValues) };
  return { tool: needs.tool, consumes: needs.consumes };
}

function ruleFor({ after, undoneBy, once }: Rule): AskedRule {
  return { undoneBy, once, ...(after && { after: writtenOf(after) }) };
}

function describe({ rules: drawn, calls }: Play): string {
  const known = rulesOf(drawn);
  const rule = ([tool, { after, ...rest }]: [string, Rule]): string =>
    `  ${tool}: ${JSON.stringify({ ...rest, after: after && writtenOf(after) })}`;
  return [...[...known].map(rule), ...calls.map((each) => `  ${textOf(each)}`)].join('\n');
}
