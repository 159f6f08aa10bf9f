import { describe, expect, it } from 'vitest';
import {
  type Condition,
  type ForwardedCall,
  type Json,
  judge,
  type OutsideEvent,
  type Rule,
  type RuleSet,
  type RulesHistory,
} from '../../lab/checker/rules.ts';
import { compareRules, isPossible, shrink } from '../../lab/checker/rules-compare.ts';
import { randomCases } from '../../lab/checker/rules-random.ts';

type Details = Partial<Omit<ForwardedCall, 'tool'>>;

/** A success at 0 ms, unless the details say otherwise. */
const call = (tool: string, details: Details = {}): ForwardedCall => {
  const claimedAt = details.claimedAt ?? 0;
  const decidedAt = details.outcome === 'unknown' ? {} : { decidedAt: claimedAt };
  return { tool, args: {}, outcome: 'succeeded', claimedAt, ...decidedAt, ...details };
};
const failed = (tool: string, details: Details = {}) =>
  call(tool, { outcome: 'failed', ...details });
const undecided = (tool: string, details: Details = {}) =>
  call(tool, { outcome: 'unknown', ...details });

interface Next {
  readonly args?: Json;
  readonly at?: number;
  readonly idempotencyKey?: string;
  readonly others?: RuleSet['rules'];
  readonly needs?: NonNullable<RuleSet['needs']>;
}

/** What is said of `pay` under its rule: the facts that it would use, or why not. */
function verdictOf(rule: Rule, history: RulesHistory, next: Next = {}) {
  const { args = {}, at = 0, idempotencyKey, others = {}, needs = {} } = next;
  const key = idempotencyKey === undefined ? {} : { idempotencyKey };
  const set = { rules: { ...others, pay: rule }, needs };
  const verdict = judge(set, history, { tool: 'pay', args, at, ...key });
  return verdict.verdict === 'allowed' ? verdict.uses : verdict.verdict;
}

const ALLOWED: readonly number[] = [];

