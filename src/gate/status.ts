/**
 * What the status tool says of one workflow of a run: where it stands, how it goes on, what it
 * waits for. Hides how all of that is read from one record of the store.
 */
import { isPrincipalRun } from '../names.ts';
import type { Run } from '../session/run.ts';
import { beginsAnew, shownPosition, tellIfHeld } from '../step/outcome.ts';
import type { ClaimView, Json, RunRecord, TrailEntry } from '../stores/store.ts';
import {
  type Awaited,
  groupedWords,
  leadWords,
  type NextTool,
  type StatusFacts,
  statusWords,
} from '../workflow/advice.ts';
import { eventNamed } from '../workflow/binding.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { Position } from '../workflow/position.ts';
import { jsonOf } from '../workflow/stored.ts';
import type { GateConfig } from './config.ts';
import type { Outlook } from './gates.ts';
import {
  asBegun,
  nameToldOf,
  type StoredPosition,
  showsData,
  sightOf,
  statusOf,
  storedIn,
  storedPosition,
} from './stands.ts';

/** What the model is told of one workflow. */
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

/** How many entries of the trail are told. */
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
  const stored = storedIn(record, workflow.id);
  const key = { run: run.run, workflow: workflow.id };
  if (stored !== undefined) tellIfHeld({ key, ...stored, now: record?.now }, gate);
  const stood = storedPosition(gate, record);
  if (stood === 'unreadable') return withoutState(gate, stood);
  const position = await begunPosition(gate, run, stood);
  if (position === 'unavailable') return withoutState(gate, position);
  const recent = stored === undefined ? [] : await recentOf(gate, run, position);
  const underWay = statusOf(stored?.claim);
  const hasEnded = underWay === 'idle' && workflow.hasEnded(position.state);
  const next = underWay === 'idle' ? nextOf(part, position) : [];
  const waitsFor = hasEnded
    ? undefined
    : awaited(part, { ...stood, position }, next, stored?.claim);
  const leadsOn = next.some(({ leadsTo }) => leadsTo.some((each) => each !== position.state));
  const left = leavesIn(gate, stood, record);
  const summary = summaryOf(gate, position, run);
  const known = {
    workflow: workflow.id,
    status: hasEnded ? ('ended' as const) : underWay,
    state: position.state,
    ...(waitsFor && { waitsFor }),
  };
  const facts = {
    ...known,
    available: next.map(({ tool }) => tool),
    leadsOn,
    leavesInMs: left?.leavesInMs,
    done: workflow.doneIn(position.state),
    words: hasEnded ? begunAnew(gate, run) : undefined,
  };
  return {
    ...known,
    says: statusWords(facts),
    next: hasEnded && run.anew !== undefined ? [...next, ...starters] : next,
    ...(pass && { pass }),
    ...left,
    ...(summary !== undefined && { summary }),
    ...(recent && { recent }),
  };
}

/** The position, with the data that the run would begin with if something reads them. */
async function begunPosition(
  gate: GateConfig,
  run: Run,
  { position, updatedAt, version }: StoredPosition,
): Promise<Position | 'unavailable'> {
  const isAsked = gate.status?.summary !== undefined || showsData(gate);
  return isAsked ? asBegun(gate, run, { ...position, updatedAt, version }) : position;
}

/** @param words how to get a run */
export function statusWithoutRun(
  { workflow: { id: workflow } }: GateConfig,
  words: string,
  starters: readonly NextTool[],
): WorkflowStatus {
  const status = 'no-run';
  const says = statusWords({ workflow, status, available: [], words });
  return { workflow, status, says, next: starters };
}

/** The store cannot be asked, or this deployment does not understand what it has. */
export function withoutState(
  { workflow: { id: workflow } }: GateConfig,
  status: 'unavailable' | 'unreadable',
): WorkflowStatus {
  return { workflow, status, says: statusWords({ workflow, status, available: [] }), next: [] };
}

