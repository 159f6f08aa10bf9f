import { newToken } from '../basics/names.ts';
import type { CallersHeld } from '../session/held-runs.ts';
import { InFlight } from '../session/live-session.ts';
import type { Admission, Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import { claimRun } from '../step/claim.ts';
import { beginsAnew, type CallOrigin, Moves } from '../step/outcome.ts';
import { calledOff, type Refused, Step } from '../step/step.ts';
import type { WorkflowFreeze } from '../step/switch.ts';
import { pauseBefore, turnKey } from '../step/turns.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { ARGUMENTS, type Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { argumentsFault, headerFault } from '../wire/headers.ts';
import { isObject, isRequestId, type RequestId } from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import { AskedArguments, type CallBinding } from '../workflow/bound-tools.ts';
import { NOTHING, type Noted, savedGrant } from '../workflow/facts.ts';
import type { Position } from '../workflow/position.ts';
import { usesCalls } from '../workflow/rules.ts';
import { AFTER } from '../workflow/stored.ts';
import { mending } from '../workflow/verdict.ts';
import { type Admitted, admit } from './admit.ts';
import { ClaimedCall, showHandler } from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import {
  type AskedCall,
  argumentFault,
  askedCall,
  notedOf,
  type RuledCall,
  refusedUnclaimed,
  ruled,
  unforeseen,
} from './consult.ts';
import { decide, NEVER_PASSED, type RefusedCall, whyHidden } from './decide.ts';
import { isBoundBy, isOwnTool, isRefusedUnbound } from './gates.ts';
import { tellMoved, tellOfTime } from './list-changes.ts';
import {
  type Enforced,
  enforcedIn,
  enforces,
  isStepFor,
  modeNow,
  stillObserved,
  withMark,
} from './mode.ts';
import { PassedCall, RecordedCall } from './recorded-call.ts';
import { digestOfCall, type NotLetIn, noteOf, Refuser, verdictAfter } from './refuser.ts';
import { invalidParams, LONGEST_NAME } from './replies.ts';
import {
  type Absent,
  asBegun,
  beginningOf,
  type OperatorsStop,
  Standing,
  standingAsRead,
  standingNow,
  standingOfRefused,
  stoppedByOperators,
} from './standing.ts';
import { answerStatus } from './status-tool.ts';
import { keepsSecrets } from './visibility.ts';

const NO_NAME = 'Invalid params: name must be a string';
const LONG_NAME = `Invalid params: name must have at most ${LONGEST_NAME} characters`;

/** The reasons for which a claim is refused, before which that of a whole workflow comes. */
const AFTER_FROZEN: ReadonlySet<Refused['reason']> = new Set([
  ...(['state', 'busy', 'held', 'too-many-held'] as const),
]);

/**
 * What becomes of one call. `forward`: it goes on as it is; a {@link ClaimedCall}: it goes on as a
 * step; a {@link RecordedCall}: beside others, to be recorded. `answered`: the gate answered the
 * call, or dropped it; `ended`: it answered the whole request.
 */
export type Verdict = NotLetIn | ClaimedCall | RecordedCall;

/** Called where a cancelled step did not stop in time; with `isTooLong`, where it ran too long. */
export type GiveUp = (id: RequestId, isTooLong: boolean) => void;

/** A call that a binding matches, of a run that is known. */
interface BoundCall {
  readonly incoming: Call;
  readonly tool: string;
  readonly run: Run;
  readonly binding: CallBinding;
  readonly giveUp: GiveUp;
  /** Until when it waits for calls before it; absent where it has not waited yet. */
  readonly waitsUntil?: number;
  /** As in {@link RefusedCall.left}. */
  readonly left?: string | undefined;
  /** How often it was judged before. */
  readonly attempt?: number;
  /** What the app's functions are told of it, made when something reads it. */
  readonly asked: () => AskedCall;
  /** What rules may ask of its arguments later. */
  readonly noted: Noted;
}

/** Decides on each gated call of one exchange. */
export class Judge {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #keepsSecrets: boolean;
  readonly #refuser: Refuser;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#keepsSecrets = keepsSecrets(config, admission);
    this.#refuser = new Refuser(config, exchange, admission, this.#keepsSecrets);
  }

  /** @param found the call's run, once it has room */
  judge(incoming: Call, giveUp: GiveUp, found?: Run | NoRun): MaybePromise<Verdict> {
    const { workflow, status, warnOnce } = this.#config;
    const tool = incoming.named;
    if (status !== undefined && tool === status.name)
      return answerStatus(status, this.#config, this.#exchange, this.#admission, incoming);
    if (typeof tool !== 'string')
      return this.#refuser.answer(incoming, invalidParams(incoming, NO_NAME));
    if (!isBoundBy(this.#config, tool, this.#exchange, this.#admission))
      return this.#judgeUnbound(incoming, tool, giveUp);
    if (isMadeUp(tool, this.#config))
      return this.#keepsSecrets
        ? this.#refuser.hide(incoming, tool, 'state')
        : this.#refuser.answer(incoming, invalidParams(incoming, LONG_NAME));
    const run = found ?? this.#admission.runOf(incoming);
    if (found === undefined && 'run' in run && run.isNamed)
      return after(this.#admission.roomFor(run, this.#exchange.req), (room) =>
        this.judge(incoming, giveUp, room),
      );
    if (this.#passesAll(run)) return this.#observeUnlessFrozen(incoming, tool, run);
    const { managed, unconnected } = this.#admission;
    // Also a call that no binding is about: its client reconnects before it uses such a tool.
    if (unconnected !== undefined)
      return this.#keepsSecrets
        ? this.#refuser.hide(incoming, tool, 'no-run')
        : this.#refuser.refuseUnnamed(incoming, tool, unconnected);
    // The upstream's tools have no argument for a handle that the middleware made.
    if (managed !== undefined && incoming.message.at(...ARGUMENTS, managed.argument) !== undefined)
      incoming.message.remove(ARGUMENTS, managed.argument);
    const args = AskedArguments.later(() => incoming.sentArguments);
    // No function of the app reads arguments that are too deep: the client has chosen their depth.
    const binding =
      workflow.matchAlways(tool) ?? (incoming.isDeep ? 'failed' : this.#match(tool, args));
    if (binding === undefined || !this.#keepsSecrets)
      return this.#route(incoming, tool, run, binding, args, giveUp);
    // This comes first: a call of a hidden tool must not get an error that only bound tools get.
    if ('advice' in run) {
      if (run.warning !== undefined) warnOnce(run.warning);
      return this.#refuser.hide(incoming, tool, 'no-run');
    }
    return after(standingNow(this.#config, run), (standing) =>
      typeof standing === 'object' && standing.shows(tool)
        ? this.#route(incoming, tool, run, binding, args, giveUp)
        : this.#refuser.hide(incoming, tool, whyHidden(standing, tool)),
    );
  }

  /** Whether each call of the gate passes as it is, as far as this process knows. */
  #passesAll(run: Run | NoRun): boolean {
    const { enforce } = this.#config;
    return modeNow(enforce, this.#saidOf(run)?.mode) === false;
  }

  /** What operators have said, as this process knows it; `undefined` where it does not. */
  #saidOf(run: Run | NoRun): WorkflowFreeze | undefined {
    const { workflow } = this.#config;
    const store = 'run' in run ? run.store : this.#admission.store;
    const known = store.switchOf(workflow.id)?.known;
    return known === 'unread' ? undefined : known;
  }

  /** A freeze refuses also what is only observed. */
  #observeUnlessFrozen(incoming: Call, tool: string, run: Run | NoRun): MaybePromise<Verdict> {
    if (!('run' in run)) return this.#observe(incoming, run, false);
    return after(stoppedByOperators(this.#config, run, tool), (stopped) => {
      if (stopped?.reason === 'frozen')
        return this.#refuser.refuse(incoming, tool, stopped, [], run);
      // Meanwhile an operator may have said that gates enforce.
      return this.#passesAll(run)
        ? this.#observe(incoming, run, false)
        : this.judge(incoming, () => {}, run);
    });
  }

  /** Lets a call through as it is, and has it judged behind it. */
  #observe(incoming: Call, run: Run | NoRun, isAwaited: boolean): Verdict {
    this.#config.observe(this.#config, this.#exchange, incoming, run, isAwaited);
    return 'forward';
  }

  /** What is enforced of a run, as it was found. */
  #enforcedOf(run: Run, snapshot: FsmSnapshot | undefined): Enforced {
    const { workflow, warnOnce } = this.#config;
    const enforced = enforcedIn(this.#config, run, snapshot);
    if (enforced === false) warnOnce(stillObserved(workflow.id));
    return enforced;
  }

  #judgeUnbound(incoming: Call, tool: string, giveUp: GiveUp): MaybePromise<Verdict> {
    if (!isRefusedUnbound(tool, this.#config, this.#exchange, this.#admission))
      return this.#countUnbound(incoming, tool, giveUp);
    // No list has it, also where lists show the tools of all states.
    if (this.#config.refusal === 'unknown-tool')
      return this.#refuser.hide(incoming, tool, 'unbound');
    if (isMadeUp(tool, this.#config))
      return this.#refuser.answer(incoming, invalidParams(incoming, LONG_NAME));
    const run = this.#admission.runOf(incoming);
    const now = 'run' in run ? standingNow(this.#config, run) : undefined;
    return after(now, (standing) =>
      this.#refuser.refuse(incoming, tool, { reason: 'unbound', ...at(standing) }, [], run),
    );
  }

  /** Has the loop shield count a call of a tool that is not bound, where it is to. */
  #countUnbound(incoming: Call, tool: string, giveUp: GiveUp): MaybePromise<Verdict> {
    const { workflow, listed, enforce } = this.#config;
    const binding = workflow.shield?.unboundCalls;
    // Clients make names up, and a status tool is how a model finds its way out of a loop.
    const isCounted = binding !== undefined && listed.schemasOf(tool) !== undefined;
    if (!isCounted || isOwnTool(tool, this.#exchange, this.#admission)) return 'forward';
    const found = this.#admission.runOf(incoming);
    if (!('run' in found) || modeNow(enforce, this.#saidOf(found)?.mode) !== true) return 'forward';
    const room = found.isNamed ? this.#admission.roomFor(found, this.#exchange.req) : found;
    return after(room, (run) => {
      if (!('run' in run)) return 'forward';
      const asked = (): AskedCall => askedCall(incoming, tool, run);
      return this.#decide({ incoming, tool, run, binding, giveUp, asked, noted: NOTHING });
    });
  }

  #route(
    incoming: Call,
    tool: string,
    run: Run | NoRun,
    binding: CallBinding | 'failed' | undefined,
    args: AskedArguments,
    giveUp: GiveUp,
  ): MaybePromise<Verdict> {
    const { req } = this.#exchange;
    const fault =
      headerFault(req, incoming, this.#admission.era) ??
      argumentsFault(req, incoming, this.#config.listed.mirroredOf(tool));
    if (fault !== undefined)
      return verdictAfter(this.#exchange.reject(400, fault.code, fault.message), 'ended');
    const words = argumentFault(incoming, args);
    if (words !== undefined)
      return this.#refuser.refuse(incoming, tool, { reason: 'arguments', words }, []);
    if (binding === undefined) return 'forward';
    if (binding === 'failed')
      return this.#refuser.refuse(incoming, tool, { reason: 'unavailable' }, []);
    if ('advice' in run) return this.#refuser.refuseUnnamed(incoming, tool, run);
    let made: AskedCall | undefined;
    const asked = (): AskedCall => {
      made ??= askedCall(incoming, tool, run);
      return made;
    };
    const { workflow, warnOnce } = this.#config;
    const cause = run.store.isMemory
      ? undefined
      : workflow.rules.ledger?.faultOfNames(workflow.keyOf(tool));
    if (cause !== undefined) {
      warnOnce(`workflow "${workflow.id}": ${cause}`);
      return this.#refuser.refuse(incoming, tool, { reason: 'unavailable', cause }, []);
    }
    const noted =
      this.#config.workflow.rules.ledger === undefined ? NOTHING : notedOf(this.#config, asked());
    if ('reason' in noted) return this.#refuser.refuse(incoming, tool, noted, binding.states, run);
    return this.#decide({ incoming, tool, run, binding, giveUp, asked, noted });
  }

  #decide(asked: BoundCall): MaybePromise<Verdict> {
    const { tool, run, binding } = asked;
    // Asked beside the claim or the read, and never before it. It counts once the call goes on.
    const stopped = stoppedByOperators(this.#config, run, tool);
    const now = modeNow(this.#config.enforce, this.#saidOf(run)?.mode);
    const { workflow } = this.#config;
    // Where the run says so, the call must not even wait for others.
    if (typeof now === 'object' && !enforces(now, tool) && !isStepFor(workflow, now, tool))
      return after(standingNow(this.#config, run), (standing) => {
        const { snapshot } = typeof standing === 'object' ? standing : {};
        const isStep = binding.kind === 'step' && enforces(this.#enforcedOf(run, snapshot), tool);
        return isStep ? this.#claim(asked) : this.#test(asked, standing);
      });
    // A call that is known to be stopped claims nothing. So it is refused even if operators let it
    // go on meanwhile.
    if (!isPromise(stopped) && stopped?.reason === 'frozen')
      return after(standingNow(this.#config, run), (standing) =>
        this.#test(asked, standing, stopped),
      );
    if (binding.kind === 'step' || this.#config.workflow.shield !== undefined)
      return this.#claim(asked);
    // Any other call needs no claim: it may run beside others.
    return after(standingNow(this.#config, run), (standing) => this.#test(asked, standing));
  }

  #match(tool: string, { view }: AskedArguments): CallBinding | 'failed' | undefined {
    const { workflow, listed, warnOnce, onError } = this.#config;
    const clash = workflow.clashOf(tool, 'each name that two globs match');
    if (clash !== undefined) {
      // A list has told of a name that it showed. Clients make others up: those are told together.
      if (listed.mirroredOf(tool) === undefined) warnOnce(clash);
      return 'failed';
    }
    try {
      return workflow.match(tool, view);
    } catch (error) {
      onError(error);
      return 'failed';
    }
  }

  /**
   * Decides about a call that needs no claim.
   *
   * @param known why no call of the tool goes on; `undefined`: it is asked here
   */
  #test(
    asked: BoundCall,
    standing: Standing | Absent,
    known?: OperatorsStop,
  ): MaybePromise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    const isBarred = typeof standing === 'string' || standing.stopped !== undefined;
    const before = isBarred ? undefined : (known ?? stoppedByOperators(this.#config, run, tool));
    return after(before, (stopped) => {
      if (stopped !== undefined) return this.#refuseBound(asked, { ...stopped, ...at(standing) });
      const snapshot = typeof standing === 'object' ? standing.snapshot : undefined;
      const enforced = this.#enforcedOf(run, snapshot);
      if (!enforces(enforced, tool) && standing !== 'unknown')
        return this.#observe(incoming, run, typeof enforced === 'object');
      const reason = decide(standing, { tool, binding });
      if (reason === 'unknown') return this.#refuser.refuseGone(incoming, tool, run);
      if (typeof standing === 'string')
        return this.#refuseBound(asked, { reason: reason ?? 'unavailable' });
      tellOfTime(this.#config, this.#admission, run, standing);
      if (reason !== undefined) return this.#refuseBound(asked, { reason, standing });
      const use = ruled(binding, standing, asked.asked, asked.noted);
      if (use !== undefined && 'reason' in use) return this.#refuseBound(asked, use);
      if (binding.guards.length === 0) return this.#forward(asked, standing, use);
      const call = asked.asked();
      return refusedUnclaimed(this.#config, run, binding.guards, standing, call).then((refused) =>
        // Again, since guards may take seconds.
        after(refused ?? stoppedByOperators(this.#config, run, tool), (why) =>
          why === undefined
            ? this.#forward(asked, standing, use)
            : this.#refuseBound(asked, { standing, ...why }),
        ),
      );
    });
  }

  /** Lets a call run beside others. If its run is to record it, the gate waits for its answer. */
  #forward(
    asked: BoundCall,
    standing: Standing,
    ruledBy: RuledCall | undefined,
  ): MaybePromise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    const { id } = incoming;
    if (binding.kind !== 'recorded' || !isRequestId(id)) {
      incoming.holders = [...incoming.holders, new PassedCall(this.#config, run, standing)];
      return 'forward';
    }
    const odd = unforeseen(binding, standing, asked.asked);
    if (odd !== undefined) return this.#refuseBound(asked, odd);
    const note = { ...noteOf(this.#config, incoming, run, tool), digest: digestOfCall(incoming) };
    const use = ruledBy && { ...ruledBy, grantedAt: this.#config.clock.now() };
    const origin = { tool, ...argumentsOf(incoming), note, ...(use && { use }) };
    const { era } = this.#admission;
    const call = { id, era, config: this.#config, run, binding, number: incoming.number };
    const key = turnKey({ run: run.run, workflow: this.#config.workflow.id });
    const onOver = run.turns.lookUp(key, { tool, of: run });
    return new RecordedCall(
      { ...call, onOver },
      { token: newToken(), origin, found: standing.snapshot },
    );
  }

  #claim(asked: BoundCall): MaybePromise<Verdict> {
    const { incoming, run } = asked;
    const { id } = incoming;
    if (!isRequestId(id)) return 'forward';
    const isFull = this.#admission.era === 'session' && this.#admission.session.late.isFull;
    if (isFull || (run.steppingCall !== undefined && run.steppingCall !== incoming))
      return this.#refuseBound(asked, { reason: 'busy' });
    const { tool, binding } = asked;
    const standing = standingAsRead(this.#config, run);
    const reason = standing && decide(standing, { tool, binding });
    if (reason !== undefined) {
      const found =
        typeof standing === 'object'
          ? ruled(binding, standing, asked.asked, asked.noted)
          : undefined;
      const parts = found !== undefined && 'reason' in found ? found.parts : undefined;
      return this.#refuseBound(asked, { reason, ...at(standing), parts });
    }
    const { begin, workflow } = this.#config;
    const isRestarted = this.#beginsAnew(asked);
    // Only `begin` says where such a run begins anew: it is asked once it has to.
    const isPlaced = begin !== undefined && workflow.starts.length > 0;
    const restarts = isRestarted && (isPlaced || this.#allowsRestart(asked));
    return isPromise(restarts)
      ? restarts.then((may) => this.#claimRun(asked, id, may))
      : this.#claimRun(asked, id, restarts);
  }

  /** Whether calls begin an ended run anew. Those of unbound tools begin none. */
  #beginsAnew({ run, binding }: BoundCall): boolean {
    const { workflow } = this.#config;
    return binding !== workflow.shield?.unboundCalls && beginsAnew(this.#config, run.run);
  }

  /** Whether the call may begin an ended run anew: the initial state and data must allow it. */
  #allowsRestart({ tool, run, binding }: BoundCall): MaybePromise<boolean> {
    const now = run.fresh()?.now ?? this.#config.clock.now();
    const start = Standing.of(this.#config, run, undefined, now);
    // Only a `visible` reads the data.
    const begun = binding.veils === undefined ? start : asBegun(this.#config, run, start);
    return after(begun, (standing) => decide(standing, { tool, binding }) === undefined);
  }

  /** @param restarts whether the call may begin an ended run anew */
  #claimRun(asked: BoundCall, id: RequestId, restarts: boolean): Promise<Verdict> {
    const { incoming, tool, run, binding, giveUp } = asked;
    const { workflow, listed, clock, times } = this.#config;
    const request = run.session.inFlight(id) ?? new InFlight();
    // Any other call is claimed only for the loop shield's count: it may be repeated.
    const isStep = binding.kind === 'step';
    const uncertain = binding.uncertain ?? (isStep ? listed.uncertainOf(tool) : 'retry');
    const held = uncertain === 'hold' ? this.#held : undefined;
    const room = held?.hasRoom() ?? true;
    const { waitsUntil = clock.now() + times.waitMs } = asked;
    let closed: Standing | undefined;
    let left: string | undefined;
    const opens = (begun: Position): boolean => {
      const standing = Standing.of(this.#config, run, undefined, clock.now()).begunAt(begun);
      if (decide(standing, { tool, binding }) === undefined) return true;
      closed = standing;
      return false;
    };
    const usesUp = binding.demands?.some(usesCalls) === true;
    const known = usesUp ? standingAsRead(this.#config, run) : undefined;
    const guess = typeof known === 'object' ? this.#grantIn(asked, known) : undefined;
    const use = guess ?? savedGrant({ noted: asked.noted, uses: [] });
    const wanted = {
      run,
      description: { tool, digest: '', uncertain, ...(use !== undefined && { use }) },
      grant: usesUp ? (step: Step) => this.#grantOf(asked, step) : undefined,
      digest: () => digestOfCall(incoming),
      note: noteOf(this.#config, incoming, run, tool),
      number: incoming.number,
      isAgain: asked.attempt !== undefined,
      waitMs: asked.waitsUntil && Math.max(0, asked.waitsUntil - clock.now()),
      states: workflow.claimable(binding, this.#beginsAnew(asked)),
      restarts: restarts ? run : undefined,
      begin: beginningOf(this.#config, run),
      stops: () => stoppedByOperators(this.#config, run, tool),
      opens,
      request,
      onTooLong: () => giveUp(id, true),
      held,
    };
    const claim = (): ReturnType<typeof claimRun> =>
      claimRun(this.#config, wanted, (move) => {
        if (move.trail.event === AFTER) left = move.trail.from;
        tellMoved(this.#config, this.#admission, run, move);
      });
    const claimed = isPromise(room)
      ? room.then((isFree) => (isFree ? claim() : ({ reason: 'too-many-held' } as const)))
      : claim();
    return claimed.then((step) => {
      // While the call waited, another process may have moved the run: what was read is stale.
      run.session.noteMove();
      if (step instanceof Step) {
        const enforced = this.#enforcedOf(run, step.snapshot);
        const isLenient = typeof enforced === 'object' && isStepFor(workflow, enforced, tool);
        if (enforces(enforced, tool) || isLenient)
          return this.#admit({ ...asked, left, waitsUntil }, id, step, request);
        return step
          .withdraw()
          .then(() => this.#observe(incoming, run, typeof enforced === 'object'));
      }
      if ('fault' in step) this.#config.onError(step.fault);
      if (step.held !== undefined)
        (held ?? this.#held).met(step.held, { run: run.run, workflow: workflow.id });
      const refuse = (): MaybePromise<Verdict> => {
        if (step.reason === 'unknown') return this.#refuser.refuseGone(incoming, tool, run);
        const why = closed === undefined ? step : { ...step, standing: closed };
        // A run that operators have stopped is not told to wait or to go another way.
        const stopped = AFTER_FROZEN.has(step.reason)
          ? stoppedByOperators(this.#config, run, tool)
          : undefined;
        return after(stopped, (found) =>
          this.#refuseBound(
            { ...asked, left, waitsUntil },
            found?.reason === 'frozen' ? { ...why, ...found } : why,
          ),
        );
      };
      const { isOpenWhileHeld } = binding;
      const isHeld = step.reason === 'held' || step.reason === 'too-many-held';
      if (!isHeld || isOpenWhileHeld === undefined) return refuse();
      // A held run grants no claim, and a read needs none.
      return Promise.resolve(standingNow(this.#config, run)).then((now) =>
        typeof now === 'object' && isOpenWhileHeld(now.state) ? this.#test(asked, now) : refuse(),
      );
    });
  }

  /** What a call is granted where its run stands; `undefined` where it is refused. */
  #grantIn({ binding, asked, noted }: BoundCall, standing: Standing): Json | undefined {
    const found = ruled(binding, standing, asked, noted);
    if (found !== undefined && 'reason' in found) return undefined;
    return savedGrant({ noted, uses: found?.uses ?? [] });
  }

  /** What the claim of a step is to save; as it was asked with, where the step will not go on. */
  #grantOf(asked: BoundCall, step: Step): Json | undefined {
    const { understood, description } = step;
    if (understood === undefined || understood.expiry !== undefined) return description.use;
    const standing = Standing.ofStep(this.#config, asked.run, step, understood.position);
    return this.#grantIn(asked, standing) ?? description.use;
  }

  /** The runs that the caller has left with an unknown outcome. */
  get #held(): CallersHeld {
    const { held } = this.#admission;
    return held.of(this.#admission.ownerOf(this.#exchange.req));
  }

  /** Asks what the store cannot test of a claimed call, and makes it a step. */
  #admit(asked: BoundCall, id: RequestId, step: Step, request: InFlight): MaybePromise<Verdict> {
    const { run, binding, giveUp, noted } = asked;
    const call = { run, step, binding, request, asked: asked.asked, noted };
    return after(admit(this.#config, call), (admitted) => {
      tellOfTime(this.#config, this.#admission, run, admitted.standing);
      if (!('reason' in admitted)) {
        const { times, clock } = this.#config;
        request.onNotice(() => clock.after(times.cancelGraceMs, () => giveUp(id, false)));
        return this.#begin(asked, id, step, admitted);
      }
      if (admitted.moved !== undefined)
        tellMoved(this.#config, this.#admission, run, admitted.moved);
      return this.#refuseBound(asked, admitted);
    });
  }

  #refuseBound(asked: BoundCall, refused: RefusedCall): MaybePromise<Verdict> {
    const { incoming, tool, run, binding, left } = asked;
    const { standing, snapshot = standing?.snapshot, reason } = refused;
    const isUnbound = binding === this.#config.workflow.shield?.unboundCalls;
    if (isUnbound && reason !== 'loop' && reason !== 'cancelled') return 'forward';
    const enforced = NEVER_PASSED.has(reason) ? true : this.#enforcedOf(run, snapshot);
    if (!enforces(enforced, tool))
      return this.#observe(incoming, run, typeof enforced === 'object');
    const why = this.#withParts(asked, refused);
    return (
      (why.reason === 'state' || why.parts !== undefined ? this.#follow(asked, why) : undefined) ??
      this.#refuser.refuse(
        incoming,
        tool,
        left === undefined ? why : { ...why, left },
        binding.states,
        run,
      )
    );
  }

  /** Where the state allows no call, the rules say what is missing. */
  #withParts({ binding, asked, noted }: BoundCall, why: RefusedCall): RefusedCall {
    const { reason, standing, parts } = why;
    if (reason !== 'state' || parts !== undefined || standing === undefined) return why;
    const found = ruled(binding, standing, asked, noted);
    return found !== undefined && 'reason' in found ? { ...why, parts: found.parts } : why;
  }

  /**
   * A model may send a call beside the one that it depends on. Where a call that is in flight may
   * lead to where this one is allowed, this one waits for it, and is judged again. It holds no
   * claim meanwhile. `undefined` where it does not wait.
   */
  #follow(asked: BoundCall, why: RefusedCall): Promise<Verdict> | undefined {
    const { incoming, tool, run, binding, attempt = 0 } = asked;
    const { workflow, times, clock, waiting } = this.#config;
    // Another gate has claimed it, or a step of the same request would wait for this one.
    if (run.steppingCall !== undefined || this.#keepsSecrets) return undefined;
    const key = turnKey({ run: run.run, workflow: workflow.id });
    const here = run.turns.inFlight(key, run);
    const claim = why.standing?.parts.claim;
    const isElsewhere = here.length === 0 && claim?.live === true;
    const tools = isElsewhere ? [claim.tool] : here;
    if (tools.length === 0) return undefined;
    const standing = why.standing ?? standingOfRefused(this.#config, run, why);
    if (typeof standing !== 'object' || standing.stopped !== undefined) return undefined;
    // A rule may miss a call with these very values, which one in flight may have.
    const mends =
      why.reason === 'guard' && mending(why.parts ?? []).some((each) => tools.includes(each));
    if (
      why.reason === 'guard' ? !mends : !workflow.mayLead(standing.position, tools, binding.states)
    )
      return undefined;
    const waitsUntil = asked.waitsUntil ?? clock.now() + times.waitMs;
    const waitMs = waitsUntil - clock.now();
    const { id } = incoming;
    const request = (isRequestId(id) && run.session.inFlight(id)) || new InFlight();
    const refuse = (): MaybePromise<Verdict> => {
      const told = calledOff(request, run.turns) ?? why;
      return this.#refuser.refuse(incoming, tool, told, binding.states, run);
    };
    const pauseMs = isElsewhere ? Math.min(waitMs, pauseBefore(attempt)) : waitMs;
    return run.turns.follow(key, pauseMs, request, waiting).then((end) => {
      if (end === 'off' || (end === 'time' && !isElsewhere)) return refuse();
      if (end === 'gone') return this.#follow({ ...asked, waitsUntil }, why) ?? refuse();
      // What this request read of the run is stale.
      run.session.noteMove();
      return this.#decide({ ...asked, waitsUntil, attempt: attempt + 1 });
    });
  }

  /** Makes the call a step, to be forwarded. */
  #begin(
    { incoming, tool, run, binding }: BoundCall,
    id: RequestId,
    step: Step,
    { position, use }: Admitted,
  ): ClaimedCall {
    run.steppingCall = incoming;
    const { note = {}, isFirst } = step;
    const enforced = isFirst ? this.#enforcedOf(run, undefined) : true;
    const marked = typeof enforced === 'object' ? withMark(position, { enforced }) : position;
    const origin = { tool, ...argumentsOf(incoming), note, isFirst, ...(use && { use }) };
    // The loop shield's count is saved even if the call fails.
    const isUpdated = this.#config.workflow.shield !== undefined;
    step.start(new Moves(this.#config, binding, marked, origin), isUpdated);
    const { era } = this.#admission;
    const call = new ClaimedCall({ id, era, config: this.#config, run }, step);
    showHandler(incoming, call);
    return call;
  }

  /** Refuses a call that has its claim, before it is forwarded. */
  refuseLate(incoming: Call, why: RefusedCall): MaybePromise<void> {
    return after(this.#refuser.refuse(incoming, String(incoming.named), why, []), () => {});
  }
}

function at(standing: Standing | Absent | undefined): Pick<RefusedCall, 'standing'> {
  return typeof standing === 'object' ? { standing } : {};
}

/**
 * Whether a client made the name up: none that is so long is bound by name. Stores keep the names
 * of calls, and clients choose those that a glob binds.
 */
function isMadeUp(tool: string, { workflow }: GateConfig): boolean {
  return tool.length > LONGEST_NAME && !workflow.names(tool);
}

/** Plain data: a task's ticket keeps them in the store. */
function argumentsOf({ args, roundedText }: Call): Pick<CallOrigin, 'args' | 'argsText'> {
  return { args: isObject(args) ? args : {}, argsText: roundedText };
}
