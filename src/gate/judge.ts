import type { Admission, Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import { ARGUMENTS, type Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { argumentsFault, headerFault } from '../wire/headers.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { AskedArguments } from '../workflow/bound-tools.ts';
import type { GateConfig } from './config.ts';
import { ToolQuestion } from './consult.ts';
import { decide, OF_REQUEST, type RefusedAt, whyHidden } from './decide.ts';
import { isBoundBy, isOwnTool, isRefusedUnbound } from './gates.ts';
import { modeNow } from './mode.ts';
import { type Course, type Entrance, type GiveUp, Play } from './play.ts';
import { Refuser, verdictAfter } from './refuser.ts';
import { invalidParams, LONGEST_NAME } from './replies.ts';
import { standingNow, stopIn } from './standing.ts';
import { answerStatus } from './status-tool.ts';
import { keepsSecrets } from './visibility.ts';

const NO_NAME = 'Invalid params: name must be a string';
const ANY_OF_TWO = 'each name that two globs match';
const LONG_NAME = `Invalid params: name must have at most ${LONGEST_NAME} characters`;

/** Decides on each gated call of one exchange. */
export class Judge implements Entrance {
  readonly config: GateConfig;
  readonly exchange: Exchange;
  readonly admission: Admission;
  readonly keepsSecrets: boolean;
  readonly refuser: Refuser;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.config = config;
    this.exchange = exchange;
    this.admission = admission;
    this.keepsSecrets = keepsSecrets(config, admission);
    this.refuser = new Refuser(config, exchange, admission, this.keepsSecrets);
  }

  /** @param found the call's run, once it has room */
  judge(incoming: Call, giveUp: GiveUp, found?: Run | NoRun): MaybePromise<Course> {
    const { status, warnOnce } = this.config;
    const tool = incoming.named;
    if (status !== undefined && tool === status.name)
      return answerStatus(status, this.config, this.exchange, this.admission, incoming);
    if (typeof tool !== 'string')
      return this.refuser.answer(incoming, invalidParams(incoming, NO_NAME));
    if (!isBoundBy(this.config, tool, this.exchange, this.admission))
      return this.#judgeUnbound(incoming, tool, giveUp);
    if (isMadeUp(tool, this.config))
      return this.keepsSecrets
        ? this.refuser.hide(incoming, tool, 'state')
        : this.refuser.answer(incoming, invalidParams(incoming, LONG_NAME));
    const run = found ?? this.admission.runOf(incoming);
    if (found === undefined && 'run' in run && run.isNamed)
      return after(this.admission.roomFor(run, this.exchange.req), (room) =>
        this.judge(incoming, giveUp, room),
      );
    const { store } = 'run' in run ? run : this.admission;
    if (modeNow(this.config, store) === false)
      return this.#observeUnlessFrozen(incoming, tool, run);
    const { managed, unconnected } = this.admission;
    // Also a call that no binding is about: its client reconnects before it uses such a tool.
    if (unconnected !== undefined)
      return this.keepsSecrets
        ? this.refuser.hide(incoming, tool, 'no-run')
        : this.refuser.refuseUnnamed(incoming, tool, unconnected);
    // The upstream's tools have no argument for a handle that the middleware made.
    if (managed !== undefined && incoming.message.at(...ARGUMENTS, managed.argument) !== undefined)
      incoming.message.remove(ARGUMENTS, managed.argument);
    const args = AskedArguments.later(() => incoming.sentArguments);
    const question = new ToolQuestion(this.config, tool, args, run, incoming);
    if (question.matched === undefined) question.find();
    if (!this.keepsSecrets || question.matched === undefined)
      return this.#ask(incoming, run, question, giveUp);
    // This comes first: a call of a hidden tool must not get an error that only bound tools get.
    if ('advice' in run) {
      if (run.warning !== undefined) warnOnce(run.warning);
      return this.refuser.hide(incoming, tool, 'no-run');
    }
    return after(standingNow(this.config, run), (standing) => {
      const why = whyHidden(standing, tool);
      return why === undefined
        ? this.#ask(incoming, run, question, giveUp)
        : this.refuser.hide(incoming, tool, why);
    });
  }

  /** Asks what the request says, and then the run that it names. */
  #ask(
    incoming: Call,
    run: Run | NoRun,
    question: ToolQuestion,
    giveUp: GiveUp,
  ): MaybePromise<Course> {
    const { workflow, listed, warnOnce } = this.config;
    const { req } = this.exchange;
    const { tool } = question;
    const fault =
      headerFault(req, incoming, this.admission.era) ??
      argumentsFault(req, incoming, listed.mirroredOf(tool));
    if (fault !== undefined)
      return verdictAfter(this.exchange.reject(400, fault.code, fault.message), 'ended');
    const why = decide(undefined, question, OF_REQUEST);
    if (why === undefined)
      return 'run' in run && question.matched !== undefined
        ? new Play(this, incoming, run, question, giveUp).go()
        : 'forward';
    if (why.reason === 'no-run' && 'advice' in run)
      return this.refuser.refuseUnnamed(incoming, tool, run);
    if (why.cause !== undefined) warnOnce(`workflow "${workflow.id}": ${why.cause}`);
    // A list has reported a name that it showed. Clients make others up: those are reported
    // together.
    const clash = listed.mirroredOf(tool) ? undefined : workflow.clashOf(tool, ANY_OF_TWO);
    if (clash !== undefined) warnOnce(clash);
    return this.refuser.refuse(incoming, tool, why, [], run);
  }

  /** A freeze refuses also what is only observed. */
  #observeUnlessFrozen(incoming: Call, tool: string, run: Run | NoRun): MaybePromise<Course> {
    const { workflow } = this.config;
    const observed = (): Course => {
      this.config.observe(this.config, this.exchange, incoming, run, false);
      return 'forward';
    };
    if (!('run' in run)) return observed();
    return after(run.store.switchOf(workflow.id)?.now(), (said) => {
      const stop = stopIn(said, workflow, tool);
      if (stop?.reason === 'frozen') return this.refuser.refuse(incoming, tool, stop, [], run);
      // Meanwhile an operator may have said that gates enforce.
      return modeNow(this.config, run.store) === false
        ? observed()
        : this.judge(incoming, () => {}, run);
    });
  }

  #judgeUnbound(incoming: Call, tool: string, giveUp: GiveUp): MaybePromise<Course> {
    if (!isRefusedUnbound(tool, this.config, this.exchange, this.admission))
      return this.#countUnbound(incoming, tool, giveUp);
    const { outside } = this.config.workflow;
    const fact = outside.get(tool);
    if (fact !== undefined && modeNow(this.config, this.admission.store) === false)
      return 'forward';
    // No list has it, also where lists show the tools of all states.
    if (this.config.refusal === 'unknown-tool') return this.refuser.hide(incoming, tool, 'unbound');
    if (isMadeUp(tool, this.config))
      return this.refuser.answer(incoming, invalidParams(incoming, LONG_NAME));
    const run = this.admission.runOf(incoming);
    const now = 'run' in run ? standingNow(this.config, run) : undefined;
    const words = fact && `No call does that: it must come from outside, by ${fact.who}`;
    return after(now, (found) => {
      const standing = typeof found === 'object' ? found : undefined;
      return this.refuser.refuse(incoming, tool, { reason: 'unbound', words, standing }, [], run);
    });
  }

  /** Has the loop shield count a call of a tool that is not bound, where it is to. */
  #countUnbound(incoming: Call, tool: string, giveUp: GiveUp): MaybePromise<Course> {
    const { workflow, listed } = this.config;
    const binding = workflow.shield?.unboundCalls;
    // Clients make names up, and a status tool is how a model finds its way out of a loop.
    const isCounted = binding !== undefined && listed.schemasOf(tool) !== undefined;
    if (!isCounted || isOwnTool(tool, this.exchange, this.admission)) return 'forward';
    const found = this.admission.runOf(incoming);
    if (!('run' in found) || modeNow(this.config, found.store) !== true) return 'forward';
    const room = found.isNamed ? this.admission.roomFor(found, this.exchange.req) : found;
    return after(room, (run) => {
      if (!('run' in run)) return 'forward';
      const args = AskedArguments.later(() => incoming.sentArguments);
      const question = new ToolQuestion(this.config, tool, args, run, incoming, binding);
      return new Play(this, incoming, run, question, giveUp).go();
    });
  }

  /** Refuses a call that has its claim, before it is forwarded. */
  refuseLate(incoming: Call, why: RefusedAt): MaybePromise<void> {
    return after(this.refuser.refuse(incoming, String(incoming.named), why, []), () => {});
  }
}

/**
 * Whether a client made the name up: none that is so long is bound by name. Stores keep the names
 * of calls, and clients choose those that a glob binds.
 */
function isMadeUp(tool: string, { workflow }: GateConfig): boolean {
  return tool.length > LONGEST_NAME && !workflow.names(tool);
}
