import type { Json } from '../stores/store.ts';
import type { XEvent, XMachine, XNode } from './xstate.ts';

/** One state of a statechart. */
export interface ChartNode {
  /** The keys of its ancestors and its own, joined by dots; `''` for the root. */
  readonly path: string;
  readonly source: XNode;
  readonly parent: ChartNode | undefined;
  /** In the order of the definition. History states are none: a run is never in one. */
  readonly children: ReadonlyMap<string, ChartNode>;
}

/** What the text of a state says. */
export interface ActiveStates {
  /** The same as XState writes it. */
  readonly value: unknown;
  /** Every state that is active, ancestors included. */
  readonly nodes: readonly ChartNode[];
}

/** The states of a statechart, and the texts that say which of them are active. */
export class ChartTree {
  readonly machine: XMachine;
  readonly root: ChartNode;
  /** All but the root, by path, in the order of the definition. */
  readonly nodes: ReadonlyMap<string, ChartNode>;
  #combinations: readonly (readonly ChartNode[])[] | 'too many' | undefined;

  constructor(machine: XMachine) {
    this.machine = machine;
    const { root } = machine;
    const nodes = new Map<string, ChartNode>();
    this.root = grow(root, undefined, nodes);
    this.nodes = nodes;
  }

  /**
   * A value of XState's as one line: `payment`, `order.packing`,
   * `order.(billing.due|packing.started)`.
   */
  textOf(value: unknown): string {
    return write(this.root, value);
  }

  /** What {@link textOf} wrote; `undefined` for any other text. */
  read(text: string): ActiveStates | undefined {
    const reader = { text, at: 0 };
    const nodes: ChartNode[] = [];
    const value = parse(this.root, reader, nodes);
    return value === undefined || reader.at < text.length ? undefined : { value, nodes };
  }

  /**
   * The states that can be active together, the root among them, for each way in which they can;
   * `undefined` where there are more ways than `most`. Some may never come about.
   */
  combinations(most: number): readonly (readonly ChartNode[])[] | undefined {
    this.#combinations ??= combinationsOf(this.root, most) ?? 'too many';
    return this.#combinations === 'too many' ? undefined : this.#combinations;
  }
}

function combinationsOf(node: ChartNode, most: number): ChartNode[][] | undefined {
  const inner = [...node.children.values()].map((child) => combinationsOf(child, most));
  if (!inner.every((each) => each !== undefined)) return undefined;
  if (inner.length === 0) return [[node]];
  const isParallel = node.source.type === 'parallel';
  const many = inner.reduce(
    (sum, { length }) => (isParallel ? sum * length : sum + length),
    isParallel ? 1 : 0,
  );
  if (many > most) return undefined;
  const all = isParallel
    ? inner.reduce((some, region) => some.flatMap((a) => region.map((b) => [...a, ...b])), [[]])
    : inner.flat();
  return all.map((nodes) => [node, ...nodes]);
}

function grow(
  source: XNode,
  parent: ChartNode | undefined,
  nodes: Map<string, ChartNode>,
): ChartNode {
  const key = escaped(source.key);
  const path = parent === undefined ? '' : parent.path === '' ? key : `${parent.path}.${key}`;
  const children = new Map<string, ChartNode>();
  const node: ChartNode = { path, source, parent, children };
  if (parent !== undefined) nodes.set(path, node);
  for (const [name, child] of Object.entries(source.states)) {
    if (child.type !== 'history') children.set(name, grow(child, node, nodes));
  }
  return node;
}

/**
 * A key that contains what the texts are made of says so by a backslash, as in XState's own
 * identifiers.
 */
function escaped(key: string): string {
  return key.replace(/[\\.|()]/g, '\\$&');
}

function write(node: ChartNode, value: unknown): string {
  const parts = [...node.children].flatMap(([key, child]) => {
    const inner = valueAt(value, key);
    if (inner === undefined) return [];
    const rest = write(child, inner);
    return rest === '' ? escaped(key) : `${escaped(key)}.${rest}`;
  });
  return parts.length > 1 ? `(${parts.join('|')})` : (parts[0] ?? '');
}

function valueAt(value: unknown, key: string): unknown {
  if (value === key) return {};
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? Reflect.get(value, key)
    : undefined;
}

interface Reader {
  readonly text: string;
  at: number;
}

function parse(node: ChartNode, reader: Reader, nodes: ChartNode[]): unknown {
  nodes.push(node);
  if (node.children.size === 0) return {};
  if (node.source.type !== 'parallel') return parseChild(node, reader, nodes);
  const brackets = node.children.size > 1;
  if (brackets && !skip(reader, '(')) return undefined;
  const regions: [string, unknown][] = [];
  for (const [key, child] of node.children) {
    if (regions.length > 0 && !skip(reader, '|')) return undefined;
    const value = skip(reader, escaped(key)) ? parseRest(child, reader, nodes) : undefined;
    if (value === undefined) return undefined;
    regions.push([key, value]);
  }
  return brackets && !skip(reader, ')') ? undefined : Object.fromEntries(regions);
}

/** One child of a compound state: the text says which. */
function parseChild(node: ChartNode, reader: Reader, nodes: ChartNode[]): unknown {
  const key = /^(?:[^\\.|()]|\\.)*/s.exec(reader.text.slice(reader.at))?.[0] ?? '';
  const found = [...node.children].find(([name]) => escaped(name) === key);
  if (found === undefined) return undefined;
  reader.at += key.length;
  const [name, child] = found;
  const value = parseRest(child, reader, nodes);
  if (value === undefined) return undefined;
  return child.children.size === 0 ? name : Object.fromEntries([[name, value]]);
}

function parseRest(child: ChartNode, reader: Reader, nodes: ChartNode[]): unknown {
  if (child.children.size > 0 && !skip(reader, '.')) return undefined;
  return parse(child, reader, nodes);
}

function skip(reader: Reader, word: string): boolean {
  if (!reader.text.startsWith(word, reader.at)) return false;
  reader.at += word.length;
  return true;
}

/** Whether an event's name is one that machines send themselves, or a pattern. */
export function isReserved(event: string): boolean {
  return event.startsWith('xstate.') || event === '*' || event.endsWith('.*');
}

/** Whether a transition's event, which may be `*` or end in `.*`, takes this one. */
export function covers(descriptor: string, event: string): boolean {
  if (descriptor === '*' || descriptor === event) return true;
  return descriptor.endsWith('.*') && `${event}.`.startsWith(descriptor.slice(0, -1));
}

/**
 * An object is the event's own properties, as machines read them; anything else is its `payload`.
 */
export function chartEvent(type: string, payload: Json | undefined): XEvent {
  if (payload === undefined) return { type };
  const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
  return isObject ? { ...payload, type } : { type, payload };
}

/**
 * The events that a state handles itself, patterns included, and without those that XState sends to
 * it.
 */
export function eventsOfNode({ transitions }: XNode): string[] {
  return [...transitions.keys()].filter((event) => !event.startsWith('xstate.'));
}

/** Those of them that a transition with a guard takes. */
export function guardedEvents(node: XNode): string[] {
  const isGuarded = (event: string): boolean =>
    node.transitions.get(event)?.some(({ guard }) => guard !== undefined) === true;
  return eventsOfNode(node).filter(isGuarded);
}
