/**
 * A gate's workflow as plain data for a diagram. It hides how each kind of machine keeps its
 * states, where each tool is available, and which calls take which of its ways.
 */

import type { StateMachineGate } from '../../../src/index.ts';
import {
  ANY_STATE,
  type AnyBinding,
  atomsOf,
  type BoundState,
  type ChartNode,
  type ChartTree,
  covers,
  eventNamed,
  isChosen,
  type Workflow,
  type XNode,
  type XTransition,
} from '../../../src/internal.ts';
import type {
  EdgeTool,
  GraphEdge,
  GraphNode,
  GraphStart,
  GraphTool,
  Layout,
  WorkflowGraph,
} from './graph-data.ts';
import { layoutOfOrder, limitToDraw } from './order-graph.ts';

/**
 * A gate's states, the ways between them, and the tools whose calls take these ways, as plain JSON.
 * It reads the gate, and changes nothing in it.
 */
export function workflowGraph<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
): WorkflowGraph {
  const workflow = gate.clone().compile();
  const { id, order } = workflow;
  const { chart } = workflow.model;
  const calls = new Calls(workflow);
  const kind = order ? 'order' : chart ? 'statechart' : 'flat';
  const { nodes, edges } = order
    ? layoutOfOrder(workflow, order)
    : chart
      ? chartOf(id, chart, calls)
      : flatOf(workflow, calls);
  return {
    id,
    kind,
    initial: activeIn(workflow, workflow.initial),
    starts: startsOf(workflow, nodes),
    nodes,
    edges: edges.map((edge, at) => ({ id: `e${at}`, ...edge })),
    tools: workflow.toolNames.map((name) => calls.toolOf(name, nodes, edges)),
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

function activeIn(workflow: Workflow, state: string): readonly string[] {
  const { order } = workflow;
  const { chart } = workflow.model;
  if (order !== undefined) {
    const tools = workflow.model
      .doneIn?.(state)
      ?.map((name) => order.model.markOf(name)?.leaf.tool);
    return [...new Set(tools)].filter((each) => each !== undefined);
  }
  if (chart === undefined) return workflow.model.has(state) ? [state] : [];
  const active = chart.read(state)?.nodes ?? [];
  return active.map(({ path }) => path).filter((path) => path !== '' || isDrawn(chart.root));
}

function startsOf(workflow: Workflow, nodes: readonly GraphNode[]): GraphStart[] {
  const others = [...new Set(workflow.starts)].filter((state) => state !== workflow.initial);
  return others.flatMap((state) => {
    const active = activeIn(workflow, state);
    const inside = (parent: string | undefined) =>
      nodes.filter((node) => node.parent === parent && active.includes(node.id));
    let found = inside(undefined);
    let node: string | undefined;
    while (found.length === 1) {
      node = found[0]?.id;
      found = inside(node);
    }
    return node === undefined ? [] : [{ state, node }];
  });
}

function flatOf(workflow: Workflow, calls: Calls): Layout {
  const times = new Map(workflow.deadlines);
  const nodes = workflow.states.map((id): GraphNode => {
    const after = times.get(id);
    const type = workflow.hasEnded(id) ? 'final' : 'atomic';
    return { id, label: id, type, ...(after === undefined ? {} : { after }) };
  });
  const edges = nodes.flatMap(({ id: from, after }) => {
    const events = workflow.model.eventsIn(from).map((event) => {
      const { position, reentered } = workflow.next({ state: from }, event);
      return {
        from,
        to: position.state,
        type: 'event' as const,
        event,
        isGuarded: false,
        ...(reentered && { reenters: true as const }),
        tools: calls.toolsOn(from, event),
      };
    });
    const left = workflow.overdue({ state: from, updatedAt: 0 }, Number.POSITIVE_INFINITY);
    if (after === undefined || left === undefined) return events;
    const to = left.position.state;
    const type = 'deadline' as const;
    return [...events, { from, to, type, event: '', isGuarded: false, after, tools: [] }];
  });
  return { nodes, edges };
}

function chartOf(name: string, chart: ChartTree, calls: Calls): Layout {
  const { root } = chart;
  const isAround = isDrawn(root);
  const ids = new Map<string, string>();
  const nodes: GraphNode[] = [];
  const grow = (source: XNode, id: string, parent: string | undefined): void => {
    ids.set(source.id, id);
    const label = id === '' ? name : source.key;
    if (id !== '' || isAround) nodes.push({ label, ...nodeOf(chart, source, id, parent) });
    const inside = id !== '' || isAround ? id : undefined;
    for (const child of Object.values(source.states)) grow(child, pathOf(chart, child, id), inside);
  };
  grow(root.source, '', undefined);
  const sources = [root, ...chart.nodes.values()];
  return { nodes, edges: sources.flatMap((node) => edgesOf(node, ids, calls)) };
}

/** Whether the machine itself is a node, around those of its states. */
function isDrawn({ source }: ChartNode): boolean {
  return source.type === 'parallel' || source.transitions.size > 0 || isMoving(source.always);
}

function isMoving(always: readonly XTransition[] | undefined): boolean {
  return always !== undefined && always.length > 0;
}

function nodeOf(
  chart: ChartTree,
  source: XNode,
  id: string,
  parent: string | undefined,
): Omit<GraphNode, 'label'> {
  const first = source.type === 'compound' ? source.initial?.target?.[0] : undefined;
  return {
    id,
    ...(parent === undefined ? {} : { parent }),
    type: source.type,
    ...(first === undefined ? {} : { initial: pathOf(chart, first, id) }),
    ...(source.tags.length === 0 ? {} : { tags: [...source.tags] }),
  };
}

/** Also gives a path to a history state, which has none since no run is in it. */
function pathOf(chart: ChartTree, source: XNode, parent: string): string {
  const known = [...chart.nodes.values()].find((node) => node.source === source);
  const key = source.key.replace(/[\\.|()]/g, '\\$&');
  return known?.path ?? (parent === '' ? key : `${parent}.${key}`);
}

function edgesOf(
  { path: from, source }: ChartNode,
  ids: ReadonlyMap<string, string>,
  calls: Calls,
): Omit<GraphEdge, 'id'>[] {
  const ways = [
    ...[...source.transitions].map(([name, transitions]) => ({ ...eventOf(name), transitions })),
    { type: 'always' as const, event: '', transitions: source.always ?? [] },
  ];
  return ways.flatMap(({ type, event, transitions }) => {
    const tools = type === 'event' ? calls.toolsOn(from, event) : [];
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

/** What a call of a tool may send, and where. */
interface Sender {
  readonly binding: AnyBinding;
  /** Where this binding decides: the first one that is about a call and available does. */
  readonly where: BoundState;
}

/** The bound tools of one machine: what their calls send where, and where they are available. */
class Calls {
  readonly #workflow: Workflow;
  readonly #senders: ReadonlyMap<string, Readonly<Record<Outcome, readonly Sender[]>>>;

  constructor(workflow: Workflow) {
    this.#workflow = workflow;
    this.#senders = new Map(
      workflow.toolNames.map((name) => {
        const bindings = workflow.bindingsOf(name);
        return [
          name,
          { success: sendersOf(bindings, 'success'), failure: sendersOf(bindings, 'failure') },
        ];
      }),
    );
  }

  /** The tools whose calls may send the event where `from` is active. */
  toolsOn(from: string, event: string): EdgeTool[] {
    return this.#workflow.toolNames.flatMap((name) =>
      OUTCOMES.flatMap((outcome) => {
        const sending = this.#sendersOn(name, outcome, event).filter(({ where }) =>
          this.#canBe(where, from),
        );
        if (sending.length === 0) return [];
        const bindings = sending.map(({ binding }) => binding);
        const isSent: BoundState = { any: sending.map(({ where }) => where) };
        return [
          {
            name,
            outcome,
            isGuarded: this.#workflow.bindingsOf(name).some(isAsked),
            isPartial: bindings.every(({ when }) => when !== undefined),
            isChosen: bindings.every((each) => isChosen(each[outcome])),
            isPartly: this.#canBe({ not: isSent }, from),
          },
        ];
      }),
    );
  }

  toolOf(
    name: string,
    nodes: readonly GraphNode[],
    edges: readonly Omit<GraphEdge, 'id'>[],
  ): GraphTool {
    const { order } = this.#workflow;
    const bindings = this.#workflow.bindingsOf(name);
    const isPartial = bindings.every(({ when }) => when !== undefined);
    const isGuarded = order?.names.includes(name) !== true && bindings.some(isAsked);
    const limits = bindings.flatMap(({ demands }) => demands?.limits ?? []).map(limitToDraw);
    const about = { name, isPartial, isGuarded, ...(limits.length > 0 && { limits }) };
    if (order !== undefined) return { ...about, nodes: [], partly: [], stays: [], staysPartly: [] };
    // A binding without a `when` is about every call, so those with one only add states to its own.
    const always = bindings.filter(({ when }) => isPartial || when === undefined);
    const own = always.map(({ states }): BoundState => ({ any: states }));
    const forAll: BoundState = isPartial ? { all: own } : { any: own };
    const forSome: BoundState = { any: bindings.flatMap(({ states }) => states) };
    const moves = edges.flatMap(({ from, event, tools }): BoundState[] => {
      const isTaken = tools.some((each) => each.name === name && each.outcome === 'success');
      const sending = isTaken ? this.#sendersOn(name, 'success', event) : [];
      return isTaken ? [{ all: [from, { any: sending.map(({ where }) => where) }] }] : [];
    });
    const isUnmoved: BoundState = { not: { any: moves } };
    const atoms = bindings.flatMap(({ states }) => states.flatMap(atomsOf));
    const isNamed = ({ id, tags = [] }: GraphNode): boolean =>
      atoms.some((atom) => (typeof atom === 'string' ? atom === id : tags.includes(atom.tag)));
    const real = nodes.filter(({ type }) => type !== 'history');
    const named = real.filter(isNamed);
    const [whole, partly] = this.#placesOf(forAll, forSome, named, real);
    const [stays, staysPartly] = this.#placesOf(
      { all: [forAll, isUnmoved] },
      { all: [forSome, isUnmoved] },
      named,
      real,
    );
    return { ...about, nodes: whole, partly, stays, staysPartly };
  }

  /**
   * The nodes that say best where something is true: those while which `forAll` is, and those
   * without which `forSome` would be left out. What the bindings name comes first, so that a reader
   * finds it where the app has put it.
   */
  #placesOf(
    forAll: BoundState,
    forSome: BoundState,
    named: readonly GraphNode[],
    real: readonly GraphNode[],
  ): [whole: readonly string[], partly: readonly string[]] {
    const without = (listed: readonly string[]): BoundState => {
      return { all: [forSome, { not: { any: listed } }] };
    };
    const isLeft = (id: string, listed: readonly string[]): boolean =>
      this.#canBe(without(listed), id);
    /** Spares the look at each node where the listed ones say it all, as they mostly do. */
    const isAnyLeft = (listed: readonly string[]): boolean =>
      this.#workflow.model.canBeIn([without(listed)], [ANY_STATE]);
    const whole: string[] = [];
    const list = ({ id }: GraphNode): void => {
      if (isLeft(id, whole) && !this.#canBe({ not: forAll }, id)) whole.push(id);
    };
    named.forEach(list);
    if (isAnyLeft(whole)) real.forEach(list);
    const partly = named.map(({ id }) => id).filter((id) => isLeft(id, whole));
    if (!isAnyLeft([...whole, ...partly])) return [whole, partly];
    for (const { id, type } of real) {
      const isLeaf = type === 'atomic' || type === 'final';
      if (isLeaf && isLeft(id, [...whole, ...partly])) partly.push(id);
    }
    return [whole, partly];
  }

  #sendersOn(tool: string, outcome: Outcome, event: string): readonly Sender[] {
    const senders = this.#senders.get(tool)?.[outcome] ?? [];
    return senders.filter(({ binding: { [outcome]: source } }) => {
      const named = eventNamed(source);
      return named === undefined || covers(event, named);
    });
  }

  /** Whether the expression can be true while the node is active. */
  #canBe(expression: BoundState, id: string): boolean {
    const workflow = this.#workflow;
    // In a flat machine no other state is active, so there is nothing to try.
    return workflow.model.isFlat
      ? workflow.allows(id, { states: [expression] })
      : workflow.model.canBeIn([expression], [id]);
  }
}

type Outcome = 'success' | 'failure';

const OUTCOMES: readonly Outcome[] = ['success', 'failure'];

function sendersOf(bindings: readonly AnyBinding[], outcome: Outcome): readonly Sender[] {
  const earlier: BoundState[] = [];
  return bindings.flatMap((binding) => {
    const { states, when } = binding;
    if (binding[outcome] === undefined) return [];
    const where: BoundState = { all: [{ any: states }, ...earlier] };
    if (when === undefined) earlier.push({ not: { any: states } });
    return [{ binding, where }];
  });
}

/** Whether a function of the binding may refuse a call. */
function isAsked({ guard, visible }: AnyBinding): boolean {
  return guard !== undefined || visible !== undefined;
}
