import {
  availability,
  during,
  name,
  type Refusal,
  type RefusalReason,
  sentence,
  system,
} from './advice.ts';

/** Why a prompt or a resource was refused. */
export type ReadRefusalReason = Extract<
  RefusalReason,
  'state' | 'guard' | 'unavailable' | 'no-run'
>;

/**
 * The facts of such a refusal, as programs read them in `error.data["mcp-interlock/refusal"]`: it
 * names the prompt, or the URI of the resource.
 */
export interface ReadRefusal extends Omit<Refusal, 'tool' | 'reason'> {
  readonly prompt?: string | undefined;
  readonly resource?: string | undefined;
  readonly reason: ReadRefusalReason;
}

/** What the text of some refusals says beside the facts. */
export interface ReadRefusalDetails {
  /** The guard's own words, for `'guard'`; how to come to a run, for `'no-run'`. */
  readonly words?: string | undefined;
  /** Whether every way is known, so that no path means no way. */
  readonly foreseen: boolean;
}

/** A refusal of a prompt or a resource in words that a model can act on, as those of calls. */
export function readRefusalFor(refusal: ReadRefusal, details: ReadRefusalDetails): string {
  const { prompt, resource = '' } = refusal;
  const subject =
    prompt === undefined ? `The resource ${name(resource)}` : `The prompt ${name(prompt)}`;
  return system(SENTENCES[refusal.reason](subject, refusal, details));
}

type Sentences = (subject: string, refusal: ReadRefusal, details: ReadRefusalDetails) => string[];

const SENTENCES: Record<ReadRefusalReason, Sentences> = {
  state: (subject, refusal, details) => [
    `${subject} is not available${during(refusal)}.`,
    availability(refusal.workflow, refusal.available),
    ...way(refusal, details),
  ],
  guard: (subject, refusal, { words }) => [
    `${subject} was refused${during(refusal)}: ${sentence(words ?? 'a condition for it is not met')}`,
    availability(refusal.workflow, refusal.available),
  ],
  unavailable: (subject, { workflow }) => [
    `${subject} was not given, because the state of ${name(workflow)} cannot be read now.`,
    'Try again later.',
  ],
  'no-run': (subject, { workflow }, { words }) => [
    `${subject} was not given, because nothing in the request names a run of ${name(workflow)}.`,
    sentence(words ?? 'The operator must choose what does'),
  ],
};

function way({ path }: ReadRefusal, { foreseen }: ReadRefusalDetails): string[] {
  if (path === undefined)
    return foreseen ? ['It cannot be reached from here by calling tools.'] : [];
  return path.length === 0 ? [] : [`To reach it, call ${path.map(name).join(', then ')} first.`];
}
