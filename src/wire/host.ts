import type { IncomingMessage, ServerResponse } from 'node:http';
import { RequestBody } from './body.ts';
import { type Originals, patchResponse, type ResponseSink } from './node-response.ts';
import type { BodyFailure, BodyPort, RequestPort, ResponsePort } from './ports.ts';
import { dropRest } from './put-back.ts';
import type { MaybePromise } from './task-line.ts';

/**
 * One HTTP request and its response, whatever serves them: all that the pipeline knows of Node or
 * of the Fetch API.
 */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** Whether the client's connection has ended, told or not. */
  isGone(): boolean;
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

export function nodeHost(req: IncomingMessage, res: ServerResponse): Host {
  return {
    request: req,
    response: res,
    isGone: () => req.socket?.destroyed === true,
    isCutHere: () => isCutHere(req),
    readBody: (limit) => RequestBody.read(req, limit),
    dropBody: () => void req.resume(),
    redirect: (sink) => patchResponse(res, sink),
    refuse: (status, json) => refuse(req, res, status, Buffer.from(json)),
  };
}

/**
 * Answers at once, whatever is still to come of the request. Its connection ends then: nobody knows
 * where the next request on it begins.
 */
function refuse(req: IncomingMessage, res: ServerResponse, status: number, answer: Buffer): void {
  const headers = { 'content-type': 'application/json', 'content-length': answer.length };
  if (req.complete || req.destroyed || req.httpVersionMajor !== 1) {
    res.writeHead(status, headers).end(answer);
    return;
  }
  res.writeHead(status, { ...headers, connection: 'close' }).write(answer);
  dropRest(req, () => res.end());
}

/**
 * A client that leaves ends its side, which the socket has read then, or breaks the connection,
 * which the socket has failed with. Where neither happened, somebody here destroyed it.
 */
function isCutHere({ httpVersionMajor, socket }: IncomingMessage): boolean {
  // Streams of HTTP/2 share one socket, which says nothing of a single one.
  if (httpVersionMajor !== 1 || socket?.destroyed !== true || socket.readableEnded) return false;
  const failure: NodeJS.ErrnoException | null = socket.errored ?? null;
  const isOfTheConnection = failure?.syscall === 'read' || failure?.syscall === 'write';
  // The parser's own errors: what the client sent after its request is no HTTP.
  return !isOfTheConnection && failure?.code?.startsWith('HPE_') !== true;
}
