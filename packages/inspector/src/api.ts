/**
 * The contract between the page and its server: every answer, event and request, as JSON.
 *
 * All paths are relative to where the page is mounted, and begin with `api/`. Times are
 * milliseconds since the epoch, on the clock that stamped the runs. The browser's may differ, so
 * reckon with the `now` beside them. Durations (`…Ms`) count from when the answer came. An optional
 * member is absent where it is unknown or not allowed, and never `null`.
 *
 * | request | answer |
 * | --- | --- |
 * | `GET api/session` | {@link SessionInfo} |
 * | `GET api/workflows` | {@link Overview} |
 * | `GET api/workflows/:workflow` | {@link WorkflowDetail} |
 * | `GET api/workflows/:workflow/runs?list=…` | {@link RunPage} |
 * | `GET api/workflows/:workflow/runs/:run` | {@link RunDetail} |
 * | `GET api/workflows/:workflow/runs/:run/trail?before=…&limit=…` | {@link TrailPage} |
 * | `POST api/workflows/:workflow/search` with {@link SearchRequest} | {@link SearchPage} |
 * | `POST api/workflows/:workflow/resolve` with {@link ResolveManyRequest} | {@link ResolvedMany} |
 * | `POST api/workflows/:workflow/what-if` with {@link WhatIfRequest} | {@link WhatIf} |
 * | `POST api/workflows/:workflow/runs/:run/resolve` with {@link ResolveRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/runs/:run/send` with {@link SendRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/runs/:run/restart` with {@link RestartRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/runs/:run/delete` with {@link DeleteRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/runs/:run/freeze` with {@link FreezeRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/runs/:run/unfreeze` with {@link FreezeRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/freeze` with {@link FreezeCallsRequest} | {@link Done} |
 * | `POST api/workflows/:workflow/unfreeze` with {@link UnfreezeCallsRequest} | {@link Done} |
 * | `GET api/events?workflow=…&run=…` | a stream of {@link LiveEvent}s (`text/event-stream`) |
 *
 * `resolve`, `send`, `restart`, `delete`, `freeze` and `unfreeze` need `write`, all others `read`.
 * The list of runs also takes `state`, `stuckForMs`, `limit` and `after`: see {@link RunQuery}.
 *
 * `:workflow` is a {@link WorkflowSummary.key}, `:run` a {@link RunSummary.id}: both are safe in a
 * URL as they are. Every POST has `content-type: application/json` and the header
 * `x-interlock-token` with {@link SessionInfo.token}. Each answer but 2xx is a {@link Failure}.
 */

import type { WorkflowGraph } from 'mcp-interlock-check';

/** A JSON value. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** The header that every POST has, with {@link SessionInfo.token}. */
export type TokenHeader = 'x-interlock-token';

/** Why a request came to nothing. Match on `code`; `message` is English for people. */
export interface Failure {
  readonly error: { readonly code: FailureCode; readonly message: string };
}

export type FailureCode =
  /** 403: the request is not authorized. `message` says what the app's developer has to do. */
  | 'unauthorized'
  /** 403: it may read and not write. */
  | 'read-only'
  /** 403: the token is missing, foreign or too old. Get `api/session` anew, and try once more. */
  | 'token'
  /** 403: it came from another site. */
  | 'cross-site'
  /** 400: a part of it is malformed. */
  | 'bad-request'
  /** 404: no such path, workflow or run: it never was, was deleted, has expired, or another process
   * has named it. */
  | 'unknown'
  /** 405: the path does not take that method. */
  | 'method'
  /** 409: the run is not where the request takes it to be; `message` says where. Look again. */
  | 'conflict'
  /** 413: more than 256 KiB. */
  | 'too-large'
  /** 415: the body is not `application/json`. */
  | 'media-type'
  /** 422: which event it is cannot be known, and must be given. */
  | 'choose-event'
  /** 501: the store keeps no index, so there are no lists. */
  | 'no-index'
  /** 501: the store keeps no switch for a workflow, or one of a version that is not understood. */
  | 'no-switch'
  /** 503: the store cannot be asked now, or too many watch. Try again. */
  | 'unavailable'
  /** 500: something is wrong with the server. */
  | 'internal';

