import { newToken } from '../session/ids.ts';
import type { Admission } from '../session/run-context.ts';
import { turnAwayUnknown } from '../session/turn-away.ts';
import { headerFault } from '../wire/era.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { errorResponse, idKey, JSON_RPC, META_PREFIX } from '../wire/json-rpc.ts';
import type { ReadRefusal, ReadRefusalReason } from '../workflow/read-advice.ts';
import { readRefusalFor } from '../workflow/read-advice.ts';
import type { BoundRead } from '../workflow/reads.ts';
import { askedCall, refusedByGuard } from './admit.ts';
import { askForAlias, type Hidden } from './alias.ts';
import type { GateConfig } from './gate-config.ts';
import { stateNow } from './state-now.ts';
import { visibilityFor } from './tool-list.ts';

const UNCLEAR = 'Invalid params: uri must be an absolute URI in its normal form';
const NAME_RUNS =
  'nothing in its request names a run. Prompts and resources belong to the run that sessionKey() or principalKey() names, and to no handle';

/** One prompt or resource that a client asks for, and all that is bound of it. */
interface AskedRead {
  readonly incoming: Incoming;
  readonly kind: 'prompt' | 'resource';
  /** The prompt's name, or the URI as it was written. */
  readonly name: string;
  readonly bound: readonly BoundRead[];
}

interface Refused {
  readonly reason: ReadRefusalReason;
  readonly state?: string | undefined;
  readonly words?: string | undefined;
  readonly path?: readonly string[] | undefined;
  /** Whether its list does not show it now. */
  readonly isHidden: boolean;
}

/** What became of one request: it goes on, it was answered, or the run turned out to have ended. */
export type ReadVerdict = 'forward' | 'answered' | 'ended';

/** Decides about the prompts and resources that one exchange asks for. They move nothing, so nothing is claimed. */
export class ReadJudge {
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** Made-up names that stand for hidden prompts and resources, by the hidden one's name. */
  readonly aliases = new Map<string, string>();
  /** The requests for gated resources that go on. */
  readonly gated = new Set<string>();

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
  }

  async judge(incoming: Incoming): Promise<ReadVerdict> {
    const { reads } = this.#config.workflow;
    if (incoming.method === 'prompts/get' && reads.bindsPrompts)
      return this.#judge(incoming, 'prompt', (name) => reads.ofPrompt(name));
    if (incoming.method === 'resources/read' && reads.bindsResources)
      return this.#judge(incoming, 'resource', (uri) => reads.ofResource(uri));
    return 'forward';
  }

  async #judge(
    incoming: Incoming,
    kind: AskedRead['kind'],
    boundOf: (name: string) => readonly BoundRead[] | 'unclear',
  ): Promise<ReadVerdict> {
    const param = kind === 'prompt' ? 'name' : 'uri';
    const name = incoming.message.at('params', param);
    if (typeof name !== 'string')
      return this.#answer(incoming, `Invalid params: ${param} must be a string`);
    const bound = boundOf(name);
    if (bound !== 'unclear' && bound.length === 0) return 'forward';
    const fault = headerFault(this.#exchange.req, incoming, this.#admission.era);
    if (fault !== undefined) {
      await this.#exchange.reject(400, fault.code, fault.message);
      return 'ended';
    }
    if (bound !== 'unclear') return this.#test({ incoming, kind, name, bound });
    return this.#hides ? this.#alias(incoming, kind, name) : this.#answer(incoming, UNCLEAR);
  }

  async #test(asked: AskedRead): Promise<ReadVerdict> {
    const { workflow, warnOnce } = this.#config;
    const { incoming, kind, bound } = asked;
    const context = this.#admission.listed;
    if (context === undefined) {
      warnOnce(
        `a request for the ${kind} ${JSON.stringify(bound[0]?.name)} was refused: ${NAME_RUNS}`,
      );
      return this.#refuse(asked, { reason: 'no-run', isHidden: false });
    }
    const found = await stateNow(this.#config, context);
    if (found === 'unknown') return this.#end();
    if (found === 'unavailable')
      return this.#refuse(asked, { reason: 'unavailable', isHidden: true });
    const { state } = found;
    if (!bound.every((each) => workflow.allows(state, each))) {
      const { updatedAt: _, version: __, ...position } = found;
      const [only, ...others] = bound;
      // Where several must allow it at once, the way to one of them may lead nowhere.
      const path = only && others.length === 0 ? workflow.pathTo(only.states, position) : undefined;
      return this.#refuse(asked, { reason: 'state', state, path, isHidden: true });
    }
    const guards = bound.flatMap((each) => each.guards);
    const refused = await refusedByGuard(
      this.#config,
      { guards },
      found,
      askedCall(incoming, asked.name, context),
    );
    if (refused !== undefined)
      return this.#refuse(asked, { reason: 'guard', state, words: refused.words, isHidden: false });
    if (kind === 'resource' && incoming.id !== undefined) this.gated.add(idKey(incoming.id));
    return 'forward';
  }

  async #refuse(
    { incoming, kind, name, bound }: AskedRead,
    { reason, state, words, path, isHidden }: Refused,
  ): Promise<ReadVerdict> {
    const { workflow } = this.#config;
    if (isHidden && this.#hides) return this.#alias(incoming, kind, name);
    const refusal: ReadRefusal = {
      workflow: workflow.id,
      state,
      ...(kind === 'prompt' ? { prompt: name } : { resource: name }),
      reason,
      available: state === undefined ? [] : workflow.available(state),
      path,
    };
    const foreseen = workflow.foresees && bound.length === 1;
    return this.#answer(incoming, readRefusalFor(refusal, { words, foreseen }), {
      [`${META_PREFIX}refusal`]: refusal,
    });
  }

  /** Whether what is not available must not be told from what does not exist. */
  get #hides(): boolean {
    const { refusal } = this.#config;
    return refusal === 'unknown-tool' && visibilityFor(this.#config, this.#admission) === 'hide';
  }

  /** Asks the upstream for what it surely does not have, so that the answer has the upstream's own shape. */
  #alias(incoming: Incoming, kind: AskedRead['kind'], name: string): ReadVerdict {
    // No template of the upstream's makes such a URN, which stays as it is where it is parsed.
    const hidden: Hidden =
      kind === 'prompt'
        ? { param: 'name', name, makeAlias: () => `p${newToken()}` }
        : { param: 'uri', name, makeAlias: () => `urn:${newToken()}:none` };
    askForAlias(this.#exchange.req, incoming, this.aliases, hidden);
    return 'forward';
  }

  async #answer(incoming: Incoming, message: string, data?: unknown): Promise<ReadVerdict> {
    const response = errorResponse(incoming.id ?? null, JSON_RPC.INVALID_PARAMS, message, data);
    await this.#exchange.answer(incoming, response);
    return 'answered';
  }

  /** The run is named by its session, which is over then. */
  async #end(): Promise<ReadVerdict> {
    await turnAwayUnknown(this.#exchange);
    return 'ended';
  }
}
