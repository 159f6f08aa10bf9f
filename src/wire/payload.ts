import { isObject, type JsonObject } from './json-rpc.ts';
import { elementSpans, rootSpan } from './json-text.ts';
import { Message } from './message.ts';

/**
 * The message, or the batch of messages, in one piece of JSON text: a body, or the data of an
 * event.
 */
export class Payload {
  readonly messages: readonly Message[];
  readonly #text: string;
  readonly isBatch: boolean;

  private constructor(text: string, messages: readonly Message[], isBatch: boolean) {
    this.#text = text;
    this.messages = messages;
    this.isBatch = isBatch;
  }

  /**
   * `undefined` where the text is neither. No text at all is no message, and a batch if
   * `emptyIsBatch`.
   */
  static parse(text: string, emptyIsBatch = false): Payload | undefined {
    if (text === '') return new Payload(text, [], emptyIsBatch);
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return undefined;
    }
    if (isObject(value)) return new Payload(text, [new Message(value, text)], false);
    if (!Array.isArray(value) || !value.every(isObject)) return undefined;
    const spans = elementSpans(text, rootSpan(text).start);
    const messages = value.map(
      (each, index) => new Message(each, text.slice(spans[index]?.start, spans[index]?.end)),
    );
    return new Payload(text, messages, true);
  }

  get changed(): boolean {
    return this.messages.some(({ changed, dropped }) => changed || dropped);
  }

  /**
   * The text as it is now: without the messages that were dropped, with further ones behind its
   * own. Of unchanged text no character is touched.
   */
  textWith(more: readonly JsonObject[] = []): string {
    if (!this.changed && more.length === 0) return this.#text;
    const texts = [
      ...this.messages.filter(({ dropped }) => !dropped).map(({ text }) => text),
      ...more.map((each) => JSON.stringify(each)),
    ];
    return this.isBatch || texts.length > 1 ? `[${texts.join(',')}]` : (texts[0] ?? '');
  }
}
