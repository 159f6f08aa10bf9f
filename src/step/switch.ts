/**
 * A workflow's switch, as this process knows it: which of its tools operators have stopped, and
 * whether its gates enforce. Hides when the store is asked for it, and what holds where the store
 * does not answer.
 */
import type { Clock } from '../basics/clock.ts';
import { InterlockError } from '../basics/errors.ts';
import { newToken } from '../basics/names.ts';
import { isTable } from '../basics/options.ts';
import type { AtomicStateStore, Freeze, Json, SwitchRecord } from '../stores/store.ts';
import { isPromise, type MaybePromise } from '../wire/task-line.ts';

/** Who has stopped a tool or a whole workflow, and when. */
export interface SetFreeze extends Freeze {
  /** Milliseconds since the epoch, by the clock of the process that set it. */
  readonly at: number;
}

/** One thing that operators have stopped of a workflow. */
export interface Stopped extends SetFreeze {
  /** The tool, or the glob that binds it. Absent where all of the workflow's tools are meant. */
  readonly tool?: string;
}

/** Whether the gates of a workflow enforce, as an operator has said. It wins over the option. */
export interface SetMode extends SetFreeze {
  /** `false`: they observe each run, also those that were enforced. */
  readonly enforce: boolean;
  /** Whether they also enforce the runs that were observed before, but for those that strayed. */
  readonly living: boolean;
}

/** What operators have said of a workflow. */
export interface WorkflowFreeze {
  /** Who has stopped all of its bound tools; absent where they go on. */
  readonly all?: SetFreeze;
  /** Who has stopped a tool, by its name as the gate binds it. */
  readonly tools: ReadonlyMap<string, SetFreeze>;
  /** Absent where the option of each gate counts. */
  readonly mode?: SetMode;
}

/** Which tool is meant; `undefined`: all bound tools of the workflow. */
type Scope = string | undefined;

/**
 * How long an answer counts, in milliseconds, from when the store was asked. So a process asks at
 * most twice a second, and only while it has calls.
 */
const KNOWN_MS = 500;

/** How long a call waits for an answer that it can do without, in milliseconds. */
const SOON_MS = 250;

/** How often an operator's word is written anew where others write too. */
const MOST_TRIES = 20;

/** A switch as the store has it, or as this process knows it. */
interface Known {
  readonly freeze: WorkflowFreeze;
  /**
   * Grows with each write, and is never below its writer's time. So a word that is said to a store
   * that lost its switch outranks each word from before.
   */
  readonly count: number;
  /** Also what another version wrote. */
  readonly value: { readonly [Name in string]: Json };
  readonly revision: string | undefined;
}

type SwitchStore = Required<Pick<AtomicStateStore, 'readSwitch' | 'swapSwitch'>>;

/** What the store had in place of a later switch that it has lost. */
export type FoundSwitch = 'none' | 'older';

export class WorkflowSwitch {
  readonly #workflow: string;
  readonly #store: SwitchStore;
  readonly #clock: Clock;
  readonly #onRestored: (found: FoundSwitch) => void;
  /** The switch with the highest count that this process has seen. */
  #known: Known | undefined;
  /** When the store was asked last, and when for the answer that is known. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #knownSince = Number.NEGATIVE_INFINITY;
  #asking: Promise<WorkflowFreeze | 'unread'> | undefined;
  /** Whether the store failed when it was asked last. */
  #isAway = false;
  #restoredAt = Number.NEGATIVE_INFINITY;

  /** @param onRestored called when this process has written back a switch that was lost */
  constructor(
    workflow: string,
    store: SwitchStore,
    clock: Clock,
    onRestored: (found: FoundSwitch) => void,
  ) {
    this.#workflow = workflow;
    this.#store = store;
    this.#clock = clock;
    this.#onRestored = onRestored;
  }

