import { InterlockError } from '../errors.ts';
import type { Admission, Run } from '../session/run.ts';
import { beginsAnew } from '../step/outcome.ts';
import type { ClaimView, FsmSnapshot, RunRecord } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { RequestPort } from '../wire/headers.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { availabilityNote } from '../workflow/advice.ts';
import type { BoundState, Position } from '../workflow/position.ts';
import type { BoundRead } from '../workflow/reads.ts';
import { type Goal, type Stand, Together } from '../workflow/together.ts';
import { type Way, whereaboutsOf } from '../workflow/ways.ts';
import { type GateConfig, readerOf } from './config.ts';
import {
  asShown,
  isToBegin,
  keepsSecrets,
  recordNow,
  showsData,
  sightOf,
  snapshotIn,
  statusOf,
  storedIn,
} from './stands.ts';

/** So many routes of one app are told apart; on more of them, a gate speaks for itself alone. */
const MOST_ROUTES = 100;

const NOT_TOLD: Way = { path: undefined, foreseen: false };

/** By the gate that asks, and by route. */
const known = new WeakMap<GateConfig, Map<string, Gates>>();
const alone = new WeakMap<GateConfig, Gates>();

/**
 * What another gate asks for: to be in one of the states of each list. `undefined` where that
 * cannot be told.
 */
export type Demand = (config: GateConfig) => readonly (readonly BoundState[])[] | undefined;

/** What is seen from where a run stands in one workflow. */
export interface Outlook {
  /** The bound tools that all gates of the route allow. */
  readonly available: readonly string[];
  /**
   * The way to where this gate and all others allow something.
   *
   * @param tool as in {@link Together.wayTo}
   */
  wayTo(states: readonly BoundState[], demand: Demand, tool?: string): Way;
}

/**
 * Notes that the exchange has come to a gate. `false` where it was there before: a gate that stands
 * in the way twice acts once.
 */
export function passGate(exchange: Exchange, config: GateConfig): boolean {
  const passed = exchange.kept.gates as Map<string, GateConfig> | undefined;
  const gates = passed ?? new Map<string, GateConfig>();
  exchange.kept.gates = gates;
  const { id } = config.workflow;
  const earlier = gates.get(id);
  // Two gates of one id would share a snapshot.
  if (earlier !== undefined && earlier !== config) throw sameId(id);
  gates.set(id, config);
  if (earlier === undefined && gates.size > 1) takeDown([...gates.values()], routeOf(exchange.req));
  return earlier === undefined;
}

