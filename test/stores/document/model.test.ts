import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf, commitOf, HOUR, LONG } from '../../../packages/testing/src/fixtures.ts';
import { freezeOf } from '../../../packages/testing/src/freezes.ts';
import { anonymousKey } from '../../../src/basics/names.ts';
import { documentStore } from '../../../src/stores/document.ts';
import { type Operation, RulebookStore } from '../../../src/stores/rulebook.ts';
import { isKnown, type RunState } from '../../../src/stores/run-life.ts';
import { anonymized, lastEntries } from '../../../src/stores/run-state.ts';
import type {
  RunKey,
  StepDescription,
  SwitchRecord,
  TrailEntry,
} from '../../../src/stores/store.ts';
import {
  openDocuments,
  type WholeDocumentStore,
  WRITE_FAULTS,
  type WriteFault,
} from '../../helpers/controlled-documents.ts';
import { cases } from '../../helpers/few.ts';

/** More sequences, or others: `DOCUMENT_MODEL_RUNS=10000 DOCUMENT_MODEL_SEED=7`. */
const RUNS = Number(process.env.DOCUMENT_MODEL_RUNS ?? cases(100));
const SEED = Number(process.env.DOCUMENT_MODEL_SEED ?? 29);

/** The pure rules on runs in this process. */
class Rules extends RulebookStore {
  readonly #now: () => number;
  readonly #runs: Map<string, RunState>;
  readonly #switches: Map<string, SwitchRecord>;

  constructor(
    now: () => number,
    runs: ReadonlyMap<string, RunState> = new Map(),
    switches: ReadonlyMap<string, SwitchRecord> = new Map(),
  ) {
    super(false);
    this.#now = now;
    this.#runs = new Map(runs);
    this.#switches = new Map(switches);
  }

  copy(): Rules {
    return new Rules(this.#now, this.#runs, this.#switches);
  }

  async readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    return this.#switches.get(workflow);
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    next: SwitchRecord,
  ): Promise<boolean> {
    const revision = this.#switches.get(workflow)?.revision;
    if (revision === expected) this.#switches.set(workflow, next);
    return revision === expected || revision === next.revision;
  }

