import type { IncomingHttpHeaders } from 'node:http';

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