describe('after', () => {
  it('needs a success of the tool, from a call or from outside', () => {
    const rule: Rule = { after: 'login' };
    const sent: OutsideEvent = { send: 'login', at: 0 };
    expect(verdictOf(rule, [])).toBe('order');
    expect(verdictOf(rule, [failed('login')])).toBe('order');
    expect(verdictOf(rule, [undecided('login')])).toBe('order');
    expect(verdictOf(rule, [call('login')])).toEqual(ALLOWED);
    expect(verdictOf(rule, [sent])).toEqual(ALLOWED);
  });

  it('needs all of a list and of an `all`, and one of an `any`', () => {
    const [a, b] = [call('a'), call('b')];
    for (const after of [['a', 'b'], { all: ['a', 'b'] }]) {
      expect(verdictOf({ after }, [a])).toBe('order');
      expect(verdictOf({ after }, [a, b])).toEqual(ALLOWED);
    }
    expect(verdictOf({ after: { any: ['a', 'b'] } }, [b])).toEqual(ALLOWED);
    expect(verdictOf({ after: { any: ['a', 'b'] } }, [])).toBe('order');
  });

  it('puts a need in its place, with the paths of the calling tool', () => {
    const needs = { known: { any: ['pin', { tool: 'find', same: ['id'] }] } };
    const after = { need: 'known' };
    const history = [call('find', { args: { id: 7 } })];
    expect(verdictOf({ after }, history, { needs, args: { id: 7 } })).toEqual(ALLOWED);
    expect(verdictOf({ after }, history, { needs, args: { id: 8 } })).toBe('order');
    expect(verdictOf({ after }, [call('pin')], { needs })).toEqual(ALLOWED);
  });

  it('counts from when a fact was decided, and no more at the very edge of the window', () => {
    const rule: Rule = { after: { tool: 'find', within: '2s' } };
    const history = [call('find', { claimedAt: 0, decidedAt: 500 })];
    expect(verdictOf(rule, history, { at: 2_499 })).toEqual(ALLOWED);
    expect(verdictOf(rule, history, { at: 2_500 })).toBe('order');
  });

  it('holds a fact in a window for stale that is later than now, since the clock was set back', () => {
    const history = [call('find', { claimedAt: 1_000 })];
    const after = { tool: 'find', within: '1m' };
    expect(verdictOf({ after }, history, { at: 999 })).toBe('order');
    expect(verdictOf({ after }, history, { at: 1_000 })).toEqual(ALLOWED);
    expect(verdictOf({ after: 'find' }, history, { at: 999 })).toEqual(ALLOWED);
  });

  it('counts no call from before a rule begins, but for what it needs', () => {
    const history = [call('find', { claimedAt: 1_000 })];
    const rule = { after: 'find', notAfter: 'find', from: new Date(1_001).toISOString() };
    expect(verdictOf(rule, history, { at: 2_000 })).toEqual(ALLOWED);
    const earlier = { ...rule, from: new Date(1_000).toISOString() };
    expect(verdictOf(earlier, history, { at: 2_000 })).toBe('order');
  });

  it('counts failures where it asks for them, and for `any` also what is undecided', () => {
    const history = [failed('a'), undecided('b')];
    const asking = (tool: string, outcome: 'succeeded' | 'failed' | 'any') =>
      verdictOf({ after: { tool, outcome } }, history);
    expect(asking('a', 'failed')).toEqual(ALLOWED);
    expect(asking('a', 'any')).toEqual(ALLOWED);
    expect(asking('a', 'succeeded')).toBe('order');
    expect(asking('b', 'any')).toEqual(ALLOWED);
    expect(asking('b', 'failed')).toBe('order');
  });

  it('counts only facts whose arguments and result surely met the condition', () => {
    const rule: Rule = {
      after: { tool: 'find', args: { id: { gt: 1 } }, result: { status: 'open' } },
    };
    const found = (args: Json, result?: Json) =>
      verdictOf(rule, [call('find', { args, ...(result !== undefined && { result }) })]);
    expect(found({ id: 2 }, { status: 'open' })).toEqual(ALLOWED);
    expect(found({ id: '2' }, { status: 'open' })).toBe('order');
    expect(found({ id: 2 }, { status: 1 })).toBe('order');
    expect(found({ id: 2 }, {})).toBe('order');
  });

  it('knows nothing of a result that is not there, not even what is missing in it', () => {
    for (const condition of [{ status: { ne: 'lost' } }, { fault: { exists: false } }]) {
      const rule: Rule = { after: { tool: 'find', result: condition } };
      expect(verdictOf(rule, [call('find')])).toBe('order');
      expect(verdictOf(rule, [call('find', { result: {} })])).toEqual(ALLOWED);
    }
  });

  it('needs as many facts as `times` says', () => {
    const rule: Rule = { after: { tool: 'approve', times: 2 } };
    expect(verdictOf(rule, [call('approve')])).toBe('order');
    expect(verdictOf(rule, [call('approve'), call('approve')])).toEqual(ALLOWED);
  });

  it('needs as many different values as `times` says, and skips what is no single value', () => {
    const rule: Rule = { after: { tool: 'approve', times: 2, distinct: { result: 'by' } } };
    const approvedBy = (...names: readonly Json[]) =>
      verdictOf(
        rule,
        names.map((by) => call('approve', { result: { by } })),
      );
    expect(approvedBy('ann', 'ann')).toBe('order');
    expect(approvedBy('ann', ['bob'])).toBe('order');
    expect(approvedBy('ann', { name: 'bob' })).toBe('order');
    expect(approvedBy('ann', 'ann', 'bob')).toEqual(ALLOWED);
    expect(verdictOf(rule, [call('approve', { result: { by: 'ann' } }), call('approve')])).toBe(
      'order',
    );
  });
});

