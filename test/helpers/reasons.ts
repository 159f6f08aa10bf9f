import type { RefusalReason } from '../../src/index.ts';

/** Each reason that a refusal may give. The compiler asks for the ones that are added. */
export const REASONS = Object.keys({
  state: true,
  arguments: true,
  guard: true,
  limit: true,
  busy: true,
  held: true,
  'too-many-held': true,
  loop: true,
  frozen: true,
  unavailable: true,
  unreadable: true,
  'no-run': true,
  unbound: true,
} satisfies Record<RefusalReason, true>) as readonly RefusalReason[];
