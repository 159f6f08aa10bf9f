import { describe, expect, it } from 'vitest';
import type { TrailEntry } from '../../src/index.ts';
import type { Attempt } from '../../tools/torture/ledger.ts';
import { faultsOf, type RunEvidence } from '../../tools/torture/replay.ts';
import { RULES, type ToolName } from '../../tools/torture/workflows.ts';

/** A rally that goes well: every second handler is one of a step that must not be repeated. */
function rally(moves: number): RunEvidence {
  const tools: ToolName[] = Array.from({ length: moves }, (_, i) =>
    i % 2 ? 'rally.pong' : 'rally.ping',
  );
  const attempts = tools.map((tool, index) => attemptOf(tool, index, { step: index + 1 }));
  return {
    run: 'a-run',
    workflow: 'rally',
    attempts,
    succeeded: new Set(attempts.map(({ attempt }) => attempt)),
    resolved: new Map(),
    history: tools.map((tool, index) => moveOf(tool, index + 1)),
    now: { state: moves % 2 ? 'right' : 'left', version: moves, status: 'idle' },
  };
}

/** At its place in the ledger, where each handler takes two lines. */
function attemptOf(tool: ToolName, place: number, more: Partial<Attempt> = {}): Attempt {
  const key = `key-${place}`;
  return {
    attempt: `server-1.${place}`,
    server: 'server-1',
    run: 'a-run',
    tool,
    step: place,
    state: RULES[tool].from[0],
    key,
    metaKey: more.key ?? key,
    startedAt: 0,
    started: 2 * place,
    ended: 2 * place + 1,
    ...more,
  };
}

function moveOf(tool: ToolName, version: number): TrailEntry {
  return { version, from: RULES[tool].from[0], to: RULES[tool].to, event: null, tool, at: 0 };
}

function withAttempts(evidence: RunEvidence, attempts: readonly Attempt[]): RunEvidence {
  return { ...evidence, attempts };
}

/** Without its end, as the ledger has it of a process that was killed. */
function cutOff({ ended: _, ...attempt }: Attempt): Attempt {
  return attempt;
}

const [ping, pong, pingAgain] = rally(3).attempts as [Attempt, Attempt, Attempt];

