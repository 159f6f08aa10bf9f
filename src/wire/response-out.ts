import { STATUS_CODES } from 'node:http';
import { isJsonType, namesOtherCharset } from './headers.ts';
import type { ResponsePort } from './ports.ts';
import type { Originals } from './response-patch.ts';
import { after, type MaybePromise } from './task-line.ts';
import type { Done } from './write-arguments.ts';

const NOTHING = Buffer.alloc(0);

/** Headers that describe the very bytes of a body. */
const BODY_HEADERS = [
  'content-length',
  'content-encoding',
  'etag',
  'content-digest',
  'repr-digest',
  'digest',
];

/** What a way out is made of. */
export interface WayOut {
  readonly res: ResponsePort;
  readonly original: Originals;
  /** Right before the headers go, once. */
  readonly beforeHead: () => MaybePromise<void>;
  /** Nobody is there to read any more. */
  readonly isGone: () => boolean;
  /** What a write fails with then, as far as the upstream may know. */
  readonly writeError: () => Error | undefined;
  readonly onEnd: () => void;
}

/**
 * The way out to the client: the headers once, then bytes, then the end. Bytes for which there is
 * nobody left are dropped; headers and the end go on even then, for whoever stands in front. Its
 * calls come one after another.
 */
export class ResponseOut {
  readonly #way: WayOut;
  #headPrepared = false;
  #headSent = false;
  #ended = false;
  #blocked = false;
  #written = false;
  /** The status and reason that the upstream gave, which belong together. */
  #named: { readonly status: number; readonly reason: string | undefined } | undefined;
  #statesLength = false;
  /** Writers whose bytes did not go out, because the connection broke. */
  readonly #broken: NonNullable<Done>[] = [];

  constructor(way: WayOut) {
    this.#way = way;
  }

  get headSent(): boolean {
    return this.#headSent;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Nobody is there to read any more. */
  get gone(): boolean {
    return this.#way.isGone();
  }

  /** Whoever reads does not keep up: it is better to wait. */
  get blocked(): boolean {
    return this.#blocked;
  }

  unblock(): void {
    this.#blocked = false;
  }

  /** The upstream's status line is known, and whether Node would state the length of the body. */
  noteHead(reason: string | undefined, statesLength: boolean): void {
    this.#named = { status: this.#way.res.statusCode, reason };
    this.#statesLength = statesLength;
  }

  /** Another body will be sent than the upstream's. */
  dropBodyHeaders(): void {
    if (this.#headSent) return;
    for (const name of BODY_HEADERS) this.#way.res.removeHeader(name);
  }

  /** Sends the headers where they have not gone yet. */
  sendHead(): MaybePromise<void> {
    return after(this.#prepareHead(), () => this.#writeHead());
  }

  /** Has headers that were sent go at once, where nothing went that they could go with. */
  flush(): void {
    const isDue = this.#headSent && !this.#written && !this.#ended && !this.gone;
    if (isDue) this.#way.original.flushHeaders();
  }

  /** Sends bytes; the headers are on their way already. */
  write(bytes: Uint8Array): void {
    if (bytes.length === 0 || this.#ended || this.gone) return;
    this.#written = true;
    if (this.#way.original.write(bytes) === false) this.#blocked = true;
  }

  /** Sends bytes of an event stream, which nobody in front may hold back. */
  writeEvent(bytes: Uint8Array): void {
    this.write(bytes);
    (this.#way.res as { flush?: () => void }).flush?.();
  }

  /** Ends the response. Where the headers have not gone yet, `last` is the whole body. */
  end(last: Uint8Array = NOTHING): MaybePromise<void> {
    if (this.#ended) return;
    return after(this.#prepareHead(), () => {
      if (!this.#headSent && this.#statesLength) this.#stateLength(last.length);
      this.#writeHead();
      this.#ended = true;
      this.#way.original.end(last.length > 0 && !this.gone ? last : undefined);
      this.#way.onEnd();
    });
  }

  /** Ends the response with a JSON body in place of the upstream's, or with none. */
  endWith(json: string | Uint8Array | undefined): MaybePromise<void> {
    if (this.#headSent) return this.end();
    const { res } = this.#way;
    this.dropBodyHeaders();
    res.removeHeader('transfer-encoding');
    res.removeHeader('trailer');
    this.#statesLength = true;
    if (json === undefined) res.removeHeader('content-type');
    else if (!isPlainJsonType(res.getHeader('content-type')))
      res.setHeader('content-type', 'application/json');
    return this.end(typeof json === 'string' ? Buffer.from(json) : json);
  }

  /** Calls back once everything that was written is on its way: a writer may pace itself by it. */
  afterWrites(done: NonNullable<Done>): void {
    const { original, writeError } = this.#way;
    if (!this.#headSent || this.#ended) process.nextTick(done);
    else if (this.gone) process.nextTick(done, writeError());
    else {
      original.write(NOTHING, (error) => {
        if (!error) done();
        else if (this.gone) done(writeError());
        else this.#broken.push(done);
      });
    }
  }

  /** It is known now what the upstream may see of the connection's end. */
  settleWrites(): void {
    for (const done of this.#broken.splice(0)) process.nextTick(done, this.#way.writeError());
  }

  /** Once only, even where it failed: what is sent then is the refusal. */
  #prepareHead(): MaybePromise<void> {
    if (this.#headPrepared) return;
    this.#headPrepared = true;
    return this.#way.beforeHead();
  }

  #writeHead(): void {
    if (this.#headSent) return;
    this.#headSent = true;
    const { res, original } = this.#way;
    const status = res.statusCode;
    const changed = this.#named !== undefined && this.#named.status !== status;
    original.writeHead(status, changed ? STATUS_CODES[status] : this.#named?.reason);
  }

  #stateLength(length: number): void {
    const { res } = this.#way;
    if (res.hasHeader('content-length') || res.hasHeader('transfer-encoding')) return;
    const { statusCode: status } = res;
    if (res.req.method === 'HEAD' || status === 204 || status === 304 || status < 200) return;
    res.setHeader('content-length', length);
  }
}

function isPlainJsonType(contentType: unknown): boolean {
  return isJsonType(contentType) && !namesOtherCharset(String(contentType));
}