describe('same', () => {
  const needed = (own: Json, earlier: Json) =>
    verdictOf({ after: { tool: 'find', same: ['id'] } }, [call('find', { args: earlier })], {
      args: own,
    });
  const forbidden = (own: Json, earlier: Json) =>
    verdictOf({ notAfter: { tool: 'find', same: ['id'] } }, [call('find', { args: earlier })], {
      args: own,
    });

  it('compares JSON: type and value, whatever the order of members', () => {
    expect(needed({ id: 7 }, { id: 7 })).toEqual(ALLOWED);
    expect(needed({ id: 7 }, { id: '7' })).toBe('order');
    expect(needed({ id: null }, { id: null })).toEqual(ALLOWED);
    expect(needed({ id: { a: 1, b: [2] } }, { id: { b: [2], a: 1 } })).toEqual(ALLOWED);
    expect(needed({ id: { a: 1 } }, { id: { a: 1, b: 2 } })).toBe('order');
  });

  it('reads another argument, or the result, of the earlier call', () => {
    const history = [call('find', { args: { key: 1 }, result: { account: { id: 2 } } })];
    const of = (
      same: { [own: string]: string | { args: string } | { result: string } },
      id: Json,
    ) => verdictOf({ after: { tool: 'find', same } }, history, { args: { id } });
    expect(of({ id: 'key' }, 1)).toEqual(ALLOWED);
    expect(of({ id: { args: 'key' } }, 1)).toEqual(ALLOWED);
    expect(of({ id: { result: 'account.id' } }, 2)).toEqual(ALLOWED);
    expect(of({ id: { result: '/account/id' } }, 1)).toBe('order');
  });

  it('needs each pair to agree', () => {
    const rule: Rule = { after: { tool: 'find', same: ['a', 'b'] } };
    const history = [call('find', { args: { a: 1, b: 2 } })];
    expect(verdictOf(rule, history, { args: { a: 1, b: 2 } })).toEqual(ALLOWED);
    expect(verdictOf(rule, history, { args: { a: 1, b: 3 } })).toBe('order');
  });

  it('in `after` wants all members of this call among the earlier ones', () => {
    expect(needed({ id: [1, 2] }, { id: [2, 1, 3] })).toEqual(ALLOWED);
    expect(needed({ id: 1 }, { id: [2, 1] })).toEqual(ALLOWED);
    expect(needed({ id: [1, 4] }, { id: [1, 2] })).toBe('order');
    expect(needed({ id: [1, 4] }, { id: 1 })).toBe('order');
  });

  it('in `notAfter` is met by one member in common', () => {
    expect(forbidden({ id: [1, 4] }, { id: [1, 2] })).toBe('order');
    expect(forbidden({ id: [3, 4] }, { id: [1, 2] })).toEqual(ALLOWED);
  });

  it('agrees with nothing in `after` without a value here, and is refused elsewhere', () => {
    expect(needed({}, { id: 1 })).toBe('order');
    expect(needed({}, {})).toBe('order');
    expect(forbidden({}, { id: 1 })).toBe('arguments');
    expect(verdictOf({ limit: { times: 9, same: ['id'] } }, [])).toBe('arguments');
  });

  it('refuses an empty list, and one with more than 256 members', () => {
    const long = (length: number) => Array.from({ length }, (_, at) => at);
    for (const list of [[], long(257)]) {
      expect(needed({ id: list }, { id: list })).toBe('arguments');
      expect(forbidden({ id: list }, { id: 1 })).toBe('arguments');
      expect(verdictOf({ limit: { times: 9, same: ['id'] } }, [], { args: { id: list } })).toBe(
        'arguments',
      );
      // The earlier call's: unknown.
      expect(needed({ id: 1 }, { id: list })).toBe('order');
      expect(forbidden({ id: 1 }, { id: list })).toBe('order');
    }
    expect(needed({ id: long(256) }, { id: long(256) })).toEqual(ALLOWED);
  });

  it('takes an earlier call without a value for one that agrees, but in `after`', () => {
    expect(forbidden({ id: 1 }, {})).toBe('order');
    const limit = { times: 1, same: ['id'] };
    expect(verdictOf({ limit }, [call('pay')], { args: { id: 1 } })).toBe('limit');
    const other = call('pay', { args: { id: 2 } });
    expect(verdictOf({ limit }, [other], { args: { id: 1 } })).toEqual(ALLOWED);
  });
});

