import { type Admission, deny, UNKNOWN_SESSION } from '../session/run.ts';
import { type Call, isAmbiguous } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { ESCAPED_ASCII, type Filter } from '../wire/filter.ts';
import { headerFault } from '../wire/headers.ts';
import {
  isObject,
  isRequestId,
  type ListKind,
  META_PREFIX,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { type ReadRefusal, readRefusalFor } from '../workflow/advice.ts';
import { AskedArguments } from '../workflow/bound-tools.ts';
import { type Outlet, outletFrom } from './advise.ts';
import type { GateConfig } from './config.ts';
import { askedCall, refusedUnclaimed } from './consult.ts';
import { type DecidedRead, decideRead } from './decide.ts';
import type { Demand } from './gates.ts';
import { declareListChanged, declaresChanges, readLists } from './list-changes.ts';
import {
  forbidCaching,
  type MatchedReads,
  type ReadLists,
  readListsOf,
  showReads,
} from './lists.ts';
import { modeNow } from './mode.ts';
import { askForAlias, invalidParams, resultOf } from './replies.ts';
import { type Absent, mendOfUnread, type Standing, standingNow } from './standing.ts';
import { keepsSecrets } from './visibility.ts';

/** The methods that name one resource by its URI. The last two are of the extension for skills. */
const NAMING_RESOURCE: ReadonlySet<string | undefined> = new Set([
  ...['resources/read', 'resources/subscribe', 'resources/directory/read', 'skills/get'],
]);
/** The methods that name a prompt or a resource. */
const READING: ReadonlySet<string | undefined> = new Set([
  ...['completion/complete', 'prompts/get', 'subscriptions/listen'],
  ...NAMING_RESOURCE,
]);
const UPDATED = 'notifications/resources/updated';
/** The gates that have reported a method that they do not know. */
const isReported = new WeakSet<GateConfig>();
/** A part of that method without slashes, which JSON may escape. */
const UPDATED_MARK = 'updated';
/** The member of an answer that has one skill. */
const SKILL_MARK = '"skill"';

const UNCLEAR = 'uri must be an absolute URI in its normal form';
const NAME_RUNS =
  'nothing in its request names a run. Prompts and resources belong to the run that sessionKey() ' +
  'or principalKey() names, and to no handle, ' +
  'see mcp-interlock/docs/build/eras.md#what-names-a-run';

/** The member of a subscription that lists URIs. */
const SUBSCRIBED = 'resourceSubscriptions';
/** A subscription may name so many URIs: each takes time to judge. */
const MOST_URIS = 256;

/** A prompt or a resource that a client asks for, and what is bound of it. */
interface AskedRead {
  readonly incoming: Call;
  readonly kind: 'prompt' | 'resource';
  /** The prompt's name, or the URI as the client wrote it. */
  readonly name: string;
  readonly bound: MatchedReads;
}

/** What the gate says of a read. */
interface Tested extends Pick<DecidedRead, 'standing'> {
  /** `unknown`: the session that names the run is over. */
  readonly reason?: DecidedRead['reason'] | 'unclear';
  /** The guard's own words, or how to come to a run. */
  readonly words?: string | undefined;
}

/** Where the run stands that prompts and resources belong to. */
type Found = Standing | Absent | 'no-run';

/** What becomes of a request. `ended`: the gate answered the whole HTTP request. */
type ReadVerdict = 'forward' | 'answered' | 'ended';

/**
 * The part in one exchange of a gate that binds prompts or resources: it judges requests for them,
 * and filters their lists.
 */
export class ReadFilter implements Filter {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #lists: ReadLists;
  readonly #declared: readonly ListKind[];
  /** Every message that this filter must see contains one of these. */
  readonly #marks: readonly (Buffer | string)[];
  /** The ids of forwarded requests for resources, whose answers no cache may keep. */
  readonly #gated = new Set<RequestId>();

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#lists = readListsOf(config.workflow.reads);
    this.#marks = [
      ESCAPED_ASCII,
      ...(config.workflow.reads.bindsResources ? [UPDATED_MARK, SKILL_MARK] : []),
      ...[...this.#lists.keys()].map((member) => JSON.stringify(member)),
    ];
    this.#declared = declaresChanges(config, exchange, admission) ? readLists(config.workflow) : [];
  }

  /** Judges each read of the request. `false` where the gate answered the whole request. */
  enter(): MaybePromise<boolean> {
    const reads = this.#exchange.forwardable.filter(({ method }) => READING.has(method));
    for (const each of this.#exchange.forwardable) this.#warnOfUnknown(each);
    return reads.length === 0 || this.#judgeAll(reads);
  }

  /** A method that we do not know may read the resource that it names. */
  #warnOfUnknown({ method, message }: Call): void {
    const { warnOnce, workflow } = this.#config;
    if (isReported.has(this.#config)) return;
    if (method === undefined || READING.has(method) || method === 'resources/unsubscribe') return;
    const uri = message.at('params', 'uri');
    if (typeof uri !== 'string' || workflow.reads.ofResource(uri).length === 0) return;
    // Clients choose methods: a set of them could grow without end.
    isReported.add(this.#config);
    const bound = 'a resource that is bound, and the gate does not know the method';
    warnOnce(
      `a request for ${JSON.stringify(method.slice(0, 64))} names ${bound}: it lets it pass`,
    );
  }

  async #judgeAll(reads: readonly Call[]): Promise<boolean> {
    for (const incoming of reads) {
      if ((await this.#judge(incoming)) === 'ended') return false;
    }
    return true;
  }

  wants(bytes: Buffer): boolean {
    if (this.#gated.size > 0 || this.#declared.length > 0) return true;
    return this.#marks.some((mark) => bytes.includes(mark));
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method, result } = message.value;
    if (method === UPDATED) return this.#dropHidden(message);
    if (method !== undefined || !isObject(result)) return;
    // The run decides whether the client may read it, so no cache may keep it.
    if (isRequestId(id) && this.#gated.has(id)) forbidCaching(message);
    declareListChanged(message, this.#declared);
    // Filter every list, also where none was asked for, as with tools.
    const isList = [...this.#lists.keys()].some((member) => Array.isArray(result[member]));
    if (!isList && !isObject(result.skill)) return undefined;
    return showReads(message, this.#config, this.#exchange, this.#admission, this.#lists);
  }

  /** This filter changes no page of tools. */
  pageKey(): string {
    return 'reads';
  }

  /**
   * The client must not get updates of a resource that the run does not allow now. Asks no guards,
   * as in lists.
   */
  async #dropHidden(message: Message): Promise<void> {
    const { reads } = this.#config.workflow;
    if (!reads.bindsResources) return;
    const uri = message.at('params', 'uri');
    // A value that is no text is an unclear URI, which is hidden.
    const bound = reads.ofResource(typeof uri === 'string' ? uri : '');
    if (bound.length > 0 && (await this.#test(bound)).reason !== undefined) message.dropped = true;
  }

  /** Decides about a prompt or a resource. None of them needs a claim. */
  async #judge(incoming: Call): Promise<ReadVerdict> {
    const { reads } = this.#config.workflow;
    const { method } = incoming;
    if (method === 'completion/complete') return this.#complete(incoming);
    if (method === 'prompts/get' && reads.bindsPrompts) return this.#read(incoming, 'prompt');
    if (!reads.bindsResources) return 'forward';
    if (NAMING_RESOURCE.has(method)) return this.#read(incoming, 'resource');
    return method === 'subscriptions/listen' ? this.#listen(incoming) : 'forward';
  }

  async #read(incoming: Call, kind: AskedRead['kind']): Promise<ReadVerdict> {
    const param = kind === 'prompt' ? 'name' : 'uri';
    const name = incoming.message.at('params', param);
    if (typeof name !== 'string') return this.#invalid(incoming, `${param} must be a string`);
    const asked = { incoming, kind, name, bound: boundBy(this.#config, kind, name) };
    const tested = await this.#check(asked, ['params', param]);
    if (typeof tested === 'string') return tested;
    const refused = tested.reason === undefined ? await this.#guard(asked, tested) : tested;
    if (refused !== undefined) return this.#refuse(asked, refused);
    if (kind === 'resource' && incoming.id !== undefined) this.#gated.add(incoming.id);
    return 'forward';
  }

  /** A client asks at each key press, so a hidden reference is no error: it has no completions. */
  async #complete(incoming: Call): Promise<ReadVerdict> {
    const { reads } = this.#config.workflow;
    const path = ['params', 'ref'];
    const type = incoming.message.at(...path, 'type');
    const kind = type === 'ref/prompt' ? 'prompt' : 'resource';
    const param = kind === 'prompt' ? 'name' : 'uri';
    // If a member can be read in two ways, the upstream may read the one that is hidden.
    const isClear = ['type', 'name', 'uri'].every((key) => !isAmbiguous(incoming, path, key));
    if (isClear && (kind === 'prompt' ? !reads.bindsPrompts : !reads.bindsResources))
      return 'forward';
    const name = incoming.message.at(...path, param);
    if (typeof name !== 'string' || type !== `ref/${kind}` || !isClear)
      return this.#invalid(
        incoming,
        'ref must be a ref/prompt with a name or a ref/resource with a uri',
      );
    const bound = kind === 'prompt' ? reads.ofPrompt(name) : reads.ofReference(name);
    const tested = await this.#check({ incoming, kind, name, bound }, [...path, param]);
    if (typeof tested === 'string') return tested;
    if (tested.reason === undefined) return 'forward';
    const nothing = { completion: { values: [], total: 0, hasMore: false } };
    await incoming.answerWith(resultOf(incoming.id ?? null, nothing, this.#admission.era));
    return 'answered';
  }

  /**
   * Removes from a subscription the URIs that the run does not allow. The client learns of that
   * from the server's acknowledgement, which names what it honours (MCP 2026-07-28,
   * "Subscriptions").
   */
  async #listen(incoming: Call): Promise<ReadVerdict> {
    const path = ['params', 'notifications'];
    const uris = incoming.message.at(...path, SUBSCRIBED);
    const isClear =
      !isAmbiguous(incoming, ['params'], 'notifications') &&
      !isAmbiguous(incoming, path, SUBSCRIBED);
    if (uris === undefined && isClear) return 'forward';
    if (!isClear || !isListOfUris(uris))
      return this.#invalid(incoming, `${SUBSCRIBED} must be an array of at most ${MOST_URIS} URIs`);
    const { reads } = this.#config.workflow;
    const asked = uris.map((name) => {
      return { incoming, kind: 'resource', name, bound: reads.ofResource(name) } as const;
    });
    if (asked.every(({ bound }) => bound.length === 0)) return 'forward';
    const found = await this.#look();
    if (found === 'unknown' && !this.#keepsSecrets) return this.#end();
    const { aliases } = this.#config;
    const honoured: string[] = [];
    let areHeadersFit: boolean | undefined;
    for (const each of asked) {
      const tested = each.bound.length === 0 ? {} : this.#testAt(found, each.bound);
      const isHidden = tested.reason !== undefined && this.#keepsSecrets;
      if (isHidden) honoured.push(aliases.ofUri(each.name));
      else if (each.bound.length === 0) honoured.push(each.name);
      else {
        areHeadersFit ??= !(await this.#rejects(incoming));
        if (!areHeadersFit) return 'ended';
        if (tested.reason === undefined && (await this.#guard(each, tested)) === undefined)
          honoured.push(each.name);
      }
    }
    if (honoured.join('\n') !== uris.join('\n'))
      incoming.message.set([...path, SUBSCRIBED], honoured);
    return 'forward';
  }

  /** Tests a read. `forward`: the gate does not bind it, or hides it behind an unknown name. */
  async #check(
    { incoming, kind, name, bound }: AskedRead,
    path: readonly string[],
  ): Promise<Tested | 'forward' | 'ended'> {
    if (bound.length === 0) return 'forward';
    const first = this.#keepsSecrets ? await this.#test(bound) : undefined;
    // This comes first: a hidden one must not get an error that only bound ones get.
    if (first?.reason !== undefined) {
      this.#reportRefused(incoming, name, first);
      const { aliases } = this.#config;
      const alias = kind === 'prompt' ? aliases.ofName(name) : aliases.ofUri(name);
      askForAlias(this.#exchange.req, incoming, path, alias);
      return 'forward';
    }
    if (await this.#rejects(incoming)) return 'ended';
    const tested = first ?? (await this.#test(bound));
    return tested.reason === 'unknown' ? this.#end() : tested;
  }

  async #look(): Promise<Found> {
    const { listed } = this.#admission;
    return listed === undefined ? 'no-run' : standingNow(this.#config, listed);
  }

  async #test(bound: MatchedReads): Promise<Tested> {
    return bound === 'unclear' ? { reason: 'unclear' } : this.#testAt(await this.#look(), bound);
  }

  #testAt(found: Found, bound: MatchedReads): Tested {
    if (bound === 'unclear') return { reason: 'unclear' };
    const { listed, unconnected } = this.#admission;
    if (found === 'no-run' || listed === undefined) {
      if (unconnected !== undefined) return { reason: 'no-run', words: unconnected.advice };
      const [read] = bound;
      this.#config.warnOnce(
        `a request for ${JSON.stringify(read?.name)} was refused: ${NAME_RUNS}`,
      );
      return { reason: 'no-run' };
    }
    return decideRead(found, bound, modeNow(this.#config, listed.store));
  }

  /** Asks the guards about a read that the state allows; `undefined` where they let it through. */
  async #guard(
    { incoming, name, bound }: AskedRead,
    { standing }: Tested,
  ): Promise<Tested | undefined> {
    const { listed } = this.#admission;
    if (standing === undefined || listed === undefined || bound === 'unclear') return undefined;
    const guards = bound.flatMap((each) => each.guards);
    if (guards.length === 0) return undefined;
    const args = AskedArguments.later(() => incoming.sentArguments);
    const call = askedCall(this.#config, args, name, listed);
    const refused = await refusedUnclaimed(this.#config, listed, guards, standing, call);
    const reason = refused?.reason === 'unavailable' ? 'unavailable' : 'guard';
    return refused && { reason, standing, words: refused.words };
  }

  /** Rejects a request whose headers contradict its body; says whether it did. */
  async #rejects(incoming: Call): Promise<boolean> {
    const fault = headerFault(this.#exchange.req, incoming, this.#admission.era);
    if (fault !== undefined) await this.#exchange.reject(400, fault.code, fault.message);
    return fault !== undefined;
  }

  async #refuse({ incoming, kind, name, bound }: AskedRead, tested: Tested): Promise<ReadVerdict> {
    const { workflow } = this.#config;
    const { reason, standing, words } = tested;
    if (bound === 'unclear' || reason === 'unclear') return this.#invalid(incoming, UNCLEAR);
    if (reason === undefined || reason === 'unknown') return this.#end();
    this.#reportRefused(incoming, name, tested);
    const [only, ...others] = bound;
    // If several bindings must allow it at once, the way to one of them may not suffice.
    const leads = reason === 'state' && only !== undefined && others.length === 0;
    const demand: Demand = (other) => {
      const there = boundBy(other, kind, name);
      return there === 'unclear' ? undefined : there.map(({ states }) => states);
    };
    const goal = leads ? { states: only.states, demand } : undefined;
    const { listed } = this.#admission;
    const { foreseen, ...found }: Outlet =
      standing !== undefined && listed !== undefined
        ? await outletFrom(this.#config, this.#exchange, this.#admission, listed, standing, goal)
        : { available: [], foreseen: false };
    const refusal: ReadRefusal = {
      workflow: workflow.id,
      state: standing?.state,
      ...(kind === 'prompt' ? { prompt: name } : { resource: name }),
      reason,
      ...found,
    };
    const data = { [`${META_PREFIX}refusal`]: refusal };
    const mend = reason === 'unreadable' && listed ? mendOfUnread(workflow, listed.run) : undefined;
    const text = readRefusalFor(refusal, {
      words: mend ?? words,
      foreseen,
      isOrder: workflow.isOrder,
    });
    await incoming.answerWith(invalidParams(incoming, text, data));
    return 'answered';
  }

  #reportRefused({ id, method = '' }: Call, name: string, { reason, standing }: Tested): void {
    const { events, workflow } = this.#config;
    if (!events.isOn || reason === undefined || reason === 'unclear' || reason === 'unknown')
      return;
    const { listed } = this.#admission;
    const who = listed === undefined ? {} : { runKey: listed.run, actor: listed.actor };
    const refused = { workflow: workflow.id, method, name, reason, state: standing?.state };
    events.publish({ type: 'read.refused', ...refused, requestId: id, ...who });
  }

  /** Whether the client must not find out that something hidden exists. */
  get #keepsSecrets(): boolean {
    return keepsSecrets(this.#config, this.#admission);
  }

  async #invalid(incoming: Call, why: string): Promise<ReadVerdict> {
    await incoming.answerWith(invalidParams(incoming, `Invalid params: ${why}`));
    return 'answered';
  }

  /** The session is over that names the run. */
  async #end(): Promise<'ended'> {
    await deny(this.#exchange, UNKNOWN_SESSION);
    return 'ended';
  }
}

/** What a gate binds of a prompt or a resource. */
function boundBy(
  { workflow: { reads } }: GateConfig,
  kind: AskedRead['kind'],
  name: string,
): MatchedReads {
  return kind === 'prompt' ? reads.ofPrompt(name) : reads.ofResource(name);
}

function isListOfUris(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) &&
    value.length <= MOST_URIS &&
    value.every((each) => typeof each === 'string')
  );
}