/** Who looks, and what they may do. Get it again where it is older than `renewAfterMs`. */
export interface SessionInfo {
  readonly can: Abilities;
  /** Under which name the trail has what they do. */
  readonly actor: string;
  /** For the header `x-interlock-token` of every POST. */
  readonly token: string;
  /** The token is good for twice as long. */
  readonly renewAfterMs: number;
  /** The app set nothing up: each user of this machine may look. The page says so. */
  readonly development: boolean;
}

export interface Abilities {
  readonly read: true;
  /** Resolve, send, restart, delete, freeze, unfreeze. */
  readonly write: boolean;
  /** See the keys of runs, which may be the credentials of sessions. */
  readonly keys: boolean;
}

/** All workflows, with what needs a person first to be seen. */
export interface Overview {
  readonly workflows: readonly WorkflowSummary[];
}

export interface WorkflowSummary {
  /** Names it in URLs. Opaque, stable. */
  readonly key: string;
  /** The gate's id, for people. */
  readonly id: string;
  /** The gate's `version`, where it has one. */
  readonly version?: number;
  /** Absent where the store keeps no index, or cannot be asked: {@link store}. */
  readonly counts?: Counts;
  /**
   * `no-index`: runs can be looked at one by one, by their keys, and not be listed or counted.
   * `unavailable`: the store cannot be asked now.
   */
  readonly store: 'ok' | 'no-index' | 'unavailable';
  /**
   * What operators have stopped, the whole workflow first. While the store cannot be asked, it is
   * what it said last. Absent where it has not said yet, or keeps no switches.
   */
  readonly stopped?: readonly StoppedCalls[];
  /** What the page's process has observed of runs, and not enforced. Absent: nothing. */
  readonly observed?: ObservedRuns;
  /** How many runs the list `resolved` has. Absent: none. */
  readonly resolved?: number;
}

/** What a gate would have refused that only observes, in one process since it began. */
export interface ObservedRuns {
  readonly since: number;
  readonly runs: number;
  /** The runs that would have met a refusal. */
  readonly refused: number;
  readonly calls: number;
  /** The calls that passed without a judgement. */
  readonly unjudged: number;
  /** By tool and reason, those of most runs first; at most 20. */
  readonly rules: readonly ObservedRule[];
  /** The last 24 hours in which something was judged, the oldest first. */
  readonly hours: readonly ObservedHour[];
}

export interface ObservedRule {
  readonly tool: string;
  readonly reason: string;
  /** The runs whose first refusal it would have been. */
  readonly runs: number;
  readonly calls: number;
  /** Of the last one: when it was, the state, and what the parts of its rule say. */
  readonly at: number;
  readonly state: string;
  readonly says: readonly string[];
  /** Its run, as logs name it: 16 hex digits. */
  readonly digest: string;
}

export interface ObservedHour {
  readonly from: number;
  readonly runs: number;
  readonly refused: number;
}

/** Calls that operators have stopped, in all runs. */
export interface StoppedCalls {
  /** Absent where all bound tools of the workflow are meant. */
  readonly tool?: string;
  readonly actor: string;
  readonly note: string;
  /** By the clock of the process that stopped them. */
  readonly at: number;
}

/** How many runs are under way. Runs that have ended are not counted. */
export interface Counts {
  readonly runs: number;
  /** By state as it is stored, most runs first. States without any are left out. */
  readonly states: readonly StateCount[];
  /** Runs whose step ended with an unknown outcome: each waits for a person. */
  readonly held: number;
  /**
   * Runs with calls of unknown outcome that may be repeated: such runs go on. Absent where the
   * store cannot count them.
   */
  readonly unsettled?: number;
  /** Steps that are under way. */
  readonly running: number;
  /** Runs in a state that this deployment does not have, so that it refuses their calls. */
  readonly unreadable: number;
  /** Runs that have not moved for {@link stuckAfterMs}. */
  readonly stuck: number;
  readonly stuckAfterMs: number;
  /** How long ago the oldest claim was taken that is still there. */
  readonly oldestClaimMs?: number;
}

