/**
 * A run whose calls no gate holds back. Hides what the gate would have said of each call, and where
 * a call leads that the gate would have refused. Pure.
 */
import type { RefusalReason } from '../basics/reasons.ts';
import type { ToolQuestion } from '../gate/consult.ts';
import {
  type DecidedStep,
  decide,
  decideStep,
  OF_REQUEST,
  type RefusedAt,
  type Sources,
} from '../gate/decide.ts';
import { Standing, type StandingRules, type Viewpoint } from '../gate/standing.ts';
import { Moves, type Outcome, type StepMove, type StepOrigin } from '../step/outcome.ts';
import type {
  CallNote,
  ClaimView,
  FsmSnapshot,
  Json,
  Uncertain,
  UnsettledStep,
} from '../stores/store.ts';
import { type BoundTool, NotRecorded } from '../workflow/bound-tools.ts';
import { savedGrant } from '../workflow/facts.ts';
import type { Position } from '../workflow/position.ts';
import { usesCalls } from '../workflow/rules.ts';
import { mending, type Part } from '../workflow/verdict.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** What stops a judge from saying what the gate would have done. */
export type Doubt =
  /** Guards are the app's code, and were not asked. */
  | 'guard'
  /** A rule or a function of the app reads values of the call that are not known. */
  | 'values'
  /** An earlier outcome leads somewhere that is not known. */
  | 'outcome'
  /** The gate cannot read the run, or a function of the app failed. */
  | 'unreadable';

/** What the gate would have said of a call. */
export type FollowedVerdict =
  | { readonly says: 'unbound' }
  | { readonly says: 'allowed' }
  /** It would have waited for another call of the run, and would have been judged after that. */
  | { readonly says: 'would-wait' }
  | { readonly says: 'unknown'; readonly why: Doubt }
  | {
      readonly says: 'refused';
      readonly reason: RefusalReason;
      readonly state: string;
      /** The names of the rules' parts that refuse it. */
      readonly parts: readonly Part[];
    };

/** A call to follow. */
export interface FollowedStep {
  readonly question: ToolQuestion;
  /** Of the arguments. */
  readonly digest: string;
  /** What the trail says of it. */
  readonly note: CallNote;
  /** Plain data, for the functions that choose an event. */
  readonly args: Pick<StepOrigin, 'args' | 'argsText'>;
  /** What follows from an unknown outcome, where the binding does not say it. */
  readonly uncertain: Uncertain;
  /** Who calls, for what only some callers see. Absent where that is not known. */
  readonly identity?: Viewpoint['identity'];
  /**
   * Whether a rule, or what is noted for later rules, has asked for values that are not known.
   * Default: all are known.
   */
  hasDoubt?(about: 'judgement' | 'facts'): boolean;
}

/** A call that has started, and not ended. */
export interface UnderWay {
  readonly call: FollowedStep;
  readonly binding: BoundTool;
  readonly isStep: boolean;
  /** What follows from an unknown outcome. */
  readonly uncertain: Uncertain;
  readonly wasRefused: boolean;
  /** It would have waited, and would have been judged where the calls before it lead. */
  readonly wouldWait: boolean;
  /** Whether the loop shield, where there is one, counts it once its outcome is known. */
  readonly isCounted: boolean;
  readonly foundIn: string;
  readonly startedAt: number;
  readonly use: StepOrigin['use'];
}

/** The guards that a call has to pass, where nothing else refuses it. */
export interface Guarded {
  readonly standing: Standing;
  readonly binding: BoundTool;
}

/** Where a followed run stands. Plain data, kept beside the snapshot of a run that is observed. */
export interface Followed {
  readonly snapshot: FsmSnapshot;
  /** A call ran whose event its state does not handle: what is said after it may be wrong. */
  readonly strayed: boolean;
  /** The step of unknown outcome that a person would have to resolve. */
  readonly held?: ClaimView | undefined;
  readonly unsettled: readonly UnsettledStep[];
}

