/**
 * What is wrong with rules and limits. Hides how a rule that can never be met is found, and what
 * must be known of the app for the rest.
 */
import {
  type CheckedLimit,
  type CheckedSum,
  compareDecimals,
  type Decimal,
  decimalOf,
  eventNamed,
  isBoundByCalls,
  isChosen,
  isLeaf,
  isTable,
  type Leaf,
  leavesOf,
  type Order,
  type Requirement,
  scaled,
  showDecimal,
  showValue,
  type Workflow,
  windowsOf,
  windowWords,
} from '../../../src/internal.ts';
import { isNever } from './order-moves.ts';

/** The codes of these findings. */
export const RULE_CODES = {
  'rule-unmeetable': 'error',
  'limit-too-low': 'error',
  'argument-not-listed': 'warning',
  'text-unfolded': 'warning',
  'currency-mixed': 'warning',
  'limit-resettable': 'warning',
  'window-outlives-run': 'warning',
  'guesses-unlimited': 'warning',
  'tries-unlimited': 'note',
  'records-joined': 'note',
  'function-unnamed': 'note',
} as const;

/** What is wrong with one tool's rule. */
export interface RuleFault {
  readonly code: keyof typeof RULE_CODES;
  readonly place: string;
  readonly message: string;
  readonly remedy: string;
}

/** What names runs, as `sessionStore({ key })` takes it. */
export interface NamesRuns {
  readonly kind: 'principal' | keyof typeof RUNS_BY;
}

/** What the gate cannot know of the app. */
export interface RuleSurroundings {
  readonly idleMs: number | undefined;
  /** What names runs. */
  readonly keys: readonly NamesRuns[];
  /** The events that `runs.send()` is known to send. */
  readonly outside: readonly string[];
  /** The server's tools as `tools/list` returns them. */
  readonly tools: readonly { readonly name: string; readonly inputSchema?: unknown }[];
}

const FOR_EVER = Number.POSITIVE_INFINITY;

export function ruleFaults(workflow: Workflow, around: RuleSurroundings): readonly RuleFault[] {
  const { order } = workflow;
  // Each tool is asked of others by an index: there may be thousands of rules.
  const schemas = new Map(around.tools.map(({ name, inputSchema }) => [name, inputSchema]));
  const isSentByOthers = sendersOf(workflow);
  const isSent = (tool: string): boolean => around.outside.includes(tool) || isSentByOthers(tool);
  const needing = order && needingOf(order);
  return workflow.toolNames.flatMap((tool): readonly RuleFault[] => {
    const limits = limitsOf(workflow, tool);
    return [
      ...(order === undefined ? [] : unmeetable(workflow, order, tool, isSent)),
      ...limits.flatMap((limit) => tooLow(tool, limit, schemas.get(tool))),
      ...limits.flatMap((limit) => unfolded(tool, limit, schemas.get(tool))),
      ...limits.flatMap((limit) => mixed(tool, limit, schemas.get(tool))),
      ...absent(workflow, tool, schemas.get(tool)),
      ...resettable(workflow, tool, around),
      ...outliving(workflow, tool, around),
      ...unnamed(workflow, tool),
      ...joined(workflow, tool),
      ...(order === undefined ? [] : unlimited(workflow, order, tool, needing?.get(tool))),
    ];
  });
}

/** Says whether calls of other tools count as successes of a tool. A function may choose any. */
function sendersOf(workflow: Workflow): (tool: string) => boolean {
  const choosing = new Set<string>();
  const senders = new Map<string | undefined, Set<string>>();
  for (const name of workflow.toolNames)
    for (const { success, failure } of workflow.bindingsOf(name))
      for (const each of [success, failure]) {
        const event = eventNamed(each);
        const known = isChosen(each) ? choosing : senders.get(event);
        if (known === undefined) senders.set(event, new Set([name]));
        else known.add(name);
      }
  const isOther = (names: ReadonlySet<string> | undefined, tool: string): boolean =>
    names !== undefined && names.size > (names.has(tool) ? 1 : 0);
  return (tool) => isOther(choosing, tool) || isOther(senders.get(tool), tool);
}

/** For each tool the first one that needs a success of it. */
function needingOf(order: Order): ReadonlyMap<string, string> {
  const needing = new Map<string, string>();
  for (const name of order.names)
    for (const { tool, outcome } of leavesOf(order.ruleOf(name)?.after))
      if (outcome === 'succeeded' && !needing.has(tool)) needing.set(tool, name);
  return needing;
}