export interface StateCount {
  /** As it is stored: of a statechart all active states in one text. */
  readonly state: string;
  /** The ids of the graph's nodes that are active in it, outermost first. */
  readonly active: readonly string[];
  readonly runs: number;
  /** Those of them that have not moved for `stuckAfterMs`. */
  readonly stuck: number;
}

/** One workflow as it is drawn. Only `counts` and `store` change while the server runs. */
export interface WorkflowDetail extends WorkflowSummary {
  /** What `workflowGraph()` of `mcp-interlock-check` returns, as it is. */
  readonly graph: WorkflowGraph;
  /** Every bound tool, in binding order. */
  readonly tools: readonly string[];
  /** What every run begins as: where a what-if can start, without `{ run }` or `{ at }`. */
  readonly start: Standing;
}

/** Where a run stands, or would. */
export interface Standing {
  /** As it is stored: of a statechart all active states in one text. */
  readonly state: string;
  /** The ids of the graph's nodes that are active, outermost first. */
  readonly active: readonly string[];
  /** Whether it has come to a final state. */
  readonly ended: boolean;
  /** Each bound tool, in binding order. Those that a model sees are `shown`. */
  readonly tools: readonly ToolNow[];
  /**
   * The server's tools that the gate does not bind: a model sees them in addition, in each state.
   * Absent where no list of tools has passed the gate in this process, so that none is known.
   */
  readonly unbound?: UnboundTools;
  /** The events that the state can handle, as far as the state alone says. */
  readonly events: readonly string[];
}

/** Tools that lists have shown since this process started. A client's own list may lack some. */
export interface UnboundTools {
  readonly count: number;
  /** The first 100 of them. */
  readonly names: readonly string[];
}

/** What a model that stands there gets of a tool. */
export interface ToolNow {
  readonly tool: string;
  /** Whether a list shows it that hides what is not available. */
  readonly shown: boolean;
  /**
   * Why a call of it would be refused now. A tool may be shown and refused: a step of the run is
   * running or held, or a condition of the machine is not met. Absent where nothing that is known
   * before the call refuses it; a guard that reads arguments may.
   */
  readonly refusal?: Refusal;
  /** Where a success of it may lead, by states as they are stored. Empty: nowhere else. */
  readonly leadsTo: readonly string[];
  /**
   * It does several things, distinguished by its arguments, and some of its calls are not bound.
   */
  readonly partial: boolean;
}

export interface Refusal {
  /** `state`, `guard`, `busy`, `held`, `hidden` … */
  readonly reason: string;
  /** Exactly the words that the model is given: `[System: …]`. */
  readonly says: string;
  /** The tools to call first, in order, where a way is known. */
  readonly path?: readonly string[];
}

/** Which runs are asked for, as parameters of the URL. */
export interface RunQuery {
  /**
   * `held`: those that wait for a person, the longest held first. `unsettled`: those with calls of
   * unknown outcome that may be repeated, the oldest first. `open`: all that have not ended, those
   * that have not moved for longest first. `resolved`: the last 50 that the server has seen
   * resolved while the page was open anywhere, the newest first; all of them on one page.
   */
  readonly list: 'held' | 'unsettled' | 'open' | 'resolved';
  /** Of `open`: only those in this state, by its node id or as it is stored. */
  readonly state?: string;
  /** Of `open`: only those that have not moved for so long. */
  readonly stuckForMs?: number;
  /** From 1 to 200. Default 50. */
  readonly limit?: number;
  /** The `next` of the page before. */
  readonly after?: string;
}

export interface RunPage {
  readonly runs: readonly RunSummary[];
  /** Absent: there are no more. A page may be shorter than asked although there is one. */
  readonly next?: string;
}

