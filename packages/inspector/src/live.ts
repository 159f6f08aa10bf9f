/**
 * Reports what happens to those who watch. Hides its sources: it gets what this process does on the
 * middleware's own channel. For what others do it asks the store's index every so often. It asks
 * once for all who watch, and never while the page has no visitor.
 */
import { randomBytes } from 'node:crypto';
import diagnosticsChannel from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { EVENT_CHANNEL, type InterlockEvent, runDigest } from 'mcp-interlock';
import type {
  LiveEvent,
  LiveEvents,
  ResolvedBy,
  RunChanged,
  StoppedChanged,
  WorkflowSummary,
} from './api.ts';
import { HttpFailure } from './http.ts';
import { COUNTS_MAX_AGE_MS, type Inspected } from './inspected.ts';

/** One stream. */
interface Watcher {
  readonly res: ServerResponse;
  /** Only this workflow. */
  readonly workflow: Inspected | undefined;
  /** The key of the run that is looked at, of `workflow`. */
  readonly run: string | undefined;
  /** Whether who watches still may. */
  readonly isAllowed: () => Promise<boolean>;
  readonly timer: NodeJS.Timeout;
}

/** An event that was sent, for those who were cut off meanwhile. */
interface Sent {
  readonly number: number;
  /** The workflow's key, where it is for those alone who watch that one. */
  readonly workflow: string | undefined;
  /** The run's key, where it is for those alone who look at it. */
  readonly only: string | undefined;
  readonly text: string;
}

const MOST_WATCHERS = 100;
const MOST_SENT = 200;
/** What happens in this process is reported so often, each run once. */
const FLUSH_MS = 100;
const MOST_RUNS_A_FLUSH = 200;
/** A client that reads no more than this behind is cut off, and gets all anew. */
const MOST_UNREAD_BYTES = 256 * 1024;
/** Of so many runs that are held no more, each look asks who resolved them. */
const MOST_RESOLVED_A_LOOK = 20;
/** What happened here comes again from the store at once, if at all. */
const LEARNT_MS = 5_000;
const KEEP_ALIVE_MS = 15_000;
const RETRY_MS = 2_000;

