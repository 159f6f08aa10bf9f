import * as z from 'zod';
import { InterlockError } from '../errors.ts';
import { parseOptions, showValue } from '../options.ts';
import { globFault } from './glob.ts';
import type { PolicyDefaults, SyncPolicy } from './types.ts';

const directive = z.enum(['no-store', 'immutable']);

const glob = z.string().superRefine((pattern, context) => {
  const fault = globFault(pattern);
  if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
});

const policySchema = z.strictObject({
  match: glob,
  cacheControl: directive.optional(),
  invalidates: z.array(glob).optional(),
});

const defaultsSchema = z.strictObject({ cacheControl: directive.optional() });

/** Checked copies of the policies, which later changes to the originals do not reach. */
export function parsePolicies(policies: unknown): SyncPolicy[] {
  if (!Array.isArray(policies)) {
    throw new InterlockError(
      'ERR_INTERLOCK_CONFIG',
      `policies: expected array, got ${showValue(policies)}`,
    );
  }
  // `Array.from` sees the holes of a sparse array, which `map` would let through.
  return Array.from(policies, (policy: unknown, index) =>
    parseOptions(`policies[${index}]`, policySchema, policy, 'ERR_INTERLOCK_POLICY'),
  );
}

/** A checked copy of the defaults; leaving them out is giving none. */
export function parseDefaults(defaults: unknown): PolicyDefaults {
  return parseOptions('defaults', defaultsSchema, defaults);
}
