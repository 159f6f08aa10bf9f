import { describe, expect, it } from 'vitest';
import { InFlight } from '../../src/session/in-flight.ts';
import { LiveSession } from '../../src/session/live-session.ts';
import { SessionTable } from '../../src/session/session-table.ts';

const sessionOf = (run: string): LiveSession => new LiveSession(run, {}, 0);

describe('a request in flight', () => {
  it('has an id of its own until it ends', () => {
    const session = sessionOf('a');
    const first = session.begin(1);
    expect(session.begin(1)).toBeUndefined();
    expect(session.begin('1')).toBeInstanceOf(InFlight);
    first?.end();
    expect(session.begin(1)).toBeInstanceOf(InFlight);
  });

  it('that has ended leaves alone the next request of its id', () => {
    const session = sessionOf('a');
    const first = session.begin(1);
    first?.end();
    session.begin(1);
    first?.end();
    expect(session.begin(1)).toBeUndefined();
  });

  it('keeps its id while it runs as a step, in as many workflows as there are', () => {
    const session = sessionOf('a');
    const request = session.begin(1);
    const [first, second] = [request?.beginStep(), request?.beginStep()];
    request?.end();
    first?.();
    first?.();
    expect(session.begin(1)).toBeUndefined();
    expect(session.idle).toBe(false);
    second?.();
    expect(session.begin(1)).toBeInstanceOf(InFlight);
  });

  it('is told once that it is cancelled, whoever asks, and also who asks too late', () => {
    const told: string[] = [];
    const request = new InFlight();
    const forget = request.onCancel(() => void told.push('forgotten'));
    request.onCancel(() => void told.push('waiting'));
    request.onNotice(() => void told.push('running'));
    forget();
    request.cancel();
    request.cancel();
    request.onCancel(() => void told.push('late'));
    expect(told).toEqual(['waiting', 'running', 'late']);
  });

  it('goes on, if it runs already, when its client only goes away', () => {
    const told: string[] = [];
    const request = new InFlight();
    request.onCancel(() => void told.push('waiting'));
    request.onNotice(() => void told.push('running'));
    request.leave();
    expect([told, request.cancelled]).toEqual([['waiting'], true]);
    request.cancel();
    expect(told).toEqual(['waiting', 'running']);
  });
});

describe("a question of the upstream's", () => {
  it('tells everybody who wants to know of its answer, once', () => {
    const told: string[] = [];
    const session = sessionOf('a');
    session.onAnswer(1, () => void told.push('a'));
    session.onAnswer(1, () => void told.push('b'));
    session.onAnswer('1', () => void told.push('another'));
    session.answered(1);
    session.answered(1);
    session.answered('__proto__');
    expect(told).toEqual(['a', 'b']);
  });

  it('is forgotten where an upstream asks and asks, the oldest first', () => {
    const told: number[] = [];
    const session = sessionOf('a');
    for (let id = 0; id < 150; id++) session.onAnswer(id, () => void told.push(id));
    for (let id = 0; id < 150; id++) session.answered(id);
    expect(told).toHaveLength(100);
    expect(told[0]).toBe(50);
  });
});

describe('the table of sessions', () => {
  it('forgets the one that was not used for the longest time, and keeps as many as it may', () => {
    const table = new SessionTable(2);
    for (const run of ['a', 'b']) table.set(sessionOf(run));
    table.get('a');
    table.set(sessionOf('c'));
    expect(['a', 'b', 'c'].map((run) => table.get(run)?.run)).toEqual(['a', undefined, 'c']);
  });

  it('keeps those in which something is under way, and grows where that is so in all of them', () => {
    const table = new SessionTable(2);
    const busy = sessionOf('busy');
    const request = busy.begin(1);
    table.set(busy);
    for (const run of ['a', 'b', 'c']) table.set(sessionOf(run));
    expect(['busy', 'a', 'b', 'c'].map((run) => table.get(run)?.run)).toEqual([
      'busy',
      undefined,
      undefined,
      'c',
    ]);
    request?.end();
    for (const run of ['d', 'e']) table.set(sessionOf(run));
    expect(table.get('busy')).toBeUndefined();
  });

  it('takes any name for a name', () => {
    const table = new SessionTable(10);
    for (const run of ['__proto__', 'constructor', '']) {
      expect(table.get(run)).toBeUndefined();
      table.set(sessionOf(run));
      expect(table.get(run)?.run).toBe(run);
      table.delete(run);
      expect(table.get(run)).toBeUndefined();
    }
  });
});
