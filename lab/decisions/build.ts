/** Makes the gates of a case on one side. Hides what the names of functions in a case do. */
import { assign, createMachine } from 'xstate';
import type { Begin, BindingOptions, ReadOptions, StateMachineGate } from '../../src/index.ts';
import type { BindingSpec, GateSpec, MachineSpec, ReadSpec } from './cases.ts';
import type { Side } from './side.ts';

/** A gate with any names. */
export type AnyGate = StateMachineGate<string, string, string, string, unknown>;

type Source = NonNullable<BindingOptions['success']>;
type Rule = NonNullable<BindingOptions['errors']>;
type Guard = NonNullable<BindingOptions['guard']>;
type Visible = NonNullable<BindingOptions['visible']>;
type When = NonNullable<BindingOptions['when']>;

/** What the functions of the app are told to note down: that they were called, and with what. */
export type Note = (what: string) => void;

export function makeGate(side: Side, spec: GateSpec, note: Note): AnyGate {
  const options = {
    ...(spec.version !== undefined && { version: spec.version }),
    ...(spec.shield !== undefined && {
      loopShield: {
        ...spec.shield,
        onLoop: (loop: object) => note(`loop ${JSON.stringify(loop)}`),
      } as never,
    }),
  };
  const gate = makeMachine(side, spec.machine, spec.id, options, note);
  for (const binding of spec.bindings)
    gate.bindTool(binding.tool, binding.states as never, optionsOf(binding));
  for (const read of spec.reads) {
    const about = readOptionsOf(read);
    if (read.prompt !== undefined) gate.bindPrompt(read.prompt, read.states as never, about);
    else gate.bindResource(read.pattern ?? '', read.states as never, about);
  }
  gate.onTransition((move) => note(`moved ${JSON.stringify(move)}`));
  return gate;
}

/**
 * The same workflow of a later deployment, which takes its runs to a state that the gate does not
 * know.
 */
export function makeLaterGate(side: Side, { id }: GateSpec): AnyGate {
  return new side.StateMachineGate(
    { id, initial: 'later', states: { later: { on: { GO: 'beyond' } }, beyond: {} } },
    { version: 99, migrate: () => ({ state: 'later' }) },
  ).bindTool('later', ['later'], 'GO') as unknown as AnyGate;
}

function makeMachine(
  { StateMachineGate }: Side,
  machine: MachineSpec,
  id: string,
  options: object,
  note: Note,
): AnyGate {
  if (machine.kind === 'order') {
    const { version: _, ...own } = options as { readonly version?: number };
    return StateMachineGate.fromOrder(machine.rules as never, { id, ...own }) as never;
  }
  if (machine.kind === 'flat')
    return new StateMachineGate(
      { id, initial: machine.initial, states: machine.states } as never,
      options,
    ) as never;
  const chart = machine.shape === 'regions' ? regions(id, machine.odd) : nested(id, machine.odd);
  const onAction = (action: object): void => note(`action ${JSON.stringify(action)}`);
  return new StateMachineGate(chart, { ...options, onAction }) as never;
}

/** Adds what the event brings, or else one. */
const add = assign(({ context, event }) => ({
  n: numberIn(context) + (typeof event.n === 'number' ? event.n : 1),
})) as never;

/** Two regions side by side, behind a guard. */
function regions(id: string, isOdd: boolean): never {
  return createMachine({
    id,
    context: { n: 0 },
    initial: 'a',
    states: {
      a: {
        on: {
          E0: { actions: add },
          E1: { target: 'p', guard: ({ context }) => isAtLeast(context, 1, isOdd) },
          E2: 'p',
        },
      },
      p: {
        type: 'parallel',
        on: { E0: 'a' },
        onDone: 'done',
        states: {
          x: {
            initial: 'x0',
            states: { x0: { tags: 'open', on: { E2: 'x1' } }, x1: { type: 'final' } },
          },
          y: { initial: 'y0', states: { y0: { on: { E3: 'y1' } }, y1: { type: 'final' } } },
        },
      },
      done: { type: 'final', entry: 'ring' },
    },
  }) as never;
}

/** A state in a state, and a way back to where it was. */
function nested(id: string, isOdd: boolean): never {
  return createMachine({
    id,
    context: { n: 0 },
    initial: 'a',
    states: {
      a: { on: { E0: 'b', E2: 'late', E3: { actions: add } } },
      b: {
        initial: 'b0',
        on: { E3: 'a' },
        states: {
          past: { type: 'history' },
          b0: { tags: 'open', on: { E1: 'b1', E0: { actions: add } } },
          b1: {
            on: {
              E2: { target: `#${id}.done`, guard: ({ context }) => isAtLeast(context, 2, isOdd) },
            },
          },
        },
      },
      late: { on: { E0: 'a', E1: 'b.past' } },
      done: { type: 'final' },
    },
  }) as never;
}

