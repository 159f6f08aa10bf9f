/**
 * What models read about a workflow. It hides how refusals, statuses and notes read, and how
 * outside names are made safe.
 */
import { inWords } from '../basics/clock.ts';
import {
  REASONS,
  type ReasonWords,
  type RefusalReason,
  type StopReason,
} from '../basics/reasons.ts';
import type { TrailEntry, TrailOutcome } from '../stores/store.ts';
import { type Preposition, stateWords } from './position.ts';
import type { RefusedPart } from './rule-words.ts';
import type { Leads, Whereabouts } from './ways.ts';

/** The facts of a refusal, as programs read them in `_meta["mcp-interlock/refusal"]`. */
export interface Refusal {
  /** The gate's id. */
  readonly workflow: string;
  /** The run's state; absent where it could not be read. */
  readonly state?: string | undefined;
  /** The tool that was called. */
  readonly tool: string;
  readonly reason: RefusalReason;
  /**
   * The bound tools that are available in that state. With several gates on the route, those that
   * all of them allow.
   */
  readonly available: readonly string[];
  /**
   * The tools to call first, in order; all gates of the route allow each of them. Absent where no
   * way is known.
   */
  readonly path?: readonly string[] | undefined;
  /**
   * For `'state'` where no way is known: the events that the state handles and no call sends. One
   * of them must come from outside, perhaps from a person. Beside a `path`, all of them must.
   */
  readonly events?: readonly string[] | undefined;
  /** For `'state'` where no way is known: in how many milliseconds the run leaves its state. */
  readonly leavesInMs?: number | undefined;
  /** The parts of the tool's rules, or its limits, that refuse the call. */
  readonly parts?: readonly RefusedPart[] | undefined;
  /** In how many milliseconds these let the call through, where time alone mends them. */
  readonly retryAfterMs?: number | undefined;
}

/** What the text of a refusal says beside its facts. */
export interface RefusalDetails {
  /**
   * For `'guard'` the guard's own words, for `'arguments'` what is wrong with them, for `'no-run'`
   * how to come to a run, for `'unreadable'` what ends it. Default for that: a person.
   */
  readonly words?: string | undefined;
  /** For `'state'` where the run has ended: how to come to a new one. */
  readonly anew?: string | undefined;
  /** For `'state'`: the state that the run has left because its deadline has passed. */
  readonly left?: string | undefined;
  /** For `'held'`: the tool whose outcome is unknown. Default: the called one. */
  readonly heldTool?: string | undefined;
  /** For `'unavailable'`: why. Default: the state cannot be read. */
  readonly cause?: string | undefined;
  /** For `'frozen'`: what the operator has stopped. Default: the run alone. */
  readonly stops?: 'workflow' | 'tool' | undefined;
  /** Whether no path means that no way exists. Default `true`. */
  readonly foreseen?: boolean | undefined;
  /** Whether the state is that of rules of order: the text leaves it out. Default `false`. */
  readonly isOrder?: boolean | undefined;
  /** What the tool's rules ask, in words. Default: nothing that the path does not say. */
  readonly rules?: readonly string[] | undefined;
}

/** Why a prompt or a resource was refused. */
export type ReadRefusalReason =
  | Extract<RefusalReason, 'state' | 'guard' | 'unavailable' | 'unreadable' | 'no-run'>
  | StopReason;

/**
 * The facts of such a refusal, as programs read them in `error.data["mcp-interlock/refusal"]`. It
 * names either the prompt or the URI of the resource.
 */
export interface ReadRefusal extends Omit<Refusal, 'tool' | 'reason'> {
  readonly prompt?: string | undefined;
  readonly resource?: string | undefined;
  readonly reason: ReadRefusalReason;
}

/** A tool that can be called next, as the status tool shows it. */
export interface NextTool {
  readonly tool: string;
  /** The states that a success may lead to, the run's own among them where it may stay there. */
  readonly leadsTo: readonly string[];
  /** Where it leads, in words. */
  readonly says: string;
}

