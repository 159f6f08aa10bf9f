import { describe, expect, it } from 'vitest';
import { Events } from '../../src/basics/events.ts';
import { memoryStore, StateMachineGate } from '../../src/index.ts';
import { NO_REQUEST, Step } from '../../src/step/step.ts';
import { STEP_LIFE, type StepState } from '../../src/step/step-life.ts';
import { guardStore } from '../../src/step/store-calls.ts';
import { Turns } from '../../src/step/turns.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { Page } from '../helpers/markdown.ts';
import { readDiagram } from '../helpers/mermaid.ts';

const HOUR = 3_600_000;
const TIMES = { waitMs: 10_000, leaseMs: 9_000, maxStepMs: 60_000, cancelGraceMs: 5_000 };
const page = new Page('docs/build/step-details.md');
const rows = page.tableAfter('## The states of a step');

/** A step of a run that stands in `open`. */
async function waiting() {
  const clock = new ManualClock();
  const store = memoryStore({ now: clock.now });
  await store.open('run', {}, HOUR);
  const gate = new StateMachineGate({ id: 'shop', initial: 'open', states: { open: {} } });
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const step = new Step(
    {
      workflow: gate.compile(),
      whenEnded: undefined,
      times: TIMES,
      waiting: undefined,
      clock,
      events: new Events({}),
      onError,
    },
    {
      run: 'run',
      store: guardStore(store, 2_000, clock, new Events({})),
      ttlMs: HOUR,
      turns: new Turns(clock),
      create: undefined,
    },
    {
      description: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
      note: { tool: 'cart.pay' },
      request: NO_REQUEST,
      onTooLong: () => {},
    },
  );
  return { step, errors };
}

describe("the table of a step's life in docs/build/step-details.md", () => {
  it('has each pair of states that may follow each other, and no other', () => {
    const may = Object.entries(STEP_LIFE).flatMap(([from, next]) =>
      next.map((to) => `${from} → ${to}`),
    );
    expect(rows.map(([from, to]) => `${from} → ${to}`).sort()).toEqual(may.sort());
  });

  it('says of each when it comes, what the store is asked, and what the client sees', () => {
    for (const row of rows) expect(row.map((cell) => cell !== '')).toEqual(Array(5).fill(true));
  });

  it('has a picture above it with the same changes', async () => {
    const { arrows } = await readDiagram(page.blocks('mermaid')[0] ?? '');
    expect(arrows.map(({ from, to }) => `${from} → ${to}`).sort()).toEqual(
      ['[*] → waiting', ...rows.map(([from, to]) => `${from} → ${to}`)].sort(),
    );
  });

  it('names as ends the states that no other follows', () => {
    const ends = Object.entries(STEP_LIFE).flatMap(([state, next]) =>
      next.length === 0 ? [`\`${state}\``] : [],
    );
    const said = ends.join(', ').replace(/, (?=[^,]*$)/, ' and ');
    expect(page.text.replaceAll('\n', ' ')).toContain(`${said} are ends.`);
  });
});

describe('a pair that is not in the table', () => {
  it('is a fault of the caller: a step that is over does not begin anew', async () => {
    const { step, errors } = await waiting();
    const states: StepState[] = [step.state];
    expect(await step.claim(['paid'])).toMatchObject({ reason: 'state' });
    states.push(step.state);
    await expect(step.claim(['open'])).rejects.toThrow(
      'a step of "cart.pay" cannot go from refused to refused',
    );
    expect([...states, step.state]).toEqual(['waiting', 'refused', 'refused']);
    expect(errors.map(String)).toContainEqual(
      expect.stringContaining('cannot go from refused to claimed'),
    );
  });

  it.each([
    ['forward', 'waiting'],
    ['giveUp', 'waiting'],
  ] as const)('is not taken: %s() changes nothing of a step that is %s', async (ask, state) => {
    const { step } = await waiting();
    step[ask]();
    expect(step.state).toBe(state);
  });

  it('is not taken: a released step goes on to no other state', async () => {
    const { step } = await waiting();
    await step.claim(['open']);
    await step.withdraw();
    step.forward();
    step.giveUp();
    await step.release();
    expect(step.state).toBe('released');
  });
});
