import type { IncomingMessage, ServerResponse } from 'node:http';
import { RequestBody } from './body.ts';
import { requestHeader, setRequestHeader } from './headers.ts';
import { type BadRequest, type Incoming, type IncomingBody, readIncoming } from './incoming.ts';
import { errorResponse, JSON_RPC, type JsonObject, TOOL_LIST_CHANGED } from './json-rpc.ts';
import type { Message } from './message.ts';
import { type BodyMode, type ResponseObserver, ResponseTap } from './response-tap.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/** What an exchange may hold in memory. */
export interface WireLimits {
  /** The largest request body, in bytes. */
  readonly maxBodyBytes: number;
  /** The most messages in one batch. */
  readonly maxBatch: number;
  /** The largest message of a response that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
}

export const DEFAULT_LIMITS: WireLimits = {
  maxBodyBytes: 4 * 1024 * 1024,
  maxBatch: 50,
  maxMessageBytes: 16 * 1024 * 1024,
};

/**
 * One middleware's part in an exchange. Responses run through the parts in the order of their stages, however the middlewares
 * are mounted: what a step came to is known before anybody decorates it.
 */
export interface Part {
  readonly stage: 'session' | 'gate' | 'sync';
  wants?(bytes: Buffer): boolean;
  onHead?(): MaybePromise<void>;
  onMessage?(message: Message): MaybePromise<void>;
  /** The upstream is done; what is returned is sent after its last message. */
  onEnd?(): MaybePromise<JsonObject[]>;
  /** Another part answered this message, so it is not forwarded. */
  onAnswered?(incoming: Incoming): MaybePromise<void>;
  onUnreadable?(): MaybePromise<void>;
  onDepart?(): void;
  onClose?(): void;
  /** Answers instead of the upstream, whose status and headers are known: with a stream, or with nothing but headers. */
  takesOver?(res: ServerResponse): 'stream' | 'empty' | undefined;
}

const STAGES = ['session', 'gate', 'sync'] as const;
const exchanges = new WeakMap<IncomingMessage, Exchange>();

/** One HTTP request and its response, shared by every middleware that it passes: read once, written once. */
export class Exchange implements ResponseObserver {
  readonly req: IncomingMessage;
  readonly tap: ResponseTap;
  readonly messages: readonly Incoming[];
  readonly isBatch: boolean;
  readonly #body: RequestBody | undefined;
  readonly #onError: (error: unknown) => void;
  #parts: Part[] = [];
  #forwarded = 0;
  #acceptEncoding: string | undefined;
  #answersTaken = false;

  private constructor(
    req: IncomingMessage,
    res: ServerResponse,
    body: RequestBody | undefined,
    incoming: IncomingBody,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ) {
    this.req = req;
    this.#body = body;
    this.messages = incoming.messages;
    this.isBatch = incoming.isBatch;
    this.#onError = onError;
    const holdHead = incoming.messages.some((each) => each.method === 'initialize');
    this.tap = new ResponseTap(res, this, { maxMessageBytes: limits.maxMessageBytes, holdHead });
    this.#askForPlainBytes();
  }

  /**
   * The exchange of this request; the first middleware makes it. `undefined` where it has been answered already (the body was refused) or where
   * nobody is left to answer.
   */
  static async of(
    req: IncomingMessage,
    res: ServerResponse,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): Promise<Exchange | undefined> {
    const known = exchanges.get(req);
    if (known !== undefined) return known;
    const opened = await Exchange.#open(req, res, limits, onError);
    if (opened !== undefined) exchanges.set(req, opened);
    return opened;
  }

  static async #open(
    req: IncomingMessage,
    res: ServerResponse,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): Promise<Exchange | undefined> {
    if (req.method !== 'POST') {
      return new Exchange(req, res, undefined, { isBatch: false, messages: [] }, limits, onError);
    }
    const body = await RequestBody.read(req, limits.maxBodyBytes);
    if (body === 'aborted') return undefined;
    if ('status' in body) {
      return sendBad(res, {
        status: body.status,
        body: errorResponse(null, JSON_RPC.PARSE_ERROR, body.message),
      });
    }
    const incoming = readIncoming(body.value, body.text, limits.maxBatch);
    if ('status' in incoming) return sendBad(res, incoming);
    return new Exchange(req, res, body, incoming, limits, onError);
  }

  get requests(): Incoming[] {
    return this.messages.filter((each) => each.kind === 'request');
  }

  /** Requests that the upstream has been or will be asked. */
  get forwardable(): Incoming[] {
    return this.requests.filter(isLeft);
  }

  join(part: Part): void {
    this.#parts = [...this.#parts, part].sort((a, b) => STAGES.indexOf(a.stage) - STAGES.indexOf(b.stage));
  }