describe('when', () => {
  const large = { amount: { gt: 10 } };

  it('leaves a requirement out where it is false', () => {
    const rule: Rule = { after: [{ tool: 'approve', when: large }] };
    expect(verdictOf(rule, [], { args: { amount: 10 } })).toEqual(ALLOWED);
    expect(verdictOf(rule, [], { args: { amount: 11 } })).toBe('order');
  });

  it('refuses where it is unknown, whatever else holds', () => {
    const unknown = { args: { amount: '15000' } };
    const leaf = { tool: 'approve', when: large };
    const history = [call('login'), call('approve')];
    expect(verdictOf({ after: leaf }, history, unknown)).toBe('arguments');
    expect(verdictOf({ after: leaf }, history, {})).toBe('arguments');
    expect(verdictOf({ after: { any: ['login', leaf] } }, history, unknown)).toBe('arguments');
    expect(verdictOf({ after: ['never', leaf] }, history, unknown)).toBe('arguments');
    expect(verdictOf({ notAfter: leaf }, [], unknown)).toBe('arguments');
    expect(verdictOf({ limit: { times: 9, when: large } }, [], unknown)).toBe('arguments');
  });

  it('asks nothing of the parts of what it leaves out', () => {
    const leaf = { tool: 'approve', when: large };
    const around = { all: [leaf], when: { kind: 'a' } };
    const verdictIn = (kind: string) =>
      verdictOf({ after: around }, [], { args: { kind, amount: '15000' } });
    expect(verdictIn('b')).toEqual(ALLOWED);
    expect(verdictIn('a')).toBe('arguments');
  });

  it('lets the other alternatives decide, or leaves the `any` out with all of them', () => {
    const leaf = { tool: 'approve', when: large };
    const small = { args: { amount: 1 } };
    expect(verdictOf({ after: { any: [leaf, 'login'] } }, [], small)).toBe('order');
    expect(verdictOf({ after: { any: [leaf, 'login'] } }, [call('login')], small)).toEqual(ALLOWED);
    expect(verdictOf({ after: { any: [leaf, leaf] } }, [], small)).toEqual(ALLOWED);
    expect(verdictOf({ after: { all: [leaf, 'login'] } }, [], small)).toBe('order');
  });

  it('does not satisfy an `any` by an `all` or a need of which nothing is asked', () => {
    const nothing = { all: [{ tool: 'approve', when: large }] };
    const small = { args: { amount: 1 } };
    expect(verdictOf({ after: { any: [nothing, 'login'] } }, [], small)).toBe('order');
    const needs = { nothing };
    const any = [{ need: 'nothing' }, 'login'];
    expect(verdictOf({ after: { any } }, [], { ...small, needs })).toBe('order');
  });

  it('asks no value of a call for what it leaves out', () => {
    const part = { when: { kind: 'a' }, same: ['id'] };
    const other = { args: { kind: 'b' } };
    expect(verdictOf({ notAfter: { tool: 'reject', ...part } }, [], other)).toEqual(ALLOWED);
    expect(verdictOf({ limit: { sum: 'amount', max: 1, ...part } }, [], other)).toEqual(ALLOWED);
  });

  it('of a need, an `all` and an `any` leaves out all that is in it', () => {
    const when = { kind: 'a' };
    const other = { args: { kind: 'b' } };
    for (const part of [{ need: 'login' }, { all: ['login'] }, { any: ['login'] }]) {
      const rule: Rule = { after: { ...part, when } };
      const needs = { login: 'login' };
      expect(verdictOf(rule, [], { ...other, needs })).toEqual(ALLOWED);
      expect(verdictOf(rule, [], { args: { kind: 'a' }, needs })).toBe('order');
    }
  });
});

describe('a condition', () => {
  /** Asked of this call: true asks for `never`, false leaves it out, unknown refuses. */
  const truthOf = (when: Condition, args: Json) => {
    const verdict = verdictOf({ after: { tool: 'never', when } }, [], { args });
    if (verdict === 'arguments') return undefined;
    return verdict === 'order';
  };

  it.each([
    [{ a: 1 }, { a: 1 }, true],
    [{ a: 1 }, { a: 2 }, false],
    [{ a: 1 }, { a: '1' }, undefined],
    [{ a: 1 }, {}, undefined],
    [{ a: 1 }, { a: null }, undefined],
    [{ a: null }, { a: 1 }, false],
    [{ a: null }, {}, undefined],
    [{ a: { ne: 1 } }, {}, true],
    [{ a: { ne: 1 } }, { a: '1' }, undefined],
    [{ a: { ne: null } }, { a: 1 }, true],
    [{ a: { in: [1, 2] } }, { a: 2 }, true],
    [{ a: { in: [1, 2] } }, { a: 3 }, false],
    [{ a: { in: [1, 2] } }, { a: '1' }, undefined],
    [{ a: { in: [1, 2] } }, { a: null }, undefined],
    [{ a: { gte: 1, lt: 2 } }, { a: 1 }, true],
    [{ a: { gt: 1, lte: 2 } }, { a: 1 }, false],
    [{ a: { gt: 1 } }, { a: '2' }, undefined],
    [{ a: { exists: true } }, { a: null }, true],
    [{ a: { exists: true, eq: true } }, {}, false],
    [{ a: 1, b: 1 }, { a: 2 }, false],
    [{ a: 1, b: 1 }, { a: 1 }, undefined],
    [{ any: [{ a: 1 }, { b: 1 }] }, { a: 1 }, true],
    [{ any: [{ a: 1 }, { b: 1 }] }, { a: 2 }, undefined],
    [{ not: { a: 1 } }, { a: 2 }, true],
    [{ not: { a: 1 } }, {}, undefined],
    [{ '/any': 1 }, { any: 1 }, true],
    [{ 'a.b.0': 1 }, { a: { b: [1] } }, true],
    [{ '/a~1b/~01': 1 }, { 'a/b': { '~1': 1 } }, true],
    [{ 'a.length': { exists: false } }, { a: [1] }, true],
    [{ constructor: { exists: false } }, {}, true],
  ])('%j is of %j: %j', (condition, args, truth) => {
    expect(truthOf(condition as Condition, args as unknown as Json)).toBe(truth);
  });
});

