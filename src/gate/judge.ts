import type { NotClaimed } from '../session/claim.ts';
import { Try } from '../session/current-step.ts';
import { digestOf } from '../session/digest.ts';
import { InFlight } from '../session/in-flight.ts';
import type { Admission, NoRun, RunContext } from '../session/run-context.ts';
import { Step } from '../session/step.ts';
import { turnAwayUnknown } from '../session/turn-away.ts';
import type { StepDescription, Uncertain } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import {
  isObject,
  isRequestId,
  type JsonObject,
  META_PREFIX,
  META_TRY,
  type RequestId,
} from '../wire/json-rpc.ts';
import { argumentsFault, headerFault } from '../wire/mirrors.ts';
import type { Refusal, RefusalDetails } from '../workflow/advice.ts';
import { AskedArguments } from '../workflow/asked-arguments.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { BoundState, Position } from '../workflow/position.ts';
import { admit, askedCall, refusedByGuard, unclear, understood } from './admit.ts';
import { askForAlias } from './alias.ts';
import type { PendingCall } from './call.ts';
import { changedLists } from './changed-lists.ts';
import { claimRun } from './claim-run.ts';
import { beginsAnew, shownPosition, shownState } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import { type Demand, Gates } from './gates.ts';
import { type Move, movesOf } from './move.ts';
import type { NotAdmitted } from './not-admitted.ts';
import { badToolName, refusalReply } from './replies.ts';
import { stateAsRead, stateNow } from './state-now.ts';
import { FacedStep } from './step-facade.ts';
import { stepsNote } from './step-note.ts';
import { keepsSecrets } from './tool-list.ts';

const IDEMPOTENCY_KEY = `${META_PREFIX}idempotencyKey`;

const PROTOTYPE = 'no key in them may be "__proto__", of which some readers make a prototype';

/**
 * What became of one call: it goes on as it is, it goes on as a step, it was answered, or the
 * request was answered as a whole.
 */
export type Verdict = 'forward' | PendingCall | 'answered' | 'ended';

/** A call that holds its run's claim and may be forwarded. */
interface ClaimedCall {
  readonly step: Step;
  readonly binding: CallBinding;
  /** Where it found the run. */
  readonly position: Position;
  readonly context: RunContext;
  readonly request: InFlight;
}

/** Decides about the calls of one exchange before they are forwarded. */
export class Judge {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #giveUp: (id: RequestId, isOver: boolean) => void;

