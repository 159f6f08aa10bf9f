/**
 * What the app's code says of a call: its guards, and the functions that read its arguments. Hides
 * deadlines, what a function may answer or throw, and arguments that two readers read differently.
 */
import type { Clock } from '../basics/clock.ts';
import { LONGEST_LITERAL } from '../basics/numbers.ts';
import type { Identity } from '../session/callers.ts';
import type { InFlight } from '../session/live-session.ts';
import type { Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import type { GrantedUse } from '../step/outcome.ts';
import type { Refused } from '../step/step.ts';
import type { Call } from '../wire/call.ts';
import { MOST_DEPTH } from '../wire/json-rpc.ts';
import type { Guard, GuardedCall } from '../workflow/binding.ts';
import { type AskedArguments, type BoundTool, NotRecorded } from '../workflow/bound-tools.ts';
import { readerBy } from '../workflow/condition.ts';
import { NOTHING, type Noted } from '../workflow/facts.ts';
import { callWith, type OwnValues } from '../workflow/own-call.ts';
import type { Past } from '../workflow/verdict.ts';
import type { GateConfig } from './config.ts';
import type { Question, RefusedAt } from './decide.ts';
import { asBegun, type Standing, type StandingRules } from './standing.ts';

/** How long the guards of one call may take. */
const GUARDS_MS = 5_000;

/** What guards get about a call, beside where the run stands. */
export interface AskedTool extends Pick<GuardedCall, 'run' | 'tool' | 'principal'> {
  readonly args: AskedArguments;
  /** What rules read of it. */
  readonly own: OwnValues;
}

export function askedCall(
  { workflow }: Pick<GateConfig, 'workflow'>,
  args: AskedArguments,
  tool: string,
  { run, actor, identity }: NamedRun,
): AskedTool {
  const read = readerBy(workflow.renamings.readerOf(tool, args.read), identity?.claims);
  const own = callWith(read, run, identity?.principal);
  return { run, tool, args, principal: actor, own };
}

/** What a call's text says of its arguments. */
type ArgumentText = Pick<Call, 'isDeep' | 'namesPrototype' | 'hasLongLiteral'>;

/** What the app's code has read of the arguments that another parser reads otherwise, in words. */
function unclearWords({ ambiguous, rounded }: AskedArguments): string | undefined {
  const key = JSON.stringify(ambiguous);
  if (key !== undefined)
    return `the argument ${key} must be spelled so, and stand there in no other letter case`;
  if (rounded === undefined) return undefined;
  const { name, double } = rounded;
  return `the number in ${JSON.stringify(name)} becomes ${double} where numbers are doubles`;
}

/** What a question takes from the gate. */
type QuestionRules = Pick<StandingRules, 'workflow' | 'onError'>;

/** The run that a call names, as far as the call is asked about it. */
type NamedRun = Pick<Run, 'run' | 'actor'> & {
  /** Who calls. Absent where that was not recorded: what rules ask of the caller is unknown. */
  readonly identity?: Identity;
  readonly store?: Pick<Run['store'], 'isMemory'>;
};

/** A call with its arguments, as the gate and its run are asked about it. */
export class ToolQuestion implements Question {
  readonly tool: string;
  readonly args: AskedArguments;
  /** Its binding; `undefined` where none is about it, and `failed` where that cannot be known. */
  matched: BoundTool | 'failed' | undefined;
  /** The same, once the request has let the call through to its run. */
  binding: BoundTool;
  readonly unnamed: NoRun | undefined;
  isOutOfKeys = false;
  /**
   * What the rules that were asked last ask of it later, and what it uses up, where they let it
   * through. `undefined` also where no rule asks about its tool.
   */
  used: Omit<GrantedUse, 'grantedAt'> | undefined;
  client?: InFlight;
  step?: NonNullable<Question['step']>;
  readonly #rules: QuestionRules;
  readonly #named: NamedRun | undefined;
  readonly #text: Partial<ArgumentText>;
  #asked: AskedTool | undefined;
  #noted: Noted | RefusedAt | undefined;
  #judgedAt: Standing | undefined;
  #refused: RefusedAt | undefined;

  /**
   * @param text empty where the call was recorded without it
   * @param counted the binding of a call that only the loop shield counts
   */
  constructor(
    rules: QuestionRules,
    tool: string,
    args: AskedArguments,
    named: NamedRun | NoRun,
    text: Partial<ArgumentText> = {},
    counted?: BoundTool,
  ) {
    this.#rules = rules;
    this.tool = tool;
    this.args = args;
    this.#named = 'run' in named ? named : undefined;
    this.unnamed = 'run' in named ? undefined : named;
    this.#text = text;
    this.binding = (counted ?? rules.workflow.matchAlways(tool)) as BoundTool;
    this.matched = this.binding;
  }

  /**
   * Finds its binding, perhaps by the app's functions.
   *
   * @throws NotRecorded
   */
  find(): void {
    const { workflow, onError } = this.#rules;
    // No function of the app reads arguments that are too deep: the client has chosen their depth.
    if (this.#text.isDeep || workflow.clashOf(this.tool) !== undefined) this.matched = 'failed';
    else
      try {
        this.matched = workflow.match(this.tool, this.args.view);
      } catch (error) {
        if (error instanceof NotRecorded) throw error;
        onError(error);
        this.matched = 'failed';
      }
    this.binding = this.matched as BoundTool;
  }

  /** What the app's functions get about it. Of a call that names a run. */
  get asked(): AskedTool {
    this.#asked ??= askedCall(this.#rules, this.args, this.tool, this.#named as NamedRun);
    return this.#asked;
  }

  /** What is unclear of its arguments, also to the functions that its binding was found by. */
  unclear(): RefusedAt | undefined {
    const { isDeep, namesPrototype, hasLongLiteral } = this.#text;
    const words = isDeep
      ? `they are nested deeper than ${MOST_DEPTH} objects and lists`
      : namesPrototype
        ? 'no key in them may be "__proto__", which some parsers read as a prototype'
        : hasLongLiteral
          ? `a number in them has more than ${LONGEST_LITERAL} characters, which some cut`
          : unclearWords(this.args);
    return words === undefined ? undefined : { reason: 'arguments', words };
  }

  /**
   * Notes what rules may ask of its arguments later. Refuses what they may read in two ways, and
   * what the store could not keep.
   */
  note(): RefusedAt | undefined {
    const { workflow } = this.#rules;
    const { ledger } = workflow.rules;
    if (ledger === undefined) return undefined;
    this.#noted ??= this.#notedBy(ledger, workflow.keyOf(this.tool));
    return 'reason' in this.#noted ? this.#noted : undefined;
  }

  #notedBy(ledger: Past['ledger'], key: string): Noted | RefusedAt {
    const { run, args, own } = this.asked;
    const isMemory = this.#named?.store?.isMemory ?? true;
    const cause = isMemory ? undefined : ledger.faultOfNames(key);
    if (cause !== undefined) return { reason: 'unavailable', cause };
    const noted = ledger.note(key, 'args', own.read, run);
    const words = unclearWords(args);
    return words === undefined ? noted : { reason: 'arguments', words };
  }

  /** What rules may ask of its arguments later. */
  get noted(): Noted {
    return this.#noted === undefined || 'reason' in this.#noted ? NOTHING : this.#noted;
  }

  /** Why the rules refuse it where its run stands. They are asked once in each place. */
  ruled(standing: Standing): RefusedAt | undefined {
    const { past } = standing;
    if (past === undefined || this.#judgedAt === standing) return this.#refused;
    this.#judgedAt = standing;
    const found = this.#judge(standing, past);
    const isRefused = found !== undefined && 'reason' in found;
    this.#refused = isRefused ? found : undefined;
    this.used = isRefused ? undefined : found;
    return this.#refused;
  }

  #judge(standing: Standing, past: Past): ToolQuestion['used'] | RefusedAt {
    const { workflow } = standing;
    const { run, tool, args, own } = this.asked;
    const { ledger, now: claimedAt } = past;
    const verdict = workflow.rules.judge(this.binding, past, own);
    if (verdict !== undefined) {
      const words = unclearWords(args);
      if (words !== undefined) return { reason: 'arguments', standing, words };
      if (!verdict.allows) {
        const { reason, parts } = verdict;
        return { reason: reason === 'order' ? 'guard' : reason, standing, parts };
      }
    }
    // Of a machine, only the calls of a limited tool matter.
    if (!workflow.isOrder && !ledger.keeps(workflow.keyOf(tool))) return undefined;
    const noted = this.#notedIn(standing, past);
    return { claimedAt, noted, uses: verdict?.uses ?? [], salt: run };
  }

  /** With what another build asks of it, unless the argument may be read in two ways. */
  #notedIn({ workflow }: Standing, { ledger, facts }: Past): Noted {
    const { run, tool, args, own } = this.asked;
    const key = workflow.keyOf(tool);
    if (!ledger.hasOthers(key, facts)) return this.noted;
    const noted = ledger.note(key, 'args', own.read, run, this.noted, facts);
    return unclearWords(args) === undefined ? noted : this.noted;
  }

  /** Finds unclear arguments that the functions of the call's events will read, before it runs. */
  unforeseen(standing: Standing): RefusedAt | undefined {
    if (this.binding.sources.length === 0) return undefined;
    const { args, tool, principal } = this.asked;
    const facts = standing.workflow.factsOf(standing.position, principal);
    args.foresee(this.binding, { tool, ...facts });
    const words = unclearWords(args);
    return words === undefined ? undefined : { reason: 'arguments', standing, words };
  }
}