describe('consumes', () => {
  const rule: Rule = { after: { tool: 'otp', consumes: true } };

  it('uses a fact up by a success, and not by a failure', () => {
    expect(verdictOf(rule, [call('otp')])).toEqual([0]);
    expect(verdictOf(rule, [call('otp'), call('pay')])).toBe('order');
    expect(verdictOf(rule, [call('otp'), failed('pay')])).toEqual([0]);
    expect(verdictOf(rule, [call('otp'), call('pay'), call('otp')])).toEqual([2]);
  });

  it('as `calls` uses a fact up by a failure too', () => {
    const each: Rule = { after: { tool: 'otp', consumes: 'calls' } };
    expect(verdictOf(each, [call('otp'), failed('pay')])).toBe('order');
  });

  it('reserves a fact while it is not known how the call ended, but not from its own retry', () => {
    const history = [call('otp'), undecided('pay', { idempotencyKey: 'k' })];
    expect(verdictOf(rule, history)).toBe('order');
    expect(verdictOf(rule, history, { idempotencyKey: 'k' })).toEqual([0]);
    const retried = [...history, failed('pay', { idempotencyKey: 'k' })];
    expect(verdictOf(rule, retried)).toEqual([0]);
  });

  it('hides a used fact from each leaf that consumes, of whatever tool, and from no other', () => {
    const others = { refund: rule };
    const history = [call('otp'), call('refund')];
    expect(verdictOf(rule, history, { others })).toBe('order');
    expect(verdictOf({ after: 'otp' }, history, { others })).toEqual(ALLOWED);
    expect(verdictOf({ notAfter: 'otp' }, history, { others })).toBe('order');
  });

  it('uses those that were decided first, and only those that count', () => {
    const history = [
      call('otp', { claimedAt: 0, decidedAt: 40 }),
      call('otp', { claimedAt: 10, decidedAt: 20 }),
      call('otp', { claimedAt: 30, decidedAt: 30 }),
    ];
    const two: Rule = { after: { tool: 'otp', times: 2, consumes: true } };
    expect(verdictOf(two, history, { at: 100 })).toEqual([1, 2]);
    const young: Rule = { after: { tool: 'otp', within: '75ms', consumes: true } };
    expect(verdictOf(young, history, { at: 100 })).toEqual([2]);
  });

  it('with `distinct` uses one of each of so many values', () => {
    const history = ['ann', 'ann', 'bob', 'cid'].map((by, claimedAt) =>
      call('approve', { args: { by }, claimedAt }),
    );
    const two: Rule = { after: { tool: 'approve', times: 2, distinct: 'by', consumes: true } };
    expect(verdictOf(two, history, { at: 9 })).toEqual([0, 2]);
    expect(verdictOf(two, [...history, call('pay', { claimedAt: 9 })], { at: 9 })).toEqual([1, 3]);
  });

  it('in an `any` uses each alternative up that is met', () => {
    const alternatives = ['otp', 'pin'].map((tool) => ({ tool, consumes: true }));
    const either: Rule = { after: { any: alternatives } };
    expect(verdictOf(either, [call('otp'), call('pin')])).toEqual([0, 1]);
    expect(verdictOf(either, [call('pin')])).toEqual([0]);
  });

  it('takes nothing for an alternative that is not met', () => {
    const otp = { tool: 'otp', consumes: true };
    const either: Rule = { after: { any: [{ all: [otp, 'never'] }, otp] } };
    expect(verdictOf(either, [call('otp')])).toEqual([0]);
  });

  it('shares facts out among leaves, in any order', () => {
    const any = { tool: 'otp', consumes: true };
    const good = { ...any, args: { id: 1 } };
    const [one, two] = [call('otp', { args: { id: 1 } }), call('otp', { args: { id: 2 } })];
    expect(verdictOf({ after: [any, any] }, [one])).toBe('order');
    expect(verdictOf({ after: [any, any] }, [one, two])).toEqual([0, 1]);
    expect(verdictOf({ after: [good, any] }, [one, two])).toEqual([0, 1]);
    expect(verdictOf({ after: [any, good] }, [one, two])).toEqual([0, 1]);
    expect(verdictOf({ after: [good, good] }, [one, two])).toBe('order');
  });

  it('chooses at the claim, whatever happens until the call is decided', () => {
    const others = { otp: { undoneBy: 'revoke' } };
    const history: RulesHistory = [
      call('otp', { claimedAt: 0 }),
      { send: 'revoke', at: 20 },
      call('otp', { claimedAt: 30 }),
      call('pay', { claimedAt: 10, decidedAt: 40, seen: 1 }),
    ];
    expect(verdictOf(rule, history, { at: 50, others })).toEqual([2]);
  });
});

