import { InterlockError } from '../basics/errors.ts';
import { isGlob } from '../basics/glob.ts';
import type { Admission, Run } from '../session/run.ts';
import { beginsAnew } from '../step/outcome.ts';
import type { ClaimView, RunRecord } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { RequestPort } from '../wire/headers.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { availabilityNote } from '../workflow/advice.ts';
import type { BoundState, Position } from '../workflow/position.ts';
import type { BoundRead } from '../workflow/reads.ts';
import { limitNote } from '../workflow/rule-words.ts';
import { type Stand, Together } from '../workflow/together.ts';
import { NOT_KNOWN, type Way, whereaboutsOf } from '../workflow/ways.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { type GateConfig, readerOf } from './config.ts';
import {
  asksToShow,
  asShown,
  recordNow,
  Standing,
  standingIn,
  statusOf,
  storedIn,
} from './standing.ts';
import { keepsSecrets } from './visibility.ts';

/** On how many routes a gate knows its neighbours; on others it speaks for itself alone. */
const MOST_ROUTES = 100;

/** What each gate knows of its neighbours, by route. */
const byRoute = new WeakMap<GateConfig, Map<string, Gates>>();
const alone = new WeakMap<GateConfig, Gates>();

/**
 * Asks another gate in which states it allows a call: in one state of each list. `undefined` where
 * that cannot be known.
 */
export type Demand = (config: GateConfig) => readonly (readonly BoundState[])[] | undefined;

/** What a run can do next, as seen from where it stands. */
export interface Outlook {
  /** The bound tools that all gates of the route allow now. */
  readonly available: readonly string[];
  /**
   * The way to one of these states, where the other gates' demands are met too.
   *
   * @param tool as in {@link Together.wayTo}
   */
  wayTo(states: readonly BoundState[], demand: Demand, tool?: string): Way;
}

/**
 * Notes that the exchange has reached a gate. `false` where it reached that gate before: a gate
 * that is mounted twice acts once.
 */
export function passGate(exchange: Exchange, config: GateConfig): boolean {
  const passed = exchange.gates as Map<string, GateConfig> | undefined;
  const gates = passed ?? new Map<string, GateConfig>();
  exchange.gates = gates;
  const { id } = config.workflow;
  const earlier = gates.get(id);
  // Two gates of one id would share a snapshot.
  if (earlier !== undefined && earlier !== config) throw sameId(id);
  gates.set(id, config);
  if (earlier === undefined && gates.size > 1)
    learnNeighbours([...gates.values()], routeOf(exchange.req));
  return earlier === undefined;
}

/**
 * Whether the gate refuses a tool because it comes from outside, or because no gate of the route
 * binds it. In the second case it is the last one there, so the exchange has passed them all.
 */
export function isRefusedUnbound(
  tool: string | undefined,
  { unbound, workflow: own }: GateConfig,
  exchange: Exchange,
  admission: Admission,
): boolean {
  // No call makes what comes from outside, whatever the server has.
  if (tool !== undefined && own.outside.has(tool)) return true;
  if (unbound === 'allow') return false;
  if (tool === undefined) return true;
  for (const { workflow } of gatesPassed(exchange)) if (workflow.isBound(tool)) return false;
  return !isOwnTool(tool, exchange, admission);
}

/** Whether the gate binds a tool. A glob binds none that the middlewares need for themselves. */
export function isBoundBy(
  { workflow }: GateConfig,
  tool: string,
  exchange: Exchange,
  admission: Admission,
): boolean {
  if (!workflow.isBound(tool)) return false;
  return (
    workflow.globs.length === 0 || workflow.names(tool) || !isOwnTool(tool, exchange, admission)
  );
}

/** Whether it is a status tool, or hands out the handles that name runs. */
export function isOwnTool(tool: string, exchange: Exchange, { starters }: Admission): boolean {
  for (const { status } of gatesPassed(exchange)) if (status?.name === tool) return true;
  return starters.includes(tool);
}

function gatesPassed({ gates }: Exchange): Iterable<GateConfig> {
  return (gates as ReadonlyMap<string, GateConfig> | undefined)?.values() ?? [];
}