/** What a run waits for. Where a call leads on, only what comes from outside is named. */
export interface Awaited {
  /**
   * - `step`: the result of a call that is running
   * - `operator`: the operator, who must resolve an unknown outcome
   * - `condition`: the machine's own guards, which stop the tool
   * - `workflow`: another workflow, which does not allow the tool yet
   * - `event`: an event from outside
   * - `deadline`: the deadline of its state
   */
  readonly what: 'step' | 'operator' | 'condition' | 'workflow' | 'event' | 'deadline';
  /** The tool that is running, held, or not allowed yet. */
  readonly tool?: string | undefined;
  /** The tools to call first, in order; absent where no way is known. */
  readonly path?: readonly string[] | undefined;
  /** The events that the state handles. */
  readonly events?: readonly string[] | undefined;
}

/** Where a run stands, as the status tool names it. */
export type Status =
  | 'idle'
  | 'running'
  | 'held'
  | StopReason
  | 'ended'
  | 'no-run'
  | 'unavailable'
  | 'unreadable';

/** What the words of a status are made of. */
export interface StatusFacts {
  readonly workflow: string;
  /** Absent where no run is known, or it cannot be read. */
  readonly state?: string | undefined;
  readonly status: Status;
  readonly available: readonly string[];
  readonly waitsFor?: Awaited | undefined;
  /** Whether a call leads to another state. Default `false`. */
  readonly leadsOn?: boolean | undefined;
  /** How to come to a run, or to another one. */
  readonly words?: string | undefined;
  /** In how many milliseconds a deadline takes the run out of its state. */
  readonly leavesInMs?: number | undefined;
  /** What the operator has stopped, where that is not the run alone. */
  readonly stops?: RefusalDetails['stops'];
  /** For rules of order: the tools that are done. */
  readonly done?: readonly string[] | undefined;
  /** The tools that are at a limit, and the limit in words. Default: none. */
  readonly spent?: readonly (readonly [tool: string, words: string])[] | undefined;
}

/** How many characters a text repeats of a name, and of a guard's words. */
const NAME_LENGTH = 128;
const WORDS_LENGTH = 512;

/**
 * Most names: visible ASCII with single spaces and no brackets. Nothing in them is to be taken out.
 */
const HARMLESS = /^[!-Z\\^-~]+(?: [!-Z\\^-~]+)*$/;

/** In place of a tool that the client does not see. */
export const ANOTHER = 'another tool';

/** How many tools a text names. A model that gets thousands reads none of them. */
const MOST_NAMES = 20;

/** A refusal in words that a model can act on. It is one line, safe to show with any name in it. */
export function refusalFor(refusal: Refusal, details: RefusalDetails = {}): string {
  return system([refusalWords(refusal, details)]);
}

/** As {@link refusalFor}, without the mark that the words are not the tool's. */
export function refusalWords(refusal: Refusal, details: RefusalDetails): string {
  const words: ReasonWords | 'composed' = REASONS[refusal.reason];
  if (words === 'composed')
    return COMPOSED[refusal.reason as ComposedReason](refusal, details).join(' ');
  return plainly(`${name(refusal.tool)} was not run`, words, refusal, details);
}

/** A refusal of a prompt or a resource, in words that a model can act on. */
export function readRefusalFor(refusal: ReadRefusal, details: RefusalDetails): string {
  const { prompt, resource = '' } = refusal;
  const subject =
    prompt === undefined ? `The resource ${name(resource)}` : `The prompt ${name(prompt)}`;
  const words: ReasonWords | 'composed' = REASONS[refusal.reason];
  return system(
    words === 'composed'
      ? COMPOSED_READS[refusal.reason as keyof typeof COMPOSED_READS](subject, refusal, details)
      : [plainly(`${subject} was not given`, words, refusal, details)],
  );
}

/**
 * What a model reads after a move, such as
 * `[System: checkout is now in "payment". Available now: cart.pay.]`
 */
export function announcement(
  workflow: string,
  state: string,
  available: readonly string[],
  done?: readonly string[],
): string {
  const stands =
    done === undefined
      ? `${name(workflow)} is now in ${quoted(state)}.`
      : doneWords(workflow, done);
  return system([stands, availability(workflow, available)]);
}

function doneWords(workflow: string, done: readonly string[]): string {
  if (done.length === 0) return `Nothing counts as done in ${name(workflow)} now.`;
  return `Done in ${name(workflow)}: ${listed(done)}.`;
}

