/**
 * A workflow's graph as boxes and arrows that can be laid out. Hides where a name is broken, and
 * which edges are one arrow. A tool that leads nowhere else stands in its box.
 */
import type { GraphEdge, GraphNode, WorkflowGraph } from 'mcp-interlock-check';
import type { Box, Link } from './picture.ts';
import { inWords } from './words.ts';

/** How a line of an arrow comes about, which is also the sign before it. */
export type Cause = keyof typeof CAUSES | 'begins' | 'more' | 'inside';

/** What the signs mean. Rules of order have signs of their own. */
export const CAUSES = {
  success: 'call succeeds',
  failure: 'call fails',
  event: 'event from outside',
  itself: 'by itself',
  stays: 'moves nothing',
  needs: 'must be done before',
  unless: 'must not be done',
  undoes: 'undoes it',
  once: 'only so often',
} as const;

export interface Line {
  readonly cause: Cause;
  /** The text, broken where it is long. */
  readonly texts: readonly string[];
  /** The whole of it, and what the sign means. */
  readonly title: string;
  /** The tool that is called, and the event that is sent. */
  readonly tool?: string;
  readonly event?: string;
  /** It does not happen each time: a guard, arguments, the result or other states have a say. */
  readonly isUnsure: boolean;
}

export interface Arrow {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly lines: readonly Line[];
  readonly edges: readonly GraphEdge[];
  /** Of its lines together; nothing where there are none. */
  readonly size: { readonly width: number; readonly height: number };
  /** The arrow to where a state begins, or to a further state in which a run may. */
  readonly isInitial: boolean;
}

export interface StateBox {
  readonly node: GraphNode;
  /** Its name, broken where it is long. */
  readonly titles: readonly string[];
  /** What happens there and leads nowhere else; of a folded one, what it replaces. */
  readonly lines: readonly Line[];
  readonly depth: number;
}

export interface Chart {
  readonly boxes: readonly Box[];
  readonly links: readonly Link[];
  readonly arrows: readonly Arrow[];
  /** By node id, outer ones first. */
  readonly states: ReadonlyMap<string, StateBox>;
  /** The dots that initial arrows begin at. */
  readonly dots: readonly string[];
  /** The box that shows a state: its own, or the folded one that replaces it. */
  readonly at: (id: string) => string;
}

export const LINE_HEIGHT = 16;
export const TITLE_HEIGHT = 17;
const MOST_LINES = 5;
const MOST_NAMES = 3;
const LONGEST_TITLE = 150;
const LONGEST_LINE = 150;
const MOST_PARTS = 3;
const DOT = 12;
/** Beside the title, for how many runs are there. */
const COUNT_WIDTH = 44;
/** The same for rules of order, whose tools may say `needs 12`. */
const NEEDS_WIDTH = 62;
/** The sign before a line, and the space around the text. */
export const LINE_INSET = 16;
const LABEL_PADDING = 8;
const BOX_PADDING = 12;

const titleFont = (size: number): string => `600 ${size}px system-ui, sans-serif`;
const TITLE_FONT = titleFont(13);
const LINE_FONT =
  '11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';

const measuring = document.createElement('canvas').getContext('2d');

function widthOf(text: string, font: string): number {
  if (measuring === null) return text.length * 7.5;
  measuring.font = font;
  return Math.ceil(measuring.measureText(text).width);
}

/** The text, or as much of its beginning as there is room for. */
function clipped(text: string, font: string, most: number): string {
  if (widthOf(text, font) <= most) return text;
  const signs = [...text];
  let length = signs.length - 1;
  while (length > 1 && widthOf(`${signs.slice(0, length).join('')}…`, font) > most) length--;
  return `${signs.slice(0, length).join('')}…`;
}

/** A title in one line, in letters of that size: as much of it as there is room for. */
export function titleWithin(text: string, size: number, most: number): string {
  const short = clipped(text, titleFont(size), most);
  return [...short].length < 4 && short !== text ? '' : short;
}

