import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { compiled } from '../../test/helpers/program.ts';
import { now, type OutsideCall, type SwitchCall } from '../checker/evidence.ts';
import { SWITCH_MS } from '../checker/freezes.ts';
import type { Random } from '../checker/random.ts';
import type { Arena } from './arena.ts';
import type { Command, Reply } from './operator-process.ts';
import type { RunLog } from './run-log.ts';
import type { StoreAddress } from './stores.ts';
import { toolsOf, type WorkflowName } from './workflows.ts';

/** A workflow, or one of its tools. */
export interface Scope {
  readonly workflow: WorkflowName;
  readonly tool?: string | undefined;
}

/** Instead of an answer, where the operator is killed. */
const GONE: Reply = {
  id: 0,
  asked: 0,
  answered: 0,
  told: 'gone',
  error: { text: 'the operator is gone', isAway: false },
};

type Order = Omit<Command, 'id' | 'by'>;

/** What each operator says of itself. */
const BY = { actor: 'the operator', note: 'the torture' };

const PATIENCE_MS = 30_000;

/**
 * Stops runs, tools and workflows from a process of its own, and notes for the checker what it
 * asked and when it was answered. One thing after the other for each run and each workflow.
 */
export class Operator {
  readonly #arena: Arena;
  #process: OperatorProcess;
  readonly #started: OperatorProcess[];
  /** What it did, for the report. */
  readonly done = { runs: 0, switches: 0, deaths: 0, setByTheDead: 0 };

  private constructor(arena: Arena, process: OperatorProcess) {
    this.#arena = arena;
    this.#process = process;
    this.#started = [process];
  }

  /** Runs `play` with an operator who is gone afterwards. */
  static async with<T>(arena: Arena, play: (operator: Operator) => Promise<T>): Promise<T> {
    const first = await OperatorProcess.start(arena.options.store);
    const operator = new Operator(arena, first);
    try {
      return await play(operator);
    } finally {
      await Promise.all(operator.#started.map((each) => each.kill()));
    }
  }

  /** Stops the scope, or lets it go on. When that was asked and answered, on the clock of `now()`. */
  async throwSwitch({ workflow, tool }: Scope, does: SwitchCall['does']): Promise<Reply> {
    const about = { machine: workflow, tool, does };
    const command = {
      workflow,
      tool,
      does: does === 'freeze' ? 'freezeAll' : 'unfreezeAll',
    } as const;
    const reply = await this.#ask(command, (times) => {
      this.#arena.log.switches.push({ ...about, ...times });
    });
    if (does === 'freeze') this.done.switches += 1;
    return reply;
  }

  /** Stops a run, or lets it go on. */
  async freeze({ run, workflow }: RunLog, kind: 'freeze' | 'unfreeze'): Promise<void> {
    await this.#ask({ workflow, run, does: kind }, ({ told, ...times }) => {
      const isNew = told === undefined ? {} : { isNew: told === true };
      const did = told === undefined ? {} : { did: told !== 'unknown-run' };
      const call: OutsideCall = {
        run,
        machine: workflow,
        ...times,
        does: { kind, ...isNew },
        ...did,
      };
      this.#arena.log.outside.push(call);
    });
    if (kind === 'freeze') this.done.runs += 1;
  }

  /**
   * The operator is killed while it stops the scope; nothing of its workflow may be stopped. Then
   * all of the scope is stopped, or nothing is, and a successor stops it.
   */
  async dieInFreezeAll({ workflow, tool }: Scope, random: Random): Promise<void> {
    const next = await OperatorProcess.start(this.#arena.options.store);
    this.#started.push(next);
    const asked = now();
    void this.#process.ask({ workflow, tool, does: 'freezeAll' });
    await delay(random.between(0, 15));
    await this.#process.kill();
    this.#process = next;
    this.#arena.log.switches.push({ machine: workflow, tool, does: 'freeze', asked });
    const set = await this.#arena.ask(() => this.#arena.runsOf({ workflow }).frozen());
    this.done.deaths += 1;
    if (set.length > 0) this.done.setByTheDead += 1;
    const isWhole = set.every(
      (each) =>
        each.tool === tool && each.actor === BY.actor && each.note === BY.note && each.at > 0,
    );
    if (set.length > 1 || !isWhole)
      this.#arena.faults.push(`half: a dead operator left ${JSON.stringify(set)} of ${workflow}`);
    // It fails what the dead one may have on its way.
    await this.throwSwitch({ workflow, tool }, 'freeze');
  }

  /**
   * Asks, again and again where the store may be away or the operator dies; notes each time.
   */
  async #ask(
    command: Order,
    note: (call: Pick<SwitchCall, 'asked' | 'answered'> & { told?: true | string }) => void,
  ): Promise<Reply> {
    const deadline = now() + PATIENCE_MS;
    for (;;) {
      const asked = now();
      const reply = await this.#process.ask(command);
      if (reply.error === undefined) {
        note({ asked: reply.asked, answered: reply.answered, told: reply.told });
        return reply;
      }
      note({ asked });
      const mayBeAway = this.#arena.options.outages === true && reply.error.isAway;
      if (!(mayBeAway || reply === GONE) || now() > deadline)
        throw new Error(`${command.does}() of ${command.workflow}: ${reply.error.text}`);
      await delay(50);
    }
  }
}

