/**
 * What a drawing shows of a graph: a part of it, and how far a run has come. It hides which nodes
 * are near to others, which of the rest stand together, and what becomes of the edges between them.
 */
import type { GraphEdge, GraphNode, WorkflowGraph } from './graph-data.ts';

/** What of a graph stays as it is: see {@link foldGraph}. */
export interface FoldOptions {
  /**
   * The ids of the nodes that stay first, in their order, such as where runs are. One with nodes
   * inside means those in which it begins, unless one of these is named too.
   */
  readonly near: readonly string[];
  /** So many nodes stay, without counting those around them. Less than 1 counts as 1. */
  readonly most: number;
}

/** How far a run has come under rules of order: see {@link orderProgress}. */
export interface OrderProgress {
  /** The tools that it has done. */
  readonly done: readonly string[];
  /** How many tools a run notes as done: those that a rule or a binding asks for. */
  readonly of: number;
  /** What it can call now and has not done; what another tool waits for comes first. */
  readonly next: readonly string[];
  /** For each other tool what it still waits for: `quote`, `otp or password`. */
  readonly missing: ReadonlyMap<string, readonly string[]>;
}

/**
 * What a run under rules of order has done and can do next, and what each other tool waits for. It
 * counts tools: a rule may ask for more, such as for certain arguments.
 *
 * @param active the nodes that are active where the run stands, as `activeNodes()` returns them
 * @param available the tools that a list shows there
 */
export function orderProgress(
  graph: WorkflowGraph,
  {
    active,
    available,
  }: { readonly active: readonly string[]; readonly available: readonly string[] },
): OrderProgress {
  const { edges } = graph;
  const tools = graph.nodes.filter(({ type }) => type === 'tool');
  const types = new Map(graph.nodes.map(({ id, type }) => [id, type]));
  const done = new Set(active);
  const asked = new Set(
    edges.flatMap(({ from, type }) => (type === 'before' || type === 'unless' ? [from] : [])),
  );
  const missingOf = (id: string): string[] => {
    const parts = edges.flatMap(({ from, to, type }) => {
      if (to !== id || type !== 'before') return [];
      if (types.get(from) === 'tool') return [done.has(from) ? [] : [from]];
      return [missingOf(from)];
    });
    if (types.get(id) !== 'any') return parts.flat();
    return parts.some((part) => part.length === 0) ? [] : [parts.flat().join(' or ')];
  };
  const open = tools.map(({ id }) => id).filter((id) => available.includes(id) && !done.has(id));
  const closed = tools.map(({ id }) => id).filter((id) => !available.includes(id) && !done.has(id));
  return {
    done: tools.map(({ id }) => id).filter((id) => done.has(id)),
    of: tools.filter(({ id, once }) => asked.has(id) || once).length,
    next: open.toSorted((a, b) => Number(asked.has(b)) - Number(asked.has(a))),
    missing: new Map(closed.map((id) => [id, missingOf(id)])),
  };
}

/**
 * The graph with at most so many nodes as a person can take in. Those of `near` stay, then the ones
 * that the fewest edges lead to from there. The others are folded: a node of the type `folded`
 * replaces those of one parent that edges join.
 *
 * An edge with an end in a folded node leads to or from that node. Those within one are left out.
 * A graph with no more than `most` nodes comes back as it is.
 */
export function foldGraph(graph: WorkflowGraph, { near, most }: FoldOptions): WorkflowGraph {
  const tree = new Tree(graph);
  const count = most >= 1 ? Math.floor(most) : 1;
  if (tree.leaves.length <= count) return graph;
  const kept = tree.nearest(near).slice(0, count);
  return folded(graph, tree, new Set(kept.flatMap((id) => tree.chainOf(id))));
}

function folded(graph: WorkflowGraph, tree: Tree, kept: ReadonlySet<string>): WorkflowGraph {
  const { groups, lost } = groupsOf(graph, tree, kept);
  const ids = new Set(graph.nodes.map(({ id }) => id));
  const standIns = new Map<string, string>();
  for (const { id } of graph.nodes) {
    const members = groups.membersOf(id);
    // One node is as small as what would replace it.
    if (members[0] !== id || (members.length === 1 && tree.isLeaf(id))) continue;
    let name = `…${id}`;
    while (ids.has(name)) name = `…${name}`;
    standIns.set(id, name);
  }
  /** The node that stands where this one did. */
  const standIn = (id: string): string => {
    const outermost = lost(id);
    if (outermost === undefined) return id;
    return standIns.get(groups.membersOf(outermost)[0] ?? '') ?? outermost;
  };
  const nodes = graph.nodes.flatMap((node): GraphNode[] => {
    const { id, label, parent, initial } = node;
    if (kept.has(id))
      return [initial === undefined ? node : { ...node, initial: standIn(initial) }];
    const members = groups.membersOf(id);
    const name = standIns.get(id);
    if (name === undefined) return members.length === 1 && members[0] === id ? [node] : [];
    const leaves = new Set(members.flatMap((member) => tree.leavesOf(member)));
    const inside = tree.leaves.filter((leaf) => leaves.has(leaf) && !isJoint(tree.node(leaf)));
    const word = graph.kind === 'order' ? 'tool' : 'state';
    const counted = `${inside.length} more ${word}${inside.length === 1 ? '' : 's'}`;
    const own = members.length === 1 ? label : counted;
    const type = 'folded' as const;
    return [{ id: name, label: own, ...(parent !== undefined && { parent }), type, inside }];
  });
  const edges = graph.edges.flatMap((edge): GraphEdge[] => {
    const [from, to] = [standIn(edge.from), standIn(edge.to)];
    return from === to && from !== edge.from ? [] : [{ ...edge, from, to }];
  });
  const shown = new Set(nodes.map(({ id }) => id));
  const shownOf = (names: readonly string[]) => names.filter((id) => shown.has(id));
  return {
    ...graph,
    initial: [...new Set(graph.initial.map(standIn))],
    starts: graph.starts.map((start) => ({ ...start, node: standIn(start.node) })),
    nodes,
    edges,
    tools: graph.tools.map((tool) => ({
      ...tool,
      nodes: shownOf(tool.nodes),
      partly: shownOf(tool.partly),
      stays: shownOf(tool.stays),
      staysPartly: shownOf(tool.staysPartly),
    })),
  };
}