/**
 * Asks the guards about a call of a run that stands there; `undefined` where they let it through.
 */
export async function refusedByGuards(
  { workflow, clock, onError }: GateConfig,
  guards: readonly Guard[],
  standing: Standing,
  call: AskedTool,
): Promise<RefusedAt | undefined> {
  const { position } = standing;
  const { args, own: _, ...given } = call;
  const about = {
    ...given,
    args: args.members,
    ...workflow.factsOf(position, call.principal),
  };
  const refusal = await askGuards(guards, about, { clock, deadlineMs: GUARDS_MS, onError });
  // A guard may have read one spelling of an argument, and the tool may read another.
  const words = unclearWords(args);
  if (words !== undefined) return { reason: 'arguments', standing, words };
  return refusal && { reason: 'guard', standing, words: refusal.words };
}

/**
 * As {@link refusedByGuards}, for a run that is not claimed. Of a run that has not begun the guards
 * get what it would begin with.
 */
export async function refusedUnclaimed(
  config: GateConfig,
  run: Run,
  guards: readonly Guard[],
  standing: Standing,
  call: AskedTool,
): Promise<RefusedAt | undefined> {
  const begun = await asBegun(config, run, standing);
  if (begun === 'unavailable') return { reason: begun };
  return refusedByGuards(config, guards, begun, call);
}

