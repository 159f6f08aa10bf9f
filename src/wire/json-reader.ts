import { succeeded } from './body-mode.ts';
import type { BodyReader, ReaderContext } from './body-reader.ts';
import type { JsonObject } from './json-rpc.ts';
import { Payload } from './payload.ts';
import { isPromise } from './task-line.ts';

/**
 * Holds a JSON body until it is whole, and sends it on as it came unless somebody changes a message
 * in it.
 */
export class JsonReader implements BodyReader {
  readonly #context: ReaderContext;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(context: ReaderContext) {
    this.#context = context;
  }

  begin(): void {}

  write(bytes: Buffer): void {
    const { maxMessageBytes } = this.#context.limits;
    this.#bytes += bytes.length;
    if (this.#bytes > maxMessageBytes) {
      throw new Error(`a response is larger than maxMessageBytes, ${maxMessageBytes}`);
    }
    // A copy: whoever wrote it may use its memory again.
    this.#chunks.push(Buffer.from(bytes));
  }

  flush(): void {}

  inject(): void {}

  async end(last: Buffer): Promise<void> {
    this.write(last);
    const { observer, out, isReplaced } = this.#context;
    const body = Buffer.concat(this.#chunks);
    const recalled = observer.recall(body);
    const known = isPromise(recalled) ? await recalled : recalled;
    let payload = known === undefined && observer.wants(body) ? this.#parse(body) : undefined;
    for (const message of payload?.messages ?? []) await observer.onMessage(message);
    if (payload !== undefined) observer.remember(body, payload);
    const added = [...(await observer.onEnd()), ...observer.takeAnswers()];
    if (isReplaced()) return;
    if (added.length > 0) payload ??= this.#parse(known?.bytes ?? body);
    else if (known !== undefined) return out.endWith(known.bytes);
    if (payload === undefined || (added.length === 0 && !payload.changed)) return out.end(body);
    return this.#endWith(payload, added);
  }

  #endWith(payload: Payload, added: readonly JsonObject[]): void | Promise<void> {
    const { out, res } = this.#context;
    // There was nothing to say, and now there is.
    if (res.statusCode === 202 || res.statusCode === 204) res.statusCode = 200;
    return out.endWith(payload.textWith(added));
  }

  /**
   * `undefined` where it is no message and need not be one: an error, or another route's answer.
   */
  #parse(body: Buffer): Payload | undefined {
    const { limits, res } = this.#context;
    const payload = Payload.parse(body.toString(), limits.isBatch);
    if (payload === undefined && limits.expectsMessages && succeeded(res.statusCode)) {
      throw new Error('a response is not JSON-RPC');
    }
    return payload;
  }
}