/** Where a run stands and what it waits for, in words that a model can act on. */
export function statusWords(facts: StatusFacts): string {
  return STATUS_SENTENCES[facts.status](facts).join(' ');
}

function standsWords({ workflow, state = '', done }: StatusFacts): string {
  return done === undefined
    ? `${name(workflow)} is in ${quoted(state)}.`
    : doneWords(workflow, done);
}

/** Of a run that goes on, or that waits for the outcome of a step. */
function goesOn(facts: StatusFacts): string[] {
  const { workflow, status, available, waitsFor, leadsOn = false, leavesInMs, spent = [] } = facts;
  const isFree = status === 'idle';
  return [
    standsWords(facts),
    ...(isFree ? [availability(workflow, available)] : []),
    ...(waitsFor === undefined ? [] : awaitedWords(workflow, waitsFor, leadsOn)),
    ...(isFree ? spent.slice(0, MOST_NAMES) : []).map(
      ([tool, words]) => `${name(tool)} is at its limit: ${sentence(words)}`,
    ),
    ...(isFree && available.length === 0 && waitsFor === undefined && spent.length === 0
      ? ['Nothing leads on from here.']
      : []),
    ...(leavesInMs === undefined ? [] : [leavesWords(leavesInMs)]),
  ];
}

const STATUS_SENTENCES: Record<Status, (facts: StatusFacts) => string[]> = {
  idle: goesOn,
  running: goesOn,
  held: goesOn,
  frozen: (facts) => [
    standsWords(facts),
    facts.stops === 'workflow'
      ? `The operator has stopped ${stoppedName(facts.workflow, facts.stops)}.`
      : 'The operator has stopped this run.',
    untilThawed(facts.workflow),
  ],
  ended: ({ workflow, state = '', words, available }) => [
    `This run of ${name(workflow)} has ended, in ${quoted(state)}.`,
    ...(words === undefined ? [] : [sentence(words)]),
    ...(available.length === 0 ? [] : [availability(workflow, available)]),
  ],
  'no-run': ({ workflow, words }) => [
    `This call names no run of ${name(workflow)}.`,
    sentence(words ?? 'Nothing else does'),
  ],
  unavailable: ({ workflow }) => [
    `The state of ${name(workflow)} cannot be read now.`,
    'Try again later.',
  ],
  unreadable: ({
    workflow,
    words = REASONS.unreadable.advice.replaceAll('{workflow}', name(workflow)),
  }) => [`This server cannot read where ${name(workflow)} stands.`, sentence(words)],
};

/** All statuses that there are. */
export const STATUSES = Object.keys(STATUS_SENTENCES) as readonly Status[];

function awaitedWords(
  workflow: string,
  { what, tool = ANOTHER, path, events = [] }: Awaited,
  leadsOn: boolean,
): string[] {
  switch (what) {
    case 'step':
      return [`A call of ${name(tool)} is running.`, 'Wait for its result, then ask again.'];
    case 'operator':
      return [
        `An earlier call of ${name(tool)} ended with an unknown outcome.`,
        `The operator must resolve it before ${name(workflow)} goes on.`,
        'Do not repeat the call.',
      ];
    case 'condition':
      return [`A condition for ${name(tool)} is not met.`];
    case 'workflow':
      return [
        `Another workflow does not allow ${name(tool)} now.`,
        ...(path === undefined ? [] : way(path, name(tool))),
      ];
    case 'event':
      return leadsOn
        ? [`${orWords(events)} may also come from outside.`]
        : [`No call leads on from here: it waits for ${orWords(events)}, from outside.`];
    case 'deadline':
      return leadsOn ? [] : ['No call leads on from here.'];
  }
}

