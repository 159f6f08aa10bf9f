import { NOTHING } from './body.ts';
import type { JsonObject } from './json-rpc.ts';

const LF = 10;
const CR = 13;
const SPACE = 32;

/**
 * Cuts a byte stream into blocks, one for each server-sent event. It does not decode them, so an
 * event that no filter changes goes on as the bytes that came. A blank line ends a block; lines end
 * with CRLF, LF or CR (WHATWG HTML, section 9.2.6).
 */
export class SseSplitter {
  #buffered: Buffer[] = [];
  #bufferedBytes = 0;
  #lineIsEmpty = true;
  #afterCr = false;

  /** Bytes of an event that is not complete yet. */
  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** The blocks that this chunk completes. */
  push(chunk: Buffer): Buffer[] {
    const blocks: Buffer[] = [];
    const lineEnds = new LineEnds(chunk);
    let start = 0;
    for (let at = 0; at < chunk.length; ) {
      const lineEnd = lineEnds.from(at);
      if (lineEnd > at) {
        this.#lineIsEmpty = false;
        this.#afterCr = false;
        at = lineEnd;
        continue;
      }
      const isSecondHalf = this.#afterCr && chunk[at] === LF;
      this.#afterCr = chunk[at] === CR;
      at++;
      if (isSecondHalf) continue;
      if (this.#lineIsEmpty) {
        // The LF of a CRLF belongs to the block, if it is already here.
        if (this.#afterCr && chunk[at] === LF) {
          this.#afterCr = false;
          at++;
        }
        blocks.push(this.#take(chunk.subarray(start, at)));
        start = at;
      }
      this.#lineIsEmpty = true;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
    return blocks;
  }

  /** The bytes at the end of the stream that no blank line completed. */
  rest(): Buffer {
    return this.#take(NOTHING);
  }

  /** Copies the bytes: the writer may use their memory again. */
  #hold(bytes: Buffer): void {
    this.#buffered.push(Buffer.from(bytes));
    this.#bufferedBytes += bytes.length;
  }

  #take(last: Buffer): Buffer {
    if (this.#buffered.length === 0) return last;
    const whole = Buffer.concat([...this.#buffered, last]);
    this.#buffered = [];
    this.#bufferedBytes = 0;
    return whole;
  }
}

/** Finds line ends from left to right. It searches each byte once for LF and once for CR. */
class LineEnds {
  readonly #chunk: Buffer;
  #lf = -1;
  #cr = -1;

  constructor(chunk: Buffer) {
    this.#chunk = chunk;
  }

  /** The place of the first LF or CR from `at` on, or else the end of the chunk. */
  from(at: number): number {
    if (this.#lf < at) this.#lf = this.#find(LF, at);
    if (this.#cr < at) this.#cr = this.#find(CR, at);
    return Math.min(this.#lf, this.#cr);
  }

  #find(byte: number, at: number): number {
    const found = this.#chunk.indexOf(byte, at);
    return found === -1 ? this.#chunk.length : found;
  }
}

/** The bytes without the UTF-8 byte order mark that a stream may begin with. */
export function withoutByteOrderMark(bytes: Buffer): Buffer {
  const marked = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
  return marked ? bytes.subarray(3) : bytes;
}

/** An event's fields. All but `data` are kept as they came. */
export interface SseEvent {
  /** The `data` lines joined by LF, or `undefined` where the block has none. */
  readonly data: string | undefined;
  /** The last `event` field, by default `message`. */
  readonly type: string;
  /** Whether the event has an id, after which a client can resume the stream. */
  readonly hasId: boolean;
  /** The lines other than `data`: ids, retry times, comments. */
  readonly otherLines: readonly string[];
}

/** Reads one block without a byte order mark. */
export function parseSseEvent(block: string): SseEvent {
  const data: string[] = [];
  const otherLines: string[] = [];
  let type = 'message';
  let hasId = false;
  for (const line of block.split(/\r\n|\r|\n/)) {
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
    // Clients ignore an id with NUL in it (WHATWG HTML, section 9.2.6).
    else if (field === 'id' && !value.includes('\0')) hasId = value !== '';
  }
  return { data: data.length === 0 ? undefined : data.join('\n'), type, hasId, otherLines };
}

/** A block whose last line is its only line of data, as most servers write it. */
interface SingleData {
  readonly data: Buffer;
  /** The fields in front of the data. */
  readonly event: SseEvent;
  /** The block with other data, and with all else as it came. */
  with(data: Uint8Array): Buffer;
}

/** `undefined` where the block has no single last line of data. */
export function singleDataOf(block: Buffer): SingleData | undefined {
  const at = block.indexOf('data:');
  if (at === -1 || (at > 0 && block[at - 1] !== LF)) return undefined;
  const start = block[at + 5] === SPACE ? at + 6 : at + 5;
  let end = block.length;
  while (end > start && (block[end - 1] === LF || block[end - 1] === CR)) end--;
  const data = block.subarray(start, end);
  if (data.includes(LF) || data.includes(CR)) return undefined;
  const event = parseSseEvent(block.toString('utf8', 0, at));
  if (event.data !== undefined) return undefined;
  const [before, behind] = [block.subarray(0, start), block.subarray(end)];
  return { data, event, with: (other) => Buffer.concat([before, other, behind]) };
}

/** An event with new data. JSON with line breaks becomes several `data` lines. */
export function formatEvent(
  data: string,
  otherLines: readonly string[] = ['event: message'],
): string {
  const dataLines = data.split(/\r\n|\r|\n/).map((line) => `data: ${line}`);
  return `${[...otherLines, ...dataLines].join('\n')}\n\n`;
}

/** A message of our own as an event. It has no id, so that no client resumes after it. */
export function sseEventOf(message: JsonObject): Buffer {
  return Buffer.from(formatEvent(JSON.stringify(message)));
}