function limitsOf(workflow: Workflow, tool: string): readonly CheckedLimit[] {
  return workflow.bindingsOf(tool).flatMap(({ demands }) => demands?.limits ?? []);
}

// --- rules that can never be met ----------------------------------------------------------------

function unmeetable(
  workflow: Workflow,
  order: Order,
  tool: string,
  isSent: (tool: string) => boolean,
): readonly RuleFault[] {
  const rule = order.ruleOf(tool);
  if (rule?.after === undefined) return [];
  const why = whyNever(rule.after, (leaf) => {
    const bar = rule.notAfter.find((each) => isBarredBy(leaf, each));
    if (bar !== undefined) return `it must not come after ${callWords(bar)}, and needs just that`;
    return isSent(leaf.tool) ? undefined : tooMany(workflow, order, leaf);
  });
  if (why === undefined) return [];
  return [
    {
      code: 'rule-unmeetable',
      place: tool,
      message: `tool ${showValue(tool)} can never be called: ${why}`,
      remedy:
        'Change one of the two parts. If runs.send() reports such calls, name the tool in ' +
        '"outside".',
    },
  ];
}

/** @param fault says why a single earlier call can never be there */
function whyNever(
  need: Requirement,
  fault: (leaf: Leaf) => string | undefined,
): string | undefined {
  // It is not about each call.
  if (need.when !== undefined) return undefined;
  if (isLeaf(need)) return fault(need);
  if ('all' in need) {
    for (const each of need.all) {
      const why = whyNever(each, fault);
      if (why !== undefined) return why;
    }
    return undefined;
  }
  const all = need.any.map((each) => whyNever(each, fault));
  return all.every((why) => why !== undefined) ? all[0] : undefined;
}

/** Whether each call that counts for the leaf is one that must not be there. */
function isBarredBy(leaf: Leaf, bar: Leaf): boolean {
  const isAbout = bar.when === undefined && bar.same.length === 0 && bar.distinct === undefined;
  const isSameCall = bar.tool === leaf.tool && [leaf.outcome, 'any'].includes(bar.outcome);
  const counts = bar.tests.every(({ from, key }) =>
    leaf.tests.some((each) => each.from === from && each.key === key),
  );
  return (
    isAbout && isSameCall && counts && bar.times <= leaf.times && bar.withinMs >= leaf.withinMs
  );
}

/** Why there can never be as many calls as the leaf asks for. */
function tooMany(workflow: Workflow, order: Order, leaf: Leaf): string | undefined {
  const { tool, times, outcome, withinMs, consumes } = leaf;
  const limit = limitsOf(workflow, tool).find(
    (each) =>
      each.times !== undefined &&
      each.times < times &&
      each.when === undefined &&
      each.same.length === 0 &&
      (each.outcome === 'any' || each.outcome === outcome) &&
      each.withinMs >= withinMs,
  );
  const needs = `it needs ${times} calls of ${showValue(tool)}`;
  if (limit !== undefined)
    return `${needs}, whose limit is ${limit.times}${windowSuffix(limit.withinMs)}`;
  const { once = false } = order.ruleOf(tool) ?? {};
  if (!once || times === 1 || outcome !== 'succeeded') return undefined;
  // A use makes room for another success, and a used call still counts where nothing is used up.
  const isUsed = consumes === 'never' && order.consumes(tool);
  return isUsed ? undefined : `${needs}, which says once`;
}

function callWords({ tool, withinMs }: Leaf): string {
  return `${showValue(tool)}${windowSuffix(withinMs)}`;
}

function windowSuffix(withinMs: number): string {
  return withinMs === FOR_EVER ? '' : ` in ${windowWords(withinMs)}`;
}

// --- limits ---------------------------------------------------------------------------------

