/**
 * All that the page knows, and how it stays true: what was asked for, what came, and what the
 * stream of events reports since. The parts of the page show its signals and call its methods.
 */
import { batch, computed, type ReadonlySignal, signal } from '@preact/signals';
import type { GraphNode, WorkflowGraph } from 'mcp-interlock-check';
import type {
  Done,
  Failure,
  Overview,
  ResolvedMany,
  RunChanged,
  RunDetail,
  RunPage,
  RunSummary,
  SearchPage,
  SessionInfo,
  StepNow,
  TrailItem,
  TrailPage,
  WorkflowDetail,
  WorkflowSummary,
} from '../src/api.ts';
import { asFailure, type Reception, RequestFailed, Server, Stream, wordsOf } from './server.ts';
import { WhatIfWalk } from './walk.ts';

export type ListKind = 'held' | 'unsettled' | 'stuck' | 'open' | 'resolved' | 'found';

/** What is looked for: both must fit. */
export interface Search {
  readonly text: string;
  /** Only runs of so many milliseconds. */
  readonly withinMs: number | undefined;
}

/** An answer, and when it came: durations in it are counted from then. */
export interface Seen<T> {
  readonly value: T;
  /** On the clock of {@link Inspector.tick}. */
  readonly at: number;
}

/** A run of a list. Found runs may be of other workflows than the one that is shown. */
export interface ListedRun extends Seen<RunSummary> {
  /** The workflow's key. Several workflows may have one run. */
  readonly workflow: string;
}

/** A call of unknown outcome, with its run. */
export interface ChosenCall {
  readonly workflow: string;
  /** The run's. */
  readonly id: string;
  readonly step: StepNow;
}

/** The calls of unknown outcome for which a run is in a list: a held run's, or unsettled ones. */
export function callsOf(
  { status, step, unsettled = [] }: RunSummary,
  kind: ListKind,
): readonly StepNow[] {
  return kind !== 'unsettled' && status === 'held' && step !== undefined ? [step] : unsettled;
}

/** The runs of a list, as far as it was scrolled. */
export interface RunList {
  readonly kind: ListKind;
  /** Only runs in this state. */
  readonly state: string | undefined;
  /** Of found runs: what was looked for. */
  readonly search: Search | undefined;
  /** What the search did not reach, in sentences. */
  readonly unreached: readonly string[];
  readonly rows: readonly ListedRun[];
  /** Where each workflow has more, by its key. */
  readonly next: ReadonlyMap<string, string> | undefined;
  readonly isLoading: boolean;
  /** Why it could not be asked for; of found runs, why some workflows could not. */
  readonly error: RequestFailed | undefined;
}

export interface Notice {
  /** `offline`: the server did not answer. It is gone once the server does. */
  readonly kind: 'done' | 'error' | 'offline';
  readonly text: string;
}

/** What a person can do to a run, and with what. */
export type Deed = 'resolve' | 'send' | 'restart' | 'delete' | 'freeze' | 'unfreeze';

const PAGE = 100;
/** A list is brought up to date as far as this; what is below was asked for by scrolling. */
const MOST_RENEWED = 200;
/** A list that could not be asked for is asked for again. */
const AGAIN_MS = 3000;

export class Inspector {
  readonly #server = new Server();
  #stream: Stream | undefined;
  #streamed = '';
  /** Of each thing that is asked for, only the newest answer counts. */
  readonly #asked = { workflow: 0, run: 0, list: 0 };
  #again: ReturnType<typeof setTimeout> | undefined;

