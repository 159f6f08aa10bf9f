import { isTable, showValue } from '../options.ts';
import type { ChartTree } from './chart-tree.ts';
import { inertScope, Restless, type XMachine, type XNode, type XTransition } from './xstate.ts';

/** Built-in actions that a pure transition runs itself. */
const PURE = ['xstate.assign', 'xstate.raise', 'xstate.enqueueActions'];

/**
 * Built-in actions that say something and need no actor: they are handed on like those that the
 * machine names itself.
 */
const TOLD = ['xstate.emit', 'xstate.log'];

const NEEDS_ACTIONS = 'give the gate an "onAction", which does it after the move was saved';

/** Why an action cannot be run by pure transitions, or `undefined` where it can. */
export function actionFault(type: string, hasListener: boolean): string | undefined {
  if (PURE.includes(type)) return undefined;
  const isOfXState = type.startsWith('xstate.');
  if (isOfXState && !TOLD.includes(type))
    return `${type.slice('xstate.'.length)}() needs an actor, and none runs here`;
  return hasListener ? undefined : `nobody does the action ${showValue(type)}: ${NEEDS_ACTIONS}`;
}

/**
 * The first thing in the machine that pure transitions cannot run, in words; `undefined` where they
 * can run it.
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
    return `the action ${name} is a function of its own, which nobody calls; name it instead, as in { type: 'notify' }`;
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
 * Whether entering the state starts a circle of `always` transitions that have no guard. One with
 * guards is not looked for: it depends on the context whether it ends, and it is told where it does
 * not.
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

function isEmpty(value: unknown): boolean {
  return (
    value === undefined ||
    (Array.isArray(value) && value.length === 0) ||
    (isTable(value) && Object.keys(value).length === 0)
  );
}
