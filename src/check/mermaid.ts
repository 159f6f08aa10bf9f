/**
 * A gate's graph as the text of a Mermaid diagram. It hides what Mermaid makes of names, and in
 * which block each state and each arrow stands.
 */
import type { StateMachineGate } from '../workflow/gate.ts';
import { workflowGraph } from './graph.ts';
import type { EdgeTool, GraphEdge, GraphNode, GraphTool, WorkflowGraph } from './graph-data.ts';

/**
 * A gate's workflow as a Mermaid diagram: a `stateDiagram-v2`, or for rules of order a `flowchart`.
 * GitHub draws it in a code block of the language `mermaid`.
 *
 * An arrow names the tools that take it: `cart_pay`, `cart_pay fails`. Brackets show what no tool
 * sends, `(CANCEL)` or `(after 15 min)`, where a run leaves its state and `(enters again)`, and in
 * which further states it `(may begin)`. A `?` means that it also depends on a guard, on arguments,
 * on a function or on other states. A state names the tools that leave a run in it.
 *
 * For rules of order an arrow leads to each tool from each one that it needs, through `any of` or
 * `all of` where there are alternatives. Words say what else a rule says: `(once)`, `uses it up`,
 * `undoes`, `same order_id`, `within 2 minutes`, `not after`. A tool with limits has them in
 * brackets: `(at most 5 in 5 minutes)`.
 */
export function toMermaid<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
): string {
  const graph = workflowGraph(gate);
  const lines = graph.kind === 'order' ? flowchart(graph) : new StateDiagram(graph).lines();
  return `${lines.join('\n')}\n`;
}

/** For rules of order: what needs what. */
function flowchart({ nodes, edges, tools }: WorkflowGraph): string[] {
  const ids = new Map(nodes.map(({ id }, at) => [id, `s${at}`]));
  const boxes = nodes.map(({ id, label, type, once }) => {
    if (type !== 'tool') return `${ids.get(id)}(["${label}"])`;
    const tool = tools.find(({ name }) => name === id);
    const mark = tool !== undefined && dependsOnMore(tool) ? '?' : '';
    const bounds = [...(once ? ['once'] : []), ...(tool?.limits ?? []).map(({ says }) => says)];
    const name = `${label}${mark}${bounds.length === 0 ? '' : ` (${bounds.join(', ')})`}`;
    return `${ids.get(id)}["${escaped(name)}"]`;
  });
  const arrows = edges.map((edge) => {
    const label =
      edge.type === 'event' ? takersOf(edge) : (edge.says ?? []).map(escaped).join(', ');
    const line = LINES[edge.type] ?? '-->';
    const said = label === '' ? '' : `|"${label}"|`;
    return `${ids.get(edge.from)} ${line}${said} ${ids.get(edge.to)}`;
  });
  return ['flowchart LR', ...[...boxes, ...arrows].map(indented)];
}

const LINES: Readonly<Partial<Record<GraphEdge['type'], string>>> = {
  undoes: '-.->',
  event: '==>',
  unless: '--x',
};

/** For a further tool whose calls make another tool done. */
function takersOf(edge: GraphEdge): string {
  return edge.tools
    .map((tool) => {
      const fails = tool.outcome === 'failure' ? ' if it fails' : '';
      return `counts as it${fails}${isOpen(tool) ? '#63;' : ''}`;
    })
    .join(', ');
}

class StateDiagram {
  readonly #graph: WorkflowGraph;
  /** Identifiers for the diagram, since a state may have any name. */
  readonly #ids: ReadonlyMap<string, string>;

  constructor(graph: WorkflowGraph) {
    this.#graph = graph;
    this.#ids = new Map(graph.nodes.map(({ id }, at) => [id, `s${at}`]));
  }

  lines(): string[] {
    return [
      'stateDiagram-v2',
      ...this.#inside(undefined).map(indented),
      ...this.#starts().map(indented),
      ...this.#arrows().map(indented),
    ];
  }

