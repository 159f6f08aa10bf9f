import type { Admission } from '../session/run.ts';
import type { Message } from '../wire/message.ts';
import { availabilityNote } from '../workflow/advice.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig, Visibility } from './config.ts';

const STALE_HIDE =
  'visibility "hide" has no effect where calls name their runs by a handle: a list names none. Every tool is listed';
const DEPARTURE =
  'visibility "hide" departs from MCP 2026-07-28, where a list of tools "MUST NOT vary … as a side effect of other requests". Clients may keep such a list';

/** How one gate shows its tools to one request. */
export function visibilityFor(
  { visibility, warnOnce }: GateConfig,
  admission: Admission,
): Visibility {
  if (admission.byArgument) {
    if (visibility === 'hide') warnOnce(STALE_HIDE);
    return 'stable';
  }
  const isStateless = admission.era === 'stateless';
  if (isStateless && visibility === 'hide') warnOnce(DEPARTURE);
  return visibility ?? (isStateless ? 'stable' : 'hide');
}

/** Whether what a run hides must not be told from what does not exist. */
export function keepsSecrets(config: GateConfig, admission: Admission): boolean {
  return config.refusal === 'unknown-tool' && visibilityFor(config, admission) === 'hide';
}

/** What a stable list says of each bound tool, the same bytes for every caller. */
export function availabilityNotes(workflow: Workflow): ReadonlyMap<string, string> {
  const places = workflow.toolNames.map((tool) => [tool, workflow.whereabouts(tool)] as const);
  return new Map(
    places.flatMap(([tool, place]) => (place ? [[tool, availabilityNote(place)]] : [])),
  );
}

export function withNote(description: unknown, note: string): string {
  return typeof description === 'string' && description !== '' ? `${description}\n\n${note}` : note;
}

/**
 * What depends on a run is neither kept nor shared. An upstream that says nothing of it does not
 * say that it may be.
 */
export function forbidCaching(message: Message): void {
  if (message.at('result', 'ttlMs') !== undefined) message.set(['result', 'ttlMs'], 0);
  if (message.at('result', 'cacheScope') !== undefined)
    message.set(['result', 'cacheScope'], 'private');
}
