import type { Exchange, Part } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { idKey, isObject, isRequestId, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { type Admission, isHandle } from './run.ts';
import type { HandleKey } from './run-key.ts';

/**
 * Learns the handles that the upstream hands out. `onHandle` says whether a run could be made for
 * one.
 */
export class CreatedHandles implements Part {
  readonly stage = 'session';
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  readonly #key: HandleKey;
  readonly #onHandle: (handle: string) => Promise<boolean>;
  readonly #awaited: Map<string, RequestId>;

  constructor(
    exchange: Exchange,
    admission: Admission,
    key: HandleKey,
    calls: readonly Incoming[],
    onHandle: (handle: string) => Promise<boolean>,
  ) {
    this.#exchange = exchange;
    this.#admission = admission;
    this.#key = key;
    this.#onHandle = onHandle;
    const ids = calls.map(({ id }) => id).filter((id) => id !== undefined);
    this.#awaited = new Map(ids.map((id) => [idKey(id), id]));
  }

  wants(): boolean {
    return this.#awaited.size > 0;
  }

  /** The run is there before the client knows its handle. */
  async onMessage(message: Message): Promise<void> {
    const { id, method, result } = message.value;
    if (method !== undefined || !isRequestId(id) || !this.#awaited.delete(idKey(id))) return;
    const handle = message.at('result', 'structuredContent', this.#key.field);
    if (!isObject(result) || result.isError === true || !isHandle(handle)) return;
    if (await this.#onHandle(String(handle))) return;
    const { argument } = this.#key;
    const text = `[System: what was made could not be recorded, so no gated tool takes this ${JSON.stringify(argument)}. Make another one later.]`;
    message.insert(['result', 'content'], { type: 'text', text }, 'end');
  }

  onEnd(): JsonObject[] {
    this.#expectLate();
    return [];
  }

  onClose(): void {
    this.#expectLate();
  }

  /** A stream that can be resumed brings the result elsewhere. */
  #expectLate(): void {
    if (this.#admission.era !== 'session' || !this.#exchange.tap.resumable) return;
    for (const id of this.#awaited.values()) {
      this.#admission.session.late.expect(id, `handle ${this.#key.argument}`, (message) =>
        this.onMessage(message),
      );
    }
  }
}
