/**
 * A gate's workflow as plain data for a diagram. It hides how each kind of machine keeps its
 * states, and which calls take which of its ways.
 */
import type { AnyBinding } from '../workflow/binding.ts';
import { type ChartNode, covers } from '../workflow/chart.ts';
import type { StateMachineGate } from '../workflow/gate.ts';
import { atomsOf } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { XNode, XTransition } from '../workflow/xstate.ts';

/** The kind of machine that a gate was made of. */
export type WorkflowKind = 'flat' | 'statechart' | 'order';

/** A workflow as plain JSON, to be drawn by any program: see {@link workflowGraph}. */
export interface WorkflowGraph {
  /** The workflow's id, as in `gate.id`. */
  readonly id: string;
  readonly kind: WorkflowKind;
  /**
   * The ids of the nodes that are active where every run begins, outermost first. None for rules of
   * order, where nothing is done at first.
   */
  readonly initial: readonly string[];
  /** In the order of the definition; each node stands behind the one around it. */
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
  /** Every bound tool, in binding order. */
  readonly tools: readonly GraphTool[];
}

/** A state; for rules of order a tool, which is active once it is done. */
export interface GraphNode {
  /**
   * The name that bindings give it: the state of a flat machine, or a path of a statechart. Where
   * the machine of a statechart itself has regions or transitions, it is one more node around all
   * others: `''`.
   */
  readonly id: string;
  /** Its own name, without those around it; for the node `''` the workflow's id. */
  readonly label: string;
  /** The id of the node around it; absent at the top. */
  readonly parent?: string;
  /** `history` stands for the states of its parent that were active last. No run is in it. */
  readonly type: 'atomic' | 'compound' | 'parallel' | 'final' | 'history';
  /** For a compound node: the id of the node inside in which it begins. */
  readonly initial?: string;
  /** The tags of a statechart's state; absent where it has none. */
  readonly tags?: readonly string[];
  /** After how many milliseconds a deadline takes a run out of it. */
  readonly after?: number;
}

/** A way from one state to another. */
export interface GraphEdge {
  /** Unique in its graph, and the same each time for the same gate. */
  readonly id: string;
  readonly from: string;
  /** The same as `from` where the run stays, as for a transition of actions only. */
  readonly to: string;
  /**
   * What takes it:
   * - `event`
   * - `deadline`: the time of its state has passed
   * - `always`: nothing; the machine takes it by itself
   * - `done`: all inside the state has ended
   * - `before`: for rules of order, `to` needs `from`, perhaps among alternatives
   */
  readonly type: 'event' | 'deadline' | 'always' | 'done' | 'before';
  /**
   * The event's name, in a statechart perhaps a pattern such as `cart.*`; `''` where there is none.
   */
  readonly event: string;
  /** Whether it has a guard of the machine. */
  readonly isGuarded: boolean;
  /** For a deadline: its milliseconds. */
  readonly after?: number;
  /** The tools whose calls may take it. So may `runs.send()`, which sends any event. */
  readonly tools: readonly EdgeTool[];
}

/** A tool whose calls may take an edge. */
export interface EdgeTool {
  readonly name: string;
  /** Which outcome of a call sends the event. */
  readonly outcome: 'success' | 'failure';
  /** Whether a guard of the binding may refuse the call. */
  readonly isGuarded: boolean;
  /** Whether only calls take it whose arguments the binding's `when` accepts. */
  readonly isPartial: boolean;
  /** Whether a function chooses the event for each call, and so may choose another one. */
  readonly isChosen: boolean;
}

/** A bound tool. */
export interface GraphTool {
  readonly name: string;
  /**
   * The nodes that its bindings name, by path, by tag or by an expression that may be true there.
   */
  readonly nodes: readonly string[];
  /** Those of its nodes that a success leaves by no edge of the graph. */
  readonly stays: readonly string[];
  /** Whether every binding has a `when`, so that the tool is listed in every state. */
  readonly isPartial: boolean;
}

/**
 * A gate's states, the ways between them, and the tools whose calls take these ways, as plain JSON.
 * It reads the gate, and changes nothing in it.
 */
export function workflowGraph<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
): WorkflowGraph {
  const workflow = gate.clone().compile();
  const kind = kindOf(workflow);
  const { nodes, edges } = LAYOUTS[kind](workflow);
  const numbered = edges.map((edge, at) => ({ id: `e${at}`, ...edge }));
  return {
    id: workflow.id,
    kind,
    initial: activeIn(workflow, workflow.initial),
    nodes,
    edges: numbered,
    tools: workflow.toolNames.map((name) => toolOf(workflow, name, nodes, numbered)),
  };
}

