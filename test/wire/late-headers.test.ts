import type { ServerResponse } from 'node:http';
import type { RequestHandler, Response } from 'express';
import { describe, expect, it } from 'vitest';
import { type Answer, ask, HOSTS, LIST, MARKER, ONLOOKER, serve } from './wire-server.ts';

const RESULT = '{"jsonrpc":"2.0","id":1,"result":{}}';
const TYPES = { JSON: 'application/json', SSE: 'text/event-stream' };
type Kind = keyof typeof TYPES;

const bodyOf = (kind: Kind): string => (kind === 'JSON' ? RESULT : `data: ${RESULT}\n\n`);

/** The ways in which an upstream hands its head over, before it is done. */
const HEADS: Record<string, (res: ServerResponse, kind: Kind) => unknown> = {
  writeHead: (res) => res.writeHead(200),
  'writeHead with a reason': (res) => res.writeHead(200, 'Fine'),
  write: (res, kind) => res.write(bodyOf(kind)),
  flushHeaders: (res) => res.flushHeaders(),
  end: (res, kind) => res.end(bodyOf(kind)),
};

/** What an app may try with a head that is gone. */
const LATE: Record<string, (res: ServerResponse) => unknown> = {
  setHeader: (res) => res.setHeader('x-late', '1'),
  'setHeader of its type': (res) => res.setHeader('content-type', 'text/html'),
  appendHeader: (res) => res.appendHeader('x-early', '2'),
  setHeaders: (res) => res.setHeaders(new Map([['x-late', '1']])),
  removeHeader: (res) => res.removeHeader('x-early'),
  'removeHeader of its type': (res) => res.removeHeader('content-type'),
  writeHead: (res) => res.writeHead(500, { 'x-late': '1' }),
  statusCode: (res) => {
    res.statusCode = 500;
  },
  statusMessage: (res) => {
    res.statusMessage = 'Late';
  },
};

interface Seen {
  readonly answer: Answer;
  readonly said: unknown;
}

/** Hands a head over, tries all of it late, and says how that ended and what the client got. */
async function tryLate(
  kind: Kind,
  head: string,
  options: Parameters<typeof serve>[1],
): Promise<Seen> {
  const said: unknown[] = [];
  const { url } = await serve((_req, res) => {
    res.setHeader('content-type', TYPES[kind]);
    res.setHeader('x-early', '1');
    HEADS[head]?.(res, kind);
    for (const [name, late] of Object.entries(LATE)) {
      try {
        late(res);
        said.push(name);
      } catch (error) {
        const { name: type, message, code } = error as NodeJS.ErrnoException;
        said.push([name, type, message, code]);
      }
    }
    said.push(res.headersSent, res.getHeader('x-early'), res.getHeader('content-type'));
    if (!res.writableEnded) res.end(head === 'write' ? undefined : bodyOf(kind));
  }, options);
  return { answer: await ask(url, { body: LIST }), said };
}

const textOf = ({ status, reason, headers, body, complete }: Answer) => ({
  status,
  reason,
  headers: Object.fromEntries(
    // How a body is framed is not the upstream's to say here, and may differ.
    headers.filter(([name]) => !/^(transfer-encoding|content-length)$/i.test(name)),
  ),
  body: body.toString(),
  complete,
});

describe.each(HOSTS)('headers that come after the head, on %s,', (host) => {
  for (const kind of Object.keys(TYPES) as Kind[]) {
    it.each(Object.keys(HEADS))(`fail as on a bare server behind %s of ${kind}`, async (head) => {
      const bare = await tryLate(kind, head, { host, wired: false });
      const wired = await tryLate(kind, head, { host, filters: () => [ONLOOKER] });
      expect(wired.said).toEqual(bare.said);
      expect(textOf(wired.answer)).toEqual(textOf(bare.answer));
    });
  }
});

describe('headers after the head', () => {
  it('are still ours to change: a changed body states its own length', async () => {
    const { url } = await serve(
      (_req, res) => {
        res.writeHead(200, { 'content-type': TYPES.JSON, 'content-length': RESULT.length });
        expect(() => res.removeHeader('content-length')).toThrow(/Cannot remove headers/);
        res.end(RESULT);
      },
      { filters: () => [MARKER] },
    );
    const answer = await ask(url, { body: LIST });
    expect(JSON.parse(answer.body.toString()).result).toEqual({ marked: true });
    expect(answer.complete).toBe(true);
  });

  it.each(['express 4', 'express 5'] as const)(
    'are those of a middleware in front, which sets its own as the head goes out: %s',
    async (host) => {
      const stamp: RequestHandler = (_req, res, next) => {
        const { writeHead } = res;
        res.writeHead = function (this: ServerResponse, status: number) {
          this.setHeader('x-stamp', String(status));
          return writeHead.call(this, status);
        } as typeof res.writeHead;
        next();
      };
      const { url } = await serve((_req, res) => (res as Response).json(JSON.parse(RESULT)), {
        host,
        front: [stamp],
        filters: () => [MARKER],
      });
      const answer = await ask(url, { body: LIST });
      expect(Object.fromEntries(answer.headers)).toMatchObject({ 'x-stamp': '200' });
      expect(JSON.parse(answer.body.toString()).result).toEqual({ marked: true });
    },
  );

  it('are set in time by a middleware in front that holds the whole answer back', async () => {
    const hold: RequestHandler = (_req, res, next) => {
      const { writeHead, end } = res;
      let status = 0;
      res.writeHead = function (this: ServerResponse, code: number) {
        status = code;
        return this;
      } as typeof res.writeHead;
      res.end = function (this: ServerResponse, body: Buffer) {
        setImmediate(() => {
          this.setHeader('x-held', body.length);
          writeHead.call(this, status);
          end.call(this, body, 'utf8');
        });
        return this;
      } as typeof res.end;
      next();
    };
    const { url } = await serve(
      (_req, res) => res.writeHead(200, { 'content-type': TYPES.JSON }).end(RESULT),
      { host: 'express 5', front: [hold], filters: () => [ONLOOKER] },
    );
    const answer = await ask(url, { body: LIST });
    expect(Object.fromEntries(answer.headers)).toMatchObject({ 'x-held': String(RESULT.length) });
  });
});