/** A run in a list. */
export interface RunSummary {
  /**
   * Names it in URLs: opaque, and the same for the same run as long as the server's secret is. It
   * is not the run's key.
   */
  readonly id: string;
  /** 16 hex digits, as logs and events name the run. For people. */
  readonly digest: string;
  /** The run's key, only for those who may see it. */
  readonly key?: string;
  readonly state: string;
  readonly active: readonly string[];
  readonly status: 'idle' | 'running' | 'held';
  readonly ended: boolean;
  /** How many moves it has made. */
  readonly version: number;
  /** When it was made, or last moved. Absent where no call of it ever came. */
  readonly updatedAt?: number;
  /** For how long it has not moved. Absent where it has ended. */
  readonly unmovedForMs?: number;
  readonly heldForMs?: number;
  /** The step that is running or held. */
  readonly step?: StepNow;
  /** The calls of unknown outcome that may be repeated, the oldest first. */
  readonly unsettled?: readonly StepNow[];
  /** Its client can use it no more: the session ended, or expired. The run is evidence. */
  readonly sessionEnded?: true;
  /** Why the gate does not understand what is stored, such as a state that is no more. */
  readonly fault?: string;
  /** In the list `resolved`, and where a search found it there: what a person said of its step. */
  readonly resolved?: ResolvedStep;
}

/** A step that was held, and what a person said of it. */
export interface ResolvedStep extends ResolvedBy {
  /** How much it was about, in the app's words. */
  readonly amount?: string;
  readonly note?: string;
  readonly agoMs: number;
}

/** A call that has the run, or an unsettled one. */
export interface StepNow {
  /** Names this very step to {@link ResolveRequest}, and distinguishes it from a later one. */
  readonly id: string;
  readonly tool: string;
  /** For how long it has had the run. */
  readonly sinceMs?: number;
  /** Until its lease is over unless it is renewed: a count-down. Absent where it is over. */
  readonly leaseLeftMs?: number;
  /** For how long its lease is over: its outcome is unknown. */
  readonly overdueMs?: number;
  /** Who called. */
  readonly actor?: string;
  /** The id of the JSON-RPC request. */
  readonly requestId?: string | number;
  /** What its handler was given, to look the call up where it had its effect. With `write` only. */
  readonly idempotencyKey?: string;
  /** The arguments, as the gate's `trail.args` lets them through. Long ones are a text, cut off. */
  readonly args?: Json;
  /** Of unknown outcome: how much it is about, in the app's words. */
  readonly amount?: string;
  /** Of unknown outcome: where to look that up, an `http` or `https` URL. With `write` only. */
  readonly look?: string;
  /**
   * What the tool answered, though the run has no outcome of it. Absent where it did not, or
   * another process received it.
   */
  readonly answered?: 'succeeded' | 'failed' | 'input_required';
  /** Of unknown outcome, in a {@link RunDetail}: what each outcome sends. */
  readonly resolutions?: readonly ResolutionChoice[];
}

/** All that is to be seen of one run. */
export interface RunDetail extends RunSummary, Standing {
  /** What time it is where the run is kept. */
  readonly now: number;
  /** The shared data, as far as the app shares them. Absent: none, or they are not shown. */
  readonly data?: Json;
  /** When it leaves its state by itself, and in how many milliseconds. */
  readonly leavesAt?: number;
  readonly leavesInMs?: number;
  /** It has ended, and the next call begins it anew: {@link tools} are those of its start. */
  readonly beginsAnew?: true;
  /** Who has stopped it by `freeze()`, and why. */
  readonly frozen?: { readonly actor: string; readonly note: string };
  /** The newest entries. */
  readonly trail: TrailPage;
}

/** One of the two ways to resolve a call of unknown outcome. */
export interface ResolutionChoice {
  readonly outcome: 'succeeded' | 'failed';
  /**
   * The event that it sends; `null`: none, and the run stays where it is. Absent: that depends on
   * the call, so one of {@link RunDetail.events} must be chosen.
   */
  readonly event?: string | null;
  /** Where that leads, as it is stored. Absent where it is not known. */
  readonly leadsTo?: string;
}

/** A part of a trail, the newest first. */
export interface TrailPage {
  readonly entries: readonly TrailItem[];
  /** Give it as `before` to get the older ones. Absent: there are none, or they are not kept. */
  readonly before?: number;
}

