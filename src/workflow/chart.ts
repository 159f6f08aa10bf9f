/**
 * The states of a statechart. It hides the texts that name the active states, and which parts of a
 * machine no pure transition can run.
 */
import { isTable, showValue } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import {
  inertScope,
  Restless,
  type XEvent,
  type XMachine,
  type XNode,
  type XTransition,
} from './xstate.ts';

/** One state of a statechart. */
export interface ChartNode {
  /** The keys of its ancestors and its own, joined by dots; `''` for the root. */
  readonly path: string;
  readonly source: XNode;
  readonly parent: ChartNode | undefined;
  /** In the order of the definition, without history states: a run is never in one. */
  readonly children: ReadonlyMap<string, ChartNode>;
}

/** What a state's text means. */
export interface ActiveStates {
  /** As XState writes it. */
  readonly value: unknown;
  /** Every state that is active, ancestors included. */
  readonly nodes: readonly ChartNode[];
}

/** The states of a statechart, and the texts that name the active ones. */
export class ChartTree {
  readonly machine: XMachine;
  readonly root: ChartNode;
  /** All states but the root, by path, in the order of the definition. */
  readonly nodes: ReadonlyMap<string, ChartNode>;

  constructor(machine: XMachine) {
    this.machine = machine;
    const { root } = machine;
    const nodes = new Map<string, ChartNode>();
    this.root = grow(root, undefined, nodes);
    this.nodes = nodes;
  }

  /**
   * A state value of XState as one line: `payment`, `order.packing`,
   * `order.(billing.due|packing.started)`.
   */
  textOf(value: unknown): string {
    return write(this.root, value);
  }

  /** Reads what {@link textOf} wrote; `undefined` for any other text. */
  read(text: string): ActiveStates | undefined {
    const reader = { text, at: 0 };
    const nodes: ChartNode[] = [];
    const value = parse(this.root, reader, nodes);
    return value === undefined || reader.at < text.length ? undefined : { value, nodes };
  }

  /**
   * Which of these tests can say yes together: bit `i` of each number is what some state that is
   * active says to test `i`. `undefined` where there are more numbers than `most`. No run may ever
   * come to some of the combinations.
   */
  combinations(
    tests: readonly ((node: ChartNode) => boolean)[],
    most: number,
  ): ReadonlySet<bigint> | undefined {
    return combinationsOf(this.root, tests, most);
  }
}

