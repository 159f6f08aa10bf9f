import { describe, expect, it } from 'vitest';
import { HIDING, ROWS, type Source, whyHidden } from '../../src/gate/decide.ts';
import { Standing } from '../../src/gate/standing.ts';
import { StateMachineGate } from '../../src/index.ts';
import type { ClaimView, WorkflowRecord } from '../../src/stores/store.ts';
import { Page } from '../helpers/markdown.ts';

/** What each row depends on, in the words of the docs. */
const WORDS: Record<Source, string> = {
  request: 'what the request itself says',
  run: 'the run: whether there is one, and whether it is stopped',
  operators: 'what operators have stopped of all runs',
  turn: 'a call of the run that is running',
  held: 'a call of the run whose outcome is unknown',
  keys: 'how many calls of the run that may be repeated have an unknown outcome',
  state: "the run's state, and `visible`",
  rules: 'rules and limits',
  events: 'the arguments that a function of the binding reads',
  shield: 'how often the call came',
  machine: "the machine's own guards",
  client: 'the client, and the time',
};

/** What a client is told in place of a reason. */
const ANSWERS: Readonly<Record<string, string>> = { unknown: 'HTTP 404', cancelled: 'no answer' };

/** The table of reasons, as the docs have it. */
function printed(): string {
  const rows = ROWS.map(({ reasons, from }, i) => {
    const told = reasons.map((reason) => ANSWERS[reason] ?? `\`${reason}\``).join(', ');
    const hides = from === 'rules' ? 'a limit of all calls does' : 'yes';
    return `| ${i + 1} | ${told} | ${WORDS[from]} | ${HIDING.includes(from) ? hides : 'no'} |`;
  });
  return ['| | reason | it depends on | hides the tool |', '|---|---|---|---|', ...rows].join('\n');
}

describe('the table of reasons', () => {
  it('stands in the docs', () => {
    expect(new Page('docs/reference/refusals.md').text).toContain(printed());
  });

  it('has each reason of a run that cannot be asked before all others of it', () => {
    const ofRuns = ROWS.filter(({ from }) => from !== 'request');
    const isAbsent = ofRuns.map(({ when }) => when === undefined);
    expect(isAbsent.lastIndexOf(true)).toBeLessThan(isAbsent.indexOf(false));
  });
});

describe('a list that hides what is not available', () => {
  const gate = new StateMachineGate({
    id: 'mail',
    initial: 'open',
    states: { open: { on: { SEND: 'sent' } }, sent: {} },
  })
    .bindTool('read', '*')
    .bindTool('send', 'open', { success: 'SEND', limit: { times: 0 } })
    .bindTool('close', 'open', 'SEND')
    .bindTool('reopen', 'sent')
    .bindTool('secret', 'open', { visible: () => false });
  const claim: ClaimView = {
    ...{ token: 't', tool: 'close', digest: 'd', uncertain: 'hold', idempotencyKey: 'k' },
    ...{ since: 1, until: 2, live: false },
  };
  const held = { claim };
  const running = { claim: { ...claim, live: true } };
  const frozen = { frozen: { actor: 'ann', note: 'stop' } };

  it.each<[string, string, Omit<WorkflowRecord, 'snapshot'>, readonly string[]]>([
    ['is idle', 'open', {}, ['read', 'close']],
    ['has moved', 'sent', {}, ['read', 'reopen']],
    ['is running', 'open', running, ['read', 'close']],
    ['is held', 'open', held, ['read']],
    ['is frozen', 'open', frozen, []],
  ])('has what the table leaves, where the run %s', (_, state, record, available) => {
    const rules = { workflow: gate.compile(), whenEnded: undefined, onError: () => {} };
    const snapshot = { state, updatedAt: 1, version: 1 };
    const viewpoint = { run: 'r', actor: undefined };
    const standing = Standing.of(rules, viewpoint, { snapshot, ...record }, 3);
    const { toolNames } = standing.workflow;
    expect(standing.available).toEqual(available);
    expect(toolNames.filter((tool) => whyHidden(standing, tool) === undefined)).toEqual(available);
  });
});
