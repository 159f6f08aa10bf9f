/**
 * One gate and its runs, as the page gets them. Hides run keys behind sealed ids, how often a store
 * is asked for its counts, and what the app does not share of a run.
 */
import { type FsmSnapshot, runDigest, unboundTools } from 'mcp-interlock';
import {
  type Explained,
  type ExplainedTool,
  entryWords,
  explain,
  heldOutcomes,
  type Runs,
  type RunView,
  type WhatIfMove,
  whatIf,
} from 'mcp-interlock/runs';
import type { ClaimView, TrailEntry, UnsettledStep } from 'mcp-interlock/stores';
import { activeNodes, type WorkflowGraph, workflowGraph } from 'mcp-interlock-check';
import type {
  Abilities,
  Counts,
  Done,
  Json,
  ObservedRuns,
  Refusal,
  ResolvedBy,
  RunDetail,
  RunPage,
  RunSummary,
  SearchPage,
  Standing,
  StepNow,
  StoppedCalls,
  ToolNow,
  TrailItem,
  TrailPage,
  WhatIf,
  WorkflowDetail,
  WorkflowSummary,
} from './api.ts';
import { type HeldSteps, shownArgs } from './held-step.ts';
import { HttpFailure } from './http.ts';
import { isOf } from './options.ts';
import type { Seal } from './seal.ts';
import { amountFacts, missingOf, type SearchedQuery, searchRuns, wordsIn } from './search.ts';

/** What `share` is given of a run, and of a what-if. */
export interface SharedRun {
  /** The gate's id. */
  readonly workflow: string;
  /** As logs name it: 16 hex digits. Absent in a what-if. */
  readonly digest: string | undefined;
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context: Json;
}

export type Share = (run: SharedRun) => Json | undefined;

export interface InspectedOptions {
  readonly seal: Seal;
  readonly share: Share | undefined;
  readonly heldSteps: HeldSteps;
  readonly stuckAfterMs: number;
  readonly onError: (error: unknown) => void;
}

/** Which runs are asked for. */
export interface ListedQuery {
  readonly list: 'held' | 'unsettled' | 'open' | 'resolved';
  readonly state?: string | undefined;
  readonly stuckForMs?: number | undefined;
  readonly limit: number;
  readonly after?: string | undefined;
}

/** The active nodes of so many states are remembered. */
const MOST_STATES = 1_000;

/** For so long, each visitor gets the same counts. */
export const COUNTS_MAX_AGE_MS = 250;

/** The most of a trail that is read to get at its older entries. */
const MOST_ENTRIES = 5_000;
const TRAIL_PAGE = 50;

/** So many held runs are compared, to see who resolved them. */
const MOST_HELD = 200;

/** So many names of tools that the gate does not bind go into each answer. */
const MOST_UNBOUND = 100;

/** A position that is sealed may have so many characters: it comes back in a request. */
const MOST_POSITION = 150_000;

/** That a run was resolved is among so many of its newest entries, or it is old. */
const NEWEST = 5;

/** So many runs that were resolved are remembered, and the amounts of so many. */
const MOST_RESOLVED = 50;
const MOST_AMOUNTS = 1_000;

/** So many rows of what was observed go into each answer. */
const MOST_OBSERVED = 20;

/** `undefined` where the store has not said yet, or keeps no switches. */
type Stopped = readonly StoppedCalls[] | undefined;

export class Inspected {
  readonly runs: Runs;
  readonly #options: InspectedOptions;
  /** What never changes of its summary. */
  readonly #known: Pick<WorkflowSummary, 'key' | 'id' | 'version'>;
  readonly #active = new Map<string, readonly string[]>();
  #graph: WorkflowGraph | undefined;
  #counted: { readonly at: number; readonly summary: Promise<WorkflowSummary> } | undefined;
  #isAway = false;
  #stopped: { readonly at: number; readonly stopped: Promise<Stopped> } | undefined;
  /** What the store said last of the workflow's switch. */
  #lastStopped: Stopped;
  /** How much the step of unknown outcome is about that was shown last, by the run's key. */
  readonly #amounts = new Map<string, string>();
  /** The runs that were resolved, the newest last, and how much that was about. */
  readonly #resolved = new Map<string, string | undefined>();