/**
 * The ids of the nodes of {@link workflowGraph} that are active in a stored state, outermost first.
 * None for a text that is no state of the workflow.
 *
 * @param state as runs and trails name it: `payment`, `order.(billing.due|packing.started)`
 */
export function activeNodes<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  state: string,
): readonly string[] {
  return activeIn(gate.clone().compile(), state);
}

function kindOf(workflow: Workflow): WorkflowKind {
  if (workflow.isOrder) return 'order';
  return workflow.chart === undefined ? 'flat' : 'statechart';
}

const LAYOUTS: Readonly<Record<WorkflowKind, (workflow: Workflow) => Layout>> = {
  flat: flatOf,
  statechart: chartOf,
  order: orderOf,
};

function activeIn(workflow: Workflow, state: string): readonly string[] {
  if (workflow.isOrder) return workflow.doneIn(state) ?? [];
  const { chart } = workflow;
  if (chart === undefined) return workflow.hasState(state) ? [state] : [];
  const active = chart.read(state)?.nodes ?? [];
  return active.map(({ path }) => path).filter((path) => path !== '' || isDrawn(chart.root));
}

interface Layout {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly Omit<GraphEdge, 'id'>[];
}

function flatOf(workflow: Workflow): Layout {
  const times = new Map(workflow.deadlines);
  const nodes = workflow.states.map((id): GraphNode => {
    const after = times.get(id);
    const type = workflow.hasEnded(id) ? 'final' : 'atomic';
    return { id, label: id, type, ...(after === undefined ? {} : { after }) };
  });
  const edges = nodes.flatMap(({ id: from, after }) => {
    const events = workflow.eventsIn(from).map((event) => ({
      from,
      to: workflow.next({ state: from }, event).position.state,
      type: 'event' as const,
      event,
      isGuarded: false,
      tools: toolsOn(workflow, from, event),
    }));
    const left = workflow.overdue({ state: from, updatedAt: 0 }, Number.POSITIVE_INFINITY);
    if (after === undefined || left === undefined) return events;
    const to = left.position.state;
    const type = 'deadline' as const;
    return [...events, { from, to, type, event: '', isGuarded: false, after, tools: [] }];
  });
  return { nodes, edges };
}

/** Each tool, and an edge from every tool that its rule names as needed. */
function orderOf(workflow: Workflow): Layout {
  const nodes = workflow.states.map((id): GraphNode => ({ id, label: id, type: 'atomic' }));
  const edges = nodes.flatMap(({ id: to }) => {
    const bindings = workflow.bindingsOf(to);
    const named = new Set(bindings.flatMap(({ states }) => states.flatMap(atomsOf)));
    const needed = nodes.filter(({ id }) => id !== to && named.has(id));
    const isGuarded = bindings.some(({ guard }) => guard !== undefined);
    const type = 'before' as const;
    return needed.map(({ id: from }) => ({ from, to, type, event: '', isGuarded, tools: [] }));
  });
  return { nodes, edges };
}

function chartOf(workflow: Workflow): Layout {
  const root = workflow.chart?.root;
  if (root === undefined) return { nodes: [], edges: [] };
  const isAround = isDrawn(root);
  const ids = new Map<string, string>();
  const nodes: GraphNode[] = [];
  const grow = (source: XNode, id: string, parent: string | undefined): void => {
    ids.set(source.id, id);
    if (id !== '' || isAround) nodes.push(nodeOf(workflow, source, id, parent));
    const inside = id !== '' || isAround ? id : undefined;
    for (const child of Object.values(source.states)) {
      grow(child, pathOf(workflow, child, id), inside);
    }
  };
  grow(root.source, '', undefined);
  const sources = [root, ...(workflow.chart?.nodes.values() ?? [])];
  return { nodes, edges: sources.flatMap((node) => edgesOf(workflow, node, ids)) };
}

/** Whether the machine itself is a node, around those of its states. */
function isDrawn({ source }: ChartNode): boolean {
  return source.type === 'parallel' || source.transitions.size > 0 || isMoving(source.always);
}

function isMoving(always: readonly XTransition[] | undefined): boolean {
  return always !== undefined && always.length > 0;
}

