import { createHash } from 'node:crypto';

const READABLE = /^[\w.:-]{1,64}$/;

/**
 * The two keys of a run: its hash and its trail. What stands between the braces is all that Redis
 * Cluster looks at, so both are in one slot. A run key that is short and harmless stays readable;
 * any other is digested, over its UTF-16 units, because UTF-8 has no place for half a surrogate
 * pair.
 */
export function runKeys(prefix: string, run: string): [run: string, trail: string] {
  const name = READABLE.test(run) ? run : `#${digest(run)}`;
  const key = `${prefix}:{${name}}`;
  return [key, `${key}:trail`];
}

function digest(text: string): string {
  return createHash('sha256').update(text, 'utf16le').digest('base64url');
}