/** A sum that one call goes beyond already, by the least that the tool's schema takes. */
function tooLow(tool: string, { sum, when }: CheckedLimit, schema: unknown): readonly RuleFault[] {
  if (sum === undefined || when !== undefined) return [];
  const least = leastOf(schema, sum);
  const number = decimalOf(least?.number, false);
  if (least === undefined || number === undefined) return [];
  if (isBoundByCalls(sum)) return [];
  const bound = sum.bound as Decimal;
  const order = compareDecimals(scaled(number, sum) ?? number, bound);
  const isAllowed = order < 0 || (order === 0 && sum.isIncluded && !least.isExcluded);
  if (isAllowed) return [];
  const words = `${sum.isIncluded ? 'at most' : 'less than'} ${showDecimal(bound)}`;
  return [
    {
      code: 'limit-too-low',
      place: tool,
      message:
        `no call of tool ${showValue(tool)} is allowed: ${showValue(sum.source.path)} may add up ` +
        `to ${words}, and its schema takes ${least.isExcluded ? 'more than' : 'no less than'} ` +
        `${least.number}`,
      remedy: "Raise the limit, or correct the tool's schema.",
    },
  ];
}

/** Texts under a limit that a client may spell in two ways. */
function unfolded(tool: string, { same }: CheckedLimit, schema: unknown): readonly RuleFault[] {
  const open = same.filter(({ own }) => {
    const found = own.fold === undefined ? schemaAt(schema, own.keys) : undefined;
    const isFixed =
      isTable(found) && ['enum', 'const', 'pattern', 'format'].some((key) => key in found);
    return isTable(found) && found.type === 'string' && !isFixed;
  });
  return open.map(({ own }) => ({
    code: 'text-unfolded',
    place: tool,
    message:
      `a limit of tool ${showValue(tool)} compares the text ${showValue(own.path)} byte for byte: ` +
      'another letter case, or a blank, is another value with room of its own',
    remedy:
      `Say same: { ${showValue(own.path)}: { args: ${showValue(own.path)}, fold: ["space", ` +
      '"nfkc", "case"] } }, or give the argument an "enum" or a "pattern" in its schema.',
  }));
}

/** Amounts of several currencies, added up as if they were of one. */
function mixed(tool: string, { sum, same }: CheckedLimit, schema: unknown): readonly RuleFault[] {
  const found = schemaAt(schema, ['currency']);
  const isOne =
    isTable(found) && ('const' in found || ([found.enum].flat().length === 1 && 'enum' in found));
  const isApart = same.some(({ own }) => own.path === 'currency' || own.path === '');
  if (sum === undefined || found === undefined || isOne || isApart) return [];
  return [
    {
      code: 'currency-mixed',
      place: tool,
      message: `a limit adds up ${showValue(sum.source.path)} of tool ${showValue(tool)} in any currency`,
      remedy: 'Say same: ["currency"] in the limit.',
    },
  ];
}

/** What rules read of a tool's arguments, and its schema lacks. */
function absent(workflow: Workflow, tool: string, schema: unknown): readonly RuleFault[] {
  const paths = workflow.rules.absentArguments(tool, schema);
  return paths.map((path) => ({
    code: 'argument-not-listed',
    place: tool,
    message:
      `a rule reads the argument ${showValue(path)} of tool ${showValue(tool)}, which is not in ` +
      "the tool's input schema",
    remedy: "Correct the path, or add the argument to the tool's schema.",
  }));
}

interface Least {
  readonly number: number;
  readonly isExcluded: boolean;
}

/** The least amount that a schema takes; `undefined` where it does not say. */
function leastOf(schema: unknown, { source }: CheckedSum): Least | undefined {
  const found = schemaAt(schema, source.keys);
  if (!isTable(found)) return undefined;
  const { minimum, exclusiveMinimum } = found;
  const least = typeof minimum === 'number' ? { number: minimum, isExcluded: false } : undefined;
  if (typeof exclusiveMinimum !== 'number') return least;
  const isHigher = least === undefined || exclusiveMinimum >= least.number;
  return isHigher ? { number: exclusiveMinimum, isExcluded: true } : least;
}

/** The schema of an argument; `undefined` where it is not listed. */
function schemaAt(schema: unknown, keys: readonly string[]): unknown {
  let found = schema;
  for (const key of keys) {
    const properties = isTable(found) ? found.properties : undefined;
    if (!isTable(properties) || !Object.hasOwn(properties, key)) return undefined;
    found = properties[key];
  }
  return found;
}

/** What bounds calls by what a run remembers. */
function boundsOf(workflow: Workflow, tool: string): readonly (Leaf | CheckedLimit)[] {
  const notAfter = workflow.bindingsOf(tool).flatMap(({ demands }) => demands?.notAfter ?? []);
  return [...limitsOf(workflow, tool), ...notAfter];
}

