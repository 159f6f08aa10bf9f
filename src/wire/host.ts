import type { IncomingMessage, ServerResponse } from 'node:http';
import { RequestBody } from './body.ts';
import type { BodyFailure, BodyPort, RequestPort, ResponsePort } from './ports.ts';
import { type Originals, patchResponse, type ResponseSink } from './response-patch.ts';

/** One HTTP request and its response, whatever serves them: all that the pipeline knows of Node or of the Fetch API. */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** Whether the client's connection has ended, told or not. */
  isGone(): boolean;
  /** Reads the body of a POST, at most `limit` bytes of it. */
  readBody(limit: number): Promise<BodyPort | BodyFailure>;
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
    readBody: (limit) => RequestBody.read(req, limit),
    redirect: (sink) => patchResponse(res, sink),
    refuse(status, json) {
      const bytes = Buffer.from(json);
      res.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length });
      res.end(bytes);
    },
  };
}