/**
 * A gate, and the other gates that it knows on its route.
 *
 * A gate cannot ask the gates behind it: a call that it refuses never reaches them. It knows them
 * from earlier requests. An exchange keeps the gates that it has passed, and at each further gate
 * all of them learn of each other. A client's first request passes every gate. The run's record
 * says where the run stands in each workflow; it is read only where there are other gates.
 */
export class Gates {
  readonly #own: GateConfig;
  readonly #others: readonly GateConfig[];
  readonly #together: Together;
  #notes: ReadonlyMap<string, string> | undefined;
  readonly #readNotes = new WeakMap<BoundRead, string>();

  constructor(own: GateConfig, others: readonly GateConfig[] = []) {
    this.#own = own;
    this.#others = others;
    this.#together = new Together([own, ...others].map(({ workflow }) => workflow));
  }

  /** A gate, with the others that it knows on the route of this exchange. */
  static of(own: GateConfig, exchange: Exchange): Gates {
    const here = byRoute.get(own)?.get(routeOf(exchange.req));
    if (here !== undefined) return here;
    const gates = alone.get(own) ?? new Gates(own);
    alone.set(own, gates);
    return gates;
  }

  /** Whether no other gate is known to stand on the route. */
  get isAlone(): boolean {
    return this.#others.length === 0;
  }

  has(config: GateConfig): boolean {
    return config === this.#own || this.#others.includes(config);
  }

  isWith(others: readonly GateConfig[]): boolean {
    return (
      others.length === this.#others.length && others.every((each, i) => each === this.#others[i])
    );
  }

  /** What the run can do next, from where it stands in this gate's workflow. */
  look(admission: Admission, run: Run, standing: Standing): MaybePromise<Outlook> {
    const own = this.#own;
    return after(asShown(own, run, standing), (begun) => {
      const known = begun === 'unavailable' ? unknownStand(own, run) : begun;
      if (this.isAlone) return this.#outlook([known], admission, run);
      return after(recordNow(own, run), (read) => {
        // In a workflow whose step is held, every tool is refused.
        const isKnown = (claim: ClaimView | undefined): boolean => claim?.live !== false;
        const others = this.#others.map((config) => standOfOther(config, run, read, isKnown));
        return this.#outlook([known, ...others], admission, run);
      });
    });
  }

