/**
 * How runs are named in Redis: which bucket a run is in, and its keys. All of this is a part of the
 * format: no later version may change it for runs that are there.
 */
import { createHash } from 'node:crypto';

/**
 * Every run is in one bucket, and its bucket's index beside it: on Redis Cluster a bucket is in one
 * slot, so one script can write both.
 */
export const BUCKETS = 64;

const READABLE = /^[\w.:-]{1,64}$/;

/** The keys of a bucket's index: its members by score, and what the scores are made of. */
export type IndexKeys = readonly [index: string, numbers: string];

/** How the scripts name a run, and which keys they need for it. */
export interface RunName {
  readonly name: string;
  readonly bucket: number;
  readonly keys: readonly [run: string, ...IndexKeys];
}

/** Makes the keys of one store, and those of each index only once. */
export class Keys {
  readonly indexes: readonly IndexKeys[];
  readonly #prefixes: readonly string[];

  constructor(prefix: string) {
    this.#prefixes = Array.from({ length: BUCKETS }, (_, bucket) => bucketPrefix(prefix, bucket));
    this.indexes = this.#prefixes.map((start) => [`${start}index`, `${start}numbers`]);
  }

  of(run: string): RunName {
    return this.named(nameOf(run));
  }

  named(name: string): RunName {
    const bucket = bucketOf(name);
    return { name, bucket, keys: [`${this.#prefixes[bucket]}run:${name}`, ...this.index(bucket)] };
  }

  index(bucket: number): IndexKeys {
    const keys = this.indexes[bucket];
    if (keys === undefined) throw new RangeError(`There is no bucket ${bucket}`);
    return keys;
  }
}

/**
 * What stands between the braces is all that Redis Cluster looks at, so all keys of a bucket are in
 * one slot.
 */
function bucketPrefix(prefix: string, bucket: number): string {
  return `${prefix}:{b${String(bucket).padStart(2, '0')}}:`;
}

/**
 * A run key that is short and harmless stays readable; any other is digested, over its UTF-16
 * units, because UTF-8 has no place for half a surrogate pair.
 */
function nameOf(run: string): string {
  return READABLE.test(run) ? run : `#${sha256(run).toString('base64url')}`;
}

/** What a run has to keep of its key: nothing where its name says it. */
export function keptKey(run: string): string {
  return READABLE.test(run) ? '' : JSON.stringify(run);
}

/** Whether a run's name is its key. */
export function isKey(name: string): boolean {
  return !name.startsWith('#');
}

/** FNV-1a, folded: short, the same everywhere, and even for names that count. */
function bucketOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return ((hash >>> 16) ^ (hash >>> 8) ^ hash) & (BUCKETS - 1);
}

/** The score under which the index has a principal's runs. All others are not negative. */
export function principalScore(principal: string): string {
  return `-${sha256(principal).readUIntBE(0, 6) + 1}`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text, 'utf16le').digest();
}
