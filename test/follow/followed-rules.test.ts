import { expect, it } from 'vitest';
import {
  type ForwardedCall,
  judge,
  type NextCall,
  type RulesHistory,
} from '../../lab/checker/rules.ts';
import { shrink } from '../../lab/checker/rules-compare.ts';
import { type RulesCase, randomCases } from '../../lab/checker/rules-random.ts';
import { principalText } from '../../src/basics/names.ts';
import { FollowedRun, type FollowedVerdict } from '../../src/follow/followed-run.ts';
import { ToolQuestion } from '../../src/gate/consult.ts';
import type { Json } from '../../src/stores/store.ts';
import { AskedArguments } from '../../src/workflow/bound-tools.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { cases } from '../helpers/few.ts';
import { isSound, workflowOf } from '../workflow/rules-gate.ts';

const RUN = 'a run';

/** The call as a judge follows it. Two tries of one step have one digest. */
function followed(
  workflow: Workflow,
  {
    tool,
    args,
    caller,
    claims,
    idempotencyKey = Math.random().toString(),
  }: ForwardedCall | NextCall,
) {
  const rules = { workflow, onError: () => {} };
  const principal = caller && principalText(caller);
  const identity = { principal, binding: principal, claims: claims as Record<string, Json> };
  const viewpoint = { run: RUN, actor: undefined, identity };
  return {
    question: new ToolQuestion(rules, tool, new AskedArguments(args), viewpoint),
    digest: idempotencyKey,
    note: { tool, digest: '' },
    args: { args: args as Record<string, Json> },
    uncertain: 'retry' as const,
    identity,
  };
}

/** Follows the history, and asks about the call. */
function verdictOf(workflow: Workflow, { history, call }: RulesCase): FollowedVerdict {
  const rules = { workflow, whenEnded: 'keep' as const, onError: () => {} };
  const run = new FollowedRun(rules, { run: RUN, actor: undefined });
  for (let index = 0; index <= history.length; index++) {
    history.forEach((each, number) => {
      if (!('send' in each) && (each.seen ?? number) === index)
        run.started(number, followed(workflow, each), each.claimedAt);
    });
    const each = history[index];
    if (each === undefined) break;
    if ('send' in each) {
      const told = { args: each.args as never, result: each.result as never, by: each.by };
      const { snapshot } = run.at;
      const stands = workflow.stand(snapshot, each.at);
      const sent = workflow.rules.reportedCall(each.send, RUN, each.at, told);
      const { position } = workflow.next(stands, each.send, undefined, sent);
      const version = (snapshot.version ?? 0) + 1;
      run.standAt({ ...run.at, snapshot: { ...position, updatedAt: each.at, version } });
      continue;
    }
    const { outcome, result, invalid, claimedAt, decidedAt = claimedAt } = each;
    const kind = outcome;
    const answer = result === undefined ? {} : { structuredContent: result as Json };
    const error = invalid ? { code: -32602, message: '' } : undefined;
    run.ended(index, { kind, result: answer as never, error }, decidedAt);
  }
  return run.started(-1, followed(workflow, call), call.at);
}

const SAID: Readonly<Record<string, readonly string[]>> = {
  allowed: ['allowed'],
  order: ['refused guard', 'refused state'],
  limit: ['refused limit'],
  // The gate asks the state first.
  arguments: ['refused arguments', 'refused state'],
};

/** What the follower says, where it differs from what reads the whole history. */
function differenceIn(each: RulesCase): string | undefined {
  if (!isSound(each.rules)) return undefined;
  const workflow = workflowOf(each.rules);
  const { verdict } = judge(each.rules, each.history, each.call);
  const said = verdictOf(workflow, each);
  const got = said.says === 'refused' ? `refused ${said.reason}` : said.says;
  return SAID[verdict]?.includes(got) ? undefined : `${got}, and not ${verdict}`;
}

/** A gate measures how long a call took, so none ends before it began. */
function endedLater(each: RulesHistory[number]): RulesHistory[number] {
  if ('send' in each || each.decidedAt === undefined) return each;
  return { ...each, decidedAt: Math.max(each.decidedAt, each.claimedAt) };
}

it('says of each call what rules say that read the whole history', { timeout: 60_000 }, () => {
  let compared = 0;
  for (let seed = 1; seed <= cases(5); seed++) {
    let number = 0;
    for (const { rules, history, call } of randomCases(seed)) {
      if (++number > 120) break;
      const each = { rules, call, history: history.map(endedLater) };
      compared++;
      if (differenceIn(each) === undefined) continue;
      const small = shrink(each, (smaller) => differenceIn(smaller) !== undefined);
      expect(JSON.stringify(small)).toBe(differenceIn(small));
    }
  }
  expect(compared).toBeGreaterThan(250);
});
