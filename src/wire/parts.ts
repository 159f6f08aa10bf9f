import { bodyModeOf } from './body-mode.ts';
import { requestHeader, setRequestHeader } from './headers.ts';
import { type Incoming, isLeft } from './incoming.ts';
import {
  errorResponse,
  idKey,
  isContradictory,
  isRequestId,
  JSON_RPC,
  type JsonObject,
} from './json-rpc.ts';
import type { Message } from './message.ts';
import { AskedPage, type RecalledPage } from './pages.ts';
import { type Part, withPart } from './part.ts';
import type { Payload } from './payload.ts';
import type { HeadPort, RequestPort } from './ports.ts';
import type { BodyMode, ResponseObserver } from './response-observer.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

const ENCODING = 'accept-encoding';
const UNREADABLE = 'the upstream sent a response that the middleware cannot read';

/** The parts of an exchange, which see its response one after another. */
export class Parts implements ResponseObserver {
  readonly #req: RequestPort;
  readonly #messages: readonly Incoming[];
  readonly #onError: (error: unknown) => void;
  /** What the client asked for, until the headers go. */
  #acceptEncoding: string | undefined;
  readonly #responded = new Set<string>();
  #parts: readonly Part[] = [];
  #answersTaken = false;
  #page: AskedPage | undefined;
  #closed = false;

  constructor(req: RequestPort, messages: readonly Incoming[], onError: (error: unknown) => void) {
    this.#req = req;
    this.#messages = messages;
    this.#onError = onError;
    // An encoded response cannot be inspected, so the upstream is asked for none; what stands in
    // front may still encode. Without the header an upstream encodes nothing.
    const asked = requestHeader(req, ENCODING);
    if (asked === undefined || asked === 'identity') return;
    this.#acceptEncoding = asked;
    setRequestHeader(req, ENCODING, 'identity');
  }

  join(part: Part): void {
    this.#parts = withPart(this.#parts, part);
    if (this.#closed) this.#tell((each) => (each === part ? part.onClose?.() : undefined));
  }

  /** One of the messages is not forwarded after all. */
  onAnswered(incoming: Incoming): MaybePromise<void> {
    return inOrder(this.#parts, (part) => part.onAnswered?.(incoming));
  }

  /** All of them know before the host says anything else. */
  onNotForwarded(): Promise<unknown> {
    return Promise.all(this.#parts.map((part) => part.onNotForwarded?.()));
  }

  classify(res: HeadPort): BodyMode {
    for (const part of this.#parts) {
      const taken = part.takesOver?.(res);
      if (taken !== undefined) return taken;
    }
    return bodyModeOf(res, {
      requests: this.#forwarded.length > 0,
      answers: this.#answers.length > 0,
    });
  }

  onHead(): MaybePromise<void> {
    if (this.#acceptEncoding !== undefined) {
      setRequestHeader(this.#req, ENCODING, this.#acceptEncoding);
      this.#acceptEncoding = undefined;
    }
    return after(
      inOrder(this.#parts, (part) => part.onHead?.()),
      // What was begun for a client that had left already ends here.
      () => (this.#closed ? this.onClose() : undefined),
    );
  }

  wants(bytes: Buffer): boolean {
    return this.#parts.some((part) => part.wants?.(bytes));
  }

  onMessage(message: Message): MaybePromise<void> {
    if (isContradictory(message.value)) this.#contradict(message);
    return inOrder(this.#parts, (part) => part.onMessage?.(message));
  }

  recall(bytes: Buffer): MaybePromise<RecalledPage | undefined> {
    const [asked, ...more] = this.#messages;
    if (asked?.method !== 'tools/list' || asked.id === undefined || more.length > 0) return;
    this.#page ??= new AskedPage(asked.id);
    return this.#page.recall(this.#parts, bytes);
  }

  remember(bytes: Buffer, payload: Payload): void {
    this.#page?.keep(bytes, payload);
  }

  onSent(id: unknown): void {
    if (isRequestId(id)) this.#responded.add(idKey(id));
  }

  onEnd(): MaybePromise<JsonObject[]> {
    const last: JsonObject[] = [];
    return after(
      inOrder(this.#parts, (part) =>
        after(part.onEnd?.() ?? [], (more) => void last.push(...more)),
      ),
      () => last,
    );
  }

  staysOpen(): boolean {
    return this.#parts.some((part) => part.staysOpen?.());
  }

  takeAnswers(): JsonObject[] {
    const answers = this.#answers;
    this.#answersTaken = true;
    return answers;
  }

  /**
   * An error for each request that has no response yet. Whatever goes wrong in a part, the client
   * is told.
   */
  async onUnreadable(hasBegun: boolean): Promise<JsonObject[]> {
    for (const part of this.#parts) {
      try {
        await part.onUnreadable?.();
      } catch (error) {
        this.onError(error);
      }
    }
    const open = this.#forwarded.filter(
      ({ id }) => id !== undefined && !this.#responded.has(idKey(id)),
    );
    const told = [...this.takeAnswers(), ...open.map(({ id }) => unreadable(id))];
    return told.length > 0 || hasBegun ? told : [unreadable(null)];
  }

  onDepart(): void {
    this.#tell((part) => part.onDepart?.());
  }

  onClose(): void {
    this.#closed = true;
    this.#tell((part) => part.onClose?.());
  }

  onError(error: unknown): void {
    try {
      this.#onError(error);
    } catch {}
  }

  /** Clients disagree about which of the two counts, so the client is shown neither. */
  #contradict(message: Message): void {
    this.onError(new Error('an answer of the upstream has both a result and an error'));
    message.isContradictory = true;
    message.replace(unreadable(message.value.id));
  }

  /** It is the connection that calls, and nothing may be thrown at it. */
  #tell(event: (part: Part) => void): void {
    for (const part of this.#parts) {
      try {
        event(part);
      } catch (error) {
        this.onError(error);
      }
    }
  }

  /** Requests that the upstream is asked. */
  get #forwarded(): Incoming[] {
    return this.#messages.filter((each) => each.kind === 'request' && isLeft(each));
  }

  get #answers(): JsonObject[] {
    if (this.#answersTaken) return [];
    return this.#messages.map(({ answer }) => answer).filter((answer) => answer !== undefined);
  }
}

function unreadable(id: unknown): JsonObject {
  return errorResponse(isRequestId(id) ? id : null, JSON_RPC.INTERNAL_ERROR, UNREADABLE);
}