describe('undoneBy and once', () => {
  const others = { login: { undoneBy: ['logout', 'lock'] } };

  it('undo the earlier successes for all but a limit', () => {
    const history = [call('login'), call('lock')];
    expect(verdictOf({ after: 'login' }, history, { others })).toBe('order');
    expect(verdictOf({ notAfter: 'login' }, history, { others })).toEqual(ALLOWED);
    const again = [...history, call('login')];
    expect(verdictOf({ after: 'login' }, again, { others })).toEqual(ALLOWED);
    const own: Rule = { undoneBy: 'refund', limit: { times: 1 } };
    expect(verdictOf(own, [call('pay'), call('refund')])).toBe('limit');
  });

  it('undo nothing by a failure', () => {
    const history = [call('login'), failed('logout')];
    expect(verdictOf({ after: 'login' }, history, { others })).toEqual(ALLOWED);
  });

  it('take what may be undone for neither there nor gone', () => {
    const history = [call('login'), undecided('logout')];
    expect(verdictOf({ after: 'login' }, history, { others })).toBe('order');
    expect(verdictOf({ notAfter: 'login' }, history, { others })).toBe('order');
  });

  it('once: not while there is a success of its own that is neither undone nor used', () => {
    const rule: Rule = { once: true, undoneBy: 'refund' };
    const users = { close: { after: { tool: 'pay', consumes: true } } };
    expect(verdictOf(rule, [failed('pay')])).toEqual(ALLOWED);
    expect(verdictOf(rule, [call('pay')])).toBe('order');
    expect(verdictOf(rule, [call('pay'), call('refund')])).toEqual(ALLOWED);
    expect(verdictOf(rule, [call('pay'), call('close')], { others: users })).toEqual(ALLOWED);
    expect(verdictOf(rule, [call('pay'), undecided('close')], { others: users })).toBe('order');
    const history = [undecided('pay', { idempotencyKey: 'k' })];
    expect(verdictOf(rule, history)).toBe('order');
    expect(verdictOf(rule, history, { idempotencyKey: 'k' })).toEqual(ALLOWED);
  });
});

describe('notAfter', () => {
  it('refuses from the later of both times, and no more at the very edge of the window', () => {
    const rule: Rule = { notAfter: { tool: 'reject', within: '1s' } };
    const history = [call('reject', { claimedAt: 700, decidedAt: 500 })];
    expect(verdictOf(rule, history, { at: 1_699 })).toBe('order');
    expect(verdictOf(rule, history, { at: 1_700 })).toEqual(ALLOWED);
  });

  it('holds a fact for current that is later than now, since the clock was set back', () => {
    const rule: Rule = { notAfter: { tool: 'reject', within: '1ms' } };
    expect(verdictOf(rule, [call('reject', { claimedAt: 5_000 })])).toBe('order');
  });

  it('takes what is undecided for each outcome and in each window', () => {
    for (const outcome of ['succeeded', 'failed', 'any'] as const) {
      const rule: Rule = { notAfter: { tool: 'reject', outcome, within: '1ms' } };
      expect(verdictOf(rule, [undecided('reject')], { at: 9_999 })).toBe('order');
    }
    const failure: Rule = { notAfter: { tool: 'reject', outcome: 'failed' } };
    expect(verdictOf(failure, [call('reject')])).toEqual(ALLOWED);
  });

  it('counts a fact whose arguments or result leave the condition open', () => {
    const about = (condition: object, details: Details) =>
      verdictOf({ notAfter: { tool: 'check', ...condition } }, [call('check', details)]);
    expect(about({ args: { id: 1 } }, { args: { id: 2 } })).toEqual(ALLOWED);
    expect(about({ args: { id: 1 } }, { args: { id: '1' } })).toBe('order');
    expect(about({ result: { bad: true } }, { result: { bad: false } })).toEqual(ALLOWED);
    expect(about({ result: { bad: true } }, { result: {} })).toBe('order');
    expect(about({ result: { bad: { exists: true } } }, {})).toBe('order');
  });

  it('may name its own tool', () => {
    const rule: Rule = { notAfter: { tool: 'pay', within: '5s', outcome: 'any' } };
    expect(verdictOf(rule, [failed('pay')], { at: 4_999 })).toBe('order');
    expect(verdictOf(rule, [failed('pay')], { at: 5_000 })).toEqual(ALLOWED);
  });

  it('counts to `times`, and a missing value as one more of the different ones', () => {
    const tries = (...names: readonly (string | undefined)[]) =>
      names.map((by) => call('guess', { args: by === undefined ? {} : { by } }));
    const rule: Rule = { notAfter: { tool: 'guess', times: 3 } };
    expect(verdictOf(rule, tries('a', 'a'))).toEqual(ALLOWED);
    expect(verdictOf(rule, tries('a', 'a', 'a'))).toBe('order');
    const different: Rule = { notAfter: { tool: 'guess', times: 3, distinct: 'by' } };
    expect(verdictOf(different, tries('a', 'a', 'a', 'b'))).toEqual(ALLOWED);
    expect(verdictOf(different, tries('a', 'a', 'b', undefined))).toBe('order');
    expect(verdictOf(different, tries('a', undefined, undefined))).toBe('order');
  });
});

