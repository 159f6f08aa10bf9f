/**
 * A gate's graph as the text of a Mermaid diagram. It hides what Mermaid makes of names, and in
 * which block each state and each arrow stands.
 */

import * as z from 'zod/mini';
import { InterlockError, type StateMachineGate } from '../../../src/index.ts';
import { lazyOptions, parseOptions, showValue } from '../../../src/internal.ts';
import { activeNodes, workflowGraph } from './graph.ts';
import type { EdgeTool, GraphEdge, GraphNode, GraphTool, WorkflowGraph } from './graph-data.ts';
import { foldGraph, orderProgress } from './view.ts';

/** What {@link toMermaid} draws of a workflow. Default: all of it, as before any run. */
export interface MermaidOptions {
  /** Where a run stands, as runs and trails name it. It is filled in. */
  readonly state?: string | undefined;
  /**
   * At most so many states, or tools: where runs begin and `state` stay, and what is near to them.
   * The others are folded, as {@link foldGraph} does it. A whole number of at least 1.
   */
  readonly most?: number | undefined;
}

const optionsSchema = lazyOptions(() => ({
  state: z.optional(z.string()),
  most: z.optional(z.int().check(z.positive())),
}));

/**
 * A gate's workflow as a Mermaid diagram: a `stateDiagram-v2`, or a `flowchart` for rules of order.
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
 * brackets: `(at most 5 in 5 minutes)`. With `state` the title says `5 of 8 done, next: pay_trip`.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for wrong options, such as a state that is none
 */
export function toMermaid<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options?: MermaidOptions,
): string {
  const { state, most } = parseOptions('toMermaid()', optionsSchema, options);
  const whole = workflowGraph(gate);
  const standing = state === undefined ? undefined : standingIn(gate, state);
  const near = [...whole.initial, ...(standing?.active ?? [])];
  const graph = most === undefined ? whole : foldGraph(whole, { near, most });
  const lines = graph.kind === 'order' ? flowchart(graph) : new StateDiagram(graph).lines();
  if (standing === undefined) return `${lines.join('\n')}\n`;
  if (graph.kind !== 'order')
    return `${[...lines, ...classesOf(graph, { here: standing.active })].join('\n')}\n`;
  const { done, of, next } = orderProgress(whole, standing);
  const after = next.length > 0 ? next.join(', ') : 'nothing';
  const title = JSON.stringify(`${done.length} of ${of} done, next: ${after}`);
  const marks = classesOf(graph, { done, next });
  return `${['---', `title: ${title}`, '---', ...lines, ...marks].join('\n')}\n`;
}

/** What is active and available in a stored state. @throws InterlockError where it is none */
function standingIn<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  state: string,
): { readonly active: readonly string[]; readonly available: readonly string[] } {
  const workflow = gate.clone().compile();
  if (workflow.model.has(state))
    return { active: activeNodes(gate, state), available: workflow.available(state) };
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `toMermaid() got the state ${showValue(state)}, which ${showValue(workflow.id)} ` +
      `does not have; give it as runs.read() does, such as ${showValue(workflow.initial)}`,
  );
}

/** Identifiers for the diagram, since a node may have any name. */
function idsOf({ nodes }: WorkflowGraph): ReadonlyMap<string, string> {
  return new Map(nodes.map(({ id }, at) => [id, `s${at}`]));
}

/** What happens within a folded node is not shown, nor how a run leaves it. */
function foldedIn({ nodes }: WorkflowGraph): ReadonlySet<string> {
  return new Set(nodes.flatMap(({ id, type }) => (type === 'folded' ? [id] : [])));
}

const COLOURS = {
  here: 'fill:#dcd8fb,stroke:#5b4fd6,stroke-width:3px,color:#1f1d36',
  done: 'fill:#dcd8fb,stroke:#5b4fd6,color:#1f1d36',
  next: 'fill:#fff,stroke:#5b4fd6,stroke-width:3px,stroke-dasharray:5 4,color:#1f1d36',
};

