import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../checker/random.ts';
import { answerOf, type Told } from '../checker/reading.ts';
import type { Arena } from './arena.ts';
import type { RunLog, Step } from './run-log.ts';
import type { TortureServer } from './server-process.ts';
import { isLegal, RULES, type ToolName, toolsOf } from './workflows.ts';

/** What the clients met beside successes. */
export interface Encounters {
  /** Calls whose connection broke. */
  broken: number;
  /** Calls that were told that their outcome is unknown. */
  unknown: number;
  unavailable: number;
  held: number;
  /** Calls out of order that were refused, as they must be. */
  outOfOrder: number;
  /** Calls that were refused because an operator has stopped them. */
  frozen: number;
}

export interface LaneOptions {
  readonly random: Random;
  readonly encounters: Encounters;
  /** How often a client ends its session when its run is held. Default: never. */
  readonly leavesHeld?: number;
  /**
   * Called when a call's connection broke; the next try does not wait for it, but the lane does.
   */
  readonly onBroken?: (log: RunLog) => Promise<void>;
}

/** Of one step: an outage of the store takes some. */
const MOST_TRIES = 1_000;

/**
 * A client that makes one run after the other, and one step after the other. It sends some steps
 * twice at the same time through two processes, and some calls out of order. After an answer that
 * leaves a step's fate open it calls again, as it did before, until the fate is known.
 */
export class Lane {
  readonly #arena: Arena;
  readonly #options: LaneOptions;

  constructor(arena: Arena, options: LaneOptions) {
    this.#arena = arena;
    this.#options = options;
  }

  /** Until the arena says that it is over; every step that was begun is brought to its end. */
  async play(): Promise<void> {
    while (!this.#arena.isEnding) await this.#playRun();
  }

  async #playRun(): Promise<void> {
    const { random } = this.#options;
    const log = await this.#arena.begin(random.chance(0.7) ? 'rally' : 'checkout', random);
    const length = random.between(5, 200);
    for (let step = 1; step <= length && !this.#arena.isEnding && !log.isLeft; step++) {
      const tool = this.#choose(log);
      await this.settle(log, { tool, step, ms: random.between(2, 30) });
      if (!toolsOf(log.workflow).some((each) => isLegal(each, log.state))) return;
    }
  }

  #choose({ workflow, state }: RunLog): ToolName {
    const { random } = this.#options;
    const legal = !random.chance(0.1);
    return random.pick(toolsOf(workflow).filter((tool) => isLegal(tool, state) === legal));
  }

  /** Calls until it is known what came of the step. */
  async settle(log: RunLog, step: Step<ToolName>): Promise<void> {
    const { random, onBroken } = this.#options;
    let watching: Promise<void> | undefined;
    for (let tries = 1; ; tries++) {
      const servers = await this.#arena.servers(random.chance(0.3) ? 2 : 1, random);
      const answers = await Promise.all(servers.map((server) => this.#call(log, server, step)));
      const [isKnown] = await Promise.all([this.#learn(log, step, answers), watching]);
      if (isKnown) return;
      if (tries === MOST_TRIES) {
        throw new Error(`${step.tool} of run ${log.run} got nowhere: ${JSON.stringify(answers)}`);
      }
      if (answers.some(({ kind }) => kind === 'broken')) watching = onBroken?.(log);
      else await delay(25);
    }
  }

  async #call(log: RunLog, server: TortureServer, { tool, step, ms }: Step): Promise<Told> {
    const { encounters } = this.#options;
    const exchange = await this.#arena.recorder.call(server.endpoint, log.caller, tool, {
      step,
      ms,
    });
    const answer = answerOf(exchange).told;
    if (answer.kind === 'broken' || answer.kind === 'unknown' || answer.kind === 'unavailable')
      encounters[answer.kind]++;
    else if (answer.kind !== 'refused') return answer;
    else if (answer.reason === 'state') encounters.outOfOrder++;
    else if (answer.reason === 'held' || answer.reason === 'frozen') encounters[answer.reason]++;
    else if (answer.reason === 'busy') {
      const { waitMs } = this.#arena.options;
      this.#arena.faults.push(`stuck: a call waited ${waitMs} ms for its turn (run ${log.run})`);
    }
    return answer;
  }

  /** Whether the answers say where the run is now; if so, the log says it too. */
  async #learn(log: RunLog, { tool }: Step<ToolName>, answers: readonly Told[]): Promise<boolean> {
    if (answers.some((answer) => answer.kind === 'refused' && answer.reason === 'held')) {
      const { random, leavesHeld = 0 } = this.#options;
      if (random.chance(leavesHeld) && (await this.#arena.leave(log, random))) return true;
      if (!(await this.#arena.decide(log))) return false;
    } else if (answers.some((answer) => isOpen(answer)) && !isDoneBesideFrozen(answers)) {
      return false;
    } else if (answers.some(({ kind }) => kind === 'done')) {
      log.state = RULES[tool].to;
      return true;
    }
    await this.#arena.look(log);
    return true;
  }
}

/** An operator stopped the run after the one call of the step, and before the other. */
function isDoneBesideFrozen(answers: readonly Told[]): boolean {
  return (
    answers.every(
      (each) => each.kind === 'done' || (each.kind === 'refused' && each.reason === 'frozen'),
    ) && answers.some(({ kind }) => kind === 'done')
  );
}

/** Whether the answer leaves open what came of the step. */
function isOpen(answer: Told): boolean {
  if (answer.kind === 'refused') return answer.reason === 'busy' || answer.reason === 'frozen';
  return answer.kind === 'broken' || answer.kind === 'unknown' || answer.kind === 'unavailable';
}
