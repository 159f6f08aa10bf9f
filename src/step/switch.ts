/**
 * A workflow's switch, as this process knows it: which of its tools operators have stopped, and
 * whether its gates enforce. Hides when the store is asked for it, and what holds where the store
 * does not answer.
 */
import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import { newToken } from '../names.ts';
import { isTable } from '../options.ts';
import type { AtomicStateStore, Freeze, Json } from '../stores/store.ts';
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

const NOTHING: WorkflowFreeze = Object.freeze({ tools: new Map() });

type SwitchStore = Required<Pick<AtomicStateStore, 'readSwitch' | 'swapSwitch'>>;

export class WorkflowSwitch {
  readonly #workflow: string;
  readonly #store: SwitchStore;
  readonly #clock: Clock;
  /** What the last answer said. */
  #known: WorkflowFreeze | 'unread' = 'unread';
  /** When the store was asked last, and when for the answer that is known. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #knownSince = Number.NEGATIVE_INFINITY;
  #asking: Promise<WorkflowFreeze | 'unread'> | undefined;
  /** Whether the store failed when it was asked last. */
  #isAway = false;
  /** How often this process has set it: an answer from before says nothing of that. */
  #writes = 0;

  constructor(workflow: string, store: SwitchStore, clock: Clock) {
    this.#workflow = workflow;
    this.#store = store;
    this.#clock = clock;
  }

  /**
   * What holds now. `unread` where this process has never had an answer: then nothing may go on.
   * At once where an answer is at most 500 ms old. A store that fails changes nothing: what it said
   * last holds.
   */
  now(): MaybePromise<WorkflowFreeze | 'unread'> {
    const now = this.#clock.now();
    // A clock may go back.
    if (Math.abs(now - this.#knownSince) < KNOWN_MS) return this.#known;
    if (this.#asking !== undefined) return this.#asking;
    if (Math.abs(now - this.#askedAt) < KNOWN_MS) return this.#known;
    this.#asking = this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** What the last answer said, however old it is. Asks nothing. */
  get known(): WorkflowFreeze | 'unread' {
    return this.#known;
  }

  /**
   * As {@link now}, for a call that should not wait for a store. It waits for 250 ms at most, and
   * not at all where the store failed last.
   */
  soon(): MaybePromise<WorkflowFreeze | 'unread'> {
    const now = this.now();
    if (!isPromise(now) || this.#isAway) return this.#known;
    let stop = (): void => {};
    const late = new Promise<void>((resolve) => {
      stop = this.#clock.after(SOON_MS, resolve);
    });
    return Promise.race([now, late]).then(() => {
      stop();
      return this.#known;
    });
  }

  /** @throws what the store throws; InterlockError `ERR_INTERLOCK_STORE` for what is no switch */
  async read(): Promise<WorkflowFreeze> {
    return freezeOf(this.#workflow, (await this.#store.readSwitch(this.#workflow))?.value);
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

  async #change(change: (before: WorkflowFreeze) => WorkflowFreeze | undefined): Promise<boolean> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const found = await this.#store.readSwitch(this.#workflow);
      const before = freezeOf(this.#workflow, found?.value);
      const next = change(before);
      if (next === undefined) return false;
      const revision = newToken();
      const others = isTable(found?.value) ? (found.value as Record<string, Json>) : {};
      const value = { ...others, ...jsonOfFreeze(next) };
      const writes = this.#writes;
      const askedAt = this.#clock.now();
      const swap = (): Promise<boolean> =>
        this.#store.swapSwitch(this.#workflow, found?.revision, { value, revision });
      // Once more where the answer may have been lost: the store knows the write by its revision.
      if (!(await swap().catch(swap))) continue;
      // Of two writes of this process, either may be answered first.
      const isLast = writes === this.#writes;
      this.#writes += 1;
      if (isLast) this.#known = next;
      this.#knownSince = isLast ? askedAt : Number.NEGATIVE_INFINITY;
      return true;
    }
    throw new InterlockError(
      'ERR_INTERLOCK_STORE',
      `the switch of ${JSON.stringify(this.#workflow)} was written ${MOST_TRIES} times by others ` +
        'before this process could',
    );
  }

  /** A second time where the first answer took so long that it counts no more. */
  async #ask(): Promise<WorkflowFreeze | 'unread'> {
    for (let tries = 1; tries <= 2; tries++) {
      const writes = this.#writes;
      this.#askedAt = this.#clock.now();
      try {
        const found = await this.read();
        this.#isAway = false;
        if (writes !== this.#writes) break;
        this.#known = found;
        this.#knownSince = this.#askedAt;
      } catch {
        this.#isAway = true;
        // The events of the store have told of it.
      }
      if (Math.abs(this.#clock.now() - this.#askedAt) < KNOWN_MS) break;
    }
    return this.#known;
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
    return all === undefined && tools.size === 0 ? undefined : { ...NOTHING, ...kept };
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

function freezeOf(workflow: string, value: Json | undefined): WorkflowFreeze {
  if (value === undefined) return NOTHING;
  const frozen = isTable(value) ? (value.frozen ?? { tools: [] }) : undefined;
  const pairs = isTable(frozen) && Array.isArray(frozen.tools) ? frozen.tools : undefined;
  if (pairs === undefined || !isTable(frozen))
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
  const { mode } = value as { readonly mode?: Json };
  return {
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
}

/** What another version has written in its place stops the tool too. */
function setFreezeOf(by: unknown): SetFreeze {
  const { actor = '', note = '', at = 0 } = isTable(by) ? by : {};
  return { actor: String(actor), note: String(note), at: Number(at) };
}