/** Mermaid gives no colours to a state with others inside. */
function classesOf(
  graph: WorkflowGraph,
  marked: Partial<Record<keyof typeof COLOURS, readonly string[]>>,
): string[] {
  const around = new Set(graph.nodes.map(({ parent }) => parent));
  const ids = [...idsOf(graph)];
  return Object.entries(marked).flatMap(([name, nodes]) => {
    const boxes = ids.flatMap(([node, id]) =>
      nodes.includes(node) && !around.has(node) ? [id] : [],
    );
    if (boxes.length === 0) return [];
    const colours = COLOURS[name as keyof typeof COLOURS];
    return [`classDef ${name} ${colours}`, `class ${boxes.join(',')} ${name}`].map(indented);
  });
}

/** For rules of order: what needs what. */
function flowchart(graph: WorkflowGraph): string[] {
  const { nodes, edges, tools } = graph;
  const ids = idsOf(graph);
  const folded = foldedIn(graph);
  const boxes = nodes.map((node) => {
    const { id, label, type, once } = node;
    if (type === 'folded') return `${ids.get(id)}[["${shownName(label)}"]]`;
    if (type !== 'tool') return `${ids.get(id)}(["${label}"])`;
    const tool = tools.find(({ name }) => name === id);
    const mark = tool !== undefined && dependsOnMore(tool) ? '?' : '';
    const bounds = [...(once ? ['once'] : []), ...(tool?.limits ?? []).map(({ says }) => says)];
    const said = bounds.length === 0 ? '' : ` ${escaped(`(${bounds.join(', ')})`)}`;
    return `${ids.get(id)}["${shownName(`${label}${mark}`)}${said}"]`;
  });
  const arrows = edges.map((edge) => {
    const says = edge.type === 'event' ? takersOf(edge) : (edge.says ?? []).map(escaped).join(', ');
    const line = LINES[edge.type] ?? '-->';
    const said = says === '' || folded.has(edge.from) ? '' : `|"${says}"|`;
    return `${ids.get(edge.from)} ${line}${said} ${ids.get(edge.to)}`;
  });
  return ['flowchart LR', ...[...boxes, ...new Set(arrows)].map(indented)];
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
  readonly #ids: ReadonlyMap<string, string>;
  readonly #folded: ReadonlySet<string>;

  constructor(graph: WorkflowGraph) {
    this.#graph = graph;
    this.#ids = idsOf(graph);
    this.#folded = foldedIn(graph);
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
    const declared = `state "${shownName(label)}" as ${id}`;
    if (node.inside !== undefined) return [declared, ...this.#insideOf(node, id)];
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

  /** Some of the states that a folded one replaces. */
  #insideOf({ inside = [] }: GraphNode, id: string): string[] {
    const names = inside.slice(0, MOST_NAMES).map(escaped);
    const more = inside.length - names.length;
    return [...names, ...(more > 0 ? [`and ${more} more`] : [])].map((name) => `${id} : ${name}`);
  }

  /** One arrow for each pair of states, with the labels of all edges between them. */
  #arrows(): string[] {
    const labels = new Map<string, Set<string>>();
    for (const edge of this.#graph.edges) {
      const arrow = `${this.#id(edge.from)} --> ${this.#id(edge.to)}`;
      const known = labels.get(arrow) ?? new Set();
      labels.set(arrow, known);
      if (this.#folded.has(edge.from)) continue;
      for (const label of this.#labelsOf(edge)) known.add(label);
    }
    return [...labels].map(([arrow, [...texts]]) => {
      const named = texts.filter((text) => text !== '');
      return named.length === 0 ? arrow : `${arrow} : ${joined(named)}`;
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

/** In one line where they are short, else each in its own: Mermaid breaks no name itself. */
function joined(labels: readonly string[]): string {
  const line = labels.join(', ');
  return line.length <= LONGEST_LINE ? line : labels.join(',<br/>');
}

/** A name as a diagram shows it: a long one is broken between its words. */
function shownName(name: string): string {
  const words = name.length <= LONGEST_LINE ? [name] : name.split(/(?<=[_.:/-])(?=[\p{L}\p{N}])/u);
  const lines: string[] = [];
  for (const word of words) {
    const line = lines.at(-1);
    if (line === undefined || (line + word).length > LONGEST_LINE) lines.push(word);
    else lines[lines.length - 1] = line + word;
  }
  return lines.map(escaped).join('<br/>');
}

const LONGEST_LINE = 24;
/** A folded state names so many of those that it replaces. */
const MOST_NAMES = 3;

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
