import { describe, expect, it } from 'vitest';
import { RawSession, reasonOf } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { type Call, NOT_SAID, SAID, TRACES, type TraceName } from './agentltl/golden.ts';
import { gateOf } from './rule-tables.ts';

/** AgentLTL's golden verdicts, played against rules that say the same. */

const TRACE_NAMES = Object.keys(TRACES) as readonly TraceName[];

/** What the gate says to each call of a trace: `+` is let through, `-` is refused. */
async function verdictsOf(url: URL, trace: readonly Call[]): Promise<string> {
  const session = await RawSession.begin(url);
  let verdicts = '';
  for (const { tool, args } of trace)
    verdicts += reasonOf(await session.call(tool, args)) === undefined ? '+' : '-';
  return verdicts;
}

describe('the golden file', () => {
  it('has 31 formulas: rules say 13, and the others have a reason', () => {
    expect(Object.keys(SAID)).toHaveLength(13);
    expect(Object.keys(NOT_SAID)).toHaveLength(18);
    expect(Object.keys(SAID).filter((name) => name in NOT_SAID)).toEqual([]);
  });

  it.each(Object.entries(SAID))('has a verdict for each call: %s', (_, { verdicts }) => {
    for (const name of TRACE_NAMES)
      expect([name, verdicts[name]]).toEqual([
        name,
        expect.stringMatching(`^[-+]{${TRACES[name].length}}$`),
      ]);
  });
});

describe.each(Object.entries(SAID))('%s', (pattern, { rules, verdicts }) => {
  it('has the same verdict for each call of the 13 traces', async () => {
    const app = await scene({
      workflow: gateOf(rules, pattern),
      shape: { answers: 'json' },
      makeServer: toolServer(['a', 'b', 'c']),
    });
    const got: Partial<Record<TraceName, string>> = {};
    for (const name of TRACE_NAMES) got[name] = await verdictsOf(app.url, TRACES[name]);
    expect(got).toEqual(verdicts);
    const allowed = Object.values(verdicts).join('').replaceAll('-', '').length;
    expect(app.ledger.calls).toHaveLength(allowed);
    expect(app.errors).toEqual([]);
  });
});