  readonly session = signal<SessionInfo | undefined>(undefined);
  /** Why nothing can be shown at all. */
  readonly refusal = signal<string | undefined>(undefined);
  readonly reception = signal<Reception>('connecting');
  readonly delayMs = signal(0);
  readonly workflows = signal<readonly WorkflowSummary[]>([]);
  readonly workflow = signal<WorkflowDetail | undefined>(undefined);
  readonly list = signal<RunList>(emptyList('open'));
  /** The run that was picked, from the moment when it was. */
  readonly picked = signal<string | undefined>(undefined);
  readonly run = signal<Seen<RunDetail> | undefined>(undefined);
  /** The calls that are resolved together, as they were looked at. */
  readonly chosen = signal<ReadonlyMap<string, ChosenCall>>(new Map());
  readonly runError = signal<string | undefined>(undefined);
  /** Older entries than those that came with the run. */
  readonly olderTrail = signal<TrailPage | undefined>(undefined);
  readonly notice = signal<Notice | undefined>(undefined);
  /** Which of the two the panel beside the diagram shows. */
  readonly panel = signal<'run' | 'what-if'>('run');
  readonly walk: WhatIfWalk;
  /** Milliseconds since the page was loaded, four times a second. */
  readonly tick = signal(performance.now());
  readonly counts: ReadonlySignal<WorkflowSummary['counts']>;
  /** Whether a store cannot be asked that what is shown comes from. */
  readonly isAway: ReadonlySignal<boolean>;
  readonly #places: ReadonlySignal<Places>;