/** An attempt of a call, or a move that no call made. */
export interface TrailItem {
  /** 1, 2, 3 … */
  readonly seq: number;
  readonly version: number;
  /** 2 and more: the same step was tried before. */
  readonly attempt: number;
  readonly at: number;
  readonly from: string;
  /** Absent where nothing was saved: a refused call, or an attempt that moved nothing. */
  readonly to?: string;
  readonly fromActive: readonly string[];
  readonly toActive?: readonly string[];
  readonly event: string | null;
  /** Absent where no call made the move. */
  readonly tool?: string;
  readonly outcome?: 'succeeded' | 'failed' | 'input_required' | 'not_run' | 'unknown' | 'refused';
  /** `tool_error`, `resolved`, `taken_over`, the reason of a refusal … */
  readonly kind?: string;
  /** The whole of it in one sentence. */
  readonly says: string;
  readonly actor?: string;
  /** Who made the call, where `actor` resolved it. */
  readonly calledBy?: string;
  readonly note?: string;
  /** The arguments, as the app lets them into the trail. */
  readonly args?: Json;
  /** Why the call failed or was refused, as the app lets it into the trail. */
  readonly errors?: readonly Json[];
  readonly requestId?: string | number;
  readonly workflowVersion?: number;
}

/** Which runs are looked for. One of `text` and `withinMs` is needed. */
export interface SearchRequest {
  /**
   * The whole key of a run, which never stands in a URL. Or words: each must begin the digest, or
   * be a part of the state, or of the step's tool, arguments, amount or caller. With `keys` also
   * of the key.
   */
  readonly text?: string;
  /** Only runs that have moved, or whose step has begun, within so many milliseconds. */
  readonly withinMs?: number;
  /** The `next` of the search before. */
  readonly after?: string;
}

export interface SearchPage {
  /** About 50, and at most 150. */
  readonly runs: readonly RunSummary[];
  /** How many runs were looked at. */
  readonly looked: number;
  /** What the search did not reach, in sentences for people. */
  readonly unreached: readonly string[];
  /** There are more runs to look at: give it as `after`. */
  readonly next?: string;
}

/** Says of several calls of unknown outcome what they came to. Each is an operation of its own. */
export interface ResolveManyRequest {
  readonly outcome: 'succeeded' | 'failed';
  /** For the trail of each. From 1 to 2,000 characters. */
  readonly note: string;
  /** From 1 to 50, each once: the {@link RunSummary.id} and the {@link StepNow.id} looked at. */
  readonly runs: readonly { readonly id: string; readonly step: string }[];
}

export interface ResolvedMany {
  /** In the order of the request. Those without an `error` are resolved. */
  readonly results: readonly ResolvedOne[];
}

export interface ResolvedOne {
  readonly id: string;
  /** Where the run is now. */
  readonly state?: string;
  /** Why it was not resolved. The others were tried all the same. */
  readonly error?: Failure['error'];
}

/** Says of a call of unknown outcome what it came to: so the wait of a held run ends. */
export interface ResolveRequest {
  /** What a person found out. */
  readonly outcome: 'succeeded' | 'failed';
  /** The {@link StepNow.id} that was looked at: another one is a `conflict`. */
  readonly step: string;
  /** Needed where {@link ResolutionChoice.event} is absent. */
  readonly event?: string;
  /** For the trail: where it was looked up. At most 2,000 characters. */
  readonly note?: string;
  /** What comes along with the event. */
  readonly payload?: Json;
}

/** Sends an event that no call sends. */
export interface SendRequest {
  readonly event: string;
  readonly payload?: Json;
  /** The {@link RunSummary.version} that was looked at: another one is a `conflict`. */
  readonly version: number;
}

export interface RestartRequest {
  readonly version: number;
}

/** Ends a run with its data and its trail. */
export interface DeleteRequest {
  /** The run's {@link RunSummary.digest}, which the person typed or confirmed. */
  readonly digest: string;
}

/** Stops a run, or lets it go on. */
export interface FreezeRequest {
  /** Why, for the trail and for those who look at the run. From 1 to 2,000 characters. */
  readonly note: string;
}

/** Stops all calls of a workflow, or of one of its tools, on all instances. */
export interface FreezeCallsRequest extends FreezeRequest {
  /** One of {@link WorkflowDetail.tools}. Default: all of them. */
  readonly tool?: string;
}

/** Lets calls go on. Without a `tool` all do, also of tools that were stopped one by one. */
export interface UnfreezeCallsRequest extends FreezeCallsRequest {
  /** The {@link StoppedCalls.at} that was looked at: another one is a `conflict`. */
  readonly at: number;
}

