/**
 * Compares what an observing gate says of a run with what the enforcing ones told its client. Hides
 * how far a run of the torture can be compared: until its calls overlap, or something else decides.
 */
import { replayCalls } from '../../packages/check/src/index.ts';
import { type InterlockEvent, recordCalls, type StateMachineGate } from '../../src/index.ts';
import type { Exchange } from '../checker/evidence.ts';
import { answerOf, type Told } from '../checker/reading.ts';

/** What the exchanges of one run say of it, and what happened to it beside them. */
export interface ObservedEvidence {
  readonly run: string;
  readonly gate: StateMachineGate;
  readonly exchanges: readonly Exchange[];
  /** When a person, an operator or another run first did something about it, if ever. */
  readonly touched: number;
}

export interface ObservedTally {
  runs: number;
  calls: number;
  refused: number;
  readonly faults: string[];
}

/** What can be compared of one run: its calls one after another, up to the first refusal. */
interface Compared {
  readonly calls: readonly (readonly [exchange: Exchange, told: Told, at: number])[];
  readonly refusal: { readonly tool: string; readonly reason: string } | undefined;
}

/** Adds what one run comes to. The tools of a run's workflow are bound without arguments. */
export async function compareObserved(
  evidence: ObservedEvidence,
  tally: ObservedTally,
): Promise<void> {
  const { calls, refusal } = comparable(evidence);
  if (calls.length === 0) return;
  const lines = await recorded(calls, evidence.run);
  const { refusals, waited, unknown } = await replayCalls(evidence.gate, { lines: () => lines });
  const [first] = refusals;
  const said = first && { tool: first.tool, reason: first.reason };
  tally.runs += 1;
  tally.calls += calls.length;
  if (refusal !== undefined) tally.refused += 1;
  const isSame = JSON.stringify(said) === JSON.stringify(refusal) && waited + unknown === 0;
  if (isSame) return;
  const observed = JSON.stringify(said ?? { waited, unknown });
  const told = JSON.stringify(refusal ?? 'no refusal');
  tally.faults.push(`observed: ${observed}, and its client was told ${told} (run ${evidence.run})`);
}

export function describeObserved({ runs, calls, refused }: ObservedTally): string {
  return `${runs} runs judged behind by ${calls} calls, ${refused} of them up to a refusal`;
}

function comparable({ exchanges, touched }: ObservedEvidence): Compared {
  const calls: (readonly [Exchange, Told, number])[] = [];
  const sent = exchanges
    .filter(({ request }) => request.method === 'tools/call')
    .sort((one, other) => one.sent - other.sent);
  for (const [index, exchange] of sent.entries()) {
    const { told, at } = answerOf(exchange);
    // The gate may have taken calls that overlap in either order.
    if (at >= touched || at >= (sent[index + 1]?.sent ?? Number.POSITIVE_INFINITY)) break;
    const isRefused = told.kind === 'refused' && BY_DECISION.has(told.reason);
    if (told.kind !== 'done' && !isRefused) break;
    calls.push([exchange, told, at]);
    if (told.kind !== 'refused') continue;
    return { calls, refusal: { tool: exchange.request.params.name, reason: told.reason } };
  }
  return { calls, refusal: undefined };
}

/** What follows from the run alone: not that a step was under way, was held, or was stopped. */
const BY_DECISION: ReadonlySet<string> = new Set(['state', 'guard']);

async function recorded(calls: Compared['calls'], run: string): Promise<readonly string[]> {
  const lines: string[] = [];
  const record = recordCalls({
    write: (text) => void lines.push(...text.trim().split('\n')),
    key: 'compared with nothing else',
    maxQueued: 2 * calls.length + 1,
  });
  for (const [call, [exchange, told, at]] of calls.entries()) {
    const { name: tool } = exchange.request.params;
    record({ type: 'call.started', at: exchange.sent, call, tool, run } as InterlockEvent);
    const isFailed = told.kind === 'done' && told.isError;
    const outcome = told.kind === 'refused' ? 'refused' : isFailed ? 'tool_error' : 'ok';
    record({ type: 'call.ended', at, call, tool, run, outcome } as InterlockEvent);
  }
  await record.flush();
  return lines;
}