/** The text in lines, each of which has room. It breaks between the words of a name. */
function wrapped(text: string, font: string, most: number): readonly string[] {
  const words = text.match(/.+?(?:[\s_.:/-]+|(?<=[\p{Ll}\d])(?=\p{Lu})|$)/gsu) ?? [text];
  const lines: string[] = [];
  let line = '';
  for (const word of words) {
    if (line !== '' && widthOf((line + word).trimEnd(), font) > most) {
      lines.push(line.trimEnd());
      line = '';
    }
    line += word;
  }
  lines.push(line.trimEnd());
  const shown = lines.slice(0, MOST_PARTS);
  const rest = lines.slice(MOST_PARTS - 1).join('');
  if (lines.length > MOST_PARTS) shown[MOST_PARTS - 1] = rest;
  return shown.map((each) => clipped(each, font, most));
}

export function chartOf(graph: WorkflowGraph): Chart {
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const depthOf = (node: GraphNode): number => {
    const parent = node.parent === undefined ? undefined : nodes.get(node.parent);
    return parent === undefined ? 0 : depthOf(parent) + 1;
  };
  const arrows = [...arrowsOf(graph), ...initialArrows(graph, nodes), ...startArrows(graph, nodes)];
  const states = new Map(
    graph.nodes.map((node) => [
      node.id,
      {
        node,
        titles: wrapped(node.label, TITLE_FONT, LONGEST_TITLE),
        lines: linesWithin(graph, node),
        depth: depthOf(node),
      },
    ]),
  );
  const folds = new Map(
    graph.nodes.flatMap(({ id, inside = [] }) => inside.map((each) => [each, id] as const)),
  );
  const dots = [...new Set(arrows.filter(({ isInitial }) => isInitial).map(({ from }) => from))];
  const beside = graph.kind === 'order' ? NEEDS_WIDTH : COUNT_WIDTH;
  const boxesIn = (parent: string | undefined): Box[] => {
    const inner = graph.nodes.filter((node) => node.parent === parent);
    const first = initialOf(graph, nodes, parent);
    const begin = inner.filter(({ id }) => first.includes(id));
    const rest = inner.filter(({ id }) => !first.includes(id));
    const dot = dotOf(parent);
    return [
      ...(dots.includes(dot) ? [{ id: dot, width: DOT, height: DOT }] : []),
      ...[...begin, ...rest].map((node) => boxOf(states.get(node.id), boxesIn(node.id), beside)),
    ].filter((box) => box !== undefined);
  };
  return {
    boxes: boxesIn(undefined),
    links: arrows.map(({ id, from, to, size }) => ({ id, from, to, ...size })),
    arrows,
    states: new Map([...states].sort(([, a], [, b]) => a.depth - b.depth)),
    dots,
    at: (id) => folds.get(id) ?? id,
  };
}

function dotOf(parent: string | undefined): string {
  return `● ${parent ?? ''}`;
}

/** In which children of a state, or of the whole, a run begins. */
function initialOf(
  { initial }: WorkflowGraph,
  nodes: ReadonlyMap<string, GraphNode>,
  parent: string | undefined,
): readonly string[] {
  if (parent === undefined) return initial;
  const own = nodes.get(parent)?.initial;
  return own === undefined ? [] : [own];
}

function initialArrows(graph: WorkflowGraph, nodes: ReadonlyMap<string, GraphNode>): Arrow[] {
  const parents = [undefined, ...graph.nodes.map(({ id }) => id)];
  return parents.flatMap((parent) => {
    const [first] = initialOf(graph, nodes, parent).filter(
      (id) => nodes.get(id)?.parent === parent,
    );
    if (first === undefined) return [];
    const from = dotOf(parent);
    return [
      { id: `${from}→`, from, to: first, lines: [], edges: [], size: sizeOf([]), isInitial: true },
    ];
  });
}

/** An arrow to each further state in which a run may begin. Words name its parallel regions. */
function startArrows(graph: WorkflowGraph, nodes: ReadonlyMap<string, GraphNode>): Arrow[] {
  const from = dotOf(undefined);
  return graph.starts.map(({ state, node: to }) => {
    const title = `a run may begin in ${state}, where the app says so`;
    const isWhole = nodes.get(to)?.type === 'atomic';
    const lines = [lineOf('begins', isWhole ? 'may begin' : `may begin in ${state}`, title, false)];
    return {
      id: `${from}→${state}`,
      from,
      to,
      lines,
      edges: [],
      size: sizeOf(lines),
      isInitial: true,
    };
  });
}

