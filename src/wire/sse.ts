const LF = 10;
const CR = 13;

/**
 * Cuts a byte stream into server-sent events without decoding them, so that what nobody changes goes on as the bytes that
 * came. A block ends with the blank line that dispatches it (WHATWG HTML, section 9.2.6: CRLF, LF or CR).
 */
export class SseSplitter {
  #held: Buffer[] = [];
  #heldBytes = 0;
  #lineIsEmpty = true;
  #afterCr = false;

  /** Bytes of an event that is not complete yet. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** The blocks that this chunk completes. */
  push(chunk: Buffer): Buffer[] {
    const blocks: Buffer[] = [];
    let start = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at];
      if (byte !== LF && byte !== CR) {
        this.#lineIsEmpty = false;
        this.#afterCr = false;
        at = endOfLine(chunk, at) - 1;
        continue;
      }
      const secondHalf = byte === LF && this.#afterCr;
      this.#afterCr = byte === CR;
      if (secondHalf) continue;
      if (this.#lineIsEmpty) {
        // The LF of a CRLF belongs to the block, if it is already here.
        const end = byte === CR && chunk[at + 1] === LF ? at + 2 : at + 1;
        blocks.push(this.#take(chunk.subarray(start, end)));
        start = end;
        if (end === at + 2) {
          at++;
          this.#afterCr = false;
        }
      }
      this.#lineIsEmpty = true;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
    return blocks;
  }

  /** What is left when the stream ends: bytes that no blank line completed. */
  rest(): Buffer {
    return this.#take(Buffer.alloc(0));
  }

  #hold(bytes: Buffer): void {
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
  }

  #take(last: Buffer): Buffer {
    if (this.#held.length === 0) return last;
    const whole = Buffer.concat([...this.#held, last]);
    this.#held = [];
    this.#heldBytes = 0;
    return whole;
  }
}

function endOfLine(chunk: Buffer, from: number): number {
  const lf = chunk.indexOf(LF, from);
  const end = lf === -1 ? chunk.length : lf;
  const cr = chunk.subarray(from, end).indexOf(CR);
  return cr === -1 ? end : from + cr;
}

/** An event's fields, with everything that is not `data` kept as it came. */
export interface SseEvent {
  /** The `data` lines joined by LF, or `undefined` where the block has none. */
  readonly data: string | undefined;
  /** The last `event` field, by default `message`. */
  readonly type: string;
  /** Whether the block sets a last-event id: the stream can be resumed after it. */
  readonly hasId: boolean;
  /** The lines other than `data`: ids, retry times, comments. */
  readonly otherLines: readonly string[];
}

export function parseEvent(block: string): SseEvent {
  const data: string[] = [];
  const otherLines: string[] = [];
  let type = 'message';
  let hasId = false;
  for (const line of block.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/)) {
    if (line === '') continue;
    const colon = line.indexOf(':');
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') {
      data.push(value);
      continue;
    }
    otherLines.push(line);
    if (field === 'event') type = value || 'message';
    else if (field === 'id') hasId = value !== '' && !value.includes('\0');
  }
  return { data: data.length === 0 ? undefined : data.join('\n'), type, hasId, otherLines };
}

/** An event with new data; JSON that spans lines becomes several `data` lines. */
export function formatEvent(data: string, otherLines: readonly string[] = ['event: message']): string {
  const dataLines = data.split(/\r\n|\r|\n/).map((line) => `data: ${line}`);
  return `${[...otherLines, ...dataLines].join('\n')}\n\n`;
}
