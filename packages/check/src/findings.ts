/** What is wrong with a gate, found before a model does: hides how each fault is looked for. */

import * as z from 'zod/mini';
import {
  detectOverlaps,
  InterlockError,
  matchGlob,
  type StateMachineGate,
  type SyncPolicy,
} from '../../../src/index.ts';
import {
  type BindingKind,
  type ChartNode,
  covers,
  eventsOfNode,
  isGlob,
  isTable,
  lazily,
  lazyOptions,
  nearestName,
  type ParsedBy,
  parseOptions,
  parsePolicies,
  rightNames,
  showState,
  showValue,
  type Workflow,
  type XTransition,
} from '../../../src/internal.ts';
import { Exploration, MAX_POSITIONS, type Reached } from './exploration.ts';
import { type NamesRuns, RULE_CODES, ruleFaults } from './rule-findings.ts';

/** What {@link checkWorkflow} looks for, and how severe each finding is. */
export const FINDING_CODES = {
  'gate-unnamed': 'note',
  'state-unreachable': 'error',
  'tool-unavailable': 'error',
  'tool-not-listed': 'error',
  'tool-name': 'warning',
  'tool-rebound': 'warning',
  'tool-no-step': 'warning',
  'dead-end': 'warning',
  'event-unsent': 'warning',
  'event-unhandled': 'warning',
  'action-shadowed': 'warning',
  'idle-too-short': 'warning',
  'policy-shadowed': 'warning',
  'policy-unmatched': 'warning',
  'invalidation-unmatched': 'warning',
  ...RULE_CODES,
} as const;

/** Stable across versions. */
export type FindingCode = keyof typeof FINDING_CODES;

/** Something in a gate that is wrong, or odd. */
export interface Finding {
  readonly code: FindingCode;
  /**
   * An error keeps a tool or a state from ever being used. A warning is odd, but may be meant. A
   * note is among {@link Findings.notes} only.
   */
  readonly severity: 'error' | 'warning' | 'note';
  /**
   * The name of a state, a tool or an event, or a place in the policies such as
   * `policies[0].invalidates[1]`.
   */
  readonly place: string;
  /** What is wrong, in words. */
  readonly message: string;
  /** What to do about it, in words. */
  readonly remedy: string;
}

/** How the calls of one bound tool run. */
export interface CheckedTool {
  readonly tool: string;
  /**
   * `step`: one at a time in each run, with a claim, an idempotency key and a trail. `recorded`:
   * beside others, and its success is recorded. `free`: beside others, and nothing is saved.
   */
  readonly kind: BindingKind;
}

/** What {@link checkWorkflow} found: a list, which is empty where nothing is wrong. */
export interface Findings extends ReadonlyArray<Finding> {
  /** Each bound tool, in binding order. Not enumerable, so that the list compares as a list. */
  readonly tools: readonly CheckedTool[];
  /** What is worth knowing, and often right. Not enumerable, as `tools`. */
  readonly notes: readonly Finding[];
}

/** Options of {@link checkWorkflow}. Each adds what the gate cannot know, so that more is found. */
export interface CheckOptions {
  /**
   * Every tool of the server, by name or as `tools/list` returns it. With its annotations the check
   * also finds tools that ought to be steps. Default: not known.
   */
  readonly tools?: readonly (string | ListedTool)[] | undefined;
  /** The options of `stateSync()`. Default: none. */
  readonly sync?:
    | {
        readonly policies?: readonly SyncPolicy<string>[] | undefined;
        readonly tools?:
          | readonly { readonly policy?: SyncPolicy<string> | undefined }[]
          | undefined;
      }
    | undefined;
  /** The events that `runs.send()` sends. Default: not known, so it may send any. */
  readonly outside?: readonly string[] | undefined;
  /** The `idleMs` of the session store, in milliseconds. Default: not known. */
  readonly idleMs?: number | undefined;
  /** The `key` of the session store: what names runs. Default: not known. */
  readonly key?: NamesRuns | readonly NamesRuns[] | undefined;
  /** The findings to leave out, by code, or by code and place: `'dead-end'`, `'dead-end:paid'`. */
  readonly ignore?: readonly string[] | undefined;
}