/** Edges between the same two states are one arrow, with a line for each call or event. */
function arrowsOf(graph: WorkflowGraph): Arrow[] {
  const arrows = new Map<string, GraphEdge[]>();
  for (const edge of graph.edges) {
    if (edge.from === edge.to) continue;
    const key = JSON.stringify([edge.from, edge.to]);
    arrows.set(key, [...(arrows.get(key) ?? []), edge]);
  }
  return [...arrows].flatMap(([id, edges]) => {
    const [edge] = edges;
    if (edge === undefined) return [];
    const { from, to } = edge;
    // What happens within a folded state is not shown, nor how a run leaves it.
    const isShown = graph.nodes.find((node) => node.id === from)?.type !== 'folded';
    const lines = isShown ? edges.flatMap((each) => linesOf(each)) : [];
    const shown = shortened(lines);
    return [{ id, from, to, lines: shown, edges, size: sizeOf(shown), isInitial: false }];
  });
}

/** What an edge does that leads back to its own state as XState's `reenter` does. */
const AGAIN = 'which enters the state again: its time begins anew';

/** What brings an edge about: calls of tools, an event from outside, or the machine itself. */
function linesOf(edge: GraphEdge): Line[] {
  const { type, event, isGuarded, after, reenters, tools } = edge;
  if (type === 'deadline') {
    const text = after === undefined ? 'after a time' : `after ${inWords(after)}`;
    return [lineOf('itself', text, `${text}, by itself`, isGuarded)];
  }
  if (type === 'always' || type === 'done') {
    const text = type === 'done' ? 'when all is done' : 'at once';
    return [lineOf('itself', text, `${text}, by itself`, isGuarded)];
  }
  if (type === 'before' || type === 'unless' || type === 'undoes') return ruleLines(edge);
  if (tools.length === 0) {
    if (event === '') return [];
    const title = `${event}: an event that no tool sends${reenters ? `, ${AGAIN}` : ''}`;
    return [{ ...lineOf('event', event, title, isGuarded), event }];
  }
  return tools.map((tool) => {
    const words = tool.outcome === 'success' ? 'succeeds' : 'fails';
    const notes = [
      tool.isPartial && 'for some of its calls',
      tool.isPartly && 'if other states allow it',
      tool.isChosen && 'if its result says so',
      tool.isGuarded && 'if its guard allows the call',
      isGuarded && 'if the machine allows it',
    ].filter((note) => note !== false);
    const effects = reenters ? [AGAIN] : [];
    const title = [`${tool.name} ${words}: ${event}`, ...effects, ...notes].join(', ');
    return { ...lineOf(tool.outcome, tool.name, title, notes.length > 0), tool: tool.name, event };
  });
}

function lineOf(cause: Cause, text: string, title: string, isUnsure: boolean): Line {
  return { cause, texts: wrapped(text, LINE_FONT, LONGEST_LINE), title, isUnsure };
}

/** What a rule of order says of an earlier call, a line for each word. */
function ruleLines({ type, from, to, says = [] }: GraphEdge): Line[] {
  const all = says.join(', ');
  const titles = {
    before: `only such a call of ${from} counts: ${all}`,
    unless: `${to} is not available while ${from} is done: ${all}`,
    undoes: `a success of ${from} undoes that of ${to}`,
  };
  const cause = type === 'unless' || type === 'undoes' ? type : 'needs';
  const title = titles[cause === 'needs' ? 'before' : cause];
  return says.map((text) => lineOf(cause, text, title, text.startsWith('if ')));
}

