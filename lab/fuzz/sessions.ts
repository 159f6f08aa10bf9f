import * as fc from 'fast-check';
import { check } from '../checker/check.ts';
import type { Exchange, Machine, MachineBinding } from '../checker/evidence.ts';
import { answerOf, type Told } from '../checker/reading.ts';
import type { Caller } from '../checker/recorder.ts';
import { Stage, type Surroundings } from '../checker/stage.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

const STATES = ['s0', 's1', 's2', 's3'];
const EVENTS = ['E0', 'E1', 'E2'];
const TOOLS = ['t0', 't1', 't2', 't3', 'free'];

const some = <T>(items: readonly T[]) => fc.subarray([...items], { minLength: 1 });
const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const binding = (tool: string): fc.Arbitrary<MachineBinding> =>
  fc
    .record({
      from: some(STATES),
      success: maybe(fc.constantFrom(...EVENTS)),
      failure: maybe(fc.constantFrom(...EVENTS)),
      uncertain: fc.constantFrom('hold', 'retry'),
      isGrouped: fc.boolean(),
    } as const)
    .map(({ from, success, failure, uncertain, isGrouped }) => ({
      tool,
      from,
      uncertain,
      ...(success !== undefined && { success }),
      ...(failure !== undefined && { failure }),
      ...(isGrouped && tool === 't3' && { when: { argument: 'action', equals: 'go' } }),
    }));
const machine: fc.Arbitrary<Machine> = fc
  .record({
    final: fc.constantFrom<readonly string[]>([], [], ['s3'], ['s2', 's3']),
    id: fc.constant('any'),
    initial: fc.constantFrom(...STATES),
    states: fc
      .tuple(
        ...STATES.map(() => fc.dictionary(fc.constantFrom(...EVENTS), fc.constantFrom(...STATES))),
      )
      .map((all) => Object.fromEntries(STATES.map((state, at) => [state, { ...all[at] }]))),
    bindings: fc.tuple(binding('t0'), binding('t1'), binding('t2'), binding('t3')),
  })
  .map(({ states, final, ...rest }) => ({
    ...rest,
    final,
    states: Object.fromEntries(
      Object.entries(states).map(([state, on]) => [state, final.includes(state) ? {} : on]),
    ),
  }))
  .map(sendingKnown)
  // A machine that is over before it begins is refused.
  .filter(({ initial, final = [] }) => !final.includes(initial));

/** No event that none of the states handles can be bound. */
function sendingKnown(drawn: Machine): Machine {
  const known = new Set(Object.values(drawn.states).flatMap((on) => Object.keys(on)));
  const bindings = drawn.bindings.map(({ success, failure, ...rest }) => ({
    ...rest,
    ...(success !== undefined && known.has(success) && { success }),
    ...(failure !== undefined && known.has(failure) && { failure }),
  }));
  return { ...drawn, bindings };
}

const call = fc.record({
  tool: fc.constantFrom(...TOOLS),
  fail: fc.boolean(),
  action: fc.constantFrom('go', 'stay'),
});
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;
const command = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('call'), call } as const) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('list') } as const) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('twice'), call } as const) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('batch'),
      calls: fc.array(call, { minLength: 1, maxLength: 4 }),
    } as const),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('event'),
      event: fc.constantFrom(...EVENTS),
    } as const),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('other'), who: fc.nat(3) } as const) },
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;
const play = fc.record({
  machine,
  visibility: fc.constantFrom(undefined, 'hide', 'stable'),
  commands: fc.array(command, { maxLength: 25 }),
} as const);
type Play = typeof play extends fc.Arbitrary<infer T> ? T : never;

/** What a gate is, in as few words as possible: one run of it. */
class ModelRun {
  readonly #machine: Machine;
  /** Whether it begins anew once it has ended. */
  readonly #restarts: boolean;
  state: string;

  constructor(machine: Machine, restarts: boolean) {
    this.#machine = machine;
    this.#restarts = restarts;
    this.state = machine.initial;
  }

