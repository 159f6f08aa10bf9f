/**
 * Why a gate refuses, and what a model reads then. Where the words need more than names, they are
 * composed in `src/workflow/advice.ts`.
 */

/**
 * What stops a run as a whole: every call, prompt and resource that is bound, every event from
 * outside and every deadline.
 */
export type StopReason = 'frozen';

/** Why a call was refused. */
export type RefusalReason =
  | 'state'
  | 'arguments'
  | 'guard'
  | 'limit'
  | 'busy'
  | 'held'
  | 'too-many-held'
  | 'loop'
  | StopReason
  | 'unavailable'
  | 'unreadable'
  | 'no-run'
  | 'unbound';

/** The words of a reason, with the names `{workflow}` and `{held}` in them. */
export interface ReasonWords {
  /** Follows "was not run, because" and "was not given, because". */
  readonly because: string;
  /** What the model can do. Words that the reason comes with stand in its place. */
  readonly advice: string;
}

/** By reason. `composed`: its words need more than names. */
export const REASONS = {
  state: 'composed',
  arguments: 'composed',
  guard: 'composed',
  limit: 'composed',
  busy: {
    because: 'another call of {workflow} is running',
    advice: 'Wait for its result, then try again.',
  },
  held: {
    because: 'an earlier call of {held} ended with an unknown outcome',
    advice: 'The operator must resolve it before {workflow} goes on. Do not repeat the call.',
  },
  'too-many-held': {
    because: 'too many earlier calls ended with an unknown outcome',
    advice: 'The operator must resolve them first. Do not repeat the call.',
  },
  loop: 'composed',
  frozen: 'composed',
  unavailable: {
    because: 'the state of {workflow} cannot be read now',
    advice: 'Try again later.',
  },
  unreadable: {
    because: 'this server cannot read where {workflow} stands',
    advice: 'The operator must repair that before {workflow} goes on. Do not try again until then.',
  },
  'no-run': {
    because: 'it belongs to no run of {workflow}',
    advice: 'The operator must choose what names runs.',
  },
  unbound: 'composed',
} as const satisfies Record<RefusalReason, ReasonWords | 'composed'>;
