import type { Admission, Run } from '../session/run.ts';
import { type StepMove, shownState } from '../step/outcome.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { availabilityNote } from '../workflow/advice.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { Position } from '../workflow/position.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Sight } from '../workflow/visible.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig, Visibility } from './config.ts';
import { asBegun } from './stands.ts';

const STALE_HIDE =
  'visibility "hide" has no effect where calls name their runs by a handle: a list names none. Every tool is listed';
const DEPARTURE =
  'visibility "hide" departs from MCP 2026-07-28, where a list of tools "MUST NOT vary … as a side effect of other requests". Clients may keep such a list';

/** How one gate shows its tools to one request. */
export function visibilityFor(
  { visibility, warnOnce }: GateConfig,
  admission: Admission,
): Visibility {
  if (admission.byArgument) {
    if (visibility === 'hide') warnOnce(STALE_HIDE);
    return 'stable';
  }
  const isStateless = admission.era === 'stateless';
  if (isStateless && visibility === 'hide') warnOnce(DEPARTURE);
  return visibility ?? (isStateless ? 'stable' : 'hide');
}

/** Whether what a run hides must not be told from what does not exist. */
export function keepsSecrets(config: GateConfig, admission: Admission): boolean {
  return config.refusal === 'unknown-tool' && visibilityFor(config, admission) === 'hide';
}

/**
 * What the run's client sees where the run stands; `undefined` where every client sees the same.
 */
export function sightOf(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  { run, actor }: Pick<Run, 'run' | 'actor'>,
  position: Position,
): Sight | undefined {
  if (!workflow.hides) return undefined;
  return workflow.sight(position, { run, principal: actor, onError });
}

/** The same in lists that show what there is in all states: as of a new run, which has no key. */
export function sightOfAll(
  { workflow, onError }: GateConfig,
  { identity }: Admission,
): Sight | undefined {
  if (!workflow.hides) return undefined;
  const viewer = { run: undefined, principal: identity.binding, onError };
  return workflow.sight(workflow.start, viewer);
}

/**
 * What a client is told of a tool that somebody called: its name, or `otherwise` where the client
 * sees it nowhere.
 */
export function nameToldOf(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  tool: string,
  otherwise?: string,
): string | undefined {
  return sightOf(config, run, position)?.unlisted.has(tool) === true ? otherwise : tool;
}

/** Whether the tool is shown to the run's client where the run stands. */
export function isShown(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  tool: string,
): boolean {
  if (!config.workflow.isVisible(tool, position.state)) return false;
  return sightOf(config, run, position)?.hidden.has(tool) !== true;
}

/** Whether such a call is allowed there, as far as the run's state and `visible` have a say. */
export function allowsCall(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  { tool, binding }: { readonly tool: string; readonly binding: CallBinding },
): boolean {
  if (!config.workflow.allows(position.state, binding)) return false;
  const { veils } = binding;
  return veils === undefined || sightOf(config, run, position)?.opens(tool, veils) !== false;
}

/**
 * Whether such a call begins anew a run that has ended: it must be allowed there, with the data that
 * the run would begin with.
 */
export function allowsRestart(
  config: GateConfig,
  run: Run,
  asked: { readonly tool: string; readonly binding: CallBinding },
): MaybePromise<boolean> {
  const { start } = config.workflow;
  if (asked.binding.veils === undefined) return allowsCall(config, run, start, asked);
  return after(
    asBegun(config, run, { ...start, updatedAt: 0 }),
    (begun) => begun !== 'unavailable' && allowsCall(config, run, begun, asked),
  );
}

/** What a stable list says of each bound tool, the same bytes for every caller. */
export function availabilityNotes(workflow: Workflow): ReadonlyMap<string, string> {
  const places = workflow.toolNames.map((tool) => [tool, workflow.whereabouts(tool)] as const);
  return new Map(
    places.flatMap(([tool, place]) => (place ? [[tool, availabilityNote(place)]] : [])),
  );
}

export function withNote(description: unknown, note: string): string {
  return typeof description === 'string' && description !== '' ? `${description}\n\n${note}` : note;
}

/**
 * What depends on a run is neither kept nor shared. An upstream that says nothing of it does not
 * say that it may be.
 */
export function forbidCaching(message: Message): void {
  if (message.at('result', 'ttlMs') !== undefined) message.set(['result', 'ttlMs'], 0);
  if (message.at('result', 'cacheScope') !== undefined)
    message.set(['result', 'cacheScope'], 'private');
}

/** The lists that show other things in one state than in another, to all clients. */
function changedLists(workflow: Workflow, before: string, after: string): ListKind[] {
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
  { trail, changesData }: StepMove,
): ListKind[] {
  const { workflow } = rule;
  if (trail.from === trail.to && !changesData) return [];
  const [from, to] = [shownState(rule, run, trail.from), shownState(rule, run, trail.to)];
  const changed = changedLists(workflow, from, to);
  // Some client may see more of them now, or less.
  return workflow.hides ? [...new Set([...changed, ...veiledLists(workflow)])] : changed;
}

/** The lists that are not the same for all clients in one state. */
function veiledLists(workflow: Workflow): ListKind[] {
  const lists: ListKind[] = workflow.toolNames.some((each) => workflow.isVeiled(each))
    ? ['tools']
    : [];
  if (workflow.reads.veilsPrompts) lists.push('prompts');
  return workflow.reads.veilsResources ? [...lists, 'resources'] : lists;
}

/**
 * Tells all who see the run's lists of a move. Where the move comes with an answer on a stream, the
 * caller itself is told in front of that answer.
 */
export function tellMoved(
  config: GateConfig,
  admission: Admission,
  run: Run,
  move: StepMove,
  answer?: { readonly exchange: Exchange; readonly message: Message },
): void {
  // Another client may share this run in the other era, where its list hides tools.
  if (config.visibility === 'stable' || admission.byArgument) return;
  const lists = listsChangedBy(config, run.run, move);
  if (lists.length === 0) return;
  const isOwn = admission.era === 'session' && run === admission.listed;
  const toldHere = isOwn && answer?.exchange.announceListChange(answer.message, lists) === true;
  run.listChanged(lists, toldHere);
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