  copy(): ModelRun {
    const copy = new ModelRun(this.#machine, this.#restarts);
    copy.state = this.state;
    return copy;
  }

  allows(call: Call): boolean {
    return this.#bound(call)?.from.includes(this.#seen) !== false;
  }

  isStep(call: Call): boolean {
    const bound = this.#bound(call);
    return bound?.success !== undefined || bound?.failure !== undefined;
  }

  /** Whether it ran; if so, the run moves. */
  call(call: Call): boolean {
    if (!this.allows(call)) return false;
    const bound = this.#bound(call);
    if (bound !== undefined) this.state = this.#seen;
    this.send((call.fail ? bound?.failure : bound?.success) ?? '');
    return true;
  }

  /** Whether the state handles the event. */
  send(event: string): boolean {
    const to = this.#machine.states[this.state]?.[event];
    if (to === undefined) return false;
    this.state = to;
    return true;
  }

  get #seen(): string {
    const { initial, final = [] } = this.#machine;
    return this.#restarts && final.includes(this.state) ? initial : this.state;
  }

  get shown(): string[] {
    return TOOLS.filter((tool) =>
      this.#bindings(tool).every(
        ({ from, when }) => when !== undefined || from.includes(this.#seen),
      ),
    );
  }

  #bound({ tool, action }: Call): MachineBinding | undefined {
    return this.#bindings(tool).find(({ when }) => when === undefined || when.equals === action);
  }

  #bindings(tool: string): MachineBinding[] {
    return this.#machine.bindings.filter((each) => each.tool === tool);
  }
}

/** With surroundings, around a gate that is broken on purpose. */
export function sessionsAround(surroundings?: Surroundings): Target {
  return {
    name: 'sessions',
    what: 'whole sessions of both eras go as a small model says, and the checker finds nothing',
    inputs: 8,
    async open(): Promise<OpenTarget> {
      const property = fc.asyncProperty(play, (each) => playOut(each, surroundings));
      return { property, describe, close: async () => {} };
    },
  };
}

async function playOut(
  { machine, visibility, commands }: Play,
  surroundings?: Surroundings,
): Promise<void> {
  const stage = await Stage.open({ seed: 0, machine, tools: TOOLS, visibility, surroundings });
  try {
    const callers = [
      await stage.session(),
      await stage.user('ada'),
      await stage.session(),
      await stage.user('bob'),
    ];
    const game = new Game(stage, machine, callers, visibility);
    for (const each of commands) await game.play(each);
    await game.play({ kind: 'list' });
    await stage.settle();
    const [fault] = check(await stage.evidence());
    if (fault !== undefined)
      broken(`the checker finds: ${fault.kind}`, `${fault.text} (run ${fault.run})`);
  } finally {
    await stage.close();
  }
}

class Game {
  readonly #stage: Stage;
  readonly #callers: readonly Caller[];
  readonly #models: readonly ModelRun[];
  readonly #visibility: Play['visibility'];
  #who = 0;
  #step = 0;

  constructor(
    stage: Stage,
    machine: Machine,
    callers: readonly Caller[],
    visibility: Play['visibility'],
  ) {
    this.#stage = stage;
    this.#callers = callers;
    this.#models = callers.map(({ era }) => new ModelRun(machine, era === 'stateless'));
    this.#visibility = visibility;
  }

