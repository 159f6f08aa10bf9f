/**
 * The page's side of the contract in `src/api.ts`: requests with the token that writing needs, and
 * the stream of events, which comes back by itself.
 */
import type { Failure, FailureCode, LiveEvent, LiveEvents, SessionInfo } from '../src/api.ts';

/** The assets stand in a folder beside `api/`, wherever the app mounts the page. */
const API = new URL('../api/', import.meta.url);
const PATIENCE_MS = 15_000;

/** The server said no, or could not be asked. */
export class RequestFailed extends Error {
  override readonly name = 'RequestFailed';
  /** `offline`: no answer came. */
  readonly code: FailureCode | 'offline';

  constructor(code: FailureCode | 'offline', message: string) {
    super(message);
    this.code = code;
  }
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A fault of the page itself counts as one of the server. */
export function asFailure(error: unknown): RequestFailed {
  return error instanceof RequestFailed ? error : new RequestFailed('internal', wordsOf(error));
}

export type Query = Readonly<Record<string, string | number | undefined>>;

export class Server {
  #session: SessionInfo | undefined;
  #renewAt = 0;

  /** Who looks, and what they may do: asked anew where it is too old. */
  async session(): Promise<SessionInfo> {
    if (this.#session !== undefined && performance.now() < this.#renewAt) return this.#session;
    const session = await this.get<SessionInfo>('session');
    this.#session = session;
    this.#renewAt = performance.now() + session.renewAfterMs;
    return session;
  }

  /** @throws RequestFailed */
  async get<Answer>(path: string, query: Query = {}): Promise<Answer> {
    return this.#ask<Answer>(addressOf(path, query), { headers: { accept: 'application/json' } });
  }

  /** @throws RequestFailed */
  async post<Answer>(path: string, body: object): Promise<Answer> {
    try {
      return await this.#post<Answer>(path, body);
    } catch (error) {
      if (!(error instanceof RequestFailed) || error.code !== 'token') throw error;
      this.#session = undefined;
      return this.#post<Answer>(path, body);
    }
  }

  async #post<Answer>(path: string, body: object): Promise<Answer> {
    const { token } = await this.session();
    return this.#ask<Answer>(addressOf(path), {
      method: 'POST',
      headers: {
        accept: 'application/json',
        'content-type': 'application/json',
        'x-interlock-token': token,
      },
      body: JSON.stringify(body),
    });
  }

  async #ask<Answer>(address: URL, request: RequestInit): Promise<Answer> {
    const response = await fetch(address, {
      ...request,
      cache: 'no-store',
      signal: AbortSignal.timeout(PATIENCE_MS),
    }).catch(() => {
      throw new RequestFailed('offline', 'The server does not answer.');
    });
    if (!response.ok) throw await failureOf(response);
    const answer: Answer = await response.json();
    return answer;
  }
}

function addressOf(path: string, query: Query = {}): URL {
  const address = new URL(path, API);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) address.searchParams.set(name, String(value));
  return address;
}

async function failureOf(response: Response): Promise<RequestFailed> {
  try {
    const { error }: Failure = await response.json();
    return new RequestFailed(error.code, error.message);
  } catch {
    // A proxy in between answers in words of its own.
    return new RequestFailed('internal', `The server answered ${response.status}.`);
  }
}

export type Reception = 'connecting' | 'live' | 'lost' | 'refused';

export interface Listener {
  readonly on: { readonly [Name in LiveEvent]: (news: LiveEvents[Name]) => void };
  /** The stream opened, was lost and is tried again, or was refused for good. */
  readonly onReception: (reception: Reception) => void;
}

/** One stream of events, tried again after 1 s, 2 s … 15 s until it is closed. */
export class Stream {
  readonly #listener: Listener;
  readonly #query: Query;
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #isClosed = false;

  constructor(query: Query, listener: Listener) {
    this.#query = query;
    this.#listener = listener;
    this.#open();
  }

  #open(): void {
    const source = new EventSource(addressOf('events', this.#query));
    const { on, onReception } = this.#listener;
    this.#source = source;
    listen(source, 'hello', (hello) => {
      this.#failures = 0;
      onReception('live');
      on.hello(hello);
    });
    listen(source, 'workflow', on.workflow);
    listen(source, 'stopped', on.stopped);
    listen(source, 'run', on.run);
    listen(source, 'bye', (bye) => {
      on.bye(bye);
      this.#lose(bye.why === 'unauthorized');
    });
    // The browser tries again where the connection broke, and gives up where the server refused.
    source.addEventListener('error', () => {
      if (this.#isClosed || source !== this.#source) return;
      if (source.readyState === EventSource.CLOSED) this.#lose(false);
      else onReception('lost');
    });
  }

  #lose(isRefused: boolean): void {
    this.#source?.close();
    this.#source = undefined;
    this.#listener.onReception(isRefused ? 'refused' : 'lost');
    if (isRefused) return;
    const waitMs = Math.min(15_000, 1000 * 2 ** this.#failures++) * (0.75 + Math.random() / 2);
    this.#timer = setTimeout(() => {
      if (!this.#isClosed) this.#open();
    }, waitMs);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#source?.close();
  }
}

function listen<Name extends LiveEvent>(
  source: EventSource,
  name: Name,
  listener: (news: LiveEvents[Name]) => void,
): void {
  source.addEventListener(name, ({ data }: MessageEvent<string>) => {
    const news: LiveEvents[Name] = JSON.parse(data);
    listener(news);
  });
}