  readonly #renewRun = new Soon(250, () => this.#loadRun());
  readonly #renewList = new Soon(1500, async () => {
    // A search is a walk through the store: it is made again where a person asks for it.
    if (this.list.value.kind !== 'found') await this.#renewRows();
  });

  constructor() {
    this.walk = new WhatIfWalk(this.#server);
    this.counts = computed(() => {
      const key = this.workflow.value?.key;
      return this.workflows.value.find((each) => each.key === key)?.counts;
    });
    this.isAway = computed(() => {
      const { kind, error } = this.list.value;
      const key = this.workflow.value?.key;
      const asked = this.workflows.value.filter((each) => kind === 'found' || each.key === key);
      return error?.code === 'unavailable' || asked.some(({ store }) => store === 'unavailable');
    });
    this.#places = computed(() => new Places(this.workflow.value?.graph));
    setInterval(() => {
      if (!document.hidden) this.tick.value = performance.now();
    }, 250);
    addEventListener('hashchange', () => void this.#shown(() => this.#follow()));
  }

  async start(): Promise<void> {
    try {
      this.session.value = await this.#server.session();
      const { workflows } = await this.#server.get<Overview>('workflows');
      this.workflows.value = workflows;
      await this.#follow();
    } catch (error) {
      this.refusal.value = wordsOf(error);
      // A visitor without the right to look asks no more; one of a server that restarts does.
      if (!isRefused(error)) setTimeout(() => void this.start(), 3000);
      else this.reception.value = 'refused';
      return;
    }
    this.refusal.value = undefined;
  }

  /** Shows what the address names: `#/workflow/run`. */
  async #follow(): Promise<void> {
    const [, workflow, run] = location.hash.split('/').map(decodeURIComponent);
    const known = this.workflows.value;
    const needing = known.find(({ counts }) => (counts?.held ?? 0) > 0);
    const chosen = known.find(({ key }) => key === workflow) ?? needing ?? known[0];
    if (chosen === undefined) return;
    if (chosen.key !== this.workflow.value?.key) await this.#loadWorkflow(chosen);
    if (run !== this.picked.value) {
      batch(() => {
        this.picked.value = run;
        this.run.value = undefined;
        this.runError.value = undefined;
        this.olderTrail.value = undefined;
        if (run !== undefined) this.panel.value = 'run';
      });
      await this.#loadRun();
    }
    this.#listen();
  }

  /** Where a run is, in few words: the names of its innermost states. */
  placeOf(where: { readonly state: string; readonly active: readonly string[] }): string {
    return this.#places.value.of(where);
  }

  chooseWorkflow(key: string): void {
    // What was found is of all workflows, and would stay.
    if (this.list.value.kind === 'found') this.chooseList('open');
    location.hash = `#/${encodeURIComponent(key)}`;
  }

  chooseRun(id: string | undefined, key = this.workflow.value?.key): void {
    if (key === undefined) return;
    const run = id === undefined ? '' : `/${encodeURIComponent(id)}`;
    location.hash = `#/${encodeURIComponent(key)}${run}`;
  }

  /** Picks the run of the shown workflow that has this digest. */
  async find(digest: string): Promise<void> {
    const key = this.workflow.value?.key;
    await this.search({ text: digest, withinMs: undefined });
    const row = this.list.value.rows.find(({ workflow }) => workflow === key);
    if (row !== undefined) this.chooseRun(row.value.id, key);
  }

  /** Shows the runs of all workflows that fit, and picks the only one. */
  async search(search: Search): Promise<void> {
    if (this.workflow.value === undefined) return;
    this.#begin({ ...emptyList('found'), search });
    await this.#loadRows();
    const { kind, rows, next, error } = this.list.value;
    const [only, ...others] = rows;
    const areAll = next === undefined && error === undefined;
    if (kind === 'found' && areAll && only !== undefined && others.length === 0)
      this.chooseRun(only.value.id, only.workflow);
  }

  /** The calls of a row, by which they are chosen. */
  callsIn({ value, workflow }: ListedRun): readonly (readonly [string, ChosenCall])[] {
    const { kind } = this.list.value;
    return callsOf(value, kind).map((step) => [
      `${workflow} ${step.id}`,
      { workflow, id: value.id, step },
    ]);
  }

  /** Takes the calls of a row among those that are resolved together, or out of them. */
  toggle(row: ListedRun): void {
    const chosen = new Map(this.chosen.value);
    const calls = this.callsIn(row);
    const out = calls.filter(([key]) => chosen.delete(key));
    if (out.length === 0) for (const [key, call] of calls) chosen.set(key, call);
    this.chosen.value = chosen;
    // On a phone it would cover the buttons that come now.
    if (this.notice.value?.kind === 'done') this.notice.value = undefined;
  }

  /** Resolves all chosen calls with one note. Those that it could not resolve stay chosen. */
  async resolveChosen(outcome: 'succeeded' | 'failed', note: string): Promise<boolean> {
    return this.#shown(async () => {
      const chosen = [...this.chosen.value];
      const left = new Map<string, ChosenCall>();
      let first: Failure['error'] | undefined;
      for (const key of new Set(chosen.map(([, { workflow }]) => workflow))) {
        const calls = chosen.filter(([, { workflow }]) => workflow === key);
        const runs = calls.map(([, { id, step }]) => ({ id, step: step.id }));
        const { results } = await this.#server.post<ResolvedMany>(`workflows/${key}/resolve`, {
          outcome,
          note,
          runs,
        });
        for (const [at, call] of calls.entries()) {
          const error = results[at]?.error;
          if (error !== undefined) left.set(...call);
          first ??= error;
        }
      }
      this.chosen.value = left;
      const done = `${chosen.length - left.size} of ${chosen.length} resolved as ${outcome}.`;
      this.notice.value =
        first === undefined
          ? { kind: 'done', text: done }
          : { kind: 'error', text: `${done} ${first.message}` };
      // The stream reports the counts of the shown workflow alone.
      await this.#renew();
      await this.#renewAfterDeed();
    });
  }

  /** What a person did is seen in a search too. */
  async #renewAfterDeed(): Promise<void> {
    this.#renewRun.call();
    if (this.list.value.kind === 'found') await this.#renewRows();
    else this.#renewList.call();
  }

  async #loadWorkflow({ key, counts }: WorkflowSummary): Promise<void> {
    const asked = ++this.#asked.workflow;
    const detail = await this.#server.get<WorkflowDetail>(`workflows/${key}`);
    if (asked !== this.#asked.workflow) return;
    const kinds = ['held', 'unsettled', 'stuck'] as const;
    const kind = kinds.find((each) => (counts?.[each] ?? 0) > 0) ?? 'open';
    const isAnother = this.workflow.value !== undefined;
    // A found run of this workflow was picked, and the others stay in sight.
    const isFound = this.list.value.kind === 'found';
    batch(() => {
      this.workflow.value = detail;
      if (!isFound) this.#begin(emptyList(kind));
      this.picked.value = undefined;
      this.run.value = undefined;
      this.walk.leave();
      if (isAnother) this.panel.value = 'run';
    });
    if (!isFound) await this.#loadRows();
  }

  #path(rest: string): string {
    return `workflows/${this.workflow.value?.key ?? ''}/${rest}`;
  }

  /** Shows other runs in the list. */
  chooseList(kind: ListKind, state?: string): void {
    if (this.workflow.value === undefined) return;
    this.#begin(emptyList(kind, state));
    void this.#loadRows();
  }

  /** Another list: what was chosen in the one before is not in it. */
  #begin(list: RunList): void {
    this.chosen.value = new Map();
    this.list.value = list;
  }

  /** The next page of the list, if there is one and it is not on its way. */
  async loadMore(): Promise<void> {
    const { next, isLoading, error, kind } = this.list.value;
    const isWhole = error === undefined || kind === 'found';
    if (next !== undefined && !isLoading && isWhole) await this.#loadRows();
  }

  async #loadRows(): Promise<void> {
    const asked = ++this.#asked.list;
    const { rows, next } = this.list.value;
    this.list.value = { ...this.list.value, isLoading: true, error: undefined };
    try {
      const page = await this.#page(PAGE, next);
      if (asked !== this.#asked.list) return;
      this.list.value = this.#withRows([...rows, ...page.rows], page);
    } catch (error) {
      if (asked === this.#asked.list) this.#failRows(error);
    }
  }

  /** What is there stays, and is not passed off as all there is. */
  #failRows(failed: unknown): void {
    const error = asFailure(failed);
    this.list.value = { ...this.list.value, isLoading: false, error };
    clearTimeout(this.#again);
    if (error.code === 'unavailable' || error.code === 'offline')
      this.#again = setTimeout(() => this.#renewList.call(), AGAIN_MS);
  }

  /** Brings the rows up to date that are likely to be on the screen. */
  async #renewRows(): Promise<void> {
    const { rows, isLoading, error: before } = this.list.value;
    if (isLoading) return;
    if (rows.length > MOST_RENEWED) {
      if (before !== undefined) await this.#loadRows();
      return;
    }
    const asked = ++this.#asked.list;
    try {
      const page = await this.#page(Math.max(PAGE, Math.min(MOST_RENEWED, rows.length)));
      if (asked === this.#asked.list) this.list.value = this.#withRows(page.rows, page);
    } catch (error) {
      if (asked === this.#asked.list) this.#failRows(error);
    }
  }

  #withRows(rows: readonly ListedRun[], page: LoadedPage): RunList {
    // A run that moved between two pages may be on both.
    const unique = new Map(rows.map((row) => [runName(row.workflow, row.value), row]));
    this.#forgetResolved(unique, page.next === undefined);
    return { ...this.list.value, ...page, rows: [...unique.values()], isLoading: false };
  }

  /** Another operator may have resolved what was chosen here. */
  #forgetResolved(rows: ReadonlyMap<string, ListedRun>, areAll: boolean): void {
    const { kind } = this.list.value;
    const isWhole = areAll && (kind === 'held' || kind === 'unsettled');
    const calls = new Set(
      [...rows.values()].flatMap((row) => this.callsIn(row).map(([key]) => key)),
    );
    const left = [...this.chosen.value].filter(
      ([key, call]) => calls.has(key) || !(isWhole || rows.has(runName(call.workflow, call))),
    );
    if (left.length < this.chosen.value.size) this.chosen.value = new Map(left);
  }

  async #page(limit: number, after?: RunList['next']): Promise<LoadedPage> {
    const { kind, state, search } = this.list.value;
    if (search !== undefined) return this.#found(search, after);
    const key = this.workflow.value?.key ?? '';
    const { runs, next } = await this.#server.get<RunPage>(this.#path('runs'), {
      list: kind === 'stuck' || kind === 'found' ? 'open' : kind,
      state,
      stuckForMs: kind === 'stuck' ? this.counts.value?.stuckAfterMs : undefined,
      limit,
      after: after?.get(key),
    });
    const more = next === undefined ? undefined : new Map([[key, next]]);
    return { rows: seen(runs, key), next: more, unreached: [], error: undefined };
  }

  /** Asks each workflow, the shown one first. None that fails hides what the others have. */
  async #found({ text, withinMs }: Search, after: RunList['next']): Promise<LoadedPage> {
    const shown = this.workflow.value?.key;
    const asked = this.workflows.value
      .filter(({ key }) => after?.has(key) ?? true)
      .sort((a, b) => Number(b.key === shown) - Number(a.key === shown));
    const next = new Map<string, string>();
    const failed: (readonly [id: string, error: RequestFailed])[] = [];
    const found = asked.map(async ({ key, id }): Promise<readonly [SearchPage, string][]> => {
      const body = { ...(text !== '' && { text }), withinMs, after: after?.get(key) };
      try {
        const page = await this.#server.post<SearchPage>(`workflows/${key}/search`, body);
        if (page.next !== undefined) next.set(key, page.next);
        return [[page, key]];
      } catch (error) {
        failed.push([id, asFailure(error)]);
        return [];
      }
    });
    const pages = (await Promise.all(found)).flat();
    const [first] = failed;
    const names = failed.map(([id]) => id).join(', ');
    return {
      rows: pages
        .flatMap(([{ runs }, key]) => seen(key === shown ? runs : runs.filter(hasBegun), key))
        .sort((a, b) => Number(isHeld(b)) - Number(isHeld(a))),
      next: next.size > 0 ? next : undefined,
      unreached: [...new Set(pages.flatMap(([{ unreached }]) => unreached))],
      error: first && new RequestFailed(first[1].code, `${names}: ${first[1].message}`),
    };
  }

  async #loadRun(): Promise<void> {
    const id = this.picked.value;
    if (id === undefined) return;
    const asked = ++this.#asked.run;
    try {
      const value = await this.#server.get<RunDetail>(this.#path(`runs/${id}`));
      if (asked !== this.#asked.run) return;
      batch(() => {
        this.run.value = { value, at: performance.now() };
        this.runError.value = undefined;
      });
    } catch (error) {
      if (asked === this.#asked.run) this.runError.value = wordsOf(error);
    }
  }

  /** The picked run's trail as far as it was asked for, the newest first. */
  trail(): { readonly entries: readonly TrailItem[]; readonly before: number | undefined } {
    const newest = this.run.value?.value.trail;
    const older = this.olderTrail.value;
    if (newest === undefined) return { entries: [], before: undefined };
    const last = newest.entries.at(-1)?.seq ?? Number.POSITIVE_INFINITY;
    const rest = older?.entries.filter(({ seq }) => seq < last) ?? [];
    const before = older === undefined ? newest.before : older.before;
    return { entries: [...newest.entries, ...rest], before };
  }

  async loadOlder(): Promise<void> {
    const { entries, before } = this.trail();
    const { picked } = this;
    const id = picked.value;
    if (before === undefined || id === undefined) return;
    await this.#shown(async () => {
      const page = await this.#server.get<TrailPage>(this.#path(`runs/${id}/trail`), { before });
      if (id === picked.value)
        this.olderTrail.value = { ...page, entries: [...entries, ...page.entries] };
    });
  }

  /** Does something to the picked run, and says what came of it. */
  async act(deed: Deed, body: object, says: string): Promise<boolean> {
    const id = this.picked.value;
    if (id === undefined) return false;
    return this.#shown(async () => {
      await this.#server.post<Done>(this.#path(`runs/${id}/${deed}`), body);
      this.notice.value = { kind: 'done', text: says };
      if (deed === 'delete') this.chooseRun(undefined);
      await this.#renewAfterDeed();
    });
  }

  /** Stops calls of a workflow, or lets them go on. The bar says what is stopped then. */
  async switchCalls(deed: 'freeze' | 'unfreeze', key: string, body: object): Promise<boolean> {
    const isDone = await this.#shown(async () => {
      await this.#server.post<Done>(`workflows/${key}/${deed}`, body);
    });
    // Also where another operator was faster.
    await this.#renew();
    return isDone;
  }

  async #shown(what: () => Promise<void>): Promise<boolean> {
    try {
      await what();
      return true;
    } catch (error) {
      const code = error instanceof RequestFailed ? error.code : undefined;
      this.notice.value =
        code === 'offline'
          ? { kind: code, text: `${wordsOf(error)} Look again before you act again.` }
          : { kind: 'error', text: wordsOf(error) };
      if (code === 'conflict') this.#renewRun.call();
      return false;
    }
  }

  /** One stream for the workflow and the run that are shown. */
  #listen(): void {
    const query = { workflow: this.workflow.value?.key, run: this.picked.value };
    const streamed = JSON.stringify(query);
    if (streamed === this.#streamed) return;
    this.#streamed = streamed;
    this.#stream?.close();
    this.#stream = new Stream(query, {
      onReception: (reception) => {
        this.reception.value = reception;
      },
      on: {
        hello: ({ resumed, delayMs }) => {
          this.delayMs.value = delayMs;
          // What could not be asked can be asked again.
          if (this.notice.value?.kind === 'offline') this.notice.value = undefined;
          if (!resumed) void this.#renew();
        },
        workflow: ({ workflow }) => {
          this.workflows.value = this.workflows.value.map((each) =>
            each.key === workflow.key ? workflow : each,
          );
          if (workflow.key === this.workflow.value?.key) this.#renewList.call();
        },
        stopped: ({ workflow, stopped }) => {
          this.workflows.value = this.workflows.value.map((each) =>
            each.key === workflow ? { ...each, stopped } : each,
          );
        },
        run: (changed) => this.#onRun(changed),
        bye: () => {},
      },
    });
  }

  async #renew(): Promise<void> {
    try {
      const { workflows } = await this.#server.get<Overview>('workflows');
      this.workflows.value = workflows;
    } catch {
      // The stream has just opened: its next event brings the counts.
    }
    this.#renewRun.call();
    this.#renewList.call();
  }

  #onRun({ workflow, id, state, active, digest, resolved }: RunChanged): void {
    if (resolved !== undefined && resolved.actor !== this.session.value?.actor) {
      const { tool, outcome, actor = 'Another process' } = resolved;
      const text = `${actor} resolved ${tool} of run ${digest} as ${outcome}.`;
      this.notice.value = { kind: 'done', text };
    }
    if (workflow !== this.workflow.value?.key) return;
    if (id === this.picked.value) this.#renewRun.call();
    const list = this.list.value;
    if (state !== undefined && active !== undefined)
      this.list.value = {
        ...list,
        rows: list.rows.map((row) =>
          row.value.id === id && row.workflow === workflow
            ? { ...row, value: { ...row.value, state, active } }
            : row,
        ),
      };
    this.#renewList.call();
  }
}

