import type { Admission } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './gate-config.ts';
import { visibilityFor } from './tool-list.ts';

/** The lists that show other things in one state than in another. */
export function changedLists(workflow: Workflow, before: string, after: string): ListKind[] {
  const { reads } = workflow;
  const states = { before, after };
  const isOpen = (bound: BoundRead, when: 'before' | 'after'): boolean =>
    workflow.allows(states[when], bound);
  const lists: ListKind[] = workflow.sameTools(before, after) ? [] : ['tools'];
  if (!reads.samePrompts(isOpen)) lists.push('prompts');
  if (!reads.sameResources(isOpen)) lists.push('resources');
  return lists;
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