function isAtLeast(context: unknown, least: number, isOdd: boolean): boolean {
  if (isOdd) throw new Error('the guard of a machine throws');
  return numberIn(context) >= least;
}

function numberIn(context: unknown): number {
  const n = typeof context === 'object' && context !== null ? Reflect.get(context, 'n') : 0;
  return typeof n === 'number' ? n : 0;
}

function named<T>(what: string, table: Readonly<Record<string, T>>, name: string): T {
  const found = table[name];
  if (found === undefined) throw new Error(`a case names no ${what}: ${name}`);
  return found;
}

const GUARDS: Readonly<Record<string, Guard>> = {
  yes: () => true,
  no: () => false,
  words: async () => 'Ask a person first.',
  throws: () => {
    throw new Error('a guard throws');
  },
  odd: () => 7 as never,
  never: () => new Promise(() => {}),
  'act=x': ({ args }) => args.act === 'x',
  'n<6': ({ context, state, run }) => numberIn(context) < 6 && state !== '' && run !== '',
  ann: async ({ principal }) => principal === 'ann' || `not for ${principal}`,
};

const VISIBLE: Readonly<Record<string, Visible>> = {
  yes: () => true,
  no: () => false,
  ann: ({ principal }) => principal === 'ann',
  'n<6': ({ context }) => numberIn(context) < 6,
  throws: () => {
    throw new Error('a visible throws');
  },
  odd: () => 'yes' as never,
  run: ({ run }) => run !== undefined,
};

const WHEN: Readonly<Record<string, When>> = {
  'act=x': ({ act }) => act === 'x',
  'act=y': ({ act }) => act === 'y',
  act: ({ act }) => act !== undefined,
  throws: () => {
    throw new Error('a when throws');
  },
  odd: () => 1 as never,
};

const SOURCES: Readonly<Record<string, Source>> = {
  'by arguments': ({ args }) => (typeof args.event === 'string' ? args.event : 'E0'),
  'with payload': ({ args }) => ({ type: 'E0', payload: { n: Number(args.n ?? 2) } }),
  none: () => undefined,
  throws: () => {
    throw new Error('a function of an outcome throws');
  },
};

const RULES: Readonly<Record<string, Rule>> = {
  unknown: 'unknown',
  'by result': (result) => (result === undefined ? 'unknown' : 'failed'),
  throws: () => {
    throw new Error('a rule of errors throws');
  },
};

const BEGINNINGS: Readonly<Record<string, Begin>> = {
  n5: () => ({ n: 5 }),
  principal: async ({ principal }) => ({ n: principal === 'ann' ? 3 : 7 }),
  throws: () => {
    throw new Error('begin throws');
  },
  never: () => new Promise(() => {}),
  odd: () => (() => {}) as never,
};

/** What the runs of a gate begin with, if the case says so. */
export function beginOf({ begin }: GateSpec): Begin | undefined {
  return begin === undefined ? undefined : named('begin', BEGINNINGS, begin);
}

function sourceOf(source: string): Source {
  return source.startsWith('E') ? source : named('outcome', SOURCES, source);
}

function optionsOf(spec: BindingSpec): BindingOptions<string, unknown> {
  return {
    ...(spec.success !== undefined && { success: sourceOf(spec.success) }),
    ...(spec.failure !== undefined && { failure: sourceOf(spec.failure) }),
    ...(spec.retries !== undefined && { retries: spec.retries }),
    ...(spec.errors !== undefined && { errors: named('rule of errors', RULES, spec.errors) }),
    ...(spec.guard !== undefined && { guard: named('guard', GUARDS, spec.guard) }),
    ...(spec.visible !== undefined && { visible: named('visible', VISIBLE, spec.visible) }),
    ...(spec.when !== undefined && { when: named('when', WHEN, spec.when) }),
    ...(spec.uncertain !== undefined && { uncertain: spec.uncertain }),
    ...(spec.limit !== undefined && { limit: spec.limit }),
  } as BindingOptions<string, unknown>;
}

function readOptionsOf({ guard, visible }: ReadSpec): ReadOptions<unknown> {
  return {
    ...(guard !== undefined && { guard: named('guard', GUARDS, guard) }),
    ...(visible !== undefined && { visible: named('visible', VISIBLE, visible) }),
  } as ReadOptions<unknown>;
}
