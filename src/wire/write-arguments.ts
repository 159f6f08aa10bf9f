/** Called when bytes are on their way, or cannot be any more. */
export type Done = ((error?: Error | null) => void) | undefined;

export function toBytes(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') {
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  }
  if (chunk instanceof Uint8Array)
    return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw nodeError(
    'ERR_INVALID_ARG_TYPE',
    'A chunk of a response must be a string or a Uint8Array',
    TypeError,
  );
}

export function callbackIn(...candidates: unknown[]): Done {
  return candidates.find((candidate) => typeof candidate === 'function') as Done;
}

export function refuseWrite(code: string, done: Done): false {
  if (done !== undefined) process.nextTick(done, nodeError(code, 'The response has ended'));
  return false;
}

/** The errors that Node gives for the same misuse, by their codes. */
export function nodeError(code: string, message: string, Kind: ErrorConstructor = Error): Error {
  return Object.assign(new Kind(message), { code });
}
