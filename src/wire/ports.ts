import type { IncomingHttpHeaders } from 'node:http';
import type { MaybePromise } from './task-line.ts';

/**
 * What the pipeline and its hosts know of each other: Node's HTTP server is one host, the Fetch API
 * the other.
 */

/** A request, as far as the pipeline looks at it. Node's own is one. */
export interface RequestPort {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** By lower-case names. */
  readonly headers: IncomingHttpHeaders;
  /** What authentication in front of the middlewares left. */
  readonly auth?: unknown;
  /** Names and values in turn, where the host keeps its headers twice. */
  readonly rawHeaders?: string[];
}

/**
 * A response's status and headers, for as long as they have not gone. Node's own response is one.
 */
export interface HeadPort {
  readonly req: { readonly method?: string | undefined };
  statusCode: number;
  getHeader(name: string): number | string | readonly string[] | undefined;
  setHeader(name: string, value: number | string): unknown;
  hasHeader(name: string): boolean;
  removeHeader(name: string): void;
}

/** A response that the pipeline can answer with. */
export interface ResponsePort extends HeadPort {
  /** Cuts it off where it is. */
  destroy(): unknown;
}

/**
 * Why a body could not be had, as an HTTP status; `aborted` means that there is nobody left to
 * answer.
 */
export type BodyFailure =
  | 'aborted'
  | { readonly status: 400 | 413 | 415; readonly message: string };

/** JSON text, and what it says. */
export interface BodyText {
  readonly value: unknown;
  /** Without a byte order mark, and with keys that are written as plainly as JSON allows. */
  readonly text: string;
}

/** A body as it is to be forwarded. Each is made when it is asked for. */
export interface Amended {
  readonly text: string;
  readonly value: unknown;
}

/** A request's body, read once. */
export interface BodyPort {
  readonly value: unknown;
  /** As in {@link BodyText}; absent where only a parsed value was there. */
  readonly text: string | undefined;
  /** What the same request says in other places where the upstream may look, in other words. */
  readonly others: readonly BodyText[];
  /** Replaces what the upstream will read. */
  replace(amended: Amended): void;
}

/** Called when bytes are on their way, or cannot be any more. */
export type Done = ((error?: Error | null) => void) | undefined;

/** The response's own methods, as they were before they were patched. */
export interface Originals {
  writeHead(status: number, message?: string): unknown;
  write(bytes: Uint8Array, done?: Done): boolean;
  end(bytes?: Uint8Array): unknown;
  flushHeaders(): void;
  emit(event: string, ...args: unknown[]): boolean;
  /** Calls back once all of it is on its way to the client, or nobody is left to read it. */
  onceFinished(done: () => void): void;
  /** Other headers go than those that the upstream has set so far, which it still finds there. */
  keepHeaders(): void;
}

/** Where the upstream's calls go instead. */
export interface ResponseSink {
  readonly headTaken: boolean;
  readonly ended: boolean;
  /** Other headers went out before the upstream gave its own, which have nowhere to go any more. */
  readonly headLost: boolean;
  /** A write was answered with `false`, and `drain` was not emitted since. */
  readonly owesDrain: boolean;
  readonly departed: boolean;
  readonly closeWithheld: boolean;
  /**
   * The status and headers are on the response. `withEnd` where nothing but `end` made them due:
   * Node states the length then.
   */
  takeHead(statusMessage: string | undefined, withEnd: boolean): void;
  write(bytes: Buffer, done: Done): boolean;
  /** `last` is empty where nothing was given. */
  end(last: Buffer, done: Done): void;
  flush(): void;
  /** Whoever stands in front can take more. */
  flowAgain(): void;
  /** `drain` is being emitted. */
  drained(): void;
  /** The connection closed. `true` keeps the event from the upstream. */
  close(): boolean;
  /** The upstream destroyed the response by itself. */
  destroy(): void;
}

/**
 * One HTTP request and its response, whatever serves them: all that the pipeline knows of Node or
 * of the Fetch API.
 */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** Whether the client's connection has ended, told or not. */
  isGone(): boolean;
  /**
   * Whether no upstream can read the body any more: it is a stream, and broke with its connection.
   */
  isBodyLost(): boolean;
  /** Whether this side ended it: a handler that destroys its socket gives no answer any more. */
  isCutHere(): boolean;
  /** Reads the body of a POST, at most `limit` bytes of it. */
  readBody(limit: number): MaybePromise<BodyPort | BodyFailure>;
  /** No upstream will read the body that was put back, and an open connection must not keep it. */
  dropBody(): void;
  /** Leads what the upstream answers into a sink; what is returned leads to the client. */
  redirect(sink: ResponseSink): Originals;
  /** Answers a request that no part of the pipeline has seen. */
  refuse(status: number, json: string): void;
}
