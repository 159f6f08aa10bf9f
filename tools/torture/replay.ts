import type { TrailEntry } from '../../src/index.ts';
import type { Attempt } from './ledger.ts';
import { INITIAL, isLegal, RULES, ruleOf, type ToolName, type WorkflowName } from './workflows.ts';

/** Everything that is known of one run: from its handlers, from its clients, and from the store. */
export interface RunEvidence {
  readonly run: string;
  readonly workflow: WorkflowName;
  /** In the order in which they began. */
  readonly attempts: readonly Attempt[];
  /** The attempts whose success a client was told. */
  readonly succeeded: ReadonlySet<string>;
  /** What was decided about held steps, by idempotency key. */
  readonly resolved: ReadonlyMap<string, 'succeeded' | 'failed'>;
  /** Every move that the store knows, oldest first. */
  readonly history: readonly TrailEntry[];
  /** Where the store says that the run is now; `undefined` where it says that there is no such run. */
  readonly now:
    | { readonly state: string; readonly version: number; readonly status: string }
    | undefined;
}

/** Whatever contradicts the promises, in words; nothing where they were all kept. */
export function faultsOf(evidence: RunEvidence): string[] {
  const faults = [
    ...historyFaults(evidence),
    ...keyFaults(evidence),
    ...overlapFaults(evidence),
    ...replayFaults(evidence),
  ];
  return faults.map((fault) => `${fault} (run ${evidence.run}, ${evidence.workflow})`);
}

/** The moves are one chain of legal ones, numbered without a gap, and the run is where the last one led. */
function historyFaults({ workflow, history, now }: RunEvidence): string[] {
  if (now === undefined) return ['lost: the store does not know the run any more'];
  const faults: string[] = [];
  let state = INITIAL[workflow];
  for (const [index, { version, from, to, tool }] of history.entries()) {
    const rule = ruleOf(tool ?? '');
    if (version !== index + 1) faults.push(`gap: move ${index + 1} has the version ${version}`);
    if (from !== state)
      faults.push(`gap: version ${version} goes on from "${from}", not from "${state}"`);
    if (!rule?.from.includes(from) || rule.to !== to) {
      faults.push(`illegal move: version ${version} is ${tool} from "${from}" to "${to}"`);
    }
    state = to;
  }
  if (now.version !== history.length || now.state !== state) {
    faults.push(
      `gap: the run is in "${now.state}" at version ${now.version}, its history in "${state}" at ${history.length}`,
    );
  }
  if (now.status !== 'idle')
    faults.push(`stuck: the run is ${now.status} although nothing is under way`);
  return faults;
}

/** A key is one step's, and what must not be repeated begins once with it. */
function keyFaults({ attempts }: RunEvidence): string[] {
  const faults: string[] = [];
  const stepOf = new Map<string, string>();
  const keyOf = new Map<string, string>();
  for (const { key, metaKey, tool, step, attempt } of attempts) {
    const name = `${tool} of step ${step}`;
    const known = stepOf.get(key);
    const earlier = keyOf.get(name);
    if (key === '' || key !== metaKey) {
      faults.push(
        `key: ${attempt} was given "${metaKey}" in the call and "${key}" by currentStep()`,
      );
    } else if (known !== undefined && known !== name) {
      faults.push(`key: ${known} and ${name} have one idempotency key`);
    } else if (known !== undefined && ruleOf(tool)?.uncertain === 'hold') {
      faults.push(`ran twice: ${name} began again as ${attempt}, though it must not be repeated`);
    } else if (earlier !== undefined && earlier !== key && isRepeatedByItself(tool)) {
      faults.push(`key: ${name} was run again as ${attempt} with another idempotency key`);
    }
    stepOf.set(key, name);
    keyOf.set(name, key);
  }
  return faults;
}

/** A tool that may be repeated and whose success leads away from where it is allowed: only an unknown outcome has it run twice. */
function isRepeatedByItself(tool: string): boolean {
  const rule = ruleOf(tool);
  return rule?.uncertain === 'retry' && !rule.from.includes(rule.to);
}

/** While one handler of a run is at work no other one begins. */
function overlapFaults({ attempts }: RunEvidence): string[] {
  const faults: string[] = [];
  let last: Attempt | undefined;
  for (const attempt of attempts) {
    // One that never ended was killed.
    if (last?.ended !== undefined && last.ended > attempt.started && !isRepetition(last, attempt)) {
      faults.push(`overlap: ${attempt.attempt} began while ${last.attempt} was at work`);
    }
    last = attempt;
  }
  return faults;
}

/** What may be repeated may overlap with itself, where a process stood still for longer than its lease. */
function isRepetition(one: Attempt, other: Attempt): boolean {
  return one.key === other.key && ruleOf(one.tool)?.uncertain === 'retry';
}

/**
 * Goes through the handlers in the order in which they began, beside the store's moves. What became of each is not guessed: a
 * step that must not be repeated was saved, unless it was held and somebody decided that it had failed; one that may be
 * repeated was saved by the last handler that had its key.
 */
function replayFaults({ workflow, attempts, succeeded, resolved, history }: RunEvidence): string[] {
  const lastOfKey = new Map(attempts.map((attempt) => [attempt.key, attempt]));
  let version = 0;
  for (const attempt of attempts) {
    const tool = attempt.tool as ToolName;
    const state = version === 0 ? INITIAL[workflow] : (history[version - 1]?.to ?? '');
    const what = `${attempt.attempt} (${tool}, step ${attempt.step})`;
    if (!isLegal(tool, state) || attempt.state !== state) {
      return [
        `illegal execution: ${what} began in "${attempt.state}" when version ${version} was "${state}"`,
      ];
    }
    const saved =
      RULES[tool].uncertain === 'hold'
        ? resolved.get(attempt.key) !== 'failed'
        : lastOfKey.get(attempt.key) === attempt;
    if (!saved && succeeded.has(attempt.attempt)) {
      return [
        `ran again: ${what} began anew, or was decided to have failed, after it had succeeded`,
      ];
    }
    if (!saved) continue;
    if (history[version]?.tool !== tool) {
      return [
        succeeded.has(attempt.attempt)
          ? `lost: ${what} succeeded for its client, but version ${version + 1} is not its move`
          : `dropped: ${what} was interrupted, and neither saved, nor held, nor run again with its key`,
      ];
    }
    version++;
  }
  return version === history.length
    ? []
    : [`phantom: ${history.length} moves were saved, and handlers account for ${version}`];
}
