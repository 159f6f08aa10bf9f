/** A gate as plain data: the checker asks no gate what it would allow. */
export interface Machine {
  /** The gate's id. */
  readonly id: string;
  readonly initial: string;
  /** For each state where its events lead. */
  readonly states: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** The states in which a run has ended. */
  readonly final?: readonly string[];
  readonly bindings: readonly MachineBinding[];
}

export interface MachineBinding {
  readonly tool: string;
  /** The states in which a call may run. */
  readonly from: readonly string[];
  /** Sent by a success. Without any event a call is tested, but is no step. */
  readonly success?: string;
  readonly failure?: string;
  readonly uncertain: 'hold' | 'retry';
  /** Only calls whose argument has this value are bound. Such a tool is always shown. */
  readonly when?: { readonly argument: string; readonly equals: unknown };
}

/** How a run is served. */
export interface RunInfo {
  readonly run: string;
  /** Whether its lists hide tools. */
  readonly lists: 'hide' | 'stable';
  /** Whether a run that has ended starts again with the next call that the initial state allows. */
  readonly restarts?: boolean;
}

/** A JSON-RPC message, and when its last byte came. */
export interface Received {
  readonly at: number;
  // biome-ignore lint/suspicious/noExplicitAny: what came over the wire may be anything
  readonly message: any;
}

/** One POST of one JSON-RPC message, as its client sees it. */
export interface Exchange {
  /** Also in the message's `params._meta[CALL]`, so that a handler can name its call. */
  readonly call: string;
  readonly run: string;
  readonly sent: number;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly request: any;
  /** `undefined` where the connection broke before the head of the answer. */
  status?: number;
  /** Whether the answer is an event stream. */
  isStream?: boolean;
  readonly messages: Received[];
  /** When the answer ended, or the connection broke. */
  ended?: number;
  broke?: boolean;
  /** Whether the client gave up waiting. */
  hung?: boolean;
}

/** A GET stream, or the stream of a `subscriptions/listen` that was acknowledged with tools. */
export interface Listening {
  readonly run: string;
  readonly kind: 'session' | 'subscription';
  /** When it was known to be open. */
  readonly opened: number;
  /** Absent while it is open. */
  closed?: number;
  readonly messages: Received[];
}

/** What a handler writes down when it begins, and when it has had its effect. */
export interface LedgerLine {
  readonly phase: 'start' | 'end';
  readonly at: number;
  /** Names one execution of a handler. Its result's first text is this, too. */
  readonly attempt: string;
  /** The process. */
  readonly server: string;
  /** As the handler knows it: from the session's header or the caller's name. */
  readonly run: string;
  readonly tool: string;
  readonly args: unknown;
  /** From the call's `_meta`: the exchange. */
  readonly call: string;
  /** From the call's `_meta`: the idempotency key; empty where there is none. */
  readonly key: string;
  /** With `end`. */
  readonly outcome?: 'succeeded' | 'failed';
}

/**
 * What `runs.send()`, `runs.resolve()`, `runs.freeze()`, `runs.unfreeze()`, `runs.read()` or the
 * store's `record()` was asked, and what it answered.
 */
export interface OutsideCall {
  readonly run: string;
  readonly machine: string;
  readonly asked: number;
  /** Absent where no answer came. */
  answered?: number;
  readonly does:
    | { readonly kind: 'send'; readonly event: string }
    /** The step that is held, by its key, and its tool: its handler may never have begun. */
    | {
        readonly kind: 'resolve';
        readonly key: string;
        readonly tool: string;
        readonly outcome: 'succeeded' | 'failed';
      }
    /** A fact that is added beside steps; the state stays. */
    | { readonly kind: 'record'; readonly tool: string }
    | { readonly kind: 'look'; state?: string; version?: number }
    /**
     * An operator stops the run, or lets it go on. One after the other for each run. `isNew`: it
     * was not so before, and the trail has an entry of it; absent where no answer came.
     */
    | { readonly kind: 'freeze'; isNew?: boolean }
    | { readonly kind: 'unfreeze'; isNew?: boolean };
  /**
   * Whether it did what it was asked. A run that was frozen, or not, already is as it was asked to
   * be. Absent where no answer came.
   */
  did?: boolean;
}