describe('faultsOf()', () => {
  it('finds nothing in a run that went well', () => {
    expect(faultsOf(rally(0))).toEqual([]);
    expect(faultsOf(rally(7))).toEqual([]);
  });

  it('accepts a step that was cut off and run again with its key', () => {
    const first = cutOff(attemptOf('rally.pong', 1, { key: 'k', step: 2 }));
    const second = attemptOf('rally.pong', 2, { key: 'k', step: 2 });
    const succeeded = new Set([ping.attempt, second.attempt]);
    expect(faultsOf({ ...rally(2), attempts: [ping, first, second], succeeded })).toEqual([]);
  });

  it('accepts a step that was cut off after its commit, without being run again', () => {
    const succeeded = new Set([ping.attempt]);
    expect(faultsOf({ ...withAttempts(rally(2), [ping, cutOff(pong)]), succeeded })).toEqual([]);
  });

  it('accepts a held step that was decided to have failed, and was made again with a new key', () => {
    const failed = cutOff(attemptOf('rally.ping', 2, { key: 'k', step: 3 }));
    const made = attemptOf('rally.ping', 3, { step: 3 });
    const attempts = [ping, pong, failed, made];
    const succeeded = new Set([ping.attempt, pong.attempt, made.attempt]);
    expect(
      faultsOf({ ...rally(3), attempts, succeeded, resolved: new Map([['k', 'failed']]) }),
    ).toEqual([]);
  });

  it.each<[fault: string, evidence: RunEvidence]>([
    ['a handler that ran out of order', withAttempts(rally(1), [ping, attemptOf('rally.ping', 1)])],
    [
      'a handler that was let through in a state that was not the committed one',
      withAttempts(rally(2), [ping, attemptOf('rally.pong', 1, { state: 'left' })]),
    ],
  ])('reports %s as an illegal execution', (_, evidence) => {
    expect(faultsOf(evidence).join()).toContain('illegal execution');
  });

  it('reports a success that the store does not have', () => {
    const lost = { ...rally(3), history: rally(2).history, now: rally(2).now };
    expect(faultsOf(lost).join()).toContain(
      'lost: server-1.2 (rally.ping, step 3) succeeded for its client',
    );
  });

  it('reports a run that the store does not have', () => {
    expect(faultsOf({ ...rally(3), history: [], now: undefined }).join()).toContain('lost');
  });

  it('reports an interrupted step that was neither saved, nor held, nor run again', () => {
    for (const [moves, attempts] of [
      [2, [ping, pong, cutOff(pingAgain)]],
      [1, [ping, cutOff(pong)]],
    ] as const) {
      const succeeded = new Set(rally(moves).attempts.map(({ attempt }) => attempt));
      expect(faultsOf({ ...rally(moves), attempts, succeeded }).join()).toContain('dropped');
    }
  });

  it('reports a step that must not be repeated and began twice with its key', () => {
    const twice = [cutOff(ping), attemptOf('rally.ping', 1, { key: ping.key, step: ping.step })];
    expect(faultsOf(withAttempts(rally(1), twice)).join()).toContain('ran twice');
  });

  it('reports a step that was run again with another key', () => {
    const again = [ping, cutOff(pong), attemptOf('rally.pong', 2, { step: pong.step })];
    expect(faultsOf(withAttempts(rally(2), again)).join()).toContain(
      'with another idempotency key',
    );
  });

  it('reports one key for two steps, and one that the call and the handler do not agree on', () => {
    const shared = [ping, attemptOf('rally.pong', 1, { key: ping.key })];
    expect(faultsOf(withAttempts(rally(2), shared)).join()).toContain('have one idempotency key');
    const torn = [ping, { ...pong, metaKey: 'undefined' }];
    expect(faultsOf(withAttempts(rally(2), torn)).join()).toContain('by currentStep()');
  });

  it('reports a success that was run again', () => {
    const again = [ping, pong, attemptOf('rally.pong', 2, { key: pong.key, step: pong.step })];
    expect(faultsOf(withAttempts(rally(2), again)).join()).toContain('ran again');
  });

  it('reports two handlers of one run at work at the same time', () => {
    const attempts = [
      { ...ping, ended: 3 },
      { ...pong, started: 2 },
    ];
    expect(faultsOf(withAttempts(rally(2), attempts)).join()).toContain('overlap');
  });

  it('lets a step that may be repeated overlap with itself alone', () => {
    const first = attemptOf('rally.pong', 1, { key: 'k', step: 2, ended: 6 });
    const second = attemptOf('rally.pong', 2, { key: 'k', step: 2 });
    const succeeded = new Set([ping.attempt, second.attempt]);
    expect(faultsOf({ ...rally(2), attempts: [ping, first, second], succeeded })).toEqual([]);
  });

  it('reports a gap in the versions, a broken chain and an illegal move', () => {
    const [one, two, three] = rally(3).history as [TrailEntry, TrailEntry, TrailEntry];
    const withHistory = (...history: TrailEntry[]) => faultsOf({ ...rally(3), history }).join();
    expect(withHistory(one, two, { ...three, version: 4 })).toContain(
      'gap: move 3 has the version 4',
    );
    expect(withHistory(one, { ...two, from: 'left' }, three)).toContain(
      'gap: version 2 goes on from "left"',
    );
    expect(withHistory(one, two, { ...three, to: 'left' })).toContain('illegal move: version 3');
    expect(withHistory(one, two)).toContain('gap: the run is in "right" at version 3');
  });

  it('reports a move that no handler made', () => {
    expect(faultsOf(withAttempts(rally(3), rally(2).attempts)).join()).toContain('phantom');
  });

  it('reports a run that is not free at the end', () => {
    const held = { state: 'right', version: 3, status: 'held' };
    expect(faultsOf({ ...rally(3), now: held }).join()).toContain('stuck: the run is held');
  });
});
