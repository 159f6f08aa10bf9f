/**
 * A mounted gate: its options, and what it has learnt from the upstream's lists. Hides how it finds
 * out that a bound tool is missing from a client's list.
 */
import { putNewest } from '../basics/clock.ts';
import { isGlob, matchGlob } from '../basics/glob.ts';
import { nearestName, PRINCIPAL_RUN } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import type { Begin } from '../step/claim.ts';
import type { FailureKind } from '../step/outcome.ts';
import type { StepRules } from '../step/step.ts';
import type { WaitLimits } from '../step/turns.ts';
import type { Json, Uncertain } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { MirroredArguments } from '../wire/headers.ts';
import { isObject } from '../wire/json-rpc.ts';
import { type PageMemory, ToolHints } from '../wire/pages.ts';
import type { ErrorAnswer } from '../wire/rejections.ts';
import type { StateMachineGate } from '../workflow/gate.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { ListCache } from './list-cache.ts';
import type { Enforced } from './mode.ts';
import type { Aliases } from './replies.ts';
import type { ListingRules } from './visibility.ts';

/**
 * What a failed call was answered with: its result, or the JSON-RPC error in place of one. As the
 * upstream sent it: nothing has checked its members.
 */
export interface FailedAnswer {
  /** Of a result. */
  readonly content?: readonly {
    readonly text?: string;
    readonly [member: string]: Json | undefined;
  }[];
  /** Of a result. */
  readonly structuredContent?: { readonly [member: string]: Json };
  /** Of an error. */
  readonly code?: number;
  /** Of an error. */
  readonly message?: string;
  /** Of an error. */
  readonly data?: Json;
  readonly [member: string]: unknown;
}

/** What the trail keeps of calls, beside an entry of each forwarded one. */
export interface TrailOptions {
  /**
   * Also keeps an entry of each call that was refused because of the run's state, a guard or
   * another step. Its `errors` are the guard's own words, or those that the model read. Each entry
   * costs one more trip to the store. Default `false`.
   */
  readonly refusals?: boolean | undefined;
  /**
   * Returns what the trail keeps of a call's arguments. It gets a copy of them, from which it can
   * remove what must not be stored; `undefined` keeps none. Default: none are kept.
   */
  readonly args?: ((args: Json, call: { readonly tool: string }) => Json | undefined) | undefined;
  /**
   * Returns what the trail keeps of why a step failed: a list of texts or other JSON values, or a
   * single one; `undefined` keeps none. It gets a copy of the answer. Its `kind` is `tool_error`
   * for a result with `isError`, `not_ok` for one that does not meet the binding's `ok`, and
   * `rpc_error` for a JSON-RPC error. It is called for no success, and must be synchronous. Where
   * it throws, or returns what is not JSON, `onError` is called, and none are kept. An entry keeps
   * at most 4,096 bytes of JSON, and 128 levels of lists and objects. Longer texts are cut, other
   * values are left out, and the last text says so. Default: none are kept, since a result may hold
   * what must not be stored.
   */
  readonly errors?:
    | ((
        answer: FailedAnswer,
        call: { readonly tool: string; readonly kind: FailureKind },
      ) => Json | readonly Json[] | undefined)
    | undefined;
}

/** What a status tool's `summary` gets about a run. */
export interface SummarizedRun {
  /** Where the run stands, or where it ended. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context: Json | undefined;
  /** The caller, where the request was authenticated. */
  readonly principal: string | undefined;
}

/** The tool that says where a run stands, as `fsmGate({ statusTool })` has it. */
export interface StatusTool {
  readonly name: string;
  /** Default: words that name the workflows. */
  readonly description: string | undefined;
  readonly summary: ((run: SummarizedRun) => Json) | undefined;
}

