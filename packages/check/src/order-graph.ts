/**
 * Rules of order as a graph: what needs what. It hides how a rule, or an expression of a further
 * binding, becomes edges and words, and where several of them need a junction.
 */
import {
  ANY_STATE,
  type AnyBinding,
  type BoundState,
  type CheckedLimit,
  type Decimal,
  eventNamed,
  isBoundByCalls,
  isChosen,
  isLeaf,
  type Leaf,
  type Mark,
  type Order,
  pathWords,
  type Requirement,
  saidBy,
  showDecimal,
  type Test,
  type ValueSource,
  type Workflow,
  windowWords,
} from '../../../src/internal.ts';
import type {
  EdgeTool,
  GraphCalls,
  GraphCondition,
  GraphEdge,
  GraphLimit,
  GraphNode,
  Layout,
} from './graph-data.ts';

/** What a tool needs. `all` of nothing is always there; `any` of nothing is never there. */
type Need =
  | {
      readonly edge: Pick<
        GraphEdge,
        'from' | 'type' | 'calls' | 'holds' | 'consumes' | 'when' | 'says'
      >;
      /** The same for the same need, in any words. */
      readonly key: string;
    }
  | { readonly all: readonly Need[]; readonly when?: Test | undefined }
  | { readonly any: readonly Need[]; readonly when?: Test | undefined };

const OUTCOMES = ['success', 'failure'] as const;

/** Each tool of the rules, each further bound tool, and what each of them needs. */
export function layoutOfOrder(workflow: Workflow, order: Order): Layout {
  const ruled = new Set(order.names);
  const names = [...new Set([...ruled, ...workflow.toolNames])];
  const tools = names.map((id): GraphNode => {
    const { once = false } = order.ruleOf(id) ?? {};
    const label = order.outside.has(id) ? `${id}, from outside` : id;
    return { id, label, type: 'tool', ...(once && { once, holds: order.doneAs(id) }) };
  });
  const junctions: GraphNode[] = [];
  const edges: Omit<GraphEdge, 'id'>[] = [];
  const plain = { event: '', isGuarded: false, tools: [] } as const;
  // No tool's name may be the id of a junction.
  let mark = '*';
  while (names.some((name) => name.startsWith(mark))) mark += '*';
  const lead = (need: Need, to: string, joins: 'any' | 'all'): void => {
    if ('edge' in need) {
      edges.push({ to, ...plain, ...need.edge });
      return;
    }
    const [type, parts] =
      'all' in need ? (['all', need.all] as const) : (['any', need.any] as const);
    if (type === joins && need.when === undefined) {
      for (const part of parts) lead(part, to, joins);
      return;
    }
    const id = `${mark}${junctions.length + 1}`;
    junctions.push({ id, label: `${type} of`, type });
    for (const part of parts) lead(part, id, type);
    edges.push({ from: id, to, type: 'before', ...plain, ...askedIf(need.when) });
  };
  for (const name of names) {
    const rule = order.ruleOf(name);
    const bindings = ruled.has(name) ? [] : workflow.bindingsOf(name);
    const needs = bindings.flatMap(({ states }) =>
      states.map((each) => neededFor(order, each, true)),
    );
    if (rule?.after !== undefined) lead(simplest(needOf(order, rule.after)), name, 'all');
    if (needs.length > 0) lead(simplest({ any: needs }), name, 'all');
    for (const each of rule?.notAfter ?? []) lead(leafNeed(order, each, 'notAfter'), name, 'all');
    for (const from of rule?.undoneBy ?? [])
      edges.push({ from, to: name, type: 'undoes', ...plain, says: ['undoes'] });
    for (const event of bindings.length > 0 ? workflow.model.events : []) {
      const takers = OUTCOMES.flatMap((outcome) => takerOf(bindings, outcome, event));
      if (takers.length === 0) continue;
      edges.push({ from: name, to: event, type: 'event', event, isGuarded: false, tools: takers });
    }
  }
  return { nodes: [...tools, ...junctions], edges };
}

function needOf(order: Order, after: Requirement): Need {
  if (isLeaf(after)) return leafNeed(order, after, 'after');
  const { when } = after;
  return 'all' in after
    ? { all: after.all.map((each) => needOf(order, each)), when }
    : { any: after.any.map((each) => needOf(order, each)), when };
}

