/**
 * A call that a gate does not let in, and its answer. Hides what a refusal may say to the client,
 * and what the trail keeps of it.
 */
import type { RefusalReason } from '../basics/reasons.ts';
import { type Admission, deny, type Run, UNKNOWN_SESSION } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import type { CallNote, Json } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isRequestId, type JsonObject } from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import { type Refusal, type RefusalDetails, refusalWords } from '../workflow/advice.ts';
import type { BoundState } from '../workflow/position.ts';
import { partsNaming, partsToReport, retryOf } from '../workflow/rule-words.ts';
import { detailsOf, type Outlet, outletFrom } from './advise.ts';
import type { GateConfig } from './config.ts';
import { type RefusedAt, whyHidden } from './decide.ts';
import type { Demand } from './gates.ts';
import { askForAlias, refusalReply } from './replies.ts';
import { errorsWithin } from './try-errors.ts';

const NO_REFUSALS =
  'fsmGate({ trail: { refusals: true } }) has no effect: this store cannot keep refused calls';

/**
 * `answered`: the gate answered the call, or dropped it. `ended`: it answered the whole request.
 * `forward`: the upstream gets it under a name that it does not know.
 */
export type NotLetIn = 'forward' | 'answered' | 'ended';

/** Answers the calls of one exchange that a gate does not let in. */
export class Refuser {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #keepsSecrets: boolean;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission, keepsSecrets: boolean) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#keepsSecrets = keepsSecrets;
  }

  /** Refuses a call of a tool that the client's list does not show, without saying so. */
  hide(incoming: Call, tool: string, reason: RefusalReason): MaybePromise<NotLetIn> {
    this.#reportRefused(incoming, tool, reason, undefined);
    return this.#alias(incoming, tool);
  }

  /** Asks the upstream for a tool that does not exist: the client gets its usual error. */
  #alias(incoming: Call, tool: string): MaybePromise<NotLetIn> {
    const { aliases } = this.#config;
    askForAlias(this.#exchange.req, incoming, ['params', 'name'], aliases.ofName(tool));
    // Gates in front let go of their claims: the tool does not run, so there is no outcome.
    return verdictAfter(incoming.alias(), 'forward');
  }

  answer(incoming: Call, response: JsonObject): MaybePromise<NotLetIn> {
    return verdictAfter(incoming.answerWith(response), 'answered');
  }

  /**
   * Adds a refused call to the trail. The client gets its answer even if the store fails.
   *
   * @param from as the store has it
   */
  #noteRefusal(
    incoming: Call,
    run: Run,
    { tool, reason: kind }: Refusal,
    words: string,
    from: string,
  ): MaybePromise<void> {
    const { workflow, onError } = this.#config;
    if (run.store.append === undefined) {
      this.#config.warnOnce(NO_REFUSALS);
      return;
    }
    const note = { ...noteOf(this.#config, incoming, run, tool), digest: incoming.digest };
    return run.store
      .append(
        { run: run.run, workflow: workflow.id },
        { from, event: null, outcome: 'refused', kind, ...note, errors: errorsWithin(words) },
      )
      .catch(onError);
  }

  refuse(
    incoming: Call,
    tool: string,
    why: RefusedAt,
    states: readonly BoundState[],
    named: Run | NoRun = this.#admission.runOf(incoming),
  ): MaybePromise<NotLetIn> {
    const { reason, standing: known } = why;
    if (reason === 'cancelled' || reason === 'unknown')
      return verdictAfter(incoming.drop(), 'answered');
    const run = 'run' in named ? named : undefined;
    const state = known?.state;
    this.#reportRefused(incoming, tool, reason, state);
    // While the call waited for its turn, another one moved the run to where the tool is hidden.
    const isHidden = (): boolean => known === undefined || whyHidden(known, tool) !== undefined;
    if (this.#keepsSecrets && run && state !== undefined && isHidden())
      return this.#alias(incoming, tool);
    const isShown = (each: string): boolean => known?.nameShown(each) !== undefined;
    const parts = partsNaming(why.parts ?? [], isShown);
    const details = detailsOf(this.#config, { ...why, parts }, tool, { run, standing: known });
    const demand: Demand = ({ workflow, onError }) => {
      try {
        const binding = workflow.match(tool, incoming.args);
        return binding === undefined ? [] : [binding.states];
      } catch (error) {
        onError(error);
        return undefined;
      }
    };
    const goal = reason === 'state' ? { states, demand, tool } : undefined;
    const outlet =
      run && known && outletFrom(this.#config, this.#exchange, this.#admission, run, known, goal);
    return after(outlet, (leads) => {
      const { foreseen, ...found } = leads ?? NO_OUTLET;
      const { stops } = why;
      const isStopped = (each: string): boolean =>
        stops === 'workflow' ? this.#config.workflow.isBound(each) : each === tool;
      const available =
        stops === undefined ? found.available : found.available.filter((each) => !isStopped(each));
      const workflow = this.#config.workflow.id;
      const ruledBy = parts.length === 0 ? {} : { parts: partsToReport(parts), ...retryOf(parts) };
      const refusal = { workflow, state, tool, reason, ...found, available, ...ruledBy };
      const said = { ...details, foreseen };
      const own = reason === 'guard' ? why.words : undefined;
      const noted =
        this.#config.trail.refusals && run && state !== undefined
          ? this.#noteRefusal(incoming, run, refusal, own || refusalWords(refusal, said), state)
          : undefined;
      return after(noted, () => this.#answerRefused(incoming, refusal, said));
    });
  }

  /** @param state as the store has it */
  #reportRefused(
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

  refuseUnnamed(incoming: Call, tool: string, named: NoRun): MaybePromise<NotLetIn> {
    const { workflow, warnOnce } = this.#config;
    if (named.warning !== undefined) warnOnce(named.warning);
    this.#reportRefused(incoming, tool, 'no-run', undefined);
    const refusal: Refusal = { workflow: workflow.id, tool, reason: 'no-run', available: [] };
    return this.#answerRefused(incoming, refusal, { words: named.advice });
  }

  #answerRefused(
    incoming: Call,
    refusal: Refusal,
    details: RefusalDetails,
  ): MaybePromise<NotLetIn> {
    return this.answer(incoming, refusalReply(incoming, refusal, details, this.#admission.era));
  }

  /** The run does not exist any more, and with it the session that named it, if one did. */
  refuseGone(incoming: Call, tool: string, { gone }: Run): MaybePromise<NotLetIn> {
    if (gone !== undefined)
      return this.refuseUnnamed(incoming, tool, { advice: gone, warning: undefined });
    return verdictAfter(deny(this.#exchange, UNKNOWN_SESSION), 'ended');
  }
}

/** What the trail says of a call, beside the digest of its arguments. */
export function noteOf(
  { workflow, trail, onError }: GateConfig,
  incoming: Call,
  { actor }: Run,
  tool: string,
): CallNote {
  const { id } = incoming;
  const requestId = isRequestId(id) ? id : undefined;
  const note = { tool, digest: '', actor, requestId, workflowVersion: workflow.version };
  if (trail.args === undefined) return note;
  try {
    const args = structuredClone(incoming.args ?? {}) as Json;
    return { ...note, args: trail.args(args, { tool }) };
  } catch (error) {
    onError(error);
    return note;
  }
}

/** The verdict, once that is done. */
export function verdictAfter<Verdict extends NotLetIn>(
  done: MaybePromise<unknown>,
  verdict: Verdict,
): MaybePromise<Verdict> {
  return isPromise(done) ? done.then(() => verdict) : verdict;
}

/** What a refusal says where nothing is known of the run. */
const NO_OUTLET: Outlet = { available: [], foreseen: false };
