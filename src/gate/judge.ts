/**
 * The decision on each gated call: forward it, make it a step, or refuse it. Hides in which order
 * the checks come, what a refusal may tell the client, and what the trail keeps of it.
 */
import { digestOf } from '../digest.ts';
import type { RefusalReason } from '../events.ts';
import { newToken } from '../names.ts';
import { LONGEST_LITERAL } from '../numbers.ts';
import type { CallersHeld } from '../session/held-runs.ts';
import { InFlight } from '../session/live-session.ts';
import { type Admission, deny, type NoRun, type Run, UNKNOWN_SESSION } from '../session/run.ts';
import { claimRun } from '../step/claim.ts';
import { beginsAnew, type CallOrigin, Moves, shownPosition } from '../step/outcome.ts';
import { type NotClaimed, Step } from '../step/step.ts';
import type { CallNote, FsmSnapshot, Json } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { argumentsFault, headerFault } from '../wire/headers.ts';
import {
  isObject,
  isRequestId,
  type JsonObject,
  MOST_DEPTH,
  type RequestId,
} from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import { ANOTHER, type Refusal, type RefusalDetails } from '../workflow/advice.ts';
import { AskedArguments, type CallBinding } from '../workflow/bound-tools.ts';
import type { BoundState, Position } from '../workflow/position.ts';
import {
  admit,
  allowsCall,
  allowsRestart,
  askedCall,
  type NotAdmitted,
  refusedUnclaimed,
  unclear,
  unforeseen,
} from './admit.ts';
import { ClaimedCall, showHandler } from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { type Demand, Gates } from './gates.ts';
import { tellMoved } from './list-changes.ts';
import { RecordedCall } from './recorded-call.ts';
import { askForAlias, badToolName, refusalReply } from './replies.ts';
import {
  awaitedFromOutside,
  beginningOf,
  isShown,
  keepsSecrets,
  type NotFound,
  nameToldOf,
  stateAsRead,
  stateNow,
  understood,
} from './stands.ts';
import { answerStatus } from './status-tool.ts';

const NO_REFUSALS =
  'fsmGate({ trail: { refusals: true } }) has no effect: this store cannot keep refused calls';

const LONG_LITERAL = `a number in them has more than ${LONGEST_LITERAL} characters, which some cut`;

const PROTOTYPE = 'no key in them may be "__proto__", which some parsers read as a prototype';

const TOO_DEEP = `they are nested deeper than ${MOST_DEPTH} objects and lists`;

const TOO_MANY_HELD: NotClaimed = { reason: 'too-many-held' };

/**
 * What becomes of one call. `forward`: it goes on as it is; a {@link ClaimedCall}: it goes on as a
 * step; a {@link RecordedCall}: beside others, to be recorded. `answered`: the gate answered the
 * call, or dropped it; `ended`: it answered the whole request.
 */
export type Verdict = 'forward' | ClaimedCall | RecordedCall | 'answered' | 'ended';

/** Called where a cancelled step did not stop in time; with `isTooLong`, where it ran too long. */
export type GiveUp = (id: RequestId, isTooLong: boolean) => void;

/** A call that a binding matches, of a run that is known. */
interface BoundCall {
  readonly incoming: Call;
  readonly tool: string;
  readonly run: Run;
  readonly binding: CallBinding;
}

