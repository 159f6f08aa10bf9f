/**
 * Rules of order as a graph: what needs what. It hides how a rule, or an expression of a further
 * binding, becomes edges, and where several of them need a junction.
 */
import { type AnyBinding, eventNamed, isChosen } from '../workflow/binding.ts';
import type { Order } from '../workflow/order.ts';
import { ANY_STATE, type BoundState } from '../workflow/position.ts';
import { isLeaf, type Requirement } from '../workflow/rules.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { EdgeTool, GraphEdge, GraphNode, Layout } from './graph-data.ts';

/** What a tool needs. `all` of nothing is always there; `any` of nothing is never there. */
type Need =
  | { readonly edge: Pick<GraphEdge, 'from' | 'type' | 'same' | 'consumes'> }
  | { readonly all: readonly Need[] }
  | { readonly any: readonly Need[] };

const OUTCOMES = ['success', 'failure'] as const;

/** Each tool of the rules, each further bound tool, and what each of them needs. */
export function layoutOfOrder(workflow: Workflow, order: Order): Layout {
  const further = workflow.toolNames.filter((name) => !order.names.includes(name));
  const names = [...order.names, ...further];
  const tools = names.map((id): GraphNode => {
    const { once = false } = order.ruleOf(id) ?? {};
    return { id, label: id, type: 'tool', ...(once && { once }) };
  });
  const junctions: GraphNode[] = [];
  const edges: Omit<GraphEdge, 'id'>[] = [];
  // No tool's name may be the id of a junction.
  let mark = '*';
  while (names.some((name) => name.startsWith(mark))) mark += '*';
  const lead = (need: Need, to: string, joins: 'any' | 'all'): void => {
    if ('edge' in need) {
      edges.push({ to, event: '', isGuarded: false, tools: [], ...need.edge });
      return;
    }
    const [type, parts] =
      'all' in need ? (['all', need.all] as const) : (['any', need.any] as const);
    if (type === joins) {
      for (const part of parts) lead(part, to, joins);
      return;
    }
    const id = `${mark}${junctions.length + 1}`;
    junctions.push({ id, label: `${type} of`, type });
    for (const part of parts) lead(part, id, type);
    edges.push({ from: id, to, type: 'before', event: '', isGuarded: false, tools: [] });
  };
  for (const name of names) {
    const rule = order.ruleOf(name);
    const bindings = further.includes(name) ? workflow.bindingsOf(name) : [];
    const needs = bindings.flatMap(({ states }) => states.map((each) => neededFor(each, true)));
    if (rule?.after !== undefined) lead(simplest(needOf(rule.after)), name, 'all');
    if (needs.length > 0) lead(simplest({ any: needs }), name, 'all');
    for (const from of rule?.undoneBy ?? [])
      edges.push({ from, to: name, type: 'undoes', event: '', isGuarded: false, tools: [] });
    for (const event of workflow.events) {
      const takers = OUTCOMES.flatMap((outcome) => takerOf(bindings, outcome, event));
      if (takers.length === 0) continue;
      const ends = { from: name, to: event } as const;
      edges.push({ ...ends, type: 'event', event, isGuarded: false, tools: takers });
    }
  }
  return { nodes: [...tools, ...junctions], edges };
}

function needOf(after: Requirement): Need {
  if (!isLeaf(after))
    return 'all' in after ? { all: after.all.map(needOf) } : { any: after.any.map(needOf) };
  const { tool: from, same: pairs } = after;
  const same = Object.fromEntries(pairs.map(({ own, earlier }) => [own.path, earlier.path]));
  const consumes = after.consumes !== 'never';
  return {
    edge: {
      from,
      type: 'before',
      ...(pairs.length > 0 && { same }),
      ...(consumes && { consumes }),
    },
  };
}

/** What an expression needs to be true, or to be false where that is wanted. */
function neededFor(expression: BoundState, wanted: boolean): Need {
  if (expression === ANY_STATE) return wanted ? { all: [] } : { any: [] };
  if (typeof expression === 'string')
    return { edge: { from: expression, type: wanted ? 'before' : 'unless' } };
  // Rules of order have no tags.
  if ('tag' in expression) return { any: [] };
  if ('not' in expression) return neededFor(expression.not, !wanted);
  const isAll = 'all' in expression;
  const parts = (isAll ? expression.all : expression.any).map((each) => neededFor(each, wanted));
  return isAll === wanted ? { all: parts } : { any: parts };
}

/** The same with nothing in it twice, no `all` in `all`, no `any` in `any`, and neither of one. */
function simplest(need: Need): Need {
  if ('edge' in need) return need;
  const isAll = 'all' in need;
  const parts = (isAll ? need.all : need.any).map(simplest).flatMap((part): readonly Need[] => {
    if (isAll) return 'all' in part ? part.all : [part];
    return 'any' in part ? part.any : [part];
  });
  const distinct = [...new Map(parts.map((part) => [JSON.stringify(part), part])).values()];
  // `any` of nothing can never be, and `all` of nothing always is.
  const decisive = distinct.find((part) =>
    isAll ? 'any' in part && part.any.length === 0 : 'all' in part && part.all.length === 0,
  );
  if (decisive !== undefined) return decisive;
  const [only, ...others] = distinct;
  if (only !== undefined && others.length === 0) return only;
  return isAll ? { all: distinct } : { any: distinct };
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
