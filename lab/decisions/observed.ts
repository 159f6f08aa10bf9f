/**
 * Plays cases on a gate that enforces and on one that observes, and compares what both say of each
 * run first: what follows a refusal is another run. Hides what of a case an observing gate cannot
 * be compared in.
 */
import { type Case, drawCase, type GateSpec, type Operation } from './cases.ts';
import type { Compared, Found, Range } from './compare.ts';
import { play } from './play.ts';
import type { Side } from './side.ts';

/** A refusal, as its event tells of it. */
interface Refusal {
  readonly requestId: number;
  readonly tool: string;
  readonly reason: string;
  readonly state: string | undefined;
}

/** Sessions end after that without a call, and an observing gate lets their clients go on. */
const LONGEST_WAIT_MS = 3_000_000;
/** Where these begin a run, an observing gate judges no call of it. */
const NO_BEGINNING: readonly (string | undefined)[] = ['throws', 'never', 'odd'];
/** An enforcing gate does not know the state yet, or has moved the run to a loop's fall-back. */
const WITHOUT_STATE: readonly string[] = ['arguments', 'unavailable', 'loop'];
/** What these do comes at another time than the rest of the case. */
const OF_OTHER_TIMES = ['latched', 'asks', 'limited'];

export async function comparingObserved(side: Side, range: Range): Promise<Compared> {
  const reasons = new Map<string, number>();
  const found: Found[] = [];
  let differences = 0;
  for (let seed = range.from; seed < range.from + range.count; seed++) {
    const compared = comparable(drawCase(seed));
    const enforced = await firstRefusals(side, compared, {});
    const observed = await firstRefusals(side, compared, { enforce: false });
    for (const { reason } of enforced) {
      const key = `call ${reason}`;
      reasons.set(key, (reasons.get(key) ?? 0) + 1);
    }
    const [one, other] = [JSON.stringify(enforced), JSON.stringify(observed)];
    if (one === other) continue;
    differences++;
    const text = `enforced: ${one}\nobserved: ${other}\n${JSON.stringify(compared)}`;
    found.push({ seed, kept: compared.operations.map((_, i) => i), text });
  }
  return { range, differences, reasons: [...reasons], found, wanted: [], digest: '' };
}

/** One gate, sessions, and calls that are made one after another. */
function comparable({ seed, route, operations }: Case): Case {
  const [{ begin, ...gate }] = route.gates as readonly [GateSpec];
  const hasBeginning = begin !== undefined && !NO_BEGINNING.includes(begin);
  const only = { ...gate, reads: [], mount: {}, ...(hasBeginning && { begin }) };
  const clients = route.clients.map((each) => ({ ...each, era: 'session' as const }));
  return {
    seed,
    route: { ...route, gates: [only], key: ['session'], session: {}, clients },
    operations: operations.filter(isComparable).flatMap(withGrace),
  };
}

function isComparable(operation: Operation): boolean {
  if (operation.do === 'wait') return operation.ms < LONGEST_WAIT_MS;
  if (operation.do !== 'send' || operation.header !== undefined) return false;
  const [message, ...others] = operation.messages;
  const isCall = message?.method === 'tools/call' && others.length === 0;
  return isCall && !OF_OTHER_TIMES.includes(message.deed);
}

/** An enforcing gate waits for a late answer, where an observing one has none at once. */
function withGrace(operation: Operation): readonly Operation[] {
  const isLost = operation.do === 'send' && operation.messages.some(({ deed }) => deed === 'dies');
  return isLost ? [operation, { do: 'wait', ms: 9_000 }] : [operation];
}

/** The first refusal of each run. */
async function firstRefusals(
  side: Side,
  { route, ...rest }: Case,
  mount: GateSpec['mount'],
): Promise<readonly Refusal[]> {
  const gates = route.gates.map((each) => ({ ...each, mount }));
  const { lines } = await play(side, { ...rest, route: { ...route, gates } });
  const first = new Map<string, Refusal>();
  for (const line of lines) {
    if (!line.startsWith('event {')) continue;
    const { type, run, tool, reason, state, requestId } = JSON.parse(line.slice('event '.length));
    if (type !== 'call.refused') continue;
    const before = first.get(run);
    if (before !== undefined && before.requestId <= requestId) continue;
    const isElsewhere = WITHOUT_STATE.includes(reason);
    first.set(run, { requestId, tool, reason, state: isElsewhere ? undefined : state });
  }
  return [...first.values()].sort((one, other) => one.requestId - other.requestId);
}
