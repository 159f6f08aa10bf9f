import type { Admission } from '../session/run.ts';
import type { Exchange, Part } from '../wire/exchange.ts';
import { idKey, isObject, isRequestId, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { declareListChanged, declaresChanges, readLists } from './changed-lists.ts';
import { type ReadLists, readListsOf, showReads } from './lists.ts';
import type { GateConfig } from './config.ts';
import { ReadJudge } from './read-judge.ts';
import { forbidCaching } from './tool-list.ts';

const ESCAPED_ASCII = '\\u00';
const UPDATED = 'notifications/resources/updated';
/** Of that method, whether or not its slashes are escaped. */
const UPDATED_MARK = 'updated';

/**
 * What one gate does about prompts and resources in one exchange. There is no such part where it
 * binds none.
 */
export class ReadPart implements Part {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #judge: ReadJudge;
  readonly #lists: ReadLists;
  readonly #declared: readonly ListKind[];
  /** What a page, or a result that must not be kept, cannot be without. */
  readonly #marks: readonly string[];

  private constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#judge = new ReadJudge(config, exchange, admission);
    this.#lists = readListsOf(config.workflow.reads);
    this.#marks = [
      ESCAPED_ASCII,
      ...(config.workflow.reads.bindsResources ? [UPDATED_MARK] : []),
      ...[...this.#lists.keys()].map((member) => JSON.stringify(member)),
    ];
    this.#declared = declaresChanges(config, exchange, admission) ? readLists(config.workflow) : [];
  }

  static of(config: GateConfig, exchange: Exchange, admission: Admission): ReadPart | undefined {
    return config.workflow.reads.isEmpty ? undefined : new ReadPart(config, exchange, admission);
  }

  /**
   * Judges each read of the request. `false` where the request was answered as a whole, because its
   * run has ended.
   */
  async enter(): Promise<boolean> {
    for (const incoming of this.#exchange.forwardable) {
      if ((await this.#judge.judge(incoming)) === 'ended') return false;
    }
    return true;
  }

  wants(bytes: Buffer): boolean {
    if (this.#judge.gated.size > 0 || this.#declared.length > 0) return true;
    return this.#marks.some((mark) => bytes.includes(mark));
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method, result } = message.value;
    if (method === UPDATED) return this.#dropHidden(message);
    if (method !== undefined || !isObject(result)) return;
    // Whether it may be read depends on the run, and so on the time.
    if (isRequestId(id) && this.#judge.gated.has(idKey(id))) forbidCaching(message);
    declareListChanged(message, this.#declared);
    // By their shape, as the tools.
    const isList = [...this.#lists.keys()].some((member) => Array.isArray(result[member]));
    if (!isList) return undefined;
    return showReads(message, this.#config, this.#exchange, this.#admission, this.#lists);
  }

  /** It has no say in pages of tools. */
  pageKey(): string {
    return 'reads';
  }

  /** A change of a resource that the run does not allow now is none of the client's business. */
  async #dropHidden(message: Message): Promise<void> {
    if (!this.#config.workflow.reads.bindsResources) return;
    const uri = message.at('params', 'uri');
    // What is no text is no URI, and so none that is available.
    if (await this.#judge.isHidden(typeof uri === 'string' ? uri : '')) message.dropped = true;
  }
}
