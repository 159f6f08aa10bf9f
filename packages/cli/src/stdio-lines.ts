/**
 * How messages are framed on stdio: one JSON text a line (MCP, Transports, "stdio"). Hides how
 * bytes become lines. Nothing is decoded before its line is whole, and no number is rounded.
 */

const LF = 10;
const CR = 13;

/** What a line that is too long still says of itself. */
export interface LongLine {
  readonly bytes: number;
  /** The id of the response or request, as JSON. `undefined` where its ends do not show it. */
  readonly id: string | undefined;
}

interface LineReader {
  line(text: string): void;
  tooLong(line: LongLine): void;
}

/** Of a line that is too long, its first and last bytes are kept: an id is mostly there. */
const KEPT = 512;
const ID = '"id"\\s*:\\s*(-?\\d+|"(?:[^"\\\\]|\\\\.)*")';
const ID_FIRST = new RegExp(`^\\s*\\{\\s*(?:"jsonrpc"\\s*:\\s*"2\\.0"\\s*,\\s*)?${ID}`);
const ID_LAST = new RegExp(`,\\s*${ID}\\s*(?:,\\s*"jsonrpc"\\s*:\\s*"2\\.0"\\s*)?\\}\\s*$`);

/**
 * Cuts a stream of bytes into lines. Each ends with LF or CRLF. A line over the limit is reported
 * and left out, and the next one counts again. Blank lines mean nothing.
 */
export class Lines {
  readonly #limit: number;
  readonly #reader: LineReader;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** The beginning of a line that is too long. */
  #start: Buffer | undefined;

  constructor(limit: number, reader: LineReader) {
    this.#limit = limit;
    this.#reader = reader;
  }

  push(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(LF); at !== -1; at = chunk.indexOf(LF, from)) {
      this.#add(chunk.subarray(from, at));
      this.#end();
      from = at + 1;
    }
    this.#add(chunk.subarray(from));
  }

  /** The stream is over. Its last line may lack its end. */
  end(): void {
    this.#end();
  }

  #add(part: Buffer): void {
    this.#bytes += part.length;
    this.#parts.push(part);
    if (this.#bytes <= this.#limit) return;
    const all = Buffer.concat(this.#parts);
    this.#start ??= Buffer.from(all.subarray(0, KEPT));
    this.#parts = [Buffer.from(all.subarray(-KEPT))];
  }

  #end(): void {
    const [first] = this.#parts;
    const whole = first && this.#parts.length === 1 ? first : Buffer.concat(this.#parts);
    const text = whole.toString('utf8', 0, whole.at(-1) === CR ? whole.length - 1 : whole.length);
    if (this.#start !== undefined) {
      const [, id] = ID_FIRST.exec(this.#start.toString()) ?? ID_LAST.exec(text) ?? [];
      this.#reader.tooLong({ bytes: this.#bytes, id });
    } else if (text.trim() !== '') this.#reader.line(text);
    this.#parts = [];
    this.#bytes = 0;
    this.#start = undefined;
  }
}
