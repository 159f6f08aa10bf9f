import * as z from 'zod';
import { InterlockError } from '../errors.ts';
import { rightNames } from '../nearest.ts';
import { parseOptions, showValue } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import type { Machine } from './transition.ts';

/** Not strict: a backend may keep more beside a snapshot than it was given. */
const snapshotSchema = z.object({
  state: z.string(),
  updatedAt: z.number(),
  version: z.int().min(0).optional(),
  context: z.custom<Json>().optional(),
});

/**
 * Checks a snapshot that comes from outside and copies it. The context is passed on as it is.
 *
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it is malformed or in a state that the workflow does not have.
 */
export function parseSnapshot(machine: Pick<Machine, 'id' | 'states'>, value: unknown): FsmSnapshot {
  const what = `snapshot of workflow "${machine.id}"`;
  const { state, updatedAt, version, context } = parseOptions(
    what,
    snapshotSchema,
    value,
    'ERR_INTERLOCK_SNAPSHOT',
  );
  if (!machine.states.has(state)) {
    const message = `${what}: ${showValue(state)} is no state of it, ${rightNames(state, machine.states.keys())}`;
    throw new InterlockError('ERR_INTERLOCK_SNAPSHOT', message);
  }
  return {
    state,
    updatedAt,
    ...(version === undefined ? {} : { version }),
    ...(context === undefined ? {} : { context }),
  };
}