  /** Answers one message here; the upstream never sees it. */
  answer(incoming: Incoming, response: JsonObject): MaybePromise<void> {
    incoming.answer = response;
    return inOrder(this.#parts, (part) => part.onAnswered?.(incoming));
  }

  /** Forgets a message whose answer nobody waits for any more. */
  drop(incoming: Incoming): MaybePromise<void> {
    incoming.dropped = true;
    return inOrder(this.#parts, (part) => part.onAnswered?.(incoming));
  }

  /** Answers the whole request here with a JSON-RPC error for each request in it. */
  reject(status: number, code: number, message: string): MaybePromise<void> {
    const ids = this.forwardable.map((each) => each.id ?? null);
    const errors = (ids.length === 0 ? [null] : ids).map((id) => errorResponse(id, code, message));
    return after(
      inOrder(this.forwardable, (each) => this.answer(each, {})),
      () => this.tap.respond(status, this.isBatch && ids.length > 0 ? errors : (errors[0] ?? undefined)),
    );
  }

  /** Hands the request on to whoever is mounted next, or answers it where nothing of it is left. */
  forward(next: () => void): void {
    const left = this.messages.filter(isLeft);
    if (this.messages.length > 0 && left.length === 0) {
      const answers = this.takeAnswers();
      if (answers.length === 0) this.tap.respond(202, undefined);
      else this.tap.respond(200, this.isBatch ? answers : answers[0]);
      return;
    }
    this.#rewriteBody(left);
    next();
  }

  /** Tells the client on this very stream that its list changed, once, in front of the message that is being passed on. */
  announceListChange(message: Message): boolean {
    if (this.tap.mode !== 'sse' || this.tap.departed) return false;
    if (!message.before.some((each) => each.method === TOOL_LIST_CHANGED)) {
      message.before.push({ jsonrpc: '2.0', method: TOOL_LIST_CHANGED });
    }
    return true;
  }

  // --- ResponseObserver -----------------------------------------------------------------------

  classify(res: ServerResponse): BodyMode {
    for (const part of this.#parts) {
      const taken = part.takesOver?.(res);
      if (taken !== undefined) return taken;
    }
    const type = String(res.getHeader('content-type') ?? '').toLowerCase();
    const encoding = String(res.getHeader('content-encoding') ?? 'identity').toLowerCase();
    const inspected = /^text\/event-stream\b/.test(type)
      ? 'sse'
      : /^application\/(\S+\+)?json\b/.test(type)
        ? 'json'
        : 'raw';
    const succeeded = res.statusCode >= 200 && res.statusCode < 300;
    if (inspected !== 'raw') return encoding === 'identity' ? inspected : 'unreadable';
    if (!succeeded) return 'raw';
    if (res.statusCode === 202 || res.statusCode === 204) return this.#owesAnswers() ? 'json' : 'raw';
    return this.forwardable.length > 0 ? 'unreadable' : 'raw';
  }

  onHead(): MaybePromise<void> {
    this.#restoreAcceptEncoding();
    return inOrder(this.#parts, (part) => part.onHead?.());
  }

  wants(bytes: Buffer): boolean {
    return this.#parts.some((part) => part.wants?.(bytes));
  }

  onMessage(message: Message): MaybePromise<void> {
    return inOrder(this.#parts, (part) => part.onMessage?.(message));
  }

  onEnd(): MaybePromise<JsonObject[]> {
    const last: JsonObject[] = [];
    const end = (part: Part): MaybePromise<void> => {
      if (part.onEnd !== undefined) return after(part.onEnd(), (messages) => void last.push(...messages));
    };
    return after<void, JsonObject[]>(inOrder(this.#parts, end), () => last);
  }

  takeAnswers(): JsonObject[] {
    if (!this.#owesAnswers()) return [];
    this.#answersTaken = true;
    return this.messages.flatMap((each) => each.answer ?? []);
  }

  onUnreadable(): MaybePromise<JsonObject[]> {
    return after(
      inOrder(this.#parts, (part) => part.onUnreadable?.()),
      () => {
        const text = 'the upstream sent a response that the middleware cannot read';
        const errors = this.forwardable.map((each) =>
          errorResponse(each.id ?? null, JSON_RPC.INTERNAL_ERROR, text),
        );
        const answers = this.takeAnswers();
        return errors.length + answers.length > 0
          ? [...answers, ...errors]
          : [errorResponse(null, JSON_RPC.INTERNAL_ERROR, text)];
      },
    );
  }

  onDepart(): void {
    for (const part of this.#parts) part.onDepart?.();
  }

  onClose(): void {
    for (const part of this.#parts) part.onClose?.();
  }

  onError(error: unknown): void {
    this.#onError(error);
  }

  // --------------------------------------------------------------------------------------------

  #owesAnswers(): boolean {
    return !this.#answersTaken && this.messages.some((each) => each.answer !== undefined);
  }

  #rewriteBody(left: readonly Incoming[]): void {
    const edits = left.reduce((sum, each) => sum + each.message.edits, this.messages.length - left.length);
    if (edits === this.#forwarded) return;
    this.#forwarded = edits;
    const texts = left.map((each) => each.message.text);
    this.#body?.replace(this.isBatch ? `[${texts.join(',')}]` : (texts[0] ?? ''));
  }

  /** An encoded response cannot be inspected, so the upstream is asked for none; what stands in front may still encode. */
  #askForPlainBytes(): void {
    this.#acceptEncoding = requestHeader(this.req, 'accept-encoding');
    if (this.#acceptEncoding !== undefined) setRequestHeader(this.req, 'accept-encoding', 'identity');
  }

  #restoreAcceptEncoding(): void {
    if (this.#acceptEncoding !== undefined)
      setRequestHeader(this.req, 'accept-encoding', this.#acceptEncoding);
  }
}

function isLeft(incoming: Incoming): boolean {
  return incoming.answer === undefined && incoming.dropped !== true;
}

function sendBad(res: ServerResponse, { status, body }: BadRequest): undefined {
  const bytes = Buffer.from(JSON.stringify(body));
  // Whatever of the body is still on its way is not read any more.
  const connection = status === 413 ? { connection: 'close' } : {};
  res.writeHead(status, {
    'content-type': 'application/json',
    'content-length': bytes.length,
    ...connection,
  });
  res.end(bytes);
}