  /** Where else a run may begin. One arrow cannot end in several regions, so words name them. */
  #starts(): string[] {
    return this.#graph.starts.map(({ state, node }) => {
      const regions = this.#graph.nodes.some(({ parent }) => parent === node) ? ` in ${state}` : '';
      return `[*] --> ${this.#id(node)} : ${escaped(`(may begin${regions})`)}`;
    });
  }

  /** The inside of a state: its own states, where it begins, and where it ends. */
  #inside(parent: GraphNode | undefined): string[] {
    const inner = this.#graph.nodes.filter((node) => node.parent === parent?.id);
    if (parent?.type === 'parallel') {
      const regions = inner.filter(({ type }) => type !== 'history');
      const past = inner.filter(({ type }) => type === 'history');
      return regions.flatMap((region, at) => [
        ...(at === 0 ? past.flatMap((node) => this.#node(node)) : ['--']),
        ...this.#node(region),
      ]);
    }
    const first = parent === undefined ? this.#graph.initial[0] : parent.initial;
    const ends = inner.filter(({ type }) => type === 'final');
    return [
      ...inner.flatMap((node) => this.#node(node)),
      ...(first === undefined ? [] : [`[*] --> ${this.#id(first)}`]),
      ...ends.map(({ id }) => `${this.#id(id)} --> [*]`),
    ];
  }

  #node(node: GraphNode): string[] {
    const id = this.#id(node.id);
    const label = node.type === 'history' ? `${node.label} (history)` : node.label;
    const declared = `state "${escaped(label)}" as ${id}`;
    const staying = this.#graph.tools
      .flatMap((tool) => {
        const isPartly = tool.staysPartly.includes(node.id);
        if (!isPartly && !tool.stays.includes(node.id)) return [];
        const mark = isPartly || dependsOnMore(tool) ? '?' : '';
        return [escaped(`${tool.name}${mark}${this.#limits(tool.name)}`)];
      })
      .join(', ');
    if (!this.#graph.nodes.some(({ parent }) => parent === node.id))
      return [declared, ...(staying === '' ? [] : [`${id} : ${staying}`])];
    return [
      `${declared} {`,
      ...this.#inside(node).map(indented),
      '}',
      ...(staying === '' ? [] : [`note right of ${id} : ${staying}`]),
    ];
  }

  /** One arrow for each pair of states, with the labels of all edges between them. */
  #arrows(): string[] {
    const labels = new Map<string, Set<string>>();
    for (const edge of this.#graph.edges) {
      const arrow = `${this.#id(edge.from)} --> ${this.#id(edge.to)}`;
      const known = labels.get(arrow) ?? new Set();
      labels.set(arrow, known);
      for (const label of this.#labelsOf(edge)) known.add(label);
    }
    return [...labels].map(([arrow, [...texts]]) => {
      const named = texts.filter((text) => text !== '');
      return named.length === 0 ? arrow : `${arrow} : ${named.join(', ')}`;
    });
  }

  #labelsOf(edge: GraphEdge): string[] {
    const mark = edge.isGuarded ? '?' : '';
    if (edge.tools.length > 0) return edge.tools.map((tool) => this.#toolLabel(tool, edge));
    switch (edge.type) {
      case 'event':
        return [escaped(`(${edge.event})${mark}${again(edge)}`)];
      case 'deadline':
        return [escaped(`(after ${duration(edge.after ?? 0)})`)];
      case 'done':
        return [escaped(`(done)${mark}`)];
      default:
        return [mark === '' ? '' : escaped(`(always)${mark}`)];
    }
  }

  #toolLabel(tool: EdgeTool, edge: GraphEdge): string {
    const mark = isOpen(tool) || edge.isGuarded ? '?' : '';
    const fails = tool.outcome === 'failure' ? ' fails' : '';
    return escaped(`${tool.name}${fails}${mark}${this.#limits(tool.name)}${again(edge)}`);
  }

  #limits(tool: string): string {
    const { limits = [] } = this.#graph.tools.find(({ name }) => name === tool) ?? {};
    return limits.length === 0 ? '' : ` (${limits.map(({ says }) => says).join(', ')})`;
  }

  #id(node: string): string {
    return this.#ids.get(node) ?? node;
  }
}

/** Says that a state is left and entered again, so that its time begins anew. */
function again({ reenters }: GraphEdge): string {
  return reenters ? ' (enters again)' : '';
}

/** Whether more than the state decides if a call takes an edge. */
function isOpen({ isGuarded, isPartial, isChosen, isPartly }: EdgeTool): boolean {
  return isGuarded || isPartial || isChosen || isPartly;
}

/** Whether more than the state decides if a call is allowed. */
function dependsOnMore({ isGuarded, isPartial }: GraphTool): boolean {
  return isGuarded || isPartial;
}

const UNITS: readonly (readonly [ms: number, unit: string])[] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
];

/** In the largest unit that is exact. */
function duration(ms: number): string {
  const [size, unit] = UNITS.find(([size]) => ms % size === 0) ?? [1, 'ms'];
  return `${ms / size} ${unit}`;
}

const SPECIAL = new RegExp(
  [
    // At the start: anything but a letter, a digit or "(".
    /^[^\p{L}\p{N}(]/u,
    // A second space, one at the end, and one in "direction LR", which Mermaid reads anywhere.
    /(?<= |direction) | $/u,
    // An underscore or a dot at the edge of a word.
    /(?<!\p{L}|\p{N})_|_(?!\p{L}|\p{N})/u,
    /\.(?!\S)/u,
    /[^\p{L}\p{M}\p{N} _.,()?-]/u,
  ]
    .map(({ source }) => source)
    .join('|'),
  'giu',
);

/**
 * Text that a diagram shows as it is. A character that means something to Mermaid, or to the
 * Markdown of its labels, is written by its number.
 */
function escaped(text: string): string {
  return text
    .replace(/\p{Cc}/gu, pictureOf)
    .replace(SPECIAL, (character) => `#${character.codePointAt(0)};`);
}

/** The picture of a control character, such as `␀`. */
function pictureOf(control: string): string {
  const code = control.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : '\u2421';
}

function indented(line: string): string {
  return `  ${line}`;
}