export class Live {
  readonly #workflows: readonly Inspected[];
  readonly #pollMs: number;
  readonly #onError: (error: unknown) => void;
  readonly #watchers = new Set<Watcher>();
  readonly #happened = new Map<string, RunChanged>();
  /** What was last sent about each workflow, by its key. */
  readonly #counted = new Map<string, { readonly text: string; readonly of: WorkflowSummary }>();
  /** What was last sent as stopped of each workflow, by its key. */
  readonly #stopped = new Map<string, StoppedChanged>();
  /** The newest entry of each run that is looked at, by its workflow and key. */
  readonly #newest = new Map<string, number>();
  /** The held steps of each workflow, by its key: the run's key and the step's id. */
  readonly #held = new Map<string, ReadonlyMap<string, string>>();
  /** When this process learnt that a run was resolved. */
  readonly #learntResolved = new Map<string, number>();
  #sent: Sent[] = [];
  #number = 0;
  /** While the page has a visitor, events are numbered without a gap. */
  #epoch = '';
  #poll: NodeJS.Timeout | undefined;
  #flush: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(
    workflows: readonly Inspected[],
    { pollMs, onError }: { pollMs: number; onError: (error: unknown) => void },
  ) {
    this.#workflows = workflows;
    this.#pollMs = pollMs;
    this.#onError = onError;
  }

  /** Opens a stream. @throws HttpFailure `unavailable` */
  watch(
    req: IncomingMessage,
    res: ServerResponse,
    what: Pick<Watcher, 'workflow' | 'run' | 'isAllowed'>,
  ): void {
    if (this.#isClosed || this.#watchers.size >= MOST_WATCHERS)
      throw new HttpFailure('unavailable', 'Too many watch already, or the server is closing.');
    if (res.destroyed) return;
    res.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
    });
    if (req.method === 'HEAD') return void res.end();
    res.write(`retry: ${RETRY_MS}\n\n`);
    const watcher: Watcher = {
      ...what,
      res,
      timer: setInterval(() => void this.#keepAlive(watcher), KEEP_ALIVE_MS).unref(),
    };
    const isFirst = this.#watchers.size === 0;
    this.#watchers.add(watcher);
    if (isFirst) this.#begin();
    res.once('close', () => this.#leave(watcher));
    const missed = this.#missedSince(req.headers['last-event-id'], watcher);
    this.#send(watcher, 'hello', { resumed: missed !== undefined, delayMs: this.#pollMs });
    for (const { text } of missed ?? []) res.write(text);
    if (missed !== undefined) return;
    for (const { of } of this.#counted.values())
      if (what.workflow === undefined || what.workflow.key === of.key)
        this.#send(watcher, 'workflow', { workflow: of });
    for (const stopped of this.#stopped.values()) this.#send(watcher, 'stopped', stopped);
  }

  /** Looks at once: something was done here. */
  nudge(): void {
    if (this.#watchers.size === 0) return;
    clearTimeout(this.#poll);
    // What was counted may be a little older than what was done.
    void this.#look(Math.min(this.#pollMs, COUNTS_MAX_AGE_MS));
  }

  /** Ends all streams. */
  close(): void {
    this.#isClosed = true;
    for (const watcher of this.#watchers) this.#end(watcher, 'closing');
  }

  #begin(): void {
    this.#epoch = randomBytes(6).toString('base64url');
    this.#sent = [];
    diagnosticsChannel.subscribe(EVENT_CHANNEL, this.#receive);
    void this.#look();
  }

  #leave(watcher: Watcher): void {
    clearInterval(watcher.timer);
    this.#watchers.delete(watcher);
    if (this.#watchers.size > 0) return;
    diagnosticsChannel.unsubscribe(EVENT_CHANNEL, this.#receive);
    clearTimeout(this.#poll);
    clearTimeout(this.#flush);
    this.#flush = undefined;
    this.#happened.clear();
    this.#counted.clear();
    this.#stopped.clear();
    this.#newest.clear();
    this.#held.clear();
    this.#learntResolved.clear();
  }

  async #keepAlive(watcher: Watcher): Promise<void> {
    if (!(await watcher.isAllowed())) return this.#end(watcher, 'unauthorized');
    if (!watcher.res.writableEnded) watcher.res.write(':\n\n');
  }

  #end(watcher: Watcher, why: 'closing' | 'unauthorized'): void {
    this.#send(watcher, 'bye', { why });
    watcher.res.end();
    this.#leave(watcher);
  }

  readonly #receive = (message: unknown): void => {
    const event = message as InterlockEvent;
    if (/^workflow\.(?:frozen|unfrozen|restored)$/.test(event.type)) this.nudge();
    const what = whatOf(event);
    if (what === undefined || !('runKey' in event) || event.runKey === undefined) return;
    const workflow = this.#workflows.find(({ id }) => 'workflow' in event && id === event.workflow);
    if (workflow === undefined) return;
    const place = placeOf(workflow, event.runKey);
    const before = this.#happened.get(place);
    // That a call came says less than what came of it.
    if (before !== undefined && what === 'step' && before.what !== 'step') return;
    if (before === undefined && this.#happened.size >= MOST_RUNS_A_FLUSH) return;
    const state = 'to' in event ? event.to : 'state' in event ? event.state : undefined;
    const tool = 'tool' in event ? event.tool : undefined;
    this.#happened.set(place, {
      ...changeOf(workflow, event.runKey, what),
      ...(state !== undefined && { state, active: workflow.active(state) }),
      ...(tool !== undefined && { tool }),
      ...(before?.resolved && { resolved: before.resolved }),
      ...(event.type === 'run.resolved' && { resolved: resolvedOf(event) }),
    });
    if (event.type === 'run.resolved') {
      this.#learntResolved.set(place, performance.now());
      workflow.noteResolved(event.runKey);
    }
    this.#flush ??= setTimeout(() => this.#reportHappened(), FLUSH_MS).unref();
  };

  #reportHappened(): void {
    this.#flush = undefined;
    const changes = [...this.#happened.values()];
    this.#happened.clear();
    for (const change of changes) this.#broadcast('run', change, { workflow: change.workflow });
    this.nudge();
  }

  /** One look at what others may have done, and the next one after a while. */
  async #look(nextMs = this.#pollMs): Promise<void> {
    const epoch = this.#epoch;
    const isOver = (): boolean => this.#watchers.size === 0 || epoch !== this.#epoch;
    const watched = this.#workflows.filter((workflow) =>
      [...this.#watchers].some((each) => (each.workflow ?? workflow) === workflow),
    );
    await Promise.all([
      ...this.#workflows.map((workflow) => this.#lookAtSwitch(workflow, isOver)),
      ...watched.map(async (workflow) => {
        const summary = await workflow.summary();
        if (isOver()) return;
        const text = textOf(summary);
        const before = this.#counted.get(workflow.key);
        const [isFirst, isChanged] = [before === undefined, before?.text !== text];
        this.#counted.set(workflow.key, { text, of: summary });
        if (isChanged)
          this.#broadcast('workflow', { workflow: summary }, { workflow: workflow.key });
        if (isChanged) await this.#lookAtHeld(workflow, summary.counts?.held, isOver);
        await this.#lookAtRuns(workflow, isChanged && !isFirst, isOver);
      }),
    ]).catch(this.#onError);
    if (isOver()) return;
    clearTimeout(this.#poll);
    this.#poll = setTimeout(() => void this.#look(), nextMs).unref();
  }

  /** Each operator has to know of it, also one who looks at another workflow. */
  async #lookAtSwitch(workflow: Inspected, isOver: () => boolean): Promise<void> {
    const stopped = await workflow.stopped();
    if (stopped === undefined || isOver()) return;
    const change = { workflow: workflow.key, stopped };
    const before = this.#stopped.get(workflow.key);
    if (JSON.stringify(before) === JSON.stringify(change)) return;
    this.#stopped.set(workflow.key, change);
    this.#broadcast('stopped', change, { workflow: undefined });
  }

  /** Where another process has resolved a run, its trail says who did. */
  async #lookAtHeld(
    workflow: Inspected,
    count: number | undefined,
    isOver: () => boolean,
  ): Promise<void> {
    const before = this.#held.get(workflow.key) ?? new Map<string, string>();
    if (count === undefined || (count === 0 && before.size === 0)) return;
    const held = count === 0 ? new Map<string, string>() : await workflow.heldSteps();
    if (isOver()) return;
    this.#held.set(workflow.key, held);
    const gone = [...before].filter(([run, step]) => held.get(run) !== step);
    for (const [place, at] of this.#learntResolved)
      if (performance.now() - at > LEARNT_MS) this.#learntResolved.delete(place);
    for (const [run] of gone.slice(0, MOST_RESOLVED_A_LOOK)) {
      if (this.#learntResolved.has(placeOf(workflow, run))) continue;
      const resolved = await workflow.resolutionOf(run);
      if (isOver()) return;
      // Its call may have ended by itself, and what is full at 200 may have pushed it out.
      if (resolved === undefined || this.#learntResolved.has(placeOf(workflow, run))) continue;
      workflow.noteResolved(run);
      const change = { ...changeOf(workflow, run, 'changed'), resolved: resolvedOf(resolved) };
      this.#broadcast('run', change, { workflow: workflow.key });
    }
  }

  /**
   * A trail reports on a run without keeping it alive, as a look at the run would. That a call has
   * it is in no trail, but in the counts.
   */
  async #lookAtRuns(
    workflow: Inspected,
    isCountChanged: boolean,
    isOver: () => boolean,
  ): Promise<void> {
    const runs = new Set<string>();
    for (const { workflow: of, run } of this.#watchers)
      if (of === workflow && run !== undefined) runs.add(run);
    for (const run of runs) {
      const newest = await workflow.newestEntry(run);
      if (isOver()) return;
      const place = placeOf(workflow, run);
      const before = this.#newest.get(place);
      this.#newest.set(place, newest);
      if (before === undefined || (before === newest && !isCountChanged)) continue;
      const change = changeOf(workflow, run, 'changed');
      this.#broadcast('run', change, { workflow: workflow.key, only: run });
    }
  }

  #broadcast<Name extends LiveEvent>(
    name: Name,
    data: LiveEvents[Name],
    { workflow, only }: { readonly workflow: string | undefined; readonly only?: string },
  ): void {
    const number = ++this.#number;
    const text = `id: ${this.#epoch}-${number}\n${eventText(name, data)}`;
    const sent = { number, workflow, only, text };
    this.#sent.push(sent);
    if (this.#sent.length > MOST_SENT) this.#sent.shift();
    for (const watcher of this.#watchers) {
      if (!isFor(watcher, sent)) continue;
      watcher.res.write(text);
      if (watcher.res.writableLength > MOST_UNREAD_BYTES) watcher.res.destroy();
    }
  }

  #send<Name extends LiveEvent>({ res }: Watcher, name: Name, data: LiveEvents[Name]): void {
    res.write(`id: ${this.#epoch}-${this.#number}\n${eventText(name, data)}`);
  }

  /** What a client missed that was cut off; `undefined` where that is not known. */
  #missedSince(id: string | string[] | undefined, watcher: Watcher): readonly Sent[] | undefined {
    const [, epoch, seen] = /^([\w-]{8})-(\d{1,15})$/.exec(String(id ?? '')) ?? [];
    if (epoch !== this.#epoch) return undefined;
    const missed = this.#sent.filter(({ number }) => number > Number(seen));
    if (this.#number - Number(seen) !== missed.length) return undefined;
    return missed.filter((sent) => isFor(watcher, sent));
  }
}

function isFor({ workflow, run }: Watcher, sent: Sent): boolean {
  const isOther = workflow !== undefined && workflow.key !== (sent.workflow ?? workflow.key);
  if (isOther) return false;
  return sent.only === undefined || sent.only === run;
}

function eventText<Name extends LiveEvent>(name: Name, data: LiveEvents[Name]): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A workflow's counts without what changes by time alone. */
function textOf({ counts, ...summary }: WorkflowSummary): string {
  return JSON.stringify([summary, counts && { ...counts, oldestClaimMs: undefined }]);
}

function placeOf({ key }: Inspected, run: string): string {
  return `${key} ${run}`;
}

function changeOf(workflow: Inspected, run: string, what: RunChanged['what']): RunChanged {
  return { workflow: workflow.key, id: workflow.idOf(run), digest: runDigest(run), what };
}

function resolvedOf({
  tool,
  outcome,
  actor,
}: Pick<ResolvedBy, 'tool' | 'outcome'> & { readonly actor?: string | undefined }): ResolvedBy {
  return { tool, outcome, ...(actor !== undefined && { actor }) };
}

function whatOf({ type }: InterlockEvent): RunChanged['what'] | undefined {
  switch (type) {
    case 'run.begun':
    case 'run.moved':
    case 'run.resolved':
    case 'run.restarted':
    case 'run.frozen':
    case 'run.unfrozen':
      return 'moved';
    case 'step.started':
    case 'step.failed':
    case 'step.released':
      return 'step';
    case 'step.unknown':
    case 'step.unrecorded':
    case 'step.held':
      return 'held';
    case 'run.ended':
      return 'ended';
    case 'call.refused':
      return 'refused';
    default:
      return undefined;
  }
}
