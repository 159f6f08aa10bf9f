import type { RuleTable } from '../rule-tables.ts';

/*
 * The golden verdicts of AgentLTL, a Python library that judges the calls of tools by temporal logic.
 * They are those of `tests/golden/engine.json` in github.com/AgentLTL/AgentLTL (commit 0204885),
 * column `block`: a call that breaks the formula is refused each time. `tests/test_golden_engine.py`
 * has the formulas and the traces. Every call that is let through succeeds there.
 *
 * A refused call is not tried again: the trace goes on with the next one.
 */

export interface Call {
  readonly tool: 'a' | 'b' | 'c';
  readonly args: Readonly<Record<string, unknown>>;
}

const [a, b, c] = (['a', 'b', 'c'] as const).map((tool): Call => ({ tool, args: {} })) as [
  Call,
  Call,
  Call,
];
const a1: Call = { tool: 'a', args: { x: 1 } };

/** The traces of the golden file. The first `a` of `a1b` has the argument `x: 1`. */
export const TRACES = {
  abc: [a, b, c],
  bac: [b, a, c],
  aab: [a, a, b],
  aaa: [a, a, a],
  cab: [c, a, b],
  acb: [a, c, b],
  b: [b],
  a: [a],
  acca: [a, c, c, a],
  a1b: [a1, b],
  bb: [b, b],
  abab: [a, b, a, b],
  cccab: [c, c, c, a, b],
} as const satisfies Readonly<Record<string, readonly Call[]>>;

export type TraceName = keyof typeof TRACES;

export interface Pattern {
  readonly rules: RuleTable;
  /** For each call of each trace: `+` is let through, `-` is refused. */
  readonly verdicts: Readonly<Record<TraceName, string>>;
}

/** `b` not before the first `a`, which five formulas say. */
const B_AFTER_A: Pattern = {
  rules: { b: { after: 'a' } },
  verdicts: {
    ...{ abc: '+++', bac: '-++', aab: '+++', aaa: '+++', cab: '+++', acb: '+++', b: '-' },
    ...{ a: '+', acca: '++++', a1b: '++', bb: '--', abab: '++++', cccab: '+++++' },
  },
};

/** `a` once, which two formulas say. */
const ONE_A = {
  ...{ abc: '+++', bac: '+++', aab: '+-+', aaa: '+--', cab: '+++', acb: '+++', b: '+' },
  ...{ a: '+', acca: '+++-', a1b: '++', bb: '++', abab: '++-+', cccab: '+++++' },
};

/** No `a`, which two formulas say. */
const NO_A: Pattern = {
  rules: { a: { guard: () => false } },
  verdicts: {
    ...{ abc: '-++', bac: '+-+', aab: '--+', aaa: '---', cab: '+-+', acb: '-++', b: '+' },
    ...{ a: '-', acca: '-++-', a1b: '-+', bb: '++', abab: '-+-+', cccab: '+++-+' },
  },
};

/** The formulas that rules say, by their names in AgentLTL's test. */
export const SAID: Readonly<Record<string, Pattern>> = {
  /** `Before("a", "b")` */
  before_ab: B_AFTER_A,
  /** `parse('G(before("a", "b"))')` */
  parsed_before: B_AFTER_A,
  /** `WeakUntil(Not(Now("b")), Now("a"))` */
  weak_until: B_AFTER_A,
  /** `Release(Now("a"), Not(Now("b")))` */
  release: B_AFTER_A,
  /** `Not(Before("a", "b"))` */
  not_before_ab: {
    rules: { b: { notAfter: 'a' } },
    verdicts: {
      ...{ abc: '+-+', bac: '+++', aab: '++-', aaa: '+++', cab: '++-', acb: '++-', b: '+' },
      ...{ a: '+', acca: '++++', a1b: '+-', bb: '++', abab: '+-+-', cccab: '++++-' },
    },
  },
  /** `AllBefore(("a", "b"), "c")` */
  all_before: {
    rules: { c: { after: ['a', 'b'] } },
    verdicts: {
      ...{ abc: '+++', bac: '+++', aab: '+++', aaa: '+++', cab: '-++', acb: '+-+', b: '+' },
      ...{ a: '+', acca: '+--+', a1b: '++', bb: '++', abab: '++++', cccab: '---++' },
    },
  },
  /** `InstanceBefore("a", 2, "b", 1)`: the second `a` before the first `b` */
  instance_before: {
    rules: { b: { after: { tool: 'a', times: 2 } } },
    verdicts: {
      ...{ abc: '+-+', bac: '-++', aab: '+++', aaa: '+++', cab: '++-', acb: '++-', b: '-' },
      ...{ a: '+', acca: '++++', a1b: '+-', bb: '--', abab: '+-++', cccab: '++++-' },
    },
  },
  /** `CalledNTimes("a", 1, "<=")` */
  at_most_1: { rules: { a: { limit: { times: 1 } } }, verdicts: ONE_A },
  /** `parse('G(now("a") -> X(G(!now("a"))))')` */
  once: { rules: { a: { once: true } }, verdicts: ONE_A },
  /** `Globally(Not(Now("a")))` */
  never_a: NO_A,
  /** `Not(Called("a"))` */
  not_called_a: NO_A,
  /** `Globally(Not(CalledWith("a", {"x": 1})))` */
  never_with: {
    rules: { a: { guard: ({ args }) => args.x !== 1 } },
    verdicts: {
      ...{ abc: '+++', bac: '+++', aab: '+++', aaa: '+++', cab: '+++', acb: '+++', b: '+' },
      ...{ a: '+', acca: '++++', a1b: '-+', bb: '++', abab: '++++', cccab: '+++++' },
    },
  },
  /** `Implies(Called("c"), CalledNTimes("a", 1, ">="))` */
  imp_count: {
    rules: { c: { after: 'a' } },
    verdicts: {
      ...{ abc: '+++', bac: '+++', aab: '+++', aaa: '+++', cab: '-++', acb: '+++', b: '+' },
      ...{ a: '+', acca: '++++', a1b: '++', bb: '++', abab: '++++', cccab: '---++' },
    },
  },
};

const MUST_COME =
  'It wants a call to come. A gate can refuse a call, and cannot make a client call.';
const NEIGHBOURS = 'It counts the calls in between. Rules know times, and no neighbours.';

/** The formulas of the golden file that rules do not say, and why. */
export const NOT_SAID: Readonly<Record<string, string>> = {
  called_a: MUST_COME,
  G_called_a: MUST_COME,
  called_with: MUST_COME,
  with_result: MUST_COME,
  eventually_b: MUST_COME,
  not_G: MUST_COME,
  respond: MUST_COME,
  until: `${MUST_COME} The other half is \`weak_until\`.`,
  at_least_2: `${MUST_COME} Column \`block\` refuses every call of every trace, also the first \`a\`.`,
  exactly_1: `${MUST_COME} The other half is \`at_most_1\`.`,
  in_order: `${MUST_COME} Column \`block\` refuses no call of any trace.`,
  branch: `${MUST_COME} The other half is a tool that is never called, as in \`never_a\`.`,
  branch_only: MUST_COME,
  and_or: `${MUST_COME} The other half is a tool that is never called, as in \`never_a\`.`,
  after_ab:
    'It is `before_ab` with the names exchanged. Column `block` refuses every call of every trace, ' +
    'also the `b` that has to come first, so there is no way to follow it.',
  next: NEIGHBOURS,
  within: NEIGHBOURS,
  at_pos: `${NEIGHBOURS} Nor do they know the place of a call in its run.`,
};
