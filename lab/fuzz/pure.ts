import * as fc from 'fast-check';
import {
  detectOverlaps,
  InterlockError,
  matchGlob,
  PolicyEngine,
  StateMachineGate,
} from '../../src/index.ts';
import { broken, type Target } from './target.ts';

const SEGMENTS = ['a', 'b', 'ab', 'ba', 'aab', '', '-', 'é', '💶', 'A', 'constructor'];
const GLOBS = [...SEGMENTS, '*', '**', 'a*', '*a', 'a*b', '*a*', '*a*b*', 'a**b', '*b*b'];
/** Without empty segments, and with `**` alone in its segment. */
const VALID = /^(?:\*\*|(?:[^.*]|\*(?!\*))+)(?:\.(?:\*\*|(?:[^.*]|\*(?!\*))+))*$/u;
const name = fc
  .array(fc.constantFrom(...SEGMENTS), { minLength: 1, maxLength: 6 })
  .map((all) => all.join('.'));
const glob = fc
  .array(fc.constantFrom(...GLOBS), { minLength: 1, maxLength: 6 })
  .map((all) => all.join('.'));

/**
 * What a glob means: the set of places in the pattern that may be reached, segment by segment of
 * the name.
 */
export function globMeans(pattern: string, text: string): boolean {
  return reaches(pattern.split('.'), text.split('.'), '**', (each, segment) =>
    reaches([...each], [...segment], '*', (one, other) => one === other),
  );
}

/** Whether the pattern's parts match all of the items; `any` stands for any number of them. */
function reaches(
  pattern: readonly string[],
  items: readonly string[],
  any: string,
  matches: (part: string, item: string) => boolean,
): boolean {
  const past = (places: Set<number>): Set<number> => {
    for (const place of places) if (pattern[place] === any) places.add(place + 1);
    return places;
  };
  let places = past(new Set([0]));
  for (const item of items) {
    const next = new Set<number>();
    for (const place of places) {
      const part = pattern[place];
      if (part === any) next.add(place);
      else if (part !== undefined && matches(part, item)) next.add(place + 1);
    }
    places = past(next);
  }
  return places.has(pattern.length);
}

export const globs: Target = {
  name: 'globs',
  what: 'globs mean what the docs say, the first policy counts, and a shadowed one never applies',
  inputs: 2_000,
  async open() {
    return {
      property: fc.property(
        fc.array(glob, { minLength: 1, maxLength: 4 }),
        name,
        (patterns, text) => {
          for (const pattern of patterns) {
            if (matchGlob(pattern, text) !== globMeans(pattern, text)) {
              broken(
                `matchGlob(${JSON.stringify(pattern)}, ${JSON.stringify(text)}) is not ${globMeans(pattern, text)}`,
              );
            }
          }
          // Policies take no globs that are likely mistakes.
          const valid = patterns.filter((pattern) => VALID.test(pattern));
          const policies = valid.map((match, index) => ({ match, invalidates: [`p${index}`] }));
          const expected = valid.findIndex((pattern) => globMeans(pattern, text));
          const { invalidates = [] } = new PolicyEngine(policies).resolve(text) ?? {};
          const applied = invalidates[0] === undefined ? -1 : Number(invalidates[0].slice(1));
          if (applied !== expected)
            broken(`policy ${applied} of ${valid} applies to ${text}, not ${expected}`);
          if (detectOverlaps(policies).some(({ shadowedIndex }) => shadowedIndex === expected)) {
            broken(`policy ${expected} of ${valid} is said never to apply, and does to ${text}`);
          }
        },
      ),
      close: async () => {},
    };
  },
};

const STATES = ['s0', 's1', 's2', 'toString', 'hasOwnProperty'];
const EVENTS = ['E0', 'E1', 'valueOf'];
const machine = fc.record({
  initial: fc.constantFrom(...STATES),
  states: fc.tuple(
    ...STATES.map((state) =>
      fc
        .dictionary(fc.constantFrom(...EVENTS), fc.constantFrom(...STATES))
        .map((on) => [state, { on: { ...on } }] as const),
    ),
  ),
});
const walk = fc.array(fc.constantFrom(...EVENTS), { maxLength: 8 });
const json = fc.jsonValue({ maxDepth: 3 });
const hostileState = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', 'S0', 's0 ', '', 's3', 'toString\0'),
  fc.constantFrom(...STATES),
  json,
);

export const snapshots: Target = {
  name: 'snapshots',
  what: 'a restored run is where it was, and no snapshot leads anywhere else',
  inputs: 500,
  async open() {
    return {
      property: fc.asyncProperty(
        machine,
        walk,
        walk,
        fc.record(
          {
            state: hostileState,
            updatedAt: fc.oneof(fc.nat(), json),
            version: json,
            context: json,
          },
          { requiredKeys: [] },
        ),
        async ({ initial, states }, before, after, hostile) => {
          const make = () => {
            const gate = new StateMachineGate({
              id: 'any',
              initial,
              states: Object.fromEntries(states),
            });
            for (const state of STATES) gate.bindTool(`tool.${state}`, [state]);
            return gate;
          };
          const [one, other] = [make(), make()];
          let expected = initial;
          for (const event of before) {
            await one.transition(event);
            expected = next(states, expected, event);
            if (one.currentState !== expected)
              broken(`the gate is in ${one.currentState}, not in ${expected}`);
          }
          other.restore(JSON.parse(JSON.stringify(one.snapshot())));
          for (const event of ['', ...after]) {
            if (event !== '') await other.transition(event);
            if (event !== '') expected = next(states, expected, event);
            const allowed = STATES.filter((state) => other.isToolAllowed(`tool.${state}`));
            if (String(allowed) !== expected)
              broken(`restored, the gate allows ${allowed} in ${expected}`);
          }
          try {
            other.restore(hostile as never);
          } catch (error) {
            if (!(error instanceof InterlockError)) broken(`restore() threw ${error}`);
            if (other.currentState !== expected) broken('restore() threw, and moved the gate');
            return;
          }
          if (!STATES.includes(hostile.state as string) || other.currentState !== hostile.state) {
            broken(`restore() took the state ${JSON.stringify(hostile.state)}`);
          }
        },
      ),
      close: async () => {},
    };
  },
};

function next(
  states: readonly (readonly [string, { readonly on: Readonly<Record<string, string>> }])[],
  state: string,
  event: string,
): string {
  const on = states.find(([each]) => each === state)?.[1].on ?? {};
  return Object.hasOwn(on, event) ? (on[event] ?? state) : state;
}