function nodeOf(
  workflow: Workflow,
  source: XNode,
  id: string,
  parent: string | undefined,
): GraphNode {
  const first = source.type === 'compound' ? source.initial?.target?.[0] : undefined;
  return {
    id,
    label: id === '' ? workflow.id : source.key,
    ...(parent === undefined ? {} : { parent }),
    type: source.type,
    ...(first === undefined ? {} : { initial: pathOf(workflow, first, id) }),
    ...(source.tags.length === 0 ? {} : { tags: [...source.tags] }),
  };
}

/** Also gives a path to a history state, which has none since no run is in it. */
function pathOf(workflow: Workflow, source: XNode, parent: string): string {
  const known = [...(workflow.chart?.nodes.values() ?? [])].find((node) => node.source === source);
  const key = source.key.replace(/[\\.|()]/g, '\\$&');
  return known?.path ?? (parent === '' ? key : `${parent}.${key}`);
}

function edgesOf(
  workflow: Workflow,
  { path: from, source }: ChartNode,
  ids: ReadonlyMap<string, string>,
): Omit<GraphEdge, 'id'>[] {
  const ways = [
    ...[...source.transitions].map(([name, transitions]) => ({ ...eventOf(name), transitions })),
    { type: 'always' as const, event: '', transitions: source.always ?? [] },
  ];
  return ways.flatMap(({ type, event, transitions }) => {
    const tools = type === 'event' ? toolsOn(workflow, from, event) : [];
    return transitions.flatMap(({ target, guard }) => {
      const targets = target?.map(({ id }) => ids.get(id) ?? from) ?? [from];
      const isGuarded = guard !== undefined;
      return targets.map((to) => ({ from, to, type, event, isGuarded, tools }));
    });
  });
}

/** XState has an event of its own for the end of a state. */
function eventOf(name: string): Pick<GraphEdge, 'type' | 'event'> {
  return name.startsWith('xstate.') ? { type: 'done', event: '' } : { type: 'event', event: name };
}

/** The tools whose calls may send the event where `from` is active. */
function toolsOn(workflow: Workflow, from: string, event: string): EdgeTool[] {
  return workflow.toolNames.flatMap((name) =>
    OUTCOMES.flatMap((outcome) => {
      const senders = decisive(workflow, workflow.bindingsOf(name), from, outcome);
      const sending = senders.filter((binding) => mayTake(binding[outcome], event));
      const [first] = sending;
      if (first === undefined) return [];
      const isGuarded = sending.every(({ guard }) => guard !== undefined);
      const isPartial = sending.every(({ when }) => when !== undefined);
      const isChosen = sending.every((binding) => typeof binding[outcome] === 'function');
      return [{ name, outcome, isGuarded, isPartial, isChosen }];
    }),
  );
}

const OUTCOMES = ['success', 'failure'] as const;

function mayTake(source: AnyBinding['success'], event: string): boolean {
  return typeof source === 'function' || (source !== undefined && covers(event, source));
}

/**
 * The bindings that may decide what a call sends where `from` is active. The first one that is
 * about a call decides. So in a flat machine, those after one without a `when` never do.
 */
function decisive(
  workflow: Workflow,
  bindings: readonly AnyBinding[],
  from: string,
  outcome: 'success' | 'failure',
): readonly AnyBinding[] {
  const open = bindings.filter(
    (binding) =>
      binding[outcome] !== undefined && (from === '' || workflow.canBeIn(binding.states, [from])),
  );
  const last = open.findIndex(({ when }) => when === undefined);
  return !workflow.isFlat || last === -1 ? open : open.slice(0, last + 1);
}

function toolOf(
  workflow: Workflow,
  name: string,
  nodes: readonly GraphNode[],
  edges: readonly GraphEdge[],
): GraphTool {
  const bindings = workflow.bindingsOf(name);
  const named = bindings.flatMap(({ states }) => states);
  const isNamed = ({ id, tags = [] }: GraphNode): boolean =>
    named.some((each) => {
      if (typeof each === 'object' && 'tag' in each) return tags.includes(each.tag);
      return each === id || (typeof each === 'object' && workflow.canBeIn([each], [id]));
    });
  const at = nodes.filter(isNamed).map(({ id }) => id);
  const isLeft = (id: string): boolean =>
    edges.some(
      ({ from, tools }) =>
        (from === id || (workflow.chart !== undefined && from.startsWith(`${id}.`))) &&
        tools.some((tool) => tool.name === name && tool.outcome === 'success'),
    );
  return {
    name,
    nodes: at,
    stays: at.filter((id) => !isLeft(id)),
    isPartial: bindings.every(({ when }) => when !== undefined),
  };
}
