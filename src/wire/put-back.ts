import type { IncomingMessage } from 'node:http';
import type { MaybePromise } from './task-line.ts';

/** All of a request's stream, or why it could not be had. */
export type StreamRead = Buffer | 'too-large' | 'aborted';

/**
 * Reads a request's stream and puts it back, so that the next one reads it as if nobody had: with
 * `unshift` before `end` was emitted. Of a stream that is too large the rest is left where it is.
 */
export function readAndPutBack(req: IncomingMessage, limit: number): MaybePromise<StreamRead> {
  if (req.readableEnded) return Buffer.alloc(0);
  if (req.destroyed) return 'aborted';
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (result: StreamRead): void => {
      req.off('readable', onReadable).off('end', onEnd).off('error', onGone).off('close', onGone);
      resolve(result);
    };
    const onEnd = (): void => finish(Buffer.concat(chunks));
    const onGone = (): void => finish('aborted');
    const onReadable = (): void => {
      for (let bytes = takeAll(req); bytes !== undefined && size <= limit; bytes = takeAll(req)) {
        chunks.push(bytes);
        size += bytes.length;
      }
      if (size > limit) {
        finish('too-large');
      } else if (req.complete && size > 0) {
        // In this very tick: `end` is already on its way, and is called off by there being bytes
        // again.
        const bytes = Buffer.concat(chunks);
        putBack(req, bytes);
        finish(bytes);
      }
    };
    req.on('readable', onReadable).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/**
 * How much of a body that was refused is still read, and for how long: a client whose upload is cut
 * off never reads the answer, and one that never ends must not be listened to for ever.
 */
export const REST = { ms: 1_000, bytes: 16 * 1024 * 1024 } as const;

/**
 * Reads and drops what is still to come of a body, as {@link REST} says, and breaks the connection
 * off after that.
 */
export function dropRest(req: IncomingMessage, onEnd: () => void): void {
  let left: number = REST.bytes;
  const cut = (): void => void req.destroy();
  const timer = setTimeout(cut, REST.ms);
  timer.unref();
  req.on('data', (chunk: Buffer | string) => {
    left -= chunk.length;
    if (left < 0) cut();
  });
  const finish = (): void => {
    clearTimeout(timer);
    req.off('end', finish).off('close', finish);
    onEnd();
  };
  req.on('error', () => {});
  req.once('end', finish).once('close', finish).resume();
}

/** Replaces what was put back. `false` where somebody has read it meanwhile. */
export function replacePutBack(req: IncomingMessage, bytes: Buffer): boolean {
  if (takeAll(req) === undefined) return false;
  putBack(req, bytes);
  return true;
}

/** Somebody in front may have asked for text; then it comes as text, and goes back as text. */
function takeAll(req: IncomingMessage): Buffer | undefined {
  const taken = req.read() as Buffer | string | null;
  if (taken === null) return undefined;
  return typeof taken === 'string' ? Buffer.from(taken, req.readableEncoding ?? 'utf8') : taken;
}

function putBack(req: IncomingMessage, bytes: Buffer): void {
  const { readableEncoding } = req;
  if (readableEncoding === null) req.unshift(bytes);
  else req.unshift(bytes.toString(readableEncoding), readableEncoding);
}