/**
 * A gate, and the others that stand on its route, as far as it knows them.
 *
 * What one gate refuses never reaches those behind it, so it cannot ask them. It knows them from
 * earlier requests: an exchange keeps the gates that it has passed, in the order of mounting, and
 * with each further one all of them take the list down, for that route. A client begins with a
 * request that passes them all. Where a run stands in the other workflows is in the run's record,
 * which holds all of them, and is read only where there are others.
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

  /** What the gate knows of the others on the route of this exchange. */
  static of(own: GateConfig, exchange: Exchange): Gates {
    const here = known.get(own)?.get(routeOf(exchange.req));
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

  /** What is seen by a run that stands there in this gate's workflow. */
  look(
    admission: Admission,
    context: Run,
    found: Position & { readonly version?: number | undefined },
  ): MaybePromise<Outlook> {
    const own = this.#own;
    const begun = asShown(own, context, { ...found, updatedAt: 0, version: found.version ?? 0 });
    return after(begun, (position) => {
      const known = position === 'unavailable' ? undefined : position;
      return this.#lookFrom(admission, context, known);
    });
  }

  #lookFrom(
    admission: Admission,
    context: Run,
    position: Position | undefined,
  ): MaybePromise<Outlook> {
    const record = this.isAlone ? undefined : recordNow(this.#own, context);
    return after(record, (read) => {
      // Where a step of another workflow is held, its tools are refused whatever its state.
      const others = this.#others.map((config) =>
        standOfOther(config, context, read, (claim) => claim?.live !== false),
      );
      const stands = [standAt(this.#own, context, position), ...others];
      return this.#outlook(stands, admission, context);
    });
  }

  /**
   * The same by what was read of the run: where something is under way in a workflow, its tools are
   * left out.
   */
  async lookAt(
    admission: Admission,
    context: Run,
    record: RunRecord | undefined,
  ): Promise<Outlook> {
    const isIdle = (claim: ClaimView | undefined): boolean => statusOf(claim) === 'idle';
    const configs = [this.#own, ...this.#others];
    const stands = configs.map(async (config) => {
      const found = snapshotIfKnown(config, context, record, isIdle);
      const begun = found && (await asShown(config, context, found));
      return standAt(config, context, typeof begun === 'object' ? begun : undefined);
    });
    return this.#outlook(await Promise.all(stands), admission, context);
  }

  #outlook(stands: readonly Stand[], admission: Admission, context: Run): Outlook {
    const missing = this.#missingFor(context);
    return {
      available: without(missing, this.#together.available(stands)),
      wayTo: (states, demand, tool) => {
        const demands = this.#others.map(demand);
        if (!demands.every((each) => each !== undefined)) return NOT_TOLD;
        const way = this.#wayTo([[states], ...demands], stands, admission, tool);
        return way.path?.some((each) => missing.has(each)) === true ? NOT_TOLD : way;
      },
    };
  }

  /** The bound tools that the client's own list does not have. */
  #missingFor({ session, actor }: Run): ReadonlySet<string> {
    const reader = readerOf(session, actor);
    const missing = this.#own.listed.missingFor(reader);
    if (this.isAlone) return missing;
    return new Set(
      [missing, ...this.#others.map(({ listed }) => listed.missingFor(reader))].flatMap((each) => [
        ...each,
      ]),
    );
  }

  /** The gates of the route whose status tool has that name. */
  sharing(statusTool: string): readonly GateConfig[] {
    return [this.#own, ...this.#others].filter(({ status }) => status?.name === statusTool);
  }

  /**
   * The tools that are available after a move, by which the call leaves the run there in the
   * workflows that it was a step of. Tools of a workflow in which something else is under way,
   * which may move it, are left out.
   */
  availableAfter(
    leaves: ReadonlyMap<GateConfig, Position | undefined>,
    context: Run,
    record: RunRecord | undefined | 'away',
  ): readonly string[] {
    const stands = [this.#own, ...this.#others].map((config) =>
      leaves.has(config)
        ? standAt(config, context, leaves.get(config))
        : standOfOther(config, context, record, (claim) => claim === undefined),
    );
    return without(this.#missingFor(context), this.#together.available(stands));
  }

  /** Whether all gates of the route are among those. */
  areAll(configs: ReadonlyMap<GateConfig, unknown>): boolean {
    return this.#others.every((config) => configs.has(config));
  }

  /**
   * What a list that shows every tool says of each bound one: the way there leads through all
   * gates.
   */
  get notes(): ReadonlyMap<string, string> {
    if (this.#others.length === 0) return this.#own.notes;
    this.#notes ??= this.#describe();
    return this.#notes;
  }

  /** The same of a prompt or a resource. */
  noteOf(bound: BoundRead): string {
    const { workflow } = this.#own;
    const note =
      this.#readNotes.get(bound) ??
      availabilityNote(whereaboutsOf(workflow, [bound], (states) => this.#fromStart(states)));
    this.#readNotes.set(bound, note);
    return note;
  }

  #describe(): ReadonlyMap<string, string> {
    const { workflow, notes } = this.#own;
    const described = [...notes.keys()].flatMap((tool) => {
      const place = workflow.whereabouts(tool, (states) => this.#fromStart(states));
      return place === undefined ? [] : [[tool, availabilityNote(place)] as const];
    });
    return new Map(described);
  }

  /** The same for every caller, so nothing is named that some gate may hide from one of them. */
  #fromStart(states: readonly BoundState[]): Way {
    const configs = [this.#own, ...this.#others];
    const stands = configs.map(({ workflow }) => {
      return { workflow, position: workflow.start, beginsAnew: false };
    });
    const way = this.#together.wayTo([[states]], stands);
    const isSecret = (tool: string): boolean =>
      configs.some(({ workflow }) => workflow.isVeiled(tool)) ||
      this.#others.some(({ refusal, visibility, workflow }) => {
        return refusal === 'unknown-tool' && visibility !== 'stable' && workflow.isBound(tool);
      });
    return way.path?.some(isSecret) === true ? NOT_TOLD : way;
  }

  #wayTo(goal: Goal, stands: readonly Stand[], admission: Admission, tool?: string): Way {
    const way = this.#together.wayTo(goal, stands, tool);
    // The way to what is shown may lead through what is hidden, and must not be known to exist.
    const keeping = [this.#own, ...this.#others].map((config) => keepsSecrets(config, admission));
    const isSecret = (each: string): boolean =>
      stands.some(({ workflow, position, sight }, i) => {
        if (!keeping[i] || position === undefined) return false;
        return !workflow.isVisible(each, position.state) || sight?.hidden.has(each) === true;
      });
    return way.path?.some(isSecret) === true ? NOT_TOLD : way;
  }
}

/**
 * Where the run stands in another gate's workflow, by what is read of it; not known where a claim
 * says so, or where it depends on what the run would begin with.
 */
function standOfOther(
  config: GateConfig,
  context: Run,
  record: RunRecord | undefined | 'away',
  isKnown: (claim: ClaimView | undefined) => boolean,
): Stand {
  const found = record === 'away' ? undefined : snapshotIfKnown(config, context, record, isKnown);
  const isOpen = found !== undefined && isToBegin(config, found) && showsData(config);
  return standAt(config, context, isOpen ? undefined : found);
}

function snapshotIfKnown(
  config: GateConfig,
  context: Run,
  record: RunRecord | undefined,
  isKnown: (claim: ClaimView | undefined) => boolean,
): FsmSnapshot | undefined {
  if (!isKnown(storedIn(record, config.workflow.id)?.claim)) return undefined;
  const found = snapshotIn(config, context, record);
  return typeof found === 'object' ? found : undefined;
}

function without(missing: ReadonlySet<string>, tools: readonly string[]): readonly string[] {
  return missing.size === 0 ? tools : tools.filter((tool) => !missing.has(tool));
}

function standAt(config: GateConfig, run: Run, position: Position | undefined): Stand {
  const stand = { workflow: config.workflow, position, beginsAnew: beginsAnew(config, run.run) };
  const sight = position && sightOf(config, run, position);
  return sight === undefined ? stand : { ...stand, sight };
}

function takeDown(gates: readonly GateConfig[], route: string): void {
  const [first] = gates;
  const last = gates.at(-1);
  if (first === undefined || last === undefined || known.get(first)?.get(route)?.has(last)) return;
  assertStatusTools(gates);
  for (const own of gates) {
    const routes = known.get(own) ?? new Map<string, Gates>();
    known.set(own, routes);
    if (routes.size >= MOST_ROUTES && !routes.has(route)) continue;
    const others = gates.filter((each) => each !== own);
    const same = [...routes.values()].find((gates) => gates.isWith(others));
    routes.set(route, same ?? new Gates(own, others));
  }
}

/** What is known of a gate before any request. */
export type MountedGate = Pick<GateConfig, 'workflow' | 'status'>;

/** @throws InterlockError `ERR_INTERLOCK_MOUNT` where these gates cannot stand on one route */
export function assertTogether(gates: readonly MountedGate[]): void {
  const ids = gates.map(({ workflow }) => workflow.id);
  const twice = ids.find((id, i) => ids.indexOf(id) < i);
  if (twice !== undefined) throw sameId(twice);
  assertStatusTools(gates);
}

function sameId(id: string): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    `two gates of the id "${id}" are mounted on one route; give each its own id`,
  );
}

/** A status tool of one gate must be no tool that another one gates. */
function assertStatusTools(gates: readonly MountedGate[]): void {
  for (const { status } of gates) {
    const binding = gates.find(({ workflow }) => status && workflow.isBound(status.name));
    if (status === undefined || binding === undefined) continue;
    throw new InterlockError(
      'ERR_INTERLOCK_MOUNT',
      `the gate "${binding.workflow.id}" binds "${status.name}", which is the status tool of ` +
        'another gate on the route; give the status tool another name',
    );
  }
}

/** As Express names it: one gate may stand on several routes, each time with other ones. */
function routeOf(req: RequestPort): string {
  const { baseUrl, route } = req as { baseUrl?: unknown; route?: { path?: unknown } };
  return `${String(baseUrl ?? '')} ${String(route?.path ?? '')}`;
}