/** A tool as `tools/list` returns it. */
interface ListedTool {
  readonly name: string;
  /** The JSON Schema of its arguments. */
  readonly inputSchema?: object | undefined;
  /** MCP's hints. */
  readonly annotations?:
    | {
        readonly title?: string | undefined;
        readonly readOnlyHint?: boolean | undefined;
        readonly destructiveHint?: boolean | undefined;
        readonly idempotentHint?: boolean | undefined;
        readonly openWorldHint?: boolean | undefined;
      }
    | undefined;
}

const optionsSchema = lazyOptions(() => ({
  tools: z.optional(z.array(z.union([z.string(), z.looseObject({ name: z.string() })]))),
  sync: z.optional(
    z.looseObject({
      policies: z.optional(z.array(z.custom<SyncPolicy<string>>())),
      tools: z.optional(z.array(z.custom<{ readonly policy?: SyncPolicy<string> }>())),
    }),
  ),
  outside: z.optional(z.array(z.string())),
  idleMs: z.optional(z.number().check(z.positive())),
  key: z.optional(z.union([keyOption(), z.array(keyOption())])),
  ignore: z._default(z.array(z.string()), () => []),
}));

function keyOption(): z.ZodMiniType<NamesRuns> {
  return z.custom<NamesRuns>(
    (value) => isTable(value) && typeof value.runKey === 'function',
    'expected what sessionKey(), principalKey() or another of these returns',
  );
}

/** So many names are compared with one that is missing: a server may list none of thousands. */
const MOST_COMPARED = 100_000;

/** A person may come back the next day. */
const A_DAY = 86_400_000;

/** The names of tools that OpenAI and Anthropic accept: docs/start/providers.md. */
const PROVIDER_NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/**
 * Finds what is wrong with a gate before a model does. It reads the gate, and changes nothing in
 * it.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for wrong options, such as an unknown code in
 * `ignore`; `ERR_INTERLOCK_EVENT` for an event in `outside` that no state handles;
 * `ERR_INTERLOCK_POLICY` for a malformed policy
 */
export function checkWorkflow<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options?: CheckOptions,
): Findings {
  const parsed = parseOptions('checkWorkflow()', optionsSchema, options);
  for (const each of parsed.ignore) checkIgnored(each);
  const workflow = gate.clone().compile();
  const all = new Check(workflow, parsed)
    .findings()
    .filter(
      ({ code, place }) =>
        !parsed.ignore.some((each) => each === code || each === `${code}:${place}`),
    );
  const tools = workflow.toolNames.map((tool) => ({ tool, kind: workflow.callKind(tool) }));
  const notes = all.filter(({ severity }) => severity === 'note');
  return Object.defineProperties(
    all.filter(({ severity }) => severity !== 'note'),
    { tools: { value: tools }, notes: { value: notes } },
  ) as Finding[] & Findings;
}

function checkIgnored(entry: string): void {
  const [code = ''] = entry.split(':');
  if (Object.hasOwn(FINDING_CODES, code)) return;
  const message = `checkWorkflow(): ignore: ${showValue(entry)} begins with no code`;
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `${message}; ${rightNames(code, Object.keys(FINDING_CODES))}`,
  );
}

class Check {
  readonly #workflow: Workflow;
  readonly #options: ParsedBy<typeof optionsSchema>;
  /** Every position that runs can come to. Rules need few questions about them, and have many. */
  readonly #reach: () => Reached;
  readonly #exploration: Exploration;
  readonly #findings: Finding[] = [];