  constructor(runs: Runs, options: InspectedOptions) {
    this.runs = runs;
    this.#options = options;
    const { version } = explain(runs.gate);
    // An id may be any text; the key of it is safe in a URL.
    const key = `w${Buffer.from(runs.workflow).toString('base64url')}`;
    this.#known = { key, id: runs.workflow, ...(version !== undefined && { version }) };
  }

  /** The gate's id. */
  get id(): string {
    return this.#known.id;
  }

  /** Names it in URLs. */
  get key(): string {
    return this.#known.key;
  }

  idOf(run: string): string {
    return this.#options.seal.close('run', run);
  }

  /** The run's key; `undefined` for the id of another server, or of one that has restarted. */
  runIfKnown(id: string): string | undefined {
    return this.#options.seal.open('run', id);
  }

  /** The run's key. @throws HttpFailure `unknown` */
  runOf(id: string): string {
    const run = this.runIfKnown(id);
    if (run === undefined) throw unknownRun();
    return run;
  }

  /** What is counted of it, at most a quarter of a second old. Never rejects. */
  summary(): Promise<WorkflowSummary> {
    const now = performance.now();
    if (this.#counted === undefined || now - this.#counted.at >= COUNTS_MAX_AGE_MS)
      this.#counted = { at: now, summary: this.#count() };
    return this.#counted.summary;
  }

  /**
   * What operators have stopped of it, at most a quarter of a second old. While the store cannot be
   * asked, it is what it said last, as in the gates. Never rejects.
   */
  stopped(): Promise<Stopped> {
    const now = performance.now();
    if (this.#stopped === undefined || now - this.#stopped.at >= COUNTS_MAX_AGE_MS) {
      const stopped = this.runs.frozen().then(
        (found) => {
          this.#lastStopped = found;
          return found;
        },
        () => this.#lastStopped,
      );
      this.#stopped = { at: now, stopped };
    }
    return this.#stopped.stopped;
  }

  async #count(): Promise<WorkflowSummary> {
    const { stuckAfterMs, onError } = this.#options;
    const asked = this.stopped();
    const [counting] = await Promise.allSettled([this.runs.count({ forMs: stuckAfterMs })]);
    const stopped = await asked;
    const observed = observedOf(this.runs);
    const known = {
      ...this.#known,
      ...(this.#resolved.size > 0 && { resolved: this.#resolved.size }),
      ...(stopped && { stopped }),
      ...(observed && { observed }),
    };
    try {
      if (counting.status === 'rejected') throw counting.reason;
      const counted = counting.value;
      this.#isAway = false;
      const { runs, states, stuck = 0, held, unsettled, running, unreadable } = counted;
      const { oldestClaimMs } = counted;
      const counts: Counts = {
        runs,
        states: states
          .map((each) => ({ ...each, active: this.active(each.state), stuck: each.stuck ?? 0 }))
          .sort((a, b) => b.runs - a.runs || (a.state < b.state ? -1 : 1)),
        held,
        ...(unsettled !== undefined && { unsettled }),
        running,
        unreadable,
        stuck,
        stuckAfterMs,
        ...(oldestClaimMs !== undefined && { oldestClaimMs }),
      };
      return { ...known, store: 'ok', counts };
    } catch (error) {
      if (isOf(error, 'ERR_INTERLOCK_STORE')) return { ...known, store: 'no-index' };
      // Once, and not with every look.
      if (!this.#isAway) onError(error);
      this.#isAway = true;
      return { ...known, store: 'unavailable' };
    }
  }

  async detail(): Promise<WorkflowDetail> {
    const graph = this.#graphNow();
    return {
      ...(await this.summary()),
      graph,
      tools: graph.tools.map(({ name }) => name),
      start: this.#standing(explain(this.runs.gate)),
    };
  }

  #graphNow(): WorkflowGraph {
    this.#graph ??= workflowGraph(this.runs.gate);
    return this.#graph;
  }

  /** The nodes of the graph that are active in a stored state; none where it has no such state. */
  active(state: string): readonly string[] {
    const known = this.#active.get(state);
    if (known !== undefined) return known;
    const found = activeNodes(this.runs.gate, state);
    if (this.#active.size >= MOST_STATES) this.#active.clear();
    this.#active.set(state, found);
    return found;
  }

  async list(query: ListedQuery, can: Abilities): Promise<RunPage> {
    const { seal } = this.#options;
    const { list, limit, state, stuckForMs: forMs = 0 } = query;
    if (list === 'resolved') return { runs: await this.#asked(() => this.#resolvedRuns(can)) };
    const after = query.after === undefined ? undefined : seal.open('page', query.after);
    if (query.after !== undefined && after === undefined)
      throw new HttpFailure('bad-request', 'after: not the "next" of a page.');
    const page = { limit, after };
    const found = await this.#asked(() =>
      list === 'open' ? this.runs.stuck({ ...page, state, forMs }) : this.runs[list](page),
    );
    return {
      runs: found.runs.map((view) => this.#summaryOf(view, can)),
      // A store's place in a list may have the key of a run in it.
      ...(found.next !== undefined && { next: seal.close('page', found.next) }),
    };
  }

  async look(run: string, can: Abilities): Promise<RunDetail> {
    const view = await this.viewOf(run);
    const { gate } = this.runs;
    const explained = explain(gate, view);
    const { leavesAt } = explained;
    const now = nowOf(view);
    const data = this.#dataOf(view.context, view.state, runDigest(run));
    const beginsAnew = view.ended && explained.state !== view.state;
    return {
      ...this.#standing(explained),
      ...this.#summaryOf(view, can, true),
      now,
      ...(data !== undefined && { data }),
      ...(leavesAt !== undefined && { leavesAt, leavesInMs: leavesAt - now }),
      ...(beginsAnew && { beginsAnew }),
      ...(view.frozen && { frozen: view.frozen }),
      trail: await this.trail(run),
    };
  }

  /** Runs by what is known of them, and what the search did not reach. */
  async search({ after, ...query }: SearchedQuery, can: Abilities): Promise<SearchPage> {
    const { seal } = this.#options;
    const place = after === undefined ? undefined : seal.open('search', after);
    if (after !== undefined && place === undefined)
      throw new HttpFailure('bad-request', 'after: not the "next" of a search.');
    const tools = this.#graphNow().tools.map(({ name }) => name);
    const amountOf = (view: RunView) =>
      view.status === 'held' ? this.#summaryOf(view, can).step?.amount : undefined;
    return this.#asked(async () => {
      const searched = { can, tools, amountOf };
      const { views, next, ...found } = await searchRuns(
        this.runs,
        { ...query, after: place },
        searched,
      );
      const runs = views.map((view) => this.#summaryOf(view, can));
      const known = new Set(runs.map(({ id }) => id));
      const resolved = after === undefined ? await this.#resolvedRuns(can) : [];
      const fitting = resolved.filter((run) => !known.has(run.id) && fits(run, query));
      return {
        ...found,
        runs: [...runs, ...fitting],
        ...(next !== undefined && { next: seal.close('search', next) }),
      };
    });
  }

  /** Remembers a run that a person has resolved: when it has ended, no list of a store has it. */
  noteResolved(run: string): void {
    this.#resolved.delete(run);
    this.#resolved.set(run, this.#amounts.get(run));
    const [oldest] = this.#resolved.keys();
    if (this.#resolved.size > MOST_RESOLVED && oldest !== undefined) this.#resolved.delete(oldest);
    this.#counted = undefined;
  }

  async #resolvedRuns(can: Abilities): Promise<readonly RunSummary[]> {
    const runs: RunSummary[] = [];
    for (const [run, amount] of [...this.#resolved].reverse()) {
      const view = await this.runs.read(run);
      const by = view && (await this.resolutionOf(run));
      if (view === undefined || by === undefined) continue;
      const { at, note, ...said } = by;
      const agoMs = Math.max(0, nowOf(view) - at);
      const words = {
        ...(note !== undefined && { note }),
        ...(amount !== undefined && { amount }),
      };
      runs.push({ ...this.#summaryOf(view, can), resolved: { ...said, ...words, agoMs } });
    }
    return runs;
  }

  /** The held steps by their runs' keys, the longest held first; at most 200 of them. */
  async heldSteps(): Promise<ReadonlyMap<string, string>> {
    const { runs } = await this.runs.held({ limit: MOST_HELD });
    return new Map(runs.flatMap(({ run, claim }) => (claim ? [[run, stepId(claim)]] : [])));
  }

  /** Who has resolved it, when and why, where that is one of the newest things that happened. */
  async resolutionOf(
    run: string,
  ): Promise<(ResolvedBy & Pick<TrailEntry, 'at' | 'note'>) | undefined> {
    const entries = await this.runs.history(run, NEWEST);
    const entry = entries.findLast(({ kind }) => kind === 'resolved');
    const { tool, outcome, actor, note } = entry ?? {};
    if (entry === undefined || tool === undefined) return undefined;
    if (outcome !== 'succeeded' && outcome !== 'failed') return undefined;
    const said = { ...(actor !== undefined && { actor }), ...(note !== undefined && { note }) };
    return { tool, outcome, at: entry.at, ...said };
  }

  /** The run, which is there. @throws HttpFailure `unknown`, `conflict`, `unavailable` */
  async viewOf(run: string): Promise<RunView> {
    const view = await this.#asked(() => this.runs.read(run));
    if (view === undefined) throw unknownRun();
    return view;
  }

  /** The newest entries before one; a store gives the newest alone, so the others are read too. */
  async trail(run: string, before?: number, limit = TRAIL_PAGE): Promise<TrailPage> {
    let newer = 0;
    if (before !== undefined) {
      newer = Math.max(0, (await this.newestEntry(run)) - before + 1);
    }
    const most = Math.min(newer + limit + 1, MOST_ENTRIES);
    const all = await this.#asked(() => this.runs.history(run, most));
    const older = all.filter(({ seq }) => before === undefined || seq < before);
    const entries = older.slice(-limit).reverse();
    const last = entries.at(-1);
    return {
      entries: entries.map((entry) => this.#itemOf(entry)),
      ...(last !== undefined && older.length > limit && { before: last.seq }),
    };
  }

  /** The number of the newest entry; 0 where there is none, or the store cannot be asked. */
  async newestEntry(run: string): Promise<number> {
    try {
      return (await this.runs.history(run, 1)).at(-1)?.seq ?? 0;
    } catch {
      // The counts say that the store is away.
      return 0;
    }
  }

  /** A step through the machine that touches no run. */
  async whatIf(
    from: { readonly run: string } | { readonly at: string } | undefined,
    move: WhatIfMove | undefined,
  ): Promise<WhatIf> {
    const { gate } = this.runs;
    const at = await this.#positionOf(from);
    const moved = this.#simulated(() => move && whatIf(gate, at, move));
    const explained = explain(gate, moved ?? at);
    const { snapshot, context, leavesAt } = explained;
    const sealed = JSON.stringify(snapshot);
    if (sealed.length > MOST_POSITION)
      throw new HttpFailure('conflict', 'The data of this run are too large for a what-if.');
    const data = this.#dataOf(context, snapshot.state, undefined);
    return {
      ...this.#standing(explained),
      at: this.#options.seal.close('position', sealed),
      result: moved?.result ?? 'stayed',
      ...(moved?.event !== undefined && { event: moved.event }),
      ...(moved?.refusal !== undefined && { refusal: refusalOf(moved) }),
      actions: moved?.actions ?? [],
      ...(leavesAt !== undefined && { leavesInMs: leavesAt - snapshot.updatedAt }),
      ...(data !== undefined && { data }),
    };
  }

  #simulated<T>(simulate: () => T): T {
    try {
      return simulate();
    } catch (error) {
      if (isOf(error, 'ERR_INTERLOCK_BINDING'))
        throw new HttpFailure('bad-request', 'No such tool is bound.');
      this.#options.onError(error);
      throw new HttpFailure('conflict', "The machine's own code cannot take that move.");
    }
  }

  async #positionOf(
    from: { readonly run: string } | { readonly at: string } | undefined,
  ): Promise<{ readonly snapshot: FsmSnapshot } | undefined> {
    if (from === undefined) return undefined;
    if ('run' in from) {
      const { snapshot } = await this.viewOf(this.runOf(from.run));
      return { snapshot };
    }
    const text = this.#options.seal.open('position', from.at);
    if (text === undefined)
      throw new HttpFailure('bad-request', 'from.at: not the "at" of a what-if.');
    return { snapshot: JSON.parse(text) as FsmSnapshot };
  }

  #dataOf(context: Json | undefined, state: string, digest: string | undefined): Json | undefined {
    const { share, onError } = this.#options;
    if (share === undefined || context === undefined) return undefined;
    try {
      return share({ workflow: this.id, digest, state, context });
    } catch (error) {
      onError(error);
      return undefined;
    }
  }

  #standing({ state, ended, tools, events }: Explained): Standing {
    const unbound = unboundTools(this.runs.gate);
    return {
      state,
      active: this.active(state),
      ended,
      tools: tools.map((tool): ToolNow => {
        return {
          tool: tool.tool,
          shown: tool.shown,
          ...(tool.refusal && { refusal: refusalOf(tool) }),
          leadsTo: tool.leadsTo,
          partial: tool.isPartial,
        };
      }),
      ...(unbound && {
        unbound: { count: unbound.length, names: unbound.slice(0, MOST_UNBOUND) },
      }),
      events,
    };
  }

  /** @param isWhole with what each outcome of a call would send */
  #summaryOf(view: RunView, can: Abilities, isWhole = false): RunSummary {
    const { run, state, snapshot, status, ended, unmovedForMs, heldForMs, fault, claim } = view;
    const { sessionEnded, unsettled } = view;
    const stepOf = (step: ClaimView | UnsettledStep) => this.#stepOf(view, step, can, isWhole);
    return {
      id: this.idOf(run),
      digest: runDigest(run),
      ...(can.keys && { key: run }),
      state,
      active: this.active(state),
      status,
      ended,
      version: snapshot.version ?? 0,
      ...(snapshot.updatedAt > 0 && { updatedAt: snapshot.updatedAt }),
      ...(unmovedForMs !== undefined && { unmovedForMs }),
      ...(heldForMs !== undefined && { heldForMs }),
      ...(status !== 'idle' && claim && { step: stepOf(claim) }),
      ...(unsettled && { unsettled: unsettled.map(stepOf) }),
      ...(sessionEnded && { sessionEnded }),
      ...(fault !== undefined && { fault }),
    };
  }

  #stepOf(
    view: RunView,
    call: ClaimView | UnsettledStep,
    can: Abilities,
    isWhole: boolean,
  ): StepNow {
    const { tool, since, idempotencyKey } = call;
    // Of an unsettled step, more than its key is known while the run still has its claim.
    const claim = view.claim?.idempotencyKey === idempotencyKey ? view.claim : undefined;
    const { until, live = false, entry } = claim ?? {};
    const now = nowOf(view);
    const left = until === undefined ? undefined : Math.max(0, live ? until - now : now - until);
    const id = stepId(call);
    const args = shownArgs(entry?.args);
    const step = {
      workflow: this.id,
      run: runDigest(view.run),
      tool,
      idempotencyKey,
      args: entry?.args,
      ...{ since, actor: entry?.actor, requestId: entry?.requestId },
    };
    const said = live ? {} : this.#options.heldSteps.said(id, step, can);
    if (said.amount !== undefined) {
      if (this.#amounts.size >= MOST_AMOUNTS) this.#amounts.clear();
      this.#amounts.set(view.run, said.amount);
    }
    const answered = this.runs.answered(idempotencyKey);
    const held = { token: '', ...call, uncertain: 'hold', live: false } as const;
    return {
      id,
      tool,
      ...(since !== undefined && { sinceMs: Math.max(0, now - since) }),
      ...(left !== undefined && (live ? { leaseLeftMs: left } : { overdueMs: left })),
      ...(entry?.actor !== undefined && { actor: entry.actor }),
      ...(entry?.requestId !== undefined && { requestId: entry.requestId }),
      ...(can.write && { idempotencyKey }),
      ...(args !== undefined && { args }),
      ...said,
      ...(answered && { answered }),
      ...(isWhole &&
        !live && { resolutions: heldOutcomes(this.runs.gate, { ...view, claim: held }) }),
    };
  }

  #itemOf(entry: TrailEntry): TrailItem {
    const { hash: _, previous: __, digest: ___, payload: ____, ...said } = entry;
    const { from, to } = said;
    return {
      ...said,
      fromActive: this.active(from),
      ...(to !== undefined && { toActive: this.active(to) }),
      says: entryWords(entry),
    } as TrailItem;
  }

