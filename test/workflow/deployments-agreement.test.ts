import { expect, it } from 'vitest';
import {
  type Build,
  compareDeployments,
  namedSet,
  type RunOfGate,
  spelt,
} from '../../lab/checker/deployments.ts';
import type { ForwardedCall, NextCall, Verdict } from '../../lab/checker/rules.ts';
import { StateMachineGate } from '../../src/index.ts';
import type { Json } from '../../src/stores/index.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { NOTHING, type Used, usedBy } from '../../src/workflow/facts.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import type { Position } from '../../src/workflow/position.ts';
import type { UnknownGrant } from '../../src/workflow/verdict.ts';
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

/** A call of unknown outcome, as a store has it. */
interface Lost {
  readonly tool: string;
  readonly claimedAt: number;
  readonly idempotencyKey: string;
  readonly use?: Json;
}

/** A run as its store has it, which each build reads anew. */
class Run implements RunOfGate {
  #stored: Position | undefined;
  #uses: readonly Used[] = [];
  #lost: readonly Lost[] = [];

  judge(build: Build, call: NextCall): Verdict | undefined {
    const workflow = workflowOf(build);
    const { tool, args } = spelt(build, call);
    const { at } = call;
    const binding = workflow.match(tool, args);
    this.#uses = [];
    if (binding === undefined) return undefined;
    const unknown = this.#unknown(workflow, call);
    const position = this.#standsAt(workflow, at, unknown);
    const past = workflow.rules.pastOf(position, at, unknown);
    const read = workflow.renamings.readerOf(tool, readerOf(args));
    const verdict = workflow.rules.judge(binding, past, callWith(read, SALT));
    if (verdict?.allows === false && verdict.reason === 'arguments')
      return { verdict: 'arguments' };
    if (!workflow.allows(position.state, binding)) return { verdict: 'order' };
    if (verdict?.allows === false) return { verdict: verdict.reason };
    this.#uses = verdict?.uses ?? [];
    return { verdict: 'allowed', uses: [] };
  }

  end(build: Build, call: ForwardedCall): void {
    const { result, claimedAt, decidedAt = claimedAt, idempotencyKey = '' } = call;
    const workflow = workflowOf(build);
    const spoken = spelt(build, call);
    const tool = workflow.keyOf(spoken.tool);
    const { ledger } = workflow.rules;
    const before = this.#standsAt(workflow, decidedAt, []);
    this.#lost = this.#lost.filter((each) => each.idempotencyKey !== idempotencyKey);
    if (ledger === undefined) return;
    const facts = ledger.read(before);
    const args = workflow.renamings.readerOf(spoken.tool, readerOf(spoken.args));
    const noted = ledger.note(tool, 'args', args, SALT, NOTHING, facts);
    if (call.outcome === 'unknown') {
      const use = workflow.rules.savedGrant(tool, { noted, uses: this.#uses });
      const lost = { tool: workflow.renamings.savedOf(tool), claimedAt, idempotencyKey };
      this.#lost = [...this.#lost, { ...lost, ...(use !== undefined && { use }) }];
      return;
    }
    const { outcome } = call;
    const read = result === undefined ? undefined : readerOf(result);
    const uses = usedBy(outcome, this.#uses);
    const isAsked = outcome === 'succeeded' || uses.length > 0 || ledger.keepsFailures(tool, facts);
    if (!isAsked) return;
    const whole = ledger.note(tool, 'result', read, SALT, noted, facts);
    const made = { tool, outcome, claimedAt, decidedAt, noted: whole, uses } as const;
    const kept = workflow.rules.decided(before, made);
    this.#stored = JSON.parse(JSON.stringify(kept));
  }

  #standsAt(workflow: Workflow, at: number, unknown: readonly UnknownGrant[]): Position {
    return workflow.rules.standAt(workflow.adopt(this.#stored ?? workflow.start), at, unknown);
  }

  /** As a gate knows them of its store, but for an earlier try of the call itself. */
  #unknown(workflow: Workflow, call: NextCall): readonly UnknownGrant[] {
    return this.#lost
      .filter(({ idempotencyKey }) => idempotencyKey !== call.idempotencyKey)
      .map((each) => ({
        ...workflow.rules.grantOf(each),
        tool: workflow.keyOf(each.tool),
        claimedAt: each.claimedAt,
        idempotencyKey: each.idempotencyKey,
        undoes: workflow.rules.undoneBy(workflow.keyOf(each.tool)),
      }));
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
    expect(compared.lost).toBeGreaterThan(compared.retried);
    expect(compared.retried).toBeGreaterThan(HISTORIES / 20);
  },
  Math.max(60_000, 300 * HISTORIES),
);
