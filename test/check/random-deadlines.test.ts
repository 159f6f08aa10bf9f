import { expect, it } from 'vitest';
import { type Random, seeded } from '../../lab/checker/random.ts';
import {
  never,
  type Proof,
  type ProofStep,
  precedes,
  type Reachability,
  reaches,
} from '../../packages/check/src/index.ts';
import { testGate } from '../../packages/testing/src/index.ts';
import type { Binding } from '../../src/workflow/binding.ts';
import type { FsmConfig } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { cases } from '../helpers/few.ts';

/** How many machines are played, from which seed on: 5,000 where this code changes. */
const MACHINES = Number(process.env.DEADLINE_MACHINES ?? cases(40));
const SEED = Number(process.env.DEADLINE_SEED ?? 1);

const STATES = ['a', 'b', 'c', 'd'] as const;
const EVENTS = ['GO', 'BACK', 'BROKE'] as const;
const TOOLS = ['one', 'two', 'three', 'four'] as const;

/** A machine whose states have deadlines, with tools that may fail, be refused or send nothing. */
function randomGate({ chance, pick, between, shuffled }: Random): StateMachineGate {
  const states = STATES.slice(0, between(2, 4));
  const transitions = () =>
    Object.fromEntries(EVENTS.flatMap((event) => (chance(0.4) ? [[event, pick(states)]] : [])));
  const config: FsmConfig = {
    initial: pick(states),
    // Each event is known to the machine, so that tools may send it.
    on: { ALWAYS: pick(states) },
    states: Object.fromEntries(
      states.map((name) => {
        const after = chance(0.6) ? { after: { [pick([10, 1_000])]: pick(states) } } : {};
        return [name, chance(0.1) ? { type: 'final' } : { on: transitions(), ...after }];
      }),
    ),
  };
  const known = Object.values(config.states).flatMap(({ on = {} }) => Object.keys(on));
  const event = () => pick([...known, ...(chance(0.05) ? ['ALWAYS'] : [])]);
  const binding = (tool: string, isLimited: boolean): Binding => {
    const failure = known.length > 0 && chance(0.3) ? { failure: event() } : {};
    return {
      tool,
      states: shuffled(states).slice(0, between(1, 2)),
      ...(known.length > 0 && chance(0.5) && { success: event() }),
      ...failure,
      ...('failure' in failure && chance(0.4) && { retries: between(1, 2) }),
      ...(chance(0.1) && { guard: () => 'not now' }),
      ...(chance(0.1) && { guard: () => true }),
      ...(chance(0.1) && { visible: ({ state }) => state !== 'a' }),
      ...(isLimited ? { limit: { times: between(0, 2) } } : chance(0.15) && { when: isFirst }),
    };
  };
  const fallback =
    known.length > 0 && chance(0.5) ? { event: event() } : { state: pick(states) as string };
  const gate = new StateMachineGate(
    config,
    chance(0.2) ? { loopShield: { max: between(1, 3), fallback } } : {},
  ) as StateMachineGate;
  return gate.bind(
    ...TOOLS.slice(0, between(1, 4)).map((name) => {
      const isLimited = chance(0.1);
      const bindings = Array.from({ length: between(1, 2) }, () => binding(name, isLimited));
      return { name, bindings };
    }),
  );
}

const isFirst = ({ id }: { readonly id?: unknown }): boolean => id === 1;

const FAILED = { content: [], isError: true };

/** The way that a proof names; none where it holds against all ways. */
function wayOf(proof: Proof | Reachability): { way: readonly ProofStep[]; isCertain: boolean } {
  if ('counterExample' in proof) return { way: proof.counterExample, isCertain: proof.isCertain };
  if ('example' in proof) return { way: proof.example, isCertain: !proof.ifGuardsAllow };
  return { way: [], isCertain: false };
}

/** Whether a way can be gone. What moves nothing before the shield refuses, a way leaves open. */
async function canBeGone(gate: StateMachineGate, way: readonly ProofStep[]): Promise<boolean> {
  const falls = way.filter(({ outcome }) => outcome === 'refused').length;
  for (let choice = 0; choice < 2 ** falls; choice++) {
    if (await goes(gate, way, choice)) return true;
  }
  return false;
}

