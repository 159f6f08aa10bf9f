/**
 * What the status tool says of one workflow of a run: where it stands, how it goes on, what it
 * waits for. Hides how all of that is read from one record of the store.
 */
import { isNamedRun, isPrincipalRun } from '../basics/names.ts';
import { dropRejection } from '../basics/options.ts';
import type { Run } from '../session/run.ts';
import type { Json, RunRecord, TrailEntry } from '../stores/store.ts';
import {
  type Awaited,
  groupedWords,
  leadWords,
  type NextTool,
  type StatusFacts,
  statusWords,
} from '../workflow/advice.ts';
import { eventNamed } from '../workflow/binding.ts';
import type { BoundTool } from '../workflow/bound-tools.ts';
import { partWords } from '../workflow/rule-words.ts';
import { jsonOf } from '../workflow/stored.ts';
import type { GateConfig } from './config.ts';
import { whyHidden } from './decide.ts';
import type { Outlook } from './gates.ts';
import {
  asBegun,
  asShown,
  mendOfUnread,
  type Standing,
  standingIn,
  stopIn,
  storedIn,
} from './standing.ts';

/** What the model reads about one workflow. */
export interface WorkflowStatus {
  readonly workflow: string;
  readonly status: StatusFacts['status'];
  /** The same in words, without the tools. */
  readonly says: string;
  readonly state?: string;
  readonly next: readonly NextTool[];
  /** The handle that names the run, as an argument of the next calls. */
  readonly pass?: Readonly<Record<string, string | number>>;
  readonly waitsFor?: Awaited;
  /** ISO 8601, on the store's clock. */
  readonly leavesAt?: string;
  readonly leavesInMs?: number;
  readonly summary?: Json;
  /** Oldest first. Absent where the store fails. */
  readonly recent?: readonly RecentEntry[];
}

/** A trail entry without arguments, payload and actor. */
interface RecentEntry extends Pick<TrailEntry, 'from'> {
  readonly tool?: string;
  /** Only where no call made the move. */
  readonly event?: string;
  readonly to?: string;
  readonly outcome?: NonNullable<TrailEntry['outcome']>;
}

/** How many entries of the trail are shown. */
const MOST_RECENT = 5;

/** One workflow of an existing run. */
export interface RunPart {
  readonly gate: GateConfig;
  readonly run: Run;
  readonly record: RunRecord | undefined;
  /** What all gates of the route allow now. */
  readonly outlook: Outlook;
  /** The tools that begin another run. */
  readonly starters: readonly NextTool[];
  readonly pass: WorkflowStatus['pass'];
}

/** Where a run stands in one workflow. */
export async function statusOfRun(part: RunPart): Promise<WorkflowStatus> {
  const { gate, run, record, starters, pass } = part;
  const { workflow } = gate;
  const found = standingIn(gate, run, record);
  if (typeof found === 'string')
    return found === 'unreadable'
      ? statusWithout(gate, found, [], mendOfUnread(workflow, run.run))
      : statusWithout(gate, 'unavailable');
  const isRead = gate.status?.summary !== undefined;
  const standing = await (isRead ? asBegun : asShown)(gate, run, found);
  if (standing === 'unavailable') return statusWithout(gate, standing);
  const isSaved = storedIn(record, workflow.id) !== undefined;
  const recent = isSaved ? await recentOf(gate, run, standing) : [];
  const { reached, stopped, leavesAt: at, parts } = standing;
  const { said } = await standing.askOperators();
  const isStopped = (tool?: string): boolean => stopIn(said, workflow, tool)?.reason === 'frozen';
  const stops = isStopped() && stopped === undefined ? ('workflow' as const) : undefined;
  const underWay = stopped?.reason ?? (stops ? 'frozen' : standing.underWay);
  const hasEnded = underWay === 'idle' && workflow.hasEnded(reached.state);
  const goOn = underWay === 'idle' ? nextOf(part, standing) : [];
  const next = goOn.filter(({ tool }) => !isStopped(tool));
  const leadsOn = next.some(({ leadsTo }) => leadsTo.some((each) => each !== reached.state));
  const waits = stops ? OPERATOR : awaited(part, standing, next, leadsOn, isStopped);
  const waitsFor = hasEnded ? undefined : waits;
  const left =
    at === undefined ? at : { leavesAt: new Date(at).toISOString(), leavesInMs: at - parts.now };
  const summary = summaryOf(gate, standing);
  const shown = {
    workflow: workflow.id,
    status: hasEnded ? ('ended' as const) : underWay,
    state: reached.state,
    ...(waitsFor && { waitsFor }),
  };
  const facts = {
    ...shown,
    stops,
    available: next.map(({ tool }) => tool),
    leadsOn,
    leavesInMs: left?.leavesInMs,
    done: workflow.model.doneIn?.(reached.state),
    spent: spentWords(standing),
    words: hasEnded ? begunAnew(standing, run) : undefined,
  };
  return {
    ...shown,
    says: statusWords(facts),
    next: hasEnded && run.anew !== undefined ? [...next, ...starters] : next,
    ...(pass && { pass }),
    ...left,
    ...(summary !== undefined && { summary }),
    ...(recent && { recent }),
  };
}

/**
 * The status of a workflow in which no run can be shown. None is named, the store cannot be asked,
 * or this deployment does not understand what it has.
 *
 * @param words how to get a run
 */
export function statusWithout(
  { workflow: { id: workflow } }: GateConfig,
  status: 'no-run' | 'unavailable' | 'unreadable',
  next: readonly NextTool[] = [],
  words?: string,
): WorkflowStatus {
  return { workflow, status, says: statusWords({ workflow, status, available: [], words }), next };
}