describe('limit', () => {
  const pays = (...amounts: readonly Json[]) =>
    amounts.map((amount) => call('pay', { args: { amount } }));

  it('counts this call too', () => {
    expect(verdictOf({ limit: { times: 2 } }, pays(1))).toEqual(ALLOWED);
    expect(verdictOf({ limit: { times: 2 } }, pays(1, 1))).toBe('limit');
    expect(verdictOf({ limit: { times: 2 } }, [call('other'), ...pays(1)])).toEqual(ALLOWED);
  });

  it('forgets at the very edge of its window, and never what is later than now', () => {
    const limit = { times: 1, within: '1s' };
    const history = [call('pay', { claimedAt: 0, decidedAt: 100 })];
    expect(verdictOf({ limit }, history, { at: 1_099 })).toBe('limit');
    expect(verdictOf({ limit }, history, { at: 1_100 })).toEqual(ALLOWED);
    expect(verdictOf({ limit }, history, { at: 99 })).toBe('limit');
  });

  it('counts the outcomes that it asks for', () => {
    const history = [failed('pay')];
    expect(verdictOf({ limit: { times: 1 } }, history)).toEqual(ALLOWED);
    expect(verdictOf({ limit: { times: 1, outcome: 'failed' } }, history)).toBe('limit');
    expect(verdictOf({ limit: { times: 1, outcome: 'any' } }, history)).toBe('limit');
  });

  it('counts an unsettled use for as long as it is one, but not for its own retry', () => {
    const history = [undecided('pay', { idempotencyKey: 'k' })];
    const limit = { times: 1, within: '1s' };
    expect(verdictOf({ limit }, history, { at: 9_999 })).toBe('limit');
    expect(verdictOf({ limit }, history, { at: 9_999, idempotencyKey: 'j' })).toBe('limit');
    expect(verdictOf({ limit }, history, { at: 9_999, idempotencyKey: 'k' })).toEqual(ALLOWED);
  });

  it('counts a call and its retry once', () => {
    const history = [
      undecided('pay', { idempotencyKey: 'k' }),
      call('pay', { idempotencyKey: 'k', claimedAt: 10 }),
    ];
    expect(verdictOf({ limit: { times: 2 } }, history, { at: 10 })).toEqual(ALLOWED);
    expect(verdictOf({ limit: { times: 1 } }, history, { at: 10 })).toBe('limit');
  });

  it('judges and counts only what its `when` chooses', () => {
    const limit = { times: 1, when: { express: { exists: true, eq: true } } };
    const express = call('pay', { args: { express: true } });
    const open = call('pay', { args: { express: 'yes' } });
    const args = { express: true };
    expect(verdictOf({ limit }, [express], { args })).toBe('limit');
    expect(verdictOf({ limit }, [open], { args })).toBe('limit');
    expect(verdictOf({ limit }, [call('pay')], { args })).toEqual(ALLOWED);
    expect(verdictOf({ limit }, [express])).toEqual(ALLOWED);
  });

  it('adds decimals exactly', () => {
    const max = { sum: 'amount', max: 0.3 };
    const below = { sum: 'amount', below: 0.3 };
    expect(verdictOf({ limit: max }, pays(0.1), { args: { amount: 0.2 } })).toEqual(ALLOWED);
    expect(verdictOf({ limit: below }, pays(0.1), { args: { amount: 0.2 } })).toBe('limit');
    expect(verdictOf({ limit: max }, pays(0.3), { args: { amount: 1e-7 } })).toBe('limit');
    const large = { sum: 'amount', max: 1e21 };
    expect(verdictOf({ limit: large }, pays(2 ** 53), { args: { amount: 1 } })).toEqual(ALLOWED);
  });

  it('refuses a call without an amount that can be added', () => {
    const limit = { sum: 'amount', max: 1e30 };
    for (const amount of [undefined, -1, '1', null, [1], true, 2 ** 53 + 2]) {
      const args = amount === undefined ? {} : { amount };
      expect([amount, verdictOf({ limit }, [], { args })]).toEqual([amount, 'arguments']);
    }
  });

  it('reads decimal texts where it says so', () => {
    const limit = { sum: { path: 'amount', text: true }, max: 20 } as const;
    const about = (amount: Json) => verdictOf({ limit }, pays('12.50', 7), { args: { amount } });
    expect(about('0.5')).toEqual(ALLOWED);
    expect(about(0.5)).toEqual(ALLOWED);
    expect(about('0.500000000000000000001')).toBe('limit');
    for (const amount of ['1e3', ' 1', '010', '-1', '+1', '.5', '5.', '', `0.${'1'.repeat(35)}`])
      expect([amount, about(amount)]).toEqual([amount, 'arguments']);
  });

  it('refuses while an earlier amount is not known', () => {
    const limit = { sum: 'amount', max: 100 };
    for (const amount of [null, '1', -1])
      expect(verdictOf({ limit }, pays(amount), { args: { amount: 1 } })).toBe('limit');
    expect(verdictOf({ limit }, [call('pay')], { args: { amount: 1 } })).toBe('limit');
  });

  it('must leave room in each of a list', () => {
    const limit = [{ times: 9 }, { sum: 'amount', max: 3 }];
    expect(verdictOf({ limit }, pays(1, 1), { args: { amount: 1 } })).toEqual(ALLOWED);
    expect(verdictOf({ limit }, pays(1, 1), { args: { amount: 2 } })).toBe('limit');
  });
});