/**
 * Goes a way of a proof, and gives whether the gate has let its calls through as it says.
 *
 * @param choice its bits: for each refused call, whether those before it succeed
 */
async function goes(
  gate: StateMachineGate,
  way: readonly ProofStep[],
  choice: number,
): Promise<boolean> {
  let choices = choice;
  const workflow = gate.clone().compile();
  const t = testGate(gate);
  let state = await t.state();
  let isRight = true;
  for (const { by, tool = '', outcome, times = 1, from, to } of way) {
    isRight &&= state === from;
    if (by === 'deadline') await t.clock.advance(workflow.leavesAt({ state, updatedAt: 0 }) ?? 0);
    if (by === 'outside') throw new Error('no way that is certain needs the app');
    for (let made = 1; made <= (by === 'call' ? times : 0); made++) {
      const isLast = outcome === 'refused' && made === times;
      const isSuccess = outcome === 'success' || (outcome === 'refused' && choices % 2 === 1);
      const result = isSuccess ? undefined : FAILED;
      const { ran } = await t.call(tool, {}, result);
      isRight &&= ran !== isLast;
    }
    if (outcome === 'refused') choices >>= 1;
    state = await t.state();
    isRight &&= state === to;
  }
  await t.close();
  return isRight;
}

it(
  'no random machine with deadlines does what a proof rules out, and certain ways can be gone',
  async () => {
    const seen = { proven: 0, certain: 0, open: 0, falls: 0, overdue: 0 };
    const differing: unknown[] = [];
    for (let seed = SEED; seed < SEED + MACHINES; seed++) {
      const random = seeded(seed, 'deadlines');
      const { chance, pick, between } = random;
      const gate = randomGate(random);
      const workflow = gate.clone().compile();
      const { toolNames: tools, states } = workflow;
      const [earlier, later] = [pick(tools), pick(tools)];
      const order = precedes(gate, earlier, later);
      const closed = new Map(
        tools.flatMap((tool) =>
          states.map((at) => [`${tool} ${at}`, never(gate, tool, { in: at })]),
        ),
      );
      const reached = new Map(states.map((at) => [at, reaches(gate, at)]));
      // Each machine has many proofs, and to go their ways takes most of the time.
      const asked = random.shuffled([order, ...closed.values(), ...reached.values()]);
      for (const proof of asked.slice(0, 6)) {
        const { way, isCertain } = wayOf(proof);
        seen[way.length === 0 ? 'proven' : isCertain ? 'certain' : 'open']++;
        if (isCertain && !(await canBeGone(gate, way))) differing.push({ seed, way });
      }
      for (let plays = 0; plays < 2; plays++) {
        const t = testGate(gate);
        let isDone = false;
        if (chance(0.15)) await t.runs().begin(await t.run());
        for (let made = 0; made < 12; made++) {
          const at = await t.state();
          if (reached.get(at)?.holds !== true) differing.push({ seed, at });
          if (chance(0.25)) {
            await t.clock.advance(pick([10, 1_000]));
            const left = await t.state();
            if (left !== at) seen.overdue++;
            continue;
          }
          const tool = pick(tools);
          const result = pick([undefined, FAILED, { resultType: 'input_required', content: [] }]);
          const { ran, outcome, refusal } = await t.call(
            tool,
            { id: between(1, 2) },
            result as never,
          );
          if (refusal?.reason === 'loop') seen.falls++;
          if (!ran) continue;
          if (closed.get(`${tool} ${at}`)?.holds === true) differing.push({ seed, tool, at });
          if (tool === later && !isDone && order.holds === true)
            differing.push({ seed, earlier, later });
          isDone ||= tool === earlier && outcome === 'ok';
        }
        await t.close();
      }
    }
    expect(differing).toEqual([]);
    expect(Object.entries(seen).filter(([, count]) => count === 0)).toEqual([]);
  },
  MACHINES * 1_000,
);
