import * as z from 'zod';
import { parseOptions } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';

/** Not strict: a backend may keep more beside a snapshot than it was given. */
const snapshotSchema = z.object({
  state: z.string(),
  updatedAt: z.number(),
  version: z.int().min(0).optional(),
  context: z.custom<Json>().optional(),
});

/**
 * Checks the shape of a snapshot that comes from outside and copies it. The context is passed on as
 * it is.
 *
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it is malformed
 */
export function parseSnapshot(id: string, value: unknown): FsmSnapshot {
  const what = `snapshot of workflow "${id}"`;
  const { state, updatedAt, version, context } = parseOptions(
    what,
    snapshotSchema,
    value,
    'ERR_INTERLOCK_SNAPSHOT',
  );
  return {
    state,
    updatedAt,
    ...(version === undefined ? {} : { version }),
    ...(context === undefined ? {} : { context }),
  };
}