  /** @throws HttpFailure `bad-request`, unless the run's state can handle the event */
  async assertEvent(run: string, event: string): Promise<void> {
    const { events } = explain(this.runs.gate, await this.viewOf(run));
    // A statechart may handle each event that fits a pattern.
    if (events.some((each) => each === event || each.includes('*'))) return;
    throw new HttpFailure('bad-request', 'event: the state of the run does not know it.');
  }

  /** Does something to a run: a failure of the store is answered as one of a look is. */
  done(act: () => Promise<Done>): Promise<Done> {
    return this.#asked(act);
  }

  /** Does something to the workflow's switch. What it looks like is asked for anew then. */
  async switched(act: () => Promise<void>): Promise<Done> {
    return this.#asked(async () => {
      try {
        await act();
      } catch (error) {
        if (isOf(error, 'ERR_INTERLOCK_CONFIG'))
          throw new HttpFailure('bad-request', 'tool: no such tool is bound.');
        if (!isOf(error, 'ERR_INTERLOCK_STORE')) throw error;
        this.#options.onError(error);
        throw new HttpFailure('no-switch', 'The store keeps no switch that this server can set.');
      }
      this.#counted = undefined;
      this.#stopped = undefined;
      return { done: true };
    });
  }

  /** Asks the store. What it says of its failures is for `onError` alone. */
  async #asked<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof HttpFailure) throw error;
      if (isOf(error, 'ERR_INTERLOCK_EVENT'))
        throw new HttpFailure('choose-event', 'Which event it sends depends on the call: give it.');
      if (isOf(error, 'ERR_INTERLOCK_STORE'))
        throw new HttpFailure('no-index', 'The store keeps no index of its runs.');
      if (isOf(error, 'ERR_INTERLOCK_CONFIG'))
        throw new HttpFailure('bad-request', 'state: no such state.');
      if (isOf(error, 'ERR_INTERLOCK_SNAPSHOT'))
        throw new HttpFailure('conflict', 'The gate does not understand what is stored.');
      this.#options.onError(error);
      throw new HttpFailure('unavailable', 'The store cannot be asked now. Try again.');
    }
  }
}

