import { expect, it } from 'vitest';
import {
  type Build,
  compareDeployments,
  namedSet,
  type RunOfGate,
} from '../../lab/checker/deployments.ts';
import type { ForwardedCall, NextCall, Verdict } from '../../lab/checker/rules.ts';
import { StateMachineGate } from '../../src/index.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { NOTHING, type Used, usedBy } from '../../src/workflow/facts.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import type { Position } from '../../src/workflow/position.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { cases, firstSeed } from '../helpers/few.ts';

/** How many histories, from which seed on: 10,000 where this code changes. */
const HISTORIES = Number(process.env.HISTORIES ?? cases(150));
const SEED = Number(process.env.HISTORIES_SEED ?? firstSeed());

const SALT = 'a run';

const compiled = new WeakMap<Build, Workflow>();

function workflowOf(build: Build): Workflow {
  const known = compiled.get(build);
  if (known !== undefined) return known;
  const { rules, needs } = namedSet(build) as never as { rules: never; needs: never };
  const workflow = StateMachineGate.fromOrder(rules, { id: 'rules', needs }).compile();
  compiled.set(build, workflow);
  return workflow;
}

/** Whether a gate takes the rules: it refuses those by which some tool can never be called. */
function isSound(build: Build): boolean {
  try {
    return workflowOf(build) !== undefined;
  } catch (error) {
    if (/can never be called|cannot be after itself|cannot undo itself/.test(String(error)))
      return false;
    throw error;
  }
}

/** A run as its store has it, which each build reads anew. */
class Run implements RunOfGate {
  #stored: Position | undefined;
  #uses: readonly Used[] = [];

  judge(build: Build, { tool, args, at }: NextCall): Verdict | undefined {
    const workflow = workflowOf(build);
    const name = build.names[tool] ?? tool;
    const binding = workflow.match(name, args);
    this.#uses = [];
    if (binding === undefined) return undefined;
    const position = this.#standsAt(workflow, at);
    const past = workflow.rules.pastOf(position, at);
    const verdict = workflow.rules.judge(binding, past, callWith(readerOf(args), SALT));
    if (verdict?.allows === false && verdict.reason === 'arguments')
      return { verdict: 'arguments' };
    if (!workflow.allows(position.state, binding)) return { verdict: 'order' };
    if (verdict?.allows === false) return { verdict: verdict.reason };
    this.#uses = verdict?.uses ?? [];
    return { verdict: 'allowed', uses: [] };
  }

  end(build: Build, call: ForwardedCall): void {
    const { args, result, claimedAt, decidedAt = claimedAt } = call;
    const outcome = call.outcome === 'failed' ? 'failed' : 'succeeded';
    const workflow = workflowOf(build);
    const tool = build.names[call.tool] ?? call.tool;
    const { ledger } = workflow.rules;
    const before = this.#standsAt(workflow, decidedAt);
    if (ledger === undefined) return;
    const facts = ledger.read(before);
    const noted = ledger.note(tool, 'args', readerOf(args), SALT, NOTHING, facts);
    const read = result === undefined ? undefined : readerOf(result);
    const uses = usedBy(outcome, this.#uses);
    const isAsked = outcome === 'succeeded' || uses.length > 0 || ledger.keepsFailures(tool, facts);
    if (!isAsked) return;
    const whole = ledger.note(tool, 'result', read, SALT, noted, facts);
    const made = { tool, outcome, claimedAt, decidedAt, noted: whole, uses } as const;
    const kept = workflow.rules.decided(before, made);
    this.#stored = JSON.parse(JSON.stringify(kept));
  }

  #standsAt(workflow: Workflow, at: number): Position {
    return workflow.rules.standAt(workflow.adopt(this.#stored ?? workflow.start), at);
  }
}

it(
  'a gate and an evaluator that knows all calls agree over several deployments, and no budget grows',
  () => {
    const seeds = Array.from({ length: HISTORIES }, (_, i) => SEED + i);
    const compared = compareDeployments({ seeds, calls: 40, isSound, openRun: () => new Run() });
    if (process.env.HISTORIES !== undefined) console.log({ ...compared, faults: undefined });
    expect(compared.faults).toEqual([]);
    expect(compared.exact).toBeGreaterThan(HISTORIES);
    expect(compared.closed).toBeGreaterThan(HISTORIES / 10);
    expect(compared.allowed).toBeGreaterThan(HISTORIES);
  },
  Math.max(60_000, 300 * HISTORIES),
);