/** Where a successful call of a tool leads, in words. */
export function leadWords(
  { workflow, state, tool }: { workflow: string; state: string; tool: string },
  { to, mayStay }: Leads,
  hasEnded: (state: string) => boolean,
): string {
  const places = [...new Set(to.map((each) => each.state))].map((each) =>
    hasEnded(each) ? `${quoted(each)}, where ${name(workflow)} ends` : quoted(each),
  );
  const rest = places.length - MOST_NAMES;
  const named = rest > 0 ? [...places.slice(0, MOST_NAMES), `${rest} more`] : places;
  const stays = `leaves ${name(workflow)} in ${quoted(state)}`;
  const leads = `leads to ${named.join(' or ')}`;
  if (places.length === 0) return `${name(tool)} ${stays}.`;
  return `${name(tool)} ${leads}${mayStay ? `, or ${stays}` : ''}.`;
}

/** For a tool that does several things, none of whose gated calls is allowed. */
export function groupedWords(tool: string): string {
  return `Only some calls of ${name(tool)} are allowed now.`;
}

/** One entry of a trail in words. */
export function entryWords({
  tool,
  event,
  from,
  to,
  outcome,
}: Pick<TrailEntry, 'tool' | 'event' | 'from' | 'to' | 'outcome'>): string {
  const what = [
    ...(tool === undefined ? [] : [name(tool)]),
    ...(outcome ? [OUTCOMES[outcome]] : []),
  ];
  const who = tool === undefined ? name(event ?? 'a change of its data') : what.join(' ');
  return to === undefined || to === from
    ? `${who} in ${quoted(from)}`
    : `${who}, from ${quoted(from)} to ${quoted(to)}`;
}

const OUTCOMES: Record<TrailOutcome, string> = {
  succeeded: 'succeeded',
  failed: 'failed',
  input_required: 'asked for input',
  not_run: 'did not run',
  unknown: 'had an unknown outcome',
  refused: 'was refused',
};

/**
 * What a list says of a gated tool where it shows the tools of all states.
 *
 * @param place where it is available; `undefined`: everywhere
 * @param limits in words
 */
export function availabilityNote(
  place: Whereabouts | undefined,
  limits: readonly string[] = [],
): string {
  return system([...(place === undefined ? [] : placeWords(place)), ...limits]);
}

function placeWords({
  workflow,
  isOrder,
  states,
  path,
  foreseen,
  isGrouped,
}: Whereabouts): string[] {
  const what = isGrouped ? 'Some calls of it are available' : 'Available';
  const where = isOrder
    ? `${what} only ${stateWords(states, AFTER_TOOLS)}.`
    : `${what} only while ${name(workflow)} is ${stateWords(states, IN_STATES)}.`;
  if (path === undefined) return foreseen ? [where, 'Calling tools does not lead there.'] : [where];
  if (path.length === 0) return isOrder ? [where] : [where, 'A run begins there.'];
  return [where, `From the start of a run, ${path.map(name).join(', then ')} leads there.`];
}

type ComposedReason = {
  [Reason in RefusalReason]: (typeof REASONS)[Reason] extends 'composed' ? Reason : never;
}[RefusalReason];

/** A reason whose words need nothing but names. */
function plainly(
  what: string,
  { because, advice }: ReasonWords,
  { workflow, tool = ANOTHER }: Omit<Refusal, 'tool'> & { readonly tool?: string },
  { words, cause, heldTool = tool }: RefusalDetails,
): string {
  const named = (text: string): string =>
    text.replace(/\{(\w+)\}/g, (_, key) => name(key === 'held' ? heldTool : workflow));
  const next = words === undefined ? named(advice) : sentence(words);
  return `${what}, because ${cause ?? named(because)}. ${next}`;
}

