import fc from 'fast-check';
import { type OrderRequirement, type OrderRules, StateMachineGate } from '../../src/index.ts';

/** Names of tools, some of which mean something else to a careless program. */
export const NAMES = ['a', 'b', 'c', 'd', 'e', 'f g', '"', '__proto__'];

const randomRules: fc.Arbitrary<OrderRules> = fc.letrec<{
  need: OrderRequirement;
  rules: OrderRules;
}>((tie) => {
  const name = fc.constantFrom(...NAMES);
  const same = fc.constantFrom(undefined, ['x'], { x: 'y' }, { y: 'x' }, ['x', 'y']);
  const parts = fc.array(tie('need'), { minLength: 1, maxLength: 3 });
  return {
    need: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      name,
      fc.record({ tool: name, same, consumes: fc.boolean() }),
      fc.record({ all: parts }),
      fc.record({ any: parts }),
    ),
    rules: fc
      .uniqueArray(name, { minLength: 1, maxLength: 5 })
      .chain((tools) =>
        fc.tuple(
          ...tools.map((tool) =>
            fc.record({
              tool: fc.constant(tool),
              after: fc.option(fc.oneof(tie('need'), parts), { nil: undefined }),
              undoneBy: fc.array(
                name.filter((each) => each !== tool),
                { maxLength: 2 },
              ),
              once: fc.boolean(),
            }),
          ),
        ),
      )
      .map((all) => Object.fromEntries(all.map(({ tool, ...rule }) => [tool, rule]))),
  };
}).rules;

/** Rules of which no tool is out of reach for ever, since a gate refuses such rules. */
export const soundRules = randomRules.filter((rules) => {
  try {
    StateMachineGate.fromOrder(rules);
    return true;
  } catch {
    return false;
  }
});
