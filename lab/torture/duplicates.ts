import { type Random, seeded } from '../checker/random.ts';
import { answerOf, type Told } from '../checker/reading.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import { describeObserved } from './observed.ts';
import type { PartResult } from './report.ts';
import type { RunLog, Step } from './run-log.ts';
import { isLegal, RULES, type Rule, type ToolName, type WorkflowName } from './workflows.ts';

export interface DuplicatesScale {
  /** How many steps are raced. */
  readonly steps: number;
  /**
   * How many calls of each step are sent at the same time, each to another process where there are
   * that many.
   */
  readonly duplicates: number;
  /** How many runs are made at the same time. */
  readonly lanes: number;
  /** The longest run; a store need not keep more than 50 moves. */
  readonly longestRun: number;
}

/** From the empty cart to the paid one. */
const CHECKOUT_STEPS = 3;

interface Tally {
  steps: number;
  ran: number;
  state: number;
  busy: number;
}

interface Plan {
  readonly workflow: WorkflowName;
  readonly steps: number;
}

/**
 * Duplicates of one step race through several processes: of each step one runs, and every other one
 * is refused.
 */
export function raceDuplicates(
  options: ArenaOptions,
  scale: DuplicatesScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with(options, async (arena) => {
    const plans = planRuns(scale, seeded(seed, 'runs'));
    const tally: Tally = { steps: 0, ran: 0, state: 0, busy: 0 };
    const lane = async (_: unknown, index: number): Promise<void> => {
      const random = seeded(seed, `lane ${index}`);
      for (let plan = plans.pop(); plan && !arena.isEnding; plan = plans.pop()) {
        await playRun(arena, plan, scale.duplicates, random, tally);
      }
    };
    await Promise.all(Array.from({ length: scale.lanes }, lane));
    const faults = await arena.verify();
    const attempts = arena.ledger.begun;
    if (attempts.length !== tally.ran) {
      faults.push(`ran twice: ${attempts.length} handlers ran for ${tally.ran} successes`);
    }
    return {
      did: `${tally.steps} steps × ${scale.duplicates} duplicates, ${options.servers} servers`,
      measured: `${attempts.length} handlers ran, ${tally.state + tally.busy} calls refused`,
      details:
        `${arena.logs.length} runs; refused as out of order ${tally.state}, as busy ${tally.busy}; ` +
        describeObserved(arena.observed),
      faults,
    };
  });
}

/**
 * A few long runs, to be played first, and many short ones: a run's first step is a race of its
 * own.
 */
function planRuns({ steps, longestRun }: DuplicatesScale, random: Random): Plan[] {
  const long: Plan = { workflow: 'rally', steps: Math.min(steps / 10, longestRun) };
  const plans = [long, long];
  for (let left = steps - 2 * long.steps; left > 0; left -= plans.at(-1)?.steps ?? left) {
    const plan: Plan = random.chance(0.3)
      ? { workflow: 'checkout', steps: CHECKOUT_STEPS }
      : { workflow: 'rally', steps: random.pick([1, 2, 5, 10, 50]) };
    plans.push({ ...plan, steps: Math.min(plan.steps, left) });
  }
  return plans.sort((a, b) => a.steps - b.steps);
}

async function playRun(
  arena: Arena,
  { workflow, steps }: Plan,
  duplicates: number,
  random: Random,
  tally: Tally,
): Promise<void> {
  const log = await arena.begin(workflow, random);
  for (let step = 1; step <= steps && !arena.isEnding; step++) {
    const tool = nextTool(log.state);
    if (tool === undefined) return;
    await race(arena, log, { tool, step, ms: random.between(0, 4) }, duplicates, random, tally);
  }
}

/** The step that leads on. */
function nextTool(state: string): ToolName | undefined {
  const names = Object.keys(RULES) as ToolName[];
  return names.find((tool) => isLegal(tool, state) && RULES[tool].to !== state);
}

async function race(
  arena: Arena,
  log: RunLog,
  call: Step<ToolName>,
  duplicates: number,
  random: Random,
  tally: Tally,
): Promise<void> {
  const { tool, step, ms } = call;
  const rule: Rule = RULES[tool];
  const servers = await arena.servers(duplicates, random);
  const target = (index: number) => servers[index % servers.length] ?? servers[0];
  const answers = await Promise.all(
    Array.from({ length: duplicates }, async (_, index): Promise<Told> => {
      const server = target(index);
      return server === undefined
        ? { kind: 'broken' }
        : answerOf(await arena.recorder.call(server.endpoint, log.caller, tool, { step, ms })).told;
    }),
  );
  const ran = answers.filter((answer) => answer.kind === 'done').length;
  // Where the step leads to a state in which it is allowed too, each of them is an ordinary step,
  // one after the other.
  const expected = rule.from.includes(rule.to) ? duplicates : 1;
  if (ran !== expected) {
    arena.faults.push(
      `ran ${ran} times, not ${expected}: step ${step} of run ${log.run}: ${JSON.stringify(answers)}`,
    );
  }
  tally.steps++;
  tally.ran += ran;
  for (const answer of answers) note(arena, log, answer, tally);
  log.state = rule.to;
}

function note(arena: Arena, log: RunLog, answer: Told, tally: Tally): void {
  if (answer.kind === 'done') return;
  if (answer.kind === 'refused' && (answer.reason === 'state' || answer.reason === 'busy'))
    tally[answer.reason]++;
  else arena.faults.push(`wrong answer: ${JSON.stringify(answer)} (run ${log.run})`);
}
