/**
 * What a refusal says: the facts for programs, and what its words say beside them. Hides how the
 * way out is found, and what may be said of it.
 */
import type { Admission, Run } from '../session/run.ts';
import type { Exchange } from '../wire/exchange.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { ANOTHER, type Refusal, type RefusalDetails } from '../workflow/advice.ts';
import type { BoundState } from '../workflow/position.ts';
import { partWords } from '../workflow/rule-words.ts';
import type { GateConfig } from './config.ts';
import type { RefusedAt } from './decide.ts';
import { type Demand, Gates } from './gates.ts';
import { mendOfUnread, type Standing } from './standing.ts';

/** Where the refused thing is available, and what the other gates ask of it. */
interface Goal {
  readonly states: readonly BoundState[];
  readonly demand: Demand;
  /** Its name, where it is a tool. */
  readonly tool?: string;
}

/** How a run goes on from where it stands. */
export interface Outlet extends Pick<Refusal, 'available' | 'path' | 'events' | 'leavesInMs'> {
  /** Whether no path means that no way exists. */
  readonly foreseen: boolean;
}

/** @param goal absent where no way leads to what was refused, or none is asked for */
export function outletFrom(
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  run: Run,
  standing: Standing,
  goal: Goal | undefined,
): MaybePromise<Outlet> {
  return after(Gates.of(config, exchange).look(admission, run, standing), (outlook) => {
    const { available } = outlook;
    if (goal === undefined) return { available, foreseen: false };
    const { states, demand, tool } = goal;
    const { path, foreseen, waits } = outlook.wayTo(states, demand, tool);
    // Nothing from outside helps against a `visible`, which hides what the state allows.
    const { workflow, state } = standing;
    if (path !== undefined || workflow.allows(state, { states }))
      return { available, path, foreseen, ...(waits && { events: waits }) };
    // What takes a run out of its state where no call does.
    const events = workflow.outsideEvents(state);
    const { leavesAt, parts } = standing;
    return {
      available,
      path,
      foreseen,
      ...(events.length > 0 && { events }),
      ...(leavesAt !== undefined && { leavesInMs: Math.max(0, leavesAt - parts.now) }),
    };
  });
}

/** What the text of a refusal says beside its facts, as far as it is known without a look. */
export function detailsOf(
  { workflow }: GateConfig,
  { reason, held, words, cause, left, stops, parts = [] }: RefusedAt,
  tool: string,
  { run, standing }: { readonly run: Run | undefined; readonly standing: Standing | undefined },
): RefusalDetails {
  const other = held?.tool === tool ? undefined : held;
  const heldTool = other && (standing?.claimShown(other, ANOTHER) ?? ANOTHER);
  const hasEnded =
    reason === 'state' && standing !== undefined && workflow.hasEnded(standing.state);
  const anew = hasEnded ? run?.anew : undefined;
  const passed = reason === 'state' ? (left ?? standing?.left) : undefined;
  const { isOrder } = workflow;
  const rules = partWords(parts, reason === 'state');
  const mend = reason === 'unreadable' && run && mendOfUnread(workflow, run.run);
  return { heldTool, words: mend || words, cause, anew, left: passed, stops, isOrder, rules };
}
