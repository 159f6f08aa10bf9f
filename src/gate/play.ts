/**
 * The way of a call whose run is known, until it goes on or is answered: a loop over its stages.
 * Hides what is asked when: the run as it is read, its claim, the app's guards, and calls that this
 * one depends on. It waits only where one of these does.
 */
import { isPrincipalRun, newToken } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { CallersHeld } from '../session/held-runs.ts';
import { InFlight } from '../session/live-session.ts';
import type { Admission, Run } from '../session/run.ts';
import { claimRun } from '../step/claim.ts';
import { beginsAnew, Moves, moveTo, type StepMove, type StepOrigin } from '../step/outcome.ts';
import { calledOff, Step } from '../step/step.ts';
import { KEEPS_KEY } from '../step/store-calls.ts';
import { pauseBefore, turnKey } from '../step/turns.ts';
import type { Json } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject, isRequestId, type RequestId } from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { Count, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import { usesCalls } from '../workflow/rules.ts';
import { AFTER, withRecorded } from '../workflow/stored.ts';
import { mending } from '../workflow/verdict.ts';
import { ClaimedCall, showHandler } from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { refusedByGuards, refusedUnclaimed, type ToolQuestion } from './consult.ts';
import {
  type DecidedStep,
  decide,
  decideStep,
  NEVER_PASSED,
  type RefusedAt,
  type Sources,
  stopNow,
} from './decide.ts';
import { notifyMoved, notifyOfTime } from './list-changes.ts';
import {
  type Enforced,
  enforcedOf,
  enforces,
  isStepFor,
  modeSaid,
  stillObserved,
  withMark,
} from './mode.ts';
import { PassedLookup, RecordedLookup } from './recorded-call.ts';
import { type NotLetIn, noteOf, type Refuser } from './refuser.ts';
import {
  type Absent,
  asBegun,
  beginningOf,
  noteRead,
  Standing,
  standingAsRead,
  standingNow,
  standingOfRefused,
  stopIn,
} from './standing.ts';

/**
 * What becomes of one call. `forward`: it goes on as it is; a {@link ClaimedCall}: it goes on as a
 * step; a {@link RecordedLookup}: beside others, to be recorded. `answered`: the gate answered the
 * call, or dropped it; `ended`: it answered the whole request.
 */
export type Course = NotLetIn | ClaimedCall | RecordedLookup;

/** Called where a cancelled step did not stop in time; with `isTooLong`, where it ran too long. */
export type GiveUp = (id: RequestId, isTooLong: boolean) => void;

/** A gate's part in one exchange, for all calls of it. */
export interface Entrance {
  readonly config: GateConfig;
  readonly exchange: Exchange;
  readonly admission: Admission;
  readonly keepsSecrets: boolean;
  readonly refuser: Refuser;
}

/** A stage gives the verdict, or the next stage. One that waits plays on by itself. */
type Stage = (this: Play) => MaybePromise<Course> | Stage;

/** What no mode lets pass comes before the mode, and the rest behind it. */
const BEFORE_MODE: Sources = ['run', 'operators'];
const AS_READ: Sources = ['run', 'state'];

/** The trail's event where the loop shield moves a run to a state. */
const LOOP = 'loop';

/** One call on its way. */
export class Play {
  readonly #gate: Entrance;
  readonly #config: GateConfig;
  readonly #incoming: Call;
  readonly #run: Run;
  readonly #question: ToolQuestion;
  readonly #giveUp: GiveUp;
  /** Until when it waits for calls before it; absent where it has not waited yet. */
  #waitsUntil: number | undefined;
  /** How often it was played before. */
  #attempt = 0;
  /** As in {@link RefusedAt.left}. */
  #left: string | undefined;
  /** Whether operators were known to have stopped it when it came. */
  #isStopped = false;
  /** Whether its run is held, and it only reads. */
  #goesUnclaimed = false;
  /** Where its run stood when it was claimed last. */
  #claimedAt: Standing | undefined;
  #why: RefusedAt = { reason: 'unavailable' };
  #hasWaited = false;
  #inFlight: InFlight | undefined;

  constructor(gate: Entrance, incoming: Call, run: Run, question: ToolQuestion, giveUp: GiveUp) {
    this.#gate = gate;
    this.#config = gate.config;
    this.#incoming = incoming;
    this.#run = run;
    this.#question = question;
    this.#giveUp = giveUp;
  }

  go(from: Stage | MaybePromise<Course> = this.#enter): MaybePromise<Course> {
    let next = from;
    while (typeof next === 'function') next = next.call(this);
    return next;
  }

  /** What operators say is asked beside the claim or the read, and never before it. */
  #enter(): Stage {
    const { workflow, enforce } = this.#config;
    const { tool } = this.#question;
    const word = this.#run.store.switchOf(workflow.id);
    const said = word?.now();
    const now = modeSaid(enforce, word?.known);
    // Where the run says so, the call must not even wait for others.
    const isLoose =
      typeof now === 'object' && !enforces(now, tool) && !isStepFor(workflow, now, tool);
    // A call that is known to be stopped claims nothing. So it is refused even if operators let it
    // go on meanwhile.
    this.#isStopped = !isPromise(said) && stopIn(said, workflow, tool) !== undefined;
    return this.#isStep && !isLoose && !this.#isStopped ? this.#claim : this.#read;
  }

  get #isStep(): boolean {
    return this.#question.binding.kind === 'step' || this.#config.workflow.shield !== undefined;
  }

  // --- without a claim --------------------------------------------------------------------------

  #read(): ReturnType<Stage> {
    const read = standingNow(this.#config, this.#run);
    return isPromise(read)
      ? read.then((at) => this.go(this.#askOperators(at)))
      : this.#askOperators(read);
  }

  #askOperators(at: Standing | Absent): ReturnType<Stage> {
    if (typeof at === 'string') return this.#test(at);
    const informed = this.#isStopped ? at : at.askOperators();
    return isPromise(informed) ? informed.then(() => this.go(this.#test(at))) : this.#test(at);
  }

  /** Decides about a call by what was read. Only a step goes on to claim its run. */
  #test(at: Standing | Absent): ReturnType<Stage> {
    const config = this.#config;
    const question = this.#question;
    const barred = decide(at, question, BEFORE_MODE);
    if (barred?.reason === 'unknown')
      return this.#gate.refuser.refuseGone(this.#incoming, question.tool, this.#run);
    if (barred !== undefined || typeof at === 'string')
      return this.#refuseFor(barred ?? { reason: 'unavailable' });
    if (!at.enforces(question.tool)) return this.#observe(at);
    if (this.#isStep && !this.#goesUnclaimed) return this.#claim;
    notifyOfTime(config, this.#gate.admission, this.#run, at);
    const why = decide(at, question, ['state', 'rules']);
    if (why !== undefined) return this.#refuseFor(why);
    const { guards } = question.binding;
    if (guards.length === 0) return this.#pass(at);
    return refusedUnclaimed(config, this.#run, guards, at, question.asked).then((refused) =>
      // Again, since guards may take seconds.
      after(refused ?? stopNow(at, question), (late) =>
        this.go(late === undefined ? this.#pass(at) : this.#refuseFor({ standing: at, ...late })),
      ),
    );
  }

  /** Lets a call run beside others. If its run is to record it, the gate waits for its answer. */
  #pass(at: Standing): ReturnType<Stage> {
    const config = this.#config;
    const incoming = this.#incoming;
    const run = this.#run;
    const { tool, binding } = this.#question;
    const { id, number } = incoming;
    if (binding.kind !== 'recorded' || !isRequestId(id)) {
      incoming.holders = [...incoming.holders, new PassedLookup(config, run, at)];
      return 'forward';
    }
    const odd = decide(at, this.#question, ['events']);
    if (odd !== undefined) return this.#refuseFor(odd);
    const note = { ...noteOf(config, incoming, run, tool), digest: incoming.digest };
    const origin = { ...this.#origin, note };
    const { era } = this.#gate.admission;
    const key = turnKey({ run: run.run, workflow: config.workflow.id });
    const onOver = run.turns.lookUp(key, { tool, of: run });
    return new RecordedLookup(
      { id, era, config, run, binding, number, onOver, standing: at },
      { token: newToken(), origin, found: at.snapshot },
    );
  }

  // --- with a claim -----------------------------------------------------------------------------

  #claim(): ReturnType<Stage> {
    const incoming = this.#incoming;
    const run = this.#run;
    const { era, session } = this.#gate.admission;
    const { id } = incoming;
    if (!isRequestId(id)) return 'forward';
    const isFull = era === 'session' && session.late.isFull;
    if (isFull || (run.steppingCall !== undefined && run.steppingCall !== incoming))
      return this.#refuseFor({ reason: 'busy' });
    const read = standingAsRead(this.#config, run);
    const why = read && decide(read, this.#question, AS_READ);
    if (why !== undefined) return this.#refuseFor(why);
    const { begin, workflow } = this.#config;
    // Only `begin` says where such a run begins anew: it is asked once it has to.
    const isPlaced = begin !== undefined && workflow.starts.length > 0;
    const restarts = this.#beginsAnew && (isPlaced || this.#allowsRestart());
    return isPromise(restarts)
      ? restarts.then((may) => this.#claimRun(id, may))
      : this.#claimRun(id, restarts);
  }

  /** Whether calls begin an ended run anew. Those of unbound tools begin none. */
  get #beginsAnew(): boolean {
    return !this.#isUnbound && beginsAnew(this.#config, this.#run.run);
  }

  /** Whether no binding names the tool, and the loop shield counts its calls all the same. */
  get #isUnbound(): boolean {
    return this.#question.binding === this.#config.workflow.shield?.unboundCalls;
  }

  /** Whether the call may begin an ended run anew: the initial state and data must allow it. */
  #allowsRestart(): MaybePromise<boolean> {
    const run = this.#run;
    const now = run.fresh()?.now ?? this.#config.clock.now();
    const start = Standing.of(this.#config, run, undefined, now);
    // Only a `visible` reads the data.
    const isRead = this.#question.binding.veils !== undefined;
    const begun = isRead ? asBegun(this.#config, run, start) : start;
    return after(begun, (at) => decide(at, this.#question, AS_READ) === undefined);
  }

  /** @param restarts whether the call may begin an ended run anew */
  #claimRun(id: RequestId, restarts: boolean): Promise<Course> {
    const config = this.#config;
    const incoming = this.#incoming;
    const run = this.#run;
    const question = this.#question;
    const { tool, binding } = question;
    const { workflow, listed, clock, times } = config;
    const request = this.#request;
    // Any other call is claimed only for the loop shield's count: it may be repeated.
    const isStep = binding.kind === 'step';
    const uncertain = binding.uncertain ?? (isStep ? listed.uncertainOf(tool) : 'retry');
    const held = uncertain === 'hold' ? this.#held : undefined;
    const room = held?.hasRoom() ?? true;
    const waits = this.#waitsUntil;
    const word = run.store.switchOf(workflow.id);
    this.#left = undefined;
    this.#waitsUntil ??= clock.now() + times.waitMs;
    let closed: Standing | undefined;
    const opens = (begun: Position): boolean => {
      const at = Standing.of(config, run, undefined, clock.now(), word).begunAt(begun);
      closed = decide(at, question, AS_READ)?.standing;
      return closed === undefined;
    };
    const usesUp = binding.demands?.some(usesCalls) === true;
    const { ledger } = workflow.rules;
    const known = ledger === undefined ? undefined : standingAsRead(config, run);
    const guess = typeof known === 'object' ? this.#grantIn(known, usesUp) : undefined;
    const use = guess ?? workflow.rules.savedGrant(tool, { noted: question.noted, uses: [] });
    const wanted = {
      run,
      description: { tool, digest: '', uncertain, ...(use !== undefined && { use }) },
      grant: ledger === undefined ? undefined : (step: Step) => this.#grantOf(step, usesUp),
      digest: () => workflow.renamings.digestOf(tool, incoming),
      note: noteOf(config, incoming, run, tool),
      number: incoming.number,
      isAgain: this.#attempt > 0,
      waitMs: waits && Math.max(0, waits - clock.now()),
      states: workflow.claimable(binding, this.#beginsAnew),
      restarts: restarts ? run : undefined,
      begin: beginningOf(config, run),
      stops: (step: Step, { position }: { position: Position }) => {
        this.#claimedAt = Standing.ofStep(config, run, step, position);
        return stopNow(this.#claimedAt, question);
      },
      opens,
      request,
      onTooLong: () => this.#giveUp(id, true),
      held,
    };
    const claim = (): ReturnType<typeof claimRun> =>
      claimRun(config, wanted, (move) => {
        if (move.trail.event === AFTER) this.#left = move.trail.from;
        notifyMoved(config, this.#gate.admission, run, move);
      });
    const claimed = isPromise(room)
      ? room.then((isFree) => (isFree ? claim() : ({ reason: 'too-many-held' } as const)))
      : claim();
    question.client = request;
    return claimed.then((step) => {
      // While the call waited, another process may have moved the run: what was read is stale.
      run.session.moves++;
      if (step instanceof Step) {
        question.step = step;
        return this.go(this.#admit(step));
      }
      if ('fault' in step) config.onError(step.fault);
      if (step.held !== undefined)
        (held ?? this.#held).met(step.held, { run: run.run, workflow: workflow.id });
      this.#why = closed === undefined ? step : { ...step, standing: closed };
      return this.go(this.#goWithout);
    });
  }

  /** The run was not claimed: only a read may go on. */
  #goWithout(): ReturnType<Stage> {
    const { reason } = this.#why;
    const { isOpenWhileHeld } = this.#question.binding;
    const isHeld = reason === 'held' || reason === 'too-many-held';
    if (!isHeld || isOpenWhileHeld === undefined) return this.#refuseUnclaimed;
    // A held run grants no claim, and a read needs none.
    const read = standingNow(this.#config, this.#run);
    const resume = (at: Standing | Absent): ReturnType<Stage> => {
      this.#goesUnclaimed = typeof at === 'object' && isOpenWhileHeld(at.state);
      return this.#goesUnclaimed ? this.#askOperators(at) : this.#refuseUnclaimed;
    };
    return isPromise(read) ? read.then((at) => this.go(resume(at))) : resume(read);
  }

  /** The store knows of claims and states alone: what comes before them is asked here. */
  #refuseUnclaimed(): ReturnType<Stage> {
    const why = this.#why;
    if (why.reason === 'unknown')
      return this.#gate.refuser.refuseGone(this.#incoming, this.#question.tool, this.#run);
    const found = why.standing ?? standingOfRefused(this.#config, this.#run, why);
    if (found === undefined) return this.#refuseFor(why);
    if (found === 'unreadable') return this.#refuseFor({ ...why, reason: found });
    const refuse = (at: Standing): Stage =>
      this.#refuseFor(decide(at, this.#question, BEFORE_MODE) ?? { ...why, standing: at });
    const informed = found.askOperators();
    return isPromise(informed) ? informed.then((at) => this.go(refuse(at))) : refuse(informed);
  }

  /** What a call is granted where its run stands; `undefined`: as where no run is known. */
  #grantIn(at: Standing, usesUp: boolean): Json | undefined {
    const { workflow, past } = at;
    const key = workflow.keyOf(this.#question.tool);
    if (!usesUp && past?.ledger.hasOthers(key, past.facts) !== true) return undefined;
    if (this.#question.ruled(at) !== undefined) return undefined;
    const { noted, used } = this.#question;
    const grant = { noted: used?.noted ?? noted, uses: used?.uses ?? [] };
    return workflow.rules.savedGrant(this.#question.tool, grant);
  }

  /** What the claim of a step is to save; as it was asked with, where the step will not go on. */
  #grantOf(step: Step, usesUp: boolean): Json | undefined {
    const { understood, description } = step;
    if (understood === undefined || understood.expiry !== undefined) return description.use;
    const at = Standing.ofStep(this.#config, this.#run, step, understood.position);
    return this.#grantIn(at, usesUp) ?? description.use;
  }

  /** The runs that the caller has left with an unknown outcome. */
  get #held(): CallersHeld {
    const { admission, exchange } = this.#gate;
    return admission.held.of(admission.ownerOf(exchange.req));
  }

  /** Asks what the store cannot test of a claimed call, and makes it a step. */
  #admit(step: Step): ReturnType<Stage> {
    const config = this.#config;
    const question = this.#question;
    const { tool } = question;
    const { understood } = step;
    if (understood === undefined) {
      config.onError(step.fault);
      noteRead(config.workflow, this.#run.run, step.grantedAt, step.fault);
      return this.#letGo(step, { reason: 'unreadable', snapshot: step.snapshot });
    }
    // The app's code may throw anywhere; a claim that it left behind would be renewed for ever.
    const fail = (error: unknown): Stage => {
      config.onError(error);
      return this.#letGo(step, { reason: 'unavailable' });
    };
    try {
      // What was asked for operators' words, unless the step has begun its run since.
      const { position } = understood;
      const known = this.#claimedAt?.reached === position ? this.#claimedAt : undefined;
      const at = known ?? Standing.ofStep(config, this.#run, step, position);
      const { enforced } = at;
      const isLenient = typeof enforced === 'object' && isStepFor(config.workflow, enforced, tool);
      if (!isLenient && !enforces(enforced, tool))
        return step.withdraw().then(() => this.#observe(at));
      notifyOfTime(config, this.#gate.admission, this.#run, at);
      const decided = decideStep(at, question, step);
      const { count, why } = decided;
      const { demands, guards } = question.binding;
      if (demands && why?.reason !== 'state') this.#warnOfReset();
      if (count === undefined && why !== undefined) return this.#letGo(step, why);
      if (count === undefined && guards.length === 0) return this.#begin(step, at);
      return this.#askGuards(step, decided)
        .catch(fail)
        .then((next) => this.go(next));
    } catch (error) {
      return fail(error);
    }
  }

  async #askGuards(step: Step, { at, count, why }: DecidedStep): Promise<Stage> {
    const config = this.#config;
    const question = this.#question;
    const { guards } = question.binding;
    const { workflow } = config;
    if (count?.isLoop) return this.#fall(step, at, count);
    const refused =
      why ??
      (guards.length === 0 ? undefined : await refusedByGuards(config, guards, at, question.asked));
    // While a guard was asked, the client may have cancelled the call, or the step taken too long.
    const late = refused ?? decide(at, question, ['client']);
    if (late === undefined) return () => this.#begin(step, at);
    if (refused === undefined || count === undefined) return this.#letGo(step, late);
    // A model may repeat a call that a guard refuses, so the shield counts it: a move that stays.
    const { position } = at;
    const actions = workflow.dueActions(step.isFirst);
    const said = { event: null, outcome: 'refused', kind: 'guard', ...step.note } as const;
    const stays = (stands: Position): StepMove =>
      moveTo(workflow, stands, { position: stands, actions }, said);
    await step.save(
      stays(position),
      KEEPS_KEY,
      ({ understood }) => understood && stays(withRecorded(position, understood.position)),
    );
    return this.#refuseFor(refused);
  }

  /** The call is one too many: it moves the run to the shield's fallback, and is refused. */
  async #fall(step: Step, at: Standing, { calls }: Count): Promise<Stage> {
    const { workflow, onError } = this.#config;
    const shield = workflow.shield as LoopShield;
    const { tool, key, note } = step;
    const event = shield.fallbackEvent ?? LOOP;
    const said = { event, outcome: 'refused', kind: 'loop', ...note } as const;
    const fall = (from: Position): StepMove => {
      const { position, actions } = shield.fallBack(from, step.grantedAt);
      const due = workflow.dueActions(step.isFirst);
      return moveTo(workflow, from, { position, actions: [...due, ...actions] }, said);
    };
    let moved = fall(at.position);
    const status = await step.save(moved, KEEPS_KEY, ({ understood }) => {
      if (understood !== undefined) moved = fall(understood.position);
      return moved;
    });
    if (status !== 'committed') return this.#refuseFor({ reason: 'unavailable' });
    const loop = { ...key, tool, state: at.position.state, calls, max: shield.max };
    // A listener that fails does not stop the refusal.
    try {
      Promise.resolve(shield.onLoop?.(loop)).catch(onError);
    } catch (error) {
      onError(error);
    }
    notifyMoved(this.#config, this.#gate.admission, this.#run, moved);
    const standing = at.movedTo(moved.snapshot, step.grantedAt);
    return this.#refuseFor({ reason: 'loop', standing });
  }

  #letGo(step: Step, why: RefusedAt): Stage {
    return () => step.withdraw().then(() => this.go(this.#refuseFor(why)));
  }

  /** A client that begins a new session, conversation or handle begins without earlier calls. */
  #warnOfReset(): void {
    const { workflow, warnOnce } = this.#config;
    const { tool, binding } = this.#question;
    const bound = binding.demands?.find(({ limits, notAfter }) => limits.length + notAfter.length);
    if (bound === undefined || isPrincipalRun(this.#run.run)) return;
    const what = bound.limits.length > 0 ? 'a limit' : '"notAfter"';
    warnOnce(
      `tool ${showValue(workflow.keyOf(tool))} of workflow "${workflow.id}" has ${what}, and its ` +
        'run is none of a principal: a client that begins anew has a new run, which knows of no ' +
        'earlier call. Give sessionStore({ key: principalKey() }) where clients sign in.',
    );
  }

  /** Makes the call a step, to be forwarded. */
  #begin(step: Step, at: Standing): Course {
    const config = this.#config;
    const incoming = this.#incoming;
    const run = this.#run;
    const { binding } = this.#question;
    const id = incoming.id as RequestId;
    const { times, clock, workflow } = config;
    this.#question.client?.onNotice(() =>
      clock.after(times.cancelGraceMs, () => this.#giveUp(id, false)),
    );
    run.steppingCall = incoming;
    const { note = {}, isFirst } = step;
    const { position } = at;
    // What is enforced of a run is saved with its first step.
    const enforced = isFirst ? at.enforced : true;
    const marked = typeof enforced === 'object' ? withMark(position, { enforced }) : position;
    const origin = { ...this.#origin, note, isFirst };
    // The loop shield's count is saved even if the call fails.
    const isUpdated = workflow.shield !== undefined;
    step.start(new Moves(config, binding, marked, origin), isUpdated);
    const call = new ClaimedCall(
      { id, era: this.#gate.admission.era, config, run, standing: at },
      step,
    );
    showHandler(incoming, call);
    return call;
  }

  /** The call as its step knows it. Plain data: a task's ticket keeps them in the store. */
  get #origin(): Pick<StepOrigin, 'tool' | 'args' | 'argsText' | 'use'> {
    const { args, roundedText: argsText } = this.#incoming;
    const { tool, used } = this.#question;
    const use = used && { ...used, grantedAt: this.#config.clock.now() };
    return { tool, args: isObject(args) ? args : {}, argsText, ...(use && { use }) };
  }

  // --- let pass, or refused ---------------------------------------------------------------------

  /** Lets a call through that is not enforced, and has it judged behind it. */
  #observe({ enforced }: { readonly enforced: Enforced }): Course {
    const config = this.#config;
    if (enforced === false) config.warnOnce(stillObserved(config.workflow.id));
    const isAwaited = typeof enforced === 'object';
    config.observe(config, this.#gate.exchange, this.#incoming, this.#run, isAwaited);
    return 'forward';
  }

  #refuseFor(why: RefusedAt): Stage {
    this.#why = why;
    return this.#refuse;
  }

  #refuse(): ReturnType<Stage> {
    const { standing, reason, parts: known } = this.#why;
    if (this.#isUnbound && reason !== 'loop' && reason !== 'cancelled') return 'forward';
    const at = standing ?? this.#withoutStanding;
    if (!NEVER_PASSED.includes(reason) && !enforces(at.enforced, this.#question.tool))
      return this.#observe(at);
    // Where the state allows no call, the rules say what is missing.
    const byRules = reason === 'state' && standing ? this.#question.ruled(standing) : undefined;
    // A machine's state does not hang on arguments.
    const isShown = this.#config.workflow.isOrder || byRules?.reason !== 'arguments';
    const parts = (isShown ? byRules?.parts : undefined) ?? known;
    this.#why = { ...this.#why, parts };
    return reason === 'state' || parts !== undefined ? this.#wait : this.#answer;
  }

  /** What is enforced of a run whose standing is not known. */
  get #withoutStanding(): { readonly enforced: Enforced } {
    const { enforce, workflow } = this.#config;
    const said = this.#run.store.switchOf(workflow.id)?.known;
    return { enforced: enforcedOf(enforce, said, this.#run.run, this.#why.snapshot) };
  }

  /**
   * A model may send a call beside the one that it depends on. Where a call that is in flight may
   * lead to where this one is allowed, this one waits for it, and is played again. It holds no
   * claim meanwhile.
   */
  #wait(): ReturnType<Stage> {
    return this.#ahead === undefined ? this.#answer : this.#follow();
  }

  async #follow(): Promise<Course> {
    const run = this.#run;
    const { workflow, times, clock, waiting } = this.#config;
    const key = turnKey({ run: run.run, workflow: workflow.id });
    this.#waitsUntil ??= clock.now() + times.waitMs;
    this.#hasWaited = true;
    for (let ahead = this.#ahead; ahead !== undefined; ahead = this.#ahead) {
      const isElsewhere = ahead === 'elsewhere';
      const waitMs = this.#waitsUntil - clock.now();
      const pauseMs = isElsewhere ? Math.min(waitMs, pauseBefore(this.#attempt)) : waitMs;
      const end = await run.turns.follow(key, pauseMs, this.#request, waiting);
      if (end === 'gone') continue;
      if (end === 'off' || (end === 'time' && !isElsewhere)) break;
      // What this request read of the run is stale.
      run.session.moves++;
      this.#attempt += 1;
      return this.go();
    }
    return this.go(this.#answer);
  }

  /** Where calls are under way that may lead to where this one is allowed; `undefined`: nowhere. */
  get #ahead(): 'here' | 'elsewhere' | undefined {
    const run = this.#run;
    // Another gate has claimed it, or a step of the same request would wait for this one.
    if (run.steppingCall !== undefined || this.#gate.keepsSecrets) return undefined;
    const here = run.turns.inFlight(
      turnKey({ run: run.run, workflow: this.#config.workflow.id }),
      run,
    );
    if (here.length > 0) return this.#mayFollow(here) ? 'here' : undefined;
    const claim = this.#why.standing?.parts.claim;
    return claim?.live === true && this.#mayFollow([claim.tool]) ? 'elsewhere' : undefined;
  }

  /** Whether calls of these tools may lead to where this one is allowed. */
  #mayFollow(tools: readonly string[]): boolean {
    const why = this.#why;
    const at = why.standing;
    if (at === undefined || at.stopped !== undefined) return false;
    // A rule may miss a call with these very values, which one in flight may have.
    if (why.reason === 'guard')
      return mending(why.parts ?? []).some((each) => tools.includes(each));
    return at.workflow.mayLead(at.position, tools, this.#question.binding.states);
  }

  #answer(): ReturnType<Stage> {
    const { tool, binding } = this.#question;
    const run = this.#run;
    const off = this.#hasWaited ? calledOff(this.#request, run.turns) : undefined;
    const why = off ?? { ...this.#why, left: this.#left };
    return this.#gate.refuser.refuse(this.#incoming, tool, why, binding.states, run);
  }

  /** The client's request, which it may cancel. */
  get #request(): InFlight {
    const { id } = this.#incoming;
    this.#inFlight ??= (isRequestId(id) && this.#run.session.inFlight(id)) || new InFlight();
    return this.#inFlight;
  }
}