/** Decides on each gated call of one exchange. */
export class Judge {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
  }

  get #keepsSecrets(): boolean {
    return keepsSecrets(this.#config, this.#admission);
  }

  judge(incoming: Call, giveUp: GiveUp): MaybePromise<Verdict> {
    const { workflow, status } = this.#config;
    const tool = incoming.message.at('params', 'name');
    if (status !== undefined && tool === status.name)
      return answerStatus(status, this.#config, this.#exchange, {
        admission: this.#admission,
        incoming,
      });
    if (typeof tool !== 'string') return this.#answer(incoming, badToolName(incoming));
    if (!workflow.isBound(tool)) return 'forward';
    const run = this.#admission.runOf(incoming);
    this.#takeHandleOut(incoming);
    const args = new AskedArguments(incoming.sentArguments);
    // No function of the app reads arguments that are too deep: the client has chosen their depth.
    const binding =
      workflow.matchAlways(tool) ?? (incoming.isDeep ? 'failed' : this.#match(tool, args));
    if (binding === undefined || !this.#keepsSecrets)
      return this.#route(incoming, tool, run, binding, args, giveUp);
    // This comes first: a call of a hidden tool must not get an error that only bound tools get.
    return after(this.#isHidden(tool, run), (isHidden) =>
      isHidden
        ? this.#hide(incoming, tool, run)
        : this.#route(incoming, tool, run, binding, args, giveUp),
    );
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
      return after(this.#exchange.reject(400, fault.code, fault.message), () => 'ended' as const);
    if (incoming.isDeep)
      return this.#refuse(incoming, tool, { reason: 'arguments', words: TOO_DEEP }, []);
    if (incoming.namesPrototype)
      return this.#refuse(incoming, tool, { reason: 'arguments', words: PROTOTYPE }, []);
    if (incoming.exactArguments?.hasLongLiteral)
      return this.#refuse(incoming, tool, { reason: 'arguments', words: LONG_LITERAL }, []);
    const refused = unclear(args);
    if (refused !== undefined) return this.#refuse(incoming, tool, refused, []);
    if (binding === undefined) return 'forward';
    if (binding === 'failed') return this.#refuse(incoming, tool, { reason: 'unavailable' }, []);
    if ('advice' in run) return this.#refuseUnnamed(incoming, tool, run);
    const asked = { incoming, tool, run, binding };
    if (binding.kind === 'step' || this.#config.workflow.shield !== undefined)
      return this.#claim(asked, giveUp);
    // Any other call needs no claim: it may run beside others.
    return after(stateNow(this.#config, run), (found) => this.#test(asked, found));
  }

  #match(tool: string, { view }: AskedArguments): CallBinding | 'failed' | undefined {
    try {
      return this.#config.workflow.match(tool, view);
    } catch (error) {
      this.#config.onError(error);
      return 'failed';
    }
  }

  /** Whether the client's list leaves the tool out now. Without a run it leaves out all of them. */
  #isHidden(tool: string, run: Run | NoRun): MaybePromise<boolean> {
    if ('advice' in run) {
      this.#warnOf(run);
      return true;
    }
    return after(
      stateNow(this.#config, run),
      (found) => typeof found !== 'object' || !isShown(this.#config, run, found, tool),
    );
  }

  /** Refuses a call of a tool that the client's list does not show, without saying so. */
  #hide(incoming: Call, tool: string, run: Run | NoRun): MaybePromise<Verdict> {
    this.#tellRefused(incoming, tool, 'advice' in run ? 'no-run' : 'state', undefined);
    return this.#alias(incoming, tool);
  }

  /** Asks the upstream for a tool that does not exist: the client gets its usual error. */
  #alias(incoming: Call, tool: string): MaybePromise<Verdict> {
    const { aliases } = this.#config;
    askForAlias(this.#exchange.req, incoming, ['params', 'name'], aliases.ofName(tool));
    // Gates in front let go of their claims: the tool does not run, so there is no outcome.
    return after(incoming.alias(), () => 'forward' as const);
  }

  #answer(incoming: Call, response: JsonObject): MaybePromise<Verdict> {
    return after(incoming.answerWith(response), () => 'answered' as const);
  }

  #test(asked: BoundCall, found: FsmSnapshot | NotFound): MaybePromise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    if (found === 'unknown') return this.#refuseGone(incoming, tool, run);
    if (typeof found === 'string') return this.#refuseBound(asked, { reason: found });
    if (!allowsCall(this.#config, run, found, asked))
      return this.#refuseBound(asked, { reason: 'state', snapshot: found });
    if (binding.guards.length === 0) return this.#forward(asked, found);
    const call = askedCall(incoming, tool, run);
    return refusedUnclaimed(this.#config, run, binding, found, call).then((refused) =>
      refused === undefined ? this.#forward(asked, found) : this.#refuseBound(asked, refused),
    );
  }

  /** Lets a call run beside others. If its run is to record it, the gate waits for its answer. */
  #forward(asked: BoundCall, found: FsmSnapshot): MaybePromise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    const { id } = incoming;
    if (binding.kind !== 'recorded' || !isRequestId(id)) return 'forward';
    const odd = unforeseen(this.#config, binding, found, () => askedCall(incoming, tool, run));
    if (odd !== undefined) return this.#refuseBound(asked, odd);
    const note = { ...this.#noteOf(incoming, run, tool), digest: digestOfCall(incoming) };
    const origin = { tool, ...argumentsOf(incoming), note };
    const { era } = this.#admission;
    const call = { id, era, config: this.#config, run, binding, number: incoming.number };
    return new RecordedCall(call, { token: newToken(), origin, found });
  }

  #claim(asked: BoundCall, giveUp: GiveUp): MaybePromise<Verdict> {
    const { incoming, run } = asked;
    const { id } = incoming;
    if (!isRequestId(id)) return 'forward';
    const isFull = this.#admission.era === 'session' && this.#admission.session.late.isFull;
    if (isFull || (run.steppingCall !== undefined && run.steppingCall !== incoming))
      return this.#refuseBound(asked, { reason: 'busy' });
    const found = stateAsRead(this.#config, run);
    if (found === 'unreadable') return this.#refuseBound(asked, { reason: found });
    if (found !== undefined && !allowsCall(this.#config, run, found, asked))
      return this.#refuseBound(asked, { reason: 'state', snapshot: found });
    const isRestarted = beginsAnew(this.#config, run.run);
    const restarts = isRestarted && allowsRestart(this.#config, run, asked);
    return after(restarts, (may) => this.#claimRun(asked, id, giveUp, may));
  }

  /** @param restarts whether the call may begin an ended run anew */
  #claimRun(asked: BoundCall, id: RequestId, giveUp: GiveUp, restarts: boolean): Promise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    const { workflow, listed } = this.#config;
    const request = run.session.inFlight(id) ?? new InFlight();
    // Any other call is claimed only for the loop shield's count: it may be repeated.
    const isStep = binding.kind === 'step';
    const uncertain = binding.uncertain ?? (isStep ? listed.uncertainOf(tool) : 'retry');
    const held = uncertain === 'hold' ? this.#held : undefined;
    const wanted = {
      run,
      description: { tool, digest: '', uncertain },
      digest: () => digestOfCall(incoming),
      note: this.#noteOf(incoming, run, tool),
      number: incoming.number,
      states: workflow.claimable(binding, beginsAnew(this.#config, run.run)),
      restarts: restarts ? run : undefined,
      begin: beginningOf(this.#config, run),
      request,
      onTooLong: () => giveUp(id, true),
      held,
    };
    const claim = (): ReturnType<typeof claimRun> =>
      claimRun(this.#config, wanted, (move) => tellMoved(this.#config, this.#admission, run, move));
    const room = held?.hasRoom() ?? true;
    const claimed = isPromise(room)
      ? room.then((isFree) => (isFree ? claim() : TOO_MANY_HELD))
      : claim();
    return claimed.then((step) => {
      // While the call waited, another process may have moved the run: what was read is stale.
      run.session.noteMove();
      if (step instanceof Step) return this.#admit(asked, id, step, request, giveUp);
      if ('fault' in step) this.#config.onError(step.fault);
      if (step.held !== undefined)
        (held ?? this.#held).met(step.held, { run: run.run, workflow: workflow.id });
      return step.reason === 'unknown'
        ? this.#refuseGone(incoming, tool, run)
        : this.#refuseBound(asked, step);
    });
  }

  /** The runs that the caller has left with an unknown outcome. */
  get #held(): CallersHeld {
    const { held } = this.#admission;
    return held.of(this.#admission.ownerOf(this.#exchange.req));
  }

  /** Asks what the store cannot test of a claimed call, and makes it a step. */
  #admit(
    asked: BoundCall,
    id: RequestId,
    step: Step,
    request: InFlight,
    giveUp: GiveUp,
  ): MaybePromise<Verdict> {
    const { incoming, tool, run, binding } = asked;
    const call = (): ReturnType<typeof askedCall> => askedCall(incoming, tool, run);
    return after(admit(this.#config, binding, step, call, request), (position) => {
      if (!('reason' in position)) {
        const { times, clock } = this.#config;
        request.onNotice(() => clock.after(times.cancelGraceMs, () => giveUp(id, false)));
        return this.#begin(asked, id, step, position);
      }
      if (position.moved !== undefined)
        tellMoved(this.#config, this.#admission, run, position.moved);
      return this.#refuseBound(asked, position);
    });
  }

  #refuseBound(
    { incoming, tool, binding }: BoundCall,
    why: NotClaimed | NotAdmitted,
  ): MaybePromise<Verdict> {
    return this.#refuse(incoming, tool, why, binding.states);
  }

  /** Makes the call a step, to be forwarded. */
  #begin(
    { incoming, tool, run, binding }: BoundCall,
    id: RequestId,
    step: Step,
    position: Position,
  ): ClaimedCall {
    run.steppingCall = incoming;
    const { note = {}, isFirst } = step;
    const origin = { tool, ...argumentsOf(incoming), note, isFirst };
    // The loop shield's count is saved even if the call fails.
    const isUpdated = this.#config.workflow.shield !== undefined;
    step.start(new Moves(this.#config, binding, position, origin), isUpdated);
    const call = new ClaimedCall(id, this.#admission.era, this.#config, run, step);
    showHandler(incoming, call);
    return call;
  }

  /** What the trail says of a call, beside the digest of its arguments. */
  #noteOf({ id, message }: Call, { actor }: Run, tool: string): CallNote {
    const { workflow, trail, onError } = this.#config;
    const requestId = isRequestId(id) ? id : undefined;
    const note = { tool, digest: '', actor, requestId, workflowVersion: workflow.version };
    if (trail.args === undefined) return note;
    try {
      const args: unknown = message.at('params', 'arguments') ?? {};
      return { ...note, args: trail.args(structuredClone(args) as Json, { tool }) };
    } catch (error) {
      onError(error);
      return note;
    }
  }

  /** Refuses a call whose claim ended before it was forwarded. */
  refuseLate(incoming: Call): MaybePromise<void> {
    const tool = String(incoming.message.at('params', 'name'));
    const cause = 'its turn ended before it began';
    return after(this.#refuse(incoming, tool, { reason: 'unavailable', cause }, []), () => {});
  }

  /** Adds a refused call to the trail. The client gets its answer even if the store fails. */
  #noteRefusal(
    incoming: Call,
    tool: string,
    run: Run,
    kind: string,
    from: string,
  ): MaybePromise<void> {
    const { workflow, trail, onError } = this.#config;
    if (!trail.refusals) return;
    if (run.store.append === undefined) {
      this.#config.warnOnce(NO_REFUSALS);
      return;
    }
    const note = { ...this.#noteOf(incoming, run, tool), digest: digestOfCall(incoming) };
    return run.store
      .append(
        { run: run.run, workflow: workflow.id },
        { from, event: null, outcome: 'refused', kind, ...note },
      )
      .catch(onError);
  }

  #refuse(
    incoming: Call,
    tool: string,
    why: NotClaimed | NotAdmitted,
    states: readonly BoundState[],
  ): MaybePromise<Verdict> {
    const { reason, snapshot } = why;
    if (reason === 'cancelled' || reason === 'unknown')
      return after(incoming.drop(), () => 'answered' as const);
    const named = this.#admission.runOf(incoming);
    const run = 'run' in named ? named : undefined;
    const shown = snapshot && this.#shownTo(run, snapshot);
    const at = shown ?? snapshot;
    const told = snapshot === undefined || shown !== undefined ? reason : 'unreadable';
    this.#tellRefused(incoming, tool, told, snapshot?.state);
    // While the call waited for its turn, another one moved the run to where the tool is hidden.
    if (this.#keepsSecrets && at && run && !isShown(this.#config, run, at, tool))
      return this.#alias(incoming, tool);
    const details = this.#detailsOf(why, tool, run, at);
    const looked =
      shown && run && Gates.of(this.#config, this.#exchange).look(this.#admission, run, shown);
    const noted = snapshot && run && this.#noteRefusal(incoming, tool, run, told, snapshot.state);
    const known = noted === undefined ? looked : noted.then(() => looked);
    return after(known, (outlook) => {
      const demand = this.#demandOf(incoming, tool);
      const way = reason === 'state' ? outlook?.wayTo(states, demand, tool) : undefined;
      const { path, foreseen = false } = way ?? {};
      const available = outlook?.available ?? [];
      const workflow = this.#config.workflow.id;
      // Nothing from outside helps against a `visible`, which hides what the state allows.
      const isAllowed = shown && this.#config.workflow.allows(shown.state, { states });
      const isStuck = told === 'state' && path === undefined && !isAllowed;
      const since = shown?.version === 0 ? 0 : (snapshot?.updatedAt ?? 0);
      const outside =
        isStuck && run && shown ? awaitedFromOutside(this.#config, run, shown, since) : {};
      const facts = { workflow, state: at?.state, tool, reason: told, available, path };
      const refusal = { ...facts, ...outside };
      return this.#answerRefused(incoming, refusal, { ...details, foreseen });
    });
  }

  /** Where the run stands for its client; `undefined` where this deployment cannot read it. */
  #shownTo(
    run: Run | undefined,
    snapshot: FsmSnapshot,
  ): (Position & { readonly version: number | undefined }) | undefined {
    const stored = understood(this.#config, snapshot)?.position;
    if (stored === undefined) return undefined;
    const position = run === undefined ? stored : shownPosition(this.#config, run.run, stored);
    // A run that is shown at its start begins anew: version 0 gives it the data of `begin`.
    return { ...position, version: position === stored ? snapshot.version : 0 };
  }

  /** What the text of a refusal says beside its facts, as far as it is known without a look. */
  #detailsOf(
    why: NotClaimed | NotAdmitted,
    tool: string,
    run: Run | undefined,
    at: Position | undefined,
  ): RefusalDetails {
    const { workflow } = this.#config;
    const held = 'held' in why && why.held?.tool !== tool ? why.held?.tool : undefined;
    const hasEnded = why.reason === 'state' && at !== undefined && workflow.hasEnded(at.state);
    return {
      heldTool: held && at && run ? nameToldOf(this.#config, run, at, held, ANOTHER) : held,
      words: 'words' in why ? why.words : undefined,
      cause: 'cause' in why ? why.cause : undefined,
      anew: hasEnded ? run?.anew : undefined,
      isOrder: workflow.isOrder,
    };
  }

  /** Gives the states in which another gate allows a call of the tool with these arguments. */
  #demandOf({ message }: Call, tool: string): Demand {
    return ({ workflow, onError }) => {
      try {
        const binding = workflow.match(tool, message.at('params', 'arguments'));
        return binding === undefined ? [] : [binding.states];
      } catch (error) {
        onError(error);
        return undefined;
      }
    };
  }

  /** @param state as the store has it */
  #tellRefused(
    incoming: Call,
    tool: string,
    reason: RefusalReason,
    state: string | undefined,
  ): void {
    const { events, workflow } = this.#config;
    if (!events.isOn) return;
    const { id: requestId, number: call } = incoming;
    const context = this.#admission.runOf(incoming);
    const who = 'run' in context ? { runKey: context.run, actor: context.actor } : {};
    const refused = { workflow: workflow.id, tool, reason, state, requestId, call };
    events.publish({ type: 'call.refused', ...refused, ...who });
  }

  #refuseUnnamed(incoming: Call, tool: string, named: NoRun): MaybePromise<Verdict> {
    const { workflow } = this.#config;
    this.#warnOf(named);
    this.#tellRefused(incoming, tool, 'no-run', undefined);
    const refusal: Refusal = { workflow: workflow.id, tool, reason: 'no-run', available: [] };
    return this.#answerRefused(incoming, refusal, { words: named.advice });
  }

  #warnOf({ warning }: NoRun): void {
    if (warning !== undefined) this.#config.warnOnce(warning);
  }

  #answerRefused(incoming: Call, refusal: Refusal, details: RefusalDetails): MaybePromise<Verdict> {
    return this.#answer(incoming, refusalReply(incoming, refusal, details, this.#admission.era));
  }

  /** The upstream's tools have no argument for a handle that the middleware made. */
  #takeHandleOut({ message }: Call): void {
    const { managed } = this.#admission;
    if (managed !== undefined && message.at('params', 'arguments', managed.argument) !== undefined)
      message.remove(['params', 'arguments'], managed.argument);
  }

  /** The run does not exist any more, and with it the session that named it, if one did. */
  #refuseGone(incoming: Call, tool: string, { gone }: Run): MaybePromise<Verdict> {
    if (gone !== undefined)
      return this.#refuseUnnamed(incoming, tool, { advice: gone, warning: undefined });
    return after(deny(this.#exchange, UNKNOWN_SESSION), () => 'ended' as const);
  }
}

function digestOfCall({ sentArguments }: Call): string {
  return digestOf(sentArguments ?? {});
}

/** Plain data: a task's ticket keeps them in the store. */
function argumentsOf({ message, exactArguments }: Call): Pick<CallOrigin, 'args' | 'argsText'> {
  const args = message.at('params', 'arguments');
  return { args: isObject(args) ? args : {}, argsText: exactArguments?.text };
}
