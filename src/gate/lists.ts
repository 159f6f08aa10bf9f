import { configError } from '../basics/errors.ts';
import type { Admission } from '../session/run.ts';
import type { ManagedHandle } from '../session/run-key.ts';
import { type Exchange, Note } from '../wire/exchange.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { ElementEdit, Message } from '../wire/message.ts';
import { uniqueNameOf } from '../wire/pages.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { BoundRead, BoundReads } from '../workflow/reads.ts';
import type { Sight } from '../workflow/visible.ts';
import { withArgument } from './argument-schema.ts';
import { type GateConfig, type ListPart, readerOf } from './config.ts';
import { decideRead } from './decide.ts';
import { Gates, isBoundBy, isRefusedUnbound } from './gates.ts';
import { type Enforced, enforces, modeNow } from './mode.ts';
import { standingForLists } from './standing.ts';
import { listStatusTool, statusToolKey } from './status-tool.ts';
import { visibilityFor } from './visibility.ts';

/**
 * What decides which tools a list leaves out: the run's state, and the tools that `visible` hides
 * from its client there. `undefined`: it leaves out every bound tool.
 */
type Shown =
  | {
      readonly state: string;
      readonly hidden: ReadonlySet<string>;
      /** It shows the other ones always. */
      readonly enforced: Enforced;
    }
  | undefined;

const NO_TOOLS: ReadonlySet<string> = new Set();
const NOTHING_HIDDEN = { state: '', hidden: NO_TOOLS, enforced: true } as const;
const IN_TOOLS = ['result', 'tools'];

