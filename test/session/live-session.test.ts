import { describe, expect, it } from 'vitest';
import { Quotas } from '../../src/session/callers.ts';
import { InFlight, LiveSession, SessionTable } from '../../src/session/live-session.ts';
import type { Tap } from '../../src/wire/tap.ts';

const sessionOf = (run: string): LiveSession => new LiveSession(run, {}, 0);

describe('a request in flight', () => {
  it('has its id to itself until it ends', () => {
    const session = sessionOf('a');
    const first = session.begin(1);
    expect(session.begin(1)).toBeUndefined();
    expect(session.begin('1')).toBeInstanceOf(InFlight);
    first?.end();
    expect(session.begin(1)).toBeInstanceOf(InFlight);
  });

  it('that has ended does not end the next request with its id', () => {
    const session = sessionOf('a');
    const first = session.begin(1);
    first?.end();
    session.begin(1);
    first?.end();
    expect(session.begin(1)).toBeUndefined();
  });

  it('keeps its id while it runs as a step of any workflow', () => {
    const session = sessionOf('a');
    const request = session.begin(1);
    const [first, second] = [request?.beginStep(false), request?.beginStep(false)];
    request?.end();
    first?.();
    first?.();
    expect(session.begin(1)).toBeUndefined();
    expect(session.idle).toBe(false);
    second?.();
    expect(session.begin(1)).toBeInstanceOf(InFlight);
  });

  it('tells each listener once that it is cancelled, a late listener too', () => {
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

  it('goes on, once it runs, when its client merely leaves', () => {
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
  it('tells each listener once that it is answered', () => {
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

  it('is forgotten, the oldest first, where an upstream asks too many', () => {
    const told: number[] = [];
    const session = sessionOf('a');
    for (let id = 0; id < 150; id++) session.onAnswer(id, () => void told.push(id));
    for (let id = 0; id < 150; id++) session.answered(id);
    expect(told).toHaveLength(100);
    expect(told[0]).toBe(50);
  });
});

describe('the table of sessions', () => {
  const HOUR = 3_600_000;
  const quotas = new Quotas<LiveSession>({
    maxSessionsPerPrincipal: 1_000,
    maxSessionsPerClient: 1_000,
    onWarning() {},
  });
  let now: number;
  let table: SessionTable;

  const tableOf = (maxSessions: number): void => {
    now = 0;
    table = new SessionTable({ maxSessions, idleMs: HOUR });
  };
  const add = (run: string | LiveSession): LiveSession => {
    const session = typeof run === 'string' ? sessionOf(run) : run;
    table.add(session, quotas.seat({ principal: undefined, client: undefined }), now);
    return session;
  };
  const known = (...runs: string[]) => runs.filter((run) => table.get(run)?.run === run);

  it('forgets the least recently used one, and keeps maxSessions', () => {
    tableOf(2);
    const first = add('a');
    add('b');
    table.use(first, now);
    add('c');
    expect(known('a', 'b', 'c')).toEqual(['a', 'c']);
  });

  it('keeps those in use, and grows where all are in use', () => {
    tableOf(2);
    const busy = sessionOf('busy');
    const request = busy.begin(1);
    add(busy);
    for (const run of ['a', 'b', 'c']) add(run);
    expect(known('busy', 'a', 'b', 'c')).toEqual(['busy', 'c']);
    request?.end();
    for (const run of ['d', 'e']) add(run);
    expect(table.get('busy')).toBeUndefined();
    tableOf(1);
    const running = ['a', 'b', 'c'].map((run) => {
      const session = sessionOf(run);
      const begun = session.begin(1);
      add(session);
      return begun;
    });
    expect(known('a', 'b', 'c')).toEqual(['a', 'b', 'c']);
    for (const each of running) each?.end();
    add('d');
    add('e');
    expect(table.size).toBe(1);
  });

  it('forgets those of principals too where all others are in use', () => {
    tableOf(10);
    for (let index = 0; index < 8; index++) {
      const busy = sessionOf(`busy ${index}`);
      busy.begin(1);
      add(busy);
    }
    for (let index = 0; index < 100; index++)
      add(new LiveSession(`owned ${index}`, { principal: 'ann' }, 0));
    expect(table.size).toBe(10);
    expect(known('busy 0', 'owned 98', 'owned 99')).toHaveLength(3);
  });

  it('forgets those that have expired, as others are used', () => {
    tableOf(10_000);
    for (let index = 0; index < 100; index++) add(`old ${index}`);
    now += HOUR - 1;
    const used = add('used');
    expect(table.size).toBe(101);
    now += 1;
    for (let use = 0; use < 50; use++) table.use(used, now);
    expect(table.size).toBe(1);
    expect(known('used')).toEqual(['used']);
  });

  it('keeps an expired one that is in use, and forgets those behind it', () => {
    tableOf(10_000);
    const [running, streaming, departed] = ['running', 'streaming', 'departed'].map(add) as [
      LiveSession,
      LiveSession,
      LiveSession,
    ];
    const request = running.begin(1);
    const tap = { inject() {}, abandon() {} } as unknown as Tap;
    streaming.addStream(tap);
    departed.departed.add(tap);
    for (let index = 0; index < 10; index++) add(`old ${index}`);
    now += HOUR;
    const used = add('used');
    for (let use = 0; use < 10; use++) table.use(used, now);
    expect(table.size).toBe(4);
    expect(known('running', 'streaming', 'departed')).toHaveLength(3);
    request?.end();
    streaming.removeStream(tap);
    departed.departed.delete(tap);
    now += HOUR;
    for (let use = 0; use < 5; use++) table.use(used, now);
    expect(table.size).toBe(1);
  });

  it('forgets later where the clock was set back', () => {
    tableOf(10);
    now = HOUR;
    add('a');
    now = 0;
    const used = add('used');
    table.use(used, now);
    expect(known('a')).toEqual(['a']);
    now = 2 * HOUR;
    table.use(used, now);
    expect(known('a')).toEqual([]);
  });

  it('takes names of object members for plain names', () => {
    tableOf(10);
    for (const run of ['__proto__', 'constructor', '']) {
      expect(table.get(run)).toBeUndefined();
      add(run);
      expect(table.get(run)?.run).toBe(run);
      table.delete(run);
      expect(table.get(run)).toBeUndefined();
    }
  });
});