/** What time it was on the clock that stamped a run, when it was read. */
function nowOf({ snapshot, unmovedForMs, heldForMs, claim }: RunView): number {
  if (heldForMs !== undefined && claim?.until !== undefined) return claim.until + heldForMs;
  return unmovedForMs === undefined ? Date.now() : snapshot.updatedAt + unmovedForMs;
}

/** Whether a resolved run has all words that are looked for. */
function fits(
  { digest, key, state, resolved, unmovedForMs }: RunSummary,
  { text = '', withinMs = Number.POSITIVE_INFINITY }: SearchedQuery,
): boolean {
  if (Math.min(resolved?.agoMs ?? 0, unmovedForMs ?? Number.POSITIVE_INFINITY) > withinMs)
    return false;
  const { tool, outcome, actor, amount, note } = resolved ?? {};
  const facts = [key, state, tool, outcome, actor, note, ...amountFacts(amount)];
  return missingOf(wordsIn(text), digest, facts).length === 0;
}

/** Names a call without what could settle it: a claim's token, or the call's idempotency key. */
export function stepId(call: ClaimView | UnsettledStep): string {
  return runDigest('token' in call ? call.token : call.idempotencyKey);
}

function refusalOf({ refusal, says }: Pick<ExplainedTool, 'refusal' | 'says'>): Refusal {
  return {
    reason: refusal?.reason ?? 'state',
    says: says ?? '',
    ...(refusal?.path && { path: refusal.path }),
  };
}

function unknownRun(): HttpFailure {
  return new HttpFailure('unknown', 'There is no such run: it was deleted, or it has expired.');
}

function observedOf({ observed }: Runs): ObservedRuns | undefined {
  if (observed === undefined) return undefined;
  const { since, runs, refused, calls, unjudged, rules, hours } = observed;
  const passed = Object.values(unjudged).reduce((sum, count) => sum + count, 0);
  return {
    ...{ since, runs, refused, calls, unjudged: passed, hours },
    rules: rules.slice(0, MOST_OBSERVED).map(({ last, ...rule }) => {
      const { at, state, says, run: digest } = last;
      return { ...rule, at, state, says, digest };
    }),
  };
}