function leafNeed(order: Order, leaf: Leaf, kind: Mark['kind']): Need {
  const { tool: from, consumes, when } = leaf;
  const holds = order.markOf(leaf, kind);
  // Where it uses calls up, that says already that it needs unused ones.
  const calls = callsOf(leaf, false);
  const says = [
    ...(kind === 'notAfter' ? ['not after'] : []),
    ...callWords(calls),
    ...(when === undefined ? [] : [`if ${testWords(when)}`]),
    ...(consumes === 'never'
      ? []
      : [
          (consumes === 'calls' ? 'each call uses' : 'uses') +
            (leaf.times > 1 ? ' them up' : ' it up'),
        ]),
  ];
  const edge = {
    from,
    type: kind === 'after' ? ('before' as const) : ('unless' as const),
    ...(calls !== undefined && { calls }),
    holds,
    ...(consumes !== 'never' && {
      consumes: consumes === 'calls' ? ('calls' as const) : (true as const),
    }),
    ...(when !== undefined && { when: conditionOf(when) }),
    says,
  };
  const pairs = [
    ...leaf.same.map(({ own, earlier }) => [own.path, earlier.from, earlier.path, earlier.fold]),
    ...leaf.atMost.map(({ own, earlier }) => [own.source.path, earlier.source]),
  ];
  return { edge, key: JSON.stringify([holds, kind, pairs, consumes, when?.key]) };
}

/** @param isUnused whether only calls count that no other call has used up */
function callsOf(leaf: Omit<Leaf, 'consumes'>, isUnused: boolean): GraphCalls | undefined {
  const { withinMs, same, tests, outcome, times, distinct } = leaf;
  const pairs = same.map(({ own, earlier }) => [pathWords(own.path), valueAt(earlier)] as const);
  const calls: GraphCalls = {
    ...(withinMs !== Number.POSITIVE_INFINITY && { within: withinMs }),
    ...(pairs.length > 0 && { same: Object.fromEntries(pairs) }),
    ...Object.fromEntries(tests.map((each) => [each.from, conditionOf(each)])),
    ...(outcome !== 'succeeded' && { outcome }),
    ...(times > 1 && { times }),
    ...(distinct !== undefined && { distinct: valueAt(distinct) }),
    ...(isUnused && { unused: true }),
  };
  return Object.keys(calls).length === 0 ? undefined : calls;
}

function valueAt({ from, path }: ValueSource): string | { readonly result: string } {
  return from === 'args' ? pathWords(path) : { result: path };
}

function conditionOf(test: Test): GraphCondition {
  const said = saidBy(test);
  return typeof said === 'function' ? true : (said as GraphCondition);
}

/** What an expression needs to be true, or to be false where that is wanted. */
function neededFor(order: Order, expression: BoundState, wanted: boolean): Need {
  if (expression === ANY_STATE) return wanted ? { all: [] } : { any: [] };
  if (typeof expression === 'string') {
    const { leaf } = order.model.markOf(expression) ?? {};
    const calls = leaf && callsOf(leaf, leaf.consumes !== 'never' && order.consumes(leaf.tool));
    const edge = {
      from: leaf?.tool ?? expression,
      type: wanted ? ('before' as const) : ('unless' as const),
      ...(calls !== undefined && { calls }),
      holds: expression,
      says: [...(wanted ? [] : ['must not be done']), ...callWords(calls)],
    };
    return { edge, key: JSON.stringify([expression, wanted]) };
  }
  // Rules of order have no tags.
  if ('tag' in expression) return { any: [] };
  if ('not' in expression) return neededFor(order, expression.not, !wanted);
  const isAll = 'all' in expression;
  const parts = (isAll ? expression.all : expression.any).map((each) =>
    neededFor(order, each, wanted),
  );
  return isAll === wanted ? { all: parts } : { any: parts };
}

/** The same with nothing in it twice, no `all` in `all`, no `any` in `any`, and neither of one. */
function simplest(need: Need): Need {
  if ('edge' in need) return need;
  const isAll = 'all' in need;
  const parts = (isAll ? need.all : need.any).map(simplest).flatMap((part): readonly Need[] => {
    if ('edge' in part || part.when !== undefined) return [part];
    if (isAll) return 'all' in part ? part.all : [part];
    return 'any' in part ? part.any : [part];
  });
  const distinct = [...new Map(parts.map((part) => [keyOf(part), part])).values()];
  // `any` of nothing can never be, and `all` of nothing always is.
  const decisive = distinct.find((part) =>
    isAll ? 'any' in part && part.any.length === 0 : 'all' in part && part.all.length === 0,
  );
  if (decisive !== undefined) return decisive;
  const [only, ...others] = distinct;
  const { when } = need;
  if (only !== undefined && others.length === 0) {
    if (when === undefined) return only;
    if ('edge' in only && only.edge.when === undefined) {
      const { edge, key } = only;
      const { says = [] } = edge;
      const asked = { when: conditionOf(when), says: [...says, `if ${testWords(when)}`] };
      return { edge: { ...edge, ...asked }, key: JSON.stringify([key, when.key]) };
    }
  }
  return isAll ? { all: distinct, when } : { any: distinct, when };
}

function keyOf(need: Need): string {
  if ('edge' in need) return need.key;
  const [type, parts] = 'all' in need ? ['all', need.all] : ['any', need.any];
  return JSON.stringify([type, need.when?.key, (parts as readonly Need[]).map(keyOf)]);
}