/** It is done. Look at the run again. */
export interface Done {
  readonly done: true;
  /** Where the run stands now. Absent where it is no more, and where no single run is meant. */
  readonly state?: string;
}

/** A step through the machine that touches no run. */
export interface WhatIfRequest {
  /** Default: where every run begins. */
  readonly from?: { readonly run: string } | { readonly at: string };
  /** Default: nothing happens, to see where one stands. */
  readonly move?: WhatIfMove;
}

export type WhatIfMove =
  /** A tool is called and comes out so. `event`: where {@link WhatIf} asked to choose one. */
  | {
      readonly tool: string;
      readonly outcome: 'succeeded' | 'failed';
      readonly event?: string;
    }
  /** An event comes from outside. */
  | { readonly event: string; readonly payload?: Json }
  /** The time of the state is over. */
  | { readonly deadline: true };

/** Where that leads. */
export interface WhatIf extends Standing {
  /** The `from.at` of the next request. Opaque; good as long as the server's secret is. */
  readonly at: string;
  /**
   * `moved`: the state is another one. `stayed`: it is the same, as after a call that sends no
   * event. `unhandled`: the state does not know the event. `refused`: a model's call would be
   * refused, so nothing happened; {@link refusal} says why. It is absent where a frozen run refuses
   * an event. `choose-event`: which event it sends depends on its arguments or its result; give one
   * of {@link events}.
   */
  readonly result: 'moved' | 'stayed' | 'unhandled' | 'refused' | 'choose-event';
  /** The event that was sent. */
  readonly event?: string;
  readonly refusal?: Refusal;
  /** The actions that a statechart asks to be done, by name. None of them is done. */
  readonly actions: readonly string[];
  /** When the state is left by itself, after it was entered. */
  readonly leavesInMs?: number;
  /** The shared data there would be, as far as the app shares them. */
  readonly data?: Json;
}

/**
 * What a stream reports, by its `event:` name. It begins with `hello`, after each reconnection too.
 * The browser's `EventSource` reconnects by itself; `retry` and `id` are set.
 */
export interface LiveEvents {
  readonly hello: Hello;
  readonly workflow: WorkflowChanged;
  readonly stopped: StoppedChanged;
  readonly run: RunChanged;
  readonly bye: Bye;
}

/** An event's name. */
export type LiveEvent = keyof LiveEvents;

/** The stream is open. Unless it was `resumed`, events may be missing: load the view again. */
export interface Hello {
  readonly resumed: boolean;
  /** What other processes do is seen this late at most. */
  readonly delayMs: number;
}

/**
 * A workflow's counts, and what is stopped of it: soon after the stream opens, and each time that
 * one of them changes. Also where its store comes or goes.
 */
export interface WorkflowChanged {
  readonly workflow: WorkflowSummary;
}

/**
 * What is stopped of a workflow: soon after the stream opens, and each time that calls are stopped
 * or go on. Of each workflow, also on a stream that was asked for another one.
 */
export interface StoppedChanged {
  /** The workflow's `key`. */
  readonly workflow: string;
  readonly stopped: readonly StoppedCalls[];
}

/**
 * Something happened to a run. Of each run where it happened in this process; and of the `run` that
 * the stream was asked for, wherever it happened.
 */
export interface RunChanged {
  /** The workflow's `key`. */
  readonly workflow: string;
  readonly id: string;
  readonly digest: string;
  /**
   * `moved`: something was saved. `step`: a call has it, or let it go. `held`: it waits for a
   * person. `ended`, `refused`: as it says. `changed`: any of these, elsewhere.
   */
  readonly what: 'moved' | 'step' | 'held' | 'ended' | 'refused' | 'changed';
  readonly state?: string;
  readonly active?: readonly string[];
  readonly tool?: string;
  /** A person has resolved it, in this process or in another. */
  readonly resolved?: ResolvedBy;
}

export interface ResolvedBy {
  readonly tool: string;
  readonly outcome: 'succeeded' | 'failed';
  readonly actor?: string;
}

/** The server ends the stream: it is closing, or who looks may not do so any more. */
export interface Bye {
  readonly why: 'closing' | 'unauthorized';
}