/** The workflow's own tools that all gates of the route allow, in a run without a claim. */
function nextOf({ gate, run, outlook }: RunPart, stood: Position): readonly NextTool[] {
  const { workflow } = gate;
  const from = shownPosition(gate, run.run, stood);
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

/** What a run waits for. Where a call leads to another state, only what comes from outside. */
function awaited(
  { gate, run, outlook }: RunPart,
  { position: { state, ...position }, updatedAt }: StoredPosition,
  next: readonly NextTool[],
  claim: ClaimView | undefined,
): Awaited | undefined {
  const { workflow } = gate;
  const underWay = statusOf(claim);
  if (underWay !== 'idle') {
    const what = underWay === 'held' ? 'operator' : 'step';
    const tool = claim && nameToldOf(gate, run, { state, ...position }, claim.tool);
    return tool === undefined ? { what } : { what, tool };
  }
  const leadsOn = next.some(({ leadsTo }) => leadsTo.some((each) => each !== state));
  const leavesAt = workflow.leavesAt({ state, ...position, updatedAt });
  const fromOutside = (events: readonly string[]): Awaited | undefined => {
    if (events.length > 0) return { what: 'event', events };
    return leavesAt === undefined ? undefined : { what: 'deadline' };
  };
  if (leadsOn) return fromOutside(workflow.outsideEvents(state));
  const sight = sightOf(gate, run, { state, ...position });
  for (const tool of workflow.available(state)) {
    if (sight?.hidden.has(tool) === true) continue;
    const binding = workflow.matchAlways(tool);
    if (binding === undefined || next.some((each) => each.tool === tool)) continue;
    if (outlook.available.includes(tool)) return { what: 'condition', tool };
    const { path } = outlook.wayTo(binding.states, (other) => demandOf(other, tool), tool);
    return { what: 'workflow', tool, ...(path && { path }) };
  }
  // To a client that does not see a tool, its event comes from outside.
  const sent = next.map(({ tool }) => eventNamed(workflow.matchAlways(tool)?.eventIn(state)));
  return fromOutside(workflow.eventsIn(state).filter((event) => !sent.includes(event)));
}

/** The states in which another gate allows a call of the tool, with any arguments. */
function demandOf(
  { workflow }: GateConfig,
  tool: string,
): readonly CallBinding['states'][] | undefined {
  if (!workflow.isBound(tool)) return [];
  const binding = workflow.matchAlways(tool);
  return binding && [binding.states];
}

/** When the run leaves its state without a call. */
function leavesIn(
  { workflow, clock }: GateConfig,
  { position, updatedAt, isOverdue }: StoredPosition,
  record: RunRecord | undefined,
): { readonly leavesAt: string; readonly leavesInMs: number } | undefined {
  const at = workflow.leavesAt({ ...position, updatedAt });
  if (at === undefined || updatedAt === 0 || isOverdue) return undefined;
  const leavesInMs = at - (record?.now ?? clock.now());
  return { leavesAt: new Date(at).toISOString(), leavesInMs };
}

/** How another run begins after this one has ended, in words. */
function begunAnew(gate: GateConfig, { run, anew }: Run): string {
  if (beginsAnew(gate, run)) return 'The next call that is available begins a new one';
  if (anew !== undefined) return anew;
  return isPrincipalRun(run)
    ? 'Only the operator can begin a new one'
    : 'A new session begins a new one';
}

function summaryOf(
  { workflow, status, onError }: GateConfig,
  position: Position,
  { actor: principal }: Run,
): Json | undefined {
  if (status?.summary === undefined) return undefined;
  try {
    const { state } = position;
    const made: unknown = status.summary({ state, context: workflow.dataOf(position), principal });
    // Nothing awaits what it returned: if that is a promise, its rejection would end the process.
    Promise.resolve(made).catch(() => {});
    return jsonOf(made, 'the summary of a status tool');
  } catch (error) {
    onError(error);
    return undefined;
  }
}

async function recentOf(
  gate: GateConfig,
  context: Run,
  position: Position,
): Promise<readonly RecentEntry[] | undefined> {
  const { workflow, onError } = gate;
  const { run, store } = context;
  try {
    const entries = await store.history({ run, workflow: workflow.id }, MOST_RECENT);
    const told = entries.filter(
      ({ tool }) => tool === undefined || nameToldOf(gate, context, position, tool) !== undefined,
    );
    return told.map(({ tool, event, from, to, outcome }) => ({
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