/** A mounted gate: its options, and what it remembers from one request to the next. */
export interface GateConfig extends ListingRules, StepRules {
  readonly listed: ListedTools;
  readonly listedPrompts: ListedNames;
  /** Pages of tools, with what the gate made of each. */
  readonly pages: PageMemory;
  /** The upstream's own lists; `undefined` where the app forbids to keep them. */
  readonly lists: ListCache | undefined;
  readonly waiting: WaitLimits;
  /** `refuse`: a tool that no gate of the route binds is neither listed nor called. */
  readonly unbound: 'allow' | 'refuse';
  /** Made-up names, under which the gate asks the upstream for what is hidden. */
  readonly aliases: Aliases;
  /** By tool, the note in a list of all tools: where it is available. For a gate that is alone. */
  readonly notes: ReadonlyMap<string, string>;
  readonly trail: TrailOptions;
  /**
   * Judges a call of a run that is not enforced, behind it.
   *
   * @param isAwaited whether its client waits until what it came to is saved, since tools that are
   * enforced may depend on it
   */
  readonly observe: (
    config: GateConfig,
    exchange: Exchange,
    incoming: Call,
    run: Run | NoRun,
    isAwaited: boolean,
  ) => void;
  /** Which tools it enforces, as its option says. Ask {@link enforcedIn}, which knows the rest. */
  readonly enforce: Enforced;
  /** The app's own answers to calls that never ran. */
  readonly neverRan: ((answer: ErrorAnswer) => boolean) | undefined;
  /** The tool that says where a run stands, if the app asks for one. */
  readonly status: StatusTool | undefined;
  /** Gives the data that a run begins with; without it, they are the machine's own. */
  readonly begin: Begin | undefined;
}

/** What a gate's runs begin with, as its last mount in this process says. */
const mountings = new WeakMap<Workflow, Pick<GateConfig, 'begin' | 'enforce'>>();

/** Remembers how a workflow is mounted, for what no request is about. */
export function noteMounted(
  workflow: Workflow,
  mounting: Pick<GateConfig, 'begin' | 'enforce'>,
): void {
  mountings.set(workflow, mounting);
}

/** How this process mounts the workflow. Where it does not, the gate is taken to enforce. */
export function mountedAs(workflow: Workflow): Pick<GateConfig, 'begin' | 'enforce'> {
  return mountings.get(workflow) ?? { begin: undefined, enforce: true };
}

/** An upstream may keep making up names: more than this are not remembered. */
const MAX_NAMES = 10_000;

/** So many names that may be meant by a missing one are reported. */
const MOST_NAMED = 5;

/** How deep in a schema mirrored arguments are looked for. */
const DEEPEST = 16;

type Warn = (warning: string) => void;

/** The names that an upstream lists of one kind, to warn of bindings that gate nothing. */
export class ListedNames {
  readonly #gate: string;
  readonly #bound: readonly string[];
  readonly #names = new Set<string>();
  #checked = false;

  constructor(gate: string, bound: readonly string[]) {
    this.#gate = gate;
    this.#bound = bound;
  }