/** What can be called in a state and leads to no other one, and what only comes back to it. */
function linesWithin(graph: WorkflowGraph, node: GraphNode): readonly Line[] {
  if (node.type === 'folded') {
    const { inside = [] } = node;
    const around = graph.kind === 'statechart' ? sharedPath(inside) : 0;
    const first = inside.slice(0, inside.length > MOST_NAMES ? MOST_NAMES - 1 : MOST_NAMES);
    const rest = inside.length - first.length;
    const lines = first.map((id) => lineOf('inside', id.slice(around), id, false));
    return rest === 0 ? lines : [...lines, lineOf('inside', `and ${rest} more`, '', false)];
  }
  const back = graph.edges.filter(({ from, to }) => from === node.id && to === node.id);
  const lines = back.flatMap((edge) => linesOf(edge));
  if (node.once) lines.push(lineOf('once', 'once', 'not available once it is done', false));
  for (const tool of graph.tools) {
    const { name, stays, staysPartly, isPartial, isGuarded } = tool;
    const isPartly = staysPartly.includes(node.id);
    const isRule = node.type === 'tool' && node.id === name;
    if (isRule && isGuarded)
      lines.push(lineOf('needs', 'a guard', `its guard may refuse a call of ${name}`, true));
    if (isRule && isPartial)
      lines.push(lineOf('needs', 'some calls', `only some calls of ${name} need this`, true));
    for (const { says } of isRule ? (tool.limits ?? []) : [])
      lines.push(lineOf('once', says, `a limit of ${name}: ${says}`, false));
    if (!isPartly && !stays.includes(node.id)) continue;
    const notes = [
      isPartly && 'in some combinations with other states, or for some of its calls',
      isPartial && 'for some of its calls',
      isGuarded && 'if its guard allows the call',
      ...(tool.limits ?? []).map(({ says }) => says),
    ].filter((note) => note !== false);
    const title = [`${name} is available, and moves nothing`, ...notes].join(', ');
    lines.push({ ...lineOf('stays', name, title, notes.length > 0), tool: name });
  }
  return shortened(lines);
}

/** How long the path of the state is that all of them are in, with the dot behind it. */
function sharedPath([first = '', ...others]: readonly string[]): number {
  let length = first.lastIndexOf('.') + 1;
  while (length > 0 && !others.every((id) => id.startsWith(first.slice(0, length))))
    length = first.lastIndexOf('.', length - 2) + 1;
  return length;
}

function shortened(lines: readonly Line[]): readonly Line[] {
  if (lines.length <= MOST_LINES) return lines;
  const kept = lines.slice(0, MOST_LINES - 1);
  const rest = lines.slice(MOST_LINES - 1);
  const title = rest.map((line) => line.title).join('\n');
  return [...kept, lineOf('more', `${rest.length} more`, title, false)];
}

function boxOf(
  state: StateBox | undefined,
  children: readonly Box[],
  beside: number,
): Box | undefined {
  if (state === undefined) return undefined;
  const { node, titles, lines } = state;
  if (node.type === 'history') return { id: node.id, width: 26, height: 26 };
  if (isJunction(node))
    return { id: node.id, width: widthOf(node.label, LINE_FONT) + 2 * BOX_PADDING, height: 24 };
  const [first = 0, ...more] = titles.map((title) => widthOf(title, TITLE_FONT));
  const widths = [first + beside, ...more, ...lines.map(lineWidth)];
  const width = Math.max(84, ...widths.map((each) => each + 2 * BOX_PADDING));
  const height = linesFrom(state) + (lines.length > 0 ? heightOf(lines) + 8 : 4);
  return children.length === 0
    ? { id: node.id, width, height }
    : { id: node.id, width, height: height + 20, children, header: height };
}

/** What joins the tools that another one needs, under rules of order. No run is in it. */
export function isJunction({ type }: GraphNode): boolean {
  return type === 'any' || type === 'all';
}

/** Where the lines of a box begin, below its title. */
export function linesFrom({ titles }: StateBox): number {
  return titles.length * TITLE_HEIGHT + 17;
}

/** How high lines are together. */
function heightOf(lines: readonly Line[]): number {
  return lines.reduce((all, { texts }) => all + texts.length, 0) * LINE_HEIGHT;
}

function lineWidth({ texts, isUnsure }: Line): number {
  return (
    LINE_INSET + Math.max(...texts.map((text) => widthOf(text, LINE_FONT))) + (isUnsure ? 14 : 0)
  );
}

function sizeOf(lines: readonly Line[]): Arrow['size'] {
  if (lines.length === 0) return { width: 0, height: 0 };
  return {
    width: Math.max(...lines.map(lineWidth)) + 2 * LABEL_PADDING,
    height: heightOf(lines) + 6,
  };
}