/** Which of the nodes that do not stay are folded into one. */
function groupsOf(
  graph: WorkflowGraph,
  tree: Tree,
  kept: ReadonlySet<string>,
): { readonly groups: Groups; readonly lost: (id: string) => string | undefined } {
  /** The outermost node around one, or it itself, that does not stay. */
  const lost = (id: string): string | undefined => tree.chainOf(id).find((each) => !kept.has(each));
  const groups = new Groups();
  for (const { id, parent } of graph.nodes)
    if (!kept.has(id) && (parent === undefined || kept.has(parent))) groups.add(id);
  const join = (a: string, b: string): void => {
    const { parent } = tree.node(a);
    const isRegion = parent !== undefined && tree.node(parent).type === 'parallel';
    if (parent === tree.node(b).parent && !isRegion) groups.join(a, b);
  };
  const ends = graph.edges.map(({ from, to }) => [from, to, lost(from), lost(to)] as const);
  for (const [, , a, b] of ends) if (a !== undefined && b !== undefined) join(a, b);
  // Those that are alone stand together where one node leads to them all, or they all lead to one.
  const beside = new Map<string, string>();
  for (const [from, to, a, b] of ends) {
    const alone = a ?? b;
    if (alone === undefined || (a !== undefined && b !== undefined)) continue;
    const key = a === undefined ? `from ${from}` : `to ${to}`;
    const other = beside.get(key);
    if (other !== undefined) join(other, alone);
    else if (groups.membersOf(alone).length === 1) beside.set(key, alone);
  }
  return { groups, lost };
}

/** What no run is in: a junction, and what remembers other states. */
function isJoint({ type }: GraphNode): boolean {
  return type === 'any' || type === 'all' || type === 'history';
}

/** Which nodes are inside which, and how far they are from each other. */
class Tree {
  /** Those with none inside, in the graph's order. */
  readonly leaves: readonly string[];
  readonly #graph: WorkflowGraph;
  readonly #nodes: ReadonlyMap<string, GraphNode>;
  readonly #inside = new Map<string, string[]>();

  constructor(graph: WorkflowGraph) {
    this.#graph = graph;
    this.#nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    for (const { id, parent } of graph.nodes) {
      if (parent === undefined) continue;
      const inner = this.#inside.get(parent);
      if (inner === undefined) this.#inside.set(parent, [id]);
      else inner.push(id);
    }
    this.leaves = graph.nodes.map(({ id }) => id).filter((id) => !this.#inside.has(id));
  }

  node(id: string): GraphNode {
    const node = this.#nodes.get(id);
    if (node === undefined) throw new TypeError(`the graph has no node ${JSON.stringify(id)}`);
    return node;
  }

  /** The node and those around it, outermost first. */
  chainOf(id: string): string[] {
    const { parent } = this.node(id);
    return parent === undefined ? [id] : [...this.chainOf(parent), id];
  }

  isLeaf(id: string): boolean {
    return !this.#inside.has(id);
  }

  leavesOf(id: string): string[] {
    const inner = this.#inside.get(id);
    return inner === undefined ? [id] : inner.flatMap((each) => this.leavesOf(each));
  }

  /** All leaves: those in which `near` begins, then the ones that are fewer edges away. */
  nearest(near: readonly string[]): string[] {
    const beside = new Map<string, Set<string>>(this.leaves.map((id) => [id, new Set()]));
    for (const { from, to } of this.#graph.edges)
      for (const a of this.leavesOf(from))
        for (const b of this.#begins(to)) {
          beside.get(a)?.add(b);
          beside.get(b)?.add(a);
        }
    const around = new Set(near.flatMap((id) => this.#around(id)));
    const known = near.filter((id) => this.#nodes.has(id) && !around.has(id));
    const found = new Set(known.flatMap((id) => this.#begins(id)));
    // A set hands out what is added to it on the way.
    for (const id of found) for (const next of beside.get(id) ?? []) found.add(next);
    for (const id of this.leaves) found.add(id);
    return [...found];
  }

  #around(id: string): string[] {
    return this.#nodes.has(id) ? this.chainOf(id).slice(0, -1) : [];
  }

  /** In which leaves a node begins. */
  #begins(id: string): string[] {
    const inner = this.#inside.get(id);
    if (inner === undefined) return [id];
    const { initial } = this.node(id);
    return (initial === undefined ? inner : [initial]).flatMap((each) => this.#begins(each));
  }
}

/** Nodes that are joined, one by one. */
class Groups {
  readonly #members = new Map<string, string[]>();

  add(id: string): void {
    this.#members.set(id, [id]);
  }

  join(a: string, b: string): void {
    const [first, second] = [this.membersOf(a), this.membersOf(b)];
    if (first === second) return;
    first.push(...second);
    for (const id of second) this.#members.set(id, first);
  }

  membersOf(id: string): string[] {
    return this.#members.get(id) ?? [];
  }
}
