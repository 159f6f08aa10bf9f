import { describe, expect, it, onTestFinished } from 'vitest';
import { createMachine } from 'xstate';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type BindingOptions,
  type FsmGateOptions,
  fsmGate,
  type Limit,
  type LoopShieldOptions,
  memoryStore,
  principalKey,
  type RefusalReason,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { type Latch, latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';

/*
 * A request may fail several checks at once. These tables say which one its client is told of. Each
 * row is a promise: the first check comes before the second one.
 */

type Gate = StateMachineGate<string, string>;
type Named = 'when' | 'guard' | 'visible' | 'success';
type Functions = { -readonly [name in Named]?: NonNullable<BindingOptions[name]> };

/** How a request comes to the gate. */
interface Variant {
  readonly era: 'session' | 'stateless';
  /** With `refusal: 'unknown-tool'`. */
  readonly isSecret: boolean;
  /** Another gate, which allows each call, stands behind. */
  readonly isBeforeAnother: boolean;
}

/** A request for the tool `t` or the resource, the gate in front of it, and what came before. */
interface Plan {
  readonly variant: Variant;
  /** Whether a success moves the run. */
  isStep: boolean;
  tool: string;
  /** The members of its arguments. */
  readonly args: string[];
  readonly headers: Record<string, string>;
  readonly binding: Functions & { states: readonly string[]; limit: Limit[] };
  /** What guards a resource, by pattern. */
  readonly reads: { pattern: string; states: readonly string[]; guard?: () => true | string }[];
  uri: string;
  hasNameHeader: boolean;
  hasPrincipal: boolean;
  hasMachineGuard: boolean;
  shield: LoopShieldOptions | undefined;
  begin: FsmGateOptions['begin'];
  maxHeldPerCaller: number;
  hasStatus: boolean;
  /** Of the last gate. */
  unbound: 'allow' | 'refuse';
  readonly before: ((scene: Scene) => Promise<void>)[];
  /** What the request is sent with: a batch, or beside a cancellation. */
  send: (scene: Scene) => Promise<string>;
}

/** One way to fail. */
interface Check {
  readonly name: string;
  /** What the client sees. */
  readonly told: string;
  /** Whether a list that hides leaves the tool out. */
  readonly hides?: true;
  /** Whether it is found before a gate asks who may know of the tool. */
  readonly isBeforeSecrecy?: true;
  /** Whether the gate leaves the call to the gates behind it. */
  readonly leaves?: true;
  /** Only there. Default: in both eras. */
  readonly only?: Variant['era'];
  readonly arrange: (plan: Plan) => void;
}

const PASSED = 'it passes';
const UNKNOWN = 'the upstream knows no such name';
/** The second session of the client. */
const ANOTHER_RUN = 'session-2';
const fails = (message: string) => (): never => {
  throw new Error(message);
};

/** Each check, by a name for the tables below. */
const CHECKS = {
  name: {
    name: 'a name that is no text',
    told: 'its name is no text',
    isBeforeSecrecy: true,
    arrange: (plan) => {
      plan.tool = '3';
      plan.hasNameHeader = false;
    },
  },
  unbound: {
    name: 'a tool that no gate binds',
    told: PASSED,
    isBeforeSecrecy: true,
    arrange: (plan) => {
      plan.tool = '"open"';
    },
  },
  denied: {
    name: 'a tool that no gate binds, where such tools are refused',
    told: 'unbound',
    hides: true,
    arrange: (plan) => {
      plan.tool = '"open"';
      plan.unbound = 'refuse';
    },
  },
  header: {
    name: 'a header that contradicts an argument',
    told: 'HTTP 400',
    arrange: ({ headers, args }) => {
      headers['mcp-param-item'] = 'book';
      args.push('"item":"pen"');
    },
  },
  deep: {
    name: 'an argument that is too deep',
    told: 'arguments: they are nested deeper',
    arrange: ({ args }) => void args.push(`"deep":${'['.repeat(130)}${']'.repeat(130)}`),
  },
  prototype: {
    name: 'an argument "__proto__"',
    told: 'arguments: no key in them may be',
    arrange: ({ args }) => void args.push('"__proto__":{}'),
  },
  literal: {
    name: 'a number that some cut',
    told: 'arguments: a number in them has',
    arrange: ({ args }) => void args.push(`"long":1${'0'.repeat(1_001)}`),
  },
  unclear: {
    name: 'an argument in two spellings, which `when` reads',
    told: 'arguments: the argument "act" must',
    arrange: ({ args, binding }) => {
      args.push('"act":1', '"Act":2');
      const { when = () => true } = binding;
      binding.when = (all) => all.act !== undefined && when(all);
    },
  },
  noMatch: {
    name: 'a call that no binding is about',
    told: PASSED,
    isBeforeSecrecy: true,
    leaves: true,
    arrange: ({ binding }) => {
      binding.when = () => false;
    },
  },
  whenThrew: {
    name: 'a `when` that throws',
    told: 'unavailable',
    arrange: ({ binding }) => {
      binding.when = fails('when');
    },
  },
  noRun: {
    name: 'a call that names no run',
    told: 'no-run',
    hides: true,
    arrange: (plan) => {
      plan.hasPrincipal = false;
    },
  },
  gone: {
    name: 'a run that is gone',
    told: 'HTTP 404',
    hides: true,
    only: 'session',
    arrange: ({ before }) => void before.push((scene) => scene.forget()),
  },
  away: {
    name: 'a store that is away',
    told: 'unavailable',
    hides: true,
    arrange: ({ before }) => void before.push((scene) => scene.breakStore()),
  },
  unreadable: {
    name: 'a run of a later version',
    told: 'unreadable',
    hides: true,
    arrange: ({ before }) => void before.push((scene) => scene.upgrade()),
  },
  state: {
    name: 'another state',
    told: 'state',
    hides: true,
    arrange: ({ binding, reads }) => {
      binding.states = ['s1'];
      for (const each of reads) each.states = ['s1'];
    },
  },
  visible: {
    name: 'a `visible` that says no',
    told: 'state',
    hides: true,
    arrange: ({ binding }) => {
      binding.visible = () => false;
    },
  },
  begin: {
    name: 'a `begin` that throws, whose data a guard reads',
    told: 'unavailable',
    arrange: (plan) => {
      plan.begin = ({ run }) => {
        if (run !== ANOTHER_RUN) throw new Error('begin');
        return undefined;
      };
      plan.binding.guard ??= () => true;
      for (const each of plan.reads) each.guard ??= () => true;
    },
  },
  sameRequest: {
    name: 'another step of the same request',
    told: 'busy',
    only: 'session',
    arrange: (plan) => {
      plan.send = (scene) => scene.sendBesideStep();
    },
  },
  busy: {
    name: 'a running step',
    told: 'busy',
    arrange: (plan) => {
      plan.before.push((scene) => scene.startStep());
      plan.send = (scene) => scene.sendAndWait();
    },
  },
  held: {
    name: 'a held run',
    told: 'held',
    hides: true,
    arrange: ({ before }) => void before.push((scene) => scene.hold()),
  },
  frozen: {
    name: 'a frozen run',
    told: 'frozen',
    hides: true,
    arrange: ({ before }) => void before.push((scene) => scene.freeze()),
  },
  tooManyHeld: {
    name: 'too many held runs of the caller',
    told: 'too-many-held',
    only: 'session',
    arrange: (plan) => {
      plan.maxHeldPerCaller = 1;
      plan.before.push((scene) => scene.holdAnotherRun());
    },
  },
  eventArguments: {
    name: 'an argument in two spellings, which the event reads',
    told: 'arguments: the argument "act" must',
    arrange: ({ args, binding }) => {
      args.push('"act":1', '"Act":2');
      binding.success = ({ args: all }) => (all.act === 0 ? 'GO' : 'STAY');
    },
  },
  loop: {
    name: 'a call too many',
    told: 'loop',
    arrange: (plan) => {
      plan.shield = { max: 1, fallback: { event: 'STAY' } };
      plan.before.push((scene) => scene.failOnce());
    },
  },
  unclearLimit: {
    name: 'an argument in two spellings, which a limit reads',
    told: 'arguments: the argument "act" must',
    arrange: ({ args, binding }) => {
      args.push('"act":1', '"Act":2');
      binding.limit.push({ times: 9, same: ['act'] });
    },
  },
  noAmount: {
    name: 'a limited sum without an amount',
    told: 'arguments: its argument "amount" must',
    arrange: ({ binding }) => void binding.limit.push({ sum: 'amount', max: 9 }),
  },
  limit: {
    name: 'a limit of all calls',
    told: 'limit',
    hides: true,
    arrange: ({ binding }) => void binding.limit.push({ times: 0 }),
  },
  limitOfSome: {
    name: 'a limit of calls with such arguments',
    told: 'limit',
    arrange: ({ args, binding }) => {
      args.push('"kind":"a"');
      binding.limit.push({ times: 0, when: { kind: 'a' } });
    },
  },
  machineGuard: {
    name: "a guard of the machine's own",
    told: 'guard: a condition for it is not met',
    arrange: (plan) => {
      plan.hasMachineGuard = true;
    },
  },
  unclearGuard: {
    name: 'an argument in two spellings, which the guard reads',
    told: 'arguments: the argument "act" must',
    arrange: ({ args, binding }) => {
      args.push('"act":1', '"Act":2');
      const { guard = () => true } = binding;
      binding.guard = (call) => (call.args.act === 0 ? true : guard(call));
    },
  },
  guard: {
    name: 'a guard that says no',
    told: 'guard: Ask a person',
    arrange: ({ binding, reads }) => {
      const { guard: earlier } = binding;
      binding.guard = async (call) => {
        await earlier?.(call);
        return 'Ask a person';
      };
      for (const each of reads) each.guard = () => 'Ask a person';
    },
  },
  cancelled: {
    name: 'a client that cancels while the guard is asked',
    told: 'nothing',
    only: 'session',
    arrange: (plan) => {
      const asked = latch();
      const answered = latch();
      const { guard = () => true } = plan.binding;
      plan.binding.guard = async (call) => {
        asked.open();
        await answered.opened;
        return guard(call);
      };
      plan.send = (scene) => scene.sendAndCancel(asked, answered);
    },
  },
} satisfies Record<string, Check>;

type CheckName = keyof typeof CHECKS;

const checkOf = (name: CheckName): Check => CHECKS[name];

const VARIANTS: readonly Variant[] = (['session', 'stateless'] as const).flatMap((era) =>
  [false, true].flatMap((isSecret) =>
    [false, true].map((isBeforeAnother) => ({ era, isSecret, isBeforeAnother })),
  ),
);

const describedBy = ({ era, isSecret, isBeforeAnother }: Variant): string =>
  `in the ${era} era${isSecret ? ", with refusal: 'unknown-tool'" : ''}` +
  `${isBeforeAnother ? ', with two gates' : ''}`;

/** The variants, each behind its words. */
const BY_WORDS = VARIANTS.map((variant) => [describedBy(variant), variant] as const);

/** A row for each pair and each variant in which both can fail. */
function rowsOf(pairs: readonly (readonly [CheckName, CheckName])[]) {
  return pairs.flatMap(([one, other]) => {
    const [winner, loser] = [checkOf(one), checkOf(other)];
    return VARIANTS.filter(
      ({ era, isBeforeAnother }) =>
        [winner, loser].every(({ only = era }) => only === era) &&
        !(winner.leaves && isBeforeAnother),
    ).map((variant) => {
      const title = `${winner.name} comes before ${loser.name} ${describedBy(variant)}`;
      return [title, { variant, winner, loser }] as const;
    });
  });
}

/** What the client is told, where these checks fail and the first one comes first. */
function toldOf(variant: Variant, winner: Check, loser?: Check): string {
  const isHidden = [winner, loser].some((each) => each?.hides === true);
  const isAsked = winner.isBeforeSecrecy !== true;
  return variant.isSecret && isHidden && isAsked ? UNKNOWN : winner.told;
}

function planFor(variant: Variant, kind: 'step' | 'free'): Plan {
  const isStep = kind === 'step';
  return {
    variant,
    isStep,
    tool: '"t"',
    args: [],
    headers: {},
    binding: { states: ['s0'], limit: [], ...(isStep && { success: 'GO' }) },
    reads: [{ pattern: 'docs://a/**', states: ['s0'] }],
    uri: 'docs://a/1',
    hasNameHeader: true,
    hasPrincipal: true,
    hasMachineGuard: false,
    shield: undefined,
    begin: undefined,
    maxHeldPerCaller: 100,
    hasStatus: false,
    unbound: 'allow',
    before: [],
    send: (scene) => scene.send(),
  };
}

async function told(plan: Plan, send = plan.send): Promise<string> {
  const scene = new Scene(plan);
  onTestFinished(() => scene.close());
  await scene.begin();
  for (const step of plan.before) await step(scene);
  return send(scene);
}

/** Plays both checks together, and the loser alone: it must be a way to fail, too. */
async function assertOrder(
  { variant, winner, loser }: { variant: Variant; winner: Check; loser: Check },
  kind: 'step' | 'free',
  send?: Plan['send'],
): Promise<void> {
  const alone = planFor(variant, kind);
  loser.arrange(alone);
  expect(await told(alone, send)).toBe(toldOf(variant, loser));
  const both = planFor(variant, kind);
  loser.arrange(both);
  winner.arrange(both);
  expect(await told(both, send)).toBe(toldOf(variant, winner, loser));
}

/** Before what a call does matters. */
const EVERY: readonly (readonly [CheckName, CheckName])[] = [
  ['name', 'header'],
  ['name', 'prototype'],
  ['unbound', 'header'],
  ['unbound', 'deep'],
  ['denied', 'header'],
  ['denied', 'deep'],
  ['denied', 'noRun'],
  ['denied', 'state'],
  ['denied', 'away'],
  ['denied', 'unreadable'],
  ['header', 'deep'],
  ['deep', 'prototype'],
  ['prototype', 'literal'],
  ['literal', 'unclear'],
  ['unclear', 'noMatch'],
  ['unclear', 'whenThrew'],
  ['noMatch', 'noRun'],
  ['whenThrew', 'noRun'],
  ['noRun', 'guard'],
  // With "unknown-tool" it is the other way round: no fault tells that a hidden tool exists.
  ['header', 'state'],
  ['header', 'noRun'],
  ['header', 'visible'],
  ['deep', 'unreadable'],
  ['prototype', 'away'],
  ['literal', 'gone'],
];

/** By reason, a check that refuses for it. Each stands in a row of a table. */
const BY_REASON: Readonly<Record<RefusalReason, CheckName>> = {
  state: 'state',
  arguments: 'deep',
  guard: 'guard',
  limit: 'limit',
  busy: 'busy',
  held: 'held',
  'too-many-held': 'tooManyHeld',
  loop: 'loop',
  frozen: 'frozen',
  unavailable: 'away',
  unreadable: 'unreadable',
  'no-run': 'noRun',
  unbound: 'denied',
};

it.each(Object.entries(BY_REASON))('a check refuses for the reason %s', async (reason, name) => {
  const { only = 'session', ...check } = checkOf(name);
  const era = reason === 'no-run' ? 'stateless' : only;
  const plan = planFor({ era, isSecret: false, isBeforeAnother: false }, 'step');
  check.arrange(plan);
  const said = await told(plan);
  expect(said.split(':')[0]).toBe(reason);
});

describe.each(['free', 'step'] as const)('the order of checks on each call (%s)', (kind) => {
  it.each(rowsOf(EVERY))('%s', (_, row) => assertOrder(row, kind));
});

describe('the order of checks on a call of the status tool', () => {
  const own = {
    name: 'a status tool',
    told: 'where the run stands',
    arrange: (plan: Plan) => {
      plan.tool = '"status"';
      plan.hasStatus = true;
    },
  } satisfies Check;
  const open = BY_WORDS.filter(([, { isSecret }]) => !isSecret);
  const losers = ['deep', 'prototype', 'literal', 'noRun', 'away', 'unreadable', 'state'] as const;

  it.each(
    open.flatMap(([words, variant]) =>
      losers.map((name) => [`${checkOf(name).name} ${words}`, variant, checkOf(name)] as const),
    ),
  )('it answers before %s', (_, variant, loser) =>
    assertOrder({ variant, winner: own, loser }, 'step'),
  );

  it.each(open)('a header that contradicts an argument comes before its answer %s', (_, variant) =>
    assertOrder({ variant, winner: CHECKS.header, loser: own }, 'step'),
  );
});

describe('the order of checks on a call that moves nothing', () => {
  const pairs: readonly (readonly [CheckName, CheckName])[] = [
    ['gone', 'state'],
    ['gone', 'guard'],
    ['away', 'state'],
    ['away', 'guard'],
    ['unreadable', 'state'],
    ['unreadable', 'guard'],
    ['gone', 'frozen'],
    ['away', 'frozen'],
    ['frozen', 'state'],
    ['frozen', 'visible'],
    ['frozen', 'guard'],
    ['state', 'begin'],
    ['state', 'guard'],
    // What a client sees depends on the data, so they are asked for first.
    ['begin', 'visible'],
    ['visible', 'unclearGuard'],
    ['begin', 'unclearGuard'],
    ['begin', 'guard'],
    ['unclearGuard', 'guard'],
  ];

  it.each(rowsOf(pairs))('%s', (_, row) => assertOrder(row, 'free'));

  it.each(
    BY_WORDS.flatMap(([words, variant]) => [
      [`a running step ${words}`, checkOf('busy'), variant] as const,
      [`a held run ${words}`, checkOf('held'), variant] as const,
    ]),
  )('never knows %s', async (_, check, variant) => {
    const plan = planFor(variant, 'free');
    check.arrange(plan);
    expect(await told(plan, (scene) => scene.send())).toBe(PASSED);
  });
});

describe('the order of checks on a step', () => {
  const pairs: readonly (readonly [CheckName, CheckName])[] = [
    ['gone', 'state'],
    ['gone', 'guard'],
    ['sameRequest', 'state'],
    ['sameRequest', 'visible'],
    ['state', 'tooManyHeld'],
    ['visible', 'tooManyHeld'],
    ['unreadable', 'tooManyHeld'],
    ['tooManyHeld', 'busy'],
    ['tooManyHeld', 'begin'],
    ['tooManyHeld', 'guard'],
    ['away', 'guard'],
    ['gone', 'frozen'],
    ['away', 'frozen'],
    ['frozen', 'state'],
    ['frozen', 'visible'],
    ['frozen', 'eventArguments'],
    ['frozen', 'loop'],
    ['frozen', 'machineGuard'],
    ['frozen', 'guard'],
    ['busy', 'state'],
    ['busy', 'guard'],
    ['held', 'state'],
    ['held', 'visible'],
    ['held', 'guard'],
    ['unreadable', 'state'],
    ['unreadable', 'guard'],
    ['state', 'begin'],
    ['begin', 'visible'],
    ['begin', 'eventArguments'],
    ['begin', 'guard'],
    ['state', 'eventArguments'],
    ['visible', 'eventArguments'],
    ['state', 'loop'],
    ['eventArguments', 'loop'],
    ['eventArguments', 'guard'],
    ['noRun', 'unclearLimit'],
    ['unclearLimit', 'gone'],
    ['unclearLimit', 'away'],
    ['unclearLimit', 'frozen'],
    ['unclearLimit', 'busy'],
    ['unclearLimit', 'state'],
    ['gone', 'limit'],
    ['away', 'limit'],
    ['unreadable', 'limit'],
    ['frozen', 'limit'],
    ['tooManyHeld', 'limit'],
    ['busy', 'limit'],
    ['held', 'limit'],
    ['state', 'limit'],
    ['begin', 'limit'],
    ['visible', 'limit'],
    ['state', 'noAmount'],
    ['loop', 'noAmount'],
    ['noAmount', 'limit'],
    ['noAmount', 'limitOfSome'],
    ['noAmount', 'guard'],
    ['visible', 'limitOfSome'],
    ['limitOfSome', 'eventArguments'],
    ['loop', 'limitOfSome'],
    ['loop', 'limit'],
    ['limitOfSome', 'machineGuard'],
    ['limit', 'machineGuard'],
    ['limitOfSome', 'guard'],
    ['limit', 'guard'],
    ['loop', 'machineGuard'],
    ['loop', 'unclearGuard'],
    ['loop', 'guard'],
    ['machineGuard', 'unclearGuard'],
    ['machineGuard', 'guard'],
    ['unclearGuard', 'guard'],
    ['guard', 'cancelled'],
  ];

  it.each(rowsOf(pairs))('%s', (_, row) => assertOrder(row, 'step'));
});

describe('the order of checks on a resource', () => {
  const pairs: readonly (readonly [CheckName, CheckName])[] = [
    ['gone', 'state'],
    ['gone', 'guard'],
    ['away', 'state'],
    ['unreadable', 'state'],
    ['unreadable', 'guard'],
    ['gone', 'frozen'],
    ['frozen', 'state'],
    ['frozen', 'guard'],
    ['state', 'begin'],
    ['state', 'guard'],
    ['begin', 'guard'],
  ];
  const read = (scene: Scene): Promise<string> => scene.read();

  it.each(rowsOf(pairs))('%s', (_, row) => assertOrder(row, 'free', read));

  it.each(rowsOf([['noRun', 'guard']]))('%s', (_, row) => assertOrder(row, 'free', read));

  it.each(BY_WORDS)('an unclear URI comes before the state of the run %s', async (_, variant) => {
    const plan = planFor(variant, 'free');
    CHECKS.state.arrange(plan);
    plan.uri = 'docs://a/../a/1';
    expect(await told(plan, read)).toBe(variant.isSecret ? UNKNOWN : 'its URI is unclear');
  });

  it.each(BY_WORDS.filter(([, { era }]) => era === 'stateless'))(
    'a missing header comes before an unclear URI %s',
    async (_, variant) => {
      const plan = planFor(variant, 'free');
      plan.hasNameHeader = false;
      plan.uri = 'docs://a/../a/1';
      expect(await told(plan, read)).toBe(variant.isSecret ? UNKNOWN : 'HTTP 400');
    },
  );

  it.each(BY_WORDS)(
    'the states of all its bindings come before the guard of one %s',
    async (_, variant) => {
      const plan = planFor(variant, 'free');
      CHECKS.guard.arrange(plan);
      plan.reads.push({ pattern: 'docs://*/1', states: ['s1'] });
      expect(await told(plan, read)).toBe(variant.isSecret ? UNKNOWN : 'state');
    },
  );
});

describe('the order of checks on a run from outside', () => {
  const step = planFor({ era: 'session', isSecret: false, isBeforeAnother: false }, 'step');
  const inScene = async (...before: Plan['before']): Promise<Scene> => {
    const scene = new Scene(step);
    onTestFinished(() => scene.close());
    await scene.begin();
    for (const each of before) await each(scene);
    return scene;
  };
  const running = (scene: Scene): Promise<void> => scene.startStep();
  const held = (scene: Scene): Promise<void> => scene.hold();
  const gone = (scene: Scene): Promise<void> => scene.forget();
  const frozen = (scene: Scene): Promise<void> => scene.freeze();

  it.each([
    ['a run that is gone', 'unknown-run', [gone]],
    ['a running step', 'busy', [running]],
    ['a held run', 'held', [held]],
    ['a frozen run', 'frozen', [frozen]],
    ['nothing else', 'unhandled', []],
  ])(
    'send() tells of %s before an event that its state does not know: %s',
    async (_, reason, before) => {
      const scene = await inScene(...before);
      const sent = scene.runs.send(scene.run, 'NOWHERE');
      await scene.waitUntilTired();
      expect(await sent).toEqual({ sent: false, reason });
    },
  );

  it.each([
    ['a run that is gone', 'unknown-run', [gone]],
    ['a running step', 'busy', [running]],
    ['a held run', 'held', [held]],
    ['a frozen run', 'frozen', [frozen]],
  ])('restart() does not wait, and tells of %s: %s', async (_, reason, before) => {
    const scene = await inScene(...before);
    expect(await scene.runs.restart(scene.run)).toEqual({ restarted: false, reason });
  });

  it.each([
    ['a run that is gone', 'unknown-run', undefined, [gone]],
    ['a run without a step', 'not-held', undefined, []],
    ['another token, before the running step', 'not-held', 'another', [running]],
    ['another token, before the held step', 'not-held', 'another', [held]],
    ['a running step', 'running', undefined, [running]],
  ])('resolve() tells of %s: %s', async (_, reason, token, before) => {
    const scene = await inScene(...before);
    const resolved = await scene.runs.resolve(scene.run, 'succeeded', { token, event: null });
    expect(resolved).toEqual({ resolved: false, reason });
  });
});

describe('the order of checks on several gates', () => {
  const eras = ['session', 'stateless'] as const;

  it.each(eras)(
    'each gate asks all of its own before the next one asks its first (%s era)',
    async (era) => {
      const plan = planFor({ era, isSecret: false, isBeforeAnother: false }, 'step');
      CHECKS.guard.arrange(plan);
      expect(await new Scene(plan, deafGate()).beginAndSend()).toBe(CHECKS.guard.told);
      const open = planFor({ era, isSecret: false, isBeforeAnother: false }, 'step');
      expect(await new Scene(open, deafGate()).beginAndSend()).toBe(CHECKS.whenThrew.told);
    },
  );

  it.each(eras)(
    'a claim of the first one ends where the second one refuses (%s era)',
    async (era) => {
      const plan = planFor({ era, isSecret: false, isBeforeAnother: false }, 'step');
      const scene = new Scene(plan, deafGate());
      expect(await scene.beginAndSend()).toBe(CHECKS.whenThrew.told);
      expect(await scene.runs.read(scene.run)).toMatchObject({ state: 's0', status: 'idle' });
    },
  );
});

describe('the order of checks, once the client is told', () => {
  it.each(BY_WORDS.filter(([, { era }]) => era === 'session'))(
    'a client that cancels while the call waits comes before a running step %s',
    async (_, variant) => {
      const scene = new Scene(planFor(variant, 'step'));
      onTestFinished(() => scene.close());
      await scene.begin();
      await scene.startStep();
      const sent = scene.send();
      await scene.settled();
      await scene.cancel();
      await scene.waitUntilTired();
      expect(await sent).toBe('nothing');
    },
  );

  it.each(BY_WORDS)(
    'a call that waited is told where the run stands by then %s',
    async (_, variant) => {
      const plan = planFor(variant, 'step');
      CHECKS.guard.arrange(plan);
      const scene = new Scene(plan);
      onTestFinished(() => scene.close());
      await scene.begin();
      await scene.startStep('w');
      const sent = scene.send();
      await scene.settled();
      scene.finishStep();
      // The step before has moved the run to where the tool is hidden.
      expect(await sent).toBe(variant.isSecret ? UNKNOWN : 'state');
    },
  );
});

/** A gate that can tell of no call whether it is about it. */
function deafGate(): Gate {
  return new StateMachineGate({ id: 'deaf', initial: 'open', states: { open: {} } }).bindTool(
    't',
    'open',
    { when: fails('when') },
  ) as unknown as Gate;
}

const ROUTE = 'http://mcp.test/mcp';
const SESSION = 'mcp-session-id';
const WAIT_MS = 1_000;
const LEASE_MS = 8_000;
const CLAIM =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",' +
  '"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},' +
  '"io.modelcontextprotocol/clientCapabilities":{}}';

/** A route with its gates, a server behind them, and a client in front. */
class Scene {
  readonly #plan: Plan;
  readonly #clock = new ManualClock();
  readonly #store: FaultyStore;
  readonly #gate: Gate;
  readonly #sessions: ReturnType<typeof sessionStore>;
  readonly #fetch: (request: Request) => Promise<Response>;
  readonly #deeds = new Map<unknown, 'waits' | 'dies' | 'fails'>();
  #waiting: Latch = latch();
  #session: string | undefined;
  #opened = 0;
  #ids = 0;
  readonly runs: Runs;

  constructor(plan: Plan, another?: Gate) {
    const { variant, isStep, hasPrincipal, maxHeldPerCaller, begin } = plan;
    const { now } = this.#clock;
    this.#plan = plan;
    this.#store = new FaultyStore(memoryStore({ now }));
    this.#gate = gateOf(plan);
    const isBySession = variant.era === 'session' && hasPrincipal;
    const quiet = { onError: () => {}, onWarning: () => {} };
    this.#sessions = sessionStore({
      ...quiet,
      store: this.#store,
      clock: this.#clock,
      key: isBySession ? sessionKey() : principalKey(),
      principal: () => (hasPrincipal ? 'ann' : undefined),
      maxHeldPerCaller,
    });
    const options: FsmGateOptions = {
      ...quiet,
      clock: this.#clock,
      waitMs: WAIT_MS,
      ...(begin && { begin }),
      ...(plan.hasStatus && { statusTool: 'status' }),
      ...(variant.isSecret && { refusal: 'unknown-tool', visibility: 'hide' }),
    };
    const behind = another ?? (variant.isBeforeAnother ? openGate(isStep) : undefined);
    const gates = [this.#gate, ...(behind === undefined ? [] : [behind])];
    this.#fetch = gateFetch(
      (request) => this.#serve(request),
      [
        this.#sessions,
        ...gates.map((gate, i) =>
          fsmGate(gate, {
            ...options,
            begin: i === 0 ? begin : undefined,
            unbound: i === gates.length - 1 ? plan.unbound : 'allow',
          }),
        ),
      ],
    );
    this.runs = runsOf(this.#gate, { sessions: this.#sessions }) as Runs;
  }

  get run(): string {
    return this.#session ?? principalKey().runKey('ann');
  }

  async close(): Promise<void> {
    this.#waiting.open();
    await this.#sessions.close();
  }

  /** Opens a session where there is one. */
  async begin(): Promise<void> {
    if (this.#plan.variant.era === 'stateless') return;
    const params =
      '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}';
    const response = await this.#post('initialize', params, {});
    this.#session = response.headers.get(SESSION) ?? undefined;
    await response.text();
  }

  async beginAndSend(): Promise<string> {
    onTestFinished(() => this.close());
    await this.begin();
    return this.send();
  }

  /** What the client is told of the call. */
  async send(): Promise<string> {
    return sayingOf(await this.#call(this.#plan.tool, this.#plan.args, this.#plan.headers));
  }

  /** The call waits as long as it may. */
  async sendAndWait(): Promise<string> {
    const sent = this.send();
    await this.waitUntilTired();
    return sent;
  }

  async waitUntilTired(): Promise<void> {
    await this.settled();
    this.#clock.advance(11_000);
    await this.settled();
  }

  async sendAndCancel(asked: Latch, answered: Latch): Promise<string> {
    const sent = this.send();
    await asked.opened;
    await this.cancel();
    answered.open();
    return sent;
  }

  /** The client cancels its last request. */
  async cancel(): Promise<void> {
    const method = 'notifications/cancelled';
    const body = { jsonrpc: '2.0', method, params: { requestId: this.#ids } };
    const response = await this.#postBody(JSON.stringify(body), this.#headersOf(method, undefined));
    expect(response.status).toBe(202);
  }

  /** The call, in a batch behind a step of the same run. */
  async sendBesideStep(): Promise<string> {
    const { tool, args } = this.#plan;
    const messages = [this.#message('u', []), this.#message(JSON.parse(tool), args)];
    const headers = { ...this.#headersOf('tools/call', undefined) };
    const response = await this.#postBody(`[${messages.join()}]`, {
      ...headers,
      'mcp-protocol-version': '2025-03-26',
    });
    const answers: unknown = JSON.parse(await response.text());
    const answer = Array.isArray(answers) ? answers.find(({ id }) => id === this.#ids) : answers;
    return sayingOf(Response.json(answer, { status: response.status }));
  }

  async read(): Promise<string> {
    const { uri, hasNameHeader } = this.#plan;
    const headers = this.#headersOf('resources/read', hasNameHeader ? uri : undefined);
    const body = this.#bodyOf('resources/read', `{"uri":${JSON.stringify(uri)}}`);
    return sayingOf(await this.#postBody(body, headers));
  }

  /** A step of another call stays open. */
  async startStep(tool = 'u'): Promise<void> {
    this.#deeds.set(this.#ids + 1, 'waits');
    void this.#call(`"${tool}"`, []);
    await this.settled();
  }

  finishStep(): void {
    this.#waiting.open();
  }

  /** The outcome of a step stays unknown. */
  async freeze(): Promise<void> {
    const frozen = await this.runs.freeze(this.run, { actor: 'ann', note: 'look at it' });
    expect(frozen).toMatchObject({ frozen: true });
  }

  async hold(): Promise<void> {
    this.#deeds.set(this.#ids + 1, 'dies');
    await (await this.#call('"u"', [])).text();
    this.#clock.advance(LEASE_MS + 1_000);
    await this.settled();
  }

  async holdAnotherRun(): Promise<void> {
    const own = this.#session;
    await this.begin();
    expect(this.#session).toBe(ANOTHER_RUN);
    await this.hold();
    this.#session = own;
  }

  /** A call of the tool that moves nothing. */
  async failOnce(): Promise<void> {
    this.#deeds.set(this.#ids + 1, 'fails');
    await (await this.#call('"t"', ['"act":1'])).text();
  }

  /** Another process deletes the run. This one trusts for some seconds that it is there. */
  async forget(): Promise<void> {
    await runsOf(this.#gate, { store: this.#store }).delete(this.run);
  }

  async breakStore(): Promise<void> {
    this.#store.fail('read');
    this.#store.fail('claim');
  }

  /** A later deployment takes the run to where this one cannot read it. */
  async upgrade(): Promise<void> {
    await (await this.#call('"u"', [])).text();
    const later = new StateMachineGate(
      { id: 'one', initial: 'later', states: { later: { on: { GO: 'beyond' } }, beyond: {} } },
      { version: 2, migrate: () => ({ state: 'later' }) },
    );
    const sent = await runsOf(later, { sessions: this.#sessions }).send(this.run, 'GO');
    expect(sent).toMatchObject({ sent: true });
    // The next request reads the run anew.
    this.#clock.advance(6_000);
  }

  /** Resolves once nothing goes on that waits for neither the clock nor the test. */
  async settled(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  }

  #call(tool: string, args: readonly string[], more?: Record<string, string>): Promise<Response> {
    const { hasNameHeader } = this.#plan;
    const name = hasNameHeader || more === undefined ? JSON.parse(tool) : undefined;
    const headers = { ...this.#headersOf('tools/call', name), ...more };
    const params = `{"name":${tool},"arguments":{${args.join()}}}`;
    return this.#postBody(this.#bodyOf('tools/call', params), headers);
  }

  #message(tool: string, args: readonly string[]): string {
    const params = `{"name":${JSON.stringify(tool)},"arguments":{${args.join()}}}`;
    return this.#bodyOf('tools/call', params);
  }

  #bodyOf(method: string, params: string): string {
    const isStateless = this.#plan.variant.era === 'stateless';
    const given = isStateless ? `{${CLAIM},${params.slice(1)}` : params;
    return `{"jsonrpc":"2.0","id":${++this.#ids},"method":"${method}","params":${given}}`;
  }

  #post(method: string, params: string, more: Record<string, string>): Promise<Response> {
    const headers = { ...this.#headersOf(method, undefined), ...more };
    return this.#postBody(this.#bodyOf(method, params), headers);
  }

  #postBody(body: string, headers: Record<string, string>): Promise<Response> {
    return this.#fetch(new Request(ROUTE, { method: 'POST', headers, body }));
  }

  #headersOf(method: string, name: string | undefined): Record<string, string> {
    const isStateless = this.#plan.variant.era === 'stateless';
    return {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': isStateless ? '2026-07-28' : '2025-11-25',
      ...(this.#session !== undefined && { [SESSION]: this.#session }),
      ...(isStateless && { 'mcp-method': method }),
      ...(isStateless && name !== undefined && { 'mcp-name': name }),
    };
  }

  async #serve(request: Request): Promise<Response> {
    const body: unknown = await request.json();
    const messages = (Array.isArray(body) ? body : [body]) as Sent[];
    const answers = await Promise.all(messages.map((each) => this.#answer(each)));
    if (answers.includes('dies'))
      return new Response('', { headers: { 'content-type': 'text/event-stream' } });
    const said = answers.filter((each) => each !== undefined);
    if (said.length === 0) return new Response(null, { status: 202 });
    const isOpening = messages.some(({ method }) => method === 'initialize');
    const headers = isOpening ? { [SESSION]: `session-${++this.#opened}` } : undefined;
    return Response.json(Array.isArray(body) ? said : said[0], headers && { headers });
  }

  async #answer({ id, method, params = {} }: Sent): Promise<object | 'dies' | undefined> {
    if (id === undefined) return undefined;
    const answer = (said: object): object => ({ jsonrpc: '2.0', id, ...said });
    const unknown = answer({ error: { code: -32602, message: UNKNOWN } });
    switch (method) {
      case 'initialize':
        return answer({ result: SERVER });
      case 'resources/read':
        return String(params.uri).startsWith('docs://a/')
          ? answer({ result: { contents: [] } })
          : unknown;
      case 'tools/call': {
        if (!['t', 'u', 'w', 'open'].includes(String(params.name))) return unknown;
        const deed = this.#deeds.get(id);
        if (deed === 'dies') return 'dies';
        if (deed === 'waits') await this.#waiting.opened;
        const content = [{ type: 'text', text: PASSED }];
        return answer({ result: { content, ...(deed === 'fails' && { isError: true }) } });
      }
      default:
        return answer({ result: {} });
    }
  }
}

interface Sent {
  readonly id?: number;
  readonly method?: string;
  readonly params?: { readonly name?: unknown; readonly uri?: unknown };
}

const SERVER = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {}, resources: {} },
  serverInfo: { name: 'upstream', version: '1' },
};

/** The gate that judges. `u` holds the run open, and `w` moves it. */
function gateOf({ binding, reads, shield, hasMachineGuard, isStep }: Plan): Gate {
  const options = shield === undefined ? {} : { loopShield: shield };
  const machine = hasMachineGuard
    ? createMachine({
        id: 'one',
        initial: 's0',
        states: {
          s0: { on: { GO: { target: 's1', guard: () => false }, STAY: {}, LEAVE: 's1' } },
          s1: { on: { GO: 's0' } },
        },
      })
    : {
        id: 'one',
        initial: 's0',
        states: { s0: { on: { GO: 's1', STAY: 's0', LEAVE: 's1' } }, s1: { on: { GO: 's0' } } },
      };
  const gate = new StateMachineGate(machine as never, options) as unknown as Gate;
  const { states, limit, ...functions } = binding;
  gate.bindTool('t', states as never, {
    ...functions,
    ...(limit.length > 0 && { limit }),
    ...(isStep && { uncertain: 'hold' }),
  });
  gate.bindTool('u', ['s0'] as never, { success: 'STAY', uncertain: 'hold' });
  gate.bindTool('w', ['s0'] as never, 'LEAVE');
  for (const { pattern, states: those, guard } of reads)
    gate.bindResource(pattern, those as never, guard && { guard });
  return gate;
}

/** A gate that allows each call. */
function openGate(isStep: boolean): Gate {
  const gate = new StateMachineGate({
    id: 'two',
    initial: 'open',
    states: { open: { on: { STAY: 'open' } } },
  });
  gate.bindTool('t', 'open', isStep ? 'STAY' : undefined).bindResource('docs://a/**', 'open');
  return gate as unknown as Gate;
}

/** What a refusal says beside its words. */
interface Facts {
  readonly 'mcp-interlock/refusal'?: { readonly reason: string };
}

/** What a client makes of an answer. */
async function sayingOf(response: Response): Promise<string> {
  const body = await response.text();
  if (response.status >= 400) return `HTTP ${response.status}`;
  if (body === '') return 'nothing';
  const { result, error } = JSON.parse(body) as {
    result?: {
      content?: { text: string }[];
      contents?: [];
      structuredContent?: object;
      _meta?: Facts;
    };
    error?: { message: string; data?: Facts };
  };
  const [{ text = '' } = {}] = result?.content ?? [];
  const said = text === '' ? (error?.message ?? '') : text;
  const facts = result?._meta ?? error?.data;
  const reason = facts?.['mcp-interlock/refusal']?.reason;
  if (reason === undefined) {
    if (/name must be a string/.test(said)) return 'its name is no text';
    if (/uri must be/.test(said)) return 'its URI is unclear';
    if (result?.structuredContent !== undefined) return 'where the run stands';
    return result?.contents === undefined ? said : PASSED;
  }
  const words = WORDS.find((each) => said.includes(each));
  return words === undefined ? reason : `${reason}: ${words}`;
}

/** By which words two refusals of one reason differ. */
const WORDS = Object.values(CHECKS).flatMap((check: Check) => {
  const [, words] = /^(?:arguments|guard): (.*)$/.exec(check.told) ?? [];
  return words === undefined ? [] : [words];
});
