import { InterlockError } from '../errors.ts';
import type { Admission } from '../session/run-context.ts';
import type { ManagedHandle } from '../session/run-key.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { Note } from '../wire/note.ts';
import { availabilityNote } from '../workflow/advice.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { withArgument } from './argument-schema.ts';
import type { GateConfig, Visibility } from './gate-config.ts';
import { stateForLists } from './state-now.ts';

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

/** Leaves out what is not available in the run's state, and keeps the list from being kept. */
export async function hideUnavailable(
  message: Message,
  config: GateConfig,
  admission: Admission,
): Promise<void> {
  const { workflow } = config;
  if (workflow.toolNames.length === 0) return;
  const found = await stateForLists(config, admission, ['tools']);
  forbidCaching(message);
  message.editElements(['result', 'tools'], (tool) => {
    if (!isObject(tool) || typeof tool.name !== 'string' || !workflow.isBound(tool.name))
      return 'keep';
    return typeof found === 'object' && workflow.isVisible(tool.name, found.state)
      ? 'keep'
      : 'drop';
  });
}

/** The tools of a list that ask for a handle: a tool of two gates asks once. */
const asking = new Note<Message, Set<unknown>>();

/**
 * Says of each bound tool, by its note, where it is available, and has it ask for the handle that
 * names its run.
 */
export function describeTools(
  message: Message,
  notes: ReadonlyMap<string, string>,
  { onError }: GateConfig,
  admission: Admission,
): void {
  const { managed } = admission;
  const asked = asking.of(message) ?? new Set();
  asking.put(message, asked);
  try {
    message.editElements(['result', 'tools'], (tool) => {
      const note = isObject(tool) ? notes.get(String(tool.name)) : undefined;
      if (!isObject(tool) || note === undefined) return 'keep';
      const described = { description: withNote(tool.description, note) };
      if (managed === undefined || asked.has(tool.name)) return described;
      return { ...described, inputSchema: schemaWithHandle(tool, managed) };
    });
    for (const tool of notes.keys()) asked.add(tool);
  } catch (error) {
    onError(error);
    const id = message.value.id as RequestId;
    message.replace(errorResponse(id, JSON_RPC.INTERNAL_ERROR, 'Internal error'));
  }
}

function schemaWithHandle(
  { name, inputSchema }: JsonObject,
  { start, argument }: ManagedHandle,
): JsonObject {
  const schema = withArgument(inputSchema, argument, {
    type: 'string',
    description: 'Names the run of the workflow.',
  });
  if (name !== start && schema !== undefined) return schema;
  const fault =
    name === start
      ? 'begins a run, so no gate can ask it for one; do not bind it'
      : `has an argument "${argument}" of its own; choose another name`;
  throw new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `managedHandle(): the tool ${JSON.stringify(name)} ${fault}`,
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