  constructor(workflow: Workflow, options: ParsedBy<typeof optionsSchema>) {
    this.#workflow = workflow;
    this.#options = options;
    for (const event of options.outside ?? []) this.#checkEvent(event);
    this.#exploration = new Exploration(workflow);
    this.#reach = lazily(() =>
      this.#exploration.all({ outside: options.outside ?? true, maxPositions: MAX_POSITIONS }),
    );
  }

  findings(): readonly Finding[] {
    this.#name();
    this.#states();
    this.#tools();
    this.#events();
    this.#actions();
    this.#waits();
    this.#policies();
    this.#rules();
    return this.#findings;
  }

  #name(): void {
    if (this.#workflow.isNamed) return;
    const { id } = this.#workflow;
    this.#add(
      'gate-unnamed',
      id,
      `the gate has no id, so a store keeps its runs and switches as those of "${id}", as it does ` +
        'for each other gate without one',
      'Give the gate an id of its own. Without one it runs on no store but memory.',
    );
  }

  #states(): void {
    const { id, states, toolNames } = this.#workflow;
    // Rules of order were checked when the gate was made. They have no states to reach or leave.
    if (this.#workflow.isOrder) return;
    const unreached = new Set(
      states.filter((state) => !this.#isReached([state]) && !this.#isPassed(state)),
    );
    for (const state of unreached) {
      // One finding is enough for a state and all states inside it.
      if ([...unreached].some((outer) => this.#isInside(state, outer))) continue;
      const lost = toolNames.filter((tool) => this.#namesOnly(tool, new Set([state])));
      const tools = lost.length === 0 ? '' : `, so ${list(lost)} can never be called`;
      this.#add(
        'state-unreachable',
        state,
        `no way leads to state ${showValue(state)} of workflow "${id}"${tools}`,
        'Add a transition that leads to it, or take it out.',
      );
    }
    for (const state of this.#open()) {
      if (this.#canLeave(state)) continue;
      this.#add(
        'dead-end',
        state,
        `a run that comes to ${showValue(state)} of workflow "${id}" ` +
          'can never leave it, and never ends',
        'Give the state type "final" if the workflow ends there, or a transition that leads on.',
      );
    }
    for (const tool of toolNames) {
      const bindings = this.#workflow.bindingsOf(tool);
      if (bindings.some((binding) => this.#isReached(binding.states))) continue;
      if (this.#namesOnly(tool, unreached)) continue;
      const named = bindings.flatMap((binding) => binding.states).map(showState);
      this.#add(
        'tool-unavailable',
        tool,
        `tool ${showValue(tool)} can never be called: ` +
          `no run of workflow "${id}" comes to ${named.join(' or ')}`,
        'Bind it to states in which a run can be at the same time.',
      );
    }
  }

  /** Whether a run can come to one of the states. `true` where that is not known. */
  #isReached(states: Parameters<Workflow['allows']>[1]['states']): boolean {
    const { positions, gap } = this.#reach();
    if (gap !== undefined) return true;
    return positions.some(({ state }) => this.#workflow.allows(state, { states }));
  }

  /** Whether every run leaves the state at once, by an `always` transition without a guard. */
  #isPassed(state: string): boolean {
    const always = this.#workflow.model.chart?.nodes.get(state)?.source.always ?? [];
    return always.some(({ guard }) => guard === undefined);
  }

  #isInside(state: string, outer: string): boolean {
    const { chart } = this.#workflow.model;
    return chart !== undefined && state !== outer && state.startsWith(`${outer}.`);
  }

  /** Whether every binding of the tool names only these states. */
  #namesOnly(tool: string, states: ReadonlySet<string>): boolean {
    const named = this.#workflow.bindingsOf(tool).flatMap((binding) => binding.states);
    return named.every((each) => typeof each === 'string' && states.has(each));
  }

  #canLeave(state: string): boolean {
    const { outside } = this.#options;
    if (this.#workflow.leavesAt({ state, updatedAt: 0 }) !== undefined) return true;
    const handled = this.#workflow.model.eventsIn(state);
    if (outside === undefined) return handled.length > 0;
    const known = [...outside, ...this.#sent()];
    return handled.some((each) => known.some((event) => covers(each, event)));
  }

  #tools(): void {
    const { tools } = this.#options;
    const listed = tools?.map((tool) => (typeof tool === 'string' ? tool : tool.name));
    const names = new Set(listed);
    let missing = 0;
    for (const tool of this.#workflow.toolNames) {
      if (!isGlob(tool) && !PROVIDER_NAME.test(tool)) {
        const safe = tool.replace(/[^a-zA-Z0-9_-]+/g, '_').slice(0, 64);
        this.#add(
          'tool-name',
          tool,
          `OpenAI and Anthropic take no tool that is called ${showValue(tool)}: ` +
            'they take 1 to 64 letters, digits, "_" and "-"',
          `Call it ${showValue(safe)}, here and in the server.`,
        );
      }
      if (listed === undefined || names.has(tool)) continue;
      if (isGlob(tool) && listed.some((name) => matchGlob(tool, name))) continue;
      missing += 1;
      const known = missing * listed.length > MOST_COMPARED ? [] : listed;
      const open = known.filter((name) => !this.#workflow.isBound(name));
      const meant = nearestName(tool, open);
      const nearest = meant ?? nearestName(tool, known);
      const ungated =
        meant === undefined ? '' : `. This gate does not gate ${showValue(meant)} now`;
      this.#add(
        'tool-not-listed',
        tool,
        `the server lists no tool ${showValue(tool)}, ` +
          `which workflow "${this.#workflow.id}" binds` +
          (known === listed ? `; ${rightNames(tool, listed)}${ungated}` : ''),
        nearest === undefined
          ? 'Add the tool to the server, or take its binding out.'
          : `Bind ${showValue(nearest)} instead.`,
      );
    }
    const { order } = this.#workflow;
    for (const tool of tools ?? []) {
      if (order === undefined || typeof tool === 'string' || order.ruleOf(tool.name)) continue;
      if (this.#workflow.callKind(tool.name) !== 'recorded') continue;
      if (isTable(tool.annotations) && tool.annotations.readOnlyHint === true) continue;
      this.#add(
        'tool-no-step',
        tool.name,
        `tool ${showValue(tool.name)} may have an effect, since it is not annotated ` +
          `readOnlyHint. Workflow "${this.#workflow.id}" names it in "after" and has no rule for ` +
          'it, so its calls run beside others, without a claim and an idempotency key',
        'Give it a rule: {} makes it a step, { step: false } says that it is a lookup.',
      );
    }
    for (const { code, tool, message } of this.#workflow.oddities) {
      this.#add(code, tool, message, ODDITY_REMEDIES[code]);
    }
  }

  #events(): void {
    const { outside } = this.#options;
    if (outside === undefined) return;
    const known = [...this.#sent(), ...this.#workflow.outside.keys(), ...outside];
    for (const event of this.#workflow.model.events) {
      if (known.some((each) => covers(event, each))) continue;
      const nearest = nearestName(event, known);
      const meant = nearest === undefined ? '' : `; ${showValue(nearest)} is sent`;
      this.#add(
        'event-unsent',
        event,
        `no tool of workflow "${this.#workflow.id}" sends ${showValue(event)}, ` +
          `and nothing from outside does${meant}`,
        'Bind a tool that sends it, name it in "outside" if runs.send() does, or take it out.',
      );
    }
  }

  /**
   * Where an inner state takes an event itself, the actions of the state around it are not done.
   */
  #actions(): void {
    for (const node of this.#workflow.model.chart?.nodes.values() ?? []) {
      for (const event of eventsOfNode(node.source)) {
        const own = (node.source.transitions.get(event) ?? []).filter(isMeant);
        const done = own.flatMap(({ actions }) => actions).map(actionName);
        const outer = around(node).find(({ source }) =>
          [...source.transitions].some(
            ([each, transitions]) =>
              covers(each, event) &&
              transitions.some(({ actions }) =>
                actions.some((it) => !done.includes(actionName(it))),
              ),
          ),
        );
        if (own.length === 0 || outer === undefined) continue;
        const where = outer.path === '' ? 'the machine itself' : `state ${showValue(outer.path)}`;
        this.#add(
          'action-shadowed',
          node.path,
          `state ${showValue(node.path)} takes ${showValue(event)} itself, ` +
            `so the actions that ${where} has for it are not done`,
          'Name these actions in the inner transition too, or take the inner transition out.',
        );
      }
    }
  }

  #waits(): void {
    const { idleMs } = this.#options;
    if (idleMs === undefined || this.#workflow.isOrder) return;
    const { id } = this.#workflow;
    for (const state of this.#open()) {
      const leavesAt = this.#workflow.leavesAt({ state, updatedAt: 0 });
      const isLate = leavesAt !== undefined && leavesAt >= idleMs;
      const isWaiting = leavesAt === undefined && this.#canLeave(state) && !this.#isLedOut(state);
      if (!isLate && !(isWaiting && idleMs < A_DAY)) continue;
      const why = isLate
        ? `leaves ${showValue(state)} by itself after ${leavesAt} ms`
        : `waits in ${showValue(state)} for an event from outside`;
      this.#add(
        'idle-too-short',
        state,
        `a run of workflow "${id}" ${why}, and is forgotten after an idleMs of ${idleMs} ms`,
        isLate
          ? `Give the session store an idleMs of more than ${leavesAt} ms.`
          : 'Give the session store an idleMs that is longer than people take: a day or more.',
      );
    }
  }

  #rules(): void {
    const { idleMs, key = [], tools = [], outside = [] } = this.#options;
    const keys = Array.isArray(key) ? key : [key];
    const listed = tools.filter((tool) => typeof tool !== 'string');
    for (const fault of ruleFaults(this.#workflow, { idleMs, keys, outside, tools: listed })) {
      const { code, place, message, remedy } = fault;
      this.#add(code, place, message, remedy);
    }
  }

  #policies(): void {
    const { sync, tools } = this.#options;
    const declared = (sync?.tools ?? []).flatMap(({ policy }) => policy ?? []);
    const policies = parsePolicies([...declared, ...(sync?.policies ?? [])]);
    // Places are indexes in the lists that the developer wrote.
    const place = (index: number): string => {
      const at = index - declared.length;
      return at < 0 ? `tools[${index}]` : `policies[${at}]`;
    };
    for (const { shadowedIndex, message } of detectOverlaps(policies)) {
      this.#add(
        'policy-shadowed',
        place(shadowedIndex),
        message,
        'Put the narrower policy before the wider one, or take it out.',
      );
    }
    if (tools === undefined) return;
    const names = tools.map((tool) => (typeof tool === 'string' ? tool : tool.name));
    const isUnmatched = (glob: string): boolean => !names.some((name) => matchGlob(glob, name));
    for (const [index, { match, invalidates = [] }] of policies.entries()) {
      const remedy = (glob: string): string => {
        const nearest = nearestName(glob, names);
        return nearest === undefined
          ? 'Correct it, or take it out.'
          : `Write ${showValue(nearest)} if you mean that tool.`;
      };
      if (isUnmatched(match)) {
        this.#add(
          'policy-unmatched',
          place(index),
          `the server has no tool that ${showValue(match)} matches`,
          remedy(match),
        );
      }
      for (const [at, glob] of invalidates.entries()) {
        if (!isUnmatched(glob)) continue;
        this.#add(
          'invalidation-unmatched',
          `${place(index)}.invalidates[${at}]`,
          `${showValue(match)} makes ${showValue(glob)} stale, ` +
            'and the server has no tool that it matches',
          remedy(glob),
        );
      }
    }
  }

  /** The states that a run can come to, without those where it ends. */
  #open(): ReadonlySet<string> {
    const states = this.#reach().positions.map(({ state }) => state);
    return new Set(states.filter((state) => !this.#workflow.hasEnded(state)));
  }

  /** Whether a call of some tool leads out of the state. */
  #isLedOut(state: string): boolean {
    const at = this.#reach().positions.find((position) => position.state === state);
    if (at === undefined) return false;
    const moves = { outside: false, maxPositions: MAX_POSITIONS };
    return [...this.#exploration.movesFrom(at, moves)].some(({ step }) => step.by === 'call');
  }

  /** The events that calls send. A function may choose any event that its bound states handle. */
  readonly #sent = lazily((): readonly string[] => {
    const { toolNames } = this.#workflow;
    const bindings = toolNames.flatMap((tool) => this.#workflow.bindingsOf(tool));
    const sent = bindings.flatMap((binding) =>
      [binding.success, binding.failure].flatMap((source) => {
        if (typeof source === 'string') return [source];
        if (source === undefined) return [];
        const states = [...this.#open()].filter((state) => this.#workflow.allows(state, binding));
        return states.flatMap((state) => this.#workflow.model.eventsIn(state));
      }),
    );
    return [...new Set(sent)];
  });

  #checkEvent(event: string): void {
    if (this.#workflow.handlesSomewhere(event)) return;
    const message = `checkWorkflow(): outside: no state handles ${showValue(event)}`;
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `${message}, ${rightNames(event, this.#workflow.model.events)}`,
    );
  }

  #add(code: FindingCode, place: string, message: string, remedy: string): void {
    this.#findings.push({ code, severity: FINDING_CODES[code], place, message, remedy });
  }
}

const ODDITY_REMEDIES = {
  'tool-rebound': 'Bind the tool once, with all of its states.',
  'event-unhandled': 'Send an event that the states of the binding handle, or none.',
} as const;

function list(names: readonly string[]): string {
  return names.map(showValue).join(', ');
}

/** The states around a state, innermost first. */
function around({ parent }: ChartNode): ChartNode[] {
  return parent === undefined ? [] : [parent, ...around(parent)];
}

/** Whether the transition does anything. An empty one makes its state ignore the event. */
function isMeant({ target, actions }: XTransition): boolean {
  return target !== undefined || actions.length > 0;
}

/** The name of an action, or the action itself where it has none. */
function actionName(action: unknown): unknown {
  return action instanceof Object && 'type' in action && typeof action !== 'function'
    ? action.type
    : action;
}
