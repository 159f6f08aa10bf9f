import fc from 'fast-check';
import { assign, createMachine, setup } from 'xstate';

/**
 * A bit of everything that pure transitions can run: hierarchy, regions, guards, context, history,
 * tags and actions.
 */
export const orderMachine = setup({
  types: {
    context: {} as { total: number; paid: number },
    events: {} as
      | { type: 'ADD'; price: number }
      | { type: 'PLACE' }
      | { type: 'PAID'; amount: number }
      | { type: 'DECLINED' }
      | { type: 'PACK' }
      | { type: 'PAUSE' }
      | { type: 'RESUME' }
      | { type: 'CANCEL' },
    tags: {} as 'open' | 'money',
  },
  actions: { warn: (_, _params: { days: number }) => {}, thank: () => {} },
  guards: { isPaid: ({ context }) => context.paid >= context.total },
}).createMachine({
  id: 'order',
  context: { total: 0, paid: 0 },
  initial: 'cart',
  states: {
    cart: {
      tags: 'open',
      on: {
        ADD: { actions: assign({ total: ({ context, event }) => context.total + event.price }) },
        PLACE: { target: 'placed', guard: ({ context }) => context.total > 0 },
      },
    },
    placed: {
      type: 'parallel',
      on: { CANCEL: 'cancelled', PAUSE: 'paused' },
      onDone: 'shipped',
      states: {
        billing: {
          initial: 'due',
          states: {
            due: {
              tags: 'money',
              on: {
                PAID: {
                  target: 'checked',
                  actions: assign({ paid: ({ context, event }) => context.paid + event.amount }),
                },
                DECLINED: { actions: { type: 'warn', params: { days: 3 } } },
              },
            },
            checked: { always: [{ guard: 'isPaid', target: 'settled' }, { target: 'due' }] },
            settled: { type: 'final', entry: 'thank' },
          },
        },
        packing: {
          initial: 'waiting',
          states: { waiting: { on: { PACK: 'packed' } }, packed: { type: 'final' } },
        },
        past: { type: 'history', history: 'deep' },
      },
    },
    paused: { on: { RESUME: 'placed.past' } },
    shipped: { type: 'final' },
    cancelled: { type: 'final' },
  },
});

/** A machine of one hierarchy and no types. */
export const lightMachine = createMachine({
  id: 'light',
  initial: 'green',
  states: {
    green: { on: { TIMER: 'red' } },
    red: {
      initial: 'walk',
      on: { RESET: 'green' },
      states: { walk: { on: { 'ped.*': 'wait' } }, wait: { on: { 'ped.stop': '#light.green' } } },
    },
  },
});

/** The events of random statecharts. */
export const EVENTS = ['A', 'B', 'C'];

/** A state without its transitions: its kind, and its inner states. */
export interface Shape {
  readonly kind: 'atomic' | 'compound' | 'parallel' | 'final';
  readonly inner: readonly Shape[];
  readonly history: 'none' | 'shallow' | 'deep';
  /** For each event a number that picks a target, or none. */
  readonly targets: readonly (number | null)[];
}

/** At most three levels below the root. */
export const shapeAt = (depth: number): fc.Arbitrary<Shape> =>
  fc.record({
    kind:
      depth > 3
        ? fc.constantFrom<Shape['kind']>('atomic', 'final')
        : fc.constantFrom<Shape['kind']>(
            'atomic',
            'atomic',
            'compound',
            'compound',
            'parallel',
            'final',
          ),
    inner:
      depth > 3 ? fc.constant([]) : fc.array(shapeAt(depth + 1), { minLength: 1, maxLength: 3 }),
    history: fc.constantFrom<Shape['history']>('none', 'none', 'shallow', 'deep'),
    targets: fc.array(fc.option(fc.nat(), { nil: null, freq: 2 }), {
      minLength: EVENTS.length,
      maxLength: EVENTS.length,
    }),
  });

const KEYS = ['x', 'y', 'z', 'odd|key', '(w)'];

/**
 * Transitions of one event, in the order in which they are tried; `null` for one without a guard.
 */
export type Guards = readonly (boolean | null)[];

/**
 * Gives every state an id, so that each can be the target of any other. `guardsOf` gives the guards
 * for each event of each state, `tagsOf` the tags of each state.
 */
export function chartOf(
  root: Shape,
  guardsOf: () => Guards = () => [null],
  tagsOf: () => readonly string[] = () => [],
): { readonly config: object; readonly size: number } {
  const ids: string[] = [];
  const name = (path: string, { kind, inner, history }: Shape): void => {
    ids.push(path);
    if (kind === 'atomic' || kind === 'final') return;
    inner.forEach((child, i) => {
      name(`${path}_${i}`, child);
    });
    if (history !== 'none') ids.push(`${path}_h`);
  };
  const build = (path: string, { kind, inner, history, targets }: Shape): object => {
    const tags = tagsOf();
    if (kind === 'final' && path !== 'm_0') return { id: path, type: 'final', tags };
    const on = Object.fromEntries(
      EVENTS.flatMap((event, i) => {
        const picked = targets[i];
        if (picked == null) return [];
        const target = `#${ids[1 + (picked % Math.max(1, ids.length - 1))] ?? path}`;
        const guarded = guardsOf().map((answer) =>
          answer === null ? { target } : { target, guard: () => answer },
        );
        return [[event, guarded]];
      }),
    );
    if (kind === 'atomic' || kind === 'final') return { id: path, on, tags };
    const children = inner.map((child, i) => [KEYS[i], build(`${path}_${i}`, child)]);
    const past =
      history === 'none' ? [] : [['past', { id: `${path}_h`, type: 'history', history }]];
    const states = Object.fromEntries([...children, ...past]);
    return kind === 'parallel'
      ? { id: path, on, tags, type: 'parallel', states }
      : { id: path, on, tags, initial: KEYS[0], states };
  };
  const top: Shape = { ...root, kind: root.kind === 'parallel' ? 'parallel' : 'compound' };
  name('m', top);
  return { config: build('m', top), size: ids.length };
}