export interface GuardOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** How long all guards of one call may take together, in milliseconds. */
  readonly deadlineMs: number;
  /** Called with what a guard throws, and where one took too long or gave no answer. */
  readonly onError: (error: unknown) => void;
}

const TOO_LATE = Symbol('too late');

/**
 * Asks a call's guards, one after the other, until one refuses, perhaps in its own words;
 * `undefined` where none does. A guard refuses by any answer but `true`, by throwing, and by
 * missing the deadline.
 */
export async function askGuards(
  guards: readonly Guard[],
  call: GuardedCall,
  options: GuardOptions,
): Promise<Pick<Refused, 'words'> | undefined> {
  const { clock, deadlineMs, onError } = options;
  if (guards.length === 0) return undefined;
  const tool = JSON.stringify(call.tool);
  let stop = (): void => {};
  const deadline = new Promise<typeof TOO_LATE>((resolve) => {
    stop = clock.after(deadlineMs, () => resolve(TOO_LATE));
  });
  try {
    for (const guard of guards) {
      const answer: unknown = await Promise.race([ask(guard, call), deadline]);
      if (answer === true) continue;
      if (answer === TOO_LATE) {
        onError(new Error(`a guard of ${tool} took longer than ${deadlineMs} ms, so it refuses`));
      } else if (typeof answer !== 'string' && answer !== false) {
        onError(
          new Error(`a guard of ${tool} answered neither a boolean nor words, so it refuses`),
        );
      }
      return { words: typeof answer === 'string' && answer !== '' ? answer : undefined };
    }
    return undefined;
  } catch (error) {
    onError(error);
    return { words: undefined };
  } finally {
    stop();
  }
}

/** Nothing awaits a guard after the deadline: its rejection must not end the process. */
function ask(guard: Guard, call: GuardedCall): Promise<unknown> {
  const answer = Promise.resolve().then(() => guard(call));
  answer.catch(() => {});
  return answer;
}