/** How one gate shows the pages of tools in one exchange: filtered by state, or described. */
export class ShownTools {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** What was read of the run for the next page. */
  #next: { readonly shown: Shown } | undefined;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
  }

  /**
   * Two pages of the same bytes and the same key look the same to clients. `undefined` where the
   * run's state is not known. A page with news of a tool changes the key, so that no earlier page
   * is used again unread.
   */
  key(): MaybePromise<string | undefined> {
    const { listed } = this.#config;
    if (modeNow(this.#config, this.#admission.store) === false)
      return `all ${listed.keyFor(this.#reader)}`;
    if (this.#isStable) {
      const { managed } = this.#admission;
      const handle = managed === undefined ? '' : JSON.stringify(managed);
      const status = statusToolKey(this.#config.status, this.#admission);
      const known = `${uniqueNameOf(this.#notes)} ${listed.keyFor(this.#reader)}`;
      // One gate may stand behind several `sessionStore()`s, and hides other tools behind each.
      const { unbound } = this.#config;
      const starters = unbound === 'refuse' ? JSON.stringify(this.#admission.starters) : '';
      return `stable ${known} ${handle} ${status} ${hiddenKey(this.#unlisted)} ${starters}`;
    }
    return after(this.#shownNow(), (shown) => {
      this.#next = { shown };
      if (shown === undefined) return undefined;
      const known = `${uniqueNameOf(this.#config)} ${listed.keyFor(this.#reader)}`;
      const enforced = shown.enforced === true ? '' : JSON.stringify(shown.enforced);
      return `hide ${known} ${hiddenKey(shown.hidden)} ${enforced} ${shown.state}`;
    });
  }

  /** Forgets what was read for the key: the next page must not use it. */
  forget(): void {
    this.#next = undefined;
  }

  /** Learns from a page of the upstream's, and changes it for the client. */
  show(message: Message): MaybePromise<void> {
    const { listed, onWarning, unbound, warnOnce, workflow } = this.#config;
    const { unnamed } = this.#admission;
    if (modeNow(this.#config, this.#admission.store) === false) {
      listed.note(message.pageAsSent('tools'), undefined, false, onWarning);
      return;
    }
    if (unnamed !== undefined && workflow.toolNames.length > 0) warnOnce(unnamed);
    const nextCursor = message.at('result', 'nextCursor');
    const page = message.pageAsSent('tools');
    listed.note(page, this.#partOf(message, nextCursor), nextCursor === undefined, onWarning);
    if (unbound === 'refuse' || workflow.globs.length > 1 || workflow.outside.size > 0)
      this.#hideNeverCalled(message);
    if (this.#isStable) {
      if (workflow.hides) {
        const hidden = this.#unlisted;
        keepPrivate(message);
        message.editElements(IN_TOOLS, (tool) =>
          isObject(tool) && hidden.has(workflow.keyOf(String(tool.name))) ? 'drop' : 'keep',
        );
      }
      describeTools(message, this.#notes, this.#config, this.#admission);
      return this.#addStatusTool(message);
    }
    const read = this.#next === undefined ? this.#shownNow() : this.#next.shown;
    this.#next = undefined;
    return after(read, (shown) => {
      this.#hideUnavailable(message, shown);
      this.#addStatusTool(message);
    });
  }

  /**
   * Leaves out what comes from outside, and what no gate of the route binds, also what has no name
   * to be bound by. And what globs bind in different ways, with a warning.
   */
  #hideNeverCalled(message: Message): void {
    const { workflow, warnOnce } = this.#config;
    message.editElements(IN_TOOLS, (tool) => {
      const name = isObject(tool) && typeof tool.name === 'string' ? tool.name : undefined;
      if (isRefusedUnbound(name, this.#config, this.#exchange, this.#admission)) return 'drop';
      const clash = name === undefined ? undefined : workflow.clashOf(name);
      if (clash !== undefined) warnOnce(clash);
      return clash === undefined ? 'keep' : 'drop';
    });
  }

  /** Leaves out what is not available in the run's state, and forbids clients to keep the list. */
  #hideUnavailable(message: Message, shown: Shown): void {
    const { workflow } = this.#config;
    if (workflow.toolNames.length === 0) return;
    forbidCaching(message);
    message.editElements(IN_TOOLS, (tool) => {
      const name = isObject(tool) && typeof tool.name === 'string' ? tool.name : undefined;
      if (name === undefined || !workflow.isBound(name)) return 'keep';
      const { globs } = workflow;
      if (globs.length > 0 && !isBoundBy(this.#config, name, this.#exchange, this.#admission))
        return 'keep';
      if (shown !== undefined && !enforces(shown.enforced, name)) return 'keep';
      if (shown === undefined || shown.hidden.has(workflow.keyOf(name))) return 'drop';
      return workflow.isVisible(name, shown.state) ? 'keep' : 'drop';
    });
  }

  /** Which part of the reader's list the page is; `undefined` for a replay. */
  #partOf({ value }: Message, nextCursor: unknown): ListPart | undefined {
    const asked = this.#exchange.messages.find(({ id }) => id === value.id);
    if (asked?.method !== 'tools/list') return undefined;
    const cursor = asked.message.at('params', 'cursor');
    return { reader: this.#reader, cursor, nextCursor };
  }

  get #reader(): string {
    const { session, identity } = this.#admission;
    return readerOf(session, identity.binding);
  }

  #addStatusTool(message: Message): void {
    const { status } = this.#config;
    if (status !== undefined)
      listStatusTool(message, status, this.#config, this.#exchange, this.#admission);
  }

  get #isStable(): boolean {
    return visibilityFor(this.#config, this.#admission) === 'stable';
  }

  get #notes(): ReadonlyMap<string, string> {
    return Gates.of(this.#config, this.#exchange).notes;
  }

  /** The tools that a list of all states hides from this client. */
  get #unlisted(): ReadonlySet<string> {
    return sightOfAll(this.#config, this.#admission)?.unlisted ?? NO_TOOLS;
  }

  #shownNow(): MaybePromise<Shown> {
    // Without a bound tool the run need not be read.
    if (this.#config.workflow.toolNames.length === 0) return NOTHING_HIDDEN;
    return after(standingForLists(this.#config, this.#admission, ['tools']), (standing) => {
      if (typeof standing !== 'object') return undefined;
      const { state, hidden, enforced } = standing;
      return { state, hidden, enforced };
    });
  }
}

/** Part of a page's key: clients in one state may not see the same tools. */
function hiddenKey(hidden: ReadonlySet<string>): string {
  return hidden.size === 0 ? '' : JSON.stringify([...hidden]);
}

/** Forbids shared caches to keep what another client must not see. */
function keepPrivate(message: Message): void {
  if (message.at('result', 'cacheScope') !== undefined)
    message.set(['result', 'cacheScope'], 'private');
}

/** What the client sees in a list of all states: what it would see in a new run. */
function sightOfAll({ workflow, onError }: GateConfig, { identity }: Admission): Sight | undefined {
  const viewer = { run: undefined, principal: identity.binding, identity, onError };
  return workflow.sight(workflow.start, viewer);
}

/** The tools of a list that already ask for a handle: if two gates bind a tool, it asks once. */
const asking = new Note<Message, Set<unknown>>();

/**
 * Adds to each bound tool's description where it is available, and to its schema the handle that
 * names its run.
 */
function describeTools(
  message: Message,
  notes: ReadonlyMap<string, string>,
  { onError, workflow }: GateConfig,
  admission: Admission,
): void {
  const { managed, starters } = admission;
  const asked = asking.of(message) ?? new Set();
  asking.put(message, asked);
  const noted = new Set<unknown>();
  try {
    message.editElements(IN_TOOLS, (tool) => {
      if (!isObject(tool)) return 'keep';
      const name = String(tool.name);
      const isFound = workflow.names(name) || !starters.includes(name);
      if (!isFound || !workflow.isBound(name)) return 'keep';
      // A tool that is available everywhere has none.
      const note = notes.get(workflow.keyOf(name));
      const described = note !== undefined && { description: withNote(tool.description, note) };
      if (managed === undefined || asked.has(tool.name)) return described || 'keep';
      noted.add(tool.name);
      return { ...described, inputSchema: schemaWithHandle(tool, managed) };
    });
    for (const tool of noted) asked.add(tool);
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
  throw configError(`managedHandle(): the tool ${JSON.stringify(name)} ${fault}`);
}

const NEVER_SHOWN =
  'a resource that the upstream lists is never shown: its URI is unclear, with dot segments, ' +
  'backslashes, a user or the like';

/** What is bound of one prompt or resource. `unclear`: its URI is odd, so it is always refused. */
export type MatchedReads = readonly BoundRead[] | 'unclear';

/** What is bound of one element of a list. */
type BoundOf = (element: JsonObject) => MatchedReads;

/** The lists of prompts and resources that a gate filters, by the result's member with the list. */
export type ReadLists = ReadonlyMap<string, BoundOf>;

export function readListsOf(reads: BoundReads): ReadLists {
  const lists = new Map<string, BoundOf>();
  if (reads.bindsPrompts) lists.set('prompts', ({ name }) => reads.ofPrompt(text(name)));
  if (!reads.bindsResources) return lists;
  return lists
    .set('resources', ({ uri }) => reads.ofResource(text(uri)))
    .set('skills', (skill) => boundOfSkill(skill, reads))
    .set('resourceTemplates', ({ uriTemplate }) => reads.ofTemplate(text(uriTemplate)));
}

/** Where the answer to `skills/get` names the skill's files. */
const FILES_OF_SKILL = ['result', 'skill', 'resources'] as const;

/** A skill names its files, so it is shown where each of them is available. */
function boundOfSkill({ uri, resources }: JsonObject, reads: BoundReads): MatchedReads {
  const files = Array.isArray(resources) ? resources.filter(isObject) : [];
  const bound: BoundRead[] = [];
  for (const each of [uri, ...files.map((file) => file.uri)]) {
    const found = reads.ofResource(text(each));
    if (found === 'unclear') return found;
    bound.push(...found.filter((read) => !bound.includes(read)));
  }
  return bound;
}

/**
 * Changes a page of prompts or resources as {@link ShownTools} does tools: leaves out what is not
 * available, or adds where it is.
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
  const isStable = visibilityFor(config, admission) === 'stable';
  const editFor = async (member: string): Promise<Edit> =>
    isStable ? describing(gates, sightOfAll(config, admission)) : hiding(config, admission, member);
  for (const [member, boundOf] of lists) {
    const elements = isObject(result) ? result[member] : undefined;
    if (!Array.isArray(elements)) continue;
    if (member === 'prompts') {
      const isLastPage = message.at('result', 'nextCursor') === undefined;
      config.listedPrompts.note(message.pageAsSent(member), isLastPage, config.onWarning);
    }
    const edit = await editFor(member);
    if (!isStable) forbidCaching(message);
    else if (config.workflow.hides) keepPrivate(message);
    message.editElements(['result', member], (element) =>
      isObject(element) ? edit(element, boundOf(element)) : 'keep',
    );
  }
  const ofFile = lists.get('resources');
  if (ofFile === undefined || !Array.isArray(message.at(...FILES_OF_SKILL))) return;
  const edit = await editFor('resources');
  // A file of a skill has no description that a note could be added to.
  message.editElements(FILES_OF_SKILL, (file) =>
    isObject(file) && edit(file, ofFile(file)) === 'drop' ? 'drop' : 'keep',
  );
}

type Edit = (element: JsonObject, bound: MatchedReads) => ElementEdit;

function describing(gates: Gates, sight: Sight | undefined): Edit {
  return ({ description }, bound) => {
    if (bound === 'unclear' || bound.length === 0) return 'keep';
    if (sight !== undefined && !bound.every((each) => sight.lists(each))) return 'drop';
    return {
      description: withNote(description, bound.map((each) => gates.noteOf(each)).join(' ')),
    };
  };
}

async function hiding(config: GateConfig, admission: Admission, member: string): Promise<Edit> {
  const kind = member === 'prompts' ? 'prompts' : 'resources';
  const standing = await standingForLists(config, admission, [kind]);
  const now = admission.listed === undefined || modeNow(config, admission.store);
  return (_, bound) => {
    if (bound === 'unclear') {
      config.warnOnce(NEVER_SHOWN);
      return 'drop';
    }
    if (bound.length === 0) return 'keep';
    return decideRead(standing, bound, now).reason === undefined ? 'keep' : 'drop';
  };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function withNote(description: unknown, note: string): string {
  return typeof description === 'string' && description !== '' ? `${description}\n\n${note}` : note;
}

/** Forbids every cache to keep what depends on a run. Without these members nothing is kept. */
export function forbidCaching(message: Message): void {
  if (message.at('result', 'ttlMs') !== undefined) message.set(['result', 'ttlMs'], 0);
  keepPrivate(message);
}