  /**
   * Notes the names of one page, as the upstream sent it. When a last page comes for the first
   * time, calls `warn` for each bound name that is not listed.
   */
  note(page: readonly unknown[], isLastPage: boolean, warn: Warn): void {
    for (const element of page) {
      const name = isObject(element) ? element.name : undefined;
      if (typeof name === 'string' && this.#names.size < MAX_NAMES) this.#names.add(name);
    }
    if (!isLastPage || this.#checked) return;
    this.#checked = true;
    for (const bound of this.#bound) {
      const isListed = isGlob(bound)
        ? [...this.#names].some((name) => matchGlob(bound, name))
        : this.#names.has(bound);
      if (!isListed) warn(this.#missing(bound));
    }
  }

  #missing(bound: string): string {
    const isBound = (name: string): boolean =>
      this.#bound.some((each) => each === name || (isGlob(each) && matchGlob(each, name)));
    const open = [...this.#names].filter((name) => !isBound(name));
    const meant = nearestName(bound, open);
    const nearest = meant ?? nearestName(bound, this.#names);
    const ungated = meant === undefined ? '' : ` This gate does not gate "${meant}" now.`;
    const others = open.slice(0, MOST_NAMED).map((name) => showValue(name));
    const more = open.length > MOST_NAMED ? ' and others' : '';
    const renamed =
      others.length === 0
        ? '.'
        : `. If the server renamed it: this gate does not gate ${others.join(', ')}${more} now.`;
    return (
      `the gate "${this.#gate}" binds "${bound}", which the upstream does not list. ` +
      'No request meets this binding, and what waits for it stays unavailable' +
      (nearest === undefined ? renamed : `. Did you mean "${nearest}"?${ungated}`)
    );
  }
}

/** Names the client whose list is read: its session, or its principal where it has no session. */
export function readerOf(session: { readonly run: string }, principal: string | undefined): string {
  return session.run === '' ? `${PRINCIPAL_RUN}${principal ?? ''}` : session.run;
}

/**
 * A page's place in a client's list: the cursor it was asked for with, and that of the next one.
 */
export interface ListPart {
  readonly reader: string;
  readonly cursor: unknown;
  readonly nextCursor: unknown;
}

/** The lists of so many clients are kept apart; the oldest are forgotten first. */
const MOST_READERS = 10_000;

const NONE: ReadonlySet<string> = new Set();

/**
 * Which bound tools are missing from a client's own list, for example because of a misspelt name.
 * No advice may name them. Keeps nothing while no list lacks a tool.
 */
class MissingTools {
  readonly #bound: readonly string[];
  readonly #missing = new Map<string, ReadonlySet<string>>();
  /** Lists with pages still to come. */
  readonly #begun = new Map<string, { left: Set<string>; nextCursor: unknown }>();
  #isAny = false;

  constructor(bound: readonly string[]) {
    this.#bound = bound;
  }

  of(reader: string): ReadonlySet<string> {
    return this.#isAny ? (this.#missing.get(reader) ?? NONE) : NONE;
  }

  /** Part of a page's key: pages with the same key teach nothing new about the reader's list. */
  pageKey(reader: string): string {
    if (!this.#isAny) return '';
    const missing = this.#missing.get(reader);
    return missing === undefined ? `unread ${reader}` : `lacks ${JSON.stringify([...missing])}`;
  }

  /** Notes one page. `true` where the reader's list lacks other tools than before. */
  note(names: ReadonlySet<string>, { reader, cursor, nextCursor }: ListPart): boolean {
    const begun = this.#begun.get(reader);
    const isNext = begun !== undefined && begun.nextCursor === cursor;
    this.#begun.delete(reader);
    if (cursor !== undefined && !isNext) {
      // An earlier page was answered unread. From now on each client's list is read once.
      this.#isAny = true;
      return false;
    }
    const left = cursor === undefined ? new Set(this.#bound) : (begun?.left ?? new Set());
    for (const name of names) left.delete(name);
    if (nextCursor !== undefined) {
      putNewest(this.#begun, reader, { left, nextCursor }, MOST_READERS);
      return false;
    }
    this.#isAny ||= left.size > 0;
    if (!this.#isAny) return false;
    const known = this.#missing.get(reader);
    putNewest(this.#missing, reader, left, MOST_READERS);
    return (
      known !== undefined &&
      (known.size !== left.size || [...left].some((name) => !known.has(name)))
    );
  }
}

/** By workflow, the listed tools that it does not bind; of all its mounts in this process. */
const unbound = new WeakMap<Workflow, Set<string>>();

/**
 * The upstream's tools that the gate does not bind. Its clients see them in every state, unless the
 * last gate of their route has `unbound: 'refuse'` and no gate binds them. It knows those that a
 * list has shown since this process started, of at most 10,000 names, in the order in which they
 * came. Another client's list may lack some of them. `undefined` where no list of tools has passed
 * the gate in this process.
 */
export function unboundTools<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
): readonly string[] | undefined {
  const names = unbound.get(gate.compile());
  return names && [...names];
}

/** A tool's JSON Schemas, as a list has them. */
interface ToolSchemas {
  readonly args: unknown;
  readonly result: unknown;
}

/** What this process knows of the upstream's tools from their lists. */
export class ListedTools {
  readonly #names: ListedNames;
  readonly #missing: MissingTools;
  readonly #hints = new ToolHints();
  readonly #mirrored = new Map<string, MirroredArguments>();
  readonly #schemas = new Map<string, ToolSchemas>();
  readonly #workflow: Workflow;
  /** No client can call a glob, so no advice names one. */
  readonly #globs: ReadonlySet<string>;
  #changes = 0;

  constructor(workflow: Workflow) {
    this.#workflow = workflow;
    this.#names = new ListedNames(workflow.id, workflow.toolNames);
    this.#missing = new MissingTools(workflow.toolNames.filter((name) => !isGlob(name)));
    this.#globs = new Set(workflow.globs);
  }

  /** Part of a page's key: the same page with the same key teaches nothing new. */
  keyFor(reader: string): string {
    return `${this.#hints.version + this.#changes} ${this.#missing.pageKey(reader)}`;
  }

  /** The bound tools that the reader's own list is known to lack, and all globs. */
  missingFor(reader: string): ReadonlySet<string> {
    const missing = this.#missing.of(reader);
    return this.#globs.size === 0 ? missing : new Set([...missing, ...this.#globs]);
  }

  /** As {@link ListedNames.note}. */
  note(
    page: readonly unknown[],
    part: ListPart | undefined,
    isLastPage: boolean,
    warn: Warn,
  ): void {
    this.#hints.note(page);
    const bound = new Set<string>();
    const others = unbound.get(this.#workflow) ?? new Set();
    unbound.set(this.#workflow, others);
    for (const tool of page) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue;
      if (!this.#schemas.has(tool.name)) this.#warnOfArguments(tool.name, tool.inputSchema, warn);
      if (this.#schemas.size < MAX_NAMES || this.#schemas.has(tool.name))
        this.#schemas.set(tool.name, { args: tool.inputSchema, result: tool.outputSchema });
      if (!this.#workflow.isBound(tool.name)) {
        if (others.size < MAX_NAMES) others.add(tool.name);
        continue;
      }
      bound.add(tool.name);
      const mirrored = mirroredIn(tool.inputSchema);
      const before = this.#mirrored.get(tool.name);
      if (before && JSON.stringify([...mirrored]) === JSON.stringify([...before])) continue;
      this.#mirrored.set(tool.name, mirrored);
      this.#changes++;
    }
    if (part !== undefined && this.#missing.note(bound, part)) this.#changes++;
    this.#names.note(page, isLastPage, warn);
  }

  #warnOfArguments(tool: string, schema: unknown, warn: Warn): void {
    const { id, rules } = this.#workflow;
    if (this.#schemas.size >= MAX_NAMES || !this.#workflow.isBound(tool)) return;
    for (const path of rules.absentArguments(tool, schema))
      warn(
        `the gate "${id}" reads the argument ${showValue(path)} of ${showValue(tool)}, which is ` +
          "not in the tool's input schema. Correct the path in its rule, or add the argument",
      );
  }

  /** What the list says of a tool's arguments and result, for who records its calls. */
  schemasOf(tool: string): ToolSchemas | undefined {
    return this.#schemas.get(tool);
  }

  /** What the tool's annotations allow after an unknown outcome; `hold` until a list has them. */
  uncertainOf(tool: string): Uncertain {
    return this.#hints.isRepeatable(tool) ? 'retry' : 'hold';
  }

  /** The arguments that a tool's callers repeat in headers; `undefined` until it is listed. */
  mirroredOf(tool: string): MirroredArguments | undefined {
    return this.#mirrored.get(tool);
  }
}

/**
 * Looks at properties of properties alone: only those are "statically reachable" (MCP 2026-07-28,
 * Streamable HTTP, "Schema Extension").
 */
function mirroredIn(schema: unknown): MirroredArguments {
  const found = new Map<string, readonly string[]>();
  const rest: [schema: unknown, path: readonly string[]][] = [[schema, []]];
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    const [node, path] = next;
    if (!isObject(node)) continue;
    const header = node['x-mcp-header'];
    if (typeof header === 'string' && path.length > 0) found.set(header.toLowerCase(), path);
    if (!isObject(node.properties) || path.length === DEEPEST) continue;
    for (const [key, inner] of Object.entries(node.properties)) rest.push([inner, [...path, key]]);
  }
  return found;
}