  get #caller(): Caller {
    return this.#callers[this.#who] as Caller;
  }

  get #model(): ModelRun {
    return this.#models[this.#who] as ModelRun;
  }

  async play(command: Command): Promise<void> {
    switch (command.kind) {
      case 'call':
        return this.#calls([command.call], 1);
      case 'twice':
        return this.#calls([command.call], 2);
      case 'batch':
        return this.#batch(command.calls);
      case 'list':
        return this.#list();
      case 'event':
        return this.#event(command.event);
      case 'other':
        this.#who = command.who;
    }
  }

  /** The same call, as often at the same time. */
  async #calls([call]: readonly [Call], times: number): Promise<void> {
    const state = this.#model.state;
    const params = this.#params(call);
    const { recorder, endpoint } = this.#stage;
    const exchanges = await Promise.all(
      Array.from({ length: times }, () =>
        recorder.send(endpoint, this.#caller, 'tools/call', params),
      ),
    );
    const expected = exchanges.map(() => this.#model.call(call));
    const answers = exchanges.map(toldOf);
    const ran = answers.map(({ kind }) => kind === 'done');
    if (String([...ran].sort()) !== String([...expected].sort())) {
      broken(
        'a call was not judged as the state says',
        `${call.tool} in ${state}: ${JSON.stringify(answers)}`,
      );
    }
    const wrong = answers.find((answer) => answer.kind === 'done' && answer.isError !== call.fail);
    if (wrong !== undefined)
      broken('a call was answered with another outcome', JSON.stringify(wrong));
  }

  /**
   * One step of a batch is forwarded at most; what is no step runs by the state before or after it.
   */
  async #batch(calls: readonly Call[]): Promise<void> {
    if (this.#caller.era === 'stateless') return;
    const { recorder, endpoint } = this.#stage;
    const requests = calls.map((call) => ({ method: 'tools/call', params: this.#params(call) }));
    const answers = (await recorder.batch(endpoint, this.#caller, requests)).map(toldOf);
    const before = this.#model.copy();
    const after = this.#model;
    const steps = calls.flatMap((call, at) =>
      before.isStep(call) && answers[at]?.kind === 'done' ? [call] : [],
    );
    if (steps.length > 1) broken('two steps of a batch ran', JSON.stringify(steps));
    for (const step of steps) {
      if (!after.call(step)) broken('a step of a batch ran out of order', JSON.stringify(step));
    }
    for (const [at, call] of calls.entries()) {
      const told = answers[at]?.kind === 'done';
      if (before.isStep(call)) {
        const isFirst = steps.length === 0 && before.allows(call);
        if (isFirst && !told)
          broken(
            'no step of a batch ran, and one was allowed',
            JSON.stringify([call, answers[at]]),
          );
      } else if (
        told
          ? !before.allows(call) && !after.allows(call)
          : before.allows(call) && after.allows(call)
      ) {
        broken(
          'a call of a batch was not judged as the state says',
          JSON.stringify([call, answers[at]]),
        );
      }
    }
  }

  async #list(): Promise<void> {
    const { recorder, endpoint } = this.#stage;
    const told = toldOf(await recorder.list(endpoint, this.#caller));
    const lists = this.#visibility ?? (this.#caller.era === 'session' ? 'hide' : 'stable');
    const expected = lists === 'hide' ? this.#model.shown : TOOLS;
    if (told.kind !== 'tools' || String(told.names) !== String(expected)) {
      broken(
        'a list does not show what it should',
        `in ${this.#model.state}, ${expected}: ${JSON.stringify(told)}`,
      );
    }
  }

  async #event(event: string): Promise<void> {
    const { log, runs } = this.#stage;
    const { run } = this.#caller;
    const sent = await log.ask(
      { run, machine: 'any', does: { kind: 'send', event } },
      () => runs.send(this.#stage.keyOf(run), event),
      (answer) => answer.sent,
    );
    // A principal's run begins with its first call.
    if (!sent.sent && sent.reason === 'unknown-run') return;
    if (sent.sent !== this.#model.send(event))
      broken('an event from outside came to something else', JSON.stringify(sent));
  }

  #params({ tool, fail, action }: Call) {
    this.#step += 1;
    return { name: tool, arguments: { step: this.#step, ms: 0, action, fail } };
  }
}

function toldOf(exchange: Exchange): Told {
  return answerOf(exchange).told;
}

function describe({ machine, visibility, commands }: Play): string {
  return [
    JSON.stringify(machine),
    `visibility ${visibility}`,
    ...commands.map((each) => JSON.stringify(each)),
  ]
    .map((line) => `  ${line}`)
    .join('\n');
}
