/**
 * What rules of order allow, worked out from the whole history of successful calls. It shares no
 * code with the gate, which keeps only a set and some digests.
 */
import type { OrderRequirement, OrderRules } from '../../src/index.ts';

export interface Made {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

interface Need {
  readonly tool: string;
  readonly same: readonly (readonly [own: string, earlier: string])[];
  readonly consumes: boolean;
}

/** Whether a tool is listed after these calls: some call of it may be allowed. */
export function isListed(rules: OrderRules, history: readonly Made[], tool: string): boolean {
  return allows(rules, history, tool, undefined);
}

/** Whether this call, with its arguments, is allowed after these. */
export function isAllowed(rules: OrderRules, history: readonly Made[], call: Made): boolean {
  return allows(rules, history, call.tool, call.args);
}

function allows(
  rules: OrderRules,
  history: readonly Made[],
  tool: string,
  args: Made['args'] | undefined,
): boolean {
  const rule = rules[tool];
  if (rule === undefined) return true;
  if (rule.once === true && standing(rules, history, tool).length > 0) return false;
  const isMade = (need: Need): boolean =>
    standing(rules, history, need.tool).some(
      (call) => args === undefined || fits(need, args, call.args),
    );
  const { after } = rule;
  if (after === undefined) return true;
  return (Array.isArray(after) ? after : [after]).every((each) => met(each, isMade));
}

/** The calls of a tool that still count: no later call has undone them, or used them up. */
function standing(rules: OrderRules, history: readonly Made[], tool: string): readonly Made[] {
  const undoneBy = [rules[tool]?.undoneBy ?? []].flat();
  return history.filter((call, i) => {
    if (call.tool !== tool) return false;
    return !history.slice(i + 1).some((later) => {
      if (undoneBy.includes(later.tool)) return true;
      const needs = [rules[later.tool]?.after ?? []].flat().flatMap(needsOf);
      return needs.some(
        (need) => need.tool === tool && need.consumes && fits(need, later.args, call.args),
      );
    });
  });
}

function fits({ same }: Need, later: Made['args'], earlier: Made['args']): boolean {
  return same.every(
    ([own, its]) => later[own] !== undefined && sorted(later[own]) === sorted(earlier[its]),
  );
}

function sorted(value: unknown): string | undefined {
  return JSON.stringify(value, (_, each: unknown) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  );
}

function met(requirement: OrderRequirement, isMade: (need: Need) => boolean): boolean {
  if (typeof requirement === 'object' && 'all' in requirement)
    return !requirement.all.some((each) => !met(each, isMade));
  if (typeof requirement === 'object' && 'any' in requirement)
    return requirement.any.some((each) => met(each, isMade));
  return needsOf(requirement).every(isMade);
}

function needsOf(requirement: OrderRequirement): readonly Need[] {
  if (typeof requirement === 'string') return [{ tool: requirement, same: [], consumes: false }];
  if ('all' in requirement) return requirement.all.flatMap(needsOf);
  if ('any' in requirement) return requirement.any.flatMap(needsOf);
  const { tool, same = [], consumes = false } = requirement;
  const pairs = Array.isArray(same)
    ? same.map((name) => [name, name] as const)
    : Object.entries(same as Record<string, string>);
  return [{ tool, same: pairs, consumes }];
}