/** As many steps of unknown outcome as stores keep the keys of. */
const KEYS_KEPT = 16;
const BEFORE_CLAIM: Sources = ['held', 'state', 'keys'];
const ALLOWED = { says: 'allowed' } as const;
const WOULD_WAIT = { says: 'would-wait' } as const;

/** One run in one workflow, as it is followed. */
export class FollowedRun {
  readonly #rules: StandingRules;
  readonly #viewpoint: Viewpoint;
  readonly #workflow: Workflow;
  #at: Followed;
  /** Why nothing more can be said of the run. */
  #lost: Doubt | undefined;
  readonly #open = new Map<number, UnderWay>();
  /** The tools whose facts leave something open. */
  readonly #doubtful = new Set<string>();

  /** @param at absent for a run that begins with its first call */
  constructor(rules: StandingRules, viewpoint: Viewpoint, at?: Followed) {
    this.#rules = rules;
    this.#viewpoint = viewpoint;
    this.#workflow = rules.workflow;
    this.#at = at ?? {
      snapshot: { ...rules.workflow.start, updatedAt: 0, version: 0 },
      strayed: false,
      unsettled: [],
    };
  }

  /** Where it stands, without the calls that have not ended. */
  get at(): Followed {
    return this.#at;
  }

  /** The same run, as it was read again. */
  standAt(at: Followed): void {
    this.#at = at;
  }

  /** From here on facts of a tool, or from outside, leave open what is asked of them. */
  doubt(tool: string): void {
    this.#doubtful.add(tool);
  }

  get hasEnded(): boolean {
    return this.#workflow.hasEnded(this.#at.snapshot.state);
  }

  /** Whether no call of it is under way. */
  get isIdle(): boolean {
    return this.#open.size === 0;
  }

  /**
   * What the gate would have said of a call that has come.
   *
   * @param number names the call until it ends
   * @param onGuards called where its guards decide: `ended()` follows without waiting for them
   */
  started(
    number: number,
    call: FollowedStep,
    now: number,
    onGuards?: (guarded: Guarded) => void,
  ): FollowedVerdict {
    const { question } = call;
    if (!this.#workflow.isBound(question.tool)) return { says: 'unbound' };
    try {
      if (question.matched === undefined) question.find();
      const fault = decide(undefined, question, OF_REQUEST);
      const { matched } = question;
      if (matched === undefined && fault === undefined) return { says: 'unbound' };
      if (this.#lost !== undefined) return this.#unknown(this.#lost);
      if (fault !== undefined && typeof matched !== 'object')
        return refused(fault.reason as RefusalReason, this.#standing(call, false, now));
      return this.#judge(number, call, fault, now, onGuards);
    } catch (error) {
      return this.#doubt(error);
    }
  }

  #judge(
    number: number,
    call: FollowedStep,
    fault: RefusedAt | undefined,
    now: number,
    onGuards: ((guarded: Guarded) => void) | undefined,
  ): FollowedVerdict {
    const { question } = call;
    const { tool, binding: bound } = question;
    const isStep = bound.kind === 'step' || this.#workflow.shield !== undefined;
    const { snapshot } = this.#at;
    // Until something is saved of it, the run begins with each call.
    if (snapshot.version === 0)
      this.#at = { ...this.#at, snapshot: { ...snapshot, updatedAt: now } };
    if (isStep) this.#leaveOverdue(now);
    const standing = this.#standing(call, isStep, now);
    // As of a claim: a call that is only counted may be repeated.
    const uncertain = bound.uncertain ?? (bound.kind === 'step' ? call.uncertain : 'retry');
    question.isOutOfKeys = isStep && uncertain === 'retry' && this.#isOutOfKeys(call);
    const waits = fault === undefined && isStep && this.#hasOpenStep;
    const early = fault ?? (waits ? undefined : decide(standing, question, BEFORE_CLAIM));
    const { at, why, count }: DecidedStep =
      waits || early !== undefined
        ? { at: standing, why: early }
        : decideStep(standing, question, { digest: call.digest, grantedAt: now });
    const said = why === undefined ? ALLOWED : this.#verdictOf(call, at, why);
    const verdict = waits ? WOULD_WAIT : said;
    const wasRefused = verdict.says === 'refused';
    // What it leads to does not depend on whether its state allowed it.
    const binding = wasRefused
      ? (this.#workflow.matchAnywhere(tool, () => question.args.view) ?? bound)
      : bound;
    const wouldWait = verdict.says === 'would-wait';
    // A call that rules refuse is counted at once, and any other with its outcome.
    if (wasRefused ? at !== standing : standing.begins && isStep)
      this.#save(wasRefused ? at.position : standing.position, now);
    const use = this.#useOf(call, standing, verdict.says === 'allowed', now);
    this.#open.set(number, {
      ...{ call, binding, isStep, uncertain, wasRefused, wouldWait, startedAt: now, use },
      isCounted: wouldWait || (!wasRefused && count !== undefined),
      foundIn: standing.position.state,
    });
    if (verdict.says === 'allowed' && bound.guards.length > 0) {
      if (onGuards === undefined) return { says: 'unknown', why: 'guard' };
      onGuards({ standing: at, binding: bound });
    }
    return verdict;
  }

  /** What the gate would have said of a call against which that is. */
  #verdictOf(call: FollowedStep, standing: Standing, why: RefusedAt): FollowedVerdict {
    const { question } = call;
    const { binding } = question;
    const reason = why.reason as RefusalReason;
    // Where the state allows no call, the rules say what is missing.
    const { parts = [] } = reason === 'state' ? (question.ruled(standing) ?? why) : why;
    if (this.#wouldFollow(reason, binding, standing, parts)) return WOULD_WAIT;
    const isDoubtful =
      call.hasDoubt?.('judgement') === true ||
      toolsOf(parts).some((each) => this.#doubtful.has(each));
    if (parts.length > 0 && isDoubtful) {
      // Which earlier calls it has used up is not known either.
      if (binding.demands?.some(usesCalls)) this.#lost = 'values';
      return this.#unknown('values');
    }
    return refused(reason, standing, parts);
  }

  get #hasOpenStep(): boolean {
    for (const each of this.#open.values()) if (each.isStep) return true;
    return false;
  }

  /** Whether a call that is under way may lead to where this one is allowed. */
  #wouldFollow(
    reason: string,
    { states }: BoundTool,
    standing: Standing,
    parts: readonly Part[],
  ): boolean {
    const tools = [...this.#open.values()]
      .filter(({ binding }) => binding.kind !== 'free')
      .map(({ call }) => call.question.tool);
    if (tools.length === 0) return false;
    if (reason === 'guard') return mending(parts).some((each) => tools.includes(each));
    return reason === 'state' && this.#workflow.mayLead(standing.position, tools, states);
  }

  /** Whether the store has no room for the key of one more step of unknown outcome. */
  #isOutOfKeys(call: FollowedStep): boolean {
    const { unsettled } = this.#at;
    return unsettled.length >= KEYS_KEPT && !unsettled.some(isStepOf(call));
  }

  /** What rules will ask of the call later, and what it uses up. */
  #useOf(
    { question }: FollowedStep,
    standing: Standing,
    isAllowed: boolean,
    now: number,
  ): StepOrigin['use'] {
    const { past } = standing;
    if (past === undefined) return undefined;
    const { run, tool } = question.asked;
    if (!this.#workflow.isOrder && !past.ledger.keeps(this.#workflow.keyOf(tool))) return undefined;
    const none = { claimedAt: now, noted: question.noted, uses: [], salt: run };
    return { ...((isAllowed ? question.used : undefined) ?? none), grantedAt: now };
  }

  /** A call that is under way, to end it once more after {@link standAt}. */
  open(number: number): UnderWay | undefined {
    return this.#open.get(number);
  }

  reopen(number: number, open: UnderWay): void {
    this.#open.set(number, open);
  }

  /** Says of a call that was let through what its guards say, once they have answered. */
  refusedByGuard(number: number): void {
    const open = this.#open.get(number);
    if (open !== undefined) this.#open.set(number, { ...open, wasRefused: true });
  }

  /** The call never ran: a gate refused it, or nothing was forwarded. */
  dropped(number: number): void {
    this.#open.delete(number);
  }

  /**
   * Where the call leads that has ended. The run stays where it is if nothing follows.
   *
   * @param hasDoubt whether its result has values that were asked for, and are not known
   * @returns the move, where something is to be saved
   */
  ended(
    number: number,
    outcome: Outcome,
    now: number,
    hasDoubt: () => boolean = () => false,
  ): StepMove | undefined {
    const open = this.#open.get(number);
    this.#open.delete(number);
    if (open === undefined || this.#lost !== undefined) return undefined;
    if (open.binding.kind === 'free' && !open.isStep) return undefined;
    const { kind } = outcome;
    if (kind === 'input_required') return undefined;
    // A lookup that fails, or that was not answered, counts for nothing.
    if (!open.isStep && kind !== 'succeeded') return undefined;
    try {
      return this.#lead(open, outcome, now, hasDoubt);
    } catch (error) {
      this.#noteUndecided(open, error, now, hasDoubt());
      return undefined;
    }
  }

  #lead(
    open: UnderWay,
    outcome: Outcome,
    now: number,
    hasDoubt: () => boolean,
  ): StepMove | undefined {
    const { call, binding, foundIn, use, startedAt, wasRefused, wouldWait } = open;
    const { tool } = call.question;
    const shield = open.isCounted ? this.#workflow.shield : undefined;
    const stands = this.#workflow.stand(this.#at.snapshot, now);
    const counted = { tool: this.#workflow.renamings.savedOf(tool), digest: call.digest };
    const current = shield?.count(stands, counted, startedAt).position ?? stands;
    const { version = 0 } = this.#at.snapshot;
    const origin: StepOrigin = {
      ...{ tool, ...call.args, note: call.note, isFirst: version === 0 },
      ...(use && { use }),
    };
    const clock = { now: () => now };
    const allowedIn = wasRefused || wouldWait ? current.state : foundIn;
    const moves = new Moves(
      { workflow: this.#workflow, clock },
      binding,
      current,
      origin,
      current,
      allowedIn,
    );
    const judged = moves.judged(outcome);
    if (!open.isStep && judged.kind !== 'succeeded') return undefined;
    const move = moves.next(judged, shield !== undefined, false);
    const isDoubtful = call.hasDoubt?.('facts') === true || hasDoubt();
    if (this.#workflow.rules.ledger !== undefined && isDoubtful)
      this.doubt(this.#workflow.keyOf(tool));
    if (move === 'unknown' || move === 'doubted') {
      this.#noteUnknown(open, now);
      return undefined;
    }
    this.#settle(open);
    if (move === 'release') return undefined;
    const { event } = move.trail;
    const isLeft = event !== null && !this.#workflow.isOrder;
    const hasStrayed = wasRefused && isLeft && !this.#workflow.handles(current.state, event ?? '');
    if (hasStrayed) this.#at = { ...this.#at, strayed: true };
    this.#save(move.snapshot, now);
    return move;
  }

  /** What the app's code says of the outcome cannot be followed. */
  #noteUndecided(open: UnderWay, error: unknown, now: number, hasDoubt: boolean): void {
    for (let cause = error; cause instanceof Error; cause = cause.cause)
      if (cause instanceof NotRecorded) {
        this.#lost = 'outcome';
        return;
      }
    if (hasDoubt) this.#lost = 'outcome';
    // As the gate: it ran, and a person has to say what came of it.
    else if (open.isStep) this.#hold(open, now);
  }

  #noteUnknown(open: UnderWay, now: number): void {
    const { question, digest } = open.call;
    if (open.uncertain === 'hold') {
      this.#hold(open, now);
      return;
    }
    const { unsettled } = this.#at;
    const isOwn = isStepOf(open.call);
    const others = unsettled.filter((each) => !isOwn(each));
    const step = { tool: question.tool, digest, idempotencyKey: digest, since: open.startedAt };
    const kept = [...others, { ...step, ...grantOfOpen(open) }].slice(-KEYS_KEPT);
    this.#at = { ...this.#at, unsettled: kept };
  }

  #hold(open: UnderWay, now: number): void {
    const { call, startedAt } = open;
    const { question, digest } = call;
    const held: ClaimView = {
      ...{ token: digest, tool: question.tool, digest, uncertain: 'hold', idempotencyKey: digest },
      ...{ since: startedAt, until: now, live: false },
      ...grantOfOpen(open),
    };
    this.#at = { ...this.#at, held };
  }

  /** A later call of the same step has settled it. */
  #settle({ call }: UnderWay): void {
    const { unsettled } = this.#at;
    if (unsettled.length === 0) return;
    const isOwn = isStepOf(call);
    this.#at = { ...this.#at, unsettled: unsettled.filter((each) => !isOwn(each)) };
  }

  /** The run leaves a state whose deadline has passed, as a claim has it leave. */
  #leaveOverdue(now: number): void {
    const { snapshot } = this.#at;
    if ((snapshot.version ?? 0) === 0) return;
    const { expiry } = this.#workflow.understand(snapshot, now);
    if (expiry !== undefined) this.#save(expiry.position, now);
  }

  #standing(call: FollowedStep, isStep: boolean, now: number): Standing {
    const { snapshot, held } = this.#at;
    const { updatedAt, version = 0 } = snapshot;
    const { position, expiry } = this.#workflow.understand(snapshot, now);
    const parts = { updatedAt, version, claim: held, now, expiry };
    const viewpoint = { ...this.#viewpoint, identity: call.identity };
    if (!isStep) return new Standing(this.#rules, viewpoint, position, parts);
    let { unsettled } = this.#at;
    if (unsettled.length > 0) {
      // An earlier try of the same step is this one.
      const isOwn = isStepOf(call);
      unsettled = unsettled.filter((each) => !isOwn(each));
    }
    return new Standing(this.#rules, viewpoint, position, { ...parts, unsettled });
  }

  #save({ state, context }: Position, now: number): void {
    const { version = 0 } = this.#at.snapshot;
    const snapshot = { state, updatedAt: now, version: version + 1 };
    this.#at = {
      ...this.#at,
      snapshot: context === undefined ? snapshot : { ...snapshot, context },
    };
  }

  #doubt(error: unknown): FollowedVerdict {
    if (error instanceof NotRecorded) return this.#unknown('values');
    this.#rules.onError(error);
    return this.#unknown('unreadable');
  }

  #unknown(why: Doubt): FollowedVerdict {
    return { says: 'unknown', why };
  }
}

/** Whether a step is the one that a call makes, or makes again. */
function isStepOf({
  question,
  digest,
}: Pick<FollowedStep, 'question' | 'digest'>): (step: UnsettledStep) => boolean {
  return (step) => step.tool === question.tool && step.digest === digest;
}

function refused(
  reason: RefusalReason,
  { state }: Standing,
  parts: readonly Part[] = [],
): FollowedVerdict {
  return { says: 'refused', reason, state, parts };
}

/** The tools whose calls the parts are about. */
function toolsOf(parts: readonly Part[]): readonly string[] {
  return parts.flatMap((each): readonly string[] => {
    if (each.part === 'any') return toolsOf(each.parts);
    if (each.part === 'once') return [each.tool];
    if (each.part === 'limit') return [each.limit.tool];
    return 'leaf' in each ? [each.leaf.tool] : [];
  });
}

/** What the gate would have saved with its claim. */
function grantOfOpen({ call: { question }, use }: UnderWay): { readonly use?: Json } {
  const saved = savedGrant({ noted: use?.noted ?? question.noted, uses: use?.uses ?? [] });
  return saved === undefined ? {} : { use: saved };
}