function emptyList(kind: ListKind, state?: string): RunList {
  return {
    kind,
    state,
    search: undefined,
    unreached: [],
    rows: [],
    next: undefined,
    isLoading: true,
    error: undefined,
  };
}

type LoadedPage = Pick<RunList, 'rows' | 'next' | 'unreached' | 'error'>;

function seen(runs: readonly RunSummary[], workflow: string): readonly ListedRun[] {
  const at = performance.now();
  return runs.map((value) => ({ value, at, workflow }));
}

/** Distinguishes runs: several workflows may have one and the same. */
export function runName(workflow: string, { id }: { readonly id: string }): string {
  return `${workflow} ${id}`;
}

/** A session has a run in each workflow, also where no call of it came. */
function hasBegun({ updatedAt, step, unsettled }: RunSummary): boolean {
  return [updatedAt, step, unsettled].some((each) => each !== undefined);
}

function isHeld({ value }: ListedRun): boolean {
  return value.status === 'held';
}

function isRefused(error: unknown): boolean {
  return error instanceof RequestFailed && error.code === 'unauthorized';
}

/** The names of states for people, without those around them. */
class Places {
  readonly #nodes: ReadonlyMap<string, GraphNode>;

  constructor(graph: WorkflowGraph | undefined) {
    this.#nodes = new Map(graph?.nodes.map((node) => [node.id, node]));
  }

  of({ state, active }: { readonly state: string; readonly active: readonly string[] }): string {
    const around = new Set(active.map((id) => this.#nodes.get(id)?.parent));
    const inner = active.filter((id) => !around.has(id)).map((id) => this.#nodes.get(id)?.label);
    return inner.length === 0 ? state : inner.join(' + ');
  }
}

/** Calls a function now, and at most so often: what is asked for meanwhile is one call later. */
class Soon {
  readonly #everyMs: number;
  readonly #what: () => Promise<void>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isWanted = false;

  constructor(everyMs: number, what: () => Promise<void>) {
    this.#everyMs = everyMs;
    this.#what = what;
  }

  call(): void {
    if (this.#timer !== undefined) {
      this.#isWanted = true;
      return;
    }
    void this.#what();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isWanted) return;
      this.#isWanted = false;
      this.call();
    }, this.#everyMs);
  }
}
