import fc from 'fast-check';
import type { BindableTool, Binding } from '../../src/workflow/binding.ts';
import type { FsmConfig, FsmTransition } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';

/** The machine of the guide. Its `has_items` does not handle `ADD_ITEM`. */
export const checkoutConfig = {
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
} as const;

export function checkoutGate() {
  return new StateMachineGate(checkoutConfig)
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['payment'], 'PAY');
}

/** Names that mean something else to a careless program. */
const HOSTILE = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'then',
  '0',
  ' ',
  '\u0000',
  'é',
  '🛒',
];

/** Names that a flat machine refuses for events, as a statechart would match others by them. */
const isWildcard = (event: string): boolean => event === '*' || event.endsWith('.*');

const name = fc.oneof(fc.constantFrom(...HOSTILE), fc.string({ minLength: 1, maxLength: 6 }));
const names = (maxLength: number) => fc.uniqueArray(name, { minLength: 1, maxLength });

export interface RandomWorkflow {
  readonly config: FsmConfig;
  readonly states: readonly string[];
  readonly events: readonly string[];
  readonly tools: readonly BindableTool[];
}

/** How many actions a random grouped tool has: `args.action` is one of 0 … ACTIONS - 1. */
export const ACTIONS = 3;

/**
 * Machines of at most six states with at most five tools, some of them grouped by `args.action`.
 */
export const randomWorkflow: fc.Arbitrary<RandomWorkflow> = fc
  .record({
    // In bindings, "*" means any state, so no state may have that name.
    states: names(6).filter((all) => !all.includes('*')),
    events: names(4).filter((all) => !all.some(isWildcard)),
  })
  .chain(({ states, events }) =>
    fc.record({
      config: randomConfig(states, events),
      states: fc.constant(states),
      events: fc.constant(events),
      tools: names(5).chain((tools) =>
        fc.tuple(...tools.map((tool) => randomTool(tool, states, events))),
      ),
    }),
  )
  .map((random) => ({ ...random, tools: random.tools.map((each) => sendingKnown(each, random)) }));

/** No event that none of the states handles can be bound. */
function sendingKnown(tool: BindableTool, { config }: { config: FsmConfig }): BindableTool {
  const known = [config, ...Object.values(config.states)].flatMap(({ on = {} }) => Object.keys(on));
  const bindings = tool.bindings.map(
    (each): Binding =>
      known.includes(String(each.success)) ? each : { ...each, success: undefined },
  );
  return { ...tool, bindings };
}

/** A mounted gate made of a random workflow. */
export function gateOf({ config, tools }: RandomWorkflow): StateMachineGate {
  return new StateMachineGate(config).bind(...tools);
}

export const PLAIN_EVENTS = ['A', 'B', 'C'] as const;

const PLAIN_STATES = ['one', 'two', 'three', 'four'] as const;

/**
 * Machines with names that XState takes as they are. Each `on`, also the machine's own, has events
 * that lead to states, that enter them again, that are left out, and that are `undefined`.
 */
export const plainMachine: fc.Arbitrary<FsmConfig> = fc
  .record({
    initial: fc.constantFrom(...PLAIN_STATES),
    on: plainTransitions(false),
    states: fc.tuple(
      ...PLAIN_STATES.map(() =>
        fc.oneof(
          { weight: 5, arbitrary: fc.record({ on: plainTransitions(true) }) },
          { weight: 1, arbitrary: fc.constant({ type: 'final' as const }) },
        ),
      ),
    ),
  })
  .map(({ initial, on, states }) => ({
    initial,
    on,
    states: Object.fromEntries(PLAIN_STATES.map((name, i) => [name, states[i] ?? {}])),
  }));

function plainTransitions(
  forbids: boolean,
): fc.Arbitrary<Record<string, FsmTransition | undefined>> {
  const target = fc.constantFrom(...PLAIN_STATES);
  const transition = fc.oneof(
    target,
    fc.record({ target, reenter: fc.boolean() }),
    ...(forbids ? [fc.constant(undefined)] : []),
  );
  const rows = fc.array(fc.tuple(fc.constantFrom(...PLAIN_EVENTS), transition), { maxLength: 3 });
  return rows.map((pairs) => Object.fromEntries(pairs));
}

function randomConfig(states: string[], events: string[]): fc.Arbitrary<FsmConfig> {
  const state = fc.constantFrom(...states);
  const target = fc.option(
    fc.oneof(
      state,
      fc.record({ target: state, reenter: fc.option(fc.boolean(), { nil: undefined }) }),
    ),
    { nil: undefined },
  );
  const row = fc.tuple(...events.map(() => target));
  return fc.record({ initial: state, root: row, rows: fc.tuple(...states.map(() => row)) }).map(
    ({ initial, root, rows }): FsmConfig => ({
      initial,
      on: tableOf(events, root),
      // Makes `__proto__` an own property, which an assignment would not.
      states: Object.fromEntries(
        states.map((state, i) => [state, { on: tableOf(events, rows[i] ?? []) }]),
      ),
    }),
  );
}

function tableOf(
  events: string[],
  targets: (FsmTransition | undefined)[],
): Record<string, FsmTransition> {
  const pairs = events.flatMap((event, i) => {
    const target = targets[i];
    return target === undefined ? [] : [[event, target] as const];
  });
  return Object.fromEntries(pairs);
}

function randomTool(tool: string, states: string[], events: string[]): fc.Arbitrary<BindableTool> {
  const binding = fc.record({
    states: fc.subarray(states, { minLength: 1 }),
    success: fc.option(fc.constantFrom(...events), { nil: undefined }),
    isGrouped: fc.boolean(),
  });
  return fc.array(binding, { minLength: 1, maxLength: ACTIONS }).map((bindings) => ({
    name: tool,
    bindings: bindings.map(
      ({ isGrouped, ...rest }, action): Binding => ({
        tool,
        ...rest,
        when: isGrouped ? (args) => args.action === action : undefined,
      }),
    ),
  }));
}