/**
 * Beside other disturbances an operator stops a run, a tool or a workflow now and then, and lets it
 * go on again. Seldom enough that most steps are made.
 */
export class NightShift {
  readonly #arena: Arena;
  readonly #operator: Operator;
  readonly #random: Random;
  readonly #workflows: readonly WorkflowName[];
  /** Whether operators die in the middle of it. */
  readonly #mayDie: boolean;

  constructor(
    arena: Arena,
    operator: Operator,
    options: {
      readonly random: Random;
      readonly workflows: readonly WorkflowName[];
      readonly mayDie?: boolean;
    },
  ) {
    this.#arena = arena;
    this.#operator = operator;
    this.#random = options.random;
    this.#workflows = options.workflows;
    this.#mayDie = options.mayDie === true;
  }

  /** Until the arena says that it is over. Nothing stays stopped. */
  async play(): Promise<void> {
    const random = this.#random;
    while (!this.#arena.isEnding) {
      await this.#pause(random.between(300, 1_500));
      if (random.chance(0.6)) await this.#freezeOne();
      else await this.#throwOnce();
    }
  }

  async #freezeOne(): Promise<void> {
    const logs = this.#arena.logs
      .slice(-12)
      .filter((log) => this.#workflows.includes(log.workflow));
    if (logs.length === 0) return;
    const log = this.#random.pick(logs);
    await this.#operator.freeze(log, 'freeze');
    await this.#pause(this.#random.between(0, 500));
    await this.#operator.freeze(log, 'unfreeze');
  }

  async #throwOnce(): Promise<void> {
    const random = this.#random;
    const workflow = random.pick(this.#workflows);
    const scope = { workflow, ...(random.chance(0.5) && { tool: random.pick(toolsOf(workflow)) }) };
    if (this.#mayDie && random.chance(0.3)) await this.#operator.dieInFreezeAll(scope, random);
    else await this.#operator.throwSwitch(scope, 'freeze');
    await this.#pause(SWITCH_MS + random.between(0, 500));
    await this.#operator.throwSwitch(scope, 'unfreeze');
  }

  async #pause(ms: number): Promise<void> {
    for (const until = now() + ms; now() < until && !this.#arena.isEnding; ) await delay(20);
  }
}

/** For a report's details. */
export function describeStops({ runs, switches, deaths, setByTheDead }: Operator['done']): string {
  return (
    `operators stopped ${runs} runs, and ${switches} times a tool or a workflow; ${deaths} were ` +
    `killed in the middle, of which ${setByTheDead} had set it`
  );
}

class OperatorProcess {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #isGone = false;
  #asked = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (reply: Reply) => {
      this.#waiting.get(reply.id)?.(reply);
      this.#waiting.delete(reply.id);
    });
    const leave = (): void => {
      this.#isGone = true;
      for (const resolve of this.#waiting.values()) resolve(GONE);
      this.#waiting.clear();
    };
    child.once('exit', leave).once('disconnect', leave);
  }

  static async start(store: StoreAddress): Promise<OperatorProcess> {
    const child = fork(
      await compiled(fileURLToPath(new URL('operator-process.ts', import.meta.url))),
      [JSON.stringify(store)],
      {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
        // Out of reach of a Ctrl-C in the terminal; it ends when its channel to this process does.
        detached: true,
      },
    );
    const ended = once(child, 'exit').then(() => {
      throw new Error('the operator did not start');
    });
    await Promise.race([once(child, 'message'), ended]);
    return new OperatorProcess(child);
  }

  ask(command: Order): Promise<Reply> {
    const id = ++this.#asked;
    return new Promise((resolve) => {
      if (this.#isGone) return resolve(GONE);
      this.#waiting.set(id, resolve);
      // Where it cannot be sent, its process is about to be gone.
      this.#child.send({ ...command, id, by: BY } satisfies Command, () => {});
    });
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await gone;
  }
}