  /** As {@link look}, from the run's record. Leaves out workflows in which a step is under way. */
  async lookAt(admission: Admission, run: Run, record: RunRecord | undefined): Promise<Outlook> {
    const isIdle = (claim: ClaimView | undefined): boolean => statusOf(claim) === 'idle';
    const configs = [this.#own, ...this.#others];
    const stands = configs.map(async (config) => {
      const found = standingIfKnown(config, run, record, isIdle);
      const begun = found && (await asShown(config, run, found));
      return typeof begun === 'object' ? begun : unknownStand(config, run);
    });
    return this.#outlook(await Promise.all(stands), admission, run);
  }

  #outlook(stands: readonly Stand[], admission: Admission, run: Run): Outlook {
    const missing = this.#missingFor(run);
    return {
      available: without(missing, this.#together.available(stands)),
      wayTo: (states, demand, tool) => {
        const demands = this.#others.map(demand);
        if (!demands.every((each) => each !== undefined)) return NOT_KNOWN;
        const way = this.#together.wayTo([[states], ...demands], stands, tool);
        // A way through a hidden tool is not shown: it would reveal that the tool exists.
        const keeping = [this.#own, ...this.#others].map((each) => keepsSecrets(each, admission));
        const isSecret = (each: string): boolean =>
          missing.has(each) || stands.some((stand, i) => keeping[i] && isHiddenAt(stand, each));
        // Nor one through a tool that is at its limit: only time makes that way.
        const isSpent = (each: string): boolean => stands.some(({ spent }) => spent?.has(each));
        return way.path?.some((each) => isSecret(each) || isSpent(each)) === true ? NOT_KNOWN : way;
      },
    };
  }

  /** The bound tools that the client's own list does not have. */
  #missingFor({ session, actor }: Run): ReadonlySet<string> {
    const reader = readerOf(session, actor);
    const own = this.#own.listed.missingFor(reader);
    const others = this.#others.flatMap(({ listed }) => [...listed.missingFor(reader)]);
    return others.length === 0 ? own : new Set([...own, ...others]);
  }

  /** The gates of the route whose status tool has that name. */
  sharing(statusTool: string): readonly GateConfig[] {
    return [this.#own, ...this.#others].filter(({ status }) => status?.name === statusTool);
  }

  /**
   * The tools that are available after a call. `leaves` says where it leaves the run in each
   * workflow that it was a step of. Leaves out other workflows in which a step is under way.
   */
  availableAfter(
    leaves: ReadonlyMap<GateConfig, Position | undefined>,
    run: Run,
    record: RunRecord | undefined | 'away',
  ): readonly string[] {
    const stands = [this.#own, ...this.#others].map((config) =>
      leaves.has(config)
        ? standAt(config, run, leaves.get(config))
        : standOfOther(config, run, record, (claim) => claim === undefined),
    );
    return without(this.#missingFor(run), this.#together.available(stands));
  }

  /** Whether these are all gates of the route. */
  areAll(configs: ReadonlyMap<GateConfig, unknown>): boolean {
    return this.#others.every((config) => configs.has(config));
  }

  /** By tool, the note in a list of all tools: where all gates of the route make it available. */
  get notes(): ReadonlyMap<string, string> {
    if (this.#others.length === 0) return this.#own.notes;
    this.#notes ??= availabilityNotes(this.#own.workflow, (states) => this.#fromStart(states));
    return this.#notes;
  }

  /** Where a prompt or a resource is available. */
  noteOf(bound: BoundRead): string {
    const { workflow } = this.#own;
    const note =
      this.#readNotes.get(bound) ??
      availabilityNote(whereaboutsOf(workflow, [bound], (states) => this.#fromStart(states)));
    this.#readNotes.set(bound, note);
    return note;
  }

  /** The note is the same for every caller, so it names no tool that a gate may hide from one. */
  #fromStart(states: readonly BoundState[]): Way {
    const configs = [this.#own, ...this.#others];
    const stands = configs.map(({ workflow }) => {
      return { workflow, position: workflow.start, beginsAnew: false };
    });
    const way = this.#together.wayTo([[states]], stands);
    const isSecret = (tool: string): boolean =>
      isGlob(tool) ||
      configs.some(({ workflow }) => workflow.isVeiled(tool)) ||
      this.#others.some(({ refusal, visibility, workflow }) => {
        return refusal === 'unknown-tool' && visibility !== 'stable' && workflow.isBound(tool);
      });
    return way.path?.some(isSecret) === true || way.waits !== undefined ? NOT_KNOWN : way;
  }
}

/**
 * By bound tool, what a list of all states adds to it: the same bytes for every caller.
 *
 * @param wayTo as {@link Workflow.whereabouts} takes it
 */
export function availabilityNotes(
  workflow: Workflow,
  wayTo?: (states: readonly BoundState[]) => Way,
): ReadonlyMap<string, string> {
  const notes = workflow.toolNames.flatMap((tool): [string, string][] => {
    const place = workflow.whereabouts(tool, wayTo);
    const limits = workflow.rules.limitsOf(tool).map(limitNote);
    if (place === undefined && limits.length === 0) return [];
    return [[tool, availabilityNote(place, limits)]];
  });
  return new Map(notes);
}

/** Whether the client does not see the tool where the run stands. */
function isHiddenAt({ workflow, position, sight }: Stand, tool: string): boolean {
  if (position === undefined) return false;
  const isHidden = sight?.hidden.has(workflow.keyOf(tool)) === true;
  return isHidden || !workflow.isVisible(tool, position.state);
}

/**
 * Where the run stands in another gate's workflow. Not known where `isKnown` says no of its claim,
 * or where that depends on the data that the run would begin with.
 */
function standOfOther(
  config: GateConfig,
  run: Run,
  record: RunRecord | undefined | 'away',
  isKnown: (claim: ClaimView | undefined) => boolean,
): Stand {
  const found = record === 'away' ? undefined : standingIfKnown(config, run, record, isKnown);
  return found === undefined || asksToShow(config, found) ? unknownStand(config, run) : found;
}

function standingIfKnown(
  config: GateConfig,
  run: Run,
  record: RunRecord | undefined,
  isKnown: (claim: ClaimView | undefined) => boolean,
): Standing | undefined {
  if (!isKnown(storedIn(record, config.workflow.id)?.claim)) return undefined;
  const found = standingIn(config, run, record);
  // No way leads through a run that is stopped.
  return typeof found === 'object' && found.stopped === undefined ? found : undefined;
}

function unknownStand(config: GateConfig, { run }: Run): Stand {
  const { workflow } = config;
  return { workflow, position: undefined, beginsAnew: beginsAnew(config, run) };
}

function without(missing: ReadonlySet<string>, tools: readonly string[]): readonly string[] {
  return missing.size === 0 ? tools : tools.filter((tool) => !missing.has(tool));
}

/** Where a call leaves the run. */
function standAt(config: GateConfig, run: Run, position: Position | undefined): Stand {
  if (position === undefined) return unknownStand(config, run);
  const now = config.clock.now();
  const standing = new Standing(config, run, position, { updatedAt: now, version: 1, now });
  return standing.stopped === undefined ? standing : unknownStand(config, run);
}

function learnNeighbours(gates: readonly GateConfig[], route: string): void {
  const [first] = gates;
  const last = gates.at(-1);
  if (first === undefined || last === undefined || byRoute.get(first)?.get(route)?.has(last))
    return;
  assertStatusTools(gates);
  assertLastRefuses(gates);
  for (const own of gates) {
    const routes = byRoute.get(own) ?? new Map<string, Gates>();
    byRoute.set(own, routes);
    if (routes.size >= MOST_ROUTES && !routes.has(route)) continue;
    const others = gates.filter((each) => each !== own);
    const same = [...routes.values()].find((gates) => gates.isWith(others));
    routes.set(route, same ?? new Gates(own, others));
  }
}

/** What is known of a gate at its construction. */
export type MountedGate = Pick<GateConfig, 'workflow' | 'status' | 'unbound'>;

/** @throws InterlockError `ERR_INTERLOCK_MOUNT` where these gates cannot stand on one route */
export function assertTogether(gates: readonly MountedGate[]): void {
  const ids = gates.map(({ workflow }) => workflow.id);
  const twice = ids.find((id, i) => ids.indexOf(id) < i);
  if (twice !== undefined) throw sameId(twice);
  assertStatusTools(gates);
  assertLastRefuses(gates);
}

function sameId(id: string): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    `two gates of the id "${id}" are mounted on one route; give each its own id`,
  );
}

/** No gate may bind the status tool of another one. */
function assertStatusTools(gates: readonly MountedGate[]): void {
  for (const { status } of gates) {
    const binding = gates.find(({ workflow }) => status && workflow.names(status.name));
    if (status === undefined || binding === undefined) continue;
    throw new InterlockError(
      'ERR_INTERLOCK_MOUNT',
      `the gate "${binding.workflow.id}" binds "${status.name}", which is the status tool of ` +
        'another gate on the route; give the status tool another name',
    );
  }
}

/** A gate cannot know what the gates behind it bind: only the last one knows all of them. */
function assertLastRefuses(gates: readonly MountedGate[]): void {
  const early = gates.slice(0, -1).find(({ unbound }) => unbound === 'refuse');
  if (early === undefined) return;
  const { workflow: last } = gates.at(-1) ?? early;
  throw new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    `the gate "${early.workflow.id}" has unbound: 'refuse', and the gate "${last.id}" stands ` +
      'behind it on the route; give that option to the last gate alone',
  );
}

/** Express's name of the route: one gate may stand on several, with other neighbours on each. */
function routeOf(req: RequestPort): string {
  const { baseUrl, route } = req as { baseUrl?: unknown; route?: { path?: unknown } };
  return `${String(baseUrl ?? '')} ${String(route?.path ?? '')}`;
}
