import { createHash } from 'node:crypto';
import { BUCKETS, bucketOf } from '../../src/stores/redis/runs.ts';

/** The keys that `redisStore()` uses, as docs/operate/stores.md names them. */
export class RedisKeys {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  bucket(run: string): number {
    return bucketOf(nameOf(run));
  }

  run(run: string): string {
    return `${this.#start(this.bucket(run))}run:${nameOf(run)}`;
  }

  switch(workflow: string): string {
    return `${this.#start(this.bucket(workflow))}switch:${nameOf(workflow)}`;
  }

  /** The sorted set, and the hash of its members by run, which has the note of the layout too. */
  index(bucket: number): readonly [index: string, members: string] {
    const start = this.#start(bucket);
    return [`${start}index`, `${start}members`];
  }

  get indexes(): readonly ReturnType<RedisKeys['index']>[] {
    return Array.from({ length: BUCKETS }, (_, bucket) => this.index(bucket));
  }

  #start(bucket: number): string {
    return `${this.#prefix}:{b${String(bucket).padStart(2, '0')}}:`;
  }
}

function nameOf(run: string): string {
  const digest = () => createHash('sha256').update(run, 'utf16le').digest('base64url');
  return /^[\w.:-]{1,64}$/.test(run) ? run : `#${digest()}`;
}
