import { parseBody, tooLarge, unfitBody } from '../body.ts';
import type { BodyFailure, BodyPort, RequestPort } from '../ports.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** A `Request`'s body, read once. The handler is given another request, with these bytes. */
export class FetchBody implements BodyPort {
  readonly value: unknown;
  readonly text: string;
  #bytes: Bytes;

  private constructor({ value, text }: Pick<FetchBody, 'value' | 'text'>, bytes: Bytes) {
    this.value = value;
    this.text = text;
    this.#bytes = bytes;
  }

  /** @throws TypeError where somebody has read the body before. */
  static async read(
    request: Request,
    port: RequestPort,
    limit: number,
  ): Promise<FetchBody | BodyFailure> {
    if (request.bodyUsed || request.body?.locked) {
      throw new TypeError('the body of a request was read before gateFetch() was given it');
    }
    const unfit = unfitBody(port, limit);
    if (unfit !== undefined) return unfit;
    const bytes = await readAll(request, limit);
    if (bytes === 'aborted') return bytes;
    if (bytes === 'too-large') return tooLarge(limit);
    const parsed = parseBody(Buffer.from(bytes.buffer).toString());
    return 'status' in parsed ? parsed : new FetchBody(parsed, bytes);
  }

  get bytes(): Bytes {
    return this.#bytes;
  }

  replace(text: string): void {
    this.#bytes = new TextEncoder().encode(text);
  }
}

async function readAll(request: Request, limit: number): Promise<Bytes | 'too-large' | 'aborted'> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of request.body ?? []) {
      size += chunk.length;
      // The rest is read and dropped, since a client whose upload is cut off never reads the answer.
      if (size <= limit) chunks.push(chunk);
    }
  } catch {
    return 'aborted';
  }
  return size > limit ? 'too-large' : joined(chunks, size);
}

function joined(chunks: readonly Uint8Array[], size: number): Bytes {
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
