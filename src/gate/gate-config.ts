import type { Clock } from '../session/clock.ts';
import type { StepTimes } from '../session/step.ts';
import type { WaitLimits } from '../session/turns.ts';
import type { Observers } from '../wire/exchange.ts';
import type { PageMemory } from '../wire/pages.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { Aliases } from './alias.ts';
import type { ListedNames, ListedTools } from './listed.ts';

/**
 * A mounted gate: everything that is worked out once, at construction, but for whom it tells of
 * mistakes.
 */
export interface GateConfig extends Observers {
  readonly workflow: Workflow;
  readonly listed: ListedTools;
  readonly listedPrompts: ListedNames;
  /** What pages of tools became before. */
  readonly pages: PageMemory;
  readonly times: StepTimes;
  /** How many calls may wait for one run. */
  readonly waiting: WaitLimits;
  readonly clock: Clock;
  /** Whether a move is also told in words, at the end of the result that caused it. */
  readonly announce: boolean;
  /**
   * `explain` says what is available and how to get there; `unknown-tool` is what the upstream says
   * of a tool it does not have.
   */
  readonly refusal: 'explain' | 'unknown-tool';
  /** The names under which the upstream is asked for what is hidden. */
  readonly aliases: Aliases;
  /**
   * Whether a list has only what is available, or all and says of each tool where it is. Default:
   * by the era.
   */
  readonly visibility: Visibility | undefined;
  /** What becomes of runs that have ended. Default: by what names them. */
  readonly whenEnded: WhenEnded | undefined;
  /** What a list that has all tools says of each bound one, where no other gate is on the route. */
  readonly notes: ReadonlyMap<string, string>;
  /** Warns once of each likely mistake. */
  readonly warnOnce: (warning: string) => void;
}

/** What becomes of a run in a final state: it stays there, or the next call begins it anew. */
export type WhenEnded = 'keep' | 'restart';

/** `hide`: only what is available in the run's state. `stable`: every tool, whatever the run. */
export type Visibility = 'hide' | 'stable';