describe('the verdict', () => {
  it('names first the arguments, then the order, then a limit', () => {
    const rule: Rule = { after: 'login', limit: { sum: 'amount', max: 1 } };
    expect(verdictOf(rule, [])).toBe('arguments');
    expect(verdictOf(rule, [], { args: { amount: 2 } })).toBe('order');
    expect(verdictOf(rule, [call('login')], { args: { amount: 2 } })).toBe('limit');
    expect(verdictOf(rule, [call('login')], { args: { amount: 1 } })).toEqual(ALLOWED);
  });

  it('allows a tool without a rule', () => {
    expect(judge({ rules: {} }, [], { tool: 'constructor', args: {}, at: 0 })).toEqual({
      verdict: 'allowed',
      uses: [],
    });
  });
});

describe('the comparison', () => {
  it('makes the same possible cases from a seed, in JSON, and of each verdict some', () => {
    const first = (count: number) => {
      const cases = randomCases(4);
      return Array.from({ length: count }, () => cases.next().value);
    };
    const cases = first(150);
    expect(JSON.parse(JSON.stringify(cases))).toEqual(cases);
    expect(first(150)).toEqual(cases);
    expect(cases.every(isPossible)).toBe(true);
    expect(new Set(cases.map(({ wanted }) => wanted.verdict)).size).toBe(4);
  });

  it('agrees with itself', () => {
    const { compared, disagreements } = compareRules({ seeds: [1], count: 90, judgeOfGate: judge });
    expect({ compared, disagreements }).toEqual({ compared: 90, disagreements: [] });
  });

  it('finds a gate that uses nothing up, and makes the case small', () => {
    const judgeOfGate: typeof judge = (...asked) => {
      const verdict = judge(...asked);
      return verdict.verdict === 'allowed' ? { verdict: 'allowed', uses: [] } : verdict;
    };
    const { disagreements } = compareRules({ seeds: [1], count: 900, judgeOfGate, most: 1 });
    expect(disagreements).toHaveLength(1);
    const { history } = JSON.parse(disagreements[0]?.json ?? '') as { history: unknown[] };
    expect(history).toHaveLength(1);
  });

  it('leaves out what is not needed for the disagreement', () => {
    const small = shrink(
      {
        rules: { rules: { pay: { after: ['login', 'otp'], limit: { times: 9 } } } },
        history: [call('login'), call('otp'), call('login')],
        call: { tool: 'pay', args: { id: 1 }, at: 0 },
      },
      ({ history }) => history.some((each) => 'tool' in each && each.tool === 'otp'),
    );
    expect(small.history).toEqual([call('otp')]);
    expect(small.rules).toEqual({ rules: { pay: {} } });
    expect(small.call.args).toEqual({});
  });
});