/**
 * What `runs.freezeAll()` or `runs.unfreezeAll()` was asked, and when it answered. One after the
 * other for each machine.
 */
export interface SwitchCall {
  readonly machine: string;
  /** Absent where all tools are meant. */
  readonly tool?: string | undefined;
  readonly does: 'freeze' | 'unfreeze';
  readonly asked: number;
  /** Absent where no answer came: it may have been done. */
  answered?: number;
}

/** An entry of the trail, as `runs.history()` gives it. */
export interface TrailMove {
  readonly version: number;
  readonly from: string;
  readonly to: string;
  readonly tool?: string | null | undefined;
  readonly event?: string | null | undefined;
}

/** An entry of the trail, be it a move or an attempt that moved nothing. */
export interface TrailEntry extends Omit<TrailMove, 'to'> {
  readonly seq: number;
  readonly attempt: number;
  readonly to?: string | undefined;
  readonly outcome?: string | undefined;
}

/** An operator's word in the trail, and what stands before it. */
export interface TrailFreeze {
  readonly entry: TrailEntry;
  readonly before: TrailEntry | undefined;
}

/** A run's trail as the checker takes it: its moves, and how many attempts it tells of. */
export function readTrail(
  entries: readonly TrailEntry[],
): Pick<Trail, 'moves' | 'attempts' | 'freezes'> {
  const isAttempt = ({ tool, outcome }: TrailEntry): boolean =>
    typeof tool === 'string' && outcome !== undefined && outcome !== 'refused';
  return {
    moves: entries.filter((each): each is TrailEntry & TrailMove => each.to !== undefined),
    ...(entries[0]?.seq === 1 && {
      attempts: entries.filter(isAttempt).length,
      freezes: entries.flatMap((entry, at): TrailFreeze[] =>
        entry.event === 'freeze' || entry.event === 'unfreeze'
          ? [{ entry, before: entries[at - 1] }]
          : [],
      ),
    }),
  };
}

/** What the public API says of a run when everything is over. */
export interface Trail {
  readonly run: string;
  readonly machine: string;
  /** Oldest first; the oldest ones may be missing. */
  readonly moves: readonly TrailMove[];
  /** How many attempts the whole trail tells of; absent where its oldest entries are missing. */
  readonly attempts?: number;
  /** The operators' words in it; absent where its oldest entries are missing. */
  readonly freezes?: readonly TrailFreeze[];
  /** `undefined` where the store does not know the run. */
  readonly now:
    | {
        readonly state: string;
        readonly version: number;
        readonly status: string;
        /** Whose claim is there. Its handler need not have begun: its process may have died before. */
        readonly claimed?: string | undefined;
        readonly isFrozen?: boolean | undefined;
      }
    | undefined;
}

/** Everything that is known of what a gate did. */
export interface Evidence {
  readonly machines: readonly Machine[];
  /** Every tool that the server behind the gate lists. */
  readonly tools: readonly string[];
  readonly runs: readonly RunInfo[];
  readonly exchanges: readonly Exchange[];
  readonly streams: readonly Listening[];
  readonly ledger: readonly LedgerLine[];
  readonly outside: readonly OutsideCall[];
  readonly trails: readonly Trail[];
  /** When a process stood still. */
  readonly stalls?: readonly Stall[];
  /** When the store could not be asked. */
  readonly outages?: readonly Span[];
  /** What operators did to whole workflows. */
  readonly switches?: readonly SwitchCall[];
  /** When processes could not read a switch, so that the last known one held. */
  readonly unread?: readonly Span[];
}

/** A time that something lasted. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Stall extends Span {
  readonly server: string;
}

/** Whether one of the spans has a moment in common with the time from `from` to `to`. */
export function meets(spans: readonly Span[], from: number, to: number): boolean {
  return spans.some((span) => span.from <= to && from <= span.to);
}

/** The member of a call's `_meta` that names its exchange. */
export const CALL = 'checker/call';

/** Milliseconds on the clock that all processes of this machine share. It cannot be set. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
