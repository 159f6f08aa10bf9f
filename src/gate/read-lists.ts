import type { Admission } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import { isObject, type JsonObject } from '../wire/json-rpc.ts';
import type { ElementEdit, Message } from '../wire/message.ts';
import { pageAsSent } from '../wire/upstream-list.ts';
import type { BoundRead, BoundReads } from '../workflow/reads.ts';
import type { GateConfig } from './gate-config.ts';
import { Gates } from './gates.ts';
import { stateForLists } from './state-now.ts';
import { forbidCaching, visibilityFor, withNote } from './tool-list.ts';

const NEVER_SHOWN =
  'a resource that the upstream lists is never shown: its URI is unclear, with dot segments, backslashes, a user or the like';

/** What is bound of one element of a list. */
type BoundOf = (element: JsonObject) => readonly BoundRead[] | 'unclear';

/**
 * The lists of prompts and resources that a gate has a say in, by the result's member that they are
 * in.
 */
export type ReadLists = ReadonlyMap<string, BoundOf>;

export function readListsOf(reads: BoundReads): ReadLists {
  const lists = new Map<string, BoundOf>();
  if (reads.bindsPrompts) lists.set('prompts', ({ name }) => reads.ofPrompt(text(name)));
  if (!reads.bindsResources) return lists;
  return lists
    .set('resources', ({ uri }) => reads.ofResource(text(uri)))
    .set('resourceTemplates', ({ uriTemplate }) => reads.ofTemplate(text(uriTemplate)));
}

/**
 * Shows a page of such a list as the tools are shown: without what is not available, or with a note
 * where each is.
 */
export async function showReads(
  message: Message,
  config: GateConfig,
  exchange: Exchange,
  admission: Admission,
  lists: ReadLists,
): Promise<void> {
  const gates = Gates.of(config, exchange);
  const { result } = message.value;
  for (const [member, boundOf] of lists) {
    const elements = isObject(result) ? result[member] : undefined;
    if (!Array.isArray(elements)) continue;
    if (member === 'prompts') notePrompts(message, config);
    const isStable = visibilityFor(config, admission) === 'stable';
    const edit = isStable ? describing(gates) : await hiding(config, admission, member);
    if (!isStable) forbidCaching(message);
    message.editElements(['result', member], (element) =>
      isObject(element) ? edit(element, boundOf(element)) : 'keep',
    );
  }
}

function notePrompts(message: Message, { listedPrompts, onWarning }: GateConfig): void {
  const isLastPage = message.at('result', 'nextCursor') === undefined;
  listedPrompts.note(pageAsSent(message, 'prompts'), isLastPage, onWarning);
}

type Edit = (element: JsonObject, bound: ReturnType<BoundOf>) => ElementEdit;

function describing(gates: Gates): Edit {
  return ({ description }, bound) => {
    if (bound === 'unclear' || bound.length === 0) return 'keep';
    return {
      description: withNote(description, bound.map((each) => gates.noteOf(each)).join(' ')),
    };
  };
}

async function hiding(config: GateConfig, admission: Admission, member: string): Promise<Edit> {
  const { workflow, warnOnce } = config;
  const kind = member === 'prompts' ? 'prompts' : 'resources';
  const found = await stateForLists(config, admission, [kind]);
  return (_, bound) => {
    if (bound === 'unclear') {
      warnOnce(NEVER_SHOWN);
      return 'drop';
    }
    const isOpen = (each: BoundRead): boolean =>
      typeof found === 'object' && workflow.allows(found.state, each);
    return bound.every(isOpen) ? 'keep' : 'drop';
  };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
