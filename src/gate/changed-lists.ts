import type { Admission, Run } from '../session/run.ts';
import { shownState } from '../step/ends.ts';
import type { StepMove } from '../step/move.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './config.ts';
import { visibilityFor } from './tool-list.ts';

/** The lists that show other things in one state than in another. */
export function changedLists(workflow: Workflow, before: string, after: string): ListKind[] {
  if (before === after) return [];
  const { reads } = workflow;
  const states = { before, after };
  const isOpen = (bound: BoundRead, when: 'before' | 'after'): boolean =>
    workflow.allows(states[when], bound);
  const lists: ListKind[] = workflow.sameTools(before, after) ? [] : ['tools'];
  if (!reads.samePrompts(isOpen)) lists.push('prompts');
  if (!reads.sameResources(isOpen)) lists.push('resources');
  return lists;
}

/** The lists that show other things after a move, to the clients of this gate. */
export function listsChangedBy(
  rule: Pick<GateConfig, 'workflow' | 'whenEnded'>,
  run: string,
  { trail }: StepMove,
): ListKind[] {
  if (trail.from === trail.to) return [];
  const [from, to] = [shownState(rule, run, trail.from), shownState(rule, run, trail.to)];
  return changedLists(rule.workflow, from, to);
}

/**
 * Tells all who see the run's lists of a move; the client itself in front of `message`, where that
 * comes on a stream. Without a message, the answer has gone already, or is still to come.
 */
export function tellMoved(
  config: GateConfig,
  { exchange, admission }: { readonly exchange: Exchange; readonly admission: Admission },
  run: Run,
  move: StepMove,
  message?: Message,
): void {
  // Another client may share this run in the other era, where its list hides tools.
  if (config.visibility === 'stable' || admission.byArgument) return;
  const lists = listsChangedBy(config, run.run, move);
  if (lists.length === 0) return;
  const isOwn = admission.era === 'session' && run === admission.listed;
  const isTold = isOwn && message !== undefined && exchange.announceListChange(message, lists);
  run.listChanged(lists, isTold);
}

/** Whether this asks what the server can do, and its lists can change. */
export function declaresChanges(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
): boolean {
  const method = exchange.messages[0]?.method;
  if (method !== (admission.era === 'session' ? 'initialize' : 'server/discover')) return false;
  return visibilityFor(config, admission) === 'hide';
}

/**
 * Clients drop `list_changed`, or never listen for it, unless the server has declared it (MCP,
 * Tools, "Capabilities").
 */
export function declareListChanged(message: Message, lists: readonly ListKind[]): void {
  for (const kind of lists) {
    const capability = message.at('result', 'capabilities', kind);
    if (isObject(capability) && capability.listChanged !== true) {
      message.set(['result', 'capabilities', kind, 'listChanged'], true);
    }
  }
}

/** The lists of prompts and resources that a gate changes. */
export function readLists({ reads }: Workflow): ListKind[] {
  const lists: ListKind[] = reads.bindsPrompts ? ['prompts'] : [];
  return reads.bindsResources ? [...lists, 'resources'] : lists;
}