  /**
   * What holds now. `unread` where this process has never had an answer: then nothing may go on.
   * At once where an answer is at most 500 ms old. A store that fails changes nothing: what it said
   * last holds.
   */
  now(): MaybePromise<WorkflowFreeze | 'unread'> {
    const now = this.#clock.now();
    // A clock may go back.
    if (Math.abs(now - this.#knownSince) < KNOWN_MS) return this.known;
    if (this.#asking !== undefined) return this.#asking;
    if (Math.abs(now - this.#askedAt) < KNOWN_MS) return this.known;
    this.#asking = this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** What the last answer said, however old it is. Asks nothing. */
  get known(): WorkflowFreeze | 'unread' {
    return this.#known?.freeze ?? 'unread';
  }

  /** When this process last wrote back a switch that the store had lost. */
  get restoredAt(): number {
    return this.#restoredAt;
  }

  /**
   * As {@link now}, for a call that should not wait for a store. It waits for 250 ms at most, and
   * not at all where the store failed last.
   */
  soon(): MaybePromise<WorkflowFreeze | 'unread'> {
    const now = this.now();
    if (!isPromise(now) || this.#isAway) return this.known;
    let stop = (): void => {};
    const late = new Promise<void>((resolve) => {
      stop = this.#clock.after(SOON_MS, resolve);
    });
    return Promise.race([now, late]).then(() => {
      stop();
      return this.known;
    });
  }

  /** @throws what the store throws; InterlockError `ERR_INTERLOCK_STORE` for what is no switch */
  async read(): Promise<WorkflowFreeze> {
    return (await this.#look()).freeze;
  }

  /**
   * Stops a tool, or all of them, or lets them go on. Without a tool all go on.
   *
   * @returns whether that has changed anything
   * @throws as {@link read}
   */
  set(tool: Scope, by: SetFreeze | undefined): Promise<boolean> {
    return this.#change((before) => changed(before, tool, by));
  }

  /**
   * Says whether the workflow's gates enforce.
   *
   * @returns whether that has changed anything
   * @throws as {@link read}
   */
  setMode(mode: SetMode): Promise<boolean> {
    return this.#change((before) => {
      const { enforce, living } = before.mode ?? {};
      return enforce === mode.enforce && living === mode.living ? undefined : { ...before, mode };
    });
  }

  /** A word that changes nothing is written too: it must outrank what a restored store says. */
  async #change(change: (before: WorkflowFreeze) => WorkflowFreeze | undefined): Promise<boolean> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const before = await this.#look();
      const changed = change(before.freeze);
      const freeze = changed ?? before.freeze;
      const count = Math.max(before.count + 1, Math.ceil(this.#clock.now()));
      const value = { ...before.value, ...jsonOfFreeze(freeze), count };
      const askedAt = this.#clock.now();
      const revision = await this.#write(before.revision, value);
      if (revision === undefined) continue;
      this.#learn({ freeze, count, value, revision }, askedAt);
      return changed !== undefined;
    }
    throw this.#outrun();
  }

  /**
   * The switch in the store. If the store has none, or one that is older than this process knows,
   * this process writes back what it knows.
   */
  async #look(): Promise<Known> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      // What the process learns while it waits says nothing of this answer.
      const known = this.#known;
      const askedAt = this.#clock.now();
      const record = await this.#store.readSwitch(this.#workflow);
      const found = knownOf(this.#workflow, record);
      if (known === undefined || found.count >= known.count) return this.#learn(found, askedAt);
      const revision = await this.#write(found.revision, known.value);
      if (revision === undefined) continue;
      this.#restoredAt = this.#clock.now();
      this.#onRestored(record === undefined ? 'none' : 'older');
      return this.#learn({ ...known, revision }, askedAt);
    }
    throw this.#outrun();
  }

  /** @returns the new revision; `undefined` where the switch was another one */
  async #write(expected: string | undefined, value: Known['value']): Promise<string | undefined> {
    const revision = newToken();
    const swap = (): Promise<boolean> =>
      this.#store.swapSwitch(this.#workflow, expected, { value, revision });
    // Once more where the answer may have been lost: the store knows the write by its revision.
    return (await swap().catch(swap)) ? revision : undefined;
  }

  /** @returns the switch that is known from then on: answers may come in any order */
  #learn(found: Known, askedAt: number): Known {
    if (this.#known !== undefined && found.count < this.#known.count) return this.#known;
    this.#known = found;
    this.#knownSince = askedAt;
    return found;
  }

  #outrun(): InterlockError {
    return new InterlockError(
      'ERR_INTERLOCK_STORE',
      `the switch of ${JSON.stringify(this.#workflow)} was written ${MOST_TRIES} times by others ` +
        'before this process could',
    );
  }

  /** A second time where the first answer took so long that it counts no more. */
  async #ask(): Promise<WorkflowFreeze | 'unread'> {
    for (let tries = 1; tries <= 2; tries++) {
      this.#askedAt = this.#clock.now();
      try {
        await this.#look();
        this.#isAway = false;
      } catch {
        this.#isAway = true;
        // The events of the store have reported it.
      }
      if (Math.abs(this.#clock.now() - this.#askedAt) < KNOWN_MS) break;
    }
    return this.known;
  }
}

/** The same as a list. */
export function listStopped({ all, tools }: WorkflowFreeze): Stopped[] {
  return [...(all ? [all] : []), ...[...tools].map(([tool, by]) => ({ tool, ...by }))];
}

/** What holds afterwards; `undefined` where that holds already. */
function changed(
  { all, tools, ...kept }: WorkflowFreeze,
  tool: Scope,
  by: SetFreeze | undefined,
): WorkflowFreeze | undefined {
  if (tool === undefined) {
    if (by !== undefined) return all === undefined ? { all: by, tools, ...kept } : undefined;
    return all === undefined && tools.size === 0 ? undefined : { tools: new Map(), ...kept };
  }
  if (tools.has(tool) === (by !== undefined)) return undefined;
  const next = new Map(tools);
  if (by === undefined) next.delete(tool);
  else next.set(tool, by);
  return { ...(all && { all }), tools: next, ...kept };
}

/** Pairs, since a tool may be called `__proto__`. */
function jsonOfFreeze({ all, tools, mode }: WorkflowFreeze): { readonly [Name in string]: Json } {
  const frozen: Json = { tools: [...tools].map(([tool, by]) => [tool, { ...by }]) };
  if (all !== undefined) frozen.all = { ...all };
  return { frozen, ...(mode !== undefined && { mode: { ...mode } }) };
}

function knownOf(workflow: string, record: SwitchRecord | undefined): Known {
  if (record === undefined)
    return { freeze: { tools: new Map() }, count: 0, value: {}, revision: undefined };
  const { value, revision } = record;
  const frozen = isTable(value) ? (value.frozen ?? { tools: [] }) : undefined;
  const pairs = isTable(frozen) && Array.isArray(frozen.tools) ? frozen.tools : undefined;
  if (pairs === undefined || !isTable(frozen) || !isTable(value))
    throw new InterlockError(
      'ERR_INTERLOCK_STORE',
      `the store has no switch of ${JSON.stringify(workflow)} that this version of mcp-interlock ` +
        'understands',
    );
  const tools = pairs.map((pair): [string, SetFreeze] => {
    const [tool, by] = Array.isArray(pair) ? pair : [];
    return [String(tool), setFreezeOf(by)];
  });
  const { all } = frozen;
  const { mode, count } = value;
  const freeze = {
    ...(all !== undefined && { all: setFreezeOf(all) }),
    tools: new Map(tools),
    ...(isTable(mode) && {
      mode: {
        ...setFreezeOf(mode),
        enforce: mode.enforce !== false,
        living: mode.living === true,
      },
    }),
  };
  return { freeze, count: Number.isFinite(count) ? Number(count) : 0, value, revision };
}

/** What another version has written in its place stops the tool too. */
function setFreezeOf(by: unknown): SetFreeze {
  const { actor = '', note = '', at = 0 } = isTable(by) ? by : {};
  return { actor: String(actor), note: String(note), at: Number(at) };
}