const COMPOSED: Record<ComposedReason, (refusal: Refusal, details: RefusalDetails) => string[]> = {
  state: (refusal, { foreseen = true, anew, left, isOrder, rules = [] }) => [
    `${subject(refusal)} is not available${during(refusal, isOrder)}${because(rules)}.`,
    ...(left === undefined ? [] : [`The deadline of ${quoted(left)} has passed.`]),
    availability(refusal.workflow, refusal.available),
    ...(isOrder && refusal.path !== undefined
      ? [...eventsWords(refusal), ...order([...refusal.path, refusal.tool])]
      : anew !== undefined
        ? [`This run of ${name(refusal.workflow)} has ended.`, sentence(anew)]
        : wayOrWait(
            refusal,
            // What time alone opens again is in reach.
            foreseen && !(refusal.parts ?? []).some((each) => each.retryAfterMs !== undefined),
            isGrouped(refusal) ? undefined : name(refusal.tool),
          )),
  ],
  guard: (refusal, details) => refusedByGuard(subject(refusal), refusal, details),
  arguments: ({ tool }, { words = 'a key of them stands twice', rules = [] }) => [
    rules.length > 0
      ? notRun(tool, sentence(rules.join('; ')))
      : notRun(tool, `its arguments can be read in two ways: ${sentence(words)}`),
    'Correct them, then try again.',
  ],
  limit: ({ tool, workflow, available }, { rules = [] }) => [
    notRun(tool, `it is at its limit${because(rules)}.`),
    availability(workflow, available),
  ],
  loop: (refusal, { isOrder }) => [
    notRun(refusal.tool, 'it was called again and again without progress.'),
    ...(refusal.state === undefined || isOrder
      ? []
      : [`${name(refusal.workflow)} is now in ${quoted(refusal.state)}.`]),
    availability(refusal.workflow, refusal.available),
  ],
  unbound: ({ tool, workflow, state, available }, { words }) => [
    notRun(tool, 'this server does not let it be called.'),
    ...(words === undefined ? [] : [sentence(words)]),
    ...(state === undefined ? [] : [availability(workflow, available)]),
    'Do not repeat the call.',
  ],
  frozen: ({ tool, workflow }, { stops }) =>
    stops === 'tool'
      ? [
          notRun(tool, 'the operator has stopped all calls of it.'),
          'Only the operator can let them go on. Do not call it again until then.',
        ]
      : [
          notRun(tool, `the operator has stopped ${stoppedName(workflow, stops)}.`),
          untilThawed(workflow),
        ],
};

const COMPOSED_READS: Record<
  Extract<ReadRefusalReason, ComposedReason>,
  (subject: string, refusal: ReadRefusal, details: RefusalDetails) => string[]
> = {
  state: (subject, refusal, { foreseen = true, isOrder }) => [
    `${subject} is not available${during(refusal, isOrder)}.`,
    availability(refusal.workflow, refusal.available),
    ...wayOrWait(refusal, foreseen),
  ],
  guard: refusedByGuard,
  frozen: (subject, { workflow }) => [
    `${subject} was not given, because the operator has stopped this run of ${name(workflow)}.`,
    untilThawed(workflow),
  ],
};

/** What a tool's rules ask, behind what they refuse. */
function because(rules: readonly string[]): string {
  return rules.length === 0 ? '' : `: ${plain(rules.join('; '), WORDS_LENGTH)}`;
}

function refusedByGuard(
  subject: string,
  refusal: Omit<Refusal, 'tool' | 'reason'>,
  details: Pick<RefusalDetails, 'words' | 'isOrder' | 'rules'>,
): string[] {
  const { words: own = 'a condition for it is not met', isOrder, rules = [] } = details;
  const words = rules.length > 0 ? rules.join('; ') : own;
  const place = isOrder ? '' : during(refusal);
  const said = `${subject} was refused${place}: ${sentence(words)}`;
  return [said, availability(refusal.workflow, refusal.available)];
}

/** What the operator has stopped, which is more than the run or the run alone. */
function stoppedName(workflow: string, stops: RefusalDetails['stops']): string {
  return stops === 'workflow' ? `all runs of ${name(workflow)}` : `this run of ${name(workflow)}`;
}

function untilThawed(workflow: string): string {
  return `Only the operator can let it go on. Do not try ${name(workflow)} again until then.`;
}

function notRun(tool: string, because: string): string {
  return `${name(tool)} was not run, because ${because}`;
}

/**
 * A tool that does several things can be available while one of its calls is not. The text must not
 * say both of the tool.
 */
function isGrouped({ tool, available }: Refusal): boolean {
  return offerOf(available).tools.has(tool);
}

function subject(refusal: Refusal): string {
  return isGrouped(refusal) ? `This call of ${name(refusal.tool)}` : name(refusal.tool);
}

function during(
  { workflow, state, path }: Pick<Refusal, 'workflow' | 'state' | 'path'>,
  isOrder = false,
): string {
  if (isOrder) return path === undefined ? ' now' : ' yet';
  return state === undefined ? '' : ` while ${name(workflow)} is in ${quoted(state)}`;
}