  constructor(
    config: GateConfig,
    exchange: Exchange,
    admission: Admission,
    giveUp: (id: RequestId, isOver: boolean) => void,
  ) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#giveUp = giveUp;
  }

  get #keepsSecrets(): boolean {
    return keepsSecrets(this.#config, this.#admission);
  }

  async judge(incoming: Incoming): Promise<Verdict> {
    const { workflow } = this.#config;
    const { message } = incoming;
    // A handler must be able to trust the key, so nobody but a gate sets it.
    if (
      stepsNote.of(incoming) === undefined &&
      message.at('params', '_meta', IDEMPOTENCY_KEY) !== undefined
    ) {
      message.remove(['params', '_meta'], IDEMPOTENCY_KEY);
    }
    const tool = message.at('params', 'name');
    if (typeof tool !== 'string') {
      await this.#exchange.answer(incoming, badToolName(incoming));
      return 'answered';
    }
    if (!workflow.isBound(tool)) return 'forward';
    const context = this.#admission.runOf(incoming);
    this.#takeHandleOut(incoming);
    const args = new AskedArguments(message.at('params', 'arguments'));
    const binding = this.#match(tool, args);
    // In front of all that is done about bound tools alone: a hidden one must look like none of
    // them.
    if (binding !== undefined && this.#keepsSecrets && (await this.#isHidden(tool, context)))
      return this.#alias(incoming, tool);
    const { req } = this.#exchange;
    const fault =
      headerFault(req, incoming, this.#admission.era) ??
      argumentsFault(req, incoming, this.#config.listed.mirroredOf(tool));
    if (fault !== undefined) {
      await this.#exchange.reject(400, fault.code, fault.message);
      return 'ended';
    }
    if (incoming.namesPrototype())
      return this.#refuse(incoming, tool, { reason: 'arguments', words: PROTOTYPE }, []);
    if (typeof binding === 'object') args.foresee(binding);
    const refused = unclear(args);
    if (refused !== undefined) return this.#refuse(incoming, tool, refused, []);
    if (binding === undefined) return 'forward';
    if (binding === 'failed') return this.#refuse(incoming, tool, { reason: 'unavailable' }, []);
    if ('advice' in context) return this.#refuseUnnamed(incoming, tool, context);
    return binding.moves || workflow.shield !== undefined
      ? this.#claim(incoming, tool, binding, context)
      : this.#test(incoming, tool, binding, context);
  }

  #match(tool: string, { view }: AskedArguments): CallBinding | 'failed' | undefined {
    try {
      return this.#config.workflow.match(tool, view);
    } catch (error) {
      this.#config.onError(error);
      return 'failed';
    }
  }

  /** Whether the list does not show a tool now: no gated one where the run is not known. */
  async #isHidden(tool: string, context: RunContext | NoRun): Promise<boolean> {
    if ('advice' in context) {
      this.#warnOf(tool, context);
      return true;
    }
    const found = await stateNow(this.#config, context);
    return typeof found !== 'object' || !this.#config.workflow.isVisible(tool, found.state);
  }

  /** Has the upstream say that there is no such tool. */
  async #alias(incoming: Incoming, tool: string): Promise<Verdict> {
    const { aliases } = this.#config;
    askForAlias(this.#exchange.req, incoming, ['params', 'name'], aliases.ofName(tool));
    // What a gate in front has claimed for it never runs, so the upstream's answer is no outcome.
    await this.#exchange.callOff(incoming);
    return 'forward';
  }

  /** A call that cannot move the run needs no claim: it may run beside others. */
  async #test(
    incoming: Incoming,
    tool: string,
    binding: CallBinding,
    context: RunContext,
  ): Promise<Verdict> {
    const { states } = binding;
    const found = await stateNow(this.#config, context);
    if (found === 'unknown') return this.#end(incoming, tool, context);
    if (found === 'unavailable')
      return this.#refuse(incoming, tool, { reason: 'unavailable' }, states);
    if (!this.#config.workflow.allows(found.state, binding))
      return this.#refuse(incoming, tool, { reason: 'state', snapshot: found }, states);
    const refused = await refusedByGuard(
      this.#config,
      binding,
      found,
      askedCall(incoming, tool, context),
    );
    return refused === undefined ? 'forward' : this.#refuse(incoming, tool, refused, states);
  }

  async #claim(
    incoming: Incoming,
    tool: string,
    binding: CallBinding,
    context: RunContext,
  ): Promise<Verdict> {
    const { workflow, times, waiting, listed } = this.#config;
    const { id } = incoming;
    if (!isRequestId(id)) return 'forward';
    if (context.step !== undefined && context.step !== incoming) {
      return this.#refuse(incoming, tool, { reason: 'busy' }, binding.states);
    }
    const found = stateAsRead(this.#config, context);
    if (found === 'unavailable')
      return this.#refuse(incoming, tool, { reason: 'unavailable' }, binding.states);
    if (found !== undefined && !workflow.allows(found.state, binding))
      return this.#refuse(incoming, tool, { reason: 'state', snapshot: found }, binding.states);
    const request = context.session.inFlight(id) ?? new InFlight();
    const isRestarted = beginsAnew(this.#config, context.run);
    const wanted = {
      context,
      description: described(
        tool,
        incoming.message.at('params', 'arguments') ?? {},
        // What is a step for the sake of the count alone may be repeated.
        binding.uncertain ?? (binding.moves ? listed.uncertainOf(tool) : 'retry'),
      ),
      states: workflow.claimable(binding, isRestarted),
      restarts: isRestarted && workflow.allows(workflow.initial, binding) ? context : undefined,
      times,
      waiting,
      request,
      onTooLong: () => this.#giveUp(id, true),
    };
    const step = await claimRun(this.#config, wanted, (move) => this.#tellMoved(move, context));
    // It may have waited for its turn, and others may have moved the run meanwhile, in another
    // process too.
    context.session.noteMove();
    if (!(step instanceof Step)) {
      return step.reason === 'unknown'
        ? this.#end(incoming, tool, context)
        : this.#refuse(incoming, tool, step, binding.states);
    }
    const asked = askedCall(incoming, tool, context);
    const position = await admit(this.#config, binding, step, asked, request);
    if ('reason' in position) {
      if (position.moved !== undefined) this.#tellMoved(position.moved, context);
      return this.#refuse(incoming, tool, position, binding.states);
    }
    return this.#begin(incoming, id, { step, binding, position, context, request });
  }

  /** From here on the call is a step, and is forwarded as one. */
  #begin(incoming: Incoming, id: RequestId, claimed: ClaimedCall): PendingCall {
    const { workflow, times, clock, onError } = this.#config;
    const { step, binding, position, context, request } = claimed;
    const held = Try.of(incoming) ?? beginTry(incoming, step);
    context.step = incoming;
    stepsNote.put(incoming, [...(stepsNote.of(incoming) ?? []), step]);
    request.onNotice(() => clock.after(times.cancelGraceMs, () => this.#giveUp(id, false)));
    const moves = movesOf(workflow, binding, position, {
      tool: step.tool,
      args: argumentsOf(incoming),
      actor: context.actor,
      isFirst: step.isFirst,
      onError,
    });
    // What was counted is saved whatever the call comes to.
    const isUpdated = workflow.shield !== undefined;
    const call = { id, step, context, era: this.#admission.era, moves, isUpdated };
    held.add(new FacedStep(call, workflow, () => held.rest()));
    return call;
  }

  /** Refuses a call that lost its claim before it was forwarded. */
  async refuseLate(incoming: Incoming): Promise<void> {
    const tool = String(incoming.message.at('params', 'name'));
    const cause = 'its turn ended before it began';
    await this.#refuse(incoming, tool, { reason: 'unavailable', cause }, []);
  }

  /** A move that was made before the call was forwarded. */
  #tellMoved({ trail }: Move, context: RunContext): void {
    const { workflow, visibility } = this.#config;
    const isHidden = visibility !== 'stable' && !this.#admission.byArgument;
    const shown = (state: string): string => shownState(this.#config, context.run, state);
    const lists = isHidden ? changedLists(workflow, shown(trail.from), shown(trail.to)) : [];
    if (lists.length > 0) context.listChanged(lists, false);
  }

  async #refuse(
    incoming: Incoming,
    tool: string,
    why: NotClaimed | NotAdmitted,
    states: readonly BoundState[],
  ): Promise<Verdict> {
    const { workflow } = this.#config;
    const { reason, snapshot } = why;
    const heldTool = 'held' in why ? why.held?.tool : undefined;
    const words = 'words' in why ? why.words : undefined;
    const cause = 'cause' in why ? why.cause : undefined;
    if (reason === 'cancelled' || reason === 'unknown') {
      await this.#exchange.drop(incoming);
      return 'answered';
    }
    const context = this.#admission.runOf(incoming);
    const stands = snapshot && understood(this.#config, snapshot);
    const position =
      stands && 'run' in context ? shownPosition(this.#config, context.run, stands) : stands;
    const state = (position ?? snapshot)?.state;
    // It was shown when it was called; while it waited for its turn, another call moved the run.
    if (this.#keepsSecrets && state !== undefined && !workflow.isVisible(tool, state))
      return this.#alias(incoming, tool);
    const readable = snapshot === undefined || position !== undefined;
    const gates = Gates.of(this.#config, this.#exchange);
    const outlook =
      position !== undefined && 'run' in context
        ? await gates.look(this.#admission, context, position)
        : undefined;
    const way =
      reason === 'state'
        ? outlook?.wayTo(states, (other) => this.#demandOf(other, incoming, tool))
        : undefined;
    const refusal: Refusal = {
      workflow: workflow.id,
      state,
      tool,
      reason: readable ? reason : 'unavailable',
      available: outlook?.available ?? [],
      path: way?.path,
    };
    const hasEnded = reason === 'state' && state !== undefined && workflow.hasEnded(state);
    const anew = hasEnded && 'anew' in context ? context.anew : undefined;
    const details = { heldTool, words, cause, anew, foreseen: way?.foreseen ?? false };
    await this.#exchange.answer(incoming, this.#reply(incoming, refusal, details));
    return 'answered';
  }

  /** What another gate asks for, to allow this very call. */
  #demandOf(
    { workflow, onError }: GateConfig,
    { message }: Incoming,
    tool: string,
  ): ReturnType<Demand> {
    try {
      const binding = workflow.match(tool, message.at('params', 'arguments'));
      return binding === undefined ? [] : [binding.states];
    } catch (error) {
      onError(error);
      return undefined;
    }
  }

  async #refuseUnnamed(incoming: Incoming, tool: string, named: NoRun): Promise<Verdict> {
    const { workflow } = this.#config;
    this.#warnOf(tool, named);
    const refusal: Refusal = { workflow: workflow.id, tool, reason: 'no-run', available: [] };
    await this.#exchange.answer(incoming, this.#reply(incoming, refusal, { words: named.advice }));
    return 'answered';
  }

  #warnOf(tool: string, { warning }: NoRun): void {
    if (warning !== undefined)
      this.#config.warnOnce(`a call of ${JSON.stringify(tool)} was refused: ${warning}`);
  }

  #reply(incoming: Incoming, refusal: Refusal, details: RefusalDetails): JsonObject {
    return refusalReply(incoming, refusal, details, this.#admission.era);
  }

  /** The upstream knows nothing of handles that the middleware made. */
  #takeHandleOut({ message }: Incoming): void {
    const { managed } = this.#admission;
    if (managed !== undefined && message.at('params', 'arguments', managed.argument) !== undefined)
      message.remove(['params', 'arguments'], managed.argument);
  }

  async #end(incoming: Incoming, tool: string, { gone }: RunContext): Promise<Verdict> {
    if (gone !== undefined)
      return this.#refuseUnnamed(incoming, tool, { advice: gone, warning: undefined });
    await turnAwayUnknown(this.#exchange);
    return 'ended';
  }
}

/**
 * A step as a store is told of it. Its arguments are digested when the store is first asked, and
 * not kept for longer.
 */
function described(tool: string, args: unknown, uncertain: Uncertain): StepDescription {
  let left: { readonly args: unknown } | undefined = { args };
  let digest = '';
  return {
    tool,
    uncertain,
    get digest() {
      if (left !== undefined) digest = digestOf(left.args);
      left = undefined;
      return digest;
    },
  };
}

/** Where two gates claim one call, the handler gets the first one's key. */
function beginTry(incoming: Incoming, { idempotencyKey }: Step): Try {
  const held = Try.begin(incoming);
  const members = { [IDEMPOTENCY_KEY]: idempotencyKey, [META_TRY]: held.id };
  incoming.message.assign(['params', '_meta'], members);
  return held;
}

/** As plain data, which is kept with a task. */
function argumentsOf({ message }: Incoming): JsonObject {
  const args = message.at('params', 'arguments');
  return isObject(args) ? args : {};
}