function askedIf(when: Test | undefined): Pick<GraphEdge, 'when' | 'says'> {
  return when === undefined ? {} : { when: conditionOf(when), says: [`if ${testWords(when)}`] };
}

/** A further tool whose calls may make the tool `event` done. */
function takerOf(
  bindings: readonly AnyBinding[],
  outcome: EdgeTool['outcome'],
  event: string,
): EdgeTool[] {
  const sending = bindings.filter(({ [outcome]: source }) =>
    isChosen(source) ? true : eventNamed(source) === event,
  );
  const [first] = sending;
  if (first === undefined) return [];
  return [
    {
      name: first.tool,
      outcome,
      isGuarded: bindings.some(
        ({ guard, visible }) => guard !== undefined || visible !== undefined,
      ),
      isPartial: sending.every(({ when }) => when !== undefined),
      isChosen: sending.every((each) => isChosen(each[outcome])),
      isPartly: sending.length < bindings.length,
    },
  ];
}

// --- limits, and words ------------------------------------------------------------------------

export function limitToDraw(limit: CheckedLimit): GraphLimit {
  const { times, sum, withinMs, same, when, outcome, also } = limit;
  const paths = same.map(({ own }) => pathWords(own.path));
  const bound =
    sum &&
    (isBoundByCalls(sum)
      ? `${sum.bound.amount.source.path} of ${sum.bound.leaf.tool}`
      : showDecimal(sum.bound as Decimal));
  const counted = outcome === 'succeeded' ? '' : outcome === 'failed' ? ' failures' : ' calls';
  const words = [
    sum === undefined
      ? `at most ${times}${counted}`
      : `${sum.source.path} ${sum.isIncluded ? 'up to' : 'below'} ${bound}`,
    ...(withinMs === Number.POSITIVE_INFINITY ? [] : [`in ${windowWords(withinMs)}`]),
    ...(also.length === 0 ? [] : [`with ${also.map(({ tool }) => tool).join(' and ')}`]),
    ...(paths.length === 0 ? [] : [`for each ${paths.join(' and ')}`]),
    ...(when === undefined ? [] : [`if ${testWords(when)}`]),
  ];
  return {
    ...(times !== undefined && { times }),
    ...(sum && { sum: sum.source.path, [sum.isIncluded ? 'max' : 'below']: bound }),
    ...(withinMs !== Number.POSITIVE_INFINITY && { within: withinMs }),
    ...(paths.length > 0 && { same: paths }),
    ...(when !== undefined && { when: conditionOf(when) }),
    ...(outcome !== 'succeeded' && { outcome }),
    says: words.join(' '),
  };
}

/** Which calls count, in short. */
function callWords(calls: GraphCalls = {}): readonly string[] {
  const { within, same = {}, args, result, outcome, times, distinct, unused } = calls;
  const pairs = Object.entries(same).map(([own, earlier]) => {
    if (typeof earlier !== 'string') return `${own} = ${earlier.result} of its result`;
    return own === earlier ? own : `${own} = ${earlier}`;
  });
  const path = typeof distinct === 'object' ? distinct.result : distinct;
  return [
    ...(times === undefined ? [] : [`${times} times`]),
    ...(path === undefined ? [] : [`different ${path}`]),
    ...(outcome === undefined ? [] : [outcome === 'failed' ? 'failed' : 'any outcome']),
    ...(pairs.length === 0 ? [] : [`same ${pairs.join(', ')}`]),
    ...(args === undefined ? [] : [`with ${conditionWords(args)}`]),
    ...(result === undefined ? [] : [`result ${conditionWords(result)}`]),
    ...(within === undefined ? [] : [`within ${windowWords(within)}`]),
    ...(unused ? ['if unused'] : []),
  ];
}

function testWords(test: Test): string {
  return conditionWords(conditionOf(test));
}

const SIGNS = { eq: '=', ne: 'not', gt: '>', gte: '>=', lt: '<', lte: '<=', in: 'in' } as const;

/** `amount > 10000`, `status = open or status = new`. */
function conditionWords(condition: unknown): string {
  if (condition === true) return 'a function says so';
  const members = Object.entries(condition as Record<string, unknown>);
  const parts = members.flatMap(([name, member]): string[] => {
    if (member === undefined) return [];
    if (name === 'any') return [(member as unknown[]).map(conditionWords).join(' or ')];
    if (name === 'not') return [`not ${conditionWords(member)}`];
    if (typeof member !== 'object' || member === null) return [`${name} = ${member}`];
    return Object.entries(member).map(([operator, operand]) => {
      if (operator === 'exists') return `${name} is ${operand ? 'there' : 'missing'}`;
      const value = Array.isArray(operand) ? operand.join(', ') : operand;
      return `${name} ${SIGNS[operator as keyof typeof SIGNS]} ${value}`;
    });
  });
  return parts.join(' and ');
}