/** The workflow's own tools that all gates of the route allow, in a run without a claim. */
function nextOf({ outlook }: RunPart, { workflow, position: from }: Standing): readonly NextTool[] {
  const leads = workflow.leads(from);
  return outlook.available.flatMap((tool): NextTool[] => {
    if (!workflow.isBound(tool)) return [];
    const found = leads.get(tool);
    // The machine's own guards stop its event, or the gate binds only some of its calls.
    if (found === undefined)
      return workflow.isGrouped(tool) ? [{ tool, leadsTo: [], says: groupedWords(tool) }] : [];
    const states = [...found.to.map(({ state }) => state), ...(found.mayStay ? [from.state] : [])];
    const about = { workflow: workflow.id, state: from.state, tool };
    const says = leadWords(about, found, (state) => workflow.hasEnded(state));
    return [{ tool, leadsTo: [...new Set(states)], says }];
  });
}

/** The tools that the client sees but for a limit, and what it reads about that. */
function spentWords({ workflow, spent, state, sight, closed }: Standing): [string, string][] {
  const isShown = (tool: string): boolean =>
    workflow.isVisible(tool, state) && !sight?.hidden.has(tool) && !closed?.has(tool);
  return [...spent].flatMap(([tool, part]) =>
    isShown(tool) ? [[tool, partWords([part], false).join('; ')]] : [],
  );
}

const OPERATOR: Awaited = { what: 'operator' };

/** What a run waits for. Where a call leads to another state, only what comes from outside. */
function awaited(
  { outlook }: RunPart,
  standing: Standing,
  next: readonly NextTool[],
  leadsOn: boolean,
  isStopped: (tool: string) => boolean,
): Awaited | undefined {
  const { workflow, underWay, reached, parts, stopped } = standing;
  const { state } = reached;
  const { claim, updatedAt } = parts;
  if (stopped !== undefined) return OPERATOR;
  if (underWay !== 'idle') {
    const what = underWay === 'held' ? 'operator' : 'step';
    const tool = claim && standing.claimShown(claim);
    return tool === undefined ? { what } : { what, tool };
  }
  const leavesAt = workflow.leavesAt({ ...reached, updatedAt });
  const fromOutside = (events: readonly string[]): Awaited | undefined => {
    if (events.length > 0) return { what: 'event', events };
    return leavesAt === undefined ? undefined : { what: 'deadline' };
  };
  if (leadsOn) return fromOutside(workflow.outsideEvents(state));
  for (const tool of workflow.available(state)) {
    if (whyHidden(standing, tool) !== undefined) continue;
    const binding = workflow.matchAlways(tool);
    if (isStopped(tool)) return { what: 'operator', tool };
    if (binding === undefined || next.some((each) => each.tool === tool)) continue;
    if (outlook.available.includes(tool)) return { what: 'condition', tool };
    const { path } = outlook.wayTo(binding.states, (other) => demandOf(other, tool), tool);
    return { what: 'workflow', tool, ...(path && { path }) };
  }
  // To a client that does not see a tool, its event comes from outside.
  const tools = [...next.map(({ tool }) => tool), ...standing.spent.keys()];
  const sent = tools.map((tool) => eventNamed(workflow.matchAlways(tool)?.eventIn(state)));
  return fromOutside(workflow.model.eventsIn(state).filter((event) => !sent.includes(event)));
}

/** The states in which another gate allows a call of the tool, with any arguments. */
function demandOf(
  { workflow }: GateConfig,
  tool: string,
): readonly BoundTool['states'][] | undefined {
  if (!workflow.isBound(tool)) return [];
  const binding = workflow.matchAlways(tool);
  return binding && [binding.states];
}

/** How another run begins after this one has ended, in words. */
function begunAnew({ beginsAnew }: Standing, { run, anew }: Run): string {
  if (beginsAnew) return 'The next call that is available begins a new one';
  if (anew !== undefined) return anew;
  if (isNamedRun(run)) return 'A new conversation begins a new one';
  return isPrincipalRun(run)
    ? 'Only the operator can begin a new one'
    : 'A new session begins a new one';
}

function summaryOf(
  { status, onError }: GateConfig,
  { workflow, reached, viewpoint }: Standing,
): Json | undefined {
  if (status?.summary === undefined) return undefined;
  try {
    const context = workflow.dataOf(reached);
    const made: unknown = status.summary({
      state: reached.state,
      context,
      principal: viewpoint.actor,
    });
    // Nothing awaits what it returned: if that is a promise, its rejection would end the process.
    dropRejection(made);
    return jsonOf(made, 'the summary of a status tool');
  } catch (error) {
    onError(error);
    return undefined;
  }
}

async function recentOf(
  { workflow, onError }: GateConfig,
  { run, store }: Run,
  standing: Standing,
): Promise<readonly RecentEntry[] | undefined> {
  try {
    const entries = await store.history({ run, workflow: workflow.id }, MOST_RECENT);
    const shown = entries.filter(
      ({ tool }) => tool === undefined || standing.nameShown(tool) !== undefined,
    );
    return shown.map(({ tool, event, from, to, outcome }) => ({
      ...(tool !== undefined && { tool }),
      ...(tool === undefined && event !== null && { event }),
      from,
      ...(to !== undefined && { to }),
      ...(outcome !== undefined && { outcome }),
    }));
  } catch (error) {
    onError(error);
    return undefined;
  }
}