const RUNS_BY = {
  session: 'session',
  request: 'conversation',
  handle: 'handle',
  managed: 'handle',
} as const;

function resettable(
  workflow: Workflow,
  tool: string,
  { keys }: RuleSurroundings,
): readonly RuleFault[] {
  const kinds = keys.flatMap(({ kind }) => (kind === 'principal' ? [] : [RUNS_BY[kind]]));
  const [bound] = boundsOf(workflow, tool);
  const [kind] = kinds;
  if (bound === undefined || kind === undefined) return [];
  const what = 'sum' in bound ? 'a limit' : '"notAfter"';
  return [
    {
      code: 'limit-resettable',
      place: tool,
      message:
        `tool ${showValue(tool)} has ${what}, and a client that begins a new ${kind} has a new ` +
        'run, which knows of no earlier call',
      remedy:
        'Give sessionStore({ key: principalKey() }) where clients sign in, so that the limit is ' +
        "the principal's.",
    },
  ];
}

function outliving(
  workflow: Workflow,
  tool: string,
  { idleMs }: RuleSurroundings,
): readonly RuleFault[] {
  if (idleMs === undefined) return [];
  const longest = Math.max(
    0,
    ...workflow.bindingsOf(tool).flatMap(({ demands }) => (demands ? windowsOf(demands) : [])),
  );
  if (longest <= idleMs) return [];
  return [
    {
      code: 'window-outlives-run',
      place: tool,
      message:
        `the rule of tool ${showValue(tool)} looks back ${windowWords(longest)}, and a run is ` +
        `forgotten after an idleMs of ${idleMs} ms`,
      remedy: `Give the session store an idleMs of ${longest} ms or more.`,
    },
  ];
}

/** Another deployment may have another function there, and takes what this one said. */
function unnamed({ rules }: Workflow, tool: string): readonly RuleFault[] {
  const message = rules.ledger?.faultOfNames(tool);
  if (message === undefined) return [];
  const remedy = 'Give each function of a condition a name, unless runs are in memory alone.';
  return [{ code: 'function-unnamed', place: tool, message, remedy }];
}

// --- what may be tried without end ----------------------------------------------------------

function unlimited(
  workflow: Workflow,
  order: Order,
  tool: string,
  needing: string | undefined,
): readonly RuleFault[] {
  const { id } = workflow;
  const limits = limitsOf(workflow, tool);
  const failing = limits.some(({ outcome }) => outcome !== 'succeeded');
  // No client guesses at what is never allowed.
  if (failing || limits.some(isNever)) return [];
  const counted = limits.some(({ times }) => times !== undefined);
  if (counted && needing !== undefined)
    return [
      {
        code: 'guesses-unlimited',
        place: tool,
        message:
          `the limit of tool ${showValue(tool)} counts successes, and tool ` +
          `${showValue(needing)} of workflow "${id}" needs one: calls that fail have no limit, ` +
          'such as guesses of a PIN',
        remedy: "Count each try: limit: { times, within, outcome: 'any' }.",
      },
    ];
  const used = leavesOf(order.ruleOf(tool)?.after).find(({ consumes }) => consumes === 'successes');
  if (used === undefined) return [];
  return [
    {
      code: 'tries-unlimited',
      place: tool,
      message:
        `calls of tool ${showValue(tool)} that fail use up no success of ` +
        `${showValue(used.tool)}, so one is enough for any number of tries`,
      remedy: "Say consumes: 'calls', or limit the tries: limit: { times, outcome: 'any' }.",
    },
  ];
}

// --- what a roll-back does not find ---------------------------------------------------------

function joined(workflow: Workflow, tool: string): readonly RuleFault[] {
  const names = new Set(workflow.bindingsOf(tool).flatMap(({ renamed = [] }) => renamed));
  const [oldest, ...others] = [...names].map((name) => showValue(name));
  const isLimited = limitsOf(workflow, tool).length > 0 || workflow.order?.ruleOf(tool)?.once;
  if (others.length === 0 || !isLimited) return [];
  return [
    {
      code: 'records-joined',
      place: tool,
      message:
        `tool ${showValue(tool)} keeps what ${others.join(' and ')} did under ${oldest}: if they ` +
        'had rules of their own, they have a new budget after a roll-back',
      remedy: 'Check the runs that live with --store: it says which of them that is about.',
    },
  ];
}