function availability(workflow: string, available: readonly string[]): string {
  return available.length === 0
    ? `No tool of ${name(workflow)} is available now.`
    : `Available now: ${offerOf(available).names}.`;
}

/** A list of tools as texts need it, kept by the list: a state always has the same list object. */
interface Offer {
  readonly names: string;
  readonly tools: ReadonlySet<string>;
}

const offers = new WeakMap<readonly string[], Offer>();

function offerOf(available: readonly string[]): Offer {
  const known = offers.get(available);
  if (known !== undefined) return known;
  const offer = { names: listed(available), tools: new Set(available) };
  offers.set(available, offer);
  return offer;
}

function listed(names: readonly string[]): string {
  const named = names.slice(0, MOST_NAMES).map(name).join(', ');
  const rest = names.length - MOST_NAMES;
  return rest > 0 ? `${named} and ${rest} more` : named;
}

/** Where no call leads on, what must come from outside: to say "cannot" would end the task. */
function wayOrWait(
  { path, events = [], leavesInMs, workflow }: Omit<Refusal, 'tool' | 'reason'>,
  foreseen: boolean,
  tool?: string,
): string[] {
  if (path !== undefined) return way(path, tool);
  const waits = [
    ...eventsWords({ workflow, events }),
    ...(leavesInMs === undefined ? [] : [leavesWords(leavesInMs)]),
  ];
  if (!foreseen) return waits;
  if (waits.length === 0) return way(path, tool);
  return [`No call leads to ${tool ?? 'it'} from here.`, ...waits];
}

function eventsWords({ workflow, events = [] }: Pick<Refusal, 'workflow' | 'events'>): string[] {
  return events.length === 0
    ? []
    : [`${name(workflow)} waits for ${orWords(events)}, from outside.`];
}

function orWords(events: readonly string[]): string {
  return events.slice(0, MOST_NAMES).map(name).join(' or ');
}

function leavesWords(leavesInMs: number): string {
  return `It leaves this state by itself in ${inWords(Math.max(leavesInMs, 0))}.`;
}

/** `tool` is left out where the text has named it already. */
function way(path: readonly string[] | undefined, tool?: string): string[] {
  if (path === undefined) return [`${tool ?? 'It'} cannot be reached from here by calling tools.`];
  if (path.length === 0) return [];
  return [`To reach ${tool ?? 'it'}, call ${sequence(path)} first.`];
}

/** The last of `calls` is the tool that was called. Alone, it needs no order. */
function order(calls: readonly string[]): string[] {
  return calls.length < 2 ? [] : [`Call ${sequence(calls)}.`];
}

function sequence(calls: readonly string[]): string {
  const rest = calls.length - MOST_NAMES;
  const named = calls.slice(0, MOST_NAMES).map(name);
  return [...named, ...(rest > 0 ? [`${rest} more`] : [])].join(', then ');
}

function system(sentences: readonly string[]): string {
  return `[System: ${sentences.join(' ')}]`;
}

function sentence(words: string): string {
  const text = plain(words, WORDS_LENGTH);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function name(text: string): string {
  return plain(text, NAME_LENGTH);
}

const IN_STATES: Preposition = { word: 'in', say: quoted, quote: quoted };
/** For rules of order, whose names are tools. */
const AFTER_TOOLS: Preposition = { word: 'after', say: name, quote: quoted };

function quoted(state: string): string {
  return `"${name(state).replaceAll('"', "'")}"`;
}

/**
 * Makes text from outside safe for a model to read. It takes out all that is invisible, line
 * breaks, and brackets that could end our own `[System: …]` and begin another.
 */
function plain(text: string, length: number): string {
  if (text.length <= length && HARMLESS.test(text)) return text;
  const visible = text.replace(/[\p{Zl}\p{Zp}\s]+/gu, ' ').replace(/\p{C}/gu, '');
  const inFrame = visible.replaceAll('[', '(').replaceAll(']', ')');
  return [...inFrame.slice(0, 2 * length)].slice(0, length).join('').trim();
}