/** States that no test distinguishes count once, so only what is asked about multiplies. */
function combinationsOf(
  node: ChartNode,
  tests: readonly ((node: ChartNode) => boolean)[],
  most: number,
): ReadonlySet<bigint> | undefined {
  const own = tests.reduce((bits, test, i) => (test(node) ? bits | (1n << BigInt(i)) : bits), 0n);
  const isParallel = node.source.type === 'parallel';
  let found = new Set<bigint>(isParallel || node.children.size === 0 ? [own] : []);
  for (const child of node.children.values()) {
    const inner = combinationsOf(child, tests, most);
    if (inner === undefined) return undefined;
    const before = isParallel ? found : [own];
    const next = isParallel ? new Set<bigint>() : found;
    for (const a of before) {
      for (const b of inner) next.add(a | b);
      if (next.size > most) return undefined;
    }
    found = next;
  }
  return found;
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
 * A backslash stands before each character of a key that means something in these texts, as in
 * XState's own identifiers.
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

/** The one child of a compound state that the text names. */
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

/** Whether the name is one that XState sends itself, or a pattern. */
export function isReserved(event: string): boolean {
  return event.startsWith('xstate.') || event === '*' || event.endsWith('.*');
}

/** Whether a transition's event takes this one. It may be `*`, or end in `.*`. */
export function covers(descriptor: string, event: string): boolean {
  if (descriptor === '*' || descriptor === event) return true;
  return descriptor.endsWith('.*') && `${event}.`.startsWith(descriptor.slice(0, -1));
}

/** An event as machines read it: an object becomes its properties, anything else its `payload`. */
export function chartEvent(type: string, payload: Json | undefined): XEvent {
  if (payload === undefined) return { type };
  const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
  return isObject ? { ...payload, type } : { type, payload };
}

/** The events in a state's own transitions, patterns included, without those that XState sends. */
export function eventsOfNode({ transitions }: XNode): string[] {
  return [...transitions.keys()].filter((event) => !event.startsWith('xstate.'));
}

/** Those of {@link eventsOfNode} that a transition with a guard takes. */
export function guardedEvents(node: XNode): string[] {
  const isGuarded = (event: string): boolean =>
    node.transitions.get(event)?.some(({ guard }) => guard !== undefined) === true;
  return eventsOfNode(node).filter(isGuarded);
}

/** Built-in actions that a pure transition runs itself. */
const PURE = ['xstate.assign', 'xstate.raise', 'xstate.enqueueActions'];

/**
 * Built-in actions that need no actor. They are handed to `onAction` like those that the machine
 * names itself.
 */
const REPORTED = ['xstate.emit', 'xstate.log'];

const NEEDS_ACTIONS = 'give the gate an "onAction", which does it after the move was saved';

/** Why pure transitions cannot run an action; `undefined` where they can. */
export function actionFault(type: string, hasListener: boolean): string | undefined {
  if (PURE.includes(type)) return undefined;
  const isOfXState = type.startsWith('xstate.');
  if (isOfXState && !REPORTED.includes(type))
    return `${type.slice('xstate.'.length)}() needs an actor, and none runs here`;
  return hasListener ? undefined : `nothing does the action ${showValue(type)}: ${NEEDS_ACTIONS}`;
}

/**
 * The first thing in the machine that pure transitions cannot run, in words; `undefined` where they
 * can run it all.
 */
export function chartFault(
  machine: XMachine,
  tree: ChartTree,
  hasListener: boolean,
): string | undefined {
  if (tree.nodes.size === 0) return 'it has no states';
  for (const { source, path } of [tree.root, ...tree.nodes.values()]) {
    const fault = nodeFault(machine, source, hasListener);
    if (fault !== undefined)
      return `${path === '' ? 'its root' : `state ${showValue(path)}`}: ${fault}`;
  }
  const restless = [...tree.nodes.values()].find(({ source }) => neverRests(machine, tree, source));
  return (
    restless && `state ${showValue(restless.path)}: its "always" transitions never come to rest`
  );
}

function nodeFault(machine: XMachine, node: XNode, hasListener: boolean): string | undefined {
  if (!isEmpty(node.config.invoke)) return 'it invokes an actor, and none runs here';
  if (!isEmpty(node.config.after))
    return 'it has a delayed transition ("after"), and nothing runs here that would wait for it';
  const transitions = [...node.transitions.values(), node.always ?? []].flat();
  const actions = [...node.entry, ...node.exit, ...transitions.flatMap((each) => each.actions)];
  if (node.type === 'compound') actions.push(...(node.initial?.actions ?? []));
  for (const action of actions) {
    const fault = declaredActionFault(machine, action, hasListener);
    if (fault !== undefined) return fault;
  }
  return transitions
    .map(({ guard }) => guardFault(machine, guard))
    .find((fault) => fault !== undefined);
}

function declaredActionFault(
  machine: XMachine,
  action: unknown,
  hasListener: boolean,
): string | undefined {
  if (typeof action === 'function' && !('resolve' in action)) {
    const name = showValue(action.name === '' ? 'anonymous' : action.name);
    const why = 'is a function of its own, and no transition here calls it';
    return `the action ${name} ${why}; name it instead, as in { type: 'notify' }`;
  }
  const named =
    typeof action === 'string' ? action : isTable(action) ? String(action.type) : undefined;
  const implementation = named === undefined ? action : own(machine.implementations.actions, named);
  const isBuiltIn = typeof implementation === 'function' && 'resolve' in implementation;
  if (!isBuiltIn) return actionFault(named ?? showValue(action), hasListener);
  if (Reflect.get(implementation, 'delay') !== undefined)
    return 'it raises an event with a delay, and nothing waits here';
  return actionFault(String(Reflect.get(implementation, 'type')), hasListener);
}

function guardFault(machine: XMachine, guard: unknown): string | undefined {
  if (guard === undefined) return undefined;
  if (typeof guard === 'function') {
    const parts: unknown = Reflect.get(guard, 'guards');
    return Array.isArray(parts)
      ? parts.map((part) => guardFault(machine, part)).find((fault) => fault !== undefined)
      : undefined;
  }
  const name = isTable(guard) ? guard.type : guard;
  if (typeof name === 'string' && own(machine.implementations.guards, name) !== undefined)
    return undefined;
  return `its guard ${showValue(name)} is not implemented`;
}

/**
 * Whether entering the state starts a circle of `always` transitions without guards. Whether a
 * circle with guards ends depends on the context, so a run's own transition finds that out.
 */
function neverRests(machine: XMachine, tree: ChartTree, start: XNode): boolean {
  const seen = new Set<XNode>();
  let node: XNode | undefined = start;
  while (node !== undefined) {
    const always = unguarded(node);
    if (always === undefined) return false;
    if (seen.has(always.from)) return isRestless(machine, tree, start);
    seen.add(always.from);
    node = leafOf(always.target);
  }
  return false;
}

function unguarded(
  start: XNode,
): { readonly from: XNode; readonly target: XNode | undefined } | undefined {
  for (let from: XNode | undefined = start; from !== undefined; from = from.parent) {
    const first: XTransition | undefined = from.always?.[0];
    if (first !== undefined)
      return first.guard === undefined ? { from, target: first.target?.[0] } : undefined;
  }
  return undefined;
}

function leafOf(node: XNode | undefined): XNode | undefined {
  let leaf = node;
  while (leaf?.type === 'compound') leaf = leaf.initial?.target?.[0];
  return leaf;
}

function isRestless(machine: XMachine, tree: ChartTree, { id }: XNode): boolean {
  const found = [...tree.nodes.values()].find(({ source }) => source.id === id);
  const value = found?.path.split('.').reduceRight<unknown>((inner, key) => ({ [key]: inner }), {});
  try {
    const { context } = machine.getInitialSnapshot(inertScope(() => {}));
    const snapshot = machine.resolveState({ value, context, historyValue: {} });
    machine.transition(
      snapshot,
      { type: 'interlock.probe' },
      inertScope(() => {}),
    );
    return false;
  } catch (error) {
    return error instanceof Restless;
  }
}

function own(table: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

export function isEmpty(value: unknown): boolean {
  return (
    value === undefined ||
    (Array.isArray(value) && value.length === 0) ||
    (isTable(value) && Object.keys(value).length === 0)
  );
}