  protected async change<Result>(key: string, operation: Operation<Result>): Promise<Result> {
    const known = this.#known(key);
    const changed = operation(known, this.#now());
    let run = changed.made ?? known;
    const { next, workflow } = changed;
    if (run && next && workflow !== undefined)
      run = { ...run, workflows: new Map(run.workflows).set(workflow, next) };
    if (run && changed.life) run = { ...run, ...changed.life };
    if (changed.isRemoved) this.#runs.delete(key);
    else if (run !== undefined) this.#runs.set(key, run);
    return changed.result;
  }

  async history({ run, workflow }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return lastEntries(this.#known(run)?.workflows.get(workflow), limit);
  }

  async anonymize(key: string): Promise<string | undefined> {
    const known = this.#known(key);
    const unnamed = anonymousKey();
    const moved = known && anonymized(known, unnamed, this.#now());
    if (moved === undefined) return undefined;
    this.#runs.delete(key);
    this.#runs.set(unnamed, { ...moved, expiresAt: this.#now() });
    return unnamed;
  }

  toJSON(): unknown {
    const runs = [...this.#runs].map(([key, run]) => [
      key,
      { ...run, workflows: [...run.workflows] },
    ]);
    return [runs, [...this.#switches]];
  }

  #known(key: string): RunState | undefined {
    const run = this.#runs.get(key);
    return run && isKnown(run, this.#now()) ? run : undefined;
  }
}

type Asked = Pick<
  WholeDocumentStore,
  | ('open' | 'read' | 'claim' | 'commit' | 'record' | 'renew' | 'release' | 'append')
  | ('end' | 'delete' | 'history' | 'anonymize' | 'freeze' | 'readSwitch' | 'swapSwitch')
>;

const NAMES = ['one', 'two', undefined, 'long'] as const;
const LONG_RUN = 3;
const ALICE = { principal: 'alice' } as const;

/** A token is for one claim only, so a token always claims the same step. */
const CLAIMS: Readonly<Record<string, Partial<StepDescription>>> = {
  t1: { uncertain: 'retry', use: { amounts: [1.5] } },
  t2: { uncertain: 'hold', use: null },
  t3: { uncertain: 'retry', digest: 'other' },
  t4: { uncertain: 'hold' },
  t5: { uncertain: 'retry' },
};

/** Few names, so that operations meet. */
const anyOperation = fc.record({
  kind: fc.constantFrom(
    ...(['claim', 'claim', 'claim', 'claim', 'commit', 'commit', 'commit', 'commit'] as const),
    ...(['record', 'renew', 'release', 'append', 'append', 'read', 'read', 'history'] as const),
    ...(['open', 'open', 'end', 'delete', 'anonymize', 'anonymize'] as const),
    ...(['freeze', 'freeze', 'swapSwitch', 'swapSwitch', 'readSwitch'] as const),
  ),
  process: fc.constantFrom(0, 1),
  /** 2 is the last run that was anonymized, and 3 has a long trail. */
  run: fc.constantFrom(0, 0, 0, 1, 2, 3),
  workflow: fc.constantFrom('checkout', 'checkout', 'approval'),
  token: fc.constantFrom(...Object.keys(CLAIMS)),
  state: fc.constantFrom('empty', 'has_items'),
  states: fc.constantFrom(undefined, undefined, ['has_items']),
  leaseMs: fc.constantFrom(0, 10, LONG, 2 * HOUR),
  ttlMs: fc.constantFrom(HOUR, HOUR, 3 * HOUR, 10),
  create: fc.constantFrom(undefined, { principal: 'alice' }),
  from: fc.constantFrom(0, 1, 2),
  isOn: fc.boolean(),
});
/** No claim holds the run that has a long trail. */
const operation = anyOperation.map((op) =>
  op.run === LONG_RUN && op.kind === 'claim' ? { ...op, run: 0 } : op,
);
type AnyOp = typeof operation extends fc.Arbitrary<infer T> ? T : never;
/** With what a write of a switch expects, and the revision that it makes. */
type Op = AnyOp & Partial<Record<'expected' | 'revision', string | undefined>>;

const fault = fc.constantFrom<WriteFault | undefined>(undefined, undefined, ...WRITE_FAULTS);

/** What happens next: one operation, some at once, or nothing for a while. */
const event = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      ops: fc.array(operation, { minLength: 1, maxLength: 1 }),
      faults: fc.array(fault, { maxLength: 3 }),
      delays: fc.constant<number[]>([]),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      // Two processes that anonymize a run at once may both name its one copy.
      ops: fc
        .array(operation, { minLength: 2, maxLength: 3 })
        .filter((ops) => ops.filter(({ kind }) => kind === 'anonymize').length < 2),
      faults: fc.array(fault, { maxLength: 1 }),
      delays: fc.array(fc.nat(3), { minLength: 1, maxLength: 8 }),
    }),
  },
  // Many moves of one run, so that older entries of its trail leave the run's document.
  {
    weight: 1,
    arbitrary: fc.record({
      moves: fc.integer({ min: 6, max: 20 }),
      faults: fc.array(fault, { minLength: 1, maxLength: 5 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ waitMs: fc.constantFrom(5, 10, 1_000, HOUR / 2, 2 * HOUR) }),
  },
  { weight: 1, arbitrary: fc.record({ sleepMs: fc.constantFrom(2_000, HOUR / 2) }) },
  { weight: 1, arbitrary: fc.record({ purges: fc.constantFrom(0, 1) }) },
);

const world = fc.record({
  tellsTime: fc.boolean(),
  /** By how much the clocks of the processes are off, where the backend tells the time. */
  offMs: fc.tuple(fc.constantFrom(0, 5 * HOUR), fc.constantFrom(0, -7 * HOUR)),
  events: fc.array(event, { minLength: 1, maxLength: 40 }),
});

/** These have no token: a caller that asks again asks for a second time. */
const ONCE_ONLY: readonly Op['kind'][] = ['append', 'end', 'delete', 'anonymize'];

const REMOVALS: readonly Op['kind'][] = ['end', 'delete', 'anonymize'];

async function ask(store: Asked, run: string, op: Op): Promise<unknown> {
  const { workflow, token, state, states, leaseMs, ttlMs, create, from, isOn } = op;
  const request = claimOf(run, {
    ...{ workflow, token, states, create, leaseMs, ttlMs, step: CLAIMS[token] ?? {} },
    ...(isOn && { entry: { tool: 'cart.pay', actor: 'alice' } }),
  });
  const failed = { from: state, event: null, outcome: 'failed', kind: 'tool_error' } as const;
  const trail = { from: 'somewhere', to: state, event: 'GO' };
  switch (op.kind) {
    case 'open':
      return store.open(run, { principal: state }, ttlMs, token);
    case 'read':
      return store.read(run, ttlMs, isOn ? workflow : undefined);
    case 'claim':
      return store.claim(request);
    case 'commit': {
      const rest = { trail, ttlMs, ended: isOn, ...(isOn && { as: `${token} person` }) };
      return store.commit(commitOf(request, { snapshot: { state, context: from }, ...rest }));
    }
    case 'record': {
      const { initial } = request;
      const move = { trail, snapshot: { state }, from, ttlMs, initial, create };
      return store.record({ run, workflow, token: `${token} record`, ...move });
    }
    case 'freeze': {
      // A token is for one call only, so it tells what is asked for.
      const by = { token: `${token} ${isOn ? 'freeze' : 'thaw'}`, ttlMs, create };
      const freeze = isOn ? { actor: token, note: state } : undefined;
      return store.freeze(freezeOf(run, { workflow, freeze, ...by }));
    }
    case 'swapSwitch': {
      const { expected, revision = '' } = op;
      return store.swapSwitch(workflow, expected, { value: { token }, revision });
    }
    case 'readSwitch':
      return store.readSwitch(workflow);
    case 'renew':
      return store.renew(request, token, leaseMs, isOn ? { hold: 'undecided' } : {});
    case 'release':
      return store.release(request, token, isOn ? { entry: failed } : { settles: false });
    case 'append':
      return store.append(request, { ...failed, outcome: 'refused' });
    case 'end':
      return store.end(run, { ifUnclaimed: isOn });
    case 'delete':
      return store.delete(run);
    case 'anonymize':
      return store.anonymize(run);
    default:
      return store.history(request);
  }
}

/** Answers without random names: each is replaced by its place among all that there were. */
class Answers {
  readonly given: string[] = [];
  readonly #names: string[] = [];
  /** The run that was anonymized last. */
  unnamed = 'none yet';

  copy(): Answers {
    const copy = new Answers();
    copy.given.push(...this.given);
    copy.#names.push(...this.#names);
    copy.unnamed = this.unnamed;
    return copy;
  }

  add({ kind }: Pick<Op, 'kind'>, answer: unknown): void {
    if (kind === 'anonymize' && typeof answer === 'string') this.unnamed = answer;
    this.given.push(`${kind} ${this.textOf(answer) ?? 'nothing'}`);
  }

  textOf(value: unknown): string | undefined {
    return JSON.stringify(value, (name, inner: unknown) => {
      if (typeof inner !== 'string') return inner;
      if (name !== 'idempotencyKey' && !inner.startsWith('anonymous ')) return inner;
      if (!this.#names.includes(inner)) this.#names.push(inner);
      return `name ${this.#names.indexOf(inner)}`;
    });
  }
}

/** The runs as they may be, and what was answered on the way there. */
interface Possible {
  readonly rules: Rules;
  readonly answers: Answers;
}

function ordersOf<T>(values: readonly T[]): T[][] {
  if (values.length < 2) return [[...values]];
  return values.flatMap((first, at) =>
    ordersOf(values.filter((_, index) => index !== at)).map((rest) => [first, ...rest]),
  );
}

const opened = openDocuments();
afterAll(opened.close);
const processes = [opened.start(), opened.start()] as const;
const backend = [processes[0].documents, processes[1].documents] as const;

async function play({
  tellsTime,
  offMs,
  events,
}: typeof world extends fc.Arbitrary<infer T> ? T : never) {
  const { time, database } = opened;
  for (const documents of backend) await documents.settle();
  database.exec('DELETE FROM workflow_documents; DELETE FROM workflow_index');
  const stores = backend.map((documents, at) => {
    documents.now = tellsTime ? time.now : undefined;
    const off = tellsTime ? (offMs[at] ?? 0) : 0;
    return documentStore(documents, { now: () => time.now() + off }) as WholeDocumentStore;
  });
  const real = new Answers();
  let possible: Possible[] = [{ rules: new Rules(time.now), answers: new Answers() }];
  const keyOf = (op: Op, { unnamed }: Answers) => NAMES[op.run] ?? unnamed;

  /** The revisions that the switches of the workflows had, the newest last. */
  const switches = new Map<string, (string | undefined)[]>();
  let written = 0;

  /** Plays operations at once, and keeps what may be true after the answers. */
  const playAtOnce = async (
    asked: readonly AnyOp[],
    faults: readonly (WriteFault | undefined)[],
  ) => {
    const ops = asked.map((op): Op => {
      if (op.kind !== 'swapSwitch') return op;
      const expected = switches.get(op.workflow)?.at(op.isOn ? -1 : -2);
      return { ...op, expected, revision: `revision ${written++}` };
    });
    const isOnce = ops.some(({ kind }) => ONCE_ONLY.includes(kind));
    const allowed = isOnce ? faults.slice(0, 1) : faults;
    for (const documents of backend) documents.faults = [...allowed];
    const answered = ops.map(async (op) => {
      const store = stores[op.process] as WholeDocumentStore;
      const run = keyOf(op, real);
      for (let tries = 0; ; tries++) {
        try {
          const answer = await ask(store, run, op);
          return { answer, wasRepeated: tries > 0 };
        } catch (error) {
          if (isOnce || tries > 5) throw error;
        }
      }
    });
    const given = await Promise.all(answered);
    for (const documents of backend) {
      documents.faults = [];
      // Nothing arrives so late that the run has gone meanwhile.
      await documents.settle();
    }
    for (const [at, { answer }] of given.entries()) {
      const { kind, workflow, revision } = ops[at] as Op;
      if (kind === 'swapSwitch' && answer === true)
        switches.set(workflow, [...(switches.get(workflow) ?? []), revision]);
    }
    for (const [at, { answer, wasRepeated }] of given.entries())
      real.add(ops[at] as Op, wasRepeated ? withoutRepeated(answer) : answer);
    const next: Possible[] = [];
    for (const each of possible)
      for (const order of ordersOf(ops.map((op, at) => ({ op, at })))) {
        const [rules, answers] = [each.rules.copy(), each.answers.copy()];
        const results: unknown[] = [];
        for (const { op, at } of order) results[at] = await ask(rules, keyOf(op, each.answers), op);
        for (const [at, op] of ops.entries())
          answers.add(op, given[at]?.wasRepeated ? withoutRepeated(results[at]) : results[at]);
        next.push({ rules, answers });
      }
    const last = (answers: Answers) => answers.given.slice(-ops.length);
    const fitting = next.filter(({ answers }) => isSame(last(answers), last(real)));
    if (fitting.length === 0) expect(last(real)).toEqual(last(next[0]?.answers ?? real));
    const different = new Map(fitting.map((each) => [each.answers.textOf(each.rules), each]));
    possible = [...different.values()];
  };

  for (const each of events) {
    for (const documents of backend) documents.before = () => {};
    if ('waitMs' in each) time.advance(each.waitMs);
    else if ('sleepMs' in each) opened.sleep(each.sleepMs);
    else if ('purges' in each) await stores[each.purges]?.purge();
    else if ('moves' in each) {
      for (let at = 0; at < each.moves; at++) {
        const token = `${real.given.length} move`;
        const base = {
          process: at % 3 === 0 ? 0 : 1,
          run: LONG_RUN,
          workflow: 'checkout',
          token,
        } as const;
        const rest = { state: 'has_items', states: undefined, leaseMs: LONG, ttlMs: HOUR } as const;
        const op = { ...base, ...rest, create: ALICE, from: 0, isOn: false } as const;
        const first = at % each.faults.length;
        const faults = [...each.faults.slice(first), ...each.faults.slice(0, first)];
        await playAtOnce([{ ...op, kind: 'claim' }], faults);
        await playAtOnce([{ ...op, kind: 'commit' }], faults.toReversed());
      }
    } else {
      let calls = 0;
      for (const documents of backend)
        documents.before = async () => {
          const turns = each.delays[calls++ % each.delays.length] ?? 0;
          for (let turn = 0; turn < turns; turn++) await nextTurn();
        };
      // While others remove the run too, a lost answer cannot tell who did.
      const removes = each.ops.some(({ kind }) => REMOVALS.includes(kind));
      const isLost = each.ops.length > 1 && removes && each.faults[0] !== 'refused';
      await playAtOnce(each.ops, isLost ? [] : each.faults);
    }
  }
  for (const documents of backend) documents.before = () => {};
  const base = {
    process: 0,
    workflow: 'checkout',
    token: 't1',
    state: 'empty',
    isOn: false,
  } as const;
  const rest = { states: undefined, leaseMs: 0, ttlMs: HOUR, create: undefined, from: 0 } as const;
  for (const run of NAMES.keys())
    for (const kind of ['read', 'history', 'read', 'history'] as const)
      for (const process of [0, 1] as const)
        await playAtOnce([{ ...base, ...rest, run, kind, process }], []);
}

function withoutRepeated(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return answer;
  const { repeated: _, ...rest } = answer as { repeated?: true; status?: string };
  // What a freeze says of the run, it says of the run as it is by then.
  return rest.status === 'changed' ? rest.status : rest;
}

function isSame(one: readonly string[], other: readonly string[]): boolean {
  return one.every((text, at) => text === other[at]);
}

describe('documentStore() in two processes beside the pure rules', () => {
  it('answers as they do, whatever is lost, late or refused, and leaves the same runs and trails', {
    timeout: 60_000 + 1_000 * RUNS,
  }, async () => {
    await fc.assert(fc.asyncProperty(world, play), { numRuns: RUNS, seed: SEED });
  });
});
